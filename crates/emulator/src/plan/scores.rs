//! Scores: moves scale and mask of a softmax into the pass that finds its largest element.
//!
//! In attention a chain scales the scores, adds a mask and takes the softmax. As separate stages
//! that would be a pass over registers for each operand and result; here the softmax applies both
//! while it searches for the largest element of a row.

use ferrane_host::rounded::Binary;

use crate::ir::{
    ChainOperand, ChainProduct, ChainSoftmax, ChainStage, Elementwise, Group, Masked, Storage, TileLocation, View,
};

/// The slot of the scores, with scale and mask, if the group does nothing else. `operands` are its
/// write, then its reads.
fn scores(group: &Group, operands: &[ChainOperand], reads: &[View]) -> Option<(usize, Masked)> {
    let ([instruction], [store], true) = (&group.instructions[..], &group.stores[..], group.joined.is_empty()) else {
        return None;
    };
    let (Elementwise::Pair([Binary::Mul, Binary::Add], false), [a, b, c]) = (instruction.op, instruction.from) else {
        return None;
    };
    let read = |reg| operands[1..].iter().zip(&group.loads).find(|(_, load)| **load == reg).map(|(operand, _)| operand);
    let constant = |reg| group.constants.iter().find(|(r, _)| *r == reg).map(|(_, bits)| f32::from_bits(*bits));
    let slot = |reg| match read(reg)?.at {
        TileLocation::Slot(slot) => Some(slot),
        TileLocation::Memory(_) => None,
    };
    let (slot, scale) = match (slot(a), constant(b)) {
        (Some(slot), Some(scale)) => (slot, scale),
        _ => (slot(b)?, constant(a)?),
    };
    let mask = read(c)?;
    let TileLocation::Memory(index) = mask.at else { return None };
    let fits = *store == instruction.to && mask.col == 1 && reads[index].storage == Storage::F16;
    fits.then(|| (slot, Masked { scale, mask: mask.clone() }))
}

/// Whether a stage reads a slot.
fn looks(stage: &ChainStage, slot: usize) -> bool {
    let at = |operand: &ChainOperand| operand.at == TileLocation::Slot(slot);
    match stage {
        ChainStage::Product(ChainProduct { lhs, rhs, .. }) => at(lhs) || at(rhs),
        ChainStage::Group { group, operands, .. } => operands[group.stores.len()..].iter().any(at),
        ChainStage::Softmax(ChainSoftmax { from, .. }) | ChainStage::Reduce { from, .. } => at(from),
        ChainStage::Store { from, .. } => *from == slot,
    }
}

/// Moves scale and mask into the softmax that follows them.
pub(super) fn hand_over(stages: &mut Vec<ChainStage>, reads: &[View]) {
    for at in 1..stages.len().saturating_sub(1) {
        let ChainStage::Group { group, operands, .. } = &stages[at] else { continue };
        let (Some((raw, scores)), TileLocation::Slot(masked)) = (scores(group, operands, reads), operands[0].at) else {
            continue;
        };
        let ChainStage::Softmax(ChainSoftmax { from, to, .. }) = &stages[at + 1] else { continue };
        // No later stage may read either slot, and the softmax must write another slot.
        let others = stages[at + 2..].iter().any(|s| looks(s, masked))
            || (*to != raw && stages[at + 2..].iter().any(|s| looks(s, raw)));
        if from.at != TileLocation::Slot(masked) || *to == masked || others {
            continue;
        }
        let ChainStage::Product(ChainProduct { to: product, .. }) = &mut stages[at - 1] else { continue };
        if product.at != TileLocation::Slot(raw) {
            continue;
        }
        // The raw scores go to the slot of the masked ones, because the softmax may write to their
        // own slot.
        product.at = TileLocation::Slot(masked);
        if let ChainStage::Softmax(softmax) = &mut stages[at + 1] {
            softmax.masked = Some(scores);
        }
        stages.remove(at);
        return;
    }
}
