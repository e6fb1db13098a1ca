//! The `config.json` of Hugging Face checkpoints: Llama, Mistral, Qwen2 and Qwen3.
//!
//! The reader uses only the fields that change the result. A field that would change the result in
//! an unsupported way (scaled or partial rotary frequencies, another activation, other biases, a
//! window on some layers) is an error and is never ignored.

use super::{Config, Error, Rope, RopeStyle};
use serde_json::{Map, Value};
use std::path::Path;

/// Architectures that [`parse_hf`] reads.
pub(super) const ARCHITECTURES: [&str; 4] =
    ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"];

/// The defaults of an architecture's published configuration class, for fields that the file does
/// not have.
struct Defaults {
    /// `None`: as many as query heads, which `null` means in every architecture.
    kv_heads: Option<usize>,
    /// `None`: `hidden_size / num_attention_heads`.
    head_dim: Option<usize>,
    max_seq: usize,
    /// `None`: the architecture has no window, and the file's value is ignored.
    window: Option<usize>,
    /// First layer with a window; 0 if all layers have it.
    first_window_layer: usize,
}

impl Defaults {
    fn of(architecture: &str) -> Defaults {
        let llama = Defaults { kv_heads: None, head_dim: None, max_seq: 2048, window: None, first_window_layer: 0 };
        let qwen2 =
            Defaults { kv_heads: Some(32), max_seq: 32_768, window: Some(4096), first_window_layer: 28, ..llama };
        match architecture {
            "LlamaForCausalLM" => llama,
            "MistralForCausalLM" => Defaults { kv_heads: Some(8), max_seq: 131_072, window: Some(4096), ..llama },
            "Qwen2ForCausalLM" => qwen2,
            // Qwen3's heads have 128 values at every model width.
            _ => Defaults { head_dim: Some(128), ..qwen2 },
        }
    }
}

/// A parsed Hugging Face configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct HfConfig {
    /// The model. `tied` is `tie_word_embeddings` as in the file; the loader of the weights may
    /// override it.
    pub config: Config,
    /// The architecture, spelled as in `architectures`.
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
/// A missing field takes the default of the architecture's published configuration class:
///
/// | field | Llama | Mistral | Qwen2 | Qwen3 |
/// |---|---|---|---|---|
/// | `num_key_value_heads` | heads | 8 | 32 | 32 |
/// | `head_dim` | hidden/heads | hidden/heads | hidden/heads | 128 |
/// | `max_position_embeddings` | 2048 | 131072 | 32768 | 32768 |
/// | `sliding_window` | – | 4096 | 4096 | 4096 |
/// | `max_window_layers` | – | – | 28 | 28 |
///
/// In all of them eps is 1e-6, the rotary base is 10000, and embeddings are untied. In two fields
/// `null` differs from a missing field: for `num_key_value_heads` it means as many as heads, for
/// `sliding_window` it means no window. Qwen has a window only if `use_sliding_window` is true. A
/// base in `rope_parameters` (or `rope_scaling`) overrides one at the top level.
///
/// # Errors
/// [`Error::Json`], [`Error::UnknownArchitecture`], [`Error::Field`] for a missing or unsupported
/// field, [`Error::Invalid`] for sizes that [`Config::validate`] refuses.
pub fn parse_hf(text: &[u8], file: &str) -> Result<HfConfig, Error> {
    let value: Value =
        serde_json::from_slice(text).map_err(|e| Error::Json { file: file.into(), reason: e.to_string() })?;
    let Value::Object(object) = value else {
        return Err(Error::Json { file: file.into(), reason: "the top level is not an object".into() });
    };
    let fields = Fields { object, file };
    let architecture = fields.architecture()?;
    let is = |name| architecture == name;
    let (mistral, qwen2, qwen3) = (is("MistralForCausalLM"), is("Qwen2ForCausalLM"), is("Qwen3ForCausalLM"));
    let defaults = Defaults::of(architecture);
    fields.refuse_unless("hidden_act", &["silu", "swish"])?;
    fields.refuse_true("mlp_bias")?;
    if !qwen2 {
        // With `attention_bias` the output projection has a bias too, and `Config` has no field for
        // it.
        fields.refuse_true("attention_bias")?;
    }
    fields.refuse_scaling()?;
    fields.refuse_partial_rotation()?;

    let dim = fields.size("hidden_size", None)?;
    let heads = fields.size("num_attention_heads", None)?;
    let kv_heads = fields.size_or_null("num_key_value_heads", defaults.kv_heads)?.unwrap_or(heads);
    let head_dim = match fields.optional_size("head_dim")?.or(defaults.head_dim) {
        Some(given) => given,
        None if heads == 0 || dim % heads != 0 => {
            return Err(
                fields.error("head_dim", "is missing, and hidden_size is not a multiple of num_attention_heads")
            );
        }
        None => dim / heads,
    };
    let layers = fields.size("num_hidden_layers", None)?;
    let sliding_window = fields.window(&defaults, mistral, layers)?;
    fields.check_layer_types(layers, sliding_window)?;
    let base = match fields.rope_number("rope_theta")? {
        Some(base) => base,
        None => fields.number("rope_theta")?.unwrap_or(1e4),
    };
    let config = Config {
        dim,
        hidden: fields.size("intermediate_size", None)?,
        layers,
        heads,
        kv_heads,
        head_dim,
        vocab: fields.size("vocab_size", None)?,
        max_seq: fields.size("max_position_embeddings", Some(defaults.max_seq))?,
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

/// The objects that may hold rotary settings, in order of precedence.
const ROPE_OBJECTS: [&str; 2] = ["rope_scaling", "rope_parameters"];

struct Fields<'a> {
    object: Map<String, Value>,
    file: &'a str,
}

impl Fields<'_> {
    fn error(&self, field: &str, reason: impl Into<String>) -> Error {
        Error::Field { file: self.file.to_string(), field: field.to_string(), reason: reason.into() }
    }

    /// The value of a field; `None` if it is missing or `null`.
    fn get(&self, field: &str) -> Option<&Value> {
        self.object.get(field).filter(|v| !v.is_null())
    }

    fn architecture(&self) -> Result<&'static str, Error> {
        if let Some(value) = self.get("architectures") {
            let name = value.as_array().and_then(|list| list.first()).and_then(Value::as_str);
            let name = name.ok_or_else(|| self.error("architectures", "is not a list of names"))?;
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
        self.optional_size(field)?.or(default).ok_or_else(|| self.error(field, "is missing"))
    }

    fn optional_size(&self, field: &str) -> Result<Option<usize>, Error> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
        size.map(Some).ok_or_else(|| self.error(field, format!("{value} is not a whole number ≥ 0")))
    }

    /// Like [`Fields::optional_size`], but only a missing field takes the default; `null` gives
    /// `None`.
    fn size_or_null(&self, field: &str, default: Option<usize>) -> Result<Option<usize>, Error> {
        if self.object.contains_key(field) { self.optional_size(field) } else { Ok(default) }
    }

    fn number(&self, field: &str) -> Result<Option<f64>, Error> {
        self.get(field).map(|value| self.as_number(field, value)).transpose()
    }

    /// A number inside `rope_scaling` or `rope_parameters`, from the first object that has it.
    fn rope_number(&self, inner: &str) -> Result<Option<f64>, Error> {
        for field in ROPE_OBJECTS {
            if let Some(value) = self.get(field).and_then(|v| v.get(inner)).filter(|v| !v.is_null()) {
                return self.as_number(&format!("{field}.{inner}"), value).map(Some);
            }
        }
        Ok(None)
    }

    fn as_number(&self, field: &str, value: &Value) -> Result<f64, Error> {
        value.as_f64().ok_or_else(|| self.error(field, format!("{value} is not a number")))
    }

    /// The sliding window of all layers, if any.
    fn window(&self, defaults: &Defaults, everywhere: bool, layers: usize) -> Result<Option<usize>, Error> {
        let used = defaults.window.is_some() && (everywhere || self.flag("use_sliding_window")?);
        if !used {
            return Ok(None);
        }
        let window = self.size_or_null("sliding_window", defaults.window)?;
        if everywhere || window.is_none() {
            return Ok(window);
        }
        // Qwen applies the window only from layer `max_window_layers` on; `Config` has one window
        // for all layers.
        match self.size("max_window_layers", Some(defaults.first_window_layer))? {
            0 => Ok(window),
            first if first >= layers => Ok(None),
            _ => Err(self.error("max_window_layers", "a window on some of the layers only is not supported")),
        }
    }

    /// Checks that `layer_types`, if present, agrees with the window.
    fn check_layer_types(&self, layers: usize, window: Option<usize>) -> Result<(), Error> {
        let Some(value) = self.get("layer_types") else { return Ok(()) };
        let expected = if window.is_some() { "sliding_attention" } else { "full_attention" };
        let list = value.as_array().ok_or_else(|| self.error("layer_types", "is not a list of names"))?;
        if list.len() != layers {
            return Err(self.error("layer_types", format!("{} entries for {layers} layers", list.len())));
        }
        match list.iter().position(|v| v.as_str() != Some(expected)) {
            Some(layer) => {
                let reason = format!("layer {layer} is {}, but the window makes it \"{expected}\"", list[layer]);
                Err(self.error("layer_types", reason))
            }
            None => Ok(()),
        }
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

    /// Refuses scaled rotary frequencies: `rope_scaling`, and the newer `rope_parameters`, must be
    /// missing, `null`, of type "default", or without a type and hold nothing but the base.
    fn refuse_scaling(&self) -> Result<(), Error> {
        for field in ROPE_OBJECTS {
            let Some(value) = self.get(field) else { continue };
            let Some(object) = value.as_object() else { return Err(self.error(field, "is not an object")) };
            let kind = object.get("rope_type").or_else(|| object.get("type"));
            let plain = match kind {
                Some(kind) => kind.as_str() == Some("default"),
                None => object.keys().all(|k| ["rope_theta", "partial_rotary_factor"].contains(&k.as_str())),
            };
            if !plain {
                let kind = kind.map_or("without a type".into(), Value::to_string);
                return Err(self.error(field, format!("scaled rotary frequencies ({kind}) are not supported")));
            }
        }
        Ok(())
    }

    /// Refuses a rotation of only some pairs of a head: the kernels rotate all pairs.
    fn refuse_partial_rotation(&self) -> Result<(), Error> {
        let field = "partial_rotary_factor";
        for factor in [self.number(field)?, self.rope_number(field)?].into_iter().flatten() {
            if factor != 1.0 {
                return Err(self.error(field, format!("{factor} is not supported, only 1")));
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

    /// The base configuration with fields replaced, or removed if `None`.
    fn edited(architecture: &str, edits: &[(&str, Option<Value>)]) -> Value {
        let mut value = base(architecture);
        let object = value.as_object_mut().unwrap();
        for (field, edit) in edits {
            match edit {
                Some(new) => object.insert(field.to_string(), new.clone()),
                None => object.remove(*field),
            };
        }
        value
    }

    #[test]
    fn defaults_follow_the_architecture() {
        let absent = |architecture| {
            let many = Some(json!(32));
            parse(&edited(architecture, &[("num_attention_heads", many), ("max_position_embeddings", None)])).unwrap()
        };
        let llama = absent("LlamaForCausalLM");
        assert_eq!((llama.head_dim, llama.kv_heads, llama.max_seq), (2, 32, 2048));
        assert_eq!((llama.sliding_window, llama.tied, llama.qk_norm), (None, false, false));
        assert_eq!(llama.rope, Rope { style: RopeStyle::Half, base: 5e5 });
        let mistral = absent("MistralForCausalLM");
        assert_eq!((mistral.head_dim, mistral.kv_heads, mistral.max_seq), (2, 8, 131_072));
        assert_eq!(mistral.sliding_window, Some(4096));
        let qwen2 = absent("Qwen2ForCausalLM");
        assert_eq!((qwen2.head_dim, qwen2.kv_heads, qwen2.max_seq), (2, 32, 32_768));
        assert!(qwen2.qkv_bias && !qwen2.qk_norm && qwen2.sliding_window.is_none());
        let qwen3 = absent("Qwen3ForCausalLM");
        assert_eq!((qwen3.head_dim, qwen3.kv_heads, qwen3.max_seq), (128, 32, 32_768));
        assert!(!qwen3.qkv_bias && qwen3.qk_norm && qwen3.sliding_window.is_none());
        // The default of 32 key/value heads differs from the number of query heads.
        let wide = [("num_attention_heads", Some(json!(64))), ("head_dim", Some(json!(2)))];
        assert_eq!(parse(&edited("Qwen2ForCausalLM", &wide)).unwrap().kv_heads, 32);
    }

    #[test]
    fn null_is_not_absence() {
        for architecture in ARCHITECTURES {
            let null = [("num_key_value_heads", Some(json!(null))), ("sliding_window", Some(json!(null)))];
            let config = parse(&edited(architecture, &null)).unwrap();
            assert_eq!((config.kv_heads, config.sliding_window), (4, None), "{architecture}");
        }
        let used = [
            ("num_key_value_heads", Some(json!(2))),
            ("use_sliding_window", Some(json!(true))),
            ("max_window_layers", Some(json!(0))),
        ];
        let mut value = edited("Qwen2ForCausalLM", &used);
        assert_eq!(parse(&value).unwrap().sliding_window, Some(4096));
        value["sliding_window"] = json!(null);
        assert_eq!(parse(&value).unwrap().sliding_window, None);
    }

    #[test]
    fn a_qwen3_head_needs_no_width_that_divides() {
        let kv = Some(json!(5));
        let odd = edited("Qwen3ForCausalLM", &[("num_attention_heads", Some(json!(5))), ("num_key_value_heads", kv)]);
        assert_eq!(parse(&odd).unwrap().head_dim, 128);
    }

    #[test]
    fn rotary_settings_may_lie_in_an_object() {
        let rope = |object: Value, top: Option<Value>| {
            parse(&edited("LlamaForCausalLM", &[("rope_parameters", Some(object)), ("rope_theta", top)]))
        };
        let base = |object, top| rope(object, top).unwrap().rope.base;
        assert_eq!(base(json!({"rope_theta": 3e4}), None), 3e4);
        assert_eq!(base(json!({"rope_theta": 3e4, "rope_type": "default"}), Some(json!(1e6))), 3e4);
        assert_eq!(base(json!({"rope_type": "default", "partial_rotary_factor": 1.0}), Some(json!(1e6))), 1e6);
        assert_eq!(base(json!({}), None), 1e4);
        for (object, needle) in [
            (json!({"rope_theta": "big"}), "rope_parameters.rope_theta"),
            (json!({"rope_theta": 1e4, "factor": 2.0}), "without a type"),
            (json!({"rope_type": 3}), "(3)"),
            (json!({"rope_type": "default", "partial_rotary_factor": 0.5}), "partial_rotary_factor: 0.5"),
            (json!(8), "is not an object"),
        ] {
            let message = rope(object, None).unwrap_err().to_string();
            assert!(message.contains(needle), "{message}");
        }
    }

    #[test]
    fn layer_types_may_only_repeat_the_window() {
        let types = |architecture: &str, list: Value, edits: &[(&str, Option<Value>)]| {
            let mut value = edited(architecture, edits);
            value["num_key_value_heads"] = json!(4);
            value["layer_types"] = list;
            parse(&value).map(|c| c.sliding_window)
        };
        let (full, sliding) = ("full_attention", "sliding_attention");
        let used = [("use_sliding_window", Some(json!(true))), ("max_window_layers", Some(json!(0)))];
        assert_eq!(types("Qwen3ForCausalLM", json!([full, full]), &[]).unwrap(), None);
        assert_eq!(types("Qwen3ForCausalLM", json!([sliding, sliding]), &used).unwrap(), Some(4096));
        assert_eq!(types("MistralForCausalLM", json!([sliding, sliding]), &[]).unwrap(), Some(4096));
        for (architecture, list, edits) in [
            ("Qwen3ForCausalLM", json!([full, sliding]), &[][..]),
            ("Qwen2ForCausalLM", json!([full, sliding]), &used),
            ("MistralForCausalLM", json!([full, full]), &[]),
            ("LlamaForCausalLM", json!([full]), &[]),
            ("LlamaForCausalLM", json!("full_attention"), &[]),
        ] {
            let message = types(architecture, list, edits).unwrap_err().to_string();
            assert!(message.contains("layer_types"), "{message}");
        }
    }

    #[test]
    fn window_is_honored_where_the_architecture_uses_it() {
        let window = |architecture: &str, edit: Value| {
            let mut value = base(architecture);
            value["sliding_window"] = json!(8);
            value["num_key_value_heads"] = json!(4);
            value.as_object_mut().unwrap().extend(edit.as_object().unwrap().clone());
            parse(&value)
        };
        assert_eq!(window("MistralForCausalLM", json!({})).unwrap().sliding_window, Some(8));
        assert_eq!(window("LlamaForCausalLM", json!({})).unwrap().sliding_window, None);
        assert_eq!(window("Qwen2ForCausalLM", json!({})).unwrap().sliding_window, None);
        let used = json!({"use_sliding_window": true, "max_window_layers": 0});
        assert_eq!(window("Qwen2ForCausalLM", used).unwrap().sliding_window, Some(8));
        // The window starts after the last layer, so no layer has it.
        for all in [json!({"use_sliding_window": true}), json!({"use_sliding_window": true, "max_window_layers": 2})] {
            assert_eq!(window("Qwen3ForCausalLM", all).unwrap().sliding_window, None);
        }
        let partly = json!({"use_sliding_window": true, "max_window_layers": 1});
        assert!(window("Qwen3ForCausalLM", partly).unwrap_err().to_string().contains("some of the layers"));
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_name() {
        let cases = [
            ("architectures", json!(["GPT2LMHeadModel"]), "LlamaForCausalLM"),
            ("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0}), "llama3"),
            ("hidden_act", json!("gelu"), "silu"),
            ("partial_rotary_factor", json!(0.5), "partial_rotary_factor"),
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
