//! Columns of an unfolded image (im2col), packed from the image itself: the unfolded matrix never
//! lies in memory.
//!
//! The image has its padding in memory, and so much of it that every tap of the filter reads a run
//! of neighbors for a row of output positions (`conv::padded`). A step along K is a tap of one
//! channel; its elements for all output positions are the image at a shift.

use half::f16;

use super::error::GemmError;
use super::pack::{Pack, panel};
use super::vector::{Element, ElementType, Factor, Simd, Tables};

/// Elements after the last position of an image that packing may read.
pub(crate) const SLACK: usize = 32;

/// Elements of an image.
#[derive(Clone, Copy, Debug)]
pub enum Pixels<'a> {
    /// fp32.
    F32(&'a [f32]),
    /// fp16, widened.
    F16(&'a [f16]),
}

/// The right factor of a convolution: row `p`, column `n` is the element
/// `steps[p] + rows[n / width] + n % width` of the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfolded<'a> {
    pixels: Pixels<'a>,
    steps: &'a [usize],
    rows: &'a [usize],
    width: usize,
}

impl<'a> Unfolded<'a> {
    /// # Errors
    /// [`GemmError::OutOfBounds`] if a position, or the [`SLACK`] after it, is outside of the
    /// image.
    pub fn new(
        pixels: Pixels<'a>,
        steps: &'a [usize],
        rows: &'a [usize],
        width: usize,
    ) -> Result<Unfolded<'a>, GemmError> {
        let len = match pixels {
            Pixels::F32(s) => s.len(),
            Pixels::F16(s) => s.len(),
        };
        let most = |table: &[usize]| table.iter().copied().max().unwrap_or(0);
        let end = most(steps).checked_add(most(rows)).and_then(|n| n.checked_add(width)?.checked_add(SLACK));
        // Without steps, nothing is read.
        let inside = steps.is_empty() || end.is_some_and(|end| end <= len);
        if !inside || rows.len().checked_mul(width).is_none() {
            let (rows, cols) = (steps.len(), rows.len().saturating_mul(width));
            return Err(GemmError::OutOfBounds { rows, cols, row_stride: 1, col_stride: 1, offset: 0, len });
        }
        Ok(Unfolded { pixels, steps, rows, width })
    }

    /// Rows and columns of the factor.
    pub fn shape(&self) -> (usize, usize) {
        (self.steps.len(), self.rows.len() * self.width)
    }

    /// The factor, whose lines are its columns.
    pub(super) fn factor(&self) -> Factor {
        let (address, kind) = match self.pixels {
            Pixels::F32(s) => (s.as_ptr().cast::<u8>(), ElementType::F32),
            Pixels::F16(s) => (s.as_ptr().cast(), ElementType::F16),
        };
        let tables = Tables { steps: self.steps.as_ptr(), rows: self.rows.as_ptr(), width: self.width };
        Factor { address, kind, line: 1, depth: 0, tables: Some(tables) }
    }
}

/// The most lines of a panel.
const MOST_LINES: usize = 64;

/// A piece of one step of a panel: neighbors in the image.
#[derive(Clone, Copy, Default)]
struct Piece {
    /// Offset in the image, to which the offset of the step is added.
    from: usize,
    /// Position in the step.
    to: usize,
    count: usize,
}

/// The pieces of the lines of panel `q`, each at most `most` elements.
///
/// # Safety
/// The table of rows covers the lines of the job.
#[inline(always)]
unsafe fn pieces(job: &Pack, q: usize, lines: usize, most: usize, tables: Tables) -> ([Piece; MOST_LINES], usize) {
    let (mut pieces, mut count, mut done) = ([Piece::default(); MOST_LINES], 0, 0);
    let first = job.first + q * job.width;
    let (mut row, mut col) = (first / tables.width, first % tables.width);
    while done < lines {
        let here = (tables.width - col).min(lines - done).min(most);
        // SAFETY: the caller guarantees it.
        let from = unsafe { *tables.rows.add(row) } + col;
        pieces[count] = Piece { from, to: done, count: here };
        (count, done, col) = (count + 1, done + here, col + here);
        if col == tables.width {
            (row, col) = (row + 1, 0);
        }
    }
    (pieces, count)
}

/// Packs an unfolded image into fp32 panels.
///
/// # Safety
/// As of [`super::pack::pack`]; whole vectors are readable from every position of the tables.
#[inline(always)]
pub(super) unsafe fn pack<S: Simd, T: Element>(job: &Pack, tables: Tables) {
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch, to) = panel::<f32>(job, q);
        // SAFETY: the tables cover the lines and the steps of the job. A store of a whole vector
        // reaches into what later stores of this panel overwrite; the last step stores no more than
        // its pieces.
        unsafe {
            let (pieces, count) = pieces(job, q, lines, S::LANES, tables);
            let image = job.factor.address.cast::<T>();
            for p in 0..job.depth {
                let (from, to) = (image.add(*tables.steps.add(job.from + p)), to.add(p * pitch));
                if p + 1 < job.depth {
                    for piece in &pieces[..count] {
                        S::store(to.add(piece.to), T::load::<S>(from.add(piece.from)));
                    }
                } else {
                    for piece in &pieces[..count] {
                        S::store_part(to.add(piece.to), T::load::<S>(from.add(piece.from)), piece.count);
                    }
                }
            }
        }
    }
}

/// Packs an unfolded image of fp16 into fp16 panels.
///
/// # Safety
/// As of [`pack`].
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(super) unsafe fn pack_f16<S: Simd>(job: &Pack, tables: Tables) {
    const HALF: usize = 16;
    const WHOLE: usize = 32;
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch, to) = panel::<f16>(job, q);
        // SAFETY: as in `pack`.
        unsafe {
            let image = job.factor.address.cast::<f16>();
            let (pieces, count) = pieces(job, q, lines, HALF, tables);
            let whole = lines == WHOLE && count == 2 && pieces[1].from == pieces[0].from + HALF;
            for p in 0..job.depth {
                let (from, to) = (image.add(*tables.steps.add(job.from + p)), to.add(p * pitch));
                if whole {
                    let row = from.add(pieces[0].from).cast::<[f16; WHOLE]>().read_unaligned();
                    to.cast::<[f16; WHOLE]>().write_unaligned(row);
                } else if p + 1 < job.depth {
                    for piece in &pieces[..count] {
                        let part = from.add(piece.from).cast::<[f16; HALF]>().read_unaligned();
                        to.add(piece.to).cast::<[f16; HALF]>().write_unaligned(part);
                    }
                } else {
                    for piece in &pieces[..count] {
                        to.add(piece.to).copy_from_nonoverlapping(from.add(piece.from), piece.count);
                    }
                }
            }
        }
    }
}
