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

use super::{Error, Part, Slot, Weights};
use crate::config::{Config, RopeStyle};
use ferrane_gguf::{File, MetadataValue, TensorInfo, dequantize};
use ferrane_host::pool;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

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
fn name(slot: Slot) -> String {
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

/// Reads configuration and weights. `given` overrides the configuration of the metadata; the
/// tensors must fit it.
///
/// # Errors
/// As [`config`]; [`Error::Missing`], [`Error::Shape`] and [`Error::Unknown`] for tensors,
/// [`Error::Dtype`] for a type that cannot be read.
pub fn read(file: &File, given: Option<Config>) -> Result<(Config, Weights), Error> {
    let family = config::Family::of(file)?;
    let mut config = match given {
        Some(config) => config,
        None => config::read(file)?,
    };
    config.tied = file.tensor(&name(Slot::Classifier)).is_none();
    let slots = Slot::list(&config);
    let mut known = HashSet::new();
    for &slot in &slots {
        let name = name(slot);
        expect(file, &name, &slot.shape(&config))?;
        known.insert(name);
    }
    let unknown: Vec<String> = file
        .tensors()
        .iter()
        .map(TensorInfo::name)
        // The configuration has the divisors of the rotary frequencies.
        .filter(|name| !known.contains(*name) && *name != config::DIVISORS)
        .map(str::to_string)
        .collect();
    if !unknown.is_empty() {
        return Err(Error::unknown(file.path(), &unknown));
    }
    // Every tensor was found with its shape, and tensors do not overlap, so this allocates at most
    // a small multiple of the file's length.
    let mut weights = Weights::zeros(&config);
    let restores = family.pairs_neighbors && config.rope.style == RopeStyle::Half;
    for (slot, tensor) in slots.into_iter().zip(weights.tensors_mut(&config)) {
        let info = expect(file, &name(slot), &tensor.shape)?;
        let heads = if restores { rotated_heads(slot, &config) } else { None };
        match heads {
            None => file.read(info, tensor.data)?,
            Some(heads) => restore_rows(file, info, heads, tensor.data)?,
        }
    }
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

/// The number of heads whose rows llama.cpp reorders; `None` for the other tensors.
fn rotated_heads(slot: Slot, config: &Config) -> Option<usize> {
    match slot {
        Slot::Layer(_, Part::Wq | Part::Bq) => Some(config.heads),
        Slot::Layer(_, Part::Wk | Part::Bk) => Some(config.kv_heads),
        _ => None,
    }
}

/// Reads a tensor and undoes llama.cpp's order of rows: row `2i + s` of a head is row `i + s ·
/// head_dim / 2` of Hugging Face.
fn restore_rows(file: &File, info: &TensorInfo, heads: usize, out: &mut [f32]) -> Result<(), Error> {
    let width = info.shape().get(1).copied().unwrap_or(1);
    let (rows, head) = (out.len() / width, out.len() / heads);
    let half = rows / heads / 2;
    // A row is whole blocks; a tensor of one axis is one row to the file, so it is read as a whole.
    let mut whole = Vec::new();
    if info.shape().len() < 2 {
        whole.resize(out.len(), 0.0);
        file.read(info, &mut whole)?;
    }
    let raw = file.raw(info);
    let row_bytes = raw.len() / rows;
    let result = pool::try_for_each_chunk_mut(out, head, |index, out| {
        for (target, out) in out.chunks_mut(width).enumerate() {
            let source = 2 * half * index + 2 * (target % half) + target / half;
            match whole.get(source * width..(source + 1) * width) {
                Some(row) => out.copy_from_slice(row),
                None => dequantize(info.ty(), &raw[source * row_bytes..(source + 1) * row_bytes], out)?,
            }
        }
        Ok::<(), ferrane_gguf::Error>(())
    });
    Ok(result?)
}
