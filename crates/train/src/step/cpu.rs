//! The parts of a step that run on the CPU: embedding, SiLU gradient, rotary gradient, head sums.
//!
//! Activations are channel-first, `[C, S]` with element (c, t) at c·S + t, like the surfaces
//! (training-dynamic §1). Work is split by size alone, so results do not depend on the thread
//! count.

use ferrane_host::f16;
use ferrane_host::{convert, pool, simd};
use ferrane_llm::config::Config;

/// Smallest number of elements in a task; a smaller one costs more than it saves.
const GRAIN: usize = 16 * 1024;

/// Channels that an embedding is copied to or added from together: their rows of activations stay
/// in the L1 cache from one token to the next.
const CHANNELS: usize = 16;

/// Number of rows of `s` elements in one task.
fn rows_per_task(s: usize) -> usize {
    (GRAIN / s.max(1)).max(1)
}

/// Embedding lookup: x[c, t] = embed[ids[t], c].
pub fn embed(table: &[f32], ids: &[u32], dim: usize, x: &mut [f32]) {
    let s = ids.len();
    pool::for_each_chunk_mut(x, rows_per_task(s) * s, |task, rows| {
        for (block, rows) in rows.chunks_mut(CHANNELS * s).enumerate() {
            let first = task * rows_per_task(s) + block * CHANNELS;
            for (t, &id) in ids.iter().enumerate() {
                let vector = &table[id as usize * dim..][first..dim];
                for (row, v) in rows.chunks_exact_mut(s).zip(vector) {
                    row[t] = *v;
                }
            }
        }
    });
}

/// Gradient of the embedding: gradient[ids[t], c] += dy[c, t].
pub fn embed_gradient(dy: &[f32], ids: &[u32], dim: usize, gradient: &mut [f32]) {
    let s = ids.len();
    for (block, rows) in dy.chunks(CHANNELS * s.max(1)).enumerate() {
        for (t, &id) in ids.iter().enumerate() {
            let vector = &mut gradient[id as usize * dim..][block * CHANNELS..dim];
            for (g, row) in vector.iter_mut().zip(rows.chunks_exact(s)) {
                *g += row[t];
            }
        }
    }
}

/// Gradient of gate = h1·σ(h1)·h3: dh3 = dgate·h1·σ, dh1 = dgate·h3·σ·(1 + h1·(1 − σ))
/// (training-dynamic §6 b).
pub fn silu_backward(dgate: &[f16], h1: &[f16], h3: &[f16], dh1: &mut [f32], dh3: &mut [f32]) {
    const TILE: usize = 1024;
    /// An element costs several times as much as in a sum.
    const GRAIN: usize = 4 * TILE;
    pool::for_each_chunk_mut2(dh1, dh3, GRAIN, |task, dh1, dh3| {
        let mut tiles = [[0.0f32; TILE]; 3];
        for (i, (dh1, dh3)) in dh1.chunks_mut(TILE).zip(dh3.chunks_mut(TILE)).enumerate() {
            let at = task * GRAIN + i * TILE;
            let n = dh1.len();
            for (tile, source) in tiles.iter_mut().zip([dgate, h1, h3]) {
                convert::f16_to_f32(&source[at..at + n], &mut tile[..n]);
            }
            let [d, a, b] = &tiles;
            simd::dispatch(
                #[inline(always)]
                || {
                    // Indices with bounds checks would leave up to 64 elements to scalar code.
                    for ((((dh1, dh3), d), a), b) in dh1.iter_mut().zip(dh3).zip(d).zip(a).zip(b) {
                        let s = simd::sigmoid(*a);
                        *dh3 = d * a * s;
                        *dh1 = d * b * s * (1.0 + a * (1.0 - s));
                    }
                },
            );
        }
    });
}

/// Cosines and sines of pair i at position t, each `[head_dim/2, S]`.
pub struct RopeTables {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTables {
    /// Tables of the rotation, which is the same in all layers, computed in f64.
    pub fn new(config: &Config, s: usize) -> RopeTables {
        let (size, rotation) = (config.head_dim / 2 * s, config.rotation(config.attention(0), config.max_seq));
        RopeTables {
            cos: (0..size).map(|k| rotation.at(k / s, k % s).0 as f32).collect(),
            sin: (0..size).map(|k| rotation.at(k / s, k % s).1 as f32).collect(),
        }
    }
}

impl RopeTables {
    /// Size of the tables in bytes.
    pub fn bytes(&self) -> usize {
        4 * (self.cos.len() + self.sin.len())
    }
}

/// Gradient of the rotation: rotates `d` `[heads·head_dim, S]` back, (a, b) → (a·cos + b·sin,
/// −a·sin + b·cos).
pub fn rope_backward(d: &mut [f32], tables: &RopeTables, config: &Config, s: usize) {
    let (hd, half) = (config.head_dim, config.head_dim / 2);
    pool::for_each_chunk_mut(d, hd * s, |_, head| {
        for i in 0..half {
            let (first, second) = config.rope.pair(hd, i);
            let (left, right) = head.split_at_mut(second * s);
            let (a, b) = (&mut left[first * s..][..s], &mut right[..s]);
            let (cos, sin) = (&tables.cos[i * s..][..s], &tables.sin[i * s..][..s]);
            simd::dispatch(
                #[inline(always)]
                || {
                    for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                        let (x, y) = (*a, *b);
                        *a = x * cos + y * sin;
                        *b = y * cos - x * sin;
                    }
                },
            );
        }
    });
}

/// Sums the gradients of the query heads that share a key-value head: query head h belongs to h div
/// ratio.
pub fn sum_heads(per_query: &[f32], out: &mut [f32], head_elements: usize, ratio: usize) {
    pool::for_each_chunk_mut(out, head_elements, |kv, out| {
        out.copy_from_slice(&per_query[kv * ratio * head_elements..][..head_elements]);
        for r in 1..ratio {
            let head = &per_query[(kv * ratio + r) * head_elements..][..head_elements];
            simd::dispatch(
                #[inline(always)]
                || out.iter_mut().zip(head).for_each(|(o, h)| *o += h),
            );
        }
    });
}

/// Element-wise sum in place: a += b.
pub fn add(a: &mut [f32], b: &[f32]) {
    pool::for_each_chunk_mut(a, GRAIN, |task, a| {
        let b = &b[task * GRAIN..][..a.len()];
        simd::dispatch(
            #[inline(always)]
            || a.iter_mut().zip(b).for_each(|(a, b)| *a += b),
        );
    });
}

/// Element-wise scaled sum: out = a + factor·b.
pub fn add_scaled(a: &[f32], factor: f32, b: &[f32], out: &mut [f32]) {
    pool::for_each_chunk_mut(out, GRAIN, |task, out| {
        let at = task * GRAIN;
        let (a, b) = (&a[at..at + out.len()], &b[at..at + out.len()]);
        simd::dispatch(
            #[inline(always)]
            || out.iter_mut().zip(a).zip(b).for_each(|((o, a), b)| *o = a + factor * b),
        );
    });
}

/// Element-wise product with a constant: out = factor·a.
pub fn scaled(factor: f32, a: &[f32], out: &mut [f32]) {
    pool::for_each_chunk_mut(out, GRAIN, |task, out| {
        let a = &a[task * GRAIN..][..out.len()];
        simd::dispatch(
            #[inline(always)]
            || out.iter_mut().zip(a).for_each(|(o, a)| *o = factor * a),
        );
    });
}

/// Gradient of a bias: sums[c] += Σ_t d[c, t].
pub fn sum_rows(d: &[f32], s: usize, sums: &mut [f32]) {
    for (sum, row) in sums.iter_mut().zip(d.chunks_exact(s)) {
        *sum += row.iter().sum::<f32>();
    }
}

/// Largest magnitude; infinity if a value is NaN or infinite.
pub fn max_abs(values: &[f32]) -> f32 {
    // Magnitudes have the order of their bits, and non-finite values compare above all finite ones.
    let max = |range: std::ops::Range<usize>| {
        let values = &values[range];
        simd::dispatch(
            #[inline(always)]
            || {
                let mut max = 0u32;
                for v in values {
                    let bits = v.to_bits() & 0x7FFF_FFFF;
                    max = if bits > max { bits } else { max };
                }
                max
            },
        )
    };
    let bits = pool::reduce(values.len(), GRAIN, max, u32::max).unwrap_or(0);
    if bits >= f32::INFINITY.to_bits() { f32::INFINITY } else { f32::from_bits(bits) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::RopeStyle;

    fn noise(n: usize, seed: u64) -> Vec<f32> {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    fn config(style: RopeStyle) -> Config {
        let mut config = ferrane_llm::config::preset("stories260k").unwrap();
        config.rope.style = style;
        config
    }

    #[test]
    fn silu_gradient_matches_central_differences() {
        let n = 3000;
        let half = |v: Vec<f32>| v.into_iter().map(|x| f16::from_f32(4.0 * x)).collect::<Vec<_>>();
        let (d, a, b) = (half(noise(n, 1)), half(noise(n, 2)), half(noise(n, 5)));
        let (mut da, mut db) = (vec![0.0; n], vec![0.0; n]);
        silu_backward(&d, &a, &b, &mut da, &mut db);
        let gate = |a: f64, b: f64| a / (1.0 + (-a).exp()) * b;
        for i in 0..n {
            let (d, a, b) = (d[i].to_f64(), a[i].to_f64(), b[i].to_f64());
            let h = 1e-5;
            let ga = d * (gate(a + h, b) - gate(a - h, b)) / (2.0 * h);
            let gb = d * (gate(a, b + h) - gate(a, b - h)) / (2.0 * h);
            assert!((ga - f64::from(da[i])).abs() < 1e-4 && (gb - f64::from(db[i])).abs() < 1e-4, "{i}");
        }
    }

    #[test]
    fn the_rotation_back_is_the_transpose_of_the_rotation() {
        let s = 9;
        for style in [RopeStyle::Interleaved, RopeStyle::Half] {
            let config = config(style);
            let n = config.q_dim() * s;
            let tables = RopeTables::new(&config, s);
            let (x, mut d) = (noise(n, 7), noise(n, 8));
            let before = d.clone();
            rope_backward(&mut d, &tables, &config, s);
            // ⟨R x, d⟩ = ⟨x, Rᵀ d⟩ with R written out from its definition.
            let (hd, half) = (config.head_dim, config.head_dim / 2);
            let mut left = 0.0;
            for h in 0..config.heads {
                for i in 0..half {
                    for t in 0..s {
                        let angle = t as f64 / 1e4f64.powf(2.0 * i as f64 / hd as f64);
                        let (p, q) = if style == RopeStyle::Half { (i, i + half) } else { (2 * i, 2 * i + 1) };
                        let at = |c: usize| (h * hd + c) * s + t;
                        let (a, b) = (f64::from(x[at(p)]), f64::from(x[at(q)]));
                        left += (a * angle.cos() - b * angle.sin()) * f64::from(before[at(p)]);
                        left += (a * angle.sin() + b * angle.cos()) * f64::from(before[at(q)]);
                    }
                }
            }
            let right: f64 = x.iter().zip(&d).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((left - right).abs() < 1e-4, "{style:?} {left} {right}");
        }
    }

    #[test]
    fn embedding_heads_and_small_sums() {
        let table: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let mut x = vec![0.0; 6];
        embed(&table, &[3, 0], 3, &mut x);
        assert_eq!(x, [9.0, 0.0, 10.0, 1.0, 11.0, 2.0]);
        let mut gradient = vec![0.0; 12];
        embed_gradient(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 3], 3, &mut gradient);
        assert_eq!(gradient[9..], [3.0, 7.0, 11.0]);
        let mut out = vec![0.0; 4];
        sum_heads(&[1.0, 2.0, 10.0, 20.0, 3.0, 4.0, 30.0, 40.0], &mut out, 2, 2);
        assert_eq!(out, [11.0, 22.0, 33.0, 44.0]);
        let mut sums = vec![1.0, 0.0];
        sum_rows(&[1.0, 2.0, 3.0, 4.0], 2, &mut sums);
        assert_eq!(sums, [4.0, 7.0]);
        assert_eq!(max_abs(&[1.0, -3.0, 2.0]), 3.0);
        assert_eq!(max_abs(&[1.0, f32::NAN]), f32::INFINITY);
    }
}
