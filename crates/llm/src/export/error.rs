//! Errors of the export.

use ferrane_mil::MilError;
use ferrane_mil::package::PackageError;

use crate::{model, weights};

/// A model cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is invalid, or the weights are not those of the configuration.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// The weights cannot be read, or the adapter cannot be merged.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The program cannot express the model.
    #[error("the model cannot be exported: {reason}")]
    Unsupported {
        /// What the model has, and what to do.
        reason: String,
    },
    /// An option has a value that the model cannot have.
    #[error("`{option}` = {value} {reason}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The number that was given, or that the model implies.
        value: usize,
        /// The violated condition, as a clause after the value.
        reason: String,
    },
    /// A weight is not finite, or beyond the range of fp16.
    #[error("tensor {name}: {value} is not a number of fp16; the export stores weights and scales in fp16")]
    Range {
        /// Name of the tensor.
        name: String,
        /// The first value that does not fit.
        value: f32,
    },
    /// The builder refused an op.
    #[error("function `{function}`: {source}")]
    Mil {
        /// `prefill` or `decode`.
        function: &'static str,
        /// The cause, as the builder reports it.
        source: MilError,
    },
    /// The program has no description.
    #[error("the model has no description: {reason}")]
    Description {
        /// What is not possible, as a sentence without its end.
        reason: String,
    },
    /// A file next to the weights cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// Path of the file.
        file: String,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// The package cannot be written.
    #[error(transparent)]
    Package(#[from] PackageError),
}
