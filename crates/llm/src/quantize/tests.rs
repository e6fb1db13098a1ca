//! Encodings on values whose codes are known, and on random ones.

use half::f16;
use proptest::prelude::*;

use super::encoding::{Encoded, Encoding, Levels, encode, exact, packed};
use crate::random::Rng;

const ALL: [Encoding; 8] = [
    Encoding::INT8,
    Encoding::Symmetric { bits: 8, block: Some(32) },
    Encoding::INT4,
    Encoding::Symmetric { bits: 4, block: None },
    Encoding::Affine { bits: 4, block: 32 },
    Encoding::Palette { bits: 4, rows: None },
    Encoding::Palette { bits: 6, rows: Some(2) },
    Encoding::Palette { bits: 2, rows: Some(3) },
];

/// Normally distributed values, by Box and Muller.
fn normal(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    let mut one = || (-2.0 * (1.0 - rng.uniform()).ln()).sqrt() * (std::f64::consts::TAU * rng.uniform()).cos();
    (0..count).map(|_| one() as f32 * 0.02).collect()
}

fn error(values: &[f32], encoded: &Encoded) -> f64 {
    let squares = values.iter().zip(encoded.decode()).map(|(a, b)| f64::from(a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

proptest! {
    /// Rounding twice changes nothing: a quantized file that is quantized again, or exported in the
    /// same form, keeps its codes.
    #[test]
    fn encoding_is_idempotent(
        values in prop::collection::vec(prop_oneof![4 => -3.0f32..3.0, 1 => Just(0.0f32), 1 => -1e-4f32..1e-4], 6 * 64),
        which in 0..ALL.len(),
        cols in prop::sample::select(vec![64usize, 32, 96, 12]),
        scale in prop::sample::select(vec![1.0f32, 1e-3, 500.0]),
    ) {
        let values: Vec<f32> = values.iter().map(|value| value * scale).collect();
        let encoded = encode(&values, cols, ALL[which], None).unwrap();
        let decoded = encoded.decode();
        let again = encode(&decoded, cols, ALL[which], None).unwrap();
        prop_assert_eq!(encoded.bytes(), ALL[which].bytes(values.len() / cols, cols));
        prop_assert_eq!(again.decode(), decoded);
        prop_assert_eq!(again, encoded);
    }
}

#[test]
fn more_levels_are_closer_and_importance_moves_the_error() {
    let values = normal(64 * 128, 3);
    let errors = ALL.map(|encoding| error(&values, &encode(&values, 128, encoding, None).unwrap()));
    let [int8, int8_blocks, int4, int4_rows, affine4, palette4, palette6, palette2] = errors;
    assert!(int8_blocks < int8 && int8 < palette6 && palette6 < palette4, "{errors:?}");
    assert!(affine4 < int4 && int4 < int4_rows && int4_rows < palette2, "{errors:?}");
    // The first half of the columns counts a hundred times.
    let weights: Vec<f32> = (0..128).map(|col| if col < 64 { 100.0 } else { 1.0 }).collect();
    let half = |encoded: &Encoded| -> f64 {
        let errors = values.iter().zip(encoded.decode()).enumerate().filter(|(i, _)| i % 128 < 64);
        errors.map(|(_, (a, b))| f64::from(a - b).powi(2)).sum()
    };
    for encoding in [Encoding::Symmetric { bits: 4, block: None }, Encoding::Palette { bits: 4, rows: Some(2) }] {
        let plain = encode(&values, 128, encoding, None).unwrap();
        let weighted = encode(&values, 128, encoding, Some(&weights)).unwrap();
        assert!(half(&weighted) < 0.99 * half(&plain), "{encoding:?}");
    }
}

/// Blocks as llama.cpp rounds them: the scale is the value of largest magnitude over −8.
#[test]
fn the_search_beats_the_rounding_of_q4_0() {
    let values = normal(32 * 256, 9);
    let mut plain = 0.0;
    for block in values.chunks(32) {
        let most = block.iter().fold(0.0f32, |most, value| if value.abs() > most.abs() { *value } else { most });
        let scale = f16::from_f32(most / -8.0).to_f32();
        let level = |value: f32| scale * ((value / (most / -8.0) + 8.5) as i32).clamp(0, 15) as f32 - 8.0 * scale;
        plain += block.iter().map(|value| f64::from(value - level(*value)).powi(2)).sum::<f64>();
    }
    let found = error(&values, &encode(&values, 256, Encoding::INT4, None).unwrap()).powi(2);
    assert!(found < 0.9 * plain, "{found} and {plain}");
}

#[test]
fn levels_of_a_file_are_found() {
    // Codes −8 to 6 with a scale that has no short form.
    let scale = f16::from_f32(0.0123).to_f32();
    let values: Vec<f32> = (0..32).map(|i| scale * ((i * 7 % 15) - 8) as f32).collect();
    let found = exact(&values, 32, Encoding::INT4).unwrap();
    assert_eq!(found.decode(), values);
    assert!(exact(&values, 32, Encoding::Symmetric { bits: 8, block: None }).is_some());
    let Levels::Symmetric(scales) = &found.levels else { panic!() };
    assert_eq!(scales, &[f16::from_f32(scale)]);
    // A bias, as files of MLX have it.
    let bias = f16::from_f32(-0.031).to_f32();
    let values: Vec<f32> = (0..32).map(|i| scale * (i % 14 + 1) as f32 + bias).collect();
    assert_eq!(exact(&values, 32, Encoding::Affine { bits: 4, block: 32 }).unwrap().decode(), values);
    assert!(exact(&values, 32, Encoding::INT4).is_none());
    // 16 values, one of them zero with a sign.
    let values: Vec<f32> = (0..64).map(|i| [0.0f32, -0.0, 1.5, -3.0][i % 4]).collect();
    let found = exact(&values, 16, Encoding::Palette { bits: 2, rows: Some(2) }).unwrap();
    assert_eq!((found.decode(), found.levels.bytes()), (values, 16));
    assert!(exact(&[1.0, 2.0, 3.0], 3, Encoding::Palette { bits: 1, rows: None }).is_none());
}

#[test]
fn blocks_divide_rows() {
    let int4 = |cols| Encoding::INT4.block(cols);
    assert_eq!([64, 96, 48, 40, 172, 7, 0].map(int4), [32, 32, 16, 8, 172, 7, 32]);
    let palette = |rows| Encoding::Palette { bits: 4, rows: Some(32) }.group(rows);
    assert_eq!([64, 32, 48, 0].map(palette), [32, 32, 48, 32]);
}

#[test]
fn codes_are_packed_from_the_lowest_bit() {
    assert_eq!(packed(&[1, 2, 3, 0xff], 4), [0x21, 0xf3]);
    assert_eq!(packed(&[1, 2, 3, 4, 5], 6), [0x81, 0x30, 0x10, 5]);
    assert_eq!(packed(&[0xfe, 1], 8), [0xfe, 1]);
}
