//! Why there is no backward program.

use crate::error::MilError;

/// Why there is no backward program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GradError {
    /// The program has no such function.
    #[error("no function `{name}`")]
    Function {
        /// As asked.
        name: String,
    },
    /// A chosen output, input or tap is none that can be chosen.
    #[error("value `{name}`: {reason}")]
    Value {
        /// As asked.
        name: String,
        /// Why.
        reason: String,
    },
    /// A cotangent reaches an op that has no rule, or a use of it that has none; or the backward
    /// program would have to compute an op again that cannot be.
    #[error("op `{op}` (`{value}`): {reason}")]
    Op {
        /// Its MIL name.
        op: String,
        /// The name of its first result.
        value: String,
        /// Why.
        reason: String,
    },
    /// The source program is wrong, or a rule needs an op that its opset does not have.
    #[error(transparent)]
    Mil(#[from] MilError),
}
