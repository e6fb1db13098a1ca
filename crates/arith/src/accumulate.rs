//! Sums: of products in the multiply-accumulate unit, and of values outside of it.
//!
//! An exact sum is a whole number of units: 2⁻⁴⁸, the smallest product of two fp16 values, or the
//! unit of the product grid. It is computed in 128-bit integers.

use crate::{Accumulator, Denormals, Reduction, Rules};

/// Units of an exact sum of products in 1.0: 2⁴⁸.
const EXACT: f64 = (1u64 << 48) as f64;

/// The smallest normal fp16 magnitude, 2⁻¹⁴.
const NORMAL: f32 = 6.103_515_6e-5;

impl Rules {
    /// Units of the product grid in 1.0: two to the power of [`Rules::grid_bits`].
    pub fn grid_scale(&self) -> f32 {
        f32::from(self.grid_bits.min(16)).exp2()
    }

    /// The smallest magnitude of a sum of products that becomes infinite.
    #[inline(always)]
    pub fn ceiling(&self) -> f64 {
        self.mac_ceiling.map_or(65536.0, f64::from)
    }

    /// An operand of a product as the unit reads it: NaN and subnormals are replaced as the rules
    /// state.
    #[inline(always)]
    pub fn operand(&self, x: f32) -> f32 {
        let x = self.enter(x);
        if self.mac_denormals == Denormals::Flush && x.abs() < NORMAL { 0.0 } else { x }
    }

    /// A product of two operands in whole units of the grid: rounded to nearest, ties by the rules'
    /// rounding, and zero below [`Rules::grid_flush`].
    pub fn grid_product(&self, a: f32, b: f32) -> f64 {
        // Exact: a product of two fp16 values has at most 22 bits.
        let units = f64::from(a) * f64::from(b) * f64::from(self.grid_scale());
        if units.abs() < f64::from(self.grid_flush) { 0.0 } else { self.rounding.whole(units) }
    }

    /// The sum of `taps` products of fp16 values, before rounding. `term` returns the two factors
    /// of a product.
    ///
    /// A partial sum that reaches the ceiling stays infinite. A single tap is not accumulated: its
    /// product is exact, and its ceiling is that of fp16 (numerics §4).
    pub fn dot(&self, taps: usize, term: impl Fn(usize) -> (f32, f32)) -> f64 {
        let term = |i| {
            let (a, b) = term(i);
            (self.operand(a), self.operand(b))
        };
        if taps == 1 {
            let (a, b) = term(0);
            return self.value(f64::from(a) * f64::from(b));
        }
        match self.accumulator {
            Accumulator::Wide => self.exact(taps, |i| {
                let (a, b) = term(i);
                a * b
            }),
            Accumulator::Tiles => self.exact(taps.div_ceil(4), |tile| {
                let mut sum = 0.0;
                for lane in 4 * tile..taps.min(4 * tile + 4) {
                    let (a, b) = term(lane);
                    sum = if lane == 4 * tile { a * b } else { aligned_add(sum, a * b) };
                }
                sum
            }),
            Accumulator::Grid => {
                let scale = f64::from(self.grid_scale());
                let mut sum = 0.0f64;
                for i in 0..taps {
                    let (a, b) = term(i);
                    // Exact: the ceiling keeps these whole numbers below 2⁵³.
                    let units = self.value(self.grid_product(a, b));
                    sum += units;
                    if sum.abs() >= self.ceiling() * scale || sum.is_nan() {
                        return self.lost(sum);
                    }
                }
                sum / scale
            }
        }
    }

    /// The exact sum of `count` numbers, each an fp32 number and a multiple of 2⁻⁴⁸.
    fn exact(&self, count: usize, number: impl Fn(usize) -> f32) -> f64 {
        let ceiling = (self.ceiling() * EXACT) as i128;
        let mut sum = 0i128;
        for i in 0..count {
            let value = self.value(f64::from(number(i)));
            if !value.is_finite() {
                return self.lost(value);
            }
            sum += (value * EXACT) as i128;
            if sum.abs() >= ceiling {
                return self.lost(sum as f64);
            }
        }
        to_odd(sum) / EXACT
    }

    /// `x`, or +0 for a NaN if the rules replace indeterminate results.
    #[inline(always)]
    fn value(&self, x: f64) -> f64 {
        if self.nan_to_inf && x.is_nan() { 0.0 } else { x }
    }

    /// The result of a sum that exceeded the ceiling: infinity with the sum's sign, or NaN.
    fn lost(&self, sum: f64) -> f64 {
        if sum.is_nan() { sum } else { f64::INFINITY.copysign(sum) }
    }

    /// The stored result of a sum of `taps` products: adds the bias (an fp16 value), applies the
    /// ceiling, rounds once.
    #[inline(always)]
    pub fn output(&self, taps: usize, sum: f64, bias: f32) -> f32 {
        let total = sum + f64::from(self.rounding.f32(bias));
        let lost = taps > 1 && total.abs() >= self.ceiling();
        let stored = self.value(if lost { f64::INFINITY.copysign(total) } else { total });
        self.rounding.f64(stored)
    }

    /// A dot product of fp16 values as it is stored: [`dot`](Self::dot), then
    /// [`output`](Self::output). Its length is that of the shorter operand.
    pub fn product(&self, a: &[f32], b: &[f32], bias: f32) -> f32 {
        let taps = a.len().min(b.len());
        self.output(taps, self.dot(taps, |i| (a[i], b[i])), bias)
    }

    /// True if no partial sum of `taps` products can reach the ceiling in any order. The bound is
    /// the Cauchy–Schwarz inequality over `squares`, the sums of squares of both operands. Then a
    /// sum in grid units fits 32 bits and does not depend on the order.
    pub fn cannot_overflow(&self, taps: usize, squares: (f64, f64)) -> bool {
        // Each product is off by at most half a unit, and `squares` are rounded sums themselves.
        let most = (squares.0 * squares.1).sqrt() * 1.000_001 + taps as f64 / f64::from(self.grid_scale());
        most < self.ceiling().min(32768.0)
    }

    /// The sum of fp16 values outside of products, rounded to fp16 as the rules state.
    pub fn reduce_sum(&self, values: &[f32]) -> f32 {
        match self.reduce_sum {
            Reduction::Wide => self.rounding.f64(self.wide_sum(values)),
            Reduction::Narrow => values.iter().fold(0.0, |sum, &x| self.result(sum + x)),
        }
    }

    /// The exact sum of fp16 values.
    #[inline(always)]
    pub fn wide_sum(&self, values: &[f32]) -> f64 {
        // Multiples of 2⁻²⁴ below 2¹⁶: the sum of 4096 of them is exact in 53 bits, in any order.
        let pieces = values.chunks(4096).map(|piece| {
            let mut lanes = [0.0f64; 8];
            let whole = piece.chunks_exact(8);
            for (lane, &x) in lanes.iter_mut().zip(whole.remainder()) {
                *lane += f64::from(x);
            }
            for eight in whole {
                for (lane, &x) in lanes.iter_mut().zip(eight) {
                    *lane += f64::from(x);
                }
            }
            lanes.iter().sum::<f64>()
        });
        let units = f64::from(1 << 24);
        let mut sum = 0i128;
        for piece in pieces {
            if !piece.is_finite() {
                return self.value(values.iter().map(|&x| f64::from(x)).sum());
            }
            sum += (piece * units) as i128;
        }
        to_odd(sum) / units
    }
}

/// One addition inside of a tile: both operands are truncated to 11 fraction bits of the larger one
/// (numerics §3.2).
///
/// Branch-free, so that a loop over it is vectorized.
#[inline(always)]
pub fn aligned_add(a: f32, b: f32) -> f32 {
    let exponent = |x: f32| (x.to_bits() >> 23) & 0xFF;
    let most = exponent(a).max(exponent(b));
    let cut = |x: f32| {
        let drop = 12 + most - exponent(x);
        let kept = x.to_bits() >> (drop & 31) << (drop & 31);
        f32::from_bits(if drop > 23 { 0 } else { kept })
    };
    cut(a) + cut(b)
}

/// A sum of products in units of 2⁻⁴⁸, as an `f64` that rounds to the same fp16 value as the sum.
pub fn exact_sum(units: i64) -> f64 {
    to_odd(i128::from(units)) / EXACT
}

/// A whole number as an `f64` that rounds to the same fp16 value: truncated to 53 bits, with the
/// last bit set if a one was truncated (rounding to odd).
fn to_odd(n: i128) -> f64 {
    let magnitude = n.unsigned_abs();
    let drop = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let kept = magnitude >> drop;
    let sticky = u128::from(kept << drop != magnitude);
    let value = ((kept | sticky) as f64) * f64::from(drop).exp2();
    if n < 0 { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rounding;
    use proptest::prelude::*;

    /// The rules of M1 by numerics §3.2, §4 and §5.
    fn m1() -> Rules {
        Rules {
            accumulator: Accumulator::Tiles,
            mac_ceiling: Some(32768.0),
            mac_denormals: Denormals::Flush,
            nan_to_inf: true,
            ..Rules::default()
        }
    }

    fn with_ones(rules: &Rules, values: &[f32]) -> f32 {
        rules.product(values, &vec![1.0; values.len()], 0.0)
    }

    #[test]
    fn the_first_tile_loses_three_ones() {
        let mut values = vec![1.0; 1025];
        values[0] = 4096.0;
        assert_eq!(with_ones(&m1(), &values), 5116.0);
        assert_eq!(with_ones(&Rules::default(), &values), 5120.0);
        assert_eq!(with_ones(&m1(), &vec![1.0; 16000]), 16000.0);
    }

    #[test]
    fn ones_that_survive_beside_large_pairs() {
        for (large, want) in [
            (1024.0, 16.0),
            (3000.0, 16.0),
            (4090.0, 16.0),
            (4096.0, 4.0),
            (8000.0, 4.0),
            (16000.0, 4.0),
            (30000.0, 4.0),
        ] {
            for rotation in 0..3 {
                let triple = [large, -large, 1.0];
                let values: Vec<f32> = (0..48).map(|i| triple[(i + rotation) % 3]).collect();
                assert_eq!(with_ones(&m1(), &values), want, "{large}, rotated by {rotation}");
            }
        }
    }

    #[test]
    fn the_port_saturates_at_two_to_the_fifteen() {
        for rules in [m1(), Rules::published()] {
            for taps in [2, 4, 7, 64] {
                let mut values = vec![0.0; taps];
                values[0] = 16384.0;
                values[taps - 1] = 16368.0;
                assert_eq!(with_ones(&rules, &values), 32752.0);
                values[taps - 1] = 16384.0;
                assert_eq!(with_ones(&rules, &values), f32::INFINITY);
                values.iter_mut().for_each(|v| *v = -*v);
                assert_eq!(with_ones(&rules, &values), f32::NEG_INFINITY);
            }
            // A partial sum that overflows stays infinite, even if later terms cancel it.
            assert_eq!(with_ones(&rules, &[30000.0, 1.0, 0.0, 0.0, 30000.0, 0.0, 0.0, 0.0, -30000.0]), f32::INFINITY);
            // A single tap has fp16's own range.
            assert_eq!(rules.product(&[300.0], &[200.0], 0.0), 60000.0);
            assert_eq!(rules.product(&[300.0], &[200.0], 32.0), 60032.0);
            assert_eq!(rules.product(&[300.0], &[250.0], 0.0), f32::INFINITY);
            // The bias is part of the sum that the ceiling applies to.
            assert_eq!(rules.product(&[16384.0, 16368.0], &[1.0, 1.0], 16.0), f32::INFINITY);
        }
    }

    #[test]
    fn the_grid_moves_small_products() {
        let grid = Rules::published();
        // Numerics §3.1: 0.0005 is 32.78 units, 0.00025 is 16.39; 0.58 and 1.02 units become zero,
        // 1.55 becomes 2.
        let (a, b) = (Rounding::Even.f32(0.0005), Rounding::Even.f32(0.00025));
        assert_eq!((grid.grid_product(1.0, a), grid.grid_product(-1.0, b)), (33.0, -16.0));
        let unit = 1.0 / 65536.0;
        for (units, want) in [(0.58, 0.0), (1.02, 0.0), (1.55, 2.0), (-1.55, -2.0), (2.4, 2.0)] {
            assert_eq!(grid.grid_product(units, unit), want);
        }
        // P·V with P near 2.4e-4 is zero for any length.
        assert_eq!(grid.product(&[2.4e-4; 4096], &[a; 4096], 0.0), 0.0);
        assert!(Rules::default().product(&[2.4e-4; 4096], &[a; 4096], 0.0) > 4e-4);
    }

    #[test]
    fn a_coarser_grid_gives_the_forward_constant() {
        // Numerics §3.1: 3.01 units of 2⁻¹⁴ become 3.
        let coarse = Rules { grid_bits: 14, ..Rules::published() };
        let a = Rounding::Even.f32(3.01 / 16384.0);
        assert_eq!(coarse.product(&[a; 512], &[1.0; 512], 0.0), 0.09375);
    }

    #[test]
    fn subnormals_survive_where_the_rules_say() {
        let tiny = [crate::half(3), crate::half(4)];
        assert_eq!(m1().product(&tiny, &[1.0, 1.0], 0.0), 0.0);
        assert_eq!(Rules::default().product(&tiny, &[1.0, 1.0], 0.0), crate::half(7));
    }

    #[test]
    fn indeterminate_products_are_nothing() {
        assert_eq!(Rules::published().product(&[f32::INFINITY, 1.0], &[0.0, 2.0], 0.0), 2.0);
        assert_eq!(Rules::published().product(&[f32::NAN, 1.0], &[1.0, 2.0], 0.0), f32::INFINITY);
        assert!(Rules::default().product(&[f32::INFINITY, 1.0], &[0.0, 2.0], 0.0).is_nan());
        assert_eq!(Rules::default().product(&[], &[], 0.5), 0.5);
    }

    #[test]
    fn narrow_sums_stall_or_double() {
        let narrow = Rules { reduce_sum: Reduction::Narrow, ..Rules::published() };
        // ANEForge measured 2050 for 2049.
        assert_eq!(narrow.reduce_sum(&[1.0; 2049]), 2050.0);
        let even = Rules { rounding: Rounding::Even, ..narrow };
        // A running fp16 sum stops growing where 1 is half a step (numerics §3.2).
        assert_eq!((even.reduce_sum(&[1.0; 16000]), Rules::default().reduce_sum(&[1.0; 16000])), (2048.0, 16000.0));
    }

    #[test]
    fn a_wide_sum_holds_everything() {
        let mut values = vec![65504.0f32; 20000];
        values.push(crate::half(1));
        values.extend(vec![-65504.0; 20000]);
        assert_eq!(Rules::default().reduce_sum(&values), crate::half(1));
        assert_eq!(Rules::published().reduce_sum(&[f32::INFINITY, f32::NEG_INFINITY]), 0.0);
    }

    proptest! {
        #[test]
        fn bounds_are_bounds(a in proptest::collection::vec(-300f32..300.0, 2..64), b in proptest::collection::vec(-30f32..30.0, 64)) {
            let rules = Rules::published();
            let a: Vec<f32> = a.into_iter().map(|x| Rounding::Even.f32(x)).collect();
            let b: Vec<f32> = b.into_iter().map(|x| Rounding::Even.f32(x)).take(a.len()).collect();
            let square = |v: &[f32]| v.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
            let sure = rules.cannot_overflow(a.len(), (square(&a), square(&b)));
            let most: f64 = a.iter().zip(&b).map(|(&a, &b)| rules.grid_product(a, b).abs()).sum();
            prop_assert!(!sure || most < 2f64.powi(31));
            // If nothing overflows, the order does not matter.
            if sure {
                let forward = rules.product(&a, &b, 0.0);
                let (a, b): (Vec<f32>, Vec<f32>) = a.iter().zip(&b).rev().map(|(&a, &b)| (a, b)).unzip();
                prop_assert_eq!(forward, rules.product(&a, &b, 0.0));
            }
        }
    }
}
