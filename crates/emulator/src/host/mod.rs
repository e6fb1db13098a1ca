//! Ops computed on whole tensors, one function for each op.
//!
//! The plan has steps for what a program does most: products, element-wise groups, reductions,
//! moves. Every other op that has a defined numeric meaning is a *kernel* here: a function from
//! dense row-major [`Tensor`]s to dense row-major tensors. A plan calls it as one step; the
//! interpreter calls it where shapes are known at run time only. No op is computed in two places.
//!
//! Kernels compute floats in fp32 (sums in fp64 where [`Call::wide`] says so) and do not round to
//! fp16: whoever calls them rounds what is an fp16 value. Integers are `i64` and are wrapped to
//! their type by the caller. A kernel never panics on its operands: what it cannot do is an error
//! with the op's name.

mod call;
mod convert;
mod index;
pub(crate) mod ops;
mod product;
mod tensor;

pub(crate) use call::Call;
pub(crate) use convert::decode;
pub(crate) use tensor::{Data, Tensor};

use ferrane_device::Result;

/// Computes the results of one op.
pub(crate) type Kernel = fn(&Call<'_>) -> Result<Vec<Tensor>>;

/// The kernel of an op. `None` for ops that a plan has steps for, and for those that have no
/// numeric meaning.
pub(crate) fn kernel(op: &str) -> Option<Kernel> {
    ops::FAMILIES.iter().flat_map(|family| family.iter()).find(|(name, _)| *name == op).map(|(_, kernel)| *kernel)
}
