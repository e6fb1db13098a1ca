//! What the passes over the stages of a chain ask of a stage.

use crate::ir::{ChainOperand, ChainProduct, ChainSoftmax, ChainSoftmaxGradient, ChainStage, Group, Reg, TileLocation};

/// The operand that a group loads into a register, if it does. `operands` are the group's writes,
/// then its reads.
pub(super) fn loaded<'a>(group: &Group, operands: &'a [ChainOperand], reg: Reg) -> Option<&'a ChainOperand> {
    let reads = &operands[group.stores.len()..];
    reads.iter().zip(&group.loads).find(|(_, load)| **load == reg).map(|(operand, _)| operand)
}

/// The number that a group keeps in a register, if it is a constant.
pub(super) fn constant(group: &Group, reg: Reg) -> Option<f32> {
    group.constants.iter().find(|(r, _)| *r == reg).map(|(_, bits)| f32::from_bits(*bits))
}

/// Of two registers, the one that is not the known one, if one of them is.
pub(super) fn other(a: Reg, b: Reg, is_known: impl Fn(Reg) -> bool) -> Option<Reg> {
    match (is_known(a), is_known(b)) {
        (true, false) => Some(b),
        (false, true) => Some(a),
        _ => None,
    }
}

/// Whether a stage reads a slot.
pub(super) fn reads(stage: &ChainStage, slot: usize) -> bool {
    let at = |operand: &ChainOperand| operand.at == TileLocation::Slot(slot);
    match stage {
        ChainStage::Product(ChainProduct { lhs, rhs, .. }) => at(lhs) || at(rhs),
        ChainStage::Group { group, operands, .. } => operands[group.stores.len()..].iter().any(at),
        ChainStage::Softmax(ChainSoftmax { from, masked, .. }) => {
            at(from) || masked.as_ref().is_some_and(|masked| at(&masked.mask))
        }
        ChainStage::SoftmaxGradient(ChainSoftmaxGradient { probs, grads, .. }) => at(probs) || at(grads),
        ChainStage::Reduce { from, .. } => at(from),
        ChainStage::Store { from, .. } => *from == slot,
    }
}
