//! LoRA adapters: small changes to the matrices of a model, as PEFT stores them.
//!
//! An adapter adds `scale · B · A` to a matrix `W` `[out, in]`; `A` is `[rank, in]` and `B` `[out,
//! rank]`. [`Adapter::open`] reads a folder that PEFT has written: `adapter_config.json` and
//! `adapter_model.safetensors`. A decoder takes an adapter as inputs of its programs
//! ([`crate::decode::Decoder::set_adapter`]), so another one needs no compile and the weights stay
//! as they are, in every type of weights. [`Adapter::merge_into`] adds it to the weights instead.
//!
//! [`write_config`] and [`write_matrices`] write such a folder, as a training run does.
//!
//! Only projections of layers can be adapted. A field of the configuration that changes the result
//! and is not known, and a tensor without a place, are errors that name it.

mod config;
mod files;

pub use files::{AdapterMatrices, CONFIG, MATRICES, TARGETS, is_adapter, tensor_names, write_config, write_matrices};

use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::weights::container::Container;
use crate::weights::{self, Layer, Part, Weights};
use config::LoraConfig;

/// Why an adapter cannot be read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// Path of the file.
        file: String,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// A field of the configuration is invalid or not supported.
    #[error("{file}: `{field}` {reason}")]
    Field {
        /// Path of the file.
        file: String,
        /// Name of the field.
        field: String,
        /// What is wrong with its value.
        reason: String,
    },
    /// A pattern takes too long to match.
    #[error("the pattern `{pattern}` cannot be matched: {reason}")]
    Pattern {
        /// The regular expression, with the anchors that PEFT implies.
        pattern: String,
        /// Why its evaluation ended.
        reason: String,
    },
    /// The file with the matrices cannot be read.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// A tensor that is not a part of an adapter for this model.
    #[error("{file}: tensor {name} {reason}")]
    Tensor {
        /// Path of the file.
        file: String,
        /// The tensor's name in that file.
        name: String,
        /// Why it has no place.
        reason: String,
    },
    /// The adapter was opened for a model of another shape.
    #[error("{adapter}: the adapter belongs to a model with other sizes; {reason}")]
    OtherModel {
        /// Path of the adapter.
        adapter: PathBuf,
        /// The number or the layer that differs, as a clause.
        reason: String,
    },
}

impl Error {
    fn io(path: &Path, source: std::io::Error) -> Error {
        Error::Io { file: path.display().to_string(), source }
    }
}

/// The change of one matrix `[out, in]`: `B · A`.
#[derive(Debug, Clone, PartialEq)]
pub struct LowRank {
    /// Rows of `a` and columns of `b`.
    pub rank: usize,
    /// `A`, `[rank, in]`.
    pub a: Vec<f32>,
    /// `B` times the scale, `[out, rank]`.
    pub b: Vec<f32>,
}

/// An adapter for the projections of a model's layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    path: PathBuf,
    /// The changes of each layer.
    layers: Vec<Vec<(Part, LowRank)>>,
}

/// The modules of a layer that can be adapted, with the matrices that each has.
const MODULES: [(&str, &[Part]); 9] = [
    ("self_attn.q_proj", &[Part::Wq]),
    ("self_attn.k_proj", &[Part::Wk]),
    ("self_attn.v_proj", &[Part::Wv]),
    ("self_attn.o_proj", &[Part::Wo]),
    ("self_attn.qkv_proj", &[Part::Wq, Part::Wk, Part::Wv]),
    ("mlp.gate_proj", &[Part::W1]),
    ("mlp.up_proj", &[Part::W3]),
    ("mlp.down_proj", &[Part::W2]),
    ("mlp.gate_up_proj", &[Part::W1, Part::W3]),
];

/// What PEFT puts in front of the names of a causal language model.
const PREFIX: &str = "base_model.model.";

/// The layer and the matrices of a module such as `model.layers.3.self_attn.q_proj`.
fn module_parts(module: &str) -> Option<(usize, &'static [Part])> {
    let (layer, rest) = module.strip_prefix("model.layers.")?.split_once('.')?;
    let (_, parts) = MODULES.iter().find(|(name, _)| *name == rest)?;
    // `01` would be a second name of layer 1.
    let layer = layer.parse::<usize>().ok().filter(|index| index.to_string() == layer)?;
    Some((layer, parts))
}

impl Adapter {
    /// Opens an adapter for models of this configuration: a folder with `adapter_config.json` and
    /// `adapter_model.safetensors`, or the folder of a training run whose checkpoints have them.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Field`] for a field that is invalid or changes the result in a way
    /// that is not supported, [`Error::Tensor`] for a tensor without a place, [`Error::Weights`]
    /// for a damaged file or a tensor of another shape.
    pub fn open(folder: impl AsRef<Path>, config: &Config) -> Result<Adapter, Error> {
        let folder = folder.as_ref();
        let files = files::find(folder);
        let options = LoraConfig::open(&files.join(CONFIG))?;
        let file = Container::open(&files.join(MATRICES))?;
        let mut adapter = Adapter { path: folder.into(), layers: vec![Vec::new(); config.layers] };
        let refuse = |name: &str, reason: String| Error::Tensor {
            file: file.path().display().to_string(),
            name: name.into(),
            reason,
        };
        for name in file.names() {
            let plain = name.strip_prefix(PREFIX).unwrap_or(name);
            let module = plain.strip_suffix(".lora_A.weight").or_else(|| plain.strip_suffix(".lora_B.weight"));
            let Some(module) = module else {
                return Err(refuse(name, "is not a matrix A or B of LoRA".into()));
            };
            let Some((layer, parts)) = module_parts(module).filter(|(layer, _)| *layer < config.layers) else {
                let known = MODULES.map(|(name, _)| name.rsplit('.').next().unwrap_or_default()).join(", ");
                let reason = format!("belongs to no projection of this model's layers ({known})");
                return Err(refuse(name, reason));
            };
            if config.experts(layer).is_some() && module.contains(".mlp.") {
                return Err(refuse(name, "belongs to a layer with experts, whose matrices cannot be adapted".into()));
            }
            if !options.selects(module, layer)? {
                return Err(refuse(
                    name,
                    "belongs to a module that the adapter's configuration does not select".into(),
                ));
            }
            if plain.ends_with(".lora_A.weight") {
                let changes = read(&file, name, module, parts, &options, config)?;
                for (part, change) in changes {
                    let known = &mut adapter.layers[layer];
                    if known.iter().any(|(other, _)| *other == part) {
                        return Err(refuse(name, format!("changes {} a second time", part.name())));
                    }
                    known.push((part, change));
                }
            } else if file.entry(&name.replace(".lora_B.", ".lora_A.")).is_none() {
                return Err(refuse(name, "has no matrix A".into()));
            }
        }
        if adapter.layers.iter().all(Vec::is_empty) {
            return Err(refuse("lora_A", "is missing: the file has no tensors".into()));
        }
        Ok(adapter)
    }

    /// The same adapter with `factor` times its effect.
    #[must_use]
    pub fn scaled(mut self, factor: f32) -> Adapter {
        let changes = self.layers.iter_mut().flatten();
        changes.for_each(|(_, change)| change.b.iter_mut().for_each(|value| *value *= factor));
        self
    }

    /// The folder that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The largest rank of a matrix.
    pub fn rank(&self) -> usize {
        self.layers.iter().flatten().map(|(_, change)| change.rank).max().unwrap_or(0)
    }

    /// Number of values of all matrices A and B.
    pub fn parameters(&self) -> usize {
        self.layers.iter().flatten().map(|(_, change)| change.a.len() + change.b.len()).sum()
    }

    /// The change of a layer's matrix, if it has one.
    pub fn change(&self, layer: usize, part: Part) -> Option<&LowRank> {
        self.layers.get(layer)?.iter().find(|(known, _)| *known == part).map(|(_, change)| change)
    }

    /// Checks that the adapter fits a model of this configuration.
    ///
    /// # Errors
    /// [`Error::OtherModel`].
    pub fn check(&self, config: &Config) -> Result<(), Error> {
        let other = |reason| Err(Error::OtherModel { adapter: self.path.clone(), reason });
        if self.layers.len() != config.layers {
            return other(format!("it has {} layers, the model {}", self.layers.len(), config.layers));
        }
        for (layer, changes) in self.layers.iter().enumerate() {
            for (part, change) in changes {
                let shape = part.shape_in(config, layer);
                let fits = matches!(shape[..], [out, cols]
                    if change.a.len() == change.rank * cols && change.b.len() == out * change.rank);
                if !fits {
                    return other(format!("layer {layer} has {} of another shape", part.name()));
                }
            }
        }
        Ok(())
    }

    /// Adds the adapter to the weights of a model.
    ///
    /// # Errors
    /// [`Error::OtherModel`] if the adapter or the weights do not fit the configuration; nothing is
    /// changed then.
    pub fn merge_into(&self, weights: &mut Weights, config: &Config) -> Result<(), Error> {
        self.check(config)?;
        weights.check(config)?;
        for (layer, changes) in weights.layers.iter_mut().zip(&self.layers) {
            for (part, change) in changes {
                let Some(matrix) = matrix(layer, *part) else { continue };
                let cols = change.a.len() / change.rank;
                for (row, b) in matrix.chunks_exact_mut(cols).zip(change.b.chunks_exact(change.rank)) {
                    for (b, a) in b.iter().zip(change.a.chunks_exact(cols)) {
                        row.iter_mut().zip(a).for_each(|(w, a)| *w += b * a);
                    }
                }
            }
        }
        Ok(())
    }
}

fn matrix(layer: &mut Layer, part: Part) -> Option<&mut [f32]> {
    layer.parts_mut().into_iter().find(|(known, _)| *known == part).map(|(_, data)| data)
}

/// Reads a module's matrices. One that holds several projections has rows for each in B, which
/// share A.
fn read(
    file: &Container,
    name: &str,
    module: &str,
    parts: &[Part],
    options: &LoraConfig,
    config: &Config,
) -> Result<Vec<(Part, LowRank)>, Error> {
    let (rank, scale) = options.rank_and_scale(module)?;
    let of = |part: &Part| part.shape(config);
    let cols = of(&parts[0])[1];
    let rows: usize = parts.iter().map(|part| of(part)[0]).sum();
    let name_of_b = name.replace(".lora_A.", ".lora_B.");
    // The sizes are compared with the file's before memory is allocated for them.
    file.expect(name, &[rank, cols])?;
    file.expect(&name_of_b, &[rows, rank])?;
    let (mut a, mut b) = (vec![0.0; rank * cols], vec![0.0; rows * rank]);
    file.read(name, &[rank, cols], &mut a)?;
    file.read(&name_of_b, &[rows, rank], &mut b)?;
    b.iter_mut().for_each(|value| *value = (f64::from(*value) * scale) as f32);
    if let Some(name) = [(name, &a), (&name_of_b, &b)].iter().find(|(_, v)| v.iter().any(|v| !v.is_finite())) {
        let (file, name) = (file.path().display().to_string(), name.0.to_string());
        return Err(Error::Tensor { file, name, reason: "has values that are not finite".into() });
    }
    let mut from = 0;
    let mut change = |part: &Part| {
        let begin = from * rank;
        from += of(part)[0];
        (*part, LowRank { rank, a: a.clone(), b: b[begin..from * rank].to_vec() })
    };
    Ok(parts.iter().map(&mut change).collect())
}
