//! The queue of a device: one thread that runs submitted requests in order.
//!
//! The thread starts with the first submission and ends when the device and all that came from it are gone. A panic in a request
//! is a bug of ours; it is turned into that request's error, so that nobody waits for ever.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use ferrane_device::backend::{Accesses, Completion, Done, Stats};
use ferrane_device::{Error, ErrorKind, Result};

/// What can be queued.
pub(crate) trait Run: Send + Sync {
    fn run(&self, accesses: &mut Accesses) -> Result<Stats>;
}

struct Job {
    request: Arc<dyn Run>,
    accesses: Accesses,
    done: Done,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Queued and running.
    in_flight: usize,
    started: bool,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue. Dropping it lets the thread finish what is queued and end.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    depth: usize,
}

impl Queue {
    pub(crate) fn new(depth: usize) -> Queue {
        Queue { shared: Arc::default(), depth: depth.max(1) }
    }

    /// Queues a request.
    pub(crate) fn submit(
        &self,
        request: Arc<dyn Run>,
        accesses: Accesses,
        done: Done,
    ) -> std::result::Result<(), (Error, Accesses)> {
        let mut state = self.shared.lock();
        if state.in_flight >= self.depth {
            let message = format!("{} requests are in flight, the most that the profile allows", state.in_flight);
            return Err((Error::new(ErrorKind::QueueFull, message), accesses));
        }
        if !state.started {
            let shared = self.shared.clone();
            let spawned = thread::Builder::new().name("ferrane-emulator".into()).spawn(move || serve(&shared));
            if let Err(e) = spawned {
                let error = Error::new(ErrorKind::System, "no thread for the emulator's queue").with_source(e);
                return Err((error, accesses));
            }
            state.started = true;
        }
        state.in_flight += 1;
        state.jobs.push_back(Job { request, accesses, done });
        drop(state);
        self.shared.changed.notify_one();
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

fn serve(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        let job = loop {
            if let Some(job) = state.jobs.pop_front() {
                break job;
            }
            if state.closed {
                return;
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        let Job { request, mut accesses, done } = job;
        let result = catch_unwind(AssertUnwindSafe(|| request.run(&mut accesses)))
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Evaluate, "the emulator failed inside; this is a bug")));
        shared.lock().in_flight -= 1;
        // Whoever is told may count what is loaded, or drop the device: nothing is held here any more.
        drop(request);
        let _ = catch_unwind(AssertUnwindSafe(|| done(Completion { accesses, result })));
    }
}
