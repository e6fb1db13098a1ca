//! Products whose right factor is stored as codes of 4, 6 or 8 bits: a token of a language model
//! reads each weight once, so its time is that of reading the codes.
//!
//! A [`CodedMatrix`] has a row for each column of the result, `out = lhs · rhsᵀ`, the layout of the
//! weight of a linear layer. It is read in place. There are two ways to sum, [`CodedSums`]:
//!
//! - *Decoded*: some rows at a time are decoded to fp16, which is what a weight is between ops, and
//!   multiplied as [`gemm`](super::gemm) multiplies fp16. Every form, any number of rows.
//! - *Blocks*: codes with scales, in blocks of 32 values. The left factor becomes integers in units
//!   of a power of two for each block of a row; integer sums of codes and these are exact, and one
//!   multiply-add scales each sum by unit and scale. For one or two rows of the left factor, where
//!   the time is that of reading the codes, the integers have 23 bits (22 with int8 codes). With
//!   more rows they have 16, which dot products of pairs take: up to [`CODED_ROWS`] rows the codes
//!   are still read in place (`words`), for more they become panels (`panels`).
//!
//! Invariant: the result of *Blocks* has the same bits with every instruction set. Up to
//! [`CODED_ROWS`] rows the sums of 8 successive int4 codes (4 of int8) are exact integers; sum `i`
//! of a chunk of 16 goes to the fp32 accumulator `i`, with one rounding as fp32 and one of the
//! fused multiply-add; the 16 accumulators are added as halves, quarters, and so on. With more rows
//! the exact sums of blocks are added one after the other.
//!
//! *Tolerance.* Against a sum over decoded weights there are two differences. A value of `x` that
//! is smaller than 1/2048 of the largest of its block of 32 loses bits below 2⁻²³ of that one (2⁻²²
//! with int8), which is of the order of fp32 sums; with more rows each value is rounded to 2⁻¹⁵ of
//! the largest, a sixteenth of what fp16 rounds that one to, so the sum loses less than its own
//! rounding to fp16 unless one value is far above the rest of its block. And `scale · code` is not
//! rounded to fp16: each weight may differ by 2⁻¹¹ of itself. A product with a value that is not
//! finite is summed as *Decoded*, so NaN and infinity follow IEEE 754.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use half::f16;

use super::drive::Product;
use super::finish::{Finish, Store, StridedOutput, apply, finish};
use super::vector::{ElementType, Factor};
use super::{Epilogue, GemmError, Operand, Output, SKINNY, check_shapes, isa};
use crate::sync::{self, lock};
use crate::{convert, pool};

#[cfg(target_arch = "x86_64")]
mod avx2;
mod blocks;
mod decode;
mod fixed;
#[cfg(target_arch = "x86_64")]
mod limbs;
mod panels;
#[cfg(target_arch = "x86_64")]
mod table;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vnni;
mod widen;
#[cfg(target_arch = "x86_64")]
mod words;

pub use fixed::CODED_BLOCK;
use widen::gather;

/// The most rows of the left factor whose codes are read in place in [`CodedSums::Blocks`]; for
/// more, codes become panels.
pub const CODED_ROWS: usize = 16;

/// Approximate number of codes that a task reads.
const TASK_READS: usize = 128 << 10;

/// Elements that are decoded at once for products with many rows.
const DECODED: usize = 1 << 20;

/// Codes and what they stand for. Rows follow each other without a gap between codes; codes of less
/// than a byte are packed from the lowest bit of the first byte on. Scales and entries are
/// little-endian fp16.
#[derive(Clone, Copy, Debug)]
pub enum Codes<'a> {
    /// Signed codes of 4 or 8 bits: `code · scale`, with a scale for each `block` codes of a row.
    Scaled {
        /// 4 or 8.
        bits: usize,
        /// The codes, in two's complement.
        codes: &'a [u8],
        /// `[rows, cols / block]`.
        scales: &'a [u8],
        /// Codes that share a scale.
        block: usize,
    },
    /// Indices of 1 to 8 bits into a palette of `2^bits` entries for each of `tables` equal groups
    /// of rows.
    Palette {
        /// 1, 2, 3, 4, 6 or 8.
        bits: usize,
        /// `bits` for each element, packed.
        indices: &'a [u8],
        /// `[tables, 2^bits]`.
        entries: &'a [u8],
        /// Number of palettes, which divides the number of rows.
        tables: usize,
    },
}

/// A matrix `[rows, cols]` stored as codes, whose sizes were checked.
#[derive(Clone, Copy, Debug)]
pub struct CodedMatrix<'a> {
    rows: usize,
    cols: usize,
    codes: Codes<'a>,
}

/// How the products with a coded factor are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CodedSums {
    /// In blocks of integers where that is possible.
    #[default]
    Blocks,
    /// Over decoded weights, rounded to fp16.
    Decoded,
}

impl<'a> CodedMatrix<'a> {
    /// A matrix of these codes.
    ///
    /// # Errors
    /// [`GemmError::Codes`] if the codes, scales or palettes do not have the sizes that the shape
    /// wants, or the number of bits is none of those that are supported.
    pub fn new(rows: usize, cols: usize, codes: Codes<'a>) -> Result<Self, GemmError> {
        let elements = rows.checked_mul(cols);
        let fits = |bits: usize, bytes: &[u8]| {
            elements.and_then(|n| n.checked_mul(bits)).is_some_and(|n| bytes.len() == n.div_ceil(8))
        };
        let halves = |count: Option<usize>, bytes: &[u8]| count.and_then(|n| n.checked_mul(2)) == Some(bytes.len());
        let ok = match codes {
            Codes::Scaled { bits, codes, scales, block } => {
                let whole = block > 0 && cols.is_multiple_of(block);
                // A row of nibbles is whole bytes.
                let bytes = bits == 8 || bits == 4 && cols.is_multiple_of(2);
                whole && bytes && fits(bits, codes) && halves(rows.checked_mul(cols / block.max(1)), scales)
            }
            Codes::Palette { bits, indices, entries, tables } => {
                let known = matches!(bits, 1 | 2 | 3 | 4 | 6 | 8);
                let whole = tables > 0 && rows.is_multiple_of(tables);
                known && whole && fits(bits, indices) && halves(tables.checked_mul(1 << bits.min(8)), entries)
            }
        };
        if ok { Ok(Self { rows, cols, codes }) } else { Err(GemmError::Codes { rows, cols }) }
    }

    /// Rows and columns: the columns of the result, and the length of the sums.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Bytes of codes, scales and palettes together.
    pub fn bytes(&self) -> usize {
        match self.codes {
            Codes::Scaled { codes, scales, .. } => codes.len() + scales.len(),
            Codes::Palette { indices, entries, .. } => indices.len() + entries.len(),
        }
    }

    /// Decodes row `index` to fp16, rounded to nearest even.
    ///
    /// # Panics
    /// If there is no such row, or `to` has not the length of a row.
    pub fn row(&self, index: usize, to: &mut [f16]) {
        assert!(index < self.rows && to.len() == self.cols, "row {index} of {} rows", self.rows);
        decode::rows(self, index, to);
    }
}

thread_local! {
    /// Memory for decoded rows that is not in use: a stack, as a waiting task may run another one.
    static DECODED_ROWS: RefCell<Vec<Vec<f16>>> = const { RefCell::new(Vec::new()) };
}

/// `out = epilogue(lhs · rhsᵀ)`.
///
/// # Errors
/// As [`gemm`](super::gemm). Nothing is written then.
pub fn gemm_coded(
    lhs: Operand<'_>,
    rhs: CodedMatrix<'_>,
    out: Output<'_>,
    epilogue: Epilogue<'_>,
    sums: CodedSums,
) -> Result<(), GemmError> {
    check_shapes(&lhs, (rhs.cols, rhs.rows), &out, &epilogue)?;
    lhs.check(0)?;
    out.check(0)?;
    let ((m, n), k) = (out.shape(), rhs.cols);
    if m == 0 || n == 0 {
        return Ok(());
    }
    let target = out.target();
    let job = CodedProduct { lhs: lhs.factor(0), rhs, out: target.item(0), finish: epilogue.finish(), m, n, k };
    // SAFETY: the views and the epilogue were checked, and the output is borrowed exclusively.
    unsafe {
        if sums == CodedSums::Blocks && job.blocks()? {
            return Ok(());
        }
        job.decoded()
    }
}

/// A product whose shapes and views were checked.
struct CodedProduct<'a> {
    lhs: Factor,
    rhs: CodedMatrix<'a>,
    out: StridedOutput,
    finish: Finish<'a>,
    m: usize,
    n: usize,
    k: usize,
}

impl CodedProduct<'_> {
    /// Sums in blocks; false if the form, the shape or a value does not allow it.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn blocks(&self) -> Result<bool, GemmError> {
        let Codes::Scaled { bits, codes, scales, block } = self.rhs.codes else { return Ok(false) };
        if self.k == 0 || !block.is_multiple_of(CODED_BLOCK) {
            return Ok(false);
        }
        let kernel = blocks::Kernel::best(bits);
        // SAFETY: the caller guarantees it.
        unsafe {
            if self.m > CODED_ROWS {
                return self.panels_with(kernel, &panels::Rows { codes, scales, block, k: self.k });
            }
            self.blocks_with(kernel, codes, scales, block)
        }
    }

    /// Sums over panels of integers; false if a value is not finite.
    ///
    /// # Safety
    /// As [`Product::run`]; the processor supports the kernel.
    unsafe fn panels_with(&self, kernel: blocks::Kernel, rows: &panels::Rows<'_>) -> Result<bool, GemmError> {
        use panels::{GROUP, L1_BLOCKS, MOST_ROWS, ROWS, TALL, WIDE};
        let Self { m, n, k, .. } = *self;
        let (tall, blocks) = (m.next_multiple_of(TALL), k / CODED_BLOCK);
        super::with_scratch([tall * blocks * ROWS, 0, 0], |[left, _, _]| {
            let left: &mut [i32] = bytemuck::cast_slice_mut(left);
            let finite = AtomicBool::new(true);
            pool::for_each_chunk_mut(left, GROUP * blocks * ROWS, |group, left| {
                let first = group * GROUP;
                // SAFETY: the caller guarantees `m` rows of `k` elements.
                if !unsafe { panels::left(&self.lhs, (first, GROUP.min(m - first)), k, left) } {
                    finite.store(false, Relaxed);
                }
            });
            if !finite.load(Relaxed) {
                return Ok(false);
            }
            let left: &[i32] = left;
            pool::try_for_each_range(n, WIDE, |strip| {
                let sums = WIDE * tall.min(MOST_ROWS);
                super::with_scratch([WIDE * L1_BLOCKS * ROWS, sums, 0], |[right, sums, _]| {
                    let right: &mut [i32] = bytemuck::cast_slice_mut(right);
                    for (i, left) in left.chunks(MOST_ROWS * blocks * ROWS).enumerate() {
                        let first = i * MOST_ROWS;
                        let count = MOST_ROWS.min(m - first);
                        let sums = &mut sums[..WIDE * count.next_multiple_of(TALL)];
                        sums.fill(0.0);
                        for from in (0..blocks).step_by(L1_BLOCKS) {
                            let some = from..blocks.min(from + L1_BLOCKS);
                            let right = &mut right[..WIDE * some.len() * ROWS];
                            rows.panels(kernel, strip.clone(), some.clone(), right);
                            panels::multiply(kernel, (left, blocks), (right, some), sums);
                        }
                        // SAFETY: these columns of the output belong to this task.
                        unsafe { self.finish_strip((first, count), strip.clone(), sums) };
                    }
                })
            })?;
            Ok(true)
        })?
    }

    /// Stores some rows of some columns of the result, whose sums are rows of [`panels::WIDE`].
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn finish_strip(&self, (row, rows): (usize, usize), strip: Range<usize>, sums: &mut [f32]) {
        let (first, count, pitch) = (strip.start, strip.len(), panels::WIDE);
        match self.out.store {
            // Columns are contiguous.
            Store::F16(base) if self.out.row == 1 && self.out.col >= rows as isize => {
                let lines = sums.chunks_exact_mut(pitch).take(rows).enumerate();
                lines.for_each(|(r, line)| apply(&mut line[..count], (row + r, first), &self.finish, |_| ()));
                let (col, at) = (self.out.col as usize, first as isize * self.out.col + row as isize);
                // SAFETY: columns of the output that belong to this task, and what lies between
                // them in the same exclusive borrow.
                let to = unsafe { std::slice::from_raw_parts_mut(base.offset(at), (count - 1) * col + rows) };
                convert::f32_to_f16_transposed(sums, pitch, to, col, rows, count);
            }
            // SAFETY: the caller guarantees it.
            _ => unsafe { finish(sums.as_mut_ptr(), pitch, (rows, count), (row, first), self.out, &self.finish) },
        }
    }

    /// As [`CodedProduct::blocks`], with one kernel.
    ///
    /// # Safety
    /// As [`Product::run`]; the processor supports the kernel.
    unsafe fn blocks_with(
        &self,
        kernel: blocks::Kernel,
        codes: &[u8],
        scales: &[u8],
        block: usize,
    ) -> Result<bool, GemmError> {
        let Self { m, n, k, .. } = *self;
        let pitch = n.next_multiple_of(16);
        // Groups of 1, 2, 4 or 8 rows, the last one filled with zeros.
        let tall = if m > 8 { m.next_multiple_of(8) } else { m.next_power_of_two() };
        let width = fixed::Width::of(tall);
        let words = kernel.prepared_words(k, width);
        super::with_scratch([m * k, tall * words, tall * pitch], |[x, prepared, sums]| {
            // SAFETY: `m` rows of `k` elements are readable.
            unsafe { gather(&self.lhs, m, k, x) };
            prepared[m * words..].fill(0.0);
            let mut rows = x.chunks_exact(k).zip(prepared.chunks_exact_mut(words));
            if !rows.all(|(x, to)| kernel.prepare(x, width, bytemuck::cast_slice_mut(to))) {
                return false;
            }
            let prepared: &[u8] = bytemuck::cast_slice(prepared);
            let per_task = (TASK_READS / k).max(1).next_multiple_of(4);
            let sums = fixed::Sums(sums.as_mut_ptr());
            let task = |first: usize, count: usize| {
                let job = fixed::Job { codes, scales, block, k, prepared, first, count, pitch };
                // SAFETY: these columns of sums and of the output belong to this task.
                unsafe {
                    kernel.run(&job, tall, sums.get());
                    finish(sums.get().add(first), pitch, (m, count), (0, first), self.out, &self.finish);
                }
            };
            let parallel = n.saturating_mul(k).saturating_mul(m) >= super::PARALLEL_SKINNY && n > per_task;
            if parallel {
                pool::for_each_range(n, per_task, |range| task(range.start, range.len()));
            } else {
                task(0, n);
            }
            true
        })
    }

    /// Sums over decoded rows.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn decoded(&self) -> Result<(), GemmError> {
        let Self { m, n, k, .. } = *self;
        if m <= SKINNY {
            // Each task decodes what it multiplies, into its caches.
            let per_task = (TASK_READS / 2 / k.max(1)).max(1).next_multiple_of(16);
            let failed = std::sync::Mutex::new(None);
            pool::for_each_range(n, per_task, |range| {
                // SAFETY: these columns of the output belong to this task.
                if let Err(error) = unsafe { self.part(range, false) } {
                    *lock(&failed) = Some(error);
                }
            });
            return sync::into_inner(failed).map_or(Ok(()), Err);
        }
        let rows = (DECODED / k.max(1)).max(1).next_multiple_of(64);
        for first in (0..n).step_by(rows) {
            // SAFETY: the caller guarantees it.
            unsafe { self.part(first..n.min(first + rows), true)? };
        }
        Ok(())
    }

    /// Decodes rows of the coded factor and multiplies by them.
    ///
    /// # Safety
    /// As [`Product::run`], for these columns of the output.
    unsafe fn part(&self, range: Range<usize>, parallel: bool) -> Result<(), GemmError> {
        let Self { m, k, .. } = *self;
        let (first, n) = (range.start, range.len());
        let mut rows = DECODED_ROWS.with_borrow_mut(Vec::pop).unwrap_or_default();
        if rows.len() < n * k {
            let more = n * k - rows.len();
            rows.try_reserve_exact(more).map_err(|_| crate::buffer::AllocError { len: 2 * n * k })?;
            rows.resize(n * k, f16::ZERO);
        }
        let decoded = &mut rows[..n * k];
        if parallel && k > 0 {
            let some = (TASK_READS / k).max(1);
            pool::for_each_chunk_mut(decoded, some * k, |i, rows| decode::rows(&self.rhs, first + i * some, rows));
        } else {
            decode::rows(&self.rhs, first, decoded);
        }
        let rhs = Factor {
            address: decoded.as_ptr().cast(),
            kind: ElementType::F16,
            line: k as isize,
            depth: 1,
            tables: None,
        };
        let offset = first as isize * self.out.col;
        let store = match self.out.store {
            Store::F32(base) => Store::F32(base.wrapping_offset(offset)),
            Store::F16(base) => Store::F16(base.wrapping_offset(offset)),
        };
        let (col_scales, col_bias) =
            (self.finish.col_scales.map(|s| &s[range.clone()]), self.finish.col_bias.map(|b| &b[range.clone()]));
        let product = Product {
            kernels: isa::best(),
            blocks: false,
            lhs: self.lhs,
            packed: None,
            rhs,
            packed_columns: None,
            out: StridedOutput { store, ..self.out },
            finish: Finish { col_scales, col_bias, ..self.finish },
            m,
            n,
            k,
            of_depth: k,
        };
        // SAFETY: the decoded rows are `n` lines of `k` elements; the caller guarantees the rest.
        let result = unsafe { product.run(parallel) };
        DECODED_ROWS.with_borrow_mut(|stack| stack.push(rows));
        result
    }
}
