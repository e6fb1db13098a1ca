//! Requests for chats: `POST /v1/chat/completions`.
//!
//! Messages and tools are checked and brought to the form that chat templates expect: the parts of
//! a content become one text, `developer` is `system`, and the arguments of a tool call are an
//! object.

use ferrane_llm::sample::Sampling;
use serde_json::{Map, Value, json};

use super::common::{Common, TOP_LOGPROBS};
use super::fields::{Fields, wrong};
use crate::error::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

/// Largest number of tools, as OpenAI's.
const TOOLS: usize = 128;
/// Parts of OpenAI's API for which this server has nothing.
const UNSUPPORTED: [&str; 8] = [
    "functions",
    "function_call",
    "audio",
    "prediction",
    "web_search_options",
    "reasoning_effort",
    "verbosity",
    "suffix",
];

/// A request for a chat.
#[derive(Debug)]
pub struct Chat {
    /// The fields that all requests have.
    pub common: Common,
    /// The messages, at least one, as templates expect them.
    pub messages: Vec<Value>,
    /// The tools that the model may call; empty: none.
    pub tools: Vec<Value>,
    /// Further variables of the template.
    pub variables: Map<String, Value>,
    /// Number of alternatives at each position; `None`: no log-probabilities.
    pub logprobs: Option<usize>,
    /// Largest number of tokens to generate; `None`: as many as the context holds.
    pub max_tokens: Option<usize>,
}

impl Chat {
    pub fn read(body: Value, model: &str, defaults: &Sampling, choices: usize) -> Result<Chat> {
        let mut fields = Fields::of_request(body)?;
        let common = Common::read(&mut fields, model, defaults, choices)?;
        let messages = match fields.value("messages") {
            None => return Err(fields.missing("messages")),
            Some(Value::Array(items)) if items.is_empty() => {
                return Err(ApiError::invalid("messages", "`messages` is an empty array; give at least one message"));
            }
            Some(Value::Array(items)) => items.into_iter().enumerate().map(message).collect::<Result<_>>()?,
            Some(other) => return Err(wrong("messages", "an array of messages", &other)),
        };
        let mut tools = tools(&mut fields)?;
        if !tool_choice(&mut fields, &tools)? {
            tools.clear();
        }
        let logprobs = fields.flag("logprobs")?;
        let top = fields.count("top_logprobs", 0..=TOP_LOGPROBS)?;
        if top.is_some() && !logprobs {
            return Err(ApiError::invalid("top_logprobs", "`top_logprobs` is only allowed if `logprobs` is true"));
        }
        let newer = fields.count("max_completion_tokens", 1..=u64::MAX)?;
        let older = fields.count("max_tokens", 1..=u64::MAX)?;
        if newer.is_some() && older.is_some() && newer != older {
            return Err(ApiError::invalid(
                "max_tokens",
                "`max_tokens` and `max_completion_tokens` differ; give one of them",
            ));
        }
        let variables = match fields.value("chat_template_kwargs") {
            None => Map::new(),
            Some(Value::Object(map)) => map,
            Some(other) => return Err(wrong("chat_template_kwargs", "an object", &other)),
        };
        modalities(&mut fields)?;
        for field in UNSUPPORTED {
            if fields.value(field).is_some() {
                return Err(ApiError::unsupported(field, format!("`{field}` is not supported by this server")));
            }
        }
        fields.end()?;
        Ok(Chat {
            common,
            messages,
            tools,
            variables,
            logprobs: logprobs.then_some(top.unwrap_or(0) as usize),
            max_tokens: newer.or(older).map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX)),
        })
    }
}

impl Chat {
    /// The names of the tools that are offered.
    pub fn tool_names(&self) -> Vec<String> {
        self.tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).map(str::to_string).collect()
    }
}

fn modalities(fields: &mut Fields) -> Result<()> {
    match fields.value("modalities") {
        None => Ok(()),
        Some(value) if value == json!(["text"]) => Ok(()),
        Some(_) => Err(ApiError::unsupported("modalities", "`modalities` other than [\"text\"] are not supported")),
    }
}

/// One message, in the form of templates.
fn message((index, value): (usize, Value)) -> Result<Value> {
    let path = format!("messages.{index}");
    let mut fields = Fields::of(&path, value)?;
    let role = fields.required_text("role")?;
    let role = match role.as_str() {
        "developer" => "system",
        "system" | "user" | "assistant" | "tool" => role.as_str(),
        _ => {
            let name = fields.name("role");
            let message = format!("`{role}` is not a role; known are system, developer, user, assistant and tool");
            return Err(ApiError::invalid(&name, message));
        }
    };
    let mut message = Map::new();
    message.insert("role".into(), role.into());
    let calls = match fields.value("tool_calls") {
        None => None,
        Some(_) if role != "assistant" => {
            return Err(ApiError::invalid(
                &fields.name("tool_calls"),
                "only messages of the assistant have `tool_calls`",
            ));
        }
        Some(Value::Array(items)) => Some(calls(&fields.name("tool_calls"), items)?),
        Some(other) => return Err(wrong(&fields.name("tool_calls"), "an array", &other)),
    };
    let content = content(&fields.name("content"), fields.value("content"))?;
    if content.is_none() && calls.is_none() {
        return Err(fields.missing("content"));
    }
    message.insert("content".into(), content.into());
    if let Some(calls) = calls {
        message.insert("tool_calls".into(), calls.into());
    }
    for (field, required) in [("tool_call_id", role == "tool"), ("name", false), ("reasoning_content", false)] {
        match fields.text(field)? {
            Some(text) => drop(message.insert(field.into(), text.into())),
            None if required => return Err(fields.missing(field)),
            None => {}
        }
    }
    fields.harmless(&["refusal", "annotations"]);
    fields.end()?;
    Ok(Value::Object(message))
}

/// A content: a text, or parts of text, which are joined.
fn content(name: &str, value: Option<Value>) -> Result<Option<String>> {
    let parts = match value {
        None => return Ok(None),
        Some(Value::String(text)) => return Ok(Some(text)),
        Some(Value::Array(parts)) => parts,
        Some(other) => return Err(wrong(name, "a string or an array of parts", &other)),
    };
    let part = |(i, value)| {
        let mut part = Fields::of(&format!("{name}.{i}"), value)?;
        match part.required_text("type")?.as_str() {
            "text" => {
                let text = part.required_text("text")?;
                part.end()?;
                Ok(text)
            }
            other => {
                let message = format!("parts of type `{other}` are not supported; the model reads only text");
                Err(ApiError::unsupported(&part.name("type"), message))
            }
        }
    };
    let texts: Vec<String> = parts.into_iter().enumerate().map(part).collect::<Result<_>>()?;
    Ok(Some(texts.concat()))
}

/// The tool calls of an earlier reply.
fn calls(path: &str, items: Vec<Value>) -> Result<Vec<Value>> {
    let call = |(i, item)| {
        let mut call = Fields::of(&format!("{path}.{i}"), item)?;
        let id = call.text("id")?;
        function_type(&mut call)?;
        let name = call.name("function");
        let value = call.value("function").ok_or_else(|| call.missing("function"))?;
        call.harmless(&["index"]);
        call.end()?;
        let mut function = Fields::of(&name, value)?;
        let called = function.required_text("name")?;
        // A client sends a text of JSON, templates print an object.
        let arguments = match function.value("arguments") {
            Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            Some(value @ Value::Object(_)) => value,
            None => json!({}),
            Some(other) => return Err(wrong(&function.name("arguments"), "a string of JSON", &other)),
        };
        function.end()?;
        Ok(json!({"id": id, "type": "function", "function": {"name": called, "arguments": arguments}}))
    };
    items.into_iter().enumerate().map(call).collect()
}

fn function_type(fields: &mut Fields) -> Result<()> {
    match fields.text("type")?.as_deref() {
        None | Some("function") => Ok(()),
        Some(other) => {
            Err(ApiError::unsupported(&fields.name("type"), format!("tools of type `{other}` are not supported")))
        }
    }
}

/// The tools that a request offers.
fn tools(fields: &mut Fields) -> Result<Vec<Value>> {
    let items = match fields.value("tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(wrong("tools", "an array", &other)),
    };
    if items.len() > TOOLS {
        return Err(ApiError::invalid("tools", format!("{} tools; at most {TOOLS} are allowed", items.len())));
    }
    let tool = |(i, item): (usize, Value)| {
        let mut tool = Fields::of(&format!("tools.{i}"), item)?;
        function_type(&mut tool)?;
        let path = tool.name("function");
        let value = tool.value("function").ok_or_else(|| tool.missing("function"))?;
        tool.end()?;
        let mut function = Fields::of(&path, value)?;
        let name = function.required_text("name")?;
        let known = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
        if name.is_empty() || name.len() > 64 || !name.chars().all(known) {
            let message = format!("`{name}` is not a name of a function: 1 to 64 letters, digits, `_`, `-` or `.`");
            return Err(ApiError::invalid(&function.name("name"), message));
        }
        let mut offered = Map::new();
        offered.insert("name".into(), name.into());
        if let Some(text) = function.text("description")? {
            offered.insert("description".into(), text.into());
        }
        match function.value("parameters") {
            None => {}
            Some(value @ Value::Object(_)) => drop(offered.insert("parameters".into(), value)),
            Some(other) => return Err(wrong(&function.name("parameters"), "an object (a JSON schema)", &other)),
        }
        if function.flag("strict")? {
            let message = "`strict` is not supported by this server; the model may call with other arguments";
            return Err(ApiError::unsupported(&function.name("strict"), message));
        }
        function.end()?;
        Ok(json!({"type": "function", "function": offered}))
    };
    items.into_iter().enumerate().map(tool).collect()
}

/// Whether the model may call tools.
fn tool_choice(fields: &mut Fields, tools: &[Value]) -> Result<bool> {
    let Some(value) = fields.value("tool_choice") else { return Ok(true) };
    if tools.is_empty() {
        return Err(ApiError::invalid("tool_choice", "`tool_choice` is only allowed with `tools`"));
    }
    match value.as_str() {
        Some("auto") => return Ok(true),
        Some("none") => return Ok(false),
        Some("required") => {}
        _ if value.is_object() => {}
        _ => {
            let message = "`tool_choice` must be none, auto, required, or an object that names a function";
            return Err(ApiError::invalid("tool_choice", message));
        }
    }
    let message = "a `tool_choice` that forces a call is not supported by this server; use auto or none";
    Err(ApiError::unsupported("tool_choice", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: Value) -> Result<Chat> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Chat::read(body, "m", &Sampling::default(), 4)
    }

    #[test]
    fn messages_take_the_form_of_templates() {
        let chat = read(json!({"messages": [
            {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
            {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ]}));
        let expected = [
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}),
            json!({"role": "tool", "content": "2", "tool_call_id": "c1"}),
        ];
        assert_eq!(chat.unwrap().messages, expected);
    }

    #[test]
    fn tools_are_offered_unless_the_choice_is_none() {
        let tool = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
        assert_eq!(read(json!({"tools": tool})).unwrap().tools.len(), 1);
        assert!(read(json!({"tools": tool, "tool_choice": "none"})).unwrap().tools.is_empty());
        let named = json!({"type": "function", "function": {"name": "f"}});
        for choice in [json!("required"), named, json!("maybe"), json!(1)] {
            assert!(read(json!({"tools": tool, "tool_choice": choice})).is_err(), "{choice}");
        }
    }

    #[test]
    fn limits_and_log_probabilities() {
        let chat = read(json!({"logprobs": true, "top_logprobs": 2, "max_completion_tokens": 7})).unwrap();
        assert_eq!((chat.logprobs, chat.max_tokens), (Some(2), Some(7)));
        assert_eq!(read(json!({"logprobs": true})).unwrap().logprobs, Some(0));
        let wrong = [
            json!({"top_logprobs": 2}),
            json!({"logprobs": true, "top_logprobs": 21}),
            json!({"max_tokens": 0}),
            json!({"max_tokens": 1, "max_completion_tokens": 2}),
            json!({"modalities": ["audio"]}),
            json!({"functions": []}),
            json!({"temprature": 1}),
        ];
        for more in wrong {
            assert!(read(more.clone()).is_err(), "{more}");
        }
    }
}
