//! Requests, read from JSON: what OpenAI's API defines, and what this server adds.

mod chat;
mod common;
mod completion;
mod embedding;
mod fields;
mod tokens;

pub use chat::Chat;
pub use common::{Common, unknown_model};
pub use completion::{Completion, Prompt};
pub use embedding::Embedding;
pub use tokens::{Detokenize, Tokenize};
