//! Errors of derivatives.

use crate::error::MilError;

/// Why there is no backward program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GradError {
    /// The program has no such function.
    #[error("no function `{name}`")]
    Function {
        /// The name that was given.
        name: String,
    },
    /// A value cannot be chosen as output, input or tap.
    #[error("value `{name}`: {reason}")]
    Value {
        /// The name that was given.
        name: String,
        /// Why the value cannot be chosen.
        reason: String,
    },
    /// A cotangent reaches an op that has no rule, or a use of it that has none; or the backward
    /// program would have to recompute an op that cannot be recomputed.
    #[error("op `{op}` (`{value}`): {reason}")]
    Op {
        /// MIL name of the op.
        op: String,
        /// Name of its first result.
        value: String,
        /// Why there is no rule for this op or this use.
        reason: String,
    },
    /// The source program is wrong, or a rule needs an op that its opset does not have.
    #[error(transparent)]
    Mil(#[from] MilError),
}
