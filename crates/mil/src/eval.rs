//! The door to arithmetic: this crate knows shapes and bytes, not numbers.
//!
//! Passes that compute values ask an [`Evaluate`]; the emulator implements it with its `exact`
//! table. So a folded constant is what the program would have computed, and there is one
//! implementation of every op.

use crate::opset::Opset;
use crate::program::{Constant, Function, Op};
use crate::weights::Weights;

/// Computes ops at compile time.
pub trait Evaluate {
    /// The results of one op of `function`, every operand of which is a compile-time value: a
    /// literal, a `const`, or the result of a `constexpr_*` op of such values.
    ///
    /// # Errors
    /// Why it cannot be computed, in words: the op has no evaluation, an operand is not known, a
    /// value is out of range.
    fn evaluate(&self, function: &Function, op: &Op, opset: Opset, weights: &Weights) -> Result<Vec<Constant>, String>;
}
