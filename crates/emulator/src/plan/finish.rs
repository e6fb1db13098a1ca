//! Element-wise groups that finish the results of a convolution: activations, residual sums,
//! scales.
//!
//! A group that reads the results of a convolution, or of several that are joined, and is their
//! only reader, is applied in place by the task that computed them, while they are in its caches.
//! So neither the results before the group nor a wait between two steps remain. The group computes
//! what it would compute as a step, bit for bit.

use std::borrow::Cow;

use super::images::pixel_pitch;
use super::near::{self, Place};
use crate::ir::{
    Addend, Binary, Buffer, Elementwise, Finish, Group, MAX_READS, MemorySpace, Nest, PackedConv, Policy, Step,
    StepKind, Storage, Unary, View,
};
use ferrane_host::conv::{Gate, Layout, PointStep};
use ferrane_host::f16;

/// Moves groups into the convolutions whose results they finish.
pub(super) fn fuse(policy: Policy<'_>, steps: Vec<Step>, buffers: &[Buffer<'_>]) -> Vec<Step> {
    if !policy.fuses {
        return steps;
    }
    let steps = near::fuse(
        steps,
        buffers,
        Place::First,
        |steps| {
            let [conv, between @ .., group] = steps else { return false };
            pixels(group, &conv.writes[0]).is_some_and(|group| matches(conv, between, &group))
        },
        |steps| finished(steps.first()?, &*pixels(steps.last()?, &steps.first()?.writes[0])?),
    );
    fuse_joined(steps, buffers)
}

/// Moves groups over joined channels into the convolutions that compute the parts.
fn fuse_joined(mut steps: Vec<Step>, buffers: &[Buffer<'_>]) -> Vec<Step> {
    let mut at = 0;
    while at < steps.len() {
        match joined(&steps, at, buffers) {
            Some(parts) => {
                for (writer, step) in parts {
                    steps[writer] = step;
                }
                steps.remove(at);
            }
            None => at += 1,
        }
    }
    steps
}

/// The convolutions whose results together are all that a group reads, each with its part of the
/// group, if no other step reads these results.
fn joined(steps: &[Step], at: usize, buffers: &[Buffer<'_>]) -> Option<Vec<(usize, Step)>> {
    let group = &steps[at];
    let (StepKind::Group(_), [from], [to]) = (&group.kind, &*group.reads, &*group.writes) else { return None };
    let uses = |views: &[View]| views.iter().any(|view| view.buffer == from.buffer);
    let writers: Vec<usize> = (0..at).filter(|&i| uses(&steps[i].writes)).collect();
    let joins = writers.len() > 1
        && buffers[from.buffer].space == MemorySpace::Arena
        && steps.iter().filter(|step| uses(&step.reads)).count() == 1
        && writers.iter().all(|&i| steps[i].reads.iter().all(|view| view.buffer != to.buffer))
        && to.shape == from.shape
        && from.shape.len() > 2
        && from.strides[1] == 1;
    if !joins {
        return None;
    }
    let mut channels = Vec::new();
    let part = |&writer: &usize| {
        let conv = &steps[writer];
        let (part, first) = (&conv.writes[0], conv.writes[0].offset.checked_sub(from.offset)?);
        let count = *part.shape.get(1)?;
        channels.push(first..first + count);
        if first + count > from.shape[1] || from.sliced(1, first, 1, count) != *part {
            return None;
        }
        let to = to.sliced(1, first, 1, count);
        let group = Step { reads: vec![part.clone()], writes: vec![to], ..group.clone() };
        let between = (writer + 1..at).filter(|i| !writers.contains(i)).map(|i| &steps[i]);
        let fused = matches(conv, between, &group).then(|| finished(conv, &group))??;
        Some((writer, fused))
    };
    let parts = writers.iter().map(part).collect::<Option<Vec<_>>>()?;
    channels.sort_by_key(|part| part.start);
    let starts = channels.iter().map(|part| part.start).chain([from.shape[1]]);
    let adjacent = std::iter::once(0).chain(channels.iter().map(|part| part.end)).eq(starts);
    adjacent.then_some(parts)
}

/// The step with its operands in the shape of the image `like`, if they have another one. A linear
/// layer is a convolution over a row of pixels, and what follows it has the shape of the program.
pub(super) fn pixels<'s>(step: &'s Step, like: &View) -> Option<Cow<'s, Step>> {
    let shape = &step.writes.first()?.shape;
    if *shape == like.shape || like.shape.len() != 3 || like.shape[0] != 1 {
        return Some(Cow::Borrowed(step));
    }
    let row = |view: &View| {
        let as_image = || view.reshaped(&like.shape).filter(|_| shape.len() > 3 && shape[1] == like.shape[1]);
        as_image().or_else(|| view.row_of_pixels()).filter(|row| row.shape == like.shape)
    };
    let rows = |views: &[View]| views.iter().map(row).collect::<Option<Vec<_>>>();
    let (reads, writes) = (rows(&step.reads)?, rows(&step.writes)?);
    Some(Cow::Owned(Step { reads, writes, ..step.clone() }))
}

/// True if a group reads the results of a convolution, and could run there, before the steps
/// between the two.
fn matches<'s>(conv: &Step, between: impl IntoIterator<Item = &'s Step>, group: &Step) -> bool {
    let (StepKind::PackedConv(packed), StepKind::Group(_)) = (&conv.kind, &group.kind) else { return false };
    let (from, [to]) = (&conv.writes[0], group.writes.as_slice()) else { return false };
    let reads = || group.reads.iter();
    // What lies between does not touch what the group reads or writes.
    let apart = between.into_iter().all(|step| {
        let writes = |view: &View| step.writes.iter().any(|w| !w.is_apart_from(view));
        let touches = |view: &View| writes(view) || step.reads.iter().any(|r| !r.is_apart_from(view));
        !touches(to) && !reads().any(writes)
    });
    let unread = conv.reads.iter().all(|r| !r.overlaps(to));
    // Each element is finished where it lies, so the group reads the results in their order only.
    let in_order = reads().any(|r| r == from) && reads().all(|r| r == from || !r.overlaps(from));
    matches!(packed.layout, Layout::ChannelsLast(_))
        && packed.finish.is_none()
        && packed.steps.is_empty()
        && apart
        && unread
        && from.storage == to.storage
        && in_order
}

/// The convolution with the group, if the group visits its operands by positions and channels.
fn finished(conv: &Step, step: &Step) -> Option<Step> {
    let (StepKind::PackedConv(packed), StepKind::Group(group)) = (&conv.kind, &step.kind) else { return None };
    let (from, to) = (&conv.writes[0], &step.writes[0]);
    if !group.joined.is_empty() || group.stores.len() != 1 || to.shape != from.shape {
        return None;
    }
    let own = step.reads.iter().position(|r| r == from)?;
    let layout = Layout::ChannelsLast(pixel_pitch(to)?);
    let mut strides = Vec::new();
    let mut images = Vec::new();
    for (i, view) in step.writes.iter().chain(&step.reads).enumerate() {
        // The results lie where they are written.
        let view = if i == own + 1 { to } else { view };
        let (position, channel, image) = by_position(view)?;
        strides.push(vec![position, channel]);
        images.push(image);
    }
    let extents = vec![to.shape[2..].iter().product(), to.shape[1]];
    let nest = Nest { extents, strides, divisible: true };
    // An operand that all tiles share is loaded once, so no instruction may reuse its register, as
    // the group's may for an operand that differs from image to image.
    let shared = |nest: &Nest, operand: usize| nest.strides[operand].iter().all(|&s| s == 0);
    if (0..nest.strides.len()).any(|i| shared(&nest, i) && !shared(&group.nest, i)) {
        return None;
    }
    let group = Group { nest, fused: None, ..group.clone() };
    let mut reads = conv.reads.clone();
    let others = reads.len();
    reads.extend(step.reads.iter().enumerate().filter(|(i, _)| *i != own).map(|(_, view)| view.clone()));
    if reads.len() > MAX_READS {
        return None;
    }
    let mut packed = PackedConv { layout, ..packed.clone() };
    let addend = match step.reads.as_slice() {
        [_] => Some(None),
        // The only other operand is another image.
        [a, b] => addend(if own == 0 { b } else { a }, to, others).map(Some),
        _ => None,
    };
    match addend.and_then(|addend| Some((addend, point_steps(&group, own, from.storage == Storage::F16)?))) {
        Some((addend, steps)) => (packed.steps, packed.addend) = (steps, addend),
        None => packed.finish = Some(Box::new(Finish { group, own, others, images })),
    }
    Some(Step {
        op: format!("{}+{}", conv.op, step.op),
        value: step.value.clone(),
        reads,
        writes: vec![to.clone()],
        kind: StepKind::PackedConv(packed),
    })
}

/// An operand that has an element for each result, at a constant distance from one position to the
/// next.
fn addend(view: &View, to: &View, read: usize) -> Option<Addend> {
    let (position, channel, image) = by_position(view)?;
    let neighbors = view.shape == to.shape && (channel == 1 || view.shape[1] == 1);
    let floats = matches!(view.storage, Storage::F16 | Storage::F32);
    (neighbors && floats).then_some(Addend { read, pitch: usize::try_from(position).ok()?, image })
}

/// The number by which [`point_steps`] knows the addend.
const ADDEND: usize = usize::MAX;

/// A group as operations on one value that is stored then, as [`value_steps`].
fn point_steps(group: &Group, own: usize, halves: bool) -> Option<Vec<PointStep>> {
    let mut steps = value_steps(group, own, halves)?;
    // Stored values are rounded anyway.
    if halves && steps.last() == Some(&PointStep::Round) {
        steps.pop();
    }
    Some(steps)
}

/// A group as operations on one value, if it is a sequence of these, with products by at most one
/// earlier value and sums with the other operand, if there is one. The results of the convolution,
/// operand `own`, are fp16 values if they are `halves`.
pub(super) fn value_steps(group: &Group, own: usize, halves: bool) -> Option<Vec<PointStep>> {
    use {Elementwise as E, Unary as U};
    // Values by number: 0 is the operand, the others are results of instructions. Registers hold
    // them.
    let mut values: Vec<Option<usize>> = vec![None; group.registers];
    for (i, load) in group.loads.iter().enumerate() {
        *values.get_mut(usize::from(*load))? = Some(if i == own { 0 } else { ADDEND });
    }
    let mut steps: Vec<Vec<PointStep>> = vec![if halves { vec![PointStep::Round] } else { Vec::new() }];
    let mut held = None;
    for (current, instruction) in group.instructions.iter().enumerate() {
        let value = |i: usize| values[usize::from(instruction.from[i])];
        let mut made = match instruction.op {
            E::Binary(Binary::Mul) => {
                let other = match (value(0)?, value(1)?) {
                    (a, b) if a == current => b,
                    (a, b) if b == current => a,
                    _ => return None,
                };
                if other == ADDEND || *held.get_or_insert(other) != other {
                    return None;
                }
                vec![PointStep::TimesHeld]
            }
            E::Binary(Binary::Add) => {
                let operands = [value(0)?, value(1)?];
                if operands != [current, ADDEND] && operands != [ADDEND, current] {
                    return None;
                }
                vec![PointStep::PlusAddend]
            }
            E::Unary(f) if value(0) == Some(current) => match f {
                U::Identity => Vec::new(),
                U::Relu => vec![PointStep::Clamp(0.0, f32::INFINITY)],
                U::Relu6 => vec![PointStep::Clamp(0.0, 6.0)],
                U::Clip(low, high) => vec![PointStep::Clamp(low, high)],
                U::ThresholdedRelu(low) => vec![PointStep::From(low)],
                U::Linear(factor, term) => vec![PointStep::Affine(factor, term)],
                U::Sigmoid => vec![PointStep::Sigmoid],
                U::Silu => vec![PointStep::Silu],
                U::GeluExact => vec![PointStep::Gelu],
                U::SigmoidHard(factor, term) => vec![PointStep::Affine(factor, term), PointStep::Clamp(0.0, 1.0)],
                _ => return None,
            },
            _ => return None,
        };
        let before =
            if made.iter().all(keeps_halves) { steps.last().and_then(|steps| steps.last()) } else { made.last() };
        if instruction.round && before != Some(&PointStep::Round) {
            made.push(PointStep::Round);
        }
        steps.push(made);
        values[usize::from(instruction.to)] = Some(current + 1);
    }
    // What is stored is the last value.
    if values[usize::from(*group.stores.first()?)] != Some(group.instructions.len()) {
        return None;
    }
    if let Some(held) = held {
        steps[held].push(PointStep::Hold);
    }
    Some(with_gates(steps.concat()))
}

/// The steps, with products by a gate of the value itself as one step.
fn with_gates(mut steps: Vec<PointStep>) -> Vec<PointStep> {
    use PointStep::{Affine, Clamp, Hold, Round, TimesHeld};
    // What is held for another product remains.
    if steps.iter().filter(|step| **step == TimesHeld).count() != 1 {
        return steps;
    }
    for at in 0..steps.len() {
        let (gate, count) = match steps[at..] {
            [Hold, Affine(factor, term), Clamp(low, high), TimesHeld, ..] => {
                (Gate { factor, term, low, high, round: false }, 4)
            }
            [Hold, Affine(factor, term), Clamp(low, high), Round, TimesHeld, ..] => {
                (Gate { factor, term, low, high, round: true }, 5)
            }
            _ => continue,
        };
        steps.splice(at..at + count, [PointStep::Gate(gate)]);
        break;
    }
    steps
}

/// True if the step leaves values in fp16 so: bounds in fp16 do.
pub(super) fn keeps_halves(step: &PointStep) -> bool {
    let exact = |bound: f32| f16::from_f32(bound).to_f32() == bound;
    matches!(step, PointStep::Clamp(low, high) if exact(*low) && exact(*high))
}

/// Strides from one position to the next, from one channel to the next, and from one image to the
/// next.
fn by_position(view: &View) -> Option<(isize, isize, isize)> {
    let places: usize = view.shape[2..].iter().product();
    let position = match view.reshaped(&[view.shape[0], view.shape[1], places]) {
        _ if view.is_constant_over_positions() => 0,
        Some(flat) => flat.strides[2],
        None => return None,
    };
    Some((position, if view.shape[1] == 1 { 1 } else { view.strides[1] }, view.stride(0)))
}
