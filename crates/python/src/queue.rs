//! Texts that a thread makes while Python reads them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::failed;

/// Texts that are made ahead of the reader.
const AHEAD: usize = 16;

/// How often a reader that waits looks for signals, Ctrl-C for example.
const SIGNALS: Duration = Duration::from_millis(50);

/// The reader's end. When it is closed or dropped, the writer learns so at its next text.
pub struct TextQueue {
    from: Mutex<Option<Receiver<Result<String, String>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TextQueue {
    /// Starts a thread. Its work sends texts, which returns whether there is still a reader; an
    /// error comes after the last text.
    pub fn spawn(
        name: &str,
        work: impl FnOnce(&dyn Fn(String) -> bool) -> Result<(), String> + Send + 'static,
    ) -> PyResult<TextQueue> {
        let (to, from) = sync_channel(AHEAD);
        let thread = std::thread::Builder::new().name(name.into());
        let run = move || {
            // What the work holds is gone with it, so nothing broken is seen afterwards.
            let result = catch_unwind(AssertUnwindSafe(|| work(&|text| to.send(Ok(text)).is_ok())));
            if let Err(error) = result.unwrap_or_else(|_| Err("a bug in Ferrane ended the thread".into())) {
                let _ = to.send(Err(error));
            }
        };
        let thread = Mutex::new(Some(thread.spawn(run).map_err(failed)?));
        Ok(TextQueue { from: Mutex::new(Some(from)), thread })
    }

    /// The next text; `None` after the last one, and once it is closed.
    pub fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        loop {
            let next = py.detach(|| match self.from.lock().as_deref() {
                Ok(Some(from)) => from.recv_timeout(SIGNALS),
                _ => Err(RecvTimeoutError::Disconnected),
            });
            match next {
                Ok(text) => return text.map(Some).map_err(failed),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }

    /// Drops what was not read, and waits until the thread has ended.
    pub fn close(&self, py: Python<'_>) {
        py.detach(|| {
            if let Ok(mut from) = self.from.lock() {
                from.take();
            }
            let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
            // Its panic was caught.
            let _ = thread.map(JoinHandle::join);
        });
    }
}
