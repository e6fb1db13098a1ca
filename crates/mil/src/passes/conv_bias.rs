//! `conv_bias`: a constant added after a product becomes its bias.
//!
//! *Pattern*: `add(conv(x), k)`, `add(k, conv(x))` or `sub(conv(x), k)` with a constant `k` that
//! has one value for each output channel (or one for all); likewise after `conv_transpose`, on axis
//! 1, and `linear`, on the last axis. *Holds*: nothing else reads the product, and `k` does not
//! widen it. An existing bias and `k` are summed. *Numbers*: the product is no longer rounded
//! before the sum: the result moves by at most half a unit in the last place of the product. An
//! existing bias and `k` are added in fp32 and rounded once. Some engines refuse biases (mil-text
//! §4): this pass is for those that do not.

use super::compute::{Compute, reshaped};
use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant, DataType};

pub(super) const PASS: Pass = Pass {
    name: "conv_bias",
    doc: "makes a constant added to a convolution its bias",
    exactness: Exactness::Rounding,
    repeats: true,
    run,
};

fn run(draft: &mut Draft, context: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(|c| rule(c, context)))
}

fn rule(c: &mut Cursor<'_>, context: &Context<'_>) -> Option<()> {
    let op = c.op()?;
    let negative = match op.name.as_str() {
        op::ADD => false,
        op::SUB => true,
        _ => return None,
    };
    let pair = |product: &str, constant: &str| {
        let value = c.arg(op, product)?;
        let known = c.def(value).is_some_and(|d| matches!(d.name.as_str(), op::CONV | op::CONV_TRANSPOSE | op::LINEAR));
        (known && c.sole(value)).then_some((value, c.constant_arg(op, constant)?.clone()))
    };
    let (value, k) = pair("x", "y").or_else(|| if negative { None } else { pair("y", "x") })?;
    let product = c.def(value)?.clone();
    let shape = c.shape(value)?;
    let axis = if product.name == op::LINEAR { shape.len().checked_sub(1)? } else { 1 };
    let channels = *shape.get(axis)?;
    let given = k.ty().shape()?;
    let missing = shape.len().checked_sub(given.len())?;
    let fits = given.iter().enumerate().all(|(i, &n)| n == 1 || (i + missing == axis && n == channels));
    let old = match product.arg("bias") {
        Some(_) => Some(c.constant_arg(&product, "bias")?.clone()),
        None => None,
    };
    if !fits {
        return None;
    }
    let bias = match (&old, negative, k.ty().elements()? == channels) {
        (None, false, true) => reshaped(&k, &[channels])?,
        _ => computed(c, context, old, k, negative, channels)?,
    };
    let label = c.label();
    let bias = c.constant(&format!("{label}_bias"), bias)?;
    let mut args: Vec<(&str, Arg)> =
        product.args.iter().filter(|(n, _)| n != "bias").map(|(n, a)| (n.as_str(), a.clone())).collect();
    args.push(("bias", bias.into()));
    let with = c.insert(&product.name, &label, args)?;
    c.replace(with)
}

/// `old ± k` for each channel.
fn computed(
    c: &Cursor<'_>,
    context: &Context<'_>,
    old: Option<Constant>,
    k: Constant,
    negative: bool,
    channels: usize,
) -> Option<Constant> {
    let dtype = k.ty().dtype()?;
    let mut compute = Compute::new(context.evaluate, c.opset()?, c.weights());
    // −0 for no bias: what is added to it stays as it is.
    let none = || Constant::raw(DataType::Fp32, &[channels], &(-0.0f32).to_le_bytes().repeat(channels));
    let old = compute.put(old.unwrap_or_else(none));
    let old = compute.cast(old, DataType::Fp32)?;
    let flat = if k.ty().elements()? == 1 { 1 } else { channels };
    let k = compute.put(reshaped(&k, &[flat])?);
    let k = compute.cast(k, DataType::Fp32)?;
    let sum = compute.binary(if negative { op::SUB } else { op::ADD }, old, k)?;
    let sum = compute.cast(sum, dtype)?;
    compute.take(sum)
}
