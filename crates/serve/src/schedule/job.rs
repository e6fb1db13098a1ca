//! One sequence that a client wants, and what it gets back.

use std::sync::Arc;
use std::time::Instant;

use ferrane_llm::grammar::Constraint;
use ferrane_llm::sample::{LogProbs, Sampling};
use tokio::sync::mpsc::Sender;

use crate::error::ApiError;

/// What is to be computed, the same for all sequences of a request.
#[derive(Debug)]
pub struct Plan {
    /// Options of sampling. The seed of choice `i` is this one plus `i`.
    pub sampling: Sampling,
    /// Texts that end the output and are not part of it.
    pub stop: Vec<String>,
    /// Tokens that end the output and are not part of it.
    pub stop_ids: Vec<u32>,
    /// Largest number of tokens.
    pub max_tokens: usize,
    /// Number of alternatives at each position; `None`: no log-probabilities.
    pub logprobs: Option<usize>,
    /// Whether the log-probabilities of the prompt are wanted, too.
    pub echo: bool,
    /// What the output is.
    pub output: OutputKind,
    /// The grammar of the output, as the state of a text that has not begun.
    pub constraint: Option<Constraint>,
}

/// What the output of a sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputKind {
    /// A text that continues the prompt: a space at its beginning belongs to it.
    Continuation,
    /// A text of its own.
    Answer,
    /// The state of the model after the prompt; no token is generated.
    Hidden,
}

/// A sequence that waits, or is being computed.
#[derive(Debug)]
pub struct Job {
    /// Index of the choice in the reply.
    pub choice: usize,
    /// The tokens of the prompt, at least one, all in the vocabulary.
    pub prompt: Vec<u32>,
    /// What is to be computed.
    pub plan: Arc<Plan>,
    /// When the request arrived.
    pub accepted: Instant,
    /// When the request must be complete.
    pub deadline: Instant,
    /// Where the reply goes.
    pub events: Sender<Event>,
}

impl Job {
    /// Whether the client has left.
    pub fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }
}

/// A token of the prompt or the output, with its log-probabilities. The first token of a prompt has
/// none.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    pub id: u32,
    /// Number of characters that it adds to the text.
    pub chars: usize,
    /// Its log-probability and those of the most probable tokens.
    pub probs: Option<LogProbs>,
}

/// A part of a reply.
#[derive(Debug)]
pub enum Event {
    /// The tokens of the prompt with their log-probabilities.
    Prompt {
        /// Index of the choice.
        choice: usize,
        tokens: Vec<Scored>,
    },
    /// More output. Without log-probabilities `tokens` is empty.
    Piece {
        /// Index of the choice.
        choice: usize,
        /// The text, which no later event changes.
        text: String,
        /// The tokens that the text comes from.
        tokens: Vec<Scored>,
    },
    /// The state of the model after the prompt; `None` if the model cannot return it.
    Hidden {
        /// Index of the prompt.
        choice: usize,
        state: Option<Vec<f32>>,
    },
    /// The end of a choice.
    End {
        /// Index of the choice.
        choice: usize,
        finish: FinishReason,
        /// The numbers of tokens.
        usage: Usage,
    },
    /// The end of the request without success.
    Failed(ApiError),
}

/// Why an output ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// A token or a text that ends it.
    Stop,
    /// The number of tokens was reached.
    Length,
}

impl FinishReason {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens that were generated, the one that ended the output included.
    pub generated: usize,
    /// Tokens of the prompt that a slot held already.
    pub reused: usize,
}

#[cfg(test)]
impl Job {
    /// A job, and where its events arrive.
    pub fn for_tests(choice: usize) -> (Job, tokio::sync::mpsc::Receiver<Event>) {
        let (events, receiver) = tokio::sync::mpsc::channel(4);
        let plan = Plan {
            sampling: Sampling::greedy(),
            stop: Vec::new(),
            stop_ids: Vec::new(),
            max_tokens: 4,
            logprobs: None,
            echo: false,
            output: OutputKind::Answer,
            constraint: None,
        };
        let now = Instant::now();
        let deadline = now + std::time::Duration::from_secs(60);
        (Job { choice, prompt: vec![1], plan: Arc::new(plan), accepted: now, deadline, events }, receiver)
    }
}
