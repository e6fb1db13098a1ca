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
    /// The functions of which the model must call one; empty: it need not.
    pub forced: Vec<String>,
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
        let (mut tools, strict) = tools(&mut fields)?;
        let forced = match tool_choice(&mut fields, &tools)? {
            ToolChoice::Auto => Vec::new(),
            ToolChoice::Required => names(&tools),
            ToolChoice::Function(name) => vec![name],
            ToolChoice::None => {
                tools.clear();
                Vec::new()
            }
        };
        if let (Some(field), true, false) = (strict, forced.is_empty(), tools.is_empty()) {
            let message = "`strict` is only supported with a `tool_choice` that forces a call; \
                           the model may call with other arguments";
            return Err(ApiError::unsupported(&field, message));
        }
        if !forced.is_empty() && common.format.is_some() {
            let message = "`response_format` and a `tool_choice` that forces a call exclude each other";
            return Err(ApiError::invalid("tool_choice", message));
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
            forced,
            variables,
            logprobs: logprobs.then_some(top.unwrap_or(0) as usize),
            max_tokens: newer.or(older).map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX)),
        })
    }
}

impl Chat {
    /// The names of the tools of which the answer may have calls. An answer in a format has none.
    pub fn tool_names(&self) -> Vec<String> {
        if self.common.format.is_some() { Vec::new() } else { names(&self.tools) }
    }
}

fn names(tools: &[Value]) -> Vec<String> {
    tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).map(str::to_string).collect()
}

/// What a request says about calls of tools.
enum ToolChoice {
    None,
    /// `auto`: the model may answer or call a function.
    Auto,
    /// The model calls one of the tools.
    Required,
    /// The model calls this one.
    Function(String),
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

/// The tools that a request offers, and the field of the first one that is `strict`.
fn tools(fields: &mut Fields) -> Result<(Vec<Value>, Option<String>)> {
    let mut strict = None;
    let items = match fields.value("tools") {
        None => return Ok((Vec::new(), None)),
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
            strict.get_or_insert_with(|| function.name("strict"));
        }
        function.end()?;
        Ok(json!({"type": "function", "function": offered}))
    };
    let tools = items.into_iter().enumerate().map(tool).collect::<Result<_>>()?;
    Ok((tools, strict))
}

fn tool_choice(fields: &mut Fields, tools: &[Value]) -> Result<ToolChoice> {
    let Some(value) = fields.value("tool_choice") else { return Ok(ToolChoice::Auto) };
    if tools.is_empty() {
        return Err(ApiError::invalid("tool_choice", "`tool_choice` is only allowed with `tools`"));
    }
    match value.as_str() {
        Some("auto") => return Ok(ToolChoice::Auto),
        Some("none") => return Ok(ToolChoice::None),
        Some("required") => return Ok(ToolChoice::Required),
        _ if value.is_object() => {}
        _ => {
            let message = "`tool_choice` must be none, auto, required, or an object that names a function";
            return Err(ApiError::invalid("tool_choice", message));
        }
    }
    let mut choice = Fields::of("tool_choice", value)?;
    function_type(&mut choice)?;
    let path = choice.name("function");
    let function = choice.value("function").ok_or_else(|| choice.missing("function"))?;
    choice.end()?;
    let mut function = Fields::of(&path, function)?;
    let name = function.required_text("name")?;
    if !names(tools).contains(&name) {
        let message = format!("`{name}` is none of the functions in `tools`");
        return Err(ApiError::invalid(&function.name("name"), message));
    }
    function.end()?;
    Ok(ToolChoice::Function(name))
}

#[cfg(test)]
mod tests {
    use ferrane_llm::grammar::Grammar;

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
        let named = |name| json!({"type": "function", "function": {"name": name}});
        for choice in [json!("required"), named("f")] {
            let chat = read(json!({"tools": tool, "tool_choice": choice})).unwrap();
            assert_eq!((chat.forced, chat.tools.len()), (vec!["f".to_string()], 1));
        }
        for choice in [named("g"), json!({"type": "function"}), json!("maybe"), json!(1)] {
            assert!(read(json!({"tools": tool, "tool_choice": choice})).is_err(), "{choice}");
        }
        // Only a call that is forced can be held to its schema.
        let strict = json!([{"type": "function", "function": {"name": "f", "strict": true}}]);
        let free = read(json!({"tools": strict})).unwrap_err();
        assert_eq!(free.param.as_deref(), Some("tools.0.function.strict"));
        assert!(read(json!({"tools": strict, "tool_choice": "required"})).is_ok());
        assert!(read(json!({"tools": strict, "tool_choice": "none"})).is_ok());
        let format = json!({"type": "json_object"});
        assert!(read(json!({"tools": tool, "tool_choice": "required", "response_format": format})).is_err());
        // An answer in a format has no calls.
        assert!(read(json!({"tools": tool, "response_format": format})).unwrap().tool_names().is_empty());
    }

    #[test]
    fn formats_are_grammars() {
        let format = |format: Value| read(json!({"response_format": format})).map(|chat| chat.common.format);
        assert_eq!(format(json!({"type": "text"})).unwrap(), None);
        assert_eq!(format(json!({"type": "json_object"})).unwrap(), Some(Grammar::JsonObject));
        let schema = json!({"type": "object"});
        let described = |more: Value| {
            let mut described = json!({"name": "s", "schema": schema, "strict": true, "description": "d"});
            described.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"type": "json_schema", "json_schema": described})
        };
        assert_eq!(format(described(json!({}))).unwrap(), Some(Grammar::JsonSchema(schema.clone())));
        for (wrong, param) in [
            (json!({"type": "xml"}), "response_format.type"),
            (json!({"type": "json_schema"}), "response_format.json_schema"),
            (json!({"type": "json_object", "schema": {}}), "response_format.schema"),
            (described(json!({"name": "a b"})), "response_format.json_schema.name"),
            (described(json!({"name": null})), "response_format.json_schema.name"),
            (described(json!({"schema": [1]})), "response_format.json_schema.schema"),
            (described(json!({"schema": null})), "response_format.json_schema.schema"),
            (described(json!({"strict": 1})), "response_format.json_schema.strict"),
            (described(json!({"x": 1})), "response_format.json_schema.x"),
        ] {
            assert_eq!(format(wrong.clone()).unwrap_err().param.as_deref(), Some(param), "{wrong}");
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
