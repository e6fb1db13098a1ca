//! What a run reports while it is prepared and trains.

use std::path::PathBuf;

use ferrane_llm::config::Config;
use serde::Serialize;

use super::Change;
use crate::metrics::{Efficiency, Record};

/// Something happened. The terminal and `--json` are two ways to show these.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// Data, vocabulary and first weights are there; kernels are compiled next. Emitted by
    /// [`crate::session`] only.
    Prepared {
        /// The model.
        config: Box<Config>,
        /// Ids of the data, validation included.
        tokens: usize,
        /// Ids of the vocabulary that the loss runs over.
        active: usize,
    },
    /// The kernels are compiled and hold the weights. Emitted by [`crate::session`] only, and not by
    /// the reference, which has none.
    Compiled {
        /// Time of the compiles, in seconds.
        seconds: f64,
        /// Bytes of all surfaces.
        surface_bytes: usize,
    },
    /// The run begins or continues.
    Started {
        /// Updates already done.
        step: u64,
        /// Updates of the whole run.
        steps: u64,
        /// Trained values.
        parameters: usize,
        /// Options that differ from those of the checkpoint.
        changes: Vec<Change>,
    },
    /// One window was computed.
    Window {
        /// Windows of this update so far, this one included.
        done: usize,
        /// Windows of an update.
        of: usize,
        /// Its loss; `null` when not finite.
        loss: Option<f64>,
    },
    /// One update was done, or skipped.
    Update {
        /// What it found.
        record: Record,
        /// Updates skipped so far.
        skipped: u64,
        /// Seconds left at the speed so far.
        seconds_left: f64,
    },
    /// The validation loss was measured.
    Validated {
        /// Updates done.
        step: u64,
        /// Mean loss.
        loss: f64,
    },
    /// A checkpoint is on the disk.
    Saved {
        /// Its folder.
        path: PathBuf,
        /// Updates done.
        step: u64,
    },
    /// Something went wrong that does not end the run.
    Warning {
        /// What.
        text: String,
    },
    /// The run was asked to stop, and has saved.
    Stopped {
        /// Updates done.
        step: u64,
        /// The run's folder, from which it can be resumed.
        folder: PathBuf,
    },
    /// The run, or this part of it, is over.
    Finished {
        /// What it came to.
        summary: Box<Summary>,
    },
}

/// What a run, or the part of it since it was resumed, came to.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Updates done, skipped ones included.
    pub step: u64,
    /// Updates skipped.
    pub skipped: u64,
    /// True when it was asked to stop before its last update.
    pub stopped: bool,
    /// Training loss of the last update that had one.
    pub loss: Option<f64>,
    /// The last validation loss and the step after which it was measured.
    pub validation: Option<(u64, f64)>,
    /// The newest checkpoint.
    pub checkpoint: PathBuf,
    /// Where the time of this part went.
    pub efficiency: Efficiency,
}
