//! Activations and softmax: the result has the type of `x`.

use super::elementwise::unary_rule;
use super::infer::{InferContext, same, show, tensor};
use super::signature::{FLOATS, Literal, OpDef, Param, apart, float_const, int_const, str_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::Type;

const X: &[Param] = &[x_of(FLOATS)];
const ALPHA: [Param; 2] = [x_of(FLOATS), float_const("alpha")];
const ALPHA_BETA: [Param; 3] = [x_of(FLOATS), float_const("alpha"), float_const("beta")];
const GELU: &[Param] = &[x_of(FLOATS), str_const("mode").or(Literal::Str("EXACT"))];
const SOFTMAX: &[Param] = &[x_of(FLOATS), int_const("axis").or(Literal::Int(-1)).spelled()];

const LEAKY_RELU: OpDef = OpDef::new(op::LEAKY_RELU, "x where x ≥ 0, else alpha · x", &ALPHA, unary_rule);
const ELU: OpDef = OpDef::new(op::ELU, "x where x > 0, else alpha · (eˣ - 1)", &ALPHA, unary_rule);
const THRESHOLDED: OpDef = OpDef::new(op::THRESHOLDED_RELU, "x where x ≥ alpha, else 0", &ALPHA, unary_rule);
const PRELU: OpDef =
    OpDef::new(op::PRELU, "x where x ≥ 0, else alpha · x with an alpha for each channel", &ALPHA, prelu_rule);
const CLAMPED_RELU: OpDef =
    OpDef::new(op::CLAMPED_RELU, "min(x, beta) where x ≥ 0, else min(alpha · x, beta)", &ALPHA_BETA, unary_rule);
const LINEAR: OpDef = OpDef::new(op::LINEAR_ACTIVATION, "alpha · x + beta", &ALPHA_BETA, unary_rule);
const SCALED_TANH: OpDef = OpDef::new(op::SCALED_TANH, "alpha · tanh(beta · x)", &ALPHA_BETA, unary_rule);
const SIGMOID_HARD: OpDef =
    OpDef::new(op::SIGMOID_HARD, "alpha · x + beta, held within 0 and 1", &ALPHA_BETA, unary_rule);
const SOFTPLUS_PARAMETRIC: OpDef = OpDef::new(
    op::SOFTPLUS_PARAMETRIC,
    "alpha · ln(1 + exp(beta · x)) with an alpha and a beta for each channel",
    &ALPHA_BETA,
    softplus_rule,
);

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(op::SIGMOID, "1 / (1 + e⁻ˣ)", X, unary_rule),
    OpDef::new(op::RELU, "max(x, 0)", X, unary_rule),
    OpDef::new(op::RELU6, "x held within 0 and 6", X, unary_rule),
    OpDef::new(op::SILU, "x / (1 + e⁻ˣ)", X, unary_rule),
    OpDef::new(op::SOFTPLUS, "ln(1 + eˣ)", X, unary_rule),
    OpDef::new(op::SOFTSIGN, "x / (1 + |x|)", X, unary_rule),
    LEAKY_RELU,
    LEAKY_RELU.again(Opset::IOS17, &apart(ALPHA)),
    ELU,
    ELU.again(Opset::IOS17, &apart(ALPHA)),
    THRESHOLDED,
    THRESHOLDED.again(Opset::IOS17, &apart(ALPHA)),
    PRELU,
    PRELU.again(Opset::IOS17, &apart(ALPHA)),
    CLAMPED_RELU,
    CLAMPED_RELU.again(Opset::IOS17, &apart(ALPHA_BETA)),
    LINEAR,
    LINEAR.again(Opset::IOS17, &apart(ALPHA_BETA)),
    SCALED_TANH,
    SCALED_TANH.again(Opset::IOS17, &apart(ALPHA_BETA)),
    SIGMOID_HARD,
    SIGMOID_HARD.again(Opset::IOS17, &apart(ALPHA_BETA)),
    SOFTPLUS_PARAMETRIC,
    SOFTPLUS_PARAMETRIC.again(Opset::IOS17, &apart(ALPHA_BETA)),
    OpDef::new(op::GELU, "x · Φ(x), exact or by an approximation", GELU, gelu_rule),
    OpDef::new(op::SOFTMAX, "eˣ over its sum along an axis", SOFTMAX, softmax_rule),
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

/// The parameters are vectors of the extent of axis 1.
fn channel_parameters(c: &InferContext<'_>, names: &[&str]) -> Result<(), MilError> {
    let (_, x) = c.tensor("x")?;
    for name in names {
        let (_, given) = c.ranked(name, 1)?;
        if same(&given[0], &x[1]).is_none() {
            return Err(c.fail(format!("`{name}` is {}, x has {} channels", show(&given), show(&x[1..2]))));
        }
    }
    Ok(())
}

fn prelu_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, x) = c.tensor("x")?;
    if !(3..=5).contains(&x.len()) {
        return Err(c.fail(format!("x {} must have rank 3 to 5", show(&x))));
    }
    channel_parameters(c, &["alpha"])?;
    let alpha = c.floats("alpha").unwrap_or_default();
    // The tolerance of coremltools 9.0, within which values count as equal.
    let alike = alpha.iter().all(|a| alpha.first().is_some_and(|first| (a - first).abs() <= 1e-5));
    if x.len() != 4 && !alike {
        return Err(c.fail(format!("x {} of a rank other than 4 needs an alpha of equal values", show(&x))));
    }
    unary_rule(c)
}

fn softplus_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, x) = c.tensor("x")?;
    if x.len() < 3 {
        return Err(c.fail(format!("x {} must have at least rank 3", show(&x))));
    }
    channel_parameters(c, &["alpha", "beta"])?;
    unary_rule(c)
}
