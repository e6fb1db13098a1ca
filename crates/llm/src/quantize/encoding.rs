//! Matrices as codes of a few bits and the levels that the codes stand for.
//!
//! An [`Encoding`] says what levels there are: whole multiples of a scale, the same with an offset,
//! or the entries of a palette. [`Levels::fit`] chooses them for a matrix, [`Levels::nearest`] and
//! the rounding with feedback of [`crate::quantize`] choose a code for each value, and
//! [`Encoded`] is the result, whatever file it goes to.
//!
//! **Encoding is idempotent.** Values that lie on levels of the encoding already, because they were
//! read from a quantized file, get exactly these levels: [`encode`] of [`Encoded::decode`] returns
//! the same codes and levels. Every result is the one that [`exact`] finds for its own values, so
//! this holds by construction.

use half::f16;
use rayon::prelude::*;

use super::grid::{self, LevelGrid};
use super::palette;

/// Smallest block that replaces one that does not divide a row; below, the row is one block.
const LEAST_BLOCK: usize = 8;

/// What the codes of a matrix stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `scale · code` with signed codes, and a scale for each block of values of a row. Codes of 4
    /// bits are from −8 to 7, codes of 8 bits from −127 to 127.
    Symmetric {
        /// Bits of a code, 4 or 8.
        bits: u32,
        /// Values of a row that share a scale; `None`: all of them. See [`Encoding::block`].
        block: Option<usize>,
    },
    /// `scale · code + bias` with codes from 0 on, and a scale and a bias for each block of values
    /// of a row.
    Affine {
        /// Bits of a code, 4.
        bits: u32,
        /// Values of a row that share scale and bias. See [`Encoding::block`].
        block: usize,
    },
    /// Indices into a palette of `2^bits` values for each group of rows.
    Palette {
        /// Bits of an index, from 1 to 8.
        bits: u32,
        /// Rows that share a palette; `None`: all of them. See [`Encoding::group`].
        rows: Option<usize>,
    },
}

impl Encoding {
    /// int8 with a scale for each row.
    pub const INT8: Encoding = Encoding::Symmetric { bits: 8, block: None };
    /// int4 with a scale for each block of 32 values.
    pub const INT4: Encoding = Encoding::Symmetric { bits: 4, block: Some(32) };

    /// Bits of a code.
    pub fn bits(self) -> u32 {
        match self {
            Encoding::Symmetric { bits, .. } | Encoding::Affine { bits, .. } | Encoding::Palette { bits, .. } => bits,
        }
    }

    /// Values of a row of `cols` values that share a scale: the block of the encoding, or the
    /// largest power of two that divides both if it is at least 8, otherwise the whole row. The
    /// whole row with a palette.
    pub fn block(self, cols: usize) -> usize {
        let block = match self {
            Encoding::Symmetric { block: Some(block), .. } | Encoding::Affine { block, .. } => block.max(1),
            _ => return cols,
        };
        if cols.is_multiple_of(block) {
            return block;
        }
        let common = 1 << cols.trailing_zeros().min(block.trailing_zeros()).min(31);
        if common >= LEAST_BLOCK { common } else { cols }
    }

    /// Bytes of the codes and the levels of a matrix `[rows, cols]`, as [`Encoded::bytes`].
    pub fn bytes(self, rows: usize, cols: usize) -> usize {
        let blocks = rows * (cols / self.block(cols).max(1));
        let levels = match self {
            Encoding::Symmetric { .. } => blocks,
            Encoding::Affine { .. } => 2 * blocks,
            Encoding::Palette { bits, .. } => (rows / self.group(rows).max(1)) << bits,
        };
        (rows * cols * self.bits() as usize).div_ceil(8) + 2 * levels
    }

    /// Rows of a matrix of `rows` rows that share a palette: those of the encoding if they divide
    /// the matrix, otherwise all.
    pub fn group(self, rows: usize) -> usize {
        match self {
            Encoding::Palette { rows: Some(group), .. } if group > 0 && rows.is_multiple_of(group) => group,
            _ => rows,
        }
    }
}

/// What the codes of one matrix stand for.
#[derive(Debug, Clone, PartialEq)]
pub enum Levels {
    /// Scales `[rows, cols / block]`.
    Symmetric(Vec<f16>),
    /// Scales and biases, each `[rows, cols / block]`.
    Affine(Vec<f16>, Vec<f16>),
    /// Palettes `[groups, 2^bits]`, each ascending.
    Palette(Vec<f16>),
}

/// A matrix as codes and levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// What the codes stand for.
    pub encoding: Encoding,
    /// Number of rows, which are output channels.
    pub rows: usize,
    /// Values in a row.
    pub cols: usize,
    /// Scales, biases or palettes.
    pub levels: Levels,
    /// A code for each value, row-major, a byte each; signed ones in two's complement.
    pub codes: Vec<u8>,
}

/// A value that fp16 does not hold: it is not finite, or its magnitude exceeds 65504.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} is not a value of fp16")]
pub struct OutOfRange(pub f32);

/// Encodes a matrix with rows of `cols` values, each value by its nearest level. `importance` has a
/// factor on the squared errors of each column, if some matter more.
///
/// # Errors
/// [`OutOfRange`] for the first value that fp16 does not hold.
pub fn encode(
    values: &[f32],
    cols: usize,
    encoding: Encoding,
    importance: Option<&[f32]>,
) -> Result<Encoded, OutOfRange> {
    encode_with(values, cols, encoding, importance, |levels| levels.nearest(values, cols, encoding))
}

/// Like [`encode`], with a rounding of the caller that chooses the codes. It is not called for
/// values that are levels already.
pub(super) fn encode_with(
    values: &[f32],
    cols: usize,
    encoding: Encoding,
    importance: Option<&[f32]>,
    round: impl FnOnce(&Levels) -> Vec<u8>,
) -> Result<Encoded, OutOfRange> {
    if let Some(value) = values.iter().find(|value| !f16::from_f32(**value).is_finite()) {
        return Err(OutOfRange(*value));
    }
    if let Some(encoded) = exact(values, cols, encoding) {
        return Ok(encoded);
    }
    let levels = Levels::fit(values, cols, encoding, importance);
    let codes = round(&levels);
    let encoded = Encoded { encoding, rows: values.len() / cols.max(1), cols, levels, codes };
    // Its values may have a simpler form, which is then the one that encoding them again finds.
    Ok(exact(&encoded.decode(), cols, encoding).unwrap_or(encoded))
}

/// The encoding that reproduces all values bit for bit, if there is one: the one with the smallest
/// codes, or the palette of exactly the values that occur.
pub fn exact(values: &[f32], cols: usize, encoding: Encoding) -> Option<Encoded> {
    let (cols, rows) = (cols.max(1), values.len() / cols.max(1));
    let done = |levels: Levels| {
        let codes = levels.nearest(values, cols, encoding);
        Encoded { encoding, rows, cols, levels, codes }
    };
    match encoding {
        Encoding::Palette { bits, .. } => {
            let groups = values.par_chunks((encoding.group(rows) * cols).max(1));
            let palettes: Option<Vec<_>> = groups.map(|group| palette::exact(group, bits)).collect();
            Some(done(Levels::Palette(palettes?.concat())))
        }
        Encoding::Symmetric { bits, .. } => {
            let blocks = values.par_chunks(encoding.block(cols));
            let scales: Option<Vec<f16>> = blocks.map(|block| grid::exact_scale(block, bits)).collect();
            Some(done(Levels::Symmetric(scales?)))
        }
        Encoding::Affine { bits, .. } => {
            let blocks = values.par_chunks(encoding.block(cols));
            let pairs: Option<Vec<(f16, f16)>> = blocks.map(|block| grid::exact_affine(block, bits)).collect();
            let (scales, biases) = pairs?.into_iter().unzip();
            Some(done(Levels::Affine(scales, biases)))
        }
    }
}

impl Levels {
    /// Levels for a matrix: those with the least squared error, weighted by the importance of the
    /// columns, among the scales that are tried, or by k-means. Every value must be finite in fp16.
    pub fn fit(values: &[f32], cols: usize, encoding: Encoding, importance: Option<&[f32]>) -> Levels {
        let (cols, rows) = (cols.max(1), values.len() / cols.max(1));
        let block = encoding.block(cols);
        let blocks = || {
            values.par_chunks(block.max(1)).enumerate().map(|(index, values)| {
                let at = index * block % cols;
                (values, importance.and_then(|all| all.get(at..at + block)))
            })
        };
        match encoding {
            Encoding::Symmetric { bits, .. } => {
                Levels::Symmetric(blocks().map(|(values, weights)| grid::fit_scale(values, weights, bits)).collect())
            }
            Encoding::Affine { bits, .. } => {
                let pairs: Vec<_> = blocks().map(|(values, weights)| grid::fit_affine(values, weights, bits)).collect();
                let (scales, biases) = pairs.into_iter().unzip();
                Levels::Affine(scales, biases)
            }
            Encoding::Palette { bits, .. } => {
                let groups = values.par_chunks((encoding.group(rows) * cols).max(1));
                let palettes: Vec<_> = groups.map(|group| palette::fit(group, cols, importance, bits)).collect();
                Levels::Palette(palettes.concat())
            }
        }
    }

    /// The code of the nearest level for each value of a matrix.
    pub fn nearest(&self, values: &[f32], cols: usize, encoding: Encoding) -> Vec<u8> {
        let mut codes = vec![0; values.len()];
        let (cols, rows) = (cols.max(1), values.len() / cols.max(1));
        codes.par_chunks_mut(cols).zip(values.par_chunks(cols)).enumerate().for_each(|(row, (codes, values))| {
            let levels = self.row(row, rows, cols, encoding);
            for (col, (code, value)) in codes.iter_mut().zip(values).enumerate() {
                *code = levels.nearest(col, *value).0;
            }
        });
        codes
    }

    /// The levels of one row of a matrix `[rows, cols]`.
    pub(super) fn row(&self, row: usize, rows: usize, cols: usize, encoding: Encoding) -> RowLevels {
        let block = encoding.block(cols).max(1);
        let blocks = row * (cols / block)..(row + 1) * (cols / block);
        let (low, high) = match encoding {
            Encoding::Symmetric { bits, .. } => grid::signed(bits),
            _ => (0, (1 << encoding.bits()) - 1),
        };
        match self {
            Levels::Symmetric(scales) => {
                let grids =
                    scales[blocks].iter().map(|scale| LevelGrid { scale: scale.to_f32(), bias: 0.0, low, high });
                RowLevels::Grids(block, grids.collect())
            }
            Levels::Affine(scales, biases) => {
                let pairs = scales[blocks.clone()].iter().zip(&biases[blocks]);
                let grid =
                    |(scale, bias): (&f16, &f16)| LevelGrid { scale: scale.to_f32(), bias: bias.to_f32(), low, high };
                RowLevels::Grids(block, pairs.map(grid).collect())
            }
            Levels::Palette(entries) => {
                let (count, group) = (1usize << encoding.bits(), row / encoding.group(rows).max(1));
                RowLevels::Palette(entries[group * count..][..count].iter().map(|entry| entry.to_f32()).collect())
            }
        }
    }

    /// Bytes of scales, biases and palettes.
    pub fn bytes(&self) -> usize {
        match self {
            Levels::Symmetric(values) | Levels::Palette(values) => 2 * values.len(),
            Levels::Affine(scales, biases) => 2 * (scales.len() + biases.len()),
        }
    }
}

/// The levels of one row.
pub(super) enum RowLevels {
    /// The number of values in a block, and the levels of each.
    Grids(usize, Vec<LevelGrid>),
    /// The entries of a palette, ascending.
    Palette(Vec<f32>),
}

impl RowLevels {
    /// The code of the level nearest to a value in a column, and that level.
    #[inline]
    pub(super) fn nearest(&self, col: usize, value: f32) -> (u8, f32) {
        match self {
            RowLevels::Grids(block, grids) => {
                let grid = grids[col / block];
                let code = grid.nearest(value);
                (code as u8, grid.level(code))
            }
            RowLevels::Palette(entries) => {
                let index = palette::nearest(entries, value);
                (index as u8, entries[index])
            }
        }
    }

    fn level(&self, col: usize, code: u8) -> f32 {
        match self {
            RowLevels::Grids(block, grids) => {
                let grid = grids[col / block];
                // Codes of symmetric levels are signed.
                grid.level(if grid.low < 0 { i32::from(code as i8) } else { i32::from(code) })
            }
            RowLevels::Palette(entries) => entries[usize::from(code).min(entries.len() - 1)],
        }
    }
}

impl Encoded {
    /// The values in fp32, row-major.
    pub fn decode(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.codes.len()];
        let cols = self.cols.max(1);
        values.par_chunks_mut(cols).zip(self.codes.par_chunks(cols)).enumerate().for_each(|(row, (values, codes))| {
            let levels = self.levels.row(row, self.rows, self.cols, self.encoding);
            for (col, (value, code)) in values.iter_mut().zip(codes).enumerate() {
                *value = levels.level(col, *code);
            }
        });
        values
    }

    /// The low bits of the codes, one code after the other from the lowest bit of the first byte
    /// on.
    pub fn packed(&self) -> Vec<u8> {
        packed(&self.codes, self.encoding.bits())
    }

    /// Bytes of codes and levels.
    pub fn bytes(&self) -> usize {
        (self.codes.len() * self.encoding.bits() as usize).div_ceil(8) + self.levels.bytes()
    }
}

/// The low `bits` of each code, from 1 to 8 of them, as [`Encoded::packed`].
pub fn packed(codes: &[u8], bits: u32) -> Vec<u8> {
    if bits == 8 {
        return codes.to_vec();
    }
    let mut bytes = Vec::with_capacity((codes.len() * bits as usize).div_ceil(8));
    let (mut held, mut filled) = (0u32, 0);
    for code in codes {
        held |= (u32::from(*code) & ((1 << bits) - 1)) << filled;
        filled += bits;
        while filled >= 8 {
            bytes.push(held as u8);
            (held, filled) = (held >> 8, filled - 8);
        }
    }
    if filled > 0 {
        bytes.push(held as u8);
    }
    bytes
}

/// Values as little-endian fp16.
pub fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect()
}
