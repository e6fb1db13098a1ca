//! Reductions, running sums, orders, products of matrices.

use super::elementwise::Results;
use super::emit::COMBINER;
use super::state::{Built, Raise, rejected, unmapped};
use crate::bytecode::ValueId;
use crate::dialect::ElementType::{Bool, Float32, Int32, UInt32};
use crate::dialect::{ElementType, Tensor};

/// A reduction of `x` over the axes of the op, by a function; without `keep_dims` the axes are
/// removed. fp16 is reduced in fp32 if `wide`.
fn reduced(r: &mut Raise<'_>, wide: bool, work: impl FnOnce(&mut Raise<'_>, ValueId, &[usize]) -> Built) -> Results {
    let x = r.x("x")?;
    let mut axes = r.axes("axes", r.rank(x)?)?;
    axes.sort_unstable();
    let (element, keep) = (r.element(x)?, r.flag("keep_dims")?);
    let x = if wide { r.wide(x)? } else { x };
    let y = work(r, x, &axes)?;
    let y = r.cast(y, element)?;
    Ok(vec![if keep { y } else { r.shrink(y, &axes)? }])
}

/// Defines the rule of a reduction that Core AI has.
macro_rules! direct {
    ($($name:ident = $op:literal;)*) => {
        $(pub(super) fn $name(r: &mut Raise<'_>) -> Results {
            reduced(r, false, |r, x, axes| r.reduce($op, x, axes))
        })*
    };
}

direct! {
    reduce_max = "max";
    reduce_min = "min";
    reduce_prod = "product";
    reduce_sum = "sum";
}

pub(super) fn reduce_mean(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    match r.is_float(x)? {
        true => reduced(r, false, |r, x, axes| r.reduce("mean", x, axes)),
        false => unmapped("Core AI's mean of integers is not the one of MIL, which rounds toward zero"),
    }
}

pub(super) fn reduce_l1_norm(r: &mut Raise<'_>) -> Results {
    reduced(r, false, |r, x, axes| {
        let size = r.un("primitive.abs_v1", x)?;
        r.reduce("sum", size, axes)
    })
}

fn sum_of_squares(r: &mut Raise<'_>, x: ValueId, axes: &[usize]) -> Built {
    let square = r.bin("mul", x, x)?;
    r.reduce("sum", square, axes)
}

pub(super) fn reduce_sum_square(r: &mut Raise<'_>) -> Results {
    reduced(r, true, sum_of_squares)
}

/// The functions of the sum are those of floating-point numbers.
fn floats_only(r: &mut Raise<'_>) -> Built<()> {
    let x = r.x("x")?;
    if r.is_float(x)? { Ok(()) } else { unmapped("Core AI has roots and logarithms of floating-point numbers only") }
}

pub(super) fn reduce_l2_norm(r: &mut Raise<'_>) -> Results {
    floats_only(r)?;
    reduced(r, true, |r, x, axes| {
        let sum = sum_of_squares(r, x, axes)?;
        r.un("primitive.sqrt_v1", sum)
    })
}

pub(super) fn reduce_log_sum(r: &mut Raise<'_>) -> Results {
    floats_only(r)?;
    reduced(r, true, |r, x, axes| {
        let sum = r.reduce("sum", x, axes)?;
        r.un("primitive.log_v1", sum)
    })
}

pub(super) fn reduce_log_sum_exp(r: &mut Raise<'_>) -> Results {
    floats_only(r)?;
    reduced(r, true, |r, x, axes| {
        let largest = r.reduce("max", x, axes)?;
        let below = r.bin("sub", x, largest)?;
        let powers = r.un("primitive.exp_v1", below)?;
        let sum = r.reduce("sum", powers, axes)?;
        let log = r.un("primitive.log_v1", sum)?;
        r.bin("add", log, largest)
    })
}

/// The place of the largest element of x along the axis of the op.
fn place(r: &mut Raise<'_>, x: ValueId) -> Results {
    let axis = r.axis("axis", r.rank(x)?)?;
    let y = r.argmax(x, axis)?;
    let y = r.cast(y, r.result(0)?.element)?;
    Ok(vec![if r.flag("keep_dims")? { y } else { r.shrink(y, &[axis])? }])
}

pub(super) fn reduce_argmax(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    place(r, x)
}

/// Of -x, or of -1 - x, which no integer leaves.
pub(super) fn reduce_argmin(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let top = r.num(x, if r.is_float(x)? { 0.0 } else { -1.0 })?;
    let x = r.bin("sub", top, x)?;
    place(r, x)
}

/// A running sum; without the element itself, it is moved by one place.
pub(super) fn cumsum(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let Tensor { shape, element, .. } = r.tensor(x)?.clone();
    let axis = r.axis("axis", shape.len())?;
    let (exclusive, reverse) = (r.flag("exclusive")?, r.flag("reverse")?);
    let operands = [x, r.scalar(UInt32, axis as f64)?, r.scalar(Bool, f64::from(u8::from(reverse)))?];
    let sum = r.choice(COMBINER, 0);
    let y = r.formed("primitive.scan_v1", &operands, Some(("combiner", sum)), shape.clone(), element);
    if !exclusive {
        return Ok(vec![y]);
    }
    let Some(extent) = shape[axis] else { return unmapped("it needs the extent of its axis") };
    let mut pads = vec![0; 2 * shape.len()];
    let kept = if reverse {
        pads[2 * axis + 1] = 1;
        r.part(y, axis, 1, extent.saturating_sub(1))?
    } else {
        pads[2 * axis] = 1;
        r.part(y, axis, 0, extent.saturating_sub(1))?
    };
    Ok(vec![r.padded(kept, &pads, 0.0)?])
}

/// The order of the elements along an axis, equal ones in their order.
fn order(r: &mut Raise<'_>, x: ValueId, axis: usize, ascending: bool) -> Built {
    let shape = r.extents(x)?;
    let operands =
        [x, r.scalar(Int32, axis as f64)?, r.scalar(Bool, f64::from(u8::from(!ascending)))?, r.scalar(Bool, 1.0)?];
    Ok(r.op("primitive.argsort_v1", &operands, shape, Int32))
}

pub(super) fn argsort(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let axis = r.axis("axis", r.rank(x)?)?;
    let ascending = r.flag("ascending")?;
    Ok(vec![order(r, x, axis, ascending)?])
}

pub(super) fn topk(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let shape = r.extents(x)?;
    let axis = r.axis("axis", shape.len())?;
    let (k, ascending) = (r.int("k")?, r.flag("ascending")?);
    let mut indices = order(r, x, axis, ascending)?;
    if k >= 0 {
        indices = r.part(indices, axis, 0, k as u64)?;
    }
    let mut results = vec![r.gather_along(x, indices, axis)?];
    if r.op.outputs.len() > 1 {
        let element = r.result(1)?.element;
        results.push(r.cast(indices, element)?);
    }
    Ok(results)
}

pub(super) fn non_zero(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let rank = r.rank(x)? as u64;
    let found = r.op("primitive.non_zero_v1", &[x], vec![None, Some(rank)], Int32);
    Ok(vec![found])
}

pub(super) fn matmul(r: &mut Raise<'_>) -> Results {
    let element = r.result(0)?.element;
    let (x, y) = (r.x("x")?, r.x("y")?);
    let (mut x, mut y) = (r.cast(x, element)?, r.cast(y, element)?);
    let vectors = (r.rank(x)? == 1, r.rank(y)? == 1);
    match vectors.0 {
        true => x = r.expand(x, &[0])?,
        false if r.flag("transpose_x")? => x = r.swapped(x)?,
        false => {}
    }
    match vectors.1 {
        true => y = r.expand(y, &[1])?,
        false if r.flag("transpose_y")? => y = r.swapped(y)?,
        false => {}
    }
    let z = r.product(x, y)?;
    let rank = r.rank(z)?;
    let mut gone = Vec::new();
    if vectors.0 {
        gone.push(rank - 2);
    }
    if vectors.1 {
        gone.push(rank - 1);
    }
    Ok(vec![r.shrink(z, &gone)?])
}

/// `x · weightᵀ + bias`.
pub(super) fn linear(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let weight = r.as_type_of("weight", x)?;
    let rank = r.rank(x)?;
    let rows = if rank == 1 { r.expand(x, &[0])? } else { x };
    let weight = r.swapped(weight)?;
    let mut y = r.product(rows, weight)?;
    if rank == 1 {
        y = r.shrink(y, &[0])?;
    }
    if r.has("bias") {
        let bias = r.as_type_of("bias", x)?;
        y = r.bin("add", y, bias)?;
    }
    Ok(vec![y])
}

/// `nchw,nwhr->nchr` and `chw,whr->chr`: products of matrices for each h.
pub(super) fn einsum(r: &mut Raise<'_>) -> Results {
    let values = r.list("values")?;
    let [x, y] = values[..] else { return rejected("it takes two tensors") };
    let n = match (r.rank(x)?, r.rank(y)?) {
        (4, 4) => 1,
        (3, 3) => 0,
        _ => return rejected("its operands have another rank than its equation"),
    };
    let order = |a: usize, b: usize, c: usize| -> Vec<usize> { (0..n).chain([n + a, n + b, n + c]).collect() };
    let x = r.transpose(x, &order(1, 0, 2))?;
    let y = r.transpose(y, &order(1, 0, 2))?;
    let z = r.product(x, y)?;
    Ok(vec![r.transpose(z, &order(1, 0, 2))?])
}

/// `softmax(query · keyᵀ / √E + mask) · value`.
pub(super) fn attention(r: &mut Raise<'_>) -> Results {
    let (query, key, value) = (r.x("query")?, r.x("key")?, r.x("value")?);
    let Some(Some(width)) = r.extents(query)?.last().copied() else {
        return unmapped("it needs the width of its queries");
    };
    let query = r.with("mul", query, 1.0 / (width as f64).sqrt())?;
    let key = r.swapped(key)?;
    let mut scores = r.product(query, key)?;
    if r.has("attn_mask") {
        let mask = r.x("attn_mask")?;
        scores = if r.element(mask)? == Bool {
            let never = r.num(scores, f64::NEG_INFINITY)?;
            r.select(mask, scores, never)?
        } else {
            let element = r.element(scores)?;
            let mask = r.cast(mask, element)?;
            r.bin("add", scores, mask)?
        };
    }
    let rank = r.rank(scores)?;
    let weights = r.softmax(scores, rank - 1)?;
    Ok(vec![r.product(weights, value)?])
}

/// Values that are normalized in fp32: x, and what the op has of the parameters.
struct Normal {
    x: ValueId,
    element: ElementType,
}

impl Normal {
    fn new(r: &mut Raise<'_>) -> Built<Normal> {
        let x = r.x("x")?;
        Ok(Normal { element: r.element(x)?, x: r.wide(x)? })
    }

    /// `y · gamma + beta`, each of which broadcasts after `shaped`, in the type of x.
    fn finish(self, r: &mut Raise<'_>, mut y: ValueId, shaped: impl Fn(&mut Raise<'_>, ValueId) -> Built) -> Results {
        for (name, op) in [("gamma", "mul"), ("beta", "add")] {
            if r.has(name) {
                let value = r.x(name)?;
                let value = r.cast(value, Float32)?;
                let value = shaped(r, value)?;
                y = r.bin(op, y, value)?;
            }
        }
        Ok(vec![r.cast(y, self.element)?])
    }
}

/// x without its mean over axes, and over its deviation.
fn normalized(r: &mut Raise<'_>, x: ValueId, axes: &[usize]) -> Built {
    let mean = r.reduce("mean", x, axes)?;
    let centered = r.bin("sub", x, mean)?;
    let square = r.bin("mul", centered, centered)?;
    let variance = r.reduce("mean", square, axes)?;
    let epsilon = r.number("epsilon")?;
    let sum = r.with("add", variance, epsilon)?;
    let scale = r.un("primitive.rsqrt_v1", sum)?;
    r.bin("mul", centered, scale)
}

pub(super) fn layer_norm(r: &mut Raise<'_>) -> Results {
    let normal = Normal::new(r)?;
    let rank = r.rank(normal.x)?;
    let mut axes = r.axes("axes", rank)?;
    axes.sort_unstable();
    let y = normalized(r, normal.x, &axes)?;
    // The parameters have the axes alone.
    let first = axes.first().copied().unwrap_or(rank);
    let between: Vec<usize> = (first..rank).filter(|a| !axes.contains(a)).map(|a| a - first).collect();
    normal.finish(r, y, |r, value| r.expand(value, &between))
}

pub(super) fn instance_norm(r: &mut Raise<'_>) -> Results {
    let normal = Normal::new(r)?;
    let rank = r.rank(normal.x)?;
    let y = normalized(r, normal.x, &(2..rank).collect::<Vec<_>>())?;
    normal.finish(r, y, |r, value| r.along(value, 1, rank))
}

pub(super) fn batch_norm(r: &mut Raise<'_>) -> Results {
    let normal = Normal::new(r)?;
    let rank = r.rank(normal.x)?;
    let (mean, variance) = (r.x("mean")?, r.x("variance")?);
    let (mean, variance) = (r.cast(mean, Float32)?, r.cast(variance, Float32)?);
    let epsilon = r.number("epsilon")?;
    let sum = r.with("add", variance, epsilon)?;
    let scale = r.un("primitive.rsqrt_v1", sum)?;
    let (mean, scale) = (r.along(mean, 1, rank)?, r.along(scale, 1, rank)?);
    let centered = r.bin("sub", normal.x, mean)?;
    let y = r.bin("mul", centered, scale)?;
    normal.finish(r, y, |r, value| r.along(value, 1, rank))
}

/// Over the last three axes.
pub(super) fn l2_norm(r: &mut Raise<'_>) -> Results {
    let normal = Normal::new(r)?;
    let rank = r.rank(normal.x)?;
    let sum = sum_of_squares(r, normal.x, &(rank.saturating_sub(3)..rank).collect::<Vec<_>>())?;
    let epsilon = r.number("epsilon")?;
    let sum = r.with("add", sum, epsilon)?;
    let scale = r.un("primitive.rsqrt_v1", sum)?;
    let y = r.bin("mul", normal.x, scale)?;
    Ok(vec![r.cast(y, normal.element)?])
}

/// Squares of neighboring channels are summed slice by slice.
pub(super) fn local_response_norm(r: &mut Raise<'_>) -> Results {
    let normal = Normal::new(r)?;
    let shape = r.extents(normal.x)?;
    let Some(axis) = shape.len().checked_sub(3) else { return rejected("x of rank below 3") };
    let Some(channels) = shape[axis] else { return unmapped("it needs the number of channels") };
    let size = r.int("size")?.clamp(1, 1 << 20);
    r.spend(size as usize)?;
    let (alpha, beta, k) = (r.number("alpha")?, r.number("beta")?, r.number("k")?);
    let square = r.bin("mul", normal.x, normal.x)?;
    let mut pads = vec![0; 2 * shape.len()];
    (pads[2 * axis], pads[2 * axis + 1]) = ((size / 2) as u64, ((size - 1) / 2) as u64);
    let wide = r.padded(square, &pads, 0.0)?;
    let mut sum = r.part(wide, axis, 0, channels)?;
    for i in 1..size as u64 {
        let next = r.part(wide, axis, i, channels)?;
        sum = r.bin("add", sum, next)?;
    }
    let scaled = r.with("mul", sum, alpha / size as f64)?;
    let moved = r.with("add", scaled, k)?;
    let below = r.with("pow", moved, beta)?;
    let y = r.bin("divide", normal.x, below)?;
    Ok(vec![r.cast(y, normal.element)?])
}
