//! Matrix products in integers: each product of two factors is rounded to a grid, and the sums are
//! exact.
//!
//! This is the arithmetic of the engine's multiply-accumulate unit as published outputs show it. A
//! product of two fp16 values has 22 bits, so fp32 holds it; scaled to units of the grid and
//! rounded it is an integer, and integers add up to the same sum in any order, on any number of
//! threads and with vectors of any width.
//!
//! Invariant: the result is the sum modulo 2³² of the rounded products, each saturated to 32 bits.
//! The caller has to know whether a sum can overflow: a bound from the magnitudes of the factors is
//! cheap, a check at every addition is not.
//!
//! One plain loop is compiled for each vector width (`vectorize!`). All versions run the same
//! operations, so their bits are the same.

use crate::buffer::{AlignedBuf, AllocError};
use crate::sync::{self, lock};
use crate::{pool, vectorize};

/// Columns of a tile.
const COLS: usize = 32;
/// Rows of a tile.
const ROWS: usize = 4;
/// Multiply-adds of one task of the pool.
const GRAIN: usize = 1 << 19;

/// How a product is rounded to an integer number of units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Units per 1.0: a power of two.
    pub scale: f32,
    /// Products of a smaller magnitude, in units, become 0. At least ½.
    pub flush: f32,
    /// Ties round away from zero instead of to even.
    pub away: bool,
}

impl Grid {
    /// Rounds a product `p`, given in units.
    #[inline(always)]
    fn units<const AWAY: bool, const SAFE: bool>(self, p: f32) -> i32 {
        let whole = if AWAY {
            // Truncated below. A product has 22 bits, so the addition is exact or its result is far
            // from an integer boundary.
            p + 0.5f32.copysign(p)
        } else {
            p.round_ties_even()
        };
        let whole = if p.abs() < self.flush { 0.0 } else { whole };
        if SAFE {
            // SAFETY: `multiply` has seen that the largest product lies below 2³¹ - 1 in magnitude,
            // and that no factor is NaN.
            unsafe { whole.to_int_unchecked() }
        } else {
            whole as i32
        }
    }
}

/// `out[i][j] = Σ round(lhs[i][c] · rhs[c][j] · scale)`: `lhs` is `m × k`, `rhs` `k × n`, `out` `m
/// × n`, each dense and row-major. Factors are fp16 values.
///
/// # Errors
/// If scratch memory cannot be allocated; `out` is then unspecified.
///
/// # Panics
/// If a slice has another length.
pub fn multiply(
    grid: Grid,
    lhs: &[f32],
    rhs: &[f32],
    out: &mut [i32],
    m: usize,
    k: usize,
    n: usize,
) -> Result<(), AllocError> {
    assert!(lhs.len() == m * k && rhs.len() == k * n && out.len() == m * n, "the factors and the result fit together");
    if m == 0 || n == 0 {
        return Ok(());
    }
    let most = f64::from(largest(lhs)) * f64::from(largest(rhs)) * f64::from(grid.scale);
    // With room for the rounding. NaN compares false.
    let safe = most < f64::from(i32::MAX - 256);
    let rows = (GRAIN / (k * n).max(1)).next_multiple_of(ROWS).clamp(ROWS, m.next_multiple_of(ROWS));
    let failed = std::sync::Mutex::new(None);
    pool::for_each_chunk_mut(out, rows * n, |i, out| {
        let lhs = &lhs[i * rows * k..][..out.len() / n * k];
        let mut scratch = AlignedBuf::default();
        let mut work = || -> Result<(), AllocError> {
            scratch.grow((COLS + ROWS) * k.max(1) * size_of::<f32>())?;
            if let Ok(scratch) = scratch.as_mut_slice::<f32>() {
                match (grid.away, safe) {
                    (true, true) => vectorize!(panels::<true, true>(grid, lhs, rhs, out, k, n, scratch)),
                    (true, false) => vectorize!(panels::<true, false>(grid, lhs, rhs, out, k, n, scratch)),
                    (false, true) => vectorize!(panels::<false, true>(grid, lhs, rhs, out, k, n, scratch)),
                    (false, false) => vectorize!(panels::<false, false>(grid, lhs, rhs, out, k, n, scratch)),
                }
            }
            Ok(())
        };
        if let Err(error) = work() {
            *lock(&failed) = Some(error);
        }
    });
    sync::into_inner(failed).map_or(Ok(()), Err)
}

/// The largest magnitude; NaN if there is one.
fn largest(values: &[f32]) -> f32 {
    let mut bits = 0u32;
    vectorize!({
        // The bits of magnitudes are ordered like the magnitudes, and NaN is above infinity.
        for v in values {
            bits = bits.max(v.to_bits() & 0x7FFF_FFFF);
        }
    });
    f32::from_bits(bits)
}

/// All rows of `lhs` against panels of columns.
#[inline(always)]
fn panels<const AWAY: bool, const SAFE: bool>(
    grid: Grid,
    lhs: &[f32],
    rhs: &[f32],
    out: &mut [i32],
    k: usize,
    n: usize,
    scratch: &mut [f32],
) {
    let (panel, rest) = scratch.split_at_mut(COLS * k);
    let strip = &mut rest[..ROWS * k];
    for first in (0..n).step_by(COLS) {
        let width = COLS.min(n - first);
        for (c, line) in panel.chunks_exact_mut(COLS).enumerate() {
            line[..width].copy_from_slice(&rhs[c * n + first..][..width]);
            line[width..].fill(0.0);
        }
        for (block, rows) in out.chunks_mut(ROWS * n).enumerate() {
            let count = rows.len() / n;
            for (c, four) in strip.chunks_exact_mut(ROWS).enumerate() {
                for (r, v) in four.iter_mut().enumerate() {
                    *v = if r < count { lhs[(block * ROWS + r) * k + c] * grid.scale } else { 0.0 };
                }
            }
            let mut sums = [[0i32; COLS]; ROWS];
            for (line, four) in panel.chunks_exact(COLS).zip(strip.chunks_exact(ROWS)) {
                for (sums, &a) in sums.iter_mut().zip(four) {
                    for (sum, &b) in sums.iter_mut().zip(line) {
                        *sum = sum.wrapping_add(grid.units::<AWAY, SAFE>(a * b));
                    }
                }
            }
            for (r, row) in rows.chunks_mut(n).enumerate() {
                row[first..first + width].copy_from_slice(&sums[r][..width]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::f16;
    use crate::random::Rng;
    use proptest::prelude::*;

    /// The definition of the sum, in fp64 and 64-bit integers.
    fn plain(grid: Grid, lhs: &[f32], rhs: &[f32], m: usize, k: usize, n: usize) -> Vec<i32> {
        let mut out = Vec::new();
        for i in 0..m {
            for j in 0..n {
                let unit = |c: usize| {
                    let p = f64::from(lhs[i * k + c]) * f64::from(rhs[c * n + j]) * f64::from(grid.scale);
                    let whole = if grid.away { p.round() } else { p.round_ties_even() };
                    if p.abs() < f64::from(grid.flush) { 0 } else { i64::from(whole as i32) }
                };
                out.push((0..k).map(unit).sum::<i64>() as i32);
            }
        }
        out
    }

    fn both(grid: Grid, lhs: &[f32], rhs: &[f32], m: usize, k: usize, n: usize) {
        let mut out = vec![-7; m * n];
        multiply(grid, lhs, rhs, &mut out, m, k, n).unwrap();
        assert_eq!(out, plain(grid, lhs, rhs, m, k, n), "{grid:?} {m} {k} {n}");
    }

    #[test]
    fn bits_are_those_of_the_definition() {
        let mut random = Rng::new(5);
        let mut half = |range: f64| f16::from_f64((random.uniform() * 2.0 - 1.0) * range).to_f32();
        for (m, k, n) in [(1, 1, 1), (4, 7, 32), (5, 33, 31), (3, 200, 70), (66, 64, 65), (1, 0, 3)] {
            // From products far below a unit to products that saturate.
            for range in [1e-3, 0.1, 3.0, 300.0, 60000.0] {
                for away in [true, false] {
                    let grid = Grid { scale: 65536.0, flush: 1.5, away };
                    let lhs: Vec<f32> = (0..m * k).map(|_| half(range)).collect();
                    let rhs: Vec<f32> = (0..k * n).map(|_| half(range)).collect();
                    both(grid, &lhs, &rhs, m, k, n);
                }
            }
        }
    }

    #[test]
    fn ties_edges_and_what_is_no_number() {
        let unit = 1.0 / 65536.0;
        let lhs = [unit, f32::INFINITY, f32::NAN, -unit, 65504.0];
        for (away, flush) in [(true, 0.5), (false, 0.5), (true, 1.5)] {
            for x in [0.5, 1.5, -2.5, 1.0, 0.49975586, 1.4990234, 65504.0, 0.0, f32::NEG_INFINITY] {
                for a in lhs {
                    both(Grid { scale: 65536.0, flush, away }, &[a], &[x], 1, 1, 1);
                }
            }
        }
    }

    #[test]
    fn the_baseline_has_the_bits_of_the_widest_vectors() {
        let mut random = Rng::new(9);
        let (m, k, n) = (13, 96, 75);
        let mut values = |count: usize, range: f64| -> Vec<f32> {
            (0..count).map(|_| f16::from_f64((random.uniform() * 2.0 - 1.0) * range).to_f32()).collect()
        };
        for range in [0.01, 4.0, 1000.0] {
            let (lhs, rhs) = (values(m * k, range), values(k * n, range));
            let grid = Grid { scale: 65536.0, flush: 1.5, away: true };
            let (mut widest, mut baseline) = (vec![0; m * n], vec![1; m * n]);
            multiply(grid, &lhs, &rhs, &mut widest, m, k, n).unwrap();
            let mut scratch = vec![0.0; (COLS + ROWS) * k];
            panels::<true, false>(grid, &lhs, &rhs, &mut baseline, k, n, &mut scratch);
            assert_eq!(widest, baseline);
        }
    }

    proptest! {
        #[test]
        fn any_two_values(a in any::<u16>(), b in any::<u16>(), away in any::<bool>(), bits in 0i32..17) {
            let (a, b) = (f16::from_bits(a).to_f32(), f16::from_bits(b).to_f32());
            both(Grid { scale: (bits as f32).exp2(), flush: 1.5, away }, &[a], &[b], 1, 1, 1);
        }
    }
}
