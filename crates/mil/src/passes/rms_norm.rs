//! `canonical_rms_norm`: x / √(mean(x²) + ε) as the published kernels write it.
//!
//! MIL has no op for it. *Pattern*: any spelling (`real_div` by `sqrt`, times `rsqrt`, `pow(…, −½)`
//! or a reciprocal; mean as `reduce_mean`, or a sum divided; squares as `square`, `pow` or
//! `reduce_sum_square`) becomes `mul(x, pow(add(mul(reduce_sum(mul(x, x)), 1/n), ε), −½))`, the
//! form of the engine's training kernels (training-static §2), whose ops the in-memory compiler
//! accepts without further arguments: `rsqrt` needs an explicit epsilon there, and sources disagree
//! about `reduce_mean` (mil-text §4, §7). A weight applied after it stays unchanged. *Holds*: ε is
//! positive, nothing else reads the values in between; x minus its mean is left to
//! `recognize_layer_norm`.
//!
//! *Numbers*: 1/n and the power are rounded elsewhere. The sum is n times the mean: in fp16 it
//! overflows where Σx² > 65504, as the kernels' own does.

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use super::product::normalized;
use super::recognize_layer_norm::centered;
use crate::error::MilError;
use crate::op;
use crate::program::Constant;

pub(super) const PASS: Pass = Pass {
    name: "canonical_rms_norm",
    doc: "writes RMS normalization as the published kernels do",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(rule))
}

fn rule(c: &mut Cursor<'_>) -> Option<()> {
    let n = normalized(c)?;
    if n.canonical || centered(c, n.x).is_some() {
        return None;
    }
    let (shape, dtype) = (c.shape(n.x)?, c.ty(n.x).dtype()?);
    let count: usize = n.axes.iter().map(|&a| shape[a]).product();
    let axes: Vec<i32> = n.axes.iter().map(|&a| a as i32).collect();
    let number = |v: f32| Cursor::scalar_of(dtype, v);
    let label = c.label();
    let name = |part: &str| format!("{label}_{part}");
    let squares = c.insert(op::MUL, &name("squares"), [("x", n.x.into()), ("y", n.x.into())])?;
    let args =
        [("x", squares.into()), ("axes", Constant::int32s(&axes).into()), ("keep_dims", Constant::bool(true).into())];
    let sum = c.insert(op::REDUCE_SUM, &name("sum"), args)?;
    let mean = c.insert(op::MUL, &name("mean"), [("x", sum.into()), ("y", number(1.0 / count as f32)?.into())])?;
    let shifted = c.insert(op::ADD, &name("shifted"), [("x", mean.into()), ("y", number(n.epsilon)?.into())])?;
    let rrms = c.insert(op::POW, &name("rrms"), [("x", shifted.into()), ("y", number(-0.5)?.into())])?;
    let scaled = c.insert(op::MUL, &label, [("x", n.x.into()), ("y", rrms.into())])?;
    c.replace(scaled)
}
