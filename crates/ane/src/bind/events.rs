//! Shared events: counters that requests wait for and signal (apple-runtime §6).

use super::class;
use super::foundation::List;
use super::object::Object;

class! {
    /// A counter shared between processors. An `MTLSharedEvent` is also one, so the GPU can wait
    /// for a value that the engine signals.
    SharedEvent = c"IOSurfaceSharedEvent" {
        /// A new counter with the value 0.
        pub make new() -> Option<SharedEvent> = c"init", "@@:";
        /// The current value.
        pub method value() -> u64 = c"signaledValue", "Q@:";
        /// Sets the value; waiting threads may see it immediately.
        pub method set(value: u64) -> () = c"setSignaledValue:", "v@:Q";
        /// Waits until the value has reached `value`, at most `milliseconds`; false after a
        /// timeout.
        pub method wait(value: u64, milliseconds: u64) -> bool = c"waitUntilSignaledValue:timeoutMS:", "B@:QQ";
    }
}

class! {
    /// An event that a request signals.
    SignalEvent = c"_ANESharedSignalEvent" {
        /// `event` is an `MTLSharedEvent` or an `IOSurfaceSharedEvent`; the kinds 0, 1 and 2 are
        /// accepted.
        pub class with(value: u64, symbol: u32, kind: i64, event: &Object) -> Option<SignalEvent> = c"signalEventWithValue:symbolIndex:eventType:sharedEvent:", "@@:QIq@";
    }
}

class! {
    /// An event that a request waits for.
    WaitEvent = c"_ANESharedWaitEvent" {
        /// Waits until `event` has reached `value`.
        pub class with(value: u64, event: &Object) -> Option<WaitEvent> = c"waitEventWithValue:sharedEvent:", "@@:Q@";
    }
}

class! {
    /// The events of a request.
    SharedEvents = c"_ANESharedEvents" {
        /// Takes lists of [`SignalEvent`]s and of [`WaitEvent`]s.
        pub class with(signals: &List, waits: &List) -> Option<SharedEvents> = c"sharedEventsWithSignalEvents:waitEvents:", "@@:@@";
    }
}
