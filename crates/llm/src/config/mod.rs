//! The configuration of a Llama-style transformer: sizes, position encoding, options.
//!
//! Every size is explicit. In particular `head_dim` is a field of its own and is never derived from
//! `dim` and `heads`: Qwen3-0.6B has `heads · head_dim = 2 · dim` (models.md table). A [`Config`]
//! that passed [`Config::validate`] has no zero size, no product that overflows `usize`, and no
//! value above the limits below, so code that reads one from a file can compute sizes first and
//! then decide whether to allocate.

mod attention;
mod experts;
mod hf;
mod presets;
mod rope;

pub use attention::AttentionKind;
pub use experts::Experts;
pub use hf::{HfConfig, parse_hf, read_hf, to_hf};
pub use presets::{PRESETS, preset};
pub use rope::{Rope, RopeScaling, RopeStyle, Rotation};

use serde::{Deserialize, Serialize};
use std::path::Path;

/// Largest accepted `dim`, `hidden`, `heads · head_dim`, and `vocab`: 16 Mi, far above published
/// models.
pub const MAX_WIDTH: usize = 1 << 24;
/// Largest accepted number of layers.
pub const MAX_LAYERS: usize = 1 << 12;
/// Largest accepted `max_seq`: 16 Mi positions.
pub const MAX_POSITIONS: usize = 1 << 24;
/// Largest accepted number of parameters: 2^40.
pub const MAX_PARAMETERS: usize = 1 << 40;

/// The function of the gate in the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x · sigmoid(x)`.
    #[default]
    Silu,
    /// GELU in its approximation by tanh (Gemma).
    GeluTanh,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one() -> f32 {
    1.0
}

fn is_one(value: &f32) -> bool {
    *value == 1.0
}

/// A Llama-style decoder: RMSNorm, rotary attention with grouped key/value heads, SwiGLU
/// feed-forward. Fields that older files lack have the value that these had.
///
/// Deserializing refuses unknown fields: an option that this version ignored would change the
/// result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Width of the residual stream.
    pub dim: usize,
    /// Width inside the feed-forward part.
    pub hidden: usize,
    /// Number of layers, at least 1 and at most [`MAX_LAYERS`].
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads; divides `heads`. Query head `h` reads kv head `h / (heads /
    /// kv_heads)`.
    pub kv_heads: usize,
    /// Values per head; even, independent of `dim / heads`.
    pub head_dim: usize,
    /// Number of token ids.
    pub vocab: usize,
    /// Longest context the model was made for, in tokens.
    pub max_seq: usize,
    /// The rotary position encoding.
    pub rope: Rope,
    /// The encoding of layers with a window (Gemma 3), with the pairs of [`Config::rope`]; `None`:
    /// as in the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rope: Option<Rope>,
    /// Added to the mean square inside every RMSNorm.
    pub norm_eps: f32,
    /// RMSNorm with a gain of `head_dim` values on each query and key head before the rotation
    /// (Qwen3).
    pub qk_norm: bool,
    /// Biases on the query, key and value projections (Qwen2).
    pub qkv_bias: bool,
    /// RMSNorm also on the outputs of attention and of the feed-forward part (Gemma).
    #[serde(default, skip_serializing_if = "is_default")]
    pub post_norms: bool,
    /// The experts of layers that have several feed-forward parts (Qwen3-MoE); `None`: no layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// The function of the gate in the feed-forward part.
    #[serde(default, skip_serializing_if = "is_default")]
    pub activation: Activation,
    /// Factor on the embedding of a token: 1, or `√dim` (Gemma). The classifier does not have it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub embed_scale: f32,
    /// Factor on the scores of attention; `None`: `1/√head_dim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_scale: Option<f32>,
    /// Scores `s` become `c · tanh(s / c)` before the mask (Gemma 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attn_softcap: Option<f32>,
    /// Logits `x` become `c · tanh(x / c)` (Gemma 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit_softcap: Option<f32>,
    /// Position `i` attends to `j` with `i - window < j <= i` (Mistral); `None`: to all `j <= i`.
    /// [`Config::layer_attention`] may except layers.
    pub sliding_window: Option<usize>,
    /// The attention of each layer; empty if all have the window, if any, and the rotation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layer_attention: Vec<AttentionKind>,
    /// True if the classifier is the embedding table.
    pub tied: bool,
    /// Factor on both residual branches: 1 for published weights; the reference trainer uses
    /// `1/√(2·layers)` (training-dynamic §8).
    pub residual_scale: f32,
}

/// What is wrong with a configuration, or with the file it came from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that no model can have.
    #[error("configuration: {field} = {value} {reason}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// The value found, as text.
        value: String,
        /// The violated condition, as a clause after the value.
        reason: String,
    },
    /// The name of a preset that does not exist.
    #[error("unknown preset \"{name}\"; did you mean \"{nearest}\"? The presets are {}", PRESETS.join(", "))]
    UnknownPreset {
        /// The name that the caller gave.
        name: String,
        /// The preset with the smallest edit distance to it.
        nearest: &'static str,
    },
    /// A folder without a configuration.
    #[error("{folder}: the folder has no config.json; give one that has, or a preset ({})", PRESETS.join(", "))]
    NoConfig {
        /// Path of the folder.
        folder: String,
    },
    /// A Hugging Face configuration of an unsupported architecture.
    #[error("{file}: architecture \"{found}\" is not supported; supported: {}", hf::architectures())]
    UnknownArchitecture {
        /// Path of the configuration file.
        file: String,
        /// The architecture or model type found.
        found: String,
    },
    /// A field of a configuration file is missing or has the wrong type or an unsupported value.
    #[error("{file}: {field}: {reason}")]
    Field {
        /// Path of the configuration file.
        file: String,
        /// Name of the field.
        field: String,
        /// The violated condition, as a clause after the value.
        reason: String,
    },
    /// The configuration file is not a JSON object.
    #[error("{file}: not a JSON object: {reason}")]
    Json {
        /// Path of the configuration file.
        file: String,
        /// What the parser reports, with its position in the file.
        reason: String,
    },
    /// The configuration file cannot be read.
    #[error("cannot read {file}: {source}")]
    Io {
        /// Path of the configuration file.
        file: String,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
}

impl Config {
    /// Width of all query heads together: `heads · head_dim`.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads together: `kv_heads · head_dim`.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Query heads per key/value head.
    pub fn gqa_ratio(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The factor on the scores of attention.
    pub fn score_scale(&self) -> f64 {
        self.score_scale.map_or_else(|| 1.0 / (self.head_dim as f64).sqrt(), f64::from)
    }

    /// Number of values in all matrices of one layer, without norms and biases.
    pub fn layer_matrix_parameters(&self) -> usize {
        2 * self.q_dim() * self.dim + 2 * self.kv_dim() * self.dim + 3 * self.hidden * self.dim
    }

    /// Number of trained values. The configuration must have passed [`Config::validate`].
    pub fn parameters(&self) -> usize {
        self.checked_parameters().unwrap_or(usize::MAX)
    }

    fn checked_parameters(&self) -> Option<usize> {
        let q = self.heads.checked_mul(self.head_dim)?;
        let kv = self.kv_heads.checked_mul(self.head_dim)?;
        let attention = self.dim.checked_mul(q.checked_add(kv)?)?.checked_mul(2)?;
        let ffn = self.dim.checked_mul(self.hidden)?.checked_mul(3)?;
        let mut layer = attention.checked_add(self.dim.checked_mul(2)?)?;
        if self.qk_norm {
            layer = layer.checked_add(self.head_dim.checked_mul(2)?)?;
        }
        if self.post_norms {
            layer = layer.checked_add(self.dim.checked_mul(2)?)?;
        }
        if self.qkv_bias {
            layer = layer.checked_add(q)?.checked_add(kv.checked_mul(2)?)?;
        }
        let embed = self.vocab.checked_mul(self.dim)?;
        let tables = if self.tied { embed } else { embed.checked_mul(2)? };
        let (sparse, experts) = self.sparse_parameters()?;
        let ffn = ffn.checked_mul(self.layers - sparse)?.checked_add(experts.checked_mul(sparse)?)?;
        layer.checked_mul(self.layers)?.checked_add(ffn)?.checked_add(tables)?.checked_add(self.dim)
    }

    /// Checks every field and the relations between them.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the first field that is out of bounds.
    pub fn validate(&self) -> Result<(), Error> {
        let sizes = [
            ("dim", self.dim, MAX_WIDTH),
            ("hidden", self.hidden, MAX_WIDTH),
            ("layers", self.layers, MAX_LAYERS),
            ("heads", self.heads, MAX_WIDTH),
            ("kv_heads", self.kv_heads, MAX_WIDTH),
            ("head_dim", self.head_dim, MAX_WIDTH),
            ("vocab", self.vocab, MAX_WIDTH),
            ("max_seq", self.max_seq, MAX_POSITIONS),
            ("sliding_window", self.sliding_window.unwrap_or(1), usize::MAX),
        ];
        for (field, value, limit) in sizes {
            if value == 0 {
                return Err(invalid(field, value, "must not be zero"));
            }
            if value > limit {
                return Err(invalid(field, value, &format!("is above the limit of {limit}")));
            }
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(invalid("head_dim", self.head_dim, "must be even: the rotation takes pairs"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(invalid("heads", self.heads, &format!("must be a multiple of kv_heads = {}", self.kv_heads)));
        }
        match self.heads.checked_mul(self.head_dim) {
            Some(q) if q <= MAX_WIDTH => {}
            _ => {
                let reason = format!("times heads = {} is above the limit of {MAX_WIDTH}", self.heads);
                return Err(invalid("head_dim", self.head_dim, &reason));
            }
        }
        self.rope.validate("rope.base", self.head_dim)?;
        self.validate_attention()?;
        self.validate_experts()?;
        if !(self.norm_eps.is_finite() && self.norm_eps >= 0.0) {
            return Err(invalid("norm_eps", self.norm_eps, "must be finite and not negative"));
        }
        for (field, value) in [
            ("embed_scale", Some(self.embed_scale)),
            ("score_scale", self.score_scale),
            ("attn_softcap", self.attn_softcap),
            ("logit_softcap", self.logit_softcap),
        ] {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
                return Err(invalid(field, value, "must be finite and positive"));
            }
        }
        if !(self.residual_scale.is_finite() && self.residual_scale > 0.0) {
            return Err(invalid("residual_scale", self.residual_scale, "must be finite and positive"));
        }
        match self.checked_parameters() {
            Some(n) if n <= MAX_PARAMETERS => Ok(()),
            _ => Err(invalid("parameters", "the number", &format!("is above the limit of {MAX_PARAMETERS}"))),
        }
    }
}

/// The configuration of a preset, of a configuration file, or of the `config.json` in a folder. The
/// name of a preset takes precedence over a folder of that name.
///
/// # Errors
/// As [`read`]; [`Error::NoConfig`], [`Error::UnknownPreset`].
pub fn named(name: &str) -> Result<Config, Error> {
    let path = Path::new(name);
    if path.is_file() {
        return read(path);
    }
    if !path.is_dir() || PRESETS.contains(&name) {
        return preset(name);
    }
    let file = path.join("config.json");
    if file.is_file() { read(&file) } else { Err(Error::NoConfig { folder: name.to_string() }) }
}

/// Reads a configuration file: a Hugging Face `config.json`, or a [`Config`] as this crate's serde
/// form writes it.
///
/// # Errors
/// As [`read_hf`]; [`Error::Json`] if the file has neither form.
pub fn read(path: &Path) -> Result<Config, Error> {
    let file = path.display().to_string();
    let text = std::fs::read(path).map_err(|source| Error::Io { file: file.clone(), source })?;
    let json = |e: serde_json::Error| Error::Json { file: file.clone(), reason: e.to_string() };
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(json)?;
    if value.get("head_dim").is_some() && value.get("hidden_size").is_none() {
        let config: Config = serde_json::from_value(value).map_err(json)?;
        config.validate()?;
        return Ok(config);
    }
    Ok(parse_hf(&text, &file)?.config)
}

fn invalid(field: &'static str, value: impl std::fmt::Display, reason: &str) -> Error {
    Error::Invalid { field, value: value.to_string(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_sizes() {
        // models.md, table: totals of Stories110M and of the trainer's Qwen3-0.6B, which has no q/k
        // norms.
        let stories = preset("stories110m").unwrap();
        assert_eq!(stories.layer_matrix_parameters(), 7_077_888);
        assert_eq!(stories.parameters(), 109_529_856);
        let mut qwen = preset("qwen3-0.6b").unwrap();
        qwen.qk_norm = false;
        assert_eq!(qwen.layer_matrix_parameters(), 15_728_640);
        assert_eq!(qwen.parameters(), 596_042_752);
        assert_eq!((qwen.q_dim(), qwen.kv_dim(), qwen.gqa_ratio()), (2048, 1024, 2));
    }

    fn experts(count: usize, active: usize) -> Experts {
        Experts { count, active, hidden: MAX_WIDTH, normalize: true, dense_layers: vec![1] }
    }

    #[test]
    fn every_bad_value_is_named() {
        type Break = fn(&mut Config);
        let cases: [(&str, Break); 20] = [
            ("dim", |c| c.dim = 0),
            ("layers", |c| c.layers = usize::MAX),
            ("vocab", |c| c.vocab = usize::MAX / 2),
            ("kv_heads", |c| c.kv_heads = 0),
            ("heads", |c| c.kv_heads = 3),
            ("head_dim", |c| c.head_dim = 7),
            ("head_dim", |c| c.head_dim = MAX_WIDTH),
            ("sliding_window", |c| c.sliding_window = Some(0)),
            ("rope.base", |c| c.rope.base = f32::NAN),
            ("local_rope.base", |c| c.local_rope = Some(Rope::new(RopeStyle::Interleaved, -1.0))),
            ("local_rope", |c| c.local_rope = Some(Rope::new(RopeStyle::Half, 1e4))),
            ("layer_attention", |c| c.layer_attention = vec![AttentionKind { window: false, rope: false }]),
            ("layer_attention", |c| c.layer_attention = vec![AttentionKind { window: true, rope: true }; c.layers]),
            ("embed_scale", |c| c.embed_scale = 0.0),
            ("experts.active", |c| c.experts = Some(experts(2, 3))),
            ("parameters", |c| c.experts = Some(experts(MAX_WIDTH, 1))),
            ("attn_softcap", |c| c.attn_softcap = Some(f32::INFINITY)),
            ("norm_eps", |c| c.norm_eps = -1.0),
            ("residual_scale", |c| c.residual_scale = f32::INFINITY),
            ("parameters", |c| (c.dim, c.vocab) = (MAX_WIDTH, MAX_WIDTH)),
        ];
        for (name, edit) in cases {
            let mut config = preset("stories260k").unwrap();
            config.validate().unwrap();
            edit(&mut config);
            match config.validate() {
                Err(Error::Invalid { field, .. }) => assert_eq!(field, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
