//! Slices and slice updates.
//!
//! The adjoint of a slice at a known position is padding. If the position is known only at run
//! time, the cotangent is written into zeros with `slice_update`, which exists from opset ios18 on.

use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::op;
use crate::opset::Opset;
use crate::program::{Arg, Constant, ValueId};

pub(super) const RULES: RuleTable = &[
    (op::SLICE_BY_SIZE, Rule::Vjp(slice_by_size)),
    (op::SLICE_BY_INDEX, Rule::Vjp(slice_by_index)),
    (op::SLICE_UPDATE, Rule::Vjp(slice_update)),
    (op::SLIDING_WINDOWS, Rule::Vjp(sliding_windows)),
];

fn slice_by_size(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (shape, sizes, mut d) = (p.shape_of("x")?, p.result_shape(0)?, p.dy()?);
    if p.c.constant("begin").is_none() {
        let begin = p.x("begin")?;
        let begin = p.cast(begin, crate::program::DataType::Int32)?;
        let size = p.constant(super::constants::ints(&sizes))?;
        let end = p.add(begin, size)?;
        let dx = update(p, &shape, d, &[("begin", begin.into()), ("end", end.into())])?;
        return p.give("x", dx);
    }
    let begin = p.c.ints("begin")?;
    let mut pads = Vec::with_capacity(shape.len());
    for i in 0..shape.len() {
        let at = if begin[i] < 0 { begin[i] + shape[i] as i64 } else { begin[i] };
        let at = usize::try_from(at).unwrap_or(0);
        pads.push((at, shape[i].saturating_sub(at + sizes[i])));
    }
    d = p.pad(d, &pads)?;
    p.give("x", d)
}

/// `d` written into zeros.
fn update(p: &mut Pullback<'_, '_>, shape: &[usize], d: ValueId, place: &[(&str, Arg)]) -> Expr {
    if p.opset() < Opset::IOS18 {
        return Err(p.refuse("the place of the slice is not known, and only opset ios18 has `slice_update`"));
    }
    let zeros = p.zeros_like(d, shape)?;
    let args = [("x", zeros.into()), ("update", d.into())].into_iter().chain(place.iter().cloned());
    p.emit(op::SLICE_UPDATE, args)
}

/// The arguments of an op that determine the position of a slice.
fn place(p: &mut Pullback<'_, '_>) -> Result<Vec<(&'static str, Arg)>, GradError> {
    let mut args = Vec::new();
    for name in ["begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask"] {
        if p.c.has(name) {
            args.push((name, p.x(name)?.into()));
        }
    }
    Ok(args)
}

fn flags(p: &Pullback<'_, '_>, name: &str, rank: usize) -> Result<Vec<bool>, GradError> {
    let given = p.c.ints_if(name)?;
    Ok(given.map_or_else(|| vec![false; rank], |v| v.iter().map(|&m| m != 0).collect()))
}

fn slice_by_index(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (shape, dy) = (p.shape_of("x")?, p.dy()?);
    let rank = shape.len();
    if p.c.constant("begin").is_none() || p.c.constant("end").is_none() {
        p.result_shape(0)?;
        let place = place(p)?;
        let dx = update(p, &shape, dy, &place)?;
        return p.give("x", dx);
    }
    let begin = p.c.ints("begin")?;
    let stride = p.c.ints_if("stride")?.unwrap_or_else(|| vec![1; rank]);
    let (masked, squeezed) = (flags(p, "begin_mask", rank)?, flags(p, "squeeze_mask", rank)?);
    // Restores the squeezed axes, with one element.
    let mut sizes = Vec::with_capacity(rank);
    let mut rest = p.result_shape(0)?.into_iter();
    for &gone in &squeezed {
        sizes.push(if gone { 1 } else { rest.next().unwrap_or(1) });
    }
    let mut d = p.reshape(dy, &sizes)?;
    for axis in 0..rank {
        let n = shape[axis] as i64;
        let step = if squeezed[axis] { 1 } else { stride[axis] };
        let edge = if step > 0 { 0 } else { n - 1 };
        let wrapped = if begin[axis] < 0 { begin[axis].saturating_add(n) } else { begin[axis] };
        let first = if masked[axis] && !squeezed[axis] { edge } else { wrapped.clamp(0, (n - 1).max(0)) };
        let width = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
        if step < 0 {
            d = p.reverse(d, &[axis])?;
        }
        d = p.dilate(d, axis, width)?;
        let reach = p.shape(d)?[axis];
        let first = usize::try_from(first).unwrap_or(0);
        // With a negative stride, `first` is the position of the last element.
        let offset = if step < 0 { (first + 1).saturating_sub(reach) } else { first };
        d = p.place(d, axis, offset, shape[axis])?;
    }
    p.give("x", d)
}

/// `x` with `update` written over a slice.
fn slice_update(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let dy = p.dy()?;
    let place = place(p)?;
    if p.wants("x") {
        let shape = p.shape_of("update")?;
        let zeros = p.zeros_like(dy, &shape)?;
        let args = [("x", dy.into()), ("update", zeros.into())].into_iter().chain(place.clone());
        let dx = p.emit(op::SLICE_UPDATE, args)?;
        p.give("x", dx)?;
    }
    if p.wants("update") {
        let shape = p.shape_of("update")?;
        let args = [("x", dy.into())].into_iter().chain(place);
        let d = p.emit(op::SLICE_BY_INDEX, args)?;
        if p.tape.b.shape(d).ok().is_some_and(|s| s != shape) {
            return Err(p.refuse("the slice and what is written over it differ in shape"));
        }
        p.give("update", d)?;
    }
    Ok(())
}

/// Each element is added at the position that its window read: element `j` of window `i` at `i ·
/// stride + j`.
fn sliding_windows(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (shape, windows) = (p.shape_of("x")?, p.result_shape(0)?);
    let axis = p.c.axis("axis", shape.len())?;
    let stride = i32::try_from(p.c.int("stride")?).unwrap_or(1);
    let (count, size) = (windows[axis], windows[axis + 1]);
    let indices: Vec<i32> = (0..count * size)
        .map(|n| super::constants::int(n / size).saturating_mul(stride).saturating_add(super::constants::int(n % size)))
        .collect();
    let indices = Constant::raw(crate::program::DataType::Int32, &[count, size], bytemuck::cast_slice(&indices));
    let indices = p.constant(indices)?;
    let dy = p.dy()?;
    let dx = super::gather::scatter_into(p, &shape, indices, dy, axis)?;
    p.give("x", dx)
}
