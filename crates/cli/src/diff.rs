//! `ferrane diff`: what differs between two programs.

use std::path::Path;

use ferrane::mil::diff::diff;
use ferrane::mil::{Function, Program};
use ferrane::onnx;
use ferrane::tensor_io::{Unnamed, arguments};
use ferrane::{TensorDistance, Tensors};
use serde_json::{Value, json};

use crate::args::Diff;
use crate::error::{Error, Result};
use crate::out;
use crate::program::{self, Care};

/// An output of both programs.
struct ComparedOutput {
    function: String,
    name: String,
    distance: TensorDistance,
    same: bool,
}

/// Runs `ferrane diff`. Trouble has a status of its own, so that a script can distinguish it from
/// "different".
pub fn run(args: Diff) -> Result<()> {
    match compare(&args) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::told()),
        Err(error) => Err(error.trouble()),
    }
}

/// One of the programs. Extents are those of whichever is an ONNX model.
fn open(args: &Diff, path: &Path, care: Care) -> Result<Program> {
    let shapes = if onnx::is_model(path) { args.shapes.as_slice() } else { &[] };
    Ok(program::load(path, care, &program::extents(path, shapes)?)?.program)
}

fn compare(args: &Diff) -> Result<bool> {
    let care = if args.run.is_some() { Care::Whole } else { Care::Form };
    let (a, b) = (open(args, &args.first, care)?, open(args, &args.second, care)?);
    let found = diff(&a, &b);
    let distances = match args.run {
        Some(seed) => Some(distances(args, seed, &a, &b)?),
        None => None,
    };
    let same = match &distances {
        Some(distances) => distances.iter().all(|d| d.same),
        None => found.is_empty(),
    };
    if args.json {
        let differences: Vec<Value> = found
            .iter()
            .map(|d| json!({"kind": d.kind.name(), "function": d.function, "name": d.name, "message": d.message}))
            .collect();
        let number = |v: f64| if v.is_finite() { Value::from(v) } else { Value::Null };
        let outputs: Option<Vec<Value>> = distances.map(|list| {
            let one = |o: &ComparedOutput| {
                let TensorDistance { max, mean, scale } = o.distance;
                json!({"function": o.function, "output": o.name, "max": number(max), "mean": number(mean),
                    "scale": number(scale), "same": o.same})
            };
            list.iter().map(one).collect()
        });
        out::line(json!({
            "first": args.first.display().to_string(), "second": args.second.display().to_string(), "same": same,
            "differences": differences, "outputs": outputs,
        }))?;
        return Ok(same);
    }
    for d in &found {
        let name = if d.name.is_empty() { String::new() } else { format!(", `{}`", d.name) };
        out::line(format_args!("{}{name}: {} {}", d.function, d.kind.name(), d.message))?;
    }
    for d in distances.iter().flatten() {
        let verdict = if d.same { "same" } else { "different" };
        let TensorDistance { max, mean, scale } = d.distance;
        out::line(format_args!(
            "{}, output `{}`: {verdict}, max difference {max:e}, mean {mean:e}, largest magnitude {scale:e}",
            d.function, d.name
        ))?;
    }
    out::line(if same { "the same" } else { "different" })?;
    Ok(same)
}

/// Runs every function of both programs.
fn distances(args: &Diff, seed: u64, a: &Program, b: &Program) -> Result<Vec<ComparedOutput>> {
    let device = ferrane::open(&format!("emulator?numerics={}", ferrane::Numerics::from(args.numerics).name()))?;
    let mut found = Vec::new();
    for function in &a.functions {
        let Some(other) = b.function(&function.name) else {
            return Err(Error::new(format!("the second program has no function `{}` to run", function.name)));
        };
        // Random inputs depend on the position, so a renamed input gets the same numbers.
        let outputs = |program: &Program, function: &Function| -> Result<Tensors> {
            Ok(device.call(program, arguments(function, &[], Unnamed::Random(seed))?)?.outputs)
        };
        let (left, right) = (outputs(a, function)?, outputs(b, other)?);
        if left.len() != right.len() {
            let (m, n) = (left.len(), right.len());
            return Err(Error::new(format!("`{}` has {m} outputs in one program and {n} in the other", function.name)));
        }
        for (i, (output, x)) in left.iter().enumerate() {
            // By name, or by position if the other program has no such name.
            let Some(y) = right.find(output).or_else(|| right.iter().nth(i).map(|(_, y)| y)) else { continue };
            let distance = TensorDistance::of(x, y);
            let (function, name, same) = (function.name.clone(), output.clone(), distance.is_within(args.within));
            found.push(ComparedOutput { function, name, distance, same });
        }
    }
    Ok(found)
}
