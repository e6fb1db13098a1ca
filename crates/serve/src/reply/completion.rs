//! Replies to requests for completions.

use std::sync::Arc;

use ferrane_llm::model::Model;
use serde_json::{Value, json};

use super::logprobs::CompletionLogprobs;
use super::{Head, Reply, TotalUsage};
use crate::request::Common;
use crate::schedule::{Event, FinishReason};

/// What is asked of a reply.
#[derive(Debug, Clone, Copy)]
pub struct ReplyForm {
    /// Whether tokens have log-probabilities.
    pub logprobs: bool,
    /// Whether the reply is a stream.
    pub stream: bool,
    /// Whether a stream ends with the numbers of tokens.
    pub include_usage: bool,
    /// Number of choices of each prompt.
    pub n: usize,
}

impl ReplyForm {
    /// The form that a request asks for.
    pub fn of(common: &Common, logprobs: bool) -> ReplyForm {
        ReplyForm { logprobs, stream: common.stream, include_usage: common.include_usage, n: common.n }
    }
}

/// A reply in the making.
pub struct CompletionReply {
    head: Head,
    model: Arc<Model>,
    form: ReplyForm,
    choices: Vec<Choice>,
    usage: TotalUsage,
}

#[derive(Default)]
struct Choice {
    /// The prompt, until it is output.
    echo: Option<String>,
    text: String,
    logprobs: CompletionLogprobs,
    /// Characters before the next token.
    offset: usize,
    finish: Option<FinishReason>,
}

impl CompletionReply {
    /// A reply of one choice for each element of `echo`, which is the text before the output.
    pub fn new(head: Head, model: Arc<Model>, form: ReplyForm, echo: Vec<Option<String>>) -> CompletionReply {
        let choices = echo.into_iter().map(|echo| Choice { echo, ..Choice::default() }).collect();
        CompletionReply { head, model, form, choices, usage: TotalUsage::new(form.n) }
    }

    fn object(&self, choices: Value) -> Value {
        let Head { id, created, model } = &self.head;
        json!({"id": id, "object": "text_completion", "created": created, "model": model, "choices": choices})
    }

    fn choice(&mut self, index: usize, text: String) -> Value {
        let choice = &mut self.choices[index];
        let logprobs = if self.form.logprobs { choice.logprobs.take() } else { Value::Null };
        let finish = choice.finish.map(FinishReason::name);
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish})
    }
}

impl Reply for CompletionReply {
    fn take(&mut self, event: Event) -> Vec<Value> {
        let index = match event {
            Event::Prompt { choice, tokens } => {
                let c = &mut self.choices[choice];
                c.logprobs.extend(&self.model, &tokens, &mut c.offset);
                choice
            }
            Event::Piece { choice, text, tokens } => {
                let c = &mut self.choices[choice];
                c.text += &text;
                c.logprobs.extend(&self.model, &tokens, &mut c.offset);
                choice
            }
            Event::End { choice, finish, usage } => {
                self.usage.add(choice, usage);
                self.choices[choice].finish = Some(finish);
                choice
            }
            Event::Hidden { .. } | Event::Failed(_) => return Vec::new(),
        };
        if let Some(echo) = self.choices[index].echo.take() {
            // The first event of the choice.
            self.choices[index].text.insert_str(0, &echo);
        }
        if !self.form.stream {
            return Vec::new();
        }
        let text = std::mem::take(&mut self.choices[index].text);
        let choice = self.choice(index, text);
        vec![self.object(json!([choice]))]
    }

    fn end(&mut self) -> Vec<Value> {
        if !self.form.include_usage {
            return Vec::new();
        }
        let mut last = self.object(json!([]));
        last["usage"] = self.usage.json();
        vec![last]
    }

    fn whole(&mut self) -> Value {
        let texts: Vec<String> = self.choices.iter_mut().map(|c| std::mem::take(&mut c.text)).collect();
        let choices: Vec<Value> = texts.into_iter().enumerate().map(|(i, text)| self.choice(i, text)).collect();
        let mut whole = self.object(choices.into());
        whole["usage"] = self.usage.json();
        whole
    }
}
