//! Attention masks, and slices that rotary embeddings are made of.

use ferrane_device::Result;
use serde_json::json;

use crate::dut::{Attempt, DeviceUnderTest, ELEMENTS, Judgment, SHAPE, ramp};
use crate::measurements::Measurements;
use crate::probe::Expectation::Is;
use crate::probe::{Probe, ProbeCost, claim};
use crate::program::ProbeProgram;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "mask-ignored",
        question: "Does `attn_mask` of scaled_dot_product_attention have an effect?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["attn_mask"],
        claims: &[claim("C074", "attn_mask", Is("ignored")), claim("C075", "attn_mask", Is("honored"))],
        run: mask,
    },
    Probe {
        name: "width-slices",
        question: "Are slices of the last axis put together along it again taken, and right?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["rope_width_refused", "concat_slices_wrong"],
        claims: &[
            claim("C042", "rope_width_refused", Is("false")),
            claim("C045", "concat_slices_wrong", Is("true")),
            claim("C121", "rope_width_refused", Is("true")),
        ],
        run: slices,
    },
    Probe {
        name: "gather-last",
        question: "Does a gather along the last axis give the right elements?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["gather_last_wrong"],
        claims: &[claim("C096", "gather_last_wrong", Is("true"))],
        run: gather,
    },
];

fn attention(masked: bool) -> ProbeProgram {
    let shape = [1, 1, 64, 64];
    let program = ProbeProgram::new().since(18).input("p", "fp16", &shape);
    let (program, mask) = if masked { (program.input("q", "fp16", &shape), ", attn_mask = q") } else { (program, "") };
    let call = format!("scaled_dot_product_attention(query = p, key = p, value = p{mask})");
    program.op("fp16", &shape, "r", &call).output(&["r"])
}

fn mask(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let x: Vec<f32> = (0..4096).map(|i| (i * 37 % 101) as f32 / 64.0 - 0.75).collect();
    // Each query sees itself and what is before it.
    let causal: Vec<f32> = (0..4096).map(|i| if i % 64 > i / 64 { -10000.0 } else { 0.0 }).collect();
    let masked = attention(true);
    let inputs = [x.clone(), causal];
    let (seen, all) = (dut.exact(&masked, &inputs)?, dut.exact(&attention(false), &[x])?);
    let ran = match dut.attempt(&masked, &inputs)? {
        Attempt::Ran(outputs) => outputs,
        other => {
            found.leave_open(format!("attention with a mask does not run: {other:?}"));
            return Ok(found);
        }
    };
    let distance = |from: &[Vec<f32>]| {
        let pairs = ran.iter().flatten().zip(from.iter().flatten());
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0f32, |most, d| if d.is_nan() { f32::INFINITY } else { most.max(d) })
    };
    let (causal, plain) = (distance(&seen), distance(&all));
    found.raw("distance to the masked result", json!(causal)).raw("distance to the result without", json!(plain));
    match (causal < 0.05, plain < 0.05) {
        (true, false) => found.value("attn_mask", "honored"),
        (false, true) => found.value("attn_mask", "ignored"),
        _ => found.leave_open("the result is neither the masked one nor the one without a mask"),
    };
    Ok(found)
}

fn slice(program: ProbeProgram, name: &str, from: i64, to: i64) -> ProbeProgram {
    let (begin, size) = (format!("{name}_begin"), format!("{name}_size"));
    program.ints(&begin, &[0, 0, 0, from]).ints(&size, &[1, 64, 1, to - from]).op(
        "fp16",
        &[1, 64, 1, (to - from) as usize],
        name,
        &format!("slice_by_size(begin = {begin}, size = {size}, x = h)"),
    )
}

fn slices(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    // Two slices that begin after 0, whose results are wrong on one class of machines; and a form
    // of rotation that another refuses.
    let program = ProbeProgram::new().input("x", "fp16", &SHAPE).op("fp16", &SHAPE, "h", "add(x = x, y = x)");
    let program = slice(slice(program, "p", 32, 64), "q", 16, 48)
        .int("axis", 3)
        .flag("no", false)
        .op("fp16", &SHAPE, "r", "concat(axis = axis, interleave = no, values = (p, q))")
        .output(&["r"]);
    match dut.judge(&program, &[ramp(ELEMENTS)])? {
        Judgment::Refused(error) => {
            found.raw("refused", error.to_string());
            // If concat itself is refused, the refusal says nothing about slices.
            match dut.try_compile(&super::ops::concat())? {
                Ok(()) => found.value("rope_width_refused", true),
                Err(_) => found.leave_open("every concat is refused"),
            };
        }
        Judgment::Right(_) => {
            found.value("rope_width_refused", false).value("concat_slices_wrong", false);
        }
        Judgment::Wrong(most) => {
            found.raw("off by", json!(most));
            found.value("rope_width_refused", false).value("concat_slices_wrong", true);
        }
        other => {
            found.leave_open(format!("{other:?}"));
        }
    }
    Ok(found)
}

fn gather(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = ProbeProgram::new()
        .input("x", "fp16", &SHAPE)
        .op("fp16", &SHAPE, "h", "add(x = x, y = x)")
        .ints("indices", &(0..32).map(|i| (i * 5) % 64).collect::<Vec<_>>())
        .int("axis", 3)
        .op("fp16", &[1, 64, 1, 32], "r", "gather(axis = axis, indices = indices, x = h)")
        .output(&["r"]);
    match dut.judge(&program, &[ramp(ELEMENTS)])? {
        Judgment::Right(_) => {
            found.value("gather_last_wrong", false);
        }
        Judgment::Wrong(most) => {
            found.raw("off by", json!(most)).value("gather_last_wrong", true);
        }
        other => {
            found.leave_open(format!("{other:?}"));
        }
    }
    Ok(found)
}
