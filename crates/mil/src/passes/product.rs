//! Products and means in any spelling, which the recognizers match instead of one order of ops.
//!
//! An intermediate op is part of the pattern only if nothing else reads it.

use super::cursor::Cursor;
use crate::op;
use crate::program::{Op, ValueId};

/// Multiplications nested deeper than this are not followed.
const DEPTH: usize = 8;

/// A product of values and numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Product {
    pub(super) factor: f32,
    pub(super) values: Vec<ValueId>,
}

impl Product {
    /// The one value, if the number is near `factor`.
    pub(super) fn single(&self, factor: f32) -> Option<ValueId> {
        match self.values.as_slice() {
            [one] if near(self.factor, factor) => Some(*one),
            _ => None,
        }
    }
}

/// Equal up to the error of rounding to fp16 or to a decimal of few digits.
pub(super) fn near(found: f32, wanted: f32) -> bool {
    (found - wanted).abs() <= 1e-3 * wanted.abs()
}

/// A value as a product: `mul`, `real_div` by a number, `square`, and powers 2 and 3 are multiplied
/// out.
pub(super) fn product(c: &Cursor<'_>, value: ValueId) -> Product {
    let mut found = Product { factor: 1.0, values: Vec::new() };
    multiply(c, value, DEPTH, true, &mut found);
    found
}

fn multiply(c: &Cursor<'_>, value: ValueId, depth: usize, root: bool, found: &mut Product) {
    let inner = |found: &mut Product, v: Option<ValueId>| {
        if let Some(v) = v {
            multiply(c, v, depth.saturating_sub(1), false, found);
        }
    };
    if let Some(op) = c.def(value).filter(|_| depth > 0 && (root || c.sole(value))) {
        let (x, y) = (c.arg(op, "x"), c.arg(op, "y"));
        match (op.name.as_str(), c.scalar(op, "x"), c.scalar(op, "y")) {
            (op::MUL, Some(a), _) if y.is_some() => {
                found.factor *= a;
                return inner(found, y);
            }
            (op::MUL, _, Some(a)) if x.is_some() => {
                found.factor *= a;
                return inner(found, x);
            }
            (op::REAL_DIV, _, Some(a)) if x.is_some() => {
                found.factor /= a;
                return inner(found, x);
            }
            (op::MUL, None, None) if x.is_some() && y.is_some() => {
                inner(found, x);
                return inner(found, y);
            }
            (op::SQUARE, ..) if x.is_some() => return (0..2).for_each(|_| inner(found, x)),
            (op::POW, _, Some(n)) if x.is_some() && (n == 2.0 || n == 3.0) => {
                return (0..n as usize).for_each(|_| inner(found, x));
            }
            _ => {}
        }
    }
    found.values.push(value);
}

/// The other operand of an `add` of a number, and the number. `None` for another op.
pub(super) fn plus(c: &Cursor<'_>, op: &Op) -> Option<(ValueId, f32)> {
    if op.name != op::ADD {
        return None;
    }
    match (c.scalar(op, "x"), c.scalar(op, "y")) {
        (None, Some(n)) => Some((c.arg(op, "x")?, n)),
        (Some(n), None) => Some((c.arg(op, "y")?, n)),
        _ => None,
    }
}

/// A mean over axes that are kept: what of, over which, and how it is spelled.
pub(super) struct Mean {
    pub(super) of: ValueId,
    pub(super) axes: Vec<usize>,
    /// The sum is of squares already.
    squares: bool,
    /// A `reduce_sum` multiplied by a number.
    pub(super) scaled_sum: bool,
}

/// `reduce_mean(x)`, or `reduce_sum(x)` times the reciprocal of the number of elements.
pub(super) fn mean(c: &Cursor<'_>, value: ValueId) -> Option<Mean> {
    let reduced = |value: ValueId, names: &[&str]| {
        let op = c.def(value).filter(|op| names.contains(&op.name.as_str()))?;
        let x = c.arg(op, "x")?;
        let shape = c.shape(x)?;
        if !c.args(op)?.flag("keep_dims").ok()? {
            return None;
        }
        let axes = c.axes(op, "axes", shape.len(), (0..shape.len()).collect())?;
        let count: usize = axes.iter().map(|&a| shape[a]).product();
        Some((op, x, axes, count))
    };
    if let Some((_, of, axes, _)) = reduced(value, &[op::REDUCE_MEAN]) {
        return Some(Mean { of, axes, squares: false, scaled_sum: false });
    }
    let scaled = product(c, value);
    let [sum] = scaled.values.as_slice() else { return None };
    let (op, of, axes, count) = reduced(*sum, &[op::REDUCE_SUM, op::REDUCE_SUM_SQUARE])?;
    let whole = c.sole(*sum) && *sum != value && near(scaled.factor, 1.0 / count as f32);
    let squares = op.name == op::REDUCE_SUM_SQUARE;
    let scaled_sum = !squares && c.def_of(value, op::MUL).is_some();
    whole.then_some(Mean { of, axes, squares, scaled_sum })
}

/// The mean of squares: what of, over which axes, how often the pattern reads it, and whether it is
/// spelled as engines' kernels do.
pub(super) struct MeanSquare {
    pub(super) of: ValueId,
    pub(super) axes: Vec<usize>,
    pub(super) reads: usize,
    pub(super) canonical: bool,
}

fn mean_square(c: &Cursor<'_>, value: ValueId) -> Option<MeanSquare> {
    let mean = mean(c, value)?;
    let Mean { of, axes, squares, scaled_sum } = mean;
    if squares {
        return Some(MeanSquare { of, axes, reads: 1, canonical: false });
    }
    let op = c.def(of).filter(|_| c.sole(of))?;
    let x = c.arg(op, "x")?;
    match op.name.as_str() {
        op::MUL if c.arg(op, "y") == Some(x) => Some(MeanSquare { of: x, axes, reads: 2, canonical: scaled_sum }),
        op::SQUARE => Some(MeanSquare { of: x, axes, reads: 1, canonical: false }),
        op::POW if c.scalar(op, "y") == Some(2.0) => Some(MeanSquare { of: x, axes, reads: 1, canonical: false }),
        _ => None,
    }
}

/// `x / √(mean(x²) + ε)`.
pub(super) struct Normalized {
    pub(super) x: ValueId,
    pub(super) axes: Vec<usize>,
    pub(super) epsilon: f32,
    /// How often `x` is read here.
    pub(super) reads: usize,
    /// `mul(x, pow(add(mul(reduce_sum(mul(x, x)), 1/n), ε), −½))`.
    pub(super) canonical: bool,
}

/// The op here as a division by the root of a mean square.
pub(super) fn normalized(c: &Cursor<'_>) -> Option<Normalized> {
    let op = c.op()?;
    let found = match op.name.as_str() {
        op::REAL_DIV => quotient(c, c.arg(op, "x")?, c.arg(op, "y")?),
        op::MUL => {
            let (x, y) = (c.arg(op, "x")?, c.arg(op, "y")?);
            times_reciprocal(c, x, y).or_else(|| times_reciprocal(c, y, x))
        }
        _ => None,
    }?;
    (found.epsilon > 0.0 && found.epsilon.is_finite()).then_some(found)
}

/// `x / √v`.
fn quotient(c: &Cursor<'_>, x: ValueId, root: ValueId) -> Option<Normalized> {
    let op = c.def(root).filter(|_| c.sole(root))?;
    let under = match op.name.as_str() {
        op::SQRT => c.arg(op, "x")?,
        op::POW if c.scalar(op, "y") == Some(0.5) => c.arg(op, "x")?,
        _ => return None,
    };
    over(c, x, under, 0.0, false)
}

/// `x · r` with r = 1/√v.
fn times_reciprocal(c: &Cursor<'_>, x: ValueId, r: ValueId) -> Option<Normalized> {
    let op = c.def(r).filter(|_| c.sole(r))?;
    match op.name.as_str() {
        op::RSQRT => over(c, x, c.arg(op, "x")?, epsilon(c, op, 1e-12), false),
        op::POW if c.scalar(op, "y") == Some(-0.5) => over(c, x, c.arg(op, "x")?, 0.0, true),
        op::REAL_DIV if c.scalar(op, "x") == Some(1.0) => quotient(c, x, c.arg(op, "y")?),
        _ => None,
    }
}

/// The epsilon of an op, or its default.
pub(super) fn epsilon(c: &Cursor<'_>, op: &Op, default: f32) -> f32 {
    c.scalar(op, "epsilon").unwrap_or(default)
}

fn over(c: &Cursor<'_>, x: ValueId, under: ValueId, own: f32, power: bool) -> Option<Normalized> {
    let op = c.def(under).filter(|_| c.sole(under))?;
    let (mean, added, plain) = match plus(c, op) {
        Some((mean, added)) if c.sole(mean) => (mean, added, true),
        Some(_) => return None,
        None => (under, 0.0, false),
    };
    let square = mean_square(c, mean)?;
    let canonical = square.canonical && power && plain && own == 0.0;
    let (epsilon, reads) = (own + added, square.reads + 1);
    (square.of == x).then_some(Normalized { x, axes: square.axes, epsilon, reads, canonical })
}
