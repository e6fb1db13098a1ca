//! Errors for programs that the emulator does not run.

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::{Function, MilError, Weights, check};

/// Ops without a numeric meaning that could be executed, and why.
const REFUSED: &[(&str, &str)] =
    &[("classify", "its results are a label and a dictionary; `ferrane run` and `mil::classifier` take it off")];

/// Why an op is not executed.
pub(crate) fn reason(op: &str) -> &'static str {
    REFUSED
        .iter()
        .find(|(n, _)| *n == op)
        .map_or("there are neither steps nor a tensor op for it", |(_, reason)| reason)
}

/// An error about an op.
pub(crate) fn unsupported(op: &str, reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("op `{op}`: {reason}"))
}

/// The error for a compiled program that is not run.
pub(crate) fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

/// The error for an op that is not executed.
pub(crate) fn refusal(op: &str) -> Error {
    unsupported(op, format!("is not implemented by the emulator: {}", reason(op)))
}

/// Checks the ops of a function against the registry.
///
/// # Errors
/// The first finding: `Unsupported` for an unknown op, else `InvalidProgram`.
pub(crate) fn checked(function: &Function, weights: &Weights) -> Result<()> {
    match check(function, weights).into_iter().next() {
        None => Ok(()),
        Some((_, error @ MilError::UnknownOp { .. })) => Err(Error::new(ErrorKind::Unsupported, error.to_string())),
        Some((_, error)) => Err(Error::new(ErrorKind::InvalidProgram, error.to_string())),
    }
}
