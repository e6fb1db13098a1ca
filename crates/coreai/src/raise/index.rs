//! Gathers and scatters.

use super::elementwise::Results;
use super::emit::SCATTER;
use super::state::{Built, Raise, rejected};
use crate::bytecode::ValueId;
use crate::dialect::ElementType::{Bool, Int32};
use crate::dialect::Tensor;

/// Core AI gathers numbers.
fn numbers(r: &mut Raise<'_>, name: &str) -> Built {
    let x = r.x(name)?;
    if r.element(x)? == Bool { r.cast(x, Int32) } else { Ok(x) }
}

/// Leading axes that x and the indices share.
fn batch_axes(r: &Raise<'_>, most: usize) -> Built<usize> {
    let batch = if r.def.param("batch_dims").is_some() { r.int("batch_dims")? } else { 0 };
    match usize::try_from(batch) {
        Ok(batch) if batch <= most => Ok(batch),
        _ => rejected(format!("batch_dims is {batch} of {most} axes")),
    }
}

/// Rows of indices with the place of each row in the first `batch` axes in front.
fn batched(r: &mut Raise<'_>, rows: ValueId, batch: usize) -> Built {
    if batch == 0 {
        return Ok(rows);
    }
    let rows = r.cast(rows, Int32)?;
    let shape = r.shape(rows)?;
    let rank = shape.len();
    let mut single = shape.clone();
    single[rank - 1] = 1;
    let mut columns = Vec::new();
    for axis in 0..batch {
        r.table(&shape[axis..=axis])?;
        let places: Vec<i64> = (0..shape[axis] as i64).collect();
        let places = r.vector(Int32, &places)?;
        let places = r.along(places, axis, rank)?;
        columns.push(r.broadcast_to(places, &single)?);
    }
    columns.push(rows);
    r.concat(&columns, rank - 1)
}

/// With batch axes, the axes between them and `axis` come after those of the indices, and are moved
/// back.
pub(super) fn gather(r: &mut Raise<'_>) -> Results {
    let (x, indices) = (numbers(r, "x")?, r.x("indices")?);
    let rank = r.rank(x)?;
    let axis = r.axis("axis", rank)?;
    let count = r.rank(indices)?;
    let batch = batch_axes(r, axis.min(count))?;
    if batch == 0 {
        return Ok(vec![r.gather(x, indices, axis)?]);
    }
    let order: Vec<usize> = (0..batch).chain([axis]).chain((batch..rank).filter(|&a| a != axis)).collect();
    let x = r.transpose(x, &order)?;
    let rows = r.expand(indices, &[count])?;
    let rows = batched(r, rows, batch)?;
    let found = r.gather_nd(x, rows)?;
    let (between, all) = (axis - batch, count + rank - batch - 1);
    let back: Vec<usize> =
        (0..batch).chain(count..count + between).chain(batch..count).chain(count + between..all).collect();
    Ok(vec![r.transpose(found, &back)?])
}

pub(super) fn gather_along_axis(r: &mut Raise<'_>) -> Results {
    let (x, indices) = (numbers(r, "x")?, r.x("indices")?);
    let axis = r.axis("axis", r.rank(x)?)?;
    Ok(vec![r.gather_along(x, indices, axis)?])
}

pub(super) fn gather_nd(r: &mut Raise<'_>) -> Results {
    let (x, indices) = (numbers(r, "x")?, r.x("indices")?);
    let batch = batch_axes(r, r.rank(indices)?.saturating_sub(1))?;
    let rows = batched(r, indices, batch)?;
    Ok(vec![r.gather_nd(x, rows)?])
}

/// The number of a mode of scattering.
fn mode(r: &Raise<'_>) -> Built<u64> {
    Ok(match r.text("mode")?.as_str() {
        "update" => 0,
        "add" => 1,
        "sub" => 2,
        "mul" => 3,
        "div" => 4,
        "max" => 5,
        "min" => 6,
        other => return rejected(format!("a mode `{other}`")),
    })
}

/// Elements of `data` at an index for each along an axis, combined with updates.
fn scattered_along(r: &mut Raise<'_>, data: ValueId, indices: ValueId, updates: ValueId, axis: usize) -> Built {
    let Tensor { shape, element, .. } = r.tensor(data)?.clone();
    let number = mode(r)?;
    let (indices, updates) = (r.cast(indices, Int32)?, r.cast(updates, element)?);
    let (axis, mode) = (r.scalar(Int32, axis as f64)?, r.choice(SCATTER, number));
    let operands = [data, indices, updates, axis];
    Ok(r.formed("primitive.scatter_along_axis_v1", &operands, Some(("scatter_mode", mode)), shape, element))
}

/// Slices of `data` at rows of indices into its first axes, replaced by updates.
fn replaced(r: &mut Raise<'_>, data: ValueId, rows: ValueId, updates: ValueId) -> Built {
    let rows = r.cast(rows, Int32)?;
    let Tensor { shape, element, .. } = r.tensor(data)?.clone();
    let updates = r.cast(updates, element)?;
    let scalar = Tensor { shape: Vec::new(), element, encoding: None };
    let block = r.isolated(&[scalar.clone(), scalar], |_, values| Ok(values[1]))?;
    let ty = r.b.tensor(&shape, element);
    let values = r.b.ops(&mut r.graph, "primitive.scatter_nd_v1", &[data, rows, updates], &[], &[ty], vec![block]);
    r.tensors.insert(values[0], Tensor { shape, element, encoding: None });
    Ok(values[0])
}

/// Slices of `data` at rows of indices into its first axes, combined with updates. Core AI replaces
/// slices only; other modes go along a single axis, of which each row is one place.
fn scattered(r: &mut Raise<'_>, data: ValueId, rows: ValueId, updates: ValueId) -> Built {
    if mode(r)? == 0 {
        return replaced(r, data, rows, updates);
    }
    let (shape, from) = (r.shape(data)?, r.shape(rows)?);
    let Some((&depth, counts)) = from.split_last() else { return rejected("indices without an axis") };
    let depth = depth as usize;
    if depth > shape.len() {
        return rejected(format!("rows of {depth} indices into {shape:?}"));
    }
    let count: u64 = counts.iter().product();
    let (all, rest): (u64, u64) = (shape[..depth].iter().product(), shape[depth..].iter().product());
    let rows = r.cast(rows, Int32)?;
    let extents: Vec<i64> = shape[..depth].iter().map(|&n| n as i64).collect();
    let extents = r.vector(Int32, &extents)?;
    let zero = r.num(rows, 0.0)?;
    let (negative, moved) = (r.bin("greater", zero, rows)?, r.bin("add", rows, extents)?);
    let rows = r.select(negative, moved, rows)?;
    let strides: Vec<i64> = (1..=depth).map(|i| shape[i..depth].iter().product::<u64>() as i64).collect();
    let strides = r.vector(Int32, &strides)?;
    let weighted = r.bin("mul", rows, strides)?;
    let places = r.reduce("sum", weighted, &[counts.len()])?;
    let places = r.reshaped(places, &[count, 1])?;
    let places = r.broadcast_to(places, &[count, rest])?;
    let data = r.reshaped(data, &[all, rest])?;
    let updates = r.reshaped(updates, &[count, rest])?;
    let y = scattered_along(r, data, places, updates, 0)?;
    r.reshaped(y, &shape)
}

pub(super) fn scatter_nd(r: &mut Raise<'_>) -> Results {
    let (data, indices, updates) = (numbers(r, "data")?, r.x("indices")?, r.x("updates")?);
    Ok(vec![scattered(r, data, indices, updates)?])
}

/// The axis is moved to the front and back.
pub(super) fn scatter(r: &mut Raise<'_>) -> Results {
    let (data, indices, updates) = (numbers(r, "data")?, r.x("indices")?, r.x("updates")?);
    let (rank, count) = (r.rank(data)?, r.rank(indices)?);
    let axis = r.axis("axis", rank)?;
    let front: Vec<usize> = std::iter::once(axis).chain((0..rank).filter(|&a| a != axis)).collect();
    let data = r.transpose(data, &front)?;
    let moved: Vec<usize> = (axis..axis + count).chain(0..axis).chain(axis + count..count + rank - 1).collect();
    let updates = r.transpose(updates, &moved)?;
    let rows = r.expand(indices, &[count])?;
    let y = scattered(r, data, rows, updates)?;
    let back: Vec<usize> = (1..=axis).chain([0]).chain(axis + 1..rank).collect();
    Ok(vec![r.transpose(y, &back)?])
}

pub(super) fn scatter_along_axis(r: &mut Raise<'_>) -> Results {
    let (data, indices, updates) = (numbers(r, "data")?, r.x("indices")?, r.x("updates")?);
    let axis = r.axis("axis", r.rank(data)?)?;
    Ok(vec![scattered_along(r, data, indices, updates, axis)?])
}
