//! The llama2.c checkpoint, version 0: seven int32, then fp32 arrays tensor by tensor over all
//! layers (models.md §2).
//!
//! A negative vocabulary size means that an untied classifier follows at the end. Two tables of
//! rotary frequencies precede it; they follow from the sizes, so they are skipped when reading and
//! recomputed when writing. The format has no fields for rotary base, eps, QK-norm or biases, so
//! these are fixed: base 10000, interleaved pairs, eps 1e-5, neither QK-norm nor biases.

use super::container::write_values;
use super::stored::{Encoding, Piece, StoredTensor, StoredWeights};
use super::{Error, Part, Slot, Weights};
use crate::config::{Activation, Config, Rope, RopeStyle};
use ferrane_gguf::{TensorType, dequantize};
use ferrane_host::fs::{AtomicFile, Durability};
use ferrane_host::map::Mapped;
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// Bytes of the header.
pub const HEADER: usize = 28;

/// Tensors in the file's order: each is stored for all layers before the next.
const BEFORE_NORM: [Part; 9] =
    [Part::AttnNorm, Part::Wq, Part::Wk, Part::Wv, Part::Wo, Part::FfnNorm, Part::W1, Part::W2, Part::W3];

/// Reads the configuration from a header.
///
/// # Errors
/// [`Error::Format`] for a header that is too short, zero, negative where it must not be, or of
/// another version; [`Error::Config`] for invalid sizes.
pub fn header(bytes: &[u8], path: &Path) -> Result<Config, Error> {
    let Some(head) = bytes.get(..HEADER) else {
        let reason = format!("a llama2.c header has {HEADER} bytes, the file has {}", bytes.len());
        return Err(Error::format(path, reason));
    };
    let mut fields = [0i32; 7];
    for (field, chunk) in fields.iter_mut().zip(head.as_chunks::<4>().0) {
        *field = i32::from_le_bytes(*chunk);
    }
    if fields[0] as u32 == 0x616B_3432 {
        let reason = format!("a llama2.c export of version {}; only version 0 is supported", fields[1]);
        return Err(Error::format(path, reason));
    }
    let names = ["dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len"];
    let mut sizes = [0usize; 7];
    for (i, (&field, name)) in fields.iter().zip(names).enumerate() {
        if field == 0 || (field < 0 && i != 5) {
            return Err(Error::format(path, format!("llama2.c header: {name} = {field}")));
        }
        sizes[i] = field.unsigned_abs() as usize;
    }
    let [dim, hidden, layers, heads, kv_heads, vocab, max_seq] = sizes;
    if dim % heads != 0 {
        return Err(Error::format(
            path,
            format!("llama2.c header: dim = {dim} is not a multiple of n_heads = {heads}"),
        ));
    }
    let config = Config {
        dim,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim: dim / heads,
        vocab,
        max_seq,
        rope: Rope::new(RopeStyle::Interleaved, 1e4),
        local_rope: None,
        norm_eps: 1e-5,
        qk_norm: false,
        qkv_bias: false,
        post_norms: false,
        experts: None,
        activation: Activation::Silu,
        embed_scale: 1.0,
        score_scale: None,
        attn_softcap: None,
        logit_softcap: None,
        sliding_window: None,
        layer_attention: Vec::new(),
        tied: fields[5] > 0,
        residual_scale: 1.0,
    };
    config.validate()?;
    Ok(config)
}

/// Size in bytes of the file of this configuration (models.md §4).
pub fn file_size(config: &Config) -> u64 {
    // Parameters are at most 2^40 and positions times head size at most 2^48, so nothing overflows.
    HEADER as u64 + 4 * (config.parameters() as u64 + config.max_seq as u64 * config.head_dim as u64)
}

/// Where each tensor lies in a file of this configuration.
fn layout(config: &Config) -> HashMap<Slot, Range<usize>> {
    let mut at = HEADER;
    let mut take = |values: usize| {
        at += 4 * values;
        at - 4 * values..at
    };
    let size = |slot: Slot| slot.shape(config).iter().product::<usize>();
    let mut slots = vec![Slot::Embed];
    slots.extend(BEFORE_NORM.iter().flat_map(|&part| (0..config.layers).map(move |i| Slot::Layer(i, part))));
    slots.push(Slot::Norm);
    let mut ranges: HashMap<Slot, Range<usize>> = slots.into_iter().map(|slot| (slot, take(size(slot)))).collect();
    take(config.max_seq * config.head_dim);
    if !config.tied {
        ranges.insert(Slot::Classifier, take(size(Slot::Classifier)));
    }
    ranges
}

/// The configuration of a file, which must have exactly the size that its header implies.
fn sized(bytes: &[u8], path: &Path) -> Result<Config, Error> {
    let config = header(bytes, path)?;
    let (expected, found) = (file_size(&config), bytes.len() as u64);
    if expected == found { Ok(config) } else { Err(Error::Size { file: path.display().to_string(), expected, found }) }
}

/// Opens a checkpoint. The file must have exactly the size that its header implies.
///
/// # Errors
/// As [`header`]; [`Error::Io`]; [`Error::Size`] for a truncated or too long file.
pub fn open(path: &Path) -> Result<(Config, StoredWeights), Error> {
    let bytes = Mapped::open(path).map_err(|e| Error::io(path, e))?;
    let config = sized(&bytes, path)?;
    let layout = layout(&config);
    let stored = StoredWeights::new(path, &config, |slot| {
        let shape = slot.shape(&config);
        let bytes = layout.get(&slot).and_then(|range| bytes.slice(range.clone()));
        let file = path.display().to_string();
        let missing = || Error::Missing { file, name: slot.name(), expected: shape.clone() };
        let piece = Piece { bytes: bytes.ok_or_else(missing)?, encoding: Encoding::Blocks(TensorType::F32) };
        Ok(StoredTensor { shape, pieces: vec![piece], pairs: None, offset: 0.0 })
    })?;
    Ok((config, stored))
}

/// Like [`open`], and reads the weights.
///
/// # Errors
/// As [`open`].
pub fn load(path: &Path) -> Result<(Config, Weights), Error> {
    let (config, stored) = open(path)?;
    let weights = Weights::read(&stored, &config)?;
    Ok((config, weights))
}

/// Like [`load`], from bytes; `path` names them in errors.
///
/// # Errors
/// As [`load`].
pub fn read(bytes: &[u8], path: &Path) -> Result<(Config, Weights), Error> {
    let config = sized(bytes, path)?;
    let layout = layout(&config);
    // The size was checked, so this allocates no more than the file holds.
    let mut weights = Weights::zeros(&config);
    for (slot, tensor) in Slot::list(&config).into_iter().zip(weights.tensors_mut(&config)) {
        let range = layout.get(&slot).cloned().unwrap_or_default();
        dequantize::parallel(TensorType::F32, bytes.get(range).unwrap_or_default(), tensor.data)?;
    }
    Ok((config, weights))
}

/// Writes a checkpoint.
///
/// # Errors
/// [`Error::Unwritable`] for a model with an option that the format cannot represent,
/// [`Error::Mismatch`] for weights of another configuration, [`Error::Io`] (with `what` as the
/// file).
pub fn write(out: &mut impl Write, what: &Path, config: &Config, weights: &Weights) -> Result<(), Error> {
    config.validate()?;
    weights.check(config)?;
    for (wrong, reason) in [
        (config.rope.style != RopeStyle::Interleaved, "the rotary pairs are not interleaved"),
        (config.rope.base != 1e4, "the rotary base is not 10000"),
        (config.rope.scaling.is_some(), "the rotary frequencies are scaled"),
        (config.rope.rotated.is_some(), "only a part of each head is rotated"),
        (config.norm_eps != 1e-5, "the norm's eps is not 1e-5"),
        (config.qk_norm, "queries and keys are normalized"),
        (config.qkv_bias, "the projections have biases"),
        (config.sliding_window.is_some(), "attention has a sliding window"),
        (!config.layer_attention.is_empty(), "the layers' attention differs"),
        (config.residual_scale != 1.0, "the residual scale is not 1"),
        (config.score_scale.is_some(), "the scores have a factor of their own"),
        (config.beyond_training().is_some(), "the layers are not those of Llama"),
        (config.q_dim() != config.dim, "the heads together are not as wide as the model"),
    ] {
        if wrong {
            return Err(Error::Unwritable { format: "llama2.c", reason: reason.into() });
        }
    }
    let io = |e| Error::io(what, e);
    let sizes = [config.dim, config.hidden, config.layers, config.heads, config.kv_heads, config.vocab, config.max_seq];
    for (i, size) in sizes.into_iter().enumerate() {
        // The limits of a valid configuration are below 2^31.
        let value = size as i32;
        let value = if i == 5 && !config.tied { -value } else { value };
        out.write_all(&value.to_le_bytes()).map_err(io)?;
    }
    write_values(out, &weights.embed).map_err(io)?;
    for part in BEFORE_NORM {
        for layer in &weights.layers {
            for (_, values) in layer.parts().into_iter().filter(|(p, _)| *p == part) {
                write_values(out, values).map_err(io)?;
            }
        }
    }
    write_values(out, &weights.norm).map_err(io)?;
    let rotation = config.rope.rotation(config.head_dim, config.max_seq);
    for table in [|(cos, _): (f64, f64)| cos, |(_, sin): (f64, f64)| sin] {
        for position in 0..config.max_seq {
            let row: Vec<f32> = (0..config.head_dim / 2).map(|i| table(rotation.at(i, position)) as f32).collect();
            write_values(out, &row).map_err(io)?;
        }
    }
    if let Some(classifier) = &weights.classifier {
        write_values(out, classifier).map_err(io)?;
    }
    Ok(())
}

/// Writes a checkpoint to a file. An existing file is replaced atomically; if that fails, it stays
/// unchanged.
///
/// # Errors
/// As [`write()`].
pub fn save(path: &Path, config: &Config, weights: &Weights) -> Result<(), Error> {
    let io = |e| Error::io(path, e);
    let mut file = AtomicFile::create(path).map_err(io)?;
    write(&mut file, path, config, weights)?;
    file.commit(Durability::Synced).map_err(io)
}
