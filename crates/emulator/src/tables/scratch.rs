//! Scratch memory of each thread: grown once and then reused, so that an evaluation allocates
//! nothing.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_device::{Error, ErrorKind, Result};

thread_local! {
    static SPARE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with `len` floats of arbitrary content. Calls may nest.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`]; then `body` is not called.
pub(crate) fn with<R>(len: usize, body: impl FnOnce(&mut [f32]) -> R) -> Result<R> {
    let mut memory = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    let more = len.saturating_sub(memory.len());
    if more > 0 {
        memory.try_reserve_exact(more).map_err(|_| missing())?;
        memory.resize(len, 0.0);
    }
    let result = body(&mut memory[..len]);
    SPARE.with_borrow_mut(|spare| spare.push(memory));
    Ok(result)
}

fn missing() -> Error {
    Error::new(ErrorKind::OutOfMemory, "no memory for a step's scratch")
}

/// Records whether all tasks of a step got their scratch.
#[derive(Default)]
pub(crate) struct Tasks(AtomicBool);

impl Tasks {
    /// [`with`], called in a task; a failure is recorded.
    pub(crate) fn with(&self, len: usize, body: impl FnOnce(&mut [f32])) {
        if with(len, body).is_err() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Call this after the last task.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if a task got no scratch.
    pub(crate) fn end(self) -> Result<()> {
        if self.0.into_inner() { Err(missing()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_that_cannot_be_had_is_an_error() {
        for len in [1 << 45, usize::MAX / 2] {
            assert_eq!(with(len, |_| ()).unwrap_err().kind(), ErrorKind::OutOfMemory);
            let tasks = Tasks::default();
            tasks.with(4, |memory| memory.fill(1.0));
            tasks.with(len, |_| unreachable!());
            assert_eq!(tasks.end().unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
        assert_eq!(with(8, |memory| memory.len()).unwrap(), 8);
    }
}
