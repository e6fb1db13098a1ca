//! Restarts a run in a new process when the compile budget of this one is spent.
//!
//! The engine gives each process a budget of compiles, which only a new process renews
//! (apple-runtime §3). Like the reference trainer, the command therefore executes itself again:
//! with the same command line, and with `--resume` once there is a checkpoint. Checkpoints are
//! taken between updates, so a restart changes no bit of the result.
//!
//! A process that stops at the same update as its predecessor has made no progress, except that
//! compiled programs may have been kept on the disk. After [`MOST`] such restarts in a row the
//! error is reported.

use std::process::Command;

use super::Show;
use crate::args::Train;
use crate::error::{Error, Result};
use ferrane::train::run::Event;

/// Environment variable for the next process: the update after which this one ended, and the number
/// of restarts there, as `STEP:COUNT`.
const RESTARTED: &str = "FERRANE_RESTARTED";
/// Largest number of restarts in a row without an update: one for each of the ten kernels, if each
/// compile is kept.
const MOST: u32 = 10;

/// Restarts the process if the error is a spent budget; otherwise returns the error. `step` is that
/// of the newest checkpoint.
///
/// # Errors
/// `error` itself, or the failure to start a process.
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
        text: format!("the compile budget of this process is spent {place}: continuing in a new process"),
    });
    let mut command = crate::again()?;
    command.args(crate::arguments()).env(RESTARTED, format!("{at}:{count}"));
    if step.is_some() && !args.resume {
        command.arg("--resume");
    }
    replace(command)
}

/// Replaces this process by a command.
#[cfg(unix)]
fn replace(mut command: Command) -> Result<()> {
    use std::os::unix::process::CommandExt as _;
    Err(command.exec().into())
}

/// Runs a command and exits with its status.
#[cfg(not(unix))]
fn replace(mut command: Command) -> Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(1))
}
