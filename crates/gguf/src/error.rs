//! Errors of the reader, of dequantization and of the writer.

use crate::TensorType;
use std::path::{Path, PathBuf};

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
    /// The bytes do not begin as a GGUF file does.
    #[error("not a GGUF file: it does not begin with `GGUF`")]
    Magic,
    /// A version that this crate does not read.
    #[error("GGUF version {version}{}; versions 2 and 3 are supported", if *.big_endian { ", big-endian" } else { "" })]
    Version {
        /// The version, in the byte order of the file.
        version: u32,
        /// Whether the file is big-endian.
        big_endian: bool,
    },
    /// The file ends inside a value, or before the bytes of a tensor.
    #[error("the file ends inside {what}, at byte {at}")]
    Truncated {
        /// What was being read.
        what: String,
        /// The byte at which it begins.
        at: u64,
    },
    /// A value that no file can have.
    #[error("{what}, at byte {at}: {reason}")]
    Invalid {
        /// What is wrong: a key, a tensor, or a count.
        what: String,
        /// The byte at which it begins.
        at: u64,
        /// The violated condition, as a clause after a colon.
        reason: String,
    },
    /// A type of tensors whose values this crate does not compute.
    #[error("tensors of type {} cannot be read; {} can", .0.name(), TensorType::readable_names())]
    Unsupported(TensorType),
    /// The bytes or the values have another number than the tensor.
    #[error("{values} values of type {} need {expected} bytes, there are {found}", .ty.name())]
    Length {
        /// The type of the tensor.
        ty: TensorType,
        /// Number of values requested.
        values: usize,
        /// Bytes of so many values, rounded up to a whole block.
        expected: u64,
        /// Bytes that the caller gave.
        found: u64,
    },
    /// An [`Error`] with the path of its file.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The cause, which has no path.
        error: Box<Error>,
    },
}

impl Error {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
        Error::Io { path: path.to_path_buf(), source }
    }

    /// The error with the path of its file, unless it has one.
    pub(crate) fn in_file(self, path: &Path) -> Error {
        match self {
            Error::Io { .. } | Error::File { .. } => self,
            error => Error::File { path: path.to_path_buf(), error: Box::new(error) },
        }
    }
}
