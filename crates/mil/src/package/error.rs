//! Errors of reading and writing containers.

use std::path::{Path, PathBuf};

use ferrane_diag::{Diagnostics, Source};

/// Why a container was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The system refused a file.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Neither package, model, compiled model nor text.
    #[error("{}: {reason}", .path.display())]
    Unrecognized {
        /// Path of the file or folder.
        path: PathBuf,
        /// The forms that were tried.
        reason: String,
    },
    /// A Core ML model that is not an ML Program.
    #[error("{}: not an ML Program: {kind}", .path.display())]
    NotMlProgram {
        /// Path of the file or folder.
        path: PathBuf,
        /// What it is: `a neural network (field 500, specification version 1)`.
        kind: String,
    },
    /// The manifest of a package breaks a rule.
    #[error("{}: {reason}", .path.display())]
    Manifest {
        /// Path of `Manifest.json`.
        path: PathBuf,
        /// The rule that it breaks.
        reason: String,
    },
    /// The bytes are not the protobuf of a model, or the program in it breaks a rule of MIL.
    #[error("{}: {reason}", .path.display())]
    Model {
        /// Path of the file or folder.
        path: PathBuf,
        /// What is wrong, with the op or name.
        reason: String,
    },
    /// The text has errors.
    #[error("{}: {} errors and warnings", .text.name(), .diagnostics.len())]
    Text {
        /// The text, for showing the diagnostics in it.
        text: Source,
        /// All errors and warnings of the text.
        diagnostics: Diagnostics,
    },
    /// The path exists, and the options do not allow to replace it.
    #[error("{}: exists already", .path.display())]
    Exists {
        /// The path that exists.
        path: PathBuf,
    },
    /// A blob file that is to be written exists with other bytes, and the options do not allow to
    /// replace it.
    #[error("{}: exists with other weights", .path.display())]
    OtherWeights {
        /// Path of the blob file.
        path: PathBuf,
    },
    /// The name of a blob file leads out of the folder that the program is written to.
    #[error("the blob file `{name:.100}` lies outside of the program's folder; it is not written")]
    Outside {
        /// The name, as the program has it.
        name: String,
    },
    /// The container cannot hold the program.
    #[error("cannot be written as {form}: {reason}")]
    Unwritable {
        /// `a package`.
        form: &'static str,
        /// What the container cannot hold.
        reason: String,
    },
}

impl PackageError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> PackageError + '_ {
        |source| PackageError::Io { path: path.to_path_buf(), source }
    }

    pub(super) fn model(path: &Path) -> impl FnOnce(String) -> PackageError + '_ {
        |reason| PackageError::Model { path: path.to_path_buf(), reason }
    }
}
