//! Convolutions whose results only a depthwise convolution reads: the wide image in the middle of
//! an inverted bottleneck.
//!
//! The two are one step, which computes that image in bands and never stores it as a whole
//! ([`conv::run_pair`](ferrane_host::conv::run_pair)). The result is the same, bit for bit.

use super::finish::keeps_halves;
use super::near::{self, Place};
use ferrane_host::conv::PointStep;

use crate::ir::{Buffer, MAX_READS, PackedConv, Policy, Step, StepKind, Storage};

/// Joins convolutions with the depthwise ones that follow them.
pub(super) fn fuse(policy: Policy<'_>, steps: Vec<Step>, buffers: &[Buffer<'_>]) -> Vec<Step> {
    if !policy.fuses {
        return steps;
    }
    let reads = |steps: &[Step]| matches!(steps, [first, second] if second.reads.first() == first.writes.first());
    near::fuse(steps, buffers, Place::Last, reads, |steps| match steps {
        [first, second] => joined(first, second),
        _ => None,
    })
}

/// Both as one step, if they are such a pair.
fn joined(first: &Step, second: &Step) -> Option<Step> {
    let (StepKind::PackedConv(one), StepKind::PackedConv(two)) = (&first.kind, &second.kind) else { return None };
    let (between, to) = (&first.writes[0], &second.writes[0]);
    let plain = |conv: &PackedConv| conv.prologue.is_none() && conv.addend.is_none() && conv.finish.is_none();
    let others = &second.reads[1..];
    // Results are written while the image of the first is still read.
    let apart = others.iter().all(|r| r.buffer != between.buffer) && first.reads.iter().all(|r| !r.overlaps(to));
    let fits = first.reads.len() + others.len() <= MAX_READS;
    if !plain(one) || !plain(two) || !apart || !fits || !one.conv.feeds(&two.conv) {
        return None;
    }
    // The image between the two is fp32, whose values are rounded as if they were stored.
    let round = one.round || between.storage == Storage::F16 && !are_halves(&one.steps);
    let one = PackedConv { round, ..one.clone() };
    Some(Step {
        op: format!("{}+{}", first.op, second.op),
        reads: [&first.reads, others].concat(),
        kind: StepKind::ConvPair(Box::new([one, two.clone()])),
        ..second.clone()
    })
}

/// True if the last of these steps leave values that fp16 represents.
fn are_halves(steps: &[PointStep]) -> bool {
    steps.iter().rev().find(|step| !keeps_halves(step)) == Some(&PointStep::Round)
}
