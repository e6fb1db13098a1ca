//! Random tensors. Whether a seed determines the numbers depends on the engine; -1 means no seed.

use super::infer::{InferContext, tensor};
use super::signature::{FLOATS, INT32, Literal, OpDef, Param, float_const, int_const, str_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::program::{DataType, Dim, Type};

const SHAPE: Param = Param::new("shape", INT32);
const SEED: Param = int_const("seed").or(Literal::Int(-1));
const BERNOULLI: &[Param] = &[SHAPE, float_const("prob").or(Literal::Float(0.5)), SEED];
const NORMAL: &[Param] =
    &[SHAPE, float_const("mean").or(Literal::Float(0.0)), float_const("stddev").or(Literal::Float(1.0)), SEED];
const UNIFORM: &[Param] =
    &[SHAPE, float_const("low").or(Literal::Float(0.0)), float_const("high").or(Literal::Float(1.0)), SEED];
const CATEGORICAL: &[Param] =
    &[x_of(FLOATS), str_const("mode").or(Literal::Str("logits")), int_const("size").or(Literal::Int(1)), SEED];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(op::RANDOM_BERNOULLI, "1 with probability prob, else 0", BERNOULLI, |c| distribution(c, &["prob"])),
    OpDef::new(op::RANDOM_NORMAL, "normally distributed numbers", NORMAL, |c| distribution(c, &["mean", "stddev"])),
    OpDef::new(op::RANDOM_UNIFORM, "uniformly distributed numbers in [low, high)", UNIFORM, |c| {
        distribution(c, &["low", "high"])
    }),
    OpDef::new(op::RANDOM_CATEGORICAL, "indices drawn by the last axis of x", CATEGORICAL, categorical_rule),
];

/// Of the element type of its parameters. Absent ones are fp32, so all or none are given for fp16.
fn distribution(c: &InferContext<'_>, parameters: &[&str]) -> Result<Vec<Type>, MilError> {
    let mut dtypes = Vec::new();
    for name in parameters {
        dtypes.push(if c.has(name) { c.tensor(name)?.0 } else { DataType::Fp32 });
    }
    let dtype = dtypes.first().copied().unwrap_or(DataType::Fp32);
    if dtypes.iter().any(|d| *d != dtype) {
        return Err(c.fail(format!("{} must be of one element type (fp32 if left out)", parameters.join(" and "))));
    }
    Ok(tensor(dtype, c.extents("shape")?))
}

fn categorical_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, mut shape) = c.tensor("x")?;
    c.one_of("mode", &["logits", "probs"])?;
    let size = c.count("size", 1)?;
    let Some(last) = shape.last_mut() else { return Err(c.fail("x must have at least rank 1")) };
    *last = Dim::Fixed(size);
    Ok(tensor(dtype, shape))
}
