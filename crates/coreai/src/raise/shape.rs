//! Ops that move elements, and tensors that are made from extents.

use super::elementwise::Results;
use super::emit::known;
use super::state::{Built, Raise, rejected, unmapped};
use crate::bytecode::ValueId;
use crate::dialect::ElementType::{Bool, Float32, Int32, UInt32};

pub(super) fn reshape(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let shape = r.result(0)?.shape;
    if r.is_value("shape") && shape.iter().filter(|n| n.is_none()).count() > 1 {
        let target = r.x("shape")?;
        let (target, element) = (r.cast(target, Int32)?, r.element(x)?);
        return Ok(vec![r.op("primitive.reshape_v2", &[x, target], shape, element)]);
    }
    Ok(vec![r.reshape(x, &shape)?])
}

/// Any op whose result has the elements of x in order.
pub(super) fn reshaped(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let shape = r.result(0)?.shape;
    Ok(vec![r.reshape(x, &shape)?])
}

pub(super) fn squeeze(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let shape = r.extents(x)?;
    let axes = match r.has("axes") {
        true => r.axes("axes", shape.len())?,
        false => (0..shape.len()).filter(|&i| shape[i] == Some(1)).collect(),
    };
    Ok(vec![r.shrink(x, &axes)?])
}

pub(super) fn expand_dims(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let rank = r.rank(x)? + r.ints("axes")?.len();
    let axes = r.axes("axes", rank)?;
    Ok(vec![r.expand(x, &axes)?])
}

pub(super) fn transpose(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let order = r.axes("perm", r.rank(x)?)?;
    Ok(vec![r.transpose(x, &order)?])
}

/// The values of a concat or stack; scalars are vectors of one element.
pub(super) fn concat(r: &mut Raise<'_>) -> Results {
    let mut values = r.list("values")?;
    for value in &mut values {
        if r.rank(*value)? == 0 {
            *value = r.expand(*value, &[0])?;
        }
    }
    let Some(&first) = values.first() else { return rejected("nothing to join") };
    let axis = r.axis("axis", r.rank(first)?)?;
    if !r.flag("interleave")? {
        return Ok(vec![r.concat(&values, axis)?]);
    }
    for value in &mut values {
        *value = r.expand(*value, &[axis + 1])?;
    }
    let all = r.concat(&values, axis + 1)?;
    let shape = r.result(0)?.shape;
    Ok(vec![r.reshape(all, &shape)?])
}

pub(super) fn stack(r: &mut Raise<'_>) -> Results {
    let mut values = r.list("values")?;
    let Some(&first) = values.first() else { return rejected("nothing to join") };
    let axis = r.axis("axis", r.rank(first)? + 1)?;
    for value in &mut values {
        *value = r.expand(*value, &[axis])?;
    }
    Ok(vec![r.concat(&values, axis)?])
}

pub(super) fn split(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let shape = r.extents(x)?;
    let axis = r.axis("axis", shape.len())?;
    let mut sizes = Vec::new();
    for i in 0..r.op.outputs.len() {
        match r.result(i)?.shape.get(axis) {
            Some(Some(n)) => sizes.push(*n),
            _ => return unmapped("it needs the extents of its results"),
        }
    }
    if let [_] = sizes[..] {
        return Ok(vec![x]);
    }
    let element = r.element(x)?;
    let list: Vec<i64> = sizes.iter().map(|&n| n as i64).collect();
    let operands = [x, r.vector(UInt32, &list)?, r.scalar(Int32, axis as f64)?];
    let shapes = sizes.iter().map(|&n| {
        let mut part = shape.clone();
        part[axis] = Some(n);
        part
    });
    let shapes = shapes.collect::<Vec<_>>();
    Ok(r.several("primitive.split_v1", &operands, shapes.into_iter().map(|shape| (shape, element))))
}

/// A bound of a slice that is known, counted from the first element: -1 is before it.
fn bound(value: i64, extent: Option<u64>, forward: bool) -> Built<i64> {
    match extent {
        Some(n) => {
            let n = n as i64;
            let at = if value < 0 { value.saturating_add(n) } else { value };
            Ok(if forward { at.clamp(0, n) } else { at.clamp(-1, n - 1) })
        }
        None if forward => Ok(value),
        None => unmapped("it goes backwards along an axis whose extent is known only when the model runs"),
    }
}

pub(super) fn slice_by_index(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let from = r.extents(x)?;
    let rank = from.len();
    let mask = |name: &str| -> Built<Vec<bool>> {
        let list = r.cx().ints_if(name)?.unwrap_or_else(|| vec![0; rank]);
        if list.len() == rank { Ok(list.iter().map(|&m| m != 0).collect()) } else { rejected("a mask of other axes") }
    };
    let (begins, ends, gone) = (mask("begin_mask")?, mask("end_mask")?, mask("squeeze_mask")?);
    let steps = if r.has("stride") { r.ints("stride")? } else { vec![1; rank] };
    if steps.len() != rank || steps.contains(&0) {
        return rejected(format!("strides {steps:?} of {rank} axes"));
    }
    let axes: Vec<usize> = (0..rank).filter(|&i| gone[i]).collect();
    let mut rest = r.result(0)?.shape.into_iter();
    let shape: Vec<_> = (0..rank).map(|i| if gone[i] { Some(1) } else { rest.next().flatten() }).collect();
    if r.is_value("begin") || r.is_value("end") {
        let y = moving(r, x, &steps, [&begins, &ends, &gone], shape)?;
        return Ok(vec![r.shrink(y, &axes)?]);
    }
    let (begin, end) = (r.ints("begin")?, r.ints("end")?);
    if begin.len() != rank || end.len() != rank {
        return rejected(format!("bounds of other axes than {rank}"));
    }
    let (mut starts, mut stops, mut strides) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..rank {
        let forward = steps[i] > 0 || gone[i];
        let last = i64::from(i32::MAX);
        let start = match (begins[i] && !gone[i], forward) {
            (true, true) => 0,
            (true, false) => from[i].map_or(last, |n| n as i64 - 1),
            (false, _) => bound(begin[i], from[i], forward)?,
        };
        let stop = match (gone[i], ends[i], forward) {
            (true, ..) if start == -1 => last,
            (true, ..) => start + 1,
            (_, true, true) => from[i].map_or(last, |n| n as i64),
            (_, true, false) => -1,
            _ => bound(end[i], from[i], forward)?,
        };
        starts.push(start);
        stops.push(stop);
        strides.push(if gone[i] { 1 } else { steps[i] });
    }
    let y = r.slice(x, &starts, &stops, &strides, shape)?;
    Ok(vec![r.shrink(y, &axes)?])
}

/// A slice between computed bounds. Core AI counts negative ones from the end and clamps them, too.
fn moving(
    r: &mut Raise<'_>,
    x: ValueId,
    steps: &[i64],
    [begins, ends, gone]: [&[bool]; 3],
    shape: super::state::Extents,
) -> Built {
    if steps.iter().any(|&s| s < 0) {
        return unmapped("it goes backwards between computed bounds");
    }
    let (begin, end) = (r.x("begin")?, r.x("end")?);
    let (begin, mut end) = (r.cast(begin, Int32)?, r.cast(end, Int32)?);
    let start = masked(r, begin, begins, 0)?;
    if gone.contains(&true) {
        // The end of one element; after the last one that is the end of the axis.
        let next = r.with("add", start, 1.0)?;
        let last = r.with("equal", next, 0.0)?;
        let far = r.num(next, f64::from(i32::MAX))?;
        let next = r.select(last, far, next)?;
        let which =
            r.numbers(Bool, &[gone.len() as u64], &gone.iter().map(|&g| f64::from(u8::from(g))).collect::<Vec<_>>())?;
        end = r.select(which, next, end)?;
    }
    let open: Vec<bool> = ends.iter().zip(gone).map(|(&e, &g)| e && !g).collect();
    let stop = masked(r, end, &open, i64::from(i32::MAX))?;
    let steps: Vec<i64> = steps.iter().zip(gone).map(|(&s, &g)| if g { 1 } else { s }).collect();
    let (steps, element) = (r.vector(Int32, &steps)?, r.element(x)?);
    Ok(r.op("primitive.slice_v1", &[x, start, stop, steps], shape, element))
}

/// A vector of bounds with `edge` where a mask says so.
fn masked(r: &mut Raise<'_>, bounds: ValueId, mask: &[bool], edge: i64) -> Built {
    if !mask.contains(&true) {
        return Ok(bounds);
    }
    let flags: Vec<f64> = mask.iter().map(|&m| f64::from(u8::from(m))).collect();
    let flags = r.numbers(Bool, &[mask.len() as u64], &flags)?;
    let edge = r.num(bounds, edge as f64)?;
    r.select(flags, edge, bounds)
}

pub(super) fn slice_by_size(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let (from, shape) = (r.extents(x)?, r.result(0)?.shape);
    let steps = vec![1; from.len()];
    if r.is_value("begin") || r.is_value("size") {
        let (begin, size, element) = (r.x("begin")?, r.x("size")?, r.element(x)?);
        let (begin, size) = (r.cast(begin, Int32)?, r.cast(size, Int32)?);
        let begin = from_start(r, x, begin)?;
        let sum = r.bin("add", begin, size)?;
        // A size of -1 goes to the end.
        let rest = r.with("equal", size, -1.0)?;
        let far = r.num(sum, f64::from(i32::MAX))?;
        let (end, steps) = (r.select(rest, far, sum)?, r.vector(Int32, &steps)?);
        return Ok(vec![r.op("primitive.slice_v1", &[x, begin, end, steps], shape, element)]);
    }
    let (begin, size) = (r.ints("begin")?, r.ints("size")?);
    if begin.len() != from.len() || size.len() != from.len() {
        return rejected(format!("bounds of other axes than {}", from.len()));
    }
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for i in 0..from.len() {
        let start = bound(begin[i], from[i], true)?;
        if start < 0 {
            return unmapped("it counts from the end of an axis whose extent is known only when the model runs");
        }
        starts.push(start);
        ends.push(match size[i] {
            -1 => from[i].map_or(i64::from(i32::MAX), |n| n as i64),
            n => start.saturating_add(n),
        });
    }
    Ok(vec![r.slice(x, &starts, &ends, &steps, shape)?])
}

/// Computed indices into the axes of x, without those that count from the end.
fn from_start(r: &mut Raise<'_>, x: ValueId, indices: ValueId) -> Built {
    let extents = r.shape_of(x)?;
    let zero = r.num(indices, 0.0)?;
    let (negative, moved) = (r.bin("greater", zero, indices)?, r.bin("add", indices, extents)?);
    r.select(negative, moved, indices)
}

pub(super) fn slice_update(r: &mut Raise<'_>) -> Results {
    let (x, update) = (r.x("x")?, r.x("update")?);
    let (shape, element) = (r.extents(x)?, r.element(x)?);
    let rank = shape.len();
    if ["squeeze_mask", "begin_mask", "end_mask"].into_iter().any(|m| r.is_value(m)) {
        return unmapped("its masks have to be known when the model is made");
    }
    let mask = |name: &str| -> Built<Vec<bool>> {
        Ok(r.cx().ints_if(name)?.unwrap_or_else(|| vec![0; rank]).iter().map(|&m| m != 0).collect())
    };
    let (begins, ends, gone) = (mask("begin_mask")?, mask("end_mask")?, mask("squeeze_mask")?);
    let steps = if r.has("stride") { r.ints("stride")? } else { vec![1; rank] };
    if steps.len() != rank || begins.len() != rank || ends.len() != rank || steps.iter().any(|&s| s < 1) {
        return unmapped(format!("Core AI updates slices with steps from 1 on, not {steps:?}"));
    }
    let axes: Vec<usize> = (0..rank).filter(|&i| gone.get(i) == Some(&true)).collect();
    let update = r.expand(update, &axes)?;
    let parts = r.shape(update)?;
    let begin = r.x("begin")?;
    let begin = r.cast(begin, Int32)?;
    let start = masked(r, begin, &begins, 0)?;
    let start = from_start(r, x, start)?;
    let reach: Vec<i64> = parts.iter().zip(&steps).map(|(&n, &s)| (n as i64 - 1).saturating_mul(s) + 1).collect();
    let reach = r.vector(Int32, &reach)?;
    let end = r.bin("add", start, reach)?;
    let steps = r.vector(Int32, &steps)?;
    Ok(vec![r.op("primitive.slice_update_v1", &[x, start, end, steps, update], shape, element)])
}

/// An axis of 1 before each one is repeated, and joined with it.
pub(super) fn tile(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let (from, to) = (r.shape(x)?, r.result(0)?.shape);
    let Some(to) = to.iter().copied().collect::<Option<Vec<u64>>>() else {
        return unmapped("it needs the extents of its result");
    };
    let alone: Vec<u64> = from.iter().flat_map(|&n| [1, n]).collect();
    let wide: Vec<u64> = from.iter().zip(&to).flat_map(|(&n, &m)| [m / n.max(1), n]).collect();
    let y = r.reshaped(x, &alone)?;
    let y = r.broadcast_to(y, &wide)?;
    Ok(vec![r.reshaped(y, &to)?])
}

pub(super) fn reverse(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let (shape, element) = (r.extents(x)?, r.element(x)?);
    let axes: Vec<i64> = r.axes("axes", shape.len())?.iter().map(|&a| a as i64).collect();
    if axes.is_empty() {
        return Ok(vec![x]);
    }
    let axes = r.vector(Int32, &axes)?;
    Ok(vec![r.op("primitive.reverse_v1", &[x, axes], shape, element)])
}

/// Index s of the first `length` elements becomes `length - 1 - s`.
pub(super) fn reverse_sequence(r: &mut Raise<'_>) -> Results {
    let (x, lengths) = (r.x("x")?, r.x("lengths")?);
    let shape = r.shape(x)?;
    let rank = shape.len();
    let (seq, batch) = (r.axis("seq_axis", rank)?, r.axis("batch_axis", rank)?);
    let lengths = r.cast(lengths, Int32)?;
    let lengths = r.along(lengths, batch, rank)?;
    r.table(&shape[seq..=seq])?;
    let steps: Vec<i64> = (0..shape[seq] as i64).collect();
    let steps = r.vector(Int32, &steps)?;
    let steps = r.along(steps, seq, rank)?;
    let inside = r.bin("greater", lengths, steps)?;
    let last = r.with("sub", lengths, 1.0)?;
    let moved = r.bin("sub", last, steps)?;
    let places = r.select(inside, moved, steps)?;
    let places = r.broadcast_to(places, &shape)?;
    Ok(vec![r.gather_along(x, places, seq)?])
}

pub(super) fn pad(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let form = match r.text("mode")?.as_str() {
        "constant" => 1,
        "reflect" => 2,
        _ => 3,
    };
    let value = if form == 1 { r.number("constant_val")? } else { 0.0 };
    let rank = r.rank(x)?;
    if r.is_value("pad") {
        let (pads, shape, element) = (r.x("pad")?, r.result(0)?.shape, r.element(x)?);
        let (pads, value) = (r.cast(pads, UInt32)?, r.num(x, value)?);
        let form = r.choice(super::emit::PADDING, form);
        let form = Some(("padding_mode", form));
        return Ok(vec![r.formed("primitive.pad_v1", &[x, pads, value], form, shape, element)]);
    }
    let given = r.ints("pad")?;
    let Some(before) = (2 * rank).checked_sub(given.len()) else { return rejected("margins of too many axes") };
    if given.iter().any(|&p| p < 0) {
        return rejected(format!("margins {given:?}"));
    }
    let pads: Vec<u64> = std::iter::repeat_n(0, before).chain(given.iter().map(|&p| p as u64)).collect();
    Ok(vec![r.margins(x, &pads, value, form)?])
}

/// An image with its axes split into these extents, in another order, then with the extents of the
/// result.
fn rearranged(r: &mut Raise<'_>, x: ValueId, split: &[u64], order: &[usize], shape: &[u64]) -> Built {
    let y = r.reshaped(x, split)?;
    let y = r.transpose(y, order)?;
    r.reshaped(y, shape)
}

/// x of rank 4, with its extents and a block size that may divide them.
fn image(r: &mut Raise<'_>, size: &str) -> Built<(ValueId, [u64; 4], u64)> {
    let x = r.x("x")?;
    let block = r.int(size)?;
    match (<[u64; 4]>::try_from(r.shape(x)?), u64::try_from(block)) {
        (Ok(shape), Ok(block @ 1..=0xffff)) => Ok((x, shape, block)),
        _ => rejected(format!("a block of {block} for a tensor that is no batch of images")),
    }
}

pub(super) fn depth_to_space(r: &mut Raise<'_>) -> Results {
    let (x, [n, c, h, w], b) = image(r, "block_size")?;
    let c = c / (b * b);
    Ok(vec![rearranged(r, x, &[n, b, b, c, h, w], &[0, 3, 4, 1, 5, 2], &[n, c, h * b, w * b])?])
}

pub(super) fn space_to_depth(r: &mut Raise<'_>) -> Results {
    let (x, [n, c, h, w], b) = image(r, "block_size")?;
    let (h, w) = (h / b, w / b);
    Ok(vec![rearranged(r, x, &[n, c, h, b, w, b], &[0, 3, 5, 1, 2, 4], &[n, c * b * b, h, w])?])
}

pub(super) fn pixel_shuffle(r: &mut Raise<'_>) -> Results {
    let (x, [n, c, h, w], b) = image(r, "upscale_factor")?;
    let c = c / (b * b);
    Ok(vec![rearranged(r, x, &[n, c, b, b, h, w], &[0, 1, 4, 2, 5, 3], &[n, c, h * b, w * b])?])
}

pub(super) fn pixel_unshuffle(r: &mut Raise<'_>) -> Results {
    let (x, [n, c, h, w], b) = image(r, "downscale_factor")?;
    let (h, w) = (h / b, w / b);
    Ok(vec![rearranged(r, x, &[n, c, h, b, w, b], &[0, 1, 3, 5, 2, 4], &[n, c * b * b, h, w])?])
}

/// x, its extents, the extents of a block, and margins.
type Blocks = (ValueId, [u64; 4], [u64; 2], [u64; 4]);

/// The block and the margins of an op between batch and space.
fn blocks(r: &mut Raise<'_>, margins: &str) -> Built<Blocks> {
    let x = r.x("x")?;
    let (block, margins) = (r.counts("block_shape", 2, 1, 1)?, r.counts(margins, 4, 0, 0)?);
    let unsigned = |v: &[i64]| v.iter().map(|&v| v as u64).collect::<Vec<_>>();
    let (block, margins) = (unsigned(&block), unsigned(&margins));
    match (<[u64; 4]>::try_from(r.shape(x)?), <[u64; 2]>::try_from(block), <[u64; 4]>::try_from(margins)) {
        (Ok(shape), Ok(block), Ok(margins)) => Ok((x, shape, block, margins)),
        _ => rejected("a tensor that is no batch of images"),
    }
}

pub(super) fn space_to_batch(r: &mut Raise<'_>) -> Results {
    let (x, [n, c, h, w], [a, b], [top, bottom, left, right]) = blocks(r, "paddings")?;
    let x = r.padded(x, &[0, 0, 0, 0, top, bottom, left, right], 0.0)?;
    let (h, w) = ((h + top + bottom) / a, (w + left + right) / b);
    let shape = [n.saturating_mul(a).saturating_mul(b), c, h, w];
    Ok(vec![rearranged(r, x, &[n, c, h, a, w, b], &[3, 5, 0, 1, 2, 4], &shape)?])
}

pub(super) fn batch_to_space(r: &mut Raise<'_>) -> Results {
    let (x, [n, c, h, w], [a, b], [top, bottom, left, right]) = blocks(r, "crops")?;
    let n = n / a.saturating_mul(b);
    let (tall, wide) = (h.saturating_mul(a), w.saturating_mul(b));
    let y = rearranged(r, x, &[a, b, n, c, h, w], &[2, 3, 4, 0, 5, 1], &[n, c, tall, wide])?;
    let y = r.part(y, 2, top, tall.saturating_sub(top + bottom))?;
    Ok(vec![r.part(y, 3, left, wide.saturating_sub(left + right))?])
}

pub(super) fn crop(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let shape = r.shape(x)?;
    let mut y = x;
    for (i, name) in ["crop_height", "crop_width"].into_iter().enumerate() {
        let margins = r.counts(name, 2, 0, 0)?;
        let Some(axis) = (shape.len() + i).checked_sub(2) else { return rejected("x is no image") };
        let rest = shape[axis].saturating_sub((margins[0] + margins[1]) as u64);
        y = r.part(y, axis, margins[0] as u64, rest)?;
    }
    Ok(vec![y])
}

pub(super) fn sliding_windows(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let axis = r.axis("axis", r.rank(x)?)?;
    let shape = r.result(0)?.shape;
    let (Some(Some(count)), Some(Some(size))) = (shape.get(axis), shape.get(axis + 1)) else {
        return unmapped("it needs the extents of its result");
    };
    let stride = r.int("stride")?.max(1);
    r.table(&[*count, *size])?;
    let places = (0..*count as i64).flat_map(|w| (0..*size as i64).map(move |i| (w.saturating_mul(stride) + i) as f64));
    let places: Vec<f64> = places.collect();
    let places = r.numbers(Int32, &[*count, *size], &places)?;
    Ok(vec![r.gather(x, places, axis)?])
}

pub(super) fn band_part(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let shape = r.shape(x)?;
    let (lower, upper) = (r.int("lower")?, r.int("upper")?);
    let [.., rows, cols] = shape[..] else { return rejected("x is no matrix") };
    r.table(&[rows, cols])?;
    let inside = |m: i64, n: i64| (lower < 0 || m - n <= lower) && (upper < 0 || n - m <= upper);
    let mask: Vec<f64> =
        (0..rows as i64).flat_map(|m| (0..cols as i64).map(move |n| f64::from(u8::from(inside(m, n))))).collect();
    let (mask, zero) = (r.numbers(Bool, &[rows, cols], &mask)?, r.num(x, 0.0)?);
    Ok(vec![r.select(mask, x, zero)?])
}

/// An argument, or a number of the result's type.
fn number_or(r: &mut Raise<'_>, name: &str, default: f64) -> Built {
    let element = r.result(0)?.element;
    if !r.has(name) {
        return r.scalar(element, default);
    }
    let value = r.x(name)?;
    let rank = r.rank(value)?;
    r.shrink(value, &(0..rank).collect::<Vec<_>>())
}

pub(super) fn fill(r: &mut Raise<'_>) -> Results {
    let value = number_or(r, "value", 0.0)?;
    let tensor = r.result(0)?;
    if let Some(shape) = tensor.shape.iter().copied().collect::<Option<Vec<u64>>>() {
        return Ok(vec![r.broadcast_to(value, &shape)?]);
    }
    let shape = r.x("shape")?;
    let shape = r.cast(shape, UInt32)?;
    Ok(vec![r.op("primitive.broadcast_to_v1", &[value, shape], tensor.shape, tensor.element)])
}

pub(super) fn fill_like(r: &mut Raise<'_>) -> Results {
    let value = number_or(r, "value", 0.0)?;
    let like = r.x("ref_tensor")?;
    let (shape, element) = (r.extents(like)?, r.element(value)?);
    if let Some(shape) = shape.iter().copied().collect::<Option<Vec<u64>>>() {
        return Ok(vec![r.broadcast_to(value, &shape)?]);
    }
    let extents = r.op("primitive.get_shape_v2", &[like], known(&[shape.len() as u64]), UInt32);
    Ok(vec![r.op("primitive.broadcast_to_v1", &[value, extents], shape, element)])
}

pub(super) fn one_hot(r: &mut Raise<'_>) -> Results {
    let indices = r.x("indices")?;
    let shape = r.result(0)?.shape;
    let axis = r.axis("axis", shape.len())?;
    let (on, off) = (number_or(r, "on_value", 1.0)?, number_or(r, "off_value", 0.0)?);
    let Some(depth) = shape[axis] else { return unmapped("it needs the extent of its new axis") };
    let indices = r.cast(indices, Int32)?;
    let indices = r.expand(indices, &[axis])?;
    r.table(&[depth])?;
    let places: Vec<i64> = (0..depth as i64).collect();
    let places = r.vector(Int32, &places)?;
    let places = r.along(places, axis, shape.len())?;
    let hit = r.bin("equal", indices, places)?;
    Ok(vec![r.select(hit, on, off)?])
}

/// Floating-point numbers are `start + i · step` of whole numbers: Core AI adds steps.
pub(super) fn range_1d(r: &mut Raise<'_>) -> Results {
    let shape = r.result(0)?.shape;
    let (start, end, step) = (number_of(r, "start")?, number_of(r, "end")?, number_of(r, "step")?);
    let element = r.element(start)?;
    let Some(Some(count)) = shape.first() else {
        return Ok(vec![r.op("primitive.range_v1", &[start, end, step], shape, element)]);
    };
    r.table(&[*count])?;
    let places: Vec<f64> = (0..*count).map(|i| i as f64).collect();
    let places = r.numbers(Int32, &[*count], &places)?;
    let places = if element == Int32 { places } else { r.cast(places, Float32)? };
    let (first, by) = if element == Int32 { (start, step) } else { (r.cast(start, Float32)?, r.cast(step, Float32)?) };
    let moved = r.bin("mul", places, by)?;
    let all = r.bin("add", moved, first)?;
    Ok(vec![r.cast(all, element)?])
}

/// An argument that is a scalar.
fn number_of(r: &mut Raise<'_>, name: &str) -> Built {
    let value = r.x(name)?;
    let rank = r.rank(value)?;
    r.shrink(value, &(0..rank).collect::<Vec<_>>())
}

pub(super) fn shape(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    Ok(vec![r.shape_of(x)?])
}

impl Raise<'_> {
    /// The extents of x as a vector of int32.
    pub(super) fn shape_of(&mut self, x: ValueId) -> Built {
        let shape = self.extents(x)?;
        if let Some(extents) = shape.iter().map(|n| n.map(|n| n as i64)).collect::<Option<Vec<i64>>>() {
            return self.vector(Int32, &extents);
        }
        let found = self.op("primitive.get_shape_v2", &[x], known(&[shape.len() as u64]), UInt32);
        self.cast(found, Int32)
    }

    /// An operation with several results.
    pub(super) fn several(
        &mut self,
        name: &str,
        operands: &[ValueId],
        results: impl Iterator<Item = (super::state::Extents, crate::dialect::ElementType)>,
    ) -> Vec<ValueId> {
        let tensors: Vec<_> = results.collect();
        let types: Vec<_> = tensors.iter().map(|(shape, element)| self.b.tensor(shape, *element)).collect();
        let values = self.b.ops(&mut self.graph, name, operands, &[], &types, Vec::new());
        for (&value, (shape, element)) in values.iter().zip(tensors) {
            self.tensors.insert(value, crate::dialect::Tensor { shape, element, encoding: None });
        }
        values
    }
}
