//! Resizing. Every such op is linear and separable: output row `i` is a weighted sum of input rows,
//! and so is each column. The cotangent is multiplied by the transposed matrices, which are
//! constants of the program.
//!
//! The positions of the grid points are those of coremltools 9.0, `resize_bilinear` and
//! `upsample_bilinear`.

use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::build::Transpose;
use crate::op;
use crate::program::ValueId;

const BY_COORDINATES: Rule = Rule::No("samples at computed coordinates");

pub(super) const RULES: RuleTable = &[
    (op::UPSAMPLE_NEAREST_NEIGHBOR, Rule::Vjp(|p| resized(p, whole))),
    (op::RESIZE_NEAREST_NEIGHBOR, Rule::Vjp(|p| resized(p, middle))),
    (op::UPSAMPLE_BILINEAR, Rule::Vjp(upsample_bilinear)),
    (op::RESIZE_BILINEAR, Rule::Vjp(resize_bilinear)),
    (op::RESIZE, Rule::Vjp(resize)),
    (op::CROP, Rule::Vjp(crop)),
    (op::CROP_RESIZE, BY_COORDINATES),
    (op::AFFINE, BY_COORDINATES),
    (op::RESAMPLE, BY_COORDINATES),
];

/// The position at which output element `i` of `to` reads an axis of `from` elements.
type Grid = fn(i: usize, from: f64, to: f64) -> f64;

/// `upsample_nearest_neighbor`.
fn whole(i: usize, from: f64, to: f64) -> f64 {
    (i as f64 * from / to).floor()
}

/// The element that contains the center of part `i`: `resize_nearest_neighbor`.
fn middle(i: usize, from: f64, to: f64) -> f64 {
    ((i as f64 + 0.5) * from / to).floor()
}

fn default(i: usize, from: f64, to: f64) -> f64 {
    i as f64 * from / to
}

fn strict_align(i: usize, from: f64, to: f64) -> f64 {
    i as f64 * (from - 1.0) / (to - 1.0).max(1.0)
}

fn align(i: usize, from: f64, to: f64) -> f64 {
    if to == 1.0 { (from - 1.0) / 2.0 } else { strict_align(i, from, to) }
}

fn offset(i: usize, from: f64, to: f64) -> f64 {
    let delta = (from - 1.0).max(1.0) / to;
    (0.5 + i as f64) * delta
}

fn unalign(i: usize, from: f64, to: f64) -> f64 {
    let spacing = from / to;
    (i as f64 + 0.5) * spacing - 0.5
}

fn sampling(p: &Pullback<'_, '_>) -> Result<Grid, GradError> {
    Ok(match p.c.text("sampling_mode")?.as_str() {
        "STRICT_ALIGN_CORNERS" => strict_align,
        "ALIGN_CORNERS" => align,
        "OFFSET_CORNERS" => offset,
        "UNALIGN_CORNERS" => unalign,
        _ => default,
    })
}

/// `[to, from]`: the two neighbors of each grid point, weighted by nearness.
fn matrix(grid: Grid, from: usize, to: usize) -> Vec<f32> {
    let mut weights = vec![0.0; to * from];
    for i in 0..to {
        let at = grid(i, from as f64, to as f64).clamp(0.0, (from - 1) as f64);
        let (low, part) = (at.floor() as usize, (at - at.floor()) as f32);
        weights[i * from + low] += 1.0 - part;
        weights[i * from + (low + 1).min(from - 1)] += part;
    }
    weights
}

/// The adjoint of resizing the last two axes.
fn resized(p: &mut Pullback<'_, '_>, grid: Grid) -> Result<(), GradError> {
    let (from, to, mut d) = (p.shape_of("x")?, p.result_shape(0)?, p.dy()?);
    let rank = from.len();
    if to.len() != rank || rank < 2 || from.contains(&0) {
        return Err(p.refuse("its shapes do not fit"));
    }
    let lead: usize = from[..rank - 2].iter().product();
    d = p.reshape(d, &[lead, to[rank - 2], to[rank - 1]])?;
    d = one_axis(p, d, grid, from[rank - 1], to[rank - 1], false)?;
    d = one_axis(p, d, grid, from[rank - 2], to[rank - 2], true)?;
    let dx = p.reshape(d, &from)?;
    p.give("x", dx)
}

fn one_axis(p: &mut Pullback<'_, '_>, d: ValueId, grid: Grid, from: usize, to: usize, rows: bool) -> Expr {
    const MOST: usize = 1 << 24;
    if from.checked_mul(to).is_none_or(|n| n > MOST) {
        return Err(p.refuse(format!("from {from} to {to} is too large for a matrix")));
    }
    let weights = matrix(grid, from, to);
    let is_identity = |(i, w): (usize, &f32)| *w == f32::from(u8::from(i / from == i % from));
    if from == to && weights.iter().enumerate().all(is_identity) {
        return Ok(d);
    }
    let weights = p.tensor_like(d, &[1, to, from], &weights)?;
    if rows { p.matmul(weights, d, Transpose::X) } else { p.matmul(d, weights, Transpose::Neither) }
}

fn upsample_bilinear(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let grid = if p.c.flag("align_corners")? { strict_align } else { unalign };
    resized(p, grid)
}

fn resize_bilinear(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let grid = sampling(p)?;
    resized(p, grid)
}

/// The general op, which resizes the last two axes.
fn resize(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (from, to) = (p.shape_of("x")?, p.result_shape(0)?);
    let lead = from.len().saturating_sub(2);
    if from.len() != to.len() || from[..lead] != to[..lead] {
        return Err(p.refuse("resizes more than the last two axes"));
    }
    let grid = match (p.c.text("interpolation_mode")?.as_str(), p.c.text("sampling_mode")?.as_str()) {
        ("LINEAR", _) => sampling(p)?,
        (_, "DEFAULT") => middle,
        (mode, sampling) => return Err(p.refuse(format!("{mode} with {sampling} has no rule"))),
    };
    resized(p, grid)
}

/// The cut borders are zeros.
fn crop(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (shape, sizes, dy) = (p.shape_of("x")?, p.result_shape(0)?, p.dy()?);
    let rank = shape.len();
    let mut pads = vec![(0, 0); rank];
    for (axis, name) in [(rank.saturating_sub(2), "crop_height"), (rank.saturating_sub(1), "crop_width")] {
        let before = p.c.ints(name)?.first().map_or(0, |&n| usize::try_from(n).unwrap_or(0));
        pads[axis] = (before, shape[axis].saturating_sub(before + sizes[axis]));
    }
    let dx = p.pad(dy, &pads)?;
    p.give("x", dx)
}
