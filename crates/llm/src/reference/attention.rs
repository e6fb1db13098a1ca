//! Causal attention with grouped key/value heads and an optional sliding window.
//!
//! Query head `h` reads key/value head `h / (heads / kv_heads)`. Position `i` attends to `j` with
//! `i - window < j <= i`.

use super::Real;
use super::products::{add_scaled, dot};
use crate::config::Config;
use ferrane_host::vectorize;
use rayon::prelude::*;
use std::ops::Range;

/// The positions that position `i` attends to.
pub(super) fn seen(window: Option<usize>, i: usize) -> Range<usize> {
    let start = window.map_or(0, |window| (i + 1).saturating_sub(window));
    start..i + 1
}

/// Softmax in place: turns the scores of one query into probabilities.
pub(super) fn softmax<T: Real>(scores: &mut [T]) {
    let top = scores.iter().fold(T::NEG_INFINITY, |m, &v| m.max(v));
    let mut sum = T::ZERO;
    for score in scores.iter_mut() {
        *score = (*score - top).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|p| *p = *p / sum);
}

/// The factor on the scores.
pub(super) fn scale<T: Real>(config: &Config) -> T {
    T::from_f64(config.score_scale())
}

/// The score of a key before the mask, from its product with the query.
#[inline(always)]
pub(super) fn score<T: Real>(config: &Config, product: T) -> T {
    capped(scale::<T>(config) * product, config.attn_softcap)
}

/// `c · tanh(x / c)` with a cap `c`.
#[inline(always)]
pub(super) fn capped<T: Real>(x: T, cap: Option<f32>) -> T {
    let Some(cap) = cap else { return x };
    let cap = T::from_f64(f64::from(cap));
    cap * (x / cap).tanh()
}

/// The slice of head `head` in row `t` of `[tokens, width]`.
#[inline(always)]
fn head<T>(data: &[T], width: usize, t: usize, head: usize, size: usize) -> &[T] {
    &data[t * width + head * size..][..size]
}

/// Output `[T, q_dim]` and probabilities `[heads, T, T]` (zero where a position is masked).
pub(super) fn forward<T: Real>(config: &Config, window: Option<usize>, q: &[T], k: &[T], v: &[T]) -> (Vec<T>, Vec<T>) {
    let (size, q_dim, kv_dim) = (config.head_dim, config.q_dim(), config.kv_dim());
    let tokens = q.len() / q_dim;
    let mut probabilities = vec![T::ZERO; config.heads * tokens * tokens];
    let outputs: Vec<Vec<T>> = probabilities
        .par_chunks_mut(tokens * tokens)
        .enumerate()
        .map(|(h, p)| {
            let kv = h / config.gqa_ratio();
            let mut out = vec![T::ZERO; tokens * size];
            vectorize!({
                for i in 0..tokens {
                    let (seen, row) = (seen(window, i), &mut p[i * tokens..(i + 1) * tokens]);
                    for j in seen.clone() {
                        row[j] = score(config, dot(head(q, q_dim, i, h, size), head(k, kv_dim, j, kv, size)));
                    }
                    softmax(&mut row[seen.clone()]);
                    for j in seen {
                        add_scaled(&mut out[i * size..(i + 1) * size], row[j], head(v, kv_dim, j, kv, size));
                    }
                }
            });
            out
        })
        .collect();
    let mut out = vec![T::ZERO; tokens * q_dim];
    for (h, part) in outputs.iter().enumerate() {
        for (i, row) in part.chunks_exact(size).enumerate() {
            out[i * q_dim + h * size..][..size].copy_from_slice(row);
        }
    }
    (out, probabilities)
}

/// Gradients of `q`, `k` and `v` from the gradient of the output. Scores must not be capped.
pub(super) fn backward<T: Real>(
    config: &Config,
    window: Option<usize>,
    q: &[T],
    k: &[T],
    v: &[T],
    probabilities: &[T],
    back: &[T],
) -> (Vec<T>, Vec<T>, Vec<T>) {
    let (size, q_dim, kv_dim) = (config.head_dim, config.q_dim(), config.kv_dim());
    let tokens = q.len() / q_dim;
    // One task per key/value head: the query heads that share it add to it in order.
    let parts: Vec<(Vec<T>, Vec<T>, Vec<T>)> = (0..config.kv_heads)
        .into_par_iter()
        .map(|kv| {
            let ratio = config.gqa_ratio();
            let mut dq = vec![T::ZERO; ratio * tokens * size];
            let (mut dk, mut dv) = (vec![T::ZERO; tokens * size], vec![T::ZERO; tokens * size]);
            let mut dp = vec![T::ZERO; tokens];
            vectorize!({
                for r in 0..ratio {
                    let h = kv * ratio + r;
                    for i in 0..tokens {
                        let p = &probabilities[(h * tokens + i) * tokens..][..tokens];
                        let upstream = head(back, q_dim, i, h, size);
                        let mut mean = T::ZERO;
                        for j in seen(window, i) {
                            dp[j] = dot(upstream, head(v, kv_dim, j, kv, size));
                            mean += p[j] * dp[j];
                            add_scaled(&mut dv[j * size..(j + 1) * size], p[j], upstream);
                        }
                        for j in seen(window, i) {
                            let ds = p[j] * (dp[j] - mean) * scale::<T>(config);
                            add_scaled(&mut dq[(r * tokens + i) * size..][..size], ds, head(k, kv_dim, j, kv, size));
                            add_scaled(&mut dk[j * size..(j + 1) * size], ds, head(q, q_dim, i, h, size));
                        }
                    }
                }
            });
            (dq, dk, dv)
        })
        .collect();
    let (mut dq, mut dk, mut dv) = (vec![T::ZERO; q.len()], vec![T::ZERO; k.len()], vec![T::ZERO; v.len()]);
    for (kv, (q_part, k_part, v_part)) in parts.iter().enumerate() {
        for t in 0..tokens {
            dk[t * kv_dim + kv * size..][..size].copy_from_slice(&k_part[t * size..][..size]);
            dv[t * kv_dim + kv * size..][..size].copy_from_slice(&v_part[t * size..][..size]);
            for r in 0..config.gqa_ratio() {
                let h = kv * config.gqa_ratio() + r;
                dq[t * q_dim + h * size..][..size].copy_from_slice(&q_part[(r * tokens + t) * size..][..size]);
            }
        }
    }
    (dq, dk, dv)
}
