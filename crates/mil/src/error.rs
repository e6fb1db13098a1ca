//! What can be wrong with one op, one name or one weight.
//!
//! Each kind has a [`Code`]; the reader of text turns an error into a diagnostic with a span, the
//! builder returns it as it is.

use ferrane_diag::Code;

use crate::codes;

/// An error of the language. Messages name the op and the argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MilError {
    /// The registry has no such op in this opset.
    #[error("no op `{name}` in {opset}{}", hint(.suggestion))]
    UnknownOp {
        /// As written.
        name: String,
        /// The opset asked.
        opset: String,
        /// The nearest op.
        suggestion: Option<String>,
    },
    /// The tag names no opset.
    #[error("no opset `{opset}`{}; the opsets are ios15, ios16, ios17 and ios18", hint(.suggestion))]
    UnknownOpset {
        /// The tag, as written.
        opset: String,
        /// The nearest opset.
        suggestion: Option<String>,
    },
    /// The op exists in later opsets only.
    #[error("op `{op}` exists from {since} on, not in {opset}")]
    LaterOp {
        /// The op.
        op: String,
        /// The first opset that has it.
        since: String,
        /// The opset asked.
        opset: String,
    },
    /// The op has this argument in later opsets only.
    #[error("op `{op}` has the argument `{argument}` from {since} on")]
    LaterArgument {
        /// The op.
        op: String,
        /// The argument.
        argument: String,
        /// The first opset that has it.
        since: String,
    },
    /// The op has no such argument.
    #[error("op `{op}` has no argument `{argument}`{}", hint(.suggestion))]
    UnknownArgument {
        /// The op.
        op: String,
        /// As written.
        argument: String,
        /// The nearest argument.
        suggestion: Option<String>,
    },
    /// A required argument is absent.
    #[error("op `{op}` needs the argument `{argument}`")]
    MissingArgument {
        /// The op.
        op: String,
        /// The argument.
        argument: String,
    },
    /// An argument occurs twice.
    #[error("op `{op}` is given the argument `{argument}` twice")]
    DuplicateArgument {
        /// The op.
        op: String,
        /// The argument.
        argument: String,
    },
    /// An argument has the wrong type.
    #[error("op `{op}`: argument `{argument}` must be {expected}, not {found}")]
    ArgumentType {
        /// The op.
        op: String,
        /// The argument.
        argument: String,
        /// What the signature accepts.
        expected: String,
        /// What was given.
        found: String,
    },
    /// An argument must be known at compile time and is not.
    #[error("op `{op}`: argument `{argument}` must be a compile-time constant")]
    NotConstant {
        /// The op.
        op: String,
        /// The argument.
        argument: String,
    },
    /// Shapes or values of arguments do not fit each other.
    #[error("op `{op}`: {reason}")]
    Shape {
        /// The op.
        op: String,
        /// Why.
        reason: String,
    },
    /// A declared result type is not the inferred one.
    #[error("op `{op}` gives {inferred}, not {declared}")]
    ResultType {
        /// The op.
        op: String,
        /// As declared.
        declared: String,
        /// As the op's rule says.
        inferred: String,
    },
    /// A name is malformed or taken.
    #[error("name `{name}`: {reason}")]
    Name {
        /// The name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A constant's bytes disagree with its type, or a weight is missing.
    #[error("constant `{name}`: {reason}")]
    Constant {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A function does not go with an older opset.
    #[error("function `{function}`: {reason}")]
    Opset {
        /// The function.
        function: String,
        /// What the opset does not have.
        reason: String,
    },
    /// The program breaks an invariant of the IR.
    #[error("invalid program: {reason}")]
    Invalid {
        /// Which one.
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
            MilError::Invalid { .. } => codes::INVALID_PROGRAM,
        }
    }

    pub(crate) fn shape(op: &str, reason: impl Into<String>) -> MilError {
        MilError::Shape { op: op.to_string(), reason: reason.into() }
    }
}
