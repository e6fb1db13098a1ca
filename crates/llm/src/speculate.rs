//! Speculative decoding: a small draft model proposes tokens, and the model computes all of them in
//! one window and decides.
//!
//! A step of a large model takes as long for a few tokens as for one, because both read all
//! weights. The text has the same distribution as without a draft: a proposal is accepted or
//! replaced by the rule of [`crate::sample`], with penalties and all other options as if the
//! accepted tokens had been drawn one by one. With a temperature of 0 the text is the same, up to
//! ties: on a device, a window of several tokens may round differently from windows of one.
//!
//! [`Draft`] holds the draft model; [`crate::generate::TextGenerator::with_draft`] and
//! [`crate::chat::Chat::set_draft`] use it.

use crate::generate::{Error, NextLogits};
use crate::model::Model;
use crate::sample::{self, Sampler};

/// What a draft has been good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftStats {
    /// Windows that the model computed with proposals in them.
    pub rounds: usize,
    /// Tokens that the draft proposed.
    pub proposed: usize,
    /// Of these, those that the model accepted.
    pub accepted: usize,
}

impl DraftStats {
    /// The accepted part of the proposals; `None` if there were none.
    pub fn rate(&self) -> Option<f64> {
        (self.proposed > 0).then(|| self.accepted as f64 / self.proposed as f64)
    }
}

/// A draft model's sequence, and how many tokens it proposes at a time.
pub struct Draft<'a> {
    logits: Box<dyn NextLogits + 'a>,
    count: usize,
    stats: DraftStats,
}

impl<'a> Draft<'a> {
    /// A draft that proposes up to `count` tokens at a time. Its ids must mean what the model's
    /// mean ([`fits`]).
    pub fn new(logits: Box<dyn NextLogits + 'a>, count: usize) -> Draft<'a> {
        Draft { logits, count, stats: DraftStats::default() }
    }

    /// Counts over all texts since [`Draft::new`].
    pub fn stats(&self) -> DraftStats {
        self.stats
    }
}

/// Checks that a draft has the vocabulary of a model: with tokenizers, the same pieces for all ids;
/// otherwise the same number of ids. The tables of logits may differ in their unused ids.
///
/// # Errors
/// [`Error::DraftVocabulary`] with what differs.
pub fn fits(draft: &Model, model: &Model) -> Result<(), Error> {
    let differ = |reason| Err(Error::DraftVocabulary { reason });
    let (Some(of_draft), Some(of_model)) = (&draft.tokenizer, &model.tokenizer) else {
        let (found, expected) = (draft.config.vocab, model.config.vocab);
        return match found == expected {
            true => Ok(()),
            false => differ(format!("it has {found} ids, the model {expected}")),
        };
    };
    let (found, expected) = (of_draft.vocab_size(), of_model.vocab_size());
    if found != expected {
        return differ(format!("its tokenizer has {found} ids, the model's {expected}"));
    }
    let text = |piece: Option<&[u8]>| {
        piece.map_or("nothing".into(), |piece| format!("{:?}", piece.escape_ascii().to_string()))
    };
    match (0..expected as u32).find(|&id| of_draft.piece(id) != of_model.piece(id)) {
        Some(id) => {
            let pieces = [of_draft.piece(id), of_model.piece(id)].map(text);
            differ(format!("its token {id} is {}, the model's is {}", pieces[0], pieces[1]))
        }
        None => Ok(()),
    }
}

/// A draft at work on one text.
pub(crate) struct Speculation<'a> {
    logits: &'a mut (dyn NextLogits + 'a),
    stats: &'a mut DraftStats,
    count: usize,
    /// Tokens that the draft was not fed yet: first the whole sequence, later what was emitted
    /// since.
    pending: Vec<u32>,
    begins: bool,
    /// Proposals of the last round that the draft was fed itself, to propose the next one.
    fed: usize,
}

impl<'a> Speculation<'a> {
    pub(crate) fn new(draft: &'a mut Draft<'_>, prompt: &[u32]) -> Speculation<'a> {
        let Draft { logits, count, stats } = draft;
        Speculation { logits: &mut **logits, stats, count: *count, pending: prompt.to_vec(), begins: true, fed: 0 }
    }

    /// Notes a token that was drawn without a proposal.
    pub(crate) fn emitted(&mut self, id: u32) {
        self.pending.push(id);
    }

    /// Feeds `last`, the token that was emitted last, with proposals after it, and returns the
    /// tokens that follow: at least one, and at most `most`. All of them are accepted by the
    /// sampler.
    pub(crate) fn round(
        &mut self,
        model: &mut dyn NextLogits,
        sampler: &mut Sampler,
        last: u32,
        most: usize,
    ) -> Result<Vec<u32>, Error> {
        let room = model.room().min(most).saturating_sub(1);
        let proposals = self.propose(sampler, self.count.min(room))?;
        let mut feed = vec![last];
        feed.extend(proposals.iter().map(|proposal| proposal.id));
        let (mut emitted, mut failed, mut ended) = (Vec::new(), None, false);
        let mut decide = |at: usize, logits: &[f32]| {
            if ended {
                return;
            }
            let decided = match proposals.get(at) {
                Some(proposal) => sampler.decide(logits, proposal),
                None => sampler.sample(logits).map(Some),
            };
            // A token instead of the proposal, or after all of them, is the last of the round.
            let id = match decided {
                Ok(None) => proposals[at].id,
                Ok(Some(id)) => {
                    ended = true;
                    id
                }
                Err(error) => {
                    (ended, failed) = (true, Some(error));
                    return;
                }
            };
            sampler.accept(id);
            emitted.push(id);
        };
        if proposals.is_empty() {
            // Unlike windows with proposals, a single token may exceed the context.
            decide(0, model.feed(&feed)?);
        } else {
            model.feed_each(&feed, &mut decide)?;
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        let accepted = emitted.len() - 1;
        model.rewind(model.tokens().len().saturating_sub(proposals.len() - accepted));
        self.settle(&emitted, proposals.len());
        Ok(emitted)
    }

    /// Up to `count` tokens that the draft would emit. The sampler's history is unchanged.
    fn propose(&mut self, sampler: &mut Sampler, count: usize) -> Result<Vec<sample::Proposal>, Error> {
        let mut proposals: Vec<sample::Proposal> = Vec::new();
        self.fed = 0;
        while proposals.len() < count {
            let begins = std::mem::take(&mut self.begins);
            let logits = match proposals.last() {
                None if begins => self.logits.resume(&self.pending)?,
                None => self.logits.feed(&self.pending)?,
                Some(last) => self.logits.feed(&[last.id])?,
            };
            self.fed = proposals.len();
            self.pending.clear();
            match sampler.propose(logits) {
                Ok(proposal) => {
                    sampler.accept(proposal.id);
                    proposals.push(proposal);
                }
                // A draft that has no idea proposes nothing.
                Err(sample::Error::NoLogits) => break,
                Err(error) => return Err(error.into()),
            }
        }
        sampler.retract(proposals.len());
        Ok(proposals)
    }

    /// Makes the draft's sequence that of the model.
    fn settle(&mut self, emitted: &[u32], proposed: usize) {
        let accepted = emitted.len() - 1;
        if proposed > 0 {
            self.stats.rounds += 1;
            self.stats.proposed += proposed;
            self.stats.accepted += accepted;
        }
        let kept = accepted.min(self.fed);
        self.logits.rewind(self.logits.tokens().len().saturating_sub(self.fed - kept));
        self.pending.extend_from_slice(&emitted[kept..]);
    }
}
