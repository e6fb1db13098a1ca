//! Training: a session in a thread of its own, whose events Python iterates over.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane::diag::did_you_mean;
use ferrane::train::run::Event;
use ferrane::train::session::{Session, SessionError, SessionOptions, StoredRun};
use pyo3::prelude::*;
use serde_json::Value;

use crate::error::failed;
use crate::fork::unlocked;
use crate::queue::TextQueue;

/// The name of plain fp32 arithmetic without a device.
const REFERENCE: &str = "reference";

/// What a thread of training begins with.
enum Start {
    New(Box<SessionOptions>),
    Resume(PathBuf),
}

/// A run of training.
#[pyclass(frozen, module = "ferrane._native")]
pub struct Training {
    events: TextQueue,
    stop: Arc<AtomicBool>,
}

/// The options of the library with those of a JSON object instead.
fn options(text: &str) -> PyResult<SessionOptions> {
    let given: Value = serde_json::from_str(text).map_err(failed)?;
    let has_data = given.get("data").and_then(Value::as_array).is_some_and(|data| !data.is_empty());
    let base = if has_data { SessionOptions::default() } else { SessionOptions::embedded() };
    let mut all = serde_json::to_value(base).map_err(failed)?;
    for (name, value) in given.as_object().into_iter().flatten() {
        let Some(option) = all.get_mut(name) else {
            let names = all.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
            return Err(failed(format!("`{name}` is no option of a run{}", did_you_mean(name, names))));
        };
        *option = value.clone();
        // Each by itself, so that the message has its name.
        serde_json::from_value::<SessionOptions>(all.clone()).map_err(|e| failed(format!("`{name}`: {e}")))?;
    }
    serde_json::from_value(all).map_err(failed)
}

/// Begins or continues a run, and trains until it ends or is stopped.
fn train(start: Start, stop: &AtomicBool, events: &mut dyn FnMut(&Event)) -> Result<(), String> {
    let opened = |name: &str| match name {
        REFERENCE => Ok(None),
        name => ferrane::open(name).map(Some).map_err(|e| e.to_string()),
    };
    let text = |e: SessionError| e.to_string();
    let mut session = match start {
        Start::New(options) => {
            let device = opened(&options.device)?;
            Session::begin(*options, device.as_ref(), events).map_err(text)?
        }
        Start::Resume(folder) => {
            let stored = StoredRun::open(&folder).map_err(text)?;
            let options = stored.options().clone();
            let device = opened(&options.device)?;
            stored.resume(options, device.as_ref(), events).map_err(text)?
        }
    };
    session.run(events, stop).map(|_| ()).map_err(text)
}

impl Training {
    fn start(py: Python<'_>, start: Start) -> PyResult<Training> {
        unlocked(py, || ())?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let events = TextQueue::spawn("ferrane-train", move |send| {
            let mut events = |event: &Event| {
                let text = serde_json::to_string(event).unwrap_or_default();
                // Without a reader the run saves a checkpoint and ends.
                if !send(text) {
                    flag.store(true, Ordering::Relaxed);
                }
            };
            train(start, &flag, &mut events)
        })?;
        Ok(Training { events, stop })
    }
}

#[pymethods]
impl Training {
    /// Begins a run with the options of a JSON object; the others have their defaults.
    #[staticmethod]
    fn begin(py: Python<'_>, text: &str) -> PyResult<Training> {
        Training::start(py, Start::New(Box::new(options(text)?)))
    }

    /// Continues the run of a folder.
    #[staticmethod]
    fn resume(py: Python<'_>, folder: PathBuf) -> PyResult<Training> {
        Training::start(py, Start::Resume(folder))
    }

    /// Asks the run to save a checkpoint and to end after the current micro-step.
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Stops the run, drops the events that were not read, and waits until the checkpoint is saved.
    fn close(&self, py: Python<'_>) {
        self.stop.store(true, Ordering::Relaxed);
        self.events.close(py);
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next event, as JSON.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.events.next(py)
    }
}
