//! Products of an image with one value for each channel, as the gates of squeeze-and-excitation
//! are, computed by the convolution that reads them.
//!
//! A convolution of one tap copies the pixels that it multiplies. If it is the only reader of such
//! a product, it multiplies while it copies, so that the product is never in memory. The result is
//! the same, bit for bit.

use super::near::{self, Place};
use crate::ir::{Binary, Buffer, Elementwise, Group, MAX_READS, Policy, Step, StepKind, Storage, View};

/// Moves products into the convolutions that read them.
pub(super) fn fuse(policy: Policy<'_>, steps: Vec<Step>, buffers: &[Buffer<'_>]) -> Vec<Step> {
    if !policy.fuses {
        return steps;
    }
    let reads = |steps: &[Step]| match steps {
        [product, .., conv] => conv.reads.contains(&product.writes[0]),
        _ => false,
    };
    near::fuse(steps, buffers, Place::Last, reads, scaled)
}

/// The convolution at the end of some steps with the product at their beginning, if it can compute
/// it.
fn scaled(steps: &[Step]) -> Option<Step> {
    let [product, between @ .., conv] = steps else { return None };
    let (StepKind::Group(group), StepKind::PackedConv(packed)) = (&product.kind, &conv.kind) else { return None };
    let [image, scales] = factors(group, product)?;
    let to = &product.writes[0];
    let reads = conv.reads.iter().filter(|view| view.buffer == to.buffer).count();
    let written = |view: &View| between.iter().chain([conv]).any(|s| s.writes.iter().any(|w| w.buffer == view.buffer));
    let takes = packed.conv.scales()
        && packed.scales.is_none()
        && conv.reads[0] == *to
        && reads == 1
        && conv.reads.len() < MAX_READS
        && (image.shape[1] == 1 || image.strides[1] == 1)
        && ![image, scales].into_iter().any(written);
    takes.then(|| {
        let mut packed = packed.clone();
        packed.scales = Some(conv.reads.len());
        let mut reads = conv.reads.clone();
        reads[0] = image.clone();
        reads.push(scales.clone());
        let op = format!("{}+{}", product.op, conv.op);
        Step { op, reads, kind: StepKind::PackedConv(packed), ..conv.clone() }
    })
}

/// The factors of a group that is one product: an image, and one value for each of its channels.
fn factors<'a>(group: &Group, step: &'a Step) -> Option<[&'a View; 2]> {
    let ([a, b], [to], [product]) = (step.reads.as_slice(), step.writes.as_slice(), group.instructions.as_slice())
    else {
        return None;
    };
    let loads: [_; 2] = group.loads.as_slice().try_into().ok()?;
    let all = [product.from[0], product.from[1]];
    let same = product.op == Elementwise::Binary(Binary::Mul)
        && (all == loads || all == [loads[1], loads[0]])
        && loads[0] != loads[1]
        && group.stores == [product.to]
        && group.joined.is_empty();
    let floats = |view: &View| matches!(view.storage, Storage::F16 | Storage::F32);
    let [image, scales] = if b.is_constant_over_positions() { [a, b] } else { [b, a] };
    let broadcasts = |from: &View, to: &View| {
        from.shape.len() == to.shape.len() && from.shape.iter().zip(&to.shape).all(|(n, m)| n == m || *n == 1)
    };
    let fits = to.shape.len() > 2
        && image.shape == to.shape
        && broadcasts(scales, to)
        && scales.is_constant_over_positions()
        && image.storage == to.storage
        && product.round == (to.storage == Storage::F16)
        && floats(image)
        && floats(scales);
    (same && fits).then_some([image, scales])
}
