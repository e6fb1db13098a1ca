//! Units in the last place: how many values of an element type lie between two of them.
//!
//! The finite values of a float type and its infinities, in their order, are numbered: zero is 0,
//! whatever its sign, the smallest subnormal is 1, and so on up to infinity, which is one beyond
//! the largest finite value; negative values have the negative numbers. The distance of two values
//! is the difference of their numbers, so it does not jump at powers of two, counts across zero,
//! and needs no rounding. The distance of two NaNs is 0; a NaN and a number are not comparable.
//! Integers are their own numbers.

use ferrane_mil::DataType;

/// The place of an element in the order of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A number, or an infinity.
    At(i128),
    /// A NaN of any pattern.
    Nan,
}

/// The place of an element that is given by its little-endian bytes. `None` for a type whose
/// elements are not whole bytes, and for another number of bytes than it has.
pub fn place(dtype: DataType, bytes: &[u8]) -> Option<Place> {
    if dtype.bytes() != Some(bytes.len()) || bytes.len() > 8 {
        return None;
    }
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let bits = u64::from_le_bytes(word);
    let width = bytes.len() as u32 * 8;
    // The pattern of the largest number: infinity, or where there is none the largest finite value.
    let last = match dtype {
        DataType::Fp16 => 0x7C00,
        DataType::Bf16 => 0x7F80,
        DataType::Fp32 => 0x7F80_0000,
        DataType::Fp64 => 0x7FF0_0000_0000_0000,
        DataType::Fp8E5M2 => 0x7C,
        DataType::Fp8E4M3Fn => 0x7E,
        DataType::Bool | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            return Some(Place::At(i128::from(bits)));
        }
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let unused = 64 - width;
            return Some(Place::At(i128::from((bits << unused) as i64 >> unused)));
        }
        _ => return None,
    };
    let sign = 1u64 << (width - 1);
    let magnitude = bits & (sign - 1);
    Some(match magnitude > last {
        true => Place::Nan,
        false if bits & sign != 0 => Place::At(-i128::from(magnitude)),
        false => Place::At(i128::from(magnitude)),
    })
}

/// The distance of two elements. `None` if one is a NaN and the other is not.
pub fn distance(a: Place, b: Place) -> Option<u64> {
    match (a, b) {
        (Place::Nan, Place::Nan) => Some(0),
        // Places have at most 64 bits and a sign, so their difference fits but for a doubled 64-bit
        // one, which no type has.
        (Place::At(a), Place::At(b)) => Some(u64::try_from(a.abs_diff(b)).unwrap_or(u64::MAX)),
        _ => None,
    }
}

/// The value of an element as a float: exact but for 64-bit integers. `None` as for [`place`].
pub fn value(dtype: DataType, bytes: &[u8]) -> Option<f64> {
    let at = match place(dtype, bytes)? {
        Place::Nan => return Some(f64::NAN),
        Place::At(at) => at,
    };
    // Fraction bits, and the exponent of the lowest one of a subnormal.
    let (fraction, lowest) = match dtype {
        DataType::Fp16 => (10, -24),
        DataType::Bf16 => (7, -133),
        DataType::Fp32 => (23, -149),
        DataType::Fp8E5M2 => (2, -16),
        DataType::Fp8E4M3Fn => (3, -9),
        DataType::Fp64 => return Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        _ => return Some(at as f64),
    };
    let magnitude = at.unsigned_abs() as u64;
    let (exponent, bits) = (magnitude >> fraction, magnitude & ((1 << fraction) - 1));
    let infinite = matches!(
        (dtype, magnitude),
        (DataType::Fp16, 0x7C00) | (DataType::Bf16, 0x7F80) | (DataType::Fp32, 0x7F80_0000) | (DataType::Fp8E5M2, 0x7C)
    );
    let size = match exponent {
        _ if infinite => f64::INFINITY,
        0 => bits as f64 * 2f64.powi(lowest),
        _ => (bits + (1 << fraction)) as f64 * 2f64.powi(lowest + exponent as i32 - 1),
    };
    let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
    Some(if negative { -size } else { size })
}

#[cfg(test)]
mod tests {
    use ferrane_host::f16;
    use proptest::prelude::*;

    use super::*;

    fn half(v: f64) -> Place {
        place(DataType::Fp16, &f16::from_f64(v).to_le_bytes()).unwrap()
    }

    fn single(v: f32) -> Place {
        place(DataType::Fp32, &v.to_le_bytes()).unwrap()
    }

    #[test]
    fn neighbors_are_one_apart() {
        // The spacing of fp16 between 1 and 2 is 2^-10, below 1 it is 2^-11, and between subnormals
        // 2^-24.
        assert_eq!(distance(half(1.0), half(1.0 + 2f64.powi(-10))), Some(1));
        assert_eq!(distance(half(1.0), half(1.0 - 2f64.powi(-11))), Some(1));
        assert_eq!(distance(half(1.0), half(2.0)), Some(1024));
        assert_eq!(distance(half(0.0), half(2f64.powi(-24))), Some(1));
        assert_eq!(distance(half(-2f64.powi(-24)), half(2f64.powi(-24))), Some(2));
        assert_eq!(distance(half(0.0), half(-0.0)), Some(0));
        assert_eq!(distance(half(65504.0), half(f64::INFINITY)), Some(1));
        assert_eq!(distance(half(f64::NEG_INFINITY), half(f64::INFINITY)), Some(2 * 0x7C00));
        assert_eq!(distance(half(f64::NAN), half(f64::NAN)), Some(0));
        assert_eq!(distance(half(f64::NAN), half(f64::INFINITY)), None);
        assert_eq!(distance(single(1.0), single(1.0 + f32::EPSILON)), Some(1));
        let int = |v: i64| place(DataType::Int64, &v.to_le_bytes()).unwrap();
        assert_eq!(distance(int(i64::MIN), int(i64::MAX)), Some(u64::MAX));
        assert_eq!(place(DataType::Int8, &[0xFF]), Some(Place::At(-1)));
        assert_eq!(place(DataType::UInt8, &[0xFF]), Some(Place::At(255)));
        assert_eq!((place(DataType::Int4, &[0]), place(DataType::Fp16, &[0])), (None, None));
    }

    /// Every pattern of the small types has the value that `half` or the definition of the type
    /// says.
    #[test]
    fn values_are_those_of_the_types() {
        for bits in 0..=u16::MAX {
            let found = value(DataType::Fp16, &bits.to_le_bytes()).unwrap();
            let wanted = f16::from_bits(bits).to_f64();
            assert!(found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()), "{bits:#x}");
            let found = value(DataType::Bf16, &bits.to_le_bytes()).unwrap();
            let wanted = f64::from(f32::from_bits(u32::from(bits) << 16));
            assert!(found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()), "{bits:#x}");
        }
        // fp8e4m3fn: bias 7, largest 448, no infinity; fp8e5m2 is the upper byte of an fp16.
        for (bits, wanted) in [(0x38, 1.0), (0x7E, 448.0), (0x01, 2f64.powi(-9)), (0xC0, -2.0)] {
            assert_eq!(value(DataType::Fp8E4M3Fn, &[bits]), Some(wanted));
        }
        assert!(value(DataType::Fp8E4M3Fn, &[0xFF]).unwrap().is_nan());
        assert_eq!(value(DataType::Fp8E5M2, &[0x7C]), Some(f64::INFINITY));
        assert_eq!(value(DataType::Fp32, &(-1.5f32).to_le_bytes()), Some(-1.5));
        assert_eq!(value(DataType::Int16, &(-3i16).to_le_bytes()), Some(-3.0));
    }

    proptest! {
        /// Symmetric, zero for the same value only, additive along the order, and the same on both
        /// sides of zero.
        #[test]
        fn a_distance_is_a_metric_of_the_order(a: f32, b: f32, c: f32) {
            let mut sorted = [a, b, c].map(|v| if v.is_nan() { 0.0 } else { v });
            sorted.sort_by(f32::total_cmp);
            let [low, middle, high] = sorted.map(single);
            let d = |a, b| distance(a, b).unwrap();
            prop_assert_eq!(d(low, high), d(high, low));
            prop_assert_eq!(d(low, middle) + d(middle, high), d(low, high));
            prop_assert_eq!(d(low, high) == 0, sorted[0] == sorted[2]);
            prop_assert_eq!(d(single(-sorted[0]), single(-sorted[2])), d(low, high));
            prop_assert_eq!(d(single(-sorted[0]), low), 2 * d(single(0.0), low));
            prop_assert_eq!(d(single(f32::INFINITY), single(f32::NEG_INFINITY)), d(single(f32::INFINITY), low) + d(low, single(f32::NEG_INFINITY)));
        }

        /// The next value of the type is one further.
        #[test]
        fn steps_are_ones(bits: u16) {
            let here = f16::from_bits(bits);
            prop_assume!(!here.is_nan() && here != f16::INFINITY);
            let next = (0..=u16::MAX).map(f16::from_bits).filter(|v| *v > here).min_by(|a, b| a.total_cmp(b)).unwrap();
            let place = |v: f16| place(DataType::Fp16, &v.to_le_bytes()).unwrap();
            prop_assert_eq!(distance(place(here), place(next)), Some(1));
            prop_assert!(matches!((place(here), place(next)), (Place::At(a), Place::At(b)) if a < b));
        }
    }
}
