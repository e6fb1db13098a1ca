//! The life of a program: reloads, repetitions, budgets, ops that spoil the process.

use std::path::PathBuf;

use ferrane_device::{ErrorKind, Result};
use half::f16;
use serde_json::json;

use crate::place::{Attempt, ELEMENTS, Judgement, Place, SHAPE, plain, ramp};
use crate::probe::{Cost, Probe, Word, says};
use crate::{Draft, Found};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "deterministic",
        question: "Does the same program give the same bits, over evaluations and compiles?",
        experiments: &[],
        cost: Cost::Light,
        values: &["deterministic"],
        says: &[says("C207", "deterministic", Word::Is("true"))],
        run: deterministic,
    },
    Probe {
        name: "weights-reload",
        question: "Do weight files that are overwritten between unload and load change the results?",
        experiments: &[],
        cost: Cost::Light,
        values: &["weights_reload"],
        says: &[says("C161", "weights_reload", Word::Is("false")), says("C162", "weights_reload", Word::Is("true"))],
        run: reload,
    },
    Probe {
        name: "tile",
        question: "Does `tile` run, and does everything still run after it?",
        experiments: &[],
        cost: Cost::Risky,
        values: &["op.tile"],
        says: &[says("C068", "op.tile", Word::Is("poisons")), says("C069", "op.tile", Word::Not("poisons"))],
        run: tile,
    },
    Probe {
        name: "loaded-programs",
        question: "How many programs may be loaded at once?",
        experiments: &[],
        cost: Cost::Risky,
        values: &["max_loaded"],
        says: &[
            says("C158", "max_loaded", Word::AtMost(64)),
            says("C159", "max_loaded", Word::AtLeast(226)),
            says("C160", "max_loaded", Word::Is("128")),
        ],
        run: loaded,
    },
    Probe {
        name: "compile-budget",
        question: "How many programs may a process compile, and are compiles given back?",
        experiments: &[],
        cost: Cost::Risky,
        values: &["compile_budget", "budget_returns"],
        says: &[
            says("C154", "compile_budget", Word::AtMost(132)),
            says("C155", "compile_budget", Word::AtLeast(873)),
            says("C157", "compile_budget", Word::AtLeast(169)),
        ],
        run: budget,
    },
];

/// Programs that are compiled or loaded at most: twice the largest number that is claimed as a limit of this kind, and some.
const MOST: usize = 500;

fn deterministic(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let shape = [1, 64, 64];
    let draft = Draft::new()
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
        let executable = place.compile(&draft)?.load()?;
        let bound = place.bind(executable, &draft)?;
        for _ in 0..8 {
            let bits = bound.run(&inputs)?.concat().iter().map(|v| v.to_bits()).collect();
            same &= first.get_or_insert_with(|| Vec::clone(&bits)) == &bits;
        }
    }
    found.value("deterministic", same);
    Ok(found)
}

/// Where a program's files are staged: under the name of its key, in the temporary folder or in one folder of it.
fn staged(key: &str) -> Option<PathBuf> {
    let root = std::env::temp_dir();
    let own = root.join(format!("ferrane-emulator-{}", std::process::id()));
    [root, own].into_iter().map(|folder| folder.join(key)).find(|folder| folder.is_dir())
}

fn reload(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let draft = Draft::new()
        .input("x", "fp16", &SHAPE)
        .weight("factor", &[1, 64, 1, 1], &[2.0; 64])
        .op("fp16", &SHAPE, "r", "mul(x = x, y = factor)")
        .output(&["r"]);
    let artifact = place.compile(&draft)?;
    let bound = place.bind(artifact.load()?, &draft)?;
    let inputs = [vec![1.5; ELEMENTS]];
    let before = bound.run(&inputs)?.concat();
    if before.first() != Some(&3.0) {
        found.open(format!("1.5 times a weight of 2 is {:?}", before.first()));
        return Ok(found);
    }
    let Some(folder) = staged(artifact.key()) else {
        found.open("the device stages no files");
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
        Ok(false) => drop(found.open("the weight file does not hold the weights")),
        Err(error) => drop(found.open(format!("{}: {error}", file.display()))),
    }
    if found.why.is_some() {
        return Ok(found);
    }
    bound.executable.reload()?;
    let after = bound.run(&inputs)?.concat();
    found.raw("1.5 times the weight", json!([before.first(), after.first()]));
    match after.first() {
        Some(3.0) => drop(found.value("weights_reload", false)),
        Some(7.5) => drop(found.value("weights_reload", true)),
        other => drop(found.open(format!("after the reload it is {other:?}"))),
    }
    Ok(found)
}

fn tile(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let draft = Draft::new()
        .input("x", "fp16", &SHAPE)
        .op("fp16", &SHAPE, "h", "add(x = x, y = x)")
        .ints("reps", &[1, 1, 1, 2])
        .op("fp16", &[1, 64, 1, 128], "r", "tile(reps = reps, x = h)")
        .output(&["r"]);
    let inputs = [ramp(ELEMENTS)];
    let first = place.judge(&draft, &inputs)?;
    found.raw("tile", format!("{first:?}"));
    // What runs beside it tells whether it spoilt the process.
    let after = place.attempt(&plain(), &inputs)?;
    let spoilt = !matches!(after, Attempt::Ran(_));
    match first {
        Judgement::Refused(_) => drop(found.value("op.tile", "refused")),
        Judgement::Failed(_) if !spoilt => drop(found.value("op.tile", "fails-at-evaluation")),
        Judgement::Right(_) if !spoilt => drop(found.value("op.tile", "native")),
        _ if spoilt => drop(found.raw("an addition after it", format!("{after:?}")).value("op.tile", "poisons")),
        other => drop(found.open(format!("{other:?}"))),
    }
    place.reopen()?;
    Ok(found)
}

fn loaded(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let artifact = place.compile(&plain())?;
    let mut held = Vec::new();
    while held.len() < MOST && !place.is_stopped() {
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

fn budget(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let draft = |i: usize| {
        let constant = 1.0 + i as f32 / 1024.0;
        Draft::new()
            .input("x", "fp16", &SHAPE)
            .half("c0", constant)
            .op("fp16", &SHAPE, "r", "add(x = x, y = c0)")
            .output(&["r"])
    };
    let mut held = Vec::new();
    let mut refusal = None;
    while held.len() < MOST && !place.is_stopped() && refusal.is_none() {
        match place.compile(&draft(held.len())) {
            Ok(artifact) => held.push(artifact),
            // The engine has no words of its own for a spent budget.
            Err(error) if matches!(error.kind(), ErrorKind::CompileBudget | ErrorKind::Unsupported) => {
                refusal = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    let (here, all) = (held.len(), place.compiles());
    found.raw("compiled here", here).raw("compiled in all", all);
    drop(held);
    match refusal {
        Some(error) => {
            found.raw("refusal", error.to_string());
            // Where compiles are given back those of other probes do not count any more.
            let returned = place.compile(&draft(MOST)).is_ok();
            found.value("budget_returns", returned).value("compile_budget", if returned { here } else { all });
        }
        None if here == MOST => drop(found.value("compile_budget", "none")),
        None => drop(found.open("stopped")),
    }
    Ok(found)
}
