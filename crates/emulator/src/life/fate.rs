//! What every evaluation of a program meets on the machine.

use ferrane_device::Error;

use super::words;

/// What comes of running a program that compiled.
#[derive(Default)]
pub(crate) struct Fate {
    /// Every evaluation fails so.
    pub fails: Option<EvaluationFailure>,
    /// One evaluation spoils the state of the process.
    pub poisons: bool,
}

/// A failure that is told at each evaluation.
pub(crate) struct EvaluationFailure {
    /// `None`: the engine does not come back.
    pub status: Option<u32>,
    pub why: String,
}

impl EvaluationFailure {
    pub(super) fn error(&self) -> Error {
        match self.status {
            Some(status) => words::evaluation(status, &self.why),
            None => words::timeout(&self.why),
        }
    }
}
