//! Shared events: counters that requests wait for and raise (apple-runtime §6).

use super::class;
use super::foundation::List;
use super::object::Object;

class! {
    /// A counter that processors share. An `MTLSharedEvent` is one too, so the GPU can wait for
    /// what the engine raises.
    SharedEvent = c"IOSurfaceSharedEvent" {
        /// A new one, at 0.
        pub make new() -> Option<SharedEvent> = c"init", "@@:";
        /// Its value.
        pub method value() -> u64 = c"signaledValue", "Q@:";
        /// Sets its value, which may be seen by whoever waits at once.
        pub method set(value: u64) -> () = c"setSignaledValue:", "v@:Q";
        /// Waits until it has reached `value`, at most so many milliseconds; false after them.
        pub method wait(value: u64, milliseconds: u64) -> bool = c"waitUntilSignaledValue:timeoutMS:", "B@:QQ";
    }
}

class! {
    /// An event that is raised.
    SignalEvent = c"_ANESharedSignalEvent" {
        /// `event` is an `MTLSharedEvent` or an `IOSurfaceSharedEvent`; `kind` 0, 1 and 2 are
        /// accepted.
        pub class with(value: u64, symbol: u32, kind: i64, event: &Object) -> Option<SignalEvent> = c"signalEventWithValue:symbolIndex:eventType:sharedEvent:", "@@:QIq@";
    }
}

class! {
    /// An event that is waited for.
    WaitEvent = c"_ANESharedWaitEvent" {
        /// Until `event` has reached `value`.
        pub class with(value: u64, event: &Object) -> Option<WaitEvent> = c"waitEventWithValue:sharedEvent:", "@@:Q@";
    }
}

class! {
    /// The events of a request.
    SharedEvents = c"_ANESharedEvents" {
        /// Lists of [`SignalEvent`]s and of [`WaitEvent`]s.
        pub class with(signals: &List, waits: &List) -> Option<SharedEvents> = c"sharedEventsWithSignalEvents:waitEvents:", "@@:@@";
    }
}
