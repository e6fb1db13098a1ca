//! What the engine counts for each process: compiles and loaded programs (apple-runtime §3).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use ferrane_machine::profile::Limit;

/// The counts of a process, shared by clones. `default()` gives the counts of a restarted process.
#[derive(Clone, Debug, Default)]
pub struct ProcessCounts(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    compiles: AtomicUsize,
    loaded: AtomicUsize,
    /// A compile was refused for the budget. Since then loads fail, too.
    exhausted: AtomicBool,
}

static THIS: LazyLock<ProcessCounts> = LazyLock::new(ProcessCounts::default);

impl ProcessCounts {
    /// The counts of the current process.
    pub fn this() -> ProcessCounts {
        THIS.clone()
    }

    /// Compiles that count against the budget now.
    pub fn compiles(&self) -> usize {
        self.0.compiles.load(Ordering::Relaxed)
    }

    /// Programs that are loaded now.
    pub fn loaded(&self) -> usize {
        self.0.loaded.load(Ordering::Relaxed)
    }

    /// Whether a compile was refused for the budget, with no compile returned since.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.0.exhausted.load(Ordering::Relaxed)
    }

    pub(crate) fn exhaust(&self) {
        self.0.exhausted.store(true, Ordering::Relaxed);
    }

    /// Charges a compile to the budget; `None` if the budget is spent.
    pub(crate) fn compile(&self, budget: Limit, returns: bool) -> Option<Ticket> {
        let more = |n: usize| n.checked_add(1).filter(|&n| !budget.exceeded_by(n));
        self.0.compiles.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Ticket { process: self.clone(), returns, held: AtomicBool::new(true) })
    }

    /// Counts a loaded program until the slot is dropped; `None` if the limit is reached.
    pub(crate) fn load(&self, limit: Limit) -> Option<LoadSlot> {
        let more = |n: usize| n.checked_add(1).filter(|&n| !limit.exceeded_by(n));
        self.0.loaded.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(LoadSlot(self.clone()))
    }
}

/// A compile that counts against the budget.
#[derive(Debug)]
pub(crate) struct Ticket {
    process: ProcessCounts,
    /// Unloading returns the compile to the budget.
    returns: bool,
    held: AtomicBool,
}

impl Ticket {
    /// The program was unloaded: returns its compile to the budget on machines that do so.
    pub(crate) fn unloaded(&self) {
        if self.returns && self.held.swap(false, Ordering::Relaxed) {
            self.process.0.compiles.fetch_sub(1, Ordering::Relaxed);
            self.process.0.exhausted.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.unloaded();
    }
}

/// The place of a loaded program among those that the machine has room for; released on drop.
#[derive(Debug)]
pub(crate) struct LoadSlot(ProcessCounts);

impl Drop for LoadSlot {
    fn drop(&mut self) {
        self.0.0.loaded.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiles_count_until_they_are_given_back() {
        let process = ProcessCounts::default();
        let two = Limit(Some(2));
        let (a, b) = (process.compile(two, false).unwrap(), process.compile(two, true).unwrap());
        assert!(process.compile(two, true).is_none());
        process.exhaust();
        drop(a);
        assert_eq!((process.compiles(), process.is_exhausted()), (2, true), "this machine keeps what is unloaded");
        b.unloaded();
        b.unloaded();
        assert_eq!((process.compiles(), process.is_exhausted()), (1, false));
        drop(b);
        assert_eq!(process.compiles(), 1);
        assert!(process.compile(Limit(None), false).is_some());
    }

    #[test]
    fn slots_are_free_again_when_they_are_dropped() {
        let process = ProcessCounts::default();
        let slot = process.load(Limit(Some(1))).unwrap();
        assert!(process.load(Limit(Some(1))).is_none());
        drop(slot);
        assert!(process.load(Limit(Some(1))).is_some());
    }
}
