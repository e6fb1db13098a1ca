//! A global allocator that counts allocations, for tests that something allocates nothing.
//!
//! The allocations of all threads count, so such a test is a binary of its own with a single test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with a counter. A test declares it as its `#[global_allocator]`.
pub struct Counting;

/// The number of allocations since the process started.
pub fn taken() -> usize {
    TAKEN.load(Ordering::Relaxed)
}

/// The number of allocations that `work` makes.
pub fn of(work: impl FnOnce()) -> usize {
    let before = taken();
    work();
    taken() - before
}

#[allow(unsafe_code)]
// SAFETY: every call is passed to the system's allocator unchanged; the counter is a static.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `layout` has a size that is not zero, as the caller of `alloc` guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: `place` is from `alloc` above with this `layout`, hence from `System`.
        unsafe { System.dealloc(place, layout) }
    }
}
