//! Sorting along an axis.
//!
//! Sorting is stable: of equal elements the lower index comes first, also in descending order. NaN
//! comes last, as in numpy.

use std::cmp::Ordering;

use ferrane_device::Result;
use ferrane_mil::DataType;

use super::super::index::around;
use super::super::{Call, Data, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[("argsort", argsort), ("topk", topk)];

fn floats(a: f32, b: f32, ascending: bool) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) if ascending => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (false, false) => b.partial_cmp(&a).unwrap_or(Ordering::Equal),
        (x, y) => x.cmp(&y),
    }
}

/// The first `k` indices of each line along `axis`, sorted; with the layout of the tensor and `k`
/// elements along the axis.
fn order(call: &Call<'_>, x: &HeapTensor, axis: usize, k: usize, ascending: bool) -> Result<Vec<i64>> {
    let (outer, n, inner) = around(&x.shape, axis);
    let mut out = vec![0i64; outer * k * inner];
    let mut line: Vec<usize> = Vec::with_capacity(n);
    for o in 0..outer {
        for i in 0..inner {
            let at = |p: usize| (o * n + p) * inner + i;
            line.clear();
            line.extend(0..n);
            match &x.data {
                Data::Floats(v) => line.sort_by(|&a, &b| floats(v[at(a)], v[at(b)], ascending)),
                Data::Ints(v) if ascending => line.sort_by_key(|&a| v[at(a)]),
                Data::Ints(v) => line.sort_by_key(|&a| std::cmp::Reverse(v[at(a)])),
                Data::Strings(_) => return Err(call.fail("`x` must have numeric elements")),
            }
            for (p, &index) in line.iter().take(k).enumerate() {
                out[(o * k + p) * inner + i] = index as i64;
            }
        }
    }
    Ok(out)
}

/// `argsort`: the indices that sort each line (coremltools 9.0).
fn argsort(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.shape.len())?;
    let indices = order(call, x, axis, x.shape[axis], call.flag("ascending")?)?;
    Ok(vec![HeapTensor::ints(DataType::Int32, &x.shape, indices)])
}

/// `topk`: the first `k` of each sorted line, and their indices (coremltools 9.0). `k` of -1 takes
/// all (iOS 17). They are sorted even without `sort`, because any order is allowed then.
fn topk(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.shape.len())?;
    let n = x.shape[axis];
    let k = match call.int("k")? {
        -1 => n,
        k => usize::try_from(k)
            .ok()
            .filter(|&k| k <= n)
            .ok_or_else(|| call.fail(format!("{k} elements of an axis of {n}")))?,
    };
    let indices = order(call, x, axis, k, call.flag("ascending")?)?;
    let mut shape = x.shape.clone();
    shape[axis] = k;
    let (_, _, inner) = around(&x.shape, axis);
    let places = indices.iter().enumerate().map(|(at, &p)| (at / (k * inner) * n + p as usize) * inner + at % inner);
    let mut results = vec![x.pick(&shape, places)];
    if call.results.len() > 1 {
        results.push(HeapTensor::ints(call.dtype(1)?, &shape, indices));
    }
    Ok(results)
}
