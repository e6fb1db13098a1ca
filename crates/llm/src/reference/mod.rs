//! The model in plain loops: the oracle for every faster implementation.
//!
//! It is generic over the element type ([`Real`]: `f32` or `f64`), so a test can compute central
//! differences in `f64` with the same code that it checks in `f32`. Each sum has a fixed order,
//! independent of the number of threads. Activations are row-major `[tokens, features]`.
//!
//! | file | what |
//! |---|---|
//! | `real` | the element types |
//! | `products` | the three products of a linear layer |
//! | `norm`, `rope`, `attention` | the other parts, each forward and backward |
//! | `block` | a layer, built from these parts |
//! | `decode` | one token at a time, with a key/value cache |

mod attention;
mod block;
mod decode;
mod norm;
mod products;
mod real;
mod rope;

pub(crate) use block::LayerInputs;
pub use decode::Decoder;
pub use real::Real;

use crate::config::Config;
use crate::weights::{self, Layer, Weights};
use block::{Block, Saved};
use norm::Norm;
use rayon::prelude::*;
use rope::Tables;

/// A target that does not count: no loss and no gradient are computed for its position.
pub const IGNORED: u32 = u32::MAX;

/// Why the reference refuses its input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Weights and configuration do not belong together.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// A token id that the vocabulary does not have.
    #[error("token {token} at position {position} is beyond the vocabulary of {vocab}")]
    Token {
        /// The id, which is `vocab` or more.
        token: u32,
        /// Its index in the sequence.
        position: usize,
        /// Number of ids that the vocabulary has.
        vocab: usize,
    },
    /// The model has parts without gradients.
    #[error("{0}")]
    Training(String),
    /// The numbers of inputs and targets differ, or are zero.
    #[error("{inputs} inputs with {targets} targets; as many of both are needed, and at least one")]
    Lengths {
        /// Number of input ids given.
        inputs: usize,
        /// Number of target ids given.
        targets: usize,
    },
}

/// A model in fp32 or fp64. It borrows configuration and weights.
#[derive(Debug, Clone, Copy)]
pub struct Reference<'a, T: Real = f32> {
    config: &'a Config,
    weights: &'a Weights<T>,
}

/// Replaces the residual stream `[tokens, dim]` of a sequence from position 0, which must not be
/// empty, by the output of a layer, and returns what the layer's matrices were multiplied by.
pub(crate) fn layer<T: Real>(config: &Config, index: usize, layer: &Layer<T>, stream: &mut [T]) -> LayerInputs<T> {
    let tables = Tables::new(config, stream.len() / config.dim);
    Block::new(config, index, layer, &tables).forward(stream).inputs()
}

/// Activations that the forward pass saves for the backward pass.
struct Forward<T> {
    layers: Vec<Saved<T>>,
    /// The residual stream after the last layer, `[T, dim]`.
    last: Vec<T>,
    /// The output of the final norm, `[T, dim]`.
    normed: Vec<T>,
    norm: Norm<T>,
}

impl<'a, T: Real> Reference<'a, T> {
    /// A model over these weights.
    ///
    /// # Errors
    /// [`Error::Weights`] for an invalid configuration, or weights that do not fit it.
    pub fn new(config: &'a Config, weights: &'a Weights<T>) -> Result<Self, Error> {
        config.validate().map_err(weights::Error::from)?;
        weights.check(config)?;
        Ok(Reference { config, weights })
    }

    /// Sizes and options of the model, borrowed from the caller.
    pub fn config(&self) -> &'a Config {
        self.config
    }

    /// The weights, borrowed from the caller.
    pub fn weights(&self) -> &'a Weights<T> {
        self.weights
    }

    /// Logits `[tokens.len(), vocab]` of one sequence that starts at position 0.
    ///
    /// # Errors
    /// [`Error::Token`] for an id outside the vocabulary.
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<T>, Error> {
        self.check_tokens(tokens)?;
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.classify(&self.forward(tokens, false).normed))
    }

    /// Mean cross-entropy per token, in nats. Targets that are [`IGNORED`] do not count; the loss
    /// of a sequence without any other is 0.
    ///
    /// # Errors
    /// [`Error::Token`], [`Error::Lengths`].
    pub fn loss(&self, inputs: &[u32], targets: &[u32]) -> Result<f64, Error> {
        self.check_pair(inputs, targets)?;
        let mut logits = self.classify(&self.forward(inputs, false).normed);
        Ok(self.cross_entropy(&mut logits, targets, 0.0))
    }

    /// Mean cross-entropy per token of one sequence; adds its gradients to `gradients`.
    ///
    /// # Errors
    /// As [`Reference::accumulate`].
    pub fn loss_and_gradients(
        &self,
        inputs: &[u32],
        targets: &[u32],
        gradients: &mut Weights<T>,
    ) -> Result<f64, Error> {
        self.accumulate(inputs, targets, 1.0, gradients)
    }

    /// Mean cross-entropy per token of one sequence; adds `weight` times its gradients to
    /// `gradients`. For a batch of `n` sequences of the same length, `weight` is `1 / n` and the
    /// batch's loss is the mean of the returned losses.
    ///
    /// # Errors
    /// [`Error::Token`], [`Error::Lengths`], [`Error::Weights`] if `gradients` belong to another
    /// model, [`Error::Training`] if the reference has no gradients for it
    /// ([`Config::beyond_training`]).
    pub fn accumulate(
        &self,
        inputs: &[u32],
        targets: &[u32],
        weight: f64,
        gradients: &mut Weights<T>,
    ) -> Result<f64, Error> {
        self.check_pair(inputs, targets)?;
        gradients.check(self.config)?;
        if let Some(reason) = self.config.beyond_training() {
            return Err(Error::Training(reason));
        }
        let (config, weights) = (self.config, self.weights);
        let (dim, tokens) = (config.dim, inputs.len());
        let forward = self.forward(inputs, true);
        let mut logits = self.classify(&forward.normed);
        let loss = self.cross_entropy(&mut logits, targets, weight);

        // `logits` now holds the gradient of the logits.
        let mut back = vec![T::ZERO; tokens * dim];
        products::input_gradient(&mut back, &logits, weights.classifier_matrix(), dim);
        let classifier = gradients.classifier.as_mut().unwrap_or(&mut gradients.embed);
        products::weight_gradient(classifier, &logits, &forward.normed, dim);
        let mut stream = vec![T::ZERO; tokens * dim];
        forward.norm.backward(&forward.last, &weights.norm, &back, &mut stream, &mut gradients.norm);

        let tables = Tables::new(config, tokens);
        for (index, saved) in forward.layers.iter().enumerate().rev() {
            let block = Block::new(config, index, &weights.layers[index], &tables);
            block.backward(saved, &mut stream, &mut gradients.layers[index]);
        }
        for (row, &token) in stream.chunks_exact(dim).zip(inputs) {
            let start = token as usize * dim;
            products::add(&mut gradients.embed[start..start + dim], row);
        }
        Ok(loss)
    }

    /// A decoder with an empty cache.
    pub fn decoder(&self) -> Decoder<'a, T> {
        Decoder::new(*self)
    }

    /// Checks that every id is in the vocabulary.
    fn check_tokens(&self, tokens: &[u32]) -> Result<(), Error> {
        let vocab = self.config.vocab;
        match tokens.iter().position(|&t| t as usize >= vocab) {
            Some(position) => Err(Error::Token { token: tokens[position], position, vocab }),
            None => Ok(()),
        }
    }

    fn check_pair(&self, inputs: &[u32], targets: &[u32]) -> Result<(), Error> {
        if inputs.len() != targets.len() || inputs.is_empty() {
            return Err(Error::Lengths { inputs: inputs.len(), targets: targets.len() });
        }
        self.check_tokens(inputs)?;
        let counted = |target: &u32| *target == IGNORED || (*target as usize) < self.config.vocab;
        match targets.iter().position(|target| !counted(target)) {
            Some(position) => Err(Error::Token { token: targets[position], position, vocab: self.config.vocab }),
            None => Ok(()),
        }
    }

    /// Runs all layers and the final norm. Activations are saved only if `save` is set.
    fn forward(&self, tokens: &[u32], save: bool) -> Forward<T> {
        let (config, weights) = (self.config, self.weights);
        let tables = Tables::new(config, tokens.len());
        let mut stream = self.stream(tokens);
        let mut layers = Vec::new();
        for (index, layer) in weights.layers.iter().enumerate() {
            let saved = Block::new(config, index, layer, &tables).forward(&mut stream);
            if save {
                layers.push(saved);
            }
        }
        let (normed, norm) = Norm::forward(&stream, &weights.norm, config.norm_eps);
        Forward { layers, last: stream, normed, norm }
    }

    /// The residual stream `[tokens, dim]` before the first layer, of tokens that were checked.
    fn stream(&self, tokens: &[u32]) -> Vec<T> {
        tokens.iter().flat_map(|&token| self.embedding(token)).collect()
    }

    /// The residual stream `[tokens, dim]` before the first layer.
    ///
    /// # Errors
    /// [`Error::Token`] for an id outside the vocabulary.
    pub(crate) fn embedded(&self, tokens: &[u32]) -> Result<Vec<T>, Error> {
        self.check_tokens(tokens)?;
        Ok(self.stream(tokens))
    }

    /// The row of the residual stream that a token begins with, `[dim]`.
    fn embedding(&self, token: u32) -> Vec<T> {
        let (dim, scale) = (self.config.dim, T::from_f64(f64::from(self.config.embed_scale)));
        self.weights.embed[token as usize * dim..][..dim].iter().map(|&value| scale * value).collect()
    }

    /// Logits `[T, vocab]` of the output of the final norm.
    fn classify(&self, normed: &[T]) -> Vec<T> {
        let mut logits = vec![T::ZERO; normed.len() / self.config.dim * self.config.vocab];
        products::linear(&mut logits, normed, self.weights.classifier_matrix(), None, self.config.dim);
        logits.iter_mut().for_each(|logit| *logit = attention::capped(*logit, self.config.logit_softcap));
        logits
    }

    /// Returns the mean loss and replaces the logits by `weight` times its gradient. Sums over the
    /// vocabulary and over the tokens are computed in `f64`, in order.
    fn cross_entropy(&self, logits: &mut [T], targets: &[u32], weight: f64) -> f64 {
        let counted = targets.iter().filter(|target| **target != IGNORED).count().max(1) as f64;
        let scale = T::from_f64(weight / counted);
        let losses: Vec<f64> = logits
            .par_chunks_mut(self.config.vocab)
            .zip(targets)
            .map(|(row, &target)| {
                if target == IGNORED {
                    row.fill(T::ZERO);
                    return 0.0;
                }
                let top = row.iter().fold(T::NEG_INFINITY, |m, &v| m.max(v));
                let target_logit = row[target as usize];
                let mut sum = 0.0;
                for value in row.iter_mut() {
                    *value = (*value - top).exp();
                    sum += value.to_f64();
                }
                let inverse = T::from_f64(1.0 / sum);
                for value in row.iter_mut() {
                    *value = *value * inverse * scale;
                }
                row[target as usize] = row[target as usize] - scale;
                sum.ln() - (target_logit - top).to_f64()
            })
            .collect();
        losses.iter().sum::<f64>() / counted
    }
}
