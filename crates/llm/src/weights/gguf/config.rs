//! The configuration of a model from the metadata of its file.
//!
//! Every key below the architecture's name must be known here: one that is not might change the
//! mathematics, so it is an error that names it. To add a family, add a row to [`FAMILIES`]; what
//! its keys mean goes into [`read`], and scaled rotary frequencies into [`rope`].

use crate::config::{self, Activation, Config, Rope, RopeScaling, RopeStyle};
use crate::weights::Error;
use ferrane_gguf::{File, MetadataValue};

/// What the name of an architecture implies.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// `general.architecture`, which is also the prefix of the family's keys.
    pub(super) name: &'static str,
    /// Whether the rows of queries and keys are stored for a rotation of neighboring elements.
    pub(super) pairs_neighbors: bool,
    /// Whether the projections of queries, keys and values may have biases.
    biases: bool,
    /// Whether queries and keys are normalized.
    qk_norm: bool,
    /// Whether `attention.sliding_window` is a window of all layers (Mistral).
    window: bool,
}

/// The architectures that are read. Mistral models have the architecture `llama`.
const FAMILIES: [Family; 3] = [
    Family { name: "llama", pairs_neighbors: true, biases: true, qk_norm: false, window: true },
    Family { name: "qwen2", pairs_neighbors: false, biases: true, qk_norm: false, window: false },
    Family { name: "qwen3", pairs_neighbors: false, biases: false, qk_norm: true, window: false },
];

impl Family {
    /// The family of an architecture; `None` for one that is not read.
    pub(super) fn named(architecture: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.name == architecture)
    }

    pub(super) fn of(file: &File) -> Result<&'static Family, Error> {
        let field = "general.architecture";
        let keys = Keys { file, prefix: "" };
        let name = keys.get(field).ok_or_else(|| keys.error(field, "is missing"))?;
        let name = name.as_str().ok_or_else(|| keys.error(field, "is not a string"))?;
        FAMILIES.iter().find(|family| family.name == name).ok_or_else(|| {
            let supported: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
            let name: String = name.chars().take(80).collect();
            keys.error(field, format!("`{name}` is not supported; supported: {}", supported.join(", ")))
        })
    }
}

/// The configuration of a file. `tied` says whether the file lacks a classifier.
///
/// # Errors
/// [`Error::Config`] with the key that is missing, has the wrong type, or changes the model in a
/// way that is not supported; [`Error::Format`] for a file of another kind, or one of several.
pub fn read(file: &File) -> Result<Config, Error> {
    let family = Family::of(file)?;
    let keys = Keys { file, prefix: family.name };
    check_kind(file)?;
    keys.check_known(family)?;
    let dim = keys.size("embedding_length", None)?;
    let heads = keys.size("attention.head_count", None)?;
    let kv_heads = keys.size("attention.head_count_kv", Some(heads))?;
    let key = "attention.key_length";
    let head_dim = match keys.optional_size(key)? {
        Some(length) => length,
        None if heads == 0 || !dim.is_multiple_of(heads) => {
            return Err(keys.error(key, "is missing, and embedding_length is not a multiple of attention.head_count"));
        }
        None => dim / heads,
    };
    keys.equals("attention.value_length", head_dim)?;
    // The rows of the embedding are what the tokens can be, whatever the metadata say.
    let embedding = "token_embd.weight";
    let vocab = file.tensor(embedding).and_then(|t| t.shape().first().copied()).ok_or_else(|| Error::Missing {
        file: file.path().display().to_string(),
        name: embedding.into(),
        expected: vec![keys.optional_size("vocab_size").ok().flatten().unwrap_or(0), dim],
    })?;
    keys.equals("vocab_size", vocab)?;
    let sliding_window = if family.window { keys.optional_size("attention.sliding_window")? } else { None };
    let config = Config {
        dim,
        hidden: keys.size("feed_forward_length", None)?,
        layers: keys.size("block_count", None)?,
        heads,
        kv_heads,
        head_dim,
        vocab,
        max_seq: keys.size("context_length", None)?,
        rope: rope(&keys, head_dim)?,
        local_rope: None,
        norm_eps: keys.number("attention.layer_norm_rms_epsilon", None)? as f32,
        qk_norm: family.qk_norm,
        qkv_bias: family.biases && file.tensor("blk.0.attn_q.bias").is_some(),
        post_norms: false,
        experts: None,
        activation: Activation::Silu,
        embed_scale: 1.0,
        score_scale: None,
        attn_softcap: None,
        logit_softcap: None,
        layer_attention: Vec::new(),
        // 0 means that there is no window.
        sliding_window: sliding_window.filter(|&window| window != 0),
        tied: file.tensor("output.weight").is_none(),
        residual_scale: 1.0,
    };
    config.validate()?;
    Ok(config)
}

/// The rotary encoding. Files of Llama 3.1 and later have the divisors of the frequencies as a
/// tensor, one for each pair.
fn rope(keys: &Keys<'_>, head_dim: usize) -> Result<Rope, Error> {
    keys.equals("rope.dimension_count", head_dim)?;
    let scaling = scaling(keys)?;
    let divisors = match keys.file.tensor(DIVISORS) {
        Some(tensor) if tensor.shape() == [head_dim / 2] => {
            let mut values = vec![0.0; head_dim / 2];
            keys.file.read(tensor, &mut values)?;
            Some(values.into_iter().map(f64::from).collect::<Vec<_>>())
        }
        Some(tensor) => {
            let (file, name) = (keys.file.path().display().to_string(), DIVISORS.to_string());
            return Err(Error::Shape { file, name, expected: vec![head_dim / 2], found: tensor.shape().to_vec() });
        }
        None => None,
    };
    let scaling = match (scaling, divisors) {
        (Some(_), Some(_)) => {
            let reason = format!("is not supported together with the tensor {DIVISORS}");
            return Err(keys.error("rope.scaling.type", reason));
        }
        (None, Some(divisors)) if divisors.iter().all(|divisor| *divisor == 1.0) => None,
        (None, Some(short)) => {
            let original = keys.size("context_length", None)?;
            Some(RopeScaling::LongRope { long: short.clone(), short, original, attention: 1.0 })
        }
        (scaling, None) => scaling,
    };
    let base = keys.number("rope.freq_base", Some(1e4))? as f32;
    Ok(Rope { scaling, ..Rope::new(RopeStyle::Half, base) })
}

/// The tensor of divisors.
pub(crate) const DIVISORS: &str = "rope_freqs.weight";

/// The scaling that the keys describe. Without a type, llama.cpp scales linearly by a factor.
fn scaling(keys: &Keys<'_>) -> Result<Option<RopeScaling>, Error> {
    let key = "rope.scaling.type";
    let kind = match keys.get(key) {
        Some(kind) => kind.as_str().ok_or_else(|| keys.error(key, format!("{kind} is not a string")))?,
        None => "linear",
    };
    let number = |key| keys.number(key, Some(1.0));
    let [factor, old, attention] =
        [number("rope.scaling.factor")?, number("rope.scale_linear")?, number("rope.scaling.attn_factor")?];
    // 0 and 1 mean that there is none.
    let factor = [factor, old].into_iter().find(|factor| ![0.0, 1.0].contains(factor));
    match (kind, factor) {
        ("none", _) => Ok(None),
        ("linear", _) if attention != 1.0 => {
            Err(keys.error("rope.scaling.attn_factor", format!("{attention} is not supported without YaRN")))
        }
        ("linear", factor) => Ok(factor.map(|factor| RopeScaling::Linear { factor })),
        ("yarn", factor) => {
            let factor = factor.unwrap_or(1.0);
            // llama.cpp multiplies by this factor of the definition, whatever the file says.
            let attention = attention * (1.0 + 0.1 * factor.max(f64::MIN_POSITIVE).ln());
            let original = keys.size("rope.scaling.original_context_length", None)?;
            Ok(Some(RopeScaling::Yarn { factor, original, attention, beta_fast: 32.0, beta_slow: 1.0, truncate: true }))
        }
        (kind, _) => Err(keys.error(key, format!("`{kind}` is not supported, only none, linear and yarn"))),
    }
}

/// Refuses files that are not a whole model.
fn check_kind(file: &File) -> Result<(), Error> {
    if let Some(kind) = file.get("general.type").filter(|kind| kind.as_str() != Some("model")) {
        return Err(Error::format(file.path(), format!("general.type is {kind}, not a model")));
    }
    match file.get("split.count").and_then(MetadataValue::as_u64) {
        Some(count) if count > 1 => {
            let reason = format!("it is one of {count} files (split.count); join them with `llama-gguf-split --merge`");
            Err(Error::format(file.path(), reason))
        }
        _ => Ok(()),
    }
}

/// Keys that are read above, or that change nothing.
const KNOWN: [&str; 18] = [
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    // A note about how the model was trained.
    "rope.scaling.finetuned",
];

/// Keys that change nothing if they have this value.
fn is_neutral(key: &str, value: &MetadataValue) -> bool {
    match key {
        "expert_count" | "expert_used_count" | "expert_shared_count" | "nextn_predict_layers" => {
            value.as_u64() == Some(0)
        }
        "attention.causal" => value.as_bool() == Some(true),
        "use_parallel_residual" => value.as_bool() == Some(false),
        "tensor_data_layout" => matches!(value.as_str(), Some("Meta AI original pth" | "reference")),
        "logit_scale" | "residual_scale" | "embedding_scale" => value.as_f64() == Some(1.0),
        "attention.max_alibi_bias" | "attention.clamp_kqv" | "attn_logit_softcapping" | "final_logit_softcapping" => {
            value.as_f64() == Some(0.0)
        }
        _ => false,
    }
}

/// The metadata of a file below the prefix of its architecture.
struct Keys<'a> {
    file: &'a File,
    prefix: &'a str,
}

impl Keys<'_> {
    fn full(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_string() } else { format!("{}.{key}", self.prefix) }
    }

    fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.file.get(&self.full(key))
    }

    fn error(&self, key: &str, reason: impl Into<String>) -> Error {
        let (file, field) = (self.file.path().display().to_string(), self.full(key));
        Error::Config(config::Error::Field { file, field, reason: reason.into() })
    }

    fn check_known(&self, family: &Family) -> Result<(), Error> {
        for (key, value) in self.file.header().metadata() {
            let Some(key) = key.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix('.')) else { continue };
            let window = key == "attention.sliding_window" && (family.window || value.as_u64() == Some(0));
            if !KNOWN.contains(&key) && !window && !is_neutral(key, value) {
                return Err(self.error(key, format!("{value} is not supported: the key may change the result")));
            }
        }
        Ok(())
    }

    fn size(&self, key: &str, default: Option<usize>) -> Result<usize, Error> {
        self.optional_size(key)?.or(default).ok_or_else(|| self.error(key, "is missing"))
    }

    /// A whole number, or an array with the same one for every layer.
    fn optional_size(&self, key: &str) -> Result<Option<usize>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let single = match value.as_array().map(|array| array.integers()) {
            None => value.as_u64(),
            Some(Some(list)) if list.windows(2).all(|pair| pair[0] == pair[1]) => list.first().copied(),
            Some(Some(_)) => return Err(self.error(key, "layers of different sizes are not supported")),
            Some(None) => None,
        };
        let size = single.and_then(|n| usize::try_from(n).ok());
        size.map(Some).ok_or_else(|| self.error(key, format!("{value} is not a whole number ≥ 0")))
    }

    fn number(&self, key: &str, default: Option<f64>) -> Result<f64, Error> {
        match self.get(key) {
            None => default.ok_or_else(|| self.error(key, "is missing")),
            Some(value) => value.as_f64().ok_or_else(|| self.error(key, format!("{value} is not a number"))),
        }
    }

    /// Refuses another value than the one that the model implies.
    fn equals(&self, key: &str, expected: usize) -> Result<(), Error> {
        match self.optional_size(key)? {
            Some(found) if found != expected => {
                Err(self.error(key, format!("{found} is not supported, only {expected}")))
            }
            _ => Ok(()),
        }
    }
}
