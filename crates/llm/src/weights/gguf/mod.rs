//! GGUF files: configuration from the metadata, weights from the tensors.
//!
//! Every type that `ferrane_gguf` reads is widened to fp32. Tensors have llama.cpp's names. For
//! the architecture `llama`, llama.cpp reorders the rows of the query and key projections, so that
//! its rotation takes neighboring elements as pairs; the reader restores the order of Hugging Face,
//! so a model has the same weights whichever of the two forms it is read from. The other
//! architectures keep the order of Hugging Face.
//!
//! | module | what |
//! |---|---|
//! | `config` | the families, and the configuration of a file |
//! | this one | names of tensors, and their values |

mod config;

use super::source::rows_of;
use super::stored::{Encoding, Piece, StoredTensor, StoredWeights};
use super::{Error, Part, Slot, Weights};
use crate::config::{Config, RopeStyle};
use ferrane_gguf::{File, MetadataValue, TensorInfo};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

pub(crate) use config::DIVISORS;
pub use config::read as config;

/// The key of the chat template.
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

impl From<ferrane_gguf::Error> for Error {
    fn from(error: ferrane_gguf::Error) -> Error {
        match error {
            ferrane_gguf::Error::Io { path, source } => Error::io(&path, source),
            ferrane_gguf::Error::File { path, error } => Error::format(&path, format!("GGUF: {error}")),
            other => Error::format(Path::new("GGUF"), other.to_string()),
        }
    }
}

/// The chat template of a file: the one named `name`, or the default one. `None` if there is none.
pub fn chat_template<'a>(file: &'a File, name: Option<&str>) -> Option<&'a str> {
    let key = name.map_or_else(|| CHAT_TEMPLATE.to_string(), |name| format!("{CHAT_TEMPLATE}.{name}"));
    file.get(&key).and_then(MetadataValue::as_str)
}

/// The only GGUF file of a folder; `None` for other folders and for files.
pub fn only_file(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut files =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|p| p.extension().is_some_and(|e| e == "gguf"));
    files.next().filter(|_| files.next().is_none())
}

/// The tensor's name in the file.
pub(crate) fn name(slot: Slot) -> String {
    let (index, part) = match slot {
        Slot::Embed => return "token_embd.weight".into(),
        Slot::Norm => return "output_norm.weight".into(),
        Slot::Classifier => return "output.weight".into(),
        Slot::Layer(index, part) => (index, part),
    };
    let suffix = match part {
        Part::AttnNorm => "attn_norm.weight",
        Part::Wq => "attn_q.weight",
        Part::Wk => "attn_k.weight",
        Part::Wv => "attn_v.weight",
        Part::Wo => "attn_output.weight",
        Part::Bq => "attn_q.bias",
        Part::Bk => "attn_k.bias",
        Part::Bv => "attn_v.bias",
        Part::QNorm => "attn_q_norm.weight",
        Part::KNorm => "attn_k_norm.weight",
        Part::FfnNorm => "ffn_norm.weight",
        Part::PostAttnNorm => "post_attention_norm.weight",
        Part::PostFfnNorm => "post_ffw_norm.weight",
        Part::Router => "ffn_gate_inp.weight",
        Part::W1 => "ffn_gate.weight",
        Part::W3 => "ffn_up.weight",
        Part::W2 => "ffn_down.weight",
    };
    format!("blk.{index}.{suffix}")
}

/// Finds configuration and weights. `given` overrides the configuration of the metadata; the
/// tensors must fit it.
///
/// # Errors
/// As [`config`]; [`Error::Missing`], [`Error::Shape`] and [`Error::Unknown`] for tensors,
/// [`Error::Dtype`] for a type that cannot be read.
pub fn open(file: &File, given: Option<Config>) -> Result<(Config, StoredWeights), Error> {
    let family = config::Family::of(file)?;
    let mut config = match given {
        Some(config) => config,
        None => config::read(file)?,
    };
    config.tied = file.tensor(&name(Slot::Classifier)).is_none();
    let mut known = HashSet::new();
    let stored = StoredWeights::new(file.path(), &config, |slot| {
        let (name, shape) = (name(slot), slot.shape(&config));
        let info = expect(file, &name, &shape)?;
        let missing = || Error::Missing { file: file.path().display().to_string(), name, expected: shape.clone() };
        let bytes = file.mapped(info).ok_or_else(missing)?;
        known.insert(info.name());
        let heads = paired_heads(family, slot, &config);
        // llama.cpp's order of rows: row `2i + s` of a head is row `i + s · head_dim / 2` of
        // Hugging Face.
        let rows = if shape.len() == 1 { shape.iter().product() } else { rows_of(&shape)[0] };
        let pairs = heads.map(|heads| rows / heads / 2).filter(|half| *half > 0);
        let pieces = vec![Piece { bytes, encoding: Encoding::Blocks(info.ty()) }];
        Ok(StoredTensor { shape, pieces, pairs, offset: 0.0 })
    })?;
    let unknown: Vec<String> = file
        .tensors()
        .iter()
        .map(TensorInfo::name)
        // The configuration has the divisors of the rotary frequencies.
        .filter(|name| !known.contains(*name) && *name != DIVISORS)
        .map(str::to_string)
        .collect();
    if !unknown.is_empty() {
        return Err(Error::unknown(file.path(), &unknown));
    }
    Ok((config, stored))
}

/// Like [`open`], and reads the weights in fp32.
///
/// # Errors
/// As [`open`].
pub fn read(file: &File, given: Option<Config>) -> Result<(Config, Weights), Error> {
    let (config, stored) = open(file, given)?;
    // Every tensor was found with its shape, and tensors do not overlap, so this allocates at most
    // a small multiple of the file's length.
    let weights = Weights::read(&stored, &config)?;
    Ok((config, weights))
}

fn expect<'a>(file: &'a File, name: &str, shape: &[usize]) -> Result<&'a TensorInfo, Error> {
    let (path, expected) = (file.path().display().to_string(), shape.to_vec());
    let Some(info) = file.tensor(name) else {
        return Err(Error::Missing { file: path, name: name.to_string(), expected });
    };
    if info.shape() != shape {
        return Err(Error::Shape { file: path, name: name.to_string(), expected, found: info.shape().to_vec() });
    }
    if !info.ty().is_readable() {
        return Err(Error::format(
            file.path(),
            format!("tensor {name}: {}", ferrane_gguf::Error::Unsupported(info.ty())),
        ));
    }
    Ok(info)
}

/// The number of heads whose rows llama.cpp stores in pairs; `None` for tensors in the order of the
/// model.
fn paired_heads(family: &config::Family, slot: Slot, config: &Config) -> Option<usize> {
    match slot {
        _ if !family.pairs_neighbors || config.rope.style != RopeStyle::Half => None,
        Slot::Layer(_, Part::Wq | Part::Bq) => Some(config.heads),
        Slot::Layer(_, Part::Wk | Part::Bk) => Some(config.kv_heads),
        _ => None,
    }
}

/// The architecture of a file, which must be one that is read.
///
/// # Errors
/// [`Error::Config`].
pub(crate) fn architecture(file: &File) -> Result<&'static str, Error> {
    Ok(config::Family::of(file)?.name)
}

/// For a tensor of a model in a file of this architecture: the model's row for each row of the
/// file; `None` if both are in the same order.
pub(crate) fn file_rows(architecture: &str, slot: Slot, config: &Config) -> Option<Vec<usize>> {
    let heads = paired_heads(config::Family::named(architecture)?, slot, config)?;
    let half = config.head_dim / 2;
    let rows = 0..heads * 2 * half;
    Some(rows.map(|row| 2 * half * (row / (2 * half)) + row % 2 * half + row % (2 * half) / 2).collect())
}

/// Rows of `cols` values in the order of a file.
pub(crate) fn ordered<T: Copy>(values: &[T], cols: usize, order: &[usize]) -> Vec<T> {
    order.iter().flat_map(|row| &values[row * cols..(row + 1) * cols]).copied().collect()
}
