//! `recognize_silu`: x · sigmoid(x).
//!
//! *Pattern*: a `mul` of a value with its `sigmoid`, in either order, becomes `silu`. *Holds*:
//! nothing else reads the sigmoid. *Numbers*: the sigmoid is no longer rounded by itself: in fp16
//! the result moves by at most one unit in the last place.

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;

pub(super) const PASS: Pass = Pass {
    name: "recognize_silu",
    doc: "writes x * sigmoid(x) as silu",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(rule))
}

fn rule(c: &mut Cursor<'_>) -> Option<()> {
    let op = c.is(op::MUL)?;
    let (a, b) = (c.arg(op, "x")?, c.arg(op, "y")?);
    let gates = |x, s| c.sole(s) && c.def_of(s, op::SIGMOID).is_some_and(|op| c.arg(op, "x") == Some(x));
    let x = if gates(a, b) {
        a
    } else if gates(b, a) {
        b
    } else {
        return None;
    };
    let label = c.label();
    let silu = c.insert(op::SILU, &label, [("x", x.into())])?;
    c.replace(silu)
}
