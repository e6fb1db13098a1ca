//! `finite_masks`: −40000 instead of −inf in constants that a softmax reads.
//!
//! *Pattern*: a constant argument of an op between a mask and a softmax (`add`, `sub`, `mul`,
//! `select`), or the mask of `scaled_dot_product_attention`, with elements that are −inf in fp16,
//! is raised to −40000. *Holds*: the constant is of floats, the op has one result, and a softmax
//! reads it through such ops and changes of shape. *Numbers*: a score of −40000 has the exponential
//! 0, as one of −inf has, if the largest score of its row is above −39980. A row that is masked as
//! a whole becomes uniform; before, it was NaN.

use std::collections::HashSet;

use super::compute::Compute;
use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant, Function, Op, ValueId};

pub(super) const PASS: Pass = Pass {
    name: "finite_masks",
    doc: "writes -40000 instead of -inf in masks of a softmax",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

/// The lowest number of a mask.
const LOWEST: f32 = -40000.0;
/// From here on numbers are −inf in fp16.
const INFINITE: f32 = -65520.0;
/// Ops between a mask and its softmax.
const STEPS: usize = 8;

fn run(draft: &mut Draft, context: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(|c| rule(c, context)))
}

fn rule(c: &mut Cursor<'_>, context: &Context<'_>) -> Option<()> {
    let op = c.op()?;
    let masks: &[&str] = match op.name.as_str() {
        op::ADD | op::SUB | op::MUL => &["x", "y"],
        op::SELECT => &["a", "b"],
        op::SCALED_DOT_PRODUCT_ATTENTION => &["attn_mask"],
        _ => return None,
    };
    let low = |name: &&&str| {
        let constant = c.constant_arg(op, name);
        constant.and_then(|k| c.floats(k)).is_some_and(|v| v.iter().any(|n| *n <= INFINITE))
    };
    let low: Vec<&str> = masks.iter().filter(low).copied().collect();
    let attends = op.name == op::SCALED_DOT_PRODUCT_ATTENTION;
    if low.is_empty() || !(attends || reaches_softmax(c.function(), c.result()?)) {
        return None;
    }
    let (op, label) = (op.clone(), c.label());
    let mut args = op.args.clone();
    for (name, arg) in args.iter_mut().filter(|(n, _)| low.contains(&n.as_str())) {
        let raised = raised(c, context, &op, name)?;
        *arg = Arg::Value(c.constant(&format!("{label}_{name}"), raised)?);
    }
    let result = c.insert(&op.name, &label, args.iter().map(|(n, a)| (n.as_str(), a.clone())))?;
    c.replace(result)
}

/// The maximum of a constant argument and the lowest number.
fn raised(c: &Cursor<'_>, context: &Context<'_>, op: &Op, name: &str) -> Option<Constant> {
    let constant = c.constant_arg(op, name)?.clone();
    let lowest = Cursor::scalar_of(constant.ty().dtype()?, LOWEST)?;
    let mut compute = Compute::new(context.evaluate, c.opset()?, c.weights());
    let (x, y) = (compute.put(constant), compute.put(lowest));
    let raised = compute.binary(op::MAXIMUM, x, y)?;
    compute.take(raised)
}

/// True if a softmax reads the value through ops that keep −inf.
fn reaches_softmax(function: &Function, value: ValueId) -> bool {
    let mut reached = HashSet::from([value]);
    for _ in 0..STEPS {
        let before = reached.len();
        // One pass over the function finds the readers of all values that are reached so far.
        for op in &function.ops {
            match op.name.as_str() {
                _ if !op.operands().any(|v| reached.contains(&v)) => {}
                op::SOFTMAX => return true,
                op::ADD
                | op::SUB
                | op::MUL
                | op::SELECT
                | op::RESHAPE
                | op::TRANSPOSE
                | op::EXPAND_DIMS
                | op::SQUEEZE
                | op::CAST
                | op::IDENTITY => reached.extend(&op.outputs),
                _ => {}
            }
        }
        if reached.len() == before {
            return false;
        }
    }
    false
}
