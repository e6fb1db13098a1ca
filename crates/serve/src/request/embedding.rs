//! Requests for embeddings: `POST /v1/embeddings`.

use serde_json::Value;

use super::completion::{Prompt, prompts};
use super::fields::Fields;
use crate::error::ApiError;

/// A request for embeddings.
#[derive(Debug)]
pub struct Embedding {
    /// The texts, at least one.
    pub inputs: Vec<Prompt>,
    /// Whether vectors are base64 of little-endian fp32 instead of arrays.
    pub base64: bool,
}

impl Embedding {
    /// Reads a request. `dim` is the only size that vectors can have.
    pub fn read(body: Value, model: &str, dim: usize, choices: usize) -> Result<Embedding, ApiError> {
        let mut fields = Fields::of_request(body)?;
        super::common::check_model(&mut fields, model)?;
        let inputs = match fields.value("input") {
            None => return Err(fields.missing("input")),
            Some(value) => prompts("input", value)?,
        };
        if inputs.len() > choices {
            let message = format!("{} inputs are more than the {choices} that the server allows", inputs.len());
            return Err(ApiError::invalid("input", message));
        }
        let base64 = match fields.text("encoding_format")?.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(other) => {
                let message = format!("`{other}` is not an encoding; known are float and base64");
                return Err(ApiError::invalid("encoding_format", message));
            }
        };
        if fields.count("dimensions", 1..=u64::MAX)?.is_some_and(|size| size != dim as u64) {
            let message = format!("the vectors of this model have {dim} elements; leave `dimensions` out");
            return Err(ApiError::unsupported("dimensions", message));
        }
        fields.harmless(&["user"]);
        fields.end()?;
        Ok(Embedding { inputs, base64 })
    }
}
