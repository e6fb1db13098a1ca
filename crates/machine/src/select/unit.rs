//! The engine's units, and the unit of each op.

use ferrane_mil::{Function, Op};
use serde::Serialize;

/// A unit of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Unit {
    /// None: the op is a constant, or its result is folded at compile time.
    Folded,
    /// The multiply-accumulate array: convolutions and matrix products.
    Mac,
    /// The planar unit: element-wise arithmetic, comparisons, pooling.
    Planar,
    /// The planar unit, summing along an axis.
    Reduce,
    /// The evaluator of function tables.
    Table,
    /// The crop, which takes width slices.
    Crop,
    /// A change of layout, or a copy.
    Move,
    /// Several units in sequence: attention, softmax, normalization.
    Composite,
    /// Not on the engine: control flow, lists, random numbers.
    Host,
}

impl Unit {
    /// The unit that runs an op.
    pub fn of(function: &Function, op: &Op) -> Unit {
        Unit::named(&op.name).for_arguments(function, op)
    }

    /// The unit of an op whose name has this unit ([`Unit::named`]): a slice that begins within a
    /// row is a crop.
    pub(super) fn for_arguments(self, function: &Function, op: &Op) -> Unit {
        let slices = self == Unit::Move && op.name.starts_with("slice_by_");
        if slices && width_offset(function, op) { Unit::Crop } else { self }
    }

    /// The unit that runs ops of this name, regardless of their arguments.
    pub(super) fn named(name: &str) -> Unit {
        match name {
            "const" => Unit::Folded,
            name if name.starts_with("constexpr_") => Unit::Folded,
            "conv" | "conv_transpose" | "linear" | "matmul" | "einsum" => Unit::Mac,
            "softmax"
            | "layer_norm"
            | "instance_norm"
            | "batch_norm"
            | "l2_norm"
            | "local_response_norm"
            | "scaled_dot_product_attention" => Unit::Composite,
            "sigmoid"
            | "tanh"
            | "gelu"
            | "silu"
            | "exp"
            | "exp2"
            | "log"
            | "sqrt"
            | "rsqrt"
            | "inverse"
            | "erf"
            | "elu"
            | "softplus"
            | "softplus_parametric"
            | "softsign"
            | "sin"
            | "cos"
            | "atan"
            | "tan"
            | "asin"
            | "acos"
            | "sinh"
            | "cosh"
            | "asinh"
            | "acosh"
            | "atanh"
            | "pow"
            | "real_div"
            | "sign"
            | "ceil"
            | "floor"
            | "round"
            | "leaky_relu"
            | "relu6"
            | "sigmoid_hard"
            | "scaled_tanh"
            | "prelu"
            | "thresholded_relu"
            | "clamped_relu" => Unit::Table,
            "reduce_sum" | "reduce_mean" | "reduce_max" | "reduce_min" | "reduce_sum_square" | "reduce_l1_norm"
            | "reduce_l2_norm" | "reduce_log_sum" | "reduce_log_sum_exp" | "reduce_prod" | "reduce_argmax"
            | "reduce_argmin" | "cumsum" => Unit::Reduce,
            "slice_by_size"
            | "slice_by_index"
            | "reshape"
            | "reshape_like"
            | "expand_dims"
            | "squeeze"
            | "flatten2d"
            | "transpose"
            | "concat"
            | "split"
            | "stack"
            | "pad"
            | "slice_update"
            | "reverse"
            | "tile"
            | "gather"
            | "gather_along_axis"
            | "gather_nd"
            | "depth_to_space"
            | "space_to_depth"
            | "pixel_shuffle"
            | "pixel_unshuffle"
            | "space_to_batch"
            | "batch_to_space"
            | "identity"
            | "fill"
            | "fill_like"
            | "crop"
            | "read_state"
            | "write_state"
            | "coreml_update_state"
            | "upsample_nearest_neighbor" => Unit::Move,
            "cond"
            | "while_loop"
            | "gru"
            | "lstm"
            | "rnn"
            | "non_zero"
            | "non_maximum_suppression"
            | "shape"
            | "classify"
            | "range_1d" => Unit::Host,
            name if name.starts_with("list_") || name == "make_list" || name.starts_with("random_") => Unit::Host,
            name if name.starts_with("scatter") => Unit::Host,
            _ => Unit::Planar,
        }
    }
}

/// True for a slice along the last axis that does not begin at 0, as far as known at compile time.
fn width_offset(function: &Function, op: &Op) -> bool {
    let begin = function.arg_constant(op, "begin").and_then(|c| c.as_ints());
    begin.and_then(|b| b.last().copied()).is_some_and(|last| last != 0)
}
