//! Reductions over axes. If `axes` is absent, all axes are reduced; without `keep_dims` the reduced
//! axes are removed.

use super::infer::{InferContext, tensor};
use super::signature::{Literal, NUMBERS, OpDef, Param, bool_const, int_const, str_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{DataType, Dim, Type};

const PARAMS: &[Param] =
    &[x_of(NUMBERS), int_const("axes").optional(), bool_const("keep_dims").or(Literal::Bool(false)).spelled()];
const ARG: [Param; 3] =
    [x_of(NUMBERS), int_const("axis").or(Literal::Int(-1)), bool_const("keep_dims").or(Literal::Bool(false)).spelled()];
const ARG_17: &[Param] = &[ARG[0], ARG[1], ARG[2], str_const("output_dtype").or(Literal::Str("int32"))];

const ARGMAX: OpDef = OpDef::new(op::REDUCE_ARGMAX, "where the largest along an axis is", &ARG, arg_rule);
const ARGMIN: OpDef = OpDef::new(op::REDUCE_ARGMIN, "where the smallest along an axis is", &ARG, arg_rule);

pub(super) const OPS: &[OpDef] = &[
    reduce(op::REDUCE_SUM, "the sum over axes"),
    reduce(op::REDUCE_MEAN, "the mean over axes"),
    reduce(op::REDUCE_MAX, "the largest over axes"),
    reduce(op::REDUCE_MIN, "the smallest over axes"),
    reduce(op::REDUCE_PROD, "the product over axes"),
    reduce(op::REDUCE_SUM_SQUARE, "the sum of squares over axes"),
    reduce(op::REDUCE_L1_NORM, "the sum of magnitudes over axes"),
    reduce(op::REDUCE_L2_NORM, "the root of the sum of squares over axes"),
    reduce(op::REDUCE_LOG_SUM, "the logarithm of the sum over axes"),
    reduce(op::REDUCE_LOG_SUM_EXP, "the logarithm of the sum of exponentials over axes"),
    ARGMAX,
    ARGMAX.again(Opset::IOS17, ARG_17),
    ARGMIN,
    ARGMIN.again(Opset::IOS17, ARG_17),
];

const fn reduce(name: &'static str, doc: &'static str) -> OpDef {
    OpDef::new(name, doc, PARAMS, reduce_rule)
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
