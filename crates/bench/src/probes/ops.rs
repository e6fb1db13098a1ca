//! Which ops the compiler takes, one program each.

use ferrane_device::Result;
use ferrane_target::profile::Acceptance;

use crate::draft::tensor;
use crate::place::{ELEMENTS, Judgement, Place, SHAPE, ramp};
use crate::probe::{Cost, Probe, Word, says};
use crate::{Draft, Found};

const REFUSED: Word = Word::Is("refused");
const RUNS: Word = Word::Not("refused");
const FAILS: Word = Word::Is("fails-at-evaluation");
const NEEDS: Word = Word::Is("needs-epsilon");

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "concat",
        question: "Does `concat` compile and run?",
        experiments: &[],
        cost: Cost::Light,
        values: &["op.concat"],
        says: &[
            says("C041", "op.concat", REFUSED),
            says("C042", "op.concat", RUNS),
            says("C043", "op.concat", RUNS),
            says("C044", "op.concat", REFUSED),
        ],
        run: |place| ask(place, &[Case::of("concat", concat)]),
    },
    Probe {
        name: "moves",
        question: "Which ops that only move data compile and run?",
        experiments: &[],
        cost: Cost::Dear,
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
        says: &[
            says("C044", "op.split", REFUSED),
            says("C044", "op.pad", REFUSED),
            says("C044", "op.crop", REFUSED),
            says("C059", "op.reshape", FAILS),
            says("C059", "op.transpose", FAILS),
            says("C059", "op.slice_by_size", FAILS),
            says("C059", "op.slice_by_index", FAILS),
            says("C059", "op.gather", FAILS),
            says("C060", "op.reshape", RUNS),
            says("C060", "op.transpose", RUNS),
            says("C060", "op.slice_by_size", RUNS),
        ],
        run: |place| ask(place, MOVES),
    },
    Probe {
        name: "functions",
        question: "Which functions of one operand compile and run, and do some need their epsilon?",
        experiments: &[],
        cost: Cost::Dear,
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
        says: &[
            says("C046", "op.rsqrt", REFUSED),
            says("C047", "op.rsqrt", NEEDS),
            says("C047", "op.log", NEEDS),
            says("C047", "op.inverse", NEEDS),
            says("C048", "op.rsqrt", REFUSED),
            says("C048", "op.pow", REFUSED),
            says("C049", "op.gelu", REFUSED),
            says("C050", "op.gelu", RUNS),
            says("C054", "op.silu", REFUSED),
            says("C055", "op.silu", RUNS),
            says("C065", "op.exp", REFUSED),
            says("C065", "op.log", REFUSED),
            says("C065", "op.sqrt", REFUSED),
            says("C065", "op.sin", REFUSED),
            says("C065", "op.cos", REFUSED),
            says("C065", "op.atan", REFUSED),
            says("C066", "op.exp", RUNS),
            says("C066", "op.erf", RUNS),
            says("C066", "op.sqrt", RUNS),
            says("C066", "op.atan", RUNS),
            says("C066", "op.sin", REFUSED),
            says("C066", "op.cos", REFUSED),
            says("C106", "op.mod", REFUSED),
        ],
        run: |place| ask(place, FUNCTIONS),
    },
    Probe {
        name: "reductions",
        question: "Which reductions, pools and norms compile and run?",
        experiments: &[],
        cost: Cost::Dear,
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
        says: &[
            says("C056", "op.reduce_mean", FAILS),
            says("C057", "op.reduce_mean", REFUSED),
            says("C058", "op.reduce_mean", RUNS),
            says("C059", "op.reduce_mean", FAILS),
            says("C059", "op.reduce_sum", FAILS),
            says("C059", "op.reduce_max", FAILS),
            says("C059", "op.reduce_min", FAILS),
            says("C060", "op.reduce_sum", RUNS),
            says("C064", "op.reduce_prod", REFUSED),
            says("C097", "op.cumsum", RUNS),
            says("C098", "op.cumsum", REFUSED),
            says("C099", "op.topk", REFUSED),
            says("C103", "op.avg_pool", REFUSED),
            says("C103", "op.max_pool", REFUSED),
            says("C104", "op.avg_pool", RUNS),
            says("C104", "op.max_pool", RUNS),
            says("C107", "op.batch_norm", REFUSED),
            says("C108", "op.layer_norm", RUNS),
        ],
        run: |place| ask(place, REDUCTIONS),
    },
];

/// An op in a program, and the same without its epsilon.
struct Case {
    op: &'static str,
    draft: fn() -> Draft,
    bare: Option<fn() -> Draft>,
}

impl Case {
    const fn of(op: &'static str, draft: fn() -> Draft) -> Case {
        Case { op, draft, bare: None }
    }
}

/// x + x, so that no program consists of a move alone.
fn start() -> Draft {
    Draft::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "h", "add(x = x, y = x)")
}

fn end(draft: Draft, shape: &[usize], call: &str) -> Draft {
    draft.op("fp16", shape, "r", call).output(&["r"])
}

pub(super) fn concat() -> Draft {
    end(
        start().int("axis", 1).flag("no", false),
        &[1, 128, 1, 64],
        "concat(axis = axis, interleave = no, values = (h, x))",
    )
}

const MOVES: &[Case] = &[
    Case::of("split", || {
        let half = tensor("fp16", &[1, 32, 1, 64]);
        let call = "split(axis = axis, num_splits = two, x = h)";
        start().int("axis", 1).int("two", 2).ops(&[(half.clone(), "r"), (half, "s")], call).output(&["r", "s"])
    }),
    Case::of("pad", || {
        let draft = start().ints("by", &[0, 0, 0, 0, 0, 0, 0, 32]).word("mode", "constant").half("zero", 0.0);
        end(draft, &[1, 64, 1, 96], "pad(constant_val = zero, mode = mode, pad = by, x = h)")
    }),
    Case::of("crop", || {
        let draft = start().ints("rows", &[0, 0]).ints("columns", &[16, 16]);
        end(draft, &[1, 64, 1, 32], "crop(crop_height = rows, crop_width = columns, x = h)")
    }),
    Case::of("reshape", || {
        end(start().ints("shape", &[1, 32, 2, 64]), &[1, 32, 2, 64], "reshape(shape = shape, x = h)")
    }),
    Case::of("transpose", || {
        end(start().ints("perm", &[0, 3, 2, 1]), &[1, 64, 1, 64], "transpose(perm = perm, x = h)")
    }),
    Case::of("slice_by_size", || {
        let draft = start().ints("begin", &[0, 16, 0, 0]).ints("size", &[1, 32, 1, 64]);
        end(draft, &[1, 32, 1, 64], "slice_by_size(begin = begin, size = size, x = h)")
    }),
    Case::of("slice_by_index", || {
        let draft = start().ints("begin", &[0, 16, 0, 0]).ints("end", &[1, 48, 1, 64]);
        end(draft, &[1, 32, 1, 64], "slice_by_index(begin = begin, end = end, x = h)")
    }),
    Case::of("gather", || {
        let draft = start().ints("indices", &(0..32).map(|i| i * 5 % 64).collect::<Vec<_>>()).int("axis", 1);
        end(draft, &[1, 32, 1, 64], "gather(axis = axis, indices = indices, x = h)")
    }),
];

macro_rules! unary {
    ($op:literal) => {
        Case::of($op, || end(start(), &SHAPE, concat!($op, "(x = h)")))
    };
    ($op:literal, $epsilon:literal) => {
        Case {
            op: $op,
            draft: || end(start().half("e", $epsilon), &SHAPE, concat!($op, "(epsilon = e, x = h)")),
            bare: Some(|| end(start(), &SHAPE, concat!($op, "(x = h)"))),
        }
    };
}

const FUNCTIONS: &[Case] = &[
    unary!("rsqrt", 1e-5),
    unary!("log", 1e-5),
    unary!("inverse", 1e-4),
    Case::of("pow", || end(start().half("two", 2.0), &SHAPE, "pow(x = h, y = two)")),
    Case::of("gelu", || end(start().word("mode", "TANH_APPROXIMATION"), &SHAPE, "gelu(mode = mode, x = h)")),
    unary!("silu"),
    unary!("exp"),
    unary!("sqrt"),
    unary!("sin"),
    unary!("cos"),
    unary!("atan"),
    unary!("erf"),
    Case::of("mod", || end(start().half("two", 2.0), &SHAPE, "mod(x = h, y = two)")),
];

macro_rules! reduction {
    ($op:literal) => {
        Case::of($op, || {
            let draft = start().ints("axes", &[1]).flag("keep", true);
            end(draft, &[1, 1, 1, 64], concat!($op, "(axes = axes, keep_dims = keep, x = h)"))
        })
    };
}

fn pooled() -> Draft {
    let draft = start().ints("sizes", &[1, 2]).ints("strides", &[1, 2]).word("kind", "valid");
    draft.ints("pad", &[0, 0, 0, 0]).flag("no", false)
}

const REDUCTIONS: &[Case] = &[
    reduction!("reduce_mean"),
    reduction!("reduce_sum"),
    reduction!("reduce_max"),
    reduction!("reduce_min"),
    Case::of("reduce_prod", || {
        // Over two halves of the channels, so that no product overflows.
        let draft =
            start().ints("shape", &[1, 2, 32, 64]).op("fp16", &[1, 2, 32, 64], "g", "reshape(shape = shape, x = h)");
        let draft = draft.ints("axes", &[1]).flag("keep", true);
        end(draft, &[1, 1, 32, 64], "reduce_prod(axes = axes, keep_dims = keep, x = g)")
    }),
    Case::of("cumsum", || {
        let draft = start().int("axis", 1).flag("no", false);
        end(draft, &SHAPE, "cumsum(axis = axis, exclusive = no, reverse = no, x = h)")
    }),
    Case::of("topk", || {
        let draft = start().int("k", 5).int("axis", 3).flag("no", false);
        let results = [(tensor("fp16", &[1, 64, 1, 5]), "r"), (tensor("int32", &[1, 64, 1, 5]), "at")];
        draft.ops(&results, "topk(ascending = no, axis = axis, k = k, x = h)").output(&["r"])
    }),
    Case::of("avg_pool", || {
        let call = "avg_pool(exclude_padding_from_average = no, kernel_sizes = sizes, pad = pad, pad_type = kind, \
                    strides = strides, x = h)";
        end(pooled(), &[1, 64, 1, 32], call)
    }),
    Case::of("max_pool", || {
        let call = "max_pool(kernel_sizes = sizes, pad = pad, pad_type = kind, strides = strides, x = h)";
        end(pooled(), &[1, 64, 1, 32], call)
    }),
    Case::of("batch_norm", || {
        let draft = start().halves("mean", &[64], &[0.5; 64]).halves("variance", &[64], &[2.0; 64]).half("e", 1e-3);
        end(draft, &SHAPE, "batch_norm(epsilon = e, mean = mean, variance = variance, x = h)")
    }),
    Case::of("layer_norm", || {
        let draft = start().ints("axes", &[3]).half("e", 1e-3);
        end(draft, &SHAPE, "layer_norm(axes = axes, epsilon = e, x = h)")
    }),
];

/// Asks for each op.
fn ask(place: &mut Place<'_>, cases: &[Case]) -> Result<Found> {
    let mut found = Found::new();
    for case in cases {
        let key = format!("op.{}", case.op);
        match one(place, case) {
            Ok((word, raw)) => {
                found.raw(case.op, raw);
                match word {
                    Some(word) => drop(found.value(&key, word)),
                    None => drop(found.open(format!("`{}` runs and gives other numbers, or none", case.op))),
                }
            }
            // One op that cannot be asked for does not end the others; a device that is gone does.
            Err(error) if place.is_stopped() || error.kind() == ferrane_device::ErrorKind::CompileBudget => {
                found.open(error.to_string());
                break;
            }
            Err(error) => drop(found.open(format!("`{}`: {error}", case.op))),
        }
    }
    Ok(found)
}

fn one(place: &mut Place<'_>, case: &Case) -> Result<(Option<String>, String)> {
    let inputs = [ramp(ELEMENTS)];
    let raw = match place.judge(&(case.draft)(), &inputs)? {
        Judgement::Refused(error) => return Ok((Some("refused".into()), error.to_string())),
        Judgement::Failed(error) => return Ok((Some("fails-at-evaluation".into()), error.to_string())),
        Judgement::Untouched => return Ok((None, "the output is untouched".into())),
        Judgement::Wrong(most) => return Ok((None, format!("off by {most}"))),
        Judgement::Right(most) => format!("off by {most} at most"),
    };
    if let Some(bare) = case.bare
        && let Err(error) = place.compiles_draft(&bare())?
    {
        return Ok((Some("needs-epsilon".into()), error.to_string()));
    }
    // Whether it ran as several does not show.
    let known = place.device().profile().op(case.op).map(|o| o.value);
    let word = if known == Some(Acceptance::Decomposed) { "decomposed" } else { "native" };
    Ok((Some(word.into()), raw))
}
