//! Reductions over axes.

use super::constants::int;
use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::build::ReducedDims;
use crate::op;
use crate::program::{Constant, DataType, ValueId};

const PLACES: Rule = Rule::Zero("returns positions");

pub(super) const RULES: RuleTable = &[
    (op::REDUCE_SUM, Rule::Vjp(sum)),
    (op::REDUCE_MEAN, Rule::Vjp(mean)),
    (op::REDUCE_MAX, Rule::Vjp(extremum)),
    (op::REDUCE_MIN, Rule::Vjp(extremum)),
    (op::REDUCE_PROD, Rule::Vjp(prod)),
    (op::REDUCE_SUM_SQUARE, Rule::Vjp(sum_square)),
    (op::REDUCE_L1_NORM, Rule::Vjp(l1_norm)),
    (op::REDUCE_L2_NORM, Rule::Vjp(l2_norm)),
    (op::REDUCE_LOG_SUM, Rule::Vjp(log_sum)),
    (op::REDUCE_LOG_SUM_EXP, Rule::Vjp(log_sum_exp)),
    (op::REDUCE_ARGMAX, PLACES),
    (op::REDUCE_ARGMIN, PLACES),
];

/// The reduced axes and the extents of `x`.
fn axes(p: &Pullback<'_, '_>) -> Result<(Vec<usize>, Vec<usize>), GradError> {
    let shape = p.shape_of("x")?;
    let mut axes = match p.c.ints_if("axes")? {
        Some(axes) => p.c.normal_axes(&axes, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    axes.sort_unstable();
    Ok((axes, shape))
}

/// A result (or its cotangent) with the reduced axes back as extents of 1.
fn kept(p: &mut Pullback<'_, '_>, v: ValueId) -> Expr {
    let (axes, mut shape) = axes(p)?;
    axes.iter().for_each(|&a| shape[a] = 1);
    p.reshape(v, &shape)
}

fn kept_dy(p: &mut Pullback<'_, '_>) -> Expr {
    let dy = p.dy()?;
    kept(p, dy)
}

fn sum(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let dy = kept_dy(p)?;
    let shape = p.shape_of("x")?;
    let dx = p.spread_to(dy, &shape)?;
    p.give("x", dx)
}

fn mean(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (axes, shape) = axes(p)?;
    let count: usize = axes.iter().map(|&a| shape[a]).product();
    let dy = kept_dy(p)?;
    let share = p.scale(dy, 1.0 / count as f32)?;
    let dx = p.spread_to(share, &shape)?;
    p.give("x", dx)
}

/// Equal shares for all elements that equal the extremum.
fn extremum(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (axes, _) = axes(p)?;
    let (x, y, dy) = (p.x("x")?, p.y(0)?, kept_dy(p)?);
    let y = kept(p, y)?;
    let mask = p.binary(op::EQUAL, x, y)?;
    let mask = p.indicator(mask, x)?;
    let count = p.sum(mask, &axes)?;
    let share = p.div(dy, count)?;
    let dx = p.mul(mask, share)?;
    p.give("x", dx)
}

/// The product of all other elements, computed for each element in one row of a square matrix, so
/// that zeros among the factors are handled correctly.
fn prod(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    const MOST: usize = 4096;
    let (axes, shape) = axes(p)?;
    let n: usize = axes.iter().map(|&a| shape[a]).product();
    if n > MOST {
        return Err(p.refuse(format!("the gradient of a product of {n} factors needs their square")));
    }
    let rest: Vec<usize> = (0..shape.len()).filter(|i| !axes.contains(i)).collect();
    let outer: usize = rest.iter().map(|&a| shape[a]).product();
    let perm: Vec<usize> = rest.iter().chain(&axes).copied().collect();
    let (x, dy) = (p.x("x")?, p.dy()?);
    let rows = p.transpose(x, &perm)?;
    let rows = p.reshape(rows, &[outer, 1, n])?;
    let mut diagonal = vec![0u8; n * n];
    (0..n).for_each(|i| diagonal[i * n + i] = 1);
    let diagonal = p.constant(Constant::raw(DataType::Bool, &[1, n, n], &diagonal))?;
    let one = p.tape.b.scalar_like(x, 1.0)?;
    let others = p.select(diagonal, one, rows)?;
    let others = p.reduce(op::REDUCE_PROD, others, &[2], ReducedDims::Drop)?;
    let dy = p.reshape(dy, &[outer, 1])?;
    let dx = p.mul(others, dy)?;
    let permuted: Vec<usize> = perm.iter().map(|&a| shape[a]).collect();
    let dx = p.reshape(dx, &permuted)?;
    let mut back = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(i, &a)| back[a] = i);
    let dx = p.transpose(dx, &back)?;
    p.give("x", dx)
}

fn sum_square(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (x, dy) = (p.x("x")?, kept_dy(p)?);
    let twice = p.scale(dy, 2.0)?;
    let dx = p.mul(x, twice)?;
    p.give("x", dx)
}

fn l1_norm(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (x, dy) = (p.x("x")?, kept_dy(p)?);
    let sign = p.unary(op::SIGN, x)?;
    let dx = p.mul(sign, dy)?;
    p.give("x", dx)
}

/// `x / y`; 0 where all are 0.
fn l2_norm(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (x, y, dy) = (p.x("x")?, p.y(0)?, kept_dy(p)?);
    let y = kept(p, y)?;
    let zero = p.with(op::EQUAL, y, 0.0)?;
    let one = p.tape.b.scalar_like(y, 1.0)?;
    let divisor = p.select(zero, one, y)?;
    let ratio = p.div(dy, divisor)?;
    let dx = p.mul(x, ratio)?;
    p.give("x", dx)
}

fn log_sum(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (axes, shape) = axes(p)?;
    let (x, dy) = (p.x("x")?, kept_dy(p)?);
    let sum = p.sum(x, &axes)?;
    let ratio = p.div(dy, sum)?;
    let dx = p.spread_to(ratio, &shape)?;
    p.give("x", dx)
}

fn log_sum_exp(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (x, y, dy) = (p.x("x")?, p.y(0)?, kept_dy(p)?);
    let y = kept(p, y)?;
    let centered = p.sub(x, y)?;
    let weights = p.unary(op::EXP, centered)?;
    let dx = p.mul(weights, dy)?;
    p.give("x", dx)
}

/// An axis as an argument.
pub(super) fn axis_constant(axis: usize) -> Constant {
    Constant::int32(int(axis))
}
