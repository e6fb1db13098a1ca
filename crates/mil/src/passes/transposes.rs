//! `transposes`: merges and removes transposes.
//!
//! *Pattern*: `transpose(transpose(x))` becomes one transpose, or `x`; and a transpose that is
//! undone after element-wise ops, `t⁻¹(f(t(a), t(b), scalar))`, becomes `f(a, b, scalar)`. *Holds*:
//! for the second, every op in between is element-wise, its result is read once and is no output,
//! and each of its tensor operands comes, over at most 8 such ops, out of that same transpose
//! (constants of one element fit everywhere). The inner transpose stays if others read it.
//! *Numbers*: none change, elements only move.

use super::cursor::Cursor;
use super::draft::Draft;
use super::moves::{is_pointwise, producer, transpose};
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant, ValueId};

pub(super) const PASS: Pass = Pass {
    name: "transposes",
    doc: "joins transposes that follow each other and cancels those that undo each other",
    exactness: Exactness::Bits,
    repeats: true,
    run,
};

/// Element-wise ops between a transpose and the one that undoes it.
const DEPTH: usize = 8;

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(|c| joined(c).or_else(|| through(c))))
}

fn joined(c: &mut Cursor<'_>) -> Option<()> {
    let (middle, outer) = transpose(c, c.op()?)?;
    let (x, inner) = transpose(c, c.def(middle)?)?;
    let perm: Vec<usize> = outer.iter().map(|&a| inner.get(a).copied()).collect::<Option<_>>()?;
    if perm.is_sorted() {
        return c.replace(x);
    }
    let perm: Vec<i32> = perm.into_iter().map(|a| a as i32).collect();
    let label = c.label();
    let one = c.insert(op::TRANSPOSE, &label, [("x", x.into()), ("perm", Constant::int32s(&perm).into())])?;
    c.replace(one)
}

fn through(c: &mut Cursor<'_>) -> Option<()> {
    let (y, outer) = transpose(c, c.op()?)?;
    let mut undone = vec![0; outer.len()];
    for (i, &a) in outer.iter().enumerate() {
        *undone.get_mut(a)? = i;
    }
    if !fits(c, y, &undone, DEPTH)? {
        return None;
    }
    let with = rebuild(c, y)?;
    c.replace(with)
}

/// True if the value is the transpose `perm` of something over element-wise ops read once; `false`
/// if it is neutral (one element). `None` if it is neither.
fn fits(c: &Cursor<'_>, value: ValueId, perm: &[usize], depth: usize) -> Option<bool> {
    if c.function().constant(value).is_some() {
        return (c.ty(value).elements()? == 1 && c.ty(value).rank()? <= perm.len()).then_some(false);
    }
    let op = c.def(value)?;
    if let Some((_, inner)) = transpose(c, op) {
        return (inner == perm).then_some(true);
    }
    if depth == 0 || !is_pointwise(&op.name) || !c.sole(value) {
        return None;
    }
    let mut moved = false;
    for (_, arg) in &op.args {
        match arg {
            Arg::Value(v) => moved |= fits(c, *v, perm, depth - 1)?,
            Arg::Const(_) => {}
            Arg::List(_) => return None,
        }
    }
    // A constant of one element may have more axes than the others, never more than the result.
    moved.then_some(true)
}

/// The value before its transposes.
fn rebuild(c: &mut Cursor<'_>, value: ValueId) -> Option<ValueId> {
    if c.function().constant(value).is_some() {
        return Some(value);
    }
    let op = c.function().op(producer(c, value)?).clone();
    if let Some((x, _)) = transpose(c, &op) {
        return Some(x);
    }
    let mut args = Vec::new();
    for (name, arg) in &op.args {
        args.push((
            name.as_str(),
            match arg {
                Arg::Value(v) => Arg::Value(rebuild(c, *v)?),
                other => other.clone(),
            },
        ));
    }
    let label = c.function().value(value).name.clone();
    c.insert(&op.name, &label, args)
}
