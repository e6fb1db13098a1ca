//! Exact sums of products, and of tiles of four: the accumulators without a grid.
//!
//! A product of fp16 values is a multiple of 2⁻⁴⁸; sums below 2¹⁵ fit 64 bits. The caller has
//! checked that they stay below.

use ferrane_arith::aligned_add;
use ferrane_host::vectorize;

/// Columns that are computed together.
const COLS: usize = 16;
/// Units of a sum in one.
const UNITS: f64 = (1u64 << 48) as f64;

/// Sums of row `lhs` times the columns of `rhs` (dense, `n` wide), in units of 2⁻⁴⁸, to
/// `visit(column, sum)`.
pub(super) fn row(is_tiled: bool, lhs: &[f32], rhs: &[f32], n: usize, mut visit: impl FnMut(usize, i64)) {
    for first in (0..n).step_by(COLS) {
        let width = COLS.min(n - first);
        let mut sums = [0i64; COLS];
        if is_tiled {
            vectorize!(tiles(lhs, rhs, n, first, width, &mut sums));
        } else {
            vectorize!(products(lhs, rhs, n, first, width, &mut sums));
        }
        for (j, sum) in sums[..width].iter().enumerate() {
            visit(first + j, *sum);
        }
    }
}

/// `width` elements of a line from `first` on, padded with zeros.
#[inline(always)]
fn line(rhs: &[f32], at: usize, width: usize) -> [f32; COLS] {
    let mut line = [0.0; COLS];
    line[..width].copy_from_slice(&rhs[at..at + width]);
    line
}

#[inline(always)]
fn add(sums: &mut [i64; COLS], values: &[f32; COLS]) {
    for (sum, &v) in sums.iter_mut().zip(values) {
        *sum = sum.wrapping_add((f64::from(v) * UNITS) as i64);
    }
}

#[inline(always)]
fn products(lhs: &[f32], rhs: &[f32], n: usize, first: usize, width: usize, sums: &mut [i64; COLS]) {
    for (c, &a) in lhs.iter().enumerate() {
        let mut line = line(rhs, c * n + first, width);
        line.iter_mut().for_each(|v| *v *= a);
        add(sums, &line);
    }
}

#[inline(always)]
fn tiles(lhs: &[f32], rhs: &[f32], n: usize, first: usize, width: usize, sums: &mut [i64; COLS]) {
    for (t, four) in lhs.chunks(4).enumerate() {
        let mut partial = [0.0; COLS];
        for (lane, &a) in four.iter().enumerate() {
            let line = line(rhs, (4 * t + lane) * n + first, width);
            for (p, &b) in partial.iter_mut().zip(&line) {
                *p = if lane == 0 { a * b } else { aligned_add(*p, a * b) };
            }
        }
        add(sums, &partial);
    }
}
