//! The server: the thread of the model, connections, and the end.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use ferrane_device::Device;
use ferrane_llm::chat::Template;
use ferrane_llm::decode;
use ferrane_llm::generate;
use ferrane_llm::model::Model;
use ferrane_llm::sample::Sampling;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::app::{App, seconds};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::route::{self, Peer};
use crate::schedule::{Phase, Queue, Scheduler};
use crate::sequences::{OneSequence, Sequences, Slots};

/// Time in which a client must send the head of a request, also of the next one on its connection.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// Time that connections have to end after their requests did.
pub(crate) const LAST_TIME: Duration = Duration::from_secs(3);
/// Wait after a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// OpenAI's API over one model. A thread of its own computes; it ends with the server.
pub struct Server {
    app: Arc<App>,
    thread: Worker,
}

/// The thread that owns the model. It ends when this is dropped.
struct Worker {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue.advance(Phase::Stopped);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by its hook, and ended all requests.
            let _ = thread.join();
        }
    }
}

/// Ends the queue when the thread of the model ends, however it does.
struct Ending(Arc<Queue>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.advance(Phase::Stopped);
        // To drop a job closes its channel, which ends its request.
        drop(self.0.drain());
    }
}

impl Server {
    /// A server of `model` on `device`, or in the fp32 reference if that is `None`. `setup` is
    /// how chats are written and texts are continued.
    ///
    /// # Errors
    /// [`Error::Model`] if the model has no tokenizer or cannot run on the device;
    /// [`Error::Option`].
    pub fn new(
        model: Model,
        device: Option<Device>,
        decode: decode::Options,
        setup: Setup,
        options: ServerOptions,
    ) -> Result<Server, Error> {
        let context = decode.context.unwrap_or(usize::MAX).min(model.config.max_seq);
        Server::with_sequences(model, context, setup, options, move |model| {
            Ok(match &device {
                Some(device) => Box::new(Slots::new(model.decoder(device, decode)?)),
                None => Box::new(OneSequence::new(model.next_logits(None, decode)?)),
            })
        })
    }

    /// A server over sequences of the caller's own, which have the model's vocabulary and hold at
    /// most `context` tokens each. `make` runs on the thread that computes.
    ///
    /// # Errors
    /// As [`Server::new`].
    pub fn with_sequences<F>(
        model: Model,
        context: usize,
        setup: Setup,
        options: ServerOptions,
        make: F,
    ) -> Result<Server, Error>
    where
        F: for<'m> FnOnce(&'m Model) -> Result<Box<dyn Sequences + 'm>, generate::Error> + Send + 'static,
    {
        options.check()?;
        let tokenizer = model.tokenizer().map_err(generate::Error::from)?;
        let stop_ids = setup.stop_ids.unwrap_or_else(|| [tokenizer.stop_ids(), model.generation.stop.clone()].concat());
        let defaults = setup.sampling.unwrap_or_else(|| model.generation.apply(Sampling::default()));
        let stem = model.path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let name = options.name.clone().or(stem).filter(|name| !name.is_empty()).unwrap_or_else(|| "model".into());
        let (queue, metrics) = (Arc::new(Queue::new(options.queue)), Arc::new(Metrics::new()));
        let model = Arc::new(model);
        let times = [options.stall_time, options.request_time];
        let (ready, started) = mpsc::channel();
        let shared = (model.clone(), queue.clone(), metrics.clone());
        let thread = std::thread::Builder::new().name("model".into()).spawn(move || {
            let (model, queue, metrics) = shared;
            let _ending = Ending(queue.clone());
            match make(&model) {
                // The receiver waits; where it is gone, the queue has ended, too.
                Ok(sequences) => {
                    let _ = ready.send(Ok(()));
                    Scheduler::new(&model, sequences, &queue, &metrics, times).run();
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        let thread = Worker { queue: queue.clone(), thread: Some(thread) };
        started.recv().map_err(|_| Error::Thread)??;
        let app = App {
            model,
            name,
            options,
            context,
            defaults,
            template: setup.template,
            stop_ids,
            grammar_tokens: std::sync::OnceLock::new(),
            queue,
            metrics,
            created: seconds(),
            nonce: nonce(),
            replies: AtomicU64::new(0),
        };
        Ok(Server { app: Arc::new(app), thread })
    }

    /// The id of the model in the API.
    pub fn name(&self) -> &str {
        &self.app.name
    }

    /// Largest number of tokens of a prompt and its output.
    pub fn context(&self) -> usize {
        self.app.context
    }

    /// The endpoints, to be served by the caller. The server must live as long as they are called.
    pub fn router(&self) -> Router {
        route::router(self.app.clone())
    }

    /// Accepts connections until `shutdown` is ready. Requests that run then have
    /// [`ServerOptions::grace_time`] to finish; those that do not are informed.
    ///
    /// # Errors
    /// None at present: a connection that fails ends alone.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let router = self.router();
        let accepted = accept(listener, &router, self.app.options.connections, shutdown).await;
        self.app.queue.advance(Phase::Draining);
        let mut finished = std::pin::pin!(accepted.graceful.shutdown());
        if tokio::time::timeout(self.app.options.grace_time, &mut finished).await.is_err() {
            self.app.queue.advance(Phase::Stopped);
            // The last events reach clients that read.
            let _ = tokio::time::timeout(LAST_TIME, finished).await;
        }
        let mut tasks = accepted.tasks;
        tasks.shutdown().await;
        let Server { thread, .. } = self;
        let _ = tokio::task::spawn_blocking(move || drop(thread)).await;
        Ok(())
    }

    /// [`Server::serve`] on a runtime of its own, until [`Stop::stop`] is called.
    ///
    /// # Errors
    /// [`Error::Io`] if the runtime cannot be made or the listener is unusable.
    pub fn run(self, listener: std::net::TcpListener, stop: &Stop) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        listener.set_nonblocking(true)?;
        let stopped = stop.wait();
        let result = runtime.block_on(async { self.serve(TcpListener::from_std(listener)?, stopped).await });
        // A rendering that still runs must not hold up the end.
        runtime.shutdown_timeout(LAST_TIME);
        result
    }
}

/// How texts of a model are written and continued.
#[derive(Default)]
#[non_exhaustive]
pub struct Setup {
    /// Writes chats; `None`: the model cannot chat.
    pub template: Option<Template>,
    /// Options of sampling where a request has none; `None`: what the model's files
    /// recommend.
    pub sampling: Option<Sampling>,
    /// Tokens that end an output; `None`: those that begin and end a text, and those of the model's
    /// files.
    pub stop_ids: Option<Vec<u32>>,
}

/// Ends a server from another thread, such as the handler of a signal.
#[derive(Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Stop {
        Stop(Arc::new(watch::channel(false).0))
    }
}

impl Stop {
    /// A handle of a server that is not to end yet.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Ends the server. Returns false if that had been done before.
    pub fn stop(&self) -> bool {
        !self.0.send_replace(true)
    }

    /// Ready when the server is to end.
    pub fn wait(&self) -> impl Future<Output = ()> + use<> {
        let mut receiver = self.0.subscribe();
        let sender = self.0.clone();
        async move {
            // The sender lives as long as this future does.
            let _ = receiver.wait_for(|stopped| *stopped).await;
            drop(sender);
        }
    }
}

/// Connections that were accepted and may still be served.
pub(crate) struct Connections {
    pub(crate) graceful: GracefulShutdown,
    pub(crate) tasks: JoinSet<()>,
}

/// Accepts connections until `shutdown` is ready, at most `most` at a time, and serves the router
/// on them. The listener is closed when this returns.
pub(crate) async fn accept(
    listener: TcpListener,
    router: &Router,
    most: usize,
    shutdown: impl Future<Output = ()>,
) -> Connections {
    let permits = Arc::new(Semaphore::new(most));
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        // A connection beyond the limit waits in the system's queue.
        let accepted = async {
            let permit = permits.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            () = &mut shutdown => return Connections { graceful, tasks },
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = graceful.watch(connection(stream, peer, router));
                tasks.spawn(async move {
                    // A client may break off at any time.
                    if let Err(error) = connection.await {
                        tracing::debug!(target: "ferrane::serve", %error, "connection");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(target: "ferrane::serve", %error, "accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while tasks.try_join_next().is_some() {}
    }
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: &Router,
) -> http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>> {
    // Each event of a stream is a small packet that must not wait for the next one.
    let _ = stream.set_nodelay(true);
    let service = router.clone().layer(axum::Extension(Peer(peer.ip())));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
}

/// A number that differs from start to start.
fn nonce() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(seconds())
}
