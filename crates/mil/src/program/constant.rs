//! Compile-time values: the values of `const` ops and of attributes.

use std::sync::Arc;

use half::f16;

use super::types::{DataType, Type};
use crate::weights::{Bytes, WeightId, Weights};

/// The payload of a tensor constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// Row-major elements, little-endian, packed; sub-byte types packed as in a weight blob
    /// (weight-blob §6).
    Bytes(Arc<[u8]>),
    /// Strings in row-major order, one for each element.
    Strings(Arc<[String]>),
    /// A record of the program's [`Weights`].
    Weight(WeightId),
}

/// A compile-time value with its type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Constant {
    /// A tensor or scalar.
    Tensor {
        /// Its type: a tensor with known extents.
        ty: Type,
        /// Elements, inline or in the weights.
        payload: Payload,
    },
    /// A list with its type and items.
    List(Type, Vec<Constant>),
    /// A tuple of any constants.
    Tuple(Vec<Constant>),
    /// A dictionary, in text order.
    Dict(Type, Vec<(Constant, Constant)>),
}

impl Constant {
    /// A string of rank 0.
    pub fn string(s: &str) -> Constant {
        Constant::Tensor { ty: Type::scalar(DataType::String), payload: Payload::Strings(Arc::from([s.to_string()])) }
    }

    /// A bool of rank 0.
    pub fn bool(b: bool) -> Constant {
        Constant::raw(DataType::Bool, &[], &[u8::from(b)])
    }

    /// A scalar int32.
    pub fn int32(v: i32) -> Constant {
        Constant::raw(DataType::Int32, &[], &v.to_le_bytes())
    }

    /// A vector of int32.
    pub fn int32s(v: &[i32]) -> Constant {
        Constant::raw(DataType::Int32, &[v.len()], bytemuck::cast_slice(v))
    }

    /// A scalar fp16, rounded to nearest even.
    pub fn fp16(v: f32) -> Constant {
        Constant::raw(DataType::Fp16, &[], &f16::from_f32(v).to_le_bytes())
    }

    /// A scalar fp32.
    pub fn fp32(v: f32) -> Constant {
        Constant::raw(DataType::Fp32, &[], &v.to_le_bytes())
    }

    /// An fp16 tensor, row-major.
    pub fn fp16s(shape: &[usize], v: &[f16]) -> Constant {
        Constant::raw(DataType::Fp16, shape, bytemuck::cast_slice(v))
    }

    /// A tensor from its bytes.
    pub fn raw(dtype: DataType, shape: &[usize], bytes: &[u8]) -> Constant {
        Constant::Tensor { ty: Type::tensor(dtype, shape), payload: Payload::Bytes(Arc::from(bytes)) }
    }

    /// A tensor whose elements are a record of the weights.
    pub fn weight(dtype: DataType, shape: &[usize], id: WeightId) -> Constant {
        Constant::Tensor { ty: Type::tensor(dtype, shape), payload: Payload::Weight(id) }
    }

    /// The type of the constant.
    pub fn ty(&self) -> Type {
        match self {
            Constant::Tensor { ty, .. } | Constant::List(ty, _) | Constant::Dict(ty, _) => ty.clone(),
            Constant::Tuple(items) => Type::Tuple(items.iter().map(Constant::ty).collect()),
        }
    }

    /// The packed bytes of a tensor of numbers or bools. `None` for strings, aggregates, or a
    /// missing weight.
    pub fn bytes<'a>(&'a self, weights: &'a Weights) -> Option<&'a [u8]> {
        match self {
            Constant::Tensor { payload: Payload::Bytes(b), .. } => Some(b),
            Constant::Tensor { payload: Payload::Weight(id), .. } => weights.bytes(*id),
            _ => None,
        }
    }

    /// As [`Constant::bytes`], to be kept beyond the program; see [`Weights::shared`].
    pub fn shared(&self, weights: &Weights) -> Option<Bytes> {
        match self {
            Constant::Tensor { payload: Payload::Bytes(b), .. } => Some(Bytes::Shared(b.clone())),
            Constant::Tensor { payload: Payload::Weight(id), .. } => weights.shared(*id),
            _ => None,
        }
    }

    /// The value of a scalar string; `None` for any other constant.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Constant::Tensor { payload: Payload::Strings(s), .. } if s.len() == 1 => Some(&s[0]),
            _ => None,
        }
    }

    /// The value of a scalar bool; `None` for any other constant.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Constant::Tensor { ty, payload: Payload::Bytes(b) }
                if ty.dtype() == Some(DataType::Bool) && b.len() == 1 =>
            {
                Some(b[0] != 0)
            }
            _ => None,
        }
    }

    /// The elements of an inline tensor of integers or bools, row-major.
    pub fn as_ints(&self) -> Option<Vec<i64>> {
        let Constant::Tensor { ty, payload: Payload::Bytes(b) } = self else { return None };
        Some(match ty.dtype()? {
            DataType::Bool | DataType::UInt8 => b.iter().map(|&x| i64::from(x)).collect(),
            DataType::Int8 => b.iter().map(|&x| i64::from(x as i8)).collect(),
            DataType::Int16 => b.chunks_exact(2).map(|c| i64::from(i16::from_le_bytes([c[0], c[1]]))).collect(),
            DataType::UInt16 => b.chunks_exact(2).map(|c| i64::from(u16::from_le_bytes([c[0], c[1]]))).collect(),
            DataType::Int32 => {
                b.chunks_exact(4).map(|c| i64::from(i32::from_le_bytes([c[0], c[1], c[2], c[3]]))).collect()
            }
            DataType::UInt32 => {
                b.chunks_exact(4).map(|c| i64::from(u32::from_le_bytes([c[0], c[1], c[2], c[3]]))).collect()
            }
            DataType::Int64 | DataType::UInt64 => b
                .chunks_exact(8)
                .map(|c| i64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]))
                .collect(),
            _ => return None,
        })
    }

    /// The value of an inline scalar integer; `None` for any other constant.
    pub fn as_int(&self) -> Option<i64> {
        self.as_ints().filter(|v| v.len() == 1).map(|v| v[0])
    }

    /// A scalar float (or integer) as fp32.
    pub fn as_f32(&self) -> Option<f32> {
        let Constant::Tensor { ty, payload: Payload::Bytes(b) } = self else { return None };
        match (ty.dtype()?, b.len()) {
            (DataType::Fp16, 2) => Some(f16::from_le_bytes([b[0], b[1]]).to_f32()),
            (DataType::Fp32, 4) => Some(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            (DataType::Fp16 | DataType::Fp32, _) => None,
            _ => self.as_int().map(|v| v as f32),
        }
    }
}
