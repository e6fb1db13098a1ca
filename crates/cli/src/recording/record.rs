//! `ferrane recording make`.

use std::fs;
use std::path::{Path, PathBuf};

use ferrane::Device;
use ferrane::mil::Program;
use ferrane::recording::{self, Job, Recording};
use ferrane::tensor_io::{TensorSource, Unnamed, arguments};
use serde_json::json;

use crate::args::RecordingMake;
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::run::{open, sources};
use crate::{files, out};

/// The extension of recordings.
pub(super) const EXTENSION: &str = "anetrace";
/// Evaluations at most.
const MOST: usize = 100_000;

/// A program with what is put into it.
pub(super) struct Case {
    pub(super) program: Program,
    pub(super) function: String,
    pub(super) sources: Vec<(String, TensorSource)>,
}

/// Runs the command.
pub fn run(args: &RecordingMake) -> Result<()> {
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
            let recording = one(args, &device, path, Case { program, function, sources })?;
            let file = match &args.out {
                Some(file) => file.clone(),
                None if files::is_stdin(path) => PathBuf::from(format!("stdin.{EXTENSION}")),
                None => Path::new(path.file_name().unwrap_or_default()).with_extension(EXTENSION),
            };
            write(&recording, &file)?;
            tell(args, &recording, &file)
        }
        (None, None) => Err(Error::new("name a program, or a folder of programs with --suite")),
    }
}

/// Runs a program and notes what comes of it.
pub(super) fn one(args: &RecordingMake, device: &Device, path: &Path, case: Case) -> Result<Recording> {
    let Case { program, function, sources } = case;
    let function = program::function(&program, Some(&function))?;
    let call = arguments(function, &sources, Unnamed::Random(args.seed))?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let (inputs, states) = (call.given_inputs(), call.given_states());
    let job = Job { program: &program, function: &function.name, label: &name, inputs, states, runs: args.runs };
    Recording::record(device, &args.device, &job).map_err(|e| files::failed(path, e))
}

/// Writes a recording, and its folder if need be.
pub(super) fn write(recording: &Recording, file: &Path) -> Result<()> {
    if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|e| files::failed(folder, e))?;
    }
    recording::write(recording, file).map_err(|e| files::failed(file, e))
}

/// Shows a recording that was written.
pub(super) fn tell(args: &RecordingMake, recording: &Recording, file: &Path) -> Result<()> {
    if args.json {
        let mut object = super::object(recording);
        object["file"] = json!(file.display().to_string());
        return out::line(object);
    }
    let function = &recording.header.program.function;
    out::line(format_args!("{}: {function} on {}", file.display(), super::machine(&recording.header.machine)))?;
    super::told(recording).into_iter().try_for_each(out::line)
}
