//! Gathers and scatters: each is the other's adjoint.
//!
//! If a scatter overwrites, its indices must be distinct: which of two updates of one element wins
//! is undefined.

use super::constants::int;
use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::op;
use crate::program::{Constant, DataType, ValueId};

pub(super) const RULES: RuleTable = &[
    (op::GATHER, Rule::Vjp(gather)),
    (op::GATHER_ALONG_AXIS, Rule::Vjp(gather_along_axis)),
    (op::GATHER_ND, Rule::Vjp(gather_nd)),
    (op::SCATTER, Rule::Vjp(|p| scattered(p, op::GATHER))),
    (op::SCATTER_ALONG_AXIS, Rule::Vjp(|p| scattered(p, op::GATHER_ALONG_AXIS))),
    (op::SCATTER_ND, Rule::Vjp(|p| scattered(p, op::GATHER_ND))),
    (op::TOPK, Rule::Vjp(topk)),
    (op::ARGSORT, Rule::Zero("returns positions")),
];

fn axis(p: &Pullback<'_, '_>, name: &str) -> Result<usize, GradError> {
    Ok(p.c.axis("axis", p.shape_of(name)?.len())?)
}

/// `updates` scattered into zeros of this shape, by addition.
pub(super) fn scatter_into(
    p: &mut Pullback<'_, '_>,
    shape: &[usize],
    indices: ValueId,
    updates: ValueId,
    axis: usize,
) -> Expr {
    scatter(p, op::SCATTER, shape, indices, updates, Some(axis))
}

fn scatter(
    p: &mut Pullback<'_, '_>,
    op: &str,
    shape: &[usize],
    indices: ValueId,
    updates: ValueId,
    axis: Option<usize>,
) -> Expr {
    let zeros = p.zeros_like(updates, shape)?;
    let indices = p.cast_to_int(indices)?;
    let mode = Constant::string("add");
    let mut args =
        vec![("data", zeros.into()), ("indices", indices.into()), ("updates", updates.into()), ("mode", mode.into())];
    args.extend(axis.map(|a| ("axis", Constant::int32(int(a)).into())));
    p.emit(op, args)
}

impl Pullback<'_, '_> {
    /// Indices as int32, which every opset's scatter takes.
    fn cast_to_int(&mut self, indices: ValueId) -> Expr {
        match self.dtype(indices) {
            Some(DataType::Int32) => Ok(indices),
            _ => self.cast(indices, DataType::Int32),
        }
    }
}

fn batch_dims(p: &Pullback<'_, '_>) -> Result<usize, GradError> {
    let given = if p.c.def.param("batch_dims").is_some() { p.c.int("batch_dims")? } else { 0 };
    Ok(usize::try_from(given).unwrap_or(0))
}

/// Without batch axes this is a `scatter`. With them, batches and the gathered axis become one
/// axis, and the indices are offset by batch.
fn gather(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (shape, index_shape, batch) = (p.shape_of("x")?, p.shape_of("indices")?, batch_dims(p)?);
    let (axis, dy, indices) = (axis(p, "x")?, p.dy()?, p.x("indices")?);
    if batch == 0 {
        // A scalar index leaves no axis; `scatter` needs one.
        let (indices, dy) = match index_shape.is_empty() {
            true => {
                let indices = p.reshape(indices, &[1])?;
                let mut one = shape.clone();
                one[axis] = 1;
                (indices, p.reshape(dy, &one)?)
            }
            false => (indices, dy),
        };
        let dx = scatter_into(p, &shape, indices, dy, axis)?;
        return p.give("x", dx);
    }
    let batches: usize = shape[..batch].iter().product();
    let (middle, n): (usize, usize) = (shape[batch..axis].iter().product(), shape[axis]);
    let inner: usize = shape[axis + 1..].iter().product();
    let each: usize = index_shape[batch..].iter().product();
    let indices = p.cast_to_int(indices)?;
    let indices = p.reshape(indices, &[batches, each])?;
    let negative = p.with(op::LESS, indices, 0.0)?;
    let wrapped = p.with(op::ADD, indices, n as f32)?;
    let indices = p.select(negative, wrapped, indices)?;
    let starts: Vec<i32> = (0..batches).map(|b| int(b * n)).collect();
    let starts = p.constant(Constant::raw(DataType::Int32, &[batches, 1], bytemuck::cast_slice(&starts)))?;
    let indices = p.add(indices, starts)?;
    let indices = p.reshape(indices, &[batches * each])?;
    let d = p.reshape(dy, &[batches, middle, each, inner])?;
    let d = p.transpose(d, &[0, 2, 1, 3])?;
    let d = p.reshape(d, &[batches * each, middle * inner])?;
    let d = scatter_into(p, &[batches * n, middle * inner], indices, d, 0)?;
    let d = p.reshape(d, &[batches, n, middle, inner])?;
    let d = p.transpose(d, &[0, 2, 1, 3])?;
    let dx = p.reshape(d, &shape)?;
    p.give("x", dx)
}

fn gather_along_axis(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (shape, axis, dy, indices) = (p.shape_of("x")?, axis(p, "x")?, p.dy()?, p.x("indices")?);
    let dx = scatter(p, op::SCATTER_ALONG_AXIS, &shape, indices, dy, Some(axis))?;
    p.give("x", dx)
}

fn gather_nd(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (shape, index_shape, batch) = (p.shape_of("x")?, p.shape_of("indices")?, batch_dims(p)?);
    let (dy, mut indices) = (p.dy()?, p.x("indices")?);
    if batch > 0 {
        // The index of the batch, prepended to each index.
        let outer = index_shape[..index_shape.len() - 1].to_vec();
        let count: usize = outer.iter().product();
        let mut places: Vec<i32> = Vec::with_capacity(count * batch);
        for n in 0..count {
            let mut rest = n;
            let coordinates: Vec<i32> =
                outer.iter().rev().map(|&e| (int(rest % e.max(1)), rest /= e.max(1)).0).collect();
            places.extend(coordinates.iter().rev().take(batch));
        }
        let mut place_shape = outer.clone();
        place_shape.push(batch);
        let places = p.constant(Constant::raw(DataType::Int32, &place_shape, bytemuck::cast_slice(&places)))?;
        indices = p.cast_to_int(indices)?;
        let axis = Constant::int32(int(outer.len()));
        let interleave = Constant::bool(false);
        let values = vec![places, indices];
        indices =
            p.emit(op::CONCAT, [("values", values.into()), ("axis", axis.into()), ("interleave", interleave.into())])?;
    }
    let dx = scatter(p, op::SCATTER_ND, &shape, indices, dy, None)?;
    p.give("x", dx)
}

/// `data` with `updates` written or added at `indices`; `gather` is the op that reads those
/// elements.
fn scattered(p: &mut Pullback<'_, '_>, gather: &str) -> Result<(), GradError> {
    let mode = p.c.text("mode")?;
    if !matches!(mode.as_str(), "add" | "sub" | "update") {
        return Err(p.refuse(format!("mode \"{mode}\" has no rule")));
    }
    let along = match p.c.def.param("axis") {
        Some(_) => Some(axis(p, "data")?),
        None => None,
    };
    let (dy, indices) = (p.dy()?, p.x("indices")?);
    let indices = p.cast_to_int(indices)?;
    if p.wants("data") {
        let d = match mode.as_str() {
            "update" => {
                let shape = p.shape_of("updates")?;
                let zeros = p.zeros_like(dy, &shape)?;
                let mode = Constant::string("update");
                let mut args = vec![
                    ("data", dy.into()),
                    ("indices", indices.into()),
                    ("updates", zeros.into()),
                    ("mode", mode.into()),
                ];
                args.extend(along.map(|a| ("axis", Constant::int32(int(a)).into())));
                let op = p.op.name.clone();
                p.emit(&op, args)?
            }
            _ => dy,
        };
        p.give("data", d)?;
    }
    if p.wants("updates") {
        let mut args = vec![("x", dy.into()), ("indices", indices.into())];
        args.extend(along.map(|a| ("axis", Constant::int32(int(a)).into())));
        let mut d = p.emit(gather, args)?;
        if mode == "sub" {
            d = p.neg(d)?;
        }
        p.give("updates", d)?;
    }
    Ok(())
}

/// The cotangents of the values are scattered to their positions.
fn topk(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let Some(dy) = p.cotangent(0) else { return Ok(()) };
    if p.op.outputs.len() < 2 {
        return Err(p.refuse("does not give the places of its values"));
    }
    let (shape, axis, indices) = (p.shape_of("x")?, axis(p, "x")?, p.y(1)?);
    let dx = scatter(p, op::SCATTER_ALONG_AXIS, &shape, indices, dy, Some(axis))?;
    p.give("x", dx)
}
