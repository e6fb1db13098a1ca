//! Tensors made from a shape, a range, indices or a mask.

use ferrane_device::Result;
use ferrane_mil::DataType;

use super::super::index::around;
use super::super::{Call, Data, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[
    ("fill", fill),
    ("fill_like", fill_like),
    ("range_1d", range_1d),
    ("one_hot", one_hot),
    ("shape", shape),
    ("non_zero", non_zero),
    ("band_part", band_part),
];

/// The argument `name`, or a default number of the result's type.
fn scalar(call: &Call<'_>, name: &str, default: i64) -> Result<HeapTensor> {
    if let Some(value) = call.maybe(name) {
        return if value.len() == 1 { Ok(value.clone()) } else { Err(call.fail(format!("`{name}` must be a scalar"))) };
    }
    let dtype = call.dtype(0)?;
    Ok(if dtype.is_float() {
        HeapTensor::floats(dtype, &[], vec![default as f32])
    } else {
        HeapTensor::ints(dtype, &[], vec![default])
    })
}

/// `fill`: `value` everywhere (coremltools 9.0).
fn fill(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let shape = call.extents(&call.ints("shape")?)?;
    filled(call, &shape)
}

/// `fill_like`: `value` in the shape of another tensor (coremltools 9.0, iOS 16).
fn fill_like(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    filled(call, &call.tensor("ref_tensor")?.shape)
}

fn filled(call: &Call<'_>, shape: &[usize]) -> Result<Vec<HeapTensor>> {
    let count = call.elements(shape)?;
    Ok(vec![scalar(call, "value", 0)?.pick(shape, std::iter::repeat_n(0, count))])
}

/// `range_1d`: `start + i·step` while it is before `end`, as `numpy.arange` (coremltools 9.0). For
/// floats the effective step is `(start + step) - start`.
fn range_1d(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (start, end, step) = (call.tensor("start")?, call.tensor("end")?, call.tensor("step")?);
    if [start, end, step].iter().any(|t| t.len() != 1) {
        return Err(call.fail("takes scalars"));
    }
    if let (Data::Floats(a), Data::Floats(b), Data::Floats(s)) = (&start.data, &end.data, &step.data) {
        let (a, b, s) = (a[0], b[0], s[0]);
        let count = ((b - a) / s).ceil();
        if !count.is_finite() {
            return Err(call.fail(format!("a range from {a} to {b} by {s} has no length")));
        }
        // `as` saturates: a negative length is 0, a huge one is refused.
        let count = call.elements(&[count as usize])?;
        let delta = (a + s) - a;
        let at = |i: usize| if i == 1 { a + s } else { a + i as f32 * delta };
        return Ok(vec![HeapTensor::floats(start.dtype, &[count], (0..count).map(at).collect())]);
    }
    let (a, b, s) = (i128::from(start.int(0)), i128::from(end.int(0)), i128::from(step.int(0)));
    if s == 0 {
        return Err(call.fail("a step of 0"));
    }
    let span = if s > 0 { b - a } else { a - b };
    let count = if span <= 0 { 0 } else { (span + s.abs() - 1) / s.abs() };
    let count = call.elements(&[usize::try_from(count).unwrap_or(usize::MAX)])?;
    let values = (0..count).map(|i| (a + i as i128 * s) as i64).collect();
    Ok(vec![HeapTensor::ints(start.dtype, &[count], values)])
}

/// `one_hot`: a new axis, `on_value` at the index and `off_value` elsewhere (coremltools 9.0). An
/// index outside of the axis sets no element.
fn one_hot(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let indices = call.tensor("indices")?;
    let depth = call.int("one_hot_vector_size")?;
    let rank = indices.shape.len();
    let axis = call.normal_axis(call.int("axis")?, rank + 1)?;
    let mut shape = indices.shape.clone();
    shape.insert(axis, usize::try_from(depth).map_err(|_| call.fail("a negative size"))?);
    call.elements(&shape)?;
    let (on, off) = (scalar(call, "on_value", 1)?, scalar(call, "off_value", 0)?);
    let (outer, depth, inner) = around(&shape, axis);
    let places = (0..outer * depth * inner).map(|i| {
        let (o, d, n) = (i / (depth * inner), i / inner % depth, i % inner);
        indices.int(o * inner + n) == d as i64
    });
    Ok(vec![match (&on.data, &off.data) {
        (Data::Floats(on), Data::Floats(off)) => {
            HeapTensor::floats(call.dtype(0)?, &shape, places.map(|hit| if hit { on[0] } else { off[0] }).collect())
        }
        (Data::Ints(on), Data::Ints(off)) => {
            HeapTensor::ints(call.dtype(0)?, &shape, places.map(|hit| if hit { on[0] } else { off[0] }).collect())
        }
        _ => return Err(call.fail("`on_value` and `off_value` must have the same type")),
    }])
}

/// `shape`: the extents (coremltools 9.0).
fn shape(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let extents: Vec<i64> = call.tensor("x")?.shape.iter().map(|&d| d as i64).collect();
    Ok(vec![HeapTensor::ints(call.dtype(0)?, &[extents.len()], extents)])
}

/// `non_zero`: the index of each element that is not 0, row-major (coremltools 9.0). NaN is not 0.
fn non_zero(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let found: Vec<usize> = match &x.data {
        Data::Floats(v) => (0..v.len()).filter(|&i| v[i] != 0.0).collect(),
        Data::Ints(v) => (0..v.len()).filter(|&i| v[i] != 0).collect(),
        Data::Strings(_) => return Err(call.fail("`x` must have numeric elements")),
    };
    let rank = x.shape.len();
    call.elements(&[found.len(), rank])?;
    let mut rows = vec![0i64; found.len() * rank];
    for (r, &place) in found.iter().enumerate() {
        let mut rest = place;
        for axis in (0..rank).rev() {
            rows[r * rank + axis] = (rest % x.shape[axis]) as i64;
            rest /= x.shape[axis];
        }
    }
    Ok(vec![HeapTensor::ints(DataType::Int32, &[found.len(), rank], rows)])
}

/// `band_part`: zero outside of a band of the last two axes (coremltools 9.0). An element outside
/// is zero even if it was infinite: masks are cut out of infinities.
fn band_part(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let (lower, upper) = (call.int("lower")?, call.int("upper")?);
    let &[.., rows, cols] = x.shape.as_slice() else { return Err(call.fail("needs a matrix")) };
    let places = (0..x.len()).map(|i| {
        let (m, n) = ((i / cols % rows) as i64, (i % cols) as i64);
        ((lower < 0 || m - n <= lower) && (upper < 0 || n - m <= upper)).then_some(i)
    });
    Ok(vec![x.pick_or_zero(&x.shape, places)])
}
