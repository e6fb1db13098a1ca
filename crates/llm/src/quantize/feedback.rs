//! Rounding that looks at what a matrix is multiplied by.
//!
//! A product `W x` is close if `tr(E H Eᵀ)` is small, where `E` is the error of the weights and `H`
//! the sum of `x xᵀ` over activations of a calibration text. With `H = (U + I) D (U + I)ᵀ`, `U`
//! strictly upper triangular, that is the sum over columns `k` of `D_k · (e_k + Σ_{j<k} e_j
//! U_jk)²`. So column after column, the errors of the columns before are subtracted from a weight
//! before it goes to its nearest level. This is the rounding of GPTQ, in the form of LDLQ (Chee and
//! others, 2023, theorem 6), which needs one factorization and no inverse.
//!
//! Columns are rounded in the order of their importance `H_kk`, because the last ones have the most
//! errors to make up for.

use std::sync::OnceLock;

use ferrane_host::gemm::{Epilogue, GemmError, Operand, Output, View, ViewMut, gemm};
use ferrane_host::vectorize;
use rayon::prelude::*;

use super::encoding::{Encoding, Levels};

/// Part of the mean of the diagonal that is added to it, as in GPTQ: without it, directions that no
/// activation of the text has would cost nothing.
const DAMPING: f32 = 0.01;

/// The sum of `x xᵀ` over the activations that a matrix reads.
pub(super) struct Hessian {
    cols: usize,
    sums: Vec<f32>,
    /// Made once for all matrices that read the same activations.
    feedback: OnceLock<Option<Feedback>>,
}

impl Hessian {
    pub(super) fn new(cols: usize) -> Hessian {
        Hessian { cols, sums: vec![0.0; cols * cols], feedback: OnceLock::new() }
    }

    /// Adds activations `[tokens, cols]`.
    ///
    /// # Errors
    /// If scratch memory cannot be allocated.
    pub(super) fn add(&mut self, activations: &[f32]) -> Result<(), GemmError> {
        let (cols, tokens) = (self.cols, activations.len() / self.cols.max(1));
        let x = View::row_major(activations, tokens, cols)?;
        let out = ViewMut::row_major(&mut self.sums, cols, cols)?;
        let more = Epilogue { accumulate: true, ..Epilogue::default() };
        gemm(Operand::F32(x.t()), Operand::F32(x), Output::F32(out), more)
    }

    /// The importance of each column, with a mean of 1; `None` if no activation was added, or they
    /// are not finite.
    pub(super) fn importance(&self) -> Option<Vec<f32>> {
        let diagonal: Vec<f32> = (0..self.cols).map(|i| self.sums[i * self.cols + i]).collect();
        let mean = diagonal.iter().map(|value| f64::from(*value)).sum::<f64>() / self.cols.max(1) as f64;
        let good = mean.is_finite() && mean > 0.0;
        // A column without activations must not be free: its levels would be arbitrary.
        good.then(|| diagonal.iter().map(|value| ((f64::from(*value) / mean) as f32).max(DAMPING)).collect())
    }

    /// The square root of `tr(E H Eᵀ)`, for a matrix with rows of this width.
    pub(super) fn norm(&self, matrix: &[f32]) -> f64 {
        let cols = self.cols.max(1);
        let row = |row: &[f32]| -> f64 {
            let products = self.sums.chunks_exact(cols).map(|sums| dot(sums, row));
            products.zip(row).map(|(product, value)| f64::from(product) * f64::from(*value)).sum()
        };
        let rows: Vec<f64> = matrix.par_chunks_exact(cols).map(row).collect();
        rows.iter().sum::<f64>().max(0.0).sqrt()
    }

    /// The factor for rounding with feedback; `None` as [`Hessian::importance`]. No activations are
    /// added after the first call.
    pub(super) fn feedback(&self) -> Option<&Feedback> {
        self.feedback.get_or_init(|| self.factor()).as_ref()
    }

    fn factor(&self) -> Option<Feedback> {
        let importance = self.importance()?;
        let n = self.cols;
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| importance[*b].total_cmp(&importance[*a]));
        let mean = (0..n).map(|i| self.sums[i * n + i]).sum::<f32>() / n as f32;
        let damping = (DAMPING * mean).max(f32::MIN_POSITIVE);
        // Column `k` of `U` above the diagonal comes from the later columns. Row `i` holds `U_ij ·
        // √D_j` for `j > i`, so that a column is a product of rows.
        let mut rows = vec![0.0f32; n * n];
        let mut columns: Vec<Vec<f32>> = vec![Vec::new(); n];
        for k in (0..n).rev() {
            let (above, from) = rows.split_at_mut(k * n);
            let pivot_row = &from[k + 1..n];
            let left = self.sums[order[k] * n + order[k]] + damping - dot(pivot_row, pivot_row);
            // Rounding can leave less than the damping, which is the least there is.
            let pivot = left.max(damping);
            let root = pivot.sqrt();
            let entry = |i: usize, row: &mut [f32]| {
                let rest = self.sums[order[i] * n + order[k]] - dot(&row[k + 1..], pivot_row);
                row[k] = rest / root;
                rest / pivot
            };
            columns[k] = above.par_chunks_mut(n).with_min_len(64).enumerate().map(|(i, row)| entry(i, row)).collect();
        }
        Some(Feedback { order, columns })
    }
}

/// The order of the columns, and the column of `U` above the diagonal for each.
pub(super) struct Feedback {
    order: Vec<usize>,
    columns: Vec<Vec<f32>>,
}

impl Feedback {
    /// Codes for a matrix whose rows have the width of the activations.
    pub(super) fn round(&self, values: &[f32], encoding: Encoding, levels: &Levels) -> Vec<u8> {
        let cols = self.order.len();
        let (rows, mut codes) = (values.len() / cols.max(1), vec![0; values.len()]);
        let chunks = codes.par_chunks_mut(cols.max(1)).zip(values.par_chunks(cols.max(1)));
        chunks.enumerate().for_each(|(row, (codes, values))| {
            let levels = levels.row(row, rows, cols, encoding);
            let mut errors = Vec::with_capacity(cols);
            for (col, above) in self.order.iter().zip(&self.columns) {
                let value = values[*col];
                let (code, level) = levels.nearest(*col, value + dot(&errors, above));
                errors.push(value - level);
                codes[*col] = code;
            }
        });
        codes
    }
}

/// The inner product in sixteen interleaved partial sums, which vectorize.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    vectorize!({
        let mut sums = [0.0f32; LANES];
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
        for (x, y) in a.iter().zip(b) {
            for i in 0..LANES {
                sums[i] += x[i] * y[i];
            }
        }
        let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
        sums.iter().sum::<f32>() + rest
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::encoding::{encode, encode_with};
    use crate::random::Rng;

    /// Activations with directions that occur together, as those of models have.
    fn activations(tokens: usize, cols: usize, rng: &mut Rng) -> Vec<f32> {
        let mut uniform = || rng.uniform() as f32 - 0.5;
        let mixing: Vec<f32> = (0..cols * 4).map(|_| uniform()).collect();
        let mut rows = Vec::new();
        for _ in 0..tokens {
            let hidden: Vec<f32> = (0..4).map(|_| uniform()).collect();
            rows.extend((0..cols).map(|c| {
                let common: f32 = hidden.iter().enumerate().map(|(j, h)| h * mixing[c * 4 + j]).sum();
                common * (1.0 + (c % 7) as f32) + 0.1 * uniform()
            }));
        }
        rows
    }

    #[test]
    fn the_factors_multiply_to_the_sums() {
        let mut hessian = Hessian::new(19);
        hessian.add(&activations(40, 19, &mut Rng::new(4))).unwrap();
        let feedback = hessian.feedback().unwrap();
        let unit = |i: usize, j: usize| match i.cmp(&j) {
            std::cmp::Ordering::Less => f64::from(feedback.columns[j][i]),
            std::cmp::Ordering::Equal => 1.0,
            std::cmp::Ordering::Greater => 0.0,
        };
        let at = |i: usize, j: usize| f64::from(hessian.sums[feedback.order[i] * 19 + feedback.order[j]]);
        let mean = (0..19).map(|i| at(i, i)).sum::<f64>() / 19.0;
        let damped = |i: usize, j: usize| at(i, j) + if i == j { 0.01 * mean } else { 0.0 };
        // The diagonal from the last column on.
        let mut diagonal = [0.0; 19];
        for k in (0..19).rev() {
            diagonal[k] = damped(k, k) - (k + 1..19).map(|j| unit(k, j).powi(2) * diagonal[j]).sum::<f64>();
        }
        for i in 0..19 {
            for j in 0..19 {
                let product: f64 = (0..19).map(|k| unit(i, k) * diagonal[k] * unit(j, k)).sum();
                assert!((product - damped(i, j)).abs() < 1e-3 * mean, "{i} {j}: {product} and {}", damped(i, j));
            }
        }
    }

    #[test]
    fn feedback_brings_products_closer() {
        let mut rng = Rng::new(8);
        let (cols, mut hessian) = (64, Hessian::new(64));
        hessian.add(&activations(300, cols, &mut rng)).unwrap();
        let values: Vec<f32> = (0..48 * cols).map(|_| rng.uniform() as f32 - 0.5).collect();
        let (feedback, importance) = (hessian.feedback().unwrap(), hessian.importance().unwrap());
        for encoding in [Encoding::INT4, Encoding::Palette { bits: 4, rows: Some(16) }] {
            let off = |encoded: super::super::encoding::Encoded| {
                let errors: Vec<f32> = values.iter().zip(encoded.decode()).map(|(a, b)| a - b).collect();
                hessian.norm(&errors)
            };
            let nearest = off(encode(&values, cols, encoding, None).unwrap());
            let round = |levels: &Levels| feedback.round(&values, encoding, levels);
            let found = off(encode_with(&values, cols, encoding, Some(&importance), round).unwrap());
            assert!(found < 0.7 * nearest, "{encoding:?}: {found} and {nearest}");
        }
    }

    #[test]
    fn without_activations_there_is_no_feedback() {
        assert!(Hessian::new(8).feedback().is_none());
        let mut bad = Hessian::new(2);
        bad.add(&[f32::NAN, 1.0]).unwrap();
        assert!(bad.feedback().is_none() && bad.importance().is_none());
    }
}
