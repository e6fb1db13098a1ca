//! The gradient of a softmax: three stages of a chain become one.
//!
//! A backward pass multiplies probabilities with the gradients that arrive at them, sums each row,
//! subtracts the sum from the row's gradients, and multiplies with the probabilities again; that of
//! attention also scales the result. As separate stages each op is a pass over a tile; here there
//! are two passes, for the sums and for the results.
//!
//! Invariant: every value is rounded where its op would round it, and a sum has the order of a
//! reduction, so only the number of passes changes.
//!
//! In causal attention the probabilities after a query's own key are zero. Where a whole block of
//! columns is, and the gradients are small enough for a zero to stay zero, the results are zeros
//! too. If only products read them, neither these zeros nor their signs change anything, and the
//! block is left out.

use ferrane_host::rounded;

use super::stage;
use crate::ir::{
    Binary, ChainOperand, ChainProduct, ChainSoftmaxGradient, ChainStage, Elementwise, Group, Instruction, Reduction,
    SegmentMatrix, Storage, TileLocation, View,
};

/// Replaces the first three stages that are such a gradient. `is_factor` says of a write whether
/// only products read it.
pub(super) fn join(stages: &mut Vec<ChainStage>, reads: &[View], is_factor: impl Fn(usize) -> bool) {
    let found = (0..stages.len()).find_map(|at| Some((at, find(&stages[at..], reads)?)));
    if let Some((at, mut gradient)) = found {
        gradient.zeros = zeros(&gradient, &stages[at + 3..], is_factor);
        stages.splice(at..at + 3, [ChainStage::SoftmaxGradient(gradient)]);
    }
}

/// The matrices that zeros are multiplied with, if products and stores are all that reads them.
fn zeros(
    gradient: &ChainSoftmaxGradient,
    later: &[ChainStage],
    is_factor: impl Fn(usize) -> bool,
) -> Option<Vec<SegmentMatrix>> {
    let memory = |operand: &ChainOperand| matches!(operand.at, TileLocation::Memory(_));
    if !memory(&gradient.probs) || !memory(&gradient.grads) || !gradient.scale.is_none_or(f32::is_finite) {
        return None;
    }
    let mut finite = Vec::new();
    for stage in later {
        match stage {
            ChainStage::Product(ChainProduct { lhs, rhs, size, .. }) => {
                let (TileLocation::Slot(slot), TileLocation::Memory(read)) = (lhs.at, rhs.at) else { return None };
                (slot == gradient.to).then_some(())?;
                finite.push(SegmentMatrix { read, operand: rhs.clone(), size: *size });
            }
            ChainStage::Store { from, to, .. } if *from == gradient.to => {
                let TileLocation::Memory(write) = to.at else { return None };
                is_factor(write).then_some(())?;
            }
            _ => return None,
        }
    }
    Some(finite)
}

/// The gradient that the first three stages are, if they are one.
fn find(stages: &[ChainStage], reads: &[View]) -> Option<ChainSoftmaxGradient> {
    let [
        ChainStage::Group { group: first, operands: multiplied, width },
        ChainStage::Reduce { reduction: Reduction::Sum, from, to: sum, round: true },
        ChainStage::Group { group: second, operands: centered, .. },
        later @ ..,
    ] = stages
    else {
        return None;
    };
    let factors = factors(first, multiplied)?;
    let (grads, mean, probs, scale) = centering(second, centered)?;
    let (TileLocation::Slot(products), TileLocation::Slot(to)) = (multiplied[0].at, centered[0].at) else {
        return None;
    };
    let plain = |operand: &ChainOperand| match operand.at {
        TileLocation::Slot(slot) => operand.col == 1 && slot != to,
        TileLocation::Memory(read) => operand.col == 1 && reads[read].storage == Storage::F16,
    };
    let is_gradient = (factors == [probs, grads] || factors == [grads, probs])
        && from.at == TileLocation::Slot(products)
        && mean.at == TileLocation::Slot(*sum)
        && *width > 1
        && [probs, grads].into_iter().all(plain);
    // Neither products nor sums are written any more.
    let is_read = |slot: usize| slot != to && later.iter().any(|later| stage::reads(later, slot));
    if !is_gradient || is_read(products) || is_read(*sum) {
        return None;
    }
    Some(ChainSoftmaxGradient { probs: probs.clone(), grads: grads.clone(), scale, to, zeros: None })
}

/// The factors of a group that only multiplies two operands.
fn factors<'a>(group: &Group, operands: &'a [ChainOperand]) -> Option<[&'a ChainOperand; 2]> {
    match group.instructions[..] {
        [Instruction { op: Elementwise::Binary(Binary::Mul), to, from: [a, b, _], round: true }]
            if group.stores == [to] && group.joined.is_empty() =>
        {
            Some([stage::loaded(group, operands, a)?, stage::loaded(group, operands, b)?])
        }
        _ => None,
    }
}

/// Gradients, mean, probabilities and scale of a group that computes
/// `(grads - mean) · probs`, or that and its product with a constant.
fn centering<'a>(
    group: &Group,
    operands: &'a [ChainOperand],
) -> Option<(&'a ChainOperand, &'a ChainOperand, &'a ChainOperand, Option<f32>)> {
    const CENTER: Elementwise = Elementwise::Pair([rounded::Binary::Sub, rounded::Binary::Mul], false);
    let (gradient, last, scale) = match group.instructions[..] {
        [gradient] => (gradient, gradient.to, None),
        [gradient, Instruction { op: Elementwise::Binary(Binary::Mul), to, from: [a, b, _], round: true }] => {
            let factor = stage::other(a, b, |reg| reg == gradient.to)?;
            (gradient, to, Some(stage::constant(group, factor)?))
        }
        _ => return None,
    };
    if gradient.op != CENTER || group.stores != [last] || !group.joined.is_empty() {
        return None;
    }
    let [grads, mean, probs] = gradient.from;
    let loaded = |reg| stage::loaded(group, operands, reg);
    Some((loaded(grads)?, loaded(mean)?, loaded(probs)?, scale))
}
