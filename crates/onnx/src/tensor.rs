//! Tensors of a model: initializers, attributes, folded values.

pub(crate) use ferrane_mil::emit::{MAX_ELEMENTS, elements};
use std::sync::OnceLock;

use ferrane_host::f16;
use prost::bytes::Bytes;

use crate::element::ElementType;
use crate::error::Error;
use crate::external::ExternalData;
use crate::proto::{SparseTensorProto, TensorProto, part};

/// A tensor with known elements.
#[derive(Clone, Debug)]
pub struct Tensor {
    element: ElementType,
    shape: Vec<usize>,
    /// Row-major little-endian elements, as `raw_data` has them; absent if made from values.
    raw: Option<Bytes>,
    values: OnceLock<Vec<f64>>,
}

impl Tensor {
    /// A tensor of these elements, row-major.
    ///
    /// # Errors
    /// The shape does not have that many elements.
    pub fn new(element: ElementType, shape: &[usize], values: Vec<f64>) -> Result<Tensor, Error> {
        if elements(shape) != Some(values.len()) {
            let reason = format!("{} elements for the shape {shape:?}", values.len());
            return Err(Error::invalid("a tensor", reason));
        }
        Ok(Tensor::known(element, shape.to_vec(), values))
    }

    /// A tensor from the bytes of a `TensorProto`, such as `input_0.pb` of ONNX's test data.
    ///
    /// # Errors
    /// The bytes are no such message, or its number of bytes does not fit its extents.
    pub fn from_bytes(bytes: &[u8]) -> Result<Tensor, Error> {
        let message = part(&Bytes::copy_from_slice(bytes)).map_err(|reason| Error::NotAModel { reason })?;
        Tensor::read(message, "a tensor", &ExternalData::new(None))
    }

    /// As [`Tensor::new`], for a number of elements that fits.
    pub(crate) fn known(element: ElementType, shape: Vec<usize>, values: Vec<f64>) -> Tensor {
        Tensor { element, shape, raw: None, values: OnceLock::from(values) }
    }

    /// The element type in the model.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The extents, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The elements as they lie in the file, if the tensor comes from one.
    pub(crate) fn raw(&self) -> Option<&Bytes> {
        self.raw.as_ref()
    }

    /// The elements as numbers, row-major. Integers beyond 2⁵³ are rounded.
    pub fn values(&self) -> &[f64] {
        self.values
            .get_or_init(|| self.raw.as_ref().map_or_else(Vec::new, |raw| numbers(self.element, raw, self.len())))
    }

    /// The elements as integers, row-major; floats are truncated.
    pub(crate) fn ints(&self) -> Vec<i64> {
        match (&self.raw, self.element) {
            (Some(raw), ElementType::Int64) => raw.chunks_exact(8).map(|b| i64::from_le_bytes(array(b))).collect(),
            _ => self.values().iter().map(|&v| v as i64).collect(),
        }
    }

    /// The tensor of a message. `name` stands for it in messages of errors.
    pub(crate) fn read(message: TensorProto, name: &str, external: &ExternalData) -> Result<Tensor, Error> {
        let refuse = |reason: String| Err(Error::invalid(format!("tensor `{name}`"), reason));
        let element = ElementType::from_number(message.data_type);
        let shape: Option<Vec<usize>> = message.dims.iter().map(|&n| usize::try_from(n).ok()).collect();
        let Some((shape, count)) = shape.and_then(|s| elements(&s).map(|n| (s, n))) else {
            return refuse(format!("the extents {:?} are not those of a tensor", message.dims));
        };
        let Some(bits) = element.bits() else {
            return match element {
                // Strings stay unread: no lowering looks at them.
                ElementType::String => Ok(Tensor { element, shape, raw: None, values: OnceLock::new() }),
                _ => refuse(format!("its element type {} is not known", message.data_type)),
            };
        };
        let size = (count * bits).div_ceil(8);
        let raw = if message.data_location == 1 {
            external.read(name, &message.external_data, size)?
        } else if let Some(raw) = &message.raw_data {
            raw.clone()
        } else {
            typed(&message, element, count)
        };
        if raw.len() != size {
            return refuse(format!("{} bytes for {count} elements of {element} ({size} bytes)", raw.len()));
        }
        Ok(Tensor { element, shape, raw: Some(raw), values: OnceLock::new() })
    }

    /// The dense tensor of a sparse one.
    pub(crate) fn read_sparse(message: &SparseTensorProto, external: &ExternalData) -> Result<(String, Tensor), Error> {
        let inner = |bytes: &Option<Bytes>| -> Result<TensorProto, Error> {
            let bytes =
                bytes.as_ref().ok_or_else(|| Error::invalid("a sparse tensor", "it has no values or indices"))?;
            part(bytes).map_err(|e| Error::invalid("a sparse tensor", e))
        };
        let values = inner(&message.values)?;
        let name = values.name.clone();
        let refuse = |reason: String| Error::invalid(format!("sparse tensor `{name}`"), reason);
        let (values, indices) =
            (Tensor::read(values, &name, external)?, Tensor::read(inner(&message.indices)?, &name, external)?);
        let shape: Option<Vec<usize>> = message.dims.iter().map(|&n| usize::try_from(n).ok()).collect();
        let Some((shape, count)) = shape.and_then(|s| elements(&s).map(|n| (s, n))).filter(|(_, n)| *n <= MAX_DENSE)
        else {
            return Err(refuse(format!("the dense tensor {:?} is too large", message.dims)));
        };
        let places = indices.ints();
        let linear: Vec<i64> = match indices.shape() {
            [n] if *n == values.len() => places,
            [n, rank] if *n == values.len() && *rank == shape.len() && *rank > 0 => places
                .chunks_exact(*rank)
                .map(|at| at.iter().zip(&shape).fold(0i64, |sum, (&i, &e)| sum.wrapping_mul(e as i64).wrapping_add(i)))
                .collect(),
            other => return Err(refuse(format!("indices of shape {other:?} for {} values", values.len()))),
        };
        let mut dense = vec![0.0; count];
        for (&at, &value) in linear.iter().zip(values.values()) {
            let place = usize::try_from(at).ok().and_then(|at| dense.get_mut(at));
            *place.ok_or_else(|| refuse(format!("index {at} is outside of {shape:?}")))? = value;
        }
        Ok((name.clone(), Tensor::known(values.element, shape, dense)))
    }
}

/// The most elements of a sparse tensor once it is dense.
const MAX_DENSE: usize = 1 << 26;

/// The elements of a message that stores them in a typed field, as `raw_data` would have them. A
/// wrong number of them gives a wrong number of bytes.
fn typed(message: &TensorProto, element: ElementType, count: usize) -> Bytes {
    use ElementType::*;
    let ints = &message.int32_data;
    let bytes: Vec<u8> = match element {
        Float | Complex64 => message.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Double | Complex128 => message.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Int64 => message.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        UInt64 => message.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        UInt32 => message.uint64_data.iter().flat_map(|&v| (v as u32).to_le_bytes()).collect(),
        Int32 => ints.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Int16 | UInt16 | Float16 | BFloat16 => ints.iter().flat_map(|&v| (v as u16).to_le_bytes()).collect(),
        // Elements of less than a byte are packed already, one byte in an integer.
        _ => ints.iter().map(|&v| v as u8).collect(),
    };
    debug_assert!(count <= MAX_ELEMENTS);
    bytes.into()
}

/// The first bytes of a slice that is long enough; zeros stand for missing ones.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut found = [0; N];
    found.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    found
}

fn numbers(element: ElementType, raw: &[u8], count: usize) -> Vec<f64> {
    use ElementType::*;
    macro_rules! each {
        ($t:ty) => {
            raw.chunks_exact(size_of::<$t>()).map(|b| <$t>::from_le_bytes(array(b)) as f64).collect()
        };
    }
    match element {
        Bool => raw.iter().map(|&b| f64::from(u8::from(b != 0))).collect(),
        UInt8 => raw.iter().map(|&b| f64::from(b)).collect(),
        Int8 => raw.iter().map(|&b| f64::from(b as i8)).collect(),
        Int16 => each!(i16),
        UInt16 => each!(u16),
        Int32 => each!(i32),
        UInt32 => each!(u32),
        Int64 => each!(i64),
        UInt64 => each!(u64),
        Float => each!(f32),
        Double => each!(f64),
        Float16 => raw.chunks_exact(2).map(|b| f16::from_le_bytes(array(b)).to_f64()).collect(),
        BFloat16 => raw
            .chunks_exact(2)
            .map(|b| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(array(b))) << 16)))
            .collect(),
        UInt4 | Int4 | UInt2 | Int2 | Float4E2M1 => packed(element, raw, count),
        Float8E4M3Fn => raw.iter().map(|&b| small_float(b, 4, 7, Special::NanOnly)).collect(),
        Float8E5M2 => raw.iter().map(|&b| small_float(b, 5, 15, Special::Ieee)).collect(),
        Float8E4M3FnUz => raw.iter().map(|&b| small_float(b, 4, 8, Special::NegativeZeroIsNan)).collect(),
        Float8E5M2FnUz => raw.iter().map(|&b| small_float(b, 5, 16, Special::NegativeZeroIsNan)).collect(),
        Float8E8M0 => raw.iter().map(|&b| if b == 255 { f64::NAN } else { 2f64.powi(i32::from(b) - 127) }).collect(),
        String | Complex64 | Complex128 | Other(_) => Vec::new(),
    }
}

/// Elements of 2 or 4 bits, the first in the low bits.
fn packed(element: ElementType, raw: &[u8], count: usize) -> Vec<f64> {
    const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let bits = element.bits().unwrap_or(4);
    let each = 8 / bits;
    let mask = (1u8 << bits) - 1;
    let one = |i: usize| {
        let field = raw.get(i / each).map_or(0, |b| b >> (i % each * bits) & mask);
        match element.integer() {
            None if field >= 8 => -E2M1[usize::from(field & 7)],
            None => E2M1[usize::from(field & 7)],
            Some((_, true)) if field > mask / 2 => f64::from(field) - f64::from(mask) - 1.0,
            Some(_) => f64::from(field),
        }
    };
    (0..count.min(raw.len() * each)).map(one).collect()
}

/// What the largest exponent of an 8-bit float stands for.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    /// Infinities and NaN, as in IEEE 754.
    Ieee,
    /// All bits one is NaN, everything else is finite.
    NanOnly,
    /// The pattern of -0 is NaN, everything else is finite.
    NegativeZeroIsNan,
}

fn small_float(byte: u8, exponent_bits: u32, bias: i32, special: Special) -> f64 {
    let mantissa_bits = 7 - exponent_bits;
    let sign = if byte & 0x80 != 0 { -1.0 } else { 1.0 };
    let exponent = i32::from(byte >> mantissa_bits & ((1 << exponent_bits) - 1));
    let mantissa = f64::from(byte & ((1 << mantissa_bits) - 1));
    let top = (1 << exponent_bits) - 1;
    match special {
        Special::NegativeZeroIsNan if byte == 0x80 => return f64::NAN,
        Special::NanOnly if byte & 0x7f == 0x7f => return f64::NAN,
        Special::Ieee if exponent == top => return if mantissa == 0.0 { sign * f64::INFINITY } else { f64::NAN },
        _ => {}
    }
    let unit = 2f64.powi(-(mantissa_bits as i32));
    match exponent {
        0 => sign * mantissa * unit * 2f64.powi(1 - bias),
        e => sign * (1.0 + mantissa * unit) * 2f64.powi(e - bias),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_elements_are_read_as_onnx_packs_them() {
        // onnx.helper.make_tensor packs the first element of a pair into the low half.
        assert_eq!(numbers(ElementType::UInt4, &[0x21, 0x0f], 3), [1.0, 2.0, 15.0]);
        assert_eq!(numbers(ElementType::Int4, &[0xf7], 2), [7.0, -1.0]);
        assert_eq!(numbers(ElementType::Int2, &[0b11_10_01_00], 4), [0.0, 1.0, -2.0, -1.0]);
        assert_eq!(numbers(ElementType::Float4E2M1, &[0xf1], 2), [0.5, -6.0]);
    }

    #[test]
    fn small_floats_have_the_values_of_ml_dtypes() {
        // Largest and smallest positive finite values, from ml_dtypes.finfo.
        assert_eq!(numbers(ElementType::Float8E4M3Fn, &[0x7e, 0x01], 2), [448.0, 0.001953125]);
        assert_eq!(numbers(ElementType::Float8E5M2, &[0x7b, 0x7c], 2), [57344.0, f64::INFINITY]);
        assert_eq!(numbers(ElementType::Float8E4M3FnUz, &[0x7f], 1), [240.0]);
        assert_eq!(numbers(ElementType::Float8E5M2FnUz, &[0x7f], 1), [57344.0]);
        assert!(numbers(ElementType::Float8E4M3Fn, &[0x7f], 1)[0].is_nan());
    }

    #[test]
    fn shapes_beyond_the_limit_have_no_number_of_elements() {
        assert_eq!(elements(&[]), Some(1));
        assert_eq!(elements(&[2, 0, 3]), Some(0));
        assert_eq!(elements(&[0, usize::MAX]), None);
        assert_eq!(elements(&[usize::MAX, 2]), None);
        assert_eq!(elements(&[1; 17]), None);
    }
}
