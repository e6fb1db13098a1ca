//! Tensors from bytes and back.

use ferrane_host::{convert, f16};
use ferrane_mil::program::Payload;
use ferrane_mil::{Constant, DataType, Weights, weights};

use super::{Data, HeapTensor};

impl HeapTensor {
    /// The elements of a constant. `None` if they are missing, or if the constant is not a tensor.
    pub(crate) fn from_constant(constant: &Constant, weights: &Weights) -> Option<HeapTensor> {
        let Constant::Tensor { ty, payload } = constant else { return None };
        let (dtype, shape, count) = (ty.dtype()?, ty.shape()?, ty.elements()?);
        let data = match payload {
            Payload::Strings(strings) => Data::Strings(strings.to_vec()),
            _ => decode(dtype, count, constant.bytes(weights)?)?,
        };
        let tensor = HeapTensor { dtype, shape, data };
        (tensor.len() == count).then_some(tensor)
    }

    /// The tensor as a constant; floats are rounded to the element type.
    pub(crate) fn to_constant(&self) -> Constant {
        match &self.data {
            Data::Strings(strings) => Constant::Tensor {
                ty: ferrane_mil::Type::tensor(self.dtype, &self.shape),
                payload: Payload::Strings(strings.as_slice().into()),
            },
            _ => Constant::raw(self.dtype, &self.shape, &self.to_bytes(self.dtype)),
        }
    }

    /// Packed little-endian elements of a type of the same kind. Strings have none.
    pub(crate) fn to_bytes(&self, dtype: DataType) -> Vec<u8> {
        match (&self.data, dtype) {
            (Data::Floats(v), DataType::Fp16) => v.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
            (Data::Floats(v), DataType::Bf16) => v.iter().flat_map(|&v| bf16(v).to_le_bytes()).collect(),
            (Data::Floats(v), DataType::Fp64) => v.iter().flat_map(|&v| f64::from(v).to_le_bytes()).collect(),
            (Data::Floats(v), _) => bytemuck::cast_slice(v).to_vec(),
            (Data::Ints(v), DataType::Bool) => v.iter().map(|&v| u8::from(v != 0)).collect(),
            (Data::Ints(v), _) => match dtype.bytes() {
                Some(size) => v.iter().flat_map(|v| v.to_le_bytes().into_iter().take(size)).collect(),
                None => weights::pack(dtype, v),
            },
            (Data::Strings(_), _) => Vec::new(),
        }
    }

    /// Converts the values to values of their element type: integers are wrapped, and fp16 is
    /// rounded if `round`.
    pub(crate) fn settle(&mut self, round: bool) {
        let dtype = self.dtype;
        match &mut self.data {
            Data::Floats(v) if round && dtype == DataType::Fp16 => convert::round_f16(v),
            Data::Floats(_) | Data::Strings(_) => {}
            Data::Ints(v) => {
                if dtype != DataType::Int32 || v.iter().any(|&v| v != i64::from(v as i32)) {
                    v.iter_mut().for_each(|v| *v = wrap(dtype, *v));
                }
            }
        }
    }

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        match &self.data {
            Data::Floats(v) => v.len() * 4,
            Data::Ints(v) => v.len() * 8,
            Data::Strings(v) => v.iter().map(|s| s.len() + size_of::<String>()).sum(),
        }
    }
}

/// An integer as a value of its type.
fn wrap(dtype: DataType, v: i64) -> i64 {
    match dtype {
        DataType::Bool => i64::from(v != 0),
        DataType::Int64 | DataType::UInt64 => v,
        DataType::Int4 | DataType::Int8 | DataType::Int16 | DataType::Int32 => {
            let unused = 64 - dtype.bits().unwrap_or(64) as u32;
            (v << unused) >> unused
        }
        _ => v & ((1i64 << dtype.bits().unwrap_or(32)) - 1),
    }
}

/// The upper half of an fp32, rounded to nearest even.
fn bf16(v: f32) -> u16 {
    let bits = v.to_bits();
    if v.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// `count` elements of a type. `None` if there are fewer.
pub(crate) fn decode(dtype: DataType, count: usize, bytes: &[u8]) -> Option<Data> {
    let size = dtype.bits()?.checked_mul(count)?.div_ceil(8);
    let bytes = bytes.get(..size)?;
    macro_rules! ints {
        ($t:ty) => {{
            const N: usize = size_of::<$t>();
            let element = |b: &[u8]| <[u8; N]>::try_from(b).map(<$t>::from_le_bytes).map_or(0, |v| v as i64);
            Data::Ints(bytes.chunks_exact(N).map(element).collect())
        }};
    }
    Some(match dtype {
        DataType::Fp16 => {
            Data::Floats(bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect())
        }
        DataType::Bf16 => {
            let widened = |b: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
            Data::Floats(bytes.chunks_exact(2).map(widened).collect())
        }
        DataType::Fp32 => {
            Data::Floats(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
        }
        DataType::Fp64 => {
            let narrowed = |b: &[u8]| <[u8; 8]>::try_from(b).map_or(0.0, |b| f64::from_le_bytes(b) as f32);
            Data::Floats(bytes.chunks_exact(8).map(narrowed).collect())
        }
        DataType::Bool => Data::Ints(bytes.iter().map(|&b| i64::from(b != 0)).collect()),
        DataType::Int8 => ints!(i8),
        DataType::UInt8 => ints!(u8),
        DataType::Int16 => ints!(i16),
        DataType::UInt16 => ints!(u16),
        DataType::Int32 => ints!(i32),
        DataType::UInt32 => ints!(u32),
        DataType::Int64 | DataType::UInt64 => ints!(i64),
        DataType::Int4 | DataType::UInt1 | DataType::UInt2 | DataType::UInt3 | DataType::UInt4 | DataType::UInt6 => {
            Data::Ints(weights::unpack(dtype, bytes, count))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_elements_are_packed_from_the_lowest_bit() {
        // weight-blob §6.
        let bytes = [0x98, 0x0f, 0x61, 0x07];
        let values = [-8, -7, -1, 0, 1, 6, 7];
        assert_eq!(decode(DataType::Int4, 7, &bytes), Some(Data::Ints(values.to_vec())));
        assert_eq!(HeapTensor::ints(DataType::Int4, &[7], values.to_vec()).to_bytes(DataType::Int4), bytes);
        // Three bits cross bytes: 1, 2, 3 are 0b011_010_001.
        assert_eq!(decode(DataType::UInt3, 3, &[0b1101_0001, 0]), Some(Data::Ints(vec![1, 2, 3])));
        assert_eq!(HeapTensor::ints(DataType::UInt3, &[3], vec![1, 2, 3]).to_bytes(DataType::UInt3), [0b1101_0001, 0]);
        assert_eq!(decode(DataType::Int4, 9, &bytes), None);
    }

    #[test]
    fn integers_wrap_to_their_type() {
        let wrapped = |dtype, v| {
            let mut t = HeapTensor::ints(dtype, &[1], vec![v]);
            t.settle(false);
            t.int(0)
        };
        assert_eq!(wrapped(DataType::Int32, 1 << 31), -(1 << 31));
        assert_eq!(wrapped(DataType::UInt8, -1), 255);
        assert_eq!(wrapped(DataType::Int8, 200), -56);
        assert_eq!(wrapped(DataType::Bool, 7), 1);
        assert_eq!(wrapped(DataType::UInt32, -1), i64::from(u32::MAX));
    }

    #[test]
    fn bf16_is_rounded_to_nearest_even() {
        assert_eq!([1.0, 1.003_906_3, 1.011_718_8, f32::MAX].map(bf16), [0x3F80, 0x3F80, 0x3F82, 0x7F80]);
        assert!(bf16(f32::NAN) & 0x7F > 0);
    }
}
