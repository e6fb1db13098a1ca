//! Rules about values beyond a limit of the engine. Bounds that the program or the user gives are
//! propagated ([`crate::ranges`]). A message says "do" if every value is beyond the limit, and
//! "may" if the bounds reach it.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{DataType, Op, OpId};

use super::rule::{Context, Rule};
use crate::finding::{Effect, Finding, Fix};
use crate::findings::Findings;
use crate::profile::{Accumulator, RoundOp, SliceCrop};
use crate::ranges::Range;
use crate::select::Unit;
use crate::view::FunctionView;

const PRODUCTS: &[&str] = &["matmul", "linear", "conv"];
/// The largest finite fp16 number.
const LARGEST: f64 = 65504.0;
/// The largest magnitude of a crop: it multiplies by 16 in fixed point, and 4094 · 16 still fits.
const CROPPED: f64 = 4094.0;

/// Reports an error if all values are beyond the limit, and a warning if they may be.
fn report<'f>(
    out: &'f mut Findings,
    view: &FunctionView<'_>,
    id: OpId,
    range: Range,
    limit: f64,
    does: &str,
    claims: &[String],
) -> Option<&'f mut Finding> {
    let (lo, hi) = (range.lo, range.hi);
    if range.beyond(limit) {
        let found = out.op(view, id, format!("values from {lo} to {hi} do {does}"));
        Some(found.claims(claims).severity(Severity::Error))
    } else if range.reaches(limit) {
        Some(out.op(view, id, format!("values from {lo} to {hi} may {does}")).claims(claims))
    } else {
        None
    }
}

pub(super) const CEILING: Rule = Rule {
    code: Code(490),
    title: "sum of products beyond the accumulator",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C183", "F088"],
    explanation: "Sums of a matmul, a linear layer or a convolution of several taps become infinite from 2^15 = 32768 on, half of what fp16 holds: 32752 passes. A partial sum beyond the limit is lost even if later terms reduce it. The ranges come from the program and from `--bounds`; without them nothing is said about inputs.",
    rewrite: "one operand scaled down by a power of two, and the result scaled up after the product",
    run: |cx, out| {
        let ceiling = &cx.profile.mac_ceiling;
        for view in &cx.functions {
            for (id, op) in view.any(PRODUCTS) {
                let Some(sums) = op.outputs.first().and_then(|v| cx.ranges(view).sums(*v)) else { continue };
                let limit = ceiling.value as f64;
                let does = format!("pass {}: the sum becomes infinite", ceiling.value);
                if sums.surest.lo >= limit || sums.surest.hi <= -limit {
                    let message = format!("sums from {} to {} do {does}", sums.all.lo, sums.all.hi);
                    out.op(view, id, message).claims(&ceiling.claims).severity(Severity::Error);
                } else {
                    report(out, view, id, sums.all, limit, &does, &ceiling.claims);
                }
            }
        }
    },
};

pub(super) const OVERFLOW: Rule = Rule {
    code: Code(491),
    title: "value beyond fp16",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C183", "C187"],
    explanation: "All values between ops are fp16: beyond 65504 they are infinite. A square overflows from 256 on, an exponential from 11.09 on.",
    rewrite: "the operand scaled down before, and the result scaled up once it is small again; before `exp`, the operand's maximum subtracted",
    run: |cx, out| {
        let claims: Vec<String> = Vec::new();
        for view in &cx.functions {
            for (id, op) in view.any(&["add", "sub", "mul", "square", "exp", "reduce_sum", "real_div"]) {
                let fp16 = op.outputs.first().is_some_and(|v| view.ty(*v).dtype() == Some(DataType::Fp16));
                if let Some(v) = op.outputs.first().filter(|_| fp16) {
                    report(
                        out,
                        view,
                        id,
                        cx.ranges(view).get(*v),
                        LARGEST + 16.0,
                        "pass 65504, the largest of fp16",
                        &claims,
                    );
                }
            }
        }
    },
};

pub(super) const CROP: Rule = Rule {
    code: Code(492),
    title: "width slice of large values",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C184", "C185"],
    explanation: "On H13 and H14 a slice of the last axis that does not begin at 0 goes through a crop that multiplies by 16 in fixed point: 4094 passes, 4095 becomes infinite. Slices that begin at 0 or along other axes are exact, and so is every slice from H16 on. Loss scales times gradients must stay below it.",
    rewrite: "the values scaled below 4094 before the slice, or the slice along another axis",
    run: |cx, out| {
        let crop = &cx.profile.slice_crop;
        for view in cx.functions.iter().filter(|_| crop.value == SliceCrop::Times16) {
            let crops = view.selection.iter().filter(|(_, s)| s.unit == Unit::Crop);
            let mut unknown = Vec::new();
            for (id, _) in crops {
                let op = view.function.op(id);
                let range = view.arg(op, "x").map_or(Range::ALL, |x| cx.ranges(view).get(x));
                match range.is_bounded() {
                    true => {
                        report(out, view, id, range, CROPPED + 1.0, "become infinite beyond 4094", &crop.claims);
                    }
                    false => unknown.push(id),
                }
            }
            if let Some(&first) = unknown.first() {
                let message = format!("{} slices of the last axis: values beyond 4094 become infinite", unknown.len());
                out.op(view, first, message).claims(&crop.claims).severity(Severity::Note);
            }
        }
    },
};

pub(super) const INT8_MATMUL: Rule = Rule {
    code: Code(493),
    title: "activations of an int8 matmul",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C186"],
    explanation: "A matmul with int8 weights sends its activations through the crop's encoding: beyond 4094 they become infinite, on M1 Max, M2 Pro and M5 Pro alike.",
    rewrite: "the activations scaled below 4094, or the weight in a 1×1 convolution",
    run: |cx, out| {
        let crop = &cx.profile.int8_matmul_crop;
        for view in cx.functions.iter().filter(|_| crop.value) {
            for (id, op) in view.any(&["matmul", "linear"]) {
                let quantized = |n: &str| {
                    view.arg(op, n)
                        .and_then(|v| view.def(v))
                        .is_some_and(|(_, o)| o.name == "constexpr_affine_dequantize")
                };
                if !["x", "y", "weight"].into_iter().any(quantized) {
                    continue;
                }
                let other = if quantized("x") { "y" } else { "x" };
                let range = view.arg(op, other).map_or(Range::ALL, |v| cx.ranges(view).get(v));
                match range.is_bounded() {
                    true => {
                        report(out, view, id, range, CROPPED + 1.0, "become infinite beyond 4094", &crop.claims);
                    }
                    false => {
                        let message = "int8 weights: activations beyond 4094 become infinite";
                        out.op(view, id, message).claims(&crop.claims).severity(Severity::Note);
                    }
                }
            }
        }
    },
};

pub(super) const SOFTPLUS: Rule = Rule {
    code: Code(494),
    title: "softplus of large values",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C115", "C116", "F034", "F035"],
    explanation: "On M5 Pro softplus is 0 from 11.09 = ln 65504 on, where it should be the operand: the exponential in it overflows. Through Core ML on M3 Max it is 0 from 10.4 = ln 32768 on, and Mish, x · tanh(softplus(x)), with it. On M1 softplus of infinity is 0.",
    rewrite: "maximum(x, 0) + softplus(−|x|): the pass `stable_softplus`",
    run: softplus,
};

pub(super) const ROUND: Rule = Rule {
    code: Code(495),
    title: "round of large values",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C112", "C113"],
    explanation: "On M5 Pro `round` adds ½ in fp16 and truncates. It rounds halves away from zero, where MIL says to even, and is wrong from 1024 on: 1024 gives 1025.",
    rewrite: "values below 1024; larger ones are whole numbers or halves in fp16",
    run: |cx, out| {
        let round = &cx.profile.round_op;
        if round.value == RoundOp::AddHalf {
            unary(cx, out, "round", 1024.0, "come out one too large: `round` is wrong from 1024 on", &round.claims);
        }
    },
};

fn softplus(cx: &Context<'_>, out: &mut Findings) {
    let (zero, limit) = (&cx.profile.softplus_zero, (cx.profile.softplus_ceiling.value as f64).ln());
    let does = format!("give 0: softplus is 0 from {limit:.2} on");
    for view in cx.functions.iter().filter(|_| zero.value) {
        for (id, op) in view.named("softplus") {
            let range = operand(cx, view, op);
            let mish = || op.outputs.iter().flat_map(|v| view.users(*v)).any(|u| view.function.op(*u).name == "tanh");
            let found = if range.hi < limit {
                None
            } else if range.hi.is_finite() {
                let always = range.lo >= limit;
                let found = out.op(view, id, format!("values from {limit:.2} to {} {does}", range.hi));
                Some(if always { found.severity(Severity::Error) } else { found })
            } else if mish() {
                Some(out.op(view, id, format!("values of {limit:.2} or more {does}, and Mish with it")))
            } else {
                let found = out.op(view, id, format!("values of {limit:.2} or more {does}"));
                Some(found.severity(Severity::Note))
            };
            if let Some(found) = found {
                found.claims(&zero.claims).fix(Fix::Pass("stable_softplus"));
            }
        }
    }
}

/// Reports an op of one operand that is wrong from a magnitude on; a note if the operand has no
/// known bounds.
fn unary(cx: &Context<'_>, out: &mut Findings, name: &str, limit: f64, does: &str, claims: &[String]) {
    for view in &cx.functions {
        for (id, op) in view.named(name) {
            let range = operand(cx, view, op);
            match range.magnitude().is_finite() {
                true => {
                    report(out, view, id, range, limit, does, claims);
                }
                false => {
                    let message = format!("values of {limit:.2} or more {does}");
                    out.op(view, id, message).claims(claims).severity(Severity::Note);
                }
            }
        }
    }
}

fn operand(cx: &Context<'_>, view: &FunctionView<'_>, op: &Op) -> Range {
    view.arg(op, "x").map_or(Range::ALL, |x| cx.ranges(view).get(x))
}

pub(super) const VANISH: Rule = Rule {
    code: Code(496),
    title: "products below the accumulator's grid",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C190", "C195", "C196", "C203"],
    explanation: "Products in matmul and convolution are rounded to multiples of 2^-16, and products of about one unit vanish (numerics §3.1). Probabilities of long keys times small values, and gradients without loss scaling are affected.",
    rewrite: "one operand scaled up by a power of two, and the result scaled down after the product: both are exact",
    run: |cx, out| {
        // Products of 1.02 units vanish, those of 1.55 do not.
        let (grid, least) = (&cx.profile.accumulator, 1.02 / 65536.0);
        for view in cx.functions.iter().filter(|_| grid.value == Accumulator::Grid16) {
            for (id, op) in view.any(PRODUCTS) {
                let weight = if op.name == "matmul" { "y" } else { "weight" };
                let ends =
                    ["x", weight].map(|n| view.arg(op, n).map_or(Range::ALL, |v| cx.ranges(view).get(v)).magnitude());
                let largest = ends[0] * ends[1];
                if largest > 0.0 && largest <= least {
                    let message = format!("no product is above {largest:.1e}: all of them vanish");
                    out.op(view, id, message).claims(&grid.claims);
                }
            }
        }
    },
};
