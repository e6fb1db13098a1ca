//! RMSNorm on channel-first activations `[C, S]`, forward and backward (training-dynamic §7).
//!
//! `y[c, t] = x[c, t] · r[t] · w[c]` with `r[t] = 1/√(mean over c of x[c, t]² + eps)`. The gradient
//! is `dx = r · (w·dy − x·d)` with `d[t] = r²/C · Σ_c w·dy·x`; the reference trainer has a factor
//! `w` on the second term, which is correct only for `w = 1` (upstream-defects #2).
//!
//! Rows are split into tasks by size alone and partial sums are added in a fixed tree, so the
//! result has the same bits on any number of threads.

use ferrane_host::{convert, pool, vectorize};
use half::f16;

/// Elements in one task.
const GRAIN: usize = 16 * 1024;
/// Values in the fp32 buffer between the norm and the rounding to fp16.
const TILE: usize = 512;
/// Independent partial sums of a reduction along a row.
const LANES: usize = 16;

/// Channels in one task.
fn channels_per_task(seq: usize) -> usize {
    (GRAIN / seq.max(1)).max(1)
}

/// Sums over the channels, one for each column: calls `add(sums, channel)` for each channel of a
/// task in order.
fn column_sums(channels: usize, sums: usize, seq: usize, add: impl Fn(&mut [f32], usize) + Sync) -> Vec<f32> {
    let task = |range: std::ops::Range<usize>| {
        let mut partial = vec![0.0f32; sums];
        for channel in range {
            add(&mut partial, channel);
        }
        partial
    };
    let join = |mut a: Vec<f32>, b: Vec<f32>| {
        for (a, b) in a.iter_mut().zip(&b) {
            *a += b;
        }
        a
    };
    pool::reduce(channels, channels_per_task(seq), task, join).unwrap_or_default()
}

/// Replaces sums of squares by `1/√(mean + eps)`.
fn inverse_rms(squares: &mut [f32], channels: usize, eps: f32) {
    for value in squares {
        *value = 1.0 / (*value / channels as f32 + eps).sqrt();
    }
}

/// `1/√(mean of squares + eps)` of each column.
fn inverse_rms_of(x: &[f32], channels: usize, seq: usize, eps: f32) -> Vec<f32> {
    let mut r = column_sums(channels, seq, seq, |sums, channel| {
        let row = &x[channel * seq..][..seq];
        vectorize!(add_squares(sums, row));
    });
    inverse_rms(&mut r, channels, eps);
    r
}

/// Like [`rmsnorm_forward`], with the result rounded to fp16.
///
/// # Panics
/// If a length is not `w.len() · seq`.
pub fn rmsnorm_forward_f16(x: &[f32], w: &[f32], seq: usize, eps: f32, y: &mut [f16]) {
    assert_eq!((x.len(), y.len()), (w.len() * seq, w.len() * seq), "activations are [{}, {seq}]", w.len());
    if x.is_empty() {
        return;
    }
    let r = inverse_rms_of(x, w.len(), seq, eps);
    let channels = channels_per_task(seq);
    pool::for_each_chunk_mut(y, channels * seq, |task, rows| {
        let mut tile = [0.0f32; TILE];
        for (i, out) in rows.chunks_exact_mut(seq).enumerate() {
            let channel = task * channels + i;
            let (gain, row) = (w[channel], &x[channel * seq..][..seq]);
            for ((out, row), r) in out.chunks_mut(TILE).zip(row.chunks(TILE)).zip(r.chunks(TILE)) {
                let tile = &mut tile[..out.len()];
                vectorize!(scaled(tile, row, r, gain));
                convert::f32_to_f16(tile, out);
            }
        }
    });
}

/// `y = RMSNorm(x) · w`. `w` has one gain for each channel; `x` and `y` are `[w.len(), seq]`.
///
/// # Panics
/// If a length is not `w.len() · seq`.
pub fn rmsnorm_forward(x: &[f32], w: &[f32], seq: usize, eps: f32, y: &mut [f32]) {
    assert_eq!((x.len(), y.len()), (w.len() * seq, w.len() * seq), "activations are [{}, {seq}]", w.len());
    if x.is_empty() {
        return;
    }
    let r = inverse_rms_of(x, w.len(), seq, eps);
    let channels = channels_per_task(seq);
    pool::for_each_chunk_mut(y, channels * seq, |task, rows| {
        for (i, out) in rows.chunks_exact_mut(seq).enumerate() {
            let channel = task * channels + i;
            let (gain, row) = (w[channel], &x[channel * seq..][..seq]);
            vectorize!(scaled(out, row, &r, gain));
        }
    });
}

/// Gradients of [`rmsnorm_forward`]: overwrites `dx` `[w.len(), seq]`, adds to `dw` `[w.len()]`.
///
/// # Panics
/// If `dy`, `x` or `dx` has not `w.len() · seq` values, or `dw` not `w.len()`.
pub fn rmsnorm_backward(dy: &[f32], x: &[f32], w: &[f32], seq: usize, eps: f32, dx: &mut [f32], dw: &mut [f32]) {
    let size = w.len() * seq;
    assert_eq!((dy.len(), x.len(), dx.len()), (size, size, size), "activations are [{}, {seq}]", w.len());
    assert_eq!(dw.len(), w.len(), "one gradient for each gain");
    if x.is_empty() {
        return;
    }
    // The sums of squares, then those of w·dy·x.
    let mut r = column_sums(w.len(), 2 * seq, seq, |sums, channel| {
        let (squares, dots) = sums.split_at_mut(seq);
        let (gain, row, grad) = (w[channel], &x[channel * seq..][..seq], &dy[channel * seq..][..seq]);
        vectorize!(add_products(squares, dots, gain, row, grad));
    });
    let mut d = r.split_off(seq);
    inverse_rms(&mut r, w.len(), eps);
    for (d, r) in d.iter_mut().zip(&r) {
        *d *= r * r / w.len() as f32;
    }
    let channels = channels_per_task(seq);
    let mut tasks: Vec<_> = dx.chunks_mut(channels * seq).zip(dw.chunks_mut(channels)).collect();
    pool::for_each_chunk_mut(&mut tasks, 1, |task, piece| {
        for (rows, gains) in piece {
            for (i, (out, gain_gradient)) in rows.chunks_exact_mut(seq).zip(gains.iter_mut()).enumerate() {
                let channel = task * channels + i;
                let (gain, row, grad) = (w[channel], &x[channel * seq..][..seq], &dy[channel * seq..][..seq]);
                let sum = vectorize!({
                    input_gradient(out, gain, [grad, row, &r, &d]);
                    gain_sum(grad, row, &r)
                });
                *gain_gradient += sum;
            }
        }
    });
}

/// The gradient of the gains alone, as [`rmsnorm_backward`] adds it to `dw`.
///
/// # Panics
/// If `dy` or `x` has not `dw.len() · seq` values.
pub fn rmsnorm_gain_gradient(dy: &[f32], x: &[f32], seq: usize, eps: f32, dw: &mut [f32]) {
    let size = dw.len() * seq;
    assert_eq!((dy.len(), x.len()), (size, size), "activations are [{}, {seq}]", dw.len());
    if x.is_empty() {
        return;
    }
    let r = inverse_rms_of(x, dw.len(), seq, eps);
    let channels = channels_per_task(seq);
    pool::for_each_chunk_mut(dw, channels, |task, gains| {
        for (i, gain) in gains.iter_mut().enumerate() {
            let at = (task * channels + i) * seq;
            *gain += vectorize!(gain_sum(&dy[at..][..seq], &x[at..][..seq], &r));
        }
    });
}

// The slices of a loop are zipped or cut to one length: with bounds checks, up to 64 elements of a
// row would be left to scalar code.

/// Adds a channel to the sums of squares.
#[inline(always)]
fn add_squares(squares: &mut [f32], row: &[f32]) {
    for (sum, x) in squares.iter_mut().zip(row) {
        *sum += x * x;
    }
}

/// `x · r · w` of a channel.
#[inline(always)]
fn scaled(out: &mut [f32], row: &[f32], r: &[f32], gain: f32) {
    for ((out, x), r) in out.iter_mut().zip(row).zip(r) {
        *out = x * r * gain;
    }
}

/// Adds a channel to the sums of squares and of w·dy·x.
#[inline(always)]
fn add_products(squares: &mut [f32], dots: &mut [f32], gain: f32, row: &[f32], grad: &[f32]) {
    let seq = row.len();
    let (squares, dots, grad) = (&mut squares[..seq], &mut dots[..seq], &grad[..seq]);
    for t in 0..seq {
        squares[t] += row[t] * row[t];
        dots[t] += gain * grad[t] * row[t];
    }
}

/// `r · (w·dy − x·d)` of a channel.
#[inline(always)]
fn input_gradient(out: &mut [f32], gain: f32, rows: [&[f32]; 4]) {
    let seq = out.len();
    let [grad, row, r, d] = rows.map(|row| &row[..seq]);
    for t in 0..seq {
        out[t] = r[t] * (gain * grad[t] - row[t] * d[t]);
    }
}

/// `Σ dy · x · r` of a channel.
#[inline(always)]
fn gain_sum(dy: &[f32], x: &[f32], r: &[f32]) -> f32 {
    let ((dy, dy_rest), (x, x_rest), (r, r_rest)) =
        (dy.as_chunks::<LANES>(), x.as_chunks::<LANES>(), r.as_chunks::<LANES>());
    let mut lanes = [0.0f32; LANES];
    for ((dy, x), r) in dy.iter().zip(x).zip(r) {
        for lane in 0..LANES {
            lanes[lane] += dy[lane] * x[lane] * r[lane];
        }
    }
    let mut sum = 0.0;
    for lane in lanes {
        sum += lane;
    }
    for ((dy, x), r) in dy_rest.iter().zip(x_rest).zip(r_rest) {
        sum += dy * x * r;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    fn values(n: usize, seed: u64) -> Vec<f32> {
        let mut rng = Rng::new(seed);
        (0..n).map(|_| rng.uniform() as f32 * 2.0 - 1.0).collect()
    }

    fn naive(x: &[f64], w: &[f64], seq: usize, eps: f64) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        for t in 0..seq {
            let squares: f64 = (0..w.len()).map(|c| x[c * seq + t] * x[c * seq + t]).sum();
            let r = 1.0 / (squares / w.len() as f64 + eps).sqrt();
            for c in 0..w.len() {
                y[c * seq + t] = x[c * seq + t] * r * w[c];
            }
        }
        y
    }

    fn wide(v: &[f32]) -> Vec<f64> {
        v.iter().map(|&v| f64::from(v)).collect()
    }

    #[test]
    fn forward_and_gradients_against_differences() {
        // Sizes below, at and above a task and the lanes. The gains are far from 1, so that an
        // extra factor w shows.
        for (channels, seq) in [(5, 3), (24, 37), (300, 96), (1, 1), (3, 700)] {
            let (x, w, dy) = (values(channels * seq, 1), values(channels, 2), values(channels * seq, 3));
            let eps = 1e-5;
            let mut y = vec![0.0; x.len()];
            rmsnorm_forward(&x, &w, seq, eps, &mut y);
            let exact = naive(&wide(&x), &wide(&w), seq, f64::from(eps));
            // The tolerance is a few roundings of values near 1.
            assert!(y.iter().zip(&exact).all(|(a, b)| (f64::from(*a) - b).abs() < 2e-6));
            let mut half = vec![f16::ZERO; x.len()];
            rmsnorm_forward_f16(&x, &w, seq, eps, &mut half);
            assert!(y.iter().zip(&half).all(|(a, b)| f16::from_f32(*a) == *b));

            let (mut dx, mut dw) = (vec![9.0; x.len()], vec![1.0; channels]);
            rmsnorm_backward(&dy, &x, &w, seq, eps, &mut dx, &mut dw);
            let mut alone = vec![1.0; channels];
            rmsnorm_gain_gradient(&dy, &x, seq, eps, &mut alone);
            assert!(alone.iter().zip(&dw).all(|(a, b)| (a - b).abs() < 1e-5 * (1.0 + b.abs())));
            let objective = |x: &[f64], w: &[f64]| -> f64 {
                naive(x, w, seq, f64::from(eps)).iter().zip(&dy).map(|(y, d)| y * f64::from(*d)).sum()
            };
            let h = 1e-5;
            for i in (0..x.len()).step_by(x.len() / 20 + 1) {
                let difference = |sign: f64| {
                    let mut moved = wide(&x);
                    moved[i] += sign * h;
                    objective(&moved, &wide(&w))
                };
                let slope = (difference(1.0) - difference(-1.0)) / (2.0 * h);
                assert!((f64::from(dx[i]) - slope).abs() < 2e-5 * (1.0 + slope.abs()), "{i}: {} {slope}", dx[i]);
            }
            for c in (0..channels).step_by(channels / 10 + 1) {
                let difference = |sign: f64| {
                    let mut moved = wide(&w);
                    moved[c] += sign * h;
                    objective(&wide(&x), &moved)
                };
                let slope = (difference(1.0) - difference(-1.0)) / (2.0 * h);
                // `dw` held 1 before.
                assert!((f64::from(dw[c]) - 1.0 - slope).abs() < 2e-5 * (1.0 + slope.abs()), "{c}: {} {slope}", dw[c]);
            }
        }
    }

    #[test]
    fn the_same_bits_on_any_number_of_threads() {
        let (channels, seq) = (300, 128);
        let (x, w, dy) = (values(channels * seq, 1), values(channels, 2), values(channels * seq, 3));
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; channels]);
            pool.install(|| rmsnorm_backward(&dy, &x, &w, seq, 1e-5, &mut dx, &mut dw));
            (dx, dw)
        };
        assert_eq!(run(1), run(3));
    }
}
