//! Sequences and their caches.

use std::ops::Range;

use ferrane_device::{Device, Layout};
use ferrane_host::pool;

use super::window::Cache;
use crate::forward::Error;

/// A sequence with its caches.
pub(super) struct Slot {
    /// The sequence, of which the first `done` tokens are in the caches.
    pub(super) tokens: Vec<u32>,
    pub(super) done: usize,
    /// Number of leading positions of the caches that may hold rows, of this sequence or an earlier
    /// one.
    written: usize,
    /// Number of leading positions whose keys and values depend on the kept tokens only.
    pub(super) own: usize,
    /// The caches of each layer; none while the slot has not been used.
    pub(super) caches: Vec<Cache>,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { tokens: Vec::new(), done: 0, written: 0, own: usize::MAX, caches: Vec::new() }
    }
}

fn at(source: ferrane_device::Error) -> Error {
    Error::Device { kernel: "cache", source }
}

impl Slot {
    /// Tokens that are not in the caches yet.
    pub(super) fn pending(&self) -> &[u32] {
        &self.tokens[self.done..]
    }

    /// Shortens the sequence to its first `count` tokens.
    pub(super) fn rewind(&mut self, count: usize) {
        self.tokens.truncate(count);
        self.done = self.done.min(self.tokens.len());
        self.renew();
    }

    /// Notes whether all computed positions depend on the kept tokens only, which is so again after
    /// those that do not are gone.
    pub(super) fn renew(&mut self) {
        if self.done <= self.own {
            self.own = usize::MAX;
        }
    }

    /// Drops positions of the sequence, whose tokens are all computed, and moves the later ones up.
    /// `turns` has the rotation of a layer's keys by as many positions.
    pub(super) fn drop_positions<'a>(
        &mut self,
        range: Range<usize>,
        turns: impl Fn(usize) -> &'a [(f32, f32)] + Sync,
    ) -> Result<(), Error> {
        let end = self.done;
        pool::try_for_each_range(self.caches.len(), 1, |layers| {
            let mut layers = self.caches[layers.clone()].iter().zip(layers);
            layers.try_for_each(|(cache, layer)| cache.drop_positions(range.clone(), end, turns(layer)).map_err(at))
        })?;
        self.done = end - range.len();
        self.own = self.own.min(range.start);
        self.tokens.drain(range);
        Ok(())
    }

    /// Notes that the positions before `end` may hold rows from now on.
    pub(super) fn writes(&mut self, end: usize) {
        self.written = self.written.max(end);
    }

    /// Zeroes what an earlier sequence or a failed window left in the caches from position `from`
    /// on.
    pub(super) fn forget(&mut self, from: usize) -> Result<(), Error> {
        if from < self.written {
            self.caches.iter().try_for_each(|cache| cache.clear(from..self.written)).map_err(at)?;
            self.written = from;
        }
        Ok(())
    }

    /// Replaces the caches by new ones of these layouts, which hold the same positions.
    pub(super) fn grow(&mut self, device: &Device, layouts: &[Layout; 2], layers: usize) -> Result<(), Error> {
        let mut caches = Vec::new();
        for layer in 0..layers {
            let cache = Cache::new(device, layouts).map_err(at)?;
            if let Some(before) = self.caches.get(layer) {
                cache.take(before, self.done).map_err(at)?;
            }
            caches.push(cache);
        }
        (self.caches, self.written) = (caches, self.done);
        Ok(())
    }

    /// Becomes the first `count` tokens of another slot, whose caches have the same layouts.
    pub(super) fn take(&mut self, other: &Slot, count: usize) -> Result<(), Error> {
        let done = other.done.min(count);
        for (to, from) in self.caches.iter().zip(&other.caches) {
            to.take(from, done).map_err(at)?;
        }
        self.tokens.clear();
        self.tokens.extend_from_slice(&other.tokens[..count.min(other.tokens.len())]);
        (self.done, self.own) = (done, other.own);
        self.renew();
        self.writes(done);
        Ok(())
    }
}
