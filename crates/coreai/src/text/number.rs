//! Numbers as MLIR prints them.

use half::{bf16, f16};

use crate::dialect::ElementType;

/// The number that `bits` are in `width` bits.
pub(super) fn integer(bits: u64, width: u64, signed: bool) -> String {
    let unused = 64 - width.clamp(1, 64) as u32;
    let bits = bits << unused;
    if signed { ((bits as i64) >> unused).to_string() } else { (bits >> unused).to_string() }
}

/// A floating-point number of 16, 32 or 64 bits; any other width as bits.
pub(super) fn float(bits: u64, width: u64) -> String {
    let format = match width {
        16 => &F16,
        32 => &F32,
        64 => &F64,
        _ => return hexadecimal(bits, width),
    };
    format.text(bits)
}

/// An element of a tensor, from its bytes.
pub(super) fn element(bytes: &[u8], element: ElementType) -> String {
    let mut word = [0; 8];
    word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let bits = u64::from_le_bytes(word);
    match element {
        ElementType::Bool | ElementType::UInt1 => (bits & 1 == 1).to_string(),
        ElementType::Float64 => F64.text(bits),
        ElementType::Float32 => F32.text(bits),
        ElementType::Float16 => F16.text(bits),
        ElementType::BFloat16 => BF16.text(bits),
        ElementType::Float8E5M2 => F8E5M2.text(bits),
        ElementType::Float8E4M3FN => F8E4M3FN.text(bits),
        ElementType::Float8E8M0FNU => F8E8M0FNU.text(bits),
        ElementType::Float4E2M1FN => F4E2M1FN.text(bits),
        ElementType::Complex64 => format!("({},{})", F32.text(bits & 0xffff_ffff), F32.text(bits >> 32)),
        ElementType::Int64
        | ElementType::Int32
        | ElementType::Int16
        | ElementType::Int8
        | ElementType::Int4
        | ElementType::Int2 => integer(bits, u64::from(element.bits()), true),
        ElementType::UInt64
        | ElementType::UInt32
        | ElementType::UInt16
        | ElementType::UInt8
        | ElementType::UInt6
        | ElementType::UInt4
        | ElementType::UInt3
        | ElementType::UInt2 => integer(bits, u64::from(element.bits()), false),
    }
}

/// The number of an element of fewer than 16 bits; NaN for other types.
pub(crate) fn small_float(bits: u64, element: ElementType) -> f64 {
    let format = match element {
        ElementType::Float8E5M2 => &F8E5M2,
        ElementType::Float8E4M3FN => &F8E4M3FN,
        ElementType::Float8E8M0FNU => &F8E8M0FNU,
        ElementType::Float4E2M1FN => &F4E2M1FN,
        _ => return f64::NAN,
    };
    // Of these formats, only f8E5M2 has infinities.
    match (element, bits & 0xff) {
        (ElementType::Float8E5M2, 0x7c) => f64::INFINITY,
        (ElementType::Float8E5M2, 0xfc) => f64::NEG_INFINITY,
        _ => format.value(bits & (u64::MAX >> (64 - format.width))),
    }
}

fn hexadecimal(bits: u64, width: u64) -> String {
    format!("0x{bits:0digits$X}", digits = width.div_ceil(4) as usize)
}

/// A format of floating-point numbers.
struct FloatFormat {
    /// The number of bits of sign, exponent and mantissa.
    width: u32,
    /// Bits of the exponent.
    exponent: u32,
    /// Bits of the mantissa that are stored.
    mantissa: u32,
    /// Which bits are no finite number.
    special: Special,
    /// The bits of the number that is nearest to a decimal.
    parse: fn(&str) -> Option<u64>,
}

#[derive(PartialEq, Eq)]
enum Special {
    /// The largest exponent has infinities and NaN.
    Ieee,
    /// All ones, whatever the sign, are NaN.
    OnesAreNan,
    /// All bits are numbers.
    Nothing,
}

const F64: FloatFormat = FloatFormat {
    width: 64,
    exponent: 11,
    mantissa: 52,
    special: Special::Ieee,
    parse: |t| Some(t.parse::<f64>().ok()?.to_bits()),
};
const F32: FloatFormat = FloatFormat {
    width: 32,
    exponent: 8,
    mantissa: 23,
    special: Special::Ieee,
    parse: |t| Some(u64::from(t.parse::<f32>().ok()?.to_bits())),
};
const F16: FloatFormat = FloatFormat {
    width: 16,
    exponent: 5,
    mantissa: 10,
    special: Special::Ieee,
    parse: |t| Some(u64::from(f16::from_f64(t.parse().ok()?).to_bits())),
};
const BF16: FloatFormat = FloatFormat {
    width: 16,
    exponent: 8,
    mantissa: 7,
    special: Special::Ieee,
    parse: |t| Some(u64::from(bf16::from_f64(t.parse().ok()?).to_bits())),
};
const F8E5M2: FloatFormat =
    FloatFormat { width: 8, exponent: 5, mantissa: 2, special: Special::Ieee, parse: |t| nearest(&F8E5M2, t) };
const F8E4M3FN: FloatFormat =
    FloatFormat { width: 8, exponent: 4, mantissa: 3, special: Special::OnesAreNan, parse: |t| nearest(&F8E4M3FN, t) };
/// No sign and no zero: the exponent alone.
const F8E8M0FNU: FloatFormat =
    FloatFormat { width: 8, exponent: 8, mantissa: 0, special: Special::OnesAreNan, parse: |t| nearest(&F8E8M0FNU, t) };
const F4E2M1FN: FloatFormat =
    FloatFormat { width: 4, exponent: 2, mantissa: 1, special: Special::Nothing, parse: |t| nearest(&F4E2M1FN, t) };

/// The bits of a small format whose number is nearest to a decimal.
fn nearest(format: &FloatFormat, text: &str) -> Option<u64> {
    let wanted: f64 = text.parse().ok()?;
    let distance = |bits: &u64| (format.value(*bits) - wanted).abs();
    let finite = (0..1u64 << format.width).filter(|bits| format.value(*bits).is_finite());
    let signed = finite.filter(|bits| format.value(*bits).is_sign_negative() == wanted.is_sign_negative());
    signed.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

impl FloatFormat {
    fn has_sign(&self) -> bool {
        self.width > self.exponent + self.mantissa
    }

    fn bias(&self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// Sign, mantissa and the power of two that it is multiplied with; `None` if it is not finite.
    fn split(&self, bits: u64) -> Option<(bool, u64, i32)> {
        let ones = (1u64 << self.exponent) - 1;
        let fraction = (1u64 << self.mantissa) - 1;
        let (exponent, mantissa) = (bits >> self.mantissa & ones, bits & fraction);
        let negative = self.has_sign() && bits >> (self.width - 1) & 1 == 1;
        match self.special {
            Special::Ieee if exponent == ones => return None,
            Special::OnesAreNan if exponent == ones && mantissa == fraction => return None,
            _ => {}
        }
        let least = -self.bias() - self.mantissa as i32;
        Some(match exponent {
            0 if self.has_sign() => (negative, mantissa, least + 1),
            _ => (negative, mantissa | 1 << self.mantissa, least + exponent as i32),
        })
    }

    fn value(&self, bits: u64) -> f64 {
        let Some((negative, mantissa, power)) = self.split(bits) else { return f64::NAN };
        let value = mantissa as f64 * 2f64.powi(power);
        if negative { -value } else { value }
    }

    /// With six digits if that is the same number, otherwise with all that are needed; bits in
    /// hexadecimal for what is not finite.
    fn text(&self, bits: u64) -> String {
        let bits = bits & (u64::MAX >> (64 - self.width));
        let Some((negative, mantissa, power)) = self.split(bits) else {
            return hexadecimal(bits, u64::from(self.width));
        };
        let sign = if negative { "-" } else { "" };
        if mantissa == 0 {
            return format!("{sign}0.000000e+00");
        }
        let short = format!("{sign}{}", scientific(&digits(mantissa, power, 6)));
        if (self.parse)(&short) == Some(bits) {
            return short;
        }
        // The digits that distinguish all numbers of the format.
        let places = 2 + (self.mantissa + 1) * 59 / 196;
        let long = format!("{sign}{}", plain(&digits(mantissa, power, places), places));
        if long.contains('.') { long } else { hexadecimal(bits, u64::from(self.width)) }
    }
}

/// Decimal digits, first to last, and the power of ten of the last one.
struct Decimal {
    digits: Vec<u8>,
    exponent: i32,
}

/// A positive number with at most `places` digits. Digits far beyond them are cut before the rest
/// is rounded, so the last one may differ from that of exact rounding; this is how LLVM prints.
fn digits(mantissa: u64, power: i32, places: u32) -> Decimal {
    let (mantissa, power) = (mantissa >> mantissa.trailing_zeros(), power + mantissa.trailing_zeros() as i32);
    // m · 2^p, or m · 5^-p · 10^p for a negative p.
    let mut number = Big::from(mantissa);
    for _ in 0..power.unsigned_abs() {
        number.multiply(if power > 0 { 2 } else { 5 });
    }
    let mut exponent = power.min(0);
    // Of 196 bits, 59 are decimal digits.
    let needed = (places * 196).div_ceil(59);
    let spare = number.bits().saturating_sub(needed) * 59 / 196;
    for _ in 0..spare {
        number.divide(10);
    }
    exponent += spare as i32;
    let mut digits = Vec::new();
    while !number.is_zero() {
        digits.push(number.divide(10));
    }
    digits.reverse();
    let extra = digits.len().saturating_sub(places as usize);
    if extra > 0 {
        let up = digits[places as usize] >= 5;
        digits.truncate(places as usize);
        exponent += extra as i32;
        if up {
            match digits.iter().rposition(|d| *d < 9) {
                Some(last) => {
                    exponent += (digits.len() - 1 - last) as i32;
                    digits.truncate(last + 1);
                    digits[last] += 1;
                }
                None => {
                    exponent += digits.len() as i32;
                    digits = vec![1];
                }
            }
        }
    }
    while digits.len() > 1 && digits.last() == Some(&0) {
        digits.pop();
        exponent += 1;
    }
    Decimal { digits, exponent }
}

fn push(digits: &[u8], text: &mut String) {
    text.extend(digits.iter().map(|d| char::from(b'0' + d)));
}

/// `d.dddddde±dd`, with six digits after the point.
fn scientific(decimal: &Decimal) -> String {
    let exponent = decimal.exponent + decimal.digits.len() as i32 - 1;
    let mut text = String::new();
    push(&decimal.digits[..1], &mut text);
    text.push('.');
    push(&decimal.digits[1..], &mut text);
    text.extend(std::iter::repeat_n('0', 7usize.saturating_sub(decimal.digits.len())));
    text.push_str(&format!("e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()));
    text
}

/// Without an exponent if at most three zeros have to be added.
fn plain(decimal: &Decimal, places: u32) -> String {
    let Decimal { digits, exponent } = decimal;
    let first = exponent + digits.len() as i32 - 1;
    let short = match *exponent >= 0 {
        true => *exponent <= 3 && digits.len() as i32 + exponent <= places as i32,
        false => first >= -3,
    };
    let mut text = String::new();
    if !short {
        push(&digits[..1], &mut text);
        text.push('.');
        push(if digits.len() == 1 { &[0] } else { &digits[1..] }, &mut text);
        text.push_str(&format!("E{}{}", if first < 0 { '-' } else { '+' }, first.abs()));
    } else if *exponent >= 0 {
        push(digits, &mut text);
        text.extend(std::iter::repeat_n('0', *exponent as usize));
    } else if first >= 0 {
        let whole = first as usize + 1;
        push(&digits[..whole], &mut text);
        text.push('.');
        push(&digits[whole..], &mut text);
    } else {
        text.push_str("0.");
        text.extend(std::iter::repeat_n('0', (-first - 1) as usize));
        push(digits, &mut text);
    }
    text
}

/// A number of any length, least significant word first.
struct Big(Vec<u32>);

impl From<u64> for Big {
    fn from(value: u64) -> Big {
        let mut big = Big(vec![value as u32, (value >> 32) as u32]);
        big.trim();
        big
    }
}

impl Big {
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> u32 {
        self.0.last().map_or(0, |top| self.0.len() as u32 * 32 - top.leading_zeros())
    }

    fn multiply(&mut self, factor: u32) {
        let mut carry = 0u64;
        for word in &mut self.0 {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Divides and returns the rest.
    fn divide(&mut self, divisor: u32) -> u8 {
        let mut rest = 0u64;
        for word in self.0.iter_mut().rev() {
            rest = rest << 32 | u64::from(*word);
            *word = (rest / u64::from(divisor)) as u32;
            rest %= u64::from(divisor);
        }
        self.trim();
        rest as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_coreai_core_prints_them() {
        for (value, text) in [
            (1.5, "1.500000e+00"),
            (0.1, "1.000000e-01"),
            (-0.0, "-0.000000e+00"),
            (f32::INFINITY, "0x7F800000"),
            (f32::NAN, "0x7FC00000"),
            (0.123_456_79, "0.123456791"),
            (1e30, "1.000000e+30"),
        ] {
            assert_eq!(F32.text(u64::from(f32::to_bits(value))), text);
        }
        assert_eq!(F16.text(u64::from(f16::from_f32(0.1).to_bits())), "9.997550e-02");
        assert_eq!(F64.text(1e300f64.to_bits()), "1.000000e+300");
    }

    #[test]
    fn integers() {
        assert_eq!(integer(0xff, 8, true), "-1");
        assert_eq!(integer(0xff, 8, false), "255");
        assert_eq!(integer(1, 1, true), "-1");
        assert_eq!(integer(u64::MAX, 64, true), "-1");
        assert_eq!(integer(u64::MAX, 64, false), u64::MAX.to_string());
    }
}
