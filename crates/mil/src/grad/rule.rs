//! What a table of derivatives says of an op.

use super::error::GradError;
use super::pullback::Pullback;

/// A rule's function.
pub(super) type Vjp = fn(&mut Pullback<'_, '_>) -> Result<(), GradError>;

/// What a table says of an op.
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
