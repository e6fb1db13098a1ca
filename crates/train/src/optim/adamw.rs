//! AdamW with decoupled decay, in one pass over memory.

use ferrane_host::{pool, simd};
use ferrane_llm::config::Config;
use ferrane_llm::weights::{self, Kind, Weights};
use serde::{Deserialize, Serialize};

use super::CHUNK;

/// AdamW: `w ← w − lr·(m̂ / (√v̂ + eps) + decay·w)` (training-dynamic §8).
///
/// Matrices and the embedding decay; norm gains and biases do not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to `√v̂`.
    pub eps: f64,
    /// Decay of weights, in units of the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 }
    }
}

/// The first and the second moment of every weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// Mean of the gradients.
    pub m: Weights,
    /// Mean of their squares.
    pub v: Weights,
}

impl Moments {
    /// Before the first update.
    pub fn zeros(config: &Config) -> Self {
        Moments { m: Weights::zeros(config), v: Weights::zeros(config) }
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

/// A piece of one tensor and of what belongs to it.
struct Piece<'a> {
    /// `1 − lr·decay`, or 1.
    keep: f32,
    w: &'a mut [f32],
    g: &'a mut [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
}

impl AdamW {
    /// One update with gradients times `factor`; leaves the gradients zero.
    ///
    /// `factor` undoes loss scale and accumulation and clips. `count` is the number of this update, from 1: skipped
    /// updates do not count, because they leave the moments alone.
    ///
    /// # Errors
    /// [`weights::Error::Mismatch`] when one of the four does not belong to `config`; then nothing has changed.
    pub fn update(
        &self,
        config: &Config,
        weights: &mut Weights,
        gradients: &mut Weights,
        moments: &mut Moments,
        lr: f64,
        factor: f64,
        count: u64,
    ) -> Result<(), weights::Error> {
        for part in [&*weights, &*gradients, &moments.m, &moments.v] {
            part.check(config)?;
        }
        let t = count.clamp(1, i32::MAX as u64) as i32;
        let constants = Constants {
            factor: factor as f32,
            beta1: self.beta1 as f32,
            rest1: (1.0 - self.beta1) as f32,
            beta2: self.beta2 as f32,
            rest2: (1.0 - self.beta2) as f32,
            eps: self.eps as f32,
            rate: (lr / (1.0 - self.beta1.powi(t))) as f32,
            correction: (1.0 / (1.0 - self.beta2.powi(t)).sqrt()) as f32,
        };
        let decayed = (1.0 - lr * self.weight_decay) as f32;
        let mut pieces = Vec::new();
        let (w, g) = (weights.tensors_mut(config), gradients.tensors_mut(config));
        let (m, v) = (moments.m.tensors_mut(config), moments.v.tensors_mut(config));
        for (((w, g), m), v) in w.into_iter().zip(g).zip(m).zip(v) {
            let keep = match w.kind {
                Kind::Matrix | Kind::Embedding => decayed,
                Kind::Norm | Kind::Bias => 1.0,
            };
            let chunks = w.data.chunks_mut(CHUNK).zip(g.data.chunks_mut(CHUNK));
            let chunks = chunks.zip(m.data.chunks_mut(CHUNK)).zip(v.data.chunks_mut(CHUNK));
            pieces.extend(chunks.map(|(((w, g), m), v)| Piece { keep, w, g, m, v }));
        }
        pool::for_each_chunk_mut(&mut pieces, 1, |_, piece| update(&mut piece[0], constants));
        Ok(())
    }
}

fn update(piece: &mut Piece<'_>, c: Constants) {
    let keep = piece.keep;
    let n = piece.w.len();
    // Slices of one visible length, so that the loop has no bounds checks in it.
    let (w, g, m, v) = (&mut piece.w[..n], &mut piece.g[..n], &mut piece.m[..n], &mut piece.v[..n]);
    simd::dispatch(
        #[inline(always)]
        || {
            for i in 0..n {
                let gradient = g[i] * c.factor;
                g[i] = 0.0;
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
        // torch.optim.AdamW of PyTorch 2.7.1, lr (t+1)/5 · 1e-2 in update t = 0…4, decay 0.1 on `embed`, 0 on `norm`;
        // values after updates 0 and 4.
        let config = Config { dim: 4, head_dim: 2, vocab: 2, ..small() };
        let mut weights = Weights::zeros(&config);
        weights.embed = values(8, 1, 1.0);
        weights.norm = values(4, 9, 1.0);
        let (mut gradients, mut moments) = (Weights::zeros(&config), Moments::zeros(&config));
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
            // Scaled as by an accumulation of 1 and a loss scale of 8, undone by the factor.
            gradients.embed = values(8, 11 * t + 3, 8.0 * 0.5f32.powi(t as i32));
            gradients.norm = values(4, 17 * t + 5, 8.0 * 0.25f32.powi(t as i32));
            let lr = 1e-2 * (t + 1) as f64 / 5.0;
            let count = t as u64 + 1;
            AdamW::default().update(&config, &mut weights, &mut gradients, &mut moments, lr, 0.125, count).unwrap();
            for (_, embed, norm) in want.iter().filter(|w| w.0 == t) {
                for (found, want) in weights.embed.iter().chain(&weights.norm).zip(embed.iter().chain(norm)) {
                    // A few roundings of fp32 near 1, in another order than PyTorch's.
                    assert!((found - want).abs() < 3e-7, "update {t}: {found} and {want}");
                }
            }
        }
    }

    #[test]
    fn equals_the_formula_in_f64_and_ignores_threads() {
        // More than one piece in the embedding, so the cuts are exercised.
        let config = Config { vocab: CHUNK / 4, ..small() };
        let start = Weights::init(&config, Init::Normal { std: 0.5 }, 1);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let (mut weights, mut moments) = (start.clone(), Moments::zeros(&config));
                for count in 1..=4 {
                    let mut gradients = Weights::init(&config, Init::Normal { std: 3.0 }, count + 10);
                    let adam = AdamW::default();
                    adam.update(&config, &mut weights, &mut gradients, &mut moments, 3e-2, 0.25, count).unwrap();
                    assert_eq!(gradients, Weights::zeros(&config), "gradients are left zero");
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
                // Four updates of fp32 near 1 against f64.
                assert!((found - w).abs() < 1e-6, "{} {i}: {found} and {w}", tensor.name);
            }
        }
    }

    #[test]
    fn refuses_what_does_not_belong() {
        let config = small();
        let mut weights = Weights::init(&config, Init::Normal { std: 0.5 }, 1);
        let before = weights.clone();
        let mut other = Weights::zeros(&Config { hidden: 10, ..config.clone() });
        let mut moments = Moments::zeros(&config);
        let found = AdamW::default().update(&config, &mut weights, &mut other, &mut moments, 1.0, 1.0, 1);
        assert!(matches!(found, Err(weights::Error::Mismatch { .. })));
        assert_eq!(weights, before);
    }
}
