//! Activations and softmax.

use super::elementwise::{gate, slope};
use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::op;
use crate::program::ValueId;

pub(super) const RULES: RuleTable = &[
    (op::SIGMOID, Rule::Vjp(sigmoid)),
    (op::TANH, Rule::Vjp(tanh)),
    (op::RELU, Rule::Vjp(|p| gate(p, |p, x| p.with(op::GREATER, x, 0.0)))),
    (op::RELU6, Rule::Vjp(|p| between(p, 0.0, 6.0))),
    (op::SILU, Rule::Vjp(silu)),
    (op::GELU, Rule::Vjp(gelu)),
    (op::SOFTPLUS, Rule::Vjp(|p| slope(p, |p, x| p.unary(op::SIGMOID, x)))),
    (op::SOFTPLUS_PARAMETRIC, Rule::Vjp(softplus_parametric)),
    (op::SOFTSIGN, Rule::Vjp(softsign)),
    (op::ELU, Rule::Vjp(elu)),
    (op::LEAKY_RELU, Rule::Vjp(leaky_relu)),
    (op::PRELU, Rule::Vjp(prelu)),
    (op::CLAMPED_RELU, Rule::Vjp(clamped_relu)),
    (op::THRESHOLDED_RELU, Rule::Vjp(thresholded_relu)),
    (op::LINEAR_ACTIVATION, Rule::Vjp(linear_activation)),
    (op::SCALED_TANH, Rule::Vjp(scaled_tanh)),
    (op::SIGMOID_HARD, Rule::Vjp(sigmoid_hard)),
    (op::SOFTMAX, Rule::Vjp(softmax)),
];

/// Passes strictly between two bounds.
fn between(p: &mut Pullback<'_, '_>, low: f32, high: f32) -> Result<(), GradError> {
    gate(p, |p, x| inside(p, x, low, high))
}

fn inside(p: &mut Pullback<'_, '_>, x: ValueId, low: f32, high: f32) -> Expr {
    let above = p.with(op::GREATER, x, low)?;
    let below = p.with(op::LESS, x, high)?;
    p.binary(op::LOGICAL_AND, above, below)
}

/// `y (1 - y)`.
fn sigmoid(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, _| {
        let y = p.y(0)?;
        let rest = p.from(1.0, y)?;
        p.mul(y, rest)
    })
}

/// `1 - y²`.
fn tanh(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, _| {
        let y = p.y(0)?;
        let square = p.mul(y, y)?;
        p.from(1.0, square)
    })
}

/// The slope of `x · sigmoid(c x)`: `s + c x s (1 - s)`.
fn gated(p: &mut Pullback<'_, '_>, x: ValueId, c: f32) -> Expr {
    let scaled = p.scale(x, c)?;
    let s = p.unary(op::SIGMOID, scaled)?;
    let rest = p.from(1.0, s)?;
    let bend = p.mul(scaled, rest)?;
    let bend = p.shift(bend, 1.0)?;
    p.mul(s, bend)
}

fn silu(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, x| gated(p, x, 1.0))
}

fn gelu(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    match p.c.text("mode")?.as_str() {
        "TANH_APPROXIMATION" => slope(p, gelu_tanh),
        // coremltools 9.0: x · sigmoid(1.702 x).
        "SIGMOID_APPROXIMATION" => slope(p, |p, x| gated(p, x, 1.702)),
        _ => slope(p, gelu_exact),
    }
}

/// `Φ(x) + x φ(x)`.
fn gelu_exact(p: &mut Pullback<'_, '_>, x: ValueId) -> Expr {
    let scaled = p.scale(x, std::f32::consts::FRAC_1_SQRT_2)?;
    let erf = p.unary(op::ERF, scaled)?;
    let half = p.scale(erf, 0.5)?;
    let normal = p.shift(half, 0.5)?;
    let square = p.mul(scaled, scaled)?;
    let negative = p.neg(square)?;
    let bell = p.unary(op::EXP, negative)?;
    // 1 / √(2π)
    let bell = p.scale(bell, 0.398_942_3)?;
    let bend = p.mul(x, bell)?;
    p.add(normal, bend)
}

/// With `t = tanh(√(2/π) (x + 0.044715 x³))`: `(1 + t) / 2 + x (1 - t²) √(2/π) (1 + 3 · 0.044715
/// x²) / 2`.
fn gelu_tanh(p: &mut Pullback<'_, '_>, x: ValueId) -> Expr {
    const ROOT: f32 = 0.797_884_6;
    const CUBE: f32 = 0.044_715;
    let square = p.mul(x, x)?;
    let inner = p.scale(square, ROOT * CUBE)?;
    let inner = p.shift(inner, ROOT)?;
    let inner = p.mul(inner, x)?;
    let t = p.unary(op::TANH, inner)?;
    let first = p.scale(t, 0.5)?;
    let first = p.shift(first, 0.5)?;
    let rest = p.mul(t, t)?;
    let rest = p.from(1.0, rest)?;
    let speed = p.scale(square, 1.5 * ROOT * CUBE)?;
    let speed = p.shift(speed, 0.5 * ROOT)?;
    let second = p.mul(rest, speed)?;
    let second = p.mul(second, x)?;
    p.add(first, second)
}

/// A vector over the channels (axis 1), shaped so that it broadcasts to `x` of this rank.
fn channels(p: &mut Pullback<'_, '_>, argument: &str, x: ValueId) -> Expr {
    let vector = p.x(argument)?;
    let vector = p.cast_like(vector, x)?;
    let count = p.shape(vector)?.iter().product();
    let mut shape = vec![1; p.shape(x)?.len()];
    if let Some(axis) = shape.get_mut(1) {
        *axis = count;
    }
    p.reshape(vector, &shape)
}

/// Adds the cotangent of a vector over the channels.
fn give_channels(p: &mut Pullback<'_, '_>, argument: &str, cotangent: ValueId) -> Result<(), GradError> {
    let axes: Vec<usize> = (0..p.shape(cotangent)?.len()).filter(|&i| i != 1).collect();
    let sum = p.sum(cotangent, &axes)?;
    let shape = p.shape_of(argument)?;
    let vector = p.reshape(sum, &shape)?;
    p.give(argument, vector)
}

/// `alpha · ln(1 + exp(beta x))`, alpha and beta per channel.
fn softplus_parametric(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (x, dy) = (p.x("x")?, p.dy()?);
    let (alpha, beta) = (channels(p, "alpha", x)?, channels(p, "beta", x)?);
    let scaled = p.mul(x, beta)?;
    let s = p.unary(op::SIGMOID, scaled)?;
    let s = p.mul(s, alpha)?;
    let through = p.mul(dy, s)?;
    if p.wants("x") {
        let dx = p.mul(through, beta)?;
        p.give("x", dx)?;
    }
    if p.wants("beta") {
        let d = p.mul(through, x)?;
        give_channels(p, "beta", d)?;
    }
    if p.wants("alpha") {
        let soft = p.unary(op::SOFTPLUS, scaled)?;
        let d = p.mul(dy, soft)?;
        give_channels(p, "alpha", d)?;
    }
    Ok(())
}

/// `(1 - |y|)²`.
fn softsign(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, _| {
        let y = p.y(0)?;
        let size = p.unary(op::ABS, y)?;
        let rest = p.from(1.0, size)?;
        p.mul(rest, rest)
    })
}

/// 1 above zero, `y + alpha` below.
fn elu(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let alpha = p.float("alpha")?;
    slope(p, |p, x| {
        let y = p.y(0)?;
        let below = p.shift(y, alpha)?;
        let positive = p.with(op::GREATER, x, 0.0)?;
        let one = p.tape.b.scalar_like(x, 1.0)?;
        p.select(positive, one, below)
    })
}

/// 1 above zero, `alpha` below.
fn leaky_relu(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let alpha = p.float("alpha")?;
    slope(p, |p, x| {
        let positive = p.with(op::GREATER, x, 0.0)?;
        two_slopes(p, x, positive, alpha)
    })
}

/// 1 where the mask holds, `alpha` elsewhere, in the shape of the mask.
fn two_slopes(p: &mut Pullback<'_, '_>, like: ValueId, mask: ValueId, alpha: f32) -> Expr {
    let steep = p.indicator(mask, like)?;
    let steep = p.scale(steep, 1.0 - alpha)?;
    p.shift(steep, alpha)
}

/// `alpha` per channel below zero.
fn prelu(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (x, dy) = (p.x("x")?, p.dy()?);
    let negative = p.with(op::LESS, x, 0.0)?;
    if p.wants("x") {
        let alpha = channels(p, "alpha", x)?;
        let below = p.mul(dy, alpha)?;
        let dx = p.select(negative, below, dy)?;
        p.give("x", dx)?;
    }
    if p.wants("alpha") {
        let below = p.keep(negative, x)?;
        let d = p.mul(dy, below)?;
        give_channels(p, "alpha", d)?;
    }
    Ok(())
}

/// `min(x ≥ 0 ? x : alpha x, beta)`.
fn clamped_relu(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (alpha, beta) = (p.float("alpha")?, p.float("beta")?);
    slope(p, |p, x| {
        let positive = p.with(op::GREATER_EQUAL, x, 0.0)?;
        let slopes = two_slopes(p, x, positive, alpha)?;
        let value = p.mul(x, slopes)?;
        let below = p.with(op::LESS, value, beta)?;
        p.keep(below, slopes)
    })
}

/// `x` from `alpha` on, 0 below.
fn thresholded_relu(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let alpha = p.float("alpha")?;
    gate(p, |p, x| p.with(op::GREATER_EQUAL, x, alpha))
}

fn linear_activation(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (alpha, dy) = (p.float("alpha")?, p.dy()?);
    let dx = p.scale(dy, alpha)?;
    p.give("x", dx)
}

/// `alpha · tanh(beta x)`: the slope is `alpha beta (1 - tanh²)`.
fn scaled_tanh(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (alpha, beta) = (p.float("alpha")?, p.float("beta")?);
    slope(p, |p, x| {
        let scaled = p.scale(x, beta)?;
        let t = p.unary(op::TANH, scaled)?;
        let square = p.mul(t, t)?;
        let rest = p.from(1.0, square)?;
        p.scale(rest, alpha * beta)
    })
}

/// `clip(alpha x + beta, 0, 1)`.
fn sigmoid_hard(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (alpha, beta) = (p.float("alpha")?, p.float("beta")?);
    let (x, dy) = (p.x("x")?, p.dy()?);
    let line = p.scale(x, alpha)?;
    let line = p.shift(line, beta)?;
    let mask = inside(p, line, 0.0, 1.0)?;
    let scaled = p.scale(dy, alpha)?;
    let dx = p.keep(mask, scaled)?;
    p.give("x", dx)
}

/// `y (dy - Σ y dy)`.
fn softmax(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let axis = p.c.axis("axis", p.shape_of("x")?.len())?;
    let (y, dy) = (p.y(0)?, p.dy()?);
    let dx = softmax_vjp(p, y, dy, axis)?;
    p.give("x", dx)
}

/// The cotangent of scores from probabilities and their cotangent.
pub(super) fn softmax_vjp(p: &mut Pullback<'_, '_>, y: ValueId, dy: ValueId, axis: usize) -> Expr {
    let weighted = p.mul(y, dy)?;
    let sum = p.sum(weighted, &[axis])?;
    let centered = p.sub(dy, sum)?;
    p.mul(y, centered)
}
