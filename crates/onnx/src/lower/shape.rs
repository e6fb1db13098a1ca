//! Operators that rearrange elements.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType, ValueId};

use super::state::{Built, Lower, Stop, one, unmapped};
use crate::element::ElementType;
use crate::graph::Attribute;
use crate::tensor::Tensor;

type Results = Built<Vec<Option<ValueId>>>;

/// The shape that `Reshape` asks for: 0 keeps an extent unless `zeros`, -1 is what remains. `None`
/// if it does not fit.
pub(super) fn reshaped(shape: &[usize], wanted: &[i64], zeros: bool) -> Option<Vec<usize>> {
    let total: usize = shape.iter().product();
    let mut found: Vec<usize> = Vec::with_capacity(wanted.len());
    for (i, &n) in wanted.iter().enumerate() {
        found.push(match n {
            0 if !zeros => *shape.get(i)?,
            -1 => 1,
            n => usize::try_from(n).ok()?,
        });
    }
    if let Some(open) = wanted.iter().position(|&n| n == -1) {
        let rest = found.iter().try_fold(1usize, |n, &e| n.checked_mul(e))?;
        found[open] = total.checked_div(rest).unwrap_or(0);
    }
    (crate::tensor::elements(&found) == Some(total)).then_some(found)
}

pub(super) fn reshape(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let wanted = match l.list("shape") {
        Some(shape) => shape,
        None => l.ints(1)?,
    };
    let shape = l.shape(x)?;
    match reshaped(&shape, &wanted, l.int("allowzero", 0) != 0) {
        Some(found) if found == shape => one(l.un("identity", x)?),
        Some(found) => one(l.reshape(x, &found)?),
        None => Err(Stop::Rejected(format!("{shape:?} does not become {wanted:?}"))),
    }
}

pub(super) fn flatten(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axis = l.int("axis", 1);
    let at = if axis < 0 { axis + shape.len() as i64 } else { axis };
    let Some((a, b)) = usize::try_from(at).ok().and_then(|at| shape.split_at_checked(at)) else {
        return Err(Stop::Rejected(format!("axis {axis} of rank {}", shape.len())));
    };
    one(l.reshape(x, &[a.iter().product(), b.iter().product()])?)
}

fn axes(l: &Lower<'_>) -> Built<Option<Vec<i64>>> {
    match l.list("axes") {
        Some(axes) => Ok(Some(axes)),
        None => l.ints_if(1),
    }
}

pub(super) fn squeeze(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    match axes(l)? {
        Some(axes) => {
            let axes: Vec<i32> = axes.iter().map(|&a| a as i32).collect();
            one(if axes.is_empty() { l.un("identity", x)? } else { l.b.squeeze(&l.label, x, &axes)? })
        }
        None if !l.shape(x)?.contains(&1) => one(l.un("identity", x)?),
        None => one(l.un("squeeze", x)?),
    }
}

pub(super) fn unsqueeze(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let axes: Vec<i32> = axes(l)?.unwrap_or_default().iter().map(|&a| a as i32).collect();
    if axes.is_empty() {
        return one(l.un("identity", x)?);
    }
    one(l.b.expand_dims(&l.label, x, &axes)?)
}

pub(super) fn transpose(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.shape(x)?.len() as i64;
    let perm = l.list("perm").unwrap_or_else(|| (0..rank).rev().collect());
    let perm: Vec<i32> = perm.iter().map(|&a| a as i32).collect();
    one(l.b.transpose(&l.label, x, &perm)?)
}

pub(super) fn concat(l: &mut Lower<'_>) -> Results {
    if l.count() == 0 {
        return Err(Stop::Rejected("nothing to concatenate".into()));
    }
    let axis = l.axis(1, l.extents(0)?.len())?;
    let mut values = Vec::with_capacity(l.count());
    for i in 0..l.count() {
        // Tensors without elements add nothing.
        if l.extents(i)?.get(axis) != Some(&0) {
            values.push(l.x(i)?);
        }
    }
    one(match values[..] {
        [] => return unmapped("a result without elements"),
        [single] => l.un("identity", single)?,
        _ => l.concat(&values, axis)?,
    })
}

pub(super) fn split(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axis = l.axis(0, shape.len())?;
    let given = match l.list("split") {
        Some(sizes) => Some(sizes),
        None => l.ints_if(1)?,
    };
    let count = l.number("num_outputs", l.node.outputs.len() as i64, 1)?;
    l.spend(count)?;
    let sizes: Vec<i32> = match given {
        Some(sizes) => sizes.iter().map(|&n| n as i32).collect(),
        None => {
            let part = shape[axis].div_ceil(count);
            (0..count).map(|i| shape[axis].saturating_sub(i * part).min(part) as i32).collect()
        }
    };
    if sizes.iter().any(|&n| n < 0) {
        return Err(Stop::Rejected(format!("parts of {sizes:?}")));
    }
    // MIL has no parts without elements; they are constants.
    let full: Vec<i32> = sizes.iter().copied().filter(|&n| n > 0).collect();
    let mut parts = match full[..] {
        [size] if size as usize == shape[axis] => vec![l.un("identity", x)?],
        _ => l.b.split(&l.label, x, &full, axis as i32)?,
    }
    .into_iter();
    let mut results = Vec::with_capacity(sizes.len());
    for (i, &size) in sizes.iter().enumerate() {
        if size > 0 {
            results.push(parts.next());
            continue;
        }
        let mut none = shape.clone();
        none[axis] = 0;
        l.empty.push((i, Tensor::known(ElementType::of_mil(l.dtype(x)), none, Vec::new())));
        results.push(None);
    }
    Ok(results)
}

/// The positions that a slice along one axis selects: first, step, count. The step is not 0.
pub(super) fn slice_range(start: i64, end: i64, step: i64, extent: i64) -> (i64, i64, i64) {
    let step = step.clamp(-i64::from(i32::MAX), i64::from(i32::MAX));
    let wrap = |v: i64| if v < 0 { v.saturating_add(extent) } else { v };
    let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
    if extent == 0 {
        return (0, step, 0);
    }
    let (from, to) = (wrap(start).clamp(low.max(0), high), wrap(end).clamp(low, high));
    let span = if step > 0 { to - from } else { from - to };
    (from, step, (span.max(0) + step.abs() - 1) / step.abs())
}

pub(super) fn slice(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let rank = shape.len();
    let given = |i: usize, name: &str| -> Built<Option<Vec<i64>>> {
        match l.list(name) {
            Some(v) => Ok(Some(v)),
            None => l.ints_if(i),
        }
    };
    let (Some(starts), Some(ends)) = (given(1, "starts")?, given(2, "ends")?) else {
        return unmapped("a slice without bounds");
    };
    let axes = given(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = given(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    let all = [starts.len(), ends.len(), axes.len(), steps.len()];
    if all.iter().any(|&n| n != starts.len()) || steps.contains(&0) {
        return Err(Stop::Rejected(format!("bounds {starts:?} to {ends:?} along {axes:?} in steps {steps:?}")));
    }
    let (mut begin, mut end, mut stride) = (vec![0i32; rank], vec![0i32; rank], vec![1i32; rank]);
    let (mut begin_mask, mut end_mask) = (vec![true; rank], vec![true; rank]);
    for (i, &axis) in axes.iter().enumerate() {
        let axis = l.normal(axis, rank)?;
        let (from, step, count) = slice_range(starts[i], ends[i], steps[i], shape[axis] as i64);
        (begin[axis], stride[axis]) = (from as i32, step as i32);
        let to = from + step * count;
        end[axis] = to as i32;
        begin_mask[axis] = false;
        // A backward slice that includes element 0 has no end that a number can state.
        end_mask[axis] = to < 0;
    }
    let masks = |m: &[bool]| {
        let bytes: Vec<u8> = m.iter().map(|&b| u8::from(b)).collect();
        Constant::raw(DataType::Bool, &[bytes.len()], &bytes)
    };
    one(l.op(
        "slice_by_index",
        [
            ("x", x.into()),
            ("begin", Constant::int32s(&begin).into()),
            ("end", Constant::int32s(&end).into()),
            ("stride", Constant::int32s(&stride).into()),
            ("begin_mask", masks(&begin_mask).into()),
            ("end_mask", masks(&end_mask).into()),
        ],
    )?)
}

/// Repeats axes of extent 1 after adding leading axes, to reach `shape`.
pub(super) fn broadcast_to(l: &mut Lower<'_>, x: ValueId, shape: &[usize]) -> Built {
    let mut from = l.shape(x)?;
    while from.len() < shape.len() {
        from.insert(0, 1);
    }
    if from.len() != shape.len() || from.iter().zip(shape).any(|(&a, &b)| a != b && a != 1) {
        return Err(Stop::Rejected(format!("{from:?} does not expand to {shape:?}")));
    }
    let x = l.reshape(x, &from)?;
    let reps: Vec<i32> = from.iter().zip(shape).map(|(&a, &b)| if a == b { 1 } else { b as i32 }).collect();
    if reps.iter().all(|&r| r == 1) { Ok(x) } else { Ok(l.b.tile(&l.label, x, &reps)?) }
}

pub(super) fn expand(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let mut from = l.shape(x)?;
    let mut wanted: Vec<usize> = l.ints(1)?.iter().map(|&n| n.max(0) as usize).collect();
    if crate::tensor::elements(&wanted).is_none() {
        return Err(Stop::Rejected(format!("the shape {wanted:?}")));
    }
    // Broadcasting in both directions: the larger rank wins, and an extent of 1 takes the other's.
    while wanted.len() < from.len() {
        wanted.insert(0, 1);
    }
    while from.len() < wanted.len() {
        from.insert(0, 1);
    }
    if from.iter().zip(&wanted).any(|(&a, &b)| a != b && a != 1 && b != 1) {
        return Err(Stop::Rejected(format!("{from:?} does not expand to {wanted:?}")));
    }
    let shape: Vec<usize> = from.iter().zip(&wanted).map(|(&a, &b)| if a == 1 { b } else { a }).collect();
    let y = broadcast_to(l, x, &shape)?;
    one(if y == x { l.un("identity", x)? } else { y })
}

pub(super) fn tile(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let reps = l.ints(1)?;
    let shape = l.shape(x)?;
    let fits = reps.len() == shape.len()
        && reps.iter().zip(&shape).all(|(&r, &e)| (e as i64).checked_mul(r).is_some_and(|n| n <= i64::from(i32::MAX)));
    if !fits {
        return Err(Stop::Rejected(format!("{shape:?} is not repeated {reps:?} times")));
    }
    let reps: Vec<i32> = reps.iter().map(|&n| n as i32).collect();
    one(if reps.is_empty() { l.un("identity", x)? } else { l.b.tile(&l.label, x, &reps)? })
}

/// MIL's `pad` where it can express the operation, else a gather of positions along each axis.
pub(super) fn pad(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let dtype = l.dtype(x);
    // MIL pads only floats.
    let x = if dtype.is_float() { x } else { l.cast(x, DataType::Fp32)? };
    let y = padded(l, x)?;
    one(l.cast(y, dtype)?)
}

fn padded(l: &mut Lower<'_>, x: ValueId) -> Built {
    let shape = l.shape(x)?;
    let rank = shape.len();
    let pads = match l.list("pads") {
        Some(pads) => pads,
        None => l.ints(1)?,
    };
    let axes: Vec<usize> = match l.ints_if(3)? {
        Some(axes) => axes.iter().map(|&a| l.normal(a, rank)).collect::<Built<_>>()?,
        None => (0..rank).collect(),
    };
    let mut amounts = vec![(0i64, 0i64); rank];
    if pads.len() != 2 * axes.len() || pads.iter().any(|p| p.unsigned_abs() > 1 << 30) {
        return Err(Stop::Rejected(format!("margins {pads:?} for {shape:?}")));
    }
    for (i, &axis) in axes.iter().enumerate() {
        amounts[axis] = (pads[i], pads[i + axes.len()]);
    }
    let mode = l.text("mode", "constant");
    let value = if l.has(2) { l.floats(2)?.first().copied().unwrap_or(0.0) as f32 } else { l.float("value", 0.0) };
    // Negative amounts crop.
    let mut y = x;
    for axis in 0..rank {
        let cut = |n: i64| (-n).max(0) as usize;
        let (before, after) = (cut(amounts[axis].0), cut(amounts[axis].1));
        let Some(size) = shape[axis].checked_sub(before + after) else {
            return Err(Stop::Rejected(format!("{} elements without {before} and {after}", shape[axis])));
        };
        y = l.slice(y, axis, before, size)?;
        amounts[axis] = (amounts[axis].0.max(0), amounts[axis].1.max(0));
    }
    if mode == "constant" {
        let flat: Vec<i32> = amounts.iter().flat_map(|&(a, b)| [a as i32, b as i32]).collect();
        let value = l.num(y, value);
        return l.op(
            "pad",
            [
                ("x", y.into()),
                ("pad", Constant::int32s(&flat).into()),
                ("mode", Constant::string("constant").into()),
                ("constant_val", value.into()),
            ],
        );
    }
    let first = (0..rank).find(|&a| amounts[a] != (0, 0)).unwrap_or(rank);
    let extents = l.shape(y)?;
    let short = (first..rank).all(|a| amounts[a].0 < extents[a] as i64 && amounts[a].1 < extents[a] as i64);
    if mode != "wrap" && rank - first <= 2 && first < rank && (mode == "edge" || short) {
        let flat: Vec<i32> = amounts[first..].iter().flat_map(|&(a, b)| [a as i32, b as i32]).collect();
        let mode = if mode == "edge" { "replicate" } else { "reflect" };
        return l.op(
            "pad",
            [("x", y.into()), ("pad", Constant::int32s(&flat).into()), ("mode", Constant::string(mode).into())],
        );
    }
    for axis in 0..rank {
        let (before, after) = amounts[axis];
        let n = extents[axis] as i64;
        if (before, after) == (0, 0) {
            continue;
        }
        if n == 0 {
            return Err(Stop::Rejected("margins of nothing".into()));
        }
        l.table(&[(before + n + after) as usize])?;
        let at = |i: i64| match mode {
            "wrap" => i.rem_euclid(n),
            "edge" => i.clamp(0, n - 1),
            _ if n == 1 => 0,
            _ => {
                let p = i.rem_euclid(2 * (n - 1));
                p.min(2 * (n - 1) - p)
            }
        };
        let places: Vec<i64> = (-before..n + after).map(at).collect();
        let indices = l.indices(&[places.len()], &places)?;
        y = l.b.gather(&l.label, y, indices, axis as i32)?;
    }
    Ok(y)
}

pub(super) fn center_crop_pad(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let dtype = l.dtype(x);
    let x = if dtype.is_float() { x } else { l.cast(x, DataType::Fp32)? };
    let shape = l.shape(x)?;
    let rank = shape.len();
    let axes: Vec<usize> = match l.list("axes") {
        Some(axes) => axes.iter().map(|&a| l.normal(a, rank)).collect::<Built<_>>()?,
        None => (0..rank).collect(),
    };
    let wanted = l.ints(1)?;
    let mut y = x;
    let mut pads = vec![0i32; 2 * rank];
    for (&axis, &size) in axes.iter().zip(&wanted) {
        let (now, size) = (shape[axis], size.clamp(0, i64::from(i32::MAX)) as usize);
        if size <= now {
            y = l.slice(y, axis, (now - size) / 2, size)?;
        } else {
            let before = (size - now) / 2;
            (pads[2 * axis], pads[2 * axis + 1]) = (before as i32, (size - now - before) as i32);
        }
    }
    let zero = l.num(y, 0.0);
    let y = l.op(
        "pad",
        [
            ("x", y.into()),
            ("pad", Constant::int32s(&pads).into()),
            ("mode", Constant::string("constant").into()),
            ("constant_val", zero.into()),
        ],
    )?;
    one(l.cast(y, dtype)?)
}

pub(super) fn shape_of(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.shape(x)?.len() as i64;
    let all = l.un("shape", x)?;
    let (start, _, count) = slice_range(l.int("start", 0), l.int("end", i64::MAX), 1, rank);
    one(l.slice(all, 0, start as usize, count as usize)?)
}

pub(super) fn size(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let all = l.un("shape", x)?;
    one(l.reduce("reduce_prod", all, &[0], false)?)
}

pub(super) fn constant_of_shape(l: &mut Lower<'_>) -> Results {
    let wanted = l.ints(0)?;
    let shape: Option<Vec<usize>> = wanted.iter().map(|&n| usize::try_from(n).ok()).collect();
    let Some(shape) = shape.filter(|s| crate::tensor::elements(s).is_some()) else {
        return Err(Stop::Rejected(format!("the shape {wanted:?}")));
    };
    let (element, value) = match l.node.attribute("value") {
        Some(Attribute::Tensor(t)) => (t.element(), t.values().first().copied().unwrap_or(0.0)),
        _ => (ElementType::Float, 0.0),
    };
    l.elements = Some(element);
    let value = l.constant(l.mil(element)?, &[], &[value])?;
    if shape.is_empty() {
        return one(l.b.constant(&l.label, value)?);
    }
    let shape: Vec<i32> = shape.iter().map(|&n| n as i32).collect();
    one(l.op("fill", [("shape", Constant::int32s(&shape).into()), ("value", value.into())])?)
}

/// `Constant` is folded; see `graph::constant_node`.
pub(super) fn constant(_: &mut Lower<'_>) -> Results {
    unmapped("its value is not a dense tensor")
}

pub(super) fn range_of(l: &mut Lower<'_>) -> Results {
    let (start, end, step) = (l.x(0)?, l.x(1)?, l.x(2)?);
    one(l.op("range_1d", [("start", start.into()), ("end", end.into()), ("step", step.into())])?)
}

pub(super) fn depth_to_space(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let size = Constant::int32(l.int("blocksize", 1) as i32);
    one(if l.text("mode", "DCR") == "CRD" {
        l.op("pixel_shuffle", [("x", x.into()), ("upscale_factor", size.into())])?
    } else {
        l.op("depth_to_space", [("x", x.into()), ("block_size", size.into())])?
    })
}

pub(super) fn space_to_depth(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let size = Constant::int32(l.int("blocksize", 1) as i32);
    one(l.op("space_to_depth", [("x", x.into()), ("block_size", size.into())])?)
}

pub(super) fn reverse_sequence(l: &mut Lower<'_>) -> Results {
    let (x, lengths) = (l.x(0)?, l.x(1)?);
    let (seq, batch) = (l.int("time_axis", 0) as i32, l.int("batch_axis", 1) as i32);
    one(l.op(
        "reverse_sequence",
        [
            ("x", x.into()),
            ("lengths", lengths.into()),
            ("seq_axis", Constant::int32(seq).into()),
            ("batch_axis", Constant::int32(batch).into()),
        ],
    )?)
}

fn band(l: &mut Lower<'_>, x: ValueId, lower: i64, upper: i64) -> Built {
    let (lower, upper) = (Constant::int32(lower as i32), Constant::int32(upper as i32));
    l.op("band_part", [("x", x.into()), ("lower", lower.into()), ("upper", upper.into())])
}

pub(super) fn trilu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let k = if l.has(1) { l.ints(1)?.first().copied().unwrap_or(0) } else { 0 };
    let shape = l.shape(x)?;
    // A diagonal outside of the matrix acts like one at its edge, which fits MIL's int32.
    let reach = shape.iter().max().copied().unwrap_or(0) as i64;
    let k = k.clamp(-reach, reach);
    one(match (l.int("upper", 1) != 0, k) {
        (true, k) if k <= 0 => band(l, x, -k, -1)?,
        (false, k) if k >= 0 => band(l, x, -1, k)?,
        (true, k) => {
            let rest = band(l, x, -1, k - 1)?;
            l.bin("sub", x, rest)?
        }
        (false, k) => {
            let rest = band(l, x, -k - 1, -1)?;
            l.bin("sub", x, rest)?
        }
    })
}

/// A matrix with ones on one diagonal.
pub(super) fn eye_like(l: &mut Lower<'_>) -> Results {
    let element = match l.int("dtype", 0) {
        0 => l.element(0)?,
        number => ElementType::from_number(number as i32),
    };
    let shape = l.extents(0)?;
    let [rows, columns] = shape[..] else { return Err(Stop::Rejected("an input that is not a matrix".into())) };
    let total = l.table(&[rows, columns])?;
    let k = l.int("k", 0);
    let values: Vec<f64> =
        (0..total).map(|i| f64::from(u8::from((i % columns) as i64 - (i / columns) as i64 == k))).collect();
    l.elements = Some(element);
    let value = l.constant(l.mil(element)?, &[rows, columns], &values)?;
    one(l.b.constant(&l.label, value)?)
}

/// The window functions of signal processing, as cosine series.
fn window(l: &mut Lower<'_>, terms: &[f64]) -> Results {
    let n = l.ints(0)?.first().copied().unwrap_or(0).clamp(0, 1 << 30);
    let denominator = if l.int("periodic", 1) != 0 { n } else { n - 1 };
    let (zero, end) = (Constant::fp32(0.0), Constant::fp32(n as f32));
    let at = l.op("range_1d", [("start", zero.into()), ("end", end.into()), ("step", Constant::fp32(1.0).into())])?;
    let mut total: Option<ValueId> = None;
    for (i, &factor) in terms.iter().enumerate() {
        let angle = l.bin("mul", at, Constant::fp32((i as f64 * std::f64::consts::TAU / denominator as f64) as f32))?;
        let wave = l.un("cos", angle)?;
        let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
        let part = l.bin("mul", wave, Constant::fp32((factor * sign) as f32))?;
        total = Some(match total {
            Some(t) => l.bin("add", t, part)?,
            None => part,
        });
    }
    match total {
        Some(t) => one(t),
        None => unmapped("a window without terms"),
    }
}

pub(super) fn hann(l: &mut Lower<'_>) -> Results {
    window(l, &[0.5, 0.5])
}

pub(super) fn hamming(l: &mut Lower<'_>) -> Results {
    window(l, &[25.0 / 46.0, 21.0 / 46.0])
}

pub(super) fn blackman(l: &mut Lower<'_>) -> Results {
    window(l, &[0.42, 0.5, 0.08])
}
