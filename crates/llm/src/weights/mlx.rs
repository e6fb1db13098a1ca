//! Matrices that MLX has quantized: `w = scale · q + bias`, with a scale and a bias for each group
//! of values of a row.
//!
//! `NAME.weight` has the whole numbers `q` as a stream of bits in words of 32 bits, `NAME.scales`
//! and `NAME.biases` have `[rows, columns / group]` numbers. The widths of these tensors and of the
//! model imply the bits and the size of a group, so matrices of one model may differ in both.

use super::Error;
use super::container::{Container, Entry};
use super::stored::{Encoding, Piece};
use ferrane_gguf::TensorType;
use ferrane_host::map::Mapped;
use safetensors::Dtype;
use std::ops::Range;

/// Scales that are widened at once.
const BUFFER: usize = 64;
/// The sizes of groups that MLX makes.
const GROUPS: [usize; 3] = [32, 64, 128];
/// The numbers of bits that MLX makes.
const BITS: [usize; 6] = [2, 3, 4, 5, 6, 8];

/// A quantized matrix in an open checkpoint.
pub(super) struct Matrix<'a> {
    file: &'a Container,
    words: &'a Entry,
    /// The names of the scales and of the biases, and the files that have them.
    scales: (String, &'a Container),
    biases: (String, &'a Container),
    rows: usize,
    columns: usize,
    bits: usize,
    group: usize,
}

/// The names of the scales and the biases of a matrix; `None` for a tensor that can have none.
pub(super) fn companions(name: &str) -> Option<[String; 2]> {
    let stem = name.strip_suffix(".weight")?;
    Some([format!("{stem}.scales"), format!("{stem}.biases")])
}

impl<'a> Matrix<'a> {
    /// The matrix `name` of this shape, if the checkpoint has scales for it. `home` finds the file
    /// of a tensor.
    pub(super) fn find(
        name: &str,
        shape: &[usize],
        home: impl Fn(&str) -> Result<&'a Container, Error>,
    ) -> Result<Option<Matrix<'a>>, Error> {
        let (Some([scales, biases]), &[rows, columns]) = (companions(name), shape) else { return Ok(None) };
        let Ok(scales_file) = home(&scales) else { return Ok(None) };
        let (file, biases_file) = (home(name)?, home(&biases)?);
        let width = |file: &'a Container, name: &str| match file.entry(name) {
            Some(entry) if entry.shape().len() == 2 && entry.shape()[0] == rows => Ok((entry, entry.shape()[1])),
            Some(entry) => {
                let (file, expected) = (file.path().display().to_string(), vec![rows, columns]);
                Err(Error::Shape { file, name: name.into(), expected, found: entry.shape().to_vec() })
            }
            None => {
                let (file, expected) = (file.path().display().to_string(), vec![rows, columns]);
                Err(Error::Missing { file, name: name.into(), expected })
            }
        };
        let ((words, width), (_, groups)) = (width(file, name)?, width(scales_file, &scales)?);
        let bad = |reason: String| Error::format(file.path(), format!("tensor {name}: {reason}"));
        if words.dtype() != Dtype::U32 {
            return Err(bad(format!("it has scales, but its type is {:?} instead of U32", words.dtype())));
        }
        // Exact divisions only: a remainder gives a number that no list has.
        let whole = |a: usize, b: usize| if b != 0 && a.is_multiple_of(b) { a / b } else { 0 };
        let (bits, group) = (whole(width.saturating_mul(32), columns), whole(columns, groups));
        if !BITS.contains(&bits) || !GROUPS.contains(&group) {
            return Err(bad(format!(
                "{width} words and {groups} scales for {columns} values; supported are groups of {GROUPS:?} and {BITS:?} bits"
            )));
        }
        let (scales, biases) = ((scales, scales_file), (biases, biases_file));
        let matrix = Matrix { file, words, scales, biases, rows, columns, bits, group };
        for (name, file) in [&matrix.scales, &matrix.biases] {
            file.expect(name, &[rows, groups])?;
        }
        Ok(Some(matrix))
    }

    /// Rows of the matrix, which share the mappings of the files.
    pub(super) fn piece(&self, rows: Range<usize>) -> Result<Piece, Error> {
        let groups = self.columns / self.group;
        let wrong = || Error::Mismatch { name: self.scales.0.clone(), expected: self.rows, found: rows.end };
        let numbers = |(name, file): &(String, &Container)| {
            let entry = file.expect(name, &[self.rows, groups])?;
            let ty = file.number(name, entry)?;
            let size = ty.block_bytes() * groups;
            let bytes = file.mapped(entry).and_then(|bytes| bytes.slice(rows.start * size..rows.end * size));
            Ok::<_, Error>((bytes.ok_or_else(wrong)?, ty))
        };
        let row_bytes = self.columns * self.bits / 8;
        // Whole rows, so whole groups and whole bytes.
        let words = self.file.mapped(self.words).and_then(|b| b.slice(rows.start * row_bytes..rows.end * row_bytes));
        let (scales, biases) = (numbers(&self.scales)?, numbers(&self.biases)?);
        let groups = Groups { scales, biases, bits: self.bits, group: self.group };
        Ok(Piece { bytes: words.ok_or_else(wrong)?, encoding: Encoding::Mlx(groups) })
    }
}

/// What groups of values need next to their whole numbers.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    /// Numbers of a type, one for each group.
    scales: (Mapped, TensorType),
    biases: (Mapped, TensorType),
    bits: usize,
    group: usize,
}

impl Groups {
    /// Computes values in fp32; `range` begins and ends with a group.
    pub(super) fn values(&self, words: &[u8], range: Range<usize>, out: &mut [f32]) -> Result<(), Error> {
        let (mut scales, mut biases) = ([0.0; BUFFER], [0.0; BUFFER]);
        let group_bytes = self.group * self.bits / 8;
        let mut group = range.start / self.group;
        for out in out.chunks_mut(BUFFER * self.group) {
            let count = out.len() / self.group;
            for ((bytes, ty), numbers) in [(&self.scales, &mut scales), (&self.biases, &mut biases)] {
                let size = ty.block_bytes();
                let bytes = bytes.get(group * size..(group + count) * size).unwrap_or_default();
                ferrane_gguf::dequantize(*ty, bytes, &mut numbers[..count])?;
            }
            let words = words.get(group * group_bytes..(group + count) * group_bytes).unwrap_or_default();
            let numbers = scales.iter().zip(&biases);
            for ((out, words), (&scale, &bias)) in
                out.chunks_exact_mut(self.group).zip(words.chunks_exact(group_bytes)).zip(numbers)
            {
                match self.bits {
                    4 => unpack::<4>(words, out, scale, bias),
                    8 => unpack::<8>(words, out, scale, bias),
                    2 => unpack::<2>(words, out, scale, bias),
                    3 => unpack::<3>(words, out, scale, bias),
                    5 => unpack::<5>(words, out, scale, bias),
                    _ => unpack::<6>(words, out, scale, bias),
                }
            }
            group += count;
        }
        Ok(())
    }

    /// Releases the pages of values.
    pub(super) fn release(&self, words: &Mapped, range: Range<usize>) {
        let (begin, end) = (range.start / self.group, range.end / self.group);
        let group_bytes = self.group * self.bits / 8;
        let sizes = [
            (words, group_bytes),
            (&self.scales.0, self.scales.1.block_bytes()),
            (&self.biases.0, self.biases.1.block_bytes()),
        ];
        for (bytes, size) in sizes {
            if let Some(part) = bytes.slice(begin * size..end * size) {
                part.release();
            }
        }
    }
}

/// Eight numbers of `B` bits are `B` bytes, the first in the lowest bits.
fn unpack<const B: usize>(bytes: &[u8], out: &mut [f32], scale: f32, bias: f32) {
    for (bytes, out) in bytes.as_chunks::<B>().0.iter().zip(out.as_chunks_mut::<8>().0) {
        let mut word = [0; 8];
        word[..B].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (i, value) in out.iter_mut().enumerate() {
            *value = scale * (word >> (B * i) & ((1 << B) - 1)) as f32 + bias;
        }
    }
}
