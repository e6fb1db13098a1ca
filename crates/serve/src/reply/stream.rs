//! Replies as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;
use tokio_stream::Stream;

use super::{Reply, cut_off, is_end};
use crate::error::ApiError;
use crate::schedule::Event;

/// The event after the last one.
const DONE: &str = "data: [DONE]\n\n";

/// The body of a streamed reply. To drop it is how a client leaves: the scheduler sees that its
/// channel is closed.
struct Events<R> {
    events: Receiver<Event>,
    reply: R,
    /// Lines that were not written yet.
    lines: VecDeque<Bytes>,
    /// Number of choices that did not end.
    open: usize,
}

fn line(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

impl<R: Reply> Events<R> {
    fn take(&mut self, event: Option<Event>) {
        let error = match event {
            None => cut_off(),
            Some(Event::Failed(error)) => error,
            Some(event) => {
                self.open -= usize::from(is_end(&event));
                self.lines.extend(self.reply.take(event).iter().map(line));
                if self.open == 0 {
                    self.lines.extend(self.reply.end().iter().map(line));
                    self.lines.push_back(DONE.into());
                }
                return;
            }
        };
        self.open = 0;
        self.lines.push_back(line(&error.json()));
        self.events.close();
    }
}

impl<R: Reply + Unpin> Stream for Events<R> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Poll::Ready(Some(Ok(line)));
            }
            if self.open == 0 {
                return Poll::Ready(None);
            }
            match self.events.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(event) => self.take(event),
            }
        }
    }
}

/// Replies with a stream of server-sent events. The reply begins with the first event, so an error
/// before it has its own status.
///
/// # Errors
/// If the request fails before anything was computed.
pub async fn streamed<R: Reply + Unpin>(
    mut events: Receiver<Event>,
    reply: R,
    choices: usize,
) -> Result<Response, ApiError> {
    let first = match events.recv().await {
        None => return Err(cut_off()),
        Some(Event::Failed(error)) => return Err(error),
        first => first,
    };
    let mut body = Events { events, reply, lines: VecDeque::new(), open: choices };
    body.take(first);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Proxies such as nginx otherwise collect the events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}
