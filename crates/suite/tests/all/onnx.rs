//! The node tests of the ONNX project on the emulator.

use std::collections::BTreeMap;

use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::Constant;
use ferrane_suite::onnx::{self, CaseTensor, Refusal};
use ferrane_testdata::Suite;

use crate::values::numbers;

/// Relative to the largest element of an output, because sums cancel. The references are fp32, too,
/// and add in another order.
const FP32: f64 = 1e-5;
/// Two units in the last place of fp16: one for the port, one because the reference rounds every
/// intermediate result.
const FP16: f64 = 2e-3;

fn compare(found: &Constant, wanted: &CaseTensor, spread: f64) -> Result<(), String> {
    let shape = found.ty().shape().ok_or("an output is no tensor")?;
    if shape != wanted.shape {
        return Err(format!("`{}` has shape {shape:?}, not {:?}", wanted.name, wanted.shape));
    }
    let values = numbers(found).ok_or("an output holds no numbers")?;
    let modulus = wanted.element.integer().map(|(bits, _)| 2f64.powi(bits as i32));
    let half = wanted.element.name == "FLOAT16";
    let largest = wanted.values.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let bound = 1e-6 + 2.0 * spread + largest * if half { FP16 } else { FP32 };
    for (i, (f, w)) in values.iter().zip(&wanted.values).enumerate() {
        let same = match modulus {
            Some(m) if f.is_finite() => (f - w).rem_euclid(m) == 0.0,
            _ => f == w || f.is_nan() && w.is_nan() || (f - w).abs() <= bound,
        };
        if !same {
            return Err(format!("`{}`: value {i} is {f}, not {w}", wanted.name));
        }
    }
    Ok(())
}

fn run(emulator: &Emulator, case: &onnx::Case) -> Result<Result<(), String>, String> {
    if let Some(t) = case.outputs.iter().find(|t| t.element.mil().is_none()) {
        return Err(format!("MIL programs have no values of type {}", t.element.name));
    }
    // Some of MIL's ops reject tensors without elements, in the registry or when they run.
    let empty = case.inputs.iter().chain(&case.outputs).any(|t| t.values.is_empty());
    let failed = |why: String| if empty { Err(format!("a tensor without elements: {why}")) } else { Ok(Err(why)) };
    let lowered = match onnx::lower(case) {
        Ok(lowered) => lowered,
        Err(Refusal::Unmapped(reason)) => return Err(reason),
        Err(Refusal::Broken(why)) => return failed(why),
    };
    match emulator.call(&lowered.program, "main", &lowered.inputs, &mut BTreeMap::new()) {
        Ok(found) => {
            let mut pairs = found.iter().zip(&case.outputs);
            Ok(pairs.try_for_each(|((_, value), wanted)| compare(value, wanted, case.spread)))
        }
        Err(e) => failed(e.to_string()),
    }
}

#[test]
fn operators_give_the_values_of_onnx() {
    let Some(mut suite) = Suite::open("onnx-node", "onnx_node") else { return };
    let mut options = EmulatorOptions::default();
    options.numerics = Numerics::Exact;
    let emulator = Emulator::new(options);
    for (name, case) in onnx::read(suite.folder()).expect("the index of the cases") {
        match case.and_then(|case| run(&emulator, &case)) {
            Ok(result) => suite.case(&name, result),
            Err(reason) => suite.skip(&name, &reason),
        }
    }
    suite.finish();
}

#[test]
fn the_table_is_sorted_and_says_why_an_operator_is_missing() {
    let names: Vec<&str> = onnx::table::operators().map(|(name, _)| name).collect();
    assert!(names.windows(2).all(|w| w[0] < w[1]), "{names:?}");
    assert!(onnx::table::operators().all(|(_, reason)| reason.is_none_or(|r| !r.is_empty())));
}
