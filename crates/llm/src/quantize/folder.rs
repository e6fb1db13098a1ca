//! Quantized models as folders of Hugging Face.
//!
//! Matrices with scales have the layout of MLX (`crate::weights::load_hf` reads it, and so do MLX's
//! programs): `NAME.weight` holds codes from 0 on as a stream of bits in words of 32 bits,
//! `NAME.scales` and `NAME.biases` have a number for each group of a row, and a value is `scale ·
//! code + bias`. A symmetric code `c` of `b` bits is stored as `c + 2^(b-1)` with the bias
//! `-2^(b-1) · scale`, which fp16 holds exactly. A scale for a whole row is repeated for its
//! groups.
//!
//! Palettes have a layout of this project: `NAME.weight` holds the indices of the matrix as a
//! stream of bits, in bytes, and `NAME.palette` has `[groups, 2^bits]` fp16 values: one palette for
//! each group of equally many rows.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use ferrane_host::fs::AtomicFolder;
use half::f16;
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use super::encoding::{Encoded, Encoding, Levels, halves, packed};
use super::{Error, QuantizedModel, QuantizedTensor, fits_fp16};
use crate::config::{self, Config};
use crate::tokenizer::Tokenizer;
use crate::weights::{FileTensor, Slot, Weights, file_tensors};

/// Files of a model's folder that belong to the vocabulary.
const VOCABULARY: [&str; 7] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tokenizer.bin",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
];
/// Files of a model's folder about generation.
const GENERATION: [&str; 3] = ["generation_config.json", "chat_template.jinja", "chat_template.json"];
/// The groups of a row that MLX has, from the largest on.
const GROUPS: [usize; 3] = [128, 64, 32];

/// A tensor of the safetensors file.
struct Entry {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl QuantizedModel {
    /// Writes the model to a new folder, with the configuration and the tokenizer of `source`, the
    /// path that the model was read from. A `tokenizer` replaces that of the folder; models that
    /// are not folders of Hugging Face need one. `weights` are those that [`super::quantize`] left.
    ///
    /// # Errors
    /// [`Error::Exists`] unless `overwrite` is set, [`Error::Source`] if the target is or contains
    /// the source, [`Error::Config`] and [`Error::Unwritable`] for a model that no family of
    /// Hugging Face is like, [`Error::Io`]. The target is then as it was.
    pub fn write_folder(
        &self,
        config: &Config,
        weights: &Weights,
        source: &Path,
        tokenizer: Option<&Tokenizer>,
        target: &Path,
        overwrite: bool,
    ) -> Result<(), Error> {
        check_target(source, target, overwrite)?;
        let (mut object, architecture) = configuration(config, source)?;
        let mut modules = BTreeMap::new();
        let folder = AtomicFolder::create(target).map_err(Error::io(target))?;
        let stored = file_tensors(config, architecture);
        self.write_tensors(config, weights, &stored, &mut modules, &folder.path().join("model.safetensors"))?;
        self.describe(&mut object, config, modules);
        let path = folder.path().join("config.json");
        let text = serde_json::to_string_pretty(&Value::Object(object)).unwrap_or_default();
        fs::write(&path, text + "\n").map_err(Error::io(&path))?;
        if let Some(tokenizer) = tokenizer {
            tokenizer.save(folder.path().join(tokenizer.file_name()))?;
        }
        let vocabulary = VOCABULARY.iter().filter(|_| tokenizer.is_none());
        for name in vocabulary.chain(&GENERATION).filter(|name| source.join(name).is_file()) {
            fs::copy(source.join(name), folder.path().join(name)).map_err(Error::io(source.join(name)))?;
        }
        folder.commit(overwrite).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => Error::Exists(target.to_path_buf()),
            _ => Error::io(target)(e),
        })
    }

    fn tensor(&self, slot: Slot) -> Option<&QuantizedTensor> {
        self.tensors.iter().find(|tensor| tensor.slot == slot)
    }

    /// Writes the file of the weights. `modules` gets the bits and the group of each matrix in the
    /// layout of MLX.
    fn write_tensors(
        &self,
        config: &Config,
        weights: &Weights,
        stored: &[FileTensor],
        modules: &mut BTreeMap<String, (u32, usize)>,
        path: &Path,
    ) -> Result<(), Error> {
        let values: Vec<(Slot, &[f32])> =
            Slot::list(config).into_iter().zip(weights.tensors(config).into_iter().map(|tensor| tensor.data)).collect();
        let mut entries = Vec::new();
        for tensor in stored {
            let pieces: Option<Vec<&Encoded>> =
                tensor.parts.iter().map(|(slot, piece)| self.tensor(*slot)?.pieces.get(*piece)).collect();
            let coded = pieces.and_then(|pieces| coded(&tensor.name, &joined(&pieces)?, modules));
            entries.extend(coded.unwrap_or_else(|| vec![plain(tensor, &values)]));
        }
        let written = File::create(path).map(BufWriter::new).and_then(|mut out| {
            write(&mut out, &entries)?;
            out.into_inner()?.sync_all()
        });
        written.map_err(Error::io(path))
    }

    /// Adds what the matrices are to a `config.json`, as MLX does: the most frequent bits and group
    /// for the model, and others by the name of the module.
    fn describe(&self, object: &mut Map<String, Value>, config: &Config, modules: BTreeMap<String, (u32, usize)>) {
        for field in ["quantization", "quantization_config", "quantization_palettes"] {
            object.remove(field);
        }
        // The file decides whether there is a classifier.
        object.insert("tie_word_embeddings".into(), config.tied.into());
        let mut counts = BTreeMap::<(u32, usize), usize>::new();
        modules.values().for_each(|form| *counts.entry(*form).or_default() += 1);
        let entry = |(bits, group): (u32, usize)| json!({ "group_size": group, "bits": bits });
        if let Some((common, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
            let mut all = entry(common);
            for (module, form) in modules.into_iter().filter(|(_, form)| *form != common) {
                all[module] = entry(form);
            }
            object.insert("quantization".into(), all.clone());
            object.insert("quantization_config".into(), all);
        }
        if let Encoding::Palette { bits, rows } = self.form.encoding() {
            let palettes = json!({ "bits": bits, "group_size": rows, "layout": "ferrane" });
            object.insert("quantization_palettes".into(), palettes);
        }
    }
}

/// Refuses a target that exists, unless it may be overwritten, and one that the model is read from.
/// The writers check it too; a caller that does so first fails before the work.
///
/// # Errors
/// [`Error::Exists`], [`Error::Source`], [`Error::Io`].
pub fn check_target(source: &Path, target: &Path, overwrite: bool) -> Result<(), Error> {
    if target.symlink_metadata().is_err() {
        return Ok(());
    }
    let real = |path: &Path| fs::canonicalize(path).map_err(Error::io(path));
    if real(source)?.starts_with(real(target)?) {
        return Err(Error::Source(target.to_path_buf()));
    }
    if overwrite { Ok(()) } else { Err(Error::Exists(target.to_path_buf())) }
}

/// The `config.json` of a model, and its architecture.
fn configuration(config: &Config, source: &Path) -> Result<(Map<String, Value>, &'static str), Error> {
    let path = source.join("config.json");
    if let Ok(found) = config::read_hf(&path) {
        let text = fs::read(&path).map_err(Error::io(&path))?;
        if let Ok(Value::Object(object)) = serde_json::from_slice(&text) {
            return Ok((object, found.architecture));
        }
    }
    let (object, architecture) = config::to_hf(config)?;
    Ok((object, architecture))
}

/// Matrices one below the other; `None` if they have nothing in common.
fn joined(pieces: &[&Encoded]) -> Option<Encoded> {
    let first = *pieces.first()?;
    if pieces.len() == 1 {
        return Some(first.clone());
    }
    if pieces.iter().any(|piece| (piece.encoding, piece.cols) != (first.encoding, first.cols)) {
        return None;
    }
    // Palettes are for groups of equally many rows, so they are repeated where groups differ.
    let groups = pieces.iter().map(|piece| piece.encoding.group(piece.rows));
    let common = groups.reduce(gcd).unwrap_or(1).max(1);
    let count = 1usize << first.encoding.bits();
    let (mut scales, mut biases, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        match &piece.levels {
            Levels::Symmetric(own) => scales.extend_from_slice(own),
            Levels::Affine(own, offsets) => {
                scales.extend_from_slice(own);
                biases.extend_from_slice(offsets);
            }
            Levels::Palette(own) => {
                let times = piece.encoding.group(piece.rows) / common;
                entries.extend(own.chunks(count).flat_map(|palette| palette.repeat(times)));
            }
        }
    }
    let encoding = match first.encoding {
        Encoding::Palette { bits, .. } => Encoding::Palette { bits, rows: Some(common) },
        other => other,
    };
    let levels = match first.levels {
        Levels::Symmetric(_) => Levels::Symmetric(scales),
        Levels::Affine(..) => Levels::Affine(scales, biases),
        Levels::Palette(_) => Levels::Palette(entries),
    };
    let rows = pieces.iter().map(|piece| piece.rows).sum();
    let codes = pieces.iter().flat_map(|piece| piece.codes.iter().copied()).collect();
    Some(Encoded { encoding, rows, cols: first.cols, levels, codes })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn bytes(numbers: &[f16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The tensors of a matrix with codes; `None` if the layout cannot hold it.
fn coded(name: &str, matrix: &Encoded, modules: &mut BTreeMap<String, (u32, usize)>) -> Option<Vec<Entry>> {
    let stem = name.strip_suffix(".weight")?;
    let (rows, cols, bits) = (matrix.rows, matrix.cols, matrix.encoding.bits());
    let half = |suffix: &str, width: usize, numbers: &[f16]| {
        let (name, shape) = (format!("{stem}.{suffix}"), vec![numbers.len() / width.max(1), width]);
        Entry { name, dtype: Dtype::F16, shape, bytes: bytes(numbers) }
    };
    let (scales, biases, offset) = match &matrix.levels {
        Levels::Palette(entries) => {
            let indices = matrix.packed();
            let (shape, name) = (vec![indices.len()], name.to_string());
            let indices = Entry { name, dtype: Dtype::U8, shape, bytes: indices };
            return Some(vec![indices, half("palette", 1 << bits, entries)]);
        }
        Levels::Affine(scales, biases) => (scales.clone(), biases.clone(), 0),
        Levels::Symmetric(scales) => {
            let offset = 1u8 << (bits - 1);
            let bias = |scale: &f16| f16::from_f32(-f32::from(offset) * scale.to_f32());
            (scales.clone(), scales.iter().map(bias).collect(), offset)
        }
    };
    let block = matrix.encoding.block(cols);
    let group = *GROUPS.iter().find(|group| block.is_multiple_of(**group))?;
    // The bias of a scale near the end of fp16's range can be beyond it.
    if biases.iter().any(|bias: &f16| !bias.is_finite()) {
        return None;
    }
    let each = |numbers: &[f16]| -> Vec<f16> {
        numbers.iter().flat_map(|number| std::iter::repeat_n(*number, block / group)).collect()
    };
    let codes: Vec<u8> = matrix.codes.iter().map(|code| code.wrapping_add(offset)).collect();
    let words = Entry {
        name: name.to_string(),
        dtype: Dtype::U32,
        shape: vec![rows, cols * bits as usize / 32],
        bytes: packed(&codes, bits),
    };
    modules.insert(stem.to_string(), (bits, group));
    let width = cols / group;
    Some(vec![words, half("scales", width, &each(&scales)), half("biases", width, &each(&biases))])
}

/// A tensor without codes: fp16 if that holds its values, otherwise fp32.
fn plain(tensor: &FileTensor, values: &[(Slot, &[f32])]) -> Entry {
    let mut all = Vec::new();
    for (slot, piece) in &tensor.parts {
        let own = values.iter().find(|(other, _)| other == slot).map_or(&[][..], |(_, own)| *own);
        // A tensor of all experts has the matrices of each.
        let pieces = tensor.pieces.max(1);
        let size = own.len() / pieces;
        all.extend(own[piece * size..(piece + 1) * size].iter().map(|value| value - tensor.offset));
    }
    let (dtype, bytes) = match fits_fp16(&all) {
        true => (Dtype::F16, halves(&all)),
        false => (Dtype::F32, all.iter().flat_map(|value| value.to_le_bytes()).collect()),
    };
    Entry { name: tensor.name.clone(), dtype, shape: tensor.shape.clone(), bytes }
}

/// Writes a safetensors stream. The data start at a multiple of eight bytes.
fn write(out: &mut impl Write, entries: &[Entry]) -> std::io::Result<()> {
    let mut header = Map::from_iter([("__metadata__".to_string(), json!({ "format": "mlx" }))]);
    let mut offset = 0;
    for entry in entries {
        let end = offset + entry.bytes.len();
        let described = json!({ "dtype": entry.dtype, "shape": entry.shape, "data_offsets": [offset, end] });
        header.insert(entry.name.clone(), described);
        offset = end;
    }
    let mut text = Value::Object(header).to_string();
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(text.as_bytes())?;
    entries.iter().try_for_each(|entry| out.write_all(&entry.bytes))
}
