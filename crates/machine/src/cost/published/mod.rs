//! Compares published numbers with predictions.
//!
//! A file of published numbers is a JSON array of records
//! `{source, chip, what, config, metric, value, unit}`. [`compare`] returns one row per record: the
//! model's prediction, or the reason why there is none. A record gets a prediction only if it
//! states enough about the measurement; nothing is guessed from a value.
//!
//! | file | content |
//! |---|---|
//! | `record` | parsing of records: chips, quantities, configurations |
//! | `kernel` | records of one evaluated kernel |
//! | `express` | the selection of the prediction for a record |
//! | `measured` | predictions for kernels, paths and the machine itself |
//! | `training` | predictions for steps of the trainers and their parts |
//! | `reason` | the reason for a missing prediction |
//! | `error` | errors over kernel rows: one metric per measurement, replicates, medians |

mod error;
mod express;
mod kernel;
mod measured;
mod reason;
mod record;
mod training;

pub use error::{ChipError, ErrorSummary, KernelRow, kernel_rows, median, noise, quantile, scatter_svg, summarize};
pub use express::{Pipelines, compare};
pub use kernel::{ConvChain, MeasuredKernel};
pub use record::{PublishedRecord, chip_name, records};
pub use training::TrainerPipeline;

use serde_json::Value;

/// A record with its prediction, or with the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedRecord {
    /// The record as it is in the file.
    pub record: Value,
    /// The prediction, or the reason why there is none.
    pub outcome: Result<Prediction, NoPrediction>,
}

/// Why the model predicts nothing for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NoPrediction {
    /// A phrase about the record, such as "a loss, not a time".
    pub reason: &'static str,
}

/// A predicted and a published number, both in the record's unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The published number, in `unit`.
    pub published: f64,
    /// The predicted number, in `unit`.
    pub predicted: f64,
    /// The unit, as the record spells it.
    pub unit: String,
}

impl Prediction {
    /// The error relative to the published value; `None` if that is zero.
    pub fn error(&self) -> Option<f64> {
        let error = self.predicted / self.published - 1.0;
        error.is_finite().then_some(error)
    }
}

/// The comparison of a whole file.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// One row per record, in the order of the file.
    pub rows: Vec<ComparedRecord>,
    /// The errors over the kernel rows.
    pub kernels: ErrorSummary,
}

/// Why a file could not be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishedError {
    /// The file is not JSON.
    #[error("published numbers: {0}")]
    Json(#[from] serde_json::Error),
    /// The JSON is not an array.
    #[error("published numbers are an array of records; this is {0}")]
    Form(&'static str),
    /// The constants of a chip are invalid.
    #[error(transparent)]
    Constants(#[from] super::ConstantsError),
}
