//! Limits on extents and counts: how long, how wide, how many.

use ferrane_device::Result;
use serde_json::{Value, json};

use crate::dut::{DeviceUnderTest, ELEMENTS, Judgment, SHAPE, ramp};
use crate::measurements::Measurements;
use crate::probe::Expectation::{AtLeast, AtMost, Is, Not};
use crate::probe::{Probe, ProbeCost, claim};
use crate::program::ProbeProgram;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "axis",
        question: "How long may an axis be, and how many axes may there be?",
        experiments: &[],
        cost: ProbeCost::Slow,
        values: &["max_axis", "max_rank"],
        claims: &[
            claim("C021", "max_axis", Is("16384")),
            claim("C022", "max_axis", AtLeast(16384)),
            claim("C023", "max_axis", Is("16384")),
            claim("C024", "max_axis", Is("65536")),
            claim("C025", "max_axis", Is("16384")),
            claim("C026", "max_rank", Is("5")),
        ],
        run: axis,
    },
    Probe {
        name: "kernel",
        question: "How wide and how high may a convolution's kernel be?",
        experiments: &[],
        cost: ProbeCost::Slow,
        values: &["max_kernel_width", "max_kernel_height"],
        claims: &[
            claim("C031", "max_kernel_width", Not("15")),
            claim("C032", "max_kernel_width", Is("15")),
            claim("C032", "max_kernel_height", AtLeast(16)),
        ],
        run: kernel,
    },
    Probe {
        name: "products",
        question: "What do convolution and matmul take: bias, constants, literal flags, any inner extent, runtime weights?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &[
            "conv_bias",
            "matmul_constant",
            "matmul_named_flags",
            "matmul_inner_multiple",
            "runtime_conv_weight_ignored",
        ],
        claims: &[
            claim("C078", "conv_bias", Is("false")),
            claim("C079", "conv_bias", Is("true")),
            claim("C083", "runtime_conv_weight_ignored", Is("true")),
            claim("C084", "runtime_conv_weight_ignored", Is("false")),
            claim("C088", "matmul_named_flags", Is("true")),
            claim("C089", "matmul_inner_multiple", Is("32")),
            claim("C091", "matmul_constant", Is("false")),
        ],
        run: products,
    },
    Probe {
        name: "input-channels",
        question: "How many input channels may a convolution have?",
        experiments: &[],
        cost: ProbeCost::Slow,
        values: &["max_conv_input_channels"],
        claims: &[
            claim("C080", "max_conv_input_channels", AtMost(31999)),
            claim("C082", "max_conv_input_channels", AtMost(31999)),
        ],
        run: channels,
    },
    Probe {
        name: "blobs",
        question: "How many weight blobs may a program have?",
        experiments: &[],
        cost: ProbeCost::Slow,
        values: &["max_blobs"],
        claims: &[claim("C036", "max_blobs", Is("16")), claim("C037", "max_blobs", AtLeast(128))],
        run: blobs,
    },
    Probe {
        name: "arguments",
        question: "Which arguments of softmax and topk does the compiler refuse, and must outputs be computed?",
        experiments: &[],
        cost: ProbeCost::Slow,
        values: &["softmax_power_of_two", "refused_topk", "live_outputs"],
        claims: &[
            claim("C016", "live_outputs", Is("true")),
            claim("C100", "refused_topk", Is("[3,4]")),
            claim("C110", "softmax_power_of_two", Is("true")),
            claim("C111", "softmax_power_of_two", Is("false")),
        ],
        run: arguments,
    },
];

/// The largest number that compiles, if it is at least the first of the steps and below the last.
/// The steps are the limits that are claimed, so two compiles are enough for most. `None`: the last
/// one compiles, too.
fn largest(
    dut: &mut DeviceUnderTest<'_>,
    steps: &[usize],
    program: impl Fn(usize) -> ProbeProgram,
) -> Result<Option<Option<usize>>> {
    let mut compiles = |n: usize| Ok::<bool, ferrane_device::Error>(dut.try_compile(&program(n))?.is_ok());
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
fn take(found: &mut Measurements, key: &str, most: Option<Option<usize>>, beyond: Option<Value>, last: usize) {
    match (most, beyond) {
        (Some(Some(most)), _) => {
            found.value(key, most);
        }
        (Some(None), _) => {
            found.leave_open(format!("{key}: not even the smallest number that was tried compiles"));
        }
        (None, Some(value)) => {
            found.value(key, value).raw("tried up to", last);
        }
        (None, None) => {
            found.leave_open(format!("{key}: {last} compiles, and more was not tried"));
        }
    }
}

fn axis(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let long = |n: usize| {
        let shape = [1, 1, 1, n];
        ProbeProgram::new().input("x", "fp16", &shape).op("fp16", &shape, "r", "add(x = x, y = x)").output(&["r"])
    };
    let most = largest(dut, &[4096, 16384, 65536, 131_072], long)?;
    take(&mut found, "max_axis", most, None, 131_072);
    let deep = |n: usize| {
        let mut shape = vec![1; n];
        shape[n - 2..].copy_from_slice(&[64, 64]);
        ProbeProgram::new().input("x", "fp16", &shape).op("fp16", &shape, "r", "add(x = x, y = x)").output(&["r"])
    };
    let most = largest(dut, &[4, 5, 8], deep)?;
    take(&mut found, "max_rank", most, None, 8);
    Ok(found)
}

fn convolution(program: ProbeProgram, shape: &[usize], bias: &str) -> ProbeProgram {
    program
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

fn kernel(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let wide = |n: usize| {
        let program = ProbeProgram::new().input("x", "fp16", &[1, 1, 1, 128]).halves("w", &[1, 1, 1, n], &vec![0.5; n]);
        convolution(program, &[1, 1, 1, 129 - n], "")
    };
    let most = largest(dut, &[7, 13, 15, 16, 32, 64], wide)?;
    take(&mut found, "max_kernel_width", most, None, 64);
    let high = |n: usize| {
        let program =
            ProbeProgram::new().input("x", "fp16", &[1, 1, 128, 64]).halves("w", &[1, 1, n, 1], &vec![0.5; n]);
        convolution(program, &[1, 1, 129 - n, 64], "")
    };
    let most = largest(dut, &[7, 16, 29, 32, 64], high)?;
    take(&mut found, "max_kernel_height", most, None, 64);
    Ok(found)
}

fn products(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let weights = |program: ProbeProgram| program.halves("w", &[16, 16, 1, 1], &ramp(256));
    let x = || ProbeProgram::new().input("x", "fp16", &[1, 16, 1, 64]);
    let biased = convolution(weights(x()).halves("b", &[16], &ramp(16)), &[1, 16, 1, 64], "bias = b, ");
    match dut.try_compile(&convolution(weights(x()), &[1, 16, 1, 64], ""))? {
        Ok(()) => {
            found.value("conv_bias", dut.try_compile(&biased)?.is_ok());
        }
        Err(error) => {
            found.leave_open(format!("conv: {error}"));
        }
    }
    let square = [1, 64, 64];
    let named = || ProbeProgram::new().input("p", "fp16", &square).input("q", "fp16", &square).flag("no", false);
    let product =
        named().op("fp16", &square, "r", "matmul(transpose_x = no, transpose_y = no, x = p, y = q)").output(&["r"]);
    let literal = named()
        .op("fp16", &square, "r", "matmul(transpose_x = bool(false), transpose_y = bool(false), x = p, y = q)")
        .output(&["r"]);
    if let Err(error) = dut.try_compile(&product)? {
        found.leave_open(format!("matmul: {error}"));
        return Ok(found);
    }
    found.value("matmul_named_flags", dut.try_compile(&literal)?.is_err());
    let constant = ProbeProgram::new()
        .input("p", "fp16", &square)
        .flag("no", false)
        .weight("w", &square, &ramp(ELEMENTS))
        .op("fp16", &square, "r", "matmul(transpose_x = no, transpose_y = no, x = p, y = w)")
        .output(&["r"]);
    found.value("matmul_constant", dut.try_compile(&constant)?.is_ok());
    let inner = ProbeProgram::new()
        .input("p", "fp16", &[1, 64, 48])
        .input("q", "fp16", &[1, 48, 64])
        .flag("no", false)
        .op("fp16", &square, "r", "matmul(transpose_x = no, transpose_y = no, x = p, y = q)")
        .output(&["r"]);
    let inputs = [ramp(64 * 48), ramp(48 * 64)];
    match dut.judge(&inner, &inputs)? {
        Judgment::Right(_) => {
            found.value("matmul_inner_multiple", 1);
        }
        Judgment::Wrong(most) => {
            found.raw("inner extent 48 is off by", json!(most)).value("matmul_inner_multiple", 32);
        }
        other => {
            found.leave_open(format!("an inner extent of 48: {other:?}"));
        }
    }
    let runtime = x().input("w", "fp16", &[16, 16, 1, 1]);
    match dut.judge(&convolution(runtime, &[1, 16, 1, 64], ""), &[ramp(1024), ramp(256)])? {
        Judgment::Right(_) => {
            found.value("runtime_conv_weight_ignored", false);
        }
        Judgment::Wrong(most) => {
            found.raw("a runtime weight is off by", json!(most)).value("runtime_conv_weight_ignored", true);
        }
        other => {
            found.leave_open(format!("a runtime weight: {other:?}"));
        }
    }
    Ok(found)
}

fn channels(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = |n: usize| {
        let program = ProbeProgram::new().input("x", "fp16", &[1, n, 1, 32]).weight("w", &[1, n, 1, 1], &vec![0.5; n]);
        convolution(program, &[1, 1, 1, 32], "")
    };
    let most = largest(dut, &[4096, 8192, 16384, 32000], program)?;
    take(&mut found, "max_conv_input_channels", most, Some(json!("none")), 32000);
    Ok(found)
}

fn blobs(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = |n: usize| {
        let mut program = ProbeProgram::new().input("x", "fp16", &SHAPE);
        let mut last = "x".to_string();
        for i in 0..n {
            let (weight, result) = (format!("w{i}"), format!("r{i}"));
            program = program.weight(&weight, &[1, 64, 1, 1], &[1.0 / 128.0; 64]);
            program = program.op("fp16", &SHAPE, &result, &format!("add(x = {last}, y = {weight})"));
            last = result;
        }
        program.output(&[&last])
    };
    let most = largest(dut, &[8, 16, 129], program)?;
    take(&mut found, "max_blobs", most, Some(json!("none")), 129);
    Ok(found)
}

fn arguments(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let softmax = |width: usize| {
        let shape = [1, 64, 1, width];
        ProbeProgram::new()
            .input("x", "fp16", &shape)
            .int("axis", 3)
            .op("fp16", &shape, "r", "softmax(axis = axis, x = x)")
            .output(&["r"])
    };
    match dut.try_compile(&softmax(64))? {
        Ok(()) => {
            found.value("softmax_power_of_two", dut.try_compile(&softmax(96))?.is_err());
        }
        Err(error) => {
            found.leave_open(format!("softmax: {error}"));
        }
    }
    let topk = |k: usize| {
        let results = [
            (crate::program::tensor("fp16", &[1, 64, 1, k]), "r"),
            (crate::program::tensor("int32", &[1, 64, 1, k]), "at"),
        ];
        let program = ProbeProgram::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "h", "add(x = x, y = x)");
        let program = program.int("k", k as i64).int("axis", 3).flag("no", false);
        program.ops(&results, "topk(ascending = no, axis = axis, k = k, x = h)").output(&["r"])
    };
    let mut refused = Vec::new();
    let tried = [1, 2, 3, 4, 5, 8];
    for k in tried {
        if dut.try_compile(&topk(k))?.is_err() {
            refused.push(k);
        }
    }
    if refused.len() == tried.len() {
        found.leave_open("topk is refused with every k");
    } else {
        found.value("refused_topk", json!(refused));
    }
    let dead =
        ProbeProgram::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "r", "add(x = x, y = x)").output(&["r", "x"]);
    found.value("live_outputs", dut.try_compile(&dead)?.is_err());
    Ok(found)
}
