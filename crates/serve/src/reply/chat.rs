//! Replies to requests for chats.

use std::sync::Arc;

use ferrane_llm::model::Model;
use serde_json::{Map, Value, json};

use super::tools::{Part, ToolText};
use super::{Head, Reply, ReplyForm, TotalUsage, logprobs};
use crate::schedule::{Event, FinishReason};

/// A reply in the making.
pub struct ChatReply {
    head: Head,
    model: Arc<Model>,
    form: ReplyForm,
    choices: Vec<Choice>,
    usage: TotalUsage,
}

struct Choice {
    /// Finds calls in the text, if tools were offered.
    tools: Option<ToolText>,
    /// Whether the stream has begun with the role.
    begun: bool,
    content: String,
    calls: Vec<Value>,
    logprobs: Vec<Value>,
    finish: Option<FinishReason>,
}

impl Choice {
    fn finish_reason(&self) -> Option<&'static str> {
        match self.finish {
            Some(FinishReason::Stop) if !self.calls.is_empty() => Some("tool_calls"),
            finish => finish.map(FinishReason::name),
        }
    }
}

impl ChatReply {
    /// A reply; `tools` are the names of those that were offered.
    pub fn new(head: Head, model: Arc<Model>, form: ReplyForm, tools: &[String]) -> ChatReply {
        let choice = |_| Choice {
            tools: (!tools.is_empty()).then(|| ToolText::new(tools.to_vec())),
            begun: false,
            content: String::new(),
            calls: Vec::new(),
            logprobs: Vec::new(),
            finish: None,
        };
        let choices = (0..form.n).map(choice).collect();
        ChatReply { head, model, form, choices, usage: TotalUsage::new(form.n) }
    }

    fn object(&self, kind: &str, choices: Value) -> Value {
        let Head { id, created, model } = &self.head;
        json!({"id": id, "object": kind, "created": created, "model": model, "choices": choices})
    }

    /// A delta of a stream.
    fn chunk(&mut self, index: usize, mut delta: Map<String, Value>) -> Value {
        let choice = &mut self.choices[index];
        if !std::mem::replace(&mut choice.begun, true) {
            delta.insert("role".into(), "assistant".into());
            delta.entry("content").or_insert_with(|| "".into());
        }
        let logprobs = match std::mem::take(&mut choice.logprobs) {
            entries if self.form.logprobs && !entries.is_empty() => json!({"content": entries, "refusal": null}),
            _ => Value::Null,
        };
        let finish = choice.finish_reason();
        self.object(
            "chat.completion.chunk",
            json!([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]),
        )
    }

    fn chunks(&mut self, index: usize, deltas: Vec<Map<String, Value>>) -> Vec<Value> {
        if !self.form.stream {
            return Vec::new();
        }
        deltas.into_iter().map(|delta| self.chunk(index, delta)).collect()
    }

    /// Takes text into a choice, and returns the deltas that it makes.
    fn text(&mut self, index: usize, text: &str, last: bool) -> Vec<Map<String, Value>> {
        let choice = &mut self.choices[index];
        let parts = match &mut choice.tools {
            None if text.is_empty() => Vec::new(),
            None => vec![Part::Text(text.into())],
            Some(tools) => {
                let mut parts = tools.push(text);
                if last {
                    parts.extend(tools.finish());
                }
                parts
            }
        };
        let mut deltas = Vec::new();
        for part in parts {
            let mut delta = Map::new();
            match part {
                Part::Text(text) => {
                    choice.content += &text;
                    delta.insert("content".into(), text.into());
                }
                Part::Call { name, arguments } => {
                    let number = choice.calls.len();
                    let id = format!("call_{}_{index}_{number}", self.head.id.trim_start_matches("chatcmpl-"));
                    let call =
                        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
                    let mut numbered = call.clone();
                    numbered["index"] = number.into();
                    delta.insert("tool_calls".into(), json!([numbered]));
                    choice.calls.push(call);
                }
            }
            deltas.push(delta);
        }
        deltas
    }

    fn message(&mut self, index: usize) -> Value {
        let choice = &mut self.choices[index];
        let content = std::mem::take(&mut choice.content);
        let calls = std::mem::take(&mut choice.calls);
        // Line breaks around calls are no content.
        let content = if !calls.is_empty() && content.trim().is_empty() { Value::Null } else { content.into() };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        message
    }
}

impl Reply for ChatReply {
    fn take(&mut self, event: Event) -> Vec<Value> {
        match event {
            Event::Piece { choice, text, tokens } => {
                if self.form.logprobs {
                    let entries = logprobs::chat(&self.model, &tokens);
                    self.choices[choice].logprobs.extend(entries);
                }
                let deltas = self.text(choice, &text, false);
                self.chunks(choice, deltas)
            }
            Event::End { choice, finish, usage } => {
                self.usage.add(choice, usage);
                let deltas = self.text(choice, "", true);
                let mut chunks = self.chunks(choice, deltas);
                self.choices[choice].finish = Some(finish);
                chunks.extend(self.chunks(choice, vec![Map::new()]));
                chunks
            }
            Event::Prompt { .. } | Event::Hidden { .. } | Event::Failed(_) => Vec::new(),
        }
    }

    fn end(&mut self) -> Vec<Value> {
        if !self.form.include_usage {
            return Vec::new();
        }
        let mut last = self.object("chat.completion.chunk", json!([]));
        last["usage"] = self.usage.json();
        vec![last]
    }

    fn whole(&mut self) -> Value {
        let count = self.choices.len();
        let choice = |index: usize| {
            let finish = self.choices[index].finish_reason();
            let entries = std::mem::take(&mut self.choices[index].logprobs);
            let logprobs = if self.form.logprobs { json!({"content": entries, "refusal": null}) } else { Value::Null };
            let message = self.message(index);
            json!({"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish})
        };
        let choices: Vec<Value> = (0..count).map(choice).collect();
        let mut whole = self.object("chat.completion", choices.into());
        whole["usage"] = self.usage.json();
        whole
    }
}
