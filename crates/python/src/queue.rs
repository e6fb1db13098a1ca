//! Texts that a thread makes while Python reads them.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::failed;
use crate::worker::{self, Made};

/// How often a reader that waits looks for signals, Ctrl-C for example.
const SIGNALS: Duration = Duration::from_millis(50);

/// The reader's end. When it is closed or dropped, the writer learns so at its next text.
pub struct TextQueue {
    from: Mutex<Option<Receiver<Made>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TextQueue {
    /// Starts a thread, as [`worker::spawn`].
    pub fn spawn(
        name: &str,
        work: impl FnOnce(&dyn Fn(String) -> bool) -> Result<(), String> + Send + 'static,
    ) -> PyResult<TextQueue> {
        let (from, thread) = worker::spawn(name, work).map_err(failed)?;
        Ok(TextQueue { from: Mutex::new(Some(from)), thread: Mutex::new(Some(thread)) })
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
