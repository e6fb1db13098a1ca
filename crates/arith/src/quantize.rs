//! The arithmetic of `quantize` and `dequantize` (int8 §2).

use crate::Rounding;

/// The code of a value: round(x / scale) + zero point, clamped to `low..=high`. The quotient is
/// rounded once, to a whole number. A NaN gives code 0.
pub fn quantize(rounding: Rounding, x: f32, scale: f32, zero: f32, low: i32, high: i32) -> i32 {
    let code = rounding.whole(f64::from(x) / f64::from(scale)) + f64::from(zero);
    // `as` saturates.
    (code.max(f64::from(low)).min(f64::from(high))) as i32
}

/// The value of a code: (code - zero point) · scale in fp32, not rounded to fp16.
pub fn dequantize(code: i32, scale: f32, zero: f32) -> f32 {
    (code as f32 - zero) * scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half;

    #[test]
    fn every_finite_value_goes_half_away() {
        // int8 §2: 63,488 values at scale 1; ties to even would give another code for 128 of them.
        let (mut count, mut parted) = (0, 0);
        for bits in (0..=u16::MAX).filter(|b| b & 0x7C00 != 0x7C00) {
            let x = half(bits);
            let away = quantize(Rounding::Away, x, 1.0, 0.0, -128, 127);
            assert_eq!(away, x.round().clamp(-128.0, 127.0) as i32, "{x}");
            count += 1;
            parted += i32::from(away != quantize(Rounding::Even, x, 1.0, 0.0, -128, 127));
        }
        // Each of ±0.5, ±2.5 … ±126.5 differs; -128.5 is clamped.
        assert_eq!((count, parted), (63_488, 128));
    }

    #[test]
    fn codes_at_an_eighth() {
        let code = |x| quantize(Rounding::Away, x, 0.125, 0.0, -128, 127);
        assert_eq!((code(0.0625), code(-0.0625), code(0.1875)), (1, -1, 2));
        assert_eq!((code(1e4), code(f32::NEG_INFINITY)), (127, -128));
        assert_eq!(dequantize(-3, 0.5, 1.0), -2.0);
    }
}
