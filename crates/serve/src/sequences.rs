//! What the scheduler runs on: several sequences of one model, each in a slot.
//!
//! A slot keeps the tokens that it was fed until it is rewound, so a later request that begins with
//! the same tokens feeds only the rest.

use ferrane_llm::decode::Decoder;
use ferrane_llm::generate::NextLogits;

/// Why tokens could not be fed.
pub type FeedError = Box<dyn std::error::Error + Send + Sync>;

/// Tokens that continue the sequence of a slot.
#[derive(Debug, Clone, Copy)]
pub struct Feed<'a> {
    /// The slot, below [`Sequences::slots`]. No two feeds of one call have the same.
    pub slot: usize,
    /// The tokens, at least one.
    pub tokens: &'a [u32],
    /// The positions whose logits the caller needs.
    pub wanted: Wanted,
}

/// The positions of a feed whose logits the caller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The logits after the last token.
    Last,
    /// The logits after each token.
    Each,
}

/// Several sequences of one model. The scheduler calls it from one thread.
pub trait Sequences {
    /// Number of slots, at least 1.
    fn slots(&self) -> usize;

    /// Continues sequences by tokens. `logits` is called with the index of the feed, the index of
    /// the token in it, and the logits `[vocab]` after that token; of one feed in the order of its
    /// tokens.
    ///
    /// # Errors
    /// If the device failed. What the slots of these feeds hold is then unknown, and the scheduler
    /// rewinds them to 0.
    fn feed(&mut self, feeds: &[Feed<'_>], logits: &mut dyn FnMut(usize, usize, &[f32])) -> Result<(), FeedError>;

    /// Keeps the first `len` tokens of a slot. Returns false and changes nothing if the model
    /// cannot drop a part of a sequence; to drop all of it (`len` 0) always succeeds.
    fn rewind(&mut self, slot: usize, len: usize) -> bool;

    /// The normed residual stream `[dim]` after the last token of a slot, if the model can return
    /// it.
    fn hidden(&self, slot: usize) -> Option<&[f32]>;
}

/// One sequence over any implementation of [`NextLogits`]: requests run one after another.
pub struct OneSequence<'a> {
    logits: Box<dyn NextLogits + 'a>,
}

impl<'a> OneSequence<'a> {
    /// The one slot of `logits`.
    pub fn new(logits: Box<dyn NextLogits + 'a>) -> OneSequence<'a> {
        OneSequence { logits }
    }
}

impl Sequences for OneSequence<'_> {
    fn slots(&self) -> usize {
        1
    }

    fn feed(&mut self, feeds: &[Feed<'_>], logits: &mut dyn FnMut(usize, usize, &[f32])) -> Result<(), FeedError> {
        for (index, feed) in feeds.iter().enumerate() {
            match feed.wanted {
                Wanted::Last => {
                    let row = self.logits.feed(feed.tokens)?;
                    logits(index, feed.tokens.len().saturating_sub(1), row);
                }
                Wanted::Each => {
                    for (at, token) in feed.tokens.iter().enumerate() {
                        logits(index, at, self.logits.feed(std::slice::from_ref(token))?);
                    }
                }
            }
        }
        Ok(())
    }

    fn rewind(&mut self, _slot: usize, len: usize) -> bool {
        self.logits.rewind(len);
        true
    }

    fn hidden(&self, _slot: usize) -> Option<&[f32]> {
        self.logits.hidden()
    }
}

/// The sequences of a decoder: those that are fed one token each share a pass over the weights.
pub struct Slots {
    decoder: Decoder,
    /// The normed residual stream after the last token of each slot; empty before the first.
    hidden: Vec<Vec<f32>>,
}

impl Slots {
    /// All slots of `decoder`.
    pub fn new(decoder: Decoder) -> Slots {
        let hidden = vec![Vec::new(); decoder.slots()];
        Slots { decoder, hidden }
    }
}

impl Sequences for Slots {
    fn slots(&self) -> usize {
        self.decoder.slots()
    }

    fn feed(&mut self, feeds: &[Feed<'_>], logits: &mut dyn FnMut(usize, usize, &[f32])) -> Result<(), FeedError> {
        let (dim, vocab) = (self.decoder.config().dim, self.decoder.config().vocab);
        let of = |wanted| feeds.iter().enumerate().filter(move |(_, feed)| feed.wanted == wanted);
        for (index, feed) in of(Wanted::Each) {
            self.decoder.feed_each(feed.slot, feed.tokens, &mut |at, row| logits(index, at, row))?;
            let last = self.decoder.hidden().rchunks_exact(dim).next().unwrap_or_default();
            self.hidden[feed.slot] = last.to_vec();
        }
        let ends: Vec<(usize, &[u32])> = of(Wanted::Last).map(|(_, feed)| (feed.slot, feed.tokens)).collect();
        if ends.is_empty() {
            return Ok(());
        }
        let rows = self.decoder.feed_all(&ends)?;
        for ((index, feed), row) in of(Wanted::Last).zip(rows.chunks_exact(vocab)) {
            logits(index, feed.tokens.len().saturating_sub(1), row);
        }
        for ((slot, _), row) in ends.iter().zip(self.decoder.hidden().chunks_exact(dim)) {
            self.hidden[*slot] = row.to_vec();
        }
        Ok(())
    }

    fn rewind(&mut self, slot: usize, len: usize) -> bool {
        self.decoder.rewind(slot, len);
        true
    }

    fn hidden(&self, slot: usize) -> Option<&[f32]> {
        self.hidden.get(slot).map(Vec::as_slice).filter(|hidden| !hidden.is_empty())
    }
}
