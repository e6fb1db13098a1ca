//! What can be wrong with a run's folder.

use std::path::{Path, PathBuf};

/// A checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another process writes to this folder.
    #[error("{}: another run is using this folder", .0.display())]
    Locked(PathBuf),
    /// A file of a checkpoint is missing, cut off or changed.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There are checkpoints, and none can be read.
    #[error("{}: no checkpoint can be read:\n  {}", folder.display(), reasons.join("\n  "))]
    AllDamaged {
        /// The run's folder.
        folder: PathBuf,
        /// One line a checkpoint.
        reasons: Vec<String>,
    },
    /// There is no checkpoint.
    #[error("{}: no checkpoint found here", .0.display())]
    None(PathBuf),
    /// A sound checkpoint of another model: names the tensor, the expected and the found shape.
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
