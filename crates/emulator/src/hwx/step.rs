//! A decoded task: its operation, and the locations of its operands.

use ferrane_arith::table::PiecewiseTable;

use super::memory::Span;

/// An operation over tensors `[groups, channels, rows, columns]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    /// Copies the first source.
    Copy,
    /// A convolution with weights from the file.
    Conv { weights: FileWeights, strides: [usize; 2], pad: [usize; 4] },
    /// FileWeights from memory, one matrix for each group, times the channels of the group.
    Product { outputs: usize },
    /// A binary MIL op on two sources, element by element.
    Binary(&'static str),
    /// A comparison of two sources, element by element: 1 where it holds, else 0.
    Compare(&'static str),
    /// A unary MIL op on one source, element by element.
    Unary(&'static str),
    /// A reduction along the columns, or along rows and columns.
    Reduce { name: &'static str, axes: &'static [i32] },
    /// A pooling over rows and columns: the MIL op, or `min`, for which there is none; height and
    /// width of the window, strides, padding.
    Pool { form: &'static str, kernel: [usize; 2], strides: [usize; 2], pad: [usize; 4] },
}

impl Op {
    /// True for an operation over two sources.
    pub(super) fn takes_two(&self) -> bool {
        matches!(self, Op::Binary(_) | Op::Compare(_))
    }
}

/// Operations on the result, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct After {
    /// Inverts the result of a reduction.
    pub inverse: bool,
    /// Multiplies by this factor.
    pub scale: Option<f32>,
    /// Adds this after the factor.
    pub bias: Option<f32>,
    pub relu: bool,
    pub function: Option<Function>,
}

/// A task that is ready to be planned.
pub(super) struct TaskStep {
    pub id: u32,
    pub op: Op,
    /// For each source, whether negative values become 0 first.
    pub relu_first: [bool; 2],
    pub after: After,
    pub sources: Vec<Span>,
    /// Location in L2 where the first source is kept, if it is.
    pub kept: Option<Span>,
    /// FileWeights from memory, if any.
    pub kernel: Option<MemoryWeights>,
    pub result: Span,
}

/// FileWeights of a convolution: fp16 bits, `[Cout, Cin, Kh, Kw]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileWeights {
    pub shape: [usize; 4],
    pub bits: Vec<u16>,
}

/// FileWeights from memory, if any.
pub(super) struct MemoryWeights {
    pub buffer: usize,
    /// Byte offset of each weight, `[groups, outputs, inputs]`.
    pub places: Vec<usize>,
}

/// A function of each element: its table.
pub(super) type Function = Box<PiecewiseTable>;
