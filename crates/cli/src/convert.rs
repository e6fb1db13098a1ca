//! `ferrane convert`: a program in another container, spelling or opset, and after passes.

use std::fmt::Write as _;
use std::path::Path;

use clap::Command;
use ferrane::diag::did_you_mean;
use ferrane::mil::package::{Description, Form, WriteOptions, Written};
use ferrane::mil::passes::{self, Pipeline, Report};
use ferrane::mil::{Opset, Program, level, print};
use ferrane::model::write_as;
use ferrane::onnx;
use serde_json::json;

use crate::args::{Convert, OpsetArg};
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{files, out};

/// The most problems that are listed.
const LISTED: usize = 20;

/// Adds the list of passes to the help.
pub fn describe(command: Command) -> Command {
    let mut text = String::from(
        "Examples:\n  ferrane convert model.mlpackage -o model.mil --force\n  ferrane convert model.mil -o model.mlpackage --optimize\n  \
         ferrane convert model.mil -o older.mil --opset ios16 --dialect verbose\n  ferrane convert model.mlpackage -o -\n  ferrane convert model.mlpackage -o model.aimodel\n\nPasses:\n",
    );
    for pass in passes::all() {
        let _ = writeln!(text, "  {:24} {}", pass.name, pass.doc);
    }
    command.after_help(text)
}

impl From<OpsetArg> for Opset {
    fn from(opset: OpsetArg) -> Opset {
        match opset {
            OpsetArg::Ios15 => Opset::IOS15,
            OpsetArg::Ios16 => Opset::IOS16,
            OpsetArg::Ios17 => Opset::IOS17,
            OpsetArg::Ios18 => Opset::IOS18,
        }
    }
}

/// Runs `ferrane convert`.
pub fn run(args: Convert) -> Result<()> {
    let form = form(&args.output)?;
    if args.json && files::is_stdin(&args.output) {
        return Err(Error::new("--json and -o - both write to standard output; give -o a file"));
    }
    let pipeline = pipeline(&args)?;
    let mut options = program::named_extents(&args.input, &args.shapes)?;
    if args.fp16 {
        if !onnx::is_model(&args.input) {
            return Err(files::failed(&args.input, "--fp16 is for ONNX models, which this is not"));
        }
        options.onnx = options.onnx.precision(onnx::Precision::Fp16);
    }
    let loaded = program::load(&args.input, Care::Form, &options)?;
    let (mut program, mut report) = (loaded.program, Report::default());
    if let Some(pipeline) = pipeline {
        (program, report) = pipeline.run(&program, &ferrane::emulator("emulator")?)?;
    }
    let mut changes = Vec::new();
    if let Some(opset) = args.opset {
        (program, changes) = level::to_opset(&program, opset.into()).map_err(|problems| {
            let mut text = format!("{}: cannot be expressed in ios{}:", args.input.display(), Opset::from(opset).0);
            for problem in problems.iter().take(LISTED) {
                let _ = write!(text, "\n  {problem}");
            }
            if problems.len() > LISTED {
                let _ = write!(text, "\n  … and {} more", problems.len() - LISTED);
            }
            Error::new(text)
        })?;
    }
    if let Some(dialect) = args.dialect {
        program.dialect = dialect.into();
    }
    let written = write(&args.output, args.force, form, &program, loaded.description.as_ref())?;
    let described = loaded.description.is_some();
    if args.json {
        let steps = report.steps.iter().map(|s| json!({"pass": s.pass, "changes": s.changes}));
        let changes = changes.iter().map(|c| json!({"function": c.function, "value": c.value, "what": c.what}));
        return out::line(json!({
            "input": args.input.display().to_string(), "output": args.output.display().to_string(),
            "from": loaded.form.name(), "to": form.name(), "files": names(&written),
            "description": described.then_some(if written.dropped.is_none() { "kept" } else { "dropped" }),
            "passes": steps.collect::<Vec<_>>(), "opset_changes": changes.collect::<Vec<_>>(),
        }));
    }
    for step in &report.steps {
        out::note(format_args!("{}: {} changes", step.pass, step.changes));
    }
    for padded in &report.padded {
        let (output, from, to) = (&padded.output, &padded.from, &padded.to);
        out::note(format_args!("{}: output `{output}` grew from {from:?} to {to:?}", padded.function));
    }
    for change in &changes {
        out::note(format_args!("{}, `{}`: {}", change.function, change.value, change.what));
    }
    if let Some(why) = &written.dropped {
        out::note(format_args!(
            "{}: the description of the input (author, license, shapes, metadata) is left out: {why}",
            args.output.display()
        ));
    }
    if !files::is_stdin(&args.output) {
        out::line(format_args!("{}: {} from {}", args.output.display(), form.title(), args.input.display()))?;
    }
    Ok(())
}

/// The form that a file name selects.
pub fn form(path: &Path) -> Result<Form> {
    if files::is_stdin(path) { Ok(Form::Text) } else { Ok(Form::of_target(path)?) }
}

fn pipeline(args: &Convert) -> Result<Option<Pipeline>> {
    if args.optimize {
        return Ok(Some(Pipeline::simplify()));
    }
    if args.passes.is_empty() {
        return Ok(None);
    }
    Pipeline::named(args.passes.iter().map(String::as_str)).map(Some).map_err(|name| {
        let known: Vec<&str> = passes::all().iter().map(|p| p.name).collect();
        let near = did_you_mean(name, known.iter().copied());
        Error::new(format!("--passes {name}: no such pass{near} (there are {})", known.join(", ")))
    })
}

/// Writes the program, to standard output for `-`. An existing file is replaced only with `force`.
pub fn write(
    path: &Path,
    overwrite: bool,
    form: Form,
    program: &Program,
    description: Option<&Description>,
) -> Result<Written> {
    if files::is_stdin(path) {
        out::print(print(program))?;
        let dropped = description.map(|_| "text cannot hold it".to_string());
        return Ok(Written { files: Vec::new(), dropped });
    }
    Ok(write_as(program, path, form, &WriteOptions { overwrite, description, ..WriteOptions::default() })?)
}

/// The names of the files that were written.
pub fn names(written: &Written) -> Vec<String> {
    written.files.iter().map(|file| file.display().to_string()).collect()
}
