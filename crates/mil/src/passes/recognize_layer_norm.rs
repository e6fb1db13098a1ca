//! `recognize_layer_norm`: (x − mean(x)) / √(mean((x − mean(x))²) + ε) · γ + β.
//!
//! *Pattern*: the difference divided by the root (as `real_div` by `sqrt`, or times `rsqrt`,
//! `pow(…, −½)` or a reciprocal; means as `reduce_mean`, or `reduce_sum` over the number of
//! elements; squares in any spelling) becomes `layer_norm`. Then a product with a constant becomes
//! its `gamma`, and a sum with a constant its `beta`. *Holds*: both means are over the same axes,
//! which are kept; nothing else reads the values in between; γ and β have the extents of those axes
//! and 1 elsewhere. *Numbers*: the values in between are no longer rounded to fp16, nor can the
//! square overflow it.

use super::compute::reshaped;
use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use super::product::{epsilon, mean, normalized};
use crate::error::MilError;
use crate::op;
use crate::program::{Arg, Constant, ValueId};

pub(super) const PASS: Pass = Pass {
    name: "recognize_layer_norm",
    doc: "writes a normalization of primitives as layer_norm",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(|c| core(c).or_else(|| scaled(c))))
}

/// The value and axes of which `centered` is the difference from the mean.
pub(super) fn centered(c: &Cursor<'_>, centered: ValueId) -> Option<(ValueId, Vec<usize>)> {
    let op = c.def_of(centered, op::SUB)?;
    let (x, m) = (c.arg(op, "x")?, c.arg(op, "y")?);
    let mean = mean(c, m)?;
    (mean.of == x && c.sole(m)).then_some((x, mean.axes))
}

fn core(c: &mut Cursor<'_>) -> Option<()> {
    let n = normalized(c)?;
    let (x, axes) = centered(c, n.x)?;
    if axes != n.axes || c.is_returned(n.x) || c.uses(n.x) != n.reads {
        return None;
    }
    let axes: Vec<i32> = axes.into_iter().map(|a| a as i32).collect();
    let small = Cursor::scalar_of(c.ty(x).dtype()?, n.epsilon)?;
    let label = c.label();
    let args = [("x", x.into()), ("axes", Constant::int32s(&axes).into()), ("epsilon", small.into())];
    let norm = c.insert(op::LAYER_NORM, &label, args)?;
    c.replace(norm)
}

/// A product or sum of a `layer_norm` and a constant.
fn scaled(c: &mut Cursor<'_>) -> Option<()> {
    let op = c.op()?;
    let argument = match op.name.as_str() {
        op::MUL => "gamma",
        op::ADD => "beta",
        _ => return None,
    };
    let of = |norm: &str, other: &str| {
        let value = c.arg(op, norm)?;
        c.def_of(value, op::LAYER_NORM).filter(|_| c.sole(value))?;
        Some((value, c.constant_arg(op, other)?.clone()))
    };
    let (value, constant) = of("x", "y").or_else(|| of("y", "x"))?;
    let norm = c.def(value)?.clone();
    if norm.arg("beta").is_some() || norm.arg(argument).is_some() {
        return None;
    }
    let x = c.arg(&norm, "x")?;
    let shape = c.shape(x)?;
    let axes = c.axes(&norm, "axes", shape.len(), (0..shape.len()).collect())?;
    let written = c.ints(&norm, "axes").unwrap_or_default();
    let given = constant.ty().shape()?;
    let missing = shape.len().checked_sub(given.len())?;
    let wanted = (missing..shape.len()).map(|a| if axes.contains(&a) { shape[a] } else { 1 });
    // The extents of γ follow the axes as they are written.
    let sorted = c.args(&norm)?.normal_axes(&written, shape.len()).is_ok_and(|w| w.is_sorted());
    if !wanted.eq(given) || axes.iter().any(|&a| a < missing) || !sorted {
        return None;
    }
    let extents: Vec<usize> = axes.iter().map(|&a| shape[a]).collect();
    let label = c.label();
    let parameter = c.constant(&format!("{label}_{argument}"), reshaped(&constant, &extents)?)?;
    // Everything the op says already, and the epsilon even if it was left to its default.
    let small = Cursor::scalar_of(c.ty(x).dtype()?, epsilon(c, &norm, 1e-5))?;
    let mut args: Vec<(&str, Arg)> =
        norm.args.iter().filter(|(n, _)| n != "epsilon").map(|(n, a)| (n.as_str(), a.clone())).collect();
    args.extend([(argument, parameter.into()), ("epsilon", small.into())]);
    let with = c.insert(op::LAYER_NORM, &label, args)?;
    c.replace(with)
}
