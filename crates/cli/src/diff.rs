//! `ferrane diff`: what differs between two programs.

use std::path::Path;

use ferrane::mil::diff::diff;
use ferrane::{Numerics, OutputDistance, TensorDistance};
use serde_json::{Value, json};

use crate::args::Diff;
use crate::error::{Error, Result};
use crate::out;
use crate::program::{self, Care};

/// Runs `ferrane diff`. Trouble has a status of its own, so that a script can distinguish it from
/// "different".
pub fn run(args: Diff) -> Result<()> {
    match compare(&args) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::told()),
        Err(error) => Err(error.trouble()),
    }
}

fn compare(args: &Diff) -> Result<bool> {
    let care = if args.run.is_some() { Care::Whole } else { Care::Form };
    // Extents are those of whichever is an ONNX or a Core AI model.
    let options = program::options(None, &args.shapes);
    let open = |path: &Path| program::load(path, care, &options).map(|loaded| loaded.program);
    let (a, b) = (open(&args.first)?, open(&args.second)?);
    let found = diff(&a, &b);
    let numerics = Numerics::from(args.numerics).name();
    let distances = match args.run {
        Some(seed) => Some(ferrane::compare(&ferrane::open(&format!("emulator?numerics={numerics}"))?, &a, &b, seed)?),
        None => None,
    };
    let is_same = |o: &OutputDistance| o.distance.is_within(args.within);
    let same = match &distances {
        Some(distances) => distances.iter().all(is_same),
        None => found.is_empty(),
    };
    if args.json {
        let differences: Vec<Value> = found
            .iter()
            .map(|d| json!({"kind": d.kind.name(), "function": d.function, "name": d.name, "message": d.message}))
            .collect();
        let number = |v: f64| if v.is_finite() { Value::from(v) } else { Value::Null };
        let outputs: Option<Vec<Value>> = distances.map(|list| {
            let one = |o: &OutputDistance| {
                let TensorDistance { max, mean, scale } = o.distance;
                json!({"function": o.function, "output": o.output, "max": number(max), "mean": number(mean),
                    "scale": number(scale), "same": is_same(o)})
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
        let verdict = if is_same(d) { "same" } else { "different" };
        let TensorDistance { max, mean, scale } = d.distance;
        out::line(format_args!(
            "{}, output `{}`: {verdict}, max difference {max:e}, mean {mean:e}, largest magnitude {scale:e}",
            d.function, d.output
        ))?;
    }
    out::line(if same { "the same" } else { "different" })?;
    Ok(same)
}
