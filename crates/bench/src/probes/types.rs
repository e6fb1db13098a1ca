//! Element types.

use ferrane_device::Result;
use serde_json::json;

use crate::place::{ELEMENTS, Judgement, Place, SHAPE, ramp};
use crate::probe::{Cost, Probe, Word, says};
use crate::{Draft, Found};

pub(super) const PROBES: &[Probe] = &[Probe {
    name: "types",
    question: "Which element types may ports and casts have, and is there arithmetic in fp32?",
    experiments: &[],
    cost: Cost::Dear,
    values: &["cast", "cast_types", "input_types", "output_types", "fp32_arithmetic"],
    says: &[
        says("C124", "input_types", Word::Has("int8")),
        says("C124", "output_types", Word::Lacks("int8")),
        says("C125", "input_types", Word::Lacks("fp32")),
        says("C126", "fp32_arithmetic", Word::Is("false")),
        says("C127", "cast", Word::Is("false")),
        says("C128", "cast_types", Word::Lacks("int32")),
    ],
    run: types,
}];

/// In the order in which profiles have them.
const TYPES: [&str; 8] = ["fp16", "fp32", "bool", "int8", "uint8", "int16", "uint16", "int32"];

/// There and back inside of the program.
fn inside(dtype: &str) -> Draft {
    Draft::new()
        .input("x", "fp16", &SHAPE)
        .word("there", dtype)
        .word("back", "fp16")
        .op("fp16", &SHAPE, "h", "add(x = x, y = x)")
        .op(dtype, &SHAPE, "t", "cast(dtype = there, x = h)")
        .op("fp16", &SHAPE, "r", "cast(dtype = back, x = t)")
        .output(&["r"])
}

fn input(dtype: &'static str) -> Draft {
    Draft::new()
        .input("x", dtype, &SHAPE)
        .word("back", "fp16")
        .op("fp16", &SHAPE, "h", "cast(dtype = back, x = x)")
        .op("fp16", &SHAPE, "r", "add(x = h, y = h)")
        .output(&["r"])
}

fn output(dtype: &str) -> Draft {
    Draft::new()
        .input("x", "fp16", &SHAPE)
        .word("there", dtype)
        .op("fp16", &SHAPE, "h", "add(x = x, y = x)")
        .op(dtype, &SHAPE, "r", "cast(dtype = there, x = h)")
        .output(&["r"])
}

fn types(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    // Ports of other types are only seen behind a cast, and most casts only from ios17 on.
    let new = place.spelling()?.opset != "ios16";
    let works = matches!(place.judge(&inside("fp32"), &[ramp(ELEMENTS)])?, Judgement::Right(_));
    found.value("cast", works);
    if !works || !new {
        found.open("without casts, or with those of ios16 only, the types of ports are not seen");
        return Ok(found);
    }
    let (mut casts, mut inputs, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for dtype in TYPES {
        // fp16 is what every other probe uses.
        let known = dtype == "fp16";
        if known || place.compiles_draft(&inside(dtype))?.is_ok() {
            casts.push(dtype);
        }
        if known || place.compiles_draft(&input(dtype))?.is_ok() {
            inputs.push(dtype);
        }
        if known || place.compiles_draft(&output(dtype))?.is_ok() {
            outputs.push(dtype);
        }
    }
    found.value("cast_types", json!(casts)).value("input_types", json!(inputs)).value("output_types", json!(outputs));
    let wide = Draft::new()
        .input("x", "fp16", &SHAPE)
        .word("there", "fp32")
        .word("back", "fp16")
        .op("fp32", &SHAPE, "t", "cast(dtype = there, x = x)")
        .op("fp32", &SHAPE, "u", "add(x = t, y = t)")
        .op("fp16", &SHAPE, "r", "cast(dtype = back, x = u)")
        .output(&["r"]);
    found.value("fp32_arithmetic", place.compiles_draft(&wide)?.is_ok());
    Ok(found)
}
