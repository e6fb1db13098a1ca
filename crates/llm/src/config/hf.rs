//! The `config.json` of Hugging Face checkpoints of the families that [`parse_hf`] lists.
//!
//! A field that changes the result is read, or it is an error that names it: one that the reader
//! does not know (`known`), or one whose value it does not support. No field is ignored unless it
//! is known to have no effect on the result.

mod known;
mod layers;
mod rope;
mod write;

pub use write::to_hf;

use super::{Activation, Config, Error, Experts, MAX_LAYERS};
use rope::RopeContext;
use serde_json::{Map, Value};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Phi3,
    SmolLm3,
    Gemma2,
    Gemma3,
}

/// Architectures that [`parse_hf`] reads, with the names of their families in `model_type`.
const FAMILIES: [(Family, &str, &str); 9] = [
    (Family::Llama, "LlamaForCausalLM", "llama"),
    (Family::Mistral, "MistralForCausalLM", "mistral"),
    (Family::Qwen2, "Qwen2ForCausalLM", "qwen2"),
    (Family::Qwen3, "Qwen3ForCausalLM", "qwen3"),
    (Family::Qwen3Moe, "Qwen3MoeForCausalLM", "qwen3_moe"),
    (Family::Phi3, "Phi3ForCausalLM", "phi3"),
    (Family::SmolLm3, "SmolLM3ForCausalLM", "smollm3"),
    (Family::Gemma2, "Gemma2ForCausalLM", "gemma2"),
    (Family::Gemma3, "Gemma3ForCausalLM", "gemma3_text"),
];

/// The names of the architectures, for an error.
pub(super) fn architectures() -> String {
    FAMILIES.map(|(_, architecture, _)| architecture).join(", ")
}

/// The defaults of an architecture's published configuration class, for fields that the file does
/// not have.
struct Defaults {
    /// `None`: as many as query heads, which `null` means in every architecture.
    kv_heads: Option<usize>,
    /// `None`: `hidden_size / num_attention_heads`.
    head_dim: Option<usize>,
    max_seq: usize,
    base: f64,
    eps: f64,
    tied: bool,
    /// `None`: no window unless the file states one.
    window: Option<usize>,
}

impl Family {
    fn defaults(self) -> Defaults {
        let llama =
            Defaults { kv_heads: None, head_dim: None, max_seq: 2048, base: 1e4, eps: 1e-6, tied: false, window: None };
        let qwen2 = Defaults { kv_heads: Some(32), max_seq: 32_768, window: Some(4096), ..llama };
        let gemma2 =
            Defaults { kv_heads: Some(4), head_dim: Some(256), max_seq: 8192, tied: true, window: Some(4096), ..llama };
        match self {
            Family::Llama => llama,
            Family::Mistral => Defaults { kv_heads: Some(8), max_seq: 131_072, window: Some(4096), ..llama },
            Family::Qwen2 => qwen2,
            // Qwen3's heads have 128 values at every model width.
            Family::Qwen3 => Defaults { head_dim: Some(128), ..qwen2 },
            Family::Qwen3Moe => Defaults { kv_heads: Some(4), ..qwen2 },
            Family::Phi3 => Defaults { max_seq: 4096, eps: 1e-5, ..llama },
            Family::SmolLm3 => Defaults { kv_heads: Some(4), max_seq: 32_768, base: 2e6, tied: true, ..llama },
            Family::Gemma2 => gemma2,
            Family::Gemma3 => Defaults { max_seq: 131_072, base: 1e6, ..gemma2 },
        }
    }

    fn is_gemma(self) -> bool {
        matches!(self, Family::Gemma2 | Family::Gemma3)
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
/// | architecture | kv heads | head size | context | base | eps | tied | window |
/// |---|---|---|---|---|---|---|---|
/// | Llama | heads | dim/heads | 2048 | 1e4 | 1e-6 | no | – |
/// | Mistral | 8 | dim/heads | 131072 | 1e4 | 1e-6 | no | 4096 |
/// | Qwen2 | 32 | dim/heads | 32768 | 1e4 | 1e-6 | no | 4096 |
/// | Qwen3 | 32 | 128 | 32768 | 1e4 | 1e-6 | no | 4096 |
/// | Qwen3-MoE | 4 | dim/heads | 32768 | 1e4 | 1e-6 | no | 4096 |
/// | Phi3 | heads | dim/heads | 4096 | 1e4 | 1e-5 | no | – |
/// | SmolLM3 | 4 | dim/heads | 32768 | 2e6 | 1e-6 | yes | – |
/// | Gemma2 | 4 | 256 | 8192 | 1e4 | 1e-6 | yes | 4096 |
/// | Gemma3 | 4 | 256 | 131072 | 1e6 | 1e-6 | yes | 4096 |
///
/// In two fields `null` differs from a missing field: for `num_key_value_heads` it means as many as
/// heads, for `sliding_window` it means no window. Which layers have the window: all (Mistral,
/// Phi3, Qwen3-MoE), those from `max_window_layers` (28) on (Qwen), those without rotation
/// (SmolLM3), every second one (Gemma2), all but every sixth (Gemma3); `layer_types` overrides it
/// in the last four. Qwen and SmolLM3 have a window only if `use_sliding_window` is true. A base in
/// `rope_parameters` (or `rope_scaling`) overrides one at the top level.
///
/// # Errors
/// [`Error::Json`], [`Error::UnknownArchitecture`], [`Error::Field`] for a missing, unknown or
/// unsupported field, [`Error::Invalid`] for sizes that [`Config::validate`] refuses.
pub fn parse_hf(text: &[u8], file: &str) -> Result<HfConfig, Error> {
    let value: Value =
        serde_json::from_slice(text).map_err(|e| Error::Json { file: file.into(), reason: e.to_string() })?;
    let Value::Object(object) = value else {
        return Err(Error::Json { file: file.into(), reason: "the top level is not an object".into() });
    };
    let fields = Fields { object, file };
    let (family, architecture) = fields.architecture()?;
    fields.refuse_unknown(family)?;
    fields.refuse_true("mlp_bias")?;
    if family != Family::Qwen2 {
        // With `attention_bias` the output projection has a bias too, and `Config` has no field for
        // it.
        fields.refuse_true("attention_bias")?;
    }
    let config = fields.config(family)?;
    config.validate()?;
    Ok(HfConfig { config, architecture })
}

struct Fields<'a> {
    object: Map<String, Value>,
    file: &'a str,
}

impl Fields<'_> {
    fn config(&self, family: Family) -> Result<Config, Error> {
        let defaults = family.defaults();
        let dim = self.size("hidden_size", None)?;
        let heads = self.size("num_attention_heads", None)?;
        let kv_heads = self.size_or_null("num_key_value_heads", defaults.kv_heads)?.unwrap_or(heads);
        let head_dim = match self.optional_size("head_dim")?.or(defaults.head_dim) {
            Some(given) => given,
            None if heads == 0 || dim % heads != 0 => {
                let reason = "is missing, and hidden_size is not a multiple of num_attention_heads";
                return Err(self.error("head_dim", reason));
            }
            None => dim / heads,
        };
        let layers = self.size("num_hidden_layers", None)?;
        let (sliding_window, layer_attention) = self.attention(family, &defaults, layers)?;
        let positions = self.size("max_position_embeddings", Some(defaults.max_seq))?;
        let context = RopeContext { head_dim, positions, base: defaults.base, phi3: family == Family::Phi3 };
        let (rope, max_seq) = self.rope("full_attention", &context)?;
        let local_rope = match family {
            Family::Gemma3 => Some(self.local_rope(&context)?),
            _ => None,
        };
        let gemma = family.is_gemma();
        let score_scale = match gemma {
            true => Some((1.0 / self.number("query_pre_attn_scalar")?.unwrap_or(256.0).sqrt()) as f32),
            false => None,
        };
        Ok(Config {
            dim,
            hidden: self.size("intermediate_size", None)?,
            layers,
            heads,
            kv_heads,
            head_dim,
            vocab: self.size("vocab_size", None)?,
            max_seq,
            rope,
            local_rope,
            norm_eps: self.number("rms_norm_eps")?.unwrap_or(defaults.eps) as f32,
            qk_norm: matches!(family, Family::Qwen3 | Family::Qwen3Moe | Family::Gemma3),
            qkv_bias: family == Family::Qwen2,
            post_norms: gemma,
            experts: if family == Family::Qwen3Moe { self.experts(layers)? } else { None },
            activation: self.activation(gemma)?,
            embed_scale: if gemma { self.rounded((dim as f32).sqrt()) } else { 1.0 },
            score_scale,
            attn_softcap: self.softcap(family, "attn_logit_softcapping", 50.0)?,
            logit_softcap: self.softcap(family, "final_logit_softcapping", 30.0)?,
            sliding_window,
            layer_attention,
            tied: self.flag("tie_word_embeddings", defaults.tied)?,
            residual_scale: 1.0,
        })
    }

    /// The experts of Qwen3-MoE.
    fn experts(&self, layers: usize) -> Result<Option<Experts>, Error> {
        let step = self.size("decoder_sparse_step", Some(1))?;
        if step == 0 {
            return Err(self.error("decoder_sparse_step", "must not be zero"));
        }
        let mut ordinary = Vec::new();
        if let Some(value) = self.get("mlp_only_layers") {
            let list = value.as_array().ok_or_else(|| self.error("mlp_only_layers", "is not a list of layers"))?;
            for layer in list {
                ordinary.push(self.as_size("mlp_only_layers", layer)?);
            }
        }
        let experts = Experts {
            count: self.size("num_experts", Some(128))?,
            active: self.size("num_experts_per_tok", Some(8))?,
            hidden: self.size("moe_intermediate_size", Some(768))?,
            normalize: self.flag("norm_topk_prob", false)?,
            dense_layers: (0..layers.min(MAX_LAYERS))
                .filter(|layer| ordinary.contains(layer) || (layer + 1) % step != 0)
                .collect(),
        };
        Ok((experts.count > 0 && experts.dense_layers.len() < layers).then_some(experts))
    }

    /// The activation of the gate. In Gemma `hidden_activation` overrides `hidden_act`.
    fn activation(&self, gemma: bool) -> Result<Activation, Error> {
        if !gemma {
            self.refuse_unless("hidden_act", &["silu", "swish"])?;
            return Ok(Activation::Silu);
        }
        let field = if self.get("hidden_activation").is_some() { "hidden_activation" } else { "hidden_act" };
        self.refuse_unless(field, &["gelu_pytorch_tanh"])?;
        Ok(Activation::GeluTanh)
    }

    /// Rounds a factor to the type that the model was trained in: transformers multiplies in it.
    fn rounded(&self, factor: f32) -> f32 {
        let stated = self.get("torch_dtype").or_else(|| self.get("dtype")).and_then(Value::as_str);
        match stated.map(|name| name.trim_start_matches("torch.")) {
            Some("bfloat16") => half::bf16::from_f32(factor).to_f32(),
            Some("float16") => half::f16::from_f32(factor).to_f32(),
            _ => factor,
        }
    }

    /// A softcap of Gemma. Only Gemma 2 has one unless the file states it; `null` means none.
    fn softcap(&self, family: Family, field: &str, gemma2: f32) -> Result<Option<f32>, Error> {
        match family {
            Family::Gemma2 if !self.object.contains_key(field) => Ok(Some(gemma2)),
            Family::Gemma2 | Family::Gemma3 => Ok(self.number(field)?.map(|cap| cap as f32)),
            _ => Ok(None),
        }
    }

    fn error(&self, field: &str, reason: impl Into<String>) -> Error {
        Error::Field { file: self.file.to_string(), field: field.to_string(), reason: reason.into() }
    }

    /// The value of a field; `None` if it is missing or `null`.
    fn get(&self, field: &str) -> Option<&Value> {
        self.object.get(field).filter(|v| !v.is_null())
    }

    fn architecture(&self) -> Result<(Family, &'static str), Error> {
        if let Some(value) = self.get("architectures") {
            let name = value.as_array().and_then(|list| list.first()).and_then(Value::as_str);
            let name = name.ok_or_else(|| self.error("architectures", "is not a list of names"))?;
            let found = FAMILIES.into_iter().find(|(_, architecture, _)| *architecture == name);
            return found.map(|(family, name, _)| (family, name)).ok_or_else(|| self.unknown(name));
        }
        let Some(kind) = self.get("model_type") else {
            return Err(self.error("architectures", "is missing, and so is model_type"));
        };
        let found = FAMILIES.into_iter().find(|(.., name)| kind.as_str() == Some(name));
        let found = found.map(|(family, name, _)| (family, name));
        found.ok_or_else(|| self.unknown(kind.as_str().unwrap_or("not a string")))
    }

    fn unknown(&self, found: &str) -> Error {
        Error::UnknownArchitecture { file: self.file.to_string(), found: found.chars().take(80).collect() }
    }

    fn size(&self, field: &str, default: Option<usize>) -> Result<usize, Error> {
        self.optional_size(field)?.or(default).ok_or_else(|| self.error(field, "is missing"))
    }

    fn optional_size(&self, field: &str) -> Result<Option<usize>, Error> {
        self.get(field).map(|value| self.as_size(field, value)).transpose()
    }

    fn as_size(&self, field: &str, value: &Value) -> Result<usize, Error> {
        let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
        size.ok_or_else(|| self.error(field, format!("{value} is not a whole number ≥ 0")))
    }

    /// Like [`Fields::optional_size`], but only a missing field takes the default; `null` gives
    /// `None`.
    fn size_or_null(&self, field: &str, default: Option<usize>) -> Result<Option<usize>, Error> {
        if self.object.contains_key(field) { self.optional_size(field) } else { Ok(default) }
    }

    fn number(&self, field: &str) -> Result<Option<f64>, Error> {
        self.get(field).map(|value| self.as_number(field, value)).transpose()
    }

    fn as_number(&self, field: &str, value: &Value) -> Result<f64, Error> {
        value.as_f64().ok_or_else(|| self.error(field, format!("{value} is not a number")))
    }

    fn flag(&self, field: &str, default: bool) -> Result<bool, Error> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.error(field, format!("{value} is neither true nor false")))
    }

    fn refuse_true(&self, field: &str) -> Result<(), Error> {
        if self.flag(field, false)? { Err(self.error(field, "true is not supported")) } else { Ok(()) }
    }

    fn refuse_unless(&self, field: &str, accepted: &[&str]) -> Result<(), Error> {
        match self.get(field) {
            Some(value) if !value.as_str().is_some_and(|s| accepted.contains(&s)) => {
                Err(self.error(field, format!("{value} is not supported, only {}", accepted.join(", "))))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
