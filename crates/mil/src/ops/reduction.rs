//! Reductions over axes. `axes` absent means all; without `keep_dims` the reduced axes vanish.

use super::infer::tensor;
use super::{InferContext, Literal, NUMBERS, OpDef, Opset, Param, bool_const, int_const, str_const, x_of};
use crate::error::MilError;
use crate::program::{DataType, Dim, Type};

const PARAMS: &[Param] =
    &[x_of(NUMBERS), int_const("axes").optional(), bool_const("keep_dims").or(Literal::Bool(false)).spelled()];
const ARG: [Param; 3] =
    [x_of(NUMBERS), int_const("axis").or(Literal::Int(-1)), bool_const("keep_dims").or(Literal::Bool(false)).spelled()];
const ARG_17: &[Param] = &[ARG[0], ARG[1], ARG[2], str_const("output_dtype").or(Literal::Str("int32"))];

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
    OpDef::new("reduce_argmax", &ARG, arg_rule),
    OpDef::new("reduce_argmin", &ARG, arg_rule),
    OpDef::new("reduce_argmax", ARG_17, arg_rule).since(Opset::IOS17),
    OpDef::new("reduce_argmin", ARG_17, arg_rule).since(Opset::IOS17),
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
    let dtype = match c.def.param("output_dtype") {
        Some(_) if c.one_of("output_dtype", &["int32", "uint16"])? == "uint16" => DataType::UInt16,
        _ => DataType::Int32,
    };
    Ok(tensor(dtype, drop_axes(shape, &[axis], c.flag("keep_dims")?)))
}
