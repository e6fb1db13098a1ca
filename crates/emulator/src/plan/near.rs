//! Steps that are fused with one of the few steps before them.

use crate::ir::{Buffer, MemorySpace, Step};

/// The most steps between the two.
pub(super) const DISTANCE: usize = 4;

/// The step whose place the fused one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    First,
    Last,
}

/// Fuses steps with earlier ones. Both functions get a pair and the steps between the two:
/// `matches` says whether they belong together, `fused` makes one step of them, if it can. Nothing
/// but the last step may read what the first one writes.
pub(super) fn fuse(
    mut steps: Vec<Step>,
    buffers: &[Buffer<'_>],
    place: Place,
    matches: impl Fn(&[Step]) -> bool,
    fused: impl Fn(&[Step]) -> Option<Step>,
) -> Vec<Step> {
    let readers = readers(&steps, buffers);
    let read_once = |step: &Step| {
        let read_once = |buffer: usize| readers[buffer] == 1 && buffers[buffer].space == MemorySpace::Arena;
        step.writes.first().is_some_and(|to| read_once(to.buffer))
    };
    let mut at = 0;
    while at < steps.len() {
        let belongs = |&first: &usize| read_once(&steps[first]) && matches(&steps[first..=at]);
        let first = (at.saturating_sub(DISTANCE)..at).rev().find(belongs);
        match first.and_then(|first| Some((first, fused(&steps[first..=at])?))) {
            Some((first, step)) => {
                let (kept, removed) = if place == Place::First { (first, at) } else { (at, first) };
                steps[kept] = step;
                steps.remove(removed);
            }
            None => at += 1,
        }
    }
    steps
}

/// The number of steps that read each buffer.
fn readers(steps: &[Step], buffers: &[Buffer<'_>]) -> Vec<usize> {
    let mut readers = vec![0usize; buffers.len()];
    for step in steps {
        let mut seen: Vec<usize> = step.reads.iter().map(|r| r.buffer).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter().for_each(|buffer| readers[buffer] += 1);
    }
    readers
}
