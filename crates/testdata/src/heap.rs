//! A global allocator that counts allocations and bytes, for tests that something allocates
//! nothing, or not more than it should.
//!
//! The allocations of all threads count, so such a test is a binary of its own with a single test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Bytes that are allocated, and the most that were so far.
static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

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

/// What `work` returns, and the most bytes that were allocated at once while it ran, in addition to
/// those before.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, PEAK.load(Ordering::Relaxed) - before)
}

#[allow(unsafe_code)]
// SAFETY: every call is passed to the system's allocator unchanged; the counters are statics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: `layout` has a size that is not zero, as the caller of `alloc` guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `place` is from `alloc` above with this `layout`, hence from `System`.
        unsafe { System.dealloc(place, layout) }
    }
}
