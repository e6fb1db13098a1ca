//! OpenAI's API over a language model of [`ferrane_llm`], with a page to chat.
//!
//! A [`Server`] owns a model. Its [`router`](Server::router) has the endpoints, for a server of
//! your own; [`serve`](Server::serve) accepts connections until a future is ready, and
//! [`run`](Server::run) does so without a runtime of the caller's.
//!
//! ```no_run
//! use ferrane_llm::model::Model;
//! use ferrane_serve::{ServerOptions, Server, Setup, Stop};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("runs/default")?;
//! // `None`: the fp32 reference.
//! let server = Server::new(model, None, Default::default(), Setup::default(), ServerOptions::default())?;
//! server.run(std::net::TcpListener::bind("127.0.0.1:8080")?, &Stop::new())?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! Handlers (`route`) read a request (`request`), render and encode its prompt, and queue one
//! sequence for each choice (`schedule`). One thread owns the model: it gives [`Sequences`]' slots
//! to the waiting sequences, clients in turn, and sends events through a bounded channel for each
//! request; `reply` makes JSON or server-sent events of them. A client that leaves drops its end of
//! the channel, which the scheduler sees before its next step.
//!
//! A [`MetricsServer`] needs no model: it answers `GET /metrics` with a text of the caller's.
//!
//! docs/serve.md lists the endpoints, their differences from OpenAI's, limits and metrics.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod app;
mod error;
mod metrics;
mod options;
mod reply;
mod request;
mod route;
mod schedule;
mod scrape;
mod sequences;
mod server;

pub use error::Error;
pub use options::{LOOPBACK_HOSTS, ServerOptions, read_keys};
pub use scrape::{METRICS_TYPE, MetricsServer};
pub use sequences::{Feed, FeedError, OneSequence, Sequences, Slots, Wanted};
pub use server::{Server, Setup, Stop};
