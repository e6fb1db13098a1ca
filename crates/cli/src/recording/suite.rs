//! `ferrane recording make --suite`: every program below a folder.
//!
//! A process may compile only so many programs on an engine, and a machine may take a process down.
//! So what is recorded stays: a file that is there already is not made again, and the same command
//! goes on where the last one ended.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane::recording::{Outcome, Recording, Summary};
use ferrane::{Device, ErrorKind};

use super::filetest;
use super::record::{Case, EXTENSION, one, tell, write};
use crate::args::RecordingMake;
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{files, out};

/// What became of a suite.
#[derive(Default)]
struct Tally {
    ran: usize,
    refused: usize,
    doubtful: usize,
    left_out: usize,
    there: usize,
}

/// Why a suite ends before its last program.
enum End {
    /// Ctrl-C.
    Stopped,
    /// The process can compile no more.
    Budget,
}

/// Records every program below a folder.
pub fn record(args: &RecordingMake, device: &Device, folder: &Path) -> Result<()> {
    let programs = discover(folder)?;
    if programs.is_empty() {
        return Err(files::failed(folder, "holds no .mil, .mlpackage, .mlmodel or .mlmodelc"));
    }
    let target = args.out.clone().unwrap_or_else(|| PathBuf::from("recordings"));
    fs::create_dir_all(&target).map_err(|e| files::failed(&target, e))?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_ctrl_c(&stop)?;
    let mut tally = Tally::default();
    let end = tally.all(args, device, folder, &programs, &target, &stop)?;
    let Tally { ran, refused, doubtful, left_out, there } = tally;
    let word = if end.is_some() { "stopped" } else { "done" };
    let (made, many) = (ran + refused, if ran + refused == 1 { "" } else { "s" });
    let before = if there > 0 { format!(", {there} were there already") } else { String::new() };
    out::note(format_args!(
        "{word}: {made} recording{many} in {}: {ran} ran ({doubtful} with doubtful outputs), {refused} refused; {left_out} left out{before}",
        target.display()
    ));
    match end {
        None => Ok(()),
        Some(End::Stopped) => Err(Error::told()),
        Some(End::Budget) => Err(Error::new(
            "this process can compile no more programs; run the same command again, and it goes on with those that are left",
        )),
    }
}

impl Tally {
    fn all(
        &mut self,
        args: &RecordingMake,
        device: &Device,
        folder: &Path,
        programs: &[PathBuf],
        target: &Path,
        stop: &AtomicBool,
    ) -> Result<Option<End>> {
        let mut used = BTreeSet::new();
        for path in programs {
            let cases = match cases(path) {
                Ok(cases) => cases,
                Err(error) => {
                    self.leave(&error);
                    continue;
                }
            };
            let several = cases.len() > 1;
            for (i, case) in cases.into_iter().enumerate() {
                if stop.load(Ordering::SeqCst) {
                    return Ok(Some(End::Stopped));
                }
                let number = if several { format!("-{}", i + 1) } else { String::new() };
                let name = format!("{}{number}", flat(path.strip_prefix(folder).unwrap_or(path)));
                // Paths that differ may be one name.
                let names = (1..).map(|n| if n == 1 { name.clone() } else { format!("{name}~{n}") });
                let Some(name) = names.into_iter().find(|name| used.insert(name.clone())) else { continue };
                let file = target.join(format!("{name}.{EXTENSION}"));
                if file.exists() {
                    self.there += 1;
                    continue;
                }
                match one(args, device, path, case) {
                    Err(error) => self.leave(&error),
                    Ok(recording) if is_budget(&recording) => return Ok(Some(End::Budget)),
                    Ok(recording) => {
                        write(&recording, &file)?;
                        self.count(&recording);
                        tell(args, &recording, &file)?;
                    }
                }
            }
        }
        Ok(None)
    }

    fn leave(&mut self, error: &Error) {
        self.left_out += 1;
        out::note(format_args!("left out: {error}"));
    }

    fn count(&mut self, recording: &Recording) {
        match recording.header.outcome {
            Outcome::Failed(_) => self.refused += 1,
            Outcome::Ran { .. } => self.ran += 1,
        }
        self.doubtful += usize::from(recording.outputs.iter().any(|(_, t)| Summary::of(t).doubt().is_some()));
    }
}

/// True if the machine refused for the sake of other programs: that says nothing of this one.
fn is_budget(recording: &Recording) -> bool {
    matches!(&recording.header.outcome, Outcome::Failed(failure) if failure.kind == ErrorKind::CompileBudget.code())
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
