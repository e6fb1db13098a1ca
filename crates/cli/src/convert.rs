//! `ferrane convert`: a program in another container, spelling or opset, and after passes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};

use clap::Command;
use ferrane::diag::did_you_mean;
use ferrane::mil::package::{Description, Form, WriteOptions, write_model, write_package};
use ferrane::mil::passes::{self, Pipeline, Report};
use ferrane::mil::{Opset, Program, level, print};
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
         ferrane convert model.mil -o older.mil --opset ios16 --dialect verbose\n  ferrane convert model.mlpackage -o -\n\nPasses:\n",
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
        options = options.precision(onnx::Precision::Fp16);
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
            "from": loaded.form.name(), "to": form.name(), "files": written.files,
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
    match path.extension().and_then(|e| e.to_str()) {
        _ if files::is_stdin(path) => Ok(Form::Text),
        Some("mil") => Ok(Form::Text),
        Some("mlpackage") => Ok(Form::Package),
        Some("mlmodel") => Ok(Form::Model),
        Some("mlmodelc") => Err(files::failed(path, "compiled models are Apple's to write; give a .mlpackage")),
        _ => Err(files::failed(path, "unknown kind of file; give a name that ends in .mil, .mlpackage or .mlmodel")),
    }
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

/// What [`write`] wrote.
pub struct Written {
    /// The names of the files.
    pub files: Vec<String>,
    /// Why the description of the input is not in them; `None` if it is, or there was none.
    pub dropped: Option<String>,
}

/// Writes the program. An existing file is replaced only with `force`.
pub fn write(
    path: &Path,
    force: bool,
    form: Form,
    program: &Program,
    description: Option<&Description>,
) -> Result<Written> {
    if path.exists() && !force && !files::is_stdin(path) {
        return Err(files::failed(path, "exists; --force replaces it"));
    }
    if form == Form::Text {
        let files = match files::is_stdin(path) {
            true => out::print(print(program)).map(|()| Vec::new())?,
            false => write_text(path, force, program)?,
        };
        return Ok(Written { files, dropped: description.map(|_| "text cannot hold it".to_string()) });
    }
    let write = |description: Option<&Description>| {
        let options = WriteOptions { overwrite: force, description, ..WriteOptions::default() };
        match form {
            Form::Model => write_model(program, path, &options),
            _ => write_package(program, path, &options),
        }
    };
    // The description is kept if it still holds, which passes and opsets may have changed.
    let dropped = description.and_then(|d| write(Some(d)).err()).map(|e| e.to_string());
    if description.is_none() || dropped.is_some() {
        write(None)?;
    }
    Ok(Written { files: vec![path.display().to_string()], dropped })
}

/// Writes text, and the blob files that it names into its folder. The text comes last, so that its
/// files exist when it does.
fn write_text(output: &Path, force: bool, program: &Program) -> Result<Vec<String>> {
    let folder = output.parent().unwrap_or(Path::new(""));
    let mut written = Vec::new();
    let mut blobs: Vec<(PathBuf, _)> = Vec::new();
    for (name, bytes) in program.weights.files() {
        let path = folder.join(inside(&name)?);
        let there = fs::read(&path).ok();
        if there.as_deref() == Some(&*bytes) {
            continue;
        }
        if there.is_some() && !force {
            return Err(files::failed(
                &path,
                "exists with other weights; --force replaces it, or give -o another folder",
            ));
        }
        blobs.push((path, bytes));
    }
    let folders = blobs.iter().filter_map(|(path, _)| path.parent()).chain([folder]);
    for folder in folders.filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|e| files::failed(folder, e))?;
    }
    for (path, bytes) in blobs {
        files::replace(&path, &bytes)?;
        written.push(path.display().to_string());
    }
    files::replace(output, print(program).as_bytes())?;
    written.push(output.display().to_string());
    Ok(written)
}

/// The path of a blob file in the folder of its text. A name from a file must not lead out of it.
fn inside(name: &str) -> Result<&Path> {
    let refuse =
        || Error::new(format!("the blob file `{name}` lies outside of the program's folder; it is not written"));
    let path = Path::new(name.strip_prefix("@model_path/").ok_or_else(refuse)?);
    let plain = path.components().all(|c| matches!(c, Component::Normal(_)));
    if plain && path.file_name().is_some() { Ok(path) } else { Err(refuse()) }
}
