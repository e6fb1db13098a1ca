//! Text from a model: ids in, ids out, one at a time, through a device or through the reference.
//!
//! Both keep keys and values of what came before. A sequence that would leave the device's context
//! goes on with the last half of it: positions start at 0 again there ([`crate::decode`]). The
//! reference goes on as long as asked.

use crate::config::Config;
use crate::decode;
use crate::forward::{self, Forward};
use crate::reference::{self, Decoder, Reference};
use crate::sample::{self, Sampler};

/// Why generation stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device's forward pass failed.
    #[error(transparent)]
    Forward(#[from] forward::Error),
    /// The reference refused a token or the weights.
    #[error(transparent)]
    Reference(#[from] reference::Error),
    /// The logits hold nothing to choose from.
    #[error(transparent)]
    Sample(#[from] sample::Error),
    /// There is no token to begin with.
    #[error("a prompt needs at least one token, such as the one that begins a text")]
    EmptyPrompt,
}

/// What gives the logits of the next token.
pub enum Generator<'a> {
    /// Through a device.
    Device(&'a mut decode::Decoder),
    /// The reference with its cache of keys and values.
    Reference(Box<Decoder<'a>>),
}

impl<'a> Generator<'a> {
    /// Through a device; a new sequence.
    pub fn device(decoder: &'a mut decode::Decoder) -> Generator<'a> {
        decoder.clear();
        Generator::Device(decoder)
    }

    /// Through the reference.
    pub fn reference(model: &Reference<'a>) -> Generator<'a> {
        Generator::Reference(Box::new(model.decoder()))
    }

    /// Continues the sequence by tokens and returns the logits `[vocab]` of the one after them.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`] without tokens; an id beyond the vocabulary; or the device failed. On
    /// a device the sequence is then what it was before the call.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        let Some((&last, before)) = tokens.split_last() else { return Err(Error::EmptyPrompt) };
        match self {
            Generator::Device(decoder) => Ok(decoder.feed(tokens)?),
            Generator::Reference(decoder) => {
                for &token in before {
                    decoder.decode(token)?;
                }
                Ok(decoder.decode(last)?)
            }
        }
    }

    /// Feeds the prompt, then draws up to `steps` tokens and gives each to `emit` as it comes. Ends
    /// early at a token of `stop` (which is not emitted), or when `emit` returns false. Returns the
    /// number of tokens emitted.
    ///
    /// # Errors
    /// As [`Generator::feed`]; [`Error::Sample`] when no logit is a number.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        steps: usize,
        sampler: &mut Sampler,
        stop: &[u32],
        mut emit: impl FnMut(u32) -> bool,
    ) -> Result<usize, Error> {
        let mut emitted = 0;
        if steps == 0 {
            return Ok(0);
        }
        let mut logits = self.feed(prompt)?;
        loop {
            let token = sampler.sample(logits)?;
            if stop.contains(&token) {
                return Ok(emitted);
            }
            emitted += 1;
            if !emit(token) || emitted == steps {
                return Ok(emitted);
            }
            logits = self.feed(&[token])?;
        }
    }
}

/// A model that gives logits of whole sequences: for evaluation with the tokens given, not chosen.
pub trait TeacherForced {
    /// The configuration.
    fn config(&self) -> &Config;
    /// Logits `[tokens.len(), vocab]` of one sequence from position 0.
    ///
    /// # Errors
    /// An id beyond the vocabulary, too many tokens for a window, or the device failed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, preset};
    use crate::weights::{Init, Weights};

    fn model() -> (Config, Weights) {
        let config = Config { layers: 2, vocab: 32, ..preset("stories260k").unwrap() };
        let weights = Weights::init(&config, Init::Normal { std: 0.1 }, 3);
        (config, weights)
    }

    #[test]
    fn the_reference_generates_what_its_logits_say() {
        let (config, weights) = model();
        let model = Reference::new(&config, &weights).unwrap();
        let mut greedy = Sampler::new(0.0, 0.0, 0).unwrap();
        let mut ids = vec![1, 5];
        let emitted = Generator::reference(&model)
            .generate(&[1, 5], 6, &mut greedy, &[], |id| {
                ids.push(id);
                true
            })
            .unwrap();
        assert_eq!((emitted, ids.len()), (6, 8));
        let logits = model.logits(&ids).unwrap();
        for (row, next) in logits.chunks_exact(config.vocab).zip(&ids[1..]).skip(1) {
            assert_eq!(sample::argmax(row), Some(*next));
        }
        // Stops: by the reader, by a token, by the count.
        let mut run = |steps, stop: &[u32], answer| {
            Generator::reference(&model).generate(&[1, 5], steps, &mut greedy, stop, |_| answer).unwrap()
        };
        assert_eq!((run(6, &[], false), run(6, &[ids[2]], true), run(0, &[], true)), (1, 0, 0));
    }

    #[test]
    fn loss_is_that_of_the_reference() {
        let (config, weights) = model();
        let mut model = Reference::new(&config, &weights).unwrap();
        let (inputs, targets) = ([1, 2, 3, 4], [2, 3, 4, 31]);
        let direct = model.loss(&inputs, &targets).unwrap();
        assert!((TeacherForced::loss(&mut model, &inputs, &targets).unwrap() - direct).abs() < 1e-6);
        assert!(TeacherForced::loss(&mut model, &inputs, &targets[..3]).is_err());
        assert!(TeacherForced::loss(&mut model, &inputs, &[2, 3, 4, 32]).is_err());
        assert!(matches!(Generator::reference(&model).feed(&[]), Err(Error::EmptyPrompt)));
    }
}
