//! Every compiled program of the test data: it runs and agrees with its MIL program, or says which
//! register is not known.

use std::path::{Path, PathBuf};

use ferrane_device::Device;
use ferrane_emulator::{Emulator, Numerics};
use ferrane_hwx::Hwx;
use ferrane_hwx::describe::{HwxReport, NamedLocation};
use ferrane_mil::weights::blob;
use ferrane_mil::{DataType, Program, Weights, parse};
use ferrane_testdata::Suite;

use super::lifted::{Lifted, lift};
use super::{inputs, interpreter, names_a_register, options, run, weighted};
use crate::harness::{Tensor, run_on};

/// All compiled programs under a folder.
pub fn programs(suite: &Suite) -> Vec<(String, Vec<u8>)> {
    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|e| e.path()) {
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    files(suite.folder(), &mut found);
    found.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("test data can be read");
        let name = path.strip_prefix(suite.folder()).expect("under the folder").to_string_lossy().into_owned();
        let magic = [[0xce, 0xfa, 0xef, 0xbe], [0xcf, 0xfa, 0xed, 0xfe]];
        magic.iter().any(|m| bytes.starts_with(m)).then_some((name, bytes))
    };
    found.into_iter().filter_map(read).collect()
}

/// What a program is an example of, if everything about that is known: convolutions with weights of
/// the file and copies, two sources element by element, functions.
fn kind(report: &HwxReport) -> Option<(&'static str, &'static str)> {
    let generation = report.generation.filter(|g| ["h13", "h16", "h17"].contains(g))?;
    let tasks: Vec<_> = report.texts.iter().flat_map(|t| &t.tasks).collect();
    let in_file = |place: &NamedLocation| matches!(place, NamedLocation::Buffer { name, .. } if name.starts_with("__TEXT") || name.starts_with("__KERN"));
    let all = |words: &[&str]| tasks.iter().all(|t| words.iter().any(|w| t.summary.starts_with(w)));
    let constant = tasks.iter().all(|t| t.kernel.as_ref().is_none_or(|k| k.place.as_ref().is_some_and(in_file)));
    if all(&["copy"]) || !constant {
        return None;
    }
    let kinds = [
        ("convolution", &["1×1 convolution", "copy"][..]),
        ("element-wise", &["element-wise"]),
        ("function", &["function of each element"]),
    ];
    kinds.iter().find(|(_, words)| all(words)).map(|(kind, _)| (generation, *kind))
}

/// The text that a file was compiled from, with these weights in its order, if the test data have
/// it: in the folder `mil` next to `hwx`, under the same name up to its last `_`.
fn source(suite: &Suite, name: &str, weights: &[Option<Tensor>]) -> Option<Program> {
    let path = suite.folder().parent()?.join("mil").join(name).with_extension("");
    let stem = path.file_name()?.to_str()?;
    let stems = [Some(stem), stem.rsplit_once('_').map(|(stem, _)| stem)];
    let text = stems
        .iter()
        .flatten()
        .find_map(|s| std::fs::read_to_string(path.with_file_name(s).with_extension("mil")).ok())?;
    let (mut files, mut writer) = (Weights::default(), blob::Writer::new());
    for tensor in weights.iter().flatten() {
        writer.add(DataType::Fp16, &tensor.to_bytes(), tensor.values.len());
    }
    files.open_file("@model_path/weights/weight.bin", writer.finish());
    Some(parse(&text, &files).unwrap_or_else(|e| panic!("{name}: its text: {e}")))
}

/// Runs a program on these inputs, each by its name, or all in their order.
fn wanted(
    numerics: Numerics,
    program: &Program,
    inputs: &[(String, Tensor)],
    by_name: bool,
) -> Result<Vec<(String, Tensor)>, String> {
    let main = program.functions.first().ok_or("no function")?;
    let name = |id: &ferrane_mil::ValueId| main.value(*id).name.clone();
    let given = |(i, id)| match by_name {
        true => inputs.iter().find(|(n, _)| *n == name(id)).map(|(_, t)| t.clone()),
        false => inputs.get::<usize>(i).map(|(_, t)| t.clone()),
    };
    let tensors: Option<Vec<Tensor>> = main.inputs.iter().enumerate().map(given).collect();
    let device = Device::new(Emulator::new(options(numerics)));
    let found = run_on(&device, program, &tensors.ok_or("inputs of other names")?).map_err(|e| e.to_string())?;
    Ok(main.body().outputs.iter().map(name).zip(found).collect())
}

/// How far what a program gave may be from what is wanted, in steps of fp16.
fn compare(found: &[(String, Tensor)], wanted: &[(String, Tensor)], by_name: bool, steps: f64) -> Result<(), String> {
    for (i, (output, found)) in found.iter().enumerate() {
        let other = if by_name { wanted.iter().find(|(name, _)| name == output) } else { wanted.get(i) };
        let (_, wanted) = other.ok_or_else(|| format!("{output}: nothing to compare it with"))?;
        if found.shape.iter().product::<usize>() != wanted.shape.iter().product::<usize>() {
            return Err(format!("{output}: {:?} and not {:?}", found.shape, wanted.shape));
        }
        if wanted.values.iter().all(|v| *v == 0.0) || wanted.values.iter().any(|v| !v.is_finite()) {
            return Err(format!("{output}: nothing is compared where all is 0 or not finite"));
        }
        let apart = steps_apart(found, wanted);
        if apart > steps {
            return Err(format!("{output}: the results differ by {apart} fp16 steps, {steps} allowed"));
        }
    }
    Ok(())
}

/// The largest difference in steps of fp16 of the largest of what is wanted.
fn steps_apart(found: &Tensor, wanted: &Tensor) -> f64 {
    let largest = wanted.values.iter().fold(0f64, |m, v| m.max(v.abs()));
    let step = 2f64.powi(largest.max(2f64.powi(-14)).log2().floor() as i32 - 10);
    found
        .values
        .iter()
        .zip(&wanted.values)
        .map(|(f, w)| if f == w { 0.0 } else { (f - w).abs() / step })
        .fold(0.0, f64::max)
}

#[test]
fn samples_agree_with_their_programs_or_say_what_is_not_known() {
    let Some(mut suite) = Suite::open("hwx-run", "hwx") else { return };
    // By generation and kind: whether one of them runs.
    let mut kinds = std::collections::BTreeMap::new();
    for (name, bytes) in programs(&suite) {
        let hwx = match Hwx::read(&bytes) {
            Ok(hwx) => hwx,
            Err(e) => {
                suite.case(&name, Err(e.to_string()));
                continue;
            }
        };
        let (bytes, weights) = weighted(&bytes, 7);
        let refusal = interpreter(Numerics::Hardware, &bytes).err();
        if let Some(error) = refusal {
            if let Some(kind) = kind(&HwxReport::of(&hwx)) {
                kinds.entry(kind).or_insert(false);
            }
            match (names_a_register(&error), source(&suite, &name, &weights)) {
                (true, None) => suite.skip(&name, error.message()),
                (true, Some(_)) => suite.case(&name, Err(format!("refused although its text is there: {error}"))),
                (false, _) => suite.case(&name, Err(format!("a refusal that names no register: {error}"))),
            }
            continue;
        }
        let (lifted, text) = (lift(&bytes, &weights), source(&suite, &name, &weights));
        let has_table = HwxReport::of(&hwx).texts.iter().flat_map(|t| &t.tasks).any(|t| t.table.is_some());
        // A text without a reading of its tasks: functions are the engine's own on both sides,
        // tasks round once more each.
        let steps = lifted.as_ref().map_or(if has_table { 2.0 } else { 0.0 }, |l| l.steps);
        let programs: Vec<(bool, Program)> = [(false, lifted.map(|l: Lifted| l.program)), (true, text)]
            .into_iter()
            .filter_map(|(by_name, program)| Some((by_name, program?)))
            .collect();
        if programs.is_empty() {
            suite.skip(&name, "it runs, but this test has no MIL program to compare it with");
            continue;
        }
        let check = || {
            for (numerics, steps) in [
                (Numerics::Hardware, steps),
                // Sums of fp32 associate by how a plan lays operands out: at most the last place
                // between tasks. A table is up to 0.0034 away from its function (numerics §6.1),
                // seven steps of what is below 1.
                (Numerics::Fast, steps + if has_table { 8.0 } else { 1.0 }),
            ] {
                let interpreter = interpreter(numerics, &bytes).map_err(|e| e.to_string())?;
                let inputs = inputs(&interpreter, 11);
                let found = run(&interpreter, &inputs).map_err(|e| e.to_string())?;
                for (by_name, program) in &programs {
                    wanted(numerics, program, &inputs, *by_name)
                        .and_then(|wanted| compare(&found, &wanted, *by_name, steps))
                        .map_err(|e| format!("{numerics:?}, {}: {e}", if *by_name { "text" } else { "tasks" }))?;
                }
            }
            Ok(())
        };
        if let Some(kind) = kind(&HwxReport::of(&hwx)) {
            kinds.insert(kind, true);
        }
        suite.case(&name, check());
    }
    for ((generation, kind), runs) in kinds {
        let result = if runs { Ok(()) } else { Err("no program of this kind runs".to_string()) };
        suite.case(&format!("{generation}, {kind}"), result);
    }
    suite.finish();
}
