//! Texts that a thread makes while Python reads them.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::failed;

/// Texts that are made ahead of the reader.
const AHEAD: usize = 16;

/// How often a reader that waits looks for signals, Ctrl-C for example.
const SIGNALS: Duration = Duration::from_millis(50);

/// The reader's end. When it is dropped, the writer learns so at its next text.
pub struct TextQueue(Mutex<Receiver<Result<String, String>>>);

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
            if let Err(error) = work(&|text| to.send(Ok(text)).is_ok()) {
                let _ = to.send(Err(error));
            }
        };
        thread.spawn(run).map_err(failed)?;
        Ok(TextQueue(Mutex::new(from)))
    }

    /// The next text; `None` after the last one.
    pub fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        loop {
            let next = py.detach(|| match self.0.lock() {
                Ok(from) => from.recv_timeout(SIGNALS),
                Err(_) => Err(RecvTimeoutError::Disconnected),
            });
            match next {
                Ok(text) => return text.map(Some).map_err(failed),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }
}
