//! Interpolation.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType, ValueId};

use super::elementwise::Results;
use super::state::{Built, Lower, rejected};

/// Which element of the input, or how much of which two, an element of the output is.
struct Samples {
    first: Vec<i64>,
    second: Vec<i64>,
    /// The part of the second element.
    weight: Vec<f64>,
}

/// The places along an axis of `extent`, for coordinates that are clamped to it.
fn samples(extent: usize, out: usize, scale: f64, offset: f64, nearest: bool) -> Samples {
    let last = extent as f64 - 1.0;
    let (mut first, mut second, mut weight) = (Vec::new(), Vec::new(), Vec::new());
    for place in 0..out {
        let at = ((place as f64 + 0.5 - offset) / scale - 0.5).clamp(0.0, last.max(0.0));
        let at = if nearest { at.round_ties_even() } else { at };
        first.push(at.floor() as i64);
        second.push((at.floor() + 1.0).min(last) as i64);
        weight.push(at - at.floor());
    }
    Samples { first, second, weight }
}

/// Whole factors of the last two axes alone, at half-pixel places: MIL's ops for images.
fn upsampled(
    l: &mut Lower<'_>,
    x: ValueId,
    out: &[usize],
    scales: &[f64],
    offsets: &[f64],
    nearest: bool,
) -> Built<Option<ValueId>> {
    let shape = l.shape(x)?;
    let whole =
        |i: usize| offsets[i] == 0.0 && scales[i].fract() == 0.0 && shape[i] as f64 * scales[i] == out[i] as f64;
    let fits = shape.len() == 4 && (0..4).all(whole) && scales[..2] == [1.0, 1.0] && l.is_float(x);
    if !fits {
        return Ok(None);
    }
    let factor = |i: usize| Constant::fp32(scales[i] as f32).into();
    let mut args = vec![("x", x.into()), ("scale_factor_height", factor(2)), ("scale_factor_width", factor(3))];
    if nearest {
        return l.build("upsample_nearest_neighbor", args).map(Some);
    }
    args.push(("align_corners", Constant::bool(false).into()));
    args.push(("half_pixel_centers", Constant::bool(true).into()));
    l.build("upsample_bilinear", args).map(Some)
}

/// Axis by axis: elements at known places, and their mean by known weights.
pub(super) fn interpolate(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let nearest = l.word("interpolation_mode")? == "nearest_neighbor";
    let shape = l.shape(x)?;
    let rank = shape.len();
    let out: Vec<usize> = l.counts(1, rank, 1)?.iter().map(|&n| n as usize).collect();
    let (scales, offsets) = (l.known(2)?, l.known(3)?);
    if scales.len() != rank || offsets.len() != rank {
        return rejected(format!("{} scales and {} offsets for {shape:?}", scales.len(), offsets.len()));
    }
    let (scales, offsets) = (scales.values().to_vec(), offsets.values().to_vec());
    if scales.iter().any(|s| !s.is_finite() || *s <= 0.0) {
        return rejected(format!("scales {scales:?} and offsets {offsets:?} for {shape:?}"));
    }
    if let Some(y) = upsampled(l, x, &out, &scales, &offsets, nearest)? {
        return Ok(vec![y]);
    }
    // Integers are mixed as floats, and rounded toward zero at the end.
    let dtype = l.dtype(x);
    let mut y = if nearest || l.is_float(x) { x } else { l.cast(x, DataType::Fp32)? };
    for axis in 0..rank {
        if out[axis] == shape[axis] && scales[axis] == 1.0 && offsets[axis] == 0.0 {
            continue;
        }
        l.table(&[out[axis]])?;
        let s = samples(shape[axis], out[axis], scales[axis], offsets[axis], nearest);
        let places = l.indices(&[out[axis]], &s.first)?;
        let first = l.b.gather(&l.label, y, places, axis as i32)?;
        if nearest || s.weight.iter().all(|&w| w == 0.0) {
            y = first;
            continue;
        }
        let places = l.indices(&[out[axis]], &s.second)?;
        let second = l.b.gather(&l.label, y, places, axis as i32)?;
        let mut wide = vec![1; rank];
        wide[axis] = out[axis];
        let weight = l.tensor(l.dtype(first), &wide, &s.weight)?;
        y = mixed(l, first, second, weight)?;
    }
    Ok(vec![l.cast(y, dtype)?])
}

/// `a + (b - a) · weight`.
fn mixed(l: &mut Lower<'_>, a: ValueId, b: ValueId, weight: ValueId) -> Built {
    let step = l.bin("sub", b, a)?;
    let step = l.bin("mul", step, weight)?;
    l.bin("add", a, step)
}

/// Elements at computed coordinates `[points, axes]`: those at the corners of the cell around each
/// point, mixed axis by axis.
pub(super) fn interpolate_coordinates(l: &mut Lower<'_>) -> Results {
    let (x, coordinates) = (l.x(0)?, l.x(1)?);
    let nearest = l.word("interpolation_mode")? == "nearest_neighbor";
    let (shape, points) = (l.shape(x)?, l.shape(coordinates)?);
    let rank = shape.len();
    if points.len() != 2 || points[1] != rank || rank > 5 {
        return rejected(format!("coordinates of shape {points:?} into {shape:?}"));
    }
    let coordinates = l.cast(coordinates, DataType::Fp32)?;
    let last: Vec<f64> = shape.iter().map(|&n| n as f64 - 1.0).collect();
    let last = l.tensor(DataType::Fp32, &[rank], &last)?;
    let above = l.bin("maximum", coordinates, Constant::fp32(0.0))?;
    let inside = l.bin("minimum", above, last)?;
    if nearest {
        let places = l.un("round", inside)?;
        let places = l.cast(places, DataType::Int32)?;
        return Ok(vec![l.op("gather_nd", [("x", x.into()), ("indices", places.into())])?]);
    }
    // Integers are mixed as floats, and rounded toward zero at the end.
    let integers = l.dtype(x);
    let x = if l.is_float(x) { x } else { l.cast(x, DataType::Fp32)? };
    let low = l.un("floor", inside)?;
    let parts = l.bin("sub", inside, low)?;
    let next = l.bin("add", low, Constant::fp32(1.0))?;
    let high = l.bin("minimum", next, last)?;
    let (low, high) = (l.cast(low, DataType::Int32)?, l.cast(high, DataType::Int32)?);
    let mut columns = Vec::new();
    for axis in 0..rank {
        columns.push([l.slice(low, 1, axis, 1)?, l.slice(high, 1, axis, 1)?]);
    }
    let mut corners = Vec::new();
    for corner in 0..1usize << rank {
        let chosen: Vec<ValueId> = (0..rank).map(|axis| columns[axis][corner >> axis & 1]).collect();
        let places = l.concat(&chosen, 1)?;
        corners.push(l.op("gather_nd", [("x", x.into()), ("indices", places.into())])?);
    }
    let dtype = l.dtype(x);
    for axis in 0..rank {
        let part = l.slice(parts, 1, axis, 1)?;
        let part = l.reshape(part, &points[..1])?;
        let part = l.cast(part, dtype)?;
        let pairs: Vec<(ValueId, ValueId)> = corners.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        corners = pairs.into_iter().map(|(a, b)| mixed(l, a, b, part)).collect::<Built<_>>()?;
    }
    corners.into_iter().map(|y| l.cast(y, integers)).collect()
}
