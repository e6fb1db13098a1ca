//! `stable_softplus`: writes softplus so that no exponential overflows.
//!
//! *Pattern*: `softplus(x)` becomes max(x, 0) + softplus(−|x|), unless its operand is the negative
//! of a magnitude already. *Numbers*: the same function; the exponential is at most 1, and the
//! result is rounded once more.

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;

pub(super) const PASS: Pass = Pass {
    name: "stable_softplus",
    doc: "writes softplus(x) as max(x, 0) + softplus(-|x|)",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(rule))
}

fn rule(c: &mut Cursor<'_>) -> Option<()> {
    let op = c.is(op::SOFTPLUS)?;
    let (label, x) = (c.label(), c.arg(op, "x")?);
    if is_negative_magnitude(c, x) {
        return None;
    }
    let dtype = c.ty(x).dtype()?;
    let number = |value| Cursor::scalar_of(dtype, value);
    let positive = c.insert(op::MAXIMUM, &label, [("x", x.into()), ("y", number(0.0)?.into())])?;
    let magnitude = c.insert(op::ABS, &label, [("x", x.into())])?;
    let negative = c.insert(op::MUL, &label, [("x", magnitude.into()), ("y", number(-1.0)?.into())])?;
    let small = c.insert(op::SOFTPLUS, &label, [("x", negative.into())])?;
    let sum = c.insert(op::ADD, &label, [("x", positive.into()), ("y", small.into())])?;
    c.replace(sum)
}

/// True for the product of a magnitude and a negative number.
fn is_negative_magnitude(c: &Cursor<'_>, value: crate::program::ValueId) -> bool {
    let Some(op) = c.def_of(value, op::MUL) else { return false };
    let magnitude = |name| c.arg(op, name).is_some_and(|v| c.def_of(v, op::ABS).is_some());
    let negative = |name| c.scalar(op, name).is_some_and(|n| n < 0.0);
    (magnitude("x") && negative("y")) || (negative("x") && magnitude("y"))
}
