//! Records every call to a backend, one line each, and forwards it.
//!
//! Surfaces, events and requests are numbered in the order in which they appear (`s0`, `e0`, `r0`),
//! so two runs of one caller give the same lines on every machine. The line of a failed call ends
//! with `-> E06xx`.
//!
//! ```text
//! allocate s0 fp16 [1, 4, 1, 8] 64 bytes
//! compile woFwd: text of 312 bytes, 1 weights
//! load woFwd
//! prepare r0: woFwd.main x=s0 y=s1
//! evaluate r0
//! ```

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferrane_host::buffer::SharedBytes;
use ferrane_host::sync::lock;
use ferrane_machine::Profile;
use ferrane_mil::Program;

use crate::backend::{
    Accesses, Backend, Chaining, CompileOptions, Compiled, Completion, Computer, Done, Event, Events, Loaded, Prepared,
    ProgramSource, ProgramState, Stats,
};
use crate::{Bindings, Call, Error, Footprint, Foreign, Layout, Memory, Procedure, Result, Returned};

/// An event that the recorder handed out or met, and the machine's own event that it wraps. The
/// weak reference keeps the address from being reused.
type Handed = (Weak<dyn Event>, Option<Weak<dyn Event>>);

#[derive(Default)]
struct Log {
    lines: Vec<String>,
    surfaces: Vec<SharedBytes>,
    events: Vec<Handed>,
    requests: usize,
}

/// The recorded calls. Clones share the record.
#[derive(Clone, Default)]
pub struct CallRecord(Arc<Mutex<Log>>);

impl CallRecord {
    fn with<T>(&self, f: impl FnOnce(&mut Log) -> T) -> T {
        f(&mut lock(&self.0))
    }

    /// The lines recorded so far.
    pub fn lines(&self) -> Vec<String> {
        self.with(|log| log.lines.clone())
    }

    /// Removes the lines; numbering continues.
    pub fn clear(&self) {
        self.with(|log| log.lines.clear());
    }

    fn push(&self, line: String) {
        self.with(|log| log.lines.push(line));
    }

    /// Records a line, with the error code if the call failed.
    fn note<T>(&self, line: impl fmt::Display, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => self.push(line.to_string()),
            Err(error) => self.push(format!("{line} -> {}", error.kind().code())),
        }
        result
    }

    fn bindings(&self, procedures: &[Procedure], bindings: &Bindings) -> String {
        let first = || procedures.first().map_or("", |p| &p.name);
        let mut text = bindings.procedure_name().unwrap_or_else(first).to_string();
        self.with(|log| {
            for (port, surface) in bindings.surfaces() {
                text += &format!(" {port}={}", log.surface(surface.memory().bytes()));
            }
            for (event, value) in bindings.waits() {
                text += &format!(" wait {}>={value}", log.event(event));
            }
            for (event, value) in bindings.signals() {
                text += &format!(" signal {}={value}", log.event(event));
            }
        });
        text
    }

    fn unwrapped(&self, bindings: &Bindings) -> Bindings {
        self.with(|log| bindings.clone().map_events(|event| log.inner(event)))
    }

    fn request(&self) -> String {
        self.with(|log| {
            log.requests += 1;
            format!("r{}", log.requests - 1)
        })
    }
}

impl Log {
    fn surface(&mut self, bytes: &SharedBytes) -> String {
        let known = self.surfaces.iter().position(|b| b.same(bytes));
        let n = known.unwrap_or_else(|| {
            self.surfaces.push(bytes.clone());
            self.surfaces.len() - 1
        });
        format!("s{n}")
    }

    fn event(&mut self, event: &Arc<dyn Event>) -> String {
        let address = Arc::as_ptr(event).cast::<()>();
        let known = self.events.iter().position(|(e, _)| e.as_ptr().cast::<()>() == address);
        let n = known.unwrap_or_else(|| {
            self.events.push((Arc::downgrade(event), None));
            self.events.len() - 1
        });
        format!("e{n}")
    }

    /// The machine's own event for one that the recorder handed out. The machine gets its own
    /// events, so its use of them is not recorded.
    fn inner(&self, event: &Arc<dyn Event>) -> Arc<dyn Event> {
        let address = Arc::as_ptr(event).cast::<()>();
        let known = self.events.iter().find(|(e, _)| e.as_ptr().cast::<()>() == address);
        known.and_then(|(_, inner)| inner.as_ref()?.upgrade()).unwrap_or_else(|| event.clone())
    }
}

/// A backend that records calls and forwards them.
pub(crate) struct Recorder {
    inner: Arc<dyn Backend>,
    record: CallRecord,
}

impl Recorder {
    pub(crate) fn new(inner: Arc<dyn Backend>) -> Recorder {
        Recorder { inner, record: CallRecord::default() }
    }

    pub(crate) fn record(&self) -> CallRecord {
        self.record.clone()
    }
}

impl Backend for Recorder {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    fn computer(&self) -> Option<Computer> {
        self.inner.computer()
    }

    fn compile(&self, source: ProgramSource<'_>, options: &CompileOptions) -> Result<Box<dyn Compiled>> {
        let label = if options.label.is_empty() { "program".to_string() } else { options.label.clone() };
        let what = match &source {
            ProgramSource::Program(p) => {
                format!("program of {}", p.functions.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(", "))
            }
            ProgramSource::Text { mil, weights } => format!("text of {} bytes, {} weights", mil.len(), weights.len()),
            ProgramSource::Compiled(bytes) => format!("{} compiled bytes", bytes.len()),
        };
        let inner = self.record.note(format_args!("compile {label}: {what}"), self.inner.compile(source, options))?;
        Ok(Box::new(RecordedCompiled { inner, label, record: self.record.clone() }))
    }

    fn compiles_left(&self) -> Option<usize> {
        self.inner.compiles_left()
    }

    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>> {
        let memory = self.inner.allocate(layout);
        let name = match &memory {
            Ok(memory) => self.record.with(|log| log.surface(memory.bytes())),
            Err(_) => "surface".into(),
        };
        let Layout { dtype, shape, allocation, .. } = layout;
        self.record.note(format_args!("allocate {name} {dtype} {shape:?} {allocation} bytes"), memory)
    }

    fn events(&self) -> Option<&dyn Events> {
        self.inner.events().map(|_| self as &dyn Events)
    }

    fn notes(&self) -> Vec<String> {
        self.inner.notes()
    }

    fn call(&self, program: &Program, function: &str, call: &Call) -> Option<Result<Returned>> {
        self.inner.call(program, function, call)
    }

    fn footprint(&self) -> Footprint {
        self.inner.footprint()
    }
}

impl Events for Recorder {
    fn create(&self) -> Result<Arc<dyn Event>> {
        let Some(events) = self.inner.events() else {
            return Err(Error::new(crate::ErrorKind::Unavailable, "the device has no events"));
        };
        let event = events.create().map(|inner| {
            let own = Arc::downgrade(&inner);
            let event: Arc<dyn Event> = Arc::new_cyclic(|this: &Weak<RecordedEvent>| RecordedEvent {
                inner,
                this: this.clone(),
                record: self.record.clone(),
            });
            self.record.with(|log| log.events.push((Arc::downgrade(&event), Some(own))));
            event
        });
        let name = event.as_ref().map_or_else(|_| "event".into(), |e| self.record.with(|log| log.event(e)));
        self.record.note(format_args!("event {name}"), event)
    }
}

struct RecordedEvent {
    inner: Arc<dyn Event>,
    this: Weak<RecordedEvent>,
    record: CallRecord,
}

impl RecordedEvent {
    fn number(&self) -> String {
        let this = self.this.upgrade().map(|e| e as Arc<dyn Event>);
        this.map_or_else(|| "event".into(), |e| self.record.with(|log| log.event(&e)))
    }
}

impl Event for RecordedEvent {
    fn value(&self) -> u64 {
        self.inner.value()
    }

    fn signal(&self, value: u64) {
        self.record.push(format!("signal {}={value}", self.number()));
        self.inner.signal(value);
    }

    fn wait(&self, value: u64, timeout: Duration) -> bool {
        self.inner.wait(value, timeout)
    }

    fn foreign(&self) -> Foreign {
        self.inner.foreign()
    }
}

struct RecordedCompiled {
    inner: Box<dyn Compiled>,
    label: String,
    record: CallRecord,
}

impl Compiled for RecordedCompiled {
    fn key(&self) -> &str {
        self.inner.key()
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        self.inner.bytes()
    }

    fn load(&self) -> Result<Arc<dyn Loaded>> {
        let inner = self.record.note(format_args!("load {}", self.label), self.inner.load())?;
        Ok(Arc::new(RecordedLoaded { inner, label: self.label.clone(), record: self.record.clone() }))
    }

    fn state(&self) -> ProgramState {
        self.inner.state()
    }
}

struct RecordedLoaded {
    inner: Arc<dyn Loaded>,
    label: String,
    record: CallRecord,
}

impl RecordedLoaded {
    fn prepared(&self, name: String, line: String, inner: Result<Arc<dyn Prepared>>) -> Result<Arc<dyn Prepared>> {
        let inner = self.record.note(line, inner)?;
        Ok(Arc::new(RecordedPrepared { inner, name, record: self.record.clone() }))
    }
}

impl Loaded for RecordedLoaded {
    fn procedures(&self) -> &[Procedure] {
        self.inner.procedures()
    }

    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>> {
        let name = self.record.request();
        let line = format!("prepare {name}: {}.{}", self.label, self.record.bindings(self.procedures(), bindings));
        self.prepared(name, line, self.inner.prepare(&self.record.unwrapped(bindings)))
    }

    fn chaining(&self) -> Option<&dyn Chaining> {
        self.inner.chaining().map(|_| self as &dyn Chaining)
    }

    fn unload(&self) -> Result<()> {
        self.record.note(format_args!("unload {}", self.label), self.inner.unload())
    }

    fn reload(&self) -> Result<()> {
        self.record.note(format_args!("reload {}", self.label), self.inner.reload())
    }

    fn state(&self) -> ProgramState {
        self.inner.state()
    }
}

impl Chaining for RecordedLoaded {
    fn prepare_chain(&self, steps: &[Bindings]) -> Result<Arc<dyn Prepared>> {
        let Some(chaining) = self.inner.chaining() else {
            return Err(Error::new(crate::ErrorKind::Unavailable, "the device does not chain"));
        };
        let name = self.record.request();
        let texts: Vec<_> = steps.iter().map(|b| self.record.bindings(self.procedures(), b)).collect();
        let line = format!("chain {name}: {}.[{}]", self.label, texts.join("; "));
        let steps: Vec<_> = steps.iter().map(|b| self.record.unwrapped(b)).collect();
        self.prepared(name, line, chaining.prepare_chain(&steps))
    }
}

struct RecordedPrepared {
    inner: Arc<dyn Prepared>,
    name: String,
    record: CallRecord,
}

impl Prepared for RecordedPrepared {
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats> {
        self.record.note(format_args!("evaluate {}", self.name), self.inner.evaluate(accesses))
    }

    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        // Recorded before the call: a fast machine may be done before it returns.
        let line = self.record.with(|log| {
            log.lines.push(format!("submit {}", self.name));
            log.lines.len() - 1
        });
        let theirs = self.clone();
        let done = Box::new(move |completion: Completion| {
            let end = match &completion.result {
                Ok(_) => format!("done {}", theirs.name),
                Err(error) => format!("done {} -> {}", theirs.name, error.kind().code()),
            };
            theirs.record.push(end);
            done(completion);
        });
        self.inner.clone().submit(accesses, done).inspect_err(|(error, _)| {
            self.record.with(|log| {
                if let Some(text) = log.lines.get_mut(line) {
                    *text = format!("{text} -> {}", error.kind().code());
                }
            });
        })
    }
}
