//! Pooling over one to three spatial axes.

use super::infer::{show, show_ints, tensor};
use super::linear::window;
use super::{FLOATS, InferContext, Literal, OpDef, Param, bool_const, int_const, str_const, x_of};
use crate::error::MilError;
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

pub(super) const OPS: &[OpDef] = &[
    OpDef::new("max_pool", MAX, pool_rule),
    OpDef::new("avg_pool", AVERAGE, pool_rule),
    OpDef::new("l2_pool", MAX, pool_rule),
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
    let mut shape = x[..2].to_vec();
    shape.extend(window(c, &x[2..], &kernel, c.flag("ceil_mode")?)?);
    Ok(tensor(dtype, shape))
}
