//! Translation validation: a program before and after a pass, on the same inputs, under both
//! tables.

use std::collections::BTreeMap;

use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_mil::passes::{self, Exactness, Pipeline, Report};
use ferrane_mil::{Constant, DataType, MilError, Missing, Program, Weights, parse_with, print};
use ferrane_testdata::Suite;

use crate::harness::{BOTH, Tensor};

pub fn emulator(numerics: Numerics) -> Emulator {
    let mut options = EmulatorOptions::default();
    options.numerics = numerics;
    Emulator::new(options)
}

pub fn pipeline(names: &[&str]) -> Pipeline {
    Pipeline::named(names.iter().copied()).unwrap()
}

pub fn optimize(pipeline: &Pipeline, program: &Program) -> Result<(Program, Report), MilError> {
    pipeline.run(program, &emulator(Numerics::Exact))
}

/// How far a pass may move a result.
#[derive(Clone, Copy, Debug)]
pub enum Within {
    Bits,
    /// This part of the largest result of the output.
    Part(f64),
    /// The same, or of 1 if that is more: for programs whose values are about 1 where they do not
    /// cancel.
    Unit(f64),
}

/// The outputs of `main`, by name.
pub fn call(numerics: Numerics, program: &Program, inputs: &[Tensor]) -> Result<Vec<(String, Constant)>, String> {
    let main = &program.functions[0];
    let named = main.inputs.iter().zip(inputs).map(|(v, t)| {
        let name = main.value(*v).name.clone();
        (name, Constant::raw(t.dtype, &t.shape, &t.to_bytes()))
    });
    let named: Vec<_> = named.collect();
    emulator(numerics).call(program, &main.name, &named, &mut BTreeMap::new()).map_err(|e| e.to_string())
}

pub fn tensor(constant: &Constant) -> Tensor {
    let (ty, weights) = (constant.ty(), Weights::new());
    Tensor::from_bytes(ty.dtype().unwrap(), &ty.shape().unwrap(), constant.bytes(&weights).unwrap())
}

/// The elements at the start of each axis.
fn corner(t: &Tensor, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values = (0..count).map(|mut n| {
        let (mut at, mut stride) = (0, 1);
        for (&small, &large) in shape.iter().zip(&t.shape).rev() {
            at += n % small * stride;
            n /= small;
            stride *= large;
        }
        t.values[at]
    });
    Tensor { dtype: t.dtype, shape: shape.to_vec(), values: values.collect() }
}

/// The outputs of a program on some inputs, under both tables.
pub struct Wanted<'a> {
    inputs: &'a [Tensor],
    outputs: Vec<Vec<(String, Constant)>>,
}

impl<'a> Wanted<'a> {
    pub fn new(program: &Program, inputs: &'a [Tensor]) -> Result<Wanted<'a>, String> {
        let outputs = BOTH.into_iter().map(|n| call(n, program, inputs)).collect::<Result<_, _>>()?;
        Ok(Wanted { inputs, outputs })
    }
}

/// Fails unless both programs give the same, under both tables.
pub fn same(before: &Program, after: &Program, inputs: &[Tensor], within: Within) -> Result<(), String> {
    gives(after, &Wanted::new(before, inputs)?, within)
}

fn gives(after: &Program, wanted: &Wanted<'_>, within: Within) -> Result<(), String> {
    for (numerics, wanted_outputs) in BOTH.into_iter().zip(&wanted.outputs) {
        let found = call(numerics, after, wanted.inputs).map_err(|e| format!("{numerics:?}, after: {e}"))?;
        let wanted = wanted_outputs;
        for ((name, w), (n, f)) in wanted.iter().zip(&found) {
            if name != n {
                return Err(format!("output `{n}` instead of `{name}`"));
            }
            let (w, f) = (tensor(w), tensor(f));
            let f = if w.shape == f.shape { f } else { corner(&f, &w.shape) };
            let largest = w.values.iter().fold(0.0, |m: f64, v| if v.is_finite() { m.max(v.abs()) } else { m });
            for (i, (a, b)) in w.values.iter().zip(&f.values).enumerate() {
                let equal = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                let near = match within {
                    Within::Bits => false,
                    Within::Part(part) => (a - b).abs() <= part * largest,
                    Within::Unit(part) => (a - b).abs() <= part * largest.max(1.0),
                };
                if !equal && !near {
                    return Err(format!("{numerics:?}: `{name}` {i} is {b}, was {a} (largest {largest})"));
                }
            }
        }
        if wanted.len() != found.len() {
            return Err("another number of outputs".into());
        }
    }
    Ok(())
}

/// Random inputs for the ports of `main`.
pub fn random_inputs(program: &Program, seed: u64) -> Option<Vec<Tensor>> {
    let main = &program.functions[0];
    let types = main.inputs.iter().enumerate().map(|(i, v)| {
        let ty = &main.value(*v).ty;
        Some(Tensor::random(ty.dtype()?, &ty.shape()?, seed + i as u64))
    });
    types.collect()
}

/// A published program with weights: random ones if the text names missing files.
fn published(text: &str) -> Option<Program> {
    let options = ferrane_mil::Options { missing: Missing::Keep, ..Default::default() };
    let mut program = parse_with(text, &Weights::new(), options).program?;
    let mut weights = Weights::new();
    for i in 0..program.weights.len() {
        let id = ferrane_mil::WeightId(i as u32);
        let (dtype, n) = (program.weights.dtype(id)?, program.weights.elements(id)?);
        let values = Tensor::random(dtype, &[n], i as u64);
        // Small, so that sums of many products stay in the range of fp16.
        let values = Tensor::new(dtype, &[n], values.values.iter().map(|v| v / 16.0).collect());
        weights.add_packed("@model_path/weights/random.bin", dtype, n, values.to_bytes());
    }
    program.weights = weights;
    Some(program)
}

#[test]
fn published_programs_stay_the_same_under_every_pass() {
    let Some(mut suite) = Suite::open("emulator-passes-text", "mil") else { return };
    let folder = suite.folder().to_path_buf();
    let mut open = vec![folder.clone()];
    let mut paths = Vec::new();
    while let Some(folder) = open.pop() {
        for path in std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path()) {
            match path.is_dir() {
                true => open.push(path),
                false if path.extension().is_some_and(|e| e == "mil") => paths.push(path),
                false => {}
            }
        }
    }
    paths.sort();
    for path in paths {
        let id = path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
        let Some(program) = published(&std::fs::read_to_string(&path).unwrap()) else {
            suite.skip(&id, "is refused as text");
            continue;
        };
        let Some(inputs) = random_inputs(&program, 3) else {
            suite.skip(&id, "has an input of unknown extents");
            continue;
        };
        if let Err(why) = call(Numerics::Fast, &program, &inputs) {
            suite.skip(&id, &why);
            continue;
        }
        suite.case(&id, every_pass(&program, &inputs));
    }
    suite.finish();
}

/// Each pass alone, all that simplify, and all together.
pub fn every_pass(program: &Program, inputs: &[Tensor]) -> Result<(), String> {
    let wanted = Wanted::new(program, inputs)?;
    let alone = passes::all().iter().map(|p| Pipeline::new([*p]));
    for pipeline in alone.chain([Pipeline::simplify(), Pipeline::new(passes::all().iter().copied())]) {
        let names: Vec<&str> = pipeline.passes().iter().map(|p| p.name).collect();
        let (after, report) = match optimize(&pipeline, program) {
            Ok(done) => done,
            Err(MilError::Shape { op, .. }) if op == "uniform_outputs" => continue,
            Err(e) => return Err(format!("{names:?}: {e}")),
        };
        if report.changes() == 0 {
            if print(&after) != print(program) {
                return Err(format!("{names:?} says nothing of its change"));
            }
            continue;
        }
        let rounds = pipeline.passes().iter().any(|p| p.exactness == Exactness::Rounding);
        gives(&after, &wanted, if rounds { bound(program) } else { Within::Bits })
            .map_err(|e| format!("{names:?}: {e}"))?;
    }
    Ok(())
}

/// A rounding that is elsewhere moves a value by a unit in the last place of its type, and what
/// reads it by as much again: for programs of a few dozen bounded ops, 32 units of fp16 (2⁻¹¹) or a
/// few hundred of fp32.
fn bound(program: &Program) -> Within {
    let half = program.functions[0].values.iter().any(|v| v.ty.dtype() == Some(DataType::Fp16));
    Within::Unit(if half { 1.6e-2 } else { 5e-5 })
}

#[test]
fn packages_stay_the_same_under_every_pass() {
    let Some(mut suite) = Suite::open("emulator-passes-packages", "mil") else { return };
    let folder = suite.folder().to_path_buf();
    let mut open = vec![folder.clone()];
    let mut paths = Vec::new();
    while let Some(folder) = open.pop() {
        for path in std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path()).filter(|p| p.is_dir()) {
            match path.extension().is_some_and(|e| e == "mlpackage") {
                true => paths.push(path),
                false => open.push(path),
            }
        }
    }
    paths.sort();
    for path in paths {
        let id = path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
        let program = match ferrane_mil::package::open(&path) {
            Ok(opened) => opened.program,
            Err(e) => {
                suite.skip(&id, &e.to_string());
                continue;
            }
        };
        match random_inputs(&program, 5) {
            None => suite.skip(&id, "has an input of unknown extents"),
            Some(inputs) => match call(Numerics::Fast, &program, &inputs) {
                Err(why) => suite.skip(&id, &why),
                Ok(_) => suite.case(&id, every_pass(&program, &inputs)),
            },
        }
    }
    suite.finish();
}
