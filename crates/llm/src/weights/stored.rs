//! Weights in mapped files.
//!
//! A format describes where the rows of each tensor lie and how they are encoded; reading them is
//! the same for all formats. Everything that can be wrong with a file is found when it is opened.

use super::source::{WeightSource, mismatch, rows_of};
use super::{Error, Slot, mlx, palette};
use crate::config::Config;
use ferrane_gguf::TensorType;
use ferrane_host::convert::bytes;
use ferrane_host::map::Mapped;
use half::f16;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The weights of a model in mapped files. Clones share the mappings.
///
/// The files must not change while this exists ([`Mapped`]).
#[derive(Debug, Clone)]
pub struct StoredWeights {
    path: PathBuf,
    tensors: HashMap<Slot, StoredTensor>,
}

/// A tensor in mapped files.
#[derive(Debug, Clone)]
pub(super) struct StoredTensor {
    /// Row-major, as [`Slot::shape`] has it.
    pub(super) shape: Vec<usize>,
    /// The parts of the rows, of the same number of rows each.
    pub(super) pieces: Vec<Piece>,
    /// Half the rows of a head, if the rows of each are stored in pairs: row `2i + s` is row `i + s
    /// · half` of the head. A tensor of one axis has its values in this order instead.
    pub(super) pairs: Option<usize>,
    /// Added to every value.
    pub(super) offset: f32,
}

/// Whole rows of a tensor, one after the other.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) bytes: Mapped,
    pub(super) encoding: Encoding,
}

/// How values become bytes.
#[derive(Debug, Clone)]
pub(super) enum Encoding {
    /// Numbers or blocks of GGUF, little-endian.
    Blocks(TensorType),
    /// Groups of whole numbers with a scale and a bias each.
    Mlx(mlx::Groups),
    /// Indices of palettes; the bytes are those of the whole matrix.
    Palette(palette::Lookup),
}

impl Piece {
    /// Values `range` of the piece in fp32. Both ends are ends of blocks or groups.
    fn values(&self, range: Range<usize>, out: &mut [f32]) -> Result<(), Error> {
        match &self.encoding {
            Encoding::Blocks(ty) => Ok(ferrane_gguf::dequantize(*ty, self.stored(*ty, range), out)?),
            Encoding::Mlx(groups) => groups.values(&self.bytes, range, out),
            Encoding::Palette(lookup) => {
                lookup.values(&self.bytes, range, out);
                Ok(())
            }
        }
    }

    /// As [`Piece::values`], in fp16.
    fn values_f16(&self, range: Range<usize>, out: &mut [f16]) -> Result<(), Error> {
        if let Encoding::Blocks(ty @ TensorType::F16) = self.encoding
            && out.len() == range.len()
        {
            let stored = self.stored(ty, range.clone());
            if stored.len() == 2 * out.len() {
                bytes::f16_from_le(stored, out);
                return Ok(());
            }
        }
        // A part is whole blocks and groups: these have at most 256 values.
        bytes::f16_through_f32(out, |at, part| self.values(range.start + at..range.start + at + part.len(), part))
    }

    /// The bytes of values; empty if the piece does not have them.
    fn stored(&self, ty: TensorType, range: Range<usize>) -> &[u8] {
        self.bytes.get(Piece::span(ty, range)).unwrap_or_default()
    }

    fn span(ty: TensorType, values: Range<usize>) -> Range<usize> {
        let at = |value: usize| (value / ty.block_values()).saturating_mul(ty.block_bytes());
        at(values.start)..at(values.end)
    }

    fn release(&self, range: Range<usize>) {
        match &self.encoding {
            Encoding::Blocks(ty) => {
                if let Some(part) = self.bytes.slice(Piece::span(*ty, range)) {
                    part.release();
                }
            }
            Encoding::Mlx(groups) => groups.release(&self.bytes, range),
            Encoding::Palette(lookup) => lookup.release(&self.bytes, range),
        }
    }
}

impl StoredTensor {
    /// Calls `read(piece, values, out)` for the rows in each piece that have `rows`, which are
    /// contiguous in `out`.
    fn contiguous<T>(
        &self,
        slot: Slot,
        rows: Range<usize>,
        mut out: &mut [T],
        mut read: impl FnMut(&Piece, Range<usize>, &mut [T]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let [all, width] = rows_of(&self.shape);
        let wanted = rows.end.saturating_sub(rows.start).saturating_mul(width);
        if rows.end > all || out.len() != wanted {
            return Err(mismatch(slot, wanted, out.len()));
        }
        let each = (all / self.pieces.len().max(1)).max(1);
        let mut at = rows.start;
        while at < rows.end {
            let (piece, first) = (at / each, at % each);
            let count = (each - first).min(rows.end - at);
            let (part, rest) = out.split_at_mut(count * width);
            let piece = self.pieces.get(piece).ok_or_else(|| mismatch(slot, all, rows.end))?;
            read(piece, first * width..(first + count) * width, part)?;
            (out, at) = (rest, at + count);
        }
        Ok(())
    }

    /// As [`StoredTensor::contiguous`], with the stored rows in the order of the model.
    fn read<T: Copy + Default>(
        &self,
        slot: Slot,
        rows: Range<usize>,
        out: &mut [T],
        mut read: impl FnMut(&Piece, Range<usize>, &mut [T]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(half) = self.pairs else { return self.contiguous(slot, rows, out, read) };
        let stored = |row: usize| {
            let (head, of) = (row / (2 * half), row % (2 * half));
            2 * half * head + 2 * (of % half) + of / half
        };
        let [all, width] = rows_of(&self.shape);
        if self.shape.len() == 1 {
            // One row to the file, so its blocks do not end with pairs.
            let mut whole = vec![T::default(); if rows == (0..1) { width } else { 0 }];
            if out.len() != whole.len() {
                return Err(mismatch(slot, width, out.len()));
            }
            self.contiguous(slot, rows, &mut whole, read)?;
            out.iter_mut().enumerate().for_each(|(at, value)| *value = whole[stored(at)]);
            return Ok(());
        }
        let count = rows.end.saturating_sub(rows.start);
        if rows.end > all || out.len() != count * width {
            return Err(mismatch(slot, count.saturating_mul(width), out.len()));
        }
        for (row, out) in rows.zip(out.chunks_mut(width.max(1))) {
            let row = stored(row);
            self.contiguous(slot, row..row + 1, out, &mut read)?;
        }
        Ok(())
    }
}

impl StoredWeights {
    /// Weights of the tensors that `locate` finds for a configuration.
    pub(super) fn new(
        path: &Path,
        config: &Config,
        mut locate: impl FnMut(Slot) -> Result<StoredTensor, Error>,
    ) -> Result<StoredWeights, Error> {
        let tensors = Slot::list(config).into_iter().map(|slot| Ok((slot, locate(slot)?)));
        Ok(StoredWeights { path: path.to_path_buf(), tensors: tensors.collect::<Result<_, Error>>()? })
    }

    /// The file, or the index of several.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn tensor(&self, slot: Slot) -> Result<&StoredTensor, Error> {
        self.tensors.get(&slot).ok_or_else(|| mismatch(slot, 0, 1))
    }
}

impl WeightSource for StoredWeights {
    fn check(&self, config: &Config) -> Result<(), Error> {
        let slots = Slot::list(config);
        for &slot in &slots {
            let (file, name, expected) = (self.path.display().to_string(), slot.name(), slot.shape(config));
            match self.tensors.get(&slot) {
                None => return Err(Error::Missing { file, name, expected }),
                Some(found) if found.shape == expected => {}
                Some(found) => return Err(Error::Shape { file, name, expected, found: found.shape.clone() }),
            }
        }
        if let Some(slot) = self.tensors.keys().find(|slot| !slots.contains(slot)) {
            return Err(Error::unknown(&self.path, &[slot.name()]));
        }
        Ok(())
    }

    fn rows(&self, slot: Slot, rows: Range<usize>, out: &mut [f32]) -> Result<(), Error> {
        let tensor = self.tensor(slot)?;
        tensor.read(slot, rows, out, Piece::values)?;
        if tensor.offset != 0.0 {
            out.iter_mut().for_each(|value| *value += tensor.offset);
        }
        Ok(())
    }

    fn rows_f16(&self, slot: Slot, rows: Range<usize>, out: &mut [f16]) -> Result<(), Error> {
        let tensor = self.tensor(slot)?;
        if tensor.offset == 0.0 {
            return tensor.read(slot, rows, out, Piece::values_f16);
        }
        // Only norms have one, which are short.
        let mut wide = vec![0.0; out.len()];
        self.rows(slot, rows, &mut wide)?;
        ferrane_host::convert::f32_to_f16(&wide, out);
        Ok(())
    }

    fn release(&self, slot: Slot, rows: Range<usize>) {
        let Some(tensor) = self.tensors.get(&slot) else { return };
        let [all, width] = rows_of(&tensor.shape);
        let each = (all / tensor.pieces.len().max(1)).max(1);
        let rows = rows.start..rows.end.min(all);
        // Rows in pairs are those of the same heads, so the range covers them but for its ends.
        for (index, piece) in tensor.pieces.iter().enumerate() {
            let begin = rows.start.max(index * each);
            let end = rows.end.min((index + 1) * each);
            if begin < end {
                piece.release((begin - index * each) * width..(end - index * each) * width);
            }
        }
    }
}
