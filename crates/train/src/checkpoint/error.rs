//! Errors of a run's folder and its checkpoints.

use std::path::{Path, PathBuf};

/// A checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read, written or renamed.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// Another process writes to this folder.
    #[error("{}: another run is using this folder", .0.display())]
    Locked(PathBuf),
    /// A file of a checkpoint is missing, truncated or changed.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// Path of the damaged file.
        path: PathBuf,
        /// How the file differs from the expected one.
        reason: String,
    },
    /// There are checkpoints, but none can be read.
    #[error("{}: no checkpoint can be read:\n  {}", folder.display(), reasons.join("\n  "))]
    AllDamaged {
        /// Path of the run's folder.
        folder: PathBuf,
        /// The error of each checkpoint, one line each.
        reasons: Vec<String>,
    },
    /// There is no checkpoint in the folder.
    #[error("{}: no checkpoint found here", .0.display())]
    None(PathBuf),
    /// An intact checkpoint of another model; names the tensor, the expected shape and the found
    /// one.
    #[error(transparent)]
    Weights(#[from] ferrane_llm::weights::Error),
}

impl Error {
    pub(super) fn io(path: &Path, source: std::io::Error) -> Self {
        Error::Io { path: path.to_path_buf(), source }
    }

    pub(super) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Error::Damaged { path: path.to_path_buf(), reason: reason.into() }
    }
}
