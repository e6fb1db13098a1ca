//! The types of tensors, with the sizes of their blocks.

/// The type of a tensor: plain numbers, or blocks of quantized ones.
///
/// The names are those of ggml.
#[allow(non_camel_case_types, missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorType {
    F32,
    F16,
    BF16,
    F64,
    I8,
    I16,
    I32,
    I64,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    IQ4_NL,
    IQ4_XS,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
}

use TensorType::*;

/// Each type with its number in files, its name, and the values and bytes of a block.
const TABLE: [(TensorType, u32, &str, usize, usize); 34] = [
    (F32, 0, "F32", 1, 4),
    (F16, 1, "F16", 1, 2),
    (BF16, 30, "BF16", 1, 2),
    (F64, 28, "F64", 1, 8),
    (I8, 24, "I8", 1, 1),
    (I16, 25, "I16", 1, 2),
    (I32, 26, "I32", 1, 4),
    (I64, 27, "I64", 1, 8),
    (Q4_0, 2, "Q4_0", 32, 18),
    (Q4_1, 3, "Q4_1", 32, 20),
    (Q5_0, 6, "Q5_0", 32, 22),
    (Q5_1, 7, "Q5_1", 32, 24),
    (Q8_0, 8, "Q8_0", 32, 34),
    (Q8_1, 9, "Q8_1", 32, 40),
    (Q2_K, 10, "Q2_K", 256, 84),
    (Q3_K, 11, "Q3_K", 256, 110),
    (Q4_K, 12, "Q4_K", 256, 144),
    (Q5_K, 13, "Q5_K", 256, 176),
    (Q6_K, 14, "Q6_K", 256, 210),
    (Q8_K, 15, "Q8_K", 256, 292),
    (IQ1_S, 19, "IQ1_S", 256, 50),
    (IQ1_M, 29, "IQ1_M", 256, 56),
    (IQ2_XXS, 16, "IQ2_XXS", 256, 66),
    (IQ2_XS, 17, "IQ2_XS", 256, 74),
    (IQ2_S, 22, "IQ2_S", 256, 82),
    (IQ3_XXS, 18, "IQ3_XXS", 256, 98),
    (IQ3_S, 21, "IQ3_S", 256, 110),
    (IQ4_NL, 20, "IQ4_NL", 32, 18),
    (IQ4_XS, 23, "IQ4_XS", 256, 136),
    (TQ1_0, 34, "TQ1_0", 256, 54),
    (TQ2_0, 35, "TQ2_0", 256, 66),
    (MXFP4, 39, "MXFP4", 32, 17),
    (NVFP4, 40, "NVFP4", 64, 36),
    (Q1_0, 41, "Q1_0", 128, 18),
];

impl TensorType {
    /// Every type of the format.
    pub fn all() -> impl Iterator<Item = TensorType> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type with this number in files; `None` for an unknown one.
    pub fn from_id(id: u32) -> Option<TensorType> {
        TABLE.iter().find(|row| row.1 == id).map(|row| row.0)
    }

    /// The type with this name, in upper or lower case.
    pub fn from_name(name: &str) -> Option<TensorType> {
        TABLE.iter().find(|row| row.2.eq_ignore_ascii_case(name)).map(|row| row.0)
    }

    fn row(self) -> &'static (TensorType, u32, &'static str, usize, usize) {
        // The table has a row for each variant; a test compares them.
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[0])
    }

    /// The number in files.
    pub fn id(self) -> u32 {
        self.row().1
    }

    /// The name as ggml spells it: `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Values of a block, at least 1.
    pub fn block_values(self) -> usize {
        self.row().3
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }

    /// Bytes of so many values, rounded up to whole blocks; `None` on overflow.
    pub fn bytes(self, values: u64) -> Option<u64> {
        values.div_ceil(self.block_values() as u64).checked_mul(self.block_bytes() as u64)
    }

    /// Bits of a value, with its share of the block's scales.
    pub fn bits_per_value(self) -> f64 {
        8.0 * self.block_bytes() as f64 / self.block_values() as f64
    }

    /// Whether [`crate::dequantize()`] computes the values.
    pub fn is_readable(self) -> bool {
        crate::dequantize::routine(self).is_some()
    }

    /// The names of the types that can be read, for messages.
    pub(crate) fn readable_names() -> String {
        TensorType::all().filter(|t| t.is_readable()).map(TensorType::name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_one_row() {
        for (at, &(ty, id, name, ..)) in TABLE.iter().enumerate() {
            assert_eq!(at, ty as usize, "rows are in the order of the variants");
            assert_eq!(format!("{ty:?}"), name);
            assert_eq!((TensorType::from_id(id), TensorType::from_name(&name.to_lowercase())), (Some(ty), Some(ty)));
        }
        assert_eq!(Q1_0 as usize + 1, TABLE.len());
        assert_eq!((TensorType::from_id(4), TensorType::from_id(u32::MAX)), (None, None));
        assert_eq!((Q4_K.bytes(257), Q4_K.bytes(0), F64.bytes(u64::MAX)), (Some(288), Some(0), None));
        assert_eq!((Q4_0.bits_per_value(), Q6_K.bits_per_value()), (4.5, 6.5625));
        assert!(Q6_K.is_readable() && !IQ2_S.is_readable());
    }
}
