//! Weights in the forms that Core ML reads: fp16 values, codes with scales, indices of a palette.
//!
//! The codes are those of [`crate::quantize::encoding`], so weights that were read from a quantized
//! file keep theirs if the form is the same.

use ferrane_mil::DataType;
use half::f16;

use crate::quantize::encoding::{self, Encoding, Levels, halves};

/// How the matrices of a package are stored. Norms and biases are fp16. With any form but
/// [`WeightEncoding::Fp16`] the embedding and the classifier are int8: they have few products, and
/// lose the most at 4 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WeightEncoding {
    /// fp16, rounded to nearest even.
    #[default]
    Fp16,
    /// int8 codes with a scale for each output channel.
    Int8,
    /// int4 codes with a scale for each block of 32 weights of a row.
    Int4,
    /// Indices of 4 bits into a palette of 16 values for each matrix.
    Palette4,
    /// Indices of 6 bits into a palette of 64 values for each matrix.
    Palette6,
}

impl WeightEncoding {
    /// All encodings, in the order in which the command lists them.
    pub const ALL: [WeightEncoding; 5] = [
        WeightEncoding::Fp16,
        WeightEncoding::Int8,
        WeightEncoding::Int4,
        WeightEncoding::Palette4,
        WeightEncoding::Palette6,
    ];

    /// `fp16`, `int8`, `int4`, `palette4` or `palette6`.
    pub fn name(self) -> &'static str {
        match self {
            WeightEncoding::Fp16 => "fp16",
            WeightEncoding::Int8 => "int8",
            WeightEncoding::Int4 => "int4",
            WeightEncoding::Palette4 => "palette4",
            WeightEncoding::Palette6 => "palette6",
        }
    }

    /// The codes of a matrix and their type in MIL; `None` for fp16, which has none.
    fn codes(self) -> Option<(DataType, Encoding)> {
        Some(match self {
            WeightEncoding::Fp16 => return None,
            WeightEncoding::Int8 => (DataType::Int8, Encoding::INT8),
            WeightEncoding::Int4 => (DataType::Int4, Encoding::INT4),
            WeightEncoding::Palette4 => (DataType::UInt4, Encoding::Palette { bits: 4, rows: None }),
            WeightEncoding::Palette6 => (DataType::UInt6, Encoding::Palette { bits: 6, rows: None }),
        })
    }

    /// Bytes of a matrix `[rows, cols]`.
    pub(super) fn bytes(self, rows: usize, cols: usize) -> u64 {
        self.codes().map_or(2 * rows * cols, |(_, encoding)| encoding.bytes(rows, cols)) as u64
    }

    /// The form of the embedding and the classifier.
    pub(super) fn of_tables(self) -> WeightEncoding {
        if self == WeightEncoding::Fp16 { self } else { WeightEncoding::Int8 }
    }
}

/// A matrix in a form, as bytes of a weight file.
pub(super) enum Encoded {
    /// fp16 values.
    Plain(Vec<u8>),
    /// Codes, and fp16 scales `[rows, blocks]`.
    Scaled { dtype: DataType, codes: Vec<u8>, scales: Vec<u8>, blocks: usize },
    /// Indices, and the fp16 values of the palette.
    Palette { dtype: DataType, indices: Vec<u8>, lut: Vec<u8> },
}

/// Encodes a matrix with rows of `cols` values; the error is the first value that does not fit.
pub(super) fn encode(values: &[f32], cols: usize, form: WeightEncoding) -> Result<Encoded, f32> {
    let Some((dtype, encoding)) = form.codes() else {
        return match values.iter().find(|value| !f16::from_f32(**value).is_finite()) {
            Some(value) => Err(*value),
            None => Ok(Encoded::Plain(halves(values))),
        };
    };
    let encoded = encoding::encode(values, cols, encoding, None).map_err(|error| error.0)?;
    let codes = encoded.packed();
    let bytes = |numbers: &[f16]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    Ok(match &encoded.levels {
        Levels::Palette(entries) => Encoded::Palette { dtype, indices: codes, lut: bytes(entries) },
        // No form has biases.
        Levels::Symmetric(scales) | Levels::Affine(scales, _) => {
            Encoded::Scaled { dtype, codes, scales: bytes(scales), blocks: cols / encoding.block(cols).max(1) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect()
    }

    fn half(bytes: &[u8], i: usize) -> f32 {
        f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32()
    }

    #[test]
    fn codes_are_within_half_a_step() {
        let values = ramp(6 * 64);
        let Encoded::Scaled { codes, scales, blocks, .. } = encode(&values, 64, WeightEncoding::Int8).unwrap() else {
            panic!()
        };
        assert_eq!((codes.len(), scales.len(), blocks), (values.len(), 12, 1));
        for (i, value) in values.iter().enumerate() {
            let step = half(&scales, i / 64);
            assert!((step * f32::from(codes[i] as i8) - value).abs() <= 0.5 * step + 1e-3 * value.abs(), "{i}");
        }
        let Encoded::Scaled { codes, scales, blocks, dtype } = encode(&values, 64, WeightEncoding::Int4).unwrap()
        else {
            panic!()
        };
        assert_eq!((codes.len(), scales.len(), blocks, dtype), (values.len() / 2, 24, 2, DataType::Int4));
        for (i, value) in values.iter().enumerate() {
            let code = ((codes[i / 2] >> (4 * (i % 2)) << 4) as i8) >> 4;
            let step = half(&scales, i / 32);
            // Other steps than a seventh of the largest may cut it off.
            assert!((step * f32::from(code) - value).abs() <= 2.0 * step.abs(), "{i}");
        }
    }

    #[test]
    fn a_palette_of_few_values_is_exact() {
        let values: Vec<f32> = (0..300).map(|i| [0.5, -2.0, 0.125, 3.0, 0.0][i % 5]).collect();
        for (encoding, bits) in [(WeightEncoding::Palette4, 4usize), (WeightEncoding::Palette6, 6)] {
            let Encoded::Palette { indices, lut, .. } = encode(&values, 10, encoding).unwrap() else { panic!() };
            assert_eq!((indices.len(), lut.len()), ((300 * bits).div_ceil(8), 2 << bits));
            for (i, value) in values.iter().enumerate() {
                let place = i * bits;
                let word = u16::from(indices[place / 8]) | u16::from(*indices.get(place / 8 + 1).unwrap_or(&0)) << 8;
                let index = usize::from(word >> (place % 8)) & ((1 << bits) - 1);
                assert_eq!(half(&lut, index), *value, "{i}");
            }
        }
    }

    #[test]
    fn values_beyond_fp16_are_named_and_zeros_stay() {
        for encoding in WeightEncoding::ALL {
            assert_eq!(encode(&[1.0, 1e6], 2, encoding).err(), Some(1e6));
            assert!(encode(&[f32::NAN, 0.0], 2, encoding).is_err());
        }
        let Encoded::Scaled { codes, scales, .. } = encode(&[0.0; 8], 8, WeightEncoding::Int4).unwrap() else {
            panic!()
        };
        assert_eq!((codes, scales), (vec![0; 4], vec![0; 2]));
    }
}
