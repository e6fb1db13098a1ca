//! Tests of the server with tiny random models.

mod common;
mod endpoints;
mod formats;
mod limits;
mod malformed;
mod scrape;
mod scripted;
mod slots;
mod sockets;
mod streams;
