//! Softmax, composed as the engine does (numerics §6.2).

use crate::Rules;

impl Rules {
    /// Softmax of a row of fp16 values, in place: subtract the maximum, exponential, wide sum,
    /// reciprocal, product.
    ///
    /// With tables, the difference, the exponential, the reciprocal and the product are each
    /// rounded to fp16, and the sum is not rounded. Without tables, every result is exact and
    /// rounded once.
    pub fn softmax(&self, row: &mut [f32]) {
        if self.tables {
            return self.softmax_with(row, |x| self.exp(x));
        }
        let most = largest(row);
        let total: f64 = row.iter().map(|&x| f64::from(x - most).exp()).sum();
        for x in row {
            *x = self.rounding.f64(f64::from(*x - most).exp() / total);
        }
    }

    /// The variant with tables, with `exp` computed by the caller: it must return e to the power of
    /// any fp16 value under these rules.
    #[inline(always)]
    pub fn softmax_with(&self, row: &mut [f32], exp: impl Fn(f32) -> f32) {
        let most = largest(row);
        for x in row.iter_mut() {
            *x = exp(self.result(*x - most));
        }
        let scale = self.reciprocal(self.wide_sum(row));
        for x in row {
            *x = self.result(*x * scale);
        }
    }
}

#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    let more = |most: f32, x: f32| if x > most { x } else { most };
    let mut lanes = [f32::NEG_INFINITY; 16];
    let whole = row.chunks_exact(16);
    for (lane, &x) in lanes.iter_mut().zip(whole.remainder()) {
        *lane = more(*lane, x);
    }
    for chunk in whole {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = more(*lane, x);
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_as_published() {
        // Numerics §5.
        let device = Rules::published();
        let mut row = [1000.0, 1.0, 2.0, 3.0];
        device.softmax(&mut row);
        assert_eq!(row, [1.0, 0.0, 0.0, 0.0]);
        for x in [0.0, -7.5, 65504.0] {
            let mut row = [x; 4];
            device.softmax(&mut row);
            assert_eq!(row, [0.25; 4]);
        }
        // NaN enters as infinity, and its element becomes 1.
        let mut row = [1.0, device.enter(f32::NAN), -3.0];
        device.softmax(&mut row);
        assert_eq!(row, [0.0, 1.0, 0.0]);
    }

    #[test]
    fn the_clean_engine_rounds_once() {
        let mut row = [0.0, 1.0];
        Rules::default().softmax(&mut row);
        // e/(1+e) = 0.7310586.
        assert_eq!(row, [crate::Rounding::Even.f64(0.268_941_421_37), crate::Rounding::Even.f64(0.731_058_578_63)]);
    }
}
