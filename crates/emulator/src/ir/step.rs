//! Steps: what a plan executes, one after the other.
//!
//! A step names the views it reads and writes and says what is to be done; how, and with which
//! rounding, is the table's part.

use super::chain::Chain;
use super::group::Group;
use super::nest::Nest;
use super::structured::{Conv, Matmul, Norm, Pool, Reduce};
use super::tensor_op::TensorOpStep;
use super::view::View;

/// Most views a step may read.
pub(crate) const MAX_READS: usize = 16;
/// Most views a step may write.
pub(crate) const MAX_WRITES: usize = 12;

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The MIL op (the last one of a group; those of a chain, joined by `+`), for messages.
    pub op: String,
    /// The value it makes, for messages.
    pub value: String,
    pub reads: Vec<View>,
    pub writes: Vec<View>,
    pub kind: StepKind,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum StepKind {
    /// Element-wise ops fused.
    Group(Group),
    /// The same elements elsewhere; one storage.
    Move(Nest),
    /// One element, from its bytes, everywhere.
    Fill(Nest, [u8; 4]),
    /// Float matrix products.
    Matmul(Matmul),
    /// int32 matrix products over `[batch, m, k] · [batch, k, n]`, all views of rank 3.
    IntMatmul,
    /// Softmax along the nest's last axis.
    Softmax { nest: Nest, round: bool },
    /// One value for each place of the nest, from the elements below it.
    Reduce(Reduce),
    /// Normalization over a block of axes, with optional gamma and beta after the input among the
    /// reads.
    Norm(Norm),
    /// Convolution: reads x, weight, and a bias if `bias`.
    Conv(Conv),
    /// Pooling.
    Pool(Pool),
    /// `out[i…] = x[maps[0][i0], …]`, any storage.
    Remap(Vec<Vec<usize>>),
    /// Slices of x (read 0) at indices (read 1).
    Gather { axis: usize, batch_dims: usize },
    /// Elements of x (read 0) at indices (read 1) along an axis.
    GatherAlong { axis: usize },
    /// Several of these over the same rows.
    Chain(Box<Chain>),
    /// A routine over whole tensors.
    TensorOp(Box<TensorOpStep>),
}
