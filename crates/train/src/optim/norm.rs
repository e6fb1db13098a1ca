//! The global gradient norm and the clipping factor.

use ferrane_host::{pool, simd};
use ferrane_llm::config::Config;
use ferrane_llm::weights::{Part, Slot, TensorKind};

use super::gradients::is_table;
use super::{CHUNK, Gradients};
use crate::lora::Adapters;

/// Independent partial sums in a chunk, so that the loop vectorizes.
const LANES: usize = 16;

/// L2 norms of gradients. A non-finite value makes its norm and the total non-finite.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Norms {
    /// Norm over all tensors.
    pub total: f64,
    /// Norm over the projections of attention, their biases and QK-norm gains.
    pub attention: f64,
    /// Norm over the feed-forward matrices.
    pub ffn: f64,
    /// Norm over the embedding, an untied classifier, and the gains of the other norms.
    pub rest: f64,
}

impl Norms {
    fn of_squares(attention: f64, ffn: f64, rest: f64) -> Norms {
        Norms {
            total: (attention + ffn + rest).sqrt(),
            attention: attention.sqrt(),
            ffn: ffn.sqrt(),
            rest: rest.sqrt(),
        }
    }

    /// All norms times `factor`.
    pub fn scaled(self, factor: f64) -> Self {
        Norms {
            total: self.total * factor,
            attention: self.attention * factor,
            ffn: self.ffn * factor,
            rest: self.rest * factor,
        }
    }
}

/// Norms of the stored gradients, loss scale included, without those of frozen tensors; 0 if they
/// are empty. Squares are summed in
/// f64, where they cannot overflow, in an order that depends only on shapes and reached rows (the
/// reference trainer sums in fp32: upstream-defects #10).
pub fn norms(config: &Config, gradients: &Gradients) -> Norms {
    if gradients.adapters().is_some() {
        return gradients.adapter_sums().map_or(Norms::default(), of_adapters);
    }
    let Some(values) = gradients.values() else { return Norms::default() };
    let tensors = values.tensors(config);
    let mut pieces: Vec<(usize, &[f32])> = Vec::new();
    for (i, (tensor, slot)) in tensors.iter().zip(Slot::list(config)).enumerate() {
        if gradients.frozen().contains(i) {
            continue;
        }
        if !is_table(slot) {
            pieces.extend(tensor.data.chunks(CHUNK).map(|chunk| (i, chunk)));
            continue;
        }
        // Rows that were not reached are zero.
        let row = config.dim.max(1);
        for (run, _) in gradients.reached().runs(0..tensor.data.len() / row).filter(|(_, there)| *there) {
            pieces.extend(tensor.data[run.start * row..run.end * row].chunks(CHUNK).map(|chunk| (i, chunk)));
        }
    }
    let mut sums = vec![0.0; pieces.len()];
    pool::for_each_chunk_mut(&mut sums, (pieces.len() / 64).max(1), |i, sums| {
        let first = i * (pieces.len() / 64).max(1);
        for (k, sum) in sums.iter_mut().enumerate() {
            *sum = squares(pieces[first + k].1);
        }
    });
    let (mut attention, mut ffn, mut rest) = (0.0f64, 0.0f64, 0.0f64);
    for ((tensor, _), sum) in pieces.iter().zip(&sums) {
        *match group(&tensors[*tensor].name, tensors[*tensor].kind) {
            GradientGroup::Attention => &mut attention,
            GradientGroup::Ffn => &mut ffn,
            GradientGroup::Rest => &mut rest,
        } += sum;
    }
    Norms::of_squares(attention, ffn, rest)
}

/// Norms of the gradients of adapters, by the matrix that they adapt.
fn of_adapters(sums: &Adapters) -> Norms {
    let (mut attention, mut ffn) = (0.0f64, 0.0f64);
    for factors in sums.layers().iter().flatten() {
        let sum = match factors.part {
            Part::W1 | Part::W2 | Part::W3 => &mut ffn,
            _ => &mut attention,
        };
        *sum += squares(&factors.a) + squares(&factors.b);
    }
    Norms::of_squares(attention, ffn, 0.0)
}

/// The factor of gradient clipping: `clip / norm` if the norm is above `clip`, otherwise 1. A
/// `clip` of 0 or less switches clipping off.
pub fn clip_factor(norm: f64, clip: f64) -> f64 {
    if clip > 0.0 && norm > clip { clip / norm } else { 1.0 }
}

enum GradientGroup {
    Attention,
    Ffn,
    Rest,
}

fn group(name: &str, kind: TensorKind) -> GradientGroup {
    match name.rsplit('.').next() {
        Some("w1" | "w2" | "w3") => GradientGroup::Ffn,
        Some("wq" | "wk" | "wv" | "wo" | "q_norm" | "k_norm") => GradientGroup::Attention,
        _ if kind == TensorKind::Bias => GradientGroup::Attention,
        _ => GradientGroup::Rest,
    }
}

fn squares(values: &[f32]) -> f64 {
    simd::dispatch(
        #[inline(always)]
        || {
            let mut lanes = [0.0f64; LANES];
            let (blocks, tail) = values.as_chunks::<LANES>();
            for block in blocks {
                for lane in 0..LANES {
                    let value = f64::from(block[lane]);
                    lanes[lane] += value * value;
                }
            }
            lanes.iter().sum::<f64>() + tail.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::preset;
    use ferrane_llm::weights::{Init, Weights};

    #[test]
    fn equals_a_plain_sum_and_ignores_threads() {
        let config = preset("stories260k").unwrap();
        let mut weights = Weights::init(&config, Init::Normal { std: 1.0 }, 3);
        // Rows without a gradient between rows with one.
        weights.embed[64 * 10..64 * 17].fill(0.0);
        let gradients = Gradients::from_values(&config, weights.clone());
        let sum = |keep: &dyn Fn(&str) -> bool| {
            let values = weights.tensors(&config).into_iter().filter(|t| keep(&t.name));
            values.flat_map(|t| t.data.iter().map(|v| f64::from(*v).powi(2))).sum::<f64>().sqrt()
        };
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| norms(&config, &gradients))
        };
        let one = run(1);
        assert_eq!(one, run(3));
        // Sums of 260 thousand positive f64 in two orders differ by about 1e-13 at most.
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
        assert!(near(one.total, sum(&|_| true)));
        assert!(near(one.ffn, sum(&|n| n.contains(".w") && n.ends_with(['1', '2', '3']))));
        assert!(near(one.attention, sum(&|n| n.contains(".w") && n.ends_with(['q', 'k', 'v', 'o']))));
    }

    #[test]
    fn squares_do_not_overflow_and_bad_values_show() {
        let config = preset("stories260k").unwrap();
        let mut gradients = Weights::zeros(&config);
        gradients.layers[2].w1[5] = 3e38;
        gradients.norm[0] = f32::MAX;
        let of = |values: &Weights| norms(&config, &Gradients::from_values(&config, values.clone()));
        assert!(of(&gradients).total.is_finite());
        for bad in [f32::NAN, f32::INFINITY] {
            gradients.layers[4].wk[7] = bad;
            let norms = of(&gradients);
            assert!(!norms.total.is_finite() && !norms.attention.is_finite() && norms.ffn.is_finite());
        }
        let mut cleared = Gradients::from_values(&config, gradients);
        cleared.clear();
        assert_eq!(norms(&config, &cleared), Norms::default());
    }

    #[test]
    fn clipping() {
        assert_eq!(clip_factor(4.0, 1.0), 0.25);
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert_eq!(clip_factor(4.0, 0.0), 1.0);
    }
}
