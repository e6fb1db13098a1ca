//! Steps that are more than element-wise: products, reductions, normalizations, windows.

use ferrane_host::gemm::BatchOffsets;

use super::nest::Nest;

/// Matrix products of one shape: reads lhs, rhs and perhaps a bias vector.
#[derive(Clone, Debug)]
pub(crate) struct Matmul {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Row and column stride of lhs, rhs, out.
    pub strides: [(isize, isize); 3],
    /// From the lowest element of each operand.
    pub batch: Vec<BatchOffsets>,
    pub scale: f32,
    /// Read 2 is a dense fp32 bias: one value for each row, or each column.
    pub bias: Option<Along>,
    pub round: bool,
}

/// Rows or columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Along {
    Rows,
    Cols,
}

/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    SumSquare,
    L1,
    L2,
    LogSum,
    LogSumExp,
    ArgMax,
    ArgMin,
}

/// A reduction: write 0 over `kept`, read 0 over `kept` and, at each place, over `reduced`.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub reduction: Reduction,
    /// Operands: write, read.
    pub kept: Nest,
    /// Extents and strides of the reduced axes of the read, in its memory order.
    pub reduced: Vec<(usize, isize)>,
    pub round: bool,
    /// The operand is a product made for this sum only: together they are a matrix product against
    /// ones.
    pub of_product: bool,
}

/// A normalization.
#[derive(Clone, Debug)]
pub(crate) struct Norm {
    pub form: NormForm,
    /// The axes that are not normalized: write, then reads.
    pub outer: Nest,
    /// The normalized axes, every one: extents and strides for write and reads.
    pub inner: Nest,
    pub epsilon: f32,
    pub gamma: bool,
    pub beta: bool,
    pub round: bool,
}

/// Which normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormForm {
    /// `(x - mean) / sqrt(variance + epsilon)`.
    Layer,
    /// `x / sqrt(sum of squares + epsilon)`.
    L2,
}

/// A convolution. Views are of rank 2 + spatial.
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    pub groups: usize,
    pub window: Window,
    pub bias: bool,
    pub round: bool,
}

/// A sliding window over one to three spatial axes.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Before each axis.
    pub pad: Vec<usize>,
    /// Before plus after each axis plus extent.
    pub padded: Vec<usize>,
}

/// A pooling.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub form: PoolForm,
    pub window: Window,
    pub round: bool,
}

/// Which pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolForm {
    Max,
    /// Whether padding is left out of the count.
    Average(bool),
    L2,
}
