//! The rule for the derivative of an op, as the tables of the families hold it.

use super::error::GradError;
use super::pullback::Pullback;

/// Adds the cotangents of an op's operands to the tape, given those of its results.
pub(super) type Vjp = fn(&mut Pullback<'_, '_>) -> Result<(), GradError>;

/// The rule of an op; a text is the reason why there is no cotangent.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    Vjp(Vjp),
    Zero(&'static str),
    No(&'static str),
}

/// The rules of a family, by the names of their ops.
pub(super) type RuleTable = &'static [(&'static str, Rule)];

/// Finds the rule of an op.
pub(super) type Lookup = fn(&str) -> Rule;
