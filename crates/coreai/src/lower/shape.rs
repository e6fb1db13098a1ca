//! Moves of elements: shapes, slices, padding.

use ferrane_mil::emit::{Emit, int32s};
use ferrane_mil::{Constant, DataType, ValueId};

use super::elementwise::Results;
use super::state::{Built, Lower, Stop, normal, rejected, unmapped};

/// Extents of a shape that is known; -1 stands for what is left of `count` elements.
pub(super) fn target(list: &[i64], count: usize) -> Option<Vec<usize>> {
    let fixed = list.iter().filter(|&&n| n != -1);
    let product = fixed.clone().try_fold(1usize, |n, &e| n.checked_mul(usize::try_from(e).ok()?))?;
    let open = list.len() - fixed.count();
    let rest = match open {
        0 => 1,
        1 if product > 0 && count.is_multiple_of(product) => count / product,
        _ => return None,
    };
    Some(list.iter().map(|&n| if n == -1 { rest } else { n as usize }).collect())
}

pub(super) fn reshape(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let list = l.ints(1)?;
    let count = l.shape(x)?.iter().product();
    let Some(shape) = target(&list, count) else { return rejected(format!("a shape {list:?} for {count} elements")) };
    Ok(vec![l.reshape(x, &shape)?])
}

pub(super) fn transpose(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.b.ty(x).rank().unwrap_or(0);
    let order = l.counts(1, rank, 0)?;
    if order.iter().enumerate().all(|(i, &p)| i as i64 == p) {
        return Ok(vec![x]);
    }
    let order: Vec<i32> = order.iter().map(|&n| n as i32).collect();
    let y = l.b.transpose(&l.label, x, &order)?;
    let swapped = |i: usize| if i + 2 == rank { i + 1 } else { i - 1 };
    let swaps =
        rank >= 2 && order.iter().enumerate().all(|(i, &p)| p as usize == if i + 2 < rank { i } else { swapped(i) });
    if swaps {
        l.transposed.insert(y, x);
    }
    Ok(vec![y])
}

pub(super) fn expand_dims(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axes = l.axes(1, shape.len().saturating_add(l.ints(1)?.len()))?;
    let mut rest = shape.into_iter();
    let rank = axes.len() + rest.len();
    let shape: Vec<usize> = (0..rank).map(|i| if axes.contains(&i) { 1 } else { rest.next().unwrap_or(1) }).collect();
    Ok(vec![l.reshape(x, &shape)?])
}

pub(super) fn shrink_dims(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axes = l.axes(1, shape.len())?;
    let kept: Vec<usize> = (0..shape.len()).filter(|i| !axes.contains(i)).map(|i| shape[i]).collect();
    Ok(vec![l.reshape(x, &kept)?])
}

pub(super) fn concat(l: &mut Lower<'_>) -> Results {
    let mut values = Vec::new();
    for i in 1..l.count() {
        let value = l.x(i)?;
        // What has no elements adds none.
        if l.b.ty(value).elements() != Some(0) {
            values.push(value);
        }
    }
    let Some(&first) = values.first() else { return unmapped("MIL has no tensors without elements") };
    let axis = l.axis(0, l.b.ty(first).rank().unwrap_or(0))?;
    Ok(vec![l.concat(&values, axis)?])
}

/// Operand 1 has the sizes of the parts, or the size of all but the last.
pub(super) fn split(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axis = l.axis(2, shape.len())?;
    let parts = l.op.results.len();
    let sizes: Vec<i64> = match l.extents(1)?.is_empty() {
        false => l.counts(1, parts, 0)?,
        true => {
            let (extent, size) = (shape[axis] as i64, l.int(1)?.max(1));
            (0..parts as i64).map(|i| (extent - i.saturating_mul(size)).clamp(0, size)).collect()
        }
    };
    if sizes.iter().sum::<i64>() != shape[axis] as i64 || sizes.contains(&0) {
        return rejected(format!("parts of {sizes:?} elements along an axis of {}", shape[axis]));
    }
    if let [_] = sizes[..] {
        return Ok(vec![x]);
    }
    let sizes: Vec<i32> = sizes.iter().map(|&n| n as i32).collect();
    Ok(l.b.split(&l.label, x, &sizes, axis as i32)?)
}

/// The elements of a slice along an axis of `extent`: the first one, how many, and the step. A
/// bound before the first valid one counts from the end, and both are clamped to the axis.
pub(super) fn bounds(start: i64, end: i64, step: i64, extent: usize) -> Option<(i64, usize)> {
    let n = extent as i64;
    let clamped =
        |v: i64, low: i64, high: i64| (if v < low { v.saturating_add(n) } else { v }).clamp(low, high.max(low));
    let span = match step {
        0 => return None,
        1.. => clamped(end, 0, n).saturating_sub(clamped(start, 0, n)),
        _ => clamped(start, 0, n - 1).saturating_sub(clamped(end, -1, n - 1)),
    };
    let count = if n == 0 || span <= 0 { 0 } else { span.unsigned_abs().div_ceil(step.unsigned_abs()) };
    let first = if step > 0 { clamped(start, 0, n) } else { clamped(start, 0, n - 1) };
    Some((first, usize::try_from(count).ok()?))
}

pub(super) fn slice(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let (Ok(starts), Ok(ends), Ok(steps)) = (l.ints(1), l.ints(2), l.ints(3)) else { return moving_slice(l, x) };
    let rank = shape.len();
    if starts.len() != rank || ends.len() != rank || steps.len() != rank {
        return rejected(format!("bounds of {} axes for {shape:?}", starts.len()));
    }
    let (mut begin, mut end, mut stride, mut masks) = (vec![], vec![], vec![], vec![]);
    let mut whole = true;
    for i in 0..rank {
        let Some((first, count)) = bounds(starts[i], ends[i], steps[i], shape[i]) else {
            return rejected("a step of 0");
        };
        if count == 0 {
            return unmapped("MIL has no tensors without elements");
        }
        let step = if count == 1 { 1 } else { steps[i] };
        let stop = first + (count as i64 - 1) * step + step.signum();
        whole &= step == 1 && count == shape[i];
        // Before the first element there is no index that does not count from the end.
        masks.push(stop < 0);
        begin.push(first);
        end.push(stop.max(0));
        stride.push(step);
    }
    if whole {
        return Ok(vec![x]);
    }
    if stride.iter().all(|&s| s == 1) {
        let size: Vec<i64> = begin.iter().zip(&end).map(|(b, e)| e - b).collect();
        return Ok(vec![l.op(
            "slice_by_size",
            [("x", x.into()), ("begin", int32s(&begin).into()), ("size", int32s(&size).into())],
        )?]);
    }
    let bytes: Vec<u8> = masks.iter().map(|&m| u8::from(m)).collect();
    let mask = Constant::raw(DataType::Bool, &[rank], &bytes);
    Ok(vec![l.op(
        "slice_by_index",
        [
            ("x", x.into()),
            ("begin", int32s(&begin).into()),
            ("end", int32s(&end).into()),
            ("stride", int32s(&stride).into()),
            ("end_mask", mask.into()),
        ],
    )?])
}

/// A slice that begins at a computed place; how much of it is known from its type.
fn moving_slice(l: &mut Lower<'_>, x: ValueId) -> Results {
    let steps = l.ints(3)?;
    if steps.iter().any(|&s| s != 1) {
        return Err(Stop::Needs(1));
    }
    let begin = start_of(l, x, 1)?;
    let Some(shape) = l.result_shape(0) else { return lasting_slice(l, x, begin) };
    let size: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    Ok(vec![l.op("slice_by_size", [("x", x.into()), ("begin", begin.into()), ("size", int32s(&size).into())])?])
}

/// A slice between two computed places.
fn lasting_slice(l: &mut Lower<'_>, x: ValueId, begin: ValueId) -> Results {
    let end = start_of(l, x, 2)?;
    Ok(vec![l.op("slice_by_index", [("x", x.into()), ("begin", begin.into()), ("end", end.into())])?])
}

/// Operand `i`, bounds of a slice of x, without negative numbers and within the axes.
fn start_of(l: &mut Lower<'_>, x: ValueId, i: usize) -> Built {
    let bound = l.x(i)?;
    let extents: Vec<i64> = l.shape(x)?.iter().map(|&n| n as i64).collect();
    let extents = l.indices(&[extents.len()], &extents)?;
    let negative = l.bin("less", bound, Constant::int32(0))?;
    let from_end = l.bin("add", bound, extents)?;
    let bound = l.select(negative, from_end, bound)?;
    let above = l.bin("maximum", bound, Constant::int32(0))?;
    l.bin("minimum", above, extents)
}

pub(super) fn slice_update(l: &mut Lower<'_>) -> Results {
    let (x, update) = (l.x(0)?, l.x(4)?);
    let (shape, size) = (l.shape(x)?, l.shape(update)?);
    let steps = l.counts(3, shape.len(), 1)?;
    if size.len() != shape.len() {
        return rejected(format!("an update of {size:?} for {shape:?}"));
    }
    let begin = match l.ints(1) {
        Ok(starts) if starts.len() == shape.len() => {
            let first: Option<Vec<i64>> =
                (0..shape.len()).map(|i| Some(bounds(starts[i], shape[i] as i64, steps[i], shape[i])?.0)).collect();
            let Some(first) = first else { return rejected("a step of 0") };
            l.indices(&[shape.len()], &first)?
        }
        Ok(starts) => return rejected(format!("bounds of {} axes for {shape:?}", starts.len())),
        Err(_) => start_of(l, x, 1)?,
    };
    let reach: Vec<i64> = size.iter().zip(&steps).map(|(&n, s)| (n as i64 - 1) * s + 1).collect();
    let end = match l.ints(1) {
        Ok(_) => {
            let begin = l.ints(1)?;
            let ends = (0..shape.len()).map(|i| Some(bounds(begin[i], shape[i] as i64, 1, shape[i])?.0 + reach[i]));
            let Some(ends) = ends.collect::<Option<Vec<i64>>>() else { return rejected("a step of 0") };
            if ends.iter().zip(&shape).any(|(&e, &n)| e > n as i64) {
                return rejected(format!("an update of {size:?} for {shape:?}"));
            }
            l.indices(&[shape.len()], &ends)?
        }
        Err(_) => {
            let reach = l.indices(&[shape.len()], &reach)?;
            l.bin("add", begin, reach)?
        }
    };
    let stride = int32s(&steps);
    Ok(vec![l.op(
        "slice_update",
        [
            ("x", x.into()),
            ("update", update.into()),
            ("begin", begin.into()),
            ("end", end.into()),
            ("stride", stride.into()),
        ],
    )?])
}

fn tiled(l: &mut Lower<'_>, x: ValueId, times: &[usize]) -> Built {
    if times.iter().all(|&n| n == 1) {
        return Ok(x);
    }
    if times.contains(&0) {
        return unmapped("MIL has no tensors without elements");
    }
    let times: Vec<i32> = times.iter().map(|&n| n as i32).collect();
    Ok(l.b.tile(&l.label, x, &times)?)
}

/// x with axes of 1 repeated, and with new axes in front.
pub(super) fn broadcast(l: &mut Lower<'_>, x: ValueId, shape: &[usize]) -> Built {
    let from = l.shape(x)?;
    let Some(new) = shape.len().checked_sub(from.len()) else {
        return rejected(format!("{from:?} does not broadcast to {shape:?}"));
    };
    let mut wide = vec![1; new];
    wide.extend(&from);
    let times = wide.iter().zip(shape).map(|(&a, &b)| match (a, b) {
        (a, b) if a == b => Ok(1),
        (1, b) => Ok(b),
        _ => rejected(format!("{from:?} does not broadcast to {shape:?}")),
    });
    let times = times.collect::<Built<Vec<usize>>>()?;
    let x = l.reshape(x, &wide)?;
    tiled(l, x, &times)
}

/// Extents of operand `i`.
fn extents_of(l: &Lower<'_>, i: usize) -> Built<Vec<usize>> {
    let list = l.ints(i)?;
    list.iter().map(|&n| usize::try_from(n).or_else(|_| rejected(format!("an extent of {n}")))).collect()
}

pub(super) fn broadcast_to(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = extents_of(l, 1)?;
    Ok(vec![broadcast(l, x, &shape)?])
}

pub(super) fn broadcast_in_dims(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let mut shape = l.shape(x)?;
    let (sizes, axes) = (extents_of(l, 1)?, l.ints(2)?);
    if sizes.len() != axes.len() {
        return rejected(format!("{} extents for {} axes", sizes.len(), axes.len()));
    }
    for (size, axis) in sizes.iter().zip(axes) {
        let axis = normal(axis, shape.len())?;
        shape[axis] = *size;
    }
    Ok(vec![broadcast(l, x, &shape)?])
}

pub(super) fn tile(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.shape(x)?.len();
    let times = extents_of(l, 1)?;
    let Some(new) = rank.checked_sub(times.len()) else {
        return rejected(format!("{times:?} repetitions of rank {rank}"));
    };
    let times: Vec<usize> = std::iter::repeat_n(1, new).chain(times).collect();
    Ok(vec![tiled(l, x, &times)?])
}

pub(super) fn reverse(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let axes = l.axes(1, l.b.ty(x).rank().unwrap_or(0))?;
    if axes.is_empty() {
        return Ok(vec![x]);
    }
    let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
    Ok(vec![l.op("reverse", [("x", x.into()), ("axes", int32s(&axes).into())])?])
}

/// MIL pads with a value, and mirrors and repeats edges of the last two axes; other axes and modes
/// gather elements.
pub(super) fn pad(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let pads = l.counts(1, 2 * shape.len(), 0)?;
    if pads.iter().all(|&p| p == 0) {
        return Ok(vec![x]);
    }
    let mode = l.word("padding_mode")?;
    if mode == "constant" {
        let value = l.known(2)?.first().unwrap_or(0.0);
        return Ok(vec![padded(l, x, &pads, value)?]);
    }
    // MIL gathers numbers only.
    let is_bool = l.dtype(x) == DataType::Bool;
    let mut y = if is_bool { l.cast(x, DataType::Int32)? } else { x };
    for (axis, pair) in pads.chunks_exact(2).enumerate().filter(|(_, pair)| pair.iter().any(|&p| p > 0)) {
        let n = shape[axis] as i64;
        if mode == "reflect" && pair.iter().any(|&p| p >= n) || n == 0 {
            return rejected(format!("{pair:?} mirrored elements of an axis of {n}"));
        }
        l.table(&[(pair[0] + n + pair[1]) as usize])?;
        let places: Vec<i64> = (-pair[0]..n + pair[1])
            .map(|i| match mode {
                "replicate" => i.clamp(0, n - 1),
                _ if i < 0 => -i,
                _ if i >= n => 2 * (n - 1) - i,
                _ => i,
            })
            .collect();
        let places = l.indices(&[places.len()], &places)?;
        y = l.b.gather(&l.label, y, places, axis as i32)?;
    }
    Ok(vec![if is_bool { l.cast(y, DataType::Bool)? } else { y }])
}

/// x with constants around it, as many as `pads` has before and after each axis.
pub(super) fn padded(l: &mut Lower<'_>, x: ValueId, pads: &[i64], value: f64) -> Built {
    if !l.is_float(x) {
        return bordered(l, x, pads, value);
    }
    let value = l.num(x, value as f32);
    let mode = Constant::string("constant");
    l.op("pad", [("x", x.into()), ("pad", int32s(pads).into()), ("mode", mode.into()), ("constant_val", value.into())])
}

/// x between constants: MIL's `pad` takes floating-point numbers only.
fn bordered(l: &mut Lower<'_>, mut x: ValueId, pads: &[i64], value: f64) -> Built {
    let dtype = l.dtype(x);
    for (axis, pair) in pads.chunks_exact(2).enumerate() {
        let mut parts = Vec::new();
        for (i, &width) in pair.iter().enumerate() {
            if i == 1 {
                parts.push(x);
            }
            if width > 0 {
                let mut shape = l.shape(x)?;
                shape[axis] = width as usize;
                let count = l.table(&shape)?;
                parts.push(l.tensor(dtype, &shape, &vec![value; count])?);
            }
        }
        x = l.concat(&parts, axis)?;
    }
    Ok(x)
}

/// A range whose bounds are computed has as many elements as they give.
pub(super) fn range(l: &mut Lower<'_>) -> Results {
    let (start, end, step) = (l.x(0)?, l.x(1)?, l.x(2)?);
    Ok(vec![l.op("range_1d", [("start", start.into()), ("end", end.into()), ("step", step.into())])?])
}

/// The extents of a tensor whose extents are computed.
pub(super) fn get_shape(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    Ok(vec![l.un("shape", x)?])
}
