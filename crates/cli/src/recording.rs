//! `ferrane recording`: what a machine computed, recorded and replayed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ferrane::diag::printable;
use ferrane::recording::suite::{self, EXTENSION, SuiteCase, SuiteEvent, SuiteOptions, SuiteStop, SuiteTally};
use ferrane::recording::{self, Expectation, Recording, ReplayReport, ReplayRow, ReplayTable};
use ferrane::{Device, Model};
use serde_json::{Value, json};

use crate::args::{self, RecordingExtract, RecordingMake, RecordingReplay, RecordingShow};
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::run::{open, sources};
use crate::{files, out};

/// The largest number of evaluations.
const MOST: usize = 100_000;

/// Runs `ferrane recording`.
pub fn run(args: args::Recording) -> Result<()> {
    match args {
        args::Recording::Make(args) => make(&args),
        args::Recording::Replay(args) => replay(&args),
        args::Recording::Show(args) => args.files.iter().try_for_each(|file| show(&args, file)),
        args::Recording::Extract(args) => extract(&args),
    }
}

fn opened(file: &Path) -> Result<Recording> {
    recording::open(file).map_err(|e| files::failed(file, e))
}

/// A recording as JSON, with the name of its file.
fn object(recording: &Recording, file: &Path) -> Value {
    let mut object = recording.json();
    object["file"] = json!(file.display().to_string());
    object
}

fn make(args: &RecordingMake) -> Result<()> {
    if args.runs > MOST {
        return Err(Error::new(format!("--runs {}: at most {MOST}", args.runs)));
    }
    let device = open(&args.device)?;
    let options = SuiteOptions { device: args.device.clone(), seed: args.seed, runs: args.runs };
    let path = match (&args.suite, &args.program) {
        (Some(folder), _) => return make_suite(args, &device, folder, &options),
        (None, Some(path)) => path,
        (None, None) => return Err(Error::new("name a program, or a folder of programs with --suite")),
    };
    let given = |text: &&String| text.split_once('=').is_none_or(|(_, source)| source.trim() != "random");
    let inputs: Vec<String> = args.inputs.iter().filter(given).cloned().collect();
    let sources = sources(&inputs, &args.states)?;
    // A recording holds one program with fixed extents, so shapes are chosen as for a run.
    let chosen = program::options(args.function.as_deref(), &args.shapes);
    let model = Model::new(program::load(path, Care::Machine, &chosen)?, &chosen, &sources)?;
    let (program, function) = (model.program().clone(), model.function().name.clone());
    let case = SuiteCase { program, function, sources: model.sources(&sources) };
    let name = path.file_name().unwrap_or(path.as_os_str());
    let recording = case.record(&device, &name.to_string_lossy(), &options).map_err(|e| files::failed(path, e))?;
    let file = match &args.out {
        Some(file) => file.clone(),
        None if files::is_stdin(path) => PathBuf::from(format!("stdin.{EXTENSION}")),
        None => Path::new(name).with_extension(EXTENSION),
    };
    if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|e| files::failed(folder, e))?;
    }
    recording::write(&recording, &file).map_err(|e| files::failed(&file, e))?;
    made(args, &recording, &file)
}

/// Shows a recording that was written.
fn made(args: &RecordingMake, recording: &Recording, file: &Path) -> Result<()> {
    if args.json {
        return out::line(object(recording, file));
    }
    let (function, machine) = (&recording.header.program.function, &recording.header.machine);
    out::line(format_args!("{}: {function} on {machine}", file.display()))?;
    out::print(recording.outcome())
}

fn make_suite(args: &RecordingMake, device: &Device, folder: &Path, options: &SuiteOptions) -> Result<()> {
    let failed = |e| files::failed(folder, e);
    if suite::programs(folder).map_err(failed)?.is_empty() {
        return Err(files::failed(folder, "holds no .mil, .mlpackage, .mlmodel or .mlmodelc"));
    }
    let target = args.out.clone().unwrap_or_else(|| PathBuf::from("recordings"));
    let stop = files::stop_on_ctrl_c("program")?;
    let report = |event: SuiteEvent<'_>| match event {
        SuiteEvent::Recorded(file, recording) => made(args, recording, file),
        SuiteEvent::LeftOut(path, reason) => {
            out::note(format_args!("left out: {}", files::failed(path, reason)));
            Ok(())
        }
    };
    let tally = suite::record_suite(device, folder, &target, options, &stop, report)?;
    let SuiteTally { ran, refused, doubtful, left_out, existing, stopped } = tally;
    let word = if stopped.is_some() { "stopped" } else { "done" };
    let (count, many) = (ran + refused, if ran + refused == 1 { "" } else { "s" });
    let before = if existing > 0 { format!(", {existing} were there already") } else { String::new() };
    out::note(format_args!(
        "{word}: {count} recording{many} in {}: {ran} ran ({doubtful} with doubtful outputs), {refused} refused; \
         {left_out} left out{before}",
        target.display()
    ));
    match stopped {
        None => Ok(()),
        Some(SuiteStop::Interrupted) => Err(Error::told()),
        Some(SuiteStop::Budget) => Err(Error::new(
            "this process can compile no more programs; run the same command again to continue with the others",
        )),
    }
}

/// Replays recordings. Trouble has a status of its own, so that a script can distinguish it
/// from "different".
fn replay(args: &RecordingReplay) -> Result<()> {
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    let (mut table, mut agree, mut trouble) = (ReplayTable::default(), true, None);
    for file in &args.files {
        match replay_file(args, file, &mut devices) {
            Ok(rows) => {
                agree &= rows.iter().all(|(_, agrees)| *agrees);
                table.0.extend(rows.into_iter().map(|(row, _)| row));
            }
            Err(error) if error.is_closed() => return Err(error),
            // An error of one file does not end the replay of the others.
            Err(error) => {
                if let Some(last) = trouble.replace(error) {
                    out::note(format_args!("error: {last}"));
                }
            }
        }
    }
    if !args.json && table.0.len() > 1 {
        out::print(format_args!("\n{table}"))?;
    }
    match trouble {
        Some(error) => Err(error.trouble()),
        None if agree => Ok(()),
        None => Err(Error::told()),
    }
}

fn replay_file(
    args: &RecordingReplay,
    path: &Path,
    devices: &mut BTreeMap<String, Device>,
) -> Result<Vec<(ReplayRow, bool)>> {
    let recording = opened(path)?;
    let program = recording.program().map_err(|e| files::failed(path, e))?;
    let expectation = Expectation::of(&recording, &program);
    let specs = if args.device.is_empty() { vec![recording.emulator_spec()] } else { args.device.clone() };
    for spec in &specs {
        if !devices.contains_key(spec) {
            devices.insert(spec.clone(), open(spec)?);
        }
    }
    let file = path.display().to_string();
    if !args.json {
        let (origin, machine) = (&recording.header.program, &recording.header.machine);
        let [name, function, writer] =
            [&origin.name, &origin.function, &recording.header.ferrane].map(|t| printable(t));
        out::line(format_args!("{file}: {name} `{function}` on {machine}, Ferrane {writer}"))?;
    }
    let mut rows = Vec::new();
    for spec in &specs {
        let Some(device) = devices.get(spec) else { continue };
        let replay = recording::replay(&recording, &program, device, args.ulp, args.runs.max(1));
        let report = ReplayReport {
            file: &file,
            device: spec,
            recording: &recording,
            expectation: &expectation,
            replay: &replay,
            tolerance: args.ulp,
        };
        if args.json {
            out::line(report.json())?
        } else {
            out::print(&report)?
        }
        rows.push((report.row(), replay.agrees()));
    }
    Ok(rows)
}

fn show(args: &RecordingShow, file: &Path) -> Result<()> {
    let recording = opened(file)?;
    let text = String::from_utf8_lossy(&recording.text);
    if args.json {
        let mut object = object(&recording, file);
        if args.text {
            object["text"] = Value::from(text);
        }
        return out::line(object);
    }
    out::print(format_args!("{}: {}", file.display(), recording.describe()))?;
    if args.text { out::print(printable(&text)) } else { Ok(()) }
}

/// Writes what a recording holds as files of a new folder.
fn extract(args: &RecordingExtract) -> Result<()> {
    recording::extract(&opened(&args.file)?, &args.out)?.iter().try_for_each(|path| out::line(path.display()))
}
