//! Slices: by size (with -1 for "to the end") and by index (strides and masks).

use super::infer::{show, tensor};
use super::{INDICES, InferContext, MOVABLE, OpDef, Param, bool_const, int_const, x_of};
use crate::error::MilError;
use crate::program::{Dim, Type};

const BY_SIZE: &[Param] = &[x_of(MOVABLE), Param::new("begin", INDICES), Param::new("size", INDICES)];
const BY_INDEX: &[Param] = &[
    x_of(MOVABLE),
    Param::new("begin", INDICES),
    Param::new("end", INDICES),
    int_const("stride").optional(),
    bool_const("begin_mask").optional(),
    bool_const("end_mask").optional(),
    bool_const("squeeze_mask").optional(),
];

pub(super) const OPS: &[OpDef] =
    &[OpDef::new("slice_by_size", BY_SIZE, by_size_rule), OpDef::new("slice_by_index", BY_INDEX, by_index_rule)];

/// Values of an index argument, `None` where it is known only at run time.
fn known(c: &InferContext<'_>, name: &str, rank: usize) -> Result<Option<Vec<i64>>, MilError> {
    if c.has(name) && c.constant(name).is_none() {
        return Ok(None);
    }
    let values = c.ints(name)?;
    if values.len() != rank {
        return Err(c.fail(format!("`{name}` has {} entries, x has rank {rank}", values.len())));
    }
    Ok(Some(values))
}

fn by_size_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let begin = known(c, "begin", x.len())?;
    let size = known(c, "size", x.len())?;
    let mut shape = Vec::with_capacity(x.len());
    for i in 0..x.len() {
        let at = begin.as_ref().map(|b| b[i]);
        let want = size.as_ref().map(|s| s[i]);
        let fail = || {
            c.fail(format!(
                "begin {:?} size {:?} leave {}",
                begin.as_deref().unwrap_or(&[]),
                size.as_deref().unwrap_or(&[]),
                show(&x)
            ))
        };
        let Dim::Fixed(extent) = x[i] else {
            shape.push(match want {
                Some(n) if n >= 0 => Dim::Fixed(n as usize),
                _ => Dim::Unknown,
            });
            continue;
        };
        let extent = extent as i64;
        // A negative begin counts from the end.
        let at = at.map(|b| if b < 0 { b + extent } else { b });
        if at.is_some_and(|b| b < 0 || b > extent) {
            return Err(fail());
        }
        shape.push(match (at, want) {
            (Some(b), Some(-1)) if b < extent => Dim::Fixed((extent - b) as usize),
            (b, Some(n)) if n > 0 && n <= extent - b.unwrap_or(0) => Dim::Fixed(n as usize),
            (None, Some(-1)) | (_, None) => Dim::Unknown,
            _ => return Err(fail()),
        });
    }
    Ok(tensor(dtype, shape))
}

fn mask(c: &InferContext<'_>, name: &str, rank: usize) -> Result<Vec<bool>, MilError> {
    let mask = c.ints_if(name)?.unwrap_or_else(|| vec![0; rank]);
    if mask.len() != rank {
        return Err(c.fail(format!("`{name}` has {} entries, x has rank {rank}", mask.len())));
    }
    Ok(mask.iter().map(|&m| m != 0).collect())
}

/// As Python slices: negative bounds count from the end, both are clamped; a masked bound means "from the edge".
fn by_index_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let rank = x.len();
    let (begin, end) = (known(c, "begin", rank)?, known(c, "end", rank)?);
    let stride = if c.has("stride") { known(c, "stride", rank)? } else { None }.unwrap_or_else(|| vec![1; rank]);
    let (begin_mask, end_mask) = (mask(c, "begin_mask", rank)?, mask(c, "end_mask", rank)?);
    let squeeze = mask(c, "squeeze_mask", rank)?;
    let mut shape = Vec::with_capacity(rank);
    for i in 0..rank {
        if squeeze[i] {
            if let (Dim::Fixed(n), Some(b)) = (&x[i], &begin) {
                let n = *n as i64;
                if b[i] < -n || b[i] >= n {
                    return Err(c.fail(format!("index {} is outside of axis {i} of {}", b[i], show(&x))));
                }
            }
            continue;
        }
        let step = stride[i];
        if step == 0 {
            return Err(c.fail("a stride is 0"));
        }
        let bound = |masked: bool, values: &Option<Vec<i64>>, edge: i64| {
            if masked { Some(edge) } else { values.as_ref().map(|v| v[i]) }
        };
        let Dim::Fixed(n) = x[i] else {
            shape.push(Dim::Unknown);
            continue;
        };
        let n = n as i64;
        let wrap = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let (first, last) = if step > 0 { (0, n) } else { (n - 1, -1) };
        let from = if begin_mask[i] { Some(first) } else { bound(false, &begin, 0).map(|v| wrap(v).clamp(low, high)) };
        let to = if end_mask[i] { Some(last) } else { bound(false, &end, 0).map(|v| wrap(v).clamp(low, high)) };
        let (Some(from), Some(to)) = (from, to) else {
            shape.push(Dim::Unknown);
            continue;
        };
        let span = if step > 0 { to - from } else { from - to };
        let count = if span <= 0 { 0 } else { (span + step.abs() - 1) / step.abs() };
        if count == 0 {
            return Err(c.fail(format!("the slice of axis {i} of {} is empty", show(&x))));
        }
        shape.push(Dim::Fixed(count as usize));
    }
    Ok(tensor(dtype, shape))
}
