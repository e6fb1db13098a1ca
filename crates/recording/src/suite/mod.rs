//! Recordings of every program below a folder.
//!
//! A process may compile only so many programs on an engine, and a machine may end a process. So
//! what is recorded stays: [`record_suite`] skips a program whose file exists, and the same call in
//! a new process continues with the others.

mod filetest;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane_device::{Device, ErrorKind};
use ferrane_mil::Program;
use ferrane_mil::package::{Care, open_checked};
use ferrane_tensor_io::{TensorSource, Unnamed, arguments};

use crate::{Job, Outcome, Recording, RecordingError, Summary};

/// The extension of recordings.
pub const EXTENSION: &str = "anetrace";

/// A function of a program with its inputs.
#[derive(Clone, Debug)]
pub struct SuiteCase {
    /// The program that has the function.
    pub program: Program,
    /// The name of the function.
    pub function: String,
    /// The values of inputs and states that are given; the other inputs are random.
    pub sources: Vec<(String, TensorSource)>,
}

/// How a program is recorded.
#[derive(Clone, Debug)]
pub struct SuiteOptions {
    /// The device as it was opened, for the recording's header.
    pub device: String,
    /// The seed of random inputs.
    pub seed: u64,
    /// Evaluations, each of which is timed.
    pub runs: usize,
}

impl SuiteCase {
    /// Runs the function and records what comes of it. `name` is the program's name in the
    /// recording.
    ///
    /// # Errors
    /// A message for values that do not fit the inputs, and for a program that cannot be recorded.
    /// What the machine refuses is no error but a recording.
    pub fn record(&self, device: &Device, name: &str, options: &SuiteOptions) -> Result<Recording, String> {
        let function = self.program.function(&self.function);
        let function = function.ok_or_else(|| format!("the program has no function `{}`", self.function))?;
        let call = arguments(function, &self.sources, Unnamed::Random(options.seed)).map_err(|e| e.to_string())?;
        let (inputs, states) = (call.given_inputs(), call.given_states());
        let (program, function, runs) = (&self.program, function.name.as_str(), options.runs);
        let job = Job { program, function, label: name, inputs, states, runs };
        Recording::record(device, &options.device, &job).map_err(|e| e.to_string())
    }
}

/// What became of the programs of a suite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuiteTally {
    /// Programs that the machine computed.
    pub ran: usize,
    /// Programs that the machine refused.
    pub refused: usize,
    /// Programs that ran with an output that is poor evidence ([`Summary::doubt`]).
    pub doubtful: usize,
    /// Files that could not be read or recorded.
    pub left_out: usize,
    /// Programs whose recordings existed.
    pub existing: usize,
    /// Why the suite ended before its last program, if it did.
    pub stopped: Option<SuiteStop>,
}

/// Why a suite ends before its last program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuiteStop {
    /// The caller's flag was set.
    Interrupted,
    /// The process can compile no more programs.
    Budget,
}

/// What [`record_suite`] reports while it works.
#[derive(Debug)]
pub enum SuiteEvent<'a> {
    /// A recording was written to this file.
    Recorded(&'a Path, &'a Recording),
    /// A program was left out, for this reason.
    LeftOut(&'a Path, String),
}

/// Records every program below `folder`, in the order of their paths, into files of the folder
/// `target`, until `stop` is set. `report` hears of every program; its first error ends the suite.
///
/// # Errors
/// A file or folder that cannot be read or written, and the errors of `report`.
pub fn record_suite<E: From<RecordingError>>(
    device: &Device,
    folder: &Path,
    target: &Path,
    options: &SuiteOptions,
    stop: &AtomicBool,
    mut report: impl FnMut(SuiteEvent<'_>) -> Result<(), E>,
) -> Result<SuiteTally, E> {
    let mut tally = SuiteTally::default();
    let mut used = BTreeSet::new();
    fs::create_dir_all(target).map_err(RecordingError::Io)?;
    for path in &programs(folder).map_err(RecordingError::Io)? {
        let cases = match cases(path) {
            Ok(cases) => cases,
            Err(reason) => {
                tally.left_out += 1;
                report(SuiteEvent::LeftOut(path, reason))?;
                continue;
            }
        };
        let several = cases.len() > 1;
        let program = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        for (i, case) in cases.iter().enumerate() {
            if stop.load(Ordering::SeqCst) {
                tally.stopped = Some(SuiteStop::Interrupted);
                return Ok(tally);
            }
            let number = if several { format!("-{}", i + 1) } else { String::new() };
            let name = format!("{}{number}", flat(path.strip_prefix(folder).unwrap_or(path)));
            // Different paths may have the same flat name.
            let mut names = (1..).map(|n| if n == 1 { name.clone() } else { format!("{name}~{n}") });
            let Some(name) = names.find(|name| used.insert(name.clone())) else { continue };
            let file = target.join(format!("{name}.{EXTENSION}"));
            if file.exists() {
                tally.existing += 1;
                continue;
            }
            match case.record(device, &program, options) {
                Err(reason) => {
                    tally.left_out += 1;
                    report(SuiteEvent::LeftOut(path, reason))?;
                }
                Ok(recording) if is_budget(&recording) => {
                    tally.stopped = Some(SuiteStop::Budget);
                    return Ok(tally);
                }
                Ok(recording) => {
                    crate::write(&recording, &file)?;
                    tally.count(&recording);
                    report(SuiteEvent::Recorded(&file, &recording))?;
                }
            }
        }
    }
    Ok(tally)
}

impl SuiteTally {
    fn count(&mut self, recording: &Recording) {
        match recording.header.outcome {
            Outcome::Failed(_) => self.refused += 1,
            Outcome::Ran { .. } => self.ran += 1,
        }
        self.doubtful += usize::from(recording.outputs.iter().any(|(_, t)| Summary::of(t).doubt().is_some()));
    }
}

/// True if the machine refused because of the programs before this one.
fn is_budget(recording: &Recording) -> bool {
    recording.failure().is_some_and(|failure| failure.kind == ErrorKind::CompileBudget.code())
}

/// A file's path as one name.
fn flat(path: &Path) -> String {
    let stem = path.with_extension("");
    let parts: Vec<String> = stem.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    parts.join("-")
}

/// The cases of a file: of a filetest each `// run:` line, of any other program its function `main`
/// or the first one, with random inputs. A filetest that does not run has none.
///
/// # Errors
/// A message for a file that cannot be read or is not right.
pub fn cases(path: &Path) -> Result<Vec<SuiteCase>, String> {
    if path.extension().is_some_and(|e| e == "mil") {
        let bytes = fs::read(path).map_err(|e| e.to_string())?;
        if let Some(text) = std::str::from_utf8(&bytes).ok().filter(|text| filetest::is(text)) {
            return filetest::cases(text);
        }
    }
    let opened = open_checked(path, Care::Machine).map_err(|e| e.to_string())?;
    let program = opened.program.ok_or_else(|| {
        format!("the program is not right:\n{}", opened.diagnostics.render(&opened.source, false).trim_end())
    })?;
    let function = program.function("main").or(program.functions.first());
    let function = function.ok_or("the program has no function")?.name.clone();
    Ok(vec![SuiteCase { program, function, sources: Vec::new() }])
}

/// Every `.mil`, `.mlpackage`, `.mlmodel` and `.mlmodelc` below a folder, sorted. Links to folders
/// are not followed.
///
/// # Errors
/// A folder that cannot be read.
pub fn programs(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
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
