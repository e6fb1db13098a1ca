//! The values of a profile: name, type and meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Acceptance, AcceptedDialect, Accumulator, AttnMask, GeluTable, Given, Limit, Overlay, PortOrder, ProfileEntry,
    ProfileError, Rank, RoundOp, Rounding, SigmoidTable, SliceCrop, Sourced, Subject, Subnormals, SumWidth,
    WeightRoute, ops, pick,
};

macro_rules! values {
    ($($(#[doc = $doc:literal])* $name:ident : $ty:ty),* $(,)?) => {
        /// The typed values that describe one machine, each with its evidence.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct Profile {
            /// The machine that is described.
            pub subject: Subject,
            /// The ops that the machine does not run natively, by their MIL name.
            pub ops: BTreeMap<String, Sourced<Acceptance>>,
            $($(#[doc = $doc])* pub $name: Sourced<$ty>,)*
        }

        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct Values { $($name: Option<Given<$ty>>,)* }

        impl Values {
            /// The values that are set, in declaration order.
            pub(super) fn entries(&self) -> Vec<ProfileEntry> {
                let all = [$(self.$name.as_ref().map(|g| ProfileEntry::given(stringify!($name), concat!($($doc),*), g))),*];
                all.into_iter().flatten().collect()
            }
        }

        impl Profile {
            pub(super) fn from_overlays(subject: Subject, overlays: &[(Rank, &Overlay)]) -> Result<Profile, ProfileError> {
                $(let $name = pick(&subject, stringify!($name), overlays, |o| o.set.$name.as_ref())?;)*
                let ops = ops(&subject, overlays)?;
                Ok(Profile { subject, ops, $($name,)* })
            }

            /// Every value in declaration order, followed by the ops.
            pub fn entries(&self) -> Vec<ProfileEntry> {
                let mut all = vec![$(ProfileEntry::new(stringify!($name), concat!($($doc),*), &self.$name)),*];
                all.extend(self.ops.iter().map(|(name, given)| ProfileEntry::new(&format!("op.{name}"), "", given)));
                all
            }
        }
    };
}

values! {
    /// Text dialect that the compiler accepts (mil-text §2, §3).
    dialect: AcceptedDialect,
    /// Versions that the header `program(…)` may name.
    headers: Vec<String>,
    /// Opsets that a function may name.
    opsets: Vec<String>,
    /// True where a program without `buildInfo` is refused.
    build_info_required: bool,
    /// True where a line break inside `buildInfo` is refused (mil-text §7).
    build_info_one_line: bool,
    /// True where an extent may be unknown until a request.
    symbolic_shapes: bool,
    /// True where an unused op that reduces to width 1 makes the compiler refuse the program.
    dead_width_one_refused: bool,
    /// True where the blob reader rejects wrong sizes and offsets (weight-blob §4).
    strict_blobs: bool,
    /// True where ops that the engine refuses run on the CPU or the GPU instead.
    elsewhere: bool,
    /// True where the op `cast` runs.
    cast: bool,
    /// Element types that `cast` may name.
    cast_types: Vec<String>,
    /// Element types that a function may take.
    input_types: Vec<String>,
    /// Element types that a function may return.
    output_types: Vec<String>,
    /// True where ops take fp32 operands; elsewhere fp32 is only for ports that are cast at once.
    fp32_arithmetic: bool,
    /// True where arithmetic takes int8 or uint8 operands; elsewhere they are cast or dequantized
    /// first (int8 §3).
    int8_arithmetic: bool,
    /// True where fp32 ports cost noticeably more than fp16 ones (apple-runtime §7).
    fp32_ports_slow: bool,
    /// True where 4-bit types are accepted in `constexpr_*` ops.
    int4: bool,
    /// True where the transpose flags of `matmul` must be named constants.
    matmul_named_flags: bool,
    /// Longest extent of an axis other than channels and batch, in elements (mil-text §8).
    max_axis: usize,
    /// Most channels of a tensor (mil-text §8).
    max_channels: usize,
    /// Largest batch (mil-text §8).
    max_batch: usize,
    /// Highest rank of a tensor (mil-text §6).
    max_rank: usize,
    /// True where an extent may be 0.
    zero_extents: bool,
    /// Largest height and width that a transpose takes in one pass, in elements (mil-text §8).
    max_transpose: usize,
    /// Widest fp16 convolution kernel, in elements (mil-text §8).
    max_kernel_width: usize,
    /// Highest convolution kernel, in elements (mil-text §8).
    max_kernel_height: usize,
    /// Most input channels of a convolution (mil-text §6).
    max_conv_input_channels: Limit,
    /// Largest batch of a convolution whose weight is not constant.
    runtime_conv_batch: Limit,
    /// True where a depthwise convolution may have a weight that is not constant.
    runtime_conv_depthwise: bool,
    /// True where `conv` takes a bias.
    conv_bias: bool,
    /// Highest rank of the input of a convolution (mil-text §6).
    max_conv_rank: usize,
    /// True where a strided convolution of one group is slower than a slice followed by a
    /// convolution.
    strided_conv_slow: bool,
    /// True where a 1×1 convolution is faster than a `matmul` by the same constant.
    matmul_slower_than_conv: bool,
    /// Highest rank of an operand of `matmul` and `linear`.
    max_product_rank: usize,
    /// True where an operand of `matmul` may be a constant.
    matmul_constant: bool,
    /// True where a product of two runtime operands is zero unless the weight comes first.
    matmul_weight_first: bool,
    /// True where a function may have several inputs.
    several_inputs: bool,
    /// Highest rank of an input where there are several.
    max_rank_of_several_inputs: usize,
    /// True where values must not be named `var`, `mean`, `x`, `c` and the like.
    reserved_names: bool,
    /// True where an output must be computed by an op.
    live_outputs: bool,
    /// Most weight blobs in a program.
    max_blobs: Limit,
    /// Most weights in a program, in bytes.
    max_weight_bytes: Limit,
    /// True where an inline scalar counts as a weight blob.
    scalar_costs_blob: bool,
    /// Most ops in a program.
    max_ops: Limit,
    /// Largest batch of a `gather`.
    gather_batch: Limit,
    /// True where the indices of a `gather` may be computed.
    gather_dynamic: bool,
    /// True where the begin of a slice may be computed.
    dynamic_slices: bool,
    /// Values of `k` with which `topk` fails to compile.
    refused_topk: Vec<usize>,
    /// True where `reduce_argmax` takes a whole tensor (one of rank 1).
    whole_tensor_argmax: bool,
    /// Factors by which `tile` repeats in one step.
    tile_factors: Vec<usize>,
    /// Modes of `pad`.
    pad_modes: Vec<String>,
    /// Most keys of an attention; with more, the result is wrong without an error.
    attention_max_length: Limit,
    /// Largest value of the smaller one of the numbers of queries and keys of an attention; beyond
    /// it the result is wrong without an error.
    attention_max_side: Limit,
    /// Fewest query positions of an attention; programs with fewer fail at evaluation.
    min_queries: usize,
    /// True where the axis of a softmax must be a power of two.
    softmax_power_of_two: bool,
    /// Most channels of `local_response_norm`.
    max_lrn_channels: Limit,
    /// Longest tiled axis of a group or instance norm.
    max_norm_tile: Limit,
    /// True where a `square` before a function table is refused if the width modulo 128 is above
    /// 64.
    square_width_refused: bool,
    /// True where a program with `split`, `matmul`, `softmax` and `tile` is refused, though each
    /// compiles alone.
    split_refused: bool,
    /// True where a program with only element-wise ops may be refused at load.
    elementwise_refused: bool,
    /// Most elements of an element-wise op on tensors without channels; beyond it an evaluation
    /// hangs.
    max_flat_elements: Limit,
    /// True where a program with only `reshape`, `slice_by_index` or `tile` is refused (mil-text
    /// §7).
    lone_moves_refused: bool,
    /// Extent of a reduced axis from which a transpose comes before the reduction (mil-text §8).
    reduce_route_axis: usize,
    /// The inner extent of a matmul must be a multiple of this; otherwise the result is silently
    /// zero.
    matmul_inner_multiple: usize,
    /// True where the width-axis form of RoPE (reshape, slice, concat) is refused.
    rope_width_refused: bool,
    /// True where a convolution ignores a weight that is not constant.
    runtime_conv_weight_ignored: bool,
    /// On-chip working set of one op, in bytes (benchmarks §15).
    working_set: usize,
    /// Weights of a program that stay on the chip between evaluations, in bytes (numerics §10).
    resident_weights: usize,
    /// Dense weights of a convolution beyond which it runs as several, in bytes (mil-text §8).
    kernel_dense: usize,
    /// Weights of any form beyond which an op runs as several, in bytes (mil-text §8).
    kernel_memory: usize,
    /// Smallest surface in bytes; 0 for no limit (mil-text §6).
    min_surface: usize,
    /// The size of a surface must be a multiple of this many bytes.
    surface_multiple: usize,
    /// True where all inputs must have surfaces of the same size.
    uniform_inputs: bool,
    /// True where all outputs must have surfaces of the same size.
    uniform_outputs: bool,
    /// Order of the inputs of a request.
    input_order: PortOrder,
    /// Order of the outputs of a request.
    output_order: PortOrder,
    /// Smallest width of a port in elements; 1 for no limit.
    min_width: usize,
    /// The width of a port must be a multiple of this many elements; other widths are read back
    /// wrongly.
    width_multiple: usize,
    /// Most channels of a port that is narrower than 32 elements.
    narrow_channels: Limit,
    /// True where ports have rank 4 (batch, channels, height, width), regardless of the declared
    /// rank.
    ports_nchw: bool,
    /// Rows of a surface are padded to a multiple of this many bytes; 1 is packed (apple-runtime
    /// §7, §11).
    row_alignment: usize,
    /// Compiles allowed in one process before the engine fails (apple-runtime §3).
    compile_budget: Limit,
    /// True where unloading a program returns its compile to the budget.
    budget_returns: bool,
    /// Seconds to wait between failing compiles; faster ones stall the compiles of other programs.
    failed_compile_pause: usize,
    /// Programs that may be loaded at once.
    max_loaded: Limit,
    /// Requests that may be in flight at once (apple-runtime §2).
    queue_depth: usize,
    /// Requests in flight beyond which more do not improve throughput.
    useful_depth: usize,
    /// Evaluations in one process after which they become slower.
    degrades_after: Limit,
    /// Cost of restarting the process, as trainers do when the budget is spent, in milliseconds.
    restart_ms: usize,
    /// True where the caller writes `model.mil` and the weights into a folder named by the
    /// program's identifier (apple-runtime §2).
    staged_files: bool,
    /// True where programs without weights must be given an empty dictionary of weights, not nil.
    nil_weights_refused: bool,
    /// True where unload, overwriting the weight files and load changes the weights without a
    /// compile.
    weights_reload: bool,
    /// True where the request's weights buffer has an effect (apple-runtime §6).
    weights_buffer: bool,
    /// True where programs can be chained (apple-runtime §8).
    chaining: bool,
    /// True where the quality of service does not affect latency.
    qos_ignored: bool,
    /// True where a real-time task can be started (apple-runtime §5).
    real_time_task: bool,
    /// True where the same request gives the same bits in every run, after every compile and at
    /// every position of a batch (numerics §9).
    deterministic: bool,
    /// Rounding of results to fp16 (numerics §2).
    rounding: Rounding,
    /// Accumulation of products (numerics §3).
    accumulator: Accumulator,
    /// Magnitude from which a sum of products is infinite (numerics §4).
    mac_ceiling: usize,
    /// Subnormal operands of products (numerics §5).
    mac_subnormals: Subnormals,
    /// Width of a stand-alone `reduce_sum` (numerics §2).
    reduce_sum: SumWidth,
    /// Implementation of a width slice that does not begin at 0 (numerics §4).
    slice_crop: SliceCrop,
    /// Function table of `sigmoid` (numerics §6.2).
    sigmoid_table: SigmoidTable,
    /// Function table of `gelu` (numerics §6.2).
    gelu_table: GeluTable,
    /// True where functions are piecewise linear tables, and NaN, infinity and zero have the
    /// engine's own results (numerics §5, §6).
    tables: bool,
    /// Behavior of `round` (numerics §5).
    round_op: RoundOp,
    /// True where a multiplication by a scalar after `floor`, `ceil` or `round` is lost.
    round_scale_lost: bool,
    /// True where `softplus` is 0 for operands of ln 65504 or more (numerics §5).
    softplus_zero: bool,
    /// Rounding of ties in `quantize` (int8 §2).
    quantize_rounding: Rounding,
    /// True where a product of two dequantized branches uses the scale of the other one (int8 §2).
    qdq_multiply_defect: bool,
    /// Behavior of `attn_mask`.
    attn_mask: AttnMask,
    /// True where a `concat` of two or more width slices that do not begin at 0 returns wrong
    /// elements.
    concat_slices_wrong: bool,
    /// True where a `gather` along the last axis returns wrong elements.
    gather_last_wrong: bool,
    /// True where `mul` with an operand broadcast along the batch is unreliable in programs of
    /// several ops.
    outer_broadcast_unreliable: bool,
    /// True where a `mul` of `[1, C, S]` with `[1, C, 1]` or `[1, 1, 1]` is wrong.
    channel_broadcast_wrong: bool,
    /// True where a `sqrt` before a broadcast or a division gives wrong values.
    sqrt_broadcast_wrong: bool,
    /// True where int8 weights of a matmul pass its activations through the crop's encoding: values
    /// beyond 4094 become infinite (int8 §3).
    int8_matmul_crop: bool,
    /// True where a softmax is wrong for scores of −inf.
    softmax_infinity_wrong: bool,
    /// Functions that the framework lowers through fp32, so that they leave the engine.
    fp32_lowered: Vec<String>,
    /// True where argmax of fp16 values names other elements.
    fp16_argmax_wrong: bool,
    /// True where rows that are gathered by the indices of a topk may be wrong.
    topk_gather_wrong: bool,
    /// True where weights with a scale for each block are read wrongly.
    block_scales_wrong: bool,
    /// True where hard-swish of a product of rank 2 is wrong.
    flat_hard_swish_wrong: bool,
    /// Prime factors of strides that a convolution takes without extra cost.
    stride_factors: Vec<usize>,
    /// Strides that a pooling takes without extra cost.
    pool_strides: Vec<usize>,
    /// Largest stride of a convolution whose weight is a palette.
    max_palette_stride: usize,
    /// Largest dilation that a convolution takes without extra cost.
    max_dilation: usize,
    /// Smallest extent of a kernel that is better replaced by two kernels.
    large_kernel: usize,
    /// True where attention has no fused form, so that each head is computed by itself.
    attention_per_head: bool,
    /// True where a program should read states and return what is to be stored.
    states_read_only: bool,
    /// True where a softmax along height or width keeps the compiler from splitting the work.
    spatial_softmax_slow: bool,
    /// True where a gather with a result of rank 3 is refused.
    gather_rank_three_refused: bool,
    /// True where a palette may also have scales.
    scaled_palettes: bool,
    /// Bits of the palettes that the engine reads.
    palette_bits: Vec<usize>,
    /// Where `softplus_zero` holds, the value from which the exponential in softplus overflows.
    softplus_ceiling: usize,
    /// Form in which affine int8 weights reach the engine (int8 §3).
    int8_weights: WeightRoute,
    /// Form in which blockwise weights reach the engine (int8 §3).
    blockwise_weights: WeightRoute,
}
