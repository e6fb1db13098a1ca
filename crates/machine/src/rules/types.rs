//! Rules about element types and epsilons.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{Arg, DataType, Op, Type};

use super::rule::{Context, Rule};
use crate::finding::Effect;
use crate::findings::Findings;
use crate::profile::Subnormals;
use crate::select::Unit;
use crate::view::FunctionView;

/// The smallest normal fp16 number.
const NORMAL: f64 = 6.103_515_625e-5;
/// Half of the smallest subnormal: numbers up to it round to 0.
const VANISHES: f64 = 2.980_232_238_769_531_2e-8;

pub(super) const ZERO_EPSILON: Rule = Rule {
    code: Code(408),
    title: "epsilon that is zero in fp16",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C188", "C190"],
    explanation: "The engine computes in fp16, whose smallest number is 2^-24, about 6e-8. An epsilon of 1e-8 or 1e-12 becomes 0: the reciprocal root of a row of zeros is infinite, and its product with the row is the engine's result for 0 times infinity. Converters write `log_softmax` as the logarithm of a softmax with an epsilon of 1e-45: a class that is 17 below the largest has a probability of 0 in fp16, and gets the logarithm of 0 instead of −17. Random weights do not show it, because their outputs are small.",
    rewrite: "an epsilon of at least 1e-7; 1e-5 is usual",
    run: |cx, out| epsilons(cx, out, true),
};

pub(super) const SMALL_EPSILON: Rule = Rule {
    code: Code(409),
    title: "subnormal epsilon",
    severity: Severity::Note,
    effect: Effect::Fine,
    claims: &["C188", "C189", "C190"],
    explanation: "1e-5 is 168 times 2^-24 in fp16: subnormal, with eight bits left. Element-wise ops keep such numbers, so an epsilon that is added survives; the multiply-accumulate unit of M1 treats them as zero.",
    rewrite: "1e-4 has all of its bits, if the model allows it",
    run: |cx, out| epsilons(cx, out, false),
};

/// Reports epsilons in arguments, and numbers added to the operand of a root.
fn epsilons(cx: &Context<'_>, out: &mut Findings, zero: bool) {
    let flushed = cx.profile.mac_subnormals.value == Subnormals::Flushed;
    let fits = |e: f64| if zero { e > 0.0 && e <= VANISHES } else { flushed && e > VANISHES && e < NORMAL };
    let found = |view: &FunctionView<'_>, id, e: f64, out: &mut Findings| {
        let what = if zero { "is 0 in fp16" } else { "is subnormal in fp16, and products flush it" };
        let f = out.op(view, id, format!("the epsilon {e:e} {what}"));
        if !zero {
            f.claims(&cx.profile.mac_subnormals.claims);
        }
    };
    for view in &cx.functions {
        for (id, op) in view.any(&["rsqrt", "log", "inverse", "layer_norm", "instance_norm", "batch_norm", "l2_norm"]) {
            let fp16 = view.arg_ty(op, "x").is_some_and(|t| t.dtype() == Some(DataType::Fp16));
            let softmax = || view.arg(op, "x").and_then(|x| view.def(x)).is_some_and(|(_, of)| of.name == "softmax");
            if zero && fp16 && op.name == "log" && softmax() {
                if let Some(e) = number(view, op, "epsilon").filter(|e| *e <= VANISHES) {
                    let message = format!("the epsilon {e:e} is 0 in fp16, and a softmax returns zeros");
                    out.op(view, id, message).rewrite("x − max(x) − log(Σ exp(x − max(x)))");
                }
                continue;
            }
            if let Some(e) = number(view, op, "epsilon").filter(|e| fp16 && fits(*e)) {
                // The compiler's own epsilon of log and inverse only keeps their operands away from
                // zero.
                if !(zero && matches!(op.name.as_str(), "log" | "inverse")) {
                    found(view, id, e, out);
                }
            }
        }
        for (id, op) in view.named("add") {
            let e = number(view, op, "y").or_else(|| number(view, op, "x"));
            let Some(e) = e.filter(|e| fits(*e)) else { continue };
            let rooted = op.outputs.iter().flat_map(|v| view.users(*v)).map(|u| view.function.op(*u));
            let fp16 = op.outputs.iter().any(|v| crate::view::is_fp16(view.ty(*v)));
            if fp16 && rooted.clone().any(|o| matches!(o.name.as_str(), "pow" | "rsqrt" | "sqrt")) {
                found(view, id, e, out);
            }
        }
    }
}

/// A scalar argument, as it is written.
fn number(view: &FunctionView<'_>, op: &Op, name: &str) -> Option<f64> {
    view.function.arg_constant(op, name)?.as_f32().map(f64::from)
}

pub(super) const INT4: Rule = Rule {
    code: Code(410),
    title: "4-bit values",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C129", "C130"],
    explanation: "On the in-memory path of M3 Pro every form of int4 and uint4 was rejected, `constexpr_*` ops included. Through the E5 runtime 4-bit palettes are read compressed, on M1 2.37 times as fast.",
    rewrite: "int8 weights in `constexpr_affine_dequantize`, or plain fp16: `ferrane convert --passes constant_folding`",
    run: |cx, out| {
        if cx.profile.int4.value {
            return;
        }
        let small = |ty: &Type| {
            use DataType::{Int4, UInt1, UInt2, UInt3, UInt4, UInt6};
            matches!(ty.dtype(), Some(Int4 | UInt1 | UInt2 | UInt3 | UInt4 | UInt6))
        };
        for view in &cx.functions {
            for (id, op) in view.ops() {
                let result = op.outputs.iter().map(|v| view.ty(*v)).find(|t| small(t)).cloned();
                // Only `constexpr_*` ops carry values in brackets.
                let inline = op.name.starts_with("constexpr_");
                let data = || op.attributes.iter().map(|(_, c)| c.ty()).find(|t| inline && small(t));
                if let Some(ty) = result.or_else(data) {
                    let message = format!("`{}` holds {}", op.name, ty.dtype().map_or("?", DataType::name));
                    out.op(view, id, message).claims(&cx.profile.int4.claims);
                }
            }
        }
    },
};

pub(super) const FP32: Rule = Rule {
    code: Code(416),
    title: "arithmetic in fp32",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C126", "F043", "F044", "F115"],
    explanation: "The engine has no fp32 arithmetic: other types than fp16 are annotations that never reach the hardware (numerics §2). fp32 at the boundary is fine when it is cast at once; on the client path of M5 an op on fp32 values is refused, and Core ML and Core AI run it on the CPU or the GPU.",
    rewrite: "cast inputs to fp16 at once and the results back, or declare fp16 ports",
    run: |cx, out| {
        arithmetic(cx, out, cx.profile.fp32_arithmetic.value, DataType::Fp32, &cx.profile.fp32_arithmetic.claims)
    },
};

pub(super) const INT8: Rule = Rule {
    code: Code(417),
    title: "arithmetic in int8",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C124", "C128"],
    explanation: "int8 is a form of storage: `quantize`, `dequantize`, `cast` and data movement accept it, arithmetic does not (int8 §3).",
    rewrite: "`dequantize` before the op",
    run: |cx, out| {
        arithmetic(cx, out, cx.profile.int8_arithmetic.value, DataType::Int8, &cx.profile.int8_arithmetic.claims)
    },
};

/// Reports ops that compute with values of a type.
fn arithmetic(cx: &Context<'_>, out: &mut Findings, allowed: bool, dtype: DataType, claims: &[String]) {
    if allowed {
        return;
    }
    for view in &cx.functions {
        for (name, ops) in view.names() {
            if matches!(name, "const" | "cast" | "quantize" | "dequantize" | "select") || name.starts_with("constexpr_")
            {
                continue;
            }
            for &id in ops {
                let op = view.function.op(id);
                let computes = view
                    .selection
                    .get(id)
                    .is_some_and(|s| !matches!(s.unit, Unit::Folded | Unit::Move | Unit::Crop | Unit::Host));
                let reads = computes && op.operands().any(|v| view.ty(v).dtype() == Some(dtype) && !view.constant(v));
                if reads {
                    out.op(view, id, format!("`{name}` computes with {dtype}")).claims(claims);
                }
            }
        }
    }
}

pub(super) const CAST: Rule = Rule {
    code: Code(419),
    title: "cast that does not run",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C127", "C128"],
    explanation: "On M1 and M2 under macOS 26 `cast` did not run at all: programs declare fp16 ports and convert on the CPU. On M3 Pro casts between fp16 and bool, int8, uint8, int16 and fp32 compile, those with int32 and 4-bit types do not.",
    rewrite: "fp16 ports, and the conversion on the CPU",
    run: |cx, out| {
        let (runs, types) = (&cx.profile.cast, &cx.profile.cast_types);
        for view in &cx.functions {
            for (id, op) in view.named("cast") {
                let ends = [
                    op.arg("x").and_then(|a| if let Arg::Value(v) = a { Some(*v) } else { None }),
                    op.outputs.first().copied(),
                ];
                let ends = ends.map(|v| v.filter(|v| !view.constant(*v)).and_then(|v| view.ty(v).dtype()));
                let [Some(from), Some(to)] = ends else { continue };
                if !runs.value {
                    out.op(view, id, format!("`cast` from {from} to {to} does not run")).claims(&runs.claims);
                } else if let Some(odd) = [from, to].iter().find(|d| !types.value.iter().any(|t| t == d.name())) {
                    out.op(view, id, format!("`cast` from {from} to {to}: {odd} is not supported"))
                        .claims(&types.claims);
                }
            }
        }
    },
};
