//! Rules about ops regardless of their arguments, from the acceptance in the profile.

use ferrane_diag::{Code, Severity};

use super::rule::{Context, Rule};
use crate::finding::{Effect, Fix};
use crate::findings::Findings;
use crate::profile::Acceptance;
use crate::view::FunctionView;

pub(super) const REFUSED: Rule = Rule {
    code: Code(411),
    title: "op that the compiler refuses",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &[
        "C020", "C041", "C044", "C048", "C049", "C054", "C057", "C064", "C065", "C066", "C098", "C099", "C101", "C103",
        "C105", "C106", "C107", "F020", "F030", "F036", "F037", "F040", "F049", "F050",
    ],
    explanation: "Which ops the compiler can lower depends on the chip's family, the system and the path (mil-text §8). The profile lists those that it refuses; `ferrane machine show PROFILE` shows the list with the claims. Many can be expressed in other ops: x·sigmoid(x) for silu, the tanh formula for gelu, x − floor_div(x, y)·y for mod, pow(x, −0.5) for rsqrt, reduce_sum times 1/N for reduce_mean.",
    rewrite: "",
    run: |cx, out| {
        each(cx, out, Acceptance::Refused, |name| format!("the compiler refuses `{name}`"));
    },
};

pub(super) const NEEDS_EPSILON: Rule = Rule {
    code: Code(412),
    title: "op that needs its `epsilon`",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C047"],
    explanation: "`rsqrt`, `log` and `inverse` have a default epsilon in MIL. On the in-memory path of M3 Pro they compile only when it is written.",
    rewrite: "the default written out: rsqrt 1e-12, log 1e-45, inverse 1e-4",
    run: needs_epsilon,
};

fn needs_epsilon(cx: &Context<'_>, out: &mut Findings) {
    for view in &cx.functions {
        for (name, ops) in listed(view, cx, Acceptance::NeedsEpsilon) {
            for &id in ops.iter().filter(|id| view.function.op(**id).arg("epsilon").is_none()) {
                let found = out.op(view, id, format!("`{name}` without `epsilon`"));
                found
                    .claims(&cx.profile.op(name).map(|o| o.claims.clone()).unwrap_or_default())
                    .fix(Fix::Pass("decompose"));
            }
        }
    }
}

pub(super) const FAILS: Rule = Rule {
    code: Code(413),
    title: "op that compiles and fails at evaluation",
    severity: Severity::Error,
    effect: Effect::INFERENCE,
    claims: &["C056", "C059"],
    explanation: "The compiler accepts the op, and every evaluation of the program fails. Reported of reduce_mean on the client path of M5 and of reductions, reshapes, transposes, slices and gather by one code base on M1, whose ports may have been bound in an unintended order.",
    rewrite: "",
    run: |cx, out| {
        each(cx, out, Acceptance::FailsAtEvaluation, |name| {
            format!("`{name}` compiles, and evaluations of the program fail")
        });
    },
};

pub(super) const POISONS: Rule = Rule {
    code: Code(414),
    title: "op that breaks the process",
    severity: Severity::Error,
    effect: Effect::INFERENCE,
    claims: &["C068", "C069"],
    explanation: "On M3 Max under macOS 26 one evaluation of a program with `tile` made every later evaluation in the process return 0x1d, including those of other programs, until the process ended. On other machines `tile` is native.",
    rewrite: "broadcasting in `mul` or `add`, or a `concat` of the same value",
    run: |cx, out| {
        each(cx, out, Acceptance::Poisons, |name| {
            format!("after one evaluation with `{name}` every later one in the process fails")
        });
    },
};

pub(super) const DECOMPOSED: Rule = Rule {
    code: Code(415),
    title: "op that runs as several",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["C067", "C095", "C102"],
    explanation: "The family has no unit for the op; the compiler lowers it to others, with their rounding. Results differ in the last bits from those of families that have one.",
    rewrite: "",
    run: |cx, out| {
        each(cx, out, Acceptance::Decomposed, |name| format!("`{name}` runs as several ops, with their rounding"));
    },
};

pub(super) const COUNT: Rule = Rule {
    code: Code(418),
    title: "more ops than a program may have",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C039"],
    explanation: "Core ML reported error −14 for programs of 3164 to 3284 ops on M4.",
    rewrite: "several programs",
    run: |cx, out| {
        let (count, most) = (cx.functions.iter().map(FunctionView::running).sum(), &cx.profile.max_ops);
        if most.value.exceeded_by(count) {
            out.program(format!("{count} ops; the compiler accepts {}", most.value)).claims(&most.claims);
        }
    },
};

/// The ops with this acceptance, by name.
fn listed<'b>(
    view: &'b FunctionView<'_>,
    cx: &'b Context<'_>,
    kind: Acceptance,
) -> impl Iterator<Item = (&'b str, &'b [ferrane_mil::OpId])> {
    view.names().filter(move |(name, _)| cx.profile.op(name).is_some_and(|o| o.value == kind))
}

fn each(cx: &Context<'_>, out: &mut Findings, kind: Acceptance, message: impl Fn(&str) -> String) {
    for view in &cx.functions {
        let mut all: Vec<_> = listed(view, cx, kind).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        for (name, ops) in all {
            let claims = cx.profile.op(name).map(|o| o.claims.clone()).unwrap_or_default();
            for &id in ops {
                let found = out.op(view, id, message(name));
                found.claims(&claims);
                if let Some((rewrite, pass)) = instead(name) {
                    found.rewrite(rewrite);
                    if let Some(pass) = pass {
                        found.fix(Fix::Pass(pass));
                    }
                }
            }
        }
    }
}

/// An equivalent of an op in other ops, and the pass that rewrites it (mil-text §7).
fn instead(op: &str) -> Option<(&'static str, Option<&'static str>)> {
    Some(match op {
        "silu" => ("mul(x, sigmoid(x))", Some("decompose")),
        "gelu" => ("0.5·x·(1 + tanh(0.79788·(x + 0.044715·x³)))", Some("decompose")),
        "layer_norm" => ("its formula over reduce_mean, mul, add and pow", Some("decompose")),
        "batch_norm" => ("x·s + t with constants, or folded into the convolution before it", Some("decompose")),
        "mod" => ("x − floor_div(x, y)·y", Some("decompose")),
        "logical_and" | "logical_or" | "logical_xor" => ("mul, maximum or not_equal of fp16 casts", Some("decompose")),
        "rsqrt" => ("pow(x, −0.5)", None),
        "inverse" => ("real_div(1, x)", None),
        "pow" => ("mul(x, x), or exp of a product", None),
        "reduce_mean" => ("reduce_sum, and mul with 1/N", None),
        "reduce_prod" => ("mul of slices", None),
        "avg_pool" => ("reduce_mean over reshaped windows", None),
        "max_pool" => ("reduce_max over reshaped windows", None),
        "concat" => ("several outputs, or several programs", None),
        "tile" => ("broadcasting in mul or add", None),
        "cumsum" => ("a matmul with a triangular matrix", None),
        "sin" | "cos" => ("a polynomial", None),
        "gather" => ("a matmul with one-hot rows", None),
        "cond" => ("select of both branches", None),
        "while_loop" => ("the loop on the host, or unrolled", None),
        _ => return None,
    })
}
