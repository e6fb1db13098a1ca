//! Element-wise arithmetic, comparisons and logic of one, two or three operands, with numpy
//! broadcasting.

use super::infer::{InferContext, tensor};
use super::signature::{BASIC, BOOL, FLOATS, Literal, NUMBERS, OpDef, Param, apart, float_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
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
const THRESHOLD: &[Param] = &[x_of(NUMBERS), Param::new("alpha", NUMBERS).of("T").constant()];
const SELECT: &[Param] = &[Param::new("cond", BOOL), Param::new("a", BASIC).of("T"), Param::new("b", BASIC).of("T")];

const CLIPPED: OpDef = unary(op::CLIP, "x held within alpha and beta", CLIP);
const LOGARITHM: OpDef = unary(op::LOG, "ln(x + epsilon)", &LOG);
const RECIPROCAL_ROOT: OpDef = unary(op::RSQRT, "1 / √(x + epsilon)", &RSQRT);
const RECIPROCAL: OpDef = unary(op::INVERSE, "1 / (x + epsilon)", &INVERSE);

pub(super) const OPS: &[OpDef] = &[
    binary(op::ADD, "x + y"),
    binary(op::SUB, "x - y"),
    binary(op::MUL, "x · y"),
    binary(op::REAL_DIV, "x / y; of integers, rounded toward zero"),
    binary(op::FLOOR_DIV, "⌊x / y⌋"),
    binary(op::MOD, "x - ⌊x / y⌋ · y"),
    binary(op::POW, "x to the power y"),
    binary(op::MAXIMUM, "the larger of x and y"),
    binary(op::MINIMUM, "the smaller of x and y"),
    compare(op::EQUAL, "x = y"),
    compare(op::NOT_EQUAL, "x ≠ y"),
    compare(op::LESS, "x < y"),
    compare(op::LESS_EQUAL, "x ≤ y"),
    compare(op::GREATER, "x > y"),
    compare(op::GREATER_EQUAL, "x ≥ y"),
    logical(op::LOGICAL_AND, "x and y"),
    logical(op::LOGICAL_OR, "x or y"),
    logical(op::LOGICAL_XOR, "either x or y"),
    unary(op::LOGICAL_NOT, "not x", X_BOOL),
    unary(op::ABS, "|x|", X),
    unary(op::SIGN, "-1, 0 or 1, as x is below, at or above 0", X),
    unary(op::SQUARE, "x²", X),
    unary(op::EXP2, "2ˣ", X),
    unary(op::FLOOR, "the largest integer ≤ x", X_FLOAT),
    unary(op::CEIL, "the smallest integer ≥ x", X_FLOAT),
    unary(op::ROUND, "the nearest integer, a half to the even one", X_FLOAT),
    unary(op::EXP, "eˣ", X_FLOAT),
    unary(op::SQRT, "√x", X_FLOAT),
    unary(op::ERF, "the Gauss error function", X_FLOAT),
    unary(op::SIN, "the sine", X_FLOAT),
    unary(op::COS, "the cosine", X_FLOAT),
    unary(op::TAN, "the tangent", X_FLOAT),
    unary(op::ASIN, "the inverse sine", X_FLOAT),
    unary(op::ACOS, "the inverse cosine", X_FLOAT),
    unary(op::ATAN, "the inverse tangent", X_FLOAT),
    unary(op::SINH, "the hyperbolic sine", X_FLOAT),
    unary(op::COSH, "the hyperbolic cosine", X_FLOAT),
    unary(op::TANH, "the hyperbolic tangent", X_FLOAT),
    unary(op::ATANH, "the inverse hyperbolic tangent", X_FLOAT),
    LOGARITHM,
    LOGARITHM.again(Opset::IOS17, &apart(LOG)),
    RECIPROCAL_ROOT,
    RECIPROCAL_ROOT.again(Opset::IOS17, &apart(RSQRT)),
    RECIPROCAL,
    RECIPROCAL.again(Opset::IOS17, &apart(INVERSE)),
    CLIPPED,
    OpDef { infer: clip_rule, ..CLIPPED.since(Opset::IOS17) },
    unary(op::THRESHOLD, "max(x, alpha)", THRESHOLD),
    OpDef::new(op::SELECT, "a where cond, else b", SELECT, select_rule),
];

const fn binary(name: &'static str, doc: &'static str) -> OpDef {
    OpDef::new(name, doc, XY, binary_rule)
}

const fn compare(name: &'static str, doc: &'static str) -> OpDef {
    OpDef::new(name, doc, XY, compare_rule)
}

const fn logical(name: &'static str, doc: &'static str) -> OpDef {
    OpDef::new(name, doc, XY_BOOL, compare_rule)
}

const fn unary(name: &'static str, doc: &'static str, params: &'static [Param]) -> OpDef {
    OpDef::new(name, doc, params, unary_rule)
}

/// The type of `x`.
pub(super) fn unary_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("x")?;
    Ok(tensor(dtype, shape))
}

/// From iOS 17 on the bounds are checked.
fn clip_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    if let (Some(alpha), Some(beta)) = (c.number_known("alpha")?, c.number_known("beta")?)
        && alpha >= beta
    {
        return Err(c.fail(format!("alpha {alpha} must be below beta {beta}")));
    }
    unary_rule(c)
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
