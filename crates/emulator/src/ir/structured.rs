//! Operations of steps beyond element-wise ones: products, reductions, normalizations, windows.

use std::sync::Arc;

use ferrane_host::conv;
use ferrane_host::gemm::BatchOffsets;

use super::group::Group;
use super::nest::Nest;

/// Matrix products of one shape: reads lhs, rhs and perhaps a bias vector.
#[derive(Clone, Debug)]
pub(crate) struct Matmul {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Row and column stride of lhs, rhs, out.
    pub strides: [(isize, isize); 3],
    /// Offsets of each product, from the lowest element of each operand.
    pub batch: Vec<BatchOffsets>,
    pub scale: f32,
    /// Read 2 is a dense fp32 bias: one value for each row, or each column.
    pub bias: Option<Along>,
    pub round: bool,
}

/// The axis of a matrix along which a vector lies.
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

/// A reduction: write 0 is indexed by `kept`; read 0 by `kept` and, for each result, by `reduced`.
#[derive(Clone, Debug)]
pub(crate) struct Reduce {
    pub reduction: Reduction,
    /// The loops over results; operands are the write, then the read.
    pub kept: Nest,
    /// Extents and strides of the reduced axes of the read, in its memory order.
    pub reduced: Vec<(usize, isize)>,
    pub round: bool,
    /// The operand is a product computed only for this sum: together they are a matrix product with
    /// ones.
    pub of_product: bool,
}

/// A normalization over some axes, with optional gamma and beta.
#[derive(Clone, Debug)]
pub(crate) struct Norm {
    pub form: NormForm,
    /// The loops over axes that are not normalized; operands are the write, then reads.
    pub outer: Nest,
    /// The loops over all normalized axes; operands are the write, then reads.
    pub inner: Nest,
    pub epsilon: f32,
    pub gamma: bool,
    pub beta: bool,
    pub round: bool,
}

/// The formula of a normalization.
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

/// A convolution with constant weights, which are packed for it: reads x, the packed weights, and
/// perhaps a dense fp32 bias.
#[derive(Clone, Debug)]
pub(crate) struct PackedConv {
    pub conv: Arc<conv::Conv>,
    pub bias: bool,
    pub round: bool,
    pub layout: conv::Layout,
    /// What is done to the elements of x first, if anything.
    pub prologue: Option<Prologue>,
    /// What is done to each result in registers.
    pub steps: Vec<conv::PointStep>,
    /// The image that one of these steps adds, if any.
    pub addend: Option<Addend>,
    /// An element-wise group that is applied to the results in place, piece by piece.
    pub finish: Option<Box<Finish>>,
}

/// Steps before a convolution: `x · scale + shift`, then perhaps ReLU. Numbers are those of the
/// step's reads, of shape `[N, C, 1, …]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prologue {
    pub scales: usize,
    pub shifts: Option<usize>,
    pub relu: bool,
}

/// A channels-last image that is added to the results of a convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addend {
    /// Which of the step's reads.
    pub read: usize,
    /// Elements from one position to the next, and from one image to the next.
    pub pitch: usize,
    pub image: isize,
}

/// A group over the results of a convolution. Its only write takes their place.
#[derive(Clone, Debug)]
pub(crate) struct Finish {
    /// Its loops are positions, then channels.
    pub group: Group,
    /// The load that is the results.
    pub own: usize,
    /// Position among the step's reads of the first of the group's other reads.
    pub others: usize,
    /// Elements from one image to the next, for each operand of the group.
    pub images: Vec<isize>,
}

/// A sliding window over one to three spatial axes.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Padding before each axis.
    pub pad: Vec<usize>,
    /// Extent of each axis including the padding on both sides.
    pub padded: Vec<usize>,
}

/// Pooling over a sliding window.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub form: PoolForm,
    pub window: Window,
    pub round: bool,
    /// Computes images of floats, and where their results lie, if the step is one of these.
    pub images: Option<(Arc<conv::Pooling>, conv::Layout)>,
}

/// The function of a pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolForm {
    Max,
    /// An average; the flag excludes padding from the count.
    Average(bool),
    L2,
}
