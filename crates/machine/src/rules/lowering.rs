//! Rules about ops that a framework lowers to something else than the engine's own form, or that
//! it computes wrongly.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{Op, OpId, ValueId};

use super::masks::scalar;
use super::rule::{Context, Rule};
use crate::finding::{Effect, Fix};
use crate::findings::Findings;
use crate::view::{FunctionView, is_fp16};

pub(super) const FP32_LOWERED: Rule = Rule {
    code: Code(1002),
    title: "function that is lowered through fp32",
    severity: Severity::Warning,
    effect: Effect::Slow,
    claims: &["F045", "F104", "F105", "F106", "F107"],
    explanation: "Apple reports that Core AI lowers silu to a cast, a swish in fp32 and a cast, none of which the engine runs, and has tanh replaced by 2 · sigmoid(2x) − 1. Its export for iOS keeps silu whole, so a newer tool may do better; sigmoid and a product stay on the engine with either.",
    rewrite: "sigmoid: x · sigmoid(x) for silu, 2 · sigmoid(2x) − 1 for tanh: the pass `sigmoid_forms`",
    run: |cx, out| {
        let lowered = &cx.profile.fp32_lowered;
        for view in &cx.functions {
            for name in &lowered.value {
                for (id, _) in view.named(name) {
                    let message = format!("`{name}` is lowered through fp32 and leaves the engine");
                    out.op(view, id, message).claims(&lowered.claims).fix(Fix::Pass("sigmoid_forms"));
                }
            }
        }
    },
};

pub(super) const ARGMAX16: Rule = Rule {
    code: Code(1003),
    title: "argmax of fp16 values",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["F029"],
    explanation: "Through Core AI the argmax of fp16 logits over 19 classes was wrong in 48 % of the pixels on an iPhone 17 Pro, without an error; the index of a maximum is the same op. After a cast to fp32 it is computed elsewhere and right, as topk it is right and slow.",
    rewrite: "a cast to fp32 in front: the pass `wide_argmax`; or the logits as the output, and the argmax on the host",
    run: |cx, out| {
        let wrong = &cx.profile.fp16_argmax_wrong;
        for view in cx.functions.iter().filter(|_| wrong.value) {
            for (id, op) in view.any(&["reduce_argmax", "reduce_argmin"]) {
                if view.arg_ty(op, "x").is_some_and(|t| is_fp16(&t)) {
                    let message = format!("`{}` of fp16 values may name other elements", op.name);
                    out.op(view, id, message).claims(&wrong.claims).fix(Fix::Pass("wide_argmax"));
                }
            }
        }
    },
};

/// Ops through which indices of topk reach a gather.
const INDEX_OPS: &[&str] =
    &["cast", "reshape", "expand_dims", "squeeze", "tile", "transpose", "floor_div", "mod", "sub", "add", "mul"];

pub(super) const TOPK_GATHER: Rule = Rule {
    code: Code(1004),
    title: "gather by the indices of a topk",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["F028", "F030", "F037"],
    explanation: "Through Core AI an fp16 model whose head selects the best candidates with topk and gathers their rows returned confidences of 0 on an iPhone 17 Pro; a smaller head of the same form was right. topk itself is run elsewhere, by Core ML together with what takes its indices.",
    rewrite: "a program that ends before `topk`, and the selection on the host",
    run: |cx, out| {
        let wrong = &cx.profile.topk_gather_wrong;
        for view in cx.functions.iter().filter(|_| wrong.value) {
            for (id, op) in view.named("topk") {
                let fp16 = view.arg_ty(op, "x").is_some_and(|t| is_fp16(&t));
                if fp16 && op.outputs.get(1).is_some_and(|v| reaches_gather(view, *v)) {
                    out.op(view, id, "the indices of this `topk` select rows of a gather").claims(&wrong.claims);
                }
            }
        }
    },
};

fn reaches_gather(view: &FunctionView<'_>, indices: ValueId) -> bool {
    let mut open = vec![indices];
    // Chains of index arithmetic are short; a cycle is impossible, fan-out is bounded.
    for _ in 0..64 {
        let Some(value) = open.pop() else { return false };
        for user in view.users(value) {
            let op = view.function.op(*user);
            if op.name.starts_with("gather") {
                return true;
            }
            if INDEX_OPS.contains(&op.name.as_str()) {
                open.extend(&op.outputs);
            }
        }
    }
    false
}

pub(super) const HARD_SWISH: Rule = Rule {
    code: Code(1006),
    title: "hard-swish of a product of rank 2",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["F026", "F027"],
    explanation: "Through Core AI a matrix product of rank 2 that feeds hard-swish, as in the classifier of MobileNetV3, was up to 0.2 off on the engine (3.9 %); with tensors of [1, 1, m, n] it was right. Through Core ML the same network shows errors of the same size.",
    rewrite: "product and activation over [1, 1, m, n]: the pass `rank4_hard_swish`",
    run: |cx, out| {
        let wrong = &cx.profile.flat_hard_swish_wrong;
        for view in cx.functions.iter().filter(|_| wrong.value) {
            for (id, op) in view.any(&["sigmoid_hard", "relu6", "clip"]) {
                if let Some(product) = gated_product(view, op) {
                    let message = format!("hard-swish of the rank 2 result of `{}`", view.function.op(product).name);
                    out.op(view, id, message).claims(&wrong.claims).fix(Fix::Pass("rank4_hard_swish"));
                }
            }
        }
    },
};

/// The product of rank 2 whose hard-swish this op is the gate of: `sigmoid_hard(p)`, `relu6(p + 3)`
/// or `clip(p + 3, 0, 6)`, multiplied by p.
fn gated_product(view: &FunctionView<'_>, gate: &Op) -> Option<OpId> {
    let x = view.arg(gate, "x")?;
    let shifted = || {
        let (_, add) = view.def(x).filter(|(_, o)| o.name == "add")?;
        match (scalar(view, add, "x"), scalar(view, add, "y")) {
            (_, Some(3.0)) => view.arg(add, "x"),
            (Some(3.0), _) => view.arg(add, "y"),
            _ => None,
        }
    };
    let p = match gate.name.as_str() {
        "sigmoid_hard" => x,
        "clip" if (scalar(view, gate, "alpha"), scalar(view, gate, "beta")) != (Some(0.0), Some(6.0)) => return None,
        _ => shifted()?,
    };
    let (id, op) = view.def(p).filter(|(_, o)| matches!(o.name.as_str(), "linear" | "matmul"))?;
    let flat = view.result(op).is_some_and(|s| s.len() == 2);
    // The other factor is p, or p above a threshold.
    let multiplied = |v: ValueId| {
        view.users(v).iter().any(|u| matches!(view.function.op(*u).name.as_str(), "mul" | "thresholded_relu"))
    };
    (flat && multiplied(p)).then_some(id)
}

pub(super) const STATE_WRITE: Rule = Rule {
    code: Code(1013),
    title: "state that the program writes",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F095", "F096", "F097", "F039"],
    explanation: "Apple's rules keep caches out of the program: it takes the cache as an input and returns new keys and values, which the host stores, because states of transformed programs are reset between calls. Its own language models update caches in place, with buffers whose layout both sides fix. Through Core ML a model with a state, flexible inputs and int4 weights ran on the CPU as a whole.",
    rewrite: "the cache as an input, `concat` with the new rows, and the new rows as outputs",
    run: |cx, out| {
        let read_only = &cx.profile.states_read_only;
        for view in cx.functions.iter().filter(|_| read_only.value) {
            for (id, op) in view.any(&["write_state", "coreml_update_state"]) {
                out.op(view, id, format!("`{}` writes a state", op.name)).claims(&read_only.claims);
            }
        }
    },
};

pub(super) const GATHER_RANK: Rule = Rule {
    code: Code(1016),
    title: "gather with a result of rank 3",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["F091", "F102"],
    explanation: "Apple reports that indexing a table of cosines and sines by position ids inside the program gives a tensor of rank 3, which Core AI's compiler refuses for the engine. Its models compute them outside and pass tensors of [1, head, 1, sequence]; their embedding tables are [vocabulary, 1, size].",
    rewrite: "cosines and sines as inputs of rank 4",
    run: |cx, out| {
        let refused = &cx.profile.gather_rank_three_refused;
        for view in cx.functions.iter().filter(|_| refused.value) {
            for (id, op) in view.any(&["gather", "gather_nd"]) {
                if view.result(op).is_some_and(|s| s.len() == 3) {
                    out.op(view, id, format!("`{}` with a result of rank 3", op.name)).claims(&refused.claims);
                }
            }
        }
    },
};

pub(super) const BLOCKS: Rule = Rule {
    code: Code(1005),
    title: "weights with a scale for each block",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C204", "F032", "F033", "F076"],
    explanation: "Through Core AI int8 weights with scales for blocks of the summed axis gave a cosine of 0.367 to the reference on the engine and 0.999 on the GPU (iPhone 16 Pro Max); on M5 Pro 1921 of 4096 outputs were wrong. int4 weights of this form do not compile for the engine, and the tool writes a file for the GPU without an error code. Apple recommends a scale for each channel, or palettes.",
    rewrite: "palettes (`constexpr_lut_to_dense`), or one scale for each output channel; plain fp16 weights are right, too",
    run: |cx, out| {
        let wrong = &cx.profile.block_scales_wrong;
        for view in cx.functions.iter().filter(|_| wrong.value) {
            for (id, op) in view.named("constexpr_blockwise_shift_scale") {
                let Some((data, scale)) = tensor(view, op, "data").zip(tensor(view, op, "scale")) else { continue };
                let Some(blocks) = blocks(&data, &scale) else { continue };
                let ty = view.arg_ty(op, "data").or_else(|| op.attribute("data").map(|c| c.ty()));
                if ty.and_then(|t| t.dtype()?.bits()).is_some_and(|bits| bits < 8) {
                    let message = format!("{blocks} scales along one axis of {data:?} do not compile for the engine");
                    let found = out.op(view, id, message).claims(&wrong.claims).fix(Fix::PlainWeights);
                    // The framework's compiler falls back without an error.
                    found.effect = Effect::Slow;
                } else {
                    let message = format!("{blocks} scales along one axis of {data:?} are read wrongly");
                    out.op(view, id, message).claims(&wrong.claims).fix(Fix::PlainWeights);
                }
            }
        }
    },
};

/// The extents of an argument or attribute.
fn tensor(view: &FunctionView<'_>, op: &Op, name: &str) -> Option<Vec<usize>> {
    view.shape(op, name).or_else(|| op.attribute(name)?.ty().shape())
}

/// The number of blocks along an axis that is not the one of the channels, if there are several.
/// With one axis of scales only, its extent is that of the data: a scale for each channel.
fn blocks(data: &[usize], scale: &[usize]) -> Option<usize> {
    if data.len() != scale.len() {
        return None;
    }
    let several = || (0..scale.len()).filter(|&a| scale[a] > 1);
    let part = several().find(|&a| scale[a] < data[a]);
    let second = || several().skip(1).last();
    part.or_else(second).map(|a| scale[a])
}

pub(super) const PALETTE: Rule = Rule {
    code: Code(1017),
    title: "form of a palette",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["F075", "F077", "F078", "F079"],
    explanation: "Apple names palettes of 2, 4, 6 and 8 bits for the engine, one for a tensor or for a group of channels. A palette that also has a scale for each channel needs a table of rank 6, which the compiler refuses; the model then runs on the GPU.",
    rewrite: "a palette of 2, 4, 6 or 8 bits for each group of channels, without scales",
    run: palettes,
};

fn palettes(cx: &Context<'_>, out: &mut Findings) {
    let (bits, scaled) = (&cx.profile.palette_bits, &cx.profile.scaled_palettes);
    for view in &cx.functions {
        for (id, op) in view.named("constexpr_lut_to_dense") {
            let ty = view.arg_ty(op, "indices").or_else(|| op.attribute("indices").map(|c| c.ty()));
            let width = ty.and_then(|t| t.dtype()).and_then(|d| d.bits());
            if let Some(n) = width.filter(|n| !bits.value.contains(n)) {
                let known: Vec<String> = bits.value.iter().map(usize::to_string).collect();
                let message = format!("a palette of {n} bits; the engine reads {}", known.join(", "));
                out.op(view, id, message).claims(&bits.claims);
            }
            let users = op.outputs.iter().flat_map(|v| view.users(*v));
            let mut users = users.map(|u| view.function.op(*u).name.as_str());
            if !scaled.value && users.any(|n| n == "constexpr_blockwise_shift_scale") {
                out.op(view, id, "a palette with scales needs a table of rank 6").claims(&scaled.claims);
            }
        }
    }
}
