//! Scatters: the result has the type of `data`.

use super::gather::{VALIDATE, fit_beside};
use super::infer::{InferContext, fits, show, tensor};
use super::signature::{INT32, Literal, NUMBERS, OpDef, Param, int_const, str_const};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{Dim, Type};

const DATA: Param = Param::new("data", NUMBERS).of("T");
const IX: Param = Param::new("indices", INT32);
const UPDATES: Param = Param::new("updates", NUMBERS).of("T");
const AXIS: Param = int_const("axis").or(Literal::Int(0));
const MODE: Param = str_const("mode").or(Literal::Str("add"));

const SCATTER: OpDef = OpDef::new(
    op::SCATTER,
    "data with slices at indices along an axis combined with updates",
    &[DATA, IX, UPDATES, AXIS, MODE],
    scatter_rule,
);
const ALONG: OpDef = OpDef::new(
    op::SCATTER_ALONG_AXIS,
    "data with the elements at an index for each along an axis combined with updates",
    &[DATA, IX, UPDATES, AXIS, MODE],
    along_rule,
);
const ND: OpDef = OpDef::new(
    op::SCATTER_ND,
    "data with the slices at rows of indices combined with updates",
    &[DATA, IX, UPDATES, MODE],
    nd_rule,
);

pub(super) const OPS: &[OpDef] = &[
    SCATTER,
    SCATTER.again(Opset::IOS17, &[DATA, IX, UPDATES, AXIS, MODE, VALIDATE]),
    ALONG,
    ALONG.again(Opset::IOS17, &[DATA, IX, UPDATES, AXIS, MODE, VALIDATE]),
    ND,
    ND.again(Opset::IOS17, &[DATA, IX, UPDATES, MODE, VALIDATE]),
];

const MODES: &[&str] = &["add", "div", "max", "min", "mul", "sub", "update"];

fn updates_fit(c: &InferContext<'_>, wanted: &[Dim]) -> Result<(), MilError> {
    let (_, updates) = c.tensor("updates")?;
    if fits(&updates, wanted) {
        return Ok(());
    }
    Err(c.fail(format!("updates {} must be {}", show(&updates), show(wanted))))
}

/// updates: `data.shape[:axis] + indices.shape + data.shape[axis+1:]`.
fn scatter_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, data), (_, indices)) = (c.tensor("data")?, c.tensor("indices")?);
    c.one_of("mode", MODES)?;
    let axis = c.axis("axis", data.len())?;
    updates_fit(c, &[&data[..axis], &indices, &data[axis + 1..]].concat())?;
    c.check_indices(&data[axis..=axis])?;
    Ok(tensor(dtype, data))
}

/// updates have the shape of the indices, which agrees with data in every axis but `axis`.
fn along_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, data), (_, indices)) = (c.tensor("data")?, c.tensor("indices")?);
    c.one_of("mode", MODES)?;
    let axis = c.axis("axis", data.len())?;
    if !fit_beside(&data, &indices, axis) {
        return Err(c.fail(format!(
            "indices {} do not fit data {} outside of axis {axis}",
            show(&indices),
            show(&data)
        )));
    }
    updates_fit(c, &indices)?;
    c.check_indices(&data[axis..=axis])?;
    Ok(tensor(dtype, data))
}

/// updates: `indices.shape[:-1] + data.shape[indices.shape[-1]:]`.
fn nd_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, data), (_, indices)) = (c.tensor("data")?, c.tensor("indices")?);
    c.one_of("mode", MODES)?;
    let Some((depth, rows)) = indices.split_last() else { return Err(c.fail("indices must have at least rank 1")) };
    let Dim::Fixed(depth) = *depth else { return Err(c.fail("the last extent of indices must be known")) };
    let kept = data.get(depth..);
    let kept = kept.ok_or_else(|| c.fail(format!("rows of {depth} indices do not fit data {}", show(&data))))?;
    updates_fit(c, &[rows, kept].concat())?;
    c.check_indices(&data[..depth])?;
    Ok(tensor(dtype, data))
}
