//! Tensors and their elements.

use super::{Decoded, Field, Kind, TYPES};
use crate::bytecode::{AttributeId, Bytecode, TypeId};

macro_rules! elements {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $bits:literal, $text:literal;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ElementType {
            $($(#[$doc])* $name,)*
        }

        impl ElementType {
            /// Every type, in the order of their numbers.
            pub const ALL: &[ElementType] = &[$(ElementType::$name),*];

            /// The number of the kind of types.
            fn code(self) -> u64 {
                match self { $(ElementType::$name => $code,)* }
            }

            /// The number of bits that an element carries.
            pub fn bits(self) -> u32 {
                match self { $(ElementType::$name => $bits,)* }
            }

            /// MLIR's name, as in the text of a program.
            pub fn name(self) -> &'static str {
                match self { $(ElementType::$name => $text,)* }
            }
        }
    };
}

elements! {
    /// Truth values.
    Bool = 4, 1, "i1";
    /// 64-bit floating point.
    Float64 = 5, 64, "f64";
    /// 32-bit floating point.
    Float32 = 6, 32, "f32";
    /// 16-bit floating point.
    Float16 = 7, 16, "f16";
    /// The upper half of a 32-bit floating-point number.
    BFloat16 = 8, 16, "bf16";
    /// 8 bits: 5 of exponent, 2 of mantissa.
    Float8E5M2 = 9, 8, "f8E5M2";
    /// 8 bits: 4 of exponent, 3 of mantissa, no infinities.
    Float8E4M3FN = 10, 8, "f8E4M3FN";
    /// Two 32-bit floating-point numbers.
    Complex64 = 12, 64, "complex<f32>";
    /// Signed, 64 bits.
    Int64 = 17, 64, "si64";
    /// Signed, 32 bits.
    Int32 = 18, 32, "si32";
    /// Signed, 16 bits.
    Int16 = 19, 16, "si16";
    /// Signed, 8 bits.
    Int8 = 20, 8, "si8";
    /// Signed, 4 bits.
    Int4 = 21, 4, "si4";
    /// Signed, 2 bits.
    Int2 = 22, 2, "si2";
    /// Unsigned, 64 bits.
    UInt64 = 23, 64, "ui64";
    /// Unsigned, 32 bits.
    UInt32 = 24, 32, "ui32";
    /// Unsigned, 16 bits.
    UInt16 = 25, 16, "ui16";
    /// Unsigned, 8 bits.
    UInt8 = 26, 8, "ui8";
    /// Unsigned, 4 bits.
    UInt4 = 27, 4, "ui4";
    /// Unsigned, 2 bits.
    UInt2 = 28, 2, "ui2";
    /// Unsigned, 1 bit.
    UInt1 = 29, 1, "ui1";
    /// Unsigned, 6 bits.
    UInt6 = 36, 6, "ui6";
    /// Unsigned, 3 bits.
    UInt3 = 37, 3, "ui3";
    /// 4 bits: 2 of exponent, 1 of mantissa.
    Float4E2M1FN = 46, 4, "f4E2M1FN";
    /// 8 bits of exponent.
    Float8E8M0FNU = 47, 8, "f8E8M0FNU";
}

impl ElementType {
    /// The type of a decoded kind of types; `None` if it is no type of elements.
    pub fn of(kind: &Kind) -> Option<ElementType> {
        Self::ALL.iter().copied().find(|e| e.code() == kind.code)
    }

    /// The kind of types.
    pub fn kind(self) -> Option<&'static Kind> {
        TYPES.iter().find(|kind| kind.code == self.code())
    }

    /// The number of bytes that an element takes by itself.
    pub fn size(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    /// Whether a resource holds several elements in a byte, from its lowest bit on. An attribute
    /// does so only for elements of one bit.
    pub fn is_packed(self) -> bool {
        self.bits() < 8 && self != ElementType::Bool
    }

    /// Element `index` of a packed constant, in the lowest bits; 0 beyond its end.
    pub fn unpacked(self, bytes: &[u8], index: usize) -> u8 {
        let bits = self.bits() as usize;
        let (first, shift) = (index * bits / 8, index * bits % 8);
        let byte = |i: usize| u16::from(bytes.get(i).copied().unwrap_or(0));
        // Elements of 3 and 6 bits may end in the next byte.
        let pair = byte(first) | byte(first + 1) << 8;
        (pair >> shift) as u8 & (0xff >> (8 - bits.min(8)))
    }
}

/// The type of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The extents; `None` for those that are not known.
    pub shape: Vec<Option<u64>>,
    /// The type of its elements.
    pub element: ElementType,
    /// Its encoding or the constraints on its memory, if any.
    pub encoding: Option<AttributeId>,
}

impl Tensor {
    /// The number of elements. `None` if an extent is not known or the number overflows.
    pub fn count(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |count, extent| count.checked_mul(usize::try_from((*extent)?).ok()?))
    }
}

impl Bytecode<'_> {
    /// A type as a tensor. `None` if it is none.
    pub fn tensor(&self, id: TypeId) -> Option<Tensor> {
        let Decoded { kind, fields } = self.ty(id)?;
        let (extents, element, encoding) = match fields.as_slice() {
            [Field::Signeds(extents), Field::Type(element)] if kind.code == 2 => (extents, *element, None),
            [Field::Signeds(extents), Field::Type(element), Field::Attribute(encoding)] if kind.code == 3 => {
                (extents, *element, Some(*encoding))
            }
            _ => return None,
        };
        let element = ElementType::of(self.ty(element)?.kind)?;
        Some(Tensor { shape: extents.iter().map(|n| u64::try_from(*n).ok()).collect(), element, encoding })
    }
}
