//! Slices: by size (with -1 for "to the end") and by index (strides and masks).

use super::infer::{InferContext, fits, same, show, tensor};
use super::signature::{BASIC, COUNTS, INT32, MOVABLE, OpDef, Param, bool_const, int_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{Dim, Type};

const BY_SIZE: OpDef = OpDef::new(
    op::SLICE_BY_SIZE,
    "a part of x, by begin and size",
    &[x_of(BASIC), Param::new("begin", INT32), Param::new("size", INT32)],
    by_size_rule,
);
const BEGIN_MASK: Param = bool_const("begin_mask").optional();
const END_MASK: Param = bool_const("end_mask").optional();
const SQUEEZE_MASK: Param = bool_const("squeeze_mask").optional();
const BY_INDEX: OpDef = OpDef::new(
    op::SLICE_BY_INDEX,
    "a part of x, by begin, end and stride",
    &[
        x_of(BASIC),
        Param::new("begin", INT32),
        Param::new("end", INT32),
        int_const("stride").optional(),
        BEGIN_MASK,
        END_MASK,
        SQUEEZE_MASK,
    ],
    by_index_rule,
);
const BEGIN_17: Param = Param::new("begin", COUNTS).of("U");
const END_17: Param = Param::new("end", COUNTS).of("U");
const STRIDE_17: Param = Param::new("stride", COUNTS).of("U").constant().optional();
const UPDATE: &[Param] = &[
    x_of(MOVABLE),
    Param::new("update", MOVABLE).of("T"),
    BEGIN_17,
    END_17,
    STRIDE_17,
    BEGIN_MASK,
    END_MASK,
    SQUEEZE_MASK,
];

pub(super) const OPS: &[OpDef] = &[
    BY_SIZE,
    BY_SIZE.again(Opset::IOS17, &[x_of(MOVABLE), BEGIN_17, Param::new("size", COUNTS).of("U")]),
    BY_INDEX,
    BY_INDEX.again(Opset::IOS17, &[x_of(MOVABLE), BEGIN_17, END_17, STRIDE_17, BEGIN_MASK, END_MASK, SQUEEZE_MASK]),
    OpDef::new(op::SLICE_UPDATE, "x with a part replaced", UPDATE, update_rule).since(Opset::IOS18),
];

/// Values of an index argument, `None` where it is known only at run time.
fn known(c: &InferContext<'_>, name: &str, rank: usize) -> Result<Option<Vec<i64>>, MilError> {
    let (_, length) = c.ranked(name, 1)?;
    if same(&length[0], &Dim::Fixed(rank)).is_none() {
        return Err(c.fail(format!("`{name}` has {} entries, x has rank {rank}", show(&length))));
    }
    let Some(values) = c.ints_known(name)? else { return Ok(None) };
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

fn by_index_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    Ok(tensor(dtype, sliced(c, &x)?))
}

/// The update has the shape of the part.
fn update_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, update)) = (c.tensor("x")?, c.tensor("update")?);
    let part = sliced(c, &x)?;
    if update.is_empty() || !fits(&part, &update) {
        return Err(c.fail(format!("update {} must be {} and no scalar", show(&update), show(&part))));
    }
    Ok(tensor(dtype, x))
}

/// As Python slices: negative bounds count from the end, both are clamped; a masked bound means
/// "from the edge".
fn sliced(c: &InferContext<'_>, x: &[Dim]) -> Result<Vec<Dim>, MilError> {
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
                    return Err(c.fail(format!("index {} is outside of axis {i} of {}", b[i], show(x))));
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
        let (b, e) = (begin.as_ref().map(|v| v[i]), end.as_ref().map(|v| v[i]));
        let Dim::Fixed(n) = x[i] else {
            shape.push(of_unknown(
                step,
                b.filter(|_| !begin_mask[i]),
                e.filter(|_| !end_mask[i]),
                begin_mask[i],
                end_mask[i],
                &x[i],
            ));
            continue;
        };
        let n = n as i64;
        let wrap = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let (first, last) = if step > 0 { (0, n) } else { (n - 1, -1) };
        let from = if begin_mask[i] { Some(first) } else { bound(false, &begin, 0).map(|v| wrap(v).clamp(low, high)) };
        let to = if end_mask[i] { Some(last) } else { bound(false, &end, 0).map(|v| wrap(v).clamp(low, high)) };
        let (Some(from), Some(to)) = (from, to) else {
            // A part of one element that is there is that element.
            shape.push(if n == 1 { Dim::Fixed(1) } else { Dim::Unknown });
            continue;
        };
        let span = if step > 0 { to - from } else { from - to };
        let count = if span <= 0 { 0 } else { (span + step.abs() - 1) / step.abs() };
        let backwards = !begin_mask[i]
            && !end_mask[i]
            && step > 0
            && matches!((b, e), (Some(0..), Some(e)) if b > Some(e) && e >= 0);
        if backwards {
            return Err(c.fail(format!("the slice of axis {i} of {} ends before it begins", show(x))));
        }
        shape.push(Dim::Fixed(count as usize));
    }
    Ok(shape)
}

/// The extent of a slice of an axis that is not known: one or none where the bounds say so for
/// every extent.
fn of_unknown(step: i64, begin: Option<i64>, end: Option<i64>, from_edge: bool, to_edge: bool, extent: &Dim) -> Dim {
    match (begin, end) {
        _ if from_edge && to_edge && step.abs() == 1 => extent.clone(),
        (Some(-1), _) if to_edge && step > 0 => Dim::Fixed(1),
        (Some(0), _) if to_edge && step < 0 => Dim::Fixed(1),
        (Some(b @ 0..), Some(e @ 0..)) if step > 0 && e <= b => Dim::Fixed(0),
        (Some(b @ 0..), Some(e @ 0..)) if step > 0 && e - b <= step => Dim::Fixed(1),
        _ => Dim::Unknown,
    }
}
