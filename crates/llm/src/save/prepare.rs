//! Models of other formats in the form of Hugging Face.

use crate::config::{Config, RopeStyle};
use crate::weights::Weights;

/// Brings a model into the form in which Hugging Face stores it, without changing what it computes:
/// pairs of the rotation are at a distance of half a head, and the factor on the residual branches,
/// if any, is part of the weights. Without effect on a model that has this form.
pub fn prepare(config: &mut Config, weights: &mut Weights) {
    if config.rope.style == RopeStyle::Interleaved {
        // The elements beyond the rotated ones keep their places.
        let rotated = config.rope.rotated.unwrap_or(config.head_dim).min(config.head_dim);
        let pairs = || 0..rotated / 2;
        let (first, second) = (pairs().map(|i| 2 * i), pairs().map(|i| 2 * i + 1));
        let order: Vec<usize> = first.chain(second).chain(rotated..config.head_dim).collect();
        for layer in &mut weights.layers {
            permute(&mut layer.wq, &order, config.dim);
            permute(&mut layer.wk, &order, config.dim);
            let vectors = [&mut layer.bq, &mut layer.bk, &mut layer.q_norm, &mut layer.k_norm];
            vectors.into_iter().flatten().for_each(|vector| permute(vector, &order, 1));
        }
        config.rope.style = RopeStyle::Half;
        if let Some(local) = &mut config.local_rope {
            local.style = RopeStyle::Half;
        }
    }
    if config.residual_scale != 1.0 {
        let scale = config.residual_scale;
        for layer in &mut weights.layers {
            let attention = layer.post_attn_norm.as_mut().unwrap_or(&mut layer.wo);
            attention.iter_mut().for_each(|value| *value *= scale);
            let feed_forward = layer.post_ffn_norm.as_mut().unwrap_or(&mut layer.w2);
            feed_forward.iter_mut().for_each(|value| *value *= scale);
        }
        config.residual_scale = 1.0;
    }
}

/// Puts the rows of each head, `cols` values each, in this order.
fn permute(values: &mut [f32], order: &[usize], cols: usize) {
    for head in values.chunks_exact_mut(order.len() * cols) {
        let old = head.to_vec();
        for (row, from) in head.chunks_exact_mut(cols).zip(order) {
            row.copy_from_slice(&old[from * cols..][..cols]);
        }
    }
}
