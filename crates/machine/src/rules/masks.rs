//! Rules about the softmax of attention: what masks hold, where the axis lies, which form it has.

use std::collections::HashMap;

use ferrane_diag::{Code, Severity};
use ferrane_mil::{Arg, Constant, DataType, Op, OpId, Type, ValueId, Weights};

use super::rule::Rule;
use crate::finding::{Effect, Fix};
use crate::findings::Findings;
use crate::view::FunctionView;

/// Larger constants are not searched, to keep the check fast.
const BYTES: usize = 1 << 23;
/// Constants up to this size are searched faster than a previous result is looked up.
const SMALL: usize = 64;
/// Ops between a mask and its softmax.
const STEPS: usize = 8;

pub(super) const INFINITY: Rule = Rule {
    code: Code(1001),
    title: "−inf in a mask",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["F089"],
    explanation: "Apple states that the engine does not handle −inf in a softmax. −40000 is a number of fp16 and its exponential is 0, so it masks as well; a row that is masked as a whole becomes uniform instead of NaN. An fp32 number below −65504, such as −1e9, becomes −inf when it is cast to fp16.",
    rewrite: "−40000 instead of −inf: the pass `finite_masks`",
    run: |cx, out| {
        let wrong = &cx.profile.softmax_infinity_wrong;
        for view in cx.functions.iter().filter(|_| wrong.value) {
            let mut masks = Masks { view, weights: &cx.program.weights, known: HashMap::new() };
            for (_, op) in view.named("softmax") {
                let mut open: Vec<ValueId> = view.arg(op, "x").into_iter().collect();
                for _ in 0..STEPS {
                    let Some(value) = open.pop() else { break };
                    let Some((id, op)) = view.def(value) else { continue };
                    if let Some(name) = through(&op.name).iter().find(|n| masks.infinite(op, n)) {
                        report(out, view, id, name, &wrong.claims);
                    }
                    let through = through(&op.name).iter().filter_map(|n| view.arg(op, n));
                    open.extend(through.filter(|v| !view.constant(*v)));
                }
            }
            for (id, op) in view.named("scaled_dot_product_attention") {
                if masks.infinite(op, "attn_mask") {
                    report(out, view, id, "attn_mask", &wrong.claims);
                }
            }
        }
    },
};

fn report(out: &mut Findings, view: &FunctionView<'_>, id: OpId, argument: &str, claims: &[String]) {
    let message = format!("`{argument}` holds −inf in fp16, and a softmax reads the result");
    out.op(view, id, message).claims(claims).fix(Fix::Pass("finite_masks"));
}

/// The arguments through which −inf reaches an op's result.
fn through(op: &str) -> &'static [&'static str] {
    match op {
        "add" | "sub" | "mul" => &["x", "y"],
        "select" => &["a", "b"],
        "reshape" | "transpose" | "expand_dims" | "squeeze" | "cast" | "identity" => &["x"],
        _ => &[],
    }
}

/// The constants of a function, each of which is searched once: layers share their mask.
struct Masks<'a, 'v> {
    view: &'a FunctionView<'v>,
    weights: &'a Weights,
    known: HashMap<ValueId, bool>,
}

impl Masks<'_, '_> {
    /// True for a constant argument with an element that is −inf in fp16.
    fn infinite(&mut self, op: &Op, name: &str) -> bool {
        let Some(constant) = self.view.function.arg_constant(op, name) else { return false };
        let search = || holds_infinity(constant, self.weights);
        match self.view.arg(op, name) {
            Some(value) if constant.bytes(self.weights).is_some_and(|b| b.len() > SMALL) => {
                *self.known.entry(value).or_insert_with(search)
            }
            _ => search(),
        }
    }
}

fn holds_infinity(constant: &Constant, weights: &Weights) -> bool {
    let Some(bytes) = constant.bytes(weights).filter(|b| b.len() <= BYTES) else { return false };
    match constant.ty().dtype() {
        Some(DataType::Fp16) => bytes.chunks_exact(2).any(|b| b == [0x00, 0xfc]),
        // Halfway between the largest number and the next power of two, values round to infinity.
        Some(DataType::Fp32) => bytes.chunks_exact(4).any(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]) <= -65520.0),
        _ => false,
    }
}

pub(super) const PER_HEAD: Rule = Rule {
    code: Code(1012),
    title: "attention as one op",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F085", "F086", "F087"],
    explanation: "Apple states that Core AI has no fused attention for the engine: its own models split queries, keys and values by heads along the channels, compute one head after the other, and take more than 576 queries in blocks. On other paths attention is a native layer.",
    rewrite: "`split` along the channels, and for each head a product, the scale, the mask, softmax and a product",
    run: |cx, out| {
        let split = &cx.profile.attention_per_head;
        for view in cx.functions.iter().filter(|_| split.value) {
            for (id, op) in view.named("scaled_dot_product_attention") {
                let heads = view.shape(op, "query").filter(|s| s.len() >= 3).map(|s| s[s.len() - 3]);
                let heads = heads.map_or("several heads".to_string(), |n| format!("{n} heads"));
                out.op(view, id, format!("attention of {heads} as one op")).claims(&split.claims);
            }
        }
    },
};

pub(super) const SPATIAL: Rule = Rule {
    code: Code(1014),
    title: "softmax along height or width",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F066", "F067"],
    explanation: "Apple states that a softmax along height or width keeps the compiler from splitting the work along these axes, which matters where operand and result are large. Its own attention takes the softmax along the channels, over scores of [1, keys, heads, queries].",
    rewrite: "scores with the keys as channels, and a softmax along axis 1",
    run: |cx, out| {
        let (slow, most) = (&cx.profile.spatial_softmax_slow, cx.profile.working_set.value);
        for view in cx.functions.iter().filter(|_| slow.value) {
            for (id, op) in view.named("softmax") {
                let Some(x) = view.shape(op, "x").filter(|x| x.len() == 4) else { continue };
                let axis = if op.arg("axis").is_some() { view.axis(op, "axis", 4) } else { Some(3) };
                let bytes = view.arg_ty(op, "x").as_ref().and_then(Type::bytes).unwrap_or(0).saturating_mul(2);
                if axis.is_some_and(|a| a >= 2) && bytes > most {
                    out.op(view, id, format!("a softmax of {x:?} along a spatial axis: {bytes} bytes cannot be split"))
                        .claims(&slow.claims);
                }
            }
        }
    },
};

/// The elements of a scalar or one-element constant argument.
pub(super) fn scalar(view: &FunctionView<'_>, op: &Op, name: &str) -> Option<f32> {
    match op.arg(name)? {
        Arg::Const(c) => c.as_f32(),
        Arg::Value(v) => view.function.constant(*v).and_then(Constant::as_f32),
        Arg::List(_) => None,
    }
}
