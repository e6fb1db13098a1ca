//! What can be wrong with a container.

use std::path::{Path, PathBuf};

use ferrane_diag::{Diagnostics, Source};

/// Why a container was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The system refused a file.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Neither package, model, compiled model nor text.
    #[error("{}: {reason}", .path.display())]
    Unrecognized {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        reason: String,
    },
    /// A model of Core ML that is no ML Program.
    #[error("{}: not an ML Program: {kind}", .path.display())]
    NotMlProgram {
        /// The file.
        path: PathBuf,
        /// What it is: `a neural network (field 500, specification version 1)`.
        kind: String,
    },
    /// The manifest of a package breaks a rule.
    #[error("{}: {reason}", .path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Which one.
        reason: String,
    },
    /// The bytes are no protobuf of a model, or the program in it breaks a rule of MIL.
    #[error("{}: {reason}", .path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// Which one, with the op or the name.
        reason: String,
    },
    /// The text is wrong.
    #[error("{}: {} errors and warnings", .text.name(), .diagnostics.len())]
    Text {
        /// The text, for showing the diagnostics in it.
        text: Source,
        /// All of them.
        diagnostics: Diagnostics,
    },
    /// There is something at the path already, and it was not asked to be replaced.
    #[error("{}: exists already", .path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The container cannot hold the program.
    #[error("cannot be written as {form}: {reason}")]
    Unwritable {
        /// `a package`.
        form: &'static str,
        /// Why.
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
