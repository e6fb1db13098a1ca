//! Errors of weights and of files with weights.

use std::path::Path;

/// A weights file cannot be read, written, or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration of the weights is invalid or cannot be read.
    #[error(transparent)]
    Config(#[from] crate::config::Error),
    /// A file cannot be read or written.
    #[error("{file}: {source}")]
    Io {
        /// Path of the file.
        file: String,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// The file violates its format.
    #[error("{file}: {reason}")]
    Format {
        /// Path of the file.
        file: String,
        /// What violates the format, with its place in the file.
        reason: String,
    },
    /// The file is shorter or longer than its header says.
    #[error("{file}: expected {expected} bytes by its header, found {found}")]
    Size {
        /// Path of the file.
        file: String,
        /// Size in bytes that the header implies.
        expected: u64,
        /// Size of the file in bytes.
        found: u64,
    },
    /// A tensor is missing.
    #[error("{file}: tensor {name} is missing (expected shape {expected:?})")]
    Missing {
        /// The file, or the index of a sharded checkpoint.
        file: String,
        /// The tensor's name in that file.
        name: String,
        /// The shape in the configuration.
        expected: Vec<usize>,
    },
    /// A tensor's shape differs from the configuration's.
    #[error("{file}: tensor {name}: expected shape {expected:?}, found {found:?}")]
    Shape {
        /// Path of the file.
        file: String,
        /// The tensor's name in that file.
        name: String,
        /// The shape in the configuration.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor has an unsupported element type.
    #[error("{file}: tensor {name} has type {found}; F32, F16 and BF16 are supported")]
    Dtype {
        /// Path of the file.
        file: String,
        /// The tensor's name in that file.
        name: String,
        /// Its element type, as the header spells it.
        found: String,
    },
    /// The file has tensors that the model does not.
    #[error("{file}: {count} tensors have no place in this model: {names}")]
    Unknown {
        /// Path of the file.
        file: String,
        /// Number of such tensors.
        count: usize,
        /// Their names, at most eight.
        names: String,
    },
    /// Weights in memory do not belong to the configuration.
    #[error("weights do not fit the configuration: {name} has {found} values, expected {expected}")]
    Mismatch {
        /// The tensor, or `layers` for their number.
        name: String,
        /// Number of values in the configuration.
        expected: usize,
        /// Number of values found.
        found: usize,
    },
    /// The format has no field for an option of this model.
    #[error("the {format} format cannot hold this model: {reason}")]
    Unwritable {
        /// Name of the format.
        format: &'static str,
        /// The option, as a clause.
        reason: String,
    },
    /// There are no readable weights at a path.
    #[error("{path}: no weights found here; tried {tried}")]
    NotFound {
        /// The path that the caller gave.
        path: String,
        /// The files that were looked for, in order.
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
