//! The two 8-bit floats of MIL: `fp8e4m3fn` (bias 7, no infinity, one NaN of each sign) and
//! `fp8e5m2` (the upper byte of an fp16).
//!
//! Only text needs their values; everything else moves the packed bytes.

use half::f16;

use crate::program::DataType;

/// The value of a pattern.
pub(super) fn decode(dtype: DataType, bits: u8) -> f64 {
    if dtype == DataType::Fp8E5M2 {
        return f16::from_bits(u16::from(bits) << 8).to_f64();
    }
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * mantissa * 2f64.powi(-9),
        _ => sign * (8.0 + mantissa) * 2f64.powi(exponent - 10),
    }
}

/// The pattern of a value, rounded to nearest even. `None` where the type has none: `fp8e4m3fn`
/// ends at 448 and has no infinity.
pub(super) fn encode(dtype: DataType, value: f64) -> Option<u8> {
    let wide = dtype == DataType::Fp8E5M2;
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    if value.is_nan() {
        return Some(sign | if wide { 0x7e } else { 0x7f });
    }
    let (magnitude, last) = (value.abs(), if wide { 0x7b } else { 0x7e });
    // The finite patterns are ordered like their values. After the last one, rounding treats the
    // next pattern as one more value.
    let (mut low, mut high) = (0u8, last);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if decode(dtype, middle) <= magnitude { low = middle } else { high = middle - 1 }
    }
    let below = decode(dtype, low);
    let step = if low == last { below - decode(dtype, last - 1) } else { decode(dtype, low + 1) - below };
    let rest = magnitude - below;
    let up = rest > step / 2.0 || (rest == step / 2.0 && low % 2 == 1);
    match (up, low == last) {
        (true, true) if wide => Some(sign | 0x7c),
        (true, true) => None,
        _ => Some(sign | (low + u8::from(up))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::{Fp8E4M3Fn, Fp8E5M2};

    /// Values that `ml_dtypes` gives for the same patterns and numbers.
    #[test]
    fn agrees_with_the_published_tables() {
        for (bits, value) in [(0x01, 0.001953125), (0x08, 0.015625), (0x38, 1.0), (0x7e, 448.0), (0xc4, -3.0)] {
            assert_eq!(decode(Fp8E4M3Fn, bits), value);
            assert_eq!(encode(Fp8E4M3Fn, value), Some(bits));
        }
        for (bits, value) in [(0x01, 1.52587890625e-05), (0x3c, 1.0), (0x7b, 57344.0), (0xc2, -3.0)] {
            assert_eq!(decode(Fp8E5M2, bits), value);
            assert_eq!(encode(Fp8E5M2, value), Some(bits));
        }
    }

    #[test]
    fn rounds_to_even_and_ends_where_the_type_ends() {
        // Between 1 and 1.125 in e4m3, between 1 and 1.25 in e5m2.
        assert_eq!([1.0625, 1.063, 1.1875].map(|v| encode(Fp8E4M3Fn, v)), [Some(0x38), Some(0x39), Some(0x3a)]);
        assert_eq!([1.125, 1.13, 1.375].map(|v| encode(Fp8E5M2, v)), [Some(0x3c), Some(0x3d), Some(0x3e)]);
        assert_eq!([464.0, 464.1, f64::INFINITY].map(|v| encode(Fp8E4M3Fn, v)), [Some(0x7e), None, None]);
        assert_eq!([61439.0, 61440.0, f64::INFINITY].map(|v| encode(Fp8E5M2, v)), [Some(0x7b), Some(0x7c), Some(0x7c)]);
        assert_eq!(encode(Fp8E4M3Fn, -0.0), Some(0x80));
    }
}
