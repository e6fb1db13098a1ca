//! `constant_folding`: computes ops of constants at compile time.
//!
//! *Pattern*: an op all of whose operands are constants. *Holds*: an [`crate::Evaluate`] computes
//! it; its result is no output of a block; it is not random; the constants it makes are no larger
//! than `fold_bytes` or than those it is computed from, so a short program stays one; `constexpr_*`
//! ops are left, because they are how compressed weights are stored, unless `fold_constexpr` asks
//! for them. *Numbers*: the op is computed in fp32 and rounded once to its type, as the `exact`
//! table does it. The engine's own functions may differ by their error, so the pass is bit-exact
//! for ops that move elements and not for ops that compute.

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant};

pub(super) const PASS: Pass = Pass {
    name: "constant_folding",
    doc: "computes ops whose operands are all constants",
    exactness: Exactness::Rounding,
    repeats: true,
    run,
};

fn run(draft: &mut Draft, context: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(|c| fold(c, context)))
}

fn fold(c: &mut Cursor<'_>, context: &Context<'_>) -> Option<()> {
    let op = c.op()?;
    let constexpr = op.name.starts_with("constexpr_");
    let never = op.name == op::CONST || op.name.starts_with("random_") || !op.blocks.is_empty();
    if never || (constexpr && !context.options.fold_constexpr) || op.outputs.iter().any(|v| c.is_returned(*v)) {
        return None;
    }
    let mut sources = 0usize;
    for value in op.operands() {
        sources = sources.checked_add(c.function().constant(value)?.ty().bytes().unwrap_or(0))?;
    }
    let literals = op.args.iter().filter_map(|(_, a)| if let Arg::Const(c) = a { Some(c) } else { None });
    for constant in literals.chain(op.attributes.iter().map(|(_, c)| c)) {
        sources = sources.checked_add(constant.ty().bytes().unwrap_or(0))?;
    }
    let mut results = 0usize;
    for value in &op.outputs {
        results = results.checked_add(c.ty(*value).bytes()?)?;
    }
    // Compressed weights grow by what they are compressed; who asks for that means it.
    if results > context.options.fold_bytes.max(sources) && !constexpr {
        return None;
    }
    let found = context.evaluate.evaluate(c.function(), op, c.opset()?, c.weights()).ok()?;
    let labels: Vec<String> = op.outputs.iter().map(|v| c.function().value(*v).name.clone()).collect();
    if found.len() != labels.len() || !found.iter().all(|f| matches!(f, Constant::Tensor { .. })) {
        return None;
    }
    let values: Option<Vec<_>> = found.into_iter().zip(&labels).map(|(f, label)| c.constant(label, f)).collect();
    c.replace_all(&values?)
}
