//! Scratch of a thread: grown once, then reused, so that an evaluation allocates nothing.

use std::cell::RefCell;

thread_local! {
    static SPARE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with `len` floats of arbitrary content. Calls may nest.
pub(crate) fn with<R>(len: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut memory = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if memory.len() < len {
        memory.resize(len, 0.0);
    }
    let result = body(&mut memory[..len]);
    SPARE.with_borrow_mut(|spare| spare.push(memory));
    result
}
