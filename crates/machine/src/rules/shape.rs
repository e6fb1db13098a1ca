//! Rules about extents and ranks.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{Dim, ValueId};

use super::rule::{Context, Rule};
use crate::finding::Effect;
use crate::view::{FunctionView, dims};

/// Every value except scalars known at compile time, each once.
fn values<'b>(view: &'b FunctionView<'_>) -> impl Iterator<Item = ValueId> + 'b {
    let computed = view.names().filter(|(name, _)| *name != "const").flat_map(|(_, ops)| ops);
    let results = computed.flat_map(|id| view.function.op(*id).outputs.iter().copied());
    view.inputs().chain(results)
}

/// Reports every value with an axis of a wrong extent: the rightmost such axis.
fn extents(
    cx: &Context<'_>,
    mut each: impl FnMut(&FunctionView<'_>, ValueId, usize, usize),
    wrong: impl Fn(usize, usize, usize) -> bool,
) {
    for view in &cx.functions {
        for value in values(view) {
            let dims = dims(view.ty(value));
            for (axis, dim) in dims.iter().enumerate().rev() {
                if let Dim::Fixed(n) = dim
                    && wrong(*n, axis, dims.len())
                {
                    each(view, value, axis, *n);
                    break;
                }
            }
        }
    }
}

/// True for the channel and batch axes of a 4-D tensor. With fewer than three axes no axis is known
/// to be one of them.
fn outer(axis: usize, rank: usize) -> bool {
    rank >= 3 && axis < rank.saturating_sub(2).min(2)
}

pub(super) const AXIS: Rule = Rule {
    code: Code(421),
    title: "axis beyond the engine's limit",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C021", "C022", "C023", "C024", "C025"],
    explanation: "Width, height and depth are at most 16384 up to the family of A15 and M3, and 65536 from that of M4 on. Channels and batch may have 65536 everywhere, so the smaller limit does not apply to the channels of a convolution, but it does to the inner extent of a matmul. A fused FFN whose packed input has 2·SEQ + 3·HIDDEN columns exceeds it on M3 Ultra, a language-model head of 151936 rows on M4 Pro.",
    rewrite: "the axis in parts: several ops, or several programs whose results are joined",
    run: |cx, out| {
        let limit = &cx.profile.max_axis;
        let add = |view: &FunctionView<'_>, value, axis, n| {
            let message = format!(
                "axis {axis} of `{}` has {n} elements, more than {}",
                view.function.value(value).name,
                limit.value
            );
            out.value(view, value, message).claims(&limit.claims);
        };
        extents(cx, add, |n, axis, rank| n > limit.value && !outer(axis, rank));
    },
};

pub(super) const CHANNELS: Rule = Rule {
    code: Code(422),
    title: "channels or batch beyond the engine's limit",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C022", "C024"],
    explanation: "Channels and batch are at most 65536 in the compiler's tables from H13 on.",
    rewrite: "the channels in parts: several convolutions over slices of the weight",
    run: |cx, out| {
        let (channels, batch) = (&cx.profile.max_channels, &cx.profile.max_batch);
        let limit = |axis, rank: usize| if rank >= 4 && axis == 0 { batch } else { channels };
        let add = |view: &FunctionView<'_>, value: ValueId, axis, n| {
            let limit = limit(axis, dims(view.ty(value)).len());
            let message = format!(
                "axis {axis} of `{}` has {n} elements, more than {}",
                view.function.value(value).name,
                limit.value
            );
            out.value(view, value, message).claims(&limit.claims);
        };
        extents(cx, add, |n, axis, rank| outer(axis, rank) && n > limit(axis, rank).value);
    },
};

pub(super) const RANK: Rule = Rule {
    code: Code(423),
    title: "more axes than the engine supports",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C026", "F041", "F042"],
    explanation: "Tensors have at most five axes; rank 6 is rejected on M1 and M5.",
    rewrite: "neighboring axes as one, by `reshape`",
    run: |cx, out| {
        let limit = &cx.profile.max_rank;
        for view in &cx.functions {
            for value in values(view).filter(|v| dims(view.ty(*v)).len() > limit.value) {
                let (name, rank) = (&view.function.value(value).name, dims(view.ty(value)).len());
                out.value(view, value, format!("`{name}` has rank {rank}, more than {}", limit.value))
                    .claims(&limit.claims);
            }
        }
    },
};

pub(super) const ZERO: Rule = Rule {
    code: Code(424),
    title: "axis without elements",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C029"],
    explanation: "An axis of extent 0 is refused on the device (a type mismatch, on M1).",
    rewrite: "remove the ops on the empty value",
    run: |cx, out| {
        if cx.profile.zero_extents.value {
            return;
        }
        let add = |view: &FunctionView<'_>, value, axis, _| {
            let message = format!("axis {axis} of `{}` has no elements", view.function.value(value).name);
            out.value(view, value, message).claims(&cx.profile.zero_extents.claims);
        };
        extents(cx, add, |n, _, _| n == 0);
    },
};

pub(super) const SYMBOLIC: Rule = Rule {
    code: Code(425),
    title: "unknown extent",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C018", "C019", "F047", "F048", "F038", "F039"],
    explanation: "A `?` in a type is InvalidMILProgram on the client path; through the E5 runtime it parses and does not lower. Programs for the engine have one size each; Core ML keeps a program for every enumerated shape.",
    rewrite: "one program for each size",
    run: |cx, out| {
        if cx.profile.symbolic_shapes.value {
            return;
        }
        for view in &cx.functions {
            for value in values(view).filter(|v| dims(view.ty(*v)).contains(&Dim::Unknown)) {
                let v = view.function.value(value);
                let message = format!("`{}` is {}: its extents must be numbers", v.name, v.ty);
                out.value(view, value, message).claims(&cx.profile.symbolic_shapes.claims);
            }
        }
    },
};

pub(super) const PRODUCT_RANK: Rule = Rule {
    code: Code(426),
    title: "matrix product of five axes",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C026", "C092"],
    explanation: "Tensors may have five axes, matrix products may not: batched matmul of rank 5 is \"not supported on any of the specified backends\", linear rejects it, and the depth axis of a matmul must be 1.",
    rewrite: "the two outermost axes as one, by `reshape`",
    run: |cx, out| {
        let limit = &cx.profile.max_product_rank;
        for view in &cx.functions {
            for (id, op) in view.any(&["linear", "matmul", "scaled_dot_product_attention"]) {
                let rank = op.operands().map(|v| dims(view.ty(v)).len()).max().unwrap_or(0);
                if rank > limit.value {
                    let message = format!("`{}` of rank {rank}; products take at most {} axes", op.name, limit.value);
                    out.op(view, id, message).claims(&limit.claims);
                }
            }
        }
    },
};

pub(super) const PORT_RANK: Rule = Rule {
    code: Code(427),
    title: "several inputs of high rank",
    severity: Severity::Error,
    effect: Effect::INFERENCE,
    claims: &["C027", "C028"],
    explanation: "On M1 two inputs of rank 4 failed where [1, M, N] worked. The compiled program has ports of rank 4 regardless of the text (M5, client path).",
    rewrite: "inputs of rank 3, [1, M, N], and a `reshape` after them",
    run: |cx, out| {
        let limit = &cx.profile.max_rank_of_several_inputs;
        for view in cx.functions.iter().filter(|b| b.inputs().nth(1).is_some()) {
            for value in view.inputs().filter(|v| dims(view.ty(*v)).len() > limit.value) {
                let (name, rank) = (&view.function.value(value).name, dims(view.ty(value)).len());
                let message = format!("input `{name}` has rank {rank}; with several inputs it may be {}", limit.value);
                out.value(view, value, message).claims(&limit.claims);
            }
        }
    },
};

pub(super) const TRANSPOSE: Rule = Rule {
    code: Code(428),
    title: "transpose in several passes",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["C030", "F007"],
    explanation: "A transpose takes heights and widths of up to 16384 in one pass, 65536 from H16 on; larger ones go in several. Another source measures an extent of 8388607 and more.",
    rewrite: "smaller pieces of the axis",
    run: |cx, out| {
        let most = &cx.profile.max_transpose;
        for view in &cx.functions {
            for (id, op) in view.named("transpose") {
                let longest = view.shape(op, "x").and_then(|x| x.iter().rev().take(2).copied().max());
                if let Some(n) = longest.filter(|n| *n > most.value) {
                    out.op(view, id, format!("a transpose of {n} elements on an axis, more than {}", most.value))
                        .claims(&most.claims);
                }
            }
        }
    },
};
