//! The small networks of `crates/suite/zoo`: what PyTorch computes, the packages that coremltools
//! makes of the same network in fp32 and fp16, and the ONNX model that PyTorch writes.
//! `scripts/zoo/small.py` writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::{Constant, Program, Type, Value, package};
use ferrane_onnx::{Model, Options, Precision};
use ferrane_tensor_io::read;

use crate::values::numbers;

/// The largest difference over the largest output. fp32 programs sum in another order than PyTorch,
/// which is a few units of 2^-24 in each of a dozen layers. In a group norm, coremltools also
/// divides by sqrt(1 + 1e-5): it writes the scale as a `batch_norm` of variance 1.
const FP32: f64 = 2e-5;
/// fp16 programs round every value to 11 bits; PyTorch's own fp16 results are off by up to 8e-3.
const FP16: f64 = 1e-2;
/// What the fp16 package gives under `exact`: only weights and ports are rounded to fp16.
const EXACT: f64 = 5e-3;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo")
}

/// The names of the networks, in order.
fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("the folder of the networks");
    let stem = |path: PathBuf| Some(path.file_name()?.to_str()?.strip_suffix(".npz")?.to_string());
    let mut names: Vec<_> = files.filter_map(|entry| stem(entry.ok()?.path())).collect();
    names.sort();
    names
}

fn constant(npz: &Path, name: &str) -> Result<Constant, String> {
    read(npz, name).map(|tensor| tensor.to_constant()).map_err(|e| e.to_string())
}

/// The recorded input of a port, rounded to the port's type.
fn input(npz: &Path, port: &Value) -> Result<(String, Constant), String> {
    let recorded = read(npz, &format!("input.{}", port.name)).map_err(|e| e.to_string())?;
    let tensor = recorded.cast(port.ty.dtype().ok_or("an input is no tensor")?).map_err(|e| e.to_string())?;
    Ok((port.name.clone(), tensor.to_constant()))
}

/// The worst difference to PyTorch's results, over the largest magnitude of each.
fn worst(program: &Program, npz: &Path, numerics: Numerics) -> Result<f64, String> {
    let main = program.functions.first().ok_or("no function")?;
    let inputs = main.inputs.iter().map(|&id| input(npz, main.value(id))).collect::<Result<Vec<_>, String>>()?;
    let mut options = EmulatorOptions::default();
    options.numerics = numerics;
    let results = Emulator::new(options).call(program, &main.name, &inputs, &mut BTreeMap::new());
    let mut worst = 0.0f64;
    for (name, result) in results.map_err(|e| e.to_string())? {
        let wanted = constant(npz, &format!("output.{name}"))?;
        let shape = |c: &Constant| match c {
            Constant::Tensor { ty, .. } => Type::shape(ty),
            _ => None,
        };
        if shape(&result) != shape(&wanted) {
            return Err(format!("`{name}` has the shape {:?}, PyTorch's {:?}", shape(&result), shape(&wanted)));
        }
        let found = numbers(&result).ok_or("an output holds no numbers")?;
        let wanted = numbers(&wanted).ok_or("a recorded output holds no numbers")?;
        let largest = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let distance = found.iter().zip(&wanted).map(|(f, w)| (f - w).abs());
        // A NaN must not vanish in a maximum.
        let distance = distance.fold(0.0f64, |m, d| if d.is_nan() { f64::INFINITY } else { m.max(d) });
        worst = worst.max(distance / largest);
    }
    Ok(worst)
}

/// Checks every network in the forms that `open` gives for its name: the form, its program, the
/// numerics and the limit.
fn check(open: impl Fn(&str) -> Vec<(String, Result<Program, String>, Numerics, f64)>) {
    let (mut failures, names) = (Vec::new(), names());
    assert!(names.len() >= 19, "only {} networks in {}", names.len(), folder().display());
    for name in &names {
        let npz = folder().join(format!("{name}.npz"));
        for (form, program, numerics, limit) in open(name) {
            match program.and_then(|program| worst(&program, &npz, numerics)) {
                Ok(worst) if worst <= limit => {}
                Ok(worst) => failures.push(format!("{form}, {numerics:?}: off by {worst:.1e}, limit {limit:.0e}")),
                Err(e) => failures.push(format!("{form}, {numerics:?}: {e}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn small_networks_agree_with_pytorch() {
    let kinds = [
        ("fp32", Numerics::Fast, FP32),
        ("fp32", Numerics::Exact, FP32),
        ("fp16", Numerics::Fast, FP16),
        ("fp16", Numerics::Exact, EXACT),
    ];
    check(|name| {
        let opened = |(kind, numerics, limit)| {
            let file = format!("{name}.{kind}.mlpackage");
            let program = package::open(folder().join(&file)).map(|opened| opened.program).map_err(|e| e.to_string());
            (file, program, numerics, limit)
        };
        kinds.map(opened).into()
    });
}

/// The same results and limits as for the packages, so both forms of a network agree, too.
#[test]
fn small_onnx_models_agree_with_pytorch() {
    let kinds = [
        (Precision::Model, Numerics::Fast, FP32),
        (Precision::Model, Numerics::Exact, FP32),
        (Precision::Fp16, Numerics::Fast, FP16),
        (Precision::Fp16, Numerics::Exact, EXACT),
    ];
    check(|name| {
        let file = format!("{name}.onnx");
        let model = Model::open(folder().join(&file)).map_err(|e| e.to_string());
        let lowered = |(precision, numerics, limit)| {
            let lower = |m: &Model| m.to_mil(&Options::default().precision(precision)).map_err(|e| e.to_string());
            let program = model.as_ref().map_err(String::clone).and_then(lower);
            (format!("{file} as {precision:?}"), program, numerics, limit)
        };
        kinds.map(lowered).into()
    });
}
