//! Who may call: the `Host` header, API keys, and what is counted of each reply.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::error::ApiError;
use crate::schedule::Client;

/// The address of a client, which the server adds to each request.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// The endpoints that are counted by name.
const ENDPOINTS: [&str; 10] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/models",
    "/tokenize",
    "/detokenize",
    "/tokenizer_info",
    "/metrics",
    "/health",
    "/",
];

pub async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let endpoint = ENDPOINTS.into_iter().find(|known| *known == path).unwrap_or("other");
    let method = request.method().clone();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    app.metrics.replied(endpoint, status);
    tracing::debug!(target: "ferrane::serve", %method, endpoint, status, "request");
    response
}

/// Refuses requests through names that are not the server's, and those without a key where one is
/// needed; the page and `/health` need none. Adds the [`Client`] to the request.
pub async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    if !app.options.hosts.is_empty() && !is_ours(request.headers(), &app.options.hosts) {
        let message = "the `Host` header names another server; this one must be asked to accept the name";
        return ApiError::refused(StatusCode::FORBIDDEN, message).code("host_not_allowed").into_response();
    }
    let open = matches!(request.uri().path(), "/" | "/health");
    let mut client = match request.extensions().get::<Peer>() {
        Some(Peer(address)) => Client::Address(*address),
        None => Client::Unknown,
    };
    if !open && !app.options.keys.is_empty() {
        match key(request.headers(), &app.options.keys) {
            Ok(index) => client = Client::Key(index),
            Err(error) => return error.into_response(),
        }
    }
    request.extensions_mut().insert(client);
    next.run(request).await
}

pub fn is_ours(headers: &HeaderMap, hosts: &[String]) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    // An address of IPv6 stands in brackets, so its colons are not that of the port.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    hosts.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

/// The index of the key of a request.
fn key(headers: &HeaderMap, keys: &[String]) -> Result<usize, ApiError> {
    let refused = |message: &str| ApiError::refused(StatusCode::UNAUTHORIZED, message).code("invalid_api_key");
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(given) = given else {
        return Err(refused("you must provide an API key: `Authorization: Bearer KEY`"));
    };
    let bearer = given.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let given = bearer.map(|(_, key)| key.trim()).unwrap_or_default();
    // All digests are compared, so that the time does not depend on the key.
    let digest = Sha256::digest(given);
    let same = |key: &String| Sha256::digest(key).iter().zip(&digest).fold(0, |all, (a, b)| all | (a ^ b)) == 0;
    let mut found = None;
    for (index, key) in keys.iter().enumerate() {
        if same(key) {
            found = Some(index);
        }
    }
    found.ok_or_else(|| refused("the API key is not one of this server's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_their_port() {
        let hosts = ["localhost".to_string(), "[::1]".to_string()];
        let asked = |host: &str| {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            is_ours(&headers, &hosts)
        };
        assert!(["localhost", "LOCALHOST:8080", "[::1]", "[::1]:80"].into_iter().all(asked));
        assert!(!["evil.example", "localhost.evil.example", "localhost:80@x", "", "[::2]:80"].into_iter().any(asked));
        assert!(!is_ours(&HeaderMap::new(), &hosts));
    }

    #[test]
    fn a_key_is_a_bearer_token() {
        let keys = ["one".to_string(), "two".to_string()];
        let with = |text: &str| HeaderMap::from_iter([(header::AUTHORIZATION, text.parse().unwrap())]);
        assert_eq!(key(&with("Bearer two"), &keys), Ok(1));
        assert_eq!(key(&with("bearer  one"), &keys), Ok(0));
        for wrong in ["Bearer three", "Bearer", "Bearer ", "Basic one", "one"] {
            let error = key(&with(wrong), &keys).unwrap_err();
            assert_eq!((error.status, error.code), (StatusCode::UNAUTHORIZED, Some("invalid_api_key")), "{wrong}");
        }
        assert!(key(&HeaderMap::new(), &keys).is_err());
    }
}
