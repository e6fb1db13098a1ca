//! Columns of attention scores that a constant mask hides.
//!
//! Attention adds a large negative number to the score of a key that a query must not see. After
//! the last key that a query sees, every probability is `e^x` of a large negative `x`, which is
//! exactly zero. A softmax computes the columns that its row sees; the products with keys and
//! values, those that a row of the tile sees.
//!
//! Invariant: skipping them changes no bit. That holds while the scores are small compared with the
//! mask and nothing is NaN or infinite: then a hidden probability is +0, and adding it to a sum, or
//! adding its product with a finite value, changes nothing. Every evaluation checks this condition
//! by the largest magnitudes of the factors; if it does not hold, all columns are computed.

use ferrane_host::rounded;
use ferrane_host::softmax::LANES;

use crate::ir::{
    Binary, Buffer, COLUMN_BLOCK, Causal, Chain, ChainOperand, ChainProduct, ChainSoftmax, ChainStage, Elementwise,
    Group, Reg, SegmentMatrix, Storage, TileLocation, View,
};

/// The scores on their way to the softmax.
struct Scores {
    slot: usize,
    scale: f32,
    /// The largest scale so far: no scaled score may overflow fp16.
    peak: f32,
    mask: Option<usize>,
}

/// The columns that the mask of a chain hides. The chain must consist of scores, scaling, a
/// constant mask, a softmax, and optionally the product with values.
pub(super) fn find(chain: &Chain, reads: &[View], buffers: &[Buffer<'_>]) -> Option<Causal> {
    let mut stages = chain.stages.iter();
    let ChainStage::Product(ChainProduct { lhs, rhs, to, size, scale, bias: None, round: true }) = stages.next()?
    else {
        return None;
    };
    let (TileLocation::Memory(left), TileLocation::Memory(right), TileLocation::Slot(slot)) = (lhs.at, rhs.at, to.at)
    else {
        return None;
    };
    let depth = size.0;
    let factors = [
        SegmentMatrix { read: left, operand: lhs.clone(), size: (chain.rows, depth) },
        SegmentMatrix { read: right, operand: rhs.clone(), size: (depth, chain.cols) },
    ];
    let scale = scale.abs() * depth as f32;
    let mut scores = Scores { slot, scale, peak: scale, mask: None };
    let mut finite = Vec::new();
    let mut is_softmax = false;
    for stage in stages {
        match stage {
            ChainStage::Group { group, operands, .. } if !is_softmax => {
                let slots: Vec<TileLocation> = operands.iter().map(|o| o.at).collect();
                follow(&mut scores, group, &slots)?;
            }
            ChainStage::Softmax(ChainSoftmax { from, to, round: true, masked: None })
                if !is_softmax && from.at == TileLocation::Slot(scores.slot) =>
            {
                (scores.slot, is_softmax) = (*to, true);
            }
            ChainStage::Store { from, .. } if is_softmax && *from == scores.slot => {}
            ChainStage::Product(ChainProduct { lhs, rhs, to, size, .. })
                if is_softmax && lhs.at == TileLocation::Slot(scores.slot) =>
            {
                let (TileLocation::Memory(values), TileLocation::Memory(_)) = (rhs.at, to.at) else { return None };
                finite.push(SegmentMatrix { read: values, operand: rhs.clone(), size: (chain.cols, size.1) });
            }
            _ => return None,
        }
    }
    let mask = &reads[scores.mask.filter(|_| is_softmax)?];
    let operand = chain.stages.iter().find_map(|s| match s {
        ChainStage::Group { operands, .. } => {
            operands.iter().find(|o| Some(o.at) == scores.mask.map(TileLocation::Memory))
        }
        _ => None,
    })?;
    let Hidden { limits, rows, distance } = hidden(chain, mask, operand, buffers[mask.buffer].data.as_ref()?.bytes()?)?;
    // Scores of a quarter of the distance, on either side, leave half of it, which is far more than
    // the 104 below which e^x is zero and than what rounding to fp16 can add.
    let bound = (distance / 4.0 / scores.scale).min(30_000.0 / scores.peak);
    if !bound.is_finite() {
        return None;
    }
    Some(Causal { limits, rows, factors, bound, finite })
}

/// What a mask hides.
struct Hidden {
    /// The number of columns that each tile, and each row, sees.
    limits: Vec<usize>,
    rows: Vec<usize>,
    /// The least distance between the mask of a row's best key and that of a key that is hidden
    /// from it.
    distance: f32,
}

/// `None` if nothing is hidden, or the distance is too small.
fn hidden(chain: &Chain, mask: &View, operand: &ChainOperand, data: &[u8]) -> Option<Hidden> {
    let base = mask.offset;
    // The mask must be the same for all segments.
    if operand.offsets.iter().any(|&o| o != operand.offsets[0]) {
        return None;
    }
    let element = |row: usize, col: usize| {
        let at = base + operand.offsets[0] + row * operand.row + col * operand.col;
        match mask.storage {
            Storage::F16 => {
                let bytes = data.get(2 * at..2 * at + 2)?;
                Some(ferrane_host::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
            }
            Storage::F32 => {
                let bytes = data.get(4 * at..4 * at + 4)?;
                Some(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            }
            _ => None,
        }
    };
    let (mut limits, mut rows) = (Vec::new(), Vec::with_capacity(chain.rows));
    // A larger distance is not counted on.
    let mut distance = 60_000.0f32;
    for first in (0..chain.rows).step_by(chain.tile) {
        let mut limit = 1;
        for row in first..chain.rows.min(first + chain.tile) {
            let values = (0..chain.cols).map(|col| element(row, col)).collect::<Option<Vec<f32>>>()?;
            let best = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            if values.iter().any(|v| v.is_nan()) || best.abs() > 1e4 {
                return None;
            }
            let last = values.iter().rposition(|&v| v > best - 1e4)?;
            // Whole vectors.
            let visible = (last + 1).next_multiple_of(LANES).min(chain.cols);
            distance = values[visible..].iter().fold(distance, |distance, v| distance.min(best - v));
            limit = limit.max(visible);
            rows.push(visible);
        }
        limits.push(limit.next_multiple_of(COLUMN_BLOCK).min(chain.cols));
    }
    let all = limits.iter().all(|&l| l == chain.cols);
    if all || distance < 1e4 { None } else { Some(Hidden { limits, rows, distance }) }
}

/// Follows the scores through a group. `None` if the group does anything but scale and mask them.
fn follow(scores: &mut Scores, group: &Group, operands: &[TileLocation]) -> Option<()> {
    let outs = group.stores.len();
    let [store] = group.stores[..] else { return None };
    let reads: Vec<(TileLocation, Reg)> = operands[outs..].iter().copied().zip(group.loads.iter().copied()).collect();
    let mut value = reads.iter().find(|(at, _)| *at == TileLocation::Slot(scores.slot))?.1;
    for instruction in &group.instructions {
        let [a, b, c] = instruction.from;
        let other = if a == value { b } else { a };
        if (a != value && b != value) || a == b {
            return None;
        }
        match instruction.op {
            Elementwise::Binary(op) if instruction.round => scores.one(op, a == value, other, group, &reads)?,
            Elementwise::Pair([first, second], false) if c != value => {
                scores.one(plain(first), a == value, other, group, &reads)?;
                scores.one(plain(second), true, c, group, &reads)?;
            }
            _ => return None,
        }
        value = instruction.to;
    }
    let TileLocation::Slot(slot) = operands[0] else { return None };
    scores.slot = slot;
    (value == store).then_some(())
}

fn plain(op: rounded::Binary) -> Binary {
    match op {
        rounded::Binary::Add => Binary::Add,
        rounded::Binary::Sub => Binary::Sub,
        rounded::Binary::Mul => Binary::Mul,
    }
}

impl Scores {
    /// Applies one operation with another register; the scores are its first operand if `is_first`.
    fn one(
        &mut self,
        op: Binary,
        is_first: bool,
        other: Reg,
        group: &Group,
        reads: &[(TileLocation, Reg)],
    ) -> Option<()> {
        if self.mask.is_some() {
            return None;
        }
        let constant = group.constants.iter().find(|c| c.0 == other).map(|c| f32::from_bits(c.1));
        match (op, constant) {
            (Binary::Mul, Some(c)) => self.scale *= c.abs(),
            (Binary::Div, Some(c)) if is_first => self.scale /= c.abs(),
            (Binary::Add, None) => {
                let (TileLocation::Memory(mask), _) = *reads.iter().find(|(_, reg)| *reg == other)? else {
                    return None;
                };
                self.mask = Some(mask);
            }
            _ => return None,
        }
        self.peak = self.peak.max(self.scale);
        Some(())
    }
}
