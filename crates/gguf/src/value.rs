//! Values of metadata.

use std::fmt;

/// The type of a value, or of the elements of an array.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// In the order of their numbers in files.
    const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    /// The type with this number in files; `None` for an unknown one.
    pub fn from_id(id: u32) -> Option<ValueType> {
        ValueType::ALL.get(id as usize).copied()
    }

    /// The number in files.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The name, in lower case: `u32`.
    pub fn name(self) -> &'static str {
        let names = ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];
        names[self as usize]
    }

    /// The fewest bytes of a value of this type in a file.
    pub(crate) fn smallest(self) -> usize {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::String | ValueType::U64 | ValueType::I64 | ValueType::F64 => 8,
            ValueType::Array => 12,
        }
    }
}

/// A value of metadata.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of values of one type. Arrays may nest.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl MetadataValue {
    /// The type of the value.
    pub fn ty(&self) -> ValueType {
        match self {
            MetadataValue::U8(_) => ValueType::U8,
            MetadataValue::I8(_) => ValueType::I8,
            MetadataValue::U16(_) => ValueType::U16,
            MetadataValue::I16(_) => ValueType::I16,
            MetadataValue::U32(_) => ValueType::U32,
            MetadataValue::I32(_) => ValueType::I32,
            MetadataValue::F32(_) => ValueType::F32,
            MetadataValue::Bool(_) => ValueType::Bool,
            MetadataValue::String(_) => ValueType::String,
            MetadataValue::Array(_) => ValueType::Array,
            MetadataValue::U64(_) => ValueType::U64,
            MetadataValue::I64(_) => ValueType::I64,
            MetadataValue::F64(_) => ValueType::F64,
        }
    }

    /// An integer of any width that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            MetadataValue::U8(v) => Some(v.into()),
            MetadataValue::U16(v) => Some(v.into()),
            MetadataValue::U32(v) => Some(v.into()),
            MetadataValue::U64(v) => Some(v),
            MetadataValue::I8(v) => v.try_into().ok(),
            MetadataValue::I16(v) => v.try_into().ok(),
            MetadataValue::I32(v) => v.try_into().ok(),
            MetadataValue::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// A floating-point number of either width.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            MetadataValue::F32(v) => Some(v.into()),
            MetadataValue::F64(v) => Some(v),
            _ => None,
        }
    }

    /// A truth value; `None` for numbers, 0 and 1 included.
    pub fn as_bool(&self) -> Option<bool> {
        if let MetadataValue::Bool(v) = *self { Some(v) } else { None }
    }

    /// The text of a string; `None` for other types.
    pub fn as_str(&self) -> Option<&str> {
        if let MetadataValue::String(v) = self { Some(v) } else { None }
    }

    /// The elements of an array; `None` for other types.
    pub fn as_array(&self) -> Option<&Array> {
        if let MetadataValue::Array(v) = self { Some(v) } else { None }
    }
}

impl Array {
    /// The type of the elements.
    pub fn ty(&self) -> ValueType {
        match self {
            Array::U8(_) => ValueType::U8,
            Array::I8(_) => ValueType::I8,
            Array::U16(_) => ValueType::U16,
            Array::I16(_) => ValueType::I16,
            Array::U32(_) => ValueType::U32,
            Array::I32(_) => ValueType::I32,
            Array::F32(_) => ValueType::F32,
            Array::Bool(_) => ValueType::Bool,
            Array::String(_) => ValueType::String,
            Array::Array(_) => ValueType::Array,
            Array::U64(_) => ValueType::U64,
            Array::I64(_) => ValueType::I64,
            Array::F64(_) => ValueType::F64,
        }
    }

    /// Number of elements; of an array of arrays, the inner arrays.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::Array(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index` as a value of its own; `None` beyond the end.
    pub fn get(&self, index: usize) -> Option<MetadataValue> {
        Some(match self {
            Array::U8(v) => MetadataValue::U8(*v.get(index)?),
            Array::I8(v) => MetadataValue::I8(*v.get(index)?),
            Array::U16(v) => MetadataValue::U16(*v.get(index)?),
            Array::I16(v) => MetadataValue::I16(*v.get(index)?),
            Array::U32(v) => MetadataValue::U32(*v.get(index)?),
            Array::I32(v) => MetadataValue::I32(*v.get(index)?),
            Array::F32(v) => MetadataValue::F32(*v.get(index)?),
            Array::Bool(v) => MetadataValue::Bool(*v.get(index)?),
            Array::String(v) => MetadataValue::String(v.get(index)?.clone()),
            Array::Array(v) => MetadataValue::Array(v.get(index)?.clone()),
            Array::U64(v) => MetadataValue::U64(*v.get(index)?),
            Array::I64(v) => MetadataValue::I64(*v.get(index)?),
            Array::F64(v) => MetadataValue::F64(*v.get(index)?),
        })
    }

    /// The elements of an array of strings.
    pub fn strings(&self) -> Option<&[String]> {
        if let Array::String(v) = self { Some(v) } else { None }
    }

    /// The elements of an array of fp32 numbers.
    pub fn f32s(&self) -> Option<&[f32]> {
        if let Array::F32(v) = self { Some(v) } else { None }
    }

    /// The elements of an array of integers of any width, none of them negative.
    pub fn integers(&self) -> Option<Vec<u64>> {
        (0..self.len()).map(|index| self.get(index)?.as_u64()).collect()
    }
}

/// Numbers, truth values and strings as JSON prints them; `[N elements of TYPE]` for arrays.
impl fmt::Display for MetadataValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataValue::U8(v) => v.fmt(f),
            MetadataValue::I8(v) => v.fmt(f),
            MetadataValue::U16(v) => v.fmt(f),
            MetadataValue::I16(v) => v.fmt(f),
            MetadataValue::U32(v) => v.fmt(f),
            MetadataValue::I32(v) => v.fmt(f),
            MetadataValue::F32(v) => v.fmt(f),
            MetadataValue::Bool(v) => v.fmt(f),
            MetadataValue::String(v) => write!(f, "{v:?}"),
            MetadataValue::Array(v) => write!(f, "[{} elements of {}]", v.len(), v.ty().name()),
            MetadataValue::U64(v) => v.fmt(f),
            MetadataValue::I64(v) => v.fmt(f),
            MetadataValue::F64(v) => v.fmt(f),
        }
    }
}

macro_rules! from {
    ($($rust:ty => $variant:ident),*) => {$(
        impl From<$rust> for MetadataValue {
            fn from(value: $rust) -> MetadataValue {
                MetadataValue::$variant(value.into())
            }
        }
        impl From<Vec<$rust>> for MetadataValue {
            fn from(values: Vec<$rust>) -> MetadataValue {
                MetadataValue::Array(Array::$variant(values.into_iter().map(Into::into).collect()))
            }
        }
    )*};
}

from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
      String => String, &str => String, Array => Array, u64 => U64, i64 => I64, f64 => F64);
