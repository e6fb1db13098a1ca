//! Choosing the next token from logits.
//!
//! A [`Sampler`] applies the options of [`Sampling`] in the order of `transformers`, and draws from
//! what remains:
//!
//! 1. ids that the mask or [`Sampler::only`] excludes are removed,
//! 2. `logit_bias` is added,
//! 3. `repetition_penalty` for the tokens of prompt and output, then `frequency_penalty` and
//!    `presence_penalty` for those of the output,
//! 4. `temperature`; at 0 the largest logit is taken and the rest is skipped,
//! 5. `top_k`, `top_p` and `min_p`, each over the tokens that the one before has left.
//!
//! Tokens as probable as the last of the `top_k` stay, as in `transformers`. Of equally probable
//! tokens the lowest id comes first, so the same seed gives the same tokens on every platform.
//!
//! The penalties need the tokens so far: [`Sampler::begin`] takes those of the prompt,
//! [`Sampler::accept`] each token that was output.
//!
//! ```
//! use ferrane_llm::sample::{Sampler, Sampling};
//!
//! # fn main() -> Result<(), ferrane_llm::sample::Error> {
//! let options = Sampling { temperature: 0.8, top_k: Some(40), min_p: 0.05, seed: Some(1), ..Sampling::default() };
//! let mut sampler = Sampler::new(&options)?;
//! sampler.begin(&[1, 2]);
//! let id = sampler.sample(&[0.1, 2.0, -1.0])?;
//! sampler.accept(id);
//! # Ok(())
//! # }
//! ```

mod log_probs;
mod options;
mod speculative;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use crate::random::Rng;

pub use log_probs::{LogProb, LogProbs, log_probs};
pub use options::{Error, Sampling};
pub(crate) use speculative::Proposal;

/// Draws tokens. It owns the state of its random generator, which each draw advances, and the
/// tokens so far.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: Sampling,
    rng: Rng,
    /// The ids that may be drawn, sorted; `None`: all.
    only: Option<Vec<u32>>,
    history: History,
    /// Logits after bias and penalties, kept to be reused.
    scores: Vec<f32>,
    /// The tokens that may be drawn, with weights proportional to their probabilities.
    candidates: Vec<(f64, u32)>,
}

impl Sampler {
    /// A sampler with an empty history.
    ///
    /// # Errors
    /// [`Error::Option`], as [`Sampling::validate`].
    pub fn new(options: &Sampling) -> Result<Self, Error> {
        options.validate()?;
        let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
        Ok(Sampler {
            options: options.clone(),
            rng: Rng::new(seed),
            only: None,
            history: History::default(),
            scores: Vec::new(),
            candidates: Vec::new(),
        })
    }

    /// Restricts the draws to these ids. A model that was trained with a compact vocabulary has
    /// untrained logits for all other ids.
    #[must_use]
    pub fn only(mut self, ids: &[u32]) -> Self {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        self.only = Some(ids);
        self
    }

    /// The options that [`Sampler::new`] got.
    pub fn options(&self) -> &Sampling {
        &self.options
    }

    /// Begins a new text: forgets the tokens so far and takes those of the prompt. The random
    /// generator continues.
    pub fn begin(&mut self, prompt: &[u32]) {
        self.history = History::default();
        if self.options.penalizes() {
            prompt.iter().for_each(|&id| self.history.push(id, Origin::Prompt, self.options.penalty_window));
        }
    }

    /// Takes a token of the output.
    pub fn accept(&mut self, id: u32) {
        if self.options.penalizes() {
            self.history.push(id, Origin::Output, self.options.penalty_window);
        }
    }

    /// Draws the id of the next token. It enters the history only by [`Sampler::accept`].
    ///
    /// # Errors
    /// [`Error::NoLogits`].
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, Error> {
        self.sample_masked(logits, None)
    }

    /// Draws among the ids whose bit of `mask` is set: bit `id % 32` of word `id / 32`. Ids beyond
    /// the mask are excluded.
    ///
    /// # Errors
    /// [`Error::NoLogits`].
    pub fn sample_masked(&mut self, logits: &[f32], mask: Option<&[u32]>) -> Result<u32, Error> {
        if let Some(certain) = self.prepare(logits, mask)? {
            return Ok(certain);
        }
        let sum: f64 = self.candidates.iter().map(|(weight, _)| weight).sum();
        let target = self.rng.uniform() * sum;
        let mut running = 0.0;
        for &(weight, id) in &self.candidates {
            running += weight;
            if target < running {
                return Ok(id);
            }
        }
        // Reached only by rounding of the sum.
        self.candidates.last().map(|(_, id)| *id).ok_or(Error::NoLogits)
    }

    /// The ids that [`Sampler::sample_masked`] draws from, with their probabilities, by ascending
    /// id.
    ///
    /// # Errors
    /// [`Error::NoLogits`].
    pub fn distribution(&mut self, logits: &[f32], mask: Option<&[u32]>) -> Result<Vec<(u32, f32)>, Error> {
        if let Some(certain) = self.prepare(logits, mask)? {
            return Ok(vec![(certain, 1.0)]);
        }
        let sum: f64 = self.candidates.iter().map(|(weight, _)| weight).sum();
        let mut found: Vec<(u32, f32)> = self.candidates.iter().map(|&(w, id)| (id, (w / sum) as f32)).collect();
        found.sort_unstable_by_key(|(id, _)| *id);
        Ok(found)
    }

    /// Applies all options. Returns the id if only one can be drawn whatever the coin; otherwise
    /// `candidates` has the choice.
    fn prepare(&mut self, logits: &[f32], mask: Option<&[u32]>) -> Result<Option<u32>, Error> {
        self.score(logits, mask);
        let best = argmax(&self.scores).ok_or(Error::NoLogits)?;
        let top = self.scores[best as usize];
        if top == f32::NEG_INFINITY {
            return Err(Error::NoLogits);
        }
        // An infinite logit would make every probability NaN, and it is certain to be chosen.
        if self.options.temperature == 0.0 || top.is_infinite() {
            return Ok(Some(best));
        }
        let temperature = f64::from(self.options.temperature);
        self.candidates.clear();
        for (id, &score) in self.scores.iter().enumerate() {
            let weight = (f64::from(score - top) / temperature).exp();
            // Also false for NaN.
            if weight > 0.0 {
                self.candidates.push((weight, id as u32));
            }
        }
        self.top_k();
        self.top_p();
        self.min_p();
        Ok(None)
    }

    /// Writes the logits to `scores`, without excluded ids, with bias and penalties.
    fn score(&mut self, logits: &[f32], mask: Option<&[u32]>) {
        let Sampler { options, scores, only, history, .. } = self;
        scores.clear();
        match only {
            None => scores.extend_from_slice(logits),
            Some(only) => {
                scores.resize(logits.len(), f32::NEG_INFINITY);
                for &id in only.iter() {
                    if let (Some(to), Some(from)) = (scores.get_mut(id as usize), logits.get(id as usize)) {
                        *to = *from;
                    }
                }
            }
        }
        if let Some(mask) = mask {
            for (word, scores) in scores.chunks_mut(32).enumerate() {
                let bits = mask.get(word).copied().unwrap_or(0);
                if bits != u32::MAX {
                    let masked = scores.iter_mut().enumerate().filter(|(bit, _)| bits >> bit & 1 == 0);
                    masked.for_each(|(_, score)| *score = f32::NEG_INFINITY);
                }
            }
        }
        for (&id, &bias) in &options.logit_bias {
            if let Some(score) = scores.get_mut(id as usize) {
                *score += bias;
            }
        }
        for (&id, count) in &history.counts {
            let Some(score) = scores.get_mut(id as usize) else { continue };
            let penalty = options.repetition_penalty;
            *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
            if count.output > 0 {
                *score -= options.frequency_penalty * count.output as f32 + options.presence_penalty;
            }
        }
    }

    fn top_k(&mut self) {
        let Some(k) = self.options.top_k.filter(|k| (1..self.candidates.len()).contains(k)) else { return };
        let (_, last, _) = self.candidates.select_nth_unstable_by(k - 1, descending);
        let least = last.0;
        self.candidates.retain(|(weight, _)| *weight >= least);
        self.candidates.sort_unstable_by(descending);
    }

    fn top_p(&mut self) {
        let top_p = f64::from(self.options.top_p);
        if top_p >= 1.0 {
            return;
        }
        let sum: f64 = self.candidates.iter().map(|(weight, _)| weight).sum();
        let limit = top_p * sum;
        // A token with less than an even share of the probability outside the nucleus cannot belong
        // to it; leaving these out keeps the sort short. Half of that share allows for rounding.
        let cutoff = 0.5 * (sum - limit) / self.candidates.len() as f64;
        self.candidates.retain(|(weight, _)| *weight >= cutoff);
        self.candidates.sort_unstable_by(descending);
        let mut running = 0.0;
        let inside = self.candidates.iter().take_while(|(weight, _)| {
            let inside = running < limit;
            running += weight;
            inside
        });
        let length = inside.count().max(1);
        self.candidates.truncate(length);
    }

    fn min_p(&mut self) {
        let min_p = f64::from(self.options.min_p);
        if min_p > 0.0 {
            // Weights are relative to the largest logit, so the most probable token has 1.
            self.candidates.retain(|(weight, _)| *weight >= min_p);
        }
    }
}

fn descending(a: &(f64, u32), b: &(f64, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Where a token of the history comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Prompt,
    Output,
}

/// The tokens so far and how often each occurs among the counted ones.
#[derive(Debug, Clone, Default)]
struct History {
    tokens: Vec<(u32, Origin)>,
    /// Index of the first token that is counted.
    from: usize,
    counts: HashMap<u32, Count>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    all: usize,
    output: usize,
}

impl History {
    fn push(&mut self, id: u32, origin: Origin, window: Option<usize>) {
        self.tokens.push((id, origin));
        let count = self.counts.entry(id).or_default();
        count.all += 1;
        count.output += usize::from(origin == Origin::Output);
        if window.is_some_and(|window| self.tokens.len() - self.from > window) {
            let (id, origin) = self.tokens[self.from];
            self.from += 1;
            self.remove(id, origin);
        }
    }

    /// No longer counts a token.
    fn remove(&mut self, id: u32, origin: Origin) {
        if let Some(count) = self.counts.get_mut(&id) {
            count.all -= 1;
            count.output -= usize::from(origin == Origin::Output);
            if count.all == 0 {
                self.counts.remove(&id);
            }
        }
    }
}

/// The id of the largest logit, the lowest id on a tie; NaN is skipped. `None` if there is no other
/// value.
pub fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(usize, f32)> = None;
    for (id, &value) in logits.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|(_, top)| value > top) {
            best = Some((id, value));
        }
    }
    best.map(|(id, _)| id as u32)
}
