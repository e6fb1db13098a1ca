//! Pooling over one to three spatial axes.

use super::conv::window;
use super::infer::{InferContext, show, show_ints, tensor};
use super::signature::{FLOATS, Literal, OpDef, Param, bool_const, int_const, str_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{Dim, Type};

const MAX: &[Param] = &[
    x_of(FLOATS),
    int_const("kernel_sizes"),
    int_const("strides").optional(),
    str_const("pad_type"),
    int_const("pad").optional(),
    bool_const("ceil_mode").or(Literal::Bool(false)),
];
const AVERAGE: &[Param] = &[
    x_of(FLOATS),
    int_const("kernel_sizes"),
    int_const("strides").optional(),
    str_const("pad_type"),
    int_const("pad").optional(),
    bool_const("exclude_padding_from_average").or(Literal::Bool(false)),
    bool_const("ceil_mode").or(Literal::Bool(false)),
];

// The versions differ in their padding types.
const MAX_POOL: OpDef = OpDef::new(op::MAX_POOL, "the largest of each window", MAX, pool_rule);
const AVERAGE_POOL: OpDef = OpDef::new(op::AVG_POOL, "the mean of each window", AVERAGE, pool_rule);
const L2_POOL: OpDef = OpDef::new(op::L2_POOL, "the root of the sum of squares of each window", MAX, l2_rule);

pub(super) const OPS: &[OpDef] = &[
    MAX_POOL,
    MAX_POOL.again(Opset::IOS16, MAX),
    AVERAGE_POOL,
    AVERAGE_POOL.again(Opset::IOS16, AVERAGE),
    L2_POOL,
    L2_POOL.again(Opset::IOS16, MAX),
];

fn pool_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let kernel = c.ints("kernel_sizes")?;
    if x.len() < 3 || x.len() > 5 || kernel.len() != x.len() - 2 || kernel.iter().any(|&k| k < 1) {
        return Err(c.fail(format!(
            "kernel_sizes {} must be one positive number for each spatial axis of {}",
            show_ints(&kernel),
            show(&x)
        )));
    }
    let kernel: Vec<Dim> = kernel.iter().map(|&k| Dim::Fixed(k as usize)).collect();
    let ceil = c.flag("ceil_mode")?;
    if ceil {
        let symmetric = c.ints_if("pad")?.is_none_or(|pad| pad.chunks(2).all(|pair| pair.first() == pair.last()));
        if x.len() > 4 || !symmetric || c.text("pad_type")?.starts_with("same") {
            return Err(c.fail("ceil_mode goes with one or two spatial axes and symmetric padding, not with `same`"));
        }
    }
    let mut shape = x[..2].to_vec();
    shape.extend(window(c, &x[2..], &kernel, ceil)?);
    Ok(tensor(dtype, shape))
}

fn l2_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, x) = c.tensor("x")?;
    if x.len() > 4 {
        return Err(c.fail(format!("x {} has more than two spatial axes", show(&x))));
    }
    pool_rule(c)
}
