//! Locks, counters and threads: std's, or loom's for its models (CONTRIBUTING.md).

#[cfg(all(test, loom))]
pub(crate) use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, atomic},
    thread,
};

#[cfg(not(all(test, loom)))]
pub(crate) use ferrane_host::sync::lock;

/// Locks a mutex of loom and ignores poisoning, as [`ferrane_host::sync::lock`] does.
#[cfg(all(test, loom))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
