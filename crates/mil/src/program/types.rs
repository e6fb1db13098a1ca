//! Data types and value types of MIL (mil-text §3, coreml-containers).

use std::fmt;

/// An element type. The names are those of MIL text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DataType {
    Bool,
    String,
    Fp16,
    Fp32,
    Fp64,
    Bf16,
    Fp8E4M3Fn,
    Fp8E5M2,
    Int4,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt1,
    UInt2,
    UInt3,
    UInt4,
    UInt6,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
}

impl DataType {
    /// Every data type, with its name in MIL text.
    pub const ALL: [(DataType, &'static str); 22] = [
        (DataType::Bool, "bool"),
        (DataType::String, "string"),
        (DataType::Fp16, "fp16"),
        (DataType::Fp32, "fp32"),
        (DataType::Fp64, "fp64"),
        (DataType::Bf16, "bf16"),
        (DataType::Fp8E4M3Fn, "fp8e4m3fn"),
        (DataType::Fp8E5M2, "fp8e5m2"),
        (DataType::Int4, "int4"),
        (DataType::Int8, "int8"),
        (DataType::Int16, "int16"),
        (DataType::Int32, "int32"),
        (DataType::Int64, "int64"),
        (DataType::UInt1, "uint1"),
        (DataType::UInt2, "uint2"),
        (DataType::UInt3, "uint3"),
        (DataType::UInt4, "uint4"),
        (DataType::UInt6, "uint6"),
        (DataType::UInt8, "uint8"),
        (DataType::UInt16, "uint16"),
        (DataType::UInt32, "uint32"),
        (DataType::UInt64, "uint64"),
    ];

    /// The name in MIL text.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(d, _)| *d == self).map_or("?", |(_, n)| n)
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<DataType> {
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(d, _)| *d)
    }

    /// Bits of one element in a weight blob or a surface; strings have none.
    pub fn bits(self) -> Option<usize> {
        Some(match self {
            DataType::String => return None,
            DataType::UInt1 => 1,
            DataType::UInt2 => 2,
            DataType::UInt3 => 3,
            DataType::Int4 | DataType::UInt4 => 4,
            DataType::UInt6 => 6,
            DataType::Bool | DataType::Fp8E4M3Fn | DataType::Fp8E5M2 | DataType::Int8 | DataType::UInt8 => 8,
            DataType::Fp16 | DataType::Bf16 | DataType::Int16 | DataType::UInt16 => 16,
            DataType::Fp32 | DataType::Int32 | DataType::UInt32 => 32,
            DataType::Fp64 | DataType::Int64 | DataType::UInt64 => 64,
        })
    }

    /// Bytes of one element, for types of whole bytes.
    pub fn bytes(self) -> Option<usize> {
        self.bits().filter(|b| b % 8 == 0).map(|b| b / 8)
    }

    /// fp16, fp32, fp64, bf16 or one of the two fp8.
    pub fn is_float(self) -> bool {
        use DataType::{Bf16, Fp8E4M3Fn, Fp8E5M2, Fp16, Fp32, Fp64};
        matches!(self, Fp16 | Fp32 | Fp64 | Bf16 | Fp8E4M3Fn | Fp8E5M2)
    }

    /// A signed or unsigned integer of any width (bool is none).
    pub fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DataType::Bool | DataType::String)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One extent of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A known extent, 0 or more.
    Fixed(usize),
    /// An unknown extent, `?` in text.
    Unknown,
}

/// The type of a value. A scalar is a tensor of rank 0; which spelling text uses is the printer's
/// choice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Type {
    /// `tensor<dtype, [dims]>` or a scalar.
    Tensor {
        /// Type of the elements.
        dtype: DataType,
        /// Extents, outermost first; empty for a scalar.
        shape: Vec<Dim>,
    },
    /// `list<element, length>`.
    List {
        /// Type of the items.
        element: Box<Type>,
        /// Number of elements if fixed.
        length: Dim,
    },
    /// `tuple<…>`.
    Tuple(Vec<Type>),
    /// `dict<key, value>`.
    Dict(Box<Type>, Box<Type>),
    /// `state<…>`: a tensor that outlives an evaluation.
    State(Box<Type>),
}

impl Type {
    /// A tensor with known extents.
    pub fn tensor(dtype: DataType, shape: &[usize]) -> Type {
        Type::Tensor { dtype, shape: shape.iter().map(|&d| Dim::Fixed(d)).collect() }
    }

    /// A tensor of rank 0.
    pub fn scalar(dtype: DataType) -> Type {
        Type::Tensor { dtype, shape: Vec::new() }
    }

    /// Element type of a tensor.
    pub fn dtype(&self) -> Option<DataType> {
        match self {
            Type::Tensor { dtype, .. } => Some(*dtype),
            Type::State(inner) => inner.dtype(),
            _ => None,
        }
    }

    /// Extents of a tensor whose extents are all known.
    pub fn shape(&self) -> Option<Vec<usize>> {
        match self {
            Type::Tensor { shape, .. } => {
                shape.iter().map(|d| if let Dim::Fixed(n) = d { Some(*n) } else { None }).collect()
            }
            Type::State(inner) => inner.shape(),
            _ => None,
        }
    }

    /// Rank of a tensor.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Type::Tensor { shape, .. } => Some(shape.len()),
            Type::State(inner) => inner.rank(),
            _ => None,
        }
    }

    /// Number of elements of a tensor with known extents, if it fits.
    pub fn elements(&self) -> Option<usize> {
        self.shape()?.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }

    /// Bytes of a tensor with known extents, packed.
    pub fn bytes(&self) -> Option<usize> {
        let bits = self.elements()?.checked_mul(self.dtype()?.bits()?)?;
        Some(bits.div_ceil(8))
    }
}

/// The shorthand spelling: a tensor of rank 0 is written as its element type.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor { dtype, shape } if shape.is_empty() => write!(f, "{dtype}"),
            Type::Tensor { dtype, shape } => {
                write!(f, "tensor<{dtype}, [")?;
                for (i, d) in shape.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    match d {
                        Dim::Fixed(n) => write!(f, "{n}")?,
                        Dim::Unknown => f.write_str("?")?,
                    }
                }
                f.write_str("]>")
            }
            Type::List { element, length: Dim::Fixed(n) } => write!(f, "list<{element}, {n}>"),
            Type::List { element, length: Dim::Unknown } => write!(f, "list<{element}, ?>"),
            Type::Tuple(types) => {
                f.write_str("tuple<")?;
                for (i, t) in types.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{t}")?;
                }
                f.write_str(">")
            }
            Type::Dict(k, v) => write!(f, "dict<{k}, {v}>"),
            Type::State(t) => write!(f, "state<{t}>"),
        }
    }
}
