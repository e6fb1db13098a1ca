//! Shared events, and the blocks that are called at the end of an evaluation. Selectors and types
//! as in apple-runtime §6 and in published dumps; blocks by their published layout.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use ferrane_host::sync::lock;
use objc2::encode::{Encoding, RefEncode};
use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, Bool, NSObject};
use objc2::{ClassType, DefinedClass, Message as _, define_class, msg_send};

use crate::foundation::{Object, elements, given, make};

/// The value of an event, with a condition variable for waiters.
#[derive(Default)]
pub(crate) struct EventCounter {
    value: Mutex<u64>,
    changed: Condvar,
}

impl EventCounter {
    fn set(&self, value: u64) {
        *lock(&self.value) = value;
        self.changed.notify_all();
    }

    fn wait(&self, value: u64, timeout: Duration) -> bool {
        let now = lock(&self.value);
        let waiting = |now: &mut u64| *now < value;
        let (now, _) = self.changed.wait_timeout_while(now, timeout, waiting).unwrap_or_else(PoisonError::into_inner);
        *now >= value
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "IOSurfaceSharedEvent"]
    #[ivars = EventCounter]
    pub(crate) struct FakeSharedEvent;

    impl FakeSharedEvent {
        #[unsafe(method_id(init))]
        fn init(this: Allocated<Self>) -> Option<Retained<Self>> {
            let this = this.set_ivars(EventCounter::default());
            // SAFETY: `init` of NSObject returns the object that `alloc` made.
            Some(unsafe { msg_send![super(this), init] })
        }

        #[unsafe(method(signaledValue))]
        fn value(&self) -> u64 {
            *lock(&self.ivars().value)
        }

        #[unsafe(method(setSignaledValue:))]
        fn set_value(&self, value: u64) {
            self.ivars().set(value);
        }

        #[unsafe(method(waitUntilSignaledValue:timeoutMS:))]
        fn wait(&self, value: u64, milliseconds: u64) -> Bool {
            Bool::new(self.ivars().wait(value, Duration::from_millis(milliseconds)))
        }
    }
);

/// An event with the value to wait for or to signal.
pub(crate) struct Mark {
    pub(crate) value: u64,
    event: Object,
}

// SAFETY: the object is a counter of this fake, which locks, and reference counts are atomic.
unsafe impl Send for Mark {}

impl Mark {
    fn of(value: u64, event: Option<&AnyObject>) -> Option<Mark> {
        let event = event?;
        event.downcast_ref::<FakeSharedEvent>()?;
        Some(Mark { value, event: event.retain() })
    }

    fn counter(&self) -> Option<&EventCounter> {
        self.event.downcast_ref::<FakeSharedEvent>().map(|e| e.ivars())
    }

    fn again(&self) -> Mark {
        Mark { value: self.value, event: self.event.clone() }
    }

    /// Signals the event with a value.
    pub(crate) fn raise(&self, value: u64) {
        if let Some(counter) = self.counter() {
            counter.set(value);
        }
    }

    /// Waits as the engine does: without a timeout, except one that ends a faulty test.
    pub(crate) fn wait(&self) -> bool {
        self.counter().is_some_and(|c| c.wait(self.value, Duration::from_secs(60)))
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANESharedSignalEvent"]
    #[ivars = Mark]
    struct FakeSignalEvent;

    impl FakeSignalEvent {
        #[unsafe(method_id(signalEventWithValue:symbolIndex:eventType:sharedEvent:))]
        fn with(value: u64, _symbol: u32, kind: i64, event: Option<&AnyObject>) -> Option<Retained<FakeSignalEvent>> {
            given(|| {
                let mark = Mark::of(value, event).filter(|_| (0..=2).contains(&kind))?;
                Some(make!(FakeSignalEvent, mark))
            })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANESharedWaitEvent"]
    #[ivars = Mark]
    struct FakeWaitEvent;

    impl FakeWaitEvent {
        #[unsafe(method_id(waitEventWithValue:sharedEvent:))]
        fn with(value: u64, event: Option<&AnyObject>) -> Option<Retained<FakeWaitEvent>> {
            given(|| {
                let mark = Mark::of(value, event)?;
                Some(make!(FakeWaitEvent, mark))
            })
        }
    }
);

/// The waits and signals of a request.
#[derive(Default)]
pub(crate) struct Marks {
    pub(crate) signals: Vec<Mark>,
    pub(crate) waits: Vec<Mark>,
}

/// The marks of a list of events to signal, if it is one.
pub(crate) fn signals(list: Option<&AnyObject>) -> Option<Vec<Mark>> {
    elements(list)?.iter().map(|e| Some(e.downcast_ref::<FakeSignalEvent>()?.ivars().again())).collect()
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANESharedEvents"]
    #[ivars = Marks]
    pub(crate) struct FakeSharedEvents;

    impl FakeSharedEvents {
        #[unsafe(method_id(sharedEventsWithSignalEvents:waitEvents:))]
        fn with(signal_events: Option<&AnyObject>, wait_events: Option<&AnyObject>) -> Option<Retained<FakeSharedEvents>> {
            given(|| {
                let waited = |e: &Object| Some(e.downcast_ref::<FakeWaitEvent>()?.ivars().again());
                let waits = elements(wait_events)?.iter().map(waited).collect::<Option<_>>()?;
                Some(make!(FakeSharedEvents, Marks { signals: signals(signal_events)?, waits }))
            })
        }
    }
);

impl FakeSharedEvents {
    pub(crate) fn marks(&self) -> Marks {
        let again = |marks: &[Mark]| marks.iter().map(Mark::again).collect();
        Marks { signals: again(&self.ivars().signals), waits: again(&self.ivars().waits) }
    }
}

/// A block as a caller passes it: the fields that every reference-counted block begins with.
#[repr(C)]
pub(crate) struct Literal {
    isa: *const c_void,
    flags: c_int,
    reserved: c_int,
    invoke: unsafe extern "C" fn(*const c_void),
    descriptor: *const Parts,
}

#[repr(C)]
struct Parts {
    reserved: c_ulong,
    size: c_ulong,
    copy: unsafe extern "C" fn(*mut c_void, *const c_void),
    dispose: unsafe extern "C" fn(*const c_void),
}

// SAFETY: a reference to this type is a pointer to a block, which is what the encoding says.
unsafe impl RefEncode for Literal {
    const ENCODING_REF: Encoding = Encoding::Block;
}

/// Calls a block whose arguments are a status and a dictionary.
///
/// # Safety
/// `block` must be such a block or null.
pub(crate) unsafe fn tell(block: *const Literal, status: u32) {
    type Invoke = unsafe extern "C" fn(*const c_void, u32, *const AnyObject);
    // SAFETY: `block` is null or a live block with these arguments by this function's contract.
    unsafe {
        if let Some(literal) = block.as_ref() {
            let invoke = std::mem::transmute::<unsafe extern "C" fn(*const c_void), Invoke>(literal.invoke);
            invoke(block.cast(), status, std::ptr::null());
        }
    }
}

/// `BLOCK_HAS_COPY_DISPOSE`.
const COUNTED: c_int = 1 << 25;

/// A copy of a block, disposed of on drop.
pub(crate) struct Copied(Vec<u64>);

// SAFETY: the framework also calls and releases completion handlers on any thread.
unsafe impl Send for Copied {}

impl Copied {
    /// Calls a block whose arguments are an object and an error.
    pub(crate) fn answer(&self, found: Option<Object>, error: Option<Object>) {
        type Invoke = unsafe extern "C" fn(*const c_void, *const AnyObject, *const AnyObject);
        let pointer = |object: &Option<Object>| object.as_ref().map_or(std::ptr::null(), Retained::as_ptr);
        let block = self.0.as_ptr().cast::<Literal>();
        // SAFETY: the words are the copy of a block with these arguments, and the objects are alive
        // during the call.
        unsafe {
            let invoke = std::mem::transmute::<unsafe extern "C" fn(*const c_void), Invoke>((*block).invoke);
            invoke(block.cast(), pointer(&found), pointer(&error));
        }
    }

    /// Copies a block as `_Block_copy` does.
    ///
    /// # Safety
    /// `block` must be a live block or null.
    pub(crate) unsafe fn of(block: *const Literal) -> Option<Copied> {
        // SAFETY: `block` is null or a live block, whose descriptor has its size in bytes.
        unsafe {
            let literal = block.as_ref().filter(|b| b.flags & COUNTED != 0)?;
            let size = (*literal.descriptor).size as usize;
            let mut words = vec![0u64; size.div_ceil(8)];
            std::ptr::copy_nonoverlapping(block.cast::<u8>(), words.as_mut_ptr().cast(), size);
            ((*literal.descriptor).copy)(words.as_mut_ptr().cast(), block.cast());
            Some(Copied(words))
        }
    }

    /// Calls the block, which has no arguments.
    pub(crate) fn call(&self) {
        let block = self.0.as_ptr().cast::<Literal>();
        // SAFETY: the vector holds a complete copy of a block.
        unsafe { ((*block).invoke)(block.cast()) }
    }

    /// Another copy of the block.
    pub(crate) fn again(&self) -> Option<Copied> {
        // SAFETY: the vector holds a complete copy of a block.
        unsafe { Copied::of(self.0.as_ptr().cast()) }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let block = self.0.as_ptr().cast::<Literal>();
        // SAFETY: the vector holds a complete copy of a block, which is disposed of once.
        unsafe { ((*(*block).descriptor).dispose)(block.cast()) }
    }
}

pub(crate) fn register() {
    let _ = (FakeSharedEvent::class(), FakeSignalEvent::class(), FakeWaitEvent::class(), FakeSharedEvents::class());
}
