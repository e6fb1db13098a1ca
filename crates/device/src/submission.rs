//! The end of a submitted request, for whoever waits for it: by blocking, or as a `Future`.
//!
//! One slot is filled once and emptied once. Whoever fills it wakes after the lock is given back,
//! so a waker may do what it likes.

use std::future::Future;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

use crate::backend::Stats;
use crate::sync::{Arc, Condvar, Mutex, lock};
use crate::{Error, ErrorKind, Result};

enum SubmissionState {
    /// In flight, with the task that asked last.
    Open(Option<Waker>),
    Filled(Result<Stats>),
    /// Told.
    Emptied,
}

impl SubmissionState {
    /// The result, which is told once.
    fn take(&mut self) -> Option<Result<Stats>> {
        match std::mem::replace(self, SubmissionState::Emptied) {
            SubmissionState::Filled(result) => Some(result),
            SubmissionState::Emptied => {
                Some(Err(Error::new(ErrorKind::System, "how the request ended was already told")))
            }
            open => {
                *self = open;
                None
            }
        }
    }
}

/// Where the result goes.
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

/// A request in flight. Wait for it, or await it: it is a `Future` for any executor, and needs none
/// of its own, because the thread that ends the request wakes the task. Dropping it leaves the
/// request running.
#[must_use = "wait for it, or its failure goes unseen"]
pub struct Submission(Arc<CompletionSlot>);

impl Submission {
    pub(crate) fn new(slot: Arc<CompletionSlot>) -> Submission {
        Submission(slot)
    }

    /// Waits until it is done.
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

    /// True when [`Submission::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        !matches!(*lock(&self.0.state), SubmissionState::Open(_))
    }
}

/// The result comes once; asked again, it is an [`ErrorKind::System`].
impl Future for Submission {
    type Output = Result<Stats>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Stats>> {
        // A waker's clone and drop are the executor's code: neither runs under the lock. Only the
        // task that asked last is woken.
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
