//! Convolutions and their transposes.
//!
//! Both are one bilinear map: through weight element `j`, element `i` of the short side is
//! multiplied with element `i · stride + j · dilation - pad` of the long side. `conv` goes from
//! long to short, `conv_transpose` from short to long, and the weight's gradient correlates both.
//! Padding is applied and removed by ops of its own, so that every case is the same map without
//! padding. Engines and coremltools reject a dilated convolution whose weight is computed; for such
//! a weight (or cotangent) the zeros are inserted explicitly.

use super::constants::{int, ints};
use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::build::{ReducedDims, Transpose};
use crate::op;
use crate::program::{Constant, ValueId};

pub(super) const RULES: RuleTable = &[(op::CONV, Rule::Vjp(conv)), (op::CONV_TRANSPOSE, Rule::Vjp(conv_transpose))];

/// The map, one entry for each spatial axis.
pub(super) struct Map {
    pub(super) kernel: Vec<usize>,
    pub(super) strides: Vec<usize>,
    pub(super) dilations: Vec<usize>,
    /// Elements of padding before the long side.
    pub(super) before: Vec<usize>,
    /// Elements of padding after it.
    pub(super) after: Vec<usize>,
    pub(super) groups: usize,
}

impl Map {
    /// The extent of the long side that a short side covers, padding included.
    fn reach(&self, axis: usize, short: usize) -> usize {
        (short.max(1) - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilations[axis] + 1
    }
}

fn counts(p: &Pullback<'_, '_>, name: &str, spatial: usize, default: usize) -> Result<Vec<usize>, GradError> {
    let given = if p.c.def.param(name).is_some() { p.c.ints_if(name)? } else { None };
    let values = given.map(|v| v.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect());
    Ok(values.unwrap_or_else(|| vec![default; spatial]))
}

/// The map of an op with `strides`, `dilations`, `pad_type` and `pad`, from the extents of its two
/// sides.
pub(super) fn map(p: &Pullback<'_, '_>, kernel: &[usize], long: &[usize], short: &[usize]) -> Result<Map, GradError> {
    let n = kernel.len();
    let mut map = Map {
        kernel: kernel.to_vec(),
        strides: counts(p, "strides", n, 1)?,
        dilations: counts(p, "dilations", n, 1)?,
        before: vec![0; n],
        after: vec![0; n],
        groups: 1,
    };
    let whole = [long, short, &map.strides, &map.dilations].iter().all(|v| v.len() == n);
    if !whole || kernel.contains(&0) || map.strides.contains(&0) {
        return Err(p.refuse("its options do not fit its spatial axes"));
    }
    match p.c.text("pad_type")?.as_str() {
        "custom" => {
            let pad = counts(p, "pad", 2 * n, 0)?;
            map.before = pad.iter().step_by(2).copied().collect();
            map.after = pad.iter().skip(1).step_by(2).copied().collect();
        }
        // Half of the padding before, the odd element after; reversed for `same_lower`.
        same if same.starts_with("same") => {
            let lower = same == "same_lower";
            let missing: Vec<usize> = (0..n).map(|i| map.reach(i, short[i]).saturating_sub(long[i])).collect();
            map.before = missing.iter().map(|&m| if lower { m.div_ceil(2) } else { m / 2 }).collect();
            map.after = missing.iter().zip(&map.before).map(|(m, before)| m - before).collect();
        }
        _ => {}
    }
    if map.before.len() != n || map.after.len() != n {
        return Err(p.refuse("`pad` does not fit its spatial axes"));
    }
    Ok(map)
}

fn spatial(shape: &[usize]) -> &[usize] {
    shape.get(2..).unwrap_or_default()
}

fn group_count(p: &Pullback<'_, '_>) -> Result<usize, GradError> {
    Ok(usize::try_from(p.c.int("groups")?).unwrap_or(1).max(1))
}

fn conv(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (xs, ws, ys) = (p.shape_of("x")?, p.shape_of("weight")?, p.result_shape(0)?);
    let mut map = map(p, spatial(&ws), spatial(&xs), spatial(&ys))?;
    map.groups = group_count(p)?;
    let dy = p.dy()?;
    bias(p, dy)?;
    if p.wants("x") {
        let weight = p.x("weight")?;
        let weight = p.cast_like(weight, dy)?;
        let dx = short_to_long(p, &map, dy, weight, spatial(&xs))?;
        p.give("x", dx)?;
    }
    if p.wants("weight") {
        let x = p.x("x")?;
        let d = correlate(p, &map, x, dy, &ws)?;
        p.give("weight", d)?;
    }
    Ok(())
}

fn conv_transpose(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (xs, ws, ys) = (p.shape_of("x")?, p.shape_of("weight")?, p.result_shape(0)?);
    let mut map = map(p, spatial(&ws), spatial(&ys), spatial(&xs))?;
    map.groups = group_count(p)?;
    let dy = p.dy()?;
    bias(p, dy)?;
    if p.wants("x") {
        let weight = p.x("weight")?;
        let weight = p.cast_like(weight, dy)?;
        let long = padded(p, &map, dy, spatial(&xs))?;
        let (weight, dilations) = computable(p, &map, weight)?;
        let dx = conv_op(p, long, weight, &map.strides, &dilations, map.groups)?;
        p.give("x", dx)?;
    }
    if p.wants("weight") {
        let x = p.x("x")?;
        let d = correlate(p, &map, dy, x, &ws)?;
        p.give("weight", d)?;
    }
    Ok(())
}

fn bias(p: &mut Pullback<'_, '_>, dy: ValueId) -> Result<(), GradError> {
    if p.wants("bias") {
        let axes: Vec<usize> = (0..p.shape(dy)?.len()).filter(|&i| i != 1).collect();
        let sum = p.reduce(op::REDUCE_SUM, dy, &axes, ReducedDims::Drop)?;
        p.give("bias", sum)?;
    }
    Ok(())
}

/// A convolution without padding.
fn conv_op(
    p: &mut Pullback<'_, '_>,
    x: ValueId,
    weight: ValueId,
    strides: &[usize],
    dilations: &[usize],
    groups: usize,
) -> Expr {
    let zeros = vec![0; 2 * strides.len()];
    p.emit(
        op::CONV,
        [
            ("x", x.into()),
            ("weight", weight.into()),
            ("strides", ints(strides).into()),
            ("pad_type", Constant::string("valid").into()),
            ("pad", ints(&zeros).into()),
            ("dilations", ints(dilations).into()),
            ("groups", Constant::int32(int(groups)).into()),
        ],
    )
}

/// The long side with its padding, truncated to what the short side covers.
fn padded(p: &mut Pullback<'_, '_>, map: &Map, mut long: ValueId, short: &[usize]) -> Expr {
    for axis in 0..map.kernel.len() {
        let (before, reach) = (map.before[axis], map.reach(axis, short[axis]));
        let extent = p.shape(long)?[axis + 2];
        let kept = extent.min(reach.saturating_sub(before));
        long = p.slice_axis(long, axis + 2, 0, kept)?;
        long = p.pad_axis(long, axis + 2, before, reach.saturating_sub(before + kept))?;
    }
    Ok(long)
}

/// A weight in the form that a convolution accepts: dilated by the attribute, or with zeros
/// inserted if it is computed.
fn computable(p: &mut Pullback<'_, '_>, map: &Map, mut weight: ValueId) -> Result<(ValueId, Vec<usize>), GradError> {
    if p.tape.b.is_const(weight) {
        return Ok((weight, map.dilations.clone()));
    }
    for axis in 0..map.kernel.len() {
        weight = p.dilate(weight, axis + 2, map.dilations[axis])?;
    }
    Ok((weight, vec![1; map.kernel.len()]))
}

/// The adjoint of `conv`: from the short side to a long side of the extents `long`. `weight` is
/// that of the `conv`. It is a convolution of the dilated and padded short side with the reversed
/// weight. `conv_transpose` is not used because it requires a constant weight before opset ios17,
/// and a trained kernel has none.
pub(super) fn short_to_long(
    p: &mut Pullback<'_, '_>,
    map: &Map,
    mut short: ValueId,
    weight: ValueId,
    long: &[usize],
) -> Expr {
    let shape = p.shape(weight)?;
    let (groups, kernel) = (map.groups, &shape[2..]);
    let elements = kernel.iter().product();
    let swapped = p.reshape(weight, &[groups, shape[0] / groups, shape[1], elements])?;
    let swapped = p.transpose(swapped, &[0, 2, 1, 3])?;
    let mut swapped_shape = vec![groups * shape[1], shape[0] / groups];
    swapped_shape.extend_from_slice(kernel);
    let mut swapped = p.reshape(swapped, &swapped_shape)?;
    let axes: Vec<usize> = (2..shape.len()).filter(|&a| shape[a] > 1).collect();
    swapped = p.reverse(swapped, &axes)?;
    for axis in 0..kernel.len() {
        swapped = p.dilate(swapped, axis + 2, map.dilations[axis])?;
        short = p.dilate(short, axis + 2, map.strides[axis])?;
        let edge = (kernel[axis] - 1) * map.dilations[axis];
        short = p.pad_axis(short, axis + 2, edge, edge)?;
    }
    let ones = vec![1; kernel.len()];
    let mut full = conv_op(p, short, swapped, &ones, &ones, groups)?;
    for axis in 0..map.kernel.len() {
        full = p.window(full, axis + 2, map.before[axis], long[axis])?;
    }
    Ok(full)
}

/// The gradient of the weight `[short channels, long channels / groups, kernel…]`: a convolution in
/// which the batch is the channel axis, the long side the input, and the short side, dilated by the
/// strides, the weight.
fn correlate(p: &mut Pullback<'_, '_>, map: &Map, long: ValueId, short: ValueId, weight: &[usize]) -> Expr {
    let (ls, ss) = (p.shape(long)?, p.shape(short)?);
    let (batch, groups) = (ls[0], map.groups);
    let pointwise = map.kernel.iter().chain(&map.strides).all(|&n| n == 1) && map.before.iter().all(|&n| n == 0);
    if pointwise && groups == 1 && ls[2..] == ss[2..] {
        let points = ls[2..].iter().product();
        let (a, b) = (p.reshape(short, &[batch, ss[1], points])?, p.reshape(long, &[batch, ls[1], points])?);
        let d = p.matmul(a, b, Transpose::Y)?;
        let d = p.sum(d, &[0])?;
        return p.reshape(d, weight);
    }
    let long = padded(p, map, long, &ss[2..])?;
    let extents = p.shape(long)?[2..].to_vec();
    let points = extents.iter().product();
    let (per_group, per_short) = (ls[1] / groups, ss[1]);
    let rows = p.reshape(long, &[batch, groups, per_group, points])?;
    let rows = p.transpose(rows, &[2, 1, 0, 3])?;
    let mut shape = vec![per_group, groups * batch];
    shape.extend_from_slice(&extents);
    let rows = p.reshape(rows, &shape)?;

    let mut perm: Vec<usize> = (0..ss.len()).collect();
    perm.swap(0, 1);
    let mut taps = p.transpose(short, &perm)?;
    for axis in 0..map.kernel.len() {
        taps = p.dilate(taps, axis + 2, map.strides[axis])?;
    }
    let ones = vec![1; map.kernel.len()];
    // Stride and dilation are swapped.
    let d = conv_op(p, rows, taps, &map.dilations, &ones, groups)?;
    let mut sizes = vec![per_group, per_short];
    sizes.extend_from_slice(&map.kernel);
    let begin = vec![0; sizes.len()];
    let d = p.slice(d, &begin, &sizes)?;
    p.transpose(d, &perm)
}
