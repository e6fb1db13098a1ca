//! Events: counters that only grow, with a condition to wait on.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ferrane_device::backend::Event;
use ferrane_host::sync::lock;

/// A value that only grows; waiters block on the condition variable.
#[derive(Default)]
pub(crate) struct HostEvent {
    value: Mutex<u64>,
    raised: Condvar,
}

impl Event for HostEvent {
    fn value(&self) -> u64 {
        *lock(&self.value)
    }

    fn signal(&self, value: u64) {
        let mut current = lock(&self.value);
        *current = value.max(*current);
        self.raised.notify_all();
    }

    fn wait(&self, value: u64, timeout: Duration) -> bool {
        let start = Instant::now();
        let mut current = lock(&self.value);
        while *current < value {
            let Some(left) = timeout.checked_sub(start.elapsed()).filter(|d| !d.is_zero()) else { return false };
            current = self.raised.wait_timeout(current, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
