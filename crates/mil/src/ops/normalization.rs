//! Normalizations: the result has the type of `x`.

use super::elementwise::unary_rule;
use super::infer::{InferContext, same, show, tensor};
use super::signature::{FLOATS, Literal, OpDef, Param, apart, float_const, int_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{Dim, Type};

const fn epsilon(default: f32) -> Param {
    float_const("epsilon").or(Literal::Float(default))
}

const LAYER: [Param; 5] = [
    x_of(FLOATS),
    int_const("axes").optional(),
    float_const("gamma").optional(),
    float_const("beta").optional(),
    epsilon(1e-5),
];
const BATCH: [Param; 6] = [
    x_of(FLOATS),
    float_const("mean"),
    float_const("variance"),
    float_const("gamma").optional(),
    float_const("beta").optional(),
    epsilon(1e-5),
];
const INSTANCE: [Param; 4] =
    [x_of(FLOATS), float_const("gamma").optional(), float_const("beta").optional(), epsilon(1e-5)];
const L2: [Param; 2] = [x_of(FLOATS), epsilon(1e-6)];

const LOCAL: [Param; 5] = [
    x_of(FLOATS),
    int_const("size"),
    float_const("alpha").or(Literal::Float(1e-4)),
    float_const("beta").or(Literal::Float(0.75)),
    float_const("k").or(Literal::Float(1.0)),
];

const LAYER_NORM: OpDef = OpDef::new(op::LAYER_NORM, "x normalized over axes, scaled and shifted", &LAYER, layer_rule);
const BATCH_NORM: OpDef =
    OpDef::new(op::BATCH_NORM, "x normalized by a given mean and variance for each channel", &BATCH, channel_rule);
const INSTANCE_NORM: OpDef =
    OpDef::new(op::INSTANCE_NORM, "x normalized over space for each image and channel", &INSTANCE, channel_rule);
const L2_NORM: OpDef =
    OpDef::new(op::L2_NORM, "x over the root of its sum of squares over the last three axes", &L2, l2_rule);
const LOCAL_NORM: OpDef = OpDef::new(
    op::LOCAL_RESPONSE_NORM,
    "x over a power of the sum of squares of neighboring channels",
    &LOCAL,
    unary_rule,
);

pub(super) const OPS: &[OpDef] = &[
    LAYER_NORM,
    LAYER_NORM.again(Opset::IOS17, &apart(LAYER)),
    BATCH_NORM,
    BATCH_NORM.again(Opset::IOS17, &apart(BATCH)),
    INSTANCE_NORM,
    INSTANCE_NORM.again(Opset::IOS17, &apart(INSTANCE)),
    L2_NORM,
    L2_NORM.again(Opset::IOS17, &apart(L2)),
    LOCAL_NORM,
    LOCAL_NORM.again(Opset::IOS17, &apart(LOCAL)),
];

fn layer_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("x")?;
    let mut axes = match c.ints_if("axes")? {
        Some(axes) => c.normal_axes(&axes, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    // gamma and beta have the axes in the order of x.
    axes.sort_unstable();
    let normalized: Vec<Dim> = axes.iter().map(|&a| shape[a].clone()).collect();
    for name in ["gamma", "beta"] {
        if !c.has(name) {
            continue;
        }
        let (_, given) = c.tensor(name)?;
        let fits = given.len() == normalized.len() && given.iter().zip(&normalized).all(|(a, b)| same(a, b).is_some());
        if !fits {
            return Err(c.fail(format!("`{name}` is {}, the normalized axes are {}", show(&given), show(&normalized))));
        }
    }
    Ok(tensor(dtype, shape))
}

/// Per-channel parameters: vectors of the extent of axis 1.
fn channel_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("x")?;
    if shape.len() < 3 {
        return Err(c.fail(format!("x must have at least rank 3, has {}", shape.len())));
    }
    for name in ["mean", "variance", "gamma", "beta"] {
        if c.def.param(name).is_none() || !c.has(name) {
            continue;
        }
        let (_, given) = c.tensor(name)?;
        if given.len() != 1 || same(&given[0], &shape[1]).is_none() {
            return Err(c.fail(format!("`{name}` is {}, x has {} channels", show(&given), show(&shape[1..2]))));
        }
    }
    Ok(tensor(dtype, shape))
}

fn l2_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("x")?;
    if shape.len() < 3 {
        return Err(c.fail(format!("x must have at least rank 3, has {}", shape.len())));
    }
    Ok(tensor(dtype, shape))
}
