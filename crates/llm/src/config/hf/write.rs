//! The `config.json` of a model that has none.

use super::super::{Config, Error, RopeScaling};
use super::{Family, HfConfig, parse_hf};
use serde_json::{Map, Value, json};

/// The shortest decimal number that is this value in fp32.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// The field `rope_scaling`.
fn scaling(scaling: Option<&RopeScaling>) -> Value {
    let field = "original_max_position_embeddings";
    match scaling {
        None => Value::Null,
        Some(RopeScaling::Linear { factor }) => json!({"rope_type": "linear", "factor": factor}),
        Some(RopeScaling::Llama3 { factor, low, high, original }) => {
            json!({"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high, field: original})
        }
        Some(RopeScaling::Yarn { factor, original, attention, beta_fast, beta_slow, truncate }) => {
            let mut fields = json!({"rope_type": "yarn", "factor": factor, "attention_factor": attention,
                                    "beta_fast": beta_fast, "beta_slow": beta_slow, field: original});
            // Older readers do not know the field.
            if !truncate {
                fields["truncate"] = false.into();
            }
            fields
        }
        Some(RopeScaling::LongRope { short, long, original, attention }) => {
            json!({"rope_type": "longrope", "short_factor": short, "long_factor": long, "attention_factor": attention,
                   "factor": 1.0, field: original})
        }
    }
}

/// The fields of a `config.json`, and the architecture, for a model of the plain form of Llama,
/// Mistral, Qwen2 or Qwen3. What is written is read back, so nothing of the model can be lost.
///
/// # Errors
/// [`Error::Field`] for a model with options that none of these families has.
pub fn to_hf(config: &Config) -> Result<(Map<String, Value>, &'static str), Error> {
    let (family, kind) = match (config.qk_norm, config.qkv_bias, config.sliding_window) {
        (true, false, None) => (Family::Qwen3, "qwen3"),
        (false, true, None) => (Family::Qwen2, "qwen2"),
        (false, false, Some(_)) => (Family::Mistral, "mistral"),
        _ => (Family::Llama, "llama"),
    };
    let name = super::FAMILIES.iter().find(|(known, ..)| *known == family).map_or("", |(_, name, _)| name);
    let fields = json!({
        "architectures": [name],
        "model_type": kind,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab,
        "max_position_embeddings": config.max_seq,
        "rms_norm_eps": decimal(config.norm_eps),
        "rope_theta": decimal(config.rope.base),
        "rope_scaling": scaling(config.rope.scaling.as_ref()),
        "sliding_window": config.sliding_window,
        "tie_word_embeddings": config.tied,
        "hidden_act": "silu",
        "torch_dtype": "float16",
    });
    let refuse = |reason: &str| Error::Field {
        file: "config.json".into(),
        field: "architectures".into(),
        reason: format!("no family of Hugging Face that is written has the options of this model{reason}"),
    };
    let HfConfig { config: read, architecture } = parse_hf(fields.to_string().as_bytes(), "config.json")?;
    match fields {
        Value::Object(fields) if read == *config => Ok((fields, architecture)),
        _ => Err(refuse("; they would be lost")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PRESETS, RopeStyle, preset};

    #[test]
    fn presets_survive() {
        for name in PRESETS {
            let mut config = preset(name).unwrap();
            config.rope.style = RopeStyle::Half;
            let (fields, _) = to_hf(&config).unwrap();
            let text = Value::Object(fields).to_string();
            assert_eq!(parse_hf(text.as_bytes(), "test").unwrap().config, config, "{name}");
        }
    }

    #[test]
    fn scaled_frequencies_survive() {
        let plain = Config { rope: crate::config::Rope::new(RopeStyle::Half, 1e4), ..preset("stories260k").unwrap() };
        let divisors: Vec<f64> = (0..plain.head_dim / 2).map(|i| 1.0 + i as f64).collect();
        for scaling in [
            RopeScaling::Linear { factor: 4.0 },
            RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 128 },
            RopeScaling::Yarn {
                factor: 2.0,
                original: 128,
                attention: 1.1,
                beta_fast: 32.0,
                beta_slow: 1.0,
                truncate: false,
            },
            RopeScaling::LongRope { short: divisors.clone(), long: divisors, original: 512, attention: 1.0 },
        ] {
            let mut config = plain.clone();
            config.rope.scaling = Some(scaling);
            let (fields, _) = to_hf(&config).unwrap();
            assert_eq!(parse_hf(Value::Object(fields).to_string().as_bytes(), "test").unwrap().config, config);
        }
    }

    #[test]
    fn what_would_be_lost_is_an_error() {
        let plain = Config { rope: crate::config::Rope::new(RopeStyle::Half, 1e4), ..preset("stories260k").unwrap() };
        assert!(to_hf(&plain).is_ok());
        let interleaved = preset("stories260k").unwrap();
        for other in [
            interleaved,
            Config { residual_scale: 0.5, ..plain.clone() },
            Config { post_norms: true, ..plain.clone() },
            Config { logit_softcap: Some(30.0), ..plain.clone() },
            Config { qk_norm: true, qkv_bias: true, ..plain.clone() },
        ] {
            assert!(to_hf(&other).is_err(), "{other:?}");
        }
    }
}
