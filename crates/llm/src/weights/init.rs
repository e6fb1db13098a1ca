//! Initialization of weights.

use super::{Part, TensorKind, Weights};
use crate::config::Config;
use crate::random::{Drand48, Rng};
use rayon::prelude::*;

/// How initial weights are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Init {
    /// Normally distributed matrices and embedding with this standard deviation, Wo and W2 with
    /// `std / √(2·layers)`; norms are 1, biases 0. A `std` of 0.02 is the recipe of the convergence
    /// reference.
    Normal {
        /// Standard deviation, 0.02 for example.
        std: f32,
    },
    /// The reference trainer's uniform draws from `drand48`, bit for bit for `seed` = 42 (models.md
    /// §1, dynamic trainer). An untied classifier, which the reference does not have, is drawn
    /// last, like the embedding.
    Reference,
}

impl Weights {
    /// Initial weights for a valid configuration. A seed gives the same values on any number of
    /// threads: every 65536 values are drawn from a separate random stream.
    pub fn init(config: &Config, init: Init, seed: u64) -> Self {
        let mut weights = Weights::zeros(config);
        match init {
            Init::Normal { std } => normal(&mut weights, config, f64::from(std), seed),
            Init::Reference => reference(&mut weights, config, seed as u32),
        }
        weights
    }
}

/// Values drawn from one random stream: enough to make seeding cheap, few enough to use all
/// threads.
const CHUNK: usize = 1 << 16;

fn normal(weights: &mut Weights, config: &Config, std: f64, seed: u64) {
    let residual = 1.0 / (2.0 * config.layers as f64).sqrt();
    let mut jobs: Vec<(u64, f64, &mut [f32])> = Vec::new();
    for (index, tensor) in weights.tensors_mut(config).into_iter().enumerate() {
        match tensor.kind {
            TensorKind::Norm => tensor.data.fill(1.0),
            TensorKind::Bias => tensor.data.fill(0.0),
            TensorKind::Matrix | TensorKind::Embedding => {
                let scaled = tensor.name.ends_with(".wo") || tensor.name.ends_with(".w2");
                let std = if scaled { std * residual } else { std };
                for (chunk, values) in tensor.data.chunks_mut(CHUNK).enumerate() {
                    // 2^32 chunks of 2^16 values are more than the largest tensor a configuration
                    // allows.
                    jobs.push((((index as u64) << 32) | chunk as u64, std, values));
                }
            }
        }
    }
    jobs.into_par_iter().for_each(|(stream, std, values)| {
        let mut rng = Rng::stream(seed, stream);
        for value in values {
            *value = (rng.normal() * std) as f32;
        }
    });
}

/// Draws in the order and with the scales of the dynamic trainer. As there, a scale is a C `float`,
/// a draw a `double`, and their product a `double`.
fn reference(weights: &mut Weights, config: &Config, seed: u32) {
    let mut draw = Drand48::new(seed);
    let mut fill = |values: &mut [f32], scale: f32| {
        for value in values {
            *value = (f64::from(scale) * (2.0 * draw.uniform() - 1.0)) as f32;
        }
    };
    let inverse_root = |n: usize| 1.0 / (n as f32).sqrt();
    let residual = inverse_root(2 * config.layers);
    let dim = inverse_root(config.dim);
    let q_dim = inverse_root(config.q_dim());
    let hidden = inverse_root(config.hidden);
    for layer in &mut weights.layers {
        for (part, scale) in [
            (Part::Wq, dim),
            (Part::Wk, dim),
            (Part::Wv, dim),
            (Part::Wo, q_dim * residual),
            (Part::W1, hidden),
            (Part::W2, dim * residual),
            (Part::W3, hidden),
        ] {
            for (_, values) in layer.parts_mut().into_iter().filter(|(p, _)| *p == part) {
                fill(values, scale);
            }
        }
        for (_, values) in layer.parts_mut().into_iter().filter(|(p, _)| p.kind() == TensorKind::Norm) {
            values.fill(1.0);
        }
    }
    weights.norm.fill(1.0);
    fill(&mut weights.embed, 0.02);
    if let Some(classifier) = &mut weights.classifier {
        fill(classifier, 0.02);
    }
}
