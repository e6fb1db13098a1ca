//! Scores: moves scale and mask of a softmax into the pass that finds its largest element.
//!
//! In attention a chain scales the scores, adds a mask and takes the softmax. As separate stages
//! that would be a pass over registers for each operand and result; here the softmax applies both
//! while it searches for the largest element of a row.

use ferrane_host::rounded::Binary;

use super::stage;
use crate::ir::{
    self, ChainOperand, ChainProduct, ChainStage, Elementwise, Group, Masked, Storage, TileLocation, View,
};

/// The scores on their way through groups that do nothing but scale and mask them.
struct Scores {
    /// Where they are now.
    slot: usize,
    scale: Option<f32>,
    mask: Option<ChainOperand>,
}

impl Scores {
    /// Follows the scores through one group. `operands` are its write, then its reads.
    fn follow(&mut self, group: &Group, operands: &[ChainOperand], reads: &[View]) -> Option<()> {
        let ([instruction], [store], true) = (&group.instructions[..], &group.stores[..], group.joined.is_empty())
        else {
            return None;
        };
        let read = |reg| stage::loaded(group, operands, reg);
        let constant = |reg| stage::constant(group, reg);
        let is_score = |reg| read(reg).is_some_and(|operand| operand.at == TileLocation::Slot(self.slot));
        // The operand that is not the scores, of two whose order does not matter.
        let other = |a, b| stage::other(a, b, is_score);
        let mask = |reg| {
            let operand = read(reg)?;
            let TileLocation::Memory(index) = operand.at else { return None };
            (operand.col == 1 && reads[index].storage == Storage::F16).then(|| operand.clone())
        };
        let [a, b, c] = instruction.from;
        match instruction.op {
            Elementwise::Pair([Binary::Mul, Binary::Add], false) if self.scale.is_none() => {
                (self.scale, self.mask) = (Some(constant(other(a, b)?)?), Some(mask(c)?));
            }
            Elementwise::Binary(ir::Binary::Mul) if instruction.round && self.scale.is_none() => {
                self.scale = Some(constant(other(a, b)?)?);
            }
            Elementwise::Binary(ir::Binary::Add) if instruction.round => self.mask = Some(mask(other(a, b)?)?),
            _ => return None,
        }
        let TileLocation::Slot(slot) = operands[0].at else { return None };
        self.slot = slot;
        (*store == instruction.to).then_some(())
    }
}

/// Moves scale and mask into the softmax that follows them.
pub(super) fn hand_over(stages: &mut Vec<ChainStage>, reads: &[View]) {
    for at in 0..stages.len() {
        let Some((slot, groups, masked)) = scaled_and_masked(&stages[at..], reads) else { continue };
        // The raw scores go to the slot of the masked ones, because the softmax may write to their
        // own slot.
        if let ChainStage::Product(product) = &mut stages[at] {
            product.to.at = TileLocation::Slot(slot);
        }
        if let ChainStage::Softmax(softmax) = &mut stages[at + groups + 1] {
            softmax.masked = Some(masked);
        }
        stages.drain(at + 1..=at + groups);
        return;
    }
}

/// If stages begin with a product, groups that scale and mask its scores, and their softmax: the
/// slot of the masked scores, the number of groups, and what they do.
fn scaled_and_masked(stages: &[ChainStage], reads: &[View]) -> Option<(usize, usize, Masked)> {
    // A product that is not rounded would be rounded by a scale of 1.
    let ChainStage::Product(ChainProduct { to, round: true, .. }) = stages.first()? else { return None };
    let TileLocation::Slot(raw) = to.at else { return None };
    let mut scores = Scores { slot: raw, scale: None, mask: None };
    let mut passed = vec![raw];
    let (softmax, mask) = loop {
        match (stages.get(passed.len())?, &scores.mask) {
            (ChainStage::Group { group, operands, .. }, None) => {
                scores.follow(group, operands, reads)?;
                passed.push(scores.slot);
            }
            (ChainStage::Softmax(softmax), Some(mask)) if softmax.masked.is_none() => break (softmax, mask.clone()),
            _ => return None,
        }
    };
    let (groups, slot) = (passed.len() - 1, scores.slot);
    // No later stage may read what is no longer written, the product must not read the slot that it
    // writes now, and the softmax must write another one.
    let later = &stages[groups + 2..];
    let is_read = |passed: &usize| *passed != softmax.to && later.iter().any(|stage| stage::reads(stage, *passed));
    let clashes = softmax.to == slot || (slot != raw && stage::reads(&stages[0], slot)) || passed.iter().any(is_read);
    (softmax.from.at == TileLocation::Slot(slot) && !clashes).then_some(())?;
    Some((slot, groups, Masked { scale: scores.scale.unwrap_or(1.0), mask }))
}
