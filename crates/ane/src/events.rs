//! Events as counters of the system, and the fences of a request: the events that it waits for and
//! those that it signals.
//!
//! There are two ways. The *engine* waits and signals: the events are part of the request
//! (`_ANESharedEvents`), which is then evaluated asynchronously; published measurements on an M1
//! Max found that it works. Or the *host* waits and signals around an ordinary request, which is
//! the only way for events of other devices. Neither has run on hardware through this crate.
//!
//! If the engine waits for an event that is never signaled, it keeps its surfaces indefinitely. So
//! after a timeout the guards stay with the request until its handler is called, and the surfaces
//! report that they are busy.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ferrane_device::backend::{Accesses, Event, Events};
use ferrane_device::{Bindings, Error, ErrorKind, Foreign, Result};
use ferrane_host::sync::lock;

use crate::bind::foundation::list;
use crate::bind::{Handler, HandlerBlock, Held, Request, SharedEvent, SharedEvents, SignalEvent, WaitEvent, Wrap as _};

/// The values of the option `fences`.
pub(crate) const WORDS: [(&str, Fencing); 3] =
    [("auto", Fencing::Auto), ("engine", Fencing::Engine), ("host", Fencing::Host)];

/// Who waits for events and signals them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fencing {
    /// The engine if the system and the events allow it, else the host.
    #[default]
    Auto,
    /// The engine, or an error with the reason why not.
    Engine,
    /// The host, around an ordinary request.
    Host,
}

/// A counter of the system.
pub(crate) struct EventCounter {
    object: SharedEvent,
    /// Held while the CPU compares and raises the value.
    raising: Mutex<()>,
}

impl EventCounter {
    /// A new counter.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if this system lacks the class or a method; the message names it.
    pub(crate) fn new() -> Result<EventCounter> {
        let none = || Error::new(ErrorKind::Unavailable, "the system makes no IOSurfaceSharedEvent");
        Ok(EventCounter { object: SharedEvent::new()?.ok_or_else(none)?, raising: Mutex::new(()) })
    }

    /// The system's object for requests.
    pub(crate) fn object(&self) -> &SharedEvent {
        &self.object
    }

    fn address(&self) -> usize {
        self.object.object().as_ptr() as usize
    }
}

impl Event for EventCounter {
    fn value(&self) -> u64 {
        // A missing method was reported when the event was created.
        self.object.value().unwrap_or(0)
    }

    fn signal(&self, value: u64) {
        let _raising = lock(&self.raising);
        if self.value() < value {
            let _ = self.object.set(value);
        }
    }

    fn wait(&self, value: u64, timeout: Duration) -> bool {
        // Zero milliseconds reportedly mean no limit.
        let milliseconds = u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1);
        self.value() >= value || self.object.wait(value, milliseconds).unwrap_or(false)
    }

    fn foreign(&self) -> Foreign {
        Foreign::SharedEvent(self.address())
    }
}

/// The counters of a device.
#[derive(Default)]
pub(crate) struct Counters(Mutex<Vec<Weak<EventCounter>>>);

impl Counters {
    /// The counter of an event, if it belongs to this device.
    fn known(&self, event: &Arc<dyn Event>) -> Option<Arc<EventCounter>> {
        let Foreign::SharedEvent(address) = event.foreign() else { return None };
        lock(&self.0).iter().filter_map(Weak::upgrade).find(|c| c.address() == address)
    }
}

impl Events for Counters {
    fn create(&self) -> Result<Arc<dyn Event>> {
        let counter = Arc::new(EventCounter::new()?);
        // Reports missing methods here, before the first use.
        counter.object.value()?;
        let mut all = lock(&self.0);
        all.retain(|c| c.strong_count() > 0);
        all.push(Arc::downgrade(&counter));
        Ok(counter)
    }
}

/// Events with the values to wait for or to signal.
type Values<E> = Vec<(Arc<E>, u64)>;

/// The waits and signals of a request.
pub(crate) enum Fences {
    /// Neither waits nor signals.
    None,
    /// The CPU waits before the request and signals after it.
    Host { waits: Values<dyn Event>, signals: Values<dyn Event>, timeout: Duration },
    /// The engine waits and signals.
    Engine(EngineFences),
}

/// Events that are part of a request.
pub(crate) struct EngineFences {
    events: SharedEvents,
    /// Kept as long as the engine may use them.
    signals: Values<EventCounter>,
    _waits: Values<EventCounter>,
    ended: Arc<Ended>,
    timeout: Duration,
}

impl Fences {
    /// The fences for bindings. `symbol` is that of the output whose completion is signaled; `note`
    /// receives the reason why the engine does not wait.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] with [`Fencing::Engine`] if something is missing.
    pub(crate) fn new(
        fencing: Fencing,
        counters: &Counters,
        bindings: &Bindings,
        symbol: u32,
        timeout: Duration,
        note: impl FnOnce(String),
    ) -> Result<Fences> {
        if bindings.waits().is_empty() && bindings.signals().is_empty() {
            return Ok(Fences::None);
        }
        let host = || Fences::Host { waits: bindings.waits().into(), signals: bindings.signals().into(), timeout };
        match fencing {
            Fencing::Host => Ok(host()),
            Fencing::Engine => EngineFences::new(counters, bindings, symbol, timeout).map(Fences::Engine),
            Fencing::Auto => Ok(EngineFences::new(counters, bindings, symbol, timeout).map_or_else(
                |error| {
                    note(format!("the host waits for events and raises them: {error}"));
                    host()
                },
                Fences::Engine,
            )),
        }
    }

    /// The events object for the request, if the engine uses it.
    pub(crate) fn shared(&self) -> Option<&SharedEvents> {
        match self {
            Fences::Engine(engine) => Some(&engine.events),
            _ => None,
        }
    }

    /// Sets the handler that the request requires.
    pub(crate) fn attach(&self, request: &Request) -> Result<()> {
        match self {
            Fences::Engine(engine) => {
                let held = Held::new(Told(engine.ended.clone()));
                request.on_end(&HandlerBlock::new(&held))
            }
            _ => Ok(()),
        }
    }

    /// Sends the request between its waits and its signals, and returns when it has ended.
    pub(crate) fn around(&self, accesses: &mut Accesses, send: impl FnOnce() -> Result<()>) -> Result<()> {
        match self {
            Fences::None => send(),
            Fences::Host { waits, signals, timeout } => {
                let start = Instant::now();
                for (event, value) in waits {
                    if !event.wait(*value, timeout.saturating_sub(start.elapsed())) {
                        return Err(nobody(*value, *timeout));
                    }
                }
                send()?;
                signals.iter().for_each(|(event, value)| event.signal(*value));
                Ok(())
            }
            Fences::Engine(engine) => engine.around(accesses, send),
        }
    }
}

fn nobody(value: u64, timeout: Duration) -> Error {
    Error::new(ErrorKind::Evaluate, format!("an event was not raised to {value} within {} s", timeout.as_secs_f32()))
}

impl EngineFences {
    fn new(counters: &Counters, bindings: &Bindings, symbol: u32, timeout: Duration) -> Result<EngineFences> {
        let unavailable = |why: &str| Error::new(ErrorKind::Unavailable, why.to_string());
        let known = |(event, value): &(Arc<dyn Event>, u64)| {
            let counter = counters.known(event).ok_or_else(|| unavailable("an event is not of this device"))?;
            Ok((counter, *value))
        };
        let waits: Values<EventCounter> = bindings.waits().iter().map(known).collect::<Result<_>>()?;
        let signals: Values<EventCounter> = bindings.signals().iter().map(known).collect::<Result<_>>()?;
        let nil = || unavailable("the framework takes no such event");
        let wait =
            |(c, value): &(Arc<EventCounter>, u64)| WaitEvent::with(*value, c.object().object())?.ok_or_else(nil);
        // Kind 0: all three known kinds are accepted, and none is documented.
        let signal = |(c, value): &(Arc<EventCounter>, u64)| {
            SignalEvent::with(*value, symbol, 0, c.object().object())?.ok_or_else(nil)
        };
        let signal_events = list(&signals.iter().map(signal).collect::<Result<Vec<_>>>()?)?;
        let wait_events = list(&waits.iter().map(wait).collect::<Result<Vec<_>>>()?)?;
        let events = SharedEvents::with(&signal_events, &wait_events)?.ok_or_else(nil)?;
        // A request with events but without a handler ends the process: both must exist.
        for method in crate::fenced() {
            method.check()?;
        }
        Ok(EngineFences { events, signals, _waits: waits, ended: Arc::default(), timeout })
    }

    fn around(&self, accesses: &mut Accesses, send: impl FnOnce() -> Result<()>) -> Result<()> {
        self.ended.begin()?;
        if let Err(error) = send() {
            self.ended.forget();
            return Err(error);
        }
        if !self.ended.wait(self.timeout, accesses) {
            let why = "the engine has not ended a request with events; `fences=host` waits on the host instead";
            let message = format!("{why}: {} s", self.timeout.as_secs_f32());
            return Err(Error::new(ErrorKind::Evaluate, message));
        }
        // The handler has no result; missing signals indicate a failure.
        match self.signals.iter().find(|(counter, value)| counter.value() < *value) {
            None => Ok(()),
            Some((_, value)) => {
                let message = format!("the engine ended the request and did not raise its event to {value}");
                Err(Error::new(ErrorKind::Evaluate, message))
            }
        }
    }
}

/// The state of an evaluation.
#[derive(Default)]
enum Stand {
    #[default]
    Idle,
    Sent,
    Done,
    /// Timed out on the host, while the engine still uses the surfaces.
    Abandoned(#[allow(dead_code, reason = "held until the engine releases them")] Accesses),
}

/// Called by the framework when an evaluation has ended.
#[derive(Default)]
struct Ended {
    stand: Mutex<Stand>,
    told: Condvar,
}

struct Told(Arc<Ended>);

impl Handler for Told {
    fn ended(&self, _: crate::bind::Ended) {
        let mut stand = lock(&self.0.stand);
        *stand = match *stand {
            Stand::Sent => Stand::Done,
            // The guards are released now.
            Stand::Idle | Stand::Done | Stand::Abandoned(_) => Stand::Idle,
        };
        self.0.told.notify_all();
    }
}

impl Ended {
    fn begin(&self) -> Result<()> {
        let mut stand = lock(&self.stand);
        if matches!(*stand, Stand::Abandoned(_)) {
            return Err(Error::new(ErrorKind::Busy, "the engine still waits for an event of this request"));
        }
        *stand = Stand::Sent;
        Ok(())
    }

    fn forget(&self) {
        *lock(&self.stand) = Stand::Idle;
    }

    /// Waits for the end; false after the timeout, when the engine keeps the guards.
    fn wait(&self, timeout: Duration, accesses: &mut Accesses) -> bool {
        let waiting = |stand: &mut Stand| matches!(stand, Stand::Sent);
        let (mut stand, _) =
            self.told.wait_timeout_while(lock(&self.stand), timeout, waiting).unwrap_or_else(PoisonError::into_inner);
        match *stand {
            Stand::Sent => {
                *stand = Stand::Abandoned(std::mem::take(accesses));
                false
            }
            _ => {
                *stand = Stand::Idle;
                true
            }
        }
    }
}
