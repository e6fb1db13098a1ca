//! `rank4_hard_swish`: a matrix product of rank 2 and its hard-swish over [1, 1, m, n].
//!
//! *Pattern*: a `linear` or `matmul` of an [m, k] value and a constant, whose result feeds
//! `sigmoid_hard`, or `relu6` or `clip` after an addition of 3. The product becomes a `matmul` of
//! rank 4 with reshapes around it, and element-wise ops of what it returns are moved in front of
//! the second one. *Holds*: extents are known. *Numbers*: the same products and sums, and the same
//! functions of the same elements.

use std::collections::HashSet;

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant, Function, Op, ValueId};

pub(super) const PASS: Pass = Pass {
    name: "rank4_hard_swish",
    doc: "computes products of rank 2 that feed hard-swish over [1, 1, m, n]",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

/// The results of this pass's second reshapes, by function.
type Flat = HashSet<(String, ValueId)>;

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    let mut flat = Flat::new();
    let products = draft.each(|c| product(c, &mut flat));
    if products > 0 {
        // In program order each op sees the reshapes of its operands already moved.
        draft.each(|c| sink(c, &mut flat));
    }
    Ok(products)
}

fn product(c: &mut Cursor<'_>, flat: &mut Flat) -> Option<()> {
    let op = c.op()?;
    let weight = match op.name.as_str() {
        op::LINEAR => "weight",
        op::MATMUL => "y",
        _ => return None,
    };
    let result = c.result()?;
    if c.shape(result)?.len() != 2 || !feeds_gate(c.function(), result) {
        return None;
    }
    let (op, label, x) = (op.clone(), c.label(), c.arg(op, "x")?);
    c.constant_arg(&op, weight)?;
    let kernel = op.arg(weight)?.clone();
    let (rows, columns) = (c.shape(x)?, c.shape(result)?);
    let wide = reshape(c, &format!("{label}_rows"), x, &[1, 1, rows[0], *rows.get(1)?])?;
    let flag = |name: &str| op.arg(name).cloned().unwrap_or_else(|| Constant::bool(false).into());
    let (left, right) = match op.name.as_str() {
        op::LINEAR => (Constant::bool(false).into(), Constant::bool(true).into()),
        _ => (flag("transpose_x"), flag("transpose_y")),
    };
    let args = [("transpose_x", left), ("transpose_y", right), ("x", wide.into()), ("y", kernel)];
    let mut y = c.insert(op::MATMUL, &format!("{label}_product"), args)?;
    if let Some(bias) = op.arg("bias").cloned() {
        y = c.insert(op::ADD, &format!("{label}_sum"), [("x", y.into()), ("y", bias)])?;
    }
    let y = reshape(c, &label, y, &columns)?;
    let function = c.function().name.clone();
    c.replace(y)?;
    flat.insert((function, y));
    Some(())
}

/// True if the value, or the value plus a constant, is the operand of a hard-swish's gate.
fn feeds_gate(function: &Function, value: ValueId) -> bool {
    let reads = |op: &Op, v: ValueId| op.operands().any(|o| o == v);
    let sums = function.ops.iter().filter(|o| o.name == op::ADD && reads(o, value)).flat_map(|o| &o.outputs);
    let shifted: Vec<ValueId> = sums.copied().collect();
    function.ops.iter().any(|o| match o.name.as_str() {
        op::SIGMOID_HARD => reads(o, value),
        op::RELU6 | op::CLIP => shifted.iter().any(|s| reads(o, *s)),
        _ => false,
    })
}

fn reshape(c: &mut Cursor<'_>, label: &str, x: ValueId, shape: &[usize]) -> Option<ValueId> {
    let extents: Vec<i32> = shape.iter().map(|&n| i32::try_from(n).ok()).collect::<Option<_>>()?;
    c.insert(op::RESHAPE, label, [("x", x.into()), ("shape", Constant::int32s(&extents).into())])
}

/// An element-wise op of reshaped values and scalars becomes the reshape of the op.
fn sink(c: &mut Cursor<'_>, flat: &mut Flat) -> Option<()> {
    let op = c.op()?;
    let elementwise = matches!(
        op.name.as_str(),
        op::ADD
            | op::SUB
            | op::MUL
            | op::REAL_DIV
            | op::RELU
            | op::RELU6
            | op::CLIP
            | op::SIGMOID_HARD
            | op::THRESHOLDED_RELU
    );
    if !elementwise {
        return None;
    }
    let (op, label, result) = (op.clone(), c.label(), c.result()?);
    let shape = c.shape(result)?;
    let function = c.function().name.clone();
    let mut args = op.args.clone();
    let mut moved = false;
    for (name, arg) in args.iter_mut().filter(|(n, _)| n == "x" || n == "y") {
        let Arg::Value(v) = arg else { continue };
        if flat.contains(&(function.clone(), *v)) {
            // The operand of the second reshape.
            *v = c.def_of(*v, op::RESHAPE).and_then(|r| c.arg(r, "x"))?;
            moved = true;
        } else {
            c.constant_arg(&op, name).filter(|k| k.ty().elements() == Some(1))?;
        }
    }
    if !moved {
        return None;
    }
    let wide = c.insert(&op.name, &format!("{label}_wide"), args.iter().map(|(n, a)| (n.as_str(), a.clone())))?;
    let y = reshape(c, &label, wide, &shape)?;
    c.replace(y)?;
    flat.insert((function, y));
    Some(())
}
