//! `wide_argmax`: a cast to fp32 in front of each argmax and argmin of fp16 values.
//!
//! *Pattern*: `reduce_argmax` and `reduce_argmin` with an operand of fp16. *Numbers*: every fp16
//! number is one of fp32, so order and ties are the same, and with them the index.

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant, DataType};

pub(super) const PASS: Pass = Pass {
    name: "wide_argmax",
    doc: "computes argmax and argmin of fp16 values in fp32",
    exactness: Exactness::Bits,
    repeats: false,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(rule))
}

fn rule(c: &mut Cursor<'_>) -> Option<()> {
    let op = c.op()?;
    if !matches!(op.name.as_str(), op::REDUCE_ARGMAX | op::REDUCE_ARGMIN) {
        return None;
    }
    let (op, label, x) = (op.clone(), c.label(), c.arg(op, "x")?);
    if c.ty(x).dtype() != Some(DataType::Fp16) {
        return None;
    }
    let dtype = Constant::string(DataType::Fp32.name());
    let wide = c.insert(op::CAST, &format!("{label}_wide"), [("x", x.into()), ("dtype", dtype.into())])?;
    let args = op.args.iter().map(|(n, a)| (n.as_str(), if n == "x" { Arg::Value(wide) } else { a.clone() }));
    let index = c.insert(&op.name, &label, args)?;
    c.replace(index)
}
