//! One layer, forward and backward: norm, attention, residual, norm, feed-forward, residual.

use super::Real;
use super::attention;
use super::norm::Norm;
use super::products::{add_scaled, bias_gradient, input_gradient, linear, weight_gradient};
use super::rope::Table;
use crate::config::Config;
use crate::weights::Layer;

/// A layer's weights, with the configuration and the rotation table.
pub(super) struct Block<'a, T> {
    config: &'a Config,
    layer: &'a Layer<T>,
    table: &'a Table<T>,
}

/// Queries or keys: the output of the projection, and after the norm on the heads, if any.
struct Heads<T> {
    raw: Vec<T>,
    norm: Option<Norm<T>>,
    /// Normalized and rotated: the input of attention.
    turned: Vec<T>,
}

/// Activations that a layer's forward pass saves for its backward pass; all `[T, …]`.
pub(super) struct Saved<T> {
    input: Vec<T>,
    normed: Vec<T>,
    norm: Norm<T>,
    q: Heads<T>,
    k: Heads<T>,
    v: Vec<T>,
    probabilities: Vec<T>,
    attended: Vec<T>,
    middle: Vec<T>,
    middle_normed: Vec<T>,
    middle_norm: Norm<T>,
    h1: Vec<T>,
    h3: Vec<T>,
    gate: Vec<T>,
}

impl<'a, T: Real> Block<'a, T> {
    pub(super) fn new(config: &'a Config, layer: &'a Layer<T>, table: &'a Table<T>) -> Self {
        Block { config, layer, table }
    }

    /// Replaces the residual stream `[T, dim]`, which must not be empty, by the layer's output.
    pub(super) fn forward(&self, stream: &mut [T]) -> Saved<T> {
        let (config, layer) = (self.config, self.layer);
        let (dim, tokens) = (config.dim, stream.len() / config.dim);
        let alpha = T::from_f64(f64::from(config.residual_scale));
        let product = |x: &[T], w: &[T], bias: Option<&[T]>, inputs: usize| {
            let mut y = vec![T::ZERO; tokens * (w.len() / inputs)];
            linear(&mut y, x, w, bias, inputs);
            y
        };
        let input = stream.to_vec();
        let (normed, norm) = Norm::forward(&input, &layer.attn_norm, config.norm_eps);
        let q = self.heads(product(&normed, &layer.wq, layer.bq.as_deref(), dim), layer.q_norm.as_deref(), tokens);
        let k = self.heads(product(&normed, &layer.wk, layer.bk.as_deref(), dim), layer.k_norm.as_deref(), tokens);
        let v = product(&normed, &layer.wv, layer.bv.as_deref(), dim);
        let (attended, probabilities) = attention::forward(config, &q.turned, &k.turned, &v);
        add_scaled(stream, alpha, &product(&attended, &layer.wo, None, config.q_dim()));

        let middle = stream.to_vec();
        let (middle_normed, middle_norm) = Norm::forward(&middle, &layer.ffn_norm, config.norm_eps);
        let h1 = product(&middle_normed, &layer.w1, None, dim);
        let h3 = product(&middle_normed, &layer.w3, None, dim);
        let gate: Vec<T> = h1.iter().zip(&h3).map(|(&a, &b)| a * sigmoid(a) * b).collect();
        add_scaled(stream, alpha, &product(&gate, &layer.w2, None, config.hidden));
        Saved {
            input,
            normed,
            norm,
            q,
            k,
            v,
            probabilities,
            attended,
            middle,
            middle_normed,
            middle_norm,
            h1,
            h3,
            gate,
        }
    }

    /// Applies norm and rotation to the heads in `[T, width]`.
    fn heads(&self, raw: Vec<T>, gain: Option<&[T]>, tokens: usize) -> Heads<T> {
        let (mut turned, norm) = match gain {
            Some(gain) => {
                let (y, norm) = Norm::forward(&raw, gain, self.config.norm_eps);
                (y, Some(norm))
            }
            None => (raw.clone(), None),
        };
        let width = raw.len() / tokens;
        for (position, row) in turned.chunks_exact_mut(width).enumerate() {
            self.table.turn(row, position, T::ONE);
        }
        Heads { raw, norm, turned }
    }

    /// Replaces the gradient of the layer's output by that of its input, and adds to the gradients
    /// of its weights.
    pub(super) fn backward(&self, saved: &Saved<T>, stream: &mut [T], gradients: &mut Layer<T>) {
        let (config, layer) = (self.config, self.layer);
        let (dim, hidden, tokens) = (config.dim, config.hidden, stream.len() / config.dim);
        let alpha = T::from_f64(f64::from(config.residual_scale));
        let scaled = |stream: &[T]| stream.iter().map(|&d| alpha * d).collect::<Vec<T>>();

        let branch = scaled(stream);
        let mut dgate = vec![T::ZERO; tokens * hidden];
        input_gradient(&mut dgate, &branch, &layer.w2, hidden);
        weight_gradient(&mut gradients.w2, &branch, &saved.gate, hidden);
        let (mut dh1, mut dh3) = (dgate.clone(), dgate);
        for i in 0..dh1.len() {
            let (h1, s) = (saved.h1[i], sigmoid(saved.h1[i]));
            dh3[i] = dh3[i] * h1 * s;
            dh1[i] = dh1[i] * saved.h3[i] * s * (T::ONE + h1 * (T::ONE - s));
        }
        weight_gradient(&mut gradients.w1, &dh1, &saved.middle_normed, dim);
        weight_gradient(&mut gradients.w3, &dh3, &saved.middle_normed, dim);
        let mut back = vec![T::ZERO; tokens * dim];
        input_gradient(&mut back, &dh1, &layer.w1, dim);
        input_gradient(&mut back, &dh3, &layer.w3, dim);
        saved.middle_norm.backward(&saved.middle, &layer.ffn_norm, &back, stream, &mut gradients.ffn_norm);

        let branch = scaled(stream);
        let mut dattended = vec![T::ZERO; tokens * config.q_dim()];
        input_gradient(&mut dattended, &branch, &layer.wo, config.q_dim());
        weight_gradient(&mut gradients.wo, &branch, &saved.attended, config.q_dim());
        let (q, k) = (&saved.q.turned, &saved.k.turned);
        let (dq, dk, dv) = attention::backward(config, q, k, &saved.v, &saved.probabilities, &dattended);
        let dq = self.heads_backward(&saved.q, dq, layer.q_norm.as_deref(), gradients.q_norm.as_deref_mut(), tokens);
        let dk = self.heads_backward(&saved.k, dk, layer.k_norm.as_deref(), gradients.k_norm.as_deref_mut(), tokens);
        let mut back = vec![T::ZERO; tokens * dim];
        for (d, w, dw, db) in [
            (&dq, &layer.wq, &mut gradients.wq, &mut gradients.bq),
            (&dk, &layer.wk, &mut gradients.wk, &mut gradients.bk),
            (&dv, &layer.wv, &mut gradients.wv, &mut gradients.bv),
        ] {
            input_gradient(&mut back, d, w, dim);
            weight_gradient(dw, d, &saved.normed, dim);
            if let Some(db) = db {
                bias_gradient(db, d);
            }
        }
        saved.norm.backward(&saved.input, &layer.attn_norm, &back, stream, &mut gradients.attn_norm);
    }

    /// The backward pass of the rotation and of the norm on the heads.
    fn heads_backward(
        &self,
        heads: &Heads<T>,
        mut back: Vec<T>,
        gain: Option<&[T]>,
        gain_gradient: Option<&mut [T]>,
        tokens: usize,
    ) -> Vec<T> {
        let width = back.len() / tokens;
        for (position, row) in back.chunks_exact_mut(width).enumerate() {
            self.table.turn(row, position, -T::ONE);
        }
        let (Some(norm), Some(gain), Some(gain_gradient)) = (&heads.norm, gain, gain_gradient) else { return back };
        let mut out = vec![T::ZERO; back.len()];
        norm.backward(&heads.raw, gain, &back, &mut out, gain_gradient);
        out
    }
}

/// The logistic function, `1 / (1 + e⁻ˣ)`.
pub(super) fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}
