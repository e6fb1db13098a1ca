//! Activations and softmax: the result has the type of `x`.

use super::elementwise::unary_rule;
use super::infer::tensor;
use super::{
    FLOATS, InferContext, Literal, NUMBERS, OpDef, Opset, Param, apart, float_const, int_const, str_const, x_of,
};
use crate::error::MilError;
use crate::program::Type;

const X: &[Param] = &[x_of(FLOATS)];
const X_NUMBER: &[Param] = &[x_of(NUMBERS)];
const ALPHA: [Param; 2] = [x_of(FLOATS), float_const("alpha")];
const ALPHA_BETA: [Param; 3] = [x_of(FLOATS), float_const("alpha"), float_const("beta")];
const GELU: &[Param] = &[x_of(FLOATS), str_const("mode").or(Literal::Str("EXACT"))];
const SOFTMAX: &[Param] = &[x_of(FLOATS), int_const("axis").or(Literal::Int(-1)).spelled()];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new("sigmoid", X, unary_rule),
    OpDef::new("relu", X_NUMBER, unary_rule),
    OpDef::new("relu6", X, unary_rule),
    OpDef::new("tanh", X, unary_rule),
    OpDef::new("silu", X, unary_rule),
    OpDef::new("softplus", X, unary_rule),
    OpDef::new("softsign", X, unary_rule),
    OpDef::new("leaky_relu", &ALPHA, unary_rule),
    OpDef::new("leaky_relu", &apart(ALPHA), unary_rule).since(Opset::IOS17),
    OpDef::new("elu", &ALPHA, unary_rule),
    OpDef::new("elu", &apart(ALPHA), unary_rule).since(Opset::IOS17),
    OpDef::new("thresholded_relu", &ALPHA, unary_rule),
    OpDef::new("thresholded_relu", &apart(ALPHA), unary_rule).since(Opset::IOS17),
    OpDef::new("clamped_relu", &ALPHA_BETA, unary_rule),
    OpDef::new("clamped_relu", &apart(ALPHA_BETA), unary_rule).since(Opset::IOS17),
    OpDef::new("linear_activation", &ALPHA_BETA, unary_rule),
    OpDef::new("linear_activation", &apart(ALPHA_BETA), unary_rule).since(Opset::IOS17),
    OpDef::new("scaled_tanh", &ALPHA_BETA, unary_rule),
    OpDef::new("scaled_tanh", &apart(ALPHA_BETA), unary_rule).since(Opset::IOS17),
    OpDef::new("sigmoid_hard", &ALPHA_BETA, unary_rule),
    OpDef::new("sigmoid_hard", &apart(ALPHA_BETA), unary_rule).since(Opset::IOS17),
    OpDef::new("gelu", GELU, gelu_rule),
    OpDef::new("softmax", SOFTMAX, softmax_rule),
];

fn gelu_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    c.one_of("mode", &["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"])?;
    unary_rule(c)
}

fn softmax_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("x")?;
    c.axis("axis", shape.len())?;
    Ok(tensor(dtype, shape))
}
