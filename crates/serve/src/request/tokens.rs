//! Requests to the tokenizer: `POST /tokenize` and `POST /detokenize`.

use serde_json::Value;

use super::completion::{Prompt, prompts};
use super::fields::{Fields, wrong};
use crate::error::ApiError;

/// A text to encode.
#[derive(Debug)]
pub struct Tokenize {
    pub text: String,
    /// Whether the tokens that precede a text are wanted, too.
    pub begin: bool,
}

impl Tokenize {
    pub fn read(body: Value, model: &str) -> Result<Tokenize, ApiError> {
        let mut fields = Fields::of_request(body)?;
        optional_model(&mut fields, model)?;
        let text = fields.required_text("prompt")?;
        let begin = match fields.value("add_special_tokens") {
            None => true,
            Some(Value::Bool(begin)) => begin,
            Some(other) => return Err(wrong("add_special_tokens", "a boolean", &other)),
        };
        fields.end()?;
        Ok(Tokenize { text, begin })
    }
}

/// Ids of the model, which become text again before they are read.
#[derive(Debug)]
pub struct Detokenize {
    /// Ids outside of the vocabulary have no text.
    pub ids: Vec<u32>,
}

impl Detokenize {
    pub fn read(body: Value, model: &str) -> Result<Detokenize, ApiError> {
        let mut fields = Fields::of_request(body)?;
        optional_model(&mut fields, model)?;
        let ids = match fields.value("tokens") {
            None => return Err(fields.missing("tokens")),
            Some(Value::Array(items)) if items.is_empty() => Vec::new(),
            Some(value) => match prompts("tokens", value.clone())?.pop() {
                Some(Prompt::Ids(ids)) if value[0].is_number() => ids,
                _ => return Err(wrong("tokens", "an array of token ids", &value)),
            },
        };
        fields.end()?;
        Ok(Detokenize { ids })
    }
}

/// The name of the model may be absent, as other servers allow.
fn optional_model(fields: &mut Fields, model: &str) -> Result<(), ApiError> {
    match fields.text("model")? {
        Some(name) if name != model => Err(super::unknown_model(&name, model)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_to_the_tokenizer() {
        let text = |body| Tokenize::read(body, "m").map(|asked| (asked.text, asked.begin));
        assert_eq!(text(json!({"prompt": "a"})).unwrap(), ("a".into(), true));
        assert_eq!(text(json!({"prompt": "", "add_special_tokens": false, "model": "m"})).unwrap(), ("".into(), false));
        for wrong in
            [json!({}), json!({"prompt": 1}), json!({"prompt": "a", "model": "x"}), json!({"prompt": "a", "x": 1})]
        {
            assert!(text(wrong.clone()).is_err(), "{wrong}");
        }
        let ids = |body| Detokenize::read(body, "m").map(|asked| asked.ids);
        assert_eq!(ids(json!({"tokens": [1, 2]})).unwrap(), [1, 2]);
        assert_eq!(ids(json!({"tokens": []})).unwrap(), [0u32; 0]);
        for wrong in [
            json!({}),
            json!({"tokens": "a"}),
            json!({"tokens": ["a"]}),
            json!({"tokens": [[1]]}),
            json!({"tokens": [-1]}),
        ] {
            assert!(ids(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
