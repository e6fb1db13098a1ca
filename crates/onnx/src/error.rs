//! What is wrong with a model, and what of it MIL cannot express.

use std::path::{Path, PathBuf};

use ferrane_diag::{Code, Diagnostic, Diagnostics};

use crate::codes;

/// A model that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The model, or a file of external data.
        path: PathBuf,
        /// What the system reports.
        source: std::io::Error,
    },
    /// The bytes are not a model.
    #[error("not an ONNX model: {reason}")]
    NotAModel {
        /// What was found instead.
        reason: String,
    },
    /// The model contradicts itself.
    #[error("{subject}: {reason}")]
    Invalid {
        /// The part of the model: ``node `conv1` ``.
        subject: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The model is of a version that this reader does not know.
    #[error("{what} {found} is not supported: this reader knows {known}; export the model for one of these")]
    Version {
        /// `ir_version`, or the opset of a domain.
        what: String,
        /// The number that the model states.
        found: i64,
        /// The numbers that are known: `7 to 26`.
        known: String,
    },
}

impl Error {
    pub(crate) fn invalid(subject: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Invalid { subject: subject.into(), reason: reason.into() }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { path, source }
    }

    /// The stable code of the error.
    pub fn code(&self) -> Code {
        match self {
            Error::Io { .. } => codes::EXTERNAL_DATA,
            Error::NotAModel { .. } => codes::NOT_A_MODEL,
            Error::Invalid { .. } => codes::INVALID_MODEL,
            Error::Version { .. } => codes::UNKNOWN_VERSION,
        }
    }
}

/// A part of a model that has no program.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// The stable code of the reason.
    pub code: Code,
    /// The node's name, its first output if it has none, or the name of an input.
    pub subject: String,
    /// The operator with its domain (`com.microsoft.Gelu`), or `input`.
    pub operator: String,
    /// Why it has no program, and what to do about it.
    pub reason: String,
    /// If a value has to be known at conversion: the inputs that it depends on. Entries of
    /// [`Options::values`](crate::Options::values) for them lift the refusal.
    pub needs: Vec<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` ({}): {}", self.subject, self.operator, self.reason)
    }
}

/// Everything in a model that has no program, in the order of its nodes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.listed())]
pub struct Refusals {
    /// One entry for each node or input; never empty.
    pub all: Vec<Refusal>,
}

/// Refusals that the message of [`Refusals`] lists.
const LISTED: usize = 20;

impl Refusals {
    fn listed(&self) -> String {
        let mut text = "the model has no program:".to_string();
        for refusal in self.all.iter().take(LISTED) {
            text.push_str(&format!("\n  {refusal}"));
        }
        if self.all.len() > LISTED {
            text.push_str(&format!("\n  … and {} more", self.all.len() - LISTED));
        }
        text
    }

    /// As diagnostics, one for each refusal.
    pub fn diagnostics(&self) -> Diagnostics {
        let mut found = Diagnostics::new();
        for refusal in &self.all {
            found.push(Diagnostic::error(refusal.code, None, refusal.to_string()));
        }
        found
    }
}
