//! Lowering: from a function to steps over buffers.
//!
//! Invariants: every view lies inside its buffer; a step's writes are disjoint from its reads and
//! from each other; each element of a buffer is written by one step before any step reads it; two
//! arena buffers that are live at the same step do not overlap.
//!
//! The main decision is *homes* (`homes`). A value that ends up in an output surface or in a slot
//! of a concat is computed there directly, through reshapes and transposes. So the dynamic matmul
//! of training-dynamic §2 writes its product transposed into the output, and nothing is copied.
//! Whatever strides cannot express becomes a copy.

mod arena;
mod args;
mod bottleneck;
mod build;
mod bytes;
mod causal;
mod chain;
mod coded;
mod constexpr;
mod conv;
mod conv_transpose;
mod elementwise;
mod finish;
mod fused;
mod group;
mod homes;
mod images;
mod layers;
mod machine;
mod member;
mod near;
mod ops;
mod pairs;
mod pixels;
mod pool;
mod ports;
mod prologue;
mod requantize;
mod scores;
mod softmax_gradient;
mod stage;
mod state;
mod table_order;
mod tensor_op;
pub(crate) use build::changes_state;
pub(crate) use ops::has_steps;
pub(crate) use ports::Ports;

use ferrane_device::Result;
use ferrane_mil::{Function, Weights};

use crate::ir::{Buffer, Policy, Step};
use build::{Lowered, Lowering};

/// A function as steps, and the buffers that these read and write.
pub(crate) struct LoweredPlan<'a> {
    pub buffers: Vec<Buffer<'a>>,
    /// The steps of every evaluation, in order.
    pub steps: Vec<Step>,
    /// Steps that depend only on constants; they run once.
    pub initial: Vec<Step>,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// Bytes of all constants.
    pub constant_bytes: usize,
}

/// Lowers a function that passed `verify` and `check`.
///
/// # Errors
/// An op or a type that no plan expresses, or more memory than can be addressed.
pub(crate) fn lower<'a>(
    ports: &Ports,
    function: &'a Function,
    weights: &'a Weights,
    policy: Policy<'a>,
) -> Result<LoweredPlan<'a>> {
    let Lowered { mut buffers, steps, initial } = Lowering::new(function, weights, policy)?.run(ports)?;
    let steps = prologue::fuse(policy, steps, &buffers);
    let steps = finish::fuse(policy, steps, &buffers);
    let steps = requantize::fuse(policy, steps, &buffers);
    let steps = bottleneck::fuse(policy, steps, &buffers);
    let steps = chain::fuse(policy, steps, &buffers);
    let arena_bytes = arena::assign(&mut buffers, &steps)?;
    let constant_bytes = arena::assign_constants(&mut buffers, initial.iter().chain(&steps))?;
    Ok(LoweredPlan { buffers, steps, initial, arena_bytes, constant_bytes })
}
