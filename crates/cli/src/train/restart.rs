//! Beginning again in a new process where the compile budget of this one ends.
//!
//! The engine gives each process a budget of compiles, and only a new process has a new one
//! (apple-runtime §3), so the reference trainer executes itself again and so does this one: the
//! same command line, with `--resume` once there is a checkpoint. Since checkpoints are taken
//! between updates, the run is bit for bit the one that nothing happened to.
//!
//! A process that stops where the one before it stopped has come no further, unless compiled
//! programs were kept on the disk. So many of these in a row are tolerated, then the error is told.

use std::process::Command;

use super::Show;
use crate::args::Train;
use crate::error::{Error, Result};
use ferrane::train::run::Event;

/// Says to the next process after which update, and for which time there, this one ended:
/// `STEP:COUNT`.
const RESTARTED: &str = "FERRANE_RESTARTED";
/// Restarts in a row without an update: one for each of the ten kernels, where each compile is
/// kept.
const MOST: u32 = 10;

/// Begins again if the error is a spent budget; otherwise the error stands. `step` is that of the
/// newest checkpoint.
///
/// # Errors
/// The error, or that no process could be started.
pub fn after(error: Error, args: &Train, step: Option<u64>, show: &mut Show) -> Result<()> {
    if error.device() != Some(ferrane::ErrorKind::CompileBudget) {
        return Err(error);
    }
    let at = step.map_or("begin".to_string(), |step| step.to_string());
    let before = std::env::var(RESTARTED).ok();
    let before = before.as_deref().and_then(|text| text.split_once(':')).filter(|(step, _)| *step == at);
    let count = before.and_then(|(_, count)| count.parse().ok()).unwrap_or(0u32).saturating_add(1);
    if count > MOST {
        return Err(
            error.hint("A new process came no further; keep compiled programs with the device's option staging=DIR.")
        );
    }
    let place = step.map_or("before the first update".to_string(), |step| format!("after update {step}"));
    show.finish();
    show.event(&Event::Warning {
        text: format!("the compile budget of this process is spent {place}: going on in a new one"),
    });
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(RESTARTED, format!("{at}:{count}"));
    if step.is_some() && !args.resume {
        command.arg("--resume");
    }
    replace(command)
}

/// Puts a command in this process's place.
#[cfg(unix)]
fn replace(mut command: Command) -> Result<()> {
    use std::os::unix::process::CommandExt as _;
    Err(command.exec().into())
}

/// Runs a command and ends as it does.
#[cfg(not(unix))]
fn replace(mut command: Command) -> Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1))
}
