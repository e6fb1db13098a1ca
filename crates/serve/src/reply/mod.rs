//! Replies: events of the scheduler as JSON, whole or as a stream.

mod chat;
mod completion;
mod logprobs;
mod stream;
mod tools;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

pub use chat::ChatReply;
pub use completion::{CompletionReply, ReplyForm};
pub use stream::streamed;
pub use tools::is_call;

use crate::error::{ApiError, json_response};
use crate::schedule::{Event, Usage};

/// What all replies of one request state.
#[derive(Debug, Clone)]
pub struct Head {
    /// The id of the reply.
    pub id: String,
    /// When the request arrived, in seconds since 1970.
    pub created: u64,
    /// The id of the model.
    pub model: String,
}

/// A reply that events make.
pub trait Reply: Send + 'static {
    /// Takes an event, and returns the objects of a stream that it makes. [`Event::Failed`] never
    /// arrives here.
    fn take(&mut self, event: Event) -> Vec<Value>;

    /// The objects at the end of a stream.
    fn end(&mut self) -> Vec<Value>;

    /// The whole reply, after all events.
    fn whole(&mut self) -> Value;
}

/// The tokens of all choices.
#[derive(Debug, Clone, Copy, Default)]
pub struct TotalUsage {
    total: Usage,
    /// Number of choices of each prompt, which count its tokens once.
    n: usize,
}

impl TotalUsage {
    /// No tokens yet, for `n` choices of each prompt.
    pub fn new(n: usize) -> TotalUsage {
        TotalUsage { total: Usage::default(), n: n.max(1) }
    }

    /// Adds those of one choice.
    pub fn add(&mut self, choice: usize, usage: Usage) {
        self.total.generated += usage.generated;
        if choice.is_multiple_of(self.n) {
            self.total.prompt += usage.prompt;
            self.total.reused += usage.reused;
        }
    }

    /// As the API spells them.
    pub fn json(&self) -> Value {
        let Usage { prompt, generated, reused } = self.total;
        json!({
            "prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated,
            "prompt_tokens_details": {"cached_tokens": reused},
        })
    }
}

/// The error of a request whose events ended too early.
fn cut_off() -> ApiError {
    ApiError::internal("the server stopped computing this request")
}

/// Whether an event ends a choice.
fn is_end(event: &Event) -> bool {
    matches!(event, Event::End { .. })
}

/// Collects the events of `choices` choices and replies with all at once.
///
/// # Errors
/// The error of the first choice that fails.
pub async fn whole(mut events: Receiver<Event>, mut reply: impl Reply, choices: usize) -> Result<Response, ApiError> {
    let mut open = choices;
    while open > 0 {
        match events.recv().await {
            None => return Err(cut_off()),
            Some(Event::Failed(error)) => return Err(error),
            Some(event) => {
                open -= usize::from(is_end(&event));
                reply.take(event);
            }
        }
    }
    Ok(json_response(StatusCode::OK, &reply.whole()))
}
