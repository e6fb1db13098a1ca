//! The safetensors file of a folder of Hugging Face.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use half::f16;
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use super::{Error, SavedWeights};
use crate::weights::{FileTensor, Slot};

/// A tensor of the file.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// The values of a stored tensor, from those of the tensors that it consists of.
pub(crate) fn values(tensor: &FileTensor, model: &[(Slot, &[f32])]) -> Vec<f32> {
    let mut all = Vec::new();
    for (slot, piece) in &tensor.parts {
        let own = model.iter().find(|(other, _)| other == slot).map_or(&[][..], |(_, own)| *own);
        // A tensor of all experts has the matrices of each.
        let size = own.len() / tensor.pieces.max(1);
        all.extend(own[piece * size..(piece + 1) * size].iter().map(|value| value - tensor.offset));
    }
    all
}

/// A tensor of plain numbers, fp16 or fp32.
pub(crate) fn plain(tensor: &FileTensor, values: &[f32], weights: SavedWeights) -> Result<Entry, Error> {
    let (dtype, bytes) = match weights {
        SavedWeights::Fp32 => (Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        _ => (Dtype::F16, halves(&tensor.name, values)?),
    };
    Ok(Entry { name: tensor.name.clone(), dtype, shape: tensor.shape.clone(), bytes })
}

/// The bytes of values in fp16.
///
/// # Errors
/// [`Error::Range`].
pub(super) fn halves(name: &str, values: &[f32]) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(2 * values.len());
    for value in values {
        let half = f16::from_f32(*value);
        if !half.is_finite() {
            return Err(Error::Range { name: name.to_string(), value: *value });
        }
        bytes.extend(half.to_le_bytes());
    }
    Ok(bytes)
}

/// Writes the file. `format` is what its metadata say about the program that its layout is from.
pub(crate) fn save(path: &Path, format: &str, entries: &[Entry]) -> Result<(), Error> {
    let written = File::create(path).map(BufWriter::new).and_then(|mut out| {
        write(&mut out, format, entries)?;
        out.into_inner()?.sync_all()
    });
    written.map_err(Error::io(path))
}

/// Writes a safetensors stream. The data start at a multiple of eight bytes.
fn write(out: &mut impl Write, format: &str, entries: &[Entry]) -> std::io::Result<()> {
    let mut header = Map::from_iter([("__metadata__".to_string(), json!({ "format": format }))]);
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
