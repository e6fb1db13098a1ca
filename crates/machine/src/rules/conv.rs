//! Rules about convolutions.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{DataType, Op, OpId};

use super::rule::{Context, Rule};
use crate::finding::Effect;
use crate::view::FunctionView;

const CONVOLUTIONS: &[&str] = &["conv", "conv_transpose"];

/// Calls `look` for every convolution.
fn each(cx: &Context<'_>, mut look: impl FnMut(&FunctionView<'_>, OpId, &Op)) {
    for view in &cx.functions {
        for (id, op) in view.any(CONVOLUTIONS) {
            look(view, id, op);
        }
    }
}

/// Calls `look` for every convolution whose weight is not constant.
fn runtime(cx: &Context<'_>, mut look: impl FnMut(&FunctionView<'_>, OpId, &Op)) {
    each(cx, |view, id, op| {
        if view.arg(op, "weight").is_some_and(|w| !view.constant(w)) {
            look(view, id, op);
        }
    });
}

pub(super) const KERNEL_WIDTH: Rule = Rule {
    code: Code(451),
    title: "kernel wider than the engine's",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C031", "C032"],
    explanation: "fp16 kernels are at most 13 wide on H13 and 16 from H14 on according to the compiler's tables; 15 was measured as a check of the front end on M5 and M1. The height is free: 16 high and 3 wide compiles, 3 high and 16 wide does not.",
    rewrite: "the kernel in parts over slices of the input, or the image transposed",
    run: |cx, out| {
        let most = &cx.profile.max_kernel_width;
        each(cx, |view, id, op| {
            let fp16 = view.arg_ty(op, "weight").is_none_or(|t| t.dtype() == Some(DataType::Fp16));
            let width = view.shape(op, "weight").filter(|w| fp16 && w.len() >= 3).and_then(|w| w.last().copied());
            if let Some(width) = width.filter(|w| *w > most.value) {
                let message = format!("a kernel {width} wide; the engine's are at most {}", most.value);
                out.op(view, id, message).claims(&most.claims);
            }
        });
    },
};

pub(super) const KERNEL_HEIGHT: Rule = Rule {
    code: Code(450),
    title: "kernel higher than the engine's",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C032", "F006"],
    explanation: "Kernels are at most 29 high on H13 and 32 from H14 on, according to the compiler's tables. 16 high and 3 wide was compiled.",
    rewrite: "the kernel in parts over slices of the input",
    run: |cx, out| {
        let most = &cx.profile.max_kernel_height;
        each(cx, |view, id, op| {
            let height = view.shape(op, "weight").filter(|w| w.len() >= 4).map(|w| w[w.len() - 2]);
            if let Some(height) = height.filter(|h| *h > most.value) {
                let message = format!("a kernel {height} high; the engine's are at most {}", most.value);
                out.op(view, id, message).claims(&most.claims);
            }
        });
    },
};

pub(super) const INPUT_CHANNELS: Rule = Rule {
    code: Code(452),
    title: "convolution with too many input channels",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C080", "C081", "C082"],
    explanation: "A convolution with 32000 input channels is refused on M4 (a limit of 8192 is quoted); with 32000 output channels it runs on M1, M3 Ultra and M4.",
    rewrite: "a matmul over a tensor of rank 3, or the sum of convolutions over slices of the channels",
    run: |cx, out| {
        let most = &cx.profile.max_conv_input_channels;
        each(cx, |view, id, op| {
            let channels = view.shape(op, "x").and_then(|x| x.get(1).copied());
            if let Some(channels) = channels.filter(|c| most.value.exceeded_by(*c)) {
                let message = format!("{channels} input channels; a convolution has at most {}", most.value);
                out.op(view, id, message).claims(&most.claims);
            }
        });
    },
};

pub(super) const RUNTIME_IGNORED: Rule = Rule {
    code: Code(453),
    title: "convolution that ignores its runtime weight",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C083", "C084"],
    explanation: "On M3 Max (in-memory path) a convolution whose weight is computed or an input compiles, and the data of the weight are not read. On M1 through the E5 runtime the result is correct at batch 1.",
    rewrite: "a matmul, which reads both operands, or a constant weight",
    run: |cx, out| {
        let ignored = &cx.profile.runtime_conv_weight_ignored;
        if ignored.value {
            runtime(cx, |view, id, op| {
                let message = format!("the weight of this `{}` is not constant, and the engine ignores it", op.name);
                out.op(view, id, message).claims(&ignored.claims);
            });
        }
    },
};

pub(super) const RUNTIME_DEPTHWISE: Rule = Rule {
    code: Code(454),
    title: "grouped convolution with a runtime weight",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C085"],
    explanation: "On M1 a depthwise convolution whose weight is not constant is InvalidMILProgram.",
    rewrite: "mul and reduce_sum, or a constant weight",
    run: |cx, out| {
        let allowed = &cx.profile.runtime_conv_depthwise;
        if !allowed.value {
            runtime(cx, |view, id, op| {
                if let Some(groups) = view.int(op, "groups").filter(|g| *g > 1) {
                    let message = format!("{groups} groups with a weight that is not constant");
                    out.op(view, id, message).claims(&allowed.claims);
                }
            });
        }
    },
};

pub(super) const RUNTIME_BATCH: Rule = Rule {
    code: Code(455),
    title: "batch of a convolution with a runtime weight",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C084"],
    explanation: "On M1 through the E5 runtime a convolution with a runtime weight at a batch of 2 or more crashes the compile service. The compile time also grows with the batch (apple-runtime §14).",
    rewrite: "a convolution for each element of the batch, or a matmul",
    run: |cx, out| {
        let most = &cx.profile.runtime_conv_batch;
        runtime(cx, |view, id, op| {
            let batch = view.shape(op, "x").and_then(|x| x.first().copied());
            if let Some(batch) = batch.filter(|b| most.value.exceeded_by(*b)) {
                let message =
                    format!("a batch of {batch} with a weight that is not constant; at most {} compiles", most.value);
                out.op(view, id, message).claims(&most.claims);
            }
        });
    },
};

pub(super) const BIAS: Rule = Rule {
    code: Code(456),
    title: "convolution with a bias",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C078", "C079"],
    explanation: "On the in-memory path of M4 Max `conv` takes no bias argument. It is a regular operand of the public op set and accepted elsewhere.",
    rewrite: "an `add` after the convolution",
    run: |cx, out| {
        let allowed = &cx.profile.conv_bias;
        if !allowed.value {
            each(cx, |view, id, op| {
                if op.arg("bias").is_some() {
                    out.op(view, id, format!("`{}` with a bias", op.name)).claims(&allowed.claims);
                }
            });
        }
    },
};

pub(super) const RANK: Rule = Rule {
    code: Code(457),
    title: "three-dimensional convolution",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C087"],
    explanation: "The compiler's tables know three-dimensional convolution, but no program with one has been observed to lower.",
    rewrite: "the sum of two-dimensional convolutions over slices of the depth",
    run: |cx, out| {
        let most = &cx.profile.max_conv_rank;
        each(cx, |view, id, op| {
            if let Some(rank) = view.arg_ty(op, "x").and_then(|t| t.rank()).filter(|r| *r > most.value) {
                let message =
                    format!("a convolution over rank {rank}; the engine's are at most of rank {}", most.value);
                out.op(view, id, message).claims(&most.claims);
            }
        });
    },
};

pub(super) const STRIDED: Rule = Rule {
    code: Code(458),
    title: "dense convolution with strides",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["C086"],
    explanation: "On M5 a strided convolution of one group reads 45 GB/s; sliced first and convolved without strides it reads 104 GB/s.",
    rewrite: "a slice with the strides, then the convolution without them",
    run: |cx, out| {
        let slow = &cx.profile.strided_conv_slow;
        if slow.value {
            each(cx, |view, id, op| {
                let strided = view.ints(op, "strides").is_some_and(|s| s.iter().any(|s| *s > 1));
                if strided && view.int(op, "groups").unwrap_or(1) == 1 {
                    out.op(view, id, "a dense convolution with strides").claims(&slow.claims);
                }
            });
        }
    },
};
