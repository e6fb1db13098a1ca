//! Updates and checkpoints of a run whose moments are sharded over its ranks.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use ferrane_llm::config::Config;
use ferrane_llm::run_folder::step_name;

use super::{Error, Run};
use crate::checkpoint::{MomentSource, Snapshot};
use crate::optim::{self, Moments};
use crate::ranks::Ranks;

/// The moments of all ranks, which the first one receives from the others while it writes them, so
/// that it never holds more than some of them.
struct OfAllRanks<'a> {
    ranks: RefCell<&'a mut Ranks>,
    own: &'a Moments,
    parts: &'a [Range<usize>],
    /// Whether the other ranks have sent theirs.
    received: Cell<bool>,
}

impl MomentSource for OfAllRanks<'_> {
    fn read(&self, _: &Config, take: &mut dyn FnMut(&[f32]) -> io::Result<()>) -> io::Result<()> {
        self.received.set(true);
        let mut result = Ok(());
        for own in self.own.part().unwrap_or_default() {
            result = result.and_then(|()| take(own));
            for (rank, part) in self.parts.iter().enumerate().skip(1) {
                // After a failure the rest is received all the same.
                let failed = result.is_err();
                let mut some = |values: &[f32]| if failed { Ok(()) } else { take(values) };
                let taken = self.ranks.borrow_mut().take(rank, part.len(), &mut some);
                result = result.and(taken);
            }
        }
        result
    }
}

impl Run {
    /// Keeps only this rank's part of the moments, if the options say so and there are several
    /// ranks.
    pub(super) fn shard(&mut self) {
        if self.options.shard_optimizer && self.ranks.size() > 1 {
            self.parts = optim::cuts(&self.config, self.ranks.size());
            self.moments.keep(&self.config, self.parts[self.ranks.rank()].clone());
        }
    }

    /// Whether the moments are on several ranks, so that all of them make a checkpoint together.
    pub(super) fn is_sharded(&self) -> bool {
        self.moments.part().is_some()
    }

    /// Whether to write a checkpoint now: as this rank wants, or, where all ranks are needed, as
    /// the first rank does.
    pub(super) fn agree_to_save(&mut self, wanted: bool) -> Result<bool, Error> {
        match self.is_sharded() {
            false => Ok(wanted),
            true => Ok(self.ranks.exchange(wanted)?[0]),
        }
    }

    /// Writes a checkpoint with the moments of all ranks, all of which call this. Returns its path,
    /// or, on the other ranks if the first one fails, `None`.
    ///
    /// # Errors
    /// On the first rank those of the checkpoint; a rank is lost.
    pub(super) fn write_together(&mut self) -> Result<Option<PathBuf>, Error> {
        let Run { config, weights, moments, state, ranks, parts, store, .. } = self;
        let written = if ranks.is_first() {
            let source = OfAllRanks { ranks: RefCell::new(ranks), own: moments, parts, received: Cell::new(false) };
            let written = store.save(&Snapshot { config, weights, moments: &source, state, adapters: None });
            if !source.received.get() {
                // It failed before; the others send them nevertheless.
                let _ = source.read(config, &mut |_| Ok(()));
            }
            Some(written)
        } else {
            moments.part().unwrap_or_default().into_iter().try_for_each(|values| ranks.give(values))?;
            None
        };
        let succeeded = self.ranks.exchange(matches!(written, Some(Ok(_))))?[0];
        match written {
            Some(path) => Ok(Some(path?)),
            None => Ok(succeeded.then(|| self.store.root().join(step_name(self.state.step)))),
        }
    }
}
