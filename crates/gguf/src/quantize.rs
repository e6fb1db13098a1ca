//! Blocks of quantized types from values.

use half::f16;

use crate::TensorType;

/// The bytes of values as blocks of Q8_0: 32 codes of 8 bits with an fp16 scale, as the reference
/// implementation in the Python package `gguf` rounds them. Values beyond the last whole block are
/// ignored. `None` if a value is not finite, or a scale is beyond fp16.
pub fn quantize_q8_0(values: &[f32]) -> Option<Vec<u8>> {
    let (length, bytes) = (TensorType::Q8_0.block_values(), TensorType::Q8_0.block_bytes());
    let mut out = Vec::with_capacity(values.len() / length * bytes);
    for block in values.chunks_exact(length) {
        if block.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let most = block.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let scale = most / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let stored = f16::from_f32(scale);
        if !stored.is_finite() {
            return None;
        }
        out.extend(stored.to_le_bytes());
        out.extend(block.iter().map(|value| (value * inverse).round() as i8 as u8));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dequantize;

    #[test]
    fn blocks_come_back_within_half_a_step() {
        let values: Vec<f32> = (0..96).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.013).collect();
        let bytes = quantize_q8_0(&values).unwrap();
        assert_eq!(bytes.len(), 3 * 34);
        let mut read = vec![0.0; 96];
        dequantize(TensorType::Q8_0, &bytes, &mut read).unwrap();
        assert!(values.iter().zip(&read).all(|(a, b)| (a - b).abs() < 0.65 / 127.0), "{read:?}");
        assert_eq!(quantize_q8_0(&[0.0; 32]).unwrap(), [0; 34]);
        // Halves are rounded away from zero.
        let mut halves = [0.0; 32];
        (halves[0], halves[1], halves[2]) = (127.0, 0.5, -2.5);
        assert_eq!(quantize_q8_0(&halves).unwrap()[2..5], [127, 1, -3i8 as u8]);
        assert!(quantize_q8_0(&[f32::NAN; 32]).is_none() && quantize_q8_0(&[1e8; 32]).is_none());
    }
}
