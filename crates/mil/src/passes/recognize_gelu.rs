//! `recognize_gelu`: the three formulas of GELU.
//!
//! *Pattern*: a product, in any order and association, that is one of
//!
//! - ½ · x · (1 + erf(x / √2)): `EXACT`;
//! - ½ · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))), also with x factored out:
//!   `TANH_APPROXIMATION`;
//! - x · sigmoid(1.702 · x): `SIGMOID_APPROXIMATION`.
//!
//! *Holds*: the numbers are right to 1e-3 (what fp16 and decimals of few digits leave of them), and
//! nothing else reads the values in between. *Numbers*: those values are no longer rounded; in fp16
//! each of up to eight roundings moved the result by at most half a unit in the last place.

use super::cursor::Cursor;
use super::draft::Draft;
use super::pass::{Context, Exactness, Pass};
use super::product::{near, plus, product};
use crate::error::MilError;
use crate::op;
use crate::program::{Constant, ValueId};

pub(super) const PASS: Pass = Pass {
    name: "recognize_gelu",
    doc: "writes the formulas of GELU as gelu",
    exactness: Exactness::Rounding,
    repeats: false,
    run,
};

/// √½, √(2/π), and the numbers of the approximations.
const HALF_ROOT: f32 = std::f32::consts::FRAC_1_SQRT_2;
const TANH_SCALE: f32 = 0.797_884_6;
const TANH_CUBIC: f32 = 0.044_715;
const SIGMOID_SCALE: f32 = 1.702;

fn run(draft: &mut Draft, _: &mut Context<'_>) -> Result<usize, MilError> {
    Ok(draft.each(rule))
}

fn rule(c: &mut Cursor<'_>) -> Option<()> {
    if !matches!(c.op()?.name.as_str(), op::MUL | op::REAL_DIV) {
        return None;
    }
    let whole = product(c, c.result()?);
    let [a, b] = whole.values[..] else { return None };
    let (x, mode) = gated(c, whole.factor, a, b).or_else(|| gated(c, whole.factor, b, a))?;
    let label = c.label();
    let gelu = c.insert(op::GELU, &label, [("x", x.into()), ("mode", Constant::string(mode).into())])?;
    c.replace(gelu)
}

/// The mode in which `factor · x · gate` is a GELU of `x`.
fn gated(c: &Cursor<'_>, factor: f32, x: ValueId, gate: ValueId) -> Option<(ValueId, &'static str)> {
    let op = c.def(gate).filter(|_| c.sole(gate))?;
    if op.name == op::SIGMOID {
        let inner = product(c, c.arg(op, "x")?).single(SIGMOID_SCALE)?;
        return (inner == x && near(factor, 1.0)).then_some((x, "SIGMOID_APPROXIMATION"));
    }
    let (curve, one) = plus(c, op)?;
    let op = c.def(curve).filter(|_| c.sole(curve) && one == 1.0 && near(factor, 0.5))?;
    let inner = c.arg(op, "x")?;
    match op.name.as_str() {
        op::ERF => (product(c, inner).single(HALF_ROOT)? == x).then_some((x, "EXACT")),
        op::TANH => is_cubic(c, inner, x)?.then_some((x, "TANH_APPROXIMATION")),
        _ => None,
    }
}

/// √(2/π) · (x + 0.044715 x³), or √(2/π) · x · (1 + 0.044715 x²).
fn is_cubic(c: &Cursor<'_>, value: ValueId, x: ValueId) -> Option<bool> {
    let scaled = product(c, value);
    if !near(scaled.factor, TANH_SCALE) {
        return None;
    }
    let is_power = |value: ValueId, n: usize| {
        let power = product(c, value);
        near(power.factor, TANH_CUBIC) && power.values.len() == n && power.values.iter().all(|v| *v == x)
    };
    match scaled.values[..] {
        [sum] => {
            let op = c.def_of(sum, op::ADD).filter(|_| c.sole(sum))?;
            let (a, b) = (c.arg(op, "x")?, c.arg(op, "y")?);
            Some((a == x && is_power(b, 3)) || (b == x && is_power(a, 3)))
        }
        [a, b] => {
            let sum = if a == x { b } else { a };
            let (square, one) = plus(c, c.def(sum)?)?;
            Some((a == x || b == x) && c.sole(sum) && one == 1.0 && is_power(square, 2))
        }
        _ => None,
    }
}
