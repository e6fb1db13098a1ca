//! Published numbers against predicted ones.
//!
//! A file of published numbers is a JSON array of records `{source, chip, what, config, metric, value, unit}`. [`compare`] gives a
//! row for each: what the model predicts for it, or why it predicts nothing. A row is a prediction only where the record says
//! enough of what was measured; nothing is guessed from a value.
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

pub use error::{ChipError, KernelRow, Summary, kernel_rows, median, noise, scatter_svg, summarise};
pub use express::{Pipelines, compare};
pub use kernel::{Kernel, Shape};
pub use record::{Record, chip_name, records};

use serde_json::Value;

/// A record with its prediction, or with the reason that there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The record as it stood in the file.
    pub record: Value,
    /// The prediction, or the reason.
    pub outcome: Result<Prediction, String>,
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
pub struct Report {
    /// One for each record, in its order.
    pub rows: Vec<Row>,
    /// Errors over the kernel rows.
    pub kernels: Summary,
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
