//! Gathers.

use super::infer::{InferContext, fits, same, show, tensor};
use super::signature::{INDICES_16, INDICES_17, INT32, Literal, NUMBERS, OpDef, Param, bool_const, int_const, x_of};
use super::tensor::SORTABLE;
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{Dim, Type};

const AXIS: Param = int_const("axis").or(Literal::Int(0));
const BATCH: Param = int_const("batch_dims").or(Literal::Int(0));
pub(super) const VALIDATE: Param = bool_const("validate_indices").or(Literal::Bool(false));
const X: Param = x_of(NUMBERS);
const X_17: Param = x_of(SORTABLE);
const IX: Param = Param::new("indices", INT32);
const IX_16: Param = Param::new("indices", INDICES_16).of("I");
const IX_17: Param = Param::new("indices", INDICES_17).of("I");

const GATHER: OpDef = OpDef::new(op::GATHER, "the slices of x at indices along an axis", &[X, IX, AXIS], gather_rule);
const ALONG: OpDef = OpDef::new(
    op::GATHER_ALONG_AXIS,
    "the elements of x at an index for each along an axis",
    &[X, IX, AXIS],
    along_rule,
);
const ND: OpDef = OpDef::new(op::GATHER_ND, "the slices of x at rows of indices", &[X, IX], nd_rule);

pub(super) const OPS: &[OpDef] = &[
    GATHER,
    GATHER.again(Opset::IOS16, &[X, IX_16, AXIS, BATCH]),
    GATHER.again(Opset::IOS17, &[X_17, IX_17, AXIS, BATCH, VALIDATE]),
    ALONG,
    ALONG.again(Opset::IOS16, &[X, IX_16, AXIS]),
    ALONG.again(Opset::IOS17, &[X_17, IX_17, AXIS, VALIDATE]),
    ND,
    ND.again(Opset::IOS16, &[X, IX_16, BATCH]),
    ND.again(Opset::IOS17, &[X_17, IX_17, BATCH, VALIDATE]),
];

/// Leading axes that x and the indices share, at most `most`.
fn batch_axes(c: &InferContext<'_>, x: &[Dim], indices: &[Dim], most: usize) -> Result<usize, MilError> {
    let batch = if c.def.param("batch_dims").is_some() { c.int("batch_dims")? } else { 0 };
    let batch = usize::try_from(batch).ok().filter(|&b| b <= most && b <= indices.len() && b <= x.len());
    let batch = batch.ok_or_else(|| c.fail(format!("batch_dims must lie between 0 and {most}")))?;
    if x[..batch].iter().zip(&indices[..batch]).any(|(a, b)| same(a, b).is_none()) {
        return Err(c.fail(format!("{} and {} differ in their {batch} batch axes", show(x), show(indices))));
    }
    Ok(batch)
}

/// `x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis+1:]`.
fn gather_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, indices)) = (c.tensor("x")?, c.tensor("indices")?);
    let axis = c.axis("axis", x.len())?;
    let batch = batch_axes(c, &x, &indices, axis)?;
    c.check_indices(&x[axis..=axis])?;
    Ok(tensor(dtype, [&x[..axis], &indices[batch..], &x[axis + 1..]].concat()))
}

/// The shape of `indices`, which agrees with x in every axis but `axis`.
fn along_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, indices)) = (c.tensor("x")?, c.tensor("indices")?);
    let axis = c.axis("axis", x.len())?;
    if !fit_beside(&x, &indices, axis) {
        return Err(c.fail(format!("indices {} do not fit x {} outside of axis {axis}", show(&indices), show(&x))));
    }
    c.check_indices(&x[axis..=axis])?;
    Ok(tensor(dtype, indices))
}

/// True if both have the same rank, and the same extents in every axis but one.
pub(super) fn fit_beside(a: &[Dim], b: &[Dim], axis: usize) -> bool {
    a.len() == b.len() && axis < a.len() && fits(&a[..axis], &b[..axis]) && fits(&a[axis + 1..], &b[axis + 1..])
}

/// `indices.shape[:-1] + x.shape[batch_dims + indices.shape[-1]:]`.
fn nd_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, indices)) = (c.tensor("x")?, c.tensor("indices")?);
    let Some((depth, rows)) = indices.split_last() else { return Err(c.fail("indices must have at least rank 1")) };
    let Dim::Fixed(depth) = *depth else { return Err(c.fail("the last extent of indices must be known")) };
    let batch = batch_axes(c, &x, &indices, x.len())?;
    let kept = batch.checked_add(depth).and_then(|n| x.get(n..));
    let kept = kept.ok_or_else(|| c.fail(format!("rows of {depth} indices do not fit x {}", show(&x))))?;
    c.check_indices(&x[batch..batch + depth])?;
    Ok(tensor(dtype, [rows, kept].concat()))
}
