//! Ops that rearrange, repeat or join elements.

use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::op;
use crate::program::{Constant, ValueId};

pub(super) const RULES: RuleTable = &[
    (op::RESHAPE, Rule::Vjp(reshaped)),
    (op::RESHAPE_LIKE, Rule::Vjp(reshaped)),
    (op::FLATTEN2D, Rule::Vjp(reshaped)),
    (op::SQUEEZE, Rule::Vjp(reshaped)),
    (op::EXPAND_DIMS, Rule::Vjp(reshaped)),
    (op::TRANSPOSE, Rule::Vjp(transpose)),
    (op::CONCAT, Rule::Vjp(concat)),
    (op::STACK, Rule::Vjp(stack)),
    (op::SPLIT, Rule::Vjp(split)),
    (op::TILE, Rule::Vjp(tile)),
    (op::PAD, Rule::Vjp(pad)),
    (op::REVERSE, Rule::Vjp(reverse)),
    (op::REVERSE_SEQUENCE, Rule::Vjp(reverse_sequence)),
    (op::DEPTH_TO_SPACE, Rule::Vjp(|p| inverse_block(p, op::SPACE_TO_DEPTH))),
    (op::SPACE_TO_DEPTH, Rule::Vjp(|p| inverse_block(p, op::DEPTH_TO_SPACE))),
    (op::PIXEL_SHUFFLE, Rule::Vjp(pixel_shuffle)),
    (op::PIXEL_UNSHUFFLE, Rule::Vjp(pixel_unshuffle)),
    (op::BATCH_TO_SPACE, Rule::Vjp(|p| inverse_batch(p, "crops", op::SPACE_TO_BATCH, "paddings"))),
    (op::SPACE_TO_BATCH, Rule::Vjp(|p| inverse_batch(p, "paddings", op::BATCH_TO_SPACE, "crops"))),
    (op::CUMSUM, Rule::Vjp(cumsum)),
    (op::BAND_PART, Rule::Vjp(band_part)),
    (op::SHAPE, Rule::Zero("returns extents")),
    (op::FILL, Rule::Zero("its value is constant")),
    (op::FILL_LIKE, Rule::Zero("its value is constant")),
    (op::RANGE_1D, Rule::Zero("counts")),
    (op::ONE_HOT, Rule::Zero("its values are constant")),
    (op::NON_ZERO, Rule::Zero("returns positions")),
    (op::NON_MAXIMUM_SUPPRESSION, Rule::No("it selects whole boxes")),
];

fn reshaped(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (dy, shape) = (p.dy()?, p.shape_of("x")?);
    let dx = p.reshape(dy, &shape)?;
    p.give("x", dx)
}

fn transpose(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let perm = p.c.ints("perm")?;
    let perm = p.c.normal_axes(&perm, p.shape_of("x")?.len())?;
    let mut back = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(i, &a)| back[a] = i);
    let dy = p.dy()?;
    let dx = p.transpose(dy, &back)?;
    p.give("x", dx)
}

fn concat(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (dy, shape) = (p.dy()?, p.result_shape(0)?);
    let axis = p.c.axis("axis", shape.len())?;
    let values = p.operands("values");
    let interleave = p.c.flag("interleave")?;
    let mut at = 0;
    for (i, &value) in values.iter().enumerate() {
        let extent = p.source_shape(value)?[axis];
        if p.tape.is_active(value) {
            let part = match interleave {
                // Element n of part i is at n · parts + i.
                true => every(p, dy, axis, i, values.len())?,
                false => p.slice_axis(dy, axis, at, extent)?,
            };
            p.give_value(value, part)?;
        }
        at += extent;
    }
    Ok(())
}

/// Each `step`th element of an axis from `first` on.
fn every(p: &mut Pullback<'_, '_>, x: ValueId, axis: usize, first: usize, step: usize) -> Expr {
    let mut shape = p.shape(x)?;
    let outer = shape[..axis].iter().product();
    let inner = shape[axis + 1..].iter().product();
    let count = shape[axis] / step;
    let split = p.reshape(x, &[outer, count, step, inner])?;
    let one = p.slice_axis(split, 2, first, 1)?;
    shape[axis] = count;
    p.reshape(one, &shape)
}

fn stack(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (dy, shape) = (p.dy()?, p.result_shape(0)?);
    let axis = p.c.axis("axis", shape.len())?;
    for (i, &value) in p.operands("values").iter().enumerate() {
        if p.tape.is_active(value) {
            let part = p.slice_axis(dy, axis, i, 1)?;
            let shape = p.source_shape(value)?;
            let part = p.reshape(part, &shape)?;
            p.give_value(value, part)?;
        }
    }
    Ok(())
}

/// The cotangents concatenated, with zeros for a part that has none.
fn split(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let axis = p.c.axis("axis", p.shape_of("x")?.len())?;
    let count = p.op.outputs.len();
    let given: Vec<usize> = (0..count).filter(|&i| p.cotangent(i).is_some()).collect();
    let Some(like) = given.first().and_then(|&i| p.cotangent(i)) else { return Ok(()) };
    let mut parts = Vec::with_capacity(count);
    for i in 0..count {
        parts.push(match p.cotangent(i) {
            Some(d) => d,
            None => {
                let shape = p.result_shape(i)?;
                p.zeros_like(like, &shape)?
            }
        });
    }
    let dx = join(p, parts, axis)?;
    p.give("x", dx)
}

fn join(p: &mut Pullback<'_, '_>, parts: Vec<ValueId>, axis: usize) -> Expr {
    if let [one] = parts[..] {
        return Ok(one);
    }
    let axis = super::reduction::axis_constant(axis);
    let interleave = Constant::bool(false);
    p.emit(op::CONCAT, [("values", parts.into()), ("axis", axis.into()), ("interleave", interleave.into())])
}

fn tile(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let shape = p.shape_of("x")?;
    let mut d = p.dy()?;
    for axis in 0..shape.len() {
        let mut now = p.shape(d)?;
        if now[axis] == shape[axis] {
            continue;
        }
        let outer = now[..axis].iter().product();
        let inner: usize = now[axis + 1..].iter().product();
        let reps = now[axis] / shape[axis].max(1);
        d = p.reshape(d, &[outer, reps, shape[axis] * inner])?;
        d = p.sum(d, &[1])?;
        now[axis] = shape[axis];
        d = p.reshape(d, &now)?;
    }
    p.give("x", d)
}

/// The inner part, plus the cotangents of the mirrored or repeated edge.
fn pad(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (shape, pad, mode) = (p.shape_of("x")?, p.c.ints("pad")?, p.c.text("mode")?);
    let first = shape.len() - pad.len() / 2;
    let mut d = p.dy()?;
    for (i, pair) in pad.chunks_exact(2).enumerate() {
        let axis = first + i;
        let n = shape[axis];
        let (before, after) = (usize::try_from(pair[0]).unwrap_or(0), usize::try_from(pair[1]).unwrap_or(0));
        let mut inner = p.slice_axis(d, axis, before, n)?;
        for (count, begin, is_left) in [(before, 0, true), (after, before + n, false)] {
            if count == 0 || mode == "constant" {
                continue;
            }
            let edge = p.slice_axis(d, axis, begin, count)?;
            // The elements that the edge repeats: [at, at + extent).
            let (edge, at) = match mode.as_str() {
                "reflect" if count < n => {
                    let turned = p.reverse(edge, &[axis])?;
                    (turned, if is_left { 1 } else { n - 1 - count })
                }
                "reflect" => return Err(p.refuse("reflects more than it has")),
                _ => (p.sum(edge, &[axis])?, if is_left { 0 } else { n - 1 }),
            };
            let placed = p.place(edge, axis, at, n)?;
            inner = p.add(inner, placed)?;
        }
        d = inner;
    }
    p.give("x", d)
}

fn reverse(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let rank = p.shape_of("x")?.len();
    let axes = match p.c.ints_if("axes")? {
        Some(axes) => p.c.normal_axes(&axes, rank)?,
        None => (0..rank).collect(),
    };
    let dy = p.dy()?;
    let dx = p.reverse(dy, &axes)?;
    p.give("x", dx)
}

/// The op is its own inverse.
fn reverse_sequence(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (dy, lengths) = (p.dy()?, p.x("lengths")?);
    let mut args = vec![("x", dy.into()), ("lengths", lengths.into())];
    for name in ["seq_axis", "batch_axis"] {
        if p.c.has(name) {
            args.push((name, p.x(name)?.into()));
        }
    }
    let dx = p.emit(op::REVERSE_SEQUENCE, args)?;
    p.give("x", dx)
}

fn inverse_block(p: &mut Pullback<'_, '_>, inverse: &str) -> Result<(), GradError> {
    let (dy, block) = (p.dy()?, p.x("block_size")?);
    let dx = p.emit(inverse, [("x", dy.into()), ("block_size", block.into())])?;
    p.give("x", dx)
}

fn factor(p: &Pullback<'_, '_>, name: &str) -> Result<usize, GradError> {
    Ok(usize::try_from(p.c.int(name)?).unwrap_or(1).max(1))
}

/// `space_to_depth` with the channels outermost, while that op has the position in the block
/// outermost. Every opset has it.
fn pixel_shuffle(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (r, dy, shape) = (factor(p, "upscale_factor")?, p.dy()?, p.shape_of("x")?);
    let block = super::reduction::axis_constant(r);
    let d = p.emit(op::SPACE_TO_DEPTH, [("x", dy.into()), ("block_size", block.into())])?;
    let points = shape[2..].iter().product();
    let d = p.reshape(d, &[shape[0], r * r, shape[1] / (r * r), points])?;
    let d = p.transpose(d, &[0, 2, 1, 3])?;
    let dx = p.reshape(d, &shape)?;
    p.give("x", dx)
}

fn pixel_unshuffle(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    // The factor is of an unsigned type here and of a signed one there.
    let (r, dy) = (factor(p, "downscale_factor")?, p.dy()?);
    let r = super::reduction::axis_constant(r);
    let dx = p.emit(op::PIXEL_SHUFFLE, [("x", dy.into()), ("upscale_factor", r.into())])?;
    p.give("x", dx)
}

fn inverse_batch(p: &mut Pullback<'_, '_>, own: &str, inverse: &str, other: &str) -> Result<(), GradError> {
    let (dy, block, edges) = (p.dy()?, p.x("block_shape")?, p.x(own)?);
    let dx = p.emit(inverse, [("x", dy.into()), ("block_shape", block.into()), (other, edges.into())])?;
    p.give("x", dx)
}

/// The cumulative sum from the other end.
fn cumsum(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let axis = p.c.axis("axis", p.shape_of("x")?.len())?;
    let (exclusive, reverse) = (p.c.flag("exclusive")?, p.c.flag("reverse")?);
    let dy = p.dy()?;
    let dx = p.emit(
        op::CUMSUM,
        [
            ("x", dy.into()),
            ("axis", super::reduction::axis_constant(axis).into()),
            ("exclusive", Constant::bool(exclusive).into()),
            ("reverse", Constant::bool(!reverse).into()),
        ],
    )?;
    p.give("x", dx)
}

fn band_part(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let dy = p.dy()?;
    let mut args = vec![("x", dy.into())];
    for name in ["lower", "upper"] {
        if p.c.has(name) {
            args.push((name, p.x(name)?.into()));
        }
    }
    let dx = p.emit(op::BAND_PART, args)?;
    p.give("x", dx)
}
