//! Training: a session in a thread of its own, whose events Python iterates over.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane::diag::did_you_mean;
use ferrane::train::run::Event;
use ferrane::train::session::{Session, SessionError, SessionOptions, StoredRun};
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::error::failed;
use crate::fork::unlocked;
use crate::queue::TextQueue;

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

/// The options of a new run, with those of a JSON object instead of its own.
fn options(text: &str) -> PyResult<SessionOptions> {
    let given: Map<String, Value> = serde_json::from_str(text).map_err(failed)?;
    let data = read(&given, "data")?.data;
    let mut all = serde_json::to_value(SessionOptions::over(data)).map_err(failed)?;
    let Some(options) = all.as_object_mut() else { return Err(failed("the options are no object")) };
    for (name, value) in &given {
        if !options.contains_key(name) {
            let hint = did_you_mean(name, options.keys().map(String::as_str));
            return Err(failed(format!("`{name}` is no option of a run{hint}")));
        }
        // Each by itself, so that the message has its name.
        read(&given, name)?;
        options.insert(name.clone(), value.clone());
    }
    let mut options: SessionOptions = serde_json::from_value(all).map_err(failed)?;
    if !given.contains_key("warmup") {
        options.shorten_warmup();
    }
    Ok(options)
}

/// The defaults with one of the given options, if it is there.
fn read(given: &Map<String, Value>, name: &str) -> PyResult<SessionOptions> {
    let one: Map<String, Value> = given.get_key_value(name).map(|(k, v)| (k.clone(), v.clone())).into_iter().collect();
    serde_json::from_value(one.into()).map_err(|e| failed(format!("`{name}`: {e}")))
}

/// Begins or continues a run, and trains until it ends or is stopped.
fn train(start: Start, stop: &AtomicBool, events: &mut dyn FnMut(&Event)) -> Result<(), String> {
    let opened = |name: &str| ferrane::open_or_reference(name).map_err(|e| e.to_string());
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
    session = session.with_sensors(ferrane::sensors::open());
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
