//! Hugging Face safetensors: one file, or shards with an index; fp32, fp16 or bf16, or matrices
//! that MLX has quantized, or with palettes.
//!
//! Names and layout of the tensors of a layer come in three forms, distinguished by the names in
//! the first layer. Phi-3 has one matrix for queries, keys and values and one for gate and up
//! projection, which are split when they are read. Gemma has four norms, and its gains are stored
//! as differences from 1, to which 1 is added.
//!
//! File and configuration may disagree about the classifier, and then the file decides. Without
//! `lm_head.weight` the model is tied. With it, the model is tied only if the configuration says so
//! and both tables are equal bit for bit. If they differ, the model keeps its own classifier,
//! because silently dropping trained values would be worse.

use super::container::Container;
use super::stored::{Piece, StoredTensor, StoredWeights};
use super::{Error, Part, Slot, TensorKind, Weights, mlx, palette};
use crate::config::{self, Config};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

const EMBED: &str = "model.embed_tokens.weight";
const CLASSIFIER: &str = "lm_head.weight";

/// How a file stores the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayerForm {
    /// A tensor for each part (Llama).
    Separate,
    /// Projections that read the same rows are one matrix (Phi-3).
    Fused,
    /// Norms before and after each half of a layer; gains without their 1 (Gemma 2 and 3).
    Gemma,
}

/// Where a file has the values of a tensor, or of one of its pieces of equal size.
struct Source {
    name: String,
    /// Shape of the stored tensor.
    shape: Vec<usize>,
    /// The values that belong to the tensor, in row-major order.
    part: Range<usize>,
    /// Added to every value.
    offset: f32,
}

impl LayerForm {
    fn of(checkpoint: &Checkpoint) -> LayerForm {
        let has = |suffix: &str| checkpoint.home.contains_key(&format!("model.layers.0.{suffix}.weight"));
        match (has("self_attn.qkv_proj"), has("pre_feedforward_layernorm")) {
            (true, _) => LayerForm::Fused,
            (_, true) => LayerForm::Gemma,
            _ => LayerForm::Separate,
        }
    }

    /// The number of stored tensors that a tensor consists of: one for each expert.
    fn pieces(slot: Slot, config: &Config) -> usize {
        match slot {
            Slot::Layer(index, Part::W1 | Part::W2 | Part::W3) => config.experts(index).map_or(1, |e| e.count),
            _ => 1,
        }
    }

    /// The source of a piece.
    fn source(self, slot: Slot, piece: usize, config: &Config) -> Source {
        if let Slot::Layer(index, part) = slot
            && config.experts(index).is_some()
            && matches!(part, Part::W1 | Part::W2 | Part::W3)
        {
            let shape = part.shape_in(config, index).split_off(1);
            let name = name(slot, self).replacen(".mlp.", &format!(".mlp.experts.{piece}."), 1);
            return Source { name, part: 0..shape.iter().product(), shape, offset: 0.0 };
        }
        let gain = self == LayerForm::Gemma && slot.kind() == TensorKind::Norm;
        let shape = slot.shape(config);
        let whole = 0..shape.iter().product();
        let source = Source { name: name(slot, self), shape, part: whole, offset: if gain { 1.0 } else { 0.0 } };
        let Slot::Layer(index, part) = slot else { return source };
        let (q, kv, hidden) = (config.q_dim(), config.kv_dim(), config.hidden);
        let (fused, rows, first) = match part {
            _ if self != LayerForm::Fused => return source,
            Part::Wq => ("self_attn.qkv_proj", q + 2 * kv, 0),
            Part::Wk => ("self_attn.qkv_proj", q + 2 * kv, q),
            Part::Wv => ("self_attn.qkv_proj", q + 2 * kv, q + kv),
            Part::W1 => ("mlp.gate_up_proj", 2 * hidden, 0),
            Part::W3 => ("mlp.gate_up_proj", 2 * hidden, hidden),
            _ => return source,
        };
        // The limits of a valid configuration keep these products far below the range.
        let start = first * config.dim;
        Source {
            name: format!("model.layers.{index}.{fused}.weight"),
            shape: vec![rows, config.dim],
            part: start..start + source.part.end,
            offset: 0.0,
        }
    }
}

/// The tensor's name in a file of this form, before projections are fused.
fn name(slot: Slot, form: LayerForm) -> String {
    let (index, part) = match slot {
        Slot::Embed => return EMBED.into(),
        Slot::Norm => return "model.norm.weight".into(),
        Slot::Classifier => return CLASSIFIER.into(),
        Slot::Layer(index, part) => (index, part),
    };
    let suffix = match part {
        Part::FfnNorm if form == LayerForm::Gemma => "pre_feedforward_layernorm.weight",
        Part::Router => "mlp.gate.weight",
        // Other forms have no such tensor.
        Part::PostAttnNorm => "post_attention_layernorm.weight",
        Part::PostFfnNorm => "post_feedforward_layernorm.weight",
        Part::AttnNorm => "input_layernorm.weight",
        Part::Wq => "self_attn.q_proj.weight",
        Part::Wk => "self_attn.k_proj.weight",
        Part::Wv => "self_attn.v_proj.weight",
        Part::Wo => "self_attn.o_proj.weight",
        Part::Bq => "self_attn.q_proj.bias",
        Part::Bk => "self_attn.k_proj.bias",
        Part::Bv => "self_attn.v_proj.bias",
        Part::QNorm => "self_attn.q_norm.weight",
        Part::KNorm => "self_attn.k_norm.weight",
        Part::FfnNorm => "post_attention_layernorm.weight",
        Part::W1 => "mlp.gate_proj.weight",
        Part::W3 => "mlp.up_proj.weight",
        Part::W2 => "mlp.down_proj.weight",
    };
    format!("model.layers.{index}.{suffix}")
}

/// A matrix in a form that needs tensors in addition to its codes.
enum Quantized<'a> {
    Mlx(mlx::Matrix<'a>),
    Palette(palette::Matrix<'a>),
}

impl Quantized<'_> {
    /// Rows of the matrix, which share the mappings of the files.
    fn piece(&self, rows: Range<usize>) -> Result<Piece, Error> {
        match self {
            Quantized::Mlx(matrix) => matrix.piece(rows),
            Quantized::Palette(matrix) => matrix.piece(rows),
        }
    }

    /// The names of the tensors that the matrix `name` has in addition.
    fn companions(&self, name: &str) -> Vec<String> {
        match self {
            Quantized::Mlx(_) => mlx::companions(name).into_iter().flatten().collect(),
            Quantized::Palette(_) => palette::companion(name).into_iter().collect(),
        }
    }
}

/// A tensor as a file of Hugging Face stores it.
pub(crate) struct FileTensor {
    /// The name in the file.
    pub(crate) name: String,
    /// The shape in the file.
    pub(crate) shape: Vec<usize>,
    /// The tensors that it consists of, one below the other, each with the index of the piece.
    pub(crate) parts: Vec<(Slot, usize)>,
    /// The number of pieces that each of the tensors has: one for each expert.
    pub(crate) pieces: usize,
    /// What the reader adds to every value.
    pub(crate) offset: f32,
}

/// The tensors that a file of this architecture has.
pub(crate) fn file_tensors(config: &Config, architecture: &str) -> Vec<FileTensor> {
    let form = match architecture {
        "Phi3ForCausalLM" => LayerForm::Fused,
        name if name.starts_with("Gemma") => LayerForm::Gemma,
        _ => LayerForm::Separate,
    };
    let mut list: Vec<FileTensor> = Vec::new();
    for slot in Slot::list(config) {
        let pieces = LayerForm::pieces(slot, config);
        for piece in 0..pieces {
            let Source { name, shape, offset, .. } = form.source(slot, piece, config);
            // The parts of a fused tensor follow each other.
            match list.iter_mut().rev().take(4).find(|stored| stored.name == name) {
                Some(stored) => stored.parts.push((slot, piece)),
                None => list.push(FileTensor { name, shape, parts: vec![(slot, piece)], pieces, offset }),
            }
        }
    }
    list
}

/// A checkpoint of one or more files.
struct Checkpoint {
    /// The file, or the index, for errors.
    path: PathBuf,
    files: Vec<Container>,
    /// The index of the file that holds each tensor, by name.
    home: BTreeMap<String, usize>,
}

impl Checkpoint {
    fn single(file: Container) -> Self {
        let home = file.names().map(|n| (n.to_string(), 0)).collect();
        Checkpoint { path: file.path().to_path_buf(), files: vec![file], home }
    }

    /// Opens the shards that an index names. They must be in its folder.
    fn sharded(index: &Path) -> Result<Self, Error> {
        let text = std::fs::read(index).map_err(|e| Error::io(index, e))?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|e| Error::format(index, format!("not JSON: {e}")))?;
        let Some(map) = value.get("weight_map").and_then(|m| m.as_object()) else {
            return Err(Error::format(index, "no weight_map in the index"));
        };
        let folder = index.parent().unwrap_or(Path::new(""));
        let mut files: Vec<Container> = Vec::new();
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut home = BTreeMap::new();
        for (tensor, shard) in map {
            let shard = shard.as_str().unwrap_or_default();
            let number = match numbers.get(shard) {
                Some(&number) => number,
                None => {
                    // Only a plain file name is accepted: an index must not refer outside its
                    // folder.
                    if Path::new(shard).file_name() != Some(std::ffi::OsStr::new(shard)) {
                        return Err(Error::format(
                            index,
                            format!("weight_map of {tensor}: \"{shard}\" is not a file name"),
                        ));
                    }
                    files.push(Container::open(&folder.join(shard))?);
                    numbers.insert(shard, files.len() - 1);
                    files.len() - 1
                }
            };
            home.insert(tensor.clone(), number);
        }
        for (number, file) in files.iter().enumerate() {
            // Tensors that the index omits are added.
            for name in file.names() {
                home.entry(name.to_string()).or_insert(number);
            }
        }
        Ok(Checkpoint { path: index.to_path_buf(), files, home })
    }

    fn file(&self, name: &str, shape: &[usize]) -> Result<&Container, Error> {
        self.home.get(name).and_then(|&number| self.files.get(number)).ok_or_else(|| Error::Missing {
            file: self.path.display().to_string(),
            name: name.to_string(),
            expected: shape.to_vec(),
        })
    }

    /// The matrix `name`, if it is quantized.
    fn quantized(&self, name: &str, shape: &[usize]) -> Result<Option<Quantized<'_>>, Error> {
        let home = |name: &str| self.file(name, shape);
        if let Some(matrix) = mlx::Matrix::find(name, shape, home)? {
            return Ok(Some(Quantized::Mlx(matrix)));
        }
        Ok(palette::Matrix::find(name, shape, home)?.map(Quantized::Palette))
    }

    /// Whether the checkpoint has a classifier that is not tied to the embedding.
    fn own_classifier(&self, config: &Config) -> Result<bool, Error> {
        if !self.home.contains_key(CLASSIFIER) {
            return Ok(false);
        }
        if !config.tied {
            return Ok(true);
        }
        let shape = Slot::Embed.shape(config);
        let (a, b) = (self.file(EMBED, &shape)?, self.file(CLASSIFIER, &shape)?);
        let (x, y) = (a.expect(EMBED, &shape)?, b.expect(CLASSIFIER, &shape)?);
        Ok(x.dtype() != y.dtype() || a.raw(x) != b.raw(y))
    }
}

/// Opens a Hugging Face model by its `config.json` and its weights: a `.safetensors` file or an
/// `.index.json`.
///
/// Tensors named `rotary_emb.inv_freq` are ignored: older exports contain these constants. Any
/// other tensor that the model does not have is refused, since ignoring it would change the result.
///
/// # Errors
/// [`Error::Config`], [`Error::Io`], [`Error::Format`], [`Error::Missing`], [`Error::Shape`],
/// [`Error::Dtype`], [`Error::Unknown`].
pub fn open_hf(config: &Path, weights: &Path) -> Result<(Config, StoredWeights), Error> {
    let config = config::read(config)?;
    if weights.extension().is_some_and(|e| e == "json") {
        locate(config, Checkpoint::sharded(weights)?)
    } else {
        open_single(config, Container::open(weights)?)
    }
}

/// Like [`open_hf`], and reads the weights in fp32.
///
/// # Errors
/// As [`open_hf`].
pub fn load_hf(config: &Path, weights: &Path) -> Result<(Config, Weights), Error> {
    let (config, stored) = open_hf(config, weights)?;
    let weights = Weights::read(&stored, &config)?;
    Ok((config, weights))
}

/// Like [`open_hf`], from an open file.
pub(super) fn open_single(config: Config, file: Container) -> Result<(Config, StoredWeights), Error> {
    locate(config, Checkpoint::single(file))
}

fn locate(mut config: Config, checkpoint: Checkpoint) -> Result<(Config, StoredWeights), Error> {
    config.tied = !checkpoint.own_classifier(&config)?;
    let mut known = HashSet::from([CLASSIFIER.to_string()]);
    let form = LayerForm::of(&checkpoint);
    let stored = StoredWeights::new(&checkpoint.path, &config, |slot| {
        let (mut pieces, mut added) = (Vec::new(), 0.0);
        for piece in 0..LayerForm::pieces(slot, &config) {
            let Source { name, shape, part, offset } = form.source(slot, piece, &config);
            pieces.push(match checkpoint.quantized(&name, &shape)? {
                Some(matrix) => {
                    known.extend(matrix.companions(&name));
                    let columns = shape.last().copied().unwrap_or(1).max(1);
                    matrix.piece(part.start / columns..part.end / columns)?
                }
                None => checkpoint.file(&name, &shape)?.piece(&name, &shape, part)?,
            });
            known.insert(name);
            added = offset;
        }
        Ok(StoredTensor { shape: slot.shape(&config), pieces, pairs: None, offset: added })
    })?;
    let stray = |n: &String| !known.contains(n) && !n.ends_with("rotary_emb.inv_freq");
    let unknown: Vec<String> = checkpoint.home.keys().filter(|n| stray(n)).cloned().collect();
    if !unknown.is_empty() {
        return Err(Error::unknown(&checkpoint.path, &unknown));
    }
    Ok((config, stored))
}
