//! Submitted runs of a kernel: how many are in flight, how the last one ended, and the callback.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ferrane::ErrorKind;
use ferrane_host::sync::lock;

use crate::status::{CallFailure, FERRANE_OK, FerraneStatus, Result};

/// Called once when a submitted run ends, on a thread of the library: with what was given to
/// ferrane_submit, how the run went, and what failed (empty text if nothing did; valid during the
/// call only). It may read and write the kernel, submit it again and free it. It must not wait for
/// a kernel (ferrane_wait is an error there), and must return: no longjmp, no C++ exception.
pub type FerraneDone = Option<unsafe extern "C" fn(user: *mut c_void, status: FerraneStatus, message: *const c_char)>;

/// A callback with what it is called with.
pub(crate) struct Callback {
    pub done: unsafe extern "C" fn(*mut c_void, FerraneStatus, *const c_char),
    pub user: *mut c_void,
}

// SAFETY: `user` is never followed here. It is only given back to the caller's own function, and
// the caller is told that this happens on another thread.
unsafe impl Send for Callback {}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

impl Callback {
    fn call(self, outcome: &Result<()>) {
        let (status, text) = match outcome {
            Ok(()) => (FERRANE_OK, Default::default()),
            Err(failure) => (failure.status, failure.c_text()),
        };
        let outer = IN_CALLBACK.replace(true);
        // SAFETY: the function is the caller's and of this signature, and returns as promised; the
        // text lives until then.
        unsafe { (self.done)(self.user, status, text.as_ptr()) };
        IN_CALLBACK.set(outer);
    }
}

#[derive(Default)]
struct FlightState {
    /// Submitted runs whose callback has not returned.
    running: usize,
    last: Option<Result<()>>,
}

/// The submitted runs of one kernel.
#[derive(Default)]
pub(crate) struct Flights {
    state: Mutex<FlightState>,
    landed: Condvar,
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, FlightState> {
        // Nothing that can panic runs under this lock.
        lock(&self.state)
    }

    /// One more.
    pub(crate) fn begin(self: &Arc<Flights>) -> Flight {
        self.lock().running += 1;
        Flight(self.clone())
    }

    /// True while one is in flight.
    pub(crate) fn any(&self) -> bool {
        self.lock().running > 0
    }

    /// Waits until none is in flight; gives how the last one ended.
    pub(crate) fn wait(&self) -> Result<()> {
        if IN_CALLBACK.get() {
            return Err(CallFailure::of(
                ErrorKind::Busy,
                "a callback must not wait: what it waits for may be queued behind it",
            ));
        }
        let mut state = self.lock();
        while state.running > 0 {
            state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.last.clone().unwrap_or_else(|| Err(CallFailure::argument("nothing was submitted")))
    }
}

/// A submitted run. It counts until it is dropped, whatever happens in between.
pub(crate) struct Flight(Arc<Flights>);

impl Flight {
    /// The run has ended. Whoever waits is told after the callback has returned, so that what it
    /// uses can be freed then.
    pub(crate) fn end(self, outcome: Result<()>, callback: Option<Callback>) {
        self.0.lock().last = Some(outcome.clone());
        if let Some(callback) = callback {
            callback.call(&outcome);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.landed.notify_all();
    }
}
