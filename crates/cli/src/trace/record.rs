//! `ferrane trace record`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane::Device;
use ferrane::mil::{Function, Program, Type};
use ferrane::trace::{self, Job, Outcome, Tensor, Trace};
use serde_json::json;

use super::filetest;
use crate::args::TraceRecord;
use crate::array::Source;
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::run::{inputs, open, sources};
use crate::{files, out};

/// The extension of traces.
const EXTENSION: &str = "anetrace";
/// Evaluations at most.
const MOST: usize = 100_000;

/// A program with what is put into it.
pub(super) struct Case {
    pub(super) program: Program,
    pub(super) function: String,
    pub(super) sources: Vec<(String, Source)>,
}

/// Runs the command.
pub fn run(args: &TraceRecord) -> Result<()> {
    if args.runs > MOST {
        return Err(Error::new(format!("--runs {}: at most {MOST}", args.runs)));
    }
    let device = open(&args.device)?;
    match (&args.suite, &args.program) {
        (Some(folder), _) => suite(args, &device, folder),
        (None, Some(path)) => {
            let program = program::load(path, Care::Machine)?.program;
            let function = program::function(&program, args.function.as_deref())?.name.clone();
            let given = |text: &&String| text.split_once('=').is_none_or(|(_, source)| source.trim() != "random");
            let inputs: Vec<String> = args.inputs.iter().filter(given).cloned().collect();
            let sources = sources(&inputs, &args.states)?;
            let trace = one(args, &device, path, Case { program, function, sources })?;
            let file = match &args.out {
                Some(file) => file.clone(),
                None if files::is_stdin(path) => PathBuf::from(format!("stdin.{EXTENSION}")),
                None => Path::new(path.file_name().unwrap_or_default()).with_extension(EXTENSION),
            };
            write(&trace, &file)?;
            tell(args, &trace, &file)
        }
        (None, None) => Err(Error::new("name a program, or a folder of programs with --suite")),
    }
}

/// Runs a program and writes down what comes of it.
fn one(args: &TraceRecord, device: &Device, path: &Path, case: Case) -> Result<Trace> {
    let Case { program, function, mut sources } = case;
    let function = program::function(&program, Some(&function))?;
    for (i, input) in function.inputs.iter().map(|v| function.value(*v)).enumerate() {
        let state = matches!(input.ty, Type::State(_));
        if !state && sources.iter().all(|(name, _)| *name != input.name) {
            sources.push((input.name.clone(), Source::Random(args.seed.wrapping_add(i as u64), None)));
        }
    }
    let (inputs, states) = tensors(function, &sources)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let (function, inputs, states) = (function.name.as_str(), inputs.as_slice(), states.as_slice());
    let job = Job { program: &program, function, label: &name, inputs, states, runs: args.runs };
    Trace::record(device, &args.device, &job).map_err(|e| files::failed(path, e))
}

type Tensors = Vec<(String, Tensor)>;

/// Values of inputs and of states.
fn tensors(function: &Function, sources: &[(String, Source)]) -> Result<(Tensors, Tensors)> {
    let held = |name: &str| {
        function.inputs.iter().map(|v| function.value(*v)).any(|v| v.name == name && matches!(v.ty, Type::State(_)))
    };
    let tensor = |(name, array): (String, crate::array::Array)| {
        let tensor = Tensor::new(array.dtype, array.shape.clone(), array.to_bytes());
        Ok((name.clone(), tensor.map_err(|e| Error::new(format!("`{name}`: {e}")))?))
    };
    let all: Vec<_> = inputs(function, sources)?.into_iter().map(tensor).collect::<Result<_>>()?;
    let (states, inputs) = all.into_iter().partition(|(name, _)| held(name));
    Ok((inputs, states))
}

fn write(trace: &Trace, file: &Path) -> Result<()> {
    if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|e| files::failed(folder, e))?;
    }
    trace::write(trace, file).map_err(|e| files::failed(file, e))
}

fn tell(args: &TraceRecord, trace: &Trace, file: &Path) -> Result<()> {
    if args.json {
        let mut object = super::object(trace);
        object["file"] = json!(file.display().to_string());
        return out::line(object);
    }
    let function = &trace.header.program.function;
    out::line(format_args!("{}: {function} on {}", file.display(), super::machine(&trace.header.machine)))?;
    super::told(trace).into_iter().try_for_each(out::line)
}

/// Records every program below a folder.
fn suite(args: &TraceRecord, device: &Device, folder: &Path) -> Result<()> {
    let programs = discover(folder)?;
    if programs.is_empty() {
        return Err(files::failed(folder, "holds no .mil, .mlpackage, .mlmodel or .mlmodelc"));
    }
    let target = args.out.clone().unwrap_or_else(|| PathBuf::from("traces"));
    fs::create_dir_all(&target).map_err(|e| files::failed(&target, e))?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&stop)?;
    let mut used = BTreeSet::new();
    let (mut ran, mut refused, mut doubtful, mut left_out) = (0, 0, 0, 0);
    for path in &programs {
        let cases = match cases(path) {
            Ok(cases) if cases.is_empty() => continue,
            Ok(cases) => cases,
            Err(error) => {
                left_out += 1;
                out::note(format_args!("left out: {error}"));
                continue;
            }
        };
        let several = cases.len() > 1;
        for (i, case) in cases.into_iter().enumerate() {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            let trace = match one(args, device, path, case) {
                Ok(trace) => trace,
                Err(error) => {
                    left_out += 1;
                    out::note(format_args!("left out: {error}"));
                    continue;
                }
            };
            let number = if several { format!("-{}", i + 1) } else { String::new() };
            let name = format!("{}{number}", flat(path.strip_prefix(folder).unwrap_or(path)));
            // Paths that differ may be one name.
            let names = (1..).map(|n| if n == 1 { name.clone() } else { format!("{name}~{n}") });
            let Some(name) = names.into_iter().find(|name| used.insert(name.clone())) else { continue };
            let file = target.join(format!("{name}.{EXTENSION}"));
            write(&trace, &file)?;
            match trace.header.outcome {
                Outcome::Failed(_) => refused += 1,
                Outcome::Ran { .. } => ran += 1,
            }
            doubtful += usize::from(trace.outputs.iter().any(|(_, t)| t.summary().doubt().is_some()));
            tell(args, &trace, &file)?;
        }
    }
    let stopped = stop.load(Ordering::SeqCst);
    let end = if stopped { "stopped" } else { "done" };
    out::note(format_args!(
        "{end}: {} traces in {}: {ran} ran ({doubtful} with doubtful outputs), {refused} refused; {left_out} left out",
        ran + refused,
        target.display()
    ));
    if stopped { Err(Error::told()) } else { Ok(()) }
}

/// A file's path as one name.
fn flat(path: &Path) -> String {
    let stem = path.with_extension("");
    let parts: Vec<String> = stem.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    parts.join("-")
}

/// What is recorded of a file.
fn cases(path: &Path) -> Result<Vec<Case>> {
    if path.extension().is_some_and(|e| e == "mil") {
        let bytes = files::read_text(path)?;
        if let Some(text) = std::str::from_utf8(&bytes).ok().filter(|text| filetest::is(text)) {
            return filetest::cases(text).map_err(|e| files::failed(path, e));
        }
    }
    let program = program::load(path, Care::Machine)?.program;
    let function = program::function(&program, None)?.name.clone();
    Ok(vec![Case { program, function, sources: Vec::new() }])
}

/// Every program below a folder, sorted. Links to folders are not followed.
fn discover(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| files::failed(&folder, e))? {
            let entry = entry.map_err(|e| files::failed(&folder, e))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(|e| files::failed(&folder, e))?);
            match path.extension().and_then(|e| e.to_str()) {
                Some("mlpackage" | "mlmodelc") => found.push(path),
                _ if kind.is_dir() => folders.push(path),
                Some("mil" | "mlmodel") => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The first Ctrl-C ends the suite after the program at hand, the second at once.
fn stop_on_ctrl_c(stop: &Arc<AtomicBool>) -> Result<()> {
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        out::note("\nstopping after this program; press Ctrl-C again to stop at once");
    })
    .map_err(|e| Error::new(format!("Ctrl-C cannot be handled: {e}")))
}
