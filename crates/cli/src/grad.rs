//! `ferrane grad`: the backward program of a function.

use ferrane::mil::ValueId;
use ferrane::mil::grad::{BackwardOptions, GradError, VjpOptions, backward};
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
    let program =
        program::load(&args.program, Care::Whole, &program::named_extents(&args.program, &args.shapes)?)?.program;
    let name = program::function(&program, args.function.as_deref())?.name.clone();
    let vjp = VjpOptions { taps: args.taps.clone(), outputs: args.keep_outputs, prune_inputs: args.prune_inputs };
    let (lift, outputs, inputs) = (args.lift.clone(), args.outputs.clone(), args.inputs.clone());
    let backward = backward(&program, &name, &BackwardOptions { lift, outputs, inputs, vjp }).map_err(|e| match e {
        GradError::NoFloats { .. } => e.into(),
        _ => Error::new(format!("function `{name}`: {e}")),
    })?;
    let written = convert::write(&args.out, args.force, form, &backward, None)?;
    let function = program::function(&backward, Some(&name))?;
    if args.json {
        let ports = |values: &[ValueId]| -> Vec<Value> {
            let values = values.iter().map(|v| function.value(*v));
            values.map(|v| json!({"name": v.name, "type": v.ty.to_string()})).collect()
        };
        return out::line(json!({
            "program": args.program.display().to_string(), "function": name, "output": args.out.display().to_string(),
            "files": convert::names(&written), "inputs": ports(&function.inputs), "outputs": ports(&function.body().outputs),
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
