//! Which ops the compiler takes, one program each.

use ferrane_device::Result;
use ferrane_machine::profile::Acceptance;

use crate::dut::{DeviceUnderTest, ELEMENTS, Judgment, SHAPE, ramp};
use crate::measurements::Measurements;
use crate::probe::Expectation::{Is, Not};
use crate::probe::{Probe, ProbeCost, claim};
use crate::program::ProbeProgram;
use crate::program::tensor;

const REFUSED: crate::probe::Expectation = Is("refused");
const RUNS: crate::probe::Expectation = Not("refused");
const FAILS: crate::probe::Expectation = Is("fails-at-evaluation");
const NEEDS: crate::probe::Expectation = Is("needs-epsilon");

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "concat",
        question: "Does `concat` compile and run?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["op.concat"],
        claims: &[
            claim("C041", "op.concat", REFUSED),
            claim("C042", "op.concat", RUNS),
            claim("C043", "op.concat", RUNS),
            claim("C044", "op.concat", REFUSED),
        ],
        run: |dut| ask(dut, &[OpCase::of("concat", concat)]),
    },
    Probe {
        name: "moves",
        question: "Which ops that only move data compile and run?",
        experiments: &[],
        cost: ProbeCost::Slow,
        values: &[
            "op.split",
            "op.pad",
            "op.crop",
            "op.reshape",
            "op.transpose",
            "op.slice_by_size",
            "op.slice_by_index",
            "op.gather",
        ],
        claims: &[
            claim("C044", "op.split", REFUSED),
            claim("C044", "op.pad", REFUSED),
            claim("C044", "op.crop", REFUSED),
            claim("C059", "op.reshape", FAILS),
            claim("C059", "op.transpose", FAILS),
            claim("C059", "op.slice_by_size", FAILS),
            claim("C059", "op.slice_by_index", FAILS),
            claim("C059", "op.gather", FAILS),
            claim("C060", "op.reshape", RUNS),
            claim("C060", "op.transpose", RUNS),
            claim("C060", "op.slice_by_size", RUNS),
        ],
        run: |dut| ask(dut, MOVES),
    },
    Probe {
        name: "functions",
        question: "Which functions of one operand compile and run, and do some need their epsilon?",
        experiments: &[],
        cost: ProbeCost::Slow,
        values: &[
            "op.rsqrt",
            "op.log",
            "op.inverse",
            "op.pow",
            "op.gelu",
            "op.silu",
            "op.exp",
            "op.sqrt",
            "op.sin",
            "op.cos",
            "op.atan",
            "op.erf",
            "op.mod",
        ],
        claims: &[
            claim("C046", "op.rsqrt", REFUSED),
            claim("C047", "op.rsqrt", NEEDS),
            claim("C047", "op.log", NEEDS),
            claim("C047", "op.inverse", NEEDS),
            claim("C048", "op.rsqrt", REFUSED),
            claim("C048", "op.pow", REFUSED),
            claim("C049", "op.gelu", REFUSED),
            claim("C050", "op.gelu", RUNS),
            claim("C054", "op.silu", REFUSED),
            claim("C055", "op.silu", RUNS),
            claim("C065", "op.exp", REFUSED),
            claim("C065", "op.log", REFUSED),
            claim("C065", "op.sqrt", REFUSED),
            claim("C065", "op.sin", REFUSED),
            claim("C065", "op.cos", REFUSED),
            claim("C065", "op.atan", REFUSED),
            claim("C066", "op.exp", RUNS),
            claim("C066", "op.erf", RUNS),
            claim("C066", "op.sqrt", RUNS),
            claim("C066", "op.atan", RUNS),
            claim("C066", "op.sin", REFUSED),
            claim("C066", "op.cos", REFUSED),
            claim("C106", "op.mod", REFUSED),
        ],
        run: |dut| ask(dut, FUNCTIONS),
    },
    Probe {
        name: "reductions",
        question: "Which reductions, pools and norms compile and run?",
        experiments: &[],
        cost: ProbeCost::Slow,
        values: &[
            "op.reduce_mean",
            "op.reduce_sum",
            "op.reduce_max",
            "op.reduce_min",
            "op.reduce_prod",
            "op.cumsum",
            "op.topk",
            "op.avg_pool",
            "op.max_pool",
            "op.batch_norm",
            "op.layer_norm",
        ],
        claims: &[
            claim("C056", "op.reduce_mean", FAILS),
            claim("C057", "op.reduce_mean", REFUSED),
            claim("C058", "op.reduce_mean", RUNS),
            claim("C059", "op.reduce_mean", FAILS),
            claim("C059", "op.reduce_sum", FAILS),
            claim("C059", "op.reduce_max", FAILS),
            claim("C059", "op.reduce_min", FAILS),
            claim("C060", "op.reduce_sum", RUNS),
            claim("C064", "op.reduce_prod", REFUSED),
            claim("C097", "op.cumsum", RUNS),
            claim("C098", "op.cumsum", REFUSED),
            claim("C099", "op.topk", REFUSED),
            claim("C103", "op.avg_pool", REFUSED),
            claim("C103", "op.max_pool", REFUSED),
            claim("C104", "op.avg_pool", RUNS),
            claim("C104", "op.max_pool", RUNS),
            claim("C107", "op.batch_norm", REFUSED),
            claim("C108", "op.layer_norm", RUNS),
        ],
        run: |dut| ask(dut, REDUCTIONS),
    },
];

/// An op in a program, and the same without its epsilon.
struct OpCase {
    op: &'static str,
    program: fn() -> ProbeProgram,
    bare: Option<fn() -> ProbeProgram>,
}

impl OpCase {
    const fn of(op: &'static str, program: fn() -> ProbeProgram) -> OpCase {
        OpCase { op, program, bare: None }
    }
}

/// x + x, so that no program consists of a move alone.
fn start() -> ProbeProgram {
    ProbeProgram::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "h", "add(x = x, y = x)")
}

fn end(program: ProbeProgram, shape: &[usize], call: &str) -> ProbeProgram {
    program.op("fp16", shape, "r", call).output(&["r"])
}

pub(super) fn concat() -> ProbeProgram {
    end(
        start().int("axis", 1).flag("no", false),
        &[1, 128, 1, 64],
        "concat(axis = axis, interleave = no, values = (h, x))",
    )
}

const MOVES: &[OpCase] = &[
    OpCase::of("split", || {
        let half = tensor("fp16", &[1, 32, 1, 64]);
        let call = "split(axis = axis, num_splits = two, x = h)";
        start().int("axis", 1).int("two", 2).ops(&[(half.clone(), "r"), (half, "s")], call).output(&["r", "s"])
    }),
    OpCase::of("pad", || {
        let program = start().ints("by", &[0, 0, 0, 0, 0, 0, 0, 32]).word("mode", "constant").half("zero", 0.0);
        end(program, &[1, 64, 1, 96], "pad(constant_val = zero, mode = mode, pad = by, x = h)")
    }),
    OpCase::of("crop", || {
        let program = start().ints("rows", &[0, 0]).ints("columns", &[16, 16]);
        end(program, &[1, 64, 1, 32], "crop(crop_height = rows, crop_width = columns, x = h)")
    }),
    OpCase::of("reshape", || {
        end(start().ints("shape", &[1, 32, 2, 64]), &[1, 32, 2, 64], "reshape(shape = shape, x = h)")
    }),
    OpCase::of("transpose", || {
        end(start().ints("perm", &[0, 3, 2, 1]), &[1, 64, 1, 64], "transpose(perm = perm, x = h)")
    }),
    OpCase::of("slice_by_size", || {
        let program = start().ints("begin", &[0, 16, 0, 0]).ints("size", &[1, 32, 1, 64]);
        end(program, &[1, 32, 1, 64], "slice_by_size(begin = begin, size = size, x = h)")
    }),
    OpCase::of("slice_by_index", || {
        let program = start().ints("begin", &[0, 16, 0, 0]).ints("end", &[1, 48, 1, 64]);
        end(program, &[1, 32, 1, 64], "slice_by_index(begin = begin, end = end, x = h)")
    }),
    OpCase::of("gather", || {
        let program = start().ints("indices", &(0..32).map(|i| i * 5 % 64).collect::<Vec<_>>()).int("axis", 1);
        end(program, &[1, 32, 1, 64], "gather(axis = axis, indices = indices, x = h)")
    }),
];

macro_rules! unary {
    ($op:literal) => {
        OpCase::of($op, || end(start(), &SHAPE, concat!($op, "(x = h)")))
    };
    ($op:literal, $epsilon:literal) => {
        OpCase {
            op: $op,
            program: || end(start().half("e", $epsilon), &SHAPE, concat!($op, "(epsilon = e, x = h)")),
            bare: Some(|| end(start(), &SHAPE, concat!($op, "(x = h)"))),
        }
    };
}

const FUNCTIONS: &[OpCase] = &[
    unary!("rsqrt", 1e-5),
    unary!("log", 1e-5),
    unary!("inverse", 1e-4),
    OpCase::of("pow", || end(start().half("two", 2.0), &SHAPE, "pow(x = h, y = two)")),
    OpCase::of("gelu", || end(start().word("mode", "TANH_APPROXIMATION"), &SHAPE, "gelu(mode = mode, x = h)")),
    unary!("silu"),
    unary!("exp"),
    unary!("sqrt"),
    unary!("sin"),
    unary!("cos"),
    unary!("atan"),
    unary!("erf"),
    OpCase::of("mod", || end(start().half("two", 2.0), &SHAPE, "mod(x = h, y = two)")),
];

macro_rules! reduction {
    ($op:literal) => {
        OpCase::of($op, || {
            let program = start().ints("axes", &[1]).flag("keep", true);
            end(program, &[1, 1, 1, 64], concat!($op, "(axes = axes, keep_dims = keep, x = h)"))
        })
    };
}

fn pooled() -> ProbeProgram {
    let program = start().ints("sizes", &[1, 2]).ints("strides", &[1, 2]).word("kind", "valid");
    program.ints("pad", &[0, 0, 0, 0]).flag("no", false)
}

const REDUCTIONS: &[OpCase] = &[
    reduction!("reduce_mean"),
    reduction!("reduce_sum"),
    reduction!("reduce_max"),
    reduction!("reduce_min"),
    OpCase::of("reduce_prod", || {
        // Over two halves of the channels, so that no product overflows.
        let program =
            start().ints("shape", &[1, 2, 32, 64]).op("fp16", &[1, 2, 32, 64], "g", "reshape(shape = shape, x = h)");
        let program = program.ints("axes", &[1]).flag("keep", true);
        end(program, &[1, 1, 32, 64], "reduce_prod(axes = axes, keep_dims = keep, x = g)")
    }),
    OpCase::of("cumsum", || {
        let program = start().int("axis", 1).flag("no", false);
        end(program, &SHAPE, "cumsum(axis = axis, exclusive = no, reverse = no, x = h)")
    }),
    OpCase::of("topk", || {
        let program = start().int("k", 5).int("axis", 3).flag("no", false);
        let results = [(tensor("fp16", &[1, 64, 1, 5]), "r"), (tensor("int32", &[1, 64, 1, 5]), "at")];
        program.ops(&results, "topk(ascending = no, axis = axis, k = k, x = h)").output(&["r"])
    }),
    OpCase::of("avg_pool", || {
        let call = "avg_pool(exclude_padding_from_average = no, kernel_sizes = sizes, pad = pad, pad_type = kind, \
                    strides = strides, x = h)";
        end(pooled(), &[1, 64, 1, 32], call)
    }),
    OpCase::of("max_pool", || {
        let call = "max_pool(kernel_sizes = sizes, pad = pad, pad_type = kind, strides = strides, x = h)";
        end(pooled(), &[1, 64, 1, 32], call)
    }),
    OpCase::of("batch_norm", || {
        let program = start().halves("mean", &[64], &[0.5; 64]).halves("variance", &[64], &[2.0; 64]).half("e", 1e-3);
        end(program, &SHAPE, "batch_norm(epsilon = e, mean = mean, variance = variance, x = h)")
    }),
    OpCase::of("layer_norm", || {
        let program = start().ints("axes", &[3]).half("e", 1e-3);
        end(program, &SHAPE, "layer_norm(axes = axes, epsilon = e, x = h)")
    }),
];

/// Asks for each op.
fn ask(dut: &mut DeviceUnderTest<'_>, cases: &[OpCase]) -> Result<Measurements> {
    let mut found = Measurements::new();
    for case in cases {
        let key = format!("op.{}", case.op);
        match one(dut, case) {
            Ok((word, raw)) => {
                found.raw(case.op, raw);
                match word {
                    Some(word) => {
                        found.value(&key, word);
                    }
                    None => {
                        found.leave_open(format!("`{}` runs and gives other numbers, or none", case.op));
                    }
                }
            }
            // One op that cannot be asked for does not end the others; a device that is gone does.
            Err(error) if dut.is_stopped() || error.kind() == ferrane_device::ErrorKind::CompileBudget => {
                found.leave_open(error.to_string());
                break;
            }
            Err(error) => {
                found.leave_open(format!("`{}`: {error}", case.op));
            }
        }
    }
    Ok(found)
}

fn one(dut: &mut DeviceUnderTest<'_>, case: &OpCase) -> Result<(Option<String>, String)> {
    let inputs = [ramp(ELEMENTS)];
    let raw = match dut.judge(&(case.program)(), &inputs)? {
        Judgment::Refused(error) => return Ok((Some("refused".into()), error.to_string())),
        Judgment::Failed(error) => return Ok((Some("fails-at-evaluation".into()), error.to_string())),
        Judgment::Untouched => return Ok((None, "the output is untouched".into())),
        Judgment::Wrong(most) => return Ok((None, format!("off by {most}"))),
        Judgment::Right(most) => format!("off by {most} at most"),
    };
    if let Some(bare) = case.bare
        && let Err(error) = dut.try_compile(&bare())?
    {
        return Ok((Some("needs-epsilon".into()), error.to_string()));
    }
    // Whether it ran as several does not show.
    let known = dut.device().profile().op(case.op).map(|o| o.value);
    let word = if known == Some(Acceptance::Decomposed) { "decomposed" } else { "native" };
    Ok((Some(word.into()), raw))
}
