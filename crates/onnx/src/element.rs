//! Element types of ONNX, and what replaces them in a program.

use ferrane_mil::DataType;

macro_rules! elements {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// An element type of ONNX.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[allow(missing_docs)]
        pub enum ElementType {
            $($variant,)*
            /// A type that this version does not know, by its number.
            Other(i32),
        }

        impl ElementType {
            /// The type with this number in `TensorProto.DataType`.
            pub fn from_number(number: i32) -> ElementType {
                match number {
                    $($number => ElementType::$variant,)*
                    other => ElementType::Other(other),
                }
            }

            /// The number in `TensorProto.DataType`.
            pub fn number(self) -> i32 {
                match self {
                    $(ElementType::$variant => $number,)*
                    ElementType::Other(number) => number,
                }
            }

            /// The type of that name: `INT64`.
            pub fn from_name(name: &str) -> Option<ElementType> {
                match name {
                    $($name => Some(ElementType::$variant),)*
                    _ => None,
                }
            }

            /// The name in ONNX: `INT64`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ElementType::$variant => $name,)*
                    ElementType::Other(_) => "an unknown type",
                }
            }
        }
    };
}

elements! {
    Float = 1, "FLOAT";
    UInt8 = 2, "UINT8";
    Int8 = 3, "INT8";
    UInt16 = 4, "UINT16";
    Int16 = 5, "INT16";
    Int32 = 6, "INT32";
    Int64 = 7, "INT64";
    String = 8, "STRING";
    Bool = 9, "BOOL";
    Float16 = 10, "FLOAT16";
    Double = 11, "DOUBLE";
    UInt32 = 12, "UINT32";
    UInt64 = 13, "UINT64";
    Complex64 = 14, "COMPLEX64";
    Complex128 = 15, "COMPLEX128";
    BFloat16 = 16, "BFLOAT16";
    Float8E4M3Fn = 17, "FLOAT8E4M3FN";
    Float8E4M3FnUz = 18, "FLOAT8E4M3FNUZ";
    Float8E5M2 = 19, "FLOAT8E5M2";
    Float8E5M2FnUz = 20, "FLOAT8E5M2FNUZ";
    UInt4 = 21, "UINT4";
    Int4 = 22, "INT4";
    Float4E2M1 = 23, "FLOAT4E2M1";
    Float8E8M0 = 24, "FLOAT8E8M0";
    UInt2 = 25, "UINT2";
    Int2 = 26, "INT2";
}

impl std::fmt::Display for ElementType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ElementType::Other(number) => write!(f, "type {number}"),
            known => f.write_str(known.name()),
        }
    }
}

impl ElementType {
    /// Bits of one element in a file. `None` for strings and unknown types.
    pub(crate) fn bits(self) -> Option<usize> {
        use ElementType::*;
        Some(match self {
            UInt2 | Int2 => 2,
            UInt4 | Int4 | Float4E2M1 => 4,
            UInt8 | Int8 | Bool | Float8E4M3Fn | Float8E4M3FnUz | Float8E5M2 | Float8E5M2FnUz | Float8E8M0 => 8,
            UInt16 | Int16 | Float16 | BFloat16 => 16,
            Float | Int32 | UInt32 => 32,
            Int64 | UInt64 | Double | Complex64 => 64,
            Complex128 => 128,
            String | Other(_) => return None,
        })
    }

    /// Width in bits of an integer type, and whether it is signed. `None` for other types.
    pub fn integer(self) -> Option<(u32, bool)> {
        use ElementType::*;
        Some(match self {
            Int64 => (64, true),
            UInt64 => (64, false),
            Int32 => (32, true),
            UInt32 => (32, false),
            Int16 => (16, true),
            UInt16 => (16, false),
            Int8 => (8, true),
            UInt8 => (8, false),
            Int4 => (4, true),
            UInt4 => (4, false),
            Int2 => (2, true),
            UInt2 => (2, false),
            _ => return None,
        })
    }

    /// The smallest and the largest value of an integer type of at most 32 bits.
    pub(crate) fn range(self) -> Option<(f64, f64)> {
        let (bits, signed) = self.integer().filter(|(bits, _)| *bits <= 32)?;
        let span = 2f64.powi(bits as i32);
        Some(if signed { (-span / 2.0, span / 2.0 - 1.0) } else { (0.0, span - 1.0) })
    }

    /// True for a float type of at least 16 bits.
    pub(crate) fn is_float(self) -> bool {
        use ElementType::{BFloat16, Double, Float, Float16};
        matches!(self, Float | Double | Float16 | BFloat16)
    }

    /// The MIL type that replaces it where floats are fp32: fp32 for FLOAT, DOUBLE and BFLOAT16,
    /// int32 for integers. `None` if there is none.
    pub fn mil(self) -> Option<DataType> {
        use ElementType::{BFloat16, Bool, Double, Float, Float16};
        Some(match self {
            Float | Double | BFloat16 => DataType::Fp32,
            Float16 => DataType::Fp16,
            Bool => DataType::Bool,
            _ if self.integer().is_some() => DataType::Int32,
            _ => return None,
        })
    }

    /// The type of ONNX that a value of this MIL type has where no other is known.
    pub(crate) fn of_mil(dtype: DataType) -> ElementType {
        match dtype {
            DataType::Fp32 => ElementType::Float,
            DataType::Fp16 => ElementType::Float16,
            DataType::Bool => ElementType::Bool,
            DataType::Int8 => ElementType::Int8,
            DataType::UInt8 => ElementType::UInt8,
            DataType::Int4 => ElementType::Int4,
            DataType::UInt4 => ElementType::UInt4,
            _ => ElementType::Int64,
        }
    }
}
