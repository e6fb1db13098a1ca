//! The completion of a submitted request: by blocking, or as a `Future`.
//!
//! A slot is filled once and emptied once. Filling it wakes the waiter after the lock is released,
//! so a waker may run arbitrary code.

use std::future::Future;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

use crate::backend::Stats;
use crate::sync::{Arc, Condvar, Mutex, lock};
use crate::{Error, ErrorKind, Result};

enum SubmissionState {
    /// In flight, with the waker of the task that polled last.
    Open(Option<Waker>),
    Filled(Result<Stats>),
    /// The result was taken.
    Emptied,
}

impl SubmissionState {
    /// Takes the result, which is returned once.
    fn take(&mut self) -> Option<Result<Stats>> {
        match std::mem::replace(self, SubmissionState::Emptied) {
            SubmissionState::Filled(result) => Some(result),
            SubmissionState::Emptied => {
                Some(Err(Error::new(ErrorKind::System, "the result of the request was already taken")))
            }
            open => {
                *self = open;
                None
            }
        }
    }
}

/// The slot for the result of a request.
pub(crate) struct CompletionSlot {
    state: Mutex<SubmissionState>,
    filled: Condvar,
}

impl CompletionSlot {
    pub(crate) fn new() -> Arc<CompletionSlot> {
        Arc::new(CompletionSlot { state: Mutex::new(SubmissionState::Open(None)), filled: Condvar::new() })
    }

    pub(crate) fn fill(&self, result: Result<Stats>) {
        let before = std::mem::replace(&mut *lock(&self.state), SubmissionState::Filled(result));
        self.filled.notify_all();
        if let SubmissionState::Open(Some(waker)) = before {
            waker.wake();
        }
    }
}

/// A request in flight. Wait for it or await it: it is a `Future` that works with any executor,
/// because the thread that completes the request wakes the task. Dropping it leaves the request
/// running.
#[must_use = "wait for it, or its failure is lost"]
pub struct Submission(Arc<CompletionSlot>);

impl Submission {
    pub(crate) fn new(slot: Arc<CompletionSlot>) -> Submission {
        Submission(slot)
    }

    /// Waits until the request is done.
    ///
    /// # Errors
    /// The evaluation failed.
    pub fn wait(self) -> Result<Stats> {
        let mut state = lock(&self.0.state);
        loop {
            if let Some(result) = state.take() {
                return result;
            }
            state = self.0.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// True if [`Submission::wait`] would return immediately.
    pub fn is_done(&self) -> bool {
        !matches!(*lock(&self.0.state), SubmissionState::Open(_))
    }
}

/// The result is returned once; polling again returns an [`ErrorKind::System`].
impl Future for Submission {
    type Output = Result<Stats>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Stats>> {
        // A waker's clone and drop are the executor's code: neither runs under the lock. Only the
        // task that polled last is woken.
        let waker = context.waker().clone();
        let mut state = lock(&self.0.state);
        if let Some(result) = state.take() {
            return Poll::Ready(result);
        }
        let before = std::mem::replace(&mut *state, SubmissionState::Open(Some(waker)));
        drop(state);
        drop(before);
        Poll::Pending
    }
}
