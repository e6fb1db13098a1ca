//! Weights in fp16 or int8 for the programs and the classifier. The int4 codes of programs are in
//! [`super::constants`]; embedding and classifier are int8 then, because they have few products and
//! lose the most at 4 bits.
//!
//! int8 is symmetric with one scale for each row, which is one output channel. A weight is `code ·
//! unit / 128` with a code from −127 to 127 and a `unit` in fp16. The unit is 128/127 of the row's
//! largest magnitude: units of real models are normal fp16 values, where the scale `unit / 128`
//! would be subnormal. A code is the nearest one to its weight under the rounded unit, ties to
//! even. A weight is therefore off by at most half a code, `unit / 256`, and the largest of a row
//! by up to `unit / 2048` more, because codes end at 127. That is 0.4 % of the root mean square of
//! a row of uniformly distributed weights, and below 1 % for normally distributed ones.

use ferrane_host::{pool, vectorize};
use half::f16;
use half::vec::HalfBitsVecExt as _;

use crate::forward::Error;
use crate::quantize::encoding::Encoding;
use crate::weights::{Slot, WeightSource};

/// Values in one task of the pool.
const TASK: usize = 1 << 16;

/// The code that stands for one unit.
pub const ONE: f32 = 128.0;

/// Element type of the matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WeightType {
    /// fp16, rounded to nearest even.
    #[default]
    Fp16,
    /// int8 with a unit for each row.
    Int8,
    /// int4 with a scale for each block of 32 weights of a row; embedding and classifier int8.
    Int4,
}

impl WeightType {
    /// `fp16`, `int8` or `int4`.
    pub fn name(self) -> &'static str {
        match self {
            WeightType::Fp16 => "fp16",
            WeightType::Int8 => "int8",
            WeightType::Int4 => "int4",
        }
    }

    /// Bytes of a matrix `[rows, cols]`, units included.
    pub fn bytes(self, rows: usize, cols: usize) -> usize {
        match self {
            WeightType::Fp16 => 2 * rows * cols,
            WeightType::Int8 => rows * cols + 2 * rows,
            WeightType::Int4 => Encoding::INT4.bytes(rows, cols),
        }
    }

    /// The type of embedding and classifier.
    pub fn of_tables(self) -> WeightType {
        if self == WeightType::Int4 { WeightType::Int8 } else { self }
    }
}

/// Writes the codes of a row and returns its unit; `None` if a weight is not finite or exceeds the
/// fp16 range.
pub fn quantize_row(row: &[f32], codes: &mut [i8]) -> Option<f16> {
    let largest = largest(row);
    let unit = f16::from_f32(largest * (ONE / 127.0));
    if !unit.is_finite() {
        return None;
    }
    let inverse = match unit.to_f32() {
        0.0 => 0.0,
        unit => ONE / unit,
    };
    vectorize!({
        for (code, w) in codes.iter_mut().zip(row) {
            // Sums with `WHOLE` have no bits after the point, so adding rounds to nearest even.
            let whole = (w * inverse).clamp(-127.0, 127.0) + WHOLE - WHOLE;
            *code = whole as i8;
        }
    });
    Some(unit)
}

/// 1.5 · 2²³: numbers of up to 2²² that are added to it lose what is after the point.
const WHOLE: f32 = 12_582_912.0;

/// The largest magnitude of a row; infinite if a weight is not finite.
fn largest(row: &[f32]) -> f32 {
    const LANES: usize = 16;
    // Without the sign, the bits of floats have the order of their magnitudes, with NaN above
    // infinity.
    let bits = vectorize!({
        let mut lanes = [0u32; LANES];
        let (blocks, rest) = row.as_chunks::<LANES>();
        for block in blocks {
            for i in 0..LANES {
                lanes[i] = lanes[i].max(block[i].to_bits() & !(1 << 31));
            }
        }
        let rest = rest.iter().map(|w| w.to_bits() & !(1 << 31));
        lanes.iter().copied().chain(rest).fold(0, u32::max)
    });
    let largest = f32::from_bits(bits);
    if largest.is_finite() { largest } else { f32::INFINITY }
}

/// A matrix `[rows, cols]` that the host multiplies by: the embedding or the classifier.
#[derive(Debug, Clone, PartialEq)]
pub enum HostMatrix {
    /// fp16 values, row-major.
    Fp16(Vec<f16>),
    /// Codes, row-major, and one unit for each row.
    Int8(Vec<i8>, Vec<f16>),
}

impl HostMatrix {
    /// Reads and rounds a matrix of the weights, `[rows, cols]`, on the threads of the pool; to
    /// int8 for [`WeightType::Int4`].
    ///
    /// # Errors
    /// [`Error::Weights`] if the source has no such matrix; [`Error::Quantize`] if [`quantize_row`]
    /// refuses a row.
    pub fn new(
        source: &dyn WeightSource,
        slot: Slot,
        [rows, cols]: [usize; 2],
        weights: WeightType,
    ) -> Result<HostMatrix, Error> {
        let step = (TASK / cols.max(1)).max(1);
        match weights.of_tables() {
            WeightType::Fp16 => {
                // Memory that the system zeroes, so that the first access to it is the rows'.
                let mut half: Vec<f16> = vec![0u16; rows * cols].reinterpret_into();
                pool::try_for_each_chunk_mut(&mut half, (step * cols).max(1), |task, half| {
                    let range = task * step..task * step + half.len() / cols;
                    source.rows_f16(slot, range.clone(), half)?;
                    source.release(slot, range);
                    Ok::<(), Error>(())
                })?;
                Ok(HostMatrix::Fp16(half))
            }
            WeightType::Int8 | WeightType::Int4 => {
                let (mut codes, mut units) = (vec![0i8; rows * cols], vec![f16::ZERO; rows]);
                let mut all: Vec<_> = codes.chunks_mut(cols.max(1)).zip(&mut units).collect();
                pool::try_for_each_chunk_mut(&mut all, step, |task, some| {
                    let mut values = vec![0.0; cols];
                    for (row, (codes, unit)) in (task * step..).zip(some.iter_mut()) {
                        source.rows(slot, row..row + 1, &mut values)?;
                        let tensor = if slot == Slot::Embed { "embed" } else { "classifier" };
                        let refused = Error::Quantize { layer: 0, tensor, row };
                        **unit = quantize_row(&values, codes).ok_or(refused)?;
                    }
                    source.release(slot, task * step..task * step + some.len());
                    Ok::<(), Error>(())
                })?;
                Ok(HostMatrix::Int8(codes, units))
            }
        }
    }

    /// Widens row `index` into `to`, which has the length of a row.
    pub fn row(&self, index: usize, to: &mut [f32]) {
        let range = index * to.len()..(index + 1) * to.len();
        match self {
            HostMatrix::Fp16(values) => ferrane_host::convert::f16_to_f32(&values[range], to),
            HostMatrix::Int8(codes, units) => {
                let step = units[index].to_f32() / ONE;
                for (to, code) in to.iter_mut().zip(&codes[range]) {
                    *to = f32::from(*code) * step;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::weights::Weights;

    #[test]
    fn codes_and_units_give_the_weights_back() {
        let mut rng = Rng::new(5);
        for spread in [1e-4f32, 0.02, 3.0, 900.0] {
            let cols = 96;
            // Normally distributed, by Box and Muller.
            let mut normal =
                || (-2.0 * (1.0 - rng.uniform()).ln()).sqrt() * (std::f64::consts::TAU * rng.uniform()).cos();
            let values: Vec<f32> = (0..40 * cols).map(|_| normal() as f32 * spread).collect();
            let weights = Weights { embed: values.clone(), ..Weights::default() };
            let matrix = HostMatrix::new(&weights, Slot::Embed, [40, cols], WeightType::Int8).unwrap();
            let (mut wrong, mut squares) = (0.0f64, 0.0f64);
            for (i, row) in values.chunks(cols).enumerate() {
                let mut back = vec![0.0; cols];
                matrix.row(i, &mut back);
                let top = row.iter().fold(0.0f32, |t, w| t.max(w.abs()));
                for (a, b) in row.iter().zip(&back) {
                    // Half a code, plus the rounding of the unit for the largest; units are normal
                    // fp16 values here.
                    assert!((a - b).abs() <= top * (1.0 / 254.0 + 1.0 / 2000.0), "{a} {b}");
                    wrong += f64::from(a - b).powi(2);
                    squares += f64::from(*a).powi(2);
                }
            }
            // The bound that the module states for normally distributed weights.
            assert!((wrong / squares).sqrt() < 0.01, "{}", (wrong / squares).sqrt());
        }
    }

    #[test]
    fn rows_without_a_unit() {
        let mut codes = [1i8; 3];
        assert_eq!(quantize_row(&[0.0; 3], &mut codes), Some(f16::ZERO));
        assert_eq!(codes, [0; 3]);
        assert!(quantize_row(&[-127.0, 64.0, 0.0], &mut codes).is_some());
        assert_eq!(codes, [-127, 64, 0]);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e6] {
            assert_eq!(quantize_row(&[0.0, bad, 1.0], &mut codes), None, "{bad}");
            let weights = Weights { embed: vec![0.0, bad], ..Weights::default() };
            let refused = HostMatrix::new(&weights, Slot::Embed, [2, 1], WeightType::Int8);
            assert!(matches!(refused, Err(Error::Quantize { tensor: "embed", row: 1, .. })));
        }
        // Magnitudes below fp16's smallest become zeros.
        assert!(quantize_row(&[1e-30, 0.0, -1e-30], &mut codes).is_some());
        assert_eq!(codes, [0; 3]);
    }
}
