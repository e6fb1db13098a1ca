//! The matrices of a layer as constants of its programs: int4 codes with a scale for each block of
//! 32 weights of a row.
//!
//! int4 weights cannot be inputs. Only a constant of a `constexpr_*` op may have a type of less
//! than a byte, engines take no such surfaces, and a program that unpacks bytes would go over all
//! weights several times for each token, which costs more than int8 weights do. As constants the
//! engine streams them, and the emulator multiplies by the codes (`host::gemm::coded`).
//!
//! *The price is compiles.* Each layer is a program of its own, so a decoder compiles `2 · layers`
//! programs for single tokens, as many for each size of a prompt's windows that it meets, and
//! `layers` when the caches grow. A budget of about 119 compiles (C154) is spent by a model of 24
//! layers at its second window size: there the decoder fails with [`Error::Constants`], and int8
//! weights, which are inputs that all layers share, are the way out. All programs of a layer are
//! built over the same records, which the emulator shares, so the codes are in memory once.
//!
//! A weight is `code · scale`. The value of the largest magnitude of a block has code −8, as in
//! GGUF's Q4_0, so the blocks of such a file get their codes and scales back.

use ferrane_host::pool;
use ferrane_mil::{Builder, DataType, WeightId, Weights as Records, op};
use half::f16;

use super::program::{DecodeInput, DecodeMatrix};
use super::window::{each_row, tensors};
use crate::config::Config;
use crate::forward::Error;
use crate::kernels::ops::OpResult;
use crate::quantize::encoding::Encoding;
use crate::weights::WeightSource;

/// The file in which text would find the records.
const FILE: &str = "@model_path/weights/weight.bin";

/// Codes that share a scale in rows of `cols` weights, at least one.
pub fn block(cols: usize) -> usize {
    Encoding::INT4.block(cols).max(1)
}

/// Values that the loops below take at a time, so that the compiler uses vectors.
const LANES: usize = 8;

/// The nearest integer of a value below 2²², ties to even. `round_ties_even` is a call where the
/// compiler may not assume SSE4.1.
fn nearest(value: f32) -> i32 {
    /// 1.5 · 2²³, whose last bit is worth 1.
    const SHIFT: f32 = 12_582_912.0;
    (value + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}

/// The value of the largest magnitude, the negative one of two; `None` if one is not finite.
fn extreme(values: &[f32]) -> Option<f32> {
    let (mut high, mut low, mut odd) = ([0.0f32; LANES], [0.0f32; LANES], [0.0f32; LANES]);
    let mut take = |lane: usize, value: f32| {
        high[lane] = if value > high[lane] { value } else { high[lane] };
        low[lane] = if value < low[lane] { value } else { low[lane] };
        // NaN from then on, if the value is infinite or NaN.
        odd[lane] += value * 0.0;
    };
    let (chunks, rest) = values.as_chunks::<LANES>();
    chunks.iter().for_each(|chunk| (0..LANES).for_each(|lane| take(lane, chunk[lane])));
    rest.iter().enumerate().for_each(|(lane, value)| take(lane, *value));
    let (high, low) = (high.into_iter().fold(0.0, f32::max), low.into_iter().fold(0.0, f32::min));
    let finite = odd.into_iter().sum::<f32>() == 0.0;
    finite.then_some(if high > -low { high } else { low })
}

/// Encodes the blocks of a row, two codes a byte, the first one in the low bits. `false` if a
/// weight is not finite or a scale exceeds the fp16 range. `codes` has half as many bytes as the
/// row has weights, rounded up, and `scales` a value for each block.
pub fn encode_row(row: &[f32], codes: &mut [u8], scales: &mut [f16]) -> bool {
    let size = block(row.len());
    for ((values, codes), scale) in row.chunks(size).zip(codes.chunks_mut(size.div_ceil(2))).zip(scales) {
        let Some(extreme) = extreme(values) else { return false };
        *scale = f16::from_f32(extreme / -8.0);
        if !scale.is_finite() {
            return false;
        }
        let inverse = if *scale == f16::ZERO { 0.0 } else { 1.0 / scale.to_f32() };
        for (bytes, values) in codes.chunks_mut(LANES / 2).zip(values.chunks(LANES)) {
            let mut of = [0.0; LANES];
            of[..values.len()].copy_from_slice(values);
            let of = of.map(|value| nearest(value * inverse).clamp(-8, 7) & 15);
            bytes.iter_mut().zip(of.as_chunks::<2>().0).for_each(|(byte, [a, b])| *byte = (a | b << 4) as u8);
        }
    }
    true
}

/// A matrix among the records.
struct StoredMatrix {
    matrix: DecodeMatrix,
    rows: usize,
    cols: usize,
    codes: WeightId,
    scales: WeightId,
}

/// The matrices of one layer.
pub struct LayerMatrices {
    records: Records,
    matrices: Vec<StoredMatrix>,
}

impl LayerMatrices {
    /// Encodes the matrices of a layer.
    ///
    /// # Errors
    /// [`Error::Quantize`] for a row with values that are not finite or beyond fp16;
    /// [`Error::Weights`] if the source has no such layer.
    pub fn new(config: &Config, source: &dyn WeightSource, layer: usize) -> Result<LayerMatrices, Error> {
        let mut made = LayerMatrices { records: Records::new(), matrices: Vec::new() };
        for matrix in [DecodeMatrix::Qkv, DecodeMatrix::O, DecodeMatrix::W13, DecodeMatrix::W2] {
            let tensors = tensors(config, layer, matrix);
            let (rows, cols) = (tensors.iter().map(|t| t.count).sum::<usize>(), tensors.first().map_or(0, |t| t.cols));
            let blocks = cols / block(cols);
            let refused = |row| Error::Quantize { layer, tensor: DecodeInput::Weight(matrix).name(), row };
            if !cols.is_multiple_of(2) {
                // Rows would not begin with a byte.
                return Err(refused(0));
            }
            let mut codes = vec![0u8; rows * cols / 2];
            let mut scales = vec![f16::ZERO; rows * blocks];
            each_row(config, source, layer, matrix, |row, values| {
                let codes = &mut codes[row * cols / 2..][..cols / 2];
                match encode_row(values, codes, &mut scales[row * blocks..][..blocks]) {
                    true => Ok(()),
                    false => Err(refused(row)),
                }
            })?;
            let scales: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
            made.matrices.push(StoredMatrix {
                matrix,
                rows,
                cols,
                codes: made.records.add_packed(FILE, DataType::Int4, rows * cols, codes),
                scales: made.records.add(FILE, DataType::Fp16, scales),
            });
        }
        Ok(made)
    }

    /// The matrices of all layers, encoded on the threads of the pool.
    ///
    /// # Errors
    /// As [`LayerMatrices::new`].
    pub fn all(config: &Config, source: &dyn WeightSource) -> Result<Vec<LayerMatrices>, Error> {
        let mut layers: Vec<Option<LayerMatrices>> = (0..config.layers).map(|_| None).collect();
        pool::try_for_each_chunk_mut(&mut layers, 1, |index, layer| {
            layer[0] = Some(LayerMatrices::new(config, source, index)?);
            Ok::<(), Error>(())
        })?;
        Ok(layers.into_iter().flatten().collect())
    }

    /// A store that shares the records, for a program over them.
    pub(super) fn records(&self) -> Records {
        self.records.clone()
    }

    /// A matrix as the constant `[1, 1, rows, cols]` of a program over these records.
    pub(super) fn value(&self, b: &mut Builder, name: &str, matrix: DecodeMatrix) -> OpResult {
        let found = self.matrices.iter().find(|stored| stored.matrix == matrix);
        let invalid = || ferrane_mil::MilError::Invalid { reason: format!("no constant `{name}`") };
        let StoredMatrix { rows, cols, codes, scales, .. } = found.ok_or_else(invalid)?;
        let data = b.weight_record(&format!("{name}_codes"), DataType::Int4, &[1, 1, *rows, *cols], *codes)?;
        let blocks = cols / block(*cols);
        let scale = b.weight_record(&format!("{name}_scales"), DataType::Fp16, &[1, 1, *rows, blocks], *scales)?;
        b.op(op::CONSTEXPR_BLOCKWISE_SHIFT_SCALE, name, [("data", data.into()), ("scale", scale.into())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_q4_0_keep_codes_and_scales() {
        let scales = [0.013f32, -0.2, 6e-5, 3.0].map(f16::from_f32);
        let codes: Vec<i8> = (0..128).map(|i| if i % 32 == 5 { -8 } else { (i * 7 % 15) as i8 - 7 }).collect();
        let row: Vec<f32> = codes.iter().enumerate().map(|(i, c)| f32::from(*c) * scales[i / 32].to_f32()).collect();
        let (mut found, mut found_scales) = (vec![0u8; 64], vec![f16::ZERO; 4]);
        assert!(encode_row(&row, &mut found, &mut found_scales));
        assert_eq!(found_scales, scales);
        for (i, code) in codes.iter().enumerate() {
            assert_eq!((found[i / 2] >> (4 * (i % 2)) << 4) as i8 >> 4, *code, "{i}");
        }
    }

    #[test]
    fn nearest_integers() {
        for i in -160..=160 {
            let value = i as f32 / 10.0 + 0.05 * (i % 3) as f32;
            assert_eq!(nearest(value), value.round_ties_even() as i32, "{value}");
        }
        assert_eq!([-8.5, -0.5, 0.5, 1.5, 7.5].map(nearest), [-8, 0, 0, 2, 8]);
    }

    #[test]
    fn rows_that_have_no_scale() {
        let (mut codes, mut scales) = (vec![1u8; 16], vec![f16::ONE; 1]);
        assert!(encode_row(&[0.0; 32], &mut codes, &mut scales));
        assert_eq!((codes.as_slice(), scales[0].to_f32()), ([0; 16].as_slice(), 0.0));
        for bad in [f32::NAN, f32::INFINITY, 1e7] {
            let mut row = [1.0; 32];
            row[3] = bad;
            assert!(!encode_row(&row, &mut codes, &mut scales), "{bad}");
        }
        assert_eq!((block(64), block(172), block(48), block(2)), (32, 172, 16, 2));
    }
}
