//! Lowers ops that move pixels: exchanges between channels and positions, and enlargements by whole
//! factors, as copies between views that are split into the axes of blocks; crops as views.
//!
//! What the copies read and write may have any layout.

use ferrane_device::Result;
use ferrane_mil::Op;

use super::args::Args;
use super::build::Lowering;
use crate::ir::View;

impl<'a> Lowering<'a> {
    /// Lowers an op that moves pixels; false if it is another op, or one in a form that views do
    /// not express.
    pub(super) fn pixels(&mut self, op: &'a Op, args: &Args<'a>) -> Result<bool> {
        let known = match op.name.as_str() {
            "crop" => args.constant("crop_height").is_some() && args.constant("crop_width").is_some(),
            "pixel_shuffle" | "pixel_unshuffle" | "depth_to_space" | "space_to_depth" => true,
            "upsample_nearest_neighbor" => true,
            _ => false,
        };
        if !known || self.policy.rules.is_some() {
            return Ok(false);
        }
        let y = op.outputs[0];
        let (x, shape) = (self.operand(args, op, "x")?, self.shape(y)?);
        if op.name == "crop" {
            let Some(view) = cropped(args, &x, &shape)? else { return Ok(false) };
            self.alias(y, &view, Some(view.clone()))?;
            return Ok(true);
        }
        let Some(from) = blocks(&op.name, &x, &shape) else { return Ok(false) };
        self.alias(y, &from, None)?;
        Ok(true)
    }
}

/// The part of `x` that a crop keeps. `None` if it leaves the operand.
fn cropped(args: &Args<'_>, x: &View, shape: &[usize]) -> Result<Option<View>> {
    let mut view = x.clone();
    for (axis, name) in (0..shape.len()).rev().zip(["crop_width", "crop_height"]) {
        let first = args.ints(name)?.first().and_then(|&v| usize::try_from(v).ok());
        let inside = first.filter(|&v| v.checked_add(shape[axis]).is_some_and(|end| end <= x.shape[axis]));
        let Some(first) = inside else { return Ok(None) };
        view = view.sliced(axis, first, 1, shape[axis]);
    }
    Ok(Some(view))
}

/// The elements of a result of extents `to`, in its order, as a view of `x` in the axes of blocks.
/// `None` if the extents are no multiples of each other.
fn blocks(op: &str, x: &View, to: &[usize]) -> Option<View> {
    let (&[n, c, h, w], &[_, to_c, to_h, to_w]) = (&x.shape[..], to) else { return None };
    let whole = |large: usize, small: usize| large.is_multiple_of(small).then(|| large / small);
    if matches!(op, "pixel_unshuffle" | "space_to_depth") {
        let (tall, wide) = (whole(h, to_h)?, whole(w, to_w)?);
        let parts = x.reshaped(&[n, c, to_h, tall, to_w, wide])?;
        // Of the new channels, the position in the block is the inner part, or the outer one.
        let order = if op == "pixel_unshuffle" { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
        return (c * tall * wide == to_c).then(|| parts.permuted(&order));
    }
    let (tall, wide) = (whole(to_h, h)?, whole(to_w, w)?);
    if op == "upsample_nearest_neighbor" {
        let s = &x.strides;
        let strides = vec![s[0], s[1], s[2], 0, s[3], 0];
        return (c == to_c).then(|| View { shape: vec![n, c, h, tall, w, wide], strides, ..x.clone() });
    }
    if c != to_c * tall * wide {
        return None;
    }
    Some(match op {
        "pixel_shuffle" => x.reshaped(&[n, to_c, tall, wide, h, w])?.permuted(&[0, 1, 4, 2, 5, 3]),
        _ => x.reshaped(&[n, tall, wide, to_c, h, w])?.permuted(&[0, 3, 4, 1, 5, 2]),
    })
}
