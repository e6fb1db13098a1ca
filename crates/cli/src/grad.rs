//! `ferrane grad`: the backward program of a function.

use ferrane::diag::did_you_mean;
use ferrane::mil::grad::{GradError, VjpOptions, lift_constant, vjp};
use ferrane::mil::{DataType, Function, Program, Type, ValueId};
use serde_json::{Value, json};

use crate::args::Grad;
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{convert, files, out};

/// Runs `ferrane grad`.
pub fn run(args: Grad) -> Result<()> {
    let form = convert::form(&args.out)?;
    if args.json && files::is_stdin(&args.out) {
        return Err(Error::new("--json and -o - both write to standard output; give -o a file"));
    }
    let mut program =
        program::load(&args.program, Care::Whole, &program::named_extents(&args.program, &args.shapes)?)?.program;
    let name = program::function(&program, args.function.as_deref())?.name.clone();
    for constant in &args.lift {
        program = lift_constant(&program, &name, constant).map_err(|e| told(&program, &name, e))?;
    }
    let backward = backward(&args, &program, &name)?;
    let written = convert::write(&args.out, args.force, form, &backward, None)?;
    let function = program::function(&backward, Some(&name))?;
    if args.json {
        let ports = |values: &[ValueId]| -> Vec<Value> {
            let values = values.iter().map(|v| function.value(*v));
            values.map(|v| json!({"name": v.name, "type": v.ty.to_string()})).collect()
        };
        return out::line(json!({
            "program": args.program.display().to_string(), "function": name, "output": args.out.display().to_string(),
            "files": written.files, "inputs": ports(&function.inputs), "outputs": ports(&function.body().outputs),
        }));
    }
    if !files::is_stdin(&args.out) {
        let names = |values: &[ValueId]| -> String {
            let names: Vec<&str> = values.iter().map(|v| function.value(*v).name.as_str()).collect();
            names.join(", ")
        };
        let (out, takes, gives) = (args.out.display(), names(&function.inputs), names(&function.body().outputs));
        out::line(format_args!("{out}: backward program of `{name}`, inputs {takes}, outputs {gives}"))?;
    }
    Ok(())
}

fn backward(args: &Grad, program: &Program, name: &str) -> Result<Program> {
    let function = program::function(program, Some(name))?;
    let outputs = chosen(&args.outputs, function, &function.body().outputs);
    let mut inputs = chosen(&args.inputs, function, &function.inputs);
    inputs.extend(args.lift.iter().map(String::as_str));
    let mut seen = std::collections::HashSet::new();
    inputs.retain(|input| seen.insert(*input) || !args.lift.iter().any(|lifted| lifted == input));
    for (list, option, what) in [(&outputs, "--output", "output"), (&inputs, "--input", "input")] {
        if list.is_empty() {
            return Err(Error::new(format!(
                "function `{name}` has no {what} of fp16 or fp32; name a value with {option}"
            )));
        }
    }
    let options = VjpOptions { taps: args.taps.clone(), outputs: args.keep_outputs, prune_inputs: args.prune_inputs };
    vjp(program, name, &outputs, &inputs, &options).map_err(|e| told(program, name, e))
}

/// The named values; without names, those of `all` that can have a gradient.
fn chosen<'a>(named: &'a [String], function: &'a Function, all: &[ValueId]) -> Vec<&'a str> {
    if !named.is_empty() {
        return named.iter().map(String::as_str).collect();
    }
    let values = all.iter().map(|v| function.value(*v));
    let floats = values.filter(|v| {
        matches!(v.ty, Type::Tensor { .. }) && matches!(v.ty.dtype(), Some(DataType::Fp16 | DataType::Fp32))
    });
    floats.map(|v| v.name.as_str()).collect()
}

/// The error, with the nearest name if it is about an unknown one.
fn told(program: &Program, function: &str, error: GradError) -> Error {
    let near = match &error {
        GradError::Value { name, .. } => program.function(function).map(|f| {
            let names = || f.values.iter().map(|v| v.name.as_str());
            if names().any(|n| n == name) { String::new() } else { did_you_mean(name, names()) }
        }),
        _ => None,
    };
    let near = near.unwrap_or_default();
    Error::new(format!("function `{function}`: {error}{near}"))
}
