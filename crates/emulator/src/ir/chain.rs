//! Chains: steps over the same rows, as stages over a tile of rows.

use super::group::Group;
use super::structured::Reduction;

/// Columns that contribute nothing are skipped in blocks of this size.
pub(crate) const COLUMN_BLOCK: usize = 64;
/// The most slots that a chain may have.
pub(crate) const SLOTS: usize = 8;

/// Steps over the same rows, tile by tile.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// Number of segments: runs of rows within which every operand has a single row stride.
    pub segments: usize,
    /// Rows in a segment.
    pub rows: usize,
    /// Columns of every stage that is not reduced to one column.
    pub cols: usize,
    /// Rows in a tile; the last tile of a segment may have fewer.
    pub tile: usize,
    pub divide: Divide,
    /// For each write of the step, an operand that writes it.
    pub outs: Vec<ChainOperand>,
    /// Number of slots: tiles of fp32, `tile · cols` elements each.
    pub slots: usize,
    /// Number of registers of the largest group.
    pub registers: usize,
    pub stages: Vec<ChainStage>,
    /// The columns that a constant mask hides, if it hides any.
    pub causal: Option<Causal>,
}

/// How a chain is divided among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Divide {
    /// By segments: no two segments write overlapping ranges.
    Segments,
    /// By rows of all segments together: no two rows write overlapping ranges.
    Rows,
    /// The chain runs on one thread.
    Nothing,
}

/// A matrix that a stage reads or writes, tile by tile: in a slot or in memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChainOperand {
    pub at: TileLocation,
    /// Element offset of each segment in the slice of the read or write; a single 0 for a slot.
    pub offsets: Vec<usize>,
    pub row: usize,
    pub col: usize,
}

/// Where the matrix of an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TileLocation {
    Slot(usize),
    /// A read of the step or, for results, a write.
    Memory(usize),
}

/// One operation on a tile.
#[derive(Clone, Debug)]
pub(crate) enum ChainStage {
    Product(ChainProduct),
    /// An element-wise group. `width` is the chain's columns, or 1. Operands are writes, then
    /// reads.
    Group {
        group: Group,
        operands: Vec<ChainOperand>,
        width: usize,
    },
    Softmax(ChainSoftmax),
    SoftmaxGradient(ChainSoftmaxGradient),
    Reduce {
        reduction: Reduction,
        from: ChainOperand,
        to: usize,
        round: bool,
    },
    /// Copies a slot to memory, for steps outside of the chain.
    Store {
        from: usize,
        to: ChainOperand,
        width: usize,
    },
}

/// `to = lhs · rhs`. The rows of `lhs` and `to` are the tile's; `rhs`, a read, has one offset for
/// each segment.
#[derive(Clone, Debug)]
pub(crate) struct ChainProduct {
    pub lhs: ChainOperand,
    pub rhs: ChainOperand,
    pub to: ChainOperand,
    /// `(depth, columns)`. The chain's columns are the columns if the result is a slot, else the
    /// depth.
    pub size: (usize, usize),
    pub scale: f32,
    /// The read that holds one fp32 value for each column, if any.
    pub bias: Option<usize>,
    pub round: bool,
}

/// Softmax of each row.
#[derive(Clone, Debug)]
pub(crate) struct ChainSoftmax {
    pub from: ChainOperand,
    /// The slot of the result.
    pub to: usize,
    pub round: bool,
    /// Scale and mask that are applied first.
    pub masked: Option<Masked>,
}

/// The gradient of a softmax, row by row: `round(probs · round(grads - mean))` with the rounded
/// mean `Σ round(probs · grads)`, and the rounded product of that with `scale`, if there is one.
/// Both operands have a column stride of 1.
#[derive(Clone, Debug)]
pub(crate) struct ChainSoftmaxGradient {
    pub probs: ChainOperand,
    pub grads: ChainOperand,
    pub scale: Option<f32>,
    /// The slot of the result.
    pub to: usize,
    /// If the last columns of a tile may be skipped when all their probabilities are zero: the
    /// matrices that must be finite then.
    pub zeros: Option<Vec<SegmentMatrix>>,
}

/// The columns that the tiles and rows of a segment need under a constant mask.
#[derive(Clone, Debug)]
pub(crate) struct Causal {
    /// For each tile of a segment, the number of columns that its rows see.
    pub limits: Vec<usize>,
    /// For each row of a segment, the number of columns that it sees.
    pub rows: Vec<usize>,
    /// The factors of the scores: the product of their largest magnitudes must be at most `bound`.
    pub factors: [SegmentMatrix; 2],
    pub bound: f32,
    /// Matrices that must be finite: the values.
    pub finite: Vec<SegmentMatrix>,
}

/// A matrix of each segment that is read from memory.
#[derive(Clone, Debug)]
pub(crate) struct SegmentMatrix {
    pub read: usize,
    pub operand: ChainOperand,
    /// Rows and columns in a segment.
    pub size: (usize, usize),
}

/// What is applied to scores before their softmax: `round(round(score · scale) + mask)`.
#[derive(Clone, Debug)]
pub(crate) struct Masked {
    pub scale: f32,
    /// An fp16 read with a column stride of 1.
    pub mask: ChainOperand,
}
