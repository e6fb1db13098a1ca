//! Reductions, scans, sorts and matrix products.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType, ValueId};

use super::elementwise::Results;
use super::graph::body;
use super::state::{Built, Lower, rejected, unmapped};

/// Reduces over the axes of operand 1, which are kept.
fn reduced(l: &mut Lower<'_>, op: &str) -> Results {
    let x = l.x(0)?;
    let axes = l.axes(1, l.b.ty(x).rank().unwrap_or(0))?;
    if axes.is_empty() {
        return Ok(vec![x]);
    }
    let element = l.element(0)?;
    if matches!(op, "reduce_max" | "reduce_min") {
        let x = l.moved(x, element)?;
        let y = l.reduce(op, x, &axes, true)?;
        return Ok(vec![l.moved(y, element)?]);
    }
    let y = l.reduce(op, x, &axes, true)?;
    Ok(vec![l.wrapped(y, element)?])
}

pub(super) fn reduce_max(l: &mut Lower<'_>) -> Results {
    reduced(l, "reduce_max")
}

pub(super) fn reduce_mean(l: &mut Lower<'_>) -> Results {
    match l.is_float_operand()? {
        true => reduced(l, "reduce_mean"),
        false => unmapped("MIL has no mean of integers"),
    }
}

pub(super) fn reduce_min(l: &mut Lower<'_>) -> Results {
    reduced(l, "reduce_min")
}

pub(super) fn reduce_product(l: &mut Lower<'_>) -> Results {
    reduced(l, "reduce_prod")
}

pub(super) fn reduce_sum(l: &mut Lower<'_>) -> Results {
    reduced(l, "reduce_sum")
}

/// Of truth values as 0 and 1.
fn truths(l: &mut Lower<'_>, op: &str) -> Results {
    let x = l.x(0)?;
    let axes = l.axes(1, l.b.ty(x).rank().unwrap_or(0))?;
    if axes.is_empty() {
        return Ok(vec![x]);
    }
    let x = l.cast(x, DataType::Int32)?;
    Ok(vec![l.reduce(op, x, &axes, true)?])
}

pub(super) fn all(l: &mut Lower<'_>) -> Results {
    truths(l, "reduce_min")
}

pub(super) fn any(l: &mut Lower<'_>) -> Results {
    truths(l, "reduce_max")
}

/// The name of the only operation in a block that combines its two arguments, and whether it takes
/// them in their order.
fn combiner(l: &Lower<'_>) -> Option<(&'static str, bool)> {
    let block = body(l.op)?;
    let [a, b] = block.arguments.as_slice() else { return None };
    let [op, last] = block.operations.as_slice() else { return None };
    let (a, b) = (a.definition.value, b.definition.value);
    let returned = last.operands.as_slice() == [op.results.first()?.value];
    let ordered = match op.operands.as_slice() {
        [x, y] if (*x, *y) == (a, b) => true,
        [x, y] if (*x, *y) == (b, a) => false,
        _ => return None,
    };
    l.file.op(op.name).filter(|_| returned).map(|op| (op.name, ordered))
}

/// A reduction by an operation that its block names, from a first value.
pub(super) fn reduce(l: &mut Lower<'_>) -> Results {
    let (op, join, neutral) = match combiner(l).map(|(name, _)| name) {
        Some("primitive.add_v1") => ("reduce_sum", "add", 0.0),
        Some("primitive.mul_v1") => ("reduce_prod", "mul", 1.0),
        Some("primitive.maximum_v1") => ("reduce_max", "maximum", f64::NEG_INFINITY),
        Some("primitive.minimum_v1") => ("reduce_min", "minimum", f64::INFINITY),
        Some("primitive.logical_and_v1") => ("reduce_min", "minimum", f64::INFINITY),
        Some("primitive.logical_or_v1") => ("reduce_max", "maximum", f64::NEG_INFINITY),
        _ => return unmapped("MIL reduces by sums, products, the largest and the smallest element only"),
    };
    let x = l.x(0)?;
    let axes = l.axes(1, l.b.ty(x).rank().unwrap_or(0))?;
    let x = if l.dtype(x) == DataType::Bool { l.cast(x, DataType::Int32)? } else { x };
    let mut y = if axes.is_empty() { x } else { l.reduce(op, x, &axes, true)? };
    let first = l.known(2).ok().and_then(|k| k.first());
    if first != Some(neutral) {
        let first = l.x(2)?;
        let dtype = l.dtype(y);
        let first = l.cast(first, dtype)?;
        y = l.bin(join, y, first)?;
    }
    let element = l.element(0)?;
    Ok(vec![l.wrapped(y, element)?])
}

fn argument(l: &mut Lower<'_>, op: &str) -> Results {
    let (x, element) = (l.x(0)?, l.element(0)?);
    let axis = l.axis(1, l.b.ty(x).rank().unwrap_or(0))?;
    let axis = Constant::int32(axis as i32);
    let x = l.moved(x, element)?;
    Ok(vec![l.op(op, [("x", x.into()), ("axis", axis.into()), ("keep_dims", Constant::bool(true).into())])?])
}

pub(super) fn argmax(l: &mut Lower<'_>) -> Results {
    argument(l, "reduce_argmax")
}

/// The place of the element that a comparison of two prefers.
pub(super) fn reduce_index(l: &mut Lower<'_>) -> Results {
    match combiner(l) {
        Some(("primitive.greater_v1", false)) => argument(l, "reduce_argmax"),
        Some(("primitive.greater_v1", true)) => argument(l, "reduce_argmin"),
        _ => unmapped("MIL finds the place of the largest and of the smallest element only"),
    }
}

pub(super) fn softmax(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let axis = l.axis(1, l.b.ty(x).rank().unwrap_or(0))?;
    Ok(vec![l.b.softmax(&l.label, x, axis as i32)?])
}

/// Sums are MIL's `cumsum`. Other scans combine each element with the one 1, 2, 4, … places before
/// it.
pub(super) fn scan(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axis = l.axis(1, shape.len())?;
    let backward = l.known(2)?.first().is_some_and(|v| v != 0.0);
    let element = l.element(0)?;
    let op = match l.word("combiner")? {
        "sum" => {
            let y = l.op(
                "cumsum",
                [
                    ("x", x.into()),
                    ("axis", Constant::int32(axis as i32).into()),
                    ("exclusive", Constant::bool(false).into()),
                    ("reverse", Constant::bool(backward).into()),
                ],
            )?;
            return Ok(vec![l.wrapped(y, element)?]);
        }
        "product" => "mul",
        "min" => "minimum",
        _ => "maximum",
    };
    let n = shape[axis];
    let is_order = op != "mul";
    let (mut y, mut reach) = (if is_order { l.moved(x, element)? } else { x }, 1);
    while reach < n {
        l.spend(1)?;
        let (early, late) = (l.slice(y, axis, 0, n - reach)?, l.slice(y, axis, reach, n - reach)?);
        let both = l.bin(op, early, late)?;
        let both = if is_order { both } else { l.wrapped(both, element)? };
        let (rest, order) = match backward {
            false => (l.slice(y, axis, 0, reach)?, false),
            true => (l.slice(y, axis, n - reach, reach)?, true),
        };
        y = if order { l.concat(&[both, rest], axis)? } else { l.concat(&[rest, both], axis)? };
        reach *= 2;
    }
    Ok(vec![if is_order { l.moved(y, element)? } else { y }])
}

/// The order of the elements along an axis.
fn order(l: &mut Lower<'_>, x: ValueId) -> Built<(ValueId, Constant)> {
    let axis = l.axis(1, l.b.ty(x).rank().unwrap_or(0))?;
    let descending = l.known(2)?.first().is_some_and(|v| v != 0.0);
    let axis = Constant::int32(axis as i32);
    let ascending = Constant::bool(!descending);
    let element = l.element(0)?;
    let x = l.moved(x, element)?;
    let order = l.op("argsort", [("x", x.into()), ("axis", axis.clone().into()), ("ascending", ascending.into())])?;
    Ok((order, axis))
}

pub(super) fn argsort(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    Ok(vec![order(l, x)?.0])
}

pub(super) fn sort(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let (order, axis) = order(l, x)?;
    Ok(vec![l.op("gather_along_axis", [("x", x.into()), ("indices", order.into()), ("axis", axis.into())])?])
}

pub(super) fn matmul(l: &mut Lower<'_>) -> Results {
    let mut operands = [(l.x(0)?, false), (l.x(1)?, false)];
    if !l.is_float(operands[0].0) && l.dtype(operands[0].0) != DataType::Int32 {
        return unmapped("MIL multiplies matrices of floating-point numbers and of integers only");
    }
    for operand in &mut operands {
        // The product swaps the last two axes by itself.
        if let Some(&source) = l.transposed.get(&operand.0) {
            *operand = (source, true);
        }
    }
    let [(x, swap_x), (y, swap_y)] = operands;
    if l.dtype(x) != l.dtype(y) {
        return rejected("its operands are of different types");
    }
    Ok(vec![l.op(
        "matmul",
        [
            ("x", x.into()),
            ("y", y.into()),
            ("transpose_x", Constant::bool(swap_x).into()),
            ("transpose_y", Constant::bool(swap_y).into()),
        ],
    )?])
}

/// The indices of what is not zero, a row each. How many there are is known only when the program
/// runs.
pub(super) fn non_zero(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    Ok(vec![l.un("non_zero", x)?])
}

impl Lower<'_> {
    /// True if operand 0 is of floating-point numbers.
    fn is_float_operand(&self) -> Built<bool> {
        Ok(super::known::is_float(self.element(0)?))
    }
}
