//! Rules about combinations of ops that are accepted alone.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{Op, OpId, ValueId};

use super::rule::{Context, Rule};
use crate::finding::{Effect, Fix};
use crate::findings::Findings;
use crate::select::Unit;
use crate::view::{FunctionView, width};

/// The extents of both operands, the shorter one padded with leading ones.
fn pair(view: &FunctionView<'_>, op: &Op) -> Option<[Vec<usize>; 2]> {
    let (mut x, mut y) = (view.shape(op, "x")?, view.shape(op, "y")?);
    let rank = x.len().max(y.len());
    for s in [&mut x, &mut y] {
        let missing = rank - s.len();
        s.splice(0..0, std::iter::repeat_n(1, missing));
    }
    Some([x, y])
}

/// True if neither operand is a scalar known at compile time.
fn both_run(view: &FunctionView<'_>, op: &Op) -> bool {
    !view.constant_arg(op, "x") && !view.constant_arg(op, "y")
}

pub(super) const OUTER_BROADCAST: Rule = Rule {
    code: Code(480),
    title: "product that broadcasts over the batch",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C070", "C072"],
    explanation: "On M3 Max `mul` that broadcasts along the outermost axis is unreliable in programs of several ops. Trainers broadcast over channels, rows and columns without problems.",
    rewrite: "a `concat` of the operand with itself along the axis, or a product for each element of the batch",
    run: |cx, out| {
        let wrong = &cx.profile.outer_broadcast_unreliable;
        for view in cx.functions.iter().filter(|b| wrong.value && b.running() > 1) {
            for (id, op) in view.named("mul").filter(|(_, op)| both_run(view, op)) {
                let Some([x, y]) = pair(view, op) else { continue };
                if x.len() > 1 && x[0] != y[0] {
                    out.op(view, id, format!("`mul` of {x:?} and {y:?} broadcasts over the outermost axis"))
                        .claims(&wrong.claims);
                }
            }
        }
    },
};

pub(super) const CHANNEL_BROADCAST: Rule = Rule {
    code: Code(481),
    title: "product of rank 3 that broadcasts over the last axis",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C071", "C072"],
    explanation: "On M1 [1, C, S] times [1, C, 1] gives zeros and times [1, 1, 1] wrong results; times [1, 1, S] works. With four axes trainers broadcast [1, C, 1, 1] and [1, 1, 1, S] everywhere.",
    rewrite: "four axes: [1, C, 1, S] times [1, C, 1, 1]",
    run: |cx, out| {
        let wrong = &cx.profile.channel_broadcast_wrong;
        for view in cx.functions.iter().filter(|_| wrong.value) {
            for (id, op) in view.named("mul") {
                let Some([x, y]) = pair(view, op) else { continue };
                if x.len() == 3 && x[2] != y[2] {
                    out.op(view, id, format!("`mul` of {x:?} and {y:?}")).claims(&wrong.claims);
                }
            }
        }
    },
};

pub(super) const SQRT_BROADCAST: Rule = Rule {
    code: Code(482),
    title: "square root that feeds a broadcast or a division",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C073"],
    explanation: "On M1 `sqrt` that feeds a broadcast or a `real_div` in the same program gives wrong values: operands swapped, or only channel 0 written.",
    rewrite: "pow(x, −0.5) and a product",
    run: |cx, out| {
        let wrong = &cx.profile.sqrt_broadcast_wrong;
        for view in cx.functions.iter().filter(|_| wrong.value) {
            for (id, op) in view.named("sqrt") {
                let readers = op.outputs.iter().flat_map(|v| view.users(*v)).map(|u| view.function.op(*u));
                let bad = readers.into_iter().find(|o| {
                    o.name == "real_div"
                        || (matches!(o.name.as_str(), "mul" | "add" | "sub")
                            && pair(view, o).is_some_and(|[x, y]| x != y))
                });
                if let Some(reader) = bad {
                    out.op(view, id, format!("`sqrt` feeds `{}`", reader.name)).claims(&wrong.claims);
                }
            }
        }
    },
};

pub(super) const ROUND_SCALE: Rule = Rule {
    code: Code(483),
    title: "scale after a rounding",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C114"],
    explanation: "On M5 Pro the compiler loses the multiply when `floor`, `ceil` or `round` is followed by one with a scalar.",
    rewrite: "the scale as a tensor of the same extents, or an op between the two",
    run: |cx, out| {
        let lost = &cx.profile.round_scale_lost;
        for view in cx.functions.iter().filter(|_| lost.value) {
            for (_, op) in view.any(&["floor", "ceil", "round"]) {
                for &user in op.outputs.iter().flat_map(|v| view.users(*v)) {
                    let next = view.function.op(user);
                    let scalar = |n| view.function.arg_constant(next, n).is_some_and(|c| c.ty().elements() == Some(1));
                    if next.name == "mul" && (scalar("x") || scalar("y")) {
                        out.op(view, user, format!("the scale after `{}` is lost", op.name)).claims(&lost.claims);
                    }
                }
            }
        }
    },
};

pub(super) const SQUARE: Rule = Rule {
    code: Code(484),
    title: "square followed by a function",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C117"],
    explanation: "On M5 Pro `square` followed by a non-linearity does not compile when the width leaves more than 64 modulo 128.",
    rewrite: "mul(x, x), or the width padded",
    run: |cx, out| {
        let refused = &cx.profile.square_width_refused;
        for view in cx.functions.iter().filter(|_| refused.value) {
            for (id, op) in view.named("square") {
                let wide = op.outputs.first().and_then(|v| width(view.ty(*v))).is_some_and(|w| w % 128 > 64);
                let table = |u: &&OpId| view.selection.get(**u).is_some_and(|s| s.unit == Unit::Table);
                if wide && op.outputs.iter().flat_map(|v| view.users(*v)).any(|u| table(&u)) {
                    out.op(view, id, "a function after `square`, at a width that leaves more than 64 modulo 128")
                        .claims(&refused.claims);
                }
            }
        }
    },
};

pub(super) const LONE_MOVES: Rule = Rule {
    code: Code(420),
    title: "program with only data movement",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["F010"],
    explanation: "On M3 Pro `reshape`, `slice_by_index` and `tile` compile together with other ops, but not alone in a program (mil-text §7).",
    rewrite: "an op that computes in addition to them: `add` with 0",
    run: |cx, out| {
        let refused = &cx.profile.lone_moves_refused;
        for view in cx.functions.iter().filter(|b| refused.value && b.running() > 0) {
            let alone = |n: &str| matches!(n, "reshape" | "slice_by_index" | "tile" | "const");
            if view.names().all(|(n, _)| alone(n)) {
                let message = format!("function `{}` only moves data", view.function.name);
                out.function(view, message).claims(&refused.claims);
            }
        }
    },
};

/// Ops that keep a program on the engine.
const ANCHORS: &[&str] = &["conv", "conv_transpose", "linear", "matmul", "einsum", "scaled_dot_product_attention"];

pub(super) const ELEMENTWISE_ONLY: Rule = Rule {
    code: Code(485),
    title: "program of element-wise ops only",
    severity: Severity::Warning,
    effect: Effect::INFERENCE,
    claims: &["C122"],
    explanation: "On the client path of M5 a program without a convolution, linear or matmul may be left on the CPU, and is then refused when it is loaded.",
    rewrite: "a 1×1 convolution with the identity, which anchors the program on the engine",
    run: |cx, out| {
        let refused = &cx.profile.elementwise_refused;
        for view in cx.functions.iter().filter(|b| refused.value && b.running() > 0) {
            if view.any(ANCHORS).next().is_none() {
                out.function(view, format!("function `{}` has no convolution or product", view.function.name))
                    .claims(&refused.claims);
            }
        }
    },
};

pub(super) const FLAT: Rule = Rule {
    code: Code(486),
    title: "long flat element-wise op",
    severity: Severity::Error,
    effect: Effect::Hangs,
    claims: &["C123"],
    explanation: "On M1 element-wise ops over more than 16384 elements on one axis never return; as [1, C, S] they run.",
    rewrite: "`reshape` to [1, C, S]",
    run: |cx, out| {
        let most = &cx.profile.max_flat_elements;
        for view in cx.functions.iter().filter(|_| most.value.0.is_some()) {
            for (id, op) in view.ops() {
                if !matches!(view.selection.unit(id), Some(Unit::Planar | Unit::Table)) {
                    continue;
                }
                let elements = |v: &ValueId| view.ty(*v).elements();
                let Some(all) = op.outputs.first().and_then(elements).filter(|n| most.value.exceeded_by(*n)) else {
                    continue;
                };
                if view.result(op).is_some_and(|shape| shape.iter().copied().max().unwrap_or(1) == all) {
                    out.op(view, id, format!("`{}` over {all} elements on one axis", op.name)).claims(&most.claims);
                }
            }
        }
    },
};

pub(super) const DEAD: Rule = Rule {
    code: Code(487),
    title: "unused op that reduces to width 1",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C016", "C017"],
    explanation: "On the client path of M5 an op whose result nothing reads and that reduces to width 1 makes the whole program fail to compile.",
    rewrite: "the op removed: the pass `dead_code`",
    run: dead,
};

fn dead(cx: &Context<'_>, out: &mut Findings) {
    let refused = &cx.profile.dead_width_one_refused;
    for view in cx.functions.iter().filter(|_| refused.value) {
        let mut live = vec![false; view.function.values.len()];
        let mut mark = |v: ValueId| live.get_mut(v.index()).is_none_or(|l| std::mem::replace(l, true));
        let mut open: Vec<ValueId> = view.function.blocks.iter().flat_map(|b| b.outputs.iter().copied()).collect();
        open.retain(|v| !mark(*v));
        while let Some(value) = open.pop() {
            if let Some((_, op)) = view.def(value) {
                open.extend(op.operands().filter(|v| !mark(*v)));
            }
        }
        for (id, op) in view.ops().filter(|(_, op)| op.blocks.is_empty() && op.name != "write_state") {
            let unused = op.outputs.iter().all(|v| !live.get(v.index()).copied().unwrap_or(true));
            let reduces = view.selection.get(id).is_some_and(|s| s.unit == Unit::Reduce);
            if unused && reduces && op.outputs.iter().any(|v| width(view.ty(*v)) == Some(1)) {
                out.op(view, id, format!("nothing reads this `{}`, which reduces to width 1", op.name))
                    .claims(&refused.claims)
                    .fix(Fix::Pass("dead_code"));
            }
        }
    }
}

pub(super) const SPLIT: Rule = Rule {
    code: Code(488),
    title: "split together with matmul, softmax and tile",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C109"],
    explanation: "Programs with split, matmul, softmax and tile together failed in one project, though each compiled alone.",
    rewrite: "slice_by_size instead of split, or two programs",
    run: |cx, out| {
        let refused = &cx.profile.split_refused;
        for view in cx.functions.iter().filter(|_| refused.value) {
            if let Some((id, _)) = view.named("split").next()
                && ["matmul", "softmax", "tile"].iter().all(|n| view.named(n).next().is_some())
            {
                out.op(view, id, "`split` in one program with matmul, softmax and tile").claims(&refused.claims);
            }
        }
    },
};

pub(super) const QDQ: Rule = Rule {
    code: Code(489),
    title: "product of two dequantized values",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C202", "F031"],
    explanation: "In y = Q(a · Q(b)) the engine of M5 Pro combines one branch's codes with the scale of another quantization of the same product (int8 §2). A clamp of the product, or quantization written as divide, round, clamp and cast, removes it.",
    rewrite: "`clip` of the product to the range of its quantization",
    run: |cx, out| {
        let defect = &cx.profile.qdq_multiply_defect;
        for view in cx.functions.iter().filter(|_| defect.value) {
            let dequantized =
                |v: Option<ValueId>| v.and_then(|v| view.def(v)).is_some_and(|(_, o)| o.name == "dequantize");
            for (id, op) in view.named("mul") {
                let quantized =
                    op.outputs.iter().flat_map(|v| view.users(*v)).any(|u| view.function.op(*u).name == "quantize");
                let [x, y] = ["x", "y"].map(|n| dequantized(view.arg(op, n)));
                if (x && y) || (quantized && (x || y)) {
                    out.op(view, id, "a product of dequantized values may use the scale of the other one")
                        .claims(&defect.claims);
                }
            }
        }
    },
};
