//! What a task does: its operation, and the places of its operands.

use ferrane_arith::table::PiecewiseTable;

use super::memory::Span;

/// An operation over tensors `[groups, channels, rows, columns]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    /// The first source as it is.
    Copy,
    /// A convolution with weights out of the file.
    Conv { weights: FileWeights, strides: [usize; 2], pad: [usize; 4] },
    /// FileWeights out of memory, one matrix for each group, times the channels of the group.
    Product { outputs: usize },
    /// Two sources, element by element.
    Binary(&'static str),
    /// Two sources, element by element: 1 where it is true, 0 elsewhere.
    Compare(&'static str),
    /// One source, element by element.
    Unary(&'static str),
    /// Along the columns, or rows and columns.
    Reduce { name: &'static str, axes: &'static [i32] },
    /// A window over rows and columns: the op, or `min`, which has none; height and width of the
    /// window, steps, padding.
    Pool { form: &'static str, kernel: [usize; 2], strides: [usize; 2], pad: [usize; 4] },
}

impl Op {
    /// True for an operation over two sources.
    pub(super) fn takes_two(&self) -> bool {
        matches!(self, Op::Binary(_) | Op::Compare(_))
    }
}

/// What is done with the result, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct After {
    /// The result of a reduction is inverted.
    pub inverse: bool,
    /// A factor.
    pub scale: Option<f32>,
    /// A summand behind the factor.
    pub bias: Option<f32>,
    pub relu: bool,
    pub function: Option<Function>,
}

/// A task ready to be planned.
pub(super) struct TaskStep {
    pub id: u32,
    pub op: Op,
    /// Negative values of the sources become 0 first.
    pub relu_first: [bool; 2],
    pub after: After,
    pub sources: Vec<Span>,
    /// Where the first source stays in L2.
    pub kept: Option<Span>,
    /// FileWeights out of memory.
    pub kernel: Option<MemoryWeights>,
    pub result: Span,
}

/// FileWeights of a convolution: fp16 bits, `[Cout, Cin, Kh, Kw]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileWeights {
    pub shape: [usize; 4],
    pub bits: Vec<u16>,
}

/// FileWeights out of memory.
pub(super) struct MemoryWeights {
    pub buffer: usize,
    /// The first byte of each, `[groups, outputs, inputs]`.
    pub places: Vec<usize>,
}

/// A function of each element: its table.
pub(super) type Function = Box<PiecewiseTable>;
