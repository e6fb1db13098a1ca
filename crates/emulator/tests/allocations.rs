//! An evaluation allocates nothing once it has run before. A binary of its own, for its allocator counts everybody's allocations.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrane_device::{Bindings, Device};
use ferrane_emulator::{Emulator, Options};
use ferrane_mil::{Builder, DataType, MilError, Type, ValueId};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the cheapest of many evaluations: rayon's queues grow by blocks now and then.
fn allocations(body: impl FnOnce(&mut Builder, ValueId) -> Result<ValueId, MilError>) -> usize {
    let mut b = Builder::new("main", "ios18");
    let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 64, 128, 128])).unwrap();
    let y = body(&mut b, x).unwrap();
    let program = b.finish(&[("y", y)]).unwrap();
    let device = Device::new(Emulator::new(Options::default()));
    let executable = device.load(&program, "").unwrap();
    let mut bindings = Bindings::new();
    let procedure = &executable.procedures()[0];
    for port in procedure.inputs.iter().chain(&procedure.outputs) {
        bindings = bindings.bind(&port.name, &device.surface(&port.layout).unwrap());
    }
    let request = executable.prepare(bindings).unwrap();
    // Every thread of the pool grows its scratch.
    for _ in 0..20 {
        request.evaluate().unwrap();
    }
    let once = || {
        let before = COUNT.load(Ordering::Relaxed);
        request.evaluate().unwrap();
        COUNT.load(Ordering::Relaxed) - before
    };
    (0..20).map(|_| once()).min().unwrap()
}

#[test]
fn an_evaluation_allocates_nothing() {
    let count = allocations(|b, x| {
        let t = b.transpose("t", x, &[0, 2, 1, 3])?;
        let s = b.silu("s", t)?;
        let sum = b.reduce_sum("sum", s, &[1], true)?;
        let m = b.mul("m", s, sum)?;
        let p = b.softmax("p", m, -1)?;
        let r = b.reduce_mean("r", p, &[-1], true)?;
        let c = b.sub("c", p, r)?;
        b.concat("y", &[c, p], 1)
    });
    assert_eq!(count, 0);
    // In the same test, for two at a time would count each other's.
    let count = allocations(|b, x| b.matmul("y", x, x, false, true));
    assert_eq!(count, 0);
}
