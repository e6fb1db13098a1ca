//! A server of nothing but `GET /metrics`, for programs that compute and are watched by Prometheus.
//!
//! ```
//! use std::net::TcpListener;
//!
//! use ferrane_serve::MetricsServer;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let server = MetricsServer::start(listener, || "# EOF\n".into())?;
//! println!("http://{}/metrics", server.address());
//! // It ends when it is dropped.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::error::Error;
use crate::options::LOOPBACK_HOSTS;
use crate::route::is_ours;
use crate::server::{LAST_TIME, Stop, accept};

/// The content type of OpenMetrics' text (OpenMetrics 1.0, "Protocol Negotiation").
pub const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Largest number of connections at a time. Further ones wait to be accepted.
const CONNECTIONS: usize = 16;
/// Time that replies have to end after the server did.
const GRACE: Duration = Duration::from_millis(500);

/// Answers `GET /metrics` on a thread of its own until it is dropped; every other path is 404.
///
/// A server on a loopback address refuses requests whose `Host` header has another name, so that no
/// web page can read the metrics through a name that resolves to this computer.
pub struct MetricsServer {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves what `text` returns at each request.
    ///
    /// # Errors
    /// [`Error::Io`] if the runtime or the thread cannot be made, or the listener is unusable.
    pub fn start(
        listener: std::net::TcpListener,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<MetricsServer, Error> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let router = router(text, address.ip().is_loopback());
        let stop = Stop::new();
        let stopped = stop.wait();
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(move || {
            runtime.block_on(async {
                let mut accepted = accept(listener, &router, CONNECTIONS, stopped).await;
                let _ = tokio::time::timeout(GRACE, accepted.graceful.shutdown()).await;
                accepted.tasks.shutdown().await;
            });
            runtime.shutdown_timeout(LAST_TIME);
        })?;
        Ok(MetricsServer { address, stop, thread: Some(thread) })
    }

    /// The address that it listens on, with the port that the system chose if that was 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by its hook.
            let _ = thread.join();
        }
    }
}

fn router(text: impl Fn() -> String + Send + Sync + 'static, loopback: bool) -> Router {
    let text = Arc::new(text);
    let metrics = move || {
        let text = text.clone();
        async move { ([(header::CONTENT_TYPE, METRICS_TYPE)], text()) }
    };
    let hosts = if loopback { LOOPBACK_HOSTS.map(str::to_string).to_vec() } else { Vec::new() };
    let hosts = Arc::new(hosts);
    Router::new().route("/metrics", get(metrics)).layer(from_fn(move |request: Request, next: Next| {
        let hosts = hosts.clone();
        async move {
            match hosts.is_empty() || is_ours(request.headers(), &hosts) {
                true => next.run(request).await,
                false => (StatusCode::FORBIDDEN, "the `Host` header names another server\n").into_response(),
            }
        }
    }))
}
