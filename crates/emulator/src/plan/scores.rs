//! Scores: scaling and mask of a softmax, in the pass that finds its largest element.
//!
//! In attention a chain scales the scores, adds a mask and takes the softmax. As stages of their
//! own that is a pass over a register for each operand and result; here the softmax does it where
//! it looks for the largest element of a row.

use ferrane_host::rounded::Binary;

use super::chain::{At, Operand, Stage};
use super::step::{Elementwise, Group};
use super::view::{Storage, View};

/// What becomes of scores before their softmax: `round(round(score · scale) + mask)`.
#[derive(Clone, Debug)]
pub(crate) struct Masked {
    pub scale: f32,
    /// A read in fp16, whose columns are neighbors.
    pub mask: Operand,
}

/// The slot and what becomes of it, if that is all that a group does. `operands` are its write,
/// then its reads.
fn scores(group: &Group, operands: &[Operand], reads: &[View]) -> Option<(usize, Masked)> {
    let ([instruction], [store], true) = (&group.instructions[..], &group.stores[..], group.joined.is_empty()) else {
        return None;
    };
    let (Elementwise::Pair([Binary::Mul, Binary::Add], false), [a, b, c]) = (instruction.op, instruction.from) else {
        return None;
    };
    let read = |reg| operands[1..].iter().zip(&group.loads).find(|(_, load)| **load == reg).map(|(operand, _)| operand);
    let constant = |reg| group.constants.iter().find(|(r, _)| *r == reg).map(|(_, bits)| f32::from_bits(*bits));
    let slot = |reg| match read(reg)?.at {
        At::Slot(slot) => Some(slot),
        At::Memory(_) => None,
    };
    let (slot, scale) = match (slot(a), constant(b)) {
        (Some(slot), Some(scale)) => (slot, scale),
        _ => (slot(b)?, constant(a)?),
    };
    let mask = read(c)?;
    let At::Memory(index) = mask.at else { return None };
    let fits = *store == instruction.to && mask.col == 1 && reads[index].storage == Storage::F16;
    fits.then(|| (slot, Masked { scale, mask: mask.clone() }))
}

/// Whether a stage reads a slot.
fn looks(stage: &Stage, slot: usize) -> bool {
    let at = |operand: &Operand| operand.at == At::Slot(slot);
    match stage {
        Stage::Product { lhs, rhs, .. } => at(lhs) || at(rhs),
        Stage::Group { group, operands, .. } => operands[group.stores.len()..].iter().any(at),
        Stage::Softmax { from, .. } | Stage::Reduce { from, .. } => at(from),
        Stage::Store { from, .. } => *from == slot,
    }
}

/// Gives scaling and mask to the softmax that follows them.
pub(super) fn hand_over(stages: &mut Vec<Stage>, reads: &[View]) {
    for at in 1..stages.len().saturating_sub(1) {
        let Stage::Group { group, operands, .. } = &stages[at] else { continue };
        let (Some((raw, scores)), At::Slot(masked)) = (scores(group, operands, reads), operands[0].at) else {
            continue;
        };
        let Stage::Softmax { from, to, .. } = &stages[at + 1] else { continue };
        // Nobody else looks at either; the softmax goes from one slot to another.
        let others = stages[at + 2..].iter().any(|s| looks(s, masked))
            || (*to != raw && stages[at + 2..].iter().any(|s| looks(s, raw)));
        if from.at != At::Slot(masked) || *to == masked || others {
            continue;
        }
        let Stage::Product { to: product, .. } = &mut stages[at - 1] else { continue };
        if product.at != At::Slot(raw) {
            continue;
        }
        // The softmax may write where the raw scores would be; the place of the masked ones is
        // free.
        product.at = At::Slot(masked);
        if let Stage::Softmax { masked: place, .. } = &mut stages[at + 1] {
            *place = Some(scores);
        }
        stages.remove(at);
        return;
    }
}
