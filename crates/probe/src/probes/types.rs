//! Element types.

use ferrane_device::Result;
use serde_json::json;

use crate::dut::{DeviceUnderTest, ELEMENTS, Judgment, SHAPE, ramp};
use crate::measurements::Measurements;
use crate::probe::Expectation::{Has, Is, Lacks};
use crate::probe::{Probe, ProbeCost, claim};
use crate::program::ProbeProgram;

pub(super) const PROBES: &[Probe] = &[Probe {
    name: "types",
    question: "Which element types may ports and casts have, and is there arithmetic in fp32?",
    experiments: &[],
    cost: ProbeCost::Slow,
    values: &["cast", "cast_types", "input_types", "output_types", "fp32_arithmetic"],
    claims: &[
        claim("C124", "input_types", Has("int8")),
        claim("C124", "output_types", Lacks("int8")),
        claim("C125", "input_types", Lacks("fp32")),
        claim("C126", "fp32_arithmetic", Is("false")),
        claim("C127", "cast", Is("false")),
        claim("C128", "cast_types", Lacks("int32")),
    ],
    run: types,
}];

/// In the order in which profiles have them.
const TYPES: [&str; 8] = ["fp16", "fp32", "bool", "int8", "uint8", "int16", "uint16", "int32"];

/// There and back inside of the program.
fn inside(dtype: &str) -> ProbeProgram {
    ProbeProgram::new()
        .input("x", "fp16", &SHAPE)
        .word("there", dtype)
        .word("back", "fp16")
        .op("fp16", &SHAPE, "h", "add(x = x, y = x)")
        .op(dtype, &SHAPE, "t", "cast(dtype = there, x = h)")
        .op("fp16", &SHAPE, "r", "cast(dtype = back, x = t)")
        .output(&["r"])
}

fn input(dtype: &'static str) -> ProbeProgram {
    ProbeProgram::new()
        .input("x", dtype, &SHAPE)
        .word("back", "fp16")
        .op("fp16", &SHAPE, "h", "cast(dtype = back, x = x)")
        .op("fp16", &SHAPE, "r", "add(x = h, y = h)")
        .output(&["r"])
}

fn output(dtype: &str) -> ProbeProgram {
    ProbeProgram::new()
        .input("x", "fp16", &SHAPE)
        .word("there", dtype)
        .op("fp16", &SHAPE, "h", "add(x = x, y = x)")
        .op(dtype, &SHAPE, "r", "cast(dtype = there, x = h)")
        .output(&["r"])
}

fn types(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    // Ports of other types show only through a cast, and most casts exist from ios17 on.
    let new = dut.spelling()?.opset != "ios16";
    let works = matches!(dut.judge(&inside("fp32"), &[ramp(ELEMENTS)])?, Judgment::Right(_));
    found.value("cast", works);
    if !works || !new {
        found.leave_open("without casts, or with those of ios16 only, the types of ports are not seen");
        return Ok(found);
    }
    let (mut casts, mut inputs, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for dtype in TYPES {
        // fp16 is what every other probe uses.
        let known = dtype == "fp16";
        if known || dut.try_compile(&inside(dtype))?.is_ok() {
            casts.push(dtype);
        }
        if known || dut.try_compile(&input(dtype))?.is_ok() {
            inputs.push(dtype);
        }
        if known || dut.try_compile(&output(dtype))?.is_ok() {
            outputs.push(dtype);
        }
    }
    found.value("cast_types", json!(casts)).value("input_types", json!(inputs)).value("output_types", json!(outputs));
    let wide = ProbeProgram::new()
        .input("x", "fp16", &SHAPE)
        .word("there", "fp32")
        .word("back", "fp16")
        .op("fp32", &SHAPE, "t", "cast(dtype = there, x = x)")
        .op("fp32", &SHAPE, "u", "add(x = t, y = t)")
        .op("fp16", &SHAPE, "r", "cast(dtype = back, x = u)")
        .output(&["r"]);
    found.value("fp32_arithmetic", dut.try_compile(&wide)?.is_ok());
    Ok(found)
}
