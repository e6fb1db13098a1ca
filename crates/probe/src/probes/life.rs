//! The life of a program: reloads, repetitions, budgets, ops that poison the process.

use std::path::PathBuf;

use ferrane_device::{ErrorKind, Result};
use half::f16;
use serde_json::json;

use crate::dut::{Attempt, DeviceUnderTest, ELEMENTS, Judgment, SHAPE, plain, ramp};
use crate::measurements::Measurements;
use crate::probe::Expectation::{AtLeast, AtMost, Is, Not};
use crate::probe::{Probe, ProbeCost, claim};
use crate::program::ProbeProgram;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "deterministic",
        question: "Does the same program give the same bits, over evaluations and compiles?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["deterministic"],
        claims: &[claim("C207", "deterministic", Is("true"))],
        run: deterministic,
    },
    Probe {
        name: "weights-reload",
        question: "Do weight files that are overwritten between unload and load change the results?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["weights_reload"],
        claims: &[claim("C161", "weights_reload", Is("false")), claim("C162", "weights_reload", Is("true"))],
        run: reload,
    },
    Probe {
        name: "tile",
        question: "Does `tile` run, and does everything still run after it?",
        experiments: &[],
        cost: ProbeCost::Risky,
        values: &["op.tile"],
        claims: &[claim("C068", "op.tile", Is("poisons")), claim("C069", "op.tile", Not("poisons"))],
        run: tile,
    },
    Probe {
        name: "loaded-programs",
        question: "How many programs may be loaded at once?",
        experiments: &[],
        cost: ProbeCost::Risky,
        values: &["max_loaded"],
        claims: &[
            claim("C158", "max_loaded", AtMost(64)),
            claim("C159", "max_loaded", AtLeast(226)),
            claim("C160", "max_loaded", Is("128")),
        ],
        run: loaded,
    },
    Probe {
        name: "compile-budget",
        question: "How many programs may a process compile, and are compiles given back?",
        experiments: &[],
        cost: ProbeCost::Risky,
        values: &["compile_budget", "budget_returns"],
        claims: &[
            claim("C154", "compile_budget", AtMost(132)),
            claim("C155", "compile_budget", AtLeast(873)),
            claim("C157", "compile_budget", AtLeast(169)),
        ],
        run: budget,
    },
];

/// Programs that are compiled or loaded at most: twice the largest number that is claimed as a
/// limit of this kind, and some.
const MOST: usize = 500;

fn deterministic(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let shape = [1, 64, 64];
    let program = ProbeProgram::new()
        .input("p", "fp16", &shape)
        .input("q", "fp16", &shape)
        .flag("no", false)
        .int("axis", 2)
        .op("fp16", &shape, "m", "matmul(transpose_x = no, transpose_y = no, x = p, y = q)")
        .op("fp16", &shape, "r", "softmax(axis = axis, x = m)")
        .output(&["r"]);
    let inputs = [ramp(ELEMENTS), ramp(ELEMENTS).into_iter().rev().collect()];
    let mut first: Option<Vec<u32>> = None;
    let mut same = true;
    for _ in 0..2 {
        let executable = dut.compile(&program)?.load()?;
        let bound = dut.bind(executable, &program)?;
        for _ in 0..8 {
            let bits = bound.run(&inputs)?.concat().iter().map(|v| v.to_bits()).collect();
            same &= first.get_or_insert_with(|| Vec::clone(&bits)) == &bits;
        }
    }
    found.value("deterministic", same);
    Ok(found)
}

/// Where a program's files are staged: under the name of its key, in the temporary folder or in one
/// folder of it.
fn staged(key: &str) -> Option<PathBuf> {
    let root = std::env::temp_dir();
    let own = root.join(format!("ferrane-emulator-{}", std::process::id()));
    [root, own].into_iter().map(|folder| folder.join(key)).find(|folder| folder.is_dir())
}

fn reload(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = ProbeProgram::new()
        .input("x", "fp16", &SHAPE)
        .weight("factor", &[1, 64, 1, 1], &[2.0; 64])
        .op("fp16", &SHAPE, "r", "mul(x = x, y = factor)")
        .output(&["r"]);
    let artifact = dut.compile(&program)?;
    let bound = dut.bind(artifact.load()?, &program)?;
    let inputs = [vec![1.5; ELEMENTS]];
    let before = bound.run(&inputs)?.concat();
    if before.first() != Some(&3.0) {
        found.leave_open(format!("1.5 times a weight of 2 is {:?}", before.first()));
        return Ok(found);
    }
    let Some(folder) = staged(artifact.key()) else {
        found.leave_open("the device stages no files");
        return Ok(found);
    };
    let file = folder.join("weights").join("factor.bin");
    let overwrite = || {
        let mut bytes = std::fs::read(&file)?;
        let payload = 2 * 64;
        // The payload is the end of the file but for padding: each 2 becomes a 5.
        let (two, five) = (f16::from_f32(2.0).to_le_bytes(), f16::from_f32(5.0).to_le_bytes());
        let start = bytes.windows(payload).position(|w| w.chunks_exact(2).all(|c| c == two));
        if let Some(start) = start {
            bytes[start..start + payload].chunks_exact_mut(2).for_each(|c| c.copy_from_slice(&five));
        }
        std::fs::write(&file, bytes)?;
        Ok::<bool, std::io::Error>(start.is_some())
    };
    match overwrite() {
        Ok(true) => {}
        Ok(false) => {
            found.leave_open("the weight file does not hold the weights");
        }
        Err(error) => {
            found.leave_open(format!("{}: {error}", file.display()));
        }
    }
    if found.open.is_some() {
        return Ok(found);
    }
    bound.executable.reload()?;
    let after = bound.run(&inputs)?.concat();
    found.raw("1.5 times the weight", json!([before.first(), after.first()]));
    match after.first() {
        Some(3.0) => {
            found.value("weights_reload", false);
        }
        Some(7.5) => {
            found.value("weights_reload", true);
        }
        other => {
            found.leave_open(format!("after the reload it is {other:?}"));
        }
    }
    Ok(found)
}

fn tile(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = ProbeProgram::new()
        .input("x", "fp16", &SHAPE)
        .op("fp16", &SHAPE, "h", "add(x = x, y = x)")
        .ints("reps", &[1, 1, 1, 2])
        .op("fp16", &[1, 64, 1, 128], "r", "tile(reps = reps, x = h)")
        .output(&["r"]);
    let inputs = [ramp(ELEMENTS)];
    let first = dut.judge(&program, &inputs)?;
    found.raw("tile", format!("{first:?}"));
    // Whether another program still runs shows whether the process is poisoned.
    let after = dut.attempt(&plain(), &inputs)?;
    let poisoned = !matches!(after, Attempt::Ran(_));
    match first {
        Judgment::Refused(_) => {
            found.value("op.tile", "refused");
        }
        Judgment::Failed(_) if !poisoned => {
            found.value("op.tile", "fails-at-evaluation");
        }
        Judgment::Right(_) if !poisoned => {
            found.value("op.tile", "native");
        }
        _ if poisoned => {
            found.raw("an addition after it", format!("{after:?}")).value("op.tile", "poisons");
        }
        other => {
            found.leave_open(format!("{other:?}"));
        }
    }
    dut.reopen()?;
    Ok(found)
}

fn loaded(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let artifact = dut.compile(&plain())?;
    let mut held = Vec::new();
    while held.len() < MOST && !dut.is_stopped() {
        match artifact.load() {
            Ok(executable) => held.push(executable),
            Err(error) => {
                found.raw("refusal", error.to_string()).value("max_loaded", held.len());
                return Ok(found);
            }
        }
    }
    found.raw("loaded", held.len());
    if held.len() == MOST {
        found.value("max_loaded", "none");
    }
    Ok(found)
}

fn budget(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = |i: usize| {
        let constant = 1.0 + i as f32 / 1024.0;
        ProbeProgram::new()
            .input("x", "fp16", &SHAPE)
            .half("c0", constant)
            .op("fp16", &SHAPE, "r", "add(x = x, y = c0)")
            .output(&["r"])
    };
    let mut held = Vec::new();
    let mut refusal = None;
    while held.len() < MOST && !dut.is_stopped() && refusal.is_none() {
        match dut.compile(&program(held.len())) {
            Ok(artifact) => held.push(artifact),
            // The engine has no words of its own for a spent budget.
            Err(error) if matches!(error.kind(), ErrorKind::CompileBudget | ErrorKind::Unsupported) => {
                refusal = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    let (here, all) = (held.len(), dut.compiles());
    found.raw("compiled here", here).raw("compiled in all", all);
    drop(held);
    match refusal {
        Some(error) => {
            found.raw("refusal", error.to_string());
            // Where compiles are given back those of other probes do not count any more.
            let returned = dut.compile(&program(MOST)).is_ok();
            found.value("budget_returns", returned).value("compile_budget", if returned { here } else { all });
        }
        None if here == MOST => {
            found.value("compile_budget", "none");
        }
        None => {
            found.leave_open("stopped");
        }
    }
    Ok(found)
}
