//! Errors of the interpreter.

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::{Function, Op, Opset};

/// The error for a function that `verify` should have refused.
pub(super) fn broken(what: &str) -> Error {
    Error::new(ErrorKind::Evaluate, format!("the program is inconsistent: {what}"))
}

/// The opset of a function, which must be a known one.
pub(super) fn known_opset(function: &Function) -> Result<Opset> {
    function.opset().map_err(|e| Error::new(ErrorKind::Unsupported, e.to_string()))
}

/// The error for an op that fails while it runs.
pub(super) fn failed(op: &Op, reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Evaluate, format!("op `{}`: {reason}", op.name))
}
