//! Rows that hold conversations: a list of messages, and perhaps tools.

use ferrane_llm::chat::{Message, Template};
use ferrane_llm::tokenizer::Tokenizer;
use serde_json::{Map, Value};

use super::ids::UNCOUNTED;

/// The field of JSON Lines that holds the messages by default.
pub const MESSAGES_FIELD: &str = "messages";
/// The field with descriptions of the tools that the assistant may call.
const TOOLS: &str = "tools";

/// The ids of a row, with [`UNCOUNTED`] in those that the assistant did not write; or why the row
/// is broken. A row without messages has no ids.
pub(super) fn encode(row: &str, field: &str, template: &Template, tokenizer: &Tokenizer) -> Result<Vec<u32>, String> {
    let mut fields: Map<String, Value> = serde_json::from_str(row).map_err(|e| super::jsonl::reason(&e))?;
    let messages = match fields.remove(field) {
        Some(Value::Null) => return Ok(Vec::new()),
        Some(list) => serde_json::from_value::<Vec<Message>>(list),
        None => return Err(super::jsonl::no_field(field, fields.keys().map(String::as_str))),
    };
    let messages = messages.map_err(|e| format!("`{field}` is not a list of messages: {e}"))?;
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let tools = match fields.remove(TOOLS) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(format!("`{TOOLS}` is not a list")),
    };
    let found = template.transcript(tokenizer, &messages, &tools, &Map::new()).map_err(|e| e.to_string())?;
    if found.written.is_empty() {
        return Err("the conversation has no answer of an assistant that the template writes as it was given".into());
    }
    let mut ids: Vec<u32> = found.ids.iter().map(|id| id | UNCOUNTED).collect();
    for range in found.written {
        ids[range].iter_mut().for_each(|id| *id &= !UNCOUNTED);
    }
    Ok(ids)
}
