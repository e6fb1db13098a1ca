//! Ops that move elements between axes in blocks.

use super::infer::{InferContext, show, tensor};
use super::signature::{FLOATS, Literal, MOVABLE, NUMBERS, OpDef, Param, UINT32, int_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{Dim, Type};

const BLOCK: &[Param] = &[x_of(FLOATS), int_const("block_size")];
const UPSCALE: &[Param] = &[x_of(FLOATS), int_const("upscale_factor")];
const DOWNSCALE: &[Param] = &[x_of(FLOATS), Param::new("downscale_factor", UINT32).constant()];
const TO_BATCH: &[Param] = &[x_of(FLOATS), int_const("block_shape"), int_const("paddings")];
const TO_SPACE: &[Param] = &[x_of(FLOATS), int_const("block_shape"), int_const("crops")];
const STRIDE: Param = int_const("stride").or(Literal::Int(1));
const WINDOWS: OpDef = OpDef::new(
    op::SLIDING_WINDOWS,
    "all windows of a size along an axis, as a new axis after it",
    &[x_of(NUMBERS), int_const("axis"), int_const("size"), STRIDE],
    windows_rule,
);

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(op::DEPTH_TO_SPACE, "blocks of channels become blocks of space", BLOCK, |c| to_space(c, "block_size")),
    OpDef::new(op::SPACE_TO_DEPTH, "blocks of space become blocks of channels", BLOCK, |c| to_depth(c, "block_size")),
    OpDef::new(op::PIXEL_SHUFFLE, "channels become pixels within each pixel", UPSCALE, |c| {
        to_space(c, "upscale_factor")
    }),
    OpDef::new(op::PIXEL_UNSHUFFLE, "pixels of each block become channels", DOWNSCALE, |c| {
        to_depth(c, "downscale_factor")
    })
    .since(Opset::IOS16),
    OpDef::new(op::SPACE_TO_BATCH, "blocks of padded space become entries of the batch", TO_BATCH, to_batch_rule),
    OpDef::new(op::BATCH_TO_SPACE, "entries of the batch become blocks of space, cropped", TO_SPACE, from_batch_rule),
    WINDOWS,
    WINDOWS.again(Opset::IOS17, &[x_of(MOVABLE), int_const("axis"), int_const("size"), STRIDE]),
];

fn exact(n: i64, by: i64) -> Option<i64> {
    (n % by == 0).then(|| n / by)
}

fn to_space(c: &InferContext<'_>, block: &str) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.ranked("x", 4)?;
    let block = c.count(block, 1)? as i64;
    let channels = c.map(&x[1], |n| exact(n, block.checked_mul(block)?))?;
    let (height, width) = (c.map(&x[2], |n| n.checked_mul(block))?, c.map(&x[3], |n| n.checked_mul(block))?);
    Ok(tensor(dtype, vec![x[0].clone(), channels, height, width]))
}

fn to_depth(c: &InferContext<'_>, block: &str) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.ranked("x", 4)?;
    let block = c.count(block, 1)? as i64;
    let channels = c.map(&x[1], |n| n.checked_mul(block.checked_mul(block)?))?;
    let (height, width) = (c.map(&x[2], |n| exact(n, block))?, c.map(&x[3], |n| exact(n, block))?);
    Ok(tensor(dtype, vec![x[0].clone(), channels, height, width]))
}

/// Two block extents, and a pair before and after for each of the two spatial axes.
fn blocks(c: &InferContext<'_>, pairs: &str) -> Result<([i64; 2], [i64; 4]), MilError> {
    let (_, shape) = c.tensor(pairs)?;
    let (blocks, values) = (c.ints("block_shape")?, c.ints(pairs)?);
    let wanted = [Dim::Fixed(2), Dim::Fixed(2)];
    match (<[i64; 2]>::try_from(blocks), <[i64; 4]>::try_from(values)) {
        (Ok(blocks), Ok(values))
            if shape == wanted && blocks.iter().all(|&b| b > 0) && values.iter().all(|&v| v >= 0) =>
        {
            Ok((blocks, values))
        }
        _ => Err(c.fail(format!("block_shape must hold two positive numbers, `{pairs}` two pairs of numbers ≥ 0"))),
    }
}

fn to_batch_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.ranked("x", 4)?;
    let (block, pad) = blocks(c, "paddings")?;
    let mut shape = vec![c.map(&x[0], |n| n.checked_mul(block[0].checked_mul(block[1])?))?, x[1].clone()];
    for i in 0..2 {
        shape.push(c.map(&x[2 + i], |n| exact(n.checked_add(pad[2 * i])?.checked_add(pad[2 * i + 1])?, block[i]))?);
    }
    Ok(tensor(dtype, shape))
}

fn from_batch_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.ranked("x", 4)?;
    let (block, crop) = blocks(c, "crops")?;
    let mut shape = vec![c.map(&x[0], |n| exact(n, block[0].checked_mul(block[1])?))?, x[1].clone()];
    for i in 0..2 {
        shape.push(
            c.map(&x[2 + i], |n| n.checked_mul(block[i])?.checked_sub(crop[2 * i])?.checked_sub(crop[2 * i + 1]))?,
        );
    }
    Ok(tensor(dtype, shape))
}

fn windows_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, mut x) = c.tensor("x")?;
    let axis = c.axis("axis", x.len())?;
    let (size, stride) = (c.count("size", 1)?, c.count("stride", 1)? as i64);
    if matches!(x[axis], Dim::Fixed(n) if n < size) {
        return Err(c.fail(format!("a window of {size} does not fit axis {axis} of {}", show(&x))));
    }
    x[axis] = c.map(&x[axis], |n| Some((n - size as i64) / stride + 1))?;
    x.insert(axis + 1, Dim::Fixed(size));
    Ok(tensor(dtype, x))
}
