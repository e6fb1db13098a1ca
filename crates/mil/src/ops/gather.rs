//! Gathers.

use super::infer::{same, show, tensor};
use super::{INDICES, InferContext, Literal, MOVABLE, OpDef, Opset, Param, bool_const, int_const, x_of};
use crate::error::MilError;
use crate::program::Type;

const AXIS: Param = int_const("axis").or(Literal::Int(0));
const BATCH: Param = int_const("batch_dims").or(Literal::Int(0));
const VALIDATE: Param = bool_const("validate_indices").or(Literal::Bool(false));
const IX: Param = Param::new("indices", INDICES);

pub(super) const OPS: &[OpDef] = &[
    OpDef::new("gather", &[x_of(MOVABLE), IX, AXIS], gather_rule),
    OpDef::new("gather", &[x_of(MOVABLE), IX, AXIS, BATCH], gather_rule).since(Opset::IOS16),
    OpDef::new("gather", &[x_of(MOVABLE), IX, AXIS, BATCH, VALIDATE], gather_rule).since(Opset::IOS17),
    OpDef::new("gather_along_axis", &[x_of(MOVABLE), IX, AXIS], along_axis_rule),
    OpDef::new("gather_along_axis", &[x_of(MOVABLE), IX, AXIS, VALIDATE], along_axis_rule).since(Opset::IOS17),
];

/// `x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis+1:]`.
fn gather_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, indices)) = (c.tensor("x")?, c.tensor("indices")?);
    let axis = c.axis("axis", x.len())?;
    let batch = if c.def.param("batch_dims").is_some() { c.int("batch_dims")? } else { 0 };
    let batch = usize::try_from(batch).ok().filter(|&b| b <= axis && b <= indices.len());
    let batch = batch.ok_or_else(|| c.fail("batch_dims must lie between 0 and axis"))?;
    if x[..batch].iter().zip(&indices[..batch]).any(|(a, b)| same(a, b).is_none()) {
        return Err(c.fail(format!("{} and {} differ in their {batch} batch axes", show(&x), show(&indices))));
    }
    let mut shape = x[..axis].to_vec();
    shape.extend_from_slice(&indices[batch..]);
    shape.extend_from_slice(&x[axis + 1..]);
    Ok(tensor(dtype, shape))
}

/// The shape of `indices`, which agrees with x beside the axis.
fn along_axis_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, indices)) = (c.tensor("x")?, c.tensor("indices")?);
    let axis = c.axis("axis", x.len())?;
    let fits = x.len() == indices.len() && (0..x.len()).all(|i| i == axis || same(&x[i], &indices[i]).is_some());
    if !fits {
        return Err(c.fail(format!("indices {} do not fit x {} beside axis {axis}", show(&indices), show(&x))));
    }
    Ok(tensor(dtype, indices))
}
