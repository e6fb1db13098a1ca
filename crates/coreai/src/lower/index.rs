//! Gathers and scatters.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType, ValueId};

use super::elementwise::Results;
use super::graph::body;
use super::state::{Built, Lower, rejected, unmapped};

/// Indices without negative numbers, which count from the end of their axes: one axis for all of
/// them, or one for each place of the last axis of the indices.
fn positive(l: &mut Lower<'_>, i: usize, axes: &[usize]) -> Built {
    let indices = l.x(i)?;
    if l.known(i).is_ok_and(|k| k.len() <= 1 << 16 && k.values().iter().all(|&v| v >= 0.0)) {
        return Ok(indices);
    }
    let extents: Vec<i64> = axes.iter().map(|&n| n as i64).collect();
    let extents = if let [n] = extents[..] { l.indices(&[], &[n])? } else { l.indices(&[axes.len()], &extents)? };
    let negative = l.bin("less", indices, Constant::int32(0))?;
    let from_end = l.bin("add", indices, extents)?;
    l.select(negative, from_end, indices)
}

/// MIL gathers and scatters numbers only.
fn numbers(l: &mut Lower<'_>, i: usize) -> Built {
    let x = l.x(i)?;
    if l.dtype(x) == DataType::Bool { l.cast(x, DataType::Int32) } else { Ok(x) }
}

pub(super) fn gather_along_axis(l: &mut Lower<'_>) -> Results {
    let x = numbers(l, 0)?;
    let shape = l.shape(x)?;
    let axis = l.axis(2, shape.len())?;
    let indices = positive(l, 1, &shape[axis..=axis])?;
    let axis = Constant::int32(axis as i32);
    Ok(vec![l.op("gather_along_axis", [("x", x.into()), ("indices", indices.into()), ("axis", axis.into())])?])
}

/// The first axes of x, as many as tuples of indices have places.
fn indexed(shape: &[usize], tuples: &[usize]) -> Built<Vec<usize>> {
    match tuples.last().and_then(|&depth| shape.get(..depth)) {
        Some(axes) if !axes.is_empty() => Ok(axes.to_vec()),
        _ => rejected(format!("tuples of shape {tuples:?} into {shape:?}")),
    }
}

/// Tuples of a single index are MIL's `gather` along the first axis.
pub(super) fn gather_nd(l: &mut Lower<'_>) -> Results {
    let x = numbers(l, 0)?;
    let (shape, tuples) = (l.shape(x)?, l.extents(1)?);
    let axes = indexed(&shape, &tuples)?;
    let indices = positive(l, 1, &axes)?;
    if let [_] = axes[..] {
        let indices = l.reshape(indices, &tuples[..tuples.len() - 1])?;
        return Ok(vec![l.b.gather(&l.label, x, indices, 0)?]);
    }
    Ok(vec![l.op("gather_nd", [("x", x.into()), ("indices", indices.into())])?])
}

pub(super) fn scatter_nd(l: &mut Lower<'_>) -> Results {
    let replaces = body(l.op).is_some_and(|block| match (block.arguments.as_slice(), block.operations.as_slice()) {
        ([_, new], [last]) => last.operands.as_slice() == [new.definition.value],
        _ => false,
    });
    if !replaces {
        return unmapped("it combines old and new elements by a block, and MIL's `scatter_nd` by an op of its own");
    }
    let (x, updates) = (numbers(l, 0)?, numbers(l, 2)?);
    let (shape, tuples) = (l.shape(x)?, l.extents(1)?);
    let axes = indexed(&shape, &tuples)?;
    let indices = positive(l, 1, &axes)?;
    scattered(l, "scatter_nd", x, indices, updates, vec![("mode", Constant::string("update").into())])
}

pub(super) fn scatter_along_axis(l: &mut Lower<'_>) -> Results {
    let mode = l.word("scatter_mode")?;
    let (x, updates) = (numbers(l, 0)?, numbers(l, 2)?);
    let shape = l.shape(x)?;
    let axis = l.axis(3, shape.len())?;
    let indices = positive(l, 1, &shape[axis..=axis])?;
    let args = vec![("axis", Constant::int32(axis as i32).into()), ("mode", Constant::string(mode).into())];
    scattered(l, "scatter_along_axis", x, indices, updates, args)
}

fn scattered(
    l: &mut Lower<'_>,
    op: &str,
    x: ValueId,
    indices: ValueId,
    updates: ValueId,
    mut args: Vec<(&str, ferrane_mil::Arg)>,
) -> Results {
    args.extend([("data", x.into()), ("indices", indices.into()), ("updates", updates.into())]);
    Ok(vec![l.build(op, args)?])
}
