//! The checker over programs that are known to run or to fail, and over every program of the test
//! data.

use std::path::{Path, PathBuf};

use ferrane_diag::{Code, Severity};
use ferrane_machine::{CheckOptions, Finding, InputBounds, Profile, check};
use ferrane_mil::package::{self, Opened};
use ferrane_mil::{Program, Strictness};
use ferrane_testdata::Suite;

use crate::checker::{clean, findings, profile, told};

fn no_errors(findings: Vec<Finding>) -> Result<(), String> {
    let errors: Vec<Finding> = findings.into_iter().filter(|f| f.severity == Severity::Error).collect();
    if errors.is_empty() { Ok(()) } else { Err(told(&errors)) }
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path()) {
            if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            } else if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Reads a MIL text. Published texts come without their blob files, and some have wrong types.
fn text(path: &Path) -> Result<Program, String> {
    let options = ferrane_mil::Options {
        missing: ferrane_mil::Missing::Keep,
        strictness: Strictness::Lenient,
        types: ferrane_mil::Types::Trust,
    };
    package::open_with(path, options).map(|o: Opened| o.program).map_err(|e| e.to_string())
}

fn suite(name: &str, folder: &str, extension: &str, case: impl Fn(&Path) -> Result<(), String>) {
    let Some(mut suite) = Suite::open(name, folder) else { return };
    for path in files(suite.folder(), extension) {
        let id = path.strip_prefix(suite.folder()).unwrap_or(&path).display().to_string();
        suite.case(&id, case(&path));
    }
    suite.finish();
}

#[test]
fn offline_compiled_programs_have_no_errors_on_h16() {
    let machines: Vec<String> = ferrane_machine::Profile::names()
        .into_iter()
        .filter(|n| profile(n).subject.family == "h16" && (n.ends_with("-inmem") || n.ends_with("-e5rt")))
        .collect();
    suite("checker-h16", "mil/mil_infer", "mil", |path| {
        let program = text(path)?;
        machines.iter().try_for_each(|m| no_errors(findings(&program, m)).map_err(|e| format!("{m}: {e}")))
    });
}

#[test]
fn the_static_programs_have_no_errors_in_memory() {
    suite("checker-static", "mil/espresso", "mil", |path| {
        let program = text(path)?;
        clean(findings(&program, "m4-macos15-inmem"))?;
        for machine in Profile::names().iter().filter(|n| n.ends_with("-inmem")) {
            let subject = profile(machine).subject;
            let opset = program.functions[0].opset_tag().to_string();
            let known = profile(machine).opsets.value.contains(&opset);
            // macOS 14 does not support ios18.
            if known && (subject.chip == "m3-max" || subject.family == "h16" || subject.family == "h17") {
                no_errors(findings(&program, machine)).map_err(|e| format!("{machine}: {e}"))?;
            }
        }
        let old = findings(&program, "m1-macos26-inmem");
        if !old.iter().any(|f| f.code == Code(401)) {
            return Err(format!("M1 accepts the dialect: {}", told(&old)));
        }
        Ok(())
    });
}

#[test]
fn packages_have_no_errors_through_core_ml() {
    let machines: Vec<String> = Profile::names().into_iter().filter(|n| n.ends_with("-coreml")).collect();
    suite("checker-packages", "mil", "mlpackage", |path| {
        let opened = package::open(path).map_err(|e| e.to_string())?;
        machines.iter().try_for_each(|m| no_errors(findings(&opened.program, m)).map_err(|e| format!("{m}: {e}")))
    });
}

#[test]
fn every_program_is_checked_for_every_machine() {
    suite("checker-all", "mil", "mil", |path| {
        // Some published texts are not MIL.
        let Ok(program) = text(path) else { return Ok(()) };
        let inputs = program.functions.iter().flat_map(|f| f.inputs.iter().map(|v| f.value(*v).name.clone()));
        let bounds: Vec<_> = inputs.map(|name| InputBounds { name, low: -1.0, high: 1.0 }).collect();
        for name in Profile::names() {
            for strict in [false, true] {
                let options = CheckOptions { strict, bounds: bounds.clone(), ..CheckOptions::default() };
                for finding in check(&program, &profile(&name), &options) {
                    if finding.message.is_empty() || finding.claims.is_empty() {
                        return Err(format!("{name}: {finding:?}"));
                    }
                }
            }
        }
        Ok(())
    });
}

/// A blob file with one record of 16 fp16 elements, whose header has the size and payload offset
/// that published benchmarks write (weight-blob §4).
fn odd_blob() -> Vec<u8> {
    let mut file = vec![0u8; 128 + 32];
    (file[0], file[4]) = (1, 2);
    file[64..68].copy_from_slice(&0xDEAD_BEEFu32.to_le_bytes());
    (file[68], file[74]) = (1, 8);
    file
}

#[test]
fn odd_blob_records_are_refused_by_strict_readers_only() {
    let text = "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n    \
        func main<ios18>(tensor<fp16, [1, 16]> a) {\n        \
        tensor<fp16, [1, 16]> w = const()[name = string(\"w\"), val = tensor<fp16, [1, 16]>(BLOBFILE(path = string(\"@model_path/weights/w.bin\"), offset = uint64(64)))];\n        \
        tensor<fp16, [1, 16]> z = add(x = a, y = w)[name = string(\"z\")];\n    } -> (z);\n}\n";
    let mut weights = ferrane_mil::Weights::new();
    weights.open_file("@model_path/weights/w.bin", odd_blob());
    let options = ferrane_mil::Options { strictness: Strictness::Lenient, ..ferrane_mil::Options::default() };
    let program = ferrane_mil::parse_with(text, &weights, options).program.expect("the lenient reader takes it");
    let has = |name: &str| findings(&program, name).iter().any(|f| f.code == Code(445) && f.op.is_some());
    assert!(has("m4-macos15-inmem") && !has("m4-macos26-inmem"));
}

#[test]
fn programs_of_one_process_share_its_budget() {
    let text = "program(1.3)\n{\n    func main<ios18>(tensor<fp16, [1, 64, 1, 64]> a) {\n        \
        tensor<fp16, [1, 64, 1, 64]> z = relu(x = a)[name = string(\"z\")];\n    } -> (z);\n}\n";
    let program = ferrane_mil::parse(text, &ferrane_mil::Weights::new()).expect("reads");
    let has = |programs| {
        let options = CheckOptions { programs, ..CheckOptions::default() };
        check(&program, &profile("m4-macos15-inmem"), &options).iter().any(|f| f.code == Code(499))
    };
    assert!(has(120) && !has(119) && !has(0));
}

#[test]
fn a_rule_that_fires_often_is_told_so_often() {
    let ops: String = (0..1000)
        .map(|i| {
            format!("        tensor<fp16, [1, 64, 1, 64]> v{} = tan(x = v{i})[name = string(\"v{}\")];\n", i + 1, i + 1)
        })
        .collect();
    let text = format!(
        "program(1.3)\n{{\n    func main<ios18>(tensor<fp16, [1, 64, 1, 64]> v0) {{\n{ops}    }} -> (v1000);\n}}\n"
    );
    let program = ferrane_mil::parse(text, &ferrane_mil::Weights::new()).expect("reads");
    let found = findings(&program, "m4-macos15-inmem");
    let refused: Vec<&Finding> = found.iter().filter(|f| f.code == Code(411)).collect();
    assert_eq!(refused.len(), 200);
    assert!(refused[199].message.ends_with("(and 800 more like it)"), "{}", refused[199].message);
}

#[test]
fn weights_that_do_not_stay_on_the_chip_are_told() {
    let of = |channels: usize| {
        let text = format!(
            "program(1.3)\n{{\n    func main<ios18>(tensor<fp16, [1, {channels}, 1, 64]> a) {{\n        \
             tensor<fp16, [4096, {channels}, 1, 1]> w = const()[name = string(\"w\"), val = tensor<fp16, [4096, {channels}, 1, 1]>(BLOBFILE(path = string(\"@model_path/weights/w.bin\"), offset = uint64(64)))];\n        \
             string pt = const()[name = string(\"pt\"), val = string(\"valid\")];\n        \
             tensor<fp16, [1, 4096, 1, 64]> z = conv(pad_type = pt, weight = w, x = a)[name = string(\"z\")];\n    }} -> (z);\n}}\n"
        );
        let options = ferrane_mil::Options { missing: ferrane_mil::Missing::Keep, ..ferrane_mil::Options::default() };
        let program = ferrane_mil::parse_with(text, &ferrane_mil::Weights::new(), options).program.expect("reads");
        findings(&program, "m4-macos15-inmem").iter().any(|f| f.code == Code(498))
    };
    // 4096 · 5000 · 2 bytes are 41 MB, 4096 · 1000 · 2 are 8 MB.
    assert!(of(5000) && !of(1000));
}
