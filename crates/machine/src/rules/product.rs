//! Rules about matrix products.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{Arg, Op, ValueDef, ValueId};

use super::rule::{Context, Rule};
use crate::finding::{Effect, Fix};
use crate::findings::Findings;
use crate::view::FunctionView;

/// The inner extent of a matmul, if it is known.
fn inner(view: &FunctionView<'_>, op: &Op) -> Option<usize> {
    let x = view.shape(op, "x")?;
    let back = if view.flag(op, "transpose_x") && x.len() > 1 { 2 } else { 1 };
    x.len().checked_sub(back).map(|i| x[i])
}

pub(super) const INNER: Rule = Rule {
    code: Code(460),
    title: "inner extent of a matmul",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C089"],
    explanation: "On M1 a matmul whose inner extent is not a multiple of 32 gives zeros.",
    rewrite: "both operands padded with zeros along the inner axis",
    run: |cx, out| {
        let of = &cx.profile.matmul_inner_multiple;
        for view in cx.functions.iter().filter(|_| of.value > 1) {
            for (id, op) in view.named("matmul") {
                if let Some(n) = inner(view, op).filter(|n| n % of.value != 0) {
                    let message =
                        format!("the inner extent is {n}, not a multiple of {}: the result is zero", of.value);
                    out.op(view, id, message).claims(&of.claims);
                }
            }
        }
    },
};

pub(super) const CONSTANT: Rule = Rule {
    code: Code(461),
    title: "matmul with a constant",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C091"],
    explanation: "On M1 (in-memory path) a constant operand of matmul is InvalidMILProgram.",
    rewrite: "a 1×1 convolution with the constant as its weight, or the matrix as an input",
    run: |cx, out| {
        let allowed = &cx.profile.matmul_constant;
        for view in cx.functions.iter().filter(|_| !allowed.value) {
            for (id, op) in view.named("matmul") {
                if let Some(name) = ["x", "y"].into_iter().find(|n| view.constant_arg(op, n)) {
                    out.op(view, id, format!("operand `{name}` of `matmul` is a constant")).claims(&allowed.claims);
                }
            }
        }
    },
};

pub(super) const ORDER: Rule = Rule {
    code: Code(462),
    title: "matmul whose weight is not its first operand",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C090"],
    explanation: "On M1 a product of two inputs gave zeros unless the weight was input 0 and the activation input 1, which may have been due to the order of the ports instead of the operands.",
    rewrite: "matmul(x = weight, y = activation) with matching transpose flags, and the weight declared first",
    run: |cx, out| {
        let first = &cx.profile.matmul_weight_first;
        for view in cx.functions.iter().filter(|_| first.value) {
            let place = |v: ValueId| match view.function.value(view.source(v)).def {
                ValueDef::Input(n) => Some(n),
                _ => None,
            };
            for (id, op) in view.named("matmul") {
                let places = ["x", "y"].map(|n| view.arg(op, n).and_then(place));
                if let [Some(x), Some(y)] = places
                    && x > y
                {
                    out.op(view, id, "the first operand is the later input").claims(&first.claims);
                }
            }
        }
    },
};

pub(super) const FLAGS: Rule = Rule {
    code: Code(463),
    title: "transpose flags of matmul",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C088"],
    explanation: "On M4 Max the parser requires both transpose flags of matmul, each as the name of a bool constant. Elsewhere inline literals are accepted, and an absent flag is false.",
    rewrite: "`bool no = const()[val = bool(false)]`, and `transpose_x = no`",
    run: |cx, out| {
        let named = &cx.profile.matmul_named_flags;
        for view in cx.functions.iter().filter(|_| named.value) {
            for (id, op) in view.named("matmul") {
                let odd =
                    ["transpose_x", "transpose_y"].into_iter().find(|n| !matches!(op.arg(n), Some(Arg::Value(_))));
                if let Some(flag) = odd {
                    let how = if op.arg(flag).is_some() { "an inline literal" } else { "left out" };
                    let found = out.op(view, id, format!("`{flag}` is {how}"));
                    found.claims(&named.claims).fix(Fix::NamedConstants("matmul"));
                }
            }
        }
    },
};

pub(super) const AS_CONV: Rule = Rule {
    code: Code(464),
    title: "product with a constant as matmul",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["C093", "F062"],
    explanation: "A 1×1 convolution is about three times as fast as the matmul of the same arithmetic on M4 Max, because the weights of a convolution are already in the kernel memory. With weights that are inputs it is the other way round (1.65 against 0.32 ms).",
    rewrite: "a 1×1 convolution: the pass `linear_to_conv`",
    run: products,
};

fn products(cx: &Context<'_>, out: &mut Findings) {
    let slower = &cx.profile.matmul_slower_than_conv;
    for view in cx.functions.iter().filter(|_| slower.value) {
        for (id, op) in view.any(&["linear", "matmul"]) {
            let weight = if op.name == "linear" { "weight" } else { "y" };
            let other = !view.constant_arg(op, "x");
            if other && view.constant_arg(op, weight) && view.shape(op, weight).is_some_and(|w| w.len() == 2) {
                let found = out.op(view, id, format!("`{}` with a constant matrix", op.name));
                found.claims(&slower.claims);
                if op.name == "linear" {
                    found.fix(Fix::Pass("linear_to_conv"));
                }
            }
        }
    }
}
