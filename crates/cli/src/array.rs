//! Arrays: numbers with an element type and a shape, as files and literals hold them and ports want them.

pub mod npy;
pub mod safe;
mod source;

use ferrane::host::f16;
use ferrane::mil::{Constant, DataType, Weights};

pub use source::{Source, Want};

/// Numbers in the one form that loses nothing on the way to a port.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Of any float type.
    Floats(Vec<f64>),
    /// Of any integer type, and of bool (0 or 1).
    Ints(Vec<i64>),
}

/// An array. Invariant: as many numbers as the shape says, of the kind that the type says.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Element type, of whole bytes, not string.
    pub dtype: DataType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Row-major.
    pub numbers: Numbers,
}

/// The product of extents, if it is a number of elements that can be.
pub fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

impl Array {
    /// From row-major little-endian bytes.
    pub fn from_bytes(dtype: DataType, shape: &[usize], bytes: &[u8]) -> Result<Array, String> {
        let width = dtype.bytes().ok_or_else(|| format!("elements of type {dtype} have no whole bytes"))?;
        let expected = elements(shape).and_then(|n| n.checked_mul(width));
        if expected != Some(bytes.len()) {
            return Err(format!("{} bytes are not those of {dtype} {shape:?}", bytes.len()));
        }
        let words = bytes.chunks_exact(width);
        let ints = |read: fn(&[u8]) -> i64| Numbers::Ints(words.clone().map(read).collect());
        let floats = |read: fn(&[u8]) -> f64| Numbers::Floats(words.clone().map(read).collect());
        let numbers = match dtype {
            DataType::Fp16 => floats(|b| f16::from_le_bytes(word(b)).to_f64()),
            DataType::Fp32 => floats(|b| f64::from(f32::from_le_bytes(word(b)))),
            DataType::Fp64 => floats(|b| f64::from_le_bytes(word(b))),
            DataType::Bf16 => floats(|b| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(word(b))) << 16))),
            DataType::Bool => ints(|b| i64::from(b[0] != 0)),
            DataType::Int8 => ints(|b| i64::from(b[0] as i8)),
            DataType::UInt8 => ints(|b| i64::from(b[0])),
            DataType::Int16 => ints(|b| i64::from(i16::from_le_bytes(word(b)))),
            DataType::UInt16 => ints(|b| i64::from(u16::from_le_bytes(word(b)))),
            DataType::Int32 => ints(|b| i64::from(i32::from_le_bytes(word(b)))),
            DataType::UInt32 => ints(|b| i64::from(u32::from_le_bytes(word(b)))),
            DataType::Int64 => ints(|b| i64::from_le_bytes(word(b))),
            DataType::UInt64 => {
                if let Some(big) =
                    words.clone().map(|b| u64::from_le_bytes(word(b))).find(|v| i64::try_from(*v).is_err())
                {
                    return Err(format!("{big} is beyond what an int64 holds"));
                }
                ints(|b| i64::from_le_bytes(word(b)))
            }
            _ => return Err(format!("elements of type {dtype} cannot be read")),
        };
        Ok(Array { dtype, shape: shape.to_vec(), numbers })
    }

    /// Row-major little-endian bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match &self.numbers {
            Numbers::Floats(values) => values.iter().for_each(|&v| match self.dtype {
                DataType::Fp16 => bytes.extend(f16::from_f64(v).to_le_bytes()),
                DataType::Bf16 => bytes.extend(bf16(v).to_le_bytes()),
                DataType::Fp64 => bytes.extend(v.to_le_bytes()),
                _ => bytes.extend((v as f32).to_le_bytes()),
            }),
            // The low bytes of two's complement are the narrower number.
            Numbers::Ints(values) => {
                let width = self.dtype.bytes().unwrap_or(8);
                values.iter().for_each(|v| bytes.extend(&v.to_le_bytes()[..width]));
            }
        }
        bytes
    }

    /// The same numbers as another element type. Floats are rounded to nearest even; an integer must hold what it is given.
    pub fn to(&self, dtype: DataType) -> Result<Array, String> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        let float = matches!(dtype, DataType::Fp16 | DataType::Fp32 | DataType::Fp64 | DataType::Bf16);
        if !float && range(dtype).is_none() {
            return Err(format!("numbers cannot be converted to {dtype}"));
        }
        let numbers = match (&self.numbers, float) {
            (Numbers::Floats(v), true) => Numbers::Floats(v.clone()),
            (Numbers::Ints(v), true) => Numbers::Floats(v.iter().map(|&v| v as f64).collect()),
            (Numbers::Ints(v), false) => Numbers::Ints(v.clone()),
            (Numbers::Floats(v), false) => {
                // Beyond 2^53 a float does not say which integer it means.
                let whole = |v: &f64| (v.fract() == 0.0 && v.abs() <= 9e15).then_some(*v as i64);
                match v.iter().find(|v| whole(v).is_none()) {
                    Some(odd) => return Err(format!("{odd} is no value of type {dtype}; give whole numbers")),
                    None => Numbers::Ints(v.iter().filter_map(whole).collect()),
                }
            }
        };
        if let Numbers::Ints(v) = &numbers {
            let (low, high) = range(dtype).unwrap_or((0, 0));
            if let Some(odd) = v.iter().find(|v| !(low..=high).contains(*v)) {
                return Err(format!("{odd} is no value of type {dtype}, which holds {low} to {high}"));
            }
        }
        let mut array = Array { dtype, shape: self.shape.clone(), numbers };
        if let Numbers::Floats(v) = &mut array.numbers {
            // The numbers are what the type can hold.
            v.iter_mut().for_each(|v| {
                *v = match dtype {
                    DataType::Fp16 => f16::from_f64(*v).to_f64(),
                    DataType::Bf16 => f64::from(f32::from_bits(u32::from(bf16(*v)) << 16)),
                    DataType::Fp32 => f64::from(*v as f32),
                    _ => *v,
                }
            });
        }
        Ok(array)
    }

    /// From a constant.
    pub fn from_constant(constant: &Constant, weights: &Weights) -> Result<Array, String> {
        let ty = constant.ty();
        match (ty.dtype(), ty.shape(), constant.bytes(weights)) {
            (Some(dtype), Some(shape), Some(bytes)) => Array::from_bytes(dtype, &shape, bytes),
            _ => Err(format!("a {ty} is no array of numbers")),
        }
    }

    /// As a constant.
    pub fn constant(&self) -> Constant {
        Constant::raw(self.dtype, &self.shape, &self.to_bytes())
    }

    /// The numbers as floats.
    pub fn floats(&self) -> Vec<f64> {
        match &self.numbers {
            Numbers::Floats(v) => v.clone(),
            Numbers::Ints(v) => v.iter().map(|&v| v as f64).collect(),
        }
    }
}

/// The smallest and the largest integer of a type.
fn range(dtype: DataType) -> Option<(i64, i64)> {
    Some(match dtype {
        DataType::Bool => (0, 1),
        DataType::Int8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DataType::UInt8 => (0, i64::from(u8::MAX)),
        DataType::Int16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DataType::UInt16 => (0, i64::from(u16::MAX)),
        DataType::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DataType::UInt32 => (0, i64::from(u32::MAX)),
        DataType::Int64 => (i64::MIN, i64::MAX),
        DataType::UInt64 => (0, i64::MAX),
        _ => return None,
    })
}

/// The bytes of one element; the caller has cut them to its width.
fn word<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0))
}

/// Round to nearest even, by way of fp32.
fn bf16(v: f64) -> u16 {
    let bits = (v as f32).to_bits();
    if (v as f32).is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(v: &[f64]) -> Array {
        Array { dtype: DataType::Fp64, shape: vec![v.len()], numbers: Numbers::Floats(v.to_vec()) }
    }

    #[test]
    fn bytes_and_back_for_every_type() {
        let values = Array { dtype: DataType::Int64, shape: vec![2], numbers: Numbers::Ints(vec![0, 1]) };
        for (dtype, _) in DataType::ALL {
            let (Some(width), Ok(array)) = (dtype.bytes(), values.to(dtype)) else {
                assert!(dtype.bytes().is_none() || dtype.name().starts_with("fp8"), "{dtype}");
                continue;
            };
            let bytes = array.to_bytes();
            assert_eq!(bytes.len(), 2 * width, "{dtype}");
            assert_eq!(Array::from_bytes(dtype, &[2], &bytes).unwrap(), array);
        }
        assert!(Array::from_bytes(DataType::Fp16, &[3], &[0; 4]).is_err());
        assert!(Array::from_bytes(DataType::Fp16, &[usize::MAX, 4], &[0; 4]).is_err());
    }

    #[test]
    fn conversion_rounds_floats_and_refuses_what_integers_cannot_hold() {
        // 1 + 2^-11 lies between 1 and the next fp16 number: even wins. The same for bf16 at 2^-8.
        assert_eq!(floats(&[1.0 + 2f64.powi(-11)]).to(DataType::Fp16).unwrap().floats(), [1.0]);
        assert_eq!(floats(&[1.0 + 2f64.powi(-8)]).to(DataType::Bf16).unwrap().floats(), [1.0]);
        assert_eq!(floats(&[1.0 + 1.5 * 2f64.powi(-8)]).to(DataType::Bf16).unwrap().floats(), [1.0 + 2f64.powi(-7)]);
        assert!(floats(&[f64::NAN]).to(DataType::Bf16).unwrap().floats()[0].is_nan());
        assert_eq!(floats(&[-128.0]).to(DataType::Int8).unwrap().to_bytes(), [0x80]);
        for (value, dtype) in [
            (1.5, DataType::Int32),
            (128.0, DataType::Int8),
            (-1.0, DataType::UInt8),
            (2.0, DataType::Bool),
            (f64::NAN, DataType::Int32),
            (f64::INFINITY, DataType::Int64),
        ] {
            let error = floats(&[value]).to(dtype).unwrap_err();
            assert!(error.contains("is no value of type"), "{error}");
        }
    }
}
