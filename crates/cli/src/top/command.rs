//! `ferrane top -- COMMAND`: what the computer drew and did while a command ran.

use std::fmt;
use std::io::{self, ErrorKind};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrane::sensors::{self, MeasuredTime, measure};
use serde::Serialize;

use crate::args::Top;
use crate::error::{Error, Result};
use crate::out;

/// The status of a command that does not exist, and of one that cannot be run, as in a shell
/// (POSIX, "Exit Status for Commands").
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;
/// What a shell adds to the number of the signal that ended a command.
const SIGNALED: i32 = 128;

/// A command and what was measured while it ran.
#[derive(Serialize)]
struct CommandReport {
    command: Vec<String>,
    /// The status that it exited with; `null` if a signal ended it.
    status: Option<i32>,
    /// The number of the signal that ended it.
    signal: Option<i32>,
    #[serde(flatten)]
    measured: MeasuredTime,
}

impl fmt::Display for CommandReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.command.iter().map(|word| out::quoted(word)).collect();
        write!(f, "\n{}: ", words.join(" "))?;
        match (self.status, self.signal) {
            (Some(status), _) => writeln!(f, "exit status {status}")?,
            (None, Some(signal)) => writeln!(f, "ended by signal {signal}")?,
            (None, None) => writeln!(f, "ended")?,
        }
        write!(f, "{}", self.measured.to_string().trim_end())
    }
}

/// Runs the command, reports, and ends with its status.
pub fn run(args: &Top) -> Result<()> {
    let [program, words @ ..] = args.command.as_slice() else {
        return Err(Error::new("no command was given"));
    };
    let mut command = Command::new(program);
    command.args(words);
    if args.json {
        command.stdout(io::stderr());
    }
    let process = Arc::new(AtomicU32::new(0));
    leave_signals_to(&process)?;
    let mut sensors = sensors::open();
    let (status, measured) = measure(&mut sensors, args.interval, || {
        let mut child = command.spawn()?;
        process.store(child.id(), Ordering::SeqCst);
        let status = child.wait();
        process.store(0, Ordering::SeqCst);
        status
    });
    let status = status.map_err(|error| {
        let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
        Error::new(format!("cannot run `{}`: {error}", program.to_string_lossy())).with_status(code)
    })?;
    let report = CommandReport {
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        status: status.code(),
        signal: signal(status),
        measured,
    };
    let printed = if args.json {
        out::json(&report)
    } else {
        out::note(&report);
        Ok(())
    };
    match report.status.or(report.signal.map(|signal| SIGNALED + signal)).unwrap_or(1) {
        0 => printed,
        code => Err(Error::exit(u8::try_from(code).unwrap_or(1))),
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}

/// A terminal sends Ctrl-C to the command as well, which decides what it does. The second signal is
/// passed on as SIGTERM, and the next ones as SIGKILL.
fn leave_signals_to(process: &Arc<AtomicU32>) -> Result<()> {
    let (process, signals) = (process.clone(), AtomicU32::new(0));
    let handler = move || match (signals.fetch_add(1, Ordering::SeqCst), process.load(Ordering::SeqCst)) {
        (_, 0) => std::process::exit(SIGNALED + 2),
        (0, _) => {}
        (count, id) => end(id, count > 1),
    };
    ctrlc::set_handler(handler).map_err(|e| Error::new(format!("Ctrl-C cannot be handled: {e}")))
}

#[cfg(unix)]
fn end(id: u32, at_once: bool) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = if at_once { Signal::KILL } else { Signal::TERM };
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(not(unix))]
fn end(_: u32, _: bool) {
    std::process::exit(SIGNALED + 2);
}
