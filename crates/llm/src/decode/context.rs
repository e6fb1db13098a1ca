//! Sequences that exceed the context.
//!
//! The caches hold rotated keys, and rotations add up: a key of position `p` that is rotated by the
//! angles of `-d` is the key of position `p - d`. So the cache can drop positions in its middle and
//! move the others up without computing them again. Each move rounds the keys to fp16 once more,
//! which is why positions are dropped in blocks: a key is moved at most five times before it is
//! dropped itself.

use super::slots::Slot;
use super::{Decoder, kinds::Kind};
use crate::forward::Error;

/// Number of first positions that [`ContextPolicy::Sinks`] keeps.
const SINKS: usize = 4;
/// It drops one part of so many of the other positions at a time.
const BLOCKS: usize = 4;

/// What happens to a sequence that would exceed the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ContextPolicy {
    /// Its last half is computed again from position 0, as a text of its own. Nothing remains of
    /// what came before, and the token that exceeds the context takes the time of a prompt.
    #[default]
    Shift,
    /// The first four positions stay, and the oldest quarter of the others is dropped; the
    /// positions after it move up (StreamingLLM, with attention sinks). Nothing is computed again.
    /// Keys and values remain those that were computed when the dropped tokens were still there.
    /// Later tokens see the positions in the cache, not those of the text, so the model never sees
    /// a position beyond its context.
    Sinks,
    /// [`Error::Context`].
    Error,
}

/// The positions of a full context that are dropped.
fn dropped(context: usize) -> std::ops::Range<usize> {
    let kept = SINKS.min(context / 2);
    kept..kept + ((context - kept) / BLOCKS).max(1)
}

impl Decoder {
    /// Appends tokens to a sequence, or keeps its last half. Returns what restores it.
    pub(super) fn extend(&mut self, slot: usize, tokens: &[u32]) -> (usize, Option<Vec<u32>>) {
        let Slot { tokens: all, done, .. } = &mut self.slots[slot];
        let before = all.len();
        let kept = (before + tokens.len() > self.context).then(|| all.clone());
        all.extend_from_slice(tokens);
        if kept.is_some() && self.policy == ContextPolicy::Shift {
            all.drain(..all.len() - self.context.div_ceil(2));
            *done = 0;
        }
        (before, kept)
    }

    /// Shortens sequences that exceed the context: computes as many tokens as fit, drops positions,
    /// and so on until the rest fits. How the tokens were divided among calls makes no difference.
    pub(super) fn make_room(&mut self, feeds: &[(usize, &[u32])]) -> Result<(), Error> {
        for &(slot, _) in feeds {
            while self.slots[slot].tokens.len() > self.context {
                self.grow(self.context, slot..slot + 1)?;
                let rest = self.slots[slot].tokens.split_off(self.context);
                self.catch_up_one(slot, None)?;
                let range = dropped(self.context);
                let turns: Vec<_> = self.kinds.iter().map(|kind| kind.turns(range.len())).collect();
                let kinds = self.config.attention_kinds();
                let kind_of =
                    |layer: usize| kinds.iter().position(|kind| *kind == self.config.attention(layer)).unwrap_or(0);
                let turns = |layer: usize| turns[kind_of(layer)].as_slice();
                self.slots[slot].drop_positions(range, turns)?;
                self.slots[slot].tokens.extend(rest);
            }
        }
        Ok(())
    }
}

impl Kind {
    /// Cosines and sines, half a head of pairs, that rotate a key back by `positions`.
    fn turns(&self, positions: usize) -> Vec<(f32, f32)> {
        self.pairs(positions)
            .map(|(cos, sin)| {
                // Some scalings also scale the keys, which happens only once.
                let length = cos.hypot(sin);
                ((cos / length) as f32, (sin / length) as f32)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::dropped;

    #[test]
    fn a_part_of_every_context_is_dropped() {
        for context in 1..300 {
            let range = dropped(context);
            assert!(!range.is_empty() && range.end <= context && range.start <= 4, "{context}: {range:?}");
        }
        assert_eq!((dropped(1), dropped(2), dropped(132)), (0..1, 1..2, 4..36));
    }
}
