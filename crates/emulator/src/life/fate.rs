//! The fate of a program on the machine: what every evaluation of it meets.

use ferrane_device::Error;

use super::words;

/// The outcome of evaluating a program that compiled.
#[derive(Default)]
pub(crate) struct Fate {
    /// The failure of every evaluation, if any.
    pub fails: Option<EvaluationFailure>,
    /// An evaluation poisons the process.
    pub poisons: bool,
}

/// A failure of each evaluation.
pub(crate) struct EvaluationFailure {
    /// The status word; `None` if the engine hangs.
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
