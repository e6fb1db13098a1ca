//! Resizing along axes: linear interpolation, or the nearest element.
//!
//! The axes are resized one after the other. Bilinear ops begin with the width: elements of a row
//! are gathered, and there are fewer rows before the height grows. A sample at the position of an
//! element is that element, even if its neighbor is NaN or infinite.

use ferrane_device::Result;
use ferrane_host::{pool, vectorize};

use super::super::index::around;
use super::super::{Call, Data, HeapTensor, TensorOp};
use super::grid::Sampling;

pub(super) const FAMILY: &[(&str, TensorOp)] = &[
    ("resize", resize),
    ("resize_bilinear", resize_bilinear),
    ("resize_nearest_neighbor", resize_nearest_neighbor),
    ("upsample_bilinear", upsample_bilinear),
    ("upsample_nearest_neighbor", upsample_nearest_neighbor),
];

/// Elements of a task.
const GRAIN: usize = 32 << 10;

/// The samples of an axis: the first of two elements, the other one, and the weight of the other
/// one.
struct Taps {
    low: Vec<u32>,
    high: Vec<u32>,
    weight: Vec<f32>,
}

impl Taps {
    fn new(n: usize, m: usize, at: impl Fn(usize) -> f64) -> Taps {
        let mut taps = Taps { low: Vec::new(), high: Vec::new(), weight: Vec::new() };
        for point in (0..m).map(at) {
            let low = (point as usize).min(n - 1);
            taps.low.push(low as u32);
            taps.high.push((low + 1).min(n - 1) as u32);
            taps.weight.push((point - low as f64) as f32);
        }
        taps
    }
}

/// Between two elements. An element itself at weight 0, whatever the other one is.
#[inline(always)]
fn between(a: f32, b: f32, t: f32) -> f32 {
    let mixed = (1.0 - t) * a + t * b;
    if t == 0.0 { a } else { mixed }
}

/// Samples of one row.
fn interpolate_row(from: &[f32], taps: &Taps, to: &mut [f32]) {
    let Taps { low, high, weight } = taps;
    vectorize!({
        for (((to, &low), &high), &t) in to.iter_mut().zip(low).zip(high).zip(weight) {
            *to = between(from[low as usize], from[high as usize], t);
        }
    });
}

/// A row between two rows.
fn interpolate_rows(low: &[f32], high: &[f32], t: f32, to: &mut [f32]) {
    if t == 0.0 {
        return to.copy_from_slice(low);
    }
    vectorize!({
        for ((to, &a), &b) in to.iter_mut().zip(low).zip(high) {
            *to = (1.0 - t) * a + t * b;
        }
    });
}

/// `x` with `m` samples along `axis`, each interpolated between two elements.
fn linear(call: &Call<'_>, x: &HeapTensor, axis: usize, m: usize, at: impl Fn(usize) -> f64) -> Result<HeapTensor> {
    let (_, n, inner) = around(&x.shape, axis);
    let mut shape = x.shape.clone();
    shape[axis] = m;
    let count = call.elements(&shape)?;
    if n == 0 && m > 0 {
        return Err(call.fail("cannot resize an empty axis"));
    }
    if u32::try_from(n).is_err() {
        return Err(call.fail(format!("cannot resize an axis of {n} elements")));
    }
    let taps = Taps::new(n, m, at);
    let Data::Floats(v) = &x.data else { return Err(call.fail("`x` must have numeric elements")) };
    let mut out = vec![0.0; count];
    let per_task = (GRAIN / (m * inner).max(1)).max(1);
    pool::for_each_chunk_mut(&mut out, per_task * m * inner, |task, out| {
        for (i, out) in out.chunks_exact_mut((m * inner).max(1)).enumerate() {
            let block = &v[(task * per_task + i) * n * inner..][..n * inner];
            if inner == 1 {
                interpolate_row(block, &taps, out);
                continue;
            }
            for (i, to) in out.chunks_exact_mut(inner).enumerate() {
                let row = |r: u32| &block[r as usize * inner..][..inner];
                interpolate_rows(row(taps.low[i]), row(taps.high[i]), taps.weight[i], to);
            }
        }
    });
    Ok(HeapTensor::floats(x.dtype, &shape, out))
}

/// `x` with `m` samples along `axis`, each one of its elements.
fn nearest(call: &Call<'_>, x: &HeapTensor, axis: usize, m: usize, at: impl Fn(usize) -> usize) -> Result<HeapTensor> {
    let (outer, n, inner) = around(&x.shape, axis);
    let mut shape = x.shape.clone();
    shape[axis] = m;
    let count = call.elements(&shape)?;
    if n == 0 && m > 0 {
        return Err(call.fail("cannot resize an empty axis"));
    }
    let rows: Vec<usize> = (0..m).map(|i| at(i).min(n - 1)).collect();
    let rows = &rows;
    if let Data::Floats(v) = &x.data {
        let mut out = vec![0.0; count];
        let per_task = (GRAIN / (m * inner).max(1)).max(1);
        pool::for_each_chunk_mut(&mut out, per_task * m * inner, |task, out| {
            for (i, out) in out.chunks_exact_mut((m * inner).max(1)).enumerate() {
                let block = &v[(task * per_task + i) * n * inner..][..n * inner];
                if inner == 1 {
                    out.iter_mut().zip(rows).for_each(|(to, &r)| *to = block[r]);
                    continue;
                }
                for (to, &r) in out.chunks_exact_mut(inner).zip(rows) {
                    to.copy_from_slice(&block[r * inner..(r + 1) * inner]);
                }
            }
        });
        return Ok(HeapTensor::floats(x.dtype, &shape, out));
    }
    let places =
        (0..outer).flat_map(move |o| rows.iter().flat_map(move |&r| (o * n + r) * inner..(o * n + r + 1) * inner));
    Ok(x.pick(&shape, places))
}

/// The last two axes: height, width.
fn plane(call: &Call<'_>, x: &HeapTensor) -> Result<[usize; 2]> {
    let rank = x.shape.len();
    if rank < 3 {
        return Err(call.fail("needs a rank of 3 or more"));
    }
    Ok([rank - 2, rank - 1])
}

/// `resize_bilinear` (coremltools 9.0).
fn resize_bilinear(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let mode = Sampling::of(call)?;
    let mut x = call.tensor("x")?.clone();
    for (axis, name) in plane(call, &x)?.into_iter().zip(["target_size_height", "target_size_width"]).rev() {
        let (n, m) = (x.shape[axis] as f64, call.count(name)?);
        x = linear(call, &x, axis, m, |i| mode.at(i, n, m))?;
    }
    Ok(vec![x])
}

/// The element that contains the middle of part `i` of `m`: `⌊(i + ½) · n / m⌋`.
fn middle(i: usize, n: usize, m: usize) -> usize {
    ((2 * i as u128 + 1) * n as u128 / (2 * m as u128)) as usize
}

/// `resize_nearest_neighbor` (coremltools 9.0): samples are in the middle of the parts:
/// coremltools' TensorFlow converter uses the op for `half_pixel_centers`.
fn resize_nearest_neighbor(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let mut x = call.tensor("x")?.clone();
    for (axis, name) in plane(call, &x)?.into_iter().zip(["target_size_height", "target_size_width"]) {
        let (n, m) = (x.shape[axis], call.count(name)?);
        x = nearest(call, &x, axis, m, |i| middle(i, n, m))?;
    }
    Ok(vec![x])
}

/// The extent of an axis after scaling: the declared one, or the scaled extent rounded down.
fn scaled(call: &Call<'_>, x: &HeapTensor, axis: usize, name: &str) -> Result<usize> {
    if let Some(shape) = call.results.first().and_then(|t| t.shape())
        && shape.len() == x.shape.len()
    {
        return Ok(shape[axis]);
    }
    let extent = match call.maybe(name).map(|t| &t.data) {
        Some(Data::Ints(v)) if v.len() == 1 => v[0].saturating_mul(x.shape[axis] as i64),
        _ => (call.float_or(name, 1.0)? * x.shape[axis] as f32).floor() as i64,
    };
    Ok(call.extents(&[extent])?[0])
}

/// `upsample_bilinear` (coremltools 9.0): the spacing follows from the extents, not from the scale.
/// `half_pixel_centers` (iOS 16) defaults to the opposite of `align_corners`.
fn upsample_bilinear(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let align = call.flag("align_corners")?;
    let half = if call.maybe("half_pixel_centers").is_some() { call.flag("half_pixel_centers")? } else { !align };
    let mode = match (align, half) {
        (true, false) => Sampling::StrictAlignCorners,
        (false, true) => Sampling::UnalignCorners,
        (false, false) => Sampling::Default,
        (true, true) => return Err(call.fail("`align_corners` and `half_pixel_centers` exclude each other")),
    };
    let mut x = call.tensor("x")?.clone();
    for (axis, name) in plane(call, &x)?.into_iter().zip(["scale_factor_height", "scale_factor_width"]).rev() {
        let (n, m) = (x.shape[axis] as f64, scaled(call, &x, axis, name)?);
        x = linear(call, &x, axis, m, |i| mode.at(i, n, m))?;
    }
    Ok(vec![x])
}

/// `upsample_nearest_neighbor` (coremltools 9.0): sample `i` is element `⌊i · n / m⌋`, as in
/// coremltools' test of fractional scales.
fn upsample_nearest_neighbor(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let mut x = call.tensor("x")?.clone();
    for (axis, name) in plane(call, &x)?.into_iter().zip(["scale_factor_height", "scale_factor_width"]) {
        let (n, m) = (x.shape[axis], scaled(call, &x, axis, name)?);
        x = nearest(call, &x, axis, m, |i| (i as u128 * n as u128 / m as u128) as usize)?;
    }
    Ok(vec![x])
}

/// `resize` (coremltools 9.0, iOS 17): the last `resized_dims` axes take the last extents of
/// `shape`, 0 keeps an extent. The nearest element in mode `DEFAULT` is that of
/// `resize_nearest_neighbor`; in the other modes, which no source describes, it is the one nearest
/// to the sample; of two, the upper one. Integers are rounded to nearest, ties to even.
fn resize(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let (shape, dims) = (call.extents(&call.ints("shape")?)?, call.int("resized_dims")?);
    let (rank, mode) = (x.shape.len(), Sampling::of(call)?);
    let Some(dims) = usize::try_from(dims).ok().filter(|&d| d <= shape.len() && d <= rank) else {
        return Err(call.fail(format!("cannot resize {dims} axes of {rank} to {shape:?}")));
    };
    let by_line = match call.text("interpolation_mode")?.as_str() {
        "LINEAR" => true,
        "NEAREST_NEIGHBOR" => false,
        other => return Err(call.fail(format!("has no interpolation mode `{other}`"))),
    };
    let rounds = by_line && !x.dtype.is_float();
    let mut y = match &x.data {
        Data::Ints(v) if rounds => HeapTensor::floats(x.dtype, &x.shape, v.iter().map(|&v| v as f32).collect()),
        _ => x.clone(),
    };
    for d in 0..dims {
        let axis = rank - dims + d;
        let n = y.shape[axis];
        let m = match shape[shape.len() - dims + d] {
            0 => continue,
            m => m,
        };
        y = match mode {
            _ if by_line => linear(call, &y, axis, m, |i| mode.at(i, n as f64, m))?,
            Sampling::Default => nearest(call, &y, axis, m, |i| middle(i, n, m))?,
            _ => nearest(call, &y, axis, m, |i| (mode.at(i, n as f64, m) + 0.5) as usize)?,
        };
    }
    if let Data::Floats(v) = &y.data
        && rounds
    {
        y = HeapTensor::ints(x.dtype, &y.shape, v.iter().map(|v| v.round_ties_even() as i64).collect());
    }
    Ok(vec![y])
}
