//! What requests for chats and for completions have in common.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use ferrane_llm::grammar::Grammar;
use ferrane_llm::sample::Sampling;
use serde_json::Value;

use super::fields::{Fields, wrong};
use crate::error::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

/// Largest number of stop strings. OpenAI allows 4; clients of other servers send more.
const STOPS: usize = 16;
/// Largest number of alternatives with their log-probabilities at each position.
pub const TOP_LOGPROBS: u64 = 20;
/// Fields that change nothing of what is generated.
const HARMLESS: [&str; 8] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
];

/// The fields of both kinds of requests.
#[derive(Debug)]
pub struct Common {
    /// Sampling, with the defaults of the model where the request says nothing.
    pub sampling: Sampling,
    /// Texts that end the output.
    pub stop: Vec<String>,
    /// Number of choices for each prompt.
    pub n: usize,
    /// Whether the reply is a stream.
    pub stream: bool,
    /// Whether a stream ends with the numbers of tokens.
    pub include_usage: bool,
    /// Whether tokens that end the output are generated as others are.
    pub ignore_eos: bool,
    /// What the output must be; `None`: any text.
    pub format: Option<Grammar>,
}

impl Common {
    /// Takes the fields. `model` is the only name that the request may have.
    pub fn read(fields: &mut Fields, model: &str, defaults: &Sampling, choices: usize) -> Result<Common> {
        check_model(fields, model)?;
        let most = f64::from(f32::MAX);
        let mut sampling = defaults.clone();
        let set = |to: &mut f32, value: Option<f32>| *to = value.unwrap_or(*to);
        set(&mut sampling.temperature, fields.number("temperature", 0.0..=2.0)?);
        set(&mut sampling.top_p, fields.number("top_p", 0.0..=1.0)?);
        set(&mut sampling.min_p, fields.number("min_p", 0.0..=1.0)?);
        set(&mut sampling.presence_penalty, fields.number("presence_penalty", -2.0..=2.0)?);
        set(&mut sampling.frequency_penalty, fields.number("frequency_penalty", -2.0..=2.0)?);
        set(&mut sampling.repetition_penalty, fields.number("repetition_penalty", f64::from(f32::EPSILON)..=most)?);
        if let Some(k) = fields.count("top_k", 0..=u64::from(u32::MAX))? {
            sampling.top_k = Some(k as usize);
        }
        if let Some(bias) = fields.value("logit_bias") {
            sampling.logit_bias = logit_bias(bias)?;
        }
        if let Some(seed) = fields.value("seed") {
            sampling.seed = Some(read_seed(&seed)?);
        }
        let stream = fields.flag("stream")?;
        let common = Common {
            sampling,
            stop: stops(fields)?,
            n: fields.count("n", 1..=choices as u64)?.unwrap_or(1) as usize,
            stream,
            include_usage: stream_options(fields, stream)?,
            ignore_eos: fields.flag("ignore_eos")?,
            format: response_format(fields)?,
        };
        fields.harmless(&HARMLESS);
        Ok(common)
    }
}

/// Takes the name of the model, which must be that of the server's.
pub fn check_model(fields: &mut Fields, model: &str) -> Result<()> {
    let name = fields.required_text("model")?;
    if name == model { Ok(()) } else { Err(unknown_model(&name, model)) }
}

/// The error of a model that the server does not have.
pub fn unknown_model(name: &str, model: &str) -> ApiError {
    let message = format!("the model `{name}` does not exist; this server has `{model}`");
    ApiError { status: StatusCode::NOT_FOUND, ..ApiError::invalid("model", message) }.code("model_not_found")
}

/// Any whole number of 64 bits is a seed.
fn read_seed(value: &Value) -> Result<u64> {
    let seed = value.as_u64().or_else(|| value.as_i64().map(|seed| seed as u64));
    seed.ok_or_else(|| wrong("seed", "a whole number of at most 64 bits", value))
}

fn logit_bias(value: Value) -> Result<BTreeMap<u32, f32>> {
    let Value::Object(map) = value else { return Err(wrong("logit_bias", "an object", &value)) };
    let entry = |(id, bias): (String, Value)| {
        let name = format!("logit_bias.{id}");
        let number = id.parse().map_err(|_| ApiError::invalid(&name, format!("`{id}` is not the id of a token")))?;
        let bias = bias.as_f64().ok_or_else(|| wrong(&name, "a number", &bias))?;
        if !(-100.0..=100.0).contains(&bias) {
            return Err(ApiError::invalid(&name, format!("`{name}` is {bias}; it must be from -100 to 100")));
        }
        Ok((number, bias as f32))
    };
    map.into_iter().map(entry).collect()
}

fn stops(fields: &mut Fields) -> Result<Vec<String>> {
    let texts = match fields.value("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(items)) => {
            let text = |(i, item)| match item {
                Value::String(text) => Ok(text),
                other => Err(wrong(&format!("stop.{i}"), "a string", &other)),
            };
            items.into_iter().enumerate().map(text).collect::<Result<_>>()?
        }
        Some(other) => return Err(wrong("stop", "a string or an array of strings", &other)),
    };
    if texts.len() > STOPS {
        return Err(ApiError::invalid(
            "stop",
            format!("`stop` has {} strings; at most {STOPS} are allowed", texts.len()),
        ));
    }
    if texts.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "a string of `stop` is empty, which would end every output at once"));
    }
    Ok(texts)
}

fn stream_options(fields: &mut Fields, stream: bool) -> Result<bool> {
    let Some(value) = fields.value("stream_options") else { return Ok(false) };
    if !stream {
        return Err(ApiError::invalid("stream_options", "`stream_options` is only allowed if `stream` is true"));
    }
    let mut options = Fields::of("stream_options", value)?;
    let usage = options.flag("include_usage")?;
    options.harmless(&["include_obfuscation"]);
    options.end()?;
    Ok(usage)
}

/// The format of a reply. A schema holds whether or not it is `strict`.
fn response_format(fields: &mut Fields) -> Result<Option<Grammar>> {
    let Some(value) = fields.value("response_format") else { return Ok(None) };
    let mut format = Fields::of("response_format", value)?;
    let grammar = match format.required_text("type")?.as_str() {
        "text" => None,
        "json_object" => Some(Grammar::JsonObject),
        "json_schema" => Some(json_schema(&mut format)?),
        other => {
            let message = format!("`{other}` is not a type of formats; known are text, json_object and json_schema");
            return Err(ApiError::invalid("response_format.type", message));
        }
    };
    format.end()?;
    Ok(grammar)
}

fn json_schema(format: &mut Fields) -> Result<Grammar> {
    let path = format.name("json_schema");
    let value = format.value("json_schema").ok_or_else(|| format.missing("json_schema"))?;
    let mut fields = Fields::of(&path, value)?;
    let name = fields.required_text("name")?;
    let known = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(known) {
        let message = format!("`{name}` is not a name of a schema: 1 to 64 letters, digits, `_` or `-`");
        return Err(ApiError::invalid(&fields.name("name"), message));
    }
    fields.text("description")?;
    fields.flag("strict")?;
    let schema = match fields.value("schema") {
        Some(schema @ Value::Object(_)) => schema,
        Some(other) => return Err(wrong(&fields.name("schema"), "an object (a JSON schema)", &other)),
        None => return Err(fields.missing("schema")),
    };
    fields.end()?;
    Ok(Grammar::JsonSchema(schema))
}
