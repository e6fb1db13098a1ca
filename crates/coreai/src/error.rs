//! Errors of reading and writing, one code for each kind.

use std::fmt;
use std::path::Path;

use ferrane_diag::{Code, Diagnostic, Diagnostics};

use crate::codes;

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One defect of a file: code, position, message and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// One of [`codes::ALL`].
    pub code: Code,
    /// The byte offset in `main.mlirb`. `None` if the error has no position there.
    pub offset: Option<u64>,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub help: &'static str,
}

impl Error {
    /// E0901: another format or version.
    pub(crate) fn header(offset: usize, message: impl Into<String>) -> Error {
        let help = "is it `main.mlirb` of an `.aimodel`? MLIR bytecode begins with 4d 4c ef 52";
        Error { code: codes::NOT_BYTECODE, offset: Some(offset as u64), message: message.into(), help }
    }

    /// E0902: less is left than announced.
    pub(crate) fn truncated(offset: usize, message: impl Into<String>) -> Error {
        let help = "the file is cut off or was changed; compare its SHA-256 with `main.hash`";
        Error { code: codes::TRUNCATED, offset: Some(offset as u64), message: message.into(), help }
    }

    /// E0903: a part violates the format.
    pub(crate) fn form(offset: usize, message: impl Into<String>) -> Error {
        let help = "the file was changed, or its version is not known; compare its SHA-256 with `main.hash`";
        Error { code: codes::MALFORMED, offset: Some(offset as u64), message: message.into(), help }
    }

    /// E0904: an index beyond the end of its table.
    pub(crate) fn reference(offset: usize, message: impl Into<String>) -> Error {
        let help = "the file was changed, or its version is not known; compare its SHA-256 with `main.hash`";
        Error { code: codes::DANGLING, offset: Some(offset as u64), message: message.into(), help }
    }

    /// E0905: a file of the folder.
    pub(crate) fn folder(path: &Path, message: impl fmt::Display) -> Error {
        let help = "an `.aimodel` is a folder with `main.mlirb`, `main.hash` and `metadata.json`";
        Error { code: codes::NOT_A_FOLDER, offset: None, message: format!("`{}`: {message}", path.display()), help }
    }

    /// E0906: the program is not the one that was hashed.
    pub(crate) fn hash(path: &Path) -> Error {
        let help = "the program was changed or damaged; write it again with the tool that made it";
        let message = format!("`{}` is not the SHA-256 of `main.mlirb`", path.display());
        Error { code: codes::WRONG_HASH, offset: None, message, help }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (", self.code, self.message)?;
        if let Some(offset) = self.offset {
            write!(f, "at {offset:#x}; ")?;
        }
        write!(f, "{})", self.help)
    }
}

impl std::error::Error for Error {}

/// A part of a model that has no program, or a part of a program that has no model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The stable code of the reason.
    pub code: Code,
    /// The function, and the line of the source that wrote the operation if the file has it, or the
    /// name of its first result; or the name of an input.
    pub subject: String,
    /// The operation as it is named in the file (`primitive.real_part_v1`) or in MIL, or `input`.
    pub operation: String,
    /// Why it has no counterpart, and what to do about it.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.subject, self.operation, self.reason)
    }
}

/// Everything that a conversion refuses, in the order of the operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// What the refusals prevent: `the model has no program`.
    pub headline: &'static str,
    /// One entry for each operation or input; never empty.
    pub all: Vec<Refusal>,
}

/// Refusals that the message of [`Refusals`] lists.
const LISTED: usize = 20;

impl Refusals {
    /// As diagnostics, one for each refusal.
    pub fn diagnostics(&self) -> Diagnostics {
        let mut found = Diagnostics::new();
        for refusal in &self.all {
            found.push(Diagnostic::error(refusal.code, None, refusal.to_string()));
        }
        found
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.headline)?;
        for refusal in self.all.iter().take(LISTED) {
            write!(f, "\n  {refusal}")?;
        }
        match self.all.len().checked_sub(LISTED) {
            Some(more @ 1..) => write!(f, "\n  … and {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Refusals {}
