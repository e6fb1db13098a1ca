//! Blocks: closures as Objective-C passes them. Only what completion handlers need, by the
//! published layout of blocks.
//!
//! A [`HandlerBlock`] lies on the stack of the caller; whoever keeps it copies it, which counts what it
//! holds, and lets go of that with the copy. The arguments of a request's handler are not
//! documented, so [`HandlerBlock::new`] reads none; [`HandlerBlock::with_status`] reads the first. A caller's
//! further arguments do no harm in any calling convention of an engine's machine.

use std::ffi::{c_int, c_ulong, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

use objc2::encode::{Encoding, RefEncode};

/// What a completion handler does.
pub trait Handler: Send + Sync + 'static {
    /// Called at the end of what it was given for, on a thread of the framework, with the status if
    /// the block is one that has it.
    fn ended(&self, status: Option<u32>);
}

/// The fixed part of every block with something to count.
#[repr(C)]
struct Descriptor {
    reserved: c_ulong,
    size: c_ulong,
    copy: unsafe extern "C" fn(*mut c_void, *const c_void),
    dispose: unsafe extern "C" fn(*const c_void),
}

type Invoke = unsafe extern "C" fn(*const c_void);
type WithStatus = unsafe extern "C" fn(*const c_void, u32);

/// A block that calls a handler, on the stack.
#[repr(C)]
pub struct HandlerBlock<'a> {
    isa: *const c_void,
    flags: c_int,
    reserved: c_int,
    invoke: Invoke,
    descriptor: *const Descriptor,
    /// One `Arc` of the handler, boxed behind a thin pointer by the caller.
    held: *const Held,
    borrowed: PhantomData<&'a Held>,
}

/// A handler behind a thin pointer.
pub struct Held(Box<dyn Handler>);

// SAFETY: the encoding of a block.
unsafe impl RefEncode for HandlerBlock<'_> {
    const ENCODING_REF: Encoding = Encoding::Block;
}

/// `BLOCK_HAS_COPY_DISPOSE`.
const COUNTED: c_int = 1 << 25;

static DESCRIPTOR: Descriptor =
    Descriptor { reserved: 0, size: size_of::<HandlerBlock<'static>>() as c_ulong, copy, dispose };

#[cfg(target_vendor = "apple")]
fn on_the_stack() -> *const c_void {
    unsafe extern "C" {
        #[link_name = "_NSConcreteStackBlock"]
        static CLASS: [*const c_void; 32];
    }
    // The address alone is taken.
    (&raw const CLASS).cast()
}

/// No class here: blocks are copied by hand.
#[cfg(not(target_vendor = "apple"))]
fn on_the_stack() -> *const c_void {
    std::ptr::null()
}

impl Held {
    /// Keeps a handler.
    pub fn new(handler: impl Handler) -> Arc<Held> {
        Arc::new(Held(Box::new(handler)))
    }
}

impl HandlerBlock<'_> {
    /// A block that calls a handler; good for as long as the caller has that, or until it is
    /// copied.
    pub fn new(held: &Arc<Held>) -> HandlerBlock<'_> {
        HandlerBlock::calling(held, invoke)
    }

    /// A block whose first argument is a status of 32 bits.
    pub fn with_status(held: &Arc<Held>) -> HandlerBlock<'_> {
        // SAFETY: whoever calls a block does so by the type that it was asked for with, which here
        // has the status.
        HandlerBlock::calling(held, unsafe { std::mem::transmute::<WithStatus, Invoke>(invoke_with_status) })
    }

    fn calling(held: &Arc<Held>, invoke: Invoke) -> HandlerBlock<'_> {
        let descriptor = &raw const DESCRIPTOR;
        let held = Arc::as_ptr(held);
        HandlerBlock {
            isa: on_the_stack(),
            flags: COUNTED,
            reserved: 0,
            invoke,
            descriptor,
            held,
            borrowed: PhantomData,
        }
    }
}

unsafe extern "C" fn invoke(block: *const c_void) {
    // SAFETY: called with the block or a copy of it, either of which has a count of the handler.
    let held = unsafe { &*(*block.cast::<HandlerBlock<'_>>()).held };
    held.0.ended(None);
}

unsafe extern "C" fn invoke_with_status(block: *const c_void, status: u32) {
    // SAFETY: as above.
    let held = unsafe { &*(*block.cast::<HandlerBlock<'_>>()).held };
    held.0.ended(Some(status));
}

unsafe extern "C" fn copy(_to: *mut c_void, from: *const c_void) {
    // SAFETY: the bytes were copied already; the copy has a count of its own.
    unsafe { Arc::increment_strong_count((*from.cast::<HandlerBlock<'_>>()).held) }
}

unsafe extern "C" fn dispose(block: *const c_void) {
    // SAFETY: called once for each copy.
    unsafe { Arc::decrement_strong_count((*block.cast::<HandlerBlock<'_>>()).held) }
}
