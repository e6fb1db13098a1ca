//! Messages of a conversation, in the JSON form of OpenAI's interface.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or another role that the template knows.
    pub role: String,
    /// The text, or its parts; `None` if the message only calls tools. Templates then see `none`.
    #[serde(default)]
    pub content: Option<Content>,
    /// The calls that an assistant makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a message of the role `tool` answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the speaker, or of the tool that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Other fields, which templates may read, such as `reasoning_content`.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text, which may be empty.
    Text(String),
    /// Parts, such as `{"type": "text", "text": "…"}`, as the template takes them.
    Parts(Vec<Value>),
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Name of the call, which the answer repeats as [`Message::tool_call_id`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Kind of the tool.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// The function and its arguments.
    pub function: FunctionCall,
}

/// A function with arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Name of the function.
    pub name: String,
    /// The arguments: an object, or the text of one. A template gets the form that it takes.
    pub arguments: Value,
}

fn function() -> String {
    "function".into()
}

/// Also accepts `null` for an empty list.
fn or_empty<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Vec<ToolCall>, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl Message {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: Some(Content::Text(content.into())), ..Message::default() }
    }

    /// Calls `change` for every text that comes from the speaker or a tool.
    pub(super) fn for_each_text(&mut self, change: &dyn Fn(&mut String)) {
        let Message { role: _, content, tool_calls, tool_call_id, name, other } = self;
        match content {
            None => {}
            Some(Content::Text(text)) => change(text),
            Some(Content::Parts(parts)) => parts.iter_mut().for_each(|part| for_each_string(part, change)),
        }
        for call in tool_calls {
            call.id.iter_mut().for_each(change);
            change(&mut call.function.name);
            for_each_string(&mut call.function.arguments, change);
        }
        tool_call_id.iter_mut().chain(name).for_each(change);
        other.values_mut().for_each(|value| for_each_string(value, change));
    }

    /// The text: of parts, those of the type `text`, joined. Empty without content.
    pub fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        }
    }
}

/// Calls `change` for every string in a value, except for the names of fields.
pub(super) fn for_each_string(value: &mut Value, change: &dyn Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_string(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| for_each_string(field, change)),
        _ => {}
    }
}
