//! Shared events: counters of Metal or of IOSurface that requests wait for and raise (apple-runtime §6).

use super::class;
use super::foundation::List;
use super::object::Object;

class! {
    /// An event that is raised.
    SignalEvent = c"_ANESharedSignalEvent" {
        /// `event` is an `MTLSharedEvent` or an `IOSurfaceSharedEvent`; `kind` 0, 1 and 2 are accepted.
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
