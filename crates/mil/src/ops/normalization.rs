//! Normalisations: the result has the type of `x`.

use super::infer::{same, show, tensor};
use super::{FLOATS, InferContext, Literal, OpDef, Opset, Param, apart, float_const, int_const, x_of};
use crate::error::MilError;
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

pub(super) const OPS: &[OpDef] = &[
    OpDef::new("layer_norm", &LAYER, layer_rule),
    OpDef::new("layer_norm", &apart(LAYER), layer_rule).since(Opset::IOS17),
    OpDef::new("batch_norm", &BATCH, channel_rule),
    OpDef::new("batch_norm", &apart(BATCH), channel_rule).since(Opset::IOS17),
    OpDef::new("instance_norm", &INSTANCE, channel_rule),
    OpDef::new("instance_norm", &apart(INSTANCE), channel_rule).since(Opset::IOS17),
    OpDef::new("l2_norm", &L2, l2_rule),
    OpDef::new("l2_norm", &apart(L2), l2_rule).since(Opset::IOS17),
];

fn layer_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("x")?;
    let axes = match c.ints_if("axes")? {
        Some(axes) => c.normal_axes(&axes, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    let normalised: Vec<Dim> = axes.iter().map(|&a| shape[a].clone()).collect();
    for name in ["gamma", "beta"] {
        if !c.has(name) {
            continue;
        }
        let (_, given) = c.tensor(name)?;
        let fits = given.len() == normalised.len() && given.iter().zip(&normalised).all(|(a, b)| same(a, b).is_some());
        if !fits {
            return Err(c.fail(format!("`{name}` is {}, the normalised axes are {}", show(&given), show(&normalised))));
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
