//! Requests for completions: `POST /v1/completions`.

use ferrane_llm::sample::Sampling;
use serde_json::Value;

use super::common::{Common, TOP_LOGPROBS};
use super::fields::{Fields, wrong};
use crate::error::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

/// A text to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// A text, which the server encodes.
    Text(String),
    /// Tokens, used as they are.
    Ids(Vec<u32>),
}

/// A request for completions.
#[derive(Debug)]
pub struct Completion {
    /// The fields that all requests have.
    pub common: Common,
    /// The prompts, at least one.
    pub prompts: Vec<Prompt>,
    /// Whether the prompt is part of the output.
    pub echo: bool,
    /// Number of alternatives at each position; `None`: no log-probabilities.
    pub logprobs: Option<usize>,
    /// Largest number of tokens to generate; `None`: [`Completion::TOKENS`].
    pub max_tokens: Option<usize>,
}

impl Completion {
    /// Largest number of tokens where the request says nothing, as OpenAI's.
    pub const TOKENS: usize = 16;

    pub fn read(body: Value, model: &str, defaults: &Sampling, choices: usize) -> Result<Completion> {
        let mut fields = Fields::of_request(body)?;
        let common = Common::read(&mut fields, model, defaults, choices)?;
        let prompts = match fields.value("prompt") {
            None => return Err(fields.missing("prompt")),
            Some(value) => prompts("prompt", value)?,
        };
        if prompts.len() * common.n > choices {
            let message = format!(
                "{} prompts with {} choices each are more than the {choices} that the server allows",
                prompts.len(),
                common.n
            );
            return Err(ApiError::invalid("prompt", message));
        }
        if fields.text("suffix")?.is_some_and(|text| !text.is_empty()) {
            return Err(ApiError::unsupported("suffix", "`suffix` is not supported by this server"));
        }
        let best = fields.count("best_of", 1..=u64::MAX)?;
        if best.is_some_and(|best| best != common.n as u64) {
            return Err(ApiError::unsupported("best_of", "`best_of` other than `n` is not supported by this server"));
        }
        let completion = Completion {
            echo: fields.flag("echo")?,
            logprobs: fields.count("logprobs", 0..=TOP_LOGPROBS)?.map(|count| count as usize),
            max_tokens: fields
                .count("max_tokens", 0..=u64::MAX)?
                .map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
            common,
            prompts,
        };
        fields.end()?;
        Ok(completion)
    }
}

/// A prompt or several: a text, texts, ids, or lists of ids.
pub fn prompts(name: &str, value: Value) -> Result<Vec<Prompt>> {
    let items = match value {
        Value::String(text) => return Ok(vec![Prompt::Text(text)]),
        Value::Array(items) => items,
        other => return Err(wrong(name, "a string, an array of strings, or an array of token ids", &other)),
    };
    if items.is_empty() {
        return Err(ApiError::invalid(name, format!("`{name}` is an empty array")));
    }
    if items.iter().all(Value::is_number) {
        return Ok(vec![Prompt::Ids(ids(name, items)?)]);
    }
    let item = |(i, item)| match item {
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(items) => ids(&format!("{name}.{i}"), items).map(Prompt::Ids),
        other => Err(wrong(&format!("{name}.{i}"), "a string or an array of token ids", &other)),
    };
    items.into_iter().enumerate().map(item).collect()
}

fn ids(name: &str, items: Vec<Value>) -> Result<Vec<u32>> {
    let id = |(i, item): (usize, Value)| {
        let id = item.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| {
            ApiError::invalid(&format!("{name}.{i}"), format!("`{name}.{i}` is not the id of a token: {item}"))
        })
    };
    items.into_iter().enumerate().map(id).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prompts_have_four_forms() {
        let text = |t: &str| Prompt::Text(t.into());
        assert_eq!(prompts("prompt", json!("a")).unwrap(), [text("a")]);
        assert_eq!(prompts("prompt", json!(["a", "b"])).unwrap(), [text("a"), text("b")]);
        assert_eq!(prompts("prompt", json!([1, 2])).unwrap(), [Prompt::Ids(vec![1, 2])]);
        assert_eq!(prompts("prompt", json!([[1], [2, 3]])).unwrap(), [Prompt::Ids(vec![1]), Prompt::Ids(vec![2, 3])]);
        for wrong in
            [json!([]), json!({}), json!(3), json!([1, "a"]), json!([[-1]]), json!([[1.5]]), json!([4294967296u64])]
        {
            assert!(prompts("prompt", wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_request_has_openai_defaults() {
        let read = |body| Completion::read(body, "m", &Sampling::default(), 4);
        let plain = read(json!({"model": "m", "prompt": "a"})).unwrap();
        assert_eq!((plain.max_tokens, plain.echo, plain.logprobs, plain.common.n), (None, false, None, 1));
        assert_eq!(plain.common.sampling, Sampling::default());
        let all = read(json!({
            "model": "m", "prompt": ["a", "b"], "n": 2, "best_of": 2, "echo": true, "logprobs": 3, "max_tokens": 0,
            "stop": "x", "seed": -1, "logit_bias": {"5": -100}, "stream": true,
            "stream_options": {"include_usage": true}, "user": "u", "suffix": null, "temperature": 0,
        }));
        let all = all.unwrap();
        assert_eq!((all.max_tokens, all.echo, all.logprobs, all.common.include_usage), (Some(0), true, Some(3), true));
        assert_eq!((all.common.sampling.seed, all.common.sampling.logit_bias[&5]), (Some(u64::MAX), -100.0));
        assert!(read(json!({"model": "m", "prompt": ["a", "b", "c"], "n": 2})).is_err());
    }
}
