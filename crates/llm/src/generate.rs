//! Text generation, one token at a time, on a device or with the fp32 reference.
//!
//! [`NextLogits`] is the trait that both implement; [`Tokens`] draws ids from it, and
//! [`TextGenerator`] adds the tokenizer. Both implementations cache keys and values. What happens
//! to a sequence that would exceed the device's context is a choice
//! ([`crate::decode::ContextPolicy`]). The reference has no such limit.

use std::collections::VecDeque;

use ferrane_device::Device;

use crate::config::Config;
use crate::decode::{self, Decoder, quantize::WeightType};
use crate::grammar::{self, Constraint};
use crate::reference::{self, Reference};
use crate::sample::{self, Sampler};
use crate::speculate::{Draft, Speculation};
use crate::stop::StopText;
use crate::tokenizer::{Stream, Tokenizer};
use crate::weights::Weights;
use crate::{forward, model};

/// Why text generation cannot begin or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device's forward pass failed.
    #[error(transparent)]
    Forward(#[from] forward::Error),
    /// The reference refused a token or the weights.
    #[error(transparent)]
    Reference(#[from] reference::Error),
    /// The model has no tokenizer, or its tokenizer does not fit.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The sampler's options are invalid, or no logit is a number.
    #[error(transparent)]
    Sample(#[from] sample::Error),
    /// The text cannot follow its grammar.
    #[error(transparent)]
    Grammar(#[from] grammar::Error),
    /// The prompt has no tokens.
    #[error("the prompt is empty and the tokenizer has no token that begins a text; give a `prompt`")]
    EmptyPrompt,
    /// A draft model with another vocabulary.
    #[error("the draft cannot propose tokens for this model: {reason}")]
    DraftVocabulary {
        /// The number of ids, or the first id that differs, as a clause.
        reason: String,
    },
    /// Quantized weights were requested of the reference.
    #[error("the reference computes in fp32; leave `weights_type` out, or choose a device")]
    ReferenceWeights,
}

/// A sequence that is extended by tokens and returns the logits of the next one.
pub trait NextLogits {
    /// Begins a new sequence.
    fn clear(&mut self);

    /// Continues the sequence by `tokens` and returns the logits `[vocab]` of the one after them.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`] without tokens; an id outside the vocabulary; or the device failed.
    /// On a device the sequence is unchanged then.
    fn feed(&mut self, tokens: &[u32]) -> Result<&[f32], Error>;

    /// The tokens of the sequence so far; on a device that dropped the beginning of a long
    /// sequence, those that it kept.
    fn tokens(&self) -> &[u32];

    /// Shortens the sequence to its first `len` tokens. Without effect on a shorter one.
    fn rewind(&mut self, len: usize);

    /// How many tokens of `prompt` [`NextLogits::resume`] does not compute again: those with which
    /// the sequence begins, too, except for the last of the prompt.
    fn reused(&self, prompt: &[u32]) -> usize {
        let same = self.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
        same.min(prompt.len().saturating_sub(1))
    }

    /// Makes `prompt` the sequence, keeps what the two have in common, and returns the logits after
    /// the prompt.
    ///
    /// # Errors
    /// As [`NextLogits::feed`].
    fn resume(&mut self, prompt: &[u32]) -> Result<&[f32], Error> {
        let reused = self.reused(prompt);
        self.rewind(reused);
        self.feed(&prompt[reused..])
    }

    /// Continues the sequence by `tokens` and calls `each` with the index and the logits `[vocab]`
    /// of every one.
    ///
    /// # Errors
    /// As [`NextLogits::feed`]; on a device also if there are more than [`NextLogits::room`].
    fn feed_each(&mut self, tokens: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        for (at, token) in tokens.iter().enumerate() {
            each(at, self.feed(std::slice::from_ref(token))?);
        }
        Ok(())
    }

    /// Number of tokens that can be fed before the sequence exceeds the context.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// The residual stream `[dim]` after the last token and the last norm, if the implementation
    /// can return it.
    fn hidden(&self) -> Option<&[f32]> {
        None
    }
}

impl NextLogits for Decoder {
    fn clear(&mut self) {
        Decoder::clear(self);
    }

    fn tokens(&self) -> &[u32] {
        Decoder::tokens(self)
    }

    fn rewind(&mut self, len: usize) {
        Decoder::rewind(self, 0, len);
    }

    fn feed(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        match tokens {
            [] => Err(Error::EmptyPrompt),
            tokens => Ok(Decoder::feed(self, tokens)?),
        }
    }

    fn feed_each(&mut self, tokens: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        Ok(Decoder::feed_each(self, 0, tokens, each)?)
    }

    /// Keys and values that were computed with tokens which the sequence dropped since are not
    /// those of the prompt.
    fn reused(&self, prompt: &[u32]) -> usize {
        let same = Decoder::tokens(self).iter().zip(prompt).take_while(|(a, b)| a == b).count();
        same.min(prompt.len().saturating_sub(1)).min(self.reusable())
    }

    fn room(&self) -> usize {
        self.context().saturating_sub(Decoder::tokens(self).len())
    }
}

impl NextLogits for reference::Decoder<'_> {
    fn clear(&mut self) {
        reference::Decoder::clear(self);
    }

    fn tokens(&self) -> &[u32] {
        reference::Decoder::tokens(self)
    }

    fn rewind(&mut self, len: usize) {
        reference::Decoder::rewind(self, len);
    }

    fn feed(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        let Some((&last, before)) = tokens.split_last() else { return Err(Error::EmptyPrompt) };
        for &token in before {
            self.decode(token)?;
        }
        Ok(self.decode(last)?)
    }

    fn hidden(&self) -> Option<&[f32]> {
        reference::Decoder::hidden(self)
    }
}

/// The logits of a model: on `device`, or with the fp32 reference if `device` is `None`. Of
/// `options` the reference reads only the weight type.
///
/// # Errors
/// As [`Decoder::new`] and [`Reference::new`]; [`Error::ReferenceWeights`].
pub fn next_logits<'a>(
    config: &'a Config,
    weights: &'a Weights,
    device: Option<&Device>,
    options: decode::Options,
) -> Result<Box<dyn NextLogits + 'a>, Error> {
    match device {
        Some(device) => Ok(Box::new(Decoder::new(device, config, weights, options)?)),
        None if options.weights != WeightType::Fp16 => Err(Error::ReferenceWeights),
        None => Ok(Box::new(Reference::new(config, weights)?.decoder())),
    }
}

/// An iterator over the ids that follow a prompt. Each call of `next` computes one, or with a draft
/// several, of which the next calls return the rest. It ends after the requested number of tokens,
/// before a stop token, where a grammar ends, or after an error.
pub struct Tokens<'a> {
    logits: &'a mut dyn NextLogits,
    sampler: &'a mut Sampler,
    stop: &'a [u32],
    constraint: Option<Constraint>,
    /// The ids that end a constrained text.
    ends: &'a [u32],
    /// Ids that were not fed yet: the prompt, then the last token.
    feed: Vec<u32>,
    /// Whether `feed` is the prompt.
    begins: bool,
    left: usize,
    draft: Option<Speculation<'a>>,
    /// Ids that are computed and not returned yet.
    ready: VecDeque<u32>,
}

impl<'a> Tokens<'a> {
    /// Continues `prompt` by at most `count` ids; what the sequence so far has in common with it is
    /// not computed again. An id of `stop` ends the text and is not returned.
    pub fn new(
        logits: &'a mut dyn NextLogits,
        prompt: &[u32],
        count: usize,
        sampler: &'a mut Sampler,
        stop: &'a [u32],
    ) -> Tokens<'a> {
        sampler.begin(prompt);
        let (constraint, ends, draft, ready) = (None, &[][..], None, VecDeque::new());
        let feed = prompt.to_vec();
        Tokens { logits, sampler, stop, constraint, ends, feed, begins: true, left: count, draft, ready }
    }

    /// The text after the prompt follows a grammar, if one is given: an id of `ends` is drawn only
    /// where the text may end, and where nothing can follow no more id is drawn. A draft is not
    /// asked then.
    #[must_use]
    pub fn constrained(mut self, constraint: Option<Constraint>, ends: &'a [u32]) -> Tokens<'a> {
        self.constraint = constraint;
        self.ends = ends;
        self
    }

    /// Whether the text is complete by its grammar.
    pub fn is_complete(&self) -> bool {
        self.constraint.as_ref().is_some_and(Constraint::is_complete)
    }

    /// Has a draft propose tokens, if there is one. The distribution of the text stays the same.
    #[must_use]
    pub fn with_draft(mut self, draft: Option<&'a mut Draft<'_>>) -> Self {
        self.draft = draft.map(|draft| Speculation::new(draft, &self.feed));
        self
    }

    /// The next id; `left` counts those after it.
    fn draw(&mut self) -> Result<u32, Error> {
        if let Some(id) = self.ready.pop_front() {
            return Ok(id);
        }
        if let (Some(draft), None, false) = (&mut self.draft, &self.constraint, self.begins) {
            let last = self.feed[0];
            self.ready.extend(draft.round(&mut *self.logits, self.sampler, last, self.left.saturating_add(1))?);
            self.feed = self.ready.back().map(|&id| vec![id]).unwrap_or_default();
            return self.ready.pop_front().ok_or(Error::Sample(sample::Error::NoLogits));
        }
        let logits = match std::mem::take(&mut self.begins) {
            true => self.logits.resume(&self.feed)?,
            false => self.logits.feed(&self.feed)?,
        };
        let mask = match &mut self.constraint {
            Some(constraint) => Some(constraint.mask(self.ends)?),
            None => None,
        };
        let token = self.sampler.sample_masked(logits, mask)?;
        if let Some(constraint) = self.constraint.as_mut().filter(|_| !self.ends.contains(&token)) {
            constraint.accept(token)?;
        }
        self.sampler.accept(token);
        self.feed = vec![token];
        if let Some(draft) = &mut self.draft {
            draft.emitted(token);
        }
        Ok(token)
    }
}

impl Iterator for Tokens<'_> {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let token = self.draw();
        match &token {
            Ok(token) if self.stop.contains(token) => {
                self.left = 0;
                return None;
            }
            Err(_) => self.left = 0,
            Ok(_) if self.is_complete() => self.left = 0,
            Ok(_) => {}
        }
        Some(token)
    }
}

/// A piece of generated text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The token that the piece comes from; `None` for a last piece of what was held back.
    pub id: Option<u32>,
    /// The text that this token completes; empty while a character is incomplete or a stop string
    /// may have begun.
    pub text: String,
}

/// Continues texts: encodes the prompt, samples until a stop token, and returns the text piece by
/// piece.
///
/// A prompt begins with the ids that the tokenizer puts in front of a text ([`Tokenizer::begin`]).
/// The tokens that begin and end a text end the generated one, too, and so do those of
/// [`TextGenerator::stop_at`].
pub struct TextGenerator<'a> {
    tokenizer: &'a Tokenizer,
    logits: Box<dyn NextLogits + 'a>,
    sampler: Sampler,
    stop: Vec<u32>,
    stop_text: StopText,
    constraint: Option<Constraint>,
    draft: Option<Draft<'a>>,
}

impl<'a> TextGenerator<'a> {
    /// A generator from its parts. [`crate::model::Model::generator`] builds one for an opened
    /// model.
    pub fn new(tokenizer: &'a Tokenizer, logits: Box<dyn NextLogits + 'a>, sampler: Sampler) -> TextGenerator<'a> {
        let (stop, stop_text) = (tokenizer.stop_ids(), StopText::default());
        TextGenerator { tokenizer, logits, sampler, stop, stop_text, constraint: None, draft: None }
    }

    /// Has a draft propose tokens. The distribution of the text stays the same.
    #[must_use]
    pub fn with_draft(mut self, draft: Draft<'a>) -> Self {
        self.draft = Some(draft);
        self
    }

    /// The draft, if there is one.
    pub fn draft(&self) -> Option<&Draft<'a>> {
        self.draft.as_ref()
    }

    /// Adds tokens and strings that end the generated text. Of a stop string nothing is returned.
    #[must_use]
    pub fn stop_at(mut self, ids: &[u32], strings: &[String]) -> Self {
        self.stop.extend_from_slice(ids);
        self.stop_text = StopText::new(strings);
        self
    }

    /// Each generated text follows the grammar of `constraint`, the state of a text that has not
    /// begun.
    #[must_use]
    pub fn constrain(mut self, constraint: Constraint) -> Self {
        self.constraint = Some(constraint);
        self
    }

    /// The ids of a prompt: those that the tokenizer puts in front of a text, then those of the
    /// text. Without any, the token that begins a text, or the one that ends one.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`] if there are none.
    pub fn prompt_ids(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut ids = self.tokenizer.begin().to_vec();
        ids.extend(self.tokenizer.encode(text));
        if ids.is_empty() {
            ids.extend(self.tokenizer.bos().or(self.tokenizer.eos()));
        }
        if ids.is_empty() { Err(Error::EmptyPrompt) } else { Ok(ids) }
    }

    /// Continues a text by at most `count` tokens. Each call of `next` on the result computes one;
    /// the first call also runs the prompt.
    ///
    /// # Errors
    /// As [`TextGenerator::prompt_ids`].
    pub fn generate(&mut self, prompt: &str, count: usize) -> Result<Text<'_>, Error> {
        let ids = self.prompt_ids(prompt)?;
        Ok(self.generate_ids(ids, count))
    }

    /// Continues a sequence of ids by at most `count` tokens.
    pub fn generate_ids(&mut self, prompt: Vec<u32>, count: usize) -> Text<'_> {
        let mut stream = self.tokenizer.stream();
        let text = prompt.iter().map(|&id| stream.push(id)).collect();
        let tokens = Tokens::new(&mut *self.logits, &prompt, count, &mut self.sampler, &self.stop);
        let tokens = tokens.constrained(self.constraint.clone(), &self.stop).with_draft(self.draft.as_mut());
        let mut stop = self.stop_text.clone();
        stop.clear();
        Text { tokens, stream: Some(stream), stop, prompt, prompt_text: text }
    }
}

/// The pieces that follow a prompt, from [`TextGenerator::generate`].
pub struct Text<'a> {
    tokens: Tokens<'a>,
    /// `None` once the text has ended.
    stream: Option<Stream<'a>>,
    stop: StopText,
    prompt: Vec<u32>,
    prompt_text: String,
}

impl Text<'_> {
    /// The ids of the prompt, begin token included.
    pub fn prompt_ids(&self) -> &[u32] {
        &self.prompt
    }

    /// The stop string that ended the text, if one did.
    pub fn stopped(&self) -> Option<&str> {
        self.stop.stopped()
    }

    /// The prompt as decoded from its ids. An incomplete character at its end is part of the first
    /// piece.
    pub fn prompt_text(&self) -> &str {
        &self.prompt_text
    }
}

impl Iterator for Text<'_> {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let stream = self.stream.as_mut()?;
        match self.tokens.next() {
            Some(Ok(id)) => {
                let text = self.stop.push(&stream.push(id));
                if self.stop.stopped().is_some() {
                    self.stream = None;
                }
                Some(Ok(Piece { id: Some(id), text }))
            }
            Some(Err(error)) => Some(Err(error)),
            None => {
                let mut text = self.stop.push(&self.stream.take()?.finish());
                text += &self.stop.finish();
                (!text.is_empty()).then_some(Ok(Piece { id: None, text }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::preset;
    use crate::weights::Init;

    #[test]
    fn tokens_are_what_the_logits_say() {
        let config = Config { layers: 2, vocab: 32, ..preset("stories260k").unwrap() };
        let weights = Weights::init(&config, Init::Normal { std: 0.1 }, 3);
        let model = Reference::new(&config, &weights).unwrap();
        let mut greedy = Sampler::new(&sample::Sampling::greedy()).unwrap();
        let mut decoder = model.decoder();
        let mut run = |steps, stop: &[u32]| -> Vec<u32> {
            Tokens::new(&mut decoder, &[1, 5], steps, &mut greedy, stop).collect::<Result<_, _>>().unwrap()
        };
        // Each run begins again.
        let drawn = run(6, &[]);
        assert_eq!((drawn.len(), &run(6, &[])), (6, &drawn));
        let ids: Vec<u32> = [1, 5].iter().chain(&drawn).copied().collect();
        let logits = model.logits(&ids).unwrap();
        for (row, next) in logits.chunks_exact(config.vocab).zip(&ids[1..]).skip(1) {
            assert_eq!(sample::argmax(row), Some(*next));
        }
        // Generation stops at a token, at the count, or after an error.
        let first = drawn.iter().position(|id| *id == drawn[2]).unwrap();
        assert_eq!((run(6, &[drawn[2]]), run(0, &[])), (drawn[..first].to_vec(), vec![]));
        // What two prompts have in common is kept, and makes no difference.
        decoder.feed(&[]).unwrap_err();
        decoder.resume(&[1, 5, 7, 9, 2]).unwrap();
        assert_eq!((decoder.reused(&[1, 5, 7, 8]), decoder.reused(&[1, 5]), decoder.reused(&[2])), (3, 1, 0));
        let resumed = decoder.resume(&[1, 5, 7, 8, 3]).unwrap().to_vec();
        assert_eq!(resumed, model.logits(&[1, 5, 7, 8, 3]).unwrap()[4 * config.vocab..]);
        assert_eq!(NextLogits::tokens(&decoder), [1, 5, 7, 8, 3]);
        assert!(matches!(decoder.feed(&[]), Err(Error::EmptyPrompt)));
        let mut refused = Tokens::new(&mut decoder, &[32], 6, &mut greedy, &[]);
        assert!(matches!(refused.next(), Some(Err(Error::Reference(_)))) && refused.next().is_none());
        let int8 = decode::Options { weights: WeightType::Int8, ..Default::default() };
        assert!(matches!(next_logits(&config, &weights, None, int8), Err(Error::ReferenceWeights)));
    }
}
