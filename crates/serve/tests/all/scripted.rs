//! Sequences that say what a test wants, as slowly as it wants, and count what they are fed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use ferrane_serve::{Feed, FeedError, Sequences, Server, ServerOptions, Wanted};
use serde_json::json;

use crate::common::{CONTEXT, chat, complete, model, setup};

/// What the sequences do.
#[derive(Clone)]
pub struct Script {
    /// The output of every prompt; then the token that ends a text.
    pub ids: Vec<u32>,
    pub slots: usize,
    /// Time of each call.
    pub delay: Duration,
    /// Positions of the context.
    pub context: usize,
    /// The call that fails, if any.
    pub fails: Option<usize>,
    pub calls: Arc<AtomicUsize>,
    /// Tokens of prompts that were fed so far.
    pub prompt_tokens: Arc<AtomicUsize>,
}

struct Scripted {
    script: Script,
    vocab: usize,
    end: u32,
    /// The tokens in each slot.
    slots: Vec<Vec<u32>>,
}

impl Script {
    /// Says `text`, in one slot, without delay.
    pub fn new(text: &str) -> Script {
        let model = model();
        let tokenizer = model.tokenizer().unwrap();
        let byte = |c: char| tokenizer.id_of(&format!("<0x{:02X}>", u32::from(c)));
        let ids = text.chars().map(|c| tokenizer.id_of(&c.to_string()).or_else(|| byte(c)).unwrap()).collect();
        Script {
            ids,
            slots: 1,
            delay: Duration::ZERO,
            context: CONTEXT,
            fails: None,
            calls: Arc::default(),
            prompt_tokens: Arc::default(),
        }
    }

    /// A server over these sequences.
    pub fn server(&self, options: ServerOptions) -> Server {
        let script = self.clone();
        Server::with_sequences(model(), self.context, setup(), options, move |model| {
            let slots = vec![Vec::new(); script.slots];
            let end = model.tokenizer().unwrap().eos().unwrap();
            Ok(Box::new(Scripted { script, vocab: model.config.vocab, end, slots }))
        })
        .unwrap()
    }
}

impl Sequences for Scripted {
    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn feed(&mut self, feeds: &[Feed<'_>], logits: &mut dyn FnMut(usize, usize, &[f32])) -> Result<(), FeedError> {
        std::thread::sleep(self.script.delay);
        let call = self.script.calls.fetch_add(1, Ordering::SeqCst);
        if self.script.fails == Some(call) {
            return Err("the device is gone".into());
        }
        for (index, feed) in feeds.iter().enumerate() {
            let held = &mut self.slots[feed.slot];
            held.extend_from_slice(feed.tokens);
            // As many tokens of the output as the sequence ends with have been said.
            let ids = &self.script.ids;
            let said = (0..=ids.len().min(held.len())).rfind(|&n| held.ends_with(&ids[..n])).unwrap_or(0);
            if said == 0 {
                self.script.prompt_tokens.fetch_add(feed.tokens.len(), Ordering::SeqCst);
            }
            let mut row = vec![0.0; self.vocab];
            row[ids.get(said).copied().unwrap_or(self.end) as usize] = 50.0;
            let from = if feed.wanted == Wanted::Each { 0 } else { feed.tokens.len() - 1 };
            (from..feed.tokens.len()).for_each(|at| logits(index, at, &row));
        }
        Ok(())
    }

    fn rewind(&mut self, slot: usize, len: usize) -> bool {
        self.slots[slot].truncate(len);
        true
    }

    fn hidden(&self, _slot: usize) -> Option<&[f32]> {
        None
    }
}

#[tokio::test]
async fn tool_calls_are_parsed() {
    let call = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>";
    let script = Script::new(&format!("well {call}"));
    let server = script.server(ServerOptions::default());
    let router = server.router();
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let mut asked = json!({"messages": [{"role": "user", "content": "go"}], "tools": [tool], "temperature": 0});
    let choice = chat(&router, asked.clone()).await.ok()["choices"][0].clone();
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &json!("well ")));
    let called = &choice["message"]["tool_calls"][0];
    assert_eq!(called["function"], json!({"name": "f", "arguments": "{\"a\":1}"}));
    assert!(called["type"] == "function" && called["id"].as_str().unwrap().starts_with("call_"));
    // As a stream: the text, then the call as one delta.
    asked["stream"] = json!(true);
    let events = chat(&router, asked.clone()).await.events();
    let deltas: Vec<_> = events.iter().map(|e| &e["choices"][0]["delta"]).collect();
    let text: String = deltas.iter().filter_map(|d| d["content"].as_str()).collect();
    let calls: Vec<_> = deltas.iter().filter(|d| d["tool_calls"].is_array()).collect();
    assert_eq!((text.as_str(), calls.len()), ("well ", 1));
    assert_eq!(calls[0]["tool_calls"][0]["function"], called["function"]);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    // Without tools, or with none chosen, it is text.
    asked["stream"] = json!(false);
    asked["tool_choice"] = json!("none");
    let plain = chat(&router, asked).await.ok();
    assert_eq!(plain["choices"][0]["message"]["content"], format!("well {call}"));
    assert_eq!(plain["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_prompt_that_a_slot_holds_is_not_fed_again() {
    let script = Script::new("hello");
    let server = script.server(ServerOptions::default());
    let router = server.router();
    let fed = || script.prompt_tokens.swap(0, Ordering::SeqCst);
    let ask = async |prompt: &[u32]| complete(&router, json!({"prompt": prompt, "temperature": 0})).await.ok();
    ask(&[5, 6, 7, 8]).await;
    assert_eq!(fed(), 4);
    // Only the last token is fed for its logits.
    let again = ask(&[5, 6, 7, 8]).await;
    assert_eq!((fed(), &again["usage"]["prompt_tokens_details"]["cached_tokens"]), (1, &json!(3)));
    assert_eq!(again["choices"][0]["text"], "hello");
    ask(&[5, 6, 9, 9, 9]).await;
    assert_eq!(fed(), 3);
    // The log-probabilities of a prompt need all of it.
    let echo = json!({"prompt": [5, 6, 9], "echo": true, "logprobs": 0, "max_tokens": 0});
    complete(&router, echo).await.ok();
    assert_eq!(fed(), 3);
}

#[tokio::test]
async fn a_device_that_fails_fails_only_what_it_computes() {
    let script = Script { fails: Some(2), ..Script::new("hello") };
    let server = script.server(ServerOptions::default());
    let router = server.router();
    let asked = json!({"prompt": [5, 6], "temperature": 0});
    let failed = complete(&router, asked.clone()).await;
    assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(failed.error()["message"], "the model failed: the device is gone");
    assert_eq!(complete(&router, asked).await.ok()["choices"][0]["text"], "hello");
}

#[tokio::test]
async fn embeddings_without_a_state_are_an_error() {
    let server = Script::new("a").server(ServerOptions::default());
    let body = json!({"model": "tiny", "input": "a cat"});
    let reply = crate::common::post(&server.router(), "/v1/embeddings", body).await;
    assert_eq!((reply.status, &reply.error()["code"]), (StatusCode::NOT_IMPLEMENTED, &json!("unsupported")));
}
