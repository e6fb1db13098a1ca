//! Errors of derivatives.

use ferrane_diag::did_you_mean;

use crate::error::MilError;
use crate::program::Function;

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
    /// No value is named, and the function has none that can have a gradient.
    #[error("function `{function}` has no {what} of fp16 or fp32; name a value in `{what}s`")]
    NoFloats {
        /// Name of the function.
        function: String,
        /// `input` or `output`.
        what: &'static str,
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

/// The name of a value that was meant by an unknown one, as the end of a message.
pub(super) fn near(function: &Function, name: &str) -> String {
    let names = || function.values.iter().map(|v| v.name.as_str());
    if names().any(|n| n == name) { String::new() } else { did_you_mean(name, names()) }
}
