//! Normalizations. Mean and deviation are recomputed from `x`.

use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::build::Transpose;
use crate::op;
use crate::program::ValueId;

pub(super) const RULES: RuleTable = &[
    (op::LAYER_NORM, Rule::Vjp(layer_norm)),
    (op::INSTANCE_NORM, Rule::Vjp(instance_norm)),
    (op::BATCH_NORM, Rule::Vjp(batch_norm)),
    (op::L2_NORM, Rule::Vjp(l2_norm)),
    (op::LOCAL_RESPONSE_NORM, Rule::Vjp(local_response_norm)),
];

/// `(x - mean) / √(variance + epsilon)` over axes, and the inverse deviation.
fn normalized(p: &mut Pullback<'_, '_>, x: ValueId, axes: &[usize]) -> Result<(ValueId, ValueId), GradError> {
    let epsilon = p.float("epsilon")?;
    let mean = p.mean(x, axes)?;
    let centered = p.sub(x, mean)?;
    let squares = p.mul(centered, centered)?;
    let variance = p.mean(squares, axes)?;
    let variance = p.shift(variance, epsilon)?;
    let inverse = p.inverse_root(variance)?;
    Ok((p.mul(centered, inverse)?, inverse))
}

/// A parameter over these axes of `x` (in ascending order), shaped so that it broadcasts.
fn parameter(p: &mut Pullback<'_, '_>, argument: &str, x: ValueId, axes: &[usize]) -> Expr {
    let value = p.x(argument)?;
    let value = p.cast_like(value, x)?;
    let full = p.shape(x)?;
    let shape: Vec<usize> = (0..full.len()).map(|i| if axes.contains(&i) { full[i] } else { 1 }).collect();
    p.reshape(value, &shape)
}

/// Adds the cotangent of a parameter over these axes.
fn give_parameter(
    p: &mut Pullback<'_, '_>,
    argument: &str,
    cotangent: ValueId,
    axes: &[usize],
) -> Result<(), GradError> {
    let full = p.shape(cotangent)?;
    let others: Vec<usize> = (0..full.len()).filter(|i| !axes.contains(i)).collect();
    let sum = p.sum(cotangent, &others)?;
    let extents: Vec<usize> = axes.iter().map(|&a| full[a]).collect();
    let sum = p.reshape(sum, &extents)?;
    p.give(argument, sum)
}

/// Normalized over `axes`, with `gamma` and `beta` over `channels`.
fn norm(p: &mut Pullback<'_, '_>, axes: &[usize], channels: &[usize]) -> Result<(), GradError> {
    let dy = p.dy()?;
    if p.wants("beta") {
        give_parameter(p, "beta", dy, channels)?;
    }
    if !p.wants("x") && !p.wants("gamma") {
        return Ok(());
    }
    let x = p.x("x")?;
    let (unit, inverse) = normalized(p, x, axes)?;
    if p.wants("gamma") {
        let d = p.mul(dy, unit)?;
        give_parameter(p, "gamma", d, channels)?;
    }
    if p.wants("x") {
        let scaled = match p.c.has("gamma") {
            true => {
                let gamma = parameter(p, "gamma", x, channels)?;
                p.mul(dy, gamma)?
            }
            false => dy,
        };
        let mean = p.mean(scaled, axes)?;
        let along = p.mul(scaled, unit)?;
        let along = p.mean(along, axes)?;
        let along = p.mul(unit, along)?;
        let rest = p.sub(scaled, mean)?;
        let rest = p.sub(rest, along)?;
        let dx = p.mul(rest, inverse)?;
        p.give("x", dx)?;
    }
    Ok(())
}

fn layer_norm(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let rank = p.shape_of("x")?.len();
    let mut axes = match p.c.ints_if("axes")? {
        Some(axes) => p.c.normal_axes(&axes, rank)?,
        None => (0..rank).collect(),
    };
    // The parameters' axes are those of x, in its order.
    axes.sort_unstable();
    norm(p, &axes, &axes)
}

fn instance_norm(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let axes: Vec<usize> = (2..p.shape_of("x")?.len()).collect();
    norm(p, &axes, &[1])
}

/// `(x - mean) / √(variance + epsilon) · gamma + beta` with given statistics per channel.
fn batch_norm(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (dy, x) = (p.dy()?, p.x("x")?);
    if p.wants("beta") {
        give_parameter(p, "beta", dy, &[1])?;
    }
    let variance = parameter(p, "variance", x, &[1])?;
    let epsilon = p.float("epsilon")?;
    let variance = p.shift(variance, epsilon)?;
    let inverse = p.inverse_root(variance)?;
    let factor = match p.c.has("gamma") {
        true => {
            let gamma = parameter(p, "gamma", x, &[1])?;
            p.mul(gamma, inverse)?
        }
        false => inverse,
    };
    let dx = p.mul(dy, factor)?;
    p.give("x", dx)?;
    if p.wants("mean") {
        let d = p.neg(dx)?;
        give_parameter(p, "mean", d, &[1])?;
    }
    if p.wants("gamma") || p.wants("variance") {
        let mean = parameter(p, "mean", x, &[1])?;
        let centered = p.sub(x, mean)?;
        let unit = p.mul(centered, inverse)?;
        if p.wants("gamma") {
            let d = p.mul(dy, unit)?;
            give_parameter(p, "gamma", d, &[1])?;
        }
        if p.wants("variance") {
            let d = p.mul(dx, unit)?;
            let d = p.mul(d, inverse)?;
            let d = p.scale(d, -0.5)?;
            give_parameter(p, "variance", d, &[1])?;
        }
    }
    Ok(())
}

/// `x / √(Σ x² + epsilon)` over the last three axes.
fn l2_norm(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let epsilon = p.float("epsilon")?;
    let (dy, x) = (p.dy()?, p.x("x")?);
    let rank = p.shape(x)?.len();
    let axes: Vec<usize> = (rank.saturating_sub(3)..rank).collect();
    let squares = p.mul(x, x)?;
    let sum = p.sum(squares, &axes)?;
    let sum = p.shift(sum, epsilon)?;
    let inverse = p.inverse_root(sum)?;
    let unit = p.mul(x, inverse)?;
    let along = p.mul(dy, unit)?;
    let along = p.sum(along, &axes)?;
    let along = p.mul(unit, along)?;
    let rest = p.sub(dy, along)?;
    let dx = p.mul(rest, inverse)?;
    p.give("x", dx)
}

/// `x · s^-beta` with `s = k + alpha / size · Σ x²` over `size` neighboring channels. The window
/// sum is a product with a band.
fn local_response_norm(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    const MOST: usize = 4096;
    let (alpha, beta, k) = (p.float("alpha")?, p.float("beta")?, p.float("k")?);
    let shape = p.shape_of("x")?;
    let size = usize::try_from(p.c.int("size")?).unwrap_or(0).max(1);
    let channels = shape[1];
    if channels > MOST {
        return Err(p.refuse(format!("{channels} channels are too many for a band matrix")));
    }
    let (x, dy) = (p.x("x")?, p.dy()?);
    let flat = [shape[0], channels, shape[2..].iter().product()];
    let (rows, dy) = (p.reshape(x, &flat)?, p.reshape(dy, &flat)?);
    // Channel c sums those from c - size / 2 on, as PyTorch.
    let before = size / 2;
    let near = |c: usize, other: usize| other + before >= c && other + before < c + size;
    let band: Vec<f32> =
        (0..channels * channels).map(|i| f32::from(u8::from(near(i / channels, i % channels)))).collect();
    let band = p.tensor_like(x, &[1, channels, channels], &band)?;
    let squares = p.mul(rows, rows)?;
    let sum = p.matmul(band, squares, Transpose::Neither)?;
    let sum = p.scale(sum, alpha / size as f32)?;
    let sum = p.shift(sum, k)?;
    let power = p.with(op::POW, sum, -beta)?;
    let direct = p.mul(dy, power)?;
    let weighted = p.mul(direct, rows)?;
    let weighted = p.div(weighted, sum)?;
    let spread = p.matmul(band, weighted, Transpose::X)?;
    let spread = p.mul(spread, rows)?;
    let spread = p.scale(spread, -2.0 * alpha * beta / size as f32)?;
    let dx = p.add(direct, spread)?;
    let dx = p.reshape(dx, &shape)?;
    p.give("x", dx)
}
