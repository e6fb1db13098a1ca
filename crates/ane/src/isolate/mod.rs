//! The engine in a child process, so that what kills or hangs a process kills and hangs that one
//! only.
//!
//! `ane?isolate=on` starts this program again with a hidden argument; [`serve`], which the
//! program's `main` calls first, opens the engine there and answers messages on standard input and
//! output until the input ends. The device of the parent is a backend whose stages are those
//! messages: each has one answer, and they follow one another. A child that dies, says what cannot
//! be understood, or gives no answer in time is ended: the call fails with [`ErrorKind::Crashed`],
//! as do the programs that were in it, and the next program to be loaded, or one that is loaded
//! again, gets a fresh child.
//!
//! The one decision: surfaces are memory of the parent, and their bytes go over the pipes, inputs
//! with a request and outputs with its answer. That copies, and it needs no memory that two
//! processes share and one of them may leave half-written when it dies. It is for programs that one
//! does not trust yet, not for speed.
//!
//! A message is a mark, the length of what follows, and that; `message` reads it and takes nothing
//! for granted. What a child leaves staged when it is killed goes when the next device is opened.
//!
//! [`ErrorKind::Crashed`]: ferrane_device::ErrorKind::Crashed

mod child;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod device;
// Without an engine nobody asks, and the answers are one refusal.
#[cfg_attr(not(any(target_vendor = "apple", feature = "objc-runtime")), allow(dead_code))]
mod message;
#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod worker;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
pub(crate) use device::Isolated;

/// The argument by which a child knows what it is; the device's options follow.
const ARGUMENT: &str = "--ferrane-isolated-ane";

/// Whether `main` would serve as a child.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Serves as the child of a device that was opened with `isolate`, if this process is one; gives
/// the code to exit with then. To be called first in `main`, before anything is written to standard
/// output; without it `isolate` is refused.
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
