//! Log-probabilities as the API spells them.

use ferrane_llm::model::Model;
use ferrane_llm::sample::LogProb;
use serde_json::{Map, Value, json};

use crate::schedule::Scored;

/// What stands for -∞, which JSON does not have, as in OpenAI's replies.
const NEVER: f32 = -9999.0;

fn finite(log_prob: f32) -> f32 {
    if log_prob.is_nan() { NEVER } else { log_prob.max(NEVER) }
}

/// The text of a token, and its bytes. Bytes that are not UTF-8 are spelled `bytes:\xe2\x80`; a
/// control token has no bytes and is spelled `token_id:2`.
fn spelled(model: &Model, id: u32) -> (String, Option<Vec<u8>>) {
    let piece = model.tokenizer.as_ref().and_then(|tokenizer| tokenizer.piece(id)).unwrap_or_default();
    if piece.is_empty() {
        return (format!("token_id:{id}"), None);
    }
    let text = match std::str::from_utf8(piece) {
        Ok(text) => text.to_string(),
        Err(_) => piece.iter().fold("bytes:".to_string(), |text, byte| text + &format!("\\x{byte:02x}")),
    };
    (text, Some(piece.to_vec()))
}

/// Entries of `logprobs.content` of a chat.
pub fn chat(model: &Model, tokens: &[Scored]) -> Vec<Value> {
    let entry = |p: &LogProb| {
        let (token, bytes) = spelled(model, p.id);
        json!({"token": token, "logprob": finite(p.log_prob), "bytes": bytes})
    };
    let of = |scored: &Scored| {
        let Some(probs) = &scored.probs else { return Value::Null };
        let mut value = entry(&probs.chosen);
        value["top_logprobs"] = probs.top.iter().map(entry).collect();
        value
    };
    tokens.iter().map(of).filter(|value| !value.is_null()).collect()
}

/// `logprobs` of a completion: arrays of equal length.
#[derive(Debug, Default)]
pub struct CompletionLogprobs {
    tokens: Vec<Value>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<usize>,
}

impl CompletionLogprobs {
    /// Appends tokens, the first of which begins at character `offset`; `offset` becomes the end of
    /// the last one.
    pub fn extend(&mut self, model: &Model, tokens: &[Scored], offset: &mut usize) {
        for scored in tokens {
            self.tokens.push(spelled(model, scored.id).0.into());
            self.text_offset.push(*offset);
            *offset += scored.chars;
            let Some(probs) = &scored.probs else {
                self.token_logprobs.push(Value::Null);
                self.top_logprobs.push(Value::Null);
                continue;
            };
            self.token_logprobs.push(finite(probs.chosen.log_prob).into());
            // As OpenAI does, the chosen token is among the alternatives.
            let all = probs.top.iter().chain([&probs.chosen]);
            let top: Map<String, Value> = all.map(|p| (spelled(model, p.id).0, finite(p.log_prob).into())).collect();
            self.top_logprobs.push(top.into());
        }
    }

    /// The object, which is empty again afterwards.
    pub fn take(&mut self) -> Value {
        let all = std::mem::take(self);
        json!({
            "tokens": all.tokens, "token_logprobs": all.token_logprobs, "top_logprobs": all.top_logprobs,
            "text_offset": all.text_offset,
        })
    }
}
