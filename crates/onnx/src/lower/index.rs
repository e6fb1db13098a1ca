//! Operators with indices: gathers, scatters, top-k, one-hot, non-zero, non-maximum suppression.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Arg, Constant, DataType, ValueId};

use super::state::{Built, Lower, Stop, one, unmapped};
use crate::element::ElementType;

type Results = Built<Vec<Option<ValueId>>>;

/// Input `i`, indices in `0..extent`; negative ones count from the end.
fn wrapped(l: &mut Lower<'_>, i: usize, extent: usize) -> Built {
    let indices = l.x(i)?;
    if l.known(i).is_ok_and(|t| t.values().iter().all(|&v| v >= 0.0)) {
        return Ok(indices);
    }
    let negative = l.bin("less", indices, Constant::int32(0))?;
    let from_end = l.bin("add", indices, Constant::int32(extent as i32))?;
    l.select(negative, from_end, indices)
}

pub(super) fn gather(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axis = l.axis(0, shape.len())?;
    let indices = wrapped(l, 1, shape[axis])?;
    one(l.b.gather(&l.label, x, indices, axis as i32)?)
}

/// MIL requires x and indices to have equal extents except along the axis; ONNX allows smaller
/// indices.
pub(super) fn gather_elements(l: &mut Lower<'_>) -> Results {
    let (mut x, indices) = (l.x(0)?, l.x(1)?);
    let shape = l.shape(x)?;
    let axis = l.axis(0, shape.len())?;
    let cut = l.shape(indices)?;
    if cut.len() != shape.len() {
        return Err(Stop::Rejected(format!("indices of shape {cut:?} into {shape:?}")));
    }
    for (i, &n) in cut.iter().enumerate() {
        if i != axis {
            x = l.slice(x, i, 0, n)?;
        }
    }
    let indices = wrapped(l, 1, shape[axis])?;
    let axis = Constant::int32(axis as i32);
    one(l.op("gather_along_axis", [("x", x.into()), ("indices", indices.into()), ("axis", axis.into())])?)
}

/// Index tuples without negative indices, which count from the end of their axes.
fn wrapped_tuples(l: &mut Lower<'_>, indices: ValueId, axes: &[usize]) -> Built {
    let negative = l.bin("less", indices, Constant::int32(0))?;
    let extents: Vec<i64> = axes.iter().map(|&n| n as i64).collect();
    let extents = l.indices(&[axes.len()], &extents)?;
    let from_end = l.bin("add", indices, extents)?;
    l.select(negative, from_end, indices)
}

pub(super) fn gather_nd(l: &mut Lower<'_>) -> Results {
    let (x, indices) = (l.x(0)?, l.x(1)?);
    let batch = l.number("batch_dims", 0, 0)?;
    let (shape, tuples) = (l.shape(x)?, l.ranked(indices, 1)?);
    let depth = tuples.last().copied().unwrap_or(0);
    let Some(axes) = batch.checked_add(depth).and_then(|end| shape.get(batch..end)) else {
        return Err(Stop::Rejected(format!("tuples of {depth} into {shape:?}")));
    };
    let indices = wrapped_tuples(l, indices, axes)?;
    let batch = Constant::int32(batch as i32);
    one(l.op("gather_nd", [("x", x.into()), ("indices", indices.into()), ("batch_dims", batch.into())])?)
}

fn mode(l: &Lower<'_>) -> Constant {
    Constant::string(match l.text("reduction", "none") {
        "none" => "update",
        other => other,
    })
}

/// MIL requires indices and updates to be as large as the data except along the axis. A smaller
/// block is cut out, changed, and put back.
pub(super) fn scatter_elements(l: &mut Lower<'_>) -> Results {
    let (x, updates) = (l.x(0)?, l.x(2)?);
    let shape = l.shape(x)?;
    let axis = l.axis(0, shape.len())?;
    let indices = wrapped(l, 1, shape[axis])?;
    let cut = l.shape(updates)?;
    if cut.len() != shape.len() || l.shape(indices)? != cut {
        return Err(Stop::Rejected(format!("updates of shape {cut:?} for {shape:?}")));
    }
    let mut block = x;
    for (i, &n) in cut.iter().enumerate() {
        if i != axis {
            block = l.slice(block, i, 0, n)?;
        }
    }
    let mode = mode(l);
    let mut y = l.op(
        "scatter_along_axis",
        [
            ("data", block.into()),
            ("indices", indices.into()),
            ("updates", updates.into()),
            ("axis", Constant::int32(axis as i32).into()),
            ("mode", mode.into()),
        ],
    )?;
    // Innermost axis first: each step concatenates the block with the part of x that was cut off.
    for i in (0..shape.len()).rev().filter(|&i| i != axis) {
        if cut[i] < shape[i] {
            let mut rest = x;
            for (j, &n) in cut.iter().enumerate().take(i) {
                if j != axis {
                    rest = l.slice(rest, j, 0, n)?;
                }
            }
            let rest = l.slice(rest, i, cut[i], shape[i] - cut[i])?;
            y = l.concat(&[y, rest], i)?;
        }
    }
    one(y)
}

pub(super) fn scatter_nd(l: &mut Lower<'_>) -> Results {
    let (x, indices, updates) = (l.x(0)?, l.x(1)?, l.x(2)?);
    let shape = l.shape(x)?;
    let depth = l.shape(indices)?.last().copied().unwrap_or(0);
    let Some(axes) = shape.get(..depth) else {
        return Err(Stop::Rejected(format!("tuples of {depth} into {shape:?}")));
    };
    let indices = wrapped_tuples(l, indices, axes)?;
    let mode = mode(l);
    one(l.op(
        "scatter_nd",
        [("data", x.into()), ("indices", indices.into()), ("updates", updates.into()), ("mode", mode.into())],
    )?)
}

/// Writes an update into a cache `[batch, …, sequence, …]` at an index for each batch.
pub(super) fn tensor_scatter(l: &mut Lower<'_>) -> Results {
    let (cache, update) = (l.x(0)?, l.x(1)?);
    let (shape, part) = (l.ranked(cache, 2)?, l.ranked(update, 2)?);
    let axis = l.axis(-2, shape.len())?;
    let starts = l.ints_if(2)?.unwrap_or_else(|| vec![0; shape[0]]);
    if part.len() != shape.len() || starts.len() != shape[0] || axis == 0 || shape[axis] == 0 {
        return Err(Stop::Rejected(format!("an update of shape {part:?} for {shape:?}")));
    }
    l.table(&[shape[0], part[axis], 2])?;
    let circular = l.text("mode", "linear") == "circular";
    let mut tuples = Vec::new();
    for batch in 0..shape[0] {
        for step in 0..part[axis] {
            let at = starts[batch].saturating_add(step as i64);
            tuples.extend([batch as i64, if circular { at % shape[axis] as i64 } else { at }]);
        }
    }
    // Batch and sequence first, so that an index tuple addresses both.
    let mut perm: Vec<usize> = vec![0, axis];
    perm.extend((1..shape.len()).filter(|&a| a != axis));
    let mut back = vec![0; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        back[p] = i;
    }
    let (cache, update) = (l.transpose(cache, &perm)?, l.transpose(update, &perm)?);
    let indices = l.indices(&[shape[0], part[axis], 2], &tuples)?;
    let y = l.op(
        "scatter_nd",
        [
            ("data", cache.into()),
            ("indices", indices.into()),
            ("updates", update.into()),
            ("mode", Constant::string("update").into()),
        ],
    )?;
    one(l.transpose(y, &back)?)
}

pub(super) fn one_hot(l: &mut Lower<'_>) -> Results {
    let raw = l.x(0)?;
    let depth = l.ints(1)?.first().copied().unwrap_or(0).clamp(0, i64::from(i32::MAX)) as i32;
    let values = l.known(2)?;
    let &[off, on] = values.values() else { return Err(Stop::Rejected("two values are needed".into())) };
    let rank = l.shape(raw)?.len();
    let axis = l.normal(l.int("axis", -1), rank + 1)? as i32;
    let mut indices = l.cast(raw, DataType::Int32)?;
    let negative = l.bin("less", indices, Constant::int32(0))?;
    let from_end = l.bin("add", indices, Constant::int32(depth))?;
    indices = l.select(negative, from_end, indices)?;
    // An index out of range gives a row of the off value; the one_hot of some opsets rejects it.
    let dtype = l.mil(values.element())?;
    let (off, on) = (l.constant(dtype, &[], &[off])?, l.constant(dtype, &[], &[on])?);
    l.elements = Some(values.element());
    one(l.op(
        "one_hot",
        [
            ("indices", indices.into()),
            ("one_hot_vector_size", Constant::int32(depth).into()),
            ("axis", Constant::int32(axis).into()),
            ("on_value", on.into()),
            ("off_value", off.into()),
        ],
    )?)
}

pub(super) fn non_zero(l: &mut Lower<'_>) -> Results {
    let mut x = l.x(0)?;
    if l.dtype(x) == DataType::Bool {
        x = l.cast(x, DataType::Int32)?;
    }
    let rows = l.un("non_zero", x)?;
    one(l.transpose(rows, &[1, 0])?)
}

pub(super) fn compress(l: &mut Lower<'_>) -> Results {
    let mut x = l.x(0)?;
    let condition = l.x(1)?;
    let shape = l.shape(x)?;
    let axis = if l.given("axis") {
        l.axis(0, shape.len())?
    } else {
        x = l.reshape(x, &[shape.iter().product()])?;
        0
    };
    let condition = l.cast(condition, DataType::Int32)?;
    let rows = l.un("non_zero", condition)?;
    let indices = l.b.squeeze(&l.label, rows, &[1])?;
    one(l.b.gather(&l.label, x, indices, axis as i32)?)
}

pub(super) fn top_k(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.shape(x)?.len();
    let k = match l.ints_if(1)? {
        Some(k) => k.first().copied().unwrap_or(1),
        None => l.int("k", 1),
    };
    let k = k.clamp(0, i64::from(i32::MAX));
    let axis = Constant::int32(l.axis(-1, rank)? as i32);
    let ascending = Constant::bool(l.int("largest", 1) == 0);
    let args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("k", Constant::int32(k as i32).into()),
        ("axis", axis.into()),
        ("ascending", ascending.into()),
    ];
    let parts = l.several("topk", args)?;
    Ok(parts.into_iter().map(Some).collect())
}

/// The inverse of a max pooling that returned indices: elements are scattered to them, the rest is
/// zero.
pub(super) fn max_unpool(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let indices = l.known(1)?;
    let shape = l.ranked(x, 3)?;
    let spatial = shape.len() - 2;
    let kernel = l.counts("kernel_shape", spatial, 1, 1)?;
    let strides = l.counts("strides", spatial, 1, 1)?;
    let pads = l.counts("pads", 2 * spatial, 0, 0)?;
    let mut natural = shape.clone();
    for i in 0..spatial {
        let n = (shape[i + 2] as i64 - 1) * strides[i] + kernel[i] - pads[i] - pads[i + spatial];
        natural[i + 2] = n.max(0) as usize;
    }
    let wanted: Vec<usize> = match l.ints_if(2)? {
        Some(shape) => shape.iter().map(|&n| n.max(0) as usize).collect(),
        None => natural.clone(),
    };
    l.table(&natural)?;
    let total = l.table(&wanted)?;
    if wanted.len() != natural.len() || indices.shape() != shape || natural.contains(&0) {
        return Err(Stop::Rejected(format!("an output of shape {wanted:?} for {shape:?}")));
    }
    // Indices count through a tensor of the default output extents, which lies at the origin of a
    // requested larger shape.
    let places: Vec<i64> = indices
        .values()
        .iter()
        .map(|&v| {
            let (mut rest, mut at, mut span) = (v as usize, 0, 1);
            for axis in (0..natural.len()).rev() {
                at += rest % natural[axis] * span;
                rest /= natural[axis];
                span *= wanted[axis];
            }
            at as i64
        })
        .collect();
    let zeros = l.tensor(x, &[total], &vec![0.0; total])?;
    let flat = l.reshape(x, &[places.len()])?;
    let places = l.indices(&[places.len()], &places)?;
    let y = l.op(
        "scatter_along_axis",
        [
            ("data", zeros.into()),
            ("indices", places.into()),
            ("updates", flat.into()),
            ("axis", Constant::int32(0).into()),
            ("mode", Constant::string("update").into()),
        ],
    )?;
    one(l.reshape(y, &wanted)?)
}

/// Makes one call of MIL's suppression for each batch and class, and builds the rows `(batch,
/// class, box)` for as many boxes as it returned.
pub(super) fn suppression(l: &mut Lower<'_>) -> Results {
    let (boxes, scores) = (l.x(0)?, l.x(1)?);
    let (batches, classes, count) = match l.shape(scores)?[..] {
        [n, c, b] => (n, c, b),
        _ => return unmapped("scores of rank 3"),
    };
    let number = |i: usize, default: f64| -> Built<f64> {
        Ok(if l.has(i) { l.floats(i)?.first().copied().unwrap_or(default) } else { default })
    };
    let (limit, iou, least) = (number(2, 0.0)? as usize, number(3, 0.0)?, number(4, f64::from(f32::MIN))?);
    if limit == 0 {
        return unmapped("a maximum of no boxes");
    }
    let mut rows = Vec::new();
    l.elements = Some(ElementType::Int64);
    let corners = l.int("center_point_box", 0) == 0;
    if l.target > ferrane_mil::Opset::IOS16 {
        return unmapped("non_maximum_suppression has no score threshold after iOS 16; make the program for iOS 16");
    }
    l.spend(batches.saturating_mul(classes).saturating_mul(16))?;
    if batches * classes == 0 {
        return unmapped("scores without elements");
    }
    for batch in 0..batches {
        let one_batch = l.slice(boxes, 0, batch, 1)?;
        let centered = if corners {
            let mut side = |i: usize| l.slice(one_batch, 2, i, 1);
            let (y1, x1, y2, x2) = (side(0)?, side(1)?, side(2)?, side(3)?);
            let mut middle = Vec::new();
            let mut size = Vec::new();
            for (a, b) in [(x1, x2), (y1, y2)] {
                let sum = l.bin("add", a, b)?;
                middle.push(l.bin("mul", sum, l.num(sum, 0.5))?);
                let difference = l.bin("sub", a, b)?;
                size.push(l.un("abs", difference)?);
            }
            middle.extend(size);
            l.concat(&middle, 2)?
        } else {
            one_batch
        };
        for class in 0..classes {
            let s = l.slice(scores, 0, batch, 1)?;
            let s = l.slice(s, 1, class, 1)?;
            let s = l.transpose(s, &[0, 2, 1])?;
            let found = l.b.ops(
                "non_maximum_suppression",
                "kept",
                [
                    ("boxes", centered.into()),
                    ("scores", s.into()),
                    ("iou_threshold", l.num(s, iou as f32).into()),
                    ("score_threshold", l.num(s, least as f32).into()),
                    ("max_boxes", Constant::int32(limit.min(count) as i32).into()),
                ],
            )?;
            let (indices, many) = (found[2], found[3]);
            let indices = l.b.squeeze(&l.label, indices, &[0])?;
            let kept = l.op(
                "slice_by_size",
                [("x", indices.into()), ("begin", Constant::int32s(&[0]).into()), ("size", many.into())],
            )?;
            let column = l.b.expand_dims(&l.label, kept, &[1])?;
            // Zero times the column plus the number: as many rows as there are boxes.
            let none = l.bin("mul", column, Constant::int32(0))?;
            let (b, c) = (
                l.bin("add", none, Constant::int32(batch as i32))?,
                l.bin("add", none, Constant::int32(class as i32))?,
            );
            rows.push(l.concat(&[b, c, column], 1)?);
        }
    }
    one(l.concat(&rows, 0)?)
}
