//! Element-wise groups that follow a product of codes: activations, and the `quantize` that makes
//! codes of its results.
//!
//! A group that is the only reader of the results, reads nothing else and is a sequence of steps on
//! one value is applied to the sums. The results are those of the group as a step, bit for bit.

use super::finish::{pixels, value_steps};
use super::images::pixel_pitch;
use super::near::{self, Place};
use crate::ir::{Buffer, Elementwise, Group, Policy, Step, StepKind, Storage};
use ferrane_host::conv::{PointStep, Requantize};

/// Moves groups into the products whose results they finish.
pub(super) fn fuse(policy: Policy<'_>, steps: Vec<Step>, buffers: &[Buffer<'_>]) -> Vec<Step> {
    if !policy.fuses {
        return steps;
    }
    near::fuse(steps, buffers, Place::First, matches, |steps| finished(steps.first()?, steps.last()?))
}

/// True if a group reads the results of a product of codes, and could run there, before the steps
/// between the two.
fn matches(steps: &[Step]) -> bool {
    let [product, between @ .., group] = steps else { return false };
    let (StepKind::ByteLayer(layer), StepKind::Group(_)) = (&product.kind, &group.kind) else { return false };
    let Some(group) = pixels(group, &product.writes[0]) else { return false };
    let ([from], [to]) = (group.reads.as_slice(), group.writes.as_slice()) else { return false };
    let apart = between.iter().all(|step| step.reads.iter().chain(&step.writes).all(|view| view.is_apart_from(to)));
    let unread = product.reads.iter().all(|read| !read.overlaps(to));
    layer.codes.is_none() && layer.steps.is_empty() && from == &product.writes[0] && apart && unread
}

/// The product with the group.
fn finished(product: &Step, group: &Step) -> Option<Step> {
    let step = pixels(group, &product.writes[0])?;
    let (StepKind::ByteLayer(layer), StepKind::Group(group)) = (&product.kind, &step.kind) else { return None };
    let (from, to) = (&product.writes[0], &step.writes[0]);
    if !group.joined.is_empty() || group.stores.len() != 1 || to.shape != from.shape {
        return None;
    }
    let (group, codes) = match to.storage {
        Storage::I8 | Storage::U8 => requantized(group, to.storage).map(|(group, codes)| (group, Some(codes)))?,
        _ => (group.clone(), None),
    };
    let mut steps = value_steps(&group, 0, from.storage == Storage::F16)?;
    // A rounding at the end is the step's own.
    let last = steps.last() == Some(&PointStep::Round);
    if last {
        steps.pop();
    }
    let mut layer = layer.clone();
    (layer.steps, layer.codes, layer.round, layer.pitch) = (steps, codes, last, pixel_pitch(to)?);
    Some(Step {
        op: format!("{}+{}", product.op, step.op),
        value: step.value.clone(),
        reads: product.reads.clone(),
        writes: vec![to.clone()],
        kind: StepKind::ByteLayer(layer),
    })
}

/// The group without the `quantize` at its end, and what that does, if its scale is one constant.
fn requantized(group: &Group, storage: Storage) -> Option<(Group, Requantize)> {
    let mut group = group.clone();
    let last = group.instructions.pop()?;
    let range = if storage == Storage::I8 { (-128, 127) } else { (0, 255) };
    if last.op != Elementwise::Quantize(range.0, range.1) || group.stores != [last.to] {
        return None;
    }
    let [value, scale, zero] = last.from;
    let number = |reg| group.constants.iter().find(|(r, _)| *r == reg).map(|(_, bits)| f32::from_bits(*bits));
    let codes = Requantize { scale: number(scale)?, zero: number(zero)? };
    group.stores = vec![value];
    Some((group, codes))
}
