//! Tensor ops: routines from whole tensors to whole tensors, one for each op.
//!
//! The plan has steps for what programs do most: products, element-wise groups, reductions, moves.
//! Every other op that has a defined numeric meaning is a *tensor op*. A plan calls it as one step;
//! the interpreter calls it where shapes are known only at run time. So no op is implemented twice.
//!
//! Invariants: operands and results are dense and row-major ([`HeapTensor`]). Floats are computed
//! in fp32, with sums in fp64 if [`Call::wide`] is set, and are not rounded to fp16: the caller
//! rounds fp16 values. Integers are `i64`, and the caller wraps them to their type. A tensor op
//! never panics on its operands: what it cannot compute is an error that names the op.

mod call;
mod convert;
mod index;
pub(crate) mod ops;
mod product;
mod tensor;

pub(crate) use call::{Call, TensorOp};
pub(crate) use convert::decode;
pub(crate) use tensor::{Data, HeapTensor};

/// The routine of an op. `None` for ops that a plan has steps for, and for those that have no
/// numeric meaning.
pub(crate) fn tensor_op(op: &str) -> Option<TensorOp> {
    ops::FAMILIES.iter().flat_map(|family| family.iter()).find(|(name, _)| *name == op).map(|(_, routine)| *routine)
}
