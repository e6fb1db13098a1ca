//! Arithmetic of one, two or three operands, casts and copies.

use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::op;
use crate::program::ValueId;

const STEPS: Rule = Rule::Zero("is constant between its steps");
const TRUTH: Rule = Rule::Zero("returns truth values");

pub(super) const RULES: RuleTable = &[
    (op::ADD, Rule::Vjp(add)),
    (op::SUB, Rule::Vjp(sub)),
    (op::MUL, Rule::Vjp(mul)),
    (op::REAL_DIV, Rule::Vjp(real_div)),
    (op::FLOOR_DIV, STEPS),
    (op::MOD, Rule::Vjp(modulo)),
    (op::POW, Rule::Vjp(pow)),
    (op::MAXIMUM, Rule::Vjp(|p| extremum(p, op::GREATER))),
    (op::MINIMUM, Rule::Vjp(|p| extremum(p, op::LESS))),
    (op::EQUAL, TRUTH),
    (op::NOT_EQUAL, TRUTH),
    (op::LESS, TRUTH),
    (op::LESS_EQUAL, TRUTH),
    (op::GREATER, TRUTH),
    (op::GREATER_EQUAL, TRUTH),
    (op::LOGICAL_AND, TRUTH),
    (op::LOGICAL_OR, TRUTH),
    (op::LOGICAL_XOR, TRUTH),
    (op::LOGICAL_NOT, TRUTH),
    (op::FLOOR, STEPS),
    (op::CEIL, STEPS),
    (op::ROUND, STEPS),
    (op::SIGN, STEPS),
    (op::IDENTITY, Rule::Vjp(through)),
    (op::CAST, Rule::Vjp(through)),
    (op::SELECT, Rule::Vjp(select)),
    (op::ABS, Rule::Vjp(|p| slope(p, |p, x| p.unary(op::SIGN, x)))),
    (op::SQUARE, Rule::Vjp(|p| slope(p, |p, x| p.scale(x, 2.0)))),
    (op::EXP, Rule::Vjp(|p| slope(p, |p, _| p.y(0)))),
    (op::EXP2, Rule::Vjp(exp2)),
    (op::LOG, Rule::Vjp(log)),
    (op::SQRT, Rule::Vjp(sqrt)),
    (op::RSQRT, Rule::Vjp(rsqrt)),
    (op::INVERSE, Rule::Vjp(inverse)),
    (op::ERF, Rule::Vjp(erf)),
    (op::SIN, Rule::Vjp(|p| slope(p, |p, x| p.unary(op::COS, x)))),
    (op::COS, Rule::Vjp(cos)),
    (op::TAN, Rule::Vjp(tan)),
    (op::ASIN, Rule::Vjp(|p| inverse_sine(p, 1.0))),
    (op::ACOS, Rule::Vjp(|p| inverse_sine(p, -1.0))),
    (op::ATAN, Rule::Vjp(atan)),
    (op::SINH, Rule::Vjp(|p| slope(p, |p, x| p.unary(op::COSH, x)))),
    (op::COSH, Rule::Vjp(|p| slope(p, |p, x| p.unary(op::SINH, x)))),
    (op::ATANH, Rule::Vjp(atanh)),
    (op::CLIP, Rule::Vjp(clip)),
    (op::THRESHOLD, Rule::Vjp(threshold)),
];

/// `dx = dy · f'(x)`.
pub(super) fn slope(
    p: &mut Pullback<'_, '_>,
    derivative: impl FnOnce(&mut Pullback<'_, '_>, ValueId) -> Expr,
) -> Result<(), GradError> {
    let x = p.x("x")?;
    let derivative = derivative(p, x)?;
    let dy = p.dy()?;
    let dx = p.mul(dy, derivative)?;
    p.give("x", dx)
}

/// `dx = dy / g(x)`.
fn quotient(
    p: &mut Pullback<'_, '_>,
    divisor: impl FnOnce(&mut Pullback<'_, '_>, ValueId) -> Expr,
) -> Result<(), GradError> {
    let x = p.x("x")?;
    let divisor = divisor(p, x)?;
    let dy = p.dy()?;
    let dx = p.div(dy, divisor)?;
    p.give("x", dx)
}

/// `dx = dy` where `passes(x)` is true, else 0.
pub(super) fn gate(
    p: &mut Pullback<'_, '_>,
    passes: impl FnOnce(&mut Pullback<'_, '_>, ValueId) -> Expr,
) -> Result<(), GradError> {
    let x = p.x("x")?;
    let mask = passes(p, x)?;
    let dy = p.dy()?;
    let dx = p.keep(mask, dy)?;
    p.give("x", dx)
}

/// The cotangent continues in the operand's element type.
fn through(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let dy = p.dy()?;
    p.give("x", dy)
}

fn add(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let dy = p.dy()?;
    p.give("x", dy)?;
    p.give("y", dy)
}

fn sub(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let dy = p.dy()?;
    p.give("x", dy)?;
    if p.wants("y") {
        let negative = p.neg(dy)?;
        p.give("y", negative)?;
    }
    Ok(())
}

fn mul(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let dy = p.dy()?;
    for (wanted, other) in [("x", "y"), ("y", "x")] {
        if p.wants(wanted) {
            let other = p.x(other)?;
            let product = p.mul(dy, other)?;
            p.give(wanted, product)?;
        }
    }
    Ok(())
}

fn real_div(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (dz, y) = (p.dy()?, p.x("y")?);
    let dx = p.div(dz, y)?;
    p.give("x", dx)?;
    if p.wants("y") {
        let z = p.y(0)?;
        let dy = p.mul(dx, z)?;
        let dy = p.neg(dy)?;
        p.give("y", dy)?;
    }
    Ok(())
}

/// `x - y · floor(x / y)`.
fn modulo(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let dz = p.dy()?;
    p.give("x", dz)?;
    if p.wants("y") {
        let (x, y) = (p.x("x")?, p.x("y")?);
        let quotient = p.binary(op::FLOOR_DIV, x, y)?;
        let dy = p.mul(dz, quotient)?;
        let dy = p.neg(dy)?;
        p.give("y", dy)?;
    }
    Ok(())
}

/// `dx = dz · y · x^(y-1)`; `dy = dz · z · ln x` where `z` is not 0 (there the limit is 0).
fn pow(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (dz, x, y) = (p.dy()?, p.x("x")?, p.x("y")?);
    if p.wants("x") {
        let less = p.shift(y, -1.0)?;
        let power = p.binary(op::POW, x, less)?;
        let power = p.mul(power, y)?;
        let dx = p.mul(dz, power)?;
        p.give("x", dx)?;
    }
    if p.wants("y") {
        let z = p.y(0)?;
        let positive = p.with(op::GREATER, x, 0.0)?;
        let one = p.tape.b.scalar_like(x, 1.0)?;
        let base = p.select(positive, x, one)?;
        let logarithm = p.unary(op::LOG, base)?;
        let slope = p.mul(z, logarithm)?;
        let dy = p.mul(dz, slope)?;
        p.give("y", dy)?;
    }
    Ok(())
}

/// The cotangent goes to the selected operand; equal operands share it.
fn extremum(p: &mut Pullback<'_, '_>, wins: &str) -> Result<(), GradError> {
    let (dz, x, y) = (p.dy()?, p.x("x")?, p.x("y")?);
    let equal = p.binary(op::EQUAL, x, y)?;
    let half = p.scale(dz, 0.5)?;
    for (wanted, a, b) in [("x", x, y), ("y", y, x)] {
        if p.wants(wanted) {
            let taken = p.binary(wins, a, b)?;
            let whole = p.keep(taken, dz)?;
            let share = p.select(equal, half, whole)?;
            p.give(wanted, share)?;
        }
    }
    Ok(())
}

fn select(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (dy, cond) = (p.dy()?, p.x("cond")?);
    if p.wants("a") {
        let a = p.keep(cond, dy)?;
        p.give("a", a)?;
    }
    if p.wants("b") {
        let zero = p.tape.b.scalar_like(dy, 0.0)?;
        let b = p.select(cond, zero, dy)?;
        p.give("b", b)?;
    }
    Ok(())
}

fn exp2(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, _| {
        let y = p.y(0)?;
        p.scale(y, std::f32::consts::LN_2)
    })
}

/// `ln(x + epsilon)`.
fn log(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let epsilon = p.float("epsilon")?;
    quotient(p, |p, x| p.shift(x, epsilon))
}

fn sqrt(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    quotient(p, |p, _| {
        let y = p.y(0)?;
        p.scale(y, 2.0)
    })
}

/// `(x + epsilon)^(-1/2)`: the slope is `-y³ / 2`.
fn rsqrt(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, _| {
        let y = p.y(0)?;
        let square = p.mul(y, y)?;
        let cube = p.mul(square, y)?;
        p.scale(cube, -0.5)
    })
}

/// `1 / (x + epsilon)`: the slope is `-y²`.
fn inverse(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, _| {
        let y = p.y(0)?;
        let square = p.mul(y, y)?;
        p.neg(square)
    })
}

/// `2 / √π · exp(-x²)`.
fn erf(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, x| {
        let square = p.mul(x, x)?;
        let negative = p.neg(square)?;
        let bell = p.unary(op::EXP, negative)?;
        p.scale(bell, std::f32::consts::FRAC_2_SQRT_PI)
    })
}

fn cos(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, x| {
        let sine = p.unary(op::SIN, x)?;
        p.neg(sine)
    })
}

fn tan(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    slope(p, |p, _| {
        let y = p.y(0)?;
        let square = p.mul(y, y)?;
        p.shift(square, 1.0)
    })
}

/// `± 1 / √(1 - x²)`.
fn inverse_sine(p: &mut Pullback<'_, '_>, sign: f32) -> Result<(), GradError> {
    quotient(p, |p, x| {
        let square = p.mul(x, x)?;
        let rest = p.from(1.0, square)?;
        let root = p.unary(op::SQRT, rest)?;
        p.scale(root, sign)
    })
}

fn atan(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    quotient(p, |p, x| {
        let square = p.mul(x, x)?;
        p.shift(square, 1.0)
    })
}

fn atanh(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    quotient(p, |p, x| {
        let square = p.mul(x, x)?;
        p.from(1.0, square)
    })
}

/// The derivative is 1 at both bounds.
fn clip(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (low, high) = (p.float("alpha")?, p.float("beta")?);
    gate(p, |p, x| {
        let above = p.with(op::GREATER_EQUAL, x, low)?;
        let below = p.with(op::LESS_EQUAL, x, high)?;
        p.binary(op::LOGICAL_AND, above, below)
    })
}

/// `max(x, alpha)`.
fn threshold(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let alpha = p.float("alpha")?;
    gate(p, |p, x| p.with(op::GREATER, x, alpha))
}
