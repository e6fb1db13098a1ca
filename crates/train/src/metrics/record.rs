//! The record of one update: what is measured, and where it goes.
//!
//! `crate::run` fills a record in; [`super::JsonLines`] writes it. A new field that older files
//! lack needs `#[serde(default)]`.

use serde::{Deserialize, Serialize};

use super::ProcessRecord;

/// The metrics of one update.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number of updates done, this one included; from 1.
    pub step: u64,
    /// Mean training loss over the windows of the update, in nats per token; `null` if none was
    /// finite.
    pub loss: Option<f64>,
    /// Learning rate of this update.
    pub lr: f64,
    /// Global L2 norm of the gradient of the mean loss, before clipping; `null` if it was not
    /// finite.
    pub grad_norm: Option<f64>,
    /// Loss scale of this update, a power of two.
    pub loss_scale: f64,
    /// Whether a loss or gradient was not finite, so that weights and moments did not change.
    pub skipped: bool,
    /// Number of tokens trained on so far.
    pub tokens: u64,
    /// Tokens of this update divided by its time, optimizer and staging included (upstream-defects
    /// #12).
    pub tokens_per_second: f64,
    /// Largest magnitude of the gradient that entered the layers, loss scale included; `null` if it
    /// was not finite.
    pub max_dy: Option<f64>,
    /// Mean loss of the validation windows, if a validation followed this update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_loss: Option<f64>,
    /// A text that the model wrote after this update, or a text that was requested since the
    /// previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<String>,
    /// What the update cost on this computer, and the events since the previous record. Unlike all
    /// other fields except `tokens_per_second`, it differs between two runs with the same options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessRecord>,
}

/// A destination of records.
pub trait Sink {
    /// Writes the record of one update.
    ///
    /// # Errors
    /// Errors of the destination.
    fn record(&mut self, record: &Record) -> std::io::Result<()>;
}

/// `value` for a record; `None` if it is not finite, which JSON cannot represent.
pub(crate) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
