//! `conv_batch_norm`: folds a batch norm after a convolution into its weight and bias.
//!
//! *Pattern*: `batch_norm(conv(x))`: with s = γ / √(σ² + ε) for each output channel, weight · s and
//! (bias − μ) · s + β. *Holds*: nothing else reads the convolution, its weight and bias are plain
//! constants (a `constexpr_*` weight would lose its compression), and no new weight leaves the
//! range of its type. *Numbers*: computed in fp32 by the evaluator and rounded once; each weight
//! moves by half a unit in its last place, so the result by 2⁻¹¹ of Σ|w·x|·|s| in fp16, less the
//! rounding between the ops that is gone.

use super::compute::Compute;
use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use super::product::epsilon;
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant, DataType, Op, ValueId};

pub(super) const PASS: Pass = Pass {
    name: "conv_batch_norm",
    doc: "folds a batch norm after a convolution into its weight and bias",
    exactness: Exactness::Rounding,
    repeats: true,
    run,
};

fn run(draft: &mut Draft, context: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(|c| rule(c, context)))
}

fn rule(c: &mut Cursor<'_>, context: &Context<'_>) -> Option<()> {
    let norm = c.is(op::BATCH_NORM)?.clone();
    let value = c.arg(&norm, "x")?;
    let conv = c.def_of(value, op::CONV).filter(|_| c.sole(value))?.clone();
    let weight = c.constant_arg(&conv, "weight")?.clone();
    let (dtype, extents) = (weight.ty().dtype()?, weight.ty().shape()?);
    let mut compute = Compute::new(context.evaluate, c.opset()?, c.weights());
    let Affine { scale, shift } = affine(c, &mut compute, &norm)?;
    let mut along = vec![1; extents.len()];
    *along.first_mut()? = *extents.first()?;
    let wide = compute.reshape(scale, &along)?;
    let old = compute.put(weight);
    let old = compute.cast(old, DataType::Fp32)?;
    let new = compute.binary(op::MUL, old, wide)?;
    let new = compute.cast(new, dtype)?;
    let bias = match conv.arg("bias") {
        Some(_) => {
            let old = compute.put(c.constant_arg(&conv, "bias")?.clone());
            let old = compute.cast(old, DataType::Fp32)?;
            let scaled = compute.binary(op::MUL, old, scale)?;
            compute.binary(op::ADD, scaled, shift)?
        }
        None => shift,
    };
    let bias = compute.cast(bias, dtype)?;
    let (weight, bias) = (compute.take(new)?, compute.take(bias)?);
    let finite = |k: &Constant| c.floats(k).is_some_and(|f| f.iter().all(|v| v.is_finite()));
    if !finite(&weight) || !finite(&bias) {
        return None;
    }
    let label = c.label();
    let weight = c.constant(&format!("{label}_weight"), weight)?;
    let bias = c.constant(&format!("{label}_bias"), bias)?;
    let kept = conv.args.iter().filter(|(n, _)| n != "bias" && n != "weight");
    let mut args: Vec<(&str, Arg)> = kept.map(|(n, a)| (n.as_str(), a.clone())).collect();
    args.extend([("weight", weight.into()), ("bias", bias.into())]);
    let with = c.insert(op::CONV, &label, args)?;
    c.replace(with)
}

/// A batch norm as `x · scale + shift`, both fp32 with one value for each channel.
pub(super) struct Affine {
    pub(super) scale: ValueId,
    pub(super) shift: ValueId,
}

/// The affine map of a `batch_norm` with constant parameters.
pub(super) fn affine(c: &Cursor<'_>, compute: &mut Compute<'_>, norm: &Op) -> Option<Affine> {
    let mut parameter = |name: &str| {
        let value = compute.put(c.constant_arg(norm, name)?.clone());
        compute.cast(value, DataType::Fp32)
    };
    let (mean, variance) = (parameter("mean")?, parameter("variance")?);
    let gamma = if norm.arg("gamma").is_some() { Some(parameter("gamma")?) } else { None };
    let beta = if norm.arg("beta").is_some() { Some(parameter("beta")?) } else { None };
    let small = compute.put(Constant::fp32(epsilon(c, norm, 1e-5)));
    let shifted = compute.binary(op::ADD, variance, small)?;
    let root = compute.op(op::SQRT, [("x", shifted.into())])?;
    let gamma = match gamma {
        Some(gamma) => gamma,
        None => compute.put(Constant::fp32(1.0)),
    };
    let scale = compute.binary(op::REAL_DIV, gamma, root)?;
    let moved = compute.binary(op::MUL, mean, scale)?;
    let beta = match beta {
        Some(beta) => beta,
        None => compute.put(Constant::fp32(0.0)),
    };
    let shift = compute.binary(op::SUB, beta, moved)?;
    Some(Affine { scale, shift })
}
