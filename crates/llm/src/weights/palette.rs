//! Matrices with palettes, as `llm::quantize` writes them.
//!
//! `NAME.weight` has the indices of the matrix, row-major, as a stream of bits in bytes from the
//! lowest bit on; `NAME.palette` has `[groups, 2^bits]` values, a palette for each group of equally
//! many rows. The width of the palettes implies the bits.

use super::Error;
use super::container::{Container, Entry};
use super::stored::{Encoding, Piece};
use ferrane_host::map::Mapped;
use safetensors::Dtype;
use std::ops::Range;
use std::sync::Arc;

/// A matrix with palettes in an open checkpoint.
pub(super) struct Matrix<'a> {
    file: &'a Container,
    indices: &'a Entry,
    palettes: Arc<[f32]>,
    name: String,
    rows: usize,
    columns: usize,
    bits: usize,
    /// Values that share a palette.
    group: usize,
}

/// The name of the palettes of a matrix; `None` for a tensor that can have none.
pub(super) fn companion(name: &str) -> Option<String> {
    name.strip_suffix(".weight").map(|stem| format!("{stem}.palette"))
}

impl<'a> Matrix<'a> {
    /// The matrix `name` of this shape, if the checkpoint has palettes for it. `home` finds the
    /// file of a tensor.
    pub(super) fn find(
        name: &str,
        shape: &[usize],
        home: impl Fn(&str) -> Result<&'a Container, Error>,
    ) -> Result<Option<Matrix<'a>>, Error> {
        let (Some(palettes), &[rows, columns]) = (companion(name), shape) else { return Ok(None) };
        let Ok(palettes_file) = home(&palettes) else { return Ok(None) };
        let file = home(name)?;
        let bad = |reason: String| Error::format(file.path(), format!("tensor {name}: {reason}"));
        let missing = |name: &str| bad(format!("{name} is missing"));
        let shape = palettes_file.entry(&palettes).ok_or_else(|| missing(&palettes))?.shape().to_vec();
        let &[groups, entries] = shape.as_slice() else {
            return Err(bad(format!("its palettes have the shape {shape:?} instead of [groups, entries]")));
        };
        if !(2..=256).contains(&entries) || !entries.is_power_of_two() || groups == 0 || !rows.is_multiple_of(groups) {
            return Err(bad(format!(
                "{groups} palettes of {entries} values for {rows} rows; supported are 2, 4, 8 … 256 values, and groups of \
                 equally many rows"
            )));
        }
        let (indices, bits) = (file.entry(name).ok_or_else(|| missing(name))?, entries.trailing_zeros() as usize);
        let bytes = (rows * columns).checked_mul(bits).map(|bits| bits.div_ceil(8));
        if indices.dtype() != Dtype::U8 || bytes != Some(file.raw(indices).len()) {
            let (dtype, found) = (indices.dtype(), file.raw(indices).len());
            return Err(bad(format!(
                "{found} bytes of type {dtype:?}; {rows}×{columns} indices of {bits} bits are expected"
            )));
        }
        // The tensor's extents were checked against the file, so this is at most twice its length.
        let mut values = vec![0.0; groups * entries];
        palettes_file.read(&palettes, &shape, &mut values)?;
        let (palettes, name, group) = (values.into(), name.to_string(), rows / groups * columns);
        Ok(Some(Matrix { file, indices, palettes, name, rows, columns, bits, group }))
    }

    /// Rows of the matrix, which share the mapping of the file.
    pub(super) fn piece(&self, rows: Range<usize>) -> Result<Piece, Error> {
        let wrong = || Error::Mismatch { name: self.name.clone(), expected: self.rows, found: rows.end };
        if rows.start > rows.end || rows.end > self.rows {
            return Err(wrong());
        }
        let bytes = self.file.mapped(self.indices).ok_or_else(wrong)?;
        let lookup = Lookup {
            palettes: self.palettes.clone(),
            bits: self.bits,
            group: self.group,
            first: rows.start * self.columns,
        };
        Ok(Piece { bytes, encoding: Encoding::Palette(lookup) })
    }
}

/// What indices need: the palettes, and where the rows begin in them.
#[derive(Debug, Clone)]
pub(super) struct Lookup {
    palettes: Arc<[f32]>,
    bits: usize,
    /// Values that share a palette.
    group: usize,
    /// Values of the matrix before the first row.
    first: usize,
}

impl Lookup {
    /// Looks values of the rows up in the indices of the whole matrix.
    pub(super) fn values(&self, bytes: &[u8], range: Range<usize>, out: &mut [f32]) {
        let bits = self.bits;
        for (at, value) in (self.first + range.start..).zip(out) {
            let (byte, shift) = (at * bits / 8, at * bits % 8);
            // An index lies in two bytes at most; the last may end the tensor.
            let word = u16::from(bytes[byte]) | u16::from(bytes.get(byte + 1).copied().unwrap_or(0)) << 8;
            let index = usize::from(word >> shift) & ((1 << bits) - 1);
            *value = self.palettes[((at / self.group) << bits) + index];
        }
    }

    /// Releases the pages of values.
    pub(super) fn release(&self, bytes: &Mapped, range: Range<usize>) {
        // Bytes that the range has whole.
        let at = |value: usize| (self.first + value) * self.bits;
        if let Some(part) = bytes.slice(at(range.start).div_ceil(8)..at(range.end) / 8) {
            part.release();
        }
    }
}
