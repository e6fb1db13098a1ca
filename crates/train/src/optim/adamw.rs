//! AdamW with decoupled decay, in one pass over memory.
//!
//! A consumer of the new weights (an engine that stages them as fp16) receives them tile by tile,
//! while they are in the cache. A row of a table that no gradient has reached yet has moments of
//! zero, so its update is only the decay, and its gradient and moments are not read.

use std::ops::Range;

use ferrane_host::{pool, simd};
use ferrane_llm::config::Config;
use ferrane_llm::weights::{self, Slot, TensorKind, Weights};
use serde::{Deserialize, Serialize};

use super::gradients::is_table;
use super::{CHUNK, Gradients, Moments, RowSet, RowSink, Update, UpdateShare, row_size};

/// AdamW: `w ← w − lr·(m̂ / (√v̂ + eps) + decay·w)` (training-dynamic §8).
///
/// Weight decay applies to matrices and the embedding, not to norm gains and biases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdamW {
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Added to `√v̂` in the denominator.
    pub eps: f64,
    /// Weight decay, multiplied by the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 }
    }
}

/// The constants of one update, in the precision of the loop.
#[derive(Clone, Copy)]
struct Constants {
    factor: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    eps: f32,
    /// `lr / (1 − beta1^t)`.
    rate: f32,
    /// `1 / √(1 − beta2^t)`.
    correction: f32,
}

impl Constants {
    fn new(optimizer: &AdamW, lr: f64, factor: f64, count: u64) -> Constants {
        let t = count.clamp(1, i32::MAX as u64) as i32;
        Constants {
            factor: factor as f32,
            beta1: optimizer.beta1 as f32,
            rest1: (1.0 - optimizer.beta1) as f32,
            beta2: optimizer.beta2 as f32,
            rest2: (1.0 - optimizer.beta2) as f32,
            eps: optimizer.eps as f32,
            rate: (lr / (1.0 - optimizer.beta1.powi(t))) as f32,
            correction: (1.0 / (1.0 - optimizer.beta2.powi(t)).sqrt()) as f32,
        }
    }
}

/// Values of a tile: weights, gradients and both moments of a tile fit the L2 cache.
const TILE: usize = 1 << 15;

/// A piece of a tensor, with the same piece of gradients and moments.
struct TensorPiece<'a> {
    slot: Slot,
    /// Index of its first value in the tensor.
    at: usize,
    /// Number of values in a row.
    row: usize,
    /// Factor of the weight decay: `1 − lr·decay`, or 1.
    keep: f32,
    w: &'a mut [f32],
    g: &'a [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
}

impl<'a> TensorPiece<'a> {
    /// Splits off the first `n` values.
    fn cut(&mut self, n: usize) -> TensorPiece<'a> {
        let (w, g, m, v) =
            (std::mem::take(&mut self.w), self.g, std::mem::take(&mut self.m), std::mem::take(&mut self.v));
        let ((w, w_rest), (g, g_rest)) = (w.split_at_mut(n), g.split_at(n));
        let ((m, m_rest), (v, v_rest)) = (m.split_at_mut(n), v.split_at_mut(n));
        let first = TensorPiece { w, g, m, v, ..*self };
        *self = TensorPiece { at: self.at + n, w: w_rest, g: g_rest, m: m_rest, v: v_rest, ..*self };
        first
    }
}

/// Pieces that one thread computes in order.
struct UpdateTask<'p, 's> {
    pieces: Vec<TensorPiece<'p>>,
    take: Option<RowSink<'s>>,
}

impl AdamW {
    /// Makes one update with the gradients times `factor`, see [`Update`]; the gradients are empty
    /// afterward.
    ///
    /// # Errors
    /// As [`Update::run`].
    pub fn update(
        &self,
        config: &Config,
        weights: &mut Weights,
        gradients: &mut Gradients,
        moments: &mut Moments,
        lr: f64,
        factor: f64,
        count: u64,
    ) -> Result<(), weights::Error> {
        let optimizer = *self;
        Update { optimizer, config, weights, gradients, moments, lr, factor, count }.run(Vec::new()).map(drop)
    }

    /// Makes one update of values that are not tensors of a model, all with weight decay. The
    /// slices have the same length.
    pub(crate) fn update_values(
        &self,
        values: &mut [f32],
        gradients: &[f32],
        m: &mut [f32],
        v: &mut [f32],
        lr: f64,
        factor: f64,
        count: u64,
    ) {
        adam(self.decayed(lr), values, gradients, m, v, Constants::new(self, lr, factor, count));
    }

    /// The factor of the weight decay: `1 − lr·decay`.
    fn decayed(&self, lr: f64) -> f32 {
        (1.0 - lr * self.weight_decay) as f32
    }
}

impl<'a> Update<'a> {
    /// Makes the update. Values outside of all shares are updated in pieces of equal size. Shares
    /// do not receive the values of frozen tensors. Values whose moments another rank has stay as
    /// they are.
    ///
    /// # Errors
    /// [`weights::Error::Mismatch`] if weights, gradients or moments do not fit the configuration,
    /// or if a share has an invalid range; nothing has changed then.
    pub fn run(self, shares: Vec<UpdateShare<'_>>) -> Result<&'a Weights, weights::Error> {
        let Update { optimizer, config, weights, gradients, moments, lr, factor, count } = self;
        if gradients.is_empty() {
            gradients.sums(config);
        }
        let Some(sums) = gradients.values() else { return Ok(weights) };
        weights.check(config)?;
        moments.check(config)?;
        gradients.check(config)?;
        let (moments, reached) = moments.open(config, gradients.reached());
        let constants = Constants::new(&optimizer, lr, factor, count);
        let decayed = optimizer.decayed(lr);
        let mut pieces = Vec::new();
        let tensors = weights.tensors_mut(config).into_iter().zip(sums.tensors(config)).zip(moments);
        for (index, (slot, ((w, g), (range, m, v)))) in Slot::list(config).into_iter().zip(tensors).enumerate() {
            // Neither decays nor changes: what a share does with its values stays right.
            if gradients.frozen().contains(index) {
                continue;
            }
            let keep = match w.kind {
                TensorKind::Matrix | TensorKind::Embedding => decayed,
                TensorKind::Norm | TensorKind::Bias => 1.0,
            };
            let row = row_size(&w.shape);
            let (at, w, g) = (range.start, &mut w.data[range.clone()], &g.data[range]);
            pieces.push(TensorPiece { slot, at, row, keep, w, g, m, v });
        }
        let mut tasks = tasks(pieces, shares)?;
        pool::for_each_task(&mut tasks, |task| {
            for piece in &mut task.pieces {
                run(piece, reached, constants, &mut task.take);
            }
        });
        drop(tasks);
        gradients.clear();
        Ok(weights)
    }
}

/// The tasks of an update: the shares, then the rest of the tensors in pieces.
fn tasks<'p, 's>(
    tensors: Vec<TensorPiece<'p>>,
    shares: Vec<UpdateShare<'s>>,
) -> Result<Vec<UpdateTask<'p, 's>>, weights::Error> {
    let mut claims: Vec<(Slot, Range<usize>, usize)> = Vec::new();
    let mut tasks = Vec::new();
    for (index, share) in shares.into_iter().enumerate() {
        claims.extend(share.ranges.into_iter().map(|(slot, range)| (slot, range, index)));
        tasks.push(UpdateTask { pieces: Vec::new(), take: Some(share.take) });
    }
    claims.sort_by_key(|(_, range, _)| range.start);
    let mut rest = Vec::new();
    for mut tensor in tensors {
        let chunk = (CHUNK / tensor.row).max(1) * tensor.row;
        let mut free = |tensor: &mut TensorPiece<'p>, n: usize| {
            let end = tensor.at + n;
            while tensor.at < end {
                let piece = tensor.cut(chunk.min(end - tensor.at));
                rest.push(UpdateTask { pieces: vec![piece], take: None });
            }
        };
        let (size, own) = (tensor.at + tensor.w.len(), tensor.slot);
        for (slot, range, share) in claims.iter().filter(|c| c.0 == own) {
            let whole = range.start.is_multiple_of(tensor.row) && range.end.is_multiple_of(tensor.row);
            if range.start < tensor.at || range.end > size || range.start > range.end || !whole {
                return Err(weights::Error::Mismatch { name: slot.name(), expected: size, found: range.end });
            }
            let before = range.start - tensor.at;
            free(&mut tensor, before);
            let piece = tensor.cut(range.len());
            tasks[*share].pieces.push(piece);
        }
        let left = tensor.w.len();
        free(&mut tensor, left);
    }
    tasks.extend(rest);
    Ok(tasks)
}

/// Updates one piece, tile by tile.
fn run(piece: &mut TensorPiece<'_>, reached: &RowSet, c: Constants, take: &mut Option<RowSink<'_>>) {
    let (row, keep) = (piece.row, piece.keep);
    // Whole rows, a multiple of 32 if possible: a cache line of a transposed fp16 matrix.
    let rows = (TILE / row).max(1);
    let rows = if rows >= 32 { rows / 32 * 32 } else { rows };
    let tile = rows * row;
    let tiles = piece.w.chunks_mut(tile).zip(piece.g.chunks(tile));
    let tiles = tiles.zip(piece.m.chunks_mut(tile).zip(piece.v.chunks_mut(tile)));
    for (i, ((w, g), (m, v))) in tiles.enumerate() {
        let at = piece.at + i * tile;
        if is_table(piece.slot) {
            let first = at / row;
            for (run, there) in reached.runs(first..first + w.len() / row) {
                let range = (run.start - first) * row..(run.end - first) * row;
                let w = &mut w[range.clone()];
                if there {
                    adam(keep, w, &g[range.clone()], &mut m[range.clone()], &mut v[range], c);
                } else {
                    // The formula for a gradient and moments of zero.
                    simd::dispatch(
                        #[inline(always)]
                        || w.iter_mut().for_each(|w| *w *= keep),
                    );
                }
            }
        } else {
            adam(keep, w, g, m, v, c);
        }
        if let Some(take) = take {
            take(piece.slot, at, w);
        }
    }
}

fn adam(keep: f32, w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], c: Constants) {
    let n = w.len();
    // Slices of one known length, so that the loop has no bounds checks.
    let (w, g, m, v) = (&mut w[..n], &g[..n], &mut m[..n], &mut v[..n]);
    simd::dispatch(
        #[inline(always)]
        || {
            for i in 0..n {
                let gradient = g[i] * c.factor;
                m[i] = c.beta1 * m[i] + c.rest1 * gradient;
                v[i] = c.beta2 * v[i] + c.rest2 * gradient * gradient;
                w[i] = keep * w[i] - c.rate * m[i] / (v[i].sqrt() * c.correction + c.eps);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::preset;
    use ferrane_llm::weights::Init;

    fn small() -> Config {
        Config {
            dim: 8,
            hidden: 12,
            layers: 2,
            heads: 2,
            kv_heads: 1,
            head_dim: 4,
            vocab: 16,
            ..preset("stories260k").unwrap()
        }
    }

    fn values(n: usize, seed: usize, factor: f32) -> Vec<f32> {
        (0..n).map(|i| (((i * 37 + seed) % 101) as f32 - 50.0) / 64.0 * factor).collect()
    }

    #[test]
    fn equals_pytorch() {
        // torch.optim.AdamW of PyTorch 2.7.1, lr (t+1)/5 · 1e-2 in update t = 0…4, decay 0.1 on
        // `embed`, 0 on `norm`; values after updates 0 and 4.
        let config = Config { dim: 4, head_dim: 2, vocab: 2, ..small() };
        let mut weights = Weights::zeros(&config);
        weights.embed = values(8, 1, 1.0);
        weights.norm = values(4, 9, 1.0);
        let mut moments = Moments::zeros(&config);
        let want = [
            (
                0,
                [
                    -0.763_471_9,
                    -0.185_462_5,
                    0.388_546_88,
                    -0.607_253_2,
                    -0.031_243_75,
                    0.544_765_65,
                    -0.451_034_4,
                    0.122_975_01,
                ],
                [-0.638_625, -0.060_5, 0.513_625, -0.482_375],
            ),
            (
                4,
                [
                    -0.742_005_7,
                    -0.180_557_1,
                    0.366_866_23,
                    -0.587_080_3,
                    -0.055_091_27,
                    0.528_792_44,
                    -0.432_929_34,
                    0.097_909_41,
                ],
                [-0.623_167_63, -0.055_086_564, 0.497_134_27, -0.467_480_78],
            ),
        ];
        for t in 0..5 {
            // Scaled by a loss scale of 8, which the factor undoes.
            let mut gradients = Weights::zeros(&config);
            gradients.embed = values(8, 11 * t + 3, 8.0 * 0.5f32.powi(t as i32));
            gradients.norm = values(4, 17 * t + 5, 8.0 * 0.25f32.powi(t as i32));
            let mut gradients = Gradients::from_values(&config, gradients);
            let lr = 1e-2 * (t + 1) as f64 / 5.0;
            let count = t as u64 + 1;
            AdamW::default().update(&config, &mut weights, &mut gradients, &mut moments, lr, 0.125, count).unwrap();
            for (_, embed, norm) in want.iter().filter(|w| w.0 == t) {
                for (found, want) in weights.embed.iter().chain(&weights.norm).zip(embed.iter().chain(norm)) {
                    // The tolerance is a few fp32 roundings near 1, in another order than
                    // PyTorch's.
                    assert!((found - want).abs() < 3e-7, "update {t}: {found} and {want}");
                }
            }
        }
    }

    #[test]
    fn equals_the_formula_in_f64_and_ignores_threads() {
        // The embedding has more than one piece, so the splits are exercised.
        let config = Config { vocab: CHUNK / 4, ..small() };
        let start = Weights::init(&config, Init::Normal { std: 0.5 }, 1);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let (mut weights, mut moments) = (start.clone(), Moments::zeros(&config));
                for count in 1..=4 {
                    let gradients = Weights::init(&config, Init::Normal { std: 3.0 }, count + 10);
                    let mut gradients = Gradients::from_values(&config, gradients);
                    let adam = AdamW::default();
                    adam.update(&config, &mut weights, &mut gradients, &mut moments, 3e-2, 0.25, count).unwrap();
                    assert!(gradients.is_empty(), "an update takes the gradients");
                }
                (weights, moments)
            })
        };
        let (weights, moments) = run(1);
        assert_eq!((&weights, &moments), (&run(3).0, &run(3).1));

        for (index, tensor) in weights.tensors(&config).iter().enumerate() {
            let of = |w: &Weights, i: usize| f64::from(w.tensors(&config)[index].data[i]);
            let decay = if tensor.name.contains("norm") { 0.0 } else { 0.1 };
            for i in (0..tensor.data.len()).step_by(tensor.data.len() / 7 + 1) {
                let (mut w, mut m, mut v) = (of(&start, i), 0.0, 0.0);
                for t in 1..=4 {
                    let g = 0.25 * of(&Weights::init(&config, Init::Normal { std: 3.0 }, t as u64 + 10), i);
                    m = 0.9 * m + 0.1 * g;
                    v = 0.95 * v + 0.05 * g * g;
                    let (mh, vh) = (m / (1.0 - f64::powi(0.9, t)), v / (1.0 - f64::powi(0.95, t)));
                    w -= 3e-2 * (mh / (vh.sqrt() + 1e-8) + decay * w);
                }
                let found = f64::from(tensor.data[i]);
                // The tolerance is four updates in fp32 near 1, compared with f64.
                assert!((found - w).abs() < 1e-6, "{} {i}: {found} and {w}", tensor.name);
            }
        }
    }

    #[test]
    fn refuses_what_does_not_belong() {
        let config = small();
        let mut weights = Weights::init(&config, Init::Normal { std: 0.5 }, 1);
        let before = weights.clone();
        let mut other = Gradients::new(&Config { hidden: 10, ..config.clone() });
        other.sums(&Config { hidden: 10, ..config.clone() });
        let mut moments = Moments::zeros(&config);
        let found = AdamW::default().update(&config, &mut weights, &mut other, &mut moments, 1.0, 1.0, 1);
        assert!(matches!(found, Err(weights::Error::Mismatch { .. })));
        assert_eq!(weights, before);
        let gradients = Gradients::new(&config);
        let wrong = |slot, range| {
            let (mut weights, mut gradients) = (weights.clone(), gradients.clone());
            let mut moments = Moments::zeros(&config);
            let share = UpdateShare { ranges: vec![(slot, range)], take: Box::new(|_, _, _| {}) };
            let (optimizer, lr, factor, count) = (AdamW::default(), 1.0, 1.0, 1);
            let (weights, gradients, moments) = (&mut weights, &mut gradients, &mut moments);
            Update { optimizer, config: &config, weights, gradients, moments, lr, factor, count }
                .run(vec![share])
                .is_err()
        };
        assert!(wrong(Slot::Norm, 0..9) && wrong(Slot::Embed, 4..16) && !wrong(Slot::Embed, 8..16));
    }

    #[test]
    fn rows_that_were_never_reached_only_decay() {
        // Compares bit for bit, moments and negative zeros included, with the same update that
        // treats every row as reached.
        let config = Config { vocab: 40, tied: false, ..small() };
        let mut start = Weights::init(&config, Init::Normal { std: 0.5 }, 1);
        start.embed[7 * 8] = -0.0;
        let run = |dense: bool| {
            let (mut weights, mut moments) = (start.clone(), Moments::zeros(&config));
            for count in 1..=5u64 {
                let mut values = Weights::init(&config, Init::Normal { std: 3.0 }, count + 10);
                // Row 3 + count has a gradient only in this update, so its moments later decay
                // without one.
                let keep = |row: usize| row % 9 == 2 || row == 3 + count as usize;
                for table in [Some(&mut values.embed), values.classifier.as_mut()].into_iter().flatten() {
                    table.chunks_mut(8).enumerate().filter(|(row, _)| !keep(*row)).for_each(|(_, r)| r.fill(0.0));
                }
                let mut gradients = Gradients::from_values(&config, values);
                if dense {
                    gradients.sums(&config);
                }
                assert_eq!(gradients.reached().count() == 40, dense);
                AdamW::default()
                    .update(&config, &mut weights, &mut gradients, &mut moments, 3e-2, 0.25, count)
                    .unwrap();
            }
            let bits = |w: &Weights| {
                w.tensors(&config).iter().flat_map(|t| t.data.iter().map(|v| v.to_bits())).collect::<Vec<_>>()
            };
            (bits(&weights), bits(moments.m()), bits(moments.v()))
        };
        assert!(run(false) == run(true));
    }

    #[test]
    fn takers_get_every_new_value_once_and_in_order() {
        let config = Config { vocab: 100, dim: 96, heads: 2, head_dim: 48, hidden: 400, ..small() };
        let start = Weights::init(&config, Init::Normal { std: 0.5 }, 1);
        let run = |shares: Vec<UpdateShare<'_>>| {
            let (mut weights, mut moments) = (start.clone(), Moments::zeros(&config));
            let mut gradients = Gradients::from_values(&config, Weights::init(&config, Init::Normal { std: 3.0 }, 5));
            let (optimizer, lr, factor, count) = (AdamW::default(), 1e-2, 1.0, 1);
            let (weights_, gradients, moments) = (&mut weights, &mut gradients, &mut moments);
            Update { optimizer, config: &config, weights: weights_, gradients, moments, lr, factor, count }
                .run(shares)
                .unwrap();
            weights
        };
        let plain = run(Vec::new());
        let w1 = Slot::Layer(1, ferrane_llm::weights::Part::W1);
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let mut calls = 0;
        let first = UpdateShare {
            ranges: vec![(w1, 0..400 * 96)],
            take: Box::new(|slot, at, values| {
                assert!(slot == w1 && at == one.len() && values.len().is_multiple_of(96));
                one.extend_from_slice(values);
                calls += 1;
            }),
        };
        let second = UpdateShare {
            ranges: vec![(Slot::Norm, 0..96), (Slot::Embed, 96 * 10..96 * 30)],
            take: Box::new(|slot, at, values| two.push((slot, at, values.to_vec()))),
        };
        let shared = run(vec![first, second]);
        assert!(shared == plain, "consumers do not change the result");
        assert!(one == plain.layers[1].w1 && calls > 1);
        // The consumer receives values in the order of the tensors.
        let want = [(Slot::Embed, 960, plain.embed[960..2880].to_vec()), (Slot::Norm, 0, plain.norm.clone())];
        assert_eq!(two, want);
    }
}
