//! A thread that makes texts, which another one receives.
//!
//! Nothing here knows Python, so a test of Rust runs it (`tests/worker.rs`).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Texts that are made ahead of the reader.
const AHEAD: usize = 16;

/// A text, or why there are no more.
pub type Made = Result<String, String>;

/// Starts a thread. Its work sends texts, which returns whether there is still a reader; an error,
/// also that of a panic, comes after the last text.
pub fn spawn(
    name: &str,
    work: impl FnOnce(&dyn Fn(String) -> bool) -> Result<(), String> + Send + 'static,
) -> io::Result<(Receiver<Made>, JoinHandle<()>)> {
    let (to, from) = sync_channel(AHEAD);
    let run = move || {
        // What the work holds is gone with it, so nothing broken is seen afterwards.
        let result = catch_unwind(AssertUnwindSafe(|| work(&|text| to.send(Ok(text)).is_ok())));
        if let Err(error) = result.unwrap_or_else(|_| Err("a bug in Ferrane ended the thread".into())) {
            let _ = to.send(Err(error));
        }
    };
    Ok((from, Builder::new().name(name.into()).spawn(run)?))
}
