//! Locks, counters and threads: those of std, or those of loom where its models run (CONTRIBUTING.md).

#[cfg(all(test, loom))]
pub(crate) use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};

/// Takes a lock. A panic elsewhere leaves nothing half-done in what the locks of this crate guard.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
