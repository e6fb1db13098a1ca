//! Levels at equal distances: the scale of a block, and its bias, if any.

use half::f16;

/// Divisors of the value of largest magnitude that are tried as the scale of a block of int4
/// codes. A scale that spends a code on the largest weight alone is rarely the best one; negative
/// divisors make −8 the code of the largest weight.
const DIVISORS: [f32; 15] = [-8.0, 7.0, -7.5, 7.25, -8.25, 7.5, -8.5, 7.75, -8.75, 8.0, -9.0, 8.5, -9.5, 9.0, -10.0];
/// Parts of the range of a block that are tried as the range of its affine codes, at either end.
const SHRINKS: [f32; 5] = [1.0, 0.95, 0.9, 0.85, 0.8];
/// Most steps that move a scale to the least squares solution of the codes that it gives.
const REFINEMENTS: usize = 3;

/// Equidistant levels, `scale · code + bias`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LevelGrid {
    pub(super) scale: f32,
    pub(super) bias: f32,
    pub(super) low: i32,
    pub(super) high: i32,
}

impl LevelGrid {
    /// The code of the nearest level, ties to even; 0 without a scale.
    #[inline]
    pub(super) fn nearest(self, value: f32) -> i32 {
        if self.scale == 0.0 {
            return 0;
        }
        // The conversion saturates, and an infinite quotient is cut off.
        (((value - self.bias) / self.scale).round_ties_even() as i32).clamp(self.low, self.high)
    }

    /// The level of a code, computed as the readers of the files do.
    #[inline]
    pub(super) fn level(self, code: i32) -> f32 {
        self.scale * code as f32 + self.bias
    }

    fn error(self, values: &[f32], weights: Option<&[f32]>) -> f64 {
        let square = |value: f32| {
            let error = f64::from(value - self.level(self.nearest(value)));
            error * error
        };
        match weights {
            None => values.iter().map(|value| square(*value)).sum(),
            Some(weights) => values.iter().zip(weights).map(|(value, w)| f64::from(*w) * square(*value)).sum(),
        }
    }

    fn is_exact(self, values: &[f32]) -> bool {
        values.iter().all(|value| self.level(self.nearest(*value)) == *value)
    }
}

/// The candidate with the least error so far.
struct Best<T> {
    error: f64,
    candidate: T,
}

impl<T> Best<T> {
    fn consider(&mut self, candidate: T, error: f64) {
        if error < self.error {
            *self = Best { error, candidate };
        }
    }
}

/// The lowest and the highest signed code of `bits` bits. At 8 bits −128 is not used, so that the
/// largest magnitude has a code on either side.
pub(super) fn signed(bits: u32) -> (i32, i32) {
    if bits == 8 { (-127, 127) } else { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) }
}

/// The value of largest magnitude, the first of several.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most: f32, value| if value.abs() > most.abs() { *value } else { most })
}

/// The scale of signed codes for a block. Eight bits need no search: their error is that of the
/// largest weight divided by 127.
pub(super) fn fit_scale(values: &[f32], weights: Option<&[f32]>, bits: u32) -> f16 {
    let (low, high) = signed(bits);
    let extreme = extreme(values);
    let grid = |scale: f16| LevelGrid { scale: scale.to_f32(), bias: 0.0, low, high };
    if bits == 8 {
        return f16::from_f32(extreme.abs() / high as f32);
    }
    let mut best = Best { error: f64::INFINITY, candidate: f16::ZERO };
    for divisor in DIVISORS {
        let scale = f16::from_f32(extreme / divisor);
        best.consider(scale, grid(scale).error(values, weights));
    }
    for _ in 0..REFINEMENTS {
        let scale = best.candidate;
        let (mut product, mut square) = (0.0f64, 0.0f64);
        for (i, value) in values.iter().enumerate() {
            let code = f64::from(grid(scale).nearest(*value));
            let weight = weights.map_or(1.0, |weights| f64::from(weights[i]));
            product += weight * code * f64::from(*value);
            square += weight * code * code;
        }
        if square == 0.0 {
            break;
        }
        let refined = f16::from_f64(product / square);
        best.consider(refined, grid(refined).error(values, weights));
        if best.candidate == scale {
            break;
        }
    }
    best.candidate
}

/// The scale with the smallest codes that reproduces a block, if there is one. The block's value of
/// largest magnitude has one of the codes, so its quotients are all the scales there can be.
pub(super) fn exact_scale(values: &[f32], bits: u32) -> Option<f16> {
    let (low, high) = signed(bits);
    let extreme = extreme(values);
    if extreme == 0.0 {
        return Some(f16::ZERO);
    }
    let positive = (1..=high).map(|code| extreme.abs() / code as f32);
    // A code that only one side has.
    let scales = positive.chain((low < -high).then(|| extreme / low as f32));
    scales.filter(|scale| f16::from_f32(*scale).to_f32() == *scale).find_map(|scale| {
        let grid = LevelGrid { scale, bias: 0.0, low, high };
        grid.is_exact(values).then_some(f16::from_f32(scale))
    })
}

/// The lowest and the highest value.
fn range(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

/// Scale and bias of codes from 0 on for a block.
pub(super) fn fit_affine(values: &[f32], weights: Option<&[f32]>, bits: u32) -> (f16, f16) {
    let ((low, high), most) = (range(values), (1 << bits) - 1);
    let grid = |scale: f16, bias: f16| LevelGrid { scale: scale.to_f32(), bias: bias.to_f32(), low: 0, high: most };
    let middle = (low + high) / 2.0;
    let mut best = Best { error: f64::INFINITY, candidate: (f16::ZERO, f16::from_f32(middle)) };
    let error = |(scale, bias): (f16, f16)| grid(scale, bias).error(values, weights);
    for below in SHRINKS {
        for above in SHRINKS {
            let (low, high) = (middle + (low - middle) * below, middle + (high - middle) * above);
            let pair = (f16::from_f32((high - low) / most as f32), f16::from_f32(low));
            best.consider(pair, error(pair));
        }
    }
    for _ in 0..REFINEMENTS {
        let (scale, bias) = best.candidate;
        // The line of least squares through codes and values.
        let (mut n, mut x, mut y, mut xx, mut xy) = (0.0f64, 0.0f64, 0.0f64, 0.0f64, 0.0f64);
        for (i, value) in values.iter().enumerate() {
            let (code, value) = (f64::from(grid(scale, bias).nearest(*value)), f64::from(*value));
            let weight = weights.map_or(1.0, |weights| f64::from(weights[i]));
            n += weight;
            x += weight * code;
            y += weight * value;
            xx += weight * code * code;
            xy += weight * code * value;
        }
        let determinant = n * xx - x * x;
        if determinant <= 0.0 {
            break;
        }
        let slope = (n * xy - x * y) / determinant;
        let pair = (f16::from_f64(slope), f16::from_f64((y - slope * x) / n));
        if pair.0.is_finite() && pair.1.is_finite() {
            best.consider(pair, error(pair));
        }
        if best.candidate == (scale, bias) {
            break;
        }
    }
    best.candidate
}

/// Scale and bias that reproduce a block, if there are any: those with the fewest steps between the
/// lowest and the highest value, and with the lowest codes.
pub(super) fn exact_affine(values: &[f32], bits: u32) -> Option<(f16, f16)> {
    let ((low, high), most) = (range(values), (1i32 << bits) - 1);
    if low == high {
        let bias = f16::from_f32(low);
        return (bias.to_f32() == low).then_some((f16::ZERO, bias));
    }
    (1..=most).find_map(|steps| {
        let scale = f16::from_f32((high - low) / steps as f32);
        (0..=most - steps).find_map(|first| {
            let bias = f16::from_f32(low - scale.to_f32() * first as f32);
            let grid = LevelGrid { scale: scale.to_f32(), bias: bias.to_f32(), low: 0, high: most };
            (grid.scale > 0.0 && grid.is_exact(values)).then_some((scale, bias))
        })
    })
}
