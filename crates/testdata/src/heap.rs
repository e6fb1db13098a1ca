//! A heap that counts what is taken from it, for tests that something allocates nothing.
//!
//! Everybody's allocations count, of whichever thread: such a test is a binary of its own, with one
//! test in it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The system's heap, counted. A test makes it its `#[global_allocator]`.
pub struct Counting;

/// Allocations so far.
pub fn taken() -> usize {
    TAKEN.load(Ordering::Relaxed)
}

/// How many allocations `work` makes.
pub fn of(work: impl FnOnce()) -> usize {
    let before = taken();
    work();
    taken() - before
}

#[allow(unsafe_code)]
// SAFETY: every call goes to the system's heap as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(place, layout) }
    }
}
