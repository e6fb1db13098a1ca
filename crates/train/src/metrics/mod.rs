//! What a run tells: one record an update, a plot of the loss, where the time and the memory went.
//!
//! A [`Sink`] takes the records. [`JsonLines`] is the one that every run has, `OUT/metrics.jsonl`;
//! a terminal is another.

mod efficiency;
mod lines;
mod memory;
pub mod plot;
pub mod timeline;

pub use efficiency::{Efficiency, Flops};
pub use lines::{JsonLines, read};
pub use memory::{EngineMemory, Memory};
pub use timeline::Timeline;

use serde::{Deserialize, Serialize};

/// What one update found and did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Updates done with this one, from 1.
    pub step: u64,
    /// Mean training loss over the windows of the update, in nats per token; `null` when none was
    /// finite.
    pub loss: Option<f64>,
    /// Learning rate.
    pub lr: f64,
    /// Global L2 norm of the gradient of the mean loss, before clipping; `null` when it was not
    /// finite.
    pub grad_norm: Option<f64>,
    /// Loss scale of this update.
    pub loss_scale: f64,
    /// True when something was not finite, and weights and moments stayed as they were.
    pub skipped: bool,
    /// Tokens trained on so far.
    pub tokens: u64,
    /// Tokens of this update over its time, optimizer and staging included (upstream-defects #12).
    pub tokens_per_second: f64,
    /// Largest magnitude of the gradient that entered the layers, loss scale included; `null` when
    /// not finite.
    pub max_dy: Option<f64>,
    /// Mean loss of the validation windows, when it was measured after this update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_loss: Option<f64>,
}

/// Where records go.
pub trait Sink {
    /// Takes the record of one update.
    ///
    /// # Errors
    /// Whatever the sink writes to reports.
    fn record(&mut self, record: &Record) -> std::io::Result<()>;
}

/// A number for a record: JSON has none that are not finite.
pub(crate) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
