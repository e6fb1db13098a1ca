//! `ferrane diff`: what differs between two programs.

use ferrane::mil::diff::diff;
use ferrane::mil::{Function, Program};
use ferrane::tensor_io::{Unnamed, arguments};
use ferrane::{Tensor, Tensors};
use serde_json::{Value, json};

use crate::args::Diff;
use crate::error::{Error, Result};
use crate::out;
use crate::program::{self, Care};

/// How far an output of the second program is from that of the first.
struct Distance {
    function: String,
    output: String,
    max: f64,
    mean: f64,
    /// The largest magnitude of the first program's output.
    scale: f64,
    same: bool,
}

/// Runs the command. Trouble has a status of its own, so that "different" can be relied on.
pub fn run(args: Diff) -> Result<()> {
    match compare(&args) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::told()),
        Err(error) => Err(error.trouble()),
    }
}

fn compare(args: &Diff) -> Result<bool> {
    let care = if args.run.is_some() { Care::Whole } else { Care::Form };
    let (a, b) = (program::load(&args.first, care)?.program, program::load(&args.second, care)?.program);
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
            let one = |d: &Distance| {
                json!({"function": d.function, "output": d.output, "max": number(d.max), "mean": number(d.mean),
                    "scale": number(d.scale), "same": d.same})
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
        let (max, mean, scale) = (d.max, d.mean, d.scale);
        out::line(format_args!(
            "{}, output `{}`: {verdict}, max difference {max:e}, mean {mean:e}, largest magnitude {scale:e}",
            d.function, d.output
        ))?;
    }
    out::line(if same { "the same" } else { "different" })?;
    Ok(same)
}

/// Runs every function of both programs.
fn distances(args: &Diff, seed: u64, a: &Program, b: &Program) -> Result<Vec<Distance>> {
    let device = ferrane::open(&format!("emulator?numerics={}", ferrane::Numerics::from(args.numerics).name()))?;
    let mut found = Vec::new();
    for function in &a.functions {
        let Some(other) = b.function(&function.name) else {
            return Err(Error::new(format!("the second program has no function `{}` to run", function.name)));
        };
        // The position counts, not the name, so that a renamed input gets the same numbers.
        let outputs = |program: &Program, function: &Function| -> Result<Tensors> {
            Ok(device.call(program, arguments(function, &[], Unnamed::Random(seed))?)?.outputs)
        };
        let (left, right) = (outputs(a, function)?, outputs(b, other)?);
        if left.len() != right.len() {
            let (m, n) = (left.len(), right.len());
            return Err(Error::new(format!("`{}` has {m} outputs in one program and {n} in the other", function.name)));
        }
        for (i, (output, x)) in left.iter().enumerate() {
            // By name; where the name is gone, by place.
            let Some(y) = right.find(output).or_else(|| right.iter().nth(i).map(|(_, y)| y)) else { continue };
            found.push(distance(&function.name, output, x, y, args.within));
        }
    }
    Ok(found)
}

fn distance(function: &str, output: &str, x: &Tensor, y: &Tensor, within: f64) -> Distance {
    let (a, b): (Vec<f64>, Vec<f64>) = (x.to_f64().collect(), y.to_f64().collect());
    let scale = a.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    // What is not finite is near itself alone.
    let apart = |(a, b): (&f64, &f64)| match a == b || (a.is_nan() && b.is_nan()) {
        true => 0.0,
        false if a.is_finite() && b.is_finite() => (a - b).abs(),
        false => f64::INFINITY,
    };
    let max = a.iter().zip(&b).map(apart).fold(0f64, f64::max);
    let mean = a.iter().zip(&b).map(apart).sum::<f64>() / a.len().max(1) as f64;
    let shapes = x.shape() == y.shape() && x.dtype() == y.dtype();
    let max = if shapes { max } else { f64::INFINITY };
    let (function, output) = (function.to_string(), output.to_string());
    Distance { function, output, max, mean, scale, same: shapes && max <= within * scale }
}
