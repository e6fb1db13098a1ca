//! The engine in a child process, so that crashes and hangs are confined to the child.
//!
//! `ane?isolate=on` starts this program again with a hidden argument. [`serve`], which the
//! program's `main` calls first, opens the engine there and answers messages on standard input and
//! output until the input ends. The device of the parent is a backend whose stages are those
//! messages; each has one answer, and they are sequential. A child that dies, sends a malformed
//! message or does not answer in time is terminated: the call fails with [`ErrorKind::Crashed`], as
//! do the programs that were in it. The next program that is loaded or reloaded gets a new child.
//!
//! # Surfaces are copied
//!
//! Surfaces are memory of the parent; their bytes are sent through the pipes, inputs with a request
//! and outputs with its answer. Copying avoids shared memory that a dying child could leave
//! half-written. The option is for untrusted programs, not for speed.
//!
//! Messages are validated by `message`. Files that a killed child left staged are removed when the
//! next device is opened.
//!
//! [`ErrorKind::Crashed`]: ferrane_device::ErrorKind::Crashed

mod child;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod device;
// Without an engine no message is sent, and the only answer is a refusal.
#[cfg_attr(not(any(target_vendor = "apple", feature = "objc-runtime")), allow(dead_code))]
mod message;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod worker;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
pub(crate) use device::Isolated;

/// The argument that marks a child; the device's options follow.
const ARGUMENT: &str = "--ferrane-isolated-ane";

/// Whether `main` calls [`serve`].
static SERVES: AtomicBool = AtomicBool::new(false);

/// Serves as the child of a device that was opened with `isolate`, if this process is one, and then
/// returns the exit code. Call it first in `main`, before anything is written to standard output;
/// without it `isolate` is refused.
pub fn serve() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(ARGUMENT) {
        SERVES.store(true, Ordering::Relaxed);
        return None;
    }
    let options = arguments.next().unwrap_or_default();
    let served = child::serve(&options, &mut std::io::stdin().lock(), &mut std::io::stdout().lock());
    Some(if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
