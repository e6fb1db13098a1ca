//! Objective-C blocks for completion handlers, by the published layout of blocks.
//!
//! A [`HandlerBlock`] is on the caller's stack; a callee that keeps it copies it, which retains the
//! handler, and releases the handler with the copy. The arguments of a request's handler are not
//! documented, so [`HandlerBlock::new`] reads none; [`HandlerBlock::with_status`] and
//! [`HandlerBlock::with_answer`] read those that their methods declare.
//! Additional arguments are harmless in the calling conventions of all machines with an engine.

use std::ffi::{c_int, c_ulong, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

use objc2::encode::{Encoding, RefEncode};
use objc2::runtime::AnyObject;

use super::object::{Object, retained};

/// The action of a completion handler.
pub trait Handler: Send + Sync + 'static {
    /// Called on a thread of the framework when the operation has ended.
    fn ended(&self, with: Ended);
}

/// What a block receives.
pub enum Ended {
    /// Nothing that is known.
    Plain,
    /// The compiler's status; 0 is success.
    Status(u32),
    /// The object that was asked for, or the error.
    Answer(Option<Object>, Option<Object>),
}

/// The constant part of every block that is reference-counted.
#[repr(C)]
struct Descriptor {
    reserved: c_ulong,
    size: c_ulong,
    copy: unsafe extern "C" fn(*mut c_void, *const c_void),
    dispose: unsafe extern "C" fn(*const c_void),
}

type Invoke = unsafe extern "C" fn(*const c_void);
type WithStatus = unsafe extern "C" fn(*const c_void, u32);
type WithAnswer = unsafe extern "C" fn(*const c_void, *mut AnyObject, *mut AnyObject);

/// A block on the stack that calls a handler.
#[repr(C)]
pub struct HandlerBlock<'a> {
    isa: *const c_void,
    flags: c_int,
    reserved: c_int,
    invoke: Invoke,
    descriptor: *const Descriptor,
    /// One reference of the handler's `Arc`, owned by the caller.
    held: *const Held,
    borrowed: PhantomData<&'a Held>,
}

/// A handler boxed once more, so that a thin pointer refers to it.
pub struct Held(Box<dyn Handler>);

// SAFETY: a reference to this type is a pointer to a block, which is what the encoding says.
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
    // Only the address is used.
    (&raw const CLASS).cast()
}

/// The symbol does not exist here: blocks are copied by hand.
#[cfg(not(target_vendor = "apple"))]
fn on_the_stack() -> *const c_void {
    std::ptr::null()
}

impl Held {
    /// Boxes a handler for use in blocks.
    pub fn new(handler: impl Handler) -> Arc<Held> {
        Arc::new(Held(Box::new(handler)))
    }
}

impl HandlerBlock<'_> {
    /// A block that calls a handler. It is valid as long as the caller keeps the handler, or until
    /// it is copied.
    pub fn new(held: &Arc<Held>) -> HandlerBlock<'_> {
        HandlerBlock::calling(held, invoke)
    }

    /// A block whose first argument is a 32-bit status.
    pub fn with_status(held: &Arc<Held>) -> HandlerBlock<'_> {
        // SAFETY: a callee invokes a block with the type that the method declares, which here has
        // the status as its first argument after the block.
        HandlerBlock::calling(held, unsafe { std::mem::transmute::<WithStatus, Invoke>(invoke_with_status) })
    }

    /// A block whose arguments are an object and an `NSError`, one of which is nil.
    pub fn with_answer(held: &Arc<Held>) -> HandlerBlock<'_> {
        // SAFETY: as in `with_status`; here the method declares two objects.
        HandlerBlock::calling(held, unsafe { std::mem::transmute::<WithAnswer, Invoke>(invoke_with_answer) })
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
    // SAFETY: `block` is a `HandlerBlock` or a copy of it; either one holds a reference of the
    // handler, so `held` is valid during the call.
    let held = unsafe { &*(*block.cast::<HandlerBlock<'_>>()).held };
    held.0.ended(Ended::Plain);
}

unsafe extern "C" fn invoke_with_status(block: *const c_void, status: u32) {
    // SAFETY: as in `invoke`: `block` holds a reference of the handler during the call.
    let held = unsafe { &*(*block.cast::<HandlerBlock<'_>>()).held };
    held.0.ended(Ended::Status(status));
}

unsafe extern "C" fn invoke_with_answer(block: *const c_void, found: *mut AnyObject, error: *mut AnyObject) {
    // SAFETY: as in `invoke`; the objects are nil or alive during the call.
    let (held, found, error) =
        unsafe { (&*(*block.cast::<HandlerBlock<'_>>()).held, retained(found), retained(error)) };
    held.0.ended(Ended::Answer(found, error));
}

unsafe extern "C" fn copy(_to: *mut c_void, from: *const c_void) {
    // SAFETY: `from` is a live block, so `held` came from `Arc::into_raw` and has a count; the
    // copy, whose bytes are already written, gets a count of its own.
    unsafe { Arc::increment_strong_count((*from.cast::<HandlerBlock<'_>>()).held) }
}

unsafe extern "C" fn dispose(block: *const c_void) {
    // SAFETY: called once for each copy, so it releases the count that `copy` added.
    unsafe { Arc::decrement_strong_count((*block.cast::<HandlerBlock<'_>>()).held) }
}
