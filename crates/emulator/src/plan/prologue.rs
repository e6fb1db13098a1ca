//! Groups that are computed by the convolution that reads them, so that what they make is never in
//! memory. The convolution must be their only reader, and the result is the same, bit for bit.
//!
//! These are products of an image with one value for each channel, as the gates of
//! squeeze-and-excitation are, and batch norms with ReLU, as before the convolutions of dense
//! blocks. A convolution of one tap copies the pixels that it multiplies, and changes them while it
//! copies.

use super::near::{self, Place};
use crate::ir::{
    Binary, Buffer, Elementwise, Group, Instruction, MAX_READS, Policy, Prologue, Step, StepKind, Storage, Unary, View,
};

/// Moves such groups into the convolutions that read them.
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

/// The convolution at the end of some steps with the group at their beginning, if it can compute
/// it.
fn scaled(steps: &[Step]) -> Option<Step> {
    let [product, between @ .., conv] = steps else { return None };
    let (StepKind::Group(group), StepKind::PackedConv(packed)) = (&product.kind, &conv.kind) else { return None };
    let Affine { image, scales, shifts, relu } = affine(group, product)?;
    let to = &product.writes[0];
    let reads = conv.reads.iter().filter(|view| view.buffer == to.buffer).count();
    let written = |view: &View| between.iter().chain([conv]).any(|s| s.writes.iter().any(|w| w.buffer == view.buffer));
    let takes = packed.conv.takes_prologue()
        && packed.prologue.is_none()
        && conv.reads[0] == *to
        && reads == 1
        && conv.reads.len() + 1 + usize::from(shifts.is_some()) <= MAX_READS
        && (image.shape[1] == 1 || image.strides[1] == 1)
        && ![image, scales].into_iter().chain(shifts).any(written);
    takes.then(|| {
        let mut packed = packed.clone();
        let others = conv.reads.len();
        packed.prologue = Some(Prologue { scales: others, shifts: shifts.map(|_| others + 1), relu });
        let mut reads = conv.reads.clone();
        reads[0] = image.clone();
        reads.push(scales.clone());
        reads.extend(shifts.cloned());
        let op = format!("{}+{}", product.op, conv.op);
        Step { op, reads, kind: StepKind::PackedConv(packed), ..conv.clone() }
    })
}

/// The operands of a group that computes `image · scales + shifts`, then perhaps ReLU.
struct Affine<'a> {
    image: &'a View,
    scales: &'a View,
    shifts: Option<&'a View>,
    relu: bool,
}

/// A group as such operations on an image and values for each of its channels.
fn affine<'a>(group: &Group, step: &'a Step) -> Option<Affine<'a>> {
    let ([to], [product, rest @ ..]) = (step.writes.as_slice(), group.instructions.as_slice()) else { return None };
    let relu = match rest {
        [] => false,
        [last] if is_relu_of(last, product) => true,
        _ => return None,
    };
    let operand = |at: usize| step.reads.get(group.loads.iter().position(|load| *load == product.from[at])?);
    let (a, b) = (operand(0)?, operand(1)?);
    let [image, scales] = if b.is_constant_over_positions() { [a, b] } else { [b, a] };
    let shifts = match product.op {
        Elementwise::Binary(Binary::Mul) => None,
        Elementwise::MulAdd => Some(operand(2)?),
        _ => return None,
    };
    let broadcasts = |from: &View| {
        from.shape.len() == to.shape.len() && from.shape.iter().zip(&to.shape).all(|(n, m)| n == m || *n == 1)
    };
    let floats = |view: &View| matches!(view.storage, Storage::F16 | Storage::F32);
    let by_channel = |view: &View| broadcasts(view) && view.is_constant_over_positions() && floats(view);
    let fits = group.stores == [rest.last().unwrap_or(product).to]
        && group.joined.is_empty()
        && product.from[0] != product.from[1]
        && step.reads.len() == 2 + usize::from(shifts.is_some())
        && to.shape.len() > 2
        && image.shape == to.shape
        && by_channel(scales)
        && shifts.is_none_or(by_channel)
        && image.storage == to.storage
        && product.round == (to.storage == Storage::F16)
        && floats(image);
    fits.then_some(Affine { image, scales, shifts, relu })
}

fn is_relu_of(instruction: &Instruction, value: &Instruction) -> bool {
    instruction.op == Elementwise::Unary(Unary::Relu) && instruction.from[0] == value.to
}
