//! Weights in the forms that Core ML reads: fp16 values, codes with scales, indices of a palette.
//!
//! Integer codes are symmetric, `scale · code`. An int8 matrix has a scale for each row, which is
//! an output channel. An int4 matrix has one for each block of 32 columns; of the steps that are
//! tried for a block, the one with the least squared error is taken, because a step of `max / 7`
//! spends a code on the largest weight alone. Palettes are those of k-means over the values of the
//! whole matrix, rounded to fp16: with a table of 65,536 counts a step of k-means costs no more for
//! a large matrix than for a small one.

use ferrane_mil::DataType;
use half::f16;
use rayon::prelude::*;

/// Columns in a block of int4 weights; fewer if that does not divide the row.
const BLOCK: usize = 32;
/// Most steps of k-means.
const ROUNDS: usize = 40;
/// Divisors of the largest magnitude of a block that are tried as its step.
const STEPS: [f32; 7] = [7.0, 7.25, 7.5, 7.75, 8.0, 8.5, 9.0];

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

    /// The most bytes that a matrix takes.
    pub(super) fn bytes(self, rows: usize, cols: usize) -> u64 {
        let values = rows * cols;
        let bytes = match self {
            WeightEncoding::Fp16 => 2 * values,
            WeightEncoding::Int8 => values + 2 * rows,
            // The smallest block has 8 weights.
            WeightEncoding::Int4 => values.div_ceil(2) + 2 * rows * cols.div_ceil(if cols % 32 == 0 { 32 } else { 8 }),
            WeightEncoding::Palette4 => values.div_ceil(2) + 2 * 16,
            WeightEncoding::Palette6 => (6 * values).div_ceil(8) + 2 * 64,
        };
        bytes as u64
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
pub(super) fn encode(values: &[f32], cols: usize, encoding: WeightEncoding) -> Result<Encoded, f32> {
    if let Some(value) = values.iter().find(|value| !f16::from_f32(**value).is_finite()) {
        return Err(*value);
    }
    Ok(match encoding {
        WeightEncoding::Fp16 => Encoded::Plain(halves(values)),
        WeightEncoding::Int8 => {
            let (codes, scales) = scaled(values, cols, &[127.0], 127.0);
            Encoded::Scaled {
                dtype: DataType::Int8,
                codes: codes.into_iter().map(|c| c as u8).collect(),
                scales,
                blocks: 1,
            }
        }
        WeightEncoding::Int4 => {
            // Blocks must divide the row.
            let block = BLOCK.min(1 << cols.trailing_zeros().min(16));
            let block = if block >= 8 { block } else { cols };
            let (codes, scales) = scaled(values, block, &STEPS, 7.0);
            let codes = packed(codes.into_iter().map(|code| code as u8), 4);
            Encoded::Scaled { dtype: DataType::Int4, codes, scales, blocks: cols / block.max(1) }
        }
        WeightEncoding::Palette4 => palette(values, DataType::UInt4, 4),
        WeightEncoding::Palette6 => palette(values, DataType::UInt6, 6),
    })
}

/// Values as little-endian fp16.
pub(super) fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect()
}

/// Codes from `-largest` to `largest`, and a scale for each block: of the largest magnitude over
/// each of `divisors` the one with the least squared error.
fn scaled(values: &[f32], block: usize, divisors: &[f32], largest: f32) -> (Vec<i8>, Vec<u8>) {
    let encode = |block: &[f32]| {
        let top = block.iter().fold(0.0f32, |top, value| top.max(value.abs()));
        let steps = divisors.iter().map(|divisor| f16::from_f32(top / divisor));
        let code = |value: f32, step: f32| (value / step).round_ties_even().clamp(-largest, largest);
        let error = |step: f32| -> f64 {
            let errors = block.iter().map(|value| f64::from(value - step * code(*value, step)));
            errors.map(|error| error * error).sum()
        };
        let best = steps.filter(|step| *step > f16::ZERO).min_by(|a, b| {
            if divisors.len() == 1 {
                return std::cmp::Ordering::Equal;
            }
            error(a.to_f32()).total_cmp(&error(b.to_f32()))
        });
        let step = best.unwrap_or(f16::ZERO);
        let codes = block.iter().map(|value| if best.is_some() { code(*value, step.to_f32()) as i8 } else { 0 });
        (codes.collect::<Vec<i8>>(), step)
    };
    let blocks: Vec<_> = values.par_chunks(block.max(1)).map(encode).collect();
    let scales = blocks.iter().flat_map(|(_, step)| step.to_le_bytes()).collect();
    (blocks.into_iter().flat_map(|(codes, _)| codes).collect(), scales)
}

/// The low `bits` of each code, one after the other from the lowest bit of the first byte on.
fn packed(codes: impl Iterator<Item = u8>, bits: u32) -> Vec<u8> {
    let (mut bytes, mut held, mut filled) = (Vec::new(), 0u32, 0);
    for code in codes {
        held |= (u32::from(code) & ((1 << bits) - 1)) << filled;
        filled += bits;
        while filled >= 8 {
            bytes.push(held as u8);
            (held, filled) = (held >> 8, filled - 8);
        }
    }
    if filled > 0 {
        bytes.push(held as u8);
    }
    bytes
}

fn palette(values: &[f32], dtype: DataType, bits: u32) -> Encoded {
    let mut counts = vec![0u64; 1 << 16];
    values.iter().for_each(|value| counts[usize::from(f16::from_f32(*value).to_bits())] += 1);
    let mut points: Vec<(f32, u64)> = (0..=u16::MAX)
        .zip(&counts)
        .filter(|(_, count)| **count > 0)
        .map(|(bits, count)| (f16::from_bits(bits).to_f32(), *count))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let lut = k_means(&points, 1 << bits);
    let index = |value: f32| nearest(&lut, f16::from_f32(value).to_f32()) as u8;
    let indices: Vec<u8> = values.par_iter().map(|value| index(*value)).collect();
    Encoded::Palette { dtype, indices: packed(indices.into_iter(), bits), lut: halves(&lut) }
}

/// The entry of an ascending palette that is nearest to a value.
fn nearest(lut: &[f32], value: f32) -> usize {
    let above = lut.partition_point(|entry| *entry < value);
    match (above.checked_sub(1).map(|i| value - lut[i]), lut.get(above).map(|entry| entry - value)) {
        (Some(below), Some(over)) if over < below => above,
        (Some(_), _) => above - 1,
        (None, _) => 0,
    }
}

/// `count` means, ascending, of points that are ascending values with their numbers of occurrences.
/// The first means are the values at equal shares of the weights.
fn k_means(points: &[(f32, u64)], count: usize) -> Vec<f32> {
    let total: u64 = points.iter().map(|(_, n)| n).sum();
    let mut means = Vec::with_capacity(count);
    let (mut seen, mut at) = (0, 0);
    for i in 0..count as u64 {
        // The middle of the share.
        let wanted = (total * (2 * i + 1)) / (2 * count as u64);
        while at + 1 < points.len() && seen + points[at].1 <= wanted {
            seen += points[at].1;
            at += 1;
        }
        means.push(points.get(at).map_or(0.0, |point| point.0));
    }
    // Sums over the first points: of their numbers, and of their values.
    let mut sums = vec![(0.0f64, 0.0f64)];
    for (value, n) in points {
        let (weight, sum) = sums[sums.len() - 1];
        sums.push((weight + *n as f64, sum + *n as f64 * f64::from(*value)));
    }
    for _ in 0..ROUNDS {
        let before = means.clone();
        let mut start = 0;
        for i in 0..count {
            let end = match before.get(i + 1) {
                Some(next) => points.partition_point(|(value, _)| *value <= (before[i] + next) / 2.0).max(start),
                None => points.len(),
            };
            let (weight, sum) = (sums[end].0 - sums[start].0, sums[end].1 - sums[start].1);
            if weight > 0.0 {
                means[i] = f16::from_f64(sum / weight).to_f32();
            }
            start = end;
        }
        means.sort_by(f32::total_cmp);
        if means == before {
            break;
        }
    }
    means
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
            assert!((step * f32::from(code) - value).abs() <= 2.0 * step, "{i}");
        }
    }

    #[test]
    fn more_steps_lower_the_error() {
        let values: Vec<f32> = ramp(320).iter().map(|v| v * v * v).collect();
        let error = |divisors: &[f32]| -> f32 {
            let (codes, scales) = scaled(&values, 32, divisors, 7.0);
            let decoded = codes.iter().enumerate().map(|(i, code)| half(&scales, i / 32) * f32::from(*code));
            decoded.zip(&values).map(|(a, b)| (a - b) * (a - b)).sum()
        };
        assert!(error(&STEPS) < error(&[7.0]));
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
