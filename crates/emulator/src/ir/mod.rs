//! The intermediate representation of plans: steps, the views that they read and write, and the
//! buffers of the views.
//!
//! It is only data. [`plan`](crate::plan) produces it and [`tables`](crate::tables) computes it, so
//! neither needs the other.

mod buffer;
mod bytes;
mod chain;
mod coded;
mod elementwise;
mod group;
mod nest;
mod policy;
mod step;
mod structured;
mod tensor_op;
mod view;

pub(crate) use buffer::{Access, Buffer, ConstantContent, MemorySpace, WeightBytes};
pub(crate) use bytes::ByteLayer;
pub(crate) use chain::{
    COLUMN_BLOCK, Causal, Chain, ChainOperand, ChainProduct, ChainSoftmax, ChainSoftmaxGradient, ChainStage, Divide,
    Masked, SLOTS, SegmentMatrix, TileLocation,
};
pub(crate) use coded::{CodedForm, CodedMatmul, CodedWeight};
pub(crate) use elementwise::{Binary, Compare, Elementwise, IntUnary, Unary};
pub(crate) use group::{FusedLoop, Group, Instruction, Reg};
pub(crate) use nest::Nest;
pub(crate) use policy::Policy;
pub(crate) use step::{MAX_READS, MAX_WRITES, Step, StepKind};
pub(crate) use structured::{
    Addend, Along, Conv, Finish, Matmul, Norm, NormForm, PackedConv, Pool, PoolForm, Prologue, Reduce, Reduction,
    Window,
};
pub(crate) use tensor_op::{TensorOpStep, TensorOperand};
pub(crate) use view::{Storage, View, is_dense, reshape_strides, row_major};
