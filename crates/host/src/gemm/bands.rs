//! Products with a factor whose lines begin with zeros along K: in the backward pass of causal
//! attention, the probabilities of the queries that come before a key.
//!
//! Neighboring lines form a band. Each band is multiplied from the first step on at which one of
//! its lines has a value.
//!
//! Invariant: skipping changes no bit. A chain of multiply-adds that begins at zero is still +0
//! after terms of which one factor is zero and the other finite. The product is one block along K,
//! and so large that its factors are packed.

use std::ops::{BitAnd, BitOr, Range};

use super::drive::{BLOCK_DEPTH, Product};
use super::error::GemmError;
use super::finish::{Finish, Store, StridedOutput};
use super::skinny::SKINNY;
use super::vector::{ElementType, Factor};
use crate::simd;

/// Lines of a band. Steps are skipped in multiples of the same number.
const BAND: usize = 64;

/// Steps along K that are looked at together.
const LOOK: usize = 8;

/// The bits of a floating-point number.
trait Bits: Copy + Ord + BitAnd<Output = Self> + BitOr<Output = Self> {
    const ZERO: Self;
    const INFINITY: Self;
    /// All bits but the sign.
    const MAGNITUDE: Self;
}

/// Of fp16.
impl Bits for u16 {
    const ZERO: u16 = 0;
    const INFINITY: u16 = 0x7C00;
    const MAGNITUDE: u16 = 0x7FFF;
}

/// Of fp32.
impl Bits for u32 {
    const ZERO: u32 = 0;
    const INFINITY: u32 = 0x7F80_0000;
    const MAGNITUDE: u32 = 0x7FFF_FFFF;
}

/// Elements of a factor that are neighbors in memory.
///
/// # Safety
/// So many elements of that size from the address on are readable during `'a`.
unsafe fn neighbors<'a, T: Bits>(address: *const u8, count: usize) -> &'a [T] {
    // SAFETY: the caller guarantees it; views consist of aligned elements.
    unsafe { std::slice::from_raw_parts(address.cast(), count) }
}

/// The number of the first steps, of `k`, at which all of these lines are zero, rounded down to a
/// multiple of [`BAND`].
///
/// # Safety
/// Such lines of elements of that size are readable, and neighboring lines are contiguous.
unsafe fn zeros<T: Bits>(factor: &Factor, lines: Range<usize>, k: usize) -> usize {
    let mut p = 0;
    while p + LOOK <= k {
        let bits = simd::dispatch(
            #[inline(always)]
            || {
                let mut bits = T::ZERO;
                for p in p..p + LOOK {
                    // SAFETY: the caller guarantees the lines.
                    let step = unsafe { neighbors::<T>(factor.at(lines.start, p), lines.len()) };
                    bits = step.iter().fold(bits, |bits, &element| bits | element);
                }
                bits
            },
        );
        if bits & T::MAGNITUDE != T::ZERO {
            break;
        }
        p += LOOK;
    }
    p / BAND * BAND
}

/// Whether `lines` lines are finite over `steps` steps along K; false too if neither lines nor
/// steps are contiguous.
///
/// # Safety
/// Such lines of elements of that size are readable.
unsafe fn are_finite<T: Bits>(factor: &Factor, lines: usize, steps: usize) -> bool {
    let (count, length, along) = match (factor.line, factor.depth) {
        (_, 1) => (lines, steps, true),
        (1, _) => (steps, lines, false),
        _ => return false,
    };
    let largest = simd::dispatch(
        #[inline(always)]
        || {
            let mut largest = T::ZERO;
            for i in 0..count {
                let at = if along { factor.at(i, 0) } else { factor.at(0, i) };
                // SAFETY: the caller guarantees the lines.
                let some = unsafe { neighbors::<T>(at, length) };
                largest = some.iter().fold(largest, |largest, &bits| largest.max(bits & T::MAGNITUDE));
            }
            largest
        },
    );
    largest < T::INFINITY
}

impl Product<'_> {
    /// [`Product::run`] on this thread, without steps at which a band of lines is zero.
    ///
    /// # Safety
    /// As [`Product::run`].
    pub unsafe fn run_in_bands(self) -> Result<(), GemmError> {
        let is_plain = !self.blocks && self.packed.is_none() && self.packed_columns.is_none();
        let is_chain = self.of_depth == self.k && (2 * BAND..=BLOCK_DEPTH).contains(&self.k);
        if is_plain && is_chain {
            for product in [self, self.t()] {
                // SAFETY: the caller guarantees it.
                let Some(of_last) = (unsafe { product.skipped_of_last() }) else { continue };
                let last = product.bands() - 1;
                return (0..=last).try_for_each(|band| {
                    // SAFETY: as above; the bands are lines of the product.
                    unsafe {
                        let skipped = if band == last { of_last } else { product.skipped(band) };
                        product.band(band, skipped).run(false)
                    }
                });
            }
        }
        // SAFETY: the caller guarantees it.
        unsafe { self.run(false) }
    }

    /// The number of bands of columns.
    fn bands(&self) -> usize {
        self.n / BAND
    }

    /// The columns of a band: the last one has those that are left as well.
    fn columns(&self, band: usize) -> Range<usize> {
        let end = if band + 1 == self.bands() { self.n } else { (band + 1) * BAND };
        band * BAND..end
    }

    /// The steps that a band skips.
    ///
    /// # Safety
    /// As [`Product::run`]; neighboring columns are contiguous.
    unsafe fn skipped(&self, band: usize) -> usize {
        // SAFETY: the lines are columns of the product.
        unsafe {
            match self.rhs.kind {
                ElementType::F16 => zeros::<u16>(&self.rhs, self.columns(band), self.k),
                ElementType::F32 => zeros::<u32>(&self.rhs, self.columns(band), self.k),
                ElementType::I8 => 0,
            }
        }
    }

    /// The steps that the last band skips, if there are any, and no band's skipping changes a bit.
    /// Most matrices have no such zeros, and a look at a few lines shows it. Products with so few
    /// rows that no factor is packed do not gain.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn skipped_of_last(&self) -> Option<usize> {
        let Self { lhs, rhs, m, n, k, .. } = self;
        let is_strided = rhs.line == 1 && rhs.tables.is_none() && lhs.tables.is_none();
        // SAFETY: the lines are rows of the product.
        let is_finite = || unsafe {
            match lhs.kind {
                ElementType::F16 => are_finite::<u16>(lhs, *m, *k),
                ElementType::F32 => are_finite::<u32>(lhs, *m, *k),
                ElementType::I8 => true,
            }
        };
        if *m <= SKINNY || *n < 2 * BAND || !is_strided {
            return None;
        }
        // SAFETY: the caller guarantees it.
        let skipped = unsafe { self.skipped(self.bands() - 1) };
        (skipped > 0 && is_finite()).then_some(skipped)
    }

    /// The product of the columns of a band, without the first `skipped` steps.
    fn band(&self, band: usize, skipped: usize) -> Self {
        let Self { lhs, rhs, out, finish, .. } = *self;
        let columns = self.columns(band);
        let first = columns.start;
        let moved = first as isize * out.col;
        let store = match out.store {
            Store::F32(base) => Store::F32(base.wrapping_offset(moved)),
            Store::F16(base) => Store::F16(base.wrapping_offset(moved)),
        };
        Self {
            lhs: Factor { address: lhs.at(0, skipped), ..lhs },
            rhs: Factor { address: rhs.at(first, skipped), ..rhs },
            out: StridedOutput { store, ..out },
            finish: Finish {
                col_scales: finish.col_scales.map(|scales| &scales[columns.clone()]),
                col_bias: finish.col_bias.map(|bias| &bias[columns.clone()]),
                ..finish
            },
            n: columns.len(),
            k: self.k - skipped,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::values as numbers;
    use super::super::{BatchOffsets, Bias, Epilogue, Operand, Output, View, ViewMut, gemm, gemm_batch, isa};
    use super::*;
    use half::f16;

    /// Numbers whose sums of products are rounded.
    fn values(n: usize, seed: u64) -> Vec<f32> {
        numbers(n, seed).iter().map(|v| v / 3.0).collect()
    }

    /// `k` steps of `n` lines, in which line `i` begins with `i` zeros of both signs.
    fn triangle(n: usize, k: usize) -> Vec<f32> {
        let mut all = values(n * k, 1);
        for (p, step) in all.chunks_mut(n).enumerate() {
            step.iter_mut().enumerate().filter(|(i, _)| *i > p).for_each(|(i, v)| *v = [0.0, -0.0][i % 2]);
        }
        all
    }

    fn halves(values: &[f32]) -> Vec<f16> {
        values.iter().map(|&v| f16::from_f32(v)).collect()
    }

    #[test]
    fn bands_skip_whole_blocks_of_leading_zeros() {
        let (m, n, k) = (16, 330, 256);
        let (a, b) = (values(m * k, 2), triangle(n, k));
        let skipped = |a: &[f32], b: &[f32], depth: isize| {
            let factor = |s: &[f32], line, depth| Factor {
                address: s.as_ptr().cast(),
                kind: ElementType::F32,
                line,
                depth,
                tables: None,
            };
            let mut out = vec![0.0f32; m * n];
            let product = Product {
                kernels: isa::best(),
                blocks: false,
                lhs: factor(a, k as isize / depth, depth),
                packed: None,
                rhs: factor(b, 1, n as isize),
                packed_columns: None,
                out: StridedOutput { store: Store::F32(out.as_mut_ptr()), row: n as isize, col: 1 },
                finish: Epilogue::default().finish(),
                m,
                n,
                k,
                of_depth: k,
            };
            // SAFETY: the factors have so many lines.
            let skipped = |band| unsafe { product.skipped(band) };
            // SAFETY: as above.
            unsafe { product.skipped_of_last() }.map(|_| (0..product.bands()).map(skipped).collect::<Vec<_>>())
        };
        // The last band has the 74 lines from 256 on, which are zero throughout.
        assert_eq!(skipped(&a, &b, 1), Some(vec![0, 64, 128, 192, 256]));
        let mut bad = a.clone();
        bad[k + 200] = f32::INFINITY;
        assert_eq!(skipped(&bad, &b, 1), None);
        assert_eq!(skipped(&a, &values(n * k, 1), 1), None);
        // Neither its rows nor its columns are contiguous.
        assert_eq!(skipped(&a, &b, 2), None);
    }

    #[test]
    fn products_in_bands_have_the_bits_of_whole_ones() {
        // In bands, one of which has more lines; and whole, with few rows or two blocks along K.
        let banded = [(48, 256, 256), (9, 200, 300), (256, 130, 768)];
        let whole = [(8, 256, 256), (5, 200, 300), (1, 140, 512), (70, 256, 800)];
        for (m, n, k) in banded.into_iter().chain(whole) {
            let (mut a, b, bias) = (values(2 * m * k, 2), triangle(n, k), values(n, 3));
            let both = [b.clone(), b].concat();
            for special in [None, Some(f32::NAN), Some(f32::INFINITY)] {
                if let Some(special) = special {
                    // At a step that bands skip.
                    a[5] = special;
                }
                let (left, right) = (halves(&a), halves(&both));
                let epilogue = Epilogue { scale: 0.5, bias: Some(Bias::Cols(&bias)), ..Epilogue::default() };
                let items = [0, 1].map(|i| BatchOffsets { lhs: i * m * k, rhs: i * n * k, out: i * m * n });
                for turned in [false, true] {
                    let (row, col) = if turned { (1, m as isize) } else { (k as isize, 1) };
                    let lhs = |i: usize| Operand::F16(View::new(&left[i * m * k..], m, k, row, col).unwrap());
                    let rhs = View::row_major(&right, k, n).unwrap();
                    let (mut found, mut want) = (vec![9.0f32; 2 * m * n], vec![9.0f32; 2 * m * n]);
                    let out = Output::F32(ViewMut::row_major(&mut found, m, n).unwrap());
                    gemm_batch(&items, lhs(0), Operand::F16(rhs), out, epilogue).unwrap();
                    for (i, want) in want.chunks_mut(m * n).enumerate() {
                        let out = Output::F32(ViewMut::row_major(want, m, n).unwrap());
                        gemm(lhs(i), Operand::F16(rhs), out, epilogue).unwrap();
                    }
                    let is_same = |(f, w): (&f32, &f32)| f.to_bits() == w.to_bits() || (f.is_nan() && w.is_nan());
                    assert!(found.iter().zip(&want).all(is_same), "{m} × {n} × {k}, {special:?}, {turned}");
                    // The transposed product: the factor with zeros is the left one.
                    let mut found = vec![9.0f32; 2 * m * n];
                    let out = Output::F32(ViewMut::new(&mut found, n, m, 1, n as isize).unwrap());
                    let items = items.map(|item| BatchOffsets { lhs: item.rhs, rhs: item.lhs, ..item });
                    let epilogue = Epilogue { bias: Some(Bias::Rows(&bias)), ..epilogue };
                    gemm_batch(&items, Operand::F16(rhs).t(), lhs(0).t(), out, epilogue).unwrap();
                    assert!(found.iter().zip(&want).all(is_same), "{n} × {m} × {k}, {special:?}, {turned}");
                }
            }
        }
    }
}
