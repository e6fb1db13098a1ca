//! `sigmoid_forms`: writes silu and tanh with sigmoid, which frameworks keep in fp16 where they
//! lower the functions themselves through fp32.
//!
//! | op | becomes |
//! |---|---|
//! | `silu` | x · sigmoid(x) |
//! | `tanh` | 2 · sigmoid(2x) − 1 |
//!
//! *Numbers*: sigmoid is rounded by itself, so silu moves by one unit in the last place. Near 0
//! tanh keeps the absolute error of a sigmoid of ½, 2⁻¹¹ in fp16, and so loses its relative
//! accuracy.

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;

pub(super) const PASS: Pass = Pass {
    name: "sigmoid_forms",
    doc: "writes silu and tanh with sigmoid",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(rule))
}

fn rule(c: &mut Cursor<'_>) -> Option<()> {
    let op = c.op()?;
    let tanh = match op.name.as_str() {
        op::SILU => false,
        op::TANH => true,
        _ => return None,
    };
    let (label, x) = (c.label(), c.arg(op, "x")?);
    let dtype = c.ty(x).dtype()?;
    let number = |value| Cursor::scalar_of(dtype, value);
    let two = || number(2.0);
    let inner = if tanh { c.insert(op::MUL, &label, [("x", x.into()), ("y", two()?.into())])? } else { x };
    let gate = c.insert(op::SIGMOID, &label, [("x", inner.into())])?;
    let result = if tanh {
        let double = c.insert(op::MUL, &label, [("x", gate.into()), ("y", two()?.into())])?;
        c.insert(op::SUB, &label, [("x", double.into()), ("y", number(1.0)?.into())])?
    } else {
        c.insert(op::MUL, &label, [("x", x.into()), ("y", gate.into())])?
    };
    c.replace(result)
}
