//! Element-wise arithmetic, comparisons and logic of one, two or three operands, with numpy broadcasting.

use super::infer::tensor;
use super::{BOOL, FLOATS, Infer, InferContext, Literal, NUMBERS, OpDef, Opset, Param, apart, float_const, x_of};
use crate::error::MilError;
use crate::program::{DataType, Type};

const XY: &[Param] = &[x_of(NUMBERS), Param::new("y", NUMBERS).of("T")];
const XY_BOOL: &[Param] = &[x_of(BOOL), Param::new("y", BOOL).of("T")];
const X: &[Param] = &[x_of(NUMBERS)];
const X_FLOAT: &[Param] = &[x_of(FLOATS)];
const X_BOOL: &[Param] = &[x_of(BOOL)];

const fn with_epsilon(default: f32) -> [Param; 2] {
    [x_of(FLOATS), float_const("epsilon").or(Literal::Float(default)).spelled()]
}
const LOG: [Param; 2] = with_epsilon(1e-45);
const RSQRT: [Param; 2] = with_epsilon(1e-12);
const INVERSE: [Param; 2] = with_epsilon(1e-4);
const CLIP: &[Param] = &[x_of(FLOATS), float_const("alpha"), float_const("beta")];
const THRESHOLD: &[Param] = &[x_of(FLOATS), float_const("alpha")];
const SELECT: &[Param] =
    &[Param::new("cond", BOOL), Param::new("a", super::MOVABLE).of("T"), Param::new("b", super::MOVABLE).of("T")];

pub(super) const OPS: &[OpDef] = &[
    binary("add"),
    binary("sub"),
    binary("mul"),
    binary("real_div"),
    binary("floor_div"),
    binary("mod"),
    binary("pow"),
    binary("maximum"),
    binary("minimum"),
    compare("equal"),
    compare("not_equal"),
    compare("less"),
    compare("less_equal"),
    compare("greater"),
    compare("greater_equal"),
    logical("logical_and"),
    logical("logical_or"),
    logical("logical_xor"),
    OpDef::new("logical_not", X_BOOL, unary_rule),
    unary("abs", X),
    unary("sign", X),
    unary("square", X),
    unary("floor", X),
    unary("ceil", X),
    unary("round", X),
    unary("exp", X_FLOAT),
    unary("exp2", X),
    unary("sqrt", X_FLOAT),
    unary("erf", X_FLOAT),
    unary("sin", X_FLOAT),
    unary("cos", X_FLOAT),
    unary("tan", X_FLOAT),
    unary("asin", X_FLOAT),
    unary("acos", X_FLOAT),
    unary("atan", X_FLOAT),
    unary("sinh", X_FLOAT),
    unary("cosh", X_FLOAT),
    unary("atanh", X_FLOAT),
    unary("log", &LOG),
    unary("log", &apart(LOG)).since(Opset::IOS17),
    unary("rsqrt", &RSQRT),
    unary("rsqrt", &apart(RSQRT)).since(Opset::IOS17),
    unary("inverse", &INVERSE),
    unary("inverse", &apart(INVERSE)).since(Opset::IOS17),
    unary("clip", CLIP),
    unary("threshold", THRESHOLD),
    OpDef::new("select", SELECT, select_rule),
];

const fn binary(name: &'static str) -> OpDef {
    OpDef::new(name, XY, binary_rule)
}

const fn compare(name: &'static str) -> OpDef {
    OpDef::new(name, XY, compare_rule)
}

const fn logical(name: &'static str) -> OpDef {
    OpDef::new(name, XY_BOOL, compare_rule)
}

const fn unary(name: &'static str, params: &'static [Param]) -> OpDef {
    OpDef::new(name, params, unary_rule as Infer)
}

/// The type of `x`.
pub(super) fn unary_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("x")?;
    Ok(tensor(dtype, shape))
}

fn binary_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, y)) = (c.tensor("x")?, c.tensor("y")?);
    Ok(tensor(dtype, c.broadcast(&x, &y)?))
}

fn compare_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((_, x), (_, y)) = (c.tensor("x")?, c.tensor("y")?);
    Ok(tensor(DataType::Bool, c.broadcast(&x, &y)?))
}

fn select_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((_, cond), (dtype, a), (_, b)) = (c.tensor("cond")?, c.tensor("a")?, c.tensor("b")?);
    let both = c.broadcast(&a, &b)?;
    Ok(tensor(dtype, c.broadcast(&cond, &both)?))
}
