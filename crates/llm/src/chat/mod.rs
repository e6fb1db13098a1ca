//! Conversations as the text that a model was trained on.
//!
//! A model comes with a *chat template*, a program in Jinja that writes the messages of a
//! conversation with the model's control tokens around them. [`Template`] compiles it and renders
//! byte for byte what `apply_chat_template` of `transformers` renders: blocks are trimmed, `tojson`
//! is Python's `json.dumps`, and values print as Python prints them.
//!
//! ```
//! use ferrane_llm::chat::{Message, Template};
//!
//! # fn main() -> Result<(), ferrane_llm::chat::Error> {
//! let source = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
//! let template = Template::new(source)?;
//! let messages = [Message::new("user", "What is 2 + 2?")];
//! assert_eq!(template.render(&messages, &[], true, &Default::default())?, "[user] What is 2 + 2?\n[assistant]");
//! # Ok(())
//! # }
//! ```
//!
//! [`Template::transcript`] makes training data of a conversation, with the tokens that an
//! assistant wrote.
//!
//! A template is code from elsewhere. It reads only the values that it is given, and its steps and
//! the bytes that it makes are limited ([`Error::Limit`]).

mod call;
mod find;
mod message;
mod python;
mod session;
#[cfg(test)]
mod tests;
mod transcript;

use std::collections::BTreeSet;
use std::path::PathBuf;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value, ValueKind};
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value as Json, json};
use sha2::{Digest as _, Sha256};

pub use call::CallForm;
pub(crate) use find::sources;
pub use message::{Content, FunctionCall, Message, ToolCall};
pub use session::{Chat, ChatAnswer, ChatOptions, Error as ChatError, Finish};
pub use transcript::Transcript;

use crate::tokenizer::Tokenizer;

/// Steps of a rendering; 64 bytes of text also count as one, so at most 64 MB are made.
const FUEL: u64 = 1_000_000;
/// Bytes of the stack of a rendering. Each step may nest a value one deeper, and dropping a value
/// recurses. Memory is used only as far as the stack grows.
const STACK: usize = 256 << 20;
/// Bytes of a template's source.
const LONGEST: usize = 1 << 20;
/// Name of the template that `transformers` uses if tools are given.
const TOOL_USE: &str = "tool_use";
/// Name of the usual template.
pub(crate) const DEFAULT: &str = "default";

/// Why a template cannot be read, or cannot render a conversation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// A file does not have the expected form.
    #[error("{}: {message}", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// The field or the mistake in JSON.
        message: String,
    },
    /// The template has a mistake.
    #[error("the chat template is invalid: {0}")]
    Syntax(String),
    /// The template refused the conversation with this message.
    #[error("the chat template refuses the conversation: {0}")]
    Refused(String),
    /// A step of the template failed, with its line.
    #[error("the chat template failed: {0}")]
    Render(String),
    /// The template does not write calls of tools with arguments of JSON.
    #[error("the chat template has no form for calls of tools with arguments of JSON")]
    NoCalls,
    /// The template exceeded its limit of steps or bytes.
    #[error("the chat template takes too long or makes too much text")]
    Limit,
}

/// The message that a template gives to `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// The form in which a template takes the arguments of tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arguments {
    Objects,
    Text,
}

/// A compiled chat template, or several by name, with the special tokens that they print.
#[derive(Debug, Clone)]
pub struct Template {
    environment: Environment<'static>,
    names: BTreeSet<String>,
    tokens: Map<String, Json>,
    arguments: Arguments,
    /// Hash of the names and sources.
    sources: [u8; 32],
    /// The time for `strftime_now`, in seconds since 1970; `None`: the clock.
    now: Option<i64>,
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`Error::Syntax`].
    pub fn new(source: &str) -> Result<Template, Error> {
        Template::from_named([(DEFAULT.to_string(), source.to_string())])
    }

    /// Compiles templates with names, of which one is `default`. With tools, `tool_use` is
    /// rendered if there is one.
    ///
    /// # Errors
    /// [`Error::Syntax`].
    pub fn from_named(sources: impl IntoIterator<Item = (String, String)>) -> Result<Template, Error> {
        let mut template = Template {
            environment: environment()?,
            names: BTreeSet::new(),
            tokens: Map::new(),
            arguments: Arguments::Objects,
            sources: [0; 32],
            now: None,
        };
        let mut hash = Sha256::new();
        for (name, source) in sources {
            if source.len() > LONGEST {
                return Err(Error::Syntax(format!("{} bytes, more than {LONGEST}", source.len())));
            }
            for text in [&name, &source] {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
            let source = plain_blocks(&source);
            template.environment.add_template_owned(name.clone(), source).map_err(error)?;
            template.names.insert(name);
        }
        if !template.names.contains(DEFAULT) {
            return Err(Error::Syntax(format!("no template is named `{DEFAULT}`")));
        }
        template.sources = hash.finalize().into();
        template.arguments = template.probe();
        Ok(template)
    }

    /// Sets the special tokens that the template prints, such as `bos_token` and `eos_token`.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Map<String, Json>) -> Template {
        self.tokens = tokens;
        self
    }

    /// SHA-256 of all that determines what is written, except for the clock: the sources and the
    /// special tokens.
    pub fn digest(&self) -> [u8; 32] {
        let tokens = serde_json::to_vec(&self.tokens).unwrap_or_default();
        Sha256::new().chain_update(self.sources).chain_update(tokens).finalize().into()
    }

    /// Sets the time that `strftime_now` prints, in seconds since 1970, for the time zone UTC.
    #[must_use]
    pub fn at(mut self, seconds: i64) -> Template {
        self.now = Some(seconds);
        self
    }

    /// Renders a conversation. `tools` are OpenAI's descriptions of functions. With
    /// `add_generation_prompt` the text ends where the assistant's answer begins. The template also
    /// reads the variables in `extra`, such as `enable_thinking`.
    ///
    /// # Errors
    /// [`Error::Refused`] if the template refuses the conversation, for example because two users
    /// speak in a row; [`Error::Render`], [`Error::Limit`].
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[Json],
        add_generation_prompt: bool,
        extra: &Map<String, Json>,
    ) -> Result<String, Error> {
        let messages = messages.iter().map(|message| self.message(message)).collect::<Result<Vec<_>, _>>()?;
        let mut variables = self.tokens.clone();
        variables.insert("messages".into(), Json::Array(messages));
        variables.insert("tools".into(), if tools.is_empty() { Json::Null } else { tools.into() });
        variables.insert("documents".into(), Json::Null);
        variables.insert("add_generation_prompt".into(), add_generation_prompt.into());
        variables.extend(extra.clone());
        let name = if !tools.is_empty() && self.names.contains(TOOL_USE) { TOOL_USE } else { DEFAULT };
        self.render_variables(name, variables)
    }

    /// Renders a conversation and encodes it. The control tokens that the template writes become
    /// their ids; what looks like one in messages and tools stays text ([`Tokenizer::defuse`]).
    ///
    /// # Errors
    /// As [`Template::render`].
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        tools: &[Json],
        add_generation_prompt: bool,
        extra: &Map<String, Json>,
    ) -> Result<Vec<u32>, Error> {
        let (messages, tools) = transcript::defused(tokenizer, messages, tools);
        Ok(tokenizer.encode_chat(&self.render(&messages, &tools, add_generation_prompt, extra)?))
    }

    fn render_variables(&self, name: &str, variables: Map<String, Json>) -> Result<String, Error> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK);
            let thread = thread.spawn_scoped(scope, || self.render_here(name, &variables));
            let joined = thread.map_err(|e| Error::Render(format!("no thread: {e}")))?.join();
            joined.unwrap_or_else(|_| Err(Error::Render("the engine of templates panicked".into())))
        })
    }

    fn render_here(&self, name: &str, variables: &Map<String, Json>) -> Result<String, Error> {
        let template = self.environment.get_template(name).map_err(error)?;
        let now = self.now;
        let mut context = Value::from(Serde(variables));
        if let Some(now) = now {
            let clock = Value::from_function(move |format: &str| strftime(format, Some(now)));
            context = minijinja::context! { strftime_now => clock, ..context };
        }
        template.render(context).map_err(error)
    }

    /// A message as the template reads it.
    fn message(&self, message: &Message) -> Result<Json, Error> {
        let mut message = message.clone();
        for call in &mut message.tool_calls {
            let arguments = &mut call.function.arguments;
            match (self.arguments, &*arguments) {
                (Arguments::Objects, Json::String(text)) => {
                    // Text that is not JSON stays, and the template decides.
                    if let Ok(object @ Json::Object(_)) = serde_json::from_str(text) {
                        *arguments = object;
                    }
                }
                (Arguments::Text, Json::Object(_)) => *arguments = python::compact(arguments).map_err(error)?.into(),
                _ => {}
            }
        }
        serde_json::to_value(&message).map_err(|e| Error::Render(e.to_string()))
    }

    /// Whether the template takes the arguments of a tool call as an object or as text: some
    /// concatenate them with text, which fails for an object.
    fn probe(&self) -> Arguments {
        let name = if self.names.contains(TOOL_USE) { TOOL_USE } else { DEFAULT };
        let renders = |arguments: Json| {
            let function = json!({"name": "f", "arguments": arguments});
            let variables = json!({
                "messages": [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": null,
                     "tool_calls": [{"id": "abcdefghi", "type": "function", "function": function}]},
                ],
                "bos_token": "", "eos_token": "", "tools": null, "documents": null, "add_generation_prompt": false,
            });
            let Json::Object(variables) = variables else { return false };
            self.render_variables(name, variables).is_ok()
        };
        match !renders(json!({"x": 1})) && renders(json!("{\"x\": 1}")) {
            true => Arguments::Text,
            false => Arguments::Objects,
        }
    }
}

/// An environment that behaves as Jinja2 does in `transformers`.
fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(error)?;
    environment.set_syntax(syntax);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, _, value| {
        let printed = match value.as_str() {
            Some(text) => out.write_str(text),
            None => out.write_str(&python::text(value)?),
        };
        printed.map_err(|e| minijinja::Error::new(ErrorKind::WriteFailure, e.to_string()))
    });
    environment.add_filter("tojson", python::to_json);
    environment.add_filter("string", python::text);
    // In Python a string is a sequence, and so is a dict for Jinja2.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    environment.add_test("iterable", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable)
    });
    environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
        let error = minijinja::Error::new(ErrorKind::InvalidOperation, message.clone());
        Err(error.with_source(Raised(message)))
    });
    environment.add_function("strftime_now", |format: &str| strftime(format, None));
    Ok(environment)
}

/// A time in the format of `strftime`: `now` in seconds since 1970 for UTC, or the clock in the
/// local time zone.
fn strftime(format: &str, now: Option<i64>) -> Result<String, minijinja::Error> {
    let invalid = |e: jiff::Error| minijinja::Error::new(ErrorKind::InvalidOperation, e.to_string());
    let time = match now {
        Some(seconds) => {
            jiff::Timestamp::from_second(seconds).map_err(invalid)?.to_zoned_datetime(jiff::tz::TimeZone::UTC)
        }
        None => jiff::ZonedDateTime::now(),
    };
    jiff::fmt::strtime::format(format, &time).map_err(invalid)
}

/// Replaces the tags `generation` and `endgeneration`, with which templates mark the assistant's
/// tokens for training, by a block that prints its content.
fn plain_blocks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        text.push_str(before);
        rest = tag;
        let Some(end) = tag.find("%}") else { break };
        let inside = &tag[..end];
        let name = inside.trim_matches(['-', '+']).trim();
        let other = match name {
            "generation" => "with",
            "endgeneration" => "endwith",
            _ => continue,
        };
        text.push_str(&inside.replacen(name, other, 1));
        rest = &tag[end..];
    }
    text.push_str(rest);
    text
}

fn error(error: minijinja::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(Raised(message)) = inner.downcast_ref() {
            return Error::Refused(message.clone());
        }
        if inner.downcast_ref::<minijinja::Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return Error::Limit;
        }
        cause = inner.source();
    }
    match error.kind() {
        ErrorKind::SyntaxError | ErrorKind::BadEscape => Error::Syntax(error.to_string()),
        _ => Error::Render(error.to_string()),
    }
}
