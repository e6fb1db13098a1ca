//! A queue of submitted requests. One thread evaluates them in order, for backends whose own call
//! is synchronous.
//!
//! The thread starts with the first submission and ends with the queue, after the queued requests.
//! A panic in an evaluation is a bug of the backend; it becomes that request's error, so its
//! waiters return and later requests run. Before the result of a request is reported, its slot in
//! the queue is free and the queue has dropped it: a waiter may submit another request, unload the
//! program, or count what is loaded.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use crate::backend::{Accesses, Completion, Done, Prepared};
use crate::sync::{Arc, Condvar, Mutex, lock, thread};
use crate::{Error, ErrorKind};

struct QueuedRequest {
    request: std::sync::Arc<dyn Prepared>,
    accesses: Accesses,
    done: Done,
}

struct QueueState {
    jobs: VecDeque<QueuedRequest>,
    /// The number of queued and running requests.
    in_flight: usize,
    started: bool,
    closed: bool,
}

struct QueueContext {
    state: Mutex<QueueState>,
    changed: Condvar,
}

/// The queue. Dropping it lets the thread finish the queued requests and end.
pub struct Queue {
    shared: Arc<QueueContext>,
    thread: &'static str,
    depth: usize,
}

impl Queue {
    /// A queue for at most `depth` requests (at least one), queued and running; `thread` is the
    /// name of its thread.
    pub fn new(thread: &'static str, depth: usize) -> Queue {
        let state = QueueState { jobs: VecDeque::new(), in_flight: 0, started: false, closed: false };
        let shared = QueueContext { state: Mutex::new(state), changed: Condvar::new() };
        Queue { shared: Arc::new(shared), thread, depth: depth.max(1) }
    }

    /// Queues a request for [`Prepared::evaluate`]; a backend can implement [`Prepared::submit`]
    /// with it.
    ///
    /// # Errors
    /// [`ErrorKind::QueueFull`], or [`ErrorKind::System`] if the thread cannot be started. The
    /// accesses are returned, and `done` is not called.
    pub fn submit(
        &self,
        request: std::sync::Arc<dyn Prepared>,
        accesses: Accesses,
        done: Done,
    ) -> std::result::Result<(), (Error, Accesses)> {
        let mut state = lock(&self.shared.state);
        if state.in_flight >= self.depth {
            let message = format!("{} requests are in flight, the most that the queue accepts", state.in_flight);
            return Err((Error::new(ErrorKind::QueueFull, message), accesses));
        }
        if !state.started {
            let shared = self.shared.clone();
            let spawned = thread::Builder::new().name(self.thread.into()).spawn(move || serve(&shared));
            if let Err(e) = spawned {
                return Err((Error::new(ErrorKind::System, "no thread for the queue").with_source(e), accesses));
            }
            state.started = true;
        }
        state.in_flight += 1;
        state.jobs.push_back(QueuedRequest { request, accesses, done });
        drop(state);
        self.shared.changed.notify_one();
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        lock(&self.shared.state).closed = true;
        self.shared.changed.notify_all();
    }
}

fn serve(shared: &QueueContext) {
    loop {
        let mut state = lock(&shared.state);
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
        let QueuedRequest { request, mut accesses, done } = job;
        let result = catch_unwind(AssertUnwindSafe(|| request.evaluate(&mut accesses)))
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Evaluate, "the backend failed inside; this is a bug")));
        // Dropping the request may drop the program, and with it the device and this queue.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(request)));
        lock(&shared.state).in_flight -= 1;
        let _ = catch_unwind(AssertUnwindSafe(|| done(Completion { accesses, result })));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Weak;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;
    use crate::Result;
    use crate::backend::Stats;

    /// Waits for a message, then panics if the message says so.
    struct BlockedStep(Mutex<Receiver<bool>>);

    impl Prepared for BlockedStep {
        fn evaluate(&self, _: &mut Accesses) -> Result<Stats> {
            if lock(&self.0).recv_timeout(Duration::from_secs(10)).unwrap_or(true) {
                panic!("on purpose");
            }
            Ok(Stats::default())
        }

        fn submit(self: Arc<Self>, accesses: Accesses, _: Done) -> std::result::Result<(), (Error, Accesses)> {
            Err((Error::new(ErrorKind::System, "a step is given to the queue itself"), accesses))
        }
    }

    #[test]
    fn a_job_that_panics_ends_nothing_but_itself_and_the_told_find_nothing_held() {
        let queue = Queue::new("test", 2);
        let (tell, told) = channel();
        let submit = |queue: &Queue| {
            let (go, gone) = channel();
            let step: Arc<BlockedStep> = Arc::new(BlockedStep(Mutex::new(gone)));
            let held: Weak<BlockedStep> = Arc::downgrade(&step);
            let tell = tell.clone();
            let done = move |completion: Completion| {
                let _ = tell.send((completion.result.map(drop), held.strong_count()));
            };
            queue.submit(step, Accesses::default(), Box::new(done)).map(|()| go).map_err(|(error, _)| error.kind())
        };
        let (first, second) = (submit(&queue).unwrap(), submit(&queue).unwrap());
        assert_eq!(submit(&queue).map(drop), Err(ErrorKind::QueueFull));
        first.send(true).unwrap();
        let (result, held) = told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!((result.unwrap_err().kind(), held), (ErrorKind::Evaluate, 0));
        // A slot is free as soon as one result was reported.
        let third = submit(&queue).unwrap();
        assert_eq!(submit(&queue).map(drop), Err(ErrorKind::QueueFull));
        // Requests that are queued when the queue is dropped still run.
        second.send(false).unwrap();
        drop(queue);
        third.send(false).unwrap();
        for _ in 0..2 {
            let (result, held) = told.recv_timeout(Duration::from_secs(10)).unwrap();
            assert!(result.is_ok());
            assert_eq!(held, 0);
        }
    }
}
