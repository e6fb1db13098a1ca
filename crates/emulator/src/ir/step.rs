//! Steps: what a plan executes, one after the other.
//!
//! A step names the views that it reads and writes and the operation; the table decides how it is
//! computed and rounded.

use super::bytes::ByteLayer;
use super::chain::Chain;
use super::coded::{CodedMatmul, CodedWeight};
use super::group::Group;
use super::nest::Nest;
use super::structured::{Conv, Matmul, Norm, PackedConv, Pool, Reduce};
use super::tensor_op::TensorOpStep;
use super::view::View;

/// The most views that a step may read.
pub(crate) const MAX_READS: usize = 16;
/// The most views that a step may write.
pub(crate) const MAX_WRITES: usize = 12;

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The MIL op, for messages: the last one of a group; those of a chain, joined by `+`.
    pub op: String,
    /// The value that it computes, for messages.
    pub value: String,
    pub reads: Vec<View>,
    pub writes: Vec<View>,
    pub kind: StepKind,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum StepKind {
    /// Element-wise ops in one pass.
    Group(Group),
    /// Copies elements; source and destination have the same storage.
    Move(Nest),
    /// Writes one element, given by its bytes, everywhere.
    Fill(Nest, [u8; 4]),
    /// A batch of float matrix products of one shape.
    Matmul(Matmul),
    /// A float product with a constant weight that is stored as codes.
    CodedMatmul(CodedMatmul),
    /// A product of codes with a constant weight of codes.
    ByteLayer(ByteLayer),
    /// int32 matrix products over `[batch, m, k] · [batch, k, n]`, all views of rank 3.
    IntMatmul,
    /// Softmax along the nest's last axis.
    Softmax { nest: Nest, round: bool },
    /// A reduction along some axes.
    Reduce(Reduce),
    /// Normalization over a block of axes, with optional gamma and beta after the input among the
    /// reads.
    Norm(Norm),
    /// Convolution: reads x, weight, and a bias if `bias`.
    Conv(Conv),
    /// Convolution with packed weights.
    PackedConv(PackedConv),
    /// A convolution with packed weights and the depthwise one of its results: reads those of the
    /// first, then those of the second but for its image.
    ConvPair(Box<[PackedConv; 2]>),
    /// Pooling over a sliding window.
    Pool(Pool),
    /// `out[i…] = x[maps[0][i0], …]`, any storage.
    Remap(Vec<Vec<usize>>),
    /// Slices of x (read 0) at indices (read 1).
    Gather { axis: usize, batch_dims: usize },
    /// Elements of x (read 0) at indices (read 1) along an axis.
    GatherAlong { axis: usize },
    /// Several steps over the same rows, tile by tile.
    Chain(Box<Chain>),
    /// A tensor op: a routine over whole tensors.
    TensorOp(Box<TensorOpStep>),
}

impl Step {
    /// The weight that the step reads besides its views, if any.
    pub(crate) fn coded_weight(&self) -> Option<&CodedWeight> {
        match &self.kind {
            StepKind::CodedMatmul(product) => Some(&product.weight),
            _ => None,
        }
    }

    /// Multiply-adds of a product or a convolution, roughly; 0 of other steps.
    pub(crate) fn multiply_adds(&self) -> usize {
        let conv = |packed: &PackedConv| packed.conv.multiply_adds();
        let one = match &self.kind {
            StepKind::PackedConv(packed) => conv(packed),
            StepKind::ByteLayer(layer) => layer.conv.multiply_adds(),
            StepKind::ConvPair(pair) => pair.iter().map(conv).sum(),
            StepKind::Matmul(product) => {
                return product.batch.len().saturating_mul(product.m * product.k).saturating_mul(product.n);
            }
            _ => return 0,
        };
        one.saturating_mul(self.reads[0].shape[0])
    }

    /// Bytes of that weight.
    pub(crate) fn coded_bytes(&self) -> usize {
        self.coded_weight().map_or(0, CodedWeight::bytes)
    }
}
