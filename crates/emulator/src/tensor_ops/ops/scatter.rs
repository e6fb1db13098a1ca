//! Reads and writes at indices.
//!
//! A negative index counts from the end. From iOS 17 on the signature calls it out of range: it is
//! an error if the program requests validation, and otherwise means the same as before. An index
//! beyond the axis is an error in every opset, because its result is not defined. Updates of one
//! element are applied in the order of the indices.

use ferrane_device::Result;
use ferrane_mil::Opset;

use super::super::index::{Walk, around, strides};
use super::super::{Call, Data, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[
    ("scatter", scatter),
    ("scatter_along_axis", scatter_along_axis),
    ("scatter_nd", scatter_nd),
    ("gather_nd", gather_nd),
    ("slice_update", slice_update),
];

/// Whether negative indices are refused.
fn strict(call: &Call<'_>) -> Result<bool> {
    Ok(call.opset >= Opset::IOS17 && call.def.param("validate_indices").is_some() && call.flag("validate_indices")?)
}

/// An index below `extent`.
fn checked(call: &Call<'_>, index: i64, extent: usize, strict: bool) -> Result<usize> {
    let n = extent as i64;
    let found = if index < 0 && !strict { index.saturating_add(n) } else { index };
    if !(0..n).contains(&found) {
        return Err(call.fail(format!("index {index} is out of range for an extent of {extent}")));
    }
    Ok(found as usize)
}

/// How an update is combined with an element.
#[derive(Clone, Copy)]
enum Mode {
    Update,
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
}

impl Mode {
    fn of(call: &Call<'_>) -> Result<Mode> {
        Ok(match call.text("mode")?.as_str() {
            "update" => Mode::Update,
            "add" => Mode::Add,
            "sub" => Mode::Sub,
            "mul" => Mode::Mul,
            "div" => Mode::Div,
            "max" => Mode::Max,
            "min" => Mode::Min,
            other => return Err(call.fail(format!("has no mode `{other}`"))),
        })
    }

    fn floats(self, old: f32, new: f32) -> f32 {
        match self {
            Mode::Update => new,
            Mode::Add => old + new,
            Mode::Sub => old - new,
            Mode::Mul => old * new,
            Mode::Div => old / new,
            // NaN propagates, as in numpy's maximum.
            Mode::Max if old.is_nan() || old >= new => old,
            Mode::Min if old.is_nan() || old <= new => old,
            Mode::Max | Mode::Min => new,
        }
    }

    fn ints(self, old: i64, new: i64) -> i64 {
        match self {
            Mode::Update => new,
            Mode::Add => old.wrapping_add(new),
            Mode::Sub => old.wrapping_sub(new),
            Mode::Mul => old.wrapping_mul(new),
            // Rounds toward zero; division by zero gives 0, as in `real_div`.
            Mode::Div => old.checked_div(new).unwrap_or(0),
            Mode::Max => old.max(new),
            Mode::Min => old.min(new),
        }
    }
}

/// Updates `data`: element `i` of `updates` is combined with the element at the `i`-th position.
fn applied(
    call: &Call<'_>,
    data: &HeapTensor,
    updates: &HeapTensor,
    mode: Mode,
    places: impl Iterator<Item = Result<usize>>,
) -> Result<Vec<HeapTensor>> {
    let mut out = data.clone();
    match (&mut out.data, &updates.data) {
        (Data::Floats(out), Data::Floats(new)) => {
            for (place, &v) in places.zip(new) {
                let place = place?;
                out[place] = mode.floats(out[place], v);
            }
        }
        (Data::Ints(out), Data::Ints(new)) => {
            for (place, &v) in places.zip(new) {
                let place = place?;
                out[place] = mode.ints(out[place], v);
            }
        }
        _ => return Err(call.fail("`updates` must have the type of the data")),
    }
    Ok(vec![out])
}

fn fits(call: &Call<'_>, updates: &HeapTensor, shape: &[usize]) -> Result<()> {
    if updates.shape != shape {
        return Err(call.fail(format!("`updates` has shape {:?}, not {shape:?}", updates.shape)));
    }
    Ok(())
}

/// `scatter`: slices along an axis (coremltools 9.0). `indices` may have any rank; its axes replace
/// the axis.
fn scatter(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (data, indices, updates) = (call.tensor("data")?, call.tensor("indices")?, call.tensor("updates")?);
    let axis = call.axis("axis", data.shape.len())?;
    let mut shape = data.shape.clone();
    shape.splice(axis..=axis, indices.shape.iter().copied());
    fits(call, updates, &shape)?;
    let strict = strict(call)?;
    let (_, n, inner) = around(&data.shape, axis);
    let found = (0..indices.len()).map(|i| checked(call, indices.int(i), n, strict)).collect::<Result<Vec<_>>>()?;
    let places = (0..updates.len()).map(|i| {
        let (o, p, q) = (i / inner / found.len(), i / inner % found.len(), i % inner);
        Ok((o * n + found[p]) * inner + q)
    });
    applied(call, data, updates, Mode::of(call)?, places)
}

/// `scatter_along_axis`: each update has its own index along the axis (coremltools 9.0).
/// coremltools' value inference supports only `update`; the other modes follow the op's
/// description.
fn scatter_along_axis(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (data, indices, updates) = (call.tensor("data")?, call.tensor("indices")?, call.tensor("updates")?);
    let axis = call.axis("axis", data.shape.len())?;
    let mut shape = indices.shape.clone();
    if let Some(extent) = shape.get_mut(axis) {
        *extent = data.shape[axis];
    }
    if shape != data.shape {
        return Err(call.fail(format!("indices of shape {:?} into {:?} along axis {axis}", indices.shape, data.shape)));
    }
    fits(call, updates, &indices.shape)?;
    let strict = strict(call)?;
    let (_, n, inner) = around(&data.shape, axis);
    let picked = indices.shape[axis];
    let places = (0..updates.len()).map(|i| {
        let along = checked(call, indices.int(i), n, strict)?;
        Ok((i / (picked * inner) * n + along) * inner + i % inner)
    });
    applied(call, data, updates, Mode::of(call)?, places)
}

/// The offset of each index tuple (the last axis of `indices`) in a tensor of shape `x` whose first
/// `batch` axes are those of `indices`, and the extents after the indexed axes.
fn tuples<'x>(
    call: &Call<'_>,
    x: &'x [usize],
    indices: &HeapTensor,
    batch: usize,
) -> Result<(Vec<usize>, &'x [usize])> {
    let Some((&depth, leads)) = indices.shape.split_last() else {
        return Err(call.fail("`indices` must have an axis"));
    };
    if batch > leads.len() || batch + depth > x.len() || leads[..batch] != x[..batch] {
        return Err(call.fail(format!("indices of shape {:?} into {x:?} with {batch} batch axes", indices.shape)));
    }
    let strict = strict(call)?;
    let rest = &x[batch + depth..];
    let steps = strides(x);
    let count: usize = leads.iter().product();
    let each: usize = leads[batch..].iter().product();
    let block: usize = x[batch..].iter().product();
    let mut places = Vec::with_capacity(count);
    for i in 0..count {
        let mut at = i / each * block;
        for d in 0..depth {
            at += checked(call, indices.int(i * depth + d), x[batch + d], strict)? * steps[batch + d] as usize;
        }
        places.push(at);
    }
    Ok((places, rest))
}

/// `scatter_nd`: slices at index tuples (coremltools 9.0).
fn scatter_nd(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (data, indices, updates) = (call.tensor("data")?, call.tensor("indices")?, call.tensor("updates")?);
    let (starts, rest) = tuples(call, &data.shape, indices, 0)?;
    let mut shape = indices.shape[..indices.shape.len() - 1].to_vec();
    shape.extend(rest);
    fits(call, updates, &shape)?;
    let row: usize = rest.iter().product();
    applied(call, data, updates, Mode::of(call)?, (0..updates.len()).map(|i| Ok(starts[i / row] + i % row)))
}

/// `gather_nd`: slices at index tuples, in batches from iOS 16 on (coremltools 9.0).
fn gather_nd(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (x, indices) = (call.tensor("x")?, call.tensor("indices")?);
    let batch = if call.def.param("batch_dims").is_some() { call.int("batch_dims")? } else { 0 };
    let batch = usize::try_from(batch).map_err(|_| call.fail("negative `batch_dims`"))?;
    let (starts, rest) = tuples(call, &x.shape, indices, batch.min(x.shape.len() + 1))?;
    let mut shape = indices.shape[..indices.shape.len() - 1].to_vec();
    shape.extend(rest);
    let count = call.elements(&shape)?;
    let row: usize = rest.iter().product();
    Ok(vec![x.pick(&shape, (0..count).map(|i| starts[i / row] + i % row))])
}

/// Python's slice of an axis of `n`: its first index and its number of steps.
fn slice(call: &Call<'_>, n: usize, begin: Option<i64>, end: Option<i64>, step: i64) -> Result<(i64, usize)> {
    if step == 0 {
        return Err(call.fail("a stride of 0"));
    }
    let n = n as i64;
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let bound = |at: i64| (if at < 0 { at.saturating_add(n) } else { at }).clamp(low, high);
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let (begin, end) = (begin.map_or(first, bound), end.map_or(last, bound));
    let span = if step > 0 { end - begin } else { begin - end };
    let step = step.unsigned_abs();
    Ok((begin, if span <= 0 { 0 } else { (span as u64).div_ceil(step) as usize }))
}

/// `slice_update`: writes a strided slice (coremltools 9.0, iOS 18). The slice means the same as in
/// `slice_by_index`: a squeezed axis is the element at `begin`.
fn slice_update(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (x, update) = (call.tensor("x")?, call.tensor("update")?);
    let rank = x.shape.len();
    let list = |name: &str, default: i64| -> Result<Vec<i64>> {
        let values = call.ints_if(name).unwrap_or_else(|| vec![default; rank]);
        if values.len() != rank { Err(call.fail(format!("`{name}` must have {rank} values"))) } else { Ok(values) }
    };
    let (begin, end, stride) = (list("begin", 0)?, list("end", 0)?, list("stride", 1)?);
    let (open, closed, squeeze) = (list("begin_mask", 0)?, list("end_mask", 0)?, list("squeeze_mask", 0)?);
    let dense = strides(&x.shape);
    let (mut shape, mut steps, mut start) = (Vec::new(), Vec::new(), 0isize);
    for a in 0..rank {
        if squeeze[a] != 0 {
            let only = if open[a] == 0 { begin[a] } else { 0 };
            start += checked(call, only, x.shape[a], false)? as isize * dense[a];
            continue;
        }
        let first = (open[a] == 0).then_some(begin[a]);
        let last = (closed[a] == 0).then_some(end[a]);
        let (first, count) = slice(call, x.shape[a], first, last, stride[a])?;
        start += if count > 0 { first as isize * dense[a] } else { 0 };
        shape.push(count);
        // With at most one step the stride is never added, however large it is.
        steps.push(if count > 1 { stride[a] as isize * dense[a] } else { 0 });
    }
    let count: usize = shape.iter().product();
    if update.len() != count {
        return Err(call.fail(format!("an update of shape {:?} for a slice of {shape:?}", update.shape)));
    }
    applied(call, x, update, Mode::Update, Walk::new(&shape, &steps, start).map(Ok))
}
