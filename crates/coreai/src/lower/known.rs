//! Tensors whose elements are known when the program is made: constants of the file, and what is
//! computed from them and from extents.

use std::cell::OnceCell;

use ferrane_mil::DataType;
use ferrane_mil::emit::elements;
use half::{bf16, f16};

use crate::dialect::ElementType;

/// A tensor with known elements. Its shape is within the limits of [`elements`].
#[derive(Clone, Debug)]
pub(super) struct Known<'a> {
    pub(super) element: ElementType,
    pub(super) shape: Vec<usize>,
    /// The elements as they lie in the file; absent if made from numbers.
    raw: Option<(&'a [u8], Layout)>,
    values: OnceCell<Vec<f64>>,
}

/// How elements lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Bytes,
    Splat,
    /// Of fewer than 8 bits each, from the lowest bit of a byte on.
    Packed,
}

impl<'a> Known<'a> {
    /// A tensor from its bytes in an attribute; one element stands for all if it is a splat. `None`
    /// if their number is wrong.
    pub(super) fn stored(element: ElementType, shape: Vec<usize>, raw: &'a [u8], splat: bool) -> Option<Known<'a>> {
        let count = elements(&shape)?;
        if !splat && element == ElementType::UInt1 {
            return Known::packed(element, shape, raw);
        }
        let wanted = if splat { 1 } else { count };
        let fits = raw.len() == wanted.checked_mul(element.size())? || splat && count == 0;
        // One element may be a splat or not.
        let layout = if splat && count != 1 { Layout::Splat } else { Layout::Bytes };
        fits.then(|| Known { element, shape, raw: Some((raw, layout)), values: OnceCell::new() })
    }

    /// A tensor from a resource, whose elements of fewer than 8 bits are packed. As Apple's runtime
    /// does, it ignores what follows them.
    pub(super) fn packed(element: ElementType, shape: Vec<usize>, raw: &'a [u8]) -> Option<Known<'a>> {
        if !element.is_packed() {
            let fits = raw.len() == elements(&shape)?.checked_mul(element.size())?;
            return fits.then(|| Known { element, shape, raw: Some((raw, Layout::Bytes)), values: OnceCell::new() });
        }
        let length = elements(&shape)?.checked_mul(element.bits() as usize)?.div_ceil(8);
        let raw = raw.get(..length)?;
        Some(Known { element, shape, raw: Some((raw, Layout::Packed)), values: OnceCell::new() })
    }

    /// A tensor of numbers, which are as many as its shape has.
    pub(super) fn new(element: ElementType, shape: Vec<usize>, values: Vec<f64>) -> Known<'a> {
        Known { element, shape, raw: None, values: OnceCell::from(values) }
    }

    pub(super) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The only element, if all are the same one in the file.
    pub(super) fn splat(&self) -> Option<f64> {
        match self.raw {
            Some((raw, Layout::Splat)) if !raw.is_empty() => Some(number(self.element, raw)),
            _ => None,
        }
    }

    /// The first element, if there is one.
    pub(super) fn first(&self) -> Option<f64> {
        self.splat().or_else(|| self.values().first().copied())
    }

    /// The elements as numbers, row-major. Integers beyond 2⁵³ are rounded. One element of the file
    /// may stand for very many, so the caller limits their number.
    pub(super) fn values(&self) -> &[f64] {
        self.values.get_or_init(|| match self.raw {
            Some((raw, Layout::Bytes)) => {
                raw.chunks_exact(self.element.size()).take(self.len()).map(|b| number(self.element, b)).collect()
            }
            Some((raw, Layout::Packed)) => {
                (0..self.len()).map(|i| number(self.element, &[self.element.unpacked(raw, i)])).collect()
            }
            Some((_, Layout::Splat)) => vec![self.splat().unwrap_or(0.0); self.len()],
            None => Vec::new(),
        })
    }

    /// The elements as integers, row-major; floats are truncated.
    pub(super) fn ints(&self) -> Vec<i64> {
        self.values().iter().map(|&v| v as i64).collect()
    }

    /// The elements as they lie in the file, if they are of the MIL type there.
    pub(super) fn bytes_as(&self, dtype: DataType) -> Option<&'a [u8]> {
        let same = match self.raw?.1 {
            Layout::Bytes => matches!(
                (self.element, dtype),
                (ElementType::Float32, DataType::Fp32)
                    | (ElementType::Float16, DataType::Fp16)
                    | (ElementType::Int32, DataType::Int32)
                    | (ElementType::Int8, DataType::Int8)
                    | (ElementType::UInt8, DataType::UInt8)
            ),
            Layout::Packed => matches!(
                (self.element, dtype),
                (ElementType::Int4, DataType::Int4)
                    | (ElementType::UInt6, DataType::UInt6)
                    | (ElementType::UInt4, DataType::UInt4)
                    | (ElementType::UInt3, DataType::UInt3)
                    | (ElementType::UInt2, DataType::UInt2)
                    | (ElementType::UInt1, DataType::UInt1)
            ),
            Layout::Splat => false,
        };
        self.raw.filter(|_| same).map(|(raw, _)| raw)
    }
}

/// An element from its bytes.
fn number(element: ElementType, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let bits = u64::from_le_bytes(word);
    match element {
        ElementType::Float64 => f64::from_bits(bits),
        ElementType::Float32 => f64::from(f32::from_bits(bits as u32)),
        ElementType::Float16 => f16::from_bits(bits as u16).to_f64(),
        ElementType::BFloat16 => bf16::from_bits(bits as u16).to_f64(),
        ElementType::Float8E5M2
        | ElementType::Float8E4M3FN
        | ElementType::Float8E8M0FNU
        | ElementType::Float4E2M1FN => crate::text::small_float(bits, element),
        ElementType::Complex64 => f64::NAN,
        ElementType::Bool => f64::from(u8::from(bits & 1 != 0)),
        _ => {
            let unused = 64 - element.bits();
            match is_signed(element) {
                true => ((bits << unused) as i64 >> unused) as f64,
                false => (bits << unused >> unused) as f64,
            }
        }
    }
}

fn is_signed(element: ElementType) -> bool {
    matches!(
        element,
        ElementType::Int64
            | ElementType::Int32
            | ElementType::Int16
            | ElementType::Int8
            | ElementType::Int4
            | ElementType::Int2
    )
}

/// Whether the elements are floating-point numbers.
pub(super) fn is_float(element: ElementType) -> bool {
    matches!(
        element,
        ElementType::Float64
            | ElementType::Float32
            | ElementType::Float16
            | ElementType::BFloat16
            | ElementType::Float8E5M2
            | ElementType::Float8E4M3FN
            | ElementType::Float8E8M0FNU
            | ElementType::Float4E2M1FN
    )
}

/// The least and the largest number of an integer type; `None` for other types.
pub(super) fn range(element: ElementType) -> Option<(f64, f64)> {
    if is_float(element) || matches!(element, ElementType::Bool | ElementType::Complex64) {
        return None;
    }
    let bits = element.bits() as i32;
    Some(match is_signed(element) {
        true => (-2f64.powi(bits - 1), 2f64.powi(bits - 1) - 1.0),
        false => (0.0, 2f64.powi(bits) - 1.0),
    })
}

/// The MIL type of values of an element type; `None` if MIL has no number of that kind. Formats of
/// fewer bits than fp16 are only stored, so their values are fp32.
pub(super) fn mil(element: ElementType) -> Option<DataType> {
    Some(match element {
        ElementType::Bool => DataType::Bool,
        ElementType::Float16 => DataType::Fp16,
        ElementType::Complex64 => return None,
        element if is_float(element) => DataType::Fp32,
        ElementType::Int8 => DataType::Int8,
        ElementType::UInt8 => DataType::UInt8,
        ElementType::Int16 => DataType::Int16,
        ElementType::UInt16 => DataType::UInt16,
        _ => DataType::Int32,
    })
}

/// A number rounded to its type: integers wrap, as Core AI defines their arithmetic.
pub(super) fn rounded(element: ElementType, value: f64) -> f64 {
    match element {
        ElementType::Float64 => value,
        ElementType::Float16 => f16::from_f64(value).to_f64(),
        ElementType::BFloat16 => bf16::from_f64(value).to_f64(),
        ElementType::Bool => f64::from(u8::from(value != 0.0)),
        element => match range(element) {
            Some((low, high)) => (value.trunc() - low).rem_euclid(high - low + 1.0) + low,
            None => f64::from(value as f32),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_decoded_by_their_type() {
        for (element, bytes, value) in [
            (ElementType::Int4, &[0x0f][..], -1.0),
            (ElementType::UInt4, &[0x0f], 15.0),
            (ElementType::BFloat16, &[0xc0, 0x3f], 1.5),
            (ElementType::Float8E4M3FN, &[0x38], 1.0),
            (ElementType::Float4E2M1FN, &[0x0f], -6.0),
            (ElementType::Float8E8M0FNU, &[0x80], 2.0),
            (ElementType::Int16, &[0xfe, 0xff], -2.0),
            (ElementType::Bool, &[1], 1.0),
        ] {
            let known = Known::stored(element, vec![3], bytes, true).unwrap();
            assert_eq!(known.values(), [value; 3], "{element:?}");
        }
        let packed = Known::packed(ElementType::Int4, vec![3], &[0x2f, 0x07, 0xff]).unwrap();
        assert_eq!(packed.values(), [-1.0, 2.0, 7.0]);
        assert_eq!(packed.bytes_as(DataType::Int4), Some(&[0x2f, 0x07][..]));
        assert!(Known::packed(ElementType::UInt2, vec![5], &[0]).is_none());
        let packed = Known::packed(ElementType::UInt6, vec![3], &[0x41, 0xf0, 0x03]).unwrap();
        assert_eq!(packed.values(), [1.0, 1.0, 63.0]);
        let packed = Known::packed(ElementType::UInt3, vec![4], &[0xd1, 0x0b]).unwrap();
        assert_eq!(packed.values(), [1.0, 2.0, 7.0, 5.0]);
        assert!(Known::stored(ElementType::Int16, vec![2], &[0; 3], false).is_none());
        assert!(Known::stored(ElementType::Int8, vec![1 << 40], &[0], true).is_none());
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(rounded(ElementType::UInt8, 257.0), 1.0);
        assert_eq!(rounded(ElementType::Int8, 128.0), -128.0);
        assert_eq!(rounded(ElementType::UInt32, -1.0), 4294967295.0);
    }
}
