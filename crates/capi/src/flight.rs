//! Submitted runs of a kernel: the number in flight, the result of the last one, and the callback.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ferrane::ErrorKind;
use ferrane_host::sync::lock;

use crate::status::{CallFailure, FERRANE_OK, FerraneStatus, Result};

/// Called once when a submitted run ends, on a thread of the library. The arguments are the pointer
/// given to ferrane_submit, the status of the run, and the error text (empty after a success; valid
/// only during the call). It may read and write the kernel, submit it again and free it. It must
/// not wait for a kernel (ferrane_wait returns an error there), and it must return: no longjmp, no
/// C++ exception.
pub type FerraneDone = Option<unsafe extern "C" fn(user: *mut c_void, status: FerraneStatus, message: *const c_char)>;

/// A callback with its argument.
pub(crate) struct Callback {
    pub done: unsafe extern "C" fn(*mut c_void, FerraneStatus, *const c_char),
    pub user: *mut c_void,
}

// SAFETY: `user` is never dereferenced here. It is only passed to the caller's own function, whose
// documentation says that it runs on another thread.
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
        // SAFETY: `done` is the caller's function with this signature, which returns by the
        // contract of the interface; `text` outlives the call.
        unsafe { (self.done)(self.user, status, text.as_ptr()) };
        IN_CALLBACK.set(outer);
    }
}

#[derive(Default)]
struct FlightState {
    /// The number of submitted runs whose callback has not returned.
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
        // No code that can panic runs under this lock.
        lock(&self.state)
    }

    /// Counts a submitted run.
    pub(crate) fn begin(self: &Arc<Flights>) -> Flight {
        self.lock().running += 1;
        Flight(self.clone())
    }

    /// True while a run is in flight.
    pub(crate) fn any(&self) -> bool {
        self.lock().running > 0
    }

    /// Waits until no run is in flight; returns the result of the last one.
    pub(crate) fn wait(&self) -> Result<()> {
        if IN_CALLBACK.get() {
            return Err(CallFailure::of(
                ErrorKind::Busy,
                "a callback must not wait: the run that it waits for may be queued after it",
            ));
        }
        let mut state = self.lock();
        while state.running > 0 {
            state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.last.clone().unwrap_or_else(|| Err(CallFailure::argument("nothing was submitted")))
    }
}

/// A submitted run. It is counted until it is dropped, in every case.
pub(crate) struct Flight(Arc<Flights>);

impl Flight {
    /// Ends the run. Waiters return after the callback has returned, so they may free the data that
    /// it uses.
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
