//! The node tests of the ONNX project on the emulator.

use std::collections::BTreeMap;
use std::path::Path;

use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::Constant;
use ferrane_onnx::{ElementType, Tensor};
use ferrane_suite::onnx::{self, Refused};
use ferrane_testdata::Suite;

use crate::values::numbers;

/// Relative to the largest element of an output, because sums cancel. The references are fp32, too,
/// and add in another order.
const FP32: f64 = 1e-5;
/// Two units in the last place of fp16: one for the port, one because the reference rounds every
/// intermediate result.
const FP16: f64 = 2e-3;

fn compare(found: &Constant, name: &str, wanted: &Tensor, spread: f64) -> Result<(), String> {
    let shape = found.ty().shape().ok_or("an output is no tensor")?;
    if shape != wanted.shape() {
        return Err(format!("`{name}` has shape {shape:?}, not {:?}", wanted.shape()));
    }
    let values = numbers(found).ok_or("an output holds no numbers")?;
    let modulus = wanted.element().integer().map(|(bits, _)| 2f64.powi(bits.max(32) as i32));
    let half = wanted.element() == ElementType::Float16;
    let largest = wanted.values().iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let bound = 1e-6 + 2.0 * spread + largest * if half { FP16 } else { FP32 };
    for (i, (f, w)) in values.iter().zip(wanted.values()).enumerate() {
        let same = match modulus {
            Some(m) if f.is_finite() => (f - w).rem_euclid(m) == 0.0,
            _ => f == w || f.is_nan() && w.is_nan() || (f - w).abs() <= bound,
        };
        if !same {
            return Err(format!("`{name}`: value {i} is {f}, not {w}"));
        }
    }
    Ok(())
}

fn run(emulator: &Emulator, case: &onnx::Case) -> Result<Result<(), String>, String> {
    // Some of MIL's ops reject tensors without elements, in the registry or when they run.
    let empty = case.inputs.iter().chain(&case.outputs).any(|(_, t)| t.values().is_empty());
    let failed = |why: String| if empty { Err(format!("a tensor without elements: {why}")) } else { Ok(Err(why)) };
    let lowered = match onnx::lower(case) {
        Ok(lowered) => lowered,
        Err(Refused::Unmapped(reason)) => return Err(reason),
        Err(Refused::Broken(why)) => return failed(why),
    };
    if lowered.program.functions[0].ops.iter().any(|op| op.name.starts_with("random_")) {
        return Err("MIL's random ops draw other numbers than the reference".into());
    }
    match emulator.call(&lowered.program, "main", &lowered.inputs, &mut BTreeMap::new()) {
        Ok(found) => {
            let mut pairs = found.iter().zip(&case.outputs);
            Ok(pairs.try_for_each(|((_, value), (name, wanted))| compare(value, name, wanted, case.spread)))
        }
        Err(e) => failed(e.to_string()),
    }
}

fn all(mut suite: Suite, cases: Vec<onnx::Read>) {
    let mut options = EmulatorOptions::default();
    options.numerics = Numerics::Exact;
    let emulator = Emulator::new(options);
    for (name, case) in cases {
        match case.and_then(|case| run(&emulator, &case)) {
            Ok(result) => suite.case(&name, result),
            Err(reason) => suite.skip(&name, &reason),
        }
    }
    suite.finish();
}

#[test]
fn operators_give_the_values_of_onnx() {
    let Some(suite) = Suite::open("onnx-node", "onnx_node") else { return };
    let cases = onnx::read(suite.folder()).expect("the index of the cases");
    all(suite, cases);
}

/// Every node test of an installed `onnx` package: FERRANE_ONNX_NODE names its folder
/// `onnx/backend/test/data/node`.
#[test]
fn node_tests_of_the_package_pass() {
    let Some(folder) = std::env::var_os("FERRANE_ONNX_NODE") else { return };
    let folder = Path::new(&folder);
    let suite = Suite::at("onnx-package", folder);
    all(suite, onnx::read_folders(folder).expect("the folder of the cases"));
}

#[test]
fn every_operator_is_mapped_or_has_a_reason() {
    let reasons: Vec<_> = ferrane_onnx::operators().collect();
    assert!(reasons.len() > 200, "{}", reasons.len());
    assert!(reasons.iter().all(|(name, reason)| !name.is_empty() && reason.is_none_or(|r| !r.is_empty())));
}
