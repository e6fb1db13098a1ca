//! The three products of a linear layer `y = x·Wᵀ + b`, with `W` row-major `[out, in]`.
//!
//! Work is split into blocks by size alone, and each output value is one sum in a fixed order, so
//! the results depend neither on the number of threads nor on the width of the processor's vectors.

use super::Real;
use ferrane_host::vectorize;
use rayon::prelude::*;

/// Rows that share one pass over the weights.
const ROWS: usize = 8;
/// Output columns in one task if there is a single row.
const COLUMNS: usize = 256;

/// Element-wise `a += b`.
pub(super) fn add<T: Real>(a: &mut [T], b: &[T]) {
    for (x, &y) in a.iter_mut().zip(b) {
        *x += y;
    }
}

/// Element-wise `a += s·b`.
#[inline(always)]
pub(super) fn add_scaled<T: Real>(a: &mut [T], s: T, b: &[T]) {
    for (x, &y) in a.iter_mut().zip(b) {
        *x += s * y;
    }
}

/// The inner product, as sixteen interleaved partial sums that are added at the end: short
/// dependency chains round better and vectorize.
#[inline(always)]
pub(super) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::ZERO; LANES];
    let (a_head, a_tail) = a.as_chunks::<LANES>();
    let (b_head, b_tail) = b.as_chunks::<LANES>();
    for (x, y) in a_head.iter().zip(b_head) {
        for i in 0..LANES {
            sums[i] += x[i] * y[i];
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    let mut sum = sums[0];
    for (&x, &y) in a_tail.iter().zip(b_tail) {
        sum += x * y;
    }
    sum
}

/// `y[t, o] = x[t, ·]·w[o, ·] + bias[o]`; overwrites `y`.
pub(super) fn linear<T: Real>(y: &mut [T], x: &[T], w: &[T], bias: Option<&[T]>, inputs: usize) {
    let outputs = w.len() / inputs;
    if x.len() == inputs {
        y.par_chunks_mut(COLUMNS).zip(w.par_chunks(COLUMNS * inputs)).for_each(|(y, w)| {
            vectorize!({
                for (out, weights) in y.iter_mut().zip(w.chunks_exact(inputs)) {
                    *out = dot(x, weights);
                }
            });
        });
    } else {
        y.par_chunks_mut(ROWS * outputs).zip(x.par_chunks(ROWS * inputs)).for_each(|(y, x)| {
            vectorize!({
                for (o, weights) in w.chunks_exact(inputs).enumerate() {
                    for (t, row) in x.chunks_exact(inputs).enumerate() {
                        y[t * outputs + o] = dot(row, weights);
                    }
                }
            });
        });
    }
    if let Some(bias) = bias {
        y.chunks_exact_mut(outputs).for_each(|row| add(row, bias));
    }
}

/// `dx[t, ·] += Σ_o dy[t, o]·w[o, ·]`.
pub(super) fn input_gradient<T: Real>(dx: &mut [T], dy: &[T], w: &[T], inputs: usize) {
    let outputs = w.len() / inputs;
    dx.par_chunks_mut(ROWS * inputs).zip(dy.par_chunks(ROWS * outputs)).for_each(|(dx, dy)| {
        vectorize!({
            for (o, weights) in w.chunks_exact(inputs).enumerate() {
                for (t, row) in dx.chunks_exact_mut(inputs).enumerate() {
                    add_scaled(row, dy[t * outputs + o], weights);
                }
            }
        });
    });
}

/// `dw[o, ·] += Σ_t dy[t, o]·x[t, ·]`.
pub(super) fn weight_gradient<T: Real>(dw: &mut [T], dy: &[T], x: &[T], inputs: usize) {
    let outputs = dw.len() / inputs;
    dw.par_chunks_mut(ROWS * inputs).enumerate().for_each(|(block, dw)| {
        vectorize!({
            for (t, row) in x.chunks_exact(inputs).enumerate() {
                for (i, sums) in dw.chunks_exact_mut(inputs).enumerate() {
                    add_scaled(sums, dy[t * outputs + block * ROWS + i], row);
                }
            }
        });
    });
}

/// `db[o] += Σ_t dy[t, o]`.
pub(super) fn bias_gradient<T: Real>(db: &mut [T], dy: &[T]) {
    dy.chunks_exact(db.len()).for_each(|row| add(db, row));
}
