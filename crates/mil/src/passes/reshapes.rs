//! `reshapes`: merges consecutive reshapes.
//!
//! *Pattern*: a `reshape`, `squeeze` or `expand_dims` of a `reshape`, `squeeze` or `expand_dims`
//! becomes one `reshape`, or nothing if the extents are the old ones again. *Holds*: all extents
//! are known. The inner one stays if others read it. *Numbers*: none change.

use super::cursor::Cursor;
use super::draft::Draft;
use super::moves::reshape;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::Constant;

pub(super) const PASS: Pass = Pass {
    name: "reshapes",
    doc: "joins reshapes, squeezes and expand_dims that follow each other",
    exactness: Exactness::Bits,
    repeats: true,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(rule))
}

fn rule(c: &mut Cursor<'_>) -> Option<()> {
    let middle = reshape(c, c.op()?)?;
    let x = reshape(c, c.def(middle)?)?;
    let (from, to) = (c.shape(x)?, c.shape(c.result()?)?);
    if from == to {
        return c.replace(x);
    }
    let extents: Vec<i32> = to.iter().map(|&n| i32::try_from(n).ok()).collect::<Option<_>>()?;
    // A reshape to rank 0 is spelled by `squeeze` only, and 0 in a shape means another thing.
    if extents.is_empty() || extents.contains(&0) {
        return None;
    }
    let label = c.label();
    let one = c.insert(op::RESHAPE, &label, [("x", x.into()), ("shape", Constant::int32s(&extents).into())])?;
    c.replace(one)
}
