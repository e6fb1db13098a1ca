//! Which ops are executed, and how. The answers come from the tables that execute the ops, so the
//! two cannot disagree.

use ferrane_mil::{Opset, ops};

use crate::{interpret, plan, refusal, tensor_ops};

/// How the emulator executes an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Support {
    /// By steps or views of a plan.
    Plan,
    /// By one function over whole tensors, in a plan or out of it. For common forms of some of
    /// these ops a plan has steps instead, as for a transposed convolution with constant weights.
    TensorOp,
    /// Only in interpreted functions: control flow and lists.
    Interpreter,
    /// Not at all, with the reason.
    Refused(&'static str),
}

/// How an op is executed. An op that the opset does not have is refused.
pub fn support(op: &str, opset: Opset) -> Support {
    if ops::find(op, opset).is_none() {
        return Support::Refused("the opset has no such op");
    }
    if op == "const" || plan::has_steps(op) {
        Support::Plan
    } else if tensor_ops::tensor_op(op).is_some() {
        Support::TensorOp
    } else if interpret::has_own(op) {
        Support::Interpreter
    } else {
        Support::Refused(refusal::reason(op))
    }
}

/// What [`Numerics::Hardware`](crate::Numerics::Hardware) knows about an op's arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arithmetic {
    /// Computed by published rules of the machine.
    Modeled,
    /// Computed as under `fast` or `exact`, and rounded as the machine rounds: how the machine
    /// computes it is not published.
    Rounded,
}

/// Ops for which arithmetic rules are published. Ops that only move, compare or select are the same
/// under every table.
const MODELED: &[&str] = &[
    "add",
    "sub",
    "mul",
    "real_div",
    "maximum",
    "minimum",
    "abs",
    "sign",
    "square",
    "floor",
    "ceil",
    "round",
    "clip",
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "linear_activation",
    "sigmoid",
    "sigmoid_hard",
    "tanh",
    "scaled_tanh",
    "silu",
    "gelu",
    "softplus",
    "softsign",
    "exp",
    "exp2",
    "log",
    "sqrt",
    "rsqrt",
    "inverse",
    "atan",
    "batch_norm",
    "cast",
    "quantize",
    "dequantize",
    "softmax",
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "reduce_min",
    "reduce_sum_square",
    "reduce_l1_norm",
    "reduce_l2_norm",
    "reduce_log_sum",
    "matmul",
    "linear",
    "conv",
    "scaled_dot_product_attention",
    "slice_by_size",
    "slice_by_index",
];

/// Whether the hardware table models the arithmetic of an op, or only rounds its result.
pub fn arithmetic(op: &str) -> Arithmetic {
    if MODELED.contains(&op) { Arithmetic::Modeled } else { Arithmetic::Rounded }
}
