//! `ferrane trace record`.

use std::fs;
use std::path::{Path, PathBuf};

use ferrane::Device;
use ferrane::mil::{Function, Program, Type};
use ferrane::trace::{self, Job, Tensor, Trace};
use serde_json::json;

use crate::args::TraceRecord;
use crate::array::Source;
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::run::{inputs, open, sources};
use crate::{files, out};

/// The extension of traces.
pub(super) const EXTENSION: &str = "anetrace";
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
        (Some(folder), _) => super::suite::record(args, &device, folder),
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

/// Runs a program and notes what comes of it.
pub(super) fn one(args: &TraceRecord, device: &Device, path: &Path, case: Case) -> Result<Trace> {
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

/// Writes a trace, and its folder if need be.
pub(super) fn write(trace: &Trace, file: &Path) -> Result<()> {
    if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|e| files::failed(folder, e))?;
    }
    trace::write(trace, file).map_err(|e| files::failed(file, e))
}

/// Shows a trace that was written.
pub(super) fn tell(args: &TraceRecord, trace: &Trace, file: &Path) -> Result<()> {
    if args.json {
        let mut object = super::object(trace);
        object["file"] = json!(file.display().to_string());
        return out::line(object);
    }
    let function = &trace.header.program.function;
    out::line(format_args!("{}: {function} on {}", file.display(), super::machine(&trace.header.machine)))?;
    super::told(trace).into_iter().try_for_each(out::line)
}
