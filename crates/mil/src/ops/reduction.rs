//! Reductions over axes. `axes` absent means all; without `keep_dims` the reduced axes vanish.

use super::infer::tensor;
use super::{InferContext, Literal, NUMBERS, OpDef, Param, bool_const, int_const, x_of};
use crate::error::MilError;
use crate::program::{DataType, Dim, Type};

const PARAMS: &[Param] =
    &[x_of(NUMBERS), int_const("axes").optional(), bool_const("keep_dims").or(Literal::Bool(false)).spelled()];
const ARG: &[Param] = &[
    x_of(NUMBERS),
    int_const("axis").or(Literal::Int(-1)),
    bool_const("keep_dims").or(Literal::Bool(false)).spelled(),
];

pub(super) const OPS: &[OpDef] = &[
    reduce("reduce_sum"),
    reduce("reduce_mean"),
    reduce("reduce_max"),
    reduce("reduce_min"),
    reduce("reduce_prod"),
    reduce("reduce_sum_square"),
    reduce("reduce_l1_norm"),
    reduce("reduce_l2_norm"),
    reduce("reduce_log_sum"),
    reduce("reduce_log_sum_exp"),
    OpDef::new("reduce_argmax", ARG, arg_rule),
    OpDef::new("reduce_argmin", ARG, arg_rule),
];

const fn reduce(name: &'static str) -> OpDef {
    OpDef::new(name, PARAMS, reduce_rule)
}

fn drop_axes(shape: Vec<Dim>, axes: &[usize], keep: bool) -> Vec<Dim> {
    let extents = shape.into_iter().enumerate();
    match keep {
        true => extents.map(|(i, d)| if axes.contains(&i) { Dim::Fixed(1) } else { d }).collect(),
        false => extents.filter(|(i, _)| !axes.contains(i)).map(|(_, d)| d).collect(),
    }
}

fn reduce_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("x")?;
    let axes = match c.ints_if("axes")? {
        Some(axes) => c.normal_axes(&axes, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    Ok(tensor(dtype, drop_axes(shape, &axes, c.flag("keep_dims")?)))
}

fn arg_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("x")?;
    let axis = c.axis("axis", shape.len())?;
    Ok(tensor(DataType::Int32, drop_axes(shape, &[axis], c.flag("keep_dims")?)))
}
