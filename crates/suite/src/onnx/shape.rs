//! Operators that rearrange elements.

use ferrane_mil::{Constant, DataType, ValueId};

use super::lower::{Built, Lower, one, unmapped};

type Results = Built<Vec<Option<ValueId>>>;

pub(super) fn reshape(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let (shape, wanted) = (l.shape(x)?, l.ints(1)?);
    let total: usize = shape.iter().product();
    let keep = l.int("allowzero", 0) == 0;
    let mut found: Vec<usize> = Vec::new();
    for (i, &n) in wanted.iter().enumerate() {
        found.push(match n {
            0 if keep => shape[i],
            n => n.max(0) as usize,
        });
    }
    if let Some(open) = wanted.iter().position(|&n| n == -1) {
        let rest: usize = found.iter().enumerate().filter(|(i, _)| *i != open).map(|(_, n)| n).product();
        found[open] = total.checked_div(rest).unwrap_or(0);
    }
    one(l.reshape(x, &found)?)
}

pub(super) fn flatten(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axis = l.int("axis", 1);
    let at = if axis < 0 { axis + shape.len() as i64 } else { axis } as usize;
    one(l.reshape(x, &[shape[..at].iter().product(), shape[at..].iter().product()])?)
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
            one(l.b.squeeze("squeeze", x, &axes)?)
        }
        None => one(l.un("squeeze", x)?),
    }
}

pub(super) fn unsqueeze(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let axes: Vec<i32> = axes(l)?.unwrap_or_default().iter().map(|&a| a as i32).collect();
    one(l.b.expand_dims("expand", x, &axes)?)
}

pub(super) fn transpose(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.shape(x)?.len() as i64;
    let perm = l.list("perm").unwrap_or_else(|| (0..rank).rev().collect());
    let perm: Vec<i32> = perm.iter().map(|&a| a as i32).collect();
    one(l.b.transpose("transpose", x, &perm)?)
}

pub(super) fn concat(l: &mut Lower<'_>) -> Results {
    let values: Vec<ValueId> = (0..l.count()).map(|i| l.x(i)).collect::<Built<_>>()?;
    let rank = l.shape(values[0])?.len();
    let axis = l.axis(1, rank)?;
    one(l.concat(&values, axis)?)
}

pub(super) fn split(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axis = l.axis(0, shape.len())?;
    let given = match l.list("split") {
        Some(sizes) => Some(sizes),
        None => l.ints_if(1)?,
    };
    let count = l.int("num_outputs", l.node.outputs.len() as i64) as usize;
    let sizes: Vec<i32> = match given {
        Some(sizes) => sizes.iter().map(|&n| n as i32).collect(),
        None => {
            let part = shape[axis].div_ceil(count);
            (0..count).map(|i| (shape[axis] - i * part).min(part) as i32).collect()
        }
    };
    let parts = l.b.split("split", x, &sizes, axis as i32)?;
    Ok(parts.into_iter().map(Some).collect())
}

/// The positions that a slice along one axis selects: first, step, count.
fn range(start: i64, end: i64, step: i64, extent: i64) -> (i64, i64, i64) {
    let wrap = |v: i64| if v < 0 { v.saturating_add(extent) } else { v };
    let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
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
    let (mut begin, mut end, mut stride) = (vec![0i32; rank], vec![0i32; rank], vec![1i32; rank]);
    let (mut begin_mask, mut end_mask) = (vec![true; rank], vec![true; rank]);
    for (i, &axis) in axes.iter().enumerate() {
        let axis = l.normal(axis, rank)?;
        let (from, step, count) = range(starts[i], ends[i], steps[i], shape[axis] as i64);
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
    let x = l.reshape(x, &from)?;
    let reps: Vec<i32> = from.iter().zip(shape).map(|(&a, &b)| if a == b { 1 } else { b as i32 }).collect();
    if reps.iter().all(|&r| r == 1) { Ok(x) } else { Ok(l.b.tile("tile", x, &reps)?) }
}

pub(super) fn expand(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let mut from = l.shape(x)?;
    let mut wanted: Vec<usize> = l.ints(1)?.iter().map(|&n| n as usize).collect();
    // Broadcasting in both directions: the larger rank wins, and an extent of 1 takes the other's.
    while wanted.len() < from.len() {
        wanted.insert(0, 1);
    }
    while from.len() < wanted.len() {
        from.insert(0, 1);
    }
    let shape: Vec<usize> = from.iter().zip(&wanted).map(|(&a, &b)| if a == 1 { b } else { a }).collect();
    let y = broadcast_to(l, x, &shape)?;
    one(if y == x { l.un("identity", x)? } else { y })
}

pub(super) fn tile(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let reps: Vec<i32> = l.ints(1)?.iter().map(|&n| n as i32).collect();
    one(l.b.tile("tile", x, &reps)?)
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
        y = l.slice(y, axis, before, shape[axis] - before - after)?;
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
        y = l.b.gather("pad", y, indices, axis as i32)?;
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
        let (now, size) = (shape[axis], size as usize);
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
    let (start, _, count) = range(l.int("start", 0), l.int("end", i64::MAX), 1, rank);
    one(l.slice(all, 0, start as usize, count as usize)?)
}

pub(super) fn size(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let all = l.un("shape", x)?;
    one(l.reduce("reduce_prod", all, &[0], false)?)
}

/// The `value` attribute of ConstantOfShape.
fn fill_value(l: &Lower<'_>) -> (f64, &'static str) {
    let Some(value) = l.node.attributes.get("value") else { return (0.0, "FLOAT") };
    let mut inner = &value["tensor"];
    while let Some(items) = inner.as_array() {
        match items.first() {
            Some(first) => inner = first,
            None => break,
        }
    }
    let number = inner.as_f64().or(inner.as_bool().map(|b| f64::from(u8::from(b)))).unwrap_or(0.0);
    let element = match value["dtype"].as_str().unwrap_or_default() {
        "bool" => "BOOL",
        "float16" => "FLOAT16",
        name if name.starts_with("int") || name.starts_with("uint") => "INT32",
        _ => "FLOAT",
    };
    (number, element)
}

pub(super) fn constant_of_shape(l: &mut Lower<'_>) -> Results {
    let shape: Vec<i32> = l.ints(0)?.iter().map(|&n| n as i32).collect();
    let (value, element) = fill_value(l);
    let value = super::lower::constant(&super::Element { name: element.into() }, &[], &[value])?;
    if shape.is_empty() {
        return one(l.b.constant("scalar", value)?);
    }
    one(l.op("fill", [("shape", Constant::int32s(&shape).into()), ("value", value.into())])?)
}

pub(super) fn constant(l: &mut Lower<'_>) -> Results {
    let Some(value) = l.node.attributes.get("value") else {
        return unmapped("a constant of another attribute than `value`");
    };
    let mut shape = Vec::new();
    let mut level = &value["tensor"];
    while let Some(items) = level.as_array() {
        shape.push(items.len());
        match items.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    let mut values = Vec::new();
    let mut open = vec![&value["tensor"]];
    while let Some(next) = open.pop() {
        match next.as_array() {
            Some(items) => open.extend(items.iter().rev()),
            None => values.push(next.as_f64().unwrap_or(f64::from(u8::from(next.as_bool() == Some(true))))),
        }
    }
    let (_, element) = fill_value(l);
    let value = super::lower::constant(&super::Element { name: element.into() }, &shape, &values)?;
    one(l.b.constant("value", value)?)
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

/// A matrix with ones on one diagonal, made from a row-major sequence of positions.
pub(super) fn eye_like(l: &mut Lower<'_>) -> Results {
    let like = l.known(0)?;
    let element = match l.int("dtype", 0) {
        0 => like.element.clone(),
        number => super::Element::of_number(number),
    };
    let [rows, columns] = like.shape[..] else { return unmapped("an input that is not a matrix") };
    let k = l.int("k", 0);
    let values: Vec<f64> =
        (0..rows * columns).map(|i| f64::from(u8::from((i % columns) as i64 - (i / columns) as i64 == k))).collect();
    let value = super::lower::constant(&element, &[rows, columns], &values)?;
    one(l.b.constant("eye", value)?)
}

/// The window functions of signal processing, as cosine series.
fn window(l: &mut Lower<'_>, terms: &[f64]) -> Results {
    let n = l.ints(0)?.first().copied().unwrap_or(0);
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
