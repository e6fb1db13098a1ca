//! Conversion of numbers between text and the bits of an element type.
//!
//! Invariant: every bit pattern of every type has a spelling that reads back to it, including
//! infinities (`inf`) and NaNs (`nan`, or `nan(0x7e01)` for a pattern other than the default).

use half::{bf16, f16};

use super::fp8;
use crate::program::DataType;

/// Appends the little-endian bytes of a number. `None` if the text is not a number of that type or
/// out of its range; a decimal too large for a float becomes infinite, as in C.
pub(super) fn append(dtype: DataType, text: &str, out: &mut Vec<u8>) -> Option<()> {
    match dtype {
        DataType::Fp16 => out.extend_from_slice(&to_f16(float(text)?).to_le_bytes()),
        DataType::Bf16 => out.extend_from_slice(&to_bf16(float(text)?).to_le_bytes()),
        DataType::Fp32 => {
            let value = match text.parse::<f32>() {
                Ok(v) if decimal(text) => v,
                _ => float(text)? as f32,
            };
            out.extend_from_slice(&value.to_le_bytes());
        }
        DataType::Fp64 => out.extend_from_slice(&float(text)?.to_le_bytes()),
        DataType::Fp8E4M3Fn | DataType::Fp8E5M2 => out.push(fp8::encode(dtype, float(text)?)?),
        _ => {
            let value = integer(text)?;
            let (low, high) = range(dtype)?;
            if value < low || value > high {
                return None;
            }
            let bytes = dtype.bytes().unwrap_or(1);
            out.extend_from_slice(&value.to_le_bytes()[..bytes]);
        }
    }
    Some(())
}

/// The bits of a NaN as `nan(0x7e01)` gives them. `None` if they are no NaN of the type.
pub(super) fn append_nan(dtype: DataType, bits: &str, out: &mut Vec<u8>) -> Option<()> {
    let bits = u64::from_str_radix(bits.strip_prefix("0x")?, 16).ok()?;
    let bytes = dtype.bytes()?;
    let nan = match dtype {
        DataType::Fp16 => f16::from_bits(u16::try_from(bits).ok()?).is_nan(),
        DataType::Bf16 => bf16::from_bits(u16::try_from(bits).ok()?).is_nan(),
        DataType::Fp32 => f32::from_bits(u32::try_from(bits).ok()?).is_nan(),
        DataType::Fp64 => f64::from_bits(bits).is_nan(),
        DataType::Fp8E4M3Fn | DataType::Fp8E5M2 => fp8::decode(dtype, u8::try_from(bits).ok()?).is_nan(),
        _ => false,
    };
    if !nan {
        return None;
    }
    out.extend_from_slice(&bits.to_le_bytes()[..bytes]);
    Some(())
}

/// An integer of a sub-byte type.
pub(super) fn small(dtype: DataType, text: &str) -> Option<i64> {
    let (value, (low, high)) = (integer(text)?, range(dtype)?);
    if value < low || value > high { None } else { i64::try_from(value).ok() }
}

/// What an element of the type is, for a message.
pub(super) fn wanted(dtype: DataType) -> String {
    match dtype {
        DataType::Bool => "a bool, `true` or `false`".into(),
        DataType::String => "a string in double quotes".into(),
        _ => format!("a number of {dtype}"),
    }
}

/// Least and largest value of an integer type that is short enough to be exceeded by mistake.
pub(super) fn limits(dtype: DataType) -> Option<(i128, i128)> {
    range(dtype).filter(|_| dtype.bits().is_some_and(|b| b <= 32))
}

/// Least and largest value of an integer type.
fn range(dtype: DataType) -> Option<(i128, i128)> {
    let bits = dtype.bits()? as u32;
    match dtype {
        DataType::Int4 | DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            Some((-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1))
        }
        DataType::Bool | DataType::String => None,
        d if d.is_int() => Some((0, (1i128 << bits) - 1)),
        _ => None,
    }
}

fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i128::from_str_radix(hex, 16).ok()?,
        None => digits.parse::<i128>().ok()?,
    };
    // A second sign would pass the number parsers.
    if digits.starts_with(['+', '-']) || value < 0 {
        return None;
    }
    Some(if negative { -value } else { value })
}

/// Only digits, sign, point and exponent: what Rust's number parser and C agree on.
fn decimal(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'))
}

fn float(text: &str) -> Option<f64> {
    let (sign, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if magnitude.starts_with(['+', '-']) {
        return None;
    }
    let value = match magnitude.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => f64::NAN,
        hex if hex.starts_with("0x") => hex_float(&hex[2..])?,
        _ => {
            // `1.0f` is C, too.
            let digits = magnitude.strip_suffix(['f', 'F']).unwrap_or(magnitude);
            if !decimal(digits) {
                return None;
            }
            digits.parse::<f64>().ok()?
        }
    };
    Some(if sign < 0.0 { -value } else { value })
}

/// C99 hex floats after `0x`: `1.8p-3`, `ff`, `.8p1`. At most 53 significant bits count; the rest
/// is cut off with a sticky bit.
fn hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.split_once('p') {
        Some((m, e)) => (m, e.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut value, mut scale) = (0u128, i64::from(exponent));
    for (i, c) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u128::from(c.to_digit(16)?);
        let behind_point = i >= whole.len();
        if value >> 120 == 0 {
            value = value * 16 + digit;
            scale -= if behind_point { 4 } else { 0 };
        } else {
            value |= u128::from(digit != 0);
            scale += if behind_point { 0 } else { 4 };
        }
    }
    if value == 0 {
        // A large exponent is infinite as a factor.
        return Some(0.0);
    }
    // `value` has at most 124 bits, so the product is rounded once by the cast, unless it is
    // subnormal in fp64.
    let scale = i32::try_from(scale.clamp(-5000, 5000)).ok()?;
    let half = scale / 2;
    Some(value as f64 * 2f64.powi(half) * 2f64.powi(scale - half))
}

/// The fp64 value truncated to fp32, with the last bit set if bits were lost (round to odd):
/// rounding it to a shorter type then gives the same result as rounding the fp64 value.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if !value.is_finite() || f64::from(nearest) == value {
        return nearest;
    }
    let cut = if nearest.is_infinite() || f64::from(nearest.abs()) > value.abs() {
        f32::from_bits(nearest.to_bits() - 1)
    } else {
        nearest
    };
    f32::from_bits(cut.to_bits() | 1)
}

/// Rounded once, to nearest even.
fn to_f16(value: f64) -> f16 {
    if value.is_nan() {
        f16::NAN.copysign(if value.is_sign_negative() { f16::NEG_ONE } else { f16::ONE })
    } else {
        f16::from_f32(to_odd(value))
    }
}

fn to_bf16(value: f64) -> bf16 {
    if value.is_nan() {
        bf16::NAN.copysign(if value.is_sign_negative() { bf16::NEG_ONE } else { bf16::ONE })
    } else {
        bf16::from_f32(to_odd(value))
    }
}

/// The spelling of one element of whole bytes.
pub(super) fn spell(dtype: DataType, b: &[u8], out: &mut String) {
    use std::fmt::Write as _;
    let mut word = [0u8; 8];
    let n = b.len().min(8);
    word[..n].copy_from_slice(&b[..n]);
    let bits = u64::from_le_bytes(word);
    // Writing to a string cannot fail.
    let _ = match dtype {
        DataType::Bool => write!(out, "{}", bits != 0),
        DataType::Fp16 => {
            let v = f16::from_bits(bits as u16);
            spell_float(out, v.to_f64(), bits, v.is_nan() && v.to_bits() != f16::NAN.to_bits(), |s| {
                to_f16(s).to_bits() == v.to_bits()
            })
        }
        DataType::Bf16 => {
            let v = bf16::from_bits(bits as u16);
            spell_float(out, v.to_f64(), bits, v.is_nan() && v.to_bits() != bf16::NAN.to_bits(), |s| {
                to_bf16(s).to_bits() == v.to_bits()
            })
        }
        DataType::Fp32 => {
            let v = f32::from_bits(bits as u32);
            match v.is_nan() && v.to_bits() != f32::NAN.to_bits() {
                true => write!(out, "nan({bits:#x})"),
                false if v.is_nan() => write!(out, "nan"),
                false => write!(out, "{v:?}"),
            }
        }
        DataType::Fp64 => {
            let v = f64::from_bits(bits);
            match v.is_nan() && v.to_bits() != f64::NAN.to_bits() {
                true => write!(out, "nan({bits:#x})"),
                false if v.is_nan() => write!(out, "nan"),
                false => write!(out, "{v:?}"),
            }
        }
        DataType::Fp8E4M3Fn | DataType::Fp8E5M2 => {
            let v = fp8::decode(dtype, bits as u8);
            let usual = fp8::encode(dtype, f64::NAN) == Some(bits as u8);
            spell_float(out, v, bits, v.is_nan() && !usual, |s| fp8::encode(dtype, s) == Some(bits as u8))
        }
        DataType::Int8 => write!(out, "{}", bits as i8),
        DataType::Int16 => write!(out, "{}", bits as i16),
        DataType::Int32 => write!(out, "{}", bits as i32),
        DataType::Int64 => write!(out, "{}", bits as i64),
        _ => write!(out, "{bits}"),
    };
}

/// The shortest decimal that reads back to the value, as `same` decides.
fn spell_float(out: &mut String, v: f64, bits: u64, odd_nan: bool, same: impl Fn(f64) -> bool) -> std::fmt::Result {
    use std::fmt::Write as _;
    if odd_nan {
        return write!(out, "nan({bits:#x})");
    }
    if v.is_nan() {
        return write!(out, "nan");
    }
    for digits in 0..9 {
        let short = format!("{v:.digits$e}").parse::<f64>().unwrap_or(v);
        if same(short) {
            return write!(out, "{short:?}");
        }
    }
    write!(out, "{v:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dtype: DataType, text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        append(dtype, text, &mut out)?;
        Some(out)
    }

    fn round_trip(dtype: DataType, bytes: &[u8]) {
        let mut text = String::new();
        spell(dtype, bytes, &mut text);
        let back = match text.strip_prefix("nan(").and_then(|t| t.strip_suffix(')')) {
            Some(bits) => {
                let mut out = Vec::new();
                append_nan(dtype, bits, &mut out).map(|()| out)
            }
            None => read(dtype, &text),
        };
        assert_eq!(back.as_deref(), Some(bytes), "{dtype} {text}");
    }

    #[test]
    fn every_16_bit_pattern_reads_back() {
        for bits in 0..=u16::MAX {
            for dtype in [DataType::Fp16, DataType::Bf16, DataType::Int16, DataType::UInt16] {
                round_trip(dtype, &bits.to_le_bytes());
            }
        }
    }

    #[test]
    fn every_8_bit_pattern_reads_back() {
        for bits in 0..=u8::MAX {
            for dtype in [DataType::Fp8E4M3Fn, DataType::Fp8E5M2, DataType::Int8, DataType::UInt8] {
                round_trip(dtype, &[bits]);
            }
        }
    }

    #[test]
    fn wide_patterns_read_back() {
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            for dtype in [DataType::Fp32, DataType::Int32, DataType::UInt32] {
                round_trip(dtype, &((state >> 32) as u32).to_le_bytes());
            }
            for dtype in [DataType::Fp64, DataType::Int64, DataType::UInt64] {
                round_trip(dtype, &state.to_le_bytes());
            }
        }
        for special in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE / 8.0] {
            round_trip(DataType::Fp32, &special.to_le_bytes());
        }
    }

    #[test]
    fn reads_what_c_writes() {
        for zero in ["0x0p99999", "0x0.0p-99999", "-0x0p99999"] {
            assert_eq!(float(zero), Some(0.0), "{zero}");
        }
        let f16 = |t: &str| read(DataType::Fp16, t).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32());
        assert_eq!(f16("0.125000"), Some(0.125));
        assert_eq!(f16("0x1p-3"), Some(0.125));
        assert_eq!(f16("-0x1.8p+1"), Some(-3.0));
        assert_eq!(f16("-1"), Some(-1.0));
        assert_eq!(f16("0.5f"), Some(0.5));
        assert_eq!(f16("-65504"), Some(-65504.0));
        assert_eq!(f16("1e9"), Some(f32::INFINITY));
        // A subnormal: 168 steps of 2^-24 (mil-text §5).
        assert_eq!(read(DataType::Fp16, "0.00001"), Some(vec![168, 0]));
        // Slightly above the midpoint of 1 and 1 + 2^-10: rounding to fp32 first would lose the
        // difference and round to even.
        assert_eq!(f16("1.00048828126"), Some(1.0 + 1.0 / 1024.0));
        assert_eq!(f16("1.000488281250001"), Some(1.0 + 1.0 / 1024.0));
        for bad in ["", "-", "1.2.3", "0x", "0xp1", "--1", "abc", "1e", "1_0"] {
            assert_eq!(f16(bad), None, "{bad}");
        }
        assert_eq!(read(DataType::Int8, "128"), None);
        assert_eq!(read(DataType::Int8, "-128"), Some(vec![0x80]));
        assert_eq!(read(DataType::UInt64, "18446744073709551615"), Some(vec![255; 8]));
        assert_eq!(read(DataType::Int32, "1.0"), None);
        assert_eq!(read(DataType::Int32, "0x10"), Some(vec![16, 0, 0, 0]));
        assert_eq!(read(DataType::Int32, "99999999999999999999999999999999999999999999"), None);
    }
}
