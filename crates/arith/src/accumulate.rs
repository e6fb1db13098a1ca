//! Sums: products in the multiply-accumulate unit, and reductions outside of it.
//!
//! Exact sums are whole numbers of units: 2⁻⁴⁸, the least product of two fp16 values, or the grid's
//! unit. They live in 128 bits.

use crate::{Accumulator, Denormals, Reduction, Rules};

/// Units of exact sums of products in one.
const EXACT: f64 = (1u64 << 48) as f64;

/// The least normal magnitude.
const NORMAL: f32 = 6.103_515_6e-5;

impl Rules {
    /// Units of the product grid in one.
    pub fn grid_scale(&self) -> f32 {
        f32::from(self.grid_bits.min(16)).exp2()
    }

    /// The least magnitude of a sum of products that is infinite.
    #[inline(always)]
    pub fn ceiling(&self) -> f64 {
        self.mac_ceiling.map_or(65536.0, f64::from)
    }

    /// An operand of products as the unit sees it.
    #[inline(always)]
    pub fn operand(&self, x: f32) -> f32 {
        let x = self.enter(x);
        if self.mac_denormals == Denormals::Flush && x.abs() < NORMAL { 0.0 } else { x }
    }

    /// A product of two operands in whole units of the grid: nearest, ties as the rounding says,
    /// tiny ones gone.
    pub fn grid_product(&self, a: f32, b: f32) -> f64 {
        // Exact: 22 bits.
        let units = f64::from(a) * f64::from(b) * f64::from(self.grid_scale());
        if units.abs() < f64::from(self.grid_flush) { 0.0 } else { self.rounding.whole(units) }
    }

    /// The sum of `taps` products of fp16 values, before it is rounded: `term` gives both factors
    /// of each.
    ///
    /// A partial sum that reaches the ceiling stays infinite. With one tap nothing accumulates: the
    /// product is exact, and the ceiling that of fp16 (numerics §4).
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
                    // Whole numbers below 2⁵³, as the ceiling stops them: exact.
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

    /// The exact sum of `count` numbers that fp32 holds and 2⁻⁴⁸ divides.
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

    /// A number, or +0 where it has no value and the rules say so.
    #[inline(always)]
    fn value(&self, x: f64) -> f64 {
        if self.nan_to_inf && x.is_nan() { 0.0 } else { x }
    }

    /// What is left of a sum that went beyond the ceiling.
    fn lost(&self, sum: f64) -> f64 {
        if sum.is_nan() { sum } else { f64::INFINITY.copysign(sum) }
    }

    /// What the unit stores for a sum of `taps` products: bias (as fp16) added, checked against the
    /// ceiling, rounded once.
    #[inline(always)]
    pub fn output(&self, taps: usize, sum: f64, bias: f32) -> f32 {
        let total = sum + f64::from(self.rounding.f32(bias));
        let lost = taps > 1 && total.abs() >= self.ceiling();
        let stored = self.value(if lost { f64::INFINITY.copysign(total) } else { total });
        self.rounding.f64(stored)
    }

    /// A dot product of fp16 values, stored: [`dot`](Self::dot) and [`output`](Self::output). The
    /// shorter one decides.
    pub fn product(&self, a: &[f32], b: &[f32], bias: f32) -> f32 {
        let taps = a.len().min(b.len());
        self.output(taps, self.dot(taps, |i| (a[i], b[i])), bias)
    }

    /// True where no partial sum of `taps` products can reach the ceiling, in any order: by the
    /// Cauchy–Schwarz inequality, from the sums of squares of both operands. Then a sum of grid
    /// units fits 32 bits, and the order does not matter.
    pub fn cannot_overflow(&self, taps: usize, squares: (f64, f64)) -> bool {
        // Each product is off by half a unit at most; the squares are sums of rounded numbers
        // themselves.
        let most = (squares.0 * squares.1).sqrt() * 1.000_001 + taps as f64 / f64::from(self.grid_scale());
        most < self.ceiling().min(32768.0)
    }

    /// The sum of fp16 values outside of products, as fp16.
    pub fn reduce_sum(&self, values: &[f32]) -> f32 {
        match self.reduce_sum {
            Reduction::Wide => self.rounding.f64(self.wide_sum(values)),
            Reduction::Narrow => values.iter().fold(0.0, |sum, &x| self.result(sum + x)),
        }
    }

    /// The exact sum of fp16 values.
    #[inline(always)]
    pub fn wide_sum(&self, values: &[f32]) -> f64 {
        // Multiples of 2⁻²⁴ below 2¹⁶: 4096 of them sum up exactly in 53 bits, in any order.
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

/// One addition inside of a tile: both operands cut to 11 fraction bits of the larger, toward zero
/// (numerics §3.2).
///
/// Without branches, so that a loop over it becomes vector code.
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

/// A sum of products in units of 2⁻⁴⁸, as a number that rounds to the same fp16 value.
pub fn exact_sum(units: i64) -> f64 {
    to_odd(i128::from(units)) / EXACT
}

/// A whole number as an `f64` that rounds to the same fp16 value: truncated to 53 bits, and odd if
/// anything was cut off.
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

    /// M1 as numerics §3.2, §4 and §5 have it.
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
            // An interior partial is lost even if canceled later.
            assert_eq!(with_ones(&rules, &[30000.0, 1.0, 0.0, 0.0, 30000.0, 0.0, 0.0, 0.0, -30000.0]), f32::INFINITY);
            // One tap only: fp16's own range.
            assert_eq!(rules.product(&[300.0], &[200.0], 0.0), 60000.0);
            assert_eq!(rules.product(&[300.0], &[200.0], 32.0), 60032.0);
            assert_eq!(rules.product(&[300.0], &[250.0], 0.0), f32::INFINITY);
            // The bias counts.
            assert_eq!(rules.product(&[16384.0, 16368.0], &[1.0, 1.0], 16.0), f32::INFINITY);
        }
    }

    #[test]
    fn the_grid_moves_small_products() {
        let grid = Rules::published();
        // Numerics §3.1: 0.0005 is 32.78 units, 0.00025 is 16.39; 0.58 and 1.02 units vanish, 1.55
        // become 2.
        let (a, b) = (Rounding::Even.f32(0.0005), Rounding::Even.f32(0.00025));
        assert_eq!((grid.grid_product(1.0, a), grid.grid_product(-1.0, b)), (33.0, -16.0));
        let unit = 1.0 / 65536.0;
        for (units, want) in [(0.58, 0.0), (1.02, 0.0), (1.55, 2.0), (-1.55, -2.0), (2.4, 2.0)] {
            assert_eq!(grid.grid_product(units, unit), want);
        }
        // P·V with P near 2.4e-4: zero whatever the length.
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
        // ANEForge: 2049 reads 2050.
        assert_eq!(narrow.reduce_sum(&[1.0; 2049]), 2050.0);
        let even = Rules { rounding: Rounding::Even, ..narrow };
        // A running fp16 sum stalls where a one is half a step (numerics §3.2).
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
            // Where nothing overflows, order does not matter.
            if sure {
                let forward = rules.product(&a, &b, 0.0);
                let (a, b): (Vec<f32>, Vec<f32>) = a.iter().zip(&b).rev().map(|(&a, &b)| (a, b)).unzip();
                prop_assert_eq!(forward, rules.product(&a, &b, 0.0));
            }
        }
    }
}
