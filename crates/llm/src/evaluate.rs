//! Evaluation: the mean loss of a model on windows of given tokens (teacher forcing).

use ferrane_device::Device;

use crate::compaction::Compaction;
use crate::config::Config;
use crate::forward::{self, Forward, Options};
use crate::model::{self, Model};
use crate::reference::{self, Reference};
use crate::weights::WeightSource;

/// Why an evaluation fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The weights cannot be read, or the adapter cannot be merged into them.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The device's forward pass failed.
    #[error(transparent)]
    Forward(#[from] forward::Error),
    /// The reference refused a token or the weights.
    #[error(transparent)]
    Reference(#[from] reference::Error),
    /// No token of the windows is in the vocabulary of the training data.
    #[error("no token of these data occurred in the data that the model was trained on")]
    NothingScored,
    /// The loss is infinite or NaN.
    #[error("the loss is not finite: the weights are damaged, or activations overflow on this device")]
    NotFinite,
}

/// A model that computes the logits of a whole sequence at once.
pub trait TeacherForced {
    /// Sizes and options of the model.
    fn config(&self) -> &Config;
    /// Logits `[tokens.len(), vocab]` of one sequence from position 0.
    ///
    /// # Errors
    /// An id outside the vocabulary, more tokens than a window holds, or the device failed.
    fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error>;

    /// Mean cross-entropy of `targets` after `inputs`, in nats per token, summed in f64.
    ///
    /// # Errors
    /// As [`TeacherForced::logits`]; [`Error::Reference`] for targets that do not fit the inputs.
    fn loss(&mut self, inputs: &[u32], targets: &[u32]) -> Result<f64, Error> {
        let vocab = self.config().vocab;
        if inputs.len() != targets.len() || inputs.is_empty() {
            return Err(reference::Error::Lengths { inputs: inputs.len(), targets: targets.len() }.into());
        }
        if let Some((position, &token)) = targets.iter().enumerate().find(|(_, t)| **t as usize >= vocab) {
            return Err(reference::Error::Token { token, position, vocab }.into());
        }
        let logits = self.logits(inputs)?;
        let losses = logits.chunks_exact(vocab).zip(targets).map(|(row, &target)| {
            let top = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let sum: f64 = row.iter().map(|&v| (f64::from(v) - top).exp()).sum();
            sum.ln() + top - f64::from(row[target as usize])
        });
        Ok(losses.sum::<f64>() / targets.len() as f64)
    }
}

impl TeacherForced for Forward {
    fn config(&self) -> &Config {
        Forward::config(self)
    }

    fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        Ok(Forward::logits(self, tokens)?)
    }
}

impl TeacherForced for Reference<'_> {
    fn config(&self) -> &Config {
        Reference::config(self)
    }

    fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        Ok(Reference::logits(self, tokens)?)
    }
}

/// A model, with its adapter, for evaluation on windows of `seq` tokens: on `device`, or with the
/// fp32 reference if `device` is `None`. `config` is the model's, but may allow more positions.
///
/// # Errors
/// As [`Forward::new`], [`Reference::new`] and [`Model::fp32_weights`].
pub fn teacher_forced<'a>(
    model: &'a Model,
    config: &'a Config,
    device: Option<&Device>,
    seq: usize,
) -> Result<Box<dyn TeacherForced + 'a>, Error> {
    let Some(device) = device else { return Ok(Box::new(Reference::new(config, model.fp32_weights()?)?)) };
    let weights: &dyn WeightSource = match model.adapter() {
        Some(_) => model.fp32_weights()?,
        None => &model.weights,
    };
    Ok(Box::new(Forward::new(device, config, weights, seq, Options::default())?))
}

/// The result of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Mean cross-entropy, in nats per scored token.
    pub loss: f64,
    /// Number of windows evaluated.
    pub windows: usize,
    /// Number of tokens that the loss is the mean over.
    pub scored: usize,
    /// Number of tokens left out because they do not occur in the training data.
    pub unknown: usize,
}

impl Evaluation {
    /// Perplexity: the exponential of the loss.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }
}

/// The mean loss per token over `windows` of `n + 1` ids each: the first `n` are the inputs, the
/// last `n` the targets. With a `vocabulary` the loss runs over its ids only and other targets are
/// left out, as in the training run that recorded it. `done` is called after each window.
///
/// # Errors
/// As [`TeacherForced::logits`]; [`Error::NothingScored`], [`Error::NotFinite`].
pub fn evaluate(
    model: &mut dyn TeacherForced,
    vocabulary: Option<&Compaction>,
    windows: impl IntoIterator<Item = Vec<u32>>,
    mut done: impl FnMut(),
) -> Result<Evaluation, Error> {
    let vocab = model.config().vocab;
    let (mut sum, mut found) = (0.0, Evaluation { loss: 0.0, windows: 0, scored: 0, unknown: 0 });
    for window in windows {
        let length = window.len().saturating_sub(1);
        let (inputs, targets) = (&window[..length], window.get(1..).unwrap_or_default());
        let (loss, scored) = match vocabulary {
            None => (model.loss(inputs, targets)? * length as f64, length),
            Some(vocabulary) => compact_loss(&model.logits(inputs)?, targets, vocab, vocabulary),
        };
        sum += loss;
        found.windows += 1;
        found.scored += scored;
        found.unknown += length - scored;
        done();
    }
    if found.scored == 0 {
        return Err(Error::NothingScored);
    }
    found.loss = sum / found.scored as f64;
    if found.loss.is_finite() { Ok(found) } else { Err(Error::NotFinite) }
}

/// The summed loss over the ids of `vocabulary`, and the number of targets among them.
fn compact_loss(logits: &[f32], targets: &[u32], vocab: usize, vocabulary: &Compaction) -> (f64, usize) {
    let (mut sum, mut scored) = (0.0, 0);
    for (row, &target) in logits.chunks_exact(vocab).zip(targets) {
        if vocabulary.compact(target).is_none() {
            continue;
        }
        let used = || vocabulary.compact_to_full().iter().map(|&id| f64::from(row[id as usize]));
        let top = used().fold(f64::NEG_INFINITY, f64::max);
        sum += used().map(|v| (v - top).exp()).sum::<f64>().ln() + top - f64::from(row[target as usize]);
        scored += 1;
    }
    (sum, scored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::preset;
    use crate::weights::{Init, Weights};

    #[test]
    fn loss_is_that_of_the_reference() {
        let config = Config { layers: 2, vocab: 32, ..preset("stories260k").unwrap() };
        let weights = Weights::init(&config, Init::Normal { std: 0.1 }, 3);
        let mut model = Reference::new(&config, &weights).unwrap();
        let (inputs, targets) = ([1, 2, 3, 4], [2, 3, 4, 31]);
        let direct = model.loss(&inputs, &targets).unwrap();
        assert!((TeacherForced::loss(&mut model, &inputs, &targets).unwrap() - direct).abs() < 1e-6);
        assert!(TeacherForced::loss(&mut model, &inputs, &targets[..3]).is_err());
        assert!(TeacherForced::loss(&mut model, &inputs, &[2, 3, 4, 32]).is_err());
        // A window is weighted by its number of tokens; a map of all ids changes nothing.
        let windows = || [vec![1, 2, 3, 4, 31], vec![5, 6, 7]];
        let other = model.loss(&[5, 6], &[6, 7]).unwrap();
        let mean = (direct * 4.0 + other * 2.0) / 6.0;
        let all = Compaction::disabled(32);
        for vocabulary in [None, Some(&all)] {
            let mut calls = 0;
            let found = evaluate(&mut model, vocabulary, windows(), || calls += 1).unwrap();
            assert!((found.loss - mean).abs() < 1e-6, "{} and {mean}", found.loss);
            assert_eq!((found.windows, found.scored, found.unknown, calls), (2, 6, 0, 2));
        }
        let few = Compaction::used([6, 7], 32);
        let found = evaluate(&mut model, Some(&few), windows(), || ()).unwrap();
        assert_eq!((found.scored, found.unknown), (2, 4));
        let none = Compaction::used([9], 32);
        assert!(matches!(evaluate(&mut model, Some(&none), windows(), || ()), Err(Error::NothingScored)));
    }

    #[test]
    fn the_compact_loss_leaves_other_ids_out() {
        // The second id's logit would change a loss over all ids; ids 0 and 2 have equal logits.
        let vocabulary = Compaction::used([0, 2], 3);
        let (sum, scored) = compact_loss(&[1.0, 9.0, 1.0, 4.0, 0.0, 4.0, 0.0, 0.0, 0.0], &[0, 2, 1], 3, &vocabulary);
        assert!((sum - 2.0 * 2f64.ln()).abs() < 1e-12);
        assert_eq!(scored, 2);
    }
}
