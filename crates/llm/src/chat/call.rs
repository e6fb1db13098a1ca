//! How a chat template writes the call of a tool, as a grammar that forces one.
//!
//! A template has no description of its calls, but it writes them: a conversation is rendered with
//! a call whose name and argument occur nowhere else, and what stands around them is the form.

use serde_json::{Map, Value as Json, json};

use super::{Content, Error, FunctionCall, Message, Template, ToolCall};
use crate::grammar::{Grammar, json_options};
use crate::tokenizer::Tokenizer;

const NAME: &str = "ferrane_called_name";
const ARGUMENT: &str = "ferrane_called_argument";

/// The text around the name and the arguments of a call, from where the answer begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallForm {
    /// What precedes the name.
    pub before: String,
    /// What stands between the name and the object of arguments.
    pub between: String,
    /// What follows the arguments, without the token that ends the answer.
    pub after: String,
}

impl Template {
    /// The form of a call in an answer. `tools` and `extra` are those of [`Template::render`].
    ///
    /// # Errors
    /// [`Error::NoCalls`] if the template does not write the name and, as JSON, the arguments of a
    /// call; otherwise as [`Template::render`].
    pub fn call_form(
        &self,
        tokenizer: &Tokenizer,
        tools: &[Json],
        extra: &Map<String, Json>,
    ) -> Result<CallForm, Error> {
        let call = FunctionCall { name: NAME.into(), arguments: json!({ ARGUMENT: 1 }) };
        // Mistral's templates accept only ids of nine letters.
        let call = ToolCall { id: Some("abcdefghi".into()), kind: "function".into(), function: call };
        let user = Message::new("user", "a");
        let asked = self.render(std::slice::from_ref(&user), tools, true, extra)?;
        let mut messages = [user, Message { role: "assistant".into(), tool_calls: vec![call], ..Message::default() }];
        // Some templates take only text as the content.
        let answered = self.render(&messages, tools, false, extra).or_else(|_| {
            messages[1].content = Some(Content::Text(String::new()));
            self.render(&messages, tools, false, extra)
        })?;
        let written = answered.strip_prefix(&asked).ok_or(Error::NoCalls)?;
        CallForm::of(written, tokenizer).ok_or(Error::NoCalls)
    }
}

impl CallForm {
    /// The form of the call in an answer, if the name is in front of the arguments.
    fn of(written: &str, tokenizer: &Tokenizer) -> Option<CallForm> {
        let (before, rest) = written.split_once(NAME)?;
        let (open, close) = rest.split_once(ARGUMENT)?;
        if close.contains(NAME) || close.contains(ARGUMENT) || open.contains(NAME) {
            return None;
        }
        let between = open.strip_suffix('"')?.trim_end().strip_suffix('{')?;
        let after = close.strip_prefix('"')?.trim_start().strip_prefix(':')?;
        let after = after.trim_start().strip_prefix('1')?.trim_start().strip_prefix('}')?;
        let end = tokenizer.controls().iter().filter_map(|name| after.find(name.as_str())).min();
        let after = after[..end.unwrap_or(after.len())].trim_end();
        Some(CallForm { before: before.into(), between: between.into(), after: after.into() })
    }

    /// A call with these arguments as an answer has it, without control tokens.
    pub fn text(&self, tokenizer: &Tokenizer, name: &str, arguments: &str) -> String {
        let mut text = [self.before.as_str(), name, &self.between, arguments, &self.after].concat();
        tokenizer.controls().iter().for_each(|control| text = text.replace(control.as_str(), ""));
        text
    }

    /// A grammar of answers that call one of the functions, each with its name and the schema of
    /// its arguments.
    pub fn grammar(&self, tokenizer: &Tokenizer, functions: &[(&str, Option<&Json>)]) -> Grammar {
        let calls: Vec<String> = (0..functions.len()).map(|i| format!("call_{i}")).collect();
        let mut text = format!("start: {}\n", calls.join(" | "));
        for ((name, schema), call) in functions.iter().zip(&calls) {
            let schema = json_options(arguments(*schema));
            let head = literals(tokenizer, &[self.before.as_str(), name, &self.between].concat());
            let tail = literals(tokenizer, &self.after);
            text += &format!("{call}: {head} %json {schema} {tail}\n");
        }
        Grammar::Lark(text)
    }
}

/// The schema of arguments, which are an object. Without a schema there are none.
fn arguments(schema: Option<&Json>) -> Json {
    let mut schema = match schema {
        Some(schema) => schema.clone(),
        None => json!({"properties": {}, "additionalProperties": false}),
    };
    if let Some(fields) = schema.as_object_mut() {
        fields.entry("type").or_insert_with(|| "object".into());
    }
    schema
}

/// A text in Lark's syntax: strings, and the ids of control tokens.
fn literals(tokenizer: &Tokenizer, mut text: &str) -> String {
    let mut items = Vec::new();
    while !text.is_empty() {
        let found = tokenizer.controls().iter().filter_map(|name| Some((text.find(name.as_str())?, name)));
        // Of several at one place, the longest.
        let first = found.min_by_key(|(at, name)| (*at, usize::MAX - name.len()));
        let (plain, control) = first.map_or((text, ""), |(at, name)| (&text[..at], name.as_str()));
        if !plain.is_empty() {
            items.push(Json::from(plain).to_string());
        }
        items.extend(tokenizer.id_of(control).map(|id| format!("<[{id}]>")));
        text = &text[plain.len() + control.len()..];
    }
    items.join(" ")
}
