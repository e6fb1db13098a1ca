//! Errors of one op, one name or one weight.
//!
//! Each kind has a [`Code`]. The reader of text turns an error into a diagnostic with a span; the
//! builder returns it unchanged.

use ferrane_diag::Code;

use crate::codes;

/// An error of the language. Messages name the op and the argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MilError {
    /// The registry has no such op in this opset.
    #[error("no op `{name}` in {opset}{}", hint(.suggestion))]
    UnknownOp {
        /// Name of the op, as written.
        name: String,
        /// The opset of the function.
        opset: String,
        /// The op with the most similar name, if any is similar.
        suggestion: Option<String>,
    },
    /// The tag names no opset.
    #[error("no opset `{opset}`{}; the opsets are ios15, ios16, ios17 and ios18", hint(.suggestion))]
    UnknownOpset {
        /// The tag, as written.
        opset: String,
        /// The opset with the most similar name, if any is similar.
        suggestion: Option<String>,
    },
    /// The op exists in later opsets only.
    #[error("op `{op}` exists from {since} on, not in {opset}")]
    LaterOp {
        /// MIL name of the op.
        op: String,
        /// The first opset that has it.
        since: String,
        /// The opset of the function.
        opset: String,
    },
    /// The op has this argument in later opsets only.
    #[error("op `{op}` has the argument `{argument}` from {since} on")]
    LaterArgument {
        /// MIL name of the op.
        op: String,
        /// Name of the argument.
        argument: String,
        /// The first opset that has it.
        since: String,
    },
    /// The op has no such argument.
    #[error("op `{op}` has no argument `{argument}`{}", hint(.suggestion))]
    UnknownArgument {
        /// MIL name of the op.
        op: String,
        /// Name of the argument, as written.
        argument: String,
        /// The argument with the most similar name, if any is similar.
        suggestion: Option<String>,
    },
    /// A required argument is absent.
    #[error("op `{op}` needs the argument `{argument}`")]
    MissingArgument {
        /// MIL name of the op.
        op: String,
        /// Name of the argument.
        argument: String,
    },
    /// An argument occurs twice.
    #[error("op `{op}` is given the argument `{argument}` twice")]
    DuplicateArgument {
        /// MIL name of the op.
        op: String,
        /// Name of the argument.
        argument: String,
    },
    /// An argument has the wrong type.
    #[error("op `{op}`: argument `{argument}` must be {expected}, not {found}")]
    ArgumentType {
        /// MIL name of the op.
        op: String,
        /// Name of the argument.
        argument: String,
        /// What the signature accepts.
        expected: String,
        /// Type or form of the given value.
        found: String,
    },
    /// An argument must be known at compile time and is not.
    #[error("op `{op}`: argument `{argument}` must be a compile-time constant")]
    NotConstant {
        /// MIL name of the op.
        op: String,
        /// Name of the argument.
        argument: String,
    },
    /// Shapes or values of arguments do not fit each other.
    #[error("op `{op}`: {reason}")]
    Shape {
        /// MIL name of the op.
        op: String,
        /// The rule that the shapes or values break.
        reason: String,
    },
    /// A declared result type is not the inferred one.
    #[error("op `{op}` gives {inferred}, not {declared}")]
    ResultType {
        /// MIL name of the op.
        op: String,
        /// The type that the program declares.
        declared: String,
        /// The type that the op's rule computes.
        inferred: String,
    },
    /// A name is malformed or taken.
    #[error("name `{name}`: {reason}")]
    Name {
        /// The name that was refused.
        name: String,
        /// Why it was refused.
        reason: String,
    },
    /// A constant's bytes disagree with its type, or a weight is missing.
    #[error("constant `{name}`: {reason}")]
    Constant {
        /// Name of the constant or argument.
        name: String,
        /// Why it was refused.
        reason: String,
    },
    /// A function uses something that its opset does not have.
    #[error("function `{function}`: {reason}")]
    Opset {
        /// Name of the function.
        function: String,
        /// What the opset does not have.
        reason: String,
    },
    /// A function cannot have the extents that were chosen for its inputs.
    #[error("{reason}")]
    Extents {
        /// The input or the value, and why.
        reason: String,
    },
    /// The program breaks an invariant of the IR (see [`crate::verify`]).
    #[error("invalid program: {reason}")]
    Invalid {
        /// The invariant that is broken, and where.
        reason: String,
    },
}

fn hint(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map_or(String::new(), |s| format!(" (did you mean `{s}`?)"))
}

impl MilError {
    /// The diagnostic code of the kind.
    pub fn code(&self) -> Code {
        match self {
            MilError::UnknownOpset { .. } => codes::UNKNOWN_OPSET,
            MilError::Name { .. } => codes::INVALID_NAME,
            MilError::UnknownOp { .. } | MilError::LaterOp { .. } => codes::UNKNOWN_OP,
            MilError::UnknownArgument { .. } | MilError::LaterArgument { .. } => codes::UNKNOWN_ARGUMENT,
            MilError::MissingArgument { .. } => codes::MISSING_ARGUMENT,
            MilError::DuplicateArgument { .. } => codes::DUPLICATE_ARGUMENT,
            MilError::ArgumentType { .. } => codes::ARGUMENT_TYPE,
            MilError::NotConstant { .. } => codes::NOT_CONSTANT,
            MilError::Shape { .. } => codes::SHAPE_MISMATCH,
            MilError::ResultType { .. } => codes::RESULT_TYPE,
            MilError::Constant { .. } => codes::INVALID_CONSTANT,
            MilError::Opset { .. } => codes::NOT_IN_OPSET,
            MilError::Extents { .. } => codes::SHAPE_MISMATCH,
            MilError::Invalid { .. } => codes::INVALID_PROGRAM,
        }
    }

    pub(crate) fn shape(op: &str, reason: impl Into<String>) -> MilError {
        MilError::Shape { op: op.to_string(), reason: reason.into() }
    }
}
