//! Tensors: element type, shape and bytes, as ports hold them.
//!
//! A [`Tensor`] is row-major, little-endian and packed, independent of the surface that it comes
//! from; [`Surface::write_tensor`](crate::Surface::write_tensor) and
//! [`Surface::read_tensor`](crate::Surface::read_tensor) convert between the two. Invariant: the
//! number of bytes is that of type and shape. Bytes are shared, so a clone is cheap, and a tensor
//! from a mapped file keeps the mapping.
//!
//! Numbers are never converted silently. [`Tensor::cast`] rounds floats to nearest even and refuses
//! an integer that the new type cannot hold.

use ferrane_host::{convert, f16};
use ferrane_mil::{Bytes, Constant, DataType, Type, Weights};

use crate::{Error, ErrorKind, Result};

/// Numbers with an element type and a shape, row-major. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: DataType,
    shape: Vec<usize>,
    bytes: Bytes,
}

/// Tensors are equal if type, shape and all bits are equal: a NaN equals itself, 0 differs from -0.
impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && *self.bytes == *other.bytes
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Layout, message)
}

/// The size of a packed tensor in bytes; `None` for elements without whole bytes, or a size that
/// cannot be addressed.
fn packed_bytes(dtype: DataType, shape: &[usize]) -> Option<usize> {
    let elements = shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent))?;
    elements.checked_mul(dtype.bytes()?).filter(|&n| n <= isize::MAX as usize)
}

impl Tensor {
    /// A tensor from packed little-endian bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] if the number of bytes is not that of type and shape, or for a type
    /// whose elements are not whole bytes (`int4`, `string`).
    pub fn new(dtype: DataType, shape: impl Into<Vec<usize>>, bytes: impl Into<Bytes>) -> Result<Tensor> {
        let (shape, bytes) = (shape.into(), bytes.into());
        if packed_bytes(dtype, &shape) == Some(bytes.len()) {
            return Ok(Tensor { dtype, shape, bytes });
        }
        Err(invalid(match dtype.bytes() {
            None => format!("a tensor holds elements of whole bytes, not {dtype}"),
            Some(_) => format!("{} bytes do not make a tensor of {dtype} {shape:?}", bytes.len()),
        }))
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] for an invalid type or size, [`ErrorKind::OutOfMemory`].
    pub fn zeros(dtype: DataType, shape: impl Into<Vec<usize>>) -> Result<Tensor> {
        let shape = shape.into();
        let size = packed_bytes(dtype, &shape).ok_or_else(|| invalid(format!("no tensor can be {dtype} {shape:?}")))?;
        let mut bytes = Vec::new();
        let full = |_| Error::new(ErrorKind::OutOfMemory, format!("cannot allocate {size} bytes"));
        bytes.try_reserve_exact(size).map_err(full)?;
        bytes.resize(size, 0);
        Tensor::new(dtype, shape, bytes)
    }

    /// An fp16 tensor from fp32 values, rounded to nearest even.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] if the number of values does not match the shape.
    pub fn fp16(shape: &[usize], values: &[f32]) -> Result<Tensor> {
        Tensor::from_f32(DataType::Fp16, shape, values)
    }

    /// An fp32 tensor.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] if the number of values does not match the shape.
    pub fn fp32(shape: &[usize], values: &[f32]) -> Result<Tensor> {
        Tensor::from_f32(DataType::Fp32, shape, values)
    }

    /// An int32 tensor.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] if the number of values does not match the shape.
    pub fn int32(shape: &[usize], values: &[i32]) -> Result<Tensor> {
        Tensor::new(DataType::Int32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    /// A bool tensor.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] if the number of values does not match the shape.
    pub fn bool(shape: &[usize], values: &[bool]) -> Result<Tensor> {
        Tensor::new(DataType::Bool, shape, values.iter().map(|v| u8::from(*v)).collect::<Vec<_>>())
    }

    /// A tensor of any type from fp32 values: floats are rounded to nearest even, integers must be
    /// exact.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] if the number of values does not match the shape, or the type cannot
    /// represent a value.
    pub fn from_f32(dtype: DataType, shape: &[usize], values: &[f32]) -> Result<Tensor> {
        match dtype {
            DataType::Fp16 => {
                let mut halves = vec![f16::ZERO; values.len()];
                convert::f32_to_f16(values, &mut halves);
                Tensor::new(dtype, shape, bytemuck::cast_slice::<_, u8>(&halves).to_vec())
            }
            DataType::Fp32 => Tensor::new(dtype, shape, bytemuck::cast_slice::<_, u8>(values).to_vec()),
            _ => Tensor::from_f64(dtype, shape, values.iter().copied().map(f64::from)),
        }
    }

    /// A tensor of any type from fp64 values: floats are rounded to nearest even, integers must be
    /// exact.
    ///
    /// # Errors
    /// As [`Tensor::from_f32`].
    pub fn from_f64(dtype: DataType, shape: &[usize], values: impl IntoIterator<Item = f64>) -> Result<Tensor> {
        let mut bytes = Vec::new();
        values.into_iter().try_for_each(|v| Number::Float(v).encode(dtype, &mut bytes))?;
        Tensor::new(dtype, shape, bytes)
    }

    /// The tensor of a constant. The bytes of an inline constant are copied.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] for strings, lists and other constants without numbers, or a weight
    /// that is not in `weights`.
    pub fn from_constant(constant: &Constant, weights: &Weights) -> Result<Tensor> {
        let ty = constant.ty();
        match (ty.dtype(), ty.shape(), constant.bytes(weights)) {
            (Some(dtype), Some(shape), Some(bytes)) => Tensor::new(dtype, shape, bytes.to_vec()),
            _ => Err(invalid(format!("a {ty} is not a tensor of numbers"))),
        }
    }

    /// The tensor as a constant of a program.
    pub fn to_constant(&self) -> Constant {
        Constant::raw(self.dtype, &self.shape, &self.bytes)
    }

    /// The element type, of whole bytes.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The extents, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of the tensor in a program.
    pub fn ty(&self) -> Type {
        Type::tensor(self.dtype, &self.shape)
    }

    /// The elements, row-major and little-endian.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of each element, in order.
    pub fn elements(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.element_bytes())
    }

    fn element_bytes(&self) -> usize {
        self.dtype.bytes().unwrap_or(1).max(1)
    }

    fn numbers(&self) -> impl Iterator<Item = Number> {
        self.elements().map(|bytes| Number::decode(self.dtype, bytes))
    }

    /// The elements as fp32: exact for fp16, bf16, fp8 and integers of at most 24 bits, otherwise
    /// rounded to nearest even.
    pub fn to_f32(&self) -> Vec<f32> {
        match self.dtype {
            DataType::Fp16 => {
                // A mapped file may not be aligned to two bytes.
                let halves: Vec<f16> = self.elements().map(|b| f16::from_le_bytes([b[0], b[1]])).collect();
                let mut values = vec![0.0; halves.len()];
                convert::f16_to_f32(&halves, &mut values);
                values
            }
            _ => self.to_f64().map(|v| v as f32).collect(),
        }
    }

    /// The elements as fp64: exact except for 64-bit integers beyond 2^53.
    pub fn to_f64(&self) -> impl Iterator<Item = f64> {
        self.numbers().map(Number::as_f64)
    }

    /// The elements as integers.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] for an element that is not an integer from -2^63 to 2^63 - 1.
    pub fn to_i64(&self) -> Result<Vec<i64>> {
        let whole = |n: Number| n.whole(DataType::Int64).map(|v| v as i64);
        self.numbers().map(whole).collect()
    }

    /// Converts the numbers to another element type. Floats are rounded to nearest even.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] for a number that an integer type cannot hold, or a type without a
    /// conversion (fp8, types below a byte, strings).
    pub fn cast(&self, dtype: DataType) -> Result<Tensor> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        let mut bytes = Vec::with_capacity(self.len().saturating_mul(dtype.bytes().unwrap_or(0)));
        self.numbers().try_for_each(|n| n.encode(dtype, &mut bytes))?;
        Tensor::new(dtype, self.shape.clone(), bytes)
    }

    /// The same elements with another shape.
    ///
    /// # Errors
    /// [`ErrorKind::Layout`] if the shape has another number of elements.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        if packed_bytes(self.dtype, shape) != Some(self.bytes.len()) {
            return Err(invalid(format!("{:?} cannot be reshaped to {shape:?}", self.shape)));
        }
        Ok(Tensor { dtype: self.dtype, shape: shape.to_vec(), bytes: self.bytes.clone() })
    }
}

/// An element in a form that represents the values of every type.
#[derive(Clone, Copy)]
enum Number {
    Float(f64),
    Integer(i128),
}

/// The bytes of one element, `N` of them.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0))
}

/// The smallest and the largest value of an integer type; `None` for other types.
fn range(dtype: DataType) -> Option<(i128, i128)> {
    Some(match dtype {
        DataType::Bool => (0, 1),
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        _ => return None,
    })
}

/// The upper half of an fp32, rounded to nearest even; NaN stays a NaN.
fn bf16_bits(v: f32) -> u16 {
    let bits = v.to_bits();
    if v.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// Decodes an 8-bit float with `fraction` fraction bits, whose smallest normal number is
/// `2^lowest_normal`. `largest` is the largest magnitude pattern that is a number.
fn fp8(bits: u8, fraction: u32, lowest_normal: i32, infinity: Option<u8>, largest: u8) -> f64 {
    let magnitude = bits & 0x7F;
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    if infinity == Some(magnitude) {
        return sign * f64::INFINITY;
    }
    if magnitude > largest {
        return f64::NAN;
    }
    let (exponent, mantissa) = (i32::from(magnitude >> fraction), magnitude & ((1 << fraction) - 1));
    let unit = 2f64.powi(lowest_normal - fraction as i32);
    let value = match exponent {
        0 => f64::from(mantissa) * unit,
        _ => f64::from(mantissa + (1 << fraction)) * unit * 2f64.powi(exponent - 1),
    };
    sign * value
}

impl Number {
    fn decode(dtype: DataType, bytes: &[u8]) -> Number {
        match dtype {
            DataType::Fp16 => Number::Float(f16::from_le_bytes(array(bytes)).to_f64()),
            DataType::Bf16 => Number::Float(f32::from_bits(u32::from(u16::from_le_bytes(array(bytes))) << 16).into()),
            DataType::Fp32 => Number::Float(f32::from_le_bytes(array(bytes)).into()),
            DataType::Fp64 => Number::Float(f64::from_le_bytes(array(bytes))),
            // E4M3FN has no infinities, and one NaN of each sign.
            DataType::Fp8E4M3Fn => Number::Float(fp8(array::<1>(bytes)[0], 3, -6, None, 0x7E)),
            DataType::Fp8E5M2 => Number::Float(fp8(array::<1>(bytes)[0], 2, -14, Some(0x7C), 0x7C)),
            DataType::Bool => Number::Integer((array::<1>(bytes)[0] != 0).into()),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                let unused = 64 - 8 * bytes.len().min(8) as u32;
                Number::Integer((i64::from_le_bytes(array(bytes)) << unused >> unused).into())
            }
            _ => Number::Integer(u64::from_le_bytes(array(bytes)).into()),
        }
    }

    fn as_f64(self) -> f64 {
        match self {
            Number::Float(v) => v,
            Number::Integer(v) => v as f64,
        }
    }

    /// The number as a value of an integer type.
    fn whole(self, dtype: DataType) -> Result<i128> {
        let (low, high) = range(dtype).ok_or_else(|| invalid(format!("numbers cannot be converted to {dtype}")))?;
        let integer = match self {
            Number::Integer(v) => Some(v),
            // Beyond 2^53 a float no longer determines the integer that it was rounded from.
            Number::Float(v) => (v.fract() == 0.0 && v.abs() <= 9e15).then_some(v as i128),
        };
        match integer {
            Some(v) if (low..=high).contains(&v) => Ok(v),
            Some(v) => Err(invalid(format!("{v} does not fit {dtype}, which holds {low} to {high}"))),
            None => Err(invalid(format!("{} is not a value of {dtype}; give whole numbers", self.as_f64()))),
        }
    }

    fn encode(self, dtype: DataType, bytes: &mut Vec<u8>) -> Result<()> {
        match dtype {
            DataType::Fp16 => bytes.extend(f16::from_f64(self.as_f64()).to_le_bytes()),
            DataType::Bf16 => bytes.extend(bf16_bits(self.as_f64() as f32).to_le_bytes()),
            DataType::Fp32 => bytes.extend((self.as_f64() as f32).to_le_bytes()),
            DataType::Fp64 => bytes.extend(self.as_f64().to_le_bytes()),
            _ => {
                let integer = self.whole(dtype)?;
                // The low bytes of two's complement are the narrower integer.
                bytes.extend(&integer.to_le_bytes()[..dtype.bytes().unwrap_or(1)]);
            }
        }
        Ok(())
    }
}

/// Named tensors in order: the inputs or the results of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors(Vec<(String, Tensor)>);

impl Tensors {
    /// A list without tensors.
    pub fn new() -> Tensors {
        Tensors::default()
    }

    /// Appends a tensor, or replaces the one with the same name.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) {
        let name = name.into();
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = tensor,
            None => self.0.push((name, tensor)),
        }
    }

    /// The tensor with this name, if there is one.
    pub fn find(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor)
    }

    /// The tensor with this name.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`]; the message lists the existing names.
    pub fn get(&self, name: &str) -> Result<&Tensor> {
        self.find(name).ok_or_else(|| {
            let known: Vec<&str> = self.names().collect();
            Error::new(ErrorKind::Binding, format!("no tensor `{name}`; there are {}", known.join(", ")))
                .with_port(name)
        })
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Names and tensors, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, (String, Tensor)> {
        self.0.iter()
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<String>, const K: usize> From<[(N, Tensor); K]> for Tensors {
    fn from(list: [(N, Tensor); K]) -> Tensors {
        list.into_iter().collect()
    }
}

impl<N: Into<String>> FromIterator<(N, Tensor)> for Tensors {
    fn from_iter<I: IntoIterator<Item = (N, Tensor)>>(list: I) -> Tensors {
        let mut tensors = Tensors::new();
        tensors.extend(list);
        tensors
    }
}

impl<N: Into<String>> Extend<(N, Tensor)> for Tensors {
    fn extend<I: IntoIterator<Item = (N, Tensor)>>(&mut self, list: I) {
        list.into_iter().for_each(|(name, tensor)| self.insert(name, tensor));
    }
}

impl IntoIterator for Tensors {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Tensors {
    type Item = &'a (String, Tensor);
    type IntoIter = std::slice::Iter<'a, (String, Tensor)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f64]) -> Tensor {
        Tensor::from_f64(DataType::Fp64, &[values.len()], values.iter().copied()).unwrap()
    }

    #[test]
    fn sizes_are_checked() {
        assert!(Tensor::new(DataType::Fp16, [2, 2], vec![0; 8]).is_ok());
        assert!(Tensor::new(DataType::Fp16, [], vec![0; 2]).is_ok());
        for (dtype, shape, len) in
            [(DataType::Fp16, vec![2, 2], 7), (DataType::Fp16, vec![usize::MAX, 2], 0), (DataType::Int4, vec![2], 1)]
        {
            assert_eq!(Tensor::new(dtype, shape, vec![0; len]).unwrap_err().kind(), ErrorKind::Layout);
        }
        assert_eq!(Tensor::zeros(DataType::Int32, [2, 3]).unwrap().bytes().len(), 24);
        assert_eq!(Tensor::zeros(DataType::Int32, [usize::MAX]).unwrap_err().kind(), ErrorKind::Layout);
        assert_eq!(Tensor::fp16(&[3], &[1.0]).unwrap_err().kind(), ErrorKind::Layout);
    }

    #[test]
    fn every_type_of_whole_bytes_holds_zero_and_one() {
        let values = Tensor::int32(&[2], &[0, 1]).unwrap();
        for (dtype, _) in DataType::ALL {
            let (Some(width), Ok(tensor)) = (dtype.bytes(), values.cast(dtype)) else {
                assert!(dtype.bytes().is_none() || dtype.name().starts_with("fp8"), "{dtype}");
                continue;
            };
            assert_eq!(tensor.bytes().len(), 2 * width, "{dtype}");
            assert_eq!(tensor.to_i64().unwrap(), [0, 1], "{dtype}");
            assert_eq!(tensor.to_f32(), [0.0, 1.0], "{dtype}");
            assert_eq!(tensor.cast(DataType::Int32).unwrap(), values, "{dtype}");
        }
    }

    #[test]
    fn casts_round_floats_and_refuse_integers_that_do_not_fit() {
        let cast = |values: &[f64], dtype| floats(values).cast(dtype).map(|t| t.to_f64().collect::<Vec<_>>());
        // 1 + 2^-11 is halfway between 1 and the next fp16 number, and ties go to even; for bf16 at
        // 2^-8.
        assert_eq!(cast(&[1.0 + 2f64.powi(-11)], DataType::Fp16).unwrap(), [1.0]);
        assert_eq!(cast(&[1.0 + 2f64.powi(-8)], DataType::Bf16).unwrap(), [1.0]);
        assert_eq!(cast(&[1.0 + 1.5 * 2f64.powi(-8)], DataType::Bf16).unwrap(), [1.0 + 2f64.powi(-7)]);
        assert!(cast(&[f64::NAN], DataType::Bf16).unwrap()[0].is_nan());
        assert_eq!(**floats(&[-128.0]).cast(DataType::Int8).unwrap().bytes(), [0x80]);
        for (value, dtype) in [
            (1.5, DataType::Int32),
            (128.0, DataType::Int8),
            (-1.0, DataType::UInt8),
            (2.0, DataType::Bool),
            (f64::NAN, DataType::Int32),
            (f64::INFINITY, DataType::Int64),
        ] {
            assert_eq!(cast(&[value], dtype).unwrap_err().kind(), ErrorKind::Layout, "{value} as {dtype}");
        }
        assert!(cast(&[1.0], DataType::Fp8E5M2).is_err());
        let large = Tensor::new(DataType::UInt64, [1], vec![0xFF; 8]).unwrap();
        assert!(large.cast(DataType::Int64).is_err() && large.to_i64().is_err());
        assert_eq!(large.to_f32(), [2f32.powi(64)]);
    }

    #[test]
    fn fp8_patterns_are_those_of_the_ocp_formats() {
        // OCP 8-bit Floating Point Specification, revision 1.0, table 2.
        let e4m3 = Tensor::new(DataType::Fp8E4M3Fn, [6], vec![0x01, 0x08, 0x38, 0x7E, 0xFE, 0x7F]).unwrap();
        let values: Vec<f64> = e4m3.to_f64().collect();
        assert_eq!(values[..5], [2f64.powi(-9), 2f64.powi(-6), 1.0, 448.0, -448.0]);
        assert!(values[5].is_nan());
        let e5m2 = Tensor::new(DataType::Fp8E5M2, [6], vec![0x01, 0x04, 0x3C, 0x7B, 0xFC, 0x7D]).unwrap();
        let values: Vec<f64> = e5m2.to_f64().collect();
        assert_eq!(values[..5], [2f64.powi(-16), 2f64.powi(-14), 1.0, 57344.0, f64::NEG_INFINITY]);
        assert!(values[5].is_nan());
    }

    #[test]
    fn shapes_change_without_a_copy_and_constants_come_back() {
        let tensor = Tensor::int32(&[2, 3], &[1, 2, 3, 4, 5, 6]).unwrap();
        let flat = tensor.reshape(&[6]).unwrap();
        assert_eq!((flat.shape(), flat.bytes().as_ptr()), (&[6][..], tensor.bytes().as_ptr()));
        assert!(tensor.reshape(&[5]).is_err());
        let back = Tensor::from_constant(&tensor.to_constant(), &Weights::new()).unwrap();
        assert_eq!(back, tensor);
        assert!(Tensor::from_constant(&Constant::string("a"), &Weights::new()).is_err());
    }

    #[test]
    fn names_are_unique_and_unknown_ones_list_the_known() {
        let [a, b] = [1, 2].map(|v| Tensor::int32(&[], &[v]).unwrap());
        let mut tensors = Tensors::from([("x", a.clone()), ("y", a.clone())]);
        tensors.insert("x", b.clone());
        assert_eq!((tensors.len(), tensors.get("x").unwrap()), (2, &b));
        let error = tensors.get("z").unwrap_err();
        assert_eq!((error.kind(), error.port()), (ErrorKind::Binding, Some("z")));
        assert!(error.message().contains("x, y"), "{error}");
    }
}
