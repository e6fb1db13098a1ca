//! Rules about attention and softmax.

use ferrane_diag::{Code, Severity};

use super::rule::{Context, Rule};
use crate::finding::Effect;
use crate::findings::Findings;
use crate::profile::AttnMask;

const ATTENTION: &str = "scaled_dot_product_attention";

pub(super) const MASK: Rule = Rule {
    code: Code(465),
    title: "attention mask that is ignored",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C074", "C075"],
    explanation: "On the in-memory path the engine does not read `attn_mask` of scaled_dot_product_attention: every query sees every key. Through the E5 runtime the mask works as the layer's fifth operand, one plane for all heads.",
    rewrite: "matmul, mul by the scale, add of the mask, softmax, matmul",
    run: |cx, out| {
        let mask = &cx.profile.attn_mask;
        for view in cx.functions.iter().filter(|_| mask.value == AttnMask::Ignored) {
            for (id, _) in view.named(ATTENTION).filter(|(_, op)| op.arg("attn_mask").is_some()) {
                out.op(view, id, "the engine ignores `attn_mask`").claims(&mask.claims);
            }
        }
    },
};

pub(super) const EXTENT: Rule = Rule {
    code: Code(466),
    title: "attention beyond the limits of the native layer",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C076", "C077"],
    explanation: "On M5 Pro the native attention layer is reliable up to a sequence of 2048, and while queries or keys are fewer than 512; beyond that its output is garbage.",
    rewrite: "matmul, softmax, matmul; or queries in blocks below 512",
    run: extent,
};

fn extent(cx: &Context<'_>, out: &mut Findings) {
    let (length, side) = (&cx.profile.attention_max_length, &cx.profile.attention_max_side);
    for view in &cx.functions {
        for (id, op) in view.named(ATTENTION) {
            let rows = |name| view.shape(op, name).and_then(|s| s.len().checked_sub(2).map(|i| s[i]));
            let (Some(q), Some(k)) = (rows("query"), rows("key")) else { continue };
            if length.value.exceeded_by(q.max(k)) {
                let message = format!("attention of {q} queries and {k} keys; it is garbage beyond {}", length.value);
                out.op(view, id, message).claims(&length.claims);
            } else if side.value.exceeded_by(q.min(k)) {
                let message =
                    format!("attention of {q} queries and {k} keys; one of them must be at most {}", side.value);
                out.op(view, id, message).claims(&side.claims);
            }
        }
    }
}

pub(super) const QUERIES: Rule = Rule {
    code: Code(467),
    title: "attention with few queries",
    severity: Severity::Error,
    effect: Effect::EvaluationError { status: 0xe00002c2 },
    claims: &["C181"],
    explanation: "On M5 Pro under macOS 27 decoders with one or two query positions fail with 0xe00002c2 (bad argument); those with four or eight run.",
    rewrite: "four query positions, of which the surplus is discarded",
    run: |cx, out| {
        let least = &cx.profile.min_queries;
        for view in cx.functions.iter().filter(|_| least.value > 1) {
            for (id, op) in view.named(ATTENTION) {
                let q = view.shape(op, "query").and_then(|s| s.len().checked_sub(2).map(|i| s[i]));
                if let Some(q) = q.filter(|q| *q < least.value) {
                    out.op(view, id, format!("{q} query positions; {} run", least.value)).claims(&least.claims);
                }
            }
        }
    },
};

pub(super) const SOFTMAX: Rule = Rule {
    code: Code(468),
    title: "softmax over an extent that is not a power of two",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C110", "C111"],
    explanation: "One project says that the axis of softmax must be a power of two on M3 Max. Softmax over 32000 ran on M3 Ultra and M4.",
    rewrite: "scores padded with −65504 to a power of two",
    run: |cx, out| {
        let wanted = &cx.profile.softmax_power_of_two;
        for view in cx.functions.iter().filter(|_| wanted.value) {
            for (id, op) in view.named("softmax") {
                let Some(x) = view.shape(op, "x") else { continue };
                // The default is the last axis.
                let axis =
                    if op.arg("axis").is_some() { view.axis(op, "axis", x.len()) } else { x.len().checked_sub(1) };
                if let Some(n) = axis.map(|a| x[a]).filter(|n| !n.is_power_of_two()) {
                    out.op(view, id, format!("softmax over {n}, not a power of two")).claims(&wanted.claims);
                }
            }
        }
    },
};
