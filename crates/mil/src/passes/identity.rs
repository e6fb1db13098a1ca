//! `identity`: removes ops whose result is their operand.
//!
//! *Pattern*: `identity`; `cast` to the type it has; `reshape`, `squeeze`, `expand_dims`,
//! `slice_by_size`, `slice_by_index`, `pad`, `tile`, `transpose` that leave every element where it
//! is; `concat` and `split` with one part; and arithmetic with a neutral constant: `x · 1`, `x /
//! 1`, `x − 0`, `x + 0`. *Holds*: the result has the type of the operand (a constant that
//! broadcasts makes another one), and does not have to be an output while the operand is an input
//! or an output itself.
//!
//! *Numbers*: none change. So `x + (+0)` stays where `x` may be −0, because the sum is +0: it goes
//! if `x` is an integer or the result of an op that never gives −0 (`abs`, `exp`, `exp2`,
//! `sigmoid`, `square`, `softmax`). `x + (−0)` and `x − (+0)` are `x` for every `x`; `x − (−0)` is
//! `x + (+0)`. `x^1` stays: engines compute powers through logarithms.

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Op, ValueId};

pub(super) const PASS: Pass = Pass {
    name: "identity",
    doc: "removes ops that give back their operand",
    exactness: Exactness::Bits,
    repeats: true,
    run,
};

/// The most elements of a constant that are examined: a neutral constant is usually a scalar or a
/// small vector.
const LOOK: usize = 1 << 16;

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(|c| {
        let x = operand(c)?;
        let y = c.result()?;
        // Extents that are not all known may differ at run time.
        c.shape(x)?;
        if c.ty(x) != c.ty(y) {
            return None;
        }
        c.replace(x)
    }))
}

/// The operand that the op here returns unchanged, if the types agree.
fn operand(c: &Cursor<'_>) -> Option<ValueId> {
    let op = c.op()?;
    let one = |list: bool| match op.arg(if list { "values" } else { "x" })? {
        Arg::Value(v) => Some(*v),
        Arg::List(vs) if vs.len() == 1 => Some(vs[0]),
        _ => None,
    };
    match op.name.as_str() {
        // With the same type nothing is converted, and no element is somewhere else.
        op::IDENTITY
        | op::CAST
        | op::RESHAPE
        | op::SQUEEZE
        | op::EXPAND_DIMS
        | op::SLICE_BY_SIZE
        | op::TILE
        | op::PAD => one(false),
        op::CONCAT => one(true),
        op::SPLIT if op.outputs.len() == 1 => one(false),
        op::SLICE_BY_INDEX => {
            let stride = c.args(op)?.ints_if("stride").ok()?;
            stride.is_none_or(|s| s.iter().all(|&s| s == 1)).then(|| one(false))?
        }
        op::TRANSPOSE => {
            let x = one(false)?;
            let shape = c.shape(x)?;
            let perm = c.args(op)?.normal_axes(&c.ints(op, "perm")?, shape.len()).ok()?;
            // Axes of one element may go anywhere.
            let rest: Vec<usize> = perm.into_iter().filter(|&a| shape.get(a) != Some(&1)).collect();
            rest.is_sorted().then_some(x)
        }
        op::MUL => neutral(c, op, "x", "y", 1.0).or_else(|| neutral(c, op, "y", "x", 1.0)),
        op::REAL_DIV => neutral(c, op, "x", "y", 1.0),
        op::SUB => zero(c, op, "x", "y", false),
        op::ADD => zero(c, op, "x", "y", true).or_else(|| zero(c, op, "y", "x", true)),
        _ => None,
    }
}

/// The argument `x`, if every element of the argument `of` has these bits.
fn neutral(c: &Cursor<'_>, op: &Op, x: &str, of: &str, value: f32) -> Option<ValueId> {
    let constant = c.constant_arg(op, of)?;
    if constant.ty().elements()? > LOOK {
        return None;
    }
    let same = c.floats(constant)?.iter().all(|v| v.to_bits() == value.to_bits());
    if same { c.arg(op, x) } else { None }
}

/// The argument `x`, if adding (or subtracting) the argument `of` gives it back.
fn zero(c: &Cursor<'_>, op: &Op, x: &str, of: &str, add: bool) -> Option<ValueId> {
    let exact = if add { -0.0 } else { 0.0 };
    neutral(c, op, x, of, exact).or_else(|| {
        let x = neutral(c, op, x, of, -exact)?;
        let float = c.ty(x).dtype()?.is_float();
        let positive = c.def(x).is_some_and(|d| {
            matches!(d.name.as_str(), op::ABS | op::EXP | op::EXP2 | op::SIGMOID | op::SQUARE | op::SOFTMAX)
        });
        (!float || positive).then_some(x)
    })
}
