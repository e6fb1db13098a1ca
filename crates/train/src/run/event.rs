//! The events that a session and its run emit.

use std::path::PathBuf;

use ferrane_llm::config::Config;
use serde::Serialize;

use super::Change;
use crate::metrics::{Efficiency, EnergySum, Record};

/// An event of a run. The command shows events on the terminal, or prints them with `--json`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A part of the data was encoded; the ids are kept for later runs. Emitted only by
    /// [`crate::session`].
    Encoding {
        /// Path of the data file.
        path: PathBuf,
        /// Bytes of the set's files that are done.
        done: u64,
        /// Bytes of all files of the set.
        total: u64,
    },
    /// Data, vocabulary and initial weights are loaded; the kernels are compiled next. Emitted only
    /// by [`crate::session`].
    Prepared {
        /// Sizes and options of the model.
        config: Box<Config>,
        /// Number of ids of the data, validation included.
        tokens: usize,
        /// Number of ids that the loss runs over.
        active: usize,
    },
    /// The kernels are compiled and the weights staged. Emitted only by [`crate::session`], and not
    /// for the reference, which has no kernels.
    Compiled {
        /// Number of loaded programs: one for each kernel, or for each kernel and layer if weights
        /// are constants.
        programs: usize,
        /// Time of building, compiling and loading the kernels, in seconds.
        seconds: f64,
        /// Bytes of all surfaces.
        surface_bytes: usize,
    },
    /// The run begins or continues.
    Started {
        /// Number of updates already done; 0 for a new run.
        step: u64,
        /// Number of updates of the whole run.
        steps: u64,
        /// Number of trained values.
        parameters: usize,
        /// Options that differ from those of the checkpoint.
        changes: Vec<Change>,
    },
    /// The gradients of one window were computed.
    Window {
        /// Number of windows of this update so far, this one included.
        done: usize,
        /// Number of windows of an update.
        of: usize,
        /// The window's mean loss in nats per token; `null` if it is not finite.
        loss: Option<f64>,
    },
    /// One update was done, or skipped.
    Update {
        /// Metrics of the update.
        record: Box<Record>,
        /// Number of updates skipped so far.
        skipped: u64,
        /// Estimated seconds until the end of the run, at the mean speed so far.
        seconds_left: f64,
    },
    /// The validation loss was measured.
    Validated {
        /// Number of updates done, skipped ones included.
        step: u64,
        /// Mean loss over the validation windows, in nats per token.
        loss: f64,
    },
    /// The model wrote a text.
    Sampled {
        /// Number of updates done, skipped ones included.
        step: u64,
        /// The text, which no prompt precedes.
        text: String,
    },
    /// The run was paused by its [`super::Control`].
    Paused {
        /// Number of updates done, skipped ones included.
        step: u64,
    },
    /// The run continues after a pause.
    Continued {
        /// Number of updates done, skipped ones included.
        step: u64,
    },
    /// A checkpoint is on the disk.
    Saved {
        /// Path of the checkpoint's folder.
        path: PathBuf,
        /// Number of updates done, skipped ones included.
        step: u64,
    },
    /// Something went wrong that does not end the run.
    Warning {
        /// The warning, without a full stop.
        text: String,
    },
    /// The run stopped on request and saved a checkpoint.
    Stopped {
        /// Number of updates done, skipped ones included.
        step: u64,
        /// The run's folder, for resuming it.
        folder: PathBuf,
    },
    /// The run ended, or stopped on request.
    Finished {
        /// Totals of the run.
        summary: Box<Summary>,
    },
}

impl Event {
    /// The event as a line of a log; `None` for those that records show already.
    pub fn note(&self) -> Option<String> {
        match self {
            Event::Started { step: 0, steps, .. } => Some(format!("the run begins, {steps} updates")),
            Event::Started { step, steps, changes, .. } => {
                let changes: String = changes.iter().map(|change| format!("; {change}")).collect();
                Some(format!("the run continues after update {step} of {steps}{changes}"))
            }
            Event::Saved { step, .. } => Some(format!("checkpoint of update {step} saved")),
            Event::Paused { step } => Some(format!("paused after update {step}")),
            Event::Continued { .. } => Some("continued".to_string()),
            Event::Warning { text } => Some(format!("warning: {text}")),
            _ => None,
        }
    }
}

/// Totals of a run, or of the part since it was resumed.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Number of updates done, skipped ones included.
    pub step: u64,
    /// Number of updates skipped because a loss or gradient was not finite.
    pub skipped: u64,
    /// Whether it was stopped before its last update.
    pub stopped: bool,
    /// Training loss of the last update with a finite loss.
    pub loss: Option<f64>,
    /// The step of the last validation, and its mean loss in nats per token.
    pub validation: Option<(u64, f64)>,
    /// Path of the newest checkpoint.
    pub checkpoint: PathBuf,
    /// Time of this part of the run, by kind of work.
    pub efficiency: Efficiency,
    /// What the computer drew in this part of the run until its last record, pauses excluded, for
    /// each domain that is metered. Domains overlap.
    pub energy: Vec<EnergySum>,
}
