//! Quantized models as GGUF files.
//!
//! The forms with blocks of 32 are types of GGUF: Q8_0, Q4_0 and Q4_1. Metadata, and with them the
//! tokenizer, come from the file that the model was read from.

use std::collections::HashMap;
use std::path::Path;

use ferrane_gguf::{File, MetadataValue, TensorType, Writer};
use half::f16;

use super::encoding::{Encoded, Levels, halves};
use super::{BLOCK, Error, QuantizedForm, QuantizedModel};
use crate::config::Config;
use crate::save::check_target;
use crate::weights::{Slot, Weights, gguf};

/// The version of the block types, which files with them state.
const QUANTIZATION_VERSION: u32 = 2;

/// `general.file_type` of a form; `None` if GGUF has no such type.
fn file_type(form: QuantizedForm) -> Option<u32> {
    match form {
        QuantizedForm::Int4 => Some(2),
        QuantizedForm::Affine4 => Some(3),
        QuantizedForm::Int8 | QuantizedForm::Int8Blocks => Some(7),
        QuantizedForm::Palette4 | QuantizedForm::Palette6 => None,
    }
}

impl QuantizedModel {
    /// Writes the model to a GGUF file, with the metadata of `source`, the GGUF file that it was
    /// read from. `weights` are those that [`super::quantize`] left.
    ///
    /// # Errors
    /// [`Error::Unwritable`] for palettes, [`Error::Save`] as [`check_target`] and [`Error::Gguf`].
    /// The target is then as it was.
    pub fn write_gguf(
        &self,
        config: &Config,
        weights: &Weights,
        source: &Path,
        target: &Path,
        overwrite: bool,
    ) -> Result<(), Error> {
        check_target(source, target, overwrite)?;
        let Some(file_type) = file_type(self.form) else {
            let reason = format!("GGUF has no type for {}; write a folder", self.form.name());
            return Err(Error::Unwritable { reason });
        };
        let file = File::open(source)?;
        let slots: HashMap<String, usize> =
            Slot::list(config).into_iter().enumerate().map(|(i, slot)| (gguf::name(slot), i)).collect();
        let values = weights.tensors(config);
        let architecture = gguf::architecture(&file)?;
        let mut made = Vec::new();
        for info in file.tensors() {
            let tensor = slots.get(info.name()).and_then(|at| Some((self.tensors.get(*at)?, values.get(*at)?)));
            made.push(match tensor {
                Some((tensor, values)) if !tensor.pieces.is_empty() || values.shape.len() == 2 => {
                    let order = gguf::file_rows(architecture, tensor.slot, config);
                    Some(match tensor.pieces.first() {
                        Some(matrix) => blocks(matrix, order.as_deref()),
                        None => {
                            let cols = values.shape.last().copied().unwrap_or(1);
                            (TensorType::F16, halves(&ordered(values.data, cols, order.as_deref())))
                        }
                    })
                }
                // Norms, biases and what is not a weight stay as they are.
                _ => None,
            });
        }
        let mut writer = Writer::new();
        let own = [("general.file_type", file_type), ("general.quantization_version", QUANTIZATION_VERSION)];
        for (key, value) in file.header().metadata().iter().filter(|(key, _)| own.iter().all(|(own, _)| key != own)) {
            writer.metadata(key, value.clone())?;
        }
        for (key, value) in own {
            writer.metadata(key, MetadataValue::U32(value))?;
        }
        for (info, made) in file.tensors().iter().zip(&made) {
            match made {
                Some((ty, bytes)) => writer.tensor(info.name(), info.shape(), *ty, bytes)?,
                None => writer.tensor(info.name(), info.shape(), info.ty(), file.raw(info))?,
            }
        }
        Ok(writer.save(target)?)
    }
}

/// Rows of `cols` values in the order of a file.
fn ordered<T: Copy>(values: &[T], cols: usize, order: Option<&[usize]>) -> Vec<T> {
    order.map_or_else(|| values.to_vec(), |order| gguf::ordered(values, cols, order))
}

/// The blocks of a matrix with scales.
fn blocks(matrix: &Encoded, order: Option<&[usize]>) -> (TensorType, Vec<u8>) {
    let block = matrix.encoding.block(matrix.cols).max(BLOCK);
    let codes = ordered(&matrix.codes, matrix.cols, order);
    let numbers = |numbers: &[f16]| ordered(numbers, matrix.cols / block, order);
    let (scales, biases) = match &matrix.levels {
        Levels::Symmetric(scales) | Levels::Palette(scales) => (numbers(scales), Vec::new()),
        Levels::Affine(scales, biases) => (numbers(scales), numbers(biases)),
    };
    let mut bytes = Vec::new();
    for (index, codes) in codes.chunks(BLOCK).enumerate() {
        let number = index * BLOCK / block;
        bytes.extend(scales.get(number).copied().unwrap_or_default().to_le_bytes());
        bytes.extend(biases.get(number).into_iter().flat_map(|bias| bias.to_le_bytes()));
        if matrix.encoding.bits() == 8 {
            bytes.extend(codes);
            continue;
        }
        // Signed codes are stored from 0 on. The first half of a block is in the low bits.
        let offset = if biases.is_empty() { 8 } else { 0 };
        let (low, high) = codes.split_at(codes.len() / 2);
        bytes.extend(
            low.iter()
                .zip(high)
                .map(|(low, high)| (low.wrapping_add(offset) & 15) | (high.wrapping_add(offset) & 15) << 4),
        );
    }
    let ty = match (matrix.encoding.bits(), biases.is_empty()) {
        (8, _) => TensorType::Q8_0,
        (_, true) => TensorType::Q4_0,
        (_, false) => TensorType::Q4_1,
    };
    (ty, bytes)
}
