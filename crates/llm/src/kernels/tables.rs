//! Mask and rotation tables, stored as fp16 weights of a kernel (weight-blob §5).

use ferrane_mil::{Builder, DataType, MilError, ValueId};
use half::f16;

use super::frame::Frame;
use super::ops::OpResult;
use crate::config::Config;

/// Added to the score of a key that a query must not see: the lowest finite fp16 value. It is not
/// −∞, which some units turn into NaN (mil-text §5).
pub const MASKED: f32 = -65504.0;

/// The additive mask `[seq, seq]`, row = query `i`, column = key `j`: 0 where `j <= i` and, if
/// there is a window, `i - window < j`; [`MASKED`] elsewhere.
pub fn causal_mask(seq: usize, window: Option<usize>) -> Vec<f16> {
    let window = window.unwrap_or(usize::MAX);
    let seen = |i: usize, j: usize| j <= i && i - j < window;
    let masked = f16::from_f32(MASKED);
    (0..seq * seq).map(|n| if seen(n / seq, n % seq) { f16::ZERO } else { masked }).collect()
}

/// Cosines and sines `[seq, head_dim]` of the first layer in fp32: both elements of a pair hold the
/// cosine, or sine, of its angle at each position ([`Rotation::at`](crate::config::Rotation::at)).
/// Computed in fp64.
pub fn rope_tables(config: &Config, seq: usize) -> (Vec<f32>, Vec<f32>) {
    let (hd, rotation) = (config.head_dim, config.rotation(config.attention(0), config.max_seq));
    let (mut cos, mut sin) = (vec![0.0; seq * hd], vec![0.0; seq * hd]);
    for i in 0..hd / 2 {
        let (first, second) = config.rope.pair(hd, i);
        for position in 0..seq {
            let (c, s) = rotation.at(i, position);
            for element in [first, second] {
                (cos[position * hd + element], sin[position * hd + element]) = (c as f32, s as f32);
            }
        }
    }
    (cos, sin)
}

/// The mask of the first `seq` positions as a constant `[1, 1, seq, seq]`.
pub(crate) fn mask(b: &mut Builder, seq: usize, window: Option<usize>) -> OpResult {
    blob(b, "mask", [1, 1, seq, seq], &causal_mask(seq, window))
}

/// Cosines and sines as `[1, 1, seq, head_dim]`.
pub(super) fn rope(f: &mut Frame<'_>) -> Result<(ValueId, ValueId), MilError> {
    let (seq, hd) = (f.layout.seq, f.shape.config.head_dim);
    let (cos, sin) = rope_tables(&f.shape.config, seq);
    let half = |table: Vec<f32>| table.into_iter().map(f16::from_f32).collect::<Vec<_>>();
    let cos = blob(&mut f.b, "rope_cos", [1, 1, seq, hd], &half(cos))?;
    let sin = blob(&mut f.b, "rope_sin", [1, 1, seq, hd], &half(sin))?;
    Ok((cos, sin))
}

fn blob(b: &mut Builder, name: &str, shape: [usize; 4], values: &[f16]) -> OpResult {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    b.weight(name, &format!("@model_path/weights/{name}.bin"), DataType::Fp16, &shape, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RopeStyle, preset};

    #[test]
    fn mask_shows_the_window() {
        let shown = |window| {
            let mask = causal_mask(4, window);
            mask.chunks(4).map(|row| row.iter().map(|v| u8::from(*v == f16::ZERO)).collect()).collect::<Vec<Vec<u8>>>()
        };
        assert_eq!(shown(None), [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]);
        assert_eq!(shown(Some(2)), [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]);
    }

    #[test]
    fn tables_lie_as_the_style_says() {
        let mut config = preset("stories260k").unwrap();
        (config.head_dim, config.rope.base) = (4, 100.0);
        config.rope.style = RopeStyle::Interleaved;
        let (cos, sin) = rope_tables(&config, 3);
        // Pair 0 is rotated by p, pair 1 by p / 10.
        let expected = [2.0f32, 2.0, 0.2, 0.2];
        for (i, angle) in expected.into_iter().enumerate() {
            assert!((cos[8 + i] - angle.cos()).abs() < 1e-6 && (sin[8 + i] - angle.sin()).abs() < 1e-6);
        }
        config.rope.style = RopeStyle::Half;
        let (cos, _) = rope_tables(&config, 3);
        assert_eq!((cos[8], cos[9]), (cos[10], cos[11]));
        assert!(cos[8] != cos[9]);
    }
}
