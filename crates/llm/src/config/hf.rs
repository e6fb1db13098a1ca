//! The `config.json` of Hugging Face checkpoints: Llama, Mistral, Qwen2 and Qwen3.
//!
//! Only what changes the result is read; a field that would change the result in a way this crate cannot follow
//! (scaled rotary frequencies, another activation, biases elsewhere) is an error, never ignored.

use super::{Config, Error, Rope, RopeStyle};
use serde_json::{Map, Value};
use std::path::Path;

/// Architectures that [`parse_hf`] reads.
pub(super) const ARCHITECTURES: [&str; 4] =
    ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"];

/// A parsed Hugging Face configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct HfConfig {
    /// The model. `tied` is `tie_word_embeddings` as the file states it; the weights decide in the end.
    pub config: Config,
    /// The architecture, as in `architectures`.
    pub architecture: &'static str,
}

/// Reads a `config.json` from disk.
///
/// # Errors
/// As [`parse_hf`], and [`Error::Io`].
pub fn read_hf(path: &Path) -> Result<HfConfig, Error> {
    let file = path.display().to_string();
    let text = std::fs::read(path).map_err(|source| Error::Io { file: file.clone(), source })?;
    parse_hf(&text, &file)
}

/// Parses the bytes of a `config.json`; `file` names it in errors.
///
/// Defaults are those of the architecture's published configuration class: `head_dim` = hidden/heads, as many kv heads
/// as heads, eps 1e-6, base 10000 and untied embeddings.
///
/// # Errors
/// [`Error::Json`], [`Error::UnknownArchitecture`], [`Error::Field`] for a missing or unsupported field,
/// [`Error::Invalid`] for sizes that make no model.
pub fn parse_hf(text: &[u8], file: &str) -> Result<HfConfig, Error> {
    let value: Value =
        serde_json::from_slice(text).map_err(|e| Error::Json { file: file.into(), reason: e.to_string() })?;
    let Value::Object(object) = value else {
        return Err(Error::Json { file: file.into(), reason: "the top level is no object".into() });
    };
    let fields = Fields { object, file };
    let architecture = fields.architecture()?;
    let (llama, mistral, qwen2, qwen3) = match architecture {
        "LlamaForCausalLM" => (true, false, false, false),
        "MistralForCausalLM" => (false, true, false, false),
        "Qwen2ForCausalLM" => (false, false, true, false),
        _ => (false, false, false, true),
    };
    fields.refuse_unless("hidden_act", &["silu", "swish"])?;
    fields.refuse_true("mlp_bias")?;
    if llama || qwen3 || mistral {
        // With `attention_bias` the output projection has a bias as well, which no field of `Config` stands for.
        fields.refuse_true("attention_bias")?;
    }
    fields.refuse_scaling()?;

    let dim = fields.size("hidden_size", None)?;
    let heads = fields.size("num_attention_heads", None)?;
    let kv_heads = fields.size("num_key_value_heads", Some(heads))?;
    let head_dim = match fields.size("head_dim", Some(0))? {
        0 if heads == 0 || dim % heads != 0 => {
            return Err(fields.error("head_dim", "is absent, and hidden_size is no multiple of num_attention_heads"));
        }
        // Qwen3's class defaults to 128 whatever the width.
        0 if qwen3 => 128,
        0 => dim / heads,
        given => given,
    };
    let window = fields.size("sliding_window", Some(0))?;
    let uses_window = mistral || ((qwen2 || qwen3) && fields.flag("use_sliding_window")?);
    let sliding_window = (uses_window && window > 0).then_some(window);
    let layers = fields.size("num_hidden_layers", None)?;
    if sliding_window.is_some() && !mistral {
        // Qwen applies the window only to layers from `max_window_layers` on; here it is one value for all layers.
        let first = fields.size("max_window_layers", Some(0))?;
        if first >= layers {
            return Err(
                fields.error("max_window_layers", "with use_sliding_window leaves every layer without a window")
            );
        }
        if first > 0 {
            return Err(fields.error("max_window_layers", "a window on some of the layers only is not supported"));
        }
    }
    let base = match fields.number("rope_theta")? {
        Some(base) => base,
        None => fields.nested_number("rope_parameters", "rope_theta").unwrap_or(1e4),
    };
    let config = Config {
        dim,
        hidden: fields.size("intermediate_size", None)?,
        layers,
        heads,
        kv_heads,
        head_dim,
        vocab: fields.size("vocab_size", None)?,
        max_seq: fields.size("max_position_embeddings", Some(2048))?,
        rope: Rope { style: RopeStyle::Half, base: base as f32 },
        norm_eps: fields.number("rms_norm_eps")?.unwrap_or(1e-6) as f32,
        qk_norm: qwen3,
        qkv_bias: qwen2,
        sliding_window,
        tied: fields.flag("tie_word_embeddings")?,
        residual_scale: 1.0,
    };
    config.validate()?;
    Ok(HfConfig { config, architecture })
}

struct Fields<'a> {
    object: Map<String, Value>,
    file: &'a str,
}

impl Fields<'_> {
    fn error(&self, field: &str, reason: impl Into<String>) -> Error {
        Error::Field { file: self.file.to_string(), field: field.to_string(), reason: reason.into() }
    }

    /// The value, where `null` counts as absent.
    fn get(&self, field: &str) -> Option<&Value> {
        self.object.get(field).filter(|v| !v.is_null())
    }

    fn architecture(&self) -> Result<&'static str, Error> {
        if let Some(value) = self.get("architectures") {
            let name = value.as_array().and_then(|list| list.first()).and_then(Value::as_str);
            let name = name.ok_or_else(|| self.error("architectures", "is no list of names"))?;
            return ARCHITECTURES.into_iter().find(|a| *a == name).ok_or_else(|| self.unknown(name));
        }
        let Some(kind) = self.get("model_type") else {
            return Err(self.error("architectures", "is missing, and so is model_type"));
        };
        match kind.as_str() {
            Some("llama") => Ok(ARCHITECTURES[0]),
            Some("mistral") => Ok(ARCHITECTURES[1]),
            Some("qwen2") => Ok(ARCHITECTURES[2]),
            Some("qwen3") => Ok(ARCHITECTURES[3]),
            _ => Err(self.unknown(kind.as_str().unwrap_or("not a string"))),
        }
    }

    fn unknown(&self, found: &str) -> Error {
        Error::UnknownArchitecture { file: self.file.to_string(), found: found.chars().take(80).collect() }
    }

    fn size(&self, field: &str, default: Option<usize>) -> Result<usize, Error> {
        match (self.get(field), default) {
            (Some(value), _) => value
                .as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(|| self.error(field, format!("{value} is no whole number ≥ 0"))),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(self.error(field, "is missing")),
        }
    }

    fn number(&self, field: &str) -> Result<Option<f64>, Error> {
        match self.get(field) {
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.error(field, format!("{value} is no number"))),
            None => Ok(None),
        }
    }

    fn nested_number(&self, field: &str, inner: &str) -> Option<f64> {
        self.get(field)?.get(inner)?.as_f64()
    }

    fn flag(&self, field: &str) -> Result<bool, Error> {
        match self.get(field) {
            Some(value) => {
                value.as_bool().ok_or_else(|| self.error(field, format!("{value} is neither true nor false")))
            }
            None => Ok(false),
        }
    }

    fn refuse_true(&self, field: &str) -> Result<(), Error> {
        if self.flag(field)? { Err(self.error(field, "true is not supported")) } else { Ok(()) }
    }

    fn refuse_unless(&self, field: &str, accepted: &[&str]) -> Result<(), Error> {
        match self.get(field) {
            Some(value) if !value.as_str().is_some_and(|s| accepted.contains(&s)) => {
                Err(self.error(field, format!("{value} is not supported, only {}", accepted.join(", "))))
            }
            _ => Ok(()),
        }
    }

    /// `rope_scaling` must be absent or null, or say "default"; the newer `rope_parameters` likewise.
    fn refuse_scaling(&self) -> Result<(), Error> {
        for field in ["rope_scaling", "rope_parameters"] {
            let Some(value) = self.get(field) else { continue };
            let kind = value.get("rope_type").or_else(|| value.get("type")).and_then(Value::as_str);
            if kind != Some("default") {
                let kind = kind.unwrap_or("without a type");
                return Err(self.error(field, format!("scaled rotary frequencies ({kind}) are not supported")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn base(architecture: &str) -> Value {
        json!({
            "architectures": [architecture], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
            "rope_theta": 5e5, "rope_scaling": null
        })
    }

    fn parse(value: &Value) -> Result<Config, Error> {
        parse_hf(value.to_string().as_bytes(), "config.json").map(|c| c.config)
    }

    #[test]
    fn defaults_follow_the_architecture() {
        let llama = parse(&base("LlamaForCausalLM")).unwrap();
        assert_eq!((llama.head_dim, llama.kv_heads, llama.tied, llama.qk_norm), (16, 4, false, false));
        assert_eq!(llama.rope, Rope { style: RopeStyle::Half, base: 5e5 });
        let qwen2 = parse(&base("Qwen2ForCausalLM")).unwrap();
        assert!(qwen2.qkv_bias && !qwen2.qk_norm);
        let qwen3 = parse(&base("Qwen3ForCausalLM")).unwrap();
        assert!(!qwen3.qkv_bias && qwen3.qk_norm);
        assert_eq!(qwen3.head_dim, 128);
    }

    #[test]
    fn window_is_honoured_where_the_architecture_uses_it() {
        let window = |architecture: &str, edit: Value| {
            let mut value = base(architecture);
            value["sliding_window"] = json!(8);
            value.as_object_mut().unwrap().extend(edit.as_object().unwrap().clone());
            parse(&value)
        };
        assert_eq!(window("MistralForCausalLM", json!({})).unwrap().sliding_window, Some(8));
        assert_eq!(window("LlamaForCausalLM", json!({})).unwrap().sliding_window, None);
        assert_eq!(window("Qwen2ForCausalLM", json!({})).unwrap().sliding_window, None);
        let used = json!({"use_sliding_window": true, "max_window_layers": 0});
        assert_eq!(window("Qwen2ForCausalLM", used).unwrap().sliding_window, Some(8));
        let partly = json!({"use_sliding_window": true, "max_window_layers": 1});
        assert!(window("Qwen3ForCausalLM", partly).unwrap_err().to_string().contains("some of the layers"));
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_name() {
        let cases = [
            ("architectures", json!(["GPT2LMHeadModel"]), "LlamaForCausalLM"),
            ("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0}), "llama3"),
            ("hidden_act", json!("gelu"), "silu"),
            ("attention_bias", json!(true), "attention_bias"),
            ("mlp_bias", json!(true), "mlp_bias"),
            ("hidden_size", json!(null), "hidden_size: is missing"),
            ("hidden_size", json!(-3), "hidden_size"),
            ("hidden_size", json!(1e300), "hidden_size"),
            ("num_attention_heads", json!(5), "head_dim"),
            ("num_attention_heads", json!(0), "head_dim"),
            ("vocab_size", json!(u64::MAX), "vocab"),
            ("rope_theta", json!("big"), "rope_theta"),
            ("tie_word_embeddings", json!("yes"), "tie_word_embeddings"),
        ];
        for (field, value, needle) in cases {
            let mut object = base("LlamaForCausalLM");
            object[field] = value;
            let message = parse(&object).unwrap_err().to_string();
            assert!(message.contains(needle), "{field}: {message}");
        }
        assert!(parse_hf(b"[1, 2]", "config.json").is_err());
        assert!(parse_hf(b"{", "config.json").is_err());
    }
}
