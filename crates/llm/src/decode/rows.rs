//! The host's work on the residual stream between two requests, row by row in fp32: adding a
//! program's output, and the RMSNorm that the next program reads.

use ferrane_host::{convert, pool, vectorize};
use half::f16;

/// Rows in one task.
const ROWS: usize = 16;
/// Independent partial sums of a reduction along a row.
const LANES: usize = 16;
/// Values that are widened or rounded in one piece.
const PIECE: usize = 256;

/// An addition of a program's output: `stream += alpha · y`, or of its RMSNorm; rows of `y` are
/// spaced by `stride` words.
#[derive(Clone, Copy)]
pub(super) struct Sum<'a> {
    pub alpha: f32,
    pub y: &'a [f16],
    pub stride: usize,
    pub norm: Option<Norm<'a>>,
}

/// RMSNorm with a gain `[dim]`.
#[derive(Clone, Copy)]
pub(super) struct Norm<'a> {
    pub gain: &'a [f32],
    pub eps: f32,
}

/// Adds `sum`, if any, to each row `[dim]` of the stream and writes its RMSNorm to `x`, whose rows
/// are spaced by `stride` words.
pub(super) fn step(stream: &mut [f32], sum: Option<Sum<'_>>, norm: Norm<'_>, x: &mut [f16], stride: usize) {
    let dim = norm.gain.len();
    pool::for_each_chunk_pair_mut((stream, ROWS * dim), (x, ROWS * stride), |task, stream, x| {
        for (t, (row, x)) in stream.chunks_exact_mut(dim).zip(x.chunks_mut(stride)).enumerate() {
            if let Some(sum) = sum {
                sum.add(row, task * ROWS + t);
            }
            rms_norm(row, norm, |at, values| convert::f32_to_f16(values, &mut x[at..][..values.len()]));
        }
    });
}

/// Adds `sum` to each row `[dim]` of the stream.
pub(super) fn add(stream: &mut [f32], sum: Sum<'_>, dim: usize) {
    pool::for_each_chunk_mut(stream, ROWS * dim, |task, stream| {
        for (t, row) in stream.chunks_exact_mut(dim).enumerate() {
            sum.add(row, task * ROWS + t);
        }
    });
}

impl Sum<'_> {
    /// Adds row `t` of the program's output.
    fn add(&self, row: &mut [f32], t: usize) {
        let mut wide = [0.0f32; PIECE];
        let y = &self.y[t * self.stride..][..row.len()];
        let scale = self.norm.map(|norm| self.alpha * inverse_rms(y, norm.eps));
        for (i, (row, y)) in row.chunks_mut(PIECE).zip(y.chunks(PIECE)).enumerate() {
            let wide = &mut wide[..row.len()];
            convert::f16_to_f32(y, wide);
            match (self.norm, scale) {
                (Some(norm), Some(scale)) => {
                    let gain = &norm.gain[i * PIECE..][..row.len()];
                    vectorize!({
                        for ((x, y), gain) in row.iter_mut().zip(&*wide).zip(gain) {
                            *x += scale * *y * *gain;
                        }
                    });
                }
                _ => vectorize!({
                    for (x, y) in row.iter_mut().zip(&*wide) {
                        *x += self.alpha * *y;
                    }
                }),
            }
        }
    }
}

/// `1/√(mean of squares + eps)` of a row.
fn inverse_rms(row: &[f16], eps: f32) -> f32 {
    let (mut wide, mut sum) = ([0.0f32; PIECE], 0.0);
    for piece in row.chunks(PIECE) {
        let wide = &mut wide[..piece.len()];
        convert::f16_to_f32(piece, wide);
        sum += wide.iter().map(|value| value * value).sum::<f32>();
    }
    1.0 / (sum / row.len() as f32 + eps).sqrt()
}

/// RMSNorm of a row, piece by piece: calls `put` with the index of a piece's first value and its
/// values.
pub(super) fn rms_norm(row: &[f32], norm: Norm<'_>, mut put: impl FnMut(usize, &[f32])) {
    let dim = row.len();
    let scale = vectorize!({
        let mut lanes = [0.0f32; LANES];
        let (blocks, rest) = row.as_chunks::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                lanes[lane] += block[lane] * block[lane];
            }
        }
        let mut sum = 0.0;
        for lane in lanes {
            sum += lane;
        }
        for value in rest {
            sum += value * value;
        }
        1.0 / (sum / dim as f32 + norm.eps).sqrt()
    });
    let mut normed = [0.0f32; PIECE];
    for (i, (row, gain)) in row.chunks(PIECE).zip(norm.gain.chunks(PIECE)).enumerate() {
        let normed = &mut normed[..row.len()];
        vectorize!({
            for ((y, x), gain) in normed.iter_mut().zip(row).zip(gain) {
                *y = x * scale * gain;
            }
        });
        put(i * PIECE, normed);
    }
}
