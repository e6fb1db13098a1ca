//! Options of a server: its limits, and who may call it.

use std::path::Path;
use std::time::Duration;

use crate::error::Error;

/// Options of [`Server::new`](crate::Server::new).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The id of the model in the API; `None`: the last part of its path without the extension.
    pub name: Option<String>,
    /// Largest number of sequences that wait for a slot. A request beyond it gets status 429.
    pub queue: usize,
    /// Largest size of a request's body, in bytes.
    pub body: usize,
    /// Largest number of connections at a time. Further ones wait to be accepted.
    pub connections: usize,
    /// Largest number of sequences of one request: the number of its prompts times `n`.
    pub choices: usize,
    /// Time from a request's arrival to its last token.
    pub request_time: Duration,
    /// Time for which a stream that its client does not read is kept. It does not compute
    /// meanwhile.
    pub stall_time: Duration,
    /// Time that running requests have to finish when the server ends.
    pub grace_time: Duration,
    /// API keys, one of which a request must have; empty: every request is accepted.
    pub keys: Vec<String>,
    /// Origins whose pages may call the server from a browser (CORS); `*` is every origin.
    pub origins: Vec<String>,
    /// Names in the `Host` header that are accepted; empty: all. A server that only this computer
    /// reaches should list [`LOOPBACK_HOSTS`], so that no page can call it through a name that
    /// resolves to this computer.
    pub hosts: Vec<String>,
}

/// The names by which a client on the same computer calls a server.
pub const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            name: None,
            queue: 64,
            body: 1 << 20,
            connections: 256,
            choices: 16,
            request_time: Duration::from_secs(600),
            stall_time: Duration::from_secs(30),
            grace_time: Duration::from_secs(30),
            keys: Vec::new(),
            origins: Vec::new(),
            hosts: Vec::new(),
        }
    }
}

impl ServerOptions {
    /// Checks that every limit allows something.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let counts =
            [("queue", self.queue), ("body", self.body), ("connections", self.connections), ("choices", self.choices)];
        let times = [("request_time", self.request_time), ("stall_time", self.stall_time)];
        let zero = |name| Error::Option { name, value: "0".into(), rule: "give 1 or more" };
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(zero(name));
        }
        if let Some((name, _)) = times.into_iter().find(|(_, time)| time.is_zero()) {
            return Err(zero(name));
        }
        if self.connections > tokio::sync::Semaphore::MAX_PERMITS {
            return Err(Error::Option {
                name: "connections",
                value: self.connections.to_string(),
                rule: "too many for any computer",
            });
        }
        let wrong = |o: &&String| o.as_str() != "*" && o.parse::<axum::http::HeaderValue>().is_err();
        if let Some(origin) = self.origins.iter().find(wrong) {
            return Err(Error::Option { name: "origins", value: origin.clone(), rule: "not a header's value" });
        }
        Ok(())
    }
}

/// Reads API keys: one on each line, without the spaces around it. Empty lines and lines that begin
/// with `#` are ignored.
///
/// # Errors
/// [`Error::Keys`] if the file cannot be read; [`Error::NoKeys`] if it has none.
pub fn read_keys(path: impl AsRef<Path>) -> Result<Vec<String>, Error> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|source| Error::Keys { path: path.to_path_buf(), source })?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<String> = lines.map(str::to_string).collect();
    if keys.is_empty() { Err(Error::NoKeys(path.to_path_buf())) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "# staff\n sk-one \r\n\nsk-two\n").unwrap();
        assert_eq!(read_keys(&path).unwrap(), ["sk-one", "sk-two"]);
        std::fs::write(&path, "# none\n").unwrap();
        assert!(matches!(read_keys(&path), Err(Error::NoKeys(_))));
        assert!(matches!(read_keys(folder.path().join("other")), Err(Error::Keys { .. })));
    }

    #[test]
    fn a_limit_of_zero_is_refused() {
        assert!(ServerOptions::default().check().is_ok());
        let none = ServerOptions { queue: 0, ..ServerOptions::default() };
        assert_eq!(none.check().unwrap_err().to_string(), "`queue` 0: give 1 or more");
        let none = ServerOptions { stall_time: Duration::ZERO, ..ServerOptions::default() };
        assert!(none.check().is_err());
        let origins = vec!["http://a\n".to_string()];
        assert!(ServerOptions { origins, ..ServerOptions::default() }.check().is_err());
    }
}
