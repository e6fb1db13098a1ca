//! Rules about inputs and outputs: types, widths, sizes, order, names.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{DataType, ValueDef, ValueId};

use super::rule::{Context, Rule};
use crate::finding::{Effect, Fix};
use crate::findings::Findings;
use crate::profile::{PortOrder, Sourced};
use crate::view::{FunctionView, dims, width};

/// The inputs and outputs of a function, each with its kind.
fn ports<'b>(view: &'b FunctionView<'_>) -> impl Iterator<Item = (ValueId, &'static str)> + 'b {
    view.inputs().map(|v| (v, "input")).chain(view.function.body().outputs.iter().map(|v| (*v, "output")))
}

fn name<'b>(view: &FunctionView<'b>, value: ValueId) -> &'b str {
    &view.function.value(value).name
}

fn known(types: &[String], dtype: DataType) -> bool {
    types.iter().any(|t| t == dtype.name())
}

pub(super) const NCHW: Rule = Rule {
    code: Code(429),
    title: "port of another rank than 4",
    severity: Severity::Note,
    effect: Effect::Fine,
    claims: &["C027", "F056"],
    explanation: "On the client path of M5 ports are converted to batch, channels, height and width regardless of the text; a reader of the compiled program sees those extents.",
    rewrite: "ports of rank 4",
    run: |cx, out| {
        let nchw = &cx.profile.ports_nchw;
        for view in cx.functions.iter().filter(|_| nchw.value) {
            for (value, kind) in ports(view) {
                if let Some(rank) = view.ty(value).rank().filter(|r| *r != 4) {
                    let message = format!("{kind} `{}` has rank {rank}; its port has rank 4", name(view, value));
                    out.value(view, value, message).claims(&nchw.claims);
                }
            }
        }
    },
};

pub(super) const FP32: Rule = Rule {
    code: Code(430),
    title: "fp32 port",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F022"],
    explanation: "fp32 ports move twice the bytes and need a cast on each side; fp16 ports were about 37 % faster.",
    rewrite: "fp16 ports, converted on the CPU",
    run: |cx, out| {
        let slow = &cx.profile.fp32_ports_slow;
        for view in cx.functions.iter().filter(|_| slow.value) {
            for (value, kind) in ports(view).filter(|(v, _)| view.ty(*v).dtype() == Some(DataType::Fp32)) {
                out.value(view, value, format!("{kind} `{}` is of fp32", name(view, value))).claims(&slow.claims);
            }
        }
    },
};

/// Reports ports of one kind with an element type that the machine does not support for them.
fn element_types(
    out: &mut Findings,
    view: &FunctionView<'_>,
    kind: &str,
    ports: impl Iterator<Item = ValueId>,
    types: &Sourced<Vec<String>>,
) {
    for value in ports {
        if let Some(dtype) = view.ty(value).dtype().filter(|d| !known(&types.value, *d)) {
            let known = types.value.join(", ");
            let message = format!("{kind} `{}` is of {dtype}; {kind}s are of {known}", name(view, value));
            out.value(view, value, message).claims(&types.claims);
        }
    }
}

pub(super) const INPUT_TYPE: Rule = Rule {
    code: Code(431),
    title: "element type of an input",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C124", "C125", "C131", "F043"],
    explanation: "The hardware takes fp16 and uint8. The runtime converts some other input types: fp32 and bool on the in-memory path, int8 as storage. Bytes of another type than the declared one are not converted: fp32 in an fp16 surface gives zeros or garbage.",
    rewrite: "an fp16 input, converted on the CPU",
    run: |cx, out| {
        for view in &cx.functions {
            element_types(out, view, "input", view.inputs(), &cx.profile.input_types);
        }
    },
};

pub(super) const OUTPUT_TYPE: Rule = Rule {
    code: Code(432),
    title: "element type of an output",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C124"],
    explanation: "int8 outputs are rejected, although int8 inputs work as storage and int8 values work between ops.",
    rewrite: "`dequantize` or `cast` to fp16 before the output",
    run: |cx, out| {
        for view in &cx.functions {
            let outputs = view.function.body().outputs.iter().copied();
            element_types(out, view, "output", outputs, &cx.profile.output_types);
        }
    },
};

pub(super) const WIDTH: Rule = Rule {
    code: Code(433),
    title: "input narrower than the engine reads",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C136", "C138"],
    explanation: "On M3 Max runtime inputs need a last axis of at least 32; narrower ones give garbage or an error. Rows of the hardware are 64 bytes.",
    rewrite: "the last axis padded to 32, and a slice after the input",
    run: |cx, out| {
        let least = &cx.profile.min_width;
        for view in &cx.functions {
            for value in view.inputs() {
                if let Some(w) = width(view.ty(value)).filter(|w| *w < least.value) {
                    let message =
                        format!("input `{}` is {w} wide; the engine reads at least {}", name(view, value), least.value);
                    out.value(view, value, message).claims(&least.claims);
                }
            }
        }
    },
};

pub(super) const WIDTH_MULTIPLE: Rule = Rule {
    code: Code(434),
    title: "width that is not a multiple of a row",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C139", "C140", "C142"],
    explanation: "Rows begin at multiples of 64 bytes, 32 values of fp16. On the client path of M5 a port of another width is laid out with gaps and read back without them; on the in-memory path surfaces are packed.",
    rewrite: "the last axis padded to a multiple of 32",
    run: |cx, out| {
        let of = &cx.profile.width_multiple;
        for view in &cx.functions {
            for (value, kind) in ports(view) {
                if let Some(w) = width(view.ty(value)).filter(|w| of.value > 1 && w % of.value != 0) {
                    let message = format!(
                        "{kind} `{}` is {w} wide, not a multiple of {}: its rows are read at other offsets",
                        name(view, value),
                        of.value
                    );
                    out.value(view, value, message).claims(&of.claims);
                }
            }
        }
    },
};

pub(super) const NARROW: Rule = Rule {
    code: Code(435),
    title: "many channels, few columns",
    severity: Severity::Error,
    effect: Effect::INFERENCE,
    claims: &["C137"],
    explanation: "On M3 Pro ports of more than about 768 channels and less than 32 columns were rejected.",
    rewrite: "the last axis padded to 32",
    run: |cx, out| {
        let most = &cx.profile.narrow_channels;
        for view in &cx.functions {
            for (value, kind) in ports(view) {
                let Some(shape) = view.ty(value).shape() else { continue };
                let [.., channels, _, w] = shape[..] else { continue };
                if w < 32 && most.value.exceeded_by(channels) {
                    let message = format!("{kind} `{}` has {channels} channels and {w} columns", name(view, value));
                    out.value(view, value, message).claims(&most.claims);
                }
            }
        }
    },
};

pub(super) const SURFACE: Rule = Rule {
    code: Code(436),
    title: "surface below the smallest",
    severity: Severity::Warning,
    effect: Effect::INFERENCE,
    claims: &["C132", "C133", "C134", "C135", "C136"],
    explanation: "Small surfaces fail with 0x1d. The smallest size that works is reported as 49152, 16384 or 2048 bytes on different machines, and 4 KB ran in one trainer. The surface may be larger than the port: data are read packed from its start.",
    rewrite: "",
    run: |cx, out| {
        let least = &cx.profile.min_surface;
        for view in &cx.functions {
            for (value, kind) in ports(view) {
                if let Some(bytes) = view.bytes(value).filter(|b| *b < least.value) {
                    let message = format!(
                        "{kind} `{}` has {bytes} bytes; a surface below {} fails",
                        name(view, value),
                        least.value
                    );
                    let rewrite = format!("a surface of at least {} bytes, filled from its start", least.value);
                    out.value(view, value, message).claims(&least.claims).rewrite(rewrite);
                }
            }
        }
    },
};

pub(super) const INPUT_SIZES: Rule = Rule {
    code: Code(437),
    title: "inputs of different sizes",
    severity: Severity::Warning,
    effect: Effect::INFERENCE,
    claims: &["C145", "C153"],
    explanation: "On the in-memory path the surfaces of all inputs must have the same allocation; otherwise evaluations fail with 0x1d. The ports may differ: each surface is as large as the largest, and the data are packed at its start.",
    rewrite: "",
    run: |cx, out| {
        let uniform = &cx.profile.uniform_inputs;
        for view in &cx.functions {
            let inputs: Vec<ValueId> = view.inputs().collect();
            if let (true, Some(sizes)) = (uniform.value, uneven(view, &inputs)) {
                let rewrite = format!("a surface of {} bytes for each input, filled from its start", sizes.1);
                let message =
                    format!("the inputs have {} to {} bytes; their surfaces must have the same size", sizes.0, sizes.1);
                out.function(view, message).claims(&uniform.claims).rewrite(rewrite);
            }
        }
    },
};

pub(super) const OUTPUT_SIZES: Rule = Rule {
    code: Code(438),
    title: "outputs of different sizes",
    severity: Severity::Warning,
    effect: Effect::INFERENCE,
    claims: &["C146"],
    explanation: "On the in-memory path the surfaces of all outputs must have the same allocation; otherwise evaluations fail with 0x1d. A single output that holds everything, or outputs padded to the largest, avoids this.",
    rewrite: "outputs padded to the largest: the pass `uniform_outputs`; or one `concat`",
    run: |cx, out| {
        let uniform = &cx.profile.uniform_outputs;
        for view in &cx.functions {
            if let (true, Some(sizes)) = (uniform.value, uneven(view, &view.function.body().outputs)) {
                let message = format!(
                    "the outputs have {} to {} bytes; their surfaces must have the same size",
                    sizes.0, sizes.1
                );
                out.function(view, message).claims(&uniform.claims).fix(Fix::Pass("uniform_outputs"));
            }
        }
    },
};

/// The smallest and the largest size in bytes, if they differ.
fn uneven(view: &FunctionView<'_>, values: &[ValueId]) -> Option<(usize, usize)> {
    let sizes: Vec<usize> = values.iter().filter_map(|v| view.bytes(*v)).collect();
    let (least, most) = (*sizes.iter().min()?, *sizes.iter().max()?);
    (least < most).then_some((least, most))
}

pub(super) const INPUT_ORDER: Rule = Rule {
    code: Code(439),
    title: "inputs bound in another order",
    severity: Severity::Note,
    effect: Effect::SilentlyWrong,
    claims: &["C147", "C148", "C149"],
    explanation: "A request gives its surfaces by index. The compiled program has its own order of ports: by name according to one source, by ascending size according to another. The compiled model's attributes say which; Ferrane's own bindings go by name.",
    rewrite: "bind by name, or name the inputs in the order in which they are declared",
    run: |cx, out| order(cx, out, true),
};

pub(super) const OUTPUT_ORDER: Rule = Rule {
    code: Code(440),
    title: "outputs bound in another order",
    severity: Severity::Note,
    effect: Effect::SilentlyWrong,
    claims: &["C150", "C151", "F060"],
    explanation: "As for inputs: outputs are ordered by name according to one source, by descending size according to another.",
    rewrite: "bind by name, or name the outputs in the order in which they are returned",
    run: |cx, out| order(cx, out, false),
};

fn order(cx: &Context<'_>, out: &mut Findings, inputs: bool) {
    let order = if inputs { &cx.profile.input_order } else { &cx.profile.output_order };
    for view in &cx.functions {
        let declared: Vec<ValueId> =
            if inputs { view.inputs().collect() } else { view.function.body().outputs.clone() };
        let mut bound = declared.clone();
        let size = |v: &ValueId| view.bytes(*v).unwrap_or(0);
        match order.value {
            PortOrder::Declaration | PortOrder::Attributes => continue,
            PortOrder::Alphabetical => bound.sort_by_key(|v| name(view, *v)),
            PortOrder::AscendingSize => bound.sort_by_key(size),
            PortOrder::DescendingSize => bound.sort_by_key(|v| std::cmp::Reverse(size(v))),
        }
        if bound != declared {
            let names: Vec<&str> = bound.iter().map(|v| name(view, *v)).collect();
            let kind = if inputs { "inputs" } else { "outputs" };
            let message = format!("the {kind} bind as {}, not as they are declared", names.join(", "));
            out.function(view, message).claims(&order.claims);
        }
    }
}

pub(super) const LIVE: Rule = Rule {
    code: Code(441),
    title: "output that no op computes",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C016"],
    explanation: "An output must be the result of an op that remains after dead code is removed. An input or a constant that is returned unchanged has no such op.",
    rewrite: "`identity`, or an op that the engine runs, before the output",
    run: |cx, out| {
        let live = &cx.profile.live_outputs;
        for view in cx.functions.iter().filter(|_| live.value) {
            for &value in &view.function.body().outputs {
                let what = match view.function.value(value).def {
                    ValueDef::Op(op, _) if view.function.op(op).name == "const" => "a constant",
                    ValueDef::Op(..) | ValueDef::BlockInput(..) => continue,
                    ValueDef::Input(_) => "an input",
                };
                let message = format!("output `{}` is {what}: no op computes it", name(view, value));
                out.value(view, value, message).claims(&live.claims);
            }
        }
    },
};

/// Names that one code base reported to give zeros (constraints C014).
const RESERVED: &[&str] = &["var", "diff", "mean", "std", "eps", "x", "y", "mul", "add", "rsqrt", "c", "C"];

pub(super) const NAMES: Rule = Rule {
    code: Code(442),
    title: "name that one source reports as reserved",
    severity: Severity::Warning,
    effect: Effect::SilentlyWrong,
    claims: &["C014", "C015"],
    explanation: "One code base on M1 found that names such as `var`, `mean`, `x` or `c` give zeros or do not compile. Binding by name after inputs were renamed would have the same symptom; other trainers use such names.",
    rewrite: "another name",
    run: |cx, out| {
        let reserved = &cx.profile.reserved_names;
        for view in cx.functions.iter().filter(|_| reserved.value) {
            for (value, kind) in ports(view).filter(|(v, _)| RESERVED.contains(&name(view, *v))) {
                let message = format!("{kind} `{}` has a name that is reported as reserved", name(view, value));
                out.value(view, value, message).claims(&reserved.claims);
            }
        }
    },
};

pub(super) const SEVERAL: Rule = Rule {
    code: Code(443),
    title: "several inputs",
    severity: Severity::Warning,
    effect: Effect::INFERENCE,
    claims: &["C152", "C153"],
    explanation: "One README says that requests with several inputs fail with 0x1d. Other sources refine this: they work if all surfaces have the same size and the order of the compiled program.",
    rewrite: "one input that holds everything, and slices after it",
    run: |cx, out| {
        let several = &cx.profile.several_inputs;
        for view in cx.functions.iter().filter(|_| !several.value) {
            let count = view.inputs().count();
            if count > 1 {
                out.function(view, format!("{count} inputs")).claims(&several.claims);
            }
        }
    },
};

pub(super) const ALIGNED: Rule = Rule {
    code: Code(444),
    title: "surface size that is not a multiple",
    severity: Severity::Warning,
    effect: Effect::INFERENCE,
    claims: &["C143", "C144"],
    explanation: "One pull request for M5 rounds the sizes of surfaces up to 128 bytes. Exact sizes ran on the same chip; those of the published kernels are multiples anyway.",
    rewrite: "a surface rounded up to 128 bytes, filled from its start",
    run: |cx, out| {
        let of = &cx.profile.surface_multiple;
        for view in &cx.functions {
            for (value, kind) in ports(view).filter(|(v, _)| !dims(view.ty(*v)).is_empty()) {
                if let Some(bytes) = view.bytes(value).filter(|b| of.value > 1 && b % of.value != 0) {
                    let message =
                        format!("{kind} `{}` has {bytes} bytes, not a multiple of {}", name(view, value), of.value);
                    out.value(view, value, message).claims(&of.claims);
                }
            }
        }
    },
};

pub(super) const PADDED_ROWS: Rule = Rule {
    code: Code(1015),
    title: "rows that are mostly padding",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F053", "F054", "F055"],
    explanation: "Rows of ports lie at multiples of 64 bytes, so a last axis of 1 takes 32 times its memory in fp16 and 64 times in int8. Apple advises a last axis of at least 32 fp16 elements, and of a power of two.",
    rewrite: "the largest axis last: `reshape` or `transpose`",
    run: |cx, out| {
        let row = &cx.profile.row_alignment;
        for view in cx.functions.iter().filter(|_| row.value > 1) {
            for (value, kind) in ports(view) {
                let ty = view.ty(value);
                let several = dims(ty).len() > 1 && ty.elements().is_some_and(|n| n > 32);
                let Some(bits) = ty.dtype().and_then(DataType::bits).filter(|_| several) else { continue };
                let Some(bytes) = width(ty).and_then(|w| w.checked_mul(bits)).map(|b| b.div_ceil(8)) else { continue };
                // Below half a row more is padding than not.
                if bytes > 0 && 2 * bytes <= row.value {
                    let times = row.value / bytes;
                    let message = format!(
                        "rows of {kind} `{}` are {bytes} bytes, padded to {}: {times} times the memory",
                        name(view, value),
                        row.value
                    );
                    out.value(view, value, message).claims(&row.claims);
                }
            }
        }
    },
};
