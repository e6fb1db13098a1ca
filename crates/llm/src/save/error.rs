//! Why a model cannot be written for other programs.

use std::path::{Path, PathBuf};

use crate::{chat, config, model, tokenizer, weights};

/// Why a model cannot be written for other programs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The weights cannot be read, or do not fit the configuration.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// The weights cannot be read, or the adapter cannot be merged.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The configuration is invalid or has no form in the file.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The tokenizer has no form in the file.
    #[error("tokenizer: {0}")]
    Tokenizer(#[from] tokenizer::Error),
    /// The chat template next to the model is damaged.
    #[error(transparent)]
    Chat(#[from] chat::Error),
    /// The GGUF file cannot be read or written.
    #[error(transparent)]
    Gguf(#[from] ferrane_gguf::Error),
    /// A weight is not finite, or beyond the range of fp16.
    #[error("tensor `{name}`: {value} is not a number of fp16; write fp32 weights")]
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
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.as_ref().to_path_buf();
        move |source| Error::Io { path, source }
    }
}
