//! How long, how wide, how many.

use ferrane_device::Result;
use serde_json::{Value, json};

use crate::place::{ELEMENTS, Judgement, Place, SHAPE, ramp};
use crate::probe::{Cost, Probe, Word, says};
use crate::{Draft, Found};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "axis",
        question: "How long may an axis be, and how many axes may there be?",
        experiments: &[],
        cost: Cost::Dear,
        values: &["max_axis", "max_rank"],
        says: &[
            says("C021", "max_axis", Word::Is("16384")),
            says("C022", "max_axis", Word::AtLeast(16384)),
            says("C023", "max_axis", Word::Is("16384")),
            says("C024", "max_axis", Word::Is("65536")),
            says("C025", "max_axis", Word::Is("16384")),
            says("C026", "max_rank", Word::Is("5")),
        ],
        run: axis,
    },
    Probe {
        name: "kernel",
        question: "How wide and how high may a convolution's kernel be?",
        experiments: &[],
        cost: Cost::Dear,
        values: &["max_kernel_width", "max_kernel_height"],
        says: &[
            says("C031", "max_kernel_width", Word::Not("15")),
            says("C032", "max_kernel_width", Word::Is("15")),
            says("C032", "max_kernel_height", Word::AtLeast(16)),
        ],
        run: kernel,
    },
    Probe {
        name: "products",
        question: "What do convolution and matmul take: bias, constants, literal flags, any inner extent, runtime weights?",
        experiments: &[],
        cost: Cost::Light,
        values: &[
            "conv_bias",
            "matmul_constant",
            "matmul_named_flags",
            "matmul_inner_multiple",
            "runtime_conv_weight_ignored",
        ],
        says: &[
            says("C078", "conv_bias", Word::Is("false")),
            says("C079", "conv_bias", Word::Is("true")),
            says("C083", "runtime_conv_weight_ignored", Word::Is("true")),
            says("C084", "runtime_conv_weight_ignored", Word::Is("false")),
            says("C088", "matmul_named_flags", Word::Is("true")),
            says("C089", "matmul_inner_multiple", Word::Is("32")),
            says("C091", "matmul_constant", Word::Is("false")),
        ],
        run: products,
    },
    Probe {
        name: "input-channels",
        question: "How many input channels may a convolution have?",
        experiments: &[],
        cost: Cost::Dear,
        values: &["max_conv_input_channels"],
        says: &[
            says("C080", "max_conv_input_channels", Word::AtMost(31999)),
            says("C082", "max_conv_input_channels", Word::AtMost(31999)),
        ],
        run: channels,
    },
    Probe {
        name: "blobs",
        question: "How many weight blobs may a program have?",
        experiments: &[],
        cost: Cost::Dear,
        values: &["max_blobs"],
        says: &[says("C036", "max_blobs", Word::Is("16")), says("C037", "max_blobs", Word::AtLeast(128))],
        run: blobs,
    },
    Probe {
        name: "arguments",
        question: "Which arguments of softmax and topk does the compiler refuse, and must outputs be computed?",
        experiments: &[],
        cost: Cost::Dear,
        values: &["softmax_power_of_two", "refused_topk", "live_outputs"],
        says: &[
            says("C016", "live_outputs", Word::Is("true")),
            says("C100", "refused_topk", Word::Is("[3,4]")),
            says("C110", "softmax_power_of_two", Word::Is("true")),
            says("C111", "softmax_power_of_two", Word::Is("false")),
        ],
        run: arguments,
    },
];

/// The largest number that compiles, if it is at least the first of the steps and below the last; the steps are the limits that are
/// claimed, so that most are told by two compiles. `None`: the last one compiles, too.
fn largest(place: &mut Place<'_>, steps: &[usize], draft: impl Fn(usize) -> Draft) -> Result<Option<Option<usize>>> {
    let mut compiles = |n: usize| Ok::<bool, ferrane_device::Error>(place.compiles_draft(&draft(n))?.is_ok());
    let Some((&first, rest)) = steps.split_first() else { return Ok(None) };
    if !compiles(first)? {
        return Ok(Some(None));
    }
    let mut works = first;
    for &step in rest {
        if compiles(works + 1)? {
            if compiles(step)? {
                works = step;
                continue;
            }
            let mut fails = step;
            works += 1;
            while fails - works > 1 {
                let middle = works.midpoint(fails);
                if compiles(middle)? { works = middle } else { fails = middle }
            }
        }
        return Ok(Some(Some(works)));
    }
    Ok(None)
}

/// Takes what [`largest`] found for a value.
fn take(found: &mut Found, key: &str, most: Option<Option<usize>>, beyond: Option<Value>, last: usize) {
    match (most, beyond) {
        (Some(Some(most)), _) => drop(found.value(key, most)),
        (Some(None), _) => drop(found.open(format!("{key}: not even the smallest number that was tried compiles"))),
        (None, Some(value)) => drop(found.value(key, value).raw("tried up to", last)),
        (None, None) => drop(found.open(format!("{key}: {last} compiles, and more was not tried"))),
    }
}

fn axis(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let long = |n: usize| {
        let shape = [1, 1, 1, n];
        Draft::new().input("x", "fp16", &shape).op("fp16", &shape, "r", "add(x = x, y = x)").output(&["r"])
    };
    let most = largest(place, &[4096, 16384, 65536, 131_072], long)?;
    take(&mut found, "max_axis", most, None, 131_072);
    let deep = |n: usize| {
        let mut shape = vec![1; n];
        shape[n - 2..].copy_from_slice(&[64, 64]);
        Draft::new().input("x", "fp16", &shape).op("fp16", &shape, "r", "add(x = x, y = x)").output(&["r"])
    };
    let most = largest(place, &[4, 5, 8], deep)?;
    take(&mut found, "max_rank", most, None, 8);
    Ok(found)
}

fn convolution(draft: Draft, shape: &[usize], bias: &str) -> Draft {
    draft
        .ints("strides", &[1, 1])
        .ints("dilations", &[1, 1])
        .ints("pad", &[0, 0, 0, 0])
        .word("kind", "valid")
        .int("groups", 1)
        .op(
            "fp16",
            shape,
            "r",
            &format!(
                "conv({bias}dilations = dilations, groups = groups, pad = pad, pad_type = kind, strides = strides, weight = w, x = x)"
            ),
        )
        .output(&["r"])
}

fn kernel(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let wide = |n: usize| {
        let draft = Draft::new().input("x", "fp16", &[1, 1, 1, 128]).halves("w", &[1, 1, 1, n], &vec![0.5; n]);
        convolution(draft, &[1, 1, 1, 129 - n], "")
    };
    let most = largest(place, &[7, 13, 15, 16, 32, 64], wide)?;
    take(&mut found, "max_kernel_width", most, None, 64);
    let high = |n: usize| {
        let draft = Draft::new().input("x", "fp16", &[1, 1, 128, 64]).halves("w", &[1, 1, n, 1], &vec![0.5; n]);
        convolution(draft, &[1, 1, 129 - n, 64], "")
    };
    let most = largest(place, &[7, 16, 29, 32, 64], high)?;
    take(&mut found, "max_kernel_height", most, None, 64);
    Ok(found)
}

fn products(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let weights = |draft: Draft| draft.halves("w", &[16, 16, 1, 1], &ramp(256));
    let x = || Draft::new().input("x", "fp16", &[1, 16, 1, 64]);
    let biased = convolution(weights(x()).halves("b", &[16], &ramp(16)), &[1, 16, 1, 64], "bias = b, ");
    match place.compiles_draft(&convolution(weights(x()), &[1, 16, 1, 64], ""))? {
        Ok(()) => drop(found.value("conv_bias", place.compiles_draft(&biased)?.is_ok())),
        Err(error) => drop(found.open(format!("conv: {error}"))),
    }
    let square = [1, 64, 64];
    let named = || Draft::new().input("p", "fp16", &square).input("q", "fp16", &square).flag("no", false);
    let product =
        named().op("fp16", &square, "r", "matmul(transpose_x = no, transpose_y = no, x = p, y = q)").output(&["r"]);
    let literal = named()
        .op("fp16", &square, "r", "matmul(transpose_x = bool(false), transpose_y = bool(false), x = p, y = q)")
        .output(&["r"]);
    if let Err(error) = place.compiles_draft(&product)? {
        found.open(format!("matmul: {error}"));
        return Ok(found);
    }
    found.value("matmul_named_flags", place.compiles_draft(&literal)?.is_err());
    let constant = Draft::new()
        .input("p", "fp16", &square)
        .flag("no", false)
        .weight("w", &square, &ramp(ELEMENTS))
        .op("fp16", &square, "r", "matmul(transpose_x = no, transpose_y = no, x = p, y = w)")
        .output(&["r"]);
    found.value("matmul_constant", place.compiles_draft(&constant)?.is_ok());
    let inner = Draft::new()
        .input("p", "fp16", &[1, 64, 48])
        .input("q", "fp16", &[1, 48, 64])
        .flag("no", false)
        .op("fp16", &square, "r", "matmul(transpose_x = no, transpose_y = no, x = p, y = q)")
        .output(&["r"]);
    let inputs = [ramp(64 * 48), ramp(48 * 64)];
    match place.judge(&inner, &inputs)? {
        Judgement::Right(_) => drop(found.value("matmul_inner_multiple", 1)),
        Judgement::Wrong(most) => {
            found.raw("inner extent 48 is off by", json!(most)).value("matmul_inner_multiple", 32);
        }
        other => drop(found.open(format!("an inner extent of 48: {other:?}"))),
    }
    let runtime = x().input("w", "fp16", &[16, 16, 1, 1]);
    match place.judge(&convolution(runtime, &[1, 16, 1, 64], ""), &[ramp(1024), ramp(256)])? {
        Judgement::Right(_) => drop(found.value("runtime_conv_weight_ignored", false)),
        Judgement::Wrong(most) => {
            found.raw("a runtime weight is off by", json!(most)).value("runtime_conv_weight_ignored", true);
        }
        other => drop(found.open(format!("a runtime weight: {other:?}"))),
    }
    Ok(found)
}

fn channels(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let draft = |n: usize| {
        let draft = Draft::new().input("x", "fp16", &[1, n, 1, 32]).weight("w", &[1, n, 1, 1], &vec![0.5; n]);
        convolution(draft, &[1, 1, 1, 32], "")
    };
    let most = largest(place, &[4096, 8192, 16384, 32000], draft)?;
    take(&mut found, "max_conv_input_channels", most, Some(json!("none")), 32000);
    Ok(found)
}

fn blobs(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let draft = |n: usize| {
        let mut draft = Draft::new().input("x", "fp16", &SHAPE);
        let mut last = "x".to_string();
        for i in 0..n {
            let (weight, result) = (format!("w{i}"), format!("r{i}"));
            draft = draft.weight(&weight, &[1, 64, 1, 1], &[1.0 / 128.0; 64]);
            draft = draft.op("fp16", &SHAPE, &result, &format!("add(x = {last}, y = {weight})"));
            last = result;
        }
        draft.output(&[&last])
    };
    let most = largest(place, &[8, 16, 129], draft)?;
    take(&mut found, "max_blobs", most, Some(json!("none")), 129);
    Ok(found)
}

fn arguments(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let softmax = |width: usize| {
        let shape = [1, 64, 1, width];
        Draft::new()
            .input("x", "fp16", &shape)
            .int("axis", 3)
            .op("fp16", &shape, "r", "softmax(axis = axis, x = x)")
            .output(&["r"])
    };
    match place.compiles_draft(&softmax(64))? {
        Ok(()) => drop(found.value("softmax_power_of_two", place.compiles_draft(&softmax(96))?.is_err())),
        Err(error) => drop(found.open(format!("softmax: {error}"))),
    }
    let topk = |k: usize| {
        let results = [
            (crate::draft::tensor("fp16", &[1, 64, 1, k]), "r"),
            (crate::draft::tensor("int32", &[1, 64, 1, k]), "at"),
        ];
        let draft = Draft::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "h", "add(x = x, y = x)");
        let draft = draft.int("k", k as i64).int("axis", 3).flag("no", false);
        draft.ops(&results, "topk(ascending = no, axis = axis, k = k, x = h)").output(&["r"])
    };
    let mut refused = Vec::new();
    let tried = [1, 2, 3, 4, 5, 8];
    for k in tried {
        if place.compiles_draft(&topk(k))?.is_err() {
            refused.push(k);
        }
    }
    if refused.len() == tried.len() {
        found.open("topk is refused with every k");
    } else {
        found.value("refused_topk", json!(refused));
    }
    let dead = Draft::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "r", "add(x = x, y = x)").output(&["r", "x"]);
    found.value("live_outputs", place.compiles_draft(&dead)?.is_err());
    Ok(found)
}
