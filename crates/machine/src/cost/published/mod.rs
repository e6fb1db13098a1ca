//! Published numbers against predicted ones.
//!
//! A file of published numbers is a JSON array of records `{source, chip, what, config, metric,
//! value, unit}`. [`compare`] gives a row for each: what the model predicts for it, or why it
//! predicts nothing. A row is a prediction only where the record says enough of what was measured;
//! nothing is guessed from a value.
//!
//! | file | content |
//! |---|---|
//! | `record` | reading records: chips, quantities, configurations |
//! | `kernel` | records of one evaluated kernel |
//! | `express` | which prediction a record asks for |
//! | `reason` | why a record asks for none |
//! | `error` | errors over kernel rows: one metric a measurement, replicates, medians |

mod error;
mod express;
mod kernel;
mod reason;
mod record;

pub use error::{ChipError, ErrorSummary, KernelRow, kernel_rows, median, noise, scatter_svg, summarize};
pub use express::{Pipelines, compare};
pub use kernel::{ConvChain, MeasuredKernel};
pub use record::{PublishedRecord, chip_name, records};

use serde_json::Value;

/// A record with its prediction, or with the reason that there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedRecord {
    /// The record as it stood in the file.
    pub record: Value,
    /// The prediction, or why there is none.
    pub outcome: Result<Prediction, NoPrediction>,
}

/// Why the model predicts nothing for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NoPrediction {
    /// A phrase for a reader who has the record, such as "a loss, not a time".
    pub reason: &'static str,
}

/// A predicted number beside the published one, both in the record's unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// What was published.
    pub published: f64,
    /// What the model says.
    pub predicted: f64,
    /// The unit.
    pub unit: String,
}

impl Prediction {
    /// The error relative to the published value; none where that is zero.
    pub fn error(&self) -> Option<f64> {
        let error = self.predicted / self.published - 1.0;
        error.is_finite().then_some(error)
    }
}

/// All rows of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// One for each record, in its order.
    pub rows: Vec<ComparedRecord>,
    /// Errors over the kernel rows.
    pub kernels: ErrorSummary,
}

/// Why a file could not be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishedError {
    /// It is not JSON.
    #[error("published numbers: {0}")]
    Json(#[from] serde_json::Error),
    /// It is no array.
    #[error("published numbers are an array of records; this is {0}")]
    Form(&'static str),
    /// A chip's constants are broken.
    #[error(transparent)]
    Constants(#[from] super::ConstantsError),
}
