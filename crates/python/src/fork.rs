//! Processes that were forked: threads do not survive a fork, so what waits for them would wait
//! for ever.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::error::failed;

/// Whether this process has used the library, whose threads may run since.
static USED: AtomicBool = AtomicBool::new(false);
/// Whether it was forked from one that had.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Python calls this in the child of each fork.
#[pyfunction]
pub fn forked() {
    FORKED.fetch_or(USED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Runs `work` without the interpreter's lock.
///
/// # Errors
/// In a process whose threads are missing.
pub fn unlocked<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(failed(
            "this process was forked after Ferrane had been used, and threads do not survive a fork; start processes \
             with multiprocessing.get_context(\"spawn\")",
        ));
    }
    USED.store(true, Ordering::Relaxed);
    Ok(py.detach(work))
}
