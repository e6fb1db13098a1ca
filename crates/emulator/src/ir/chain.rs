//! Chains: steps over the same rows, as stages over a tile of rows.

use super::group::Group;
use super::structured::Reduction;

/// Most slots of a chain.
pub(crate) const SLOTS: usize = 8;

/// Steps over the same rows, tile by tile.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// Runs of rows within which every operand has one stride from row to row.
    pub segments: usize,
    /// Rows of a segment.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Rows of a tile.
    pub tile: usize,
    pub divide: Divide,
    /// What each write of the step is written through.
    pub outs: Vec<ChainOperand>,
    /// How many slots there are: tiles of fp32, `tile · cols` each.
    pub slots: usize,
    /// Registers of the largest group.
    pub registers: usize,
    pub stages: Vec<ChainStage>,
    /// Columns that need not be computed because a constant mask hides them.
    pub causal: Option<Causal>,
}

/// Along what a chain is cut for threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Divide {
    /// What different segments write lies apart.
    Segments,
    /// What different rows write, of all segments together, lies apart.
    Rows,
    /// Neither.
    Nothing,
}

/// A matrix of one tile: in a slot, or in memory.
#[derive(Clone, Debug)]
pub(crate) struct ChainOperand {
    pub at: TileLocation,
    /// Where each segment begins in the slice of the read or write; one 0 for a slot.
    pub offsets: Vec<usize>,
    pub row: usize,
    pub col: usize,
}

/// Where an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TileLocation {
    Slot(usize),
    /// A read of the step, or, of results, a write.
    Memory(usize),
}

/// What is done to a tile.
#[derive(Clone, Debug)]
pub(crate) enum ChainStage {
    Product(ChainProduct),
    /// Element-wise; `width` is the chain's columns, or 1. Operands: writes, then reads.
    Group {
        group: Group,
        operands: Vec<ChainOperand>,
        width: usize,
    },
    Softmax(ChainSoftmax),
    Reduce {
        reduction: Reduction,
        from: ChainOperand,
        to: usize,
        round: bool,
    },
    /// A slot as somebody else reads it.
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
    /// `(depth, columns)`. If the result is a slot, the columns are the chain's; else the depth is.
    pub size: (usize, usize),
    pub scale: f32,
    /// A read: one fp32 value for each column.
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

/// Which columns each tile of a segment needs.
#[derive(Clone, Debug)]
pub(crate) struct Causal {
    /// For each tile of a segment, how many columns its rows see.
    pub limits: Vec<usize>,
    /// What the scores are made of: the largest magnitudes, multiplied, must not be above `bound`.
    pub factors: [SegmentMatrix; 2],
    pub bound: f32,
    /// What must be finite: the values.
    pub finite: Vec<SegmentMatrix>,
}

/// A matrix of each segment, in memory.
#[derive(Clone, Debug)]
pub(crate) struct SegmentMatrix {
    pub read: usize,
    pub operand: ChainOperand,
    /// Rows and columns.
    pub size: (usize, usize),
}

/// What becomes of scores before their softmax: `round(round(score · scale) + mask)`.
#[derive(Clone, Debug)]
pub(crate) struct Masked {
    pub scale: f32,
    /// A read in fp16, whose columns are neighbors.
    pub mask: ChainOperand,
}
