//! `--prometheus ADDRESS`: metrics over HTTP, next to what a command does.

use std::net::TcpListener;

use ferrane_serve::MetricsServer;

use crate::error::{Error, Result};
use crate::out;

/// Listens, so that a mistake in the address is reported before any work is done.
pub fn listen(address: &str) -> Result<TcpListener> {
    TcpListener::bind(address).map_err(|e| Error::new(format!("cannot listen on --prometheus {address}: {e}")))
}

/// Serves the text until the server is dropped.
pub fn serve(listener: TcpListener, text: impl Fn() -> String + Send + Sync + 'static) -> Result<MetricsServer> {
    let server = MetricsServer::start(listener, text)?;
    if !server.address().ip().is_loopback() {
        out::note("every computer that reaches this address can read the metrics");
    }
    Ok(server)
}

/// Where the metrics are.
pub fn url(server: &MetricsServer) -> String {
    format!("http://{}/metrics", server.address())
}
