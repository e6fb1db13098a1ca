//! Sequences and their caches.

use ferrane_device::{Device, Layout};

use super::window::Cache;
use crate::forward::Error;

/// A sequence with its caches.
#[derive(Default)]
pub(super) struct Slot {
    /// The sequence, of which the first `done` tokens are in the caches.
    pub(super) tokens: Vec<u32>,
    pub(super) done: usize,
    /// Number of leading positions of the caches that may hold rows, of this sequence or an earlier
    /// one.
    written: usize,
    /// The caches of each layer; none while the slot has not been used.
    pub(super) caches: Vec<Cache>,
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
        self.done = done;
        self.writes(done);
        Ok(())
    }
}
