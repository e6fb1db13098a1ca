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
use std::io::ErrorKind;
use std::path::Path;

use ferrane_host::fs::AtomicFolder;
use half::f16;
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use super::encoding::{Encoded, Encoding, Levels, packed};
use super::{Error, QuantizedModel, QuantizedTensor, fits_fp16};
use crate::config::Config;
use crate::save::hub::{self, Hub};
use crate::save::tensors::{self, Entry};
use crate::save::{self, SavedWeights, check_target};
use crate::tokenizer::Tokenizer;
use crate::weights::{FileTensor, Slot, Weights, file_tensors};

/// The groups of a row that MLX has, from the largest on.
const GROUPS: [usize; 3] = [128, 64, 32];

impl QuantizedModel {
    /// Writes the model to a new folder, with the configuration and the tokenizer of `source`, the
    /// path that the model was read from. A `tokenizer` replaces that of the folder; models that
    /// are not folders of Hugging Face need one. `untrained` are the ids that generation must not
    /// draw ([`crate::model::Model::untrained`]); a folder lists them itself. `weights` are those
    /// that [`super::quantize`] left.
    ///
    /// # Errors
    /// [`Error::Save`] as [`check_target`], for a model that no family of Hugging Face is like, and
    /// for files that cannot be read or written. The target is then as it was.
    pub fn write_folder(
        &self,
        config: &Config,
        weights: &Weights,
        source: &Path,
        tokenizer: Option<&Tokenizer>,
        untrained: &[u32],
        target: &Path,
        overwrite: bool,
    ) -> Result<(), Error> {
        check_target(source, target, overwrite)?;
        let hub = Hub::find(source, config)?;
        let (mut object, architecture) = hub::configuration(config, hub.as_ref())?;
        let mut modules = BTreeMap::new();
        let folder = AtomicFolder::create(target).map_err(save::Error::io(target))?;
        let stored = file_tensors(config, architecture);
        self.write_tensors(config, weights, &stored, &mut modules, &folder.path().join("model.safetensors"))?;
        self.describe(&mut object, modules);
        hub::write_json(folder.path(), "config.json", &object)?;
        if let Some(tokenizer) = tokenizer {
            tokenizer.save(folder.path().join(tokenizer.file_name())).map_err(save::Error::from)?;
        }
        match &hub {
            Some(hub) => hub.copy(folder.path(), tokenizer.is_none())?,
            None if untrained.is_empty() => {}
            None => {
                let fields = Map::from_iter([("suppress_tokens".to_string(), untrained.into())]);
                hub::write_json(folder.path(), "generation_config.json", &fields)?;
            }
        }
        folder.commit(overwrite).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => save::Error::Exists(target.to_path_buf()),
            _ => save::Error::io(target)(e),
        })?;
        Ok(())
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
            match coded {
                Some(coded) => entries.extend(coded),
                None => {
                    let own = tensors::values(tensor, &values);
                    let form = if fits_fp16(&own) { SavedWeights::Fp16 } else { SavedWeights::Fp32 };
                    entries.push(tensors::plain(tensor, &own, form)?);
                }
            }
        }
        Ok(tensors::save(path, "mlx", &entries)?)
    }

    /// Adds what the matrices are to a `config.json`, as MLX does: the most frequent bits and group
    /// for the model, and others by the name of the module.
    fn describe(&self, object: &mut Map<String, Value>, modules: BTreeMap<String, (u32, usize)>) {
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
