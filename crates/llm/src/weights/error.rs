//! What can be wrong with a weights file.

use std::path::Path;

/// A weights file cannot be read, written, or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration that belongs to the weights is at fault.
    #[error(transparent)]
    Config(#[from] crate::config::Error),
    /// The system refused.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not what its format demands.
    #[error("{file}: {reason}")]
    Format {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The file is shorter or longer than its header says.
    #[error("{file}: expected {expected} bytes by its header, found {found}")]
    Size {
        /// The file.
        file: String,
        /// Bytes that the header asks for.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A tensor is missing.
    #[error("{file}: tensor {name} is missing (expected shape {expected:?})")]
    Missing {
        /// The file, or the index of a sharded checkpoint.
        file: String,
        /// The tensor's name in that file.
        name: String,
        /// The shape that the configuration gives it.
        expected: Vec<usize>,
    },
    /// A tensor has another shape than the configuration gives it.
    #[error("{file}: tensor {name}: expected shape {expected:?}, found {found:?}")]
    Shape {
        /// The file.
        file: String,
        /// The tensor's name in that file.
        name: String,
        /// The shape that the configuration gives it.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor has an element type that is not read here.
    #[error("{file}: tensor {name} has type {found}; F32, F16 and BF16 are supported")]
    Dtype {
        /// The file.
        file: String,
        /// The tensor's name.
        name: String,
        /// Its element type.
        found: String,
    },
    /// Tensors that the model has no place for.
    #[error("{file}: {count} tensors have no place in this model: {names}")]
    Unknown {
        /// The file.
        file: String,
        /// How many.
        count: usize,
        /// Their names, at most eight.
        names: String,
    },
    /// Weights in memory do not belong to the configuration.
    #[error("weights do not fit the configuration: {name} has {found} values, expected {expected}")]
    Mismatch {
        /// The tensor, or `layers` for their number.
        name: String,
        /// Values that the configuration asks for.
        expected: usize,
        /// Values there are.
        found: usize,
    },
    /// The format has no field for an option of this model.
    #[error("the {format} format cannot hold this model: {reason}")]
    Unwritable {
        /// The format.
        format: &'static str,
        /// The option.
        reason: String,
    },
    /// Nothing readable lies at a path.
    #[error("{path}: no weights found here; tried {tried}")]
    NotFound {
        /// The path.
        path: String,
        /// What was looked for, in order.
        tried: String,
    },
}

impl Error {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Error::Io { file: path.display().to_string(), source }
    }

    pub(crate) fn format(path: &Path, reason: impl Into<String>) -> Self {
        Error::Format { file: path.display().to_string(), reason: reason.into() }
    }

    pub(super) fn unknown(path: &Path, names: &[String]) -> Self {
        let mut listed = names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
        if names.len() > 8 {
            listed.push_str(", …");
        }
        Error::Unknown { file: path.display().to_string(), count: names.len(), names: listed }
    }
}
