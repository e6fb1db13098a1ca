//! Surfaces: order, sizes, rows.

use ferrane_device::{Port, Result};
use serde_json::json;

use crate::dut::{Attempt, DeviceUnderTest, Judgment, ROOMY, failure, plain, ramp};
use crate::measurements::Measurements;
use crate::probe::Expectation::{AtMost, Is};
use crate::probe::{Probe, ProbeCost, claim};
use crate::program::ProbeProgram;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "port-order",
        question: "In what order does the compiled program have its inputs and outputs?",
        experiments: &["O"],
        cost: ProbeCost::Cheap,
        values: &["input_order", "output_order"],
        claims: &[
            claim("C147", "input_order", Is("alphabetical")),
            claim("C148", "input_order", Is("ascending-size")),
            claim("C150", "output_order", Is("alphabetical")),
            claim("C151", "output_order", Is("descending-size")),
        ],
        run: order,
    },
    Probe {
        name: "several-inputs",
        question: "May a program have several inputs, and of which rank?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["several_inputs", "max_rank_of_several_inputs"],
        claims: &[
            claim("C028", "max_rank_of_several_inputs", AtMost(3)),
            claim("C152", "several_inputs", Is("false")),
            claim("C153", "several_inputs", Is("true")),
        ],
        run: several,
    },
    Probe {
        name: "uniform-surfaces",
        question: "Must the surfaces of all inputs, or of all outputs, be of one size?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["uniform_inputs", "uniform_outputs"],
        claims: &[claim("C145", "uniform_inputs", Is("true")), claim("C146", "uniform_outputs", Is("true"))],
        run: uniform,
    },
    Probe {
        name: "minimum-surface",
        question: "How small may a surface be, and must its size be a multiple of something?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["min_surface", "surface_multiple"],
        claims: &[
            claim("C132", "min_surface", Is("49152")),
            claim("C133", "min_surface", Is("16384")),
            claim("C134", "min_surface", Is("2048")),
            claim("C135", "min_surface", AtMost(4096)),
            claim("C143", "surface_multiple", Is("128")),
            claim("C144", "surface_multiple", Is("1")),
        ],
        run: minimum,
    },
    Probe {
        name: "row-alignment",
        question: "To how many bytes are the rows of a surface padded, and are they where the attributes say?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["row_alignment", "width_multiple"],
        claims: &[
            claim("C139", "width_multiple", Is("32")),
            claim("C141", "row_alignment", Is("1")),
            claim("C142", "row_alignment", Is("64")),
        ],
        run: rows,
    },
];

/// Three ports whose order by declaration, name, ascending and descending size is another each
/// time.
const NAMES: [(&str, usize); 3] = [("k", 96), ("a", 32), ("z", 64)];

fn order(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let mut program = ProbeProgram::new();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (name, width) in NAMES {
        let shape = [1, 64, 1, width];
        let (from, to) = (format!("{name}_in"), format!("{name}_out"));
        program = program.input(&from, "fp16", &shape).op("fp16", &shape, &to, &format!("add(x = {from}, y = {from})"));
        inputs.push(ramp(64 * width));
        outputs.push(to);
    }
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    let program = program.output(&outputs);
    let executable = dut.compile(&program)?.load()?;
    let Some(procedure) = executable.procedures().first() else {
        found.leave_open("the program has no procedure");
        return Ok(found);
    };
    let base = dut.device().profile().clone();
    let bases = [base.input_order.value.to_string(), base.output_order.value.to_string()];
    let sides = [("input_order", &procedure.inputs), ("output_order", &procedure.outputs)];
    for ((key, ports), base) in sides.into_iter().zip(bases) {
        let seen: Vec<&str> = ports.iter().filter_map(|p| p.name.split('_').next()).collect();
        found.raw(key, json!(ports.iter().map(|p| &p.name).collect::<Vec<_>>()));
        match word(&seen) {
            // An order that only the attributes report may be that of the declaration.
            Some("declaration") if base == "attributes" => found.value(key, "attributes"),
            Some(word) => found.value(key, word),
            None => found.leave_open(format!("{key}: {} is none of the orders that are claimed", seen.join(", "))),
        };
    }
    // Whether the names are right shows in the contents: each output is twice its input.
    match dut.judge(&program, &inputs)? {
        Judgment::Right(_) => {}
        Judgment::Failed(error) => {
            found.raw("evaluation", error.to_string());
        }
        other => {
            found.leave_open(format!("the outputs do not hold what their names say: {other:?}"));
        }
    }
    Ok(found)
}

fn word(seen: &[&str]) -> Option<&'static str> {
    match seen {
        ["k", "a", "z"] => Some("declaration"),
        ["a", "k", "z"] => Some("alphabetical"),
        ["a", "z", "k"] => Some("ascending-size"),
        ["k", "z", "a"] => Some("descending-size"),
        _ => None,
    }
}

/// p + q, of a rank.
fn sum(rank: usize) -> ProbeProgram {
    let mut shape = vec![1; rank];
    shape[rank - 2..].copy_from_slice(&[64, 64]);
    ProbeProgram::new()
        .input("p", "fp16", &shape)
        .input("q", "fp16", &shape)
        .op("fp16", &shape, "r", "add(x = p, y = q)")
        .output(&["r"])
}

fn several(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    for rank in (2..=5).rev() {
        match dut.judge(&sum(rank), &[ramp(4096), ramp(4096)])? {
            Judgment::Right(_) => {
                found.value("several_inputs", true).value("max_rank_of_several_inputs", rank);
                return Ok(found);
            }
            other => {
                found.raw(&format!("rank {rank}"), format!("{other:?}"));
            }
        }
    }
    found.value("several_inputs", false);
    Ok(found)
}

fn uniform(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let shape = [1, 64, 64];
    let program = ProbeProgram::new()
        .input("p", "fp16", &shape)
        .input("q", "fp16", &shape)
        .op("fp16", &shape, "r", "add(x = p, y = q)")
        .op("fp16", &shape, "s", "sub(x = p, y = q)")
        .output(&["r", "s"]);
    let executable = dut.compile(&program)?.load()?;
    let inputs = [ramp(4096), ramp(4096)];
    let mut runs = |larger: &str| {
        let size = |port: &Port, _| if port.name == larger { 2 * ROOMY } else { ROOMY };
        let bound = dut.bind_with(executable.clone(), &program, size)?;
        match bound.run(&inputs) {
            Ok(_) => Ok(true),
            Err(error) => {
                found.raw(&format!("larger {larger}"), failure(error)?.to_string());
                Ok(false)
            }
        }
    };
    if !runs("none")? {
        found.leave_open("two inputs and two outputs do not run even with surfaces of one size");
        return Ok(found);
    }
    let (inputs, outputs) = (runs("q")?, runs("s")?);
    found.value("uniform_inputs", !inputs).value("uniform_outputs", !outputs);
    Ok(found)
}

fn minimum(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let shape = [1, 1, 1, 32];
    let program =
        ProbeProgram::new().input("x", "fp16", &shape).op("fp16", &shape, "r", "add(x = x, y = x)").output(&["r"]);
    let executable = dut.compile(&program)?.load()?;
    let values = [ramp(32)];
    let fits = |bytes: usize| {
        let bound = dut.bind_with(executable.clone(), &program, |_, _| bytes)?;
        match bound.run(&values) {
            Ok(_) => Ok(true),
            Err(error) => failure(error).map(|_| false),
        }
    };
    const STEP: usize = 64;
    if !fits(ROOMY)? {
        found.leave_open(format!("surfaces of {ROOMY} bytes fail, too"));
        return Ok(found);
    }
    let least = if fits(STEP)? {
        0
    } else {
        // Between what fails and what works.
        let (mut fails, mut works) = (1, ROOMY / STEP);
        while works - fails > 1 {
            let middle = fails.midpoint(works);
            if fits(middle * STEP)? { works = middle } else { fails = middle }
        }
        works * STEP
    };
    let odd = fits(ROOMY + STEP)?;
    found.value("min_surface", least).value("surface_multiple", if odd { 1 } else { 2 * STEP });
    Ok(found)
}

fn rows(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let mut strides = Vec::new();
    // Rows of 66 and 96 bytes distinguish the powers of two up to a page.
    for width in [33, 48] {
        let shape = [1, 4, 8, width];
        let program =
            ProbeProgram::new().input("x", "fp16", &shape).op("fp16", &shape, "r", "add(x = x, y = x)").output(&["r"]);
        let executable = dut.compile(&program)?.load()?;
        let stride = executable.port("x")?.layout.strides.get(2).copied().unwrap_or(0);
        found.raw(&format!("stride of {} bytes", 2 * width), stride);
        strides.push((2 * width, stride));
    }
    let alignment = (0..15).map(|n| 1usize << n).find(|a| strides.iter().all(|(w, s)| w.next_multiple_of(*a) == *s));
    match alignment {
        Some(alignment) => {
            found.value("row_alignment", alignment);
        }
        None => {
            found.leave_open("the strides are those of no alignment");
        }
    }
    let shape = [1, 4, 8, 33];
    let program =
        ProbeProgram::new().input("x", "fp16", &shape).op("fp16", &shape, "r", "add(x = x, y = x)").output(&["r"]);
    match dut.judge(&program, &[ramp(4 * 8 * 33)])? {
        Judgment::Right(_) => {
            found.value("width_multiple", 1);
        }
        Judgment::Wrong(most) => {
            found.raw("off by", json!(most)).value("width_multiple", 32);
        }
        other => {
            found.leave_open(format!("rows of 33 columns: {other:?}"));
        }
    }
    // So that a machine where nothing runs is not treated as one with odd rows.
    if !matches!(dut.attempt(&plain(), &[ramp(4096)])?, Attempt::Ran(_)) {
        found.leave_open("rows of 64 columns do not run, either");
    }
    Ok(found)
}
