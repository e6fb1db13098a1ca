//! One layer, forward and backward: norm, attention, residual, norm, feed-forward, residual.

use super::Real;
use super::attention::{self, softmax};
use super::norm::Norm;
use super::products::{add_scaled, bias_gradient, input_gradient, linear, weight_gradient};
use super::rope::{Table, Tables};
use crate::config::{Activation, Config, Experts};
use crate::weights::Layer;

/// A layer's weights, with the configuration, the window and the rotation table.
pub(super) struct Block<'a, T> {
    config: &'a Config,
    layer: &'a Layer<T>,
    window: Option<usize>,
    experts: Option<&'a Experts>,
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

/// What the matrices of a layer are multiplied by, each `[tokens, features]`.
pub(crate) struct LayerInputs<T> {
    /// The input of the query, key and value projections.
    pub(crate) normed: Vec<T>,
    /// The input of the output projection.
    pub(crate) attended: Vec<T>,
    /// The input of the gate and up projections.
    pub(crate) middle_normed: Vec<T>,
    /// The input of the down projection; empty in a layer with experts.
    pub(crate) gated: Vec<T>,
}

impl<T> Saved<T> {
    pub(super) fn inputs(self) -> LayerInputs<T> {
        let Saved { normed, attended, middle_normed, gate: gated, .. } = self;
        LayerInputs { normed, attended, middle_normed, gated }
    }
}

impl<'a, T: Real> Block<'a, T> {
    /// The layer with this index.
    pub(super) fn new(config: &'a Config, index: usize, layer: &'a Layer<T>, tables: &'a Tables<T>) -> Self {
        let kind = config.attention(index);
        Block { config, layer, window: config.window(kind), experts: config.experts(index), table: tables.of(kind) }
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
        let (attended, probabilities) = attention::forward(config, self.window, &q.turned, &k.turned, &v);
        let branch = product(&attended, &layer.wo, None, config.q_dim());
        add_scaled(stream, alpha, &post_norm(branch, layer.post_attn_norm.as_deref(), config));

        let middle = stream.to_vec();
        let (middle_normed, middle_norm) = Norm::forward(&middle, &layer.ffn_norm, config.norm_eps);
        let (mut h1, mut h3, mut gated) = (Vec::new(), Vec::new(), Vec::new());
        let branch = match (self.experts, &layer.router) {
            (Some(experts), Some(router)) => {
                let row = |row: &[T]| mixture(config.activation, experts, layer, router, row);
                middle_normed.chunks_exact(dim).flat_map(row).collect()
            }
            _ => {
                h1 = product(&middle_normed, &layer.w1, None, dim);
                h3 = product(&middle_normed, &layer.w3, None, dim);
                gated = gate(config.activation, &h1, &h3);
                product(&gated, &layer.w2, None, config.hidden)
            }
        };
        add_scaled(stream, alpha, &post_norm(branch, layer.post_ffn_norm.as_deref(), config));
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
            gate: gated,
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
    /// of its weights. The model must not be beyond training ([`Config::beyond_training`]).
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
        let (dq, dk, dv) = attention::backward(config, self.window, q, k, &saved.v, &saved.probabilities, &dattended);
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

/// The output of half a layer, after its norm, if any.
pub(super) fn post_norm<T: Real>(branch: Vec<T>, gain: Option<&[T]>, config: &Config) -> Vec<T> {
    match gain {
        Some(gain) => Norm::forward(&branch, gain, config.norm_eps).0,
        None => branch,
    }
}

/// The gated values of the feed-forward part: `f(h1) · h3`.
pub(super) fn gate<T: Real>(activation: Activation, h1: &[T], h3: &[T]) -> Vec<T> {
    let pairs = h1.iter().zip(h3);
    match activation {
        Activation::Silu => pairs.map(|(&a, &b)| a * sigmoid(a) * b).collect(),
        Activation::GeluTanh => pairs.map(|(&a, &b)| gelu(a) * b).collect(),
    }
}

/// The feed-forward part of one row `[dim]` in a layer with experts. Outputs are added in the order
/// of the experts.
pub(super) fn mixture<T: Real>(
    activation: Activation,
    experts: &Experts,
    layer: &Layer<T>,
    router: &[T],
    row: &[T],
) -> Vec<T> {
    let dim = row.len();
    let product = |x: &[T], w: &[T]| {
        let mut y = vec![T::ZERO; w.len() / x.len()];
        linear(&mut y, x, w, None, x.len());
        y
    };
    let mut shares = product(row, router);
    softmax(&mut shares);
    let mut chosen: Vec<usize> = (0..experts.count).collect();
    // The sort is stable, so of equal shares the first is taken.
    chosen.sort_by(|&a, &b| shares[b].partial_cmp(&shares[a]).unwrap_or(std::cmp::Ordering::Equal));
    chosen.truncate(experts.active);
    let sum = chosen.iter().fold(T::ZERO, |sum, &expert| sum + shares[expert]);
    chosen.sort_unstable();
    let (size, mut out) = (experts.hidden * dim, vec![T::ZERO; dim]);
    for expert in chosen {
        let part = expert * size..(expert + 1) * size;
        let gated = gate(activation, &product(row, &layer.w1[part.clone()]), &product(row, &layer.w3[part.clone()]));
        let share = if experts.normalize { shares[expert] / sum } else { shares[expert] };
        add_scaled(&mut out, share, &product(&gated, &layer.w2[part]));
    }
    out
}

/// GELU in its approximation by tanh.
fn gelu<T: Real>(x: T) -> T {
    let inner = T::from_f64((2.0 / std::f64::consts::PI).sqrt()) * (x + T::from_f64(0.044_715) * x * x * x);
    T::from_f64(0.5) * x * (T::ONE + inner.tanh())
}

/// The logistic function, `1 / (1 + e⁻ˣ)`.
fn sigmoid<T: Real>(x: T) -> T {
    T::ONE / (T::ONE + (-x).exp())
}
