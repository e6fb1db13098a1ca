//! Why a model cannot be quantized or written.

use std::path::PathBuf;

use crate::{config, model, reference, tokenizer, weights};

/// Why a model cannot be quantized or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The weights do not fit the configuration.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// The configuration is invalid or has no form in the file.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// A token of the calibration text does not fit the model.
    #[error(transparent)]
    Reference(#[from] reference::Error),
    /// The tokenizer cannot be written.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// The written model cannot be opened.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The GGUF file cannot be read or written.
    #[error(transparent)]
    Gguf(#[from] ferrane_gguf::Error),
    /// Memory for a product cannot be allocated.
    #[error(transparent)]
    Product(#[from] ferrane_host::gemm::GemmError),
    /// A weight exceeds the range of fp16, or is not finite.
    #[error("`{name}` has the value {value}, which fp16 does not hold")]
    Range {
        /// The tensor, as [`weights::Slot::name`] names it.
        name: String,
        /// The first such value.
        value: f32,
    },
    /// The file format cannot hold the model in this form.
    #[error("{reason}")]
    Unwritable {
        /// What the format lacks, and what to do.
        reason: String,
    },
    /// A file or folder has the name of the output, and may not be replaced.
    #[error("{}: exists already", .0.display())]
    Exists(PathBuf),
    /// The target is the model that is read, or a folder around it.
    #[error("{}: the model itself cannot be replaced; give another name", .0.display())]
    Source(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// The caller's `progress` returned false; nothing was written.
    #[error("stopped; nothing is written")]
    Cancelled,
}

impl Error {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, source }
    }
}
