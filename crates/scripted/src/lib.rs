//! A backend without a machine, for tests of callers: a script determines the procedures, and
//! evaluations copy bytes.
//!
//! Output *i* of a run gets the bytes of input *i* (modulo the number of inputs), up to the shorter
//! length, and each byte of each state is incremented. That suffices to verify that every surface
//! reached its port. Requests run in order on one thread; a [`Control`] can pause that thread, make
//! stages fail, and make the machine drop requests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ferrane_device::backend::{
    Accesses, Backend, Chaining, CompileOptions, Compiled, Completion, Done, Event, Events, Loaded, Prepared,
    ProgramSource, Stats,
};
use ferrane_device::{Bindings, Error, ErrorKind, Layout, Memory, Port, Procedure, Result};
use ferrane_host::buffer::SharedBytes;
use ferrane_host::sync::lock;
use ferrane_machine::Profile;
use ferrane_mil::DataType;

/// The longest wait for an event, so that a faulty test ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// The stage that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FailureStage {
    Compile,
    Load,
    Allocate,
    Prepare,
    Submit,
    Run,
    Unload,
}

type Script = Arc<dyn Fn(&ProgramSource<'_>) -> Result<Vec<Procedure>> + Send + Sync>;
type ScriptedJob = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct ScriptedState {
    failures: VecDeque<(FailureStage, Error)>,
    forget: bool,
    held: bool,
    ended: bool,
    /// Requests that were submitted and have not started.
    queue: VecDeque<ScriptedJob>,
    in_flight: usize,
}

struct ScriptedContext {
    state: Mutex<ScriptedState>,
    changed: Condvar,
    depth: usize,
}

impl ScriptedContext {
    fn lock(&self) -> MutexGuard<'_, ScriptedState> {
        lock(&self.state)
    }

    fn fail(&self, stage: FailureStage) -> Result<()> {
        let mut state = self.lock();
        match state.failures.iter().position(|(s, _)| *s == stage).and_then(|i| state.failures.remove(i)) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            let job = loop {
                match state.queue.pop_front() {
                    _ if state.ended => return,
                    Some(job) if !state.held => break job,
                    Some(job) => state.queue.push_front(job),
                    None => {}
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            job();
        }
    }
}

/// Controls a scripted backend from a test.
#[derive(Clone)]
pub struct Control(Arc<ScriptedContext>);

impl Control {
    /// Keeps submitted requests from starting.
    pub fn hold(&self) {
        self.0.lock().held = true;
    }

    /// Lets submitted requests start.
    pub fn release(&self) {
        self.0.lock().held = false;
        self.0.changed.notify_all();
    }

    /// Makes the next call of a stage fail with this error.
    pub fn fail(&self, stage: FailureStage, error: Error) {
        self.0.lock().failures.push_back((stage, error));
    }

    /// Makes the machine drop the next request without a completion.
    pub fn forget(&self) {
        self.0.lock().forget = true;
    }
}

/// The scripted backend, with the thread that runs its requests.
pub struct Scripted {
    shared: Arc<ScriptedContext>,
    script: Script,
    profile: Profile,
    chains: bool,
    worker: Option<std::thread::JoinHandle<()>>,
}

impl Scripted {
    /// A machine on which every source becomes a program with the procedures that the script
    /// returns for it.
    ///
    /// # Errors
    /// The default profile cannot be resolved.
    pub fn new(
        script: impl Fn(&ProgramSource<'_>) -> Result<Vec<Procedure>> + Send + Sync + 'static,
    ) -> Result<Scripted> {
        Scripted::with_depth(usize::MAX, script)
    }

    /// As [`Scripted::new`], with a queue of `depth` requests.
    ///
    /// # Errors
    /// The default profile cannot be resolved.
    pub fn with_depth(
        depth: usize,
        script: impl Fn(&ProgramSource<'_>) -> Result<Vec<Procedure>> + Send + Sync + 'static,
    ) -> Result<Scripted> {
        let profile = Profile::named(Profile::DEFAULT).map_err(|e| Error::new(ErrorKind::Option, e.to_string()))?;
        let shared = Arc::new(ScriptedContext { state: Mutex::default(), changed: Condvar::new(), depth });
        let theirs = shared.clone();
        let worker = Some(std::thread::spawn(move || theirs.work()));
        Ok(Scripted { shared, script: Arc::new(script), profile, chains: false, worker })
    }

    /// Enables chains of procedures.
    #[must_use]
    pub fn chaining(mut self) -> Scripted {
        self.chains = true;
        self
    }

    /// The control of this backend.
    pub fn control(&self) -> Control {
        Control(self.shared.clone())
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if let Some(worker) = self.worker.take() {
            // A panic of the worker has already failed its test.
            let _ = worker.join();
        }
    }
}

/// A procedure of packed fp16 ports, each a pair `(name, shape)`, for scripts.
///
/// # Errors
/// [`ErrorKind::Layout`] for an invalid shape.
pub fn procedure(name: &str, id: u32, inputs: &[(&str, &[usize])], outputs: &[(&str, &[usize])]) -> Result<Procedure> {
    let port = |(i, (name, shape)): (usize, &(&str, &[usize]))| {
        let layout = Layout::packed(DataType::Fp16, shape)?;
        Ok(Port { name: name.to_string(), symbol: i as u32, layout })
    };
    let inputs = inputs.iter().enumerate().map(port).collect::<Result<_>>()?;
    let outputs = outputs.iter().enumerate().map(port).collect::<Result<_>>()?;
    Ok(Procedure { name: name.into(), id, inputs, outputs, states: Vec::new() })
}

struct HeapMemory(SharedBytes);

impl Memory for HeapMemory {
    fn bytes(&self) -> &SharedBytes {
        &self.0
    }
}

impl Backend for Scripted {
    fn name(&self) -> String {
        "scripted".into()
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn compile(&self, source: ProgramSource<'_>, _options: &CompileOptions) -> Result<Box<dyn Compiled>> {
        self.shared.fail(FailureStage::Compile)?;
        let procedures = (self.script)(&source)?;
        let key = match &source {
            ProgramSource::Program(_) => "program".to_string(),
            ProgramSource::Text { mil, .. } => format!("text of {} bytes", mil.len()),
            ProgramSource::Compiled(bytes) => format!("compiled, {} bytes", bytes.len()),
            _ => return Err(Error::new(ErrorKind::Unsupported, "the scripted backend takes no program of this form")),
        };
        Ok(Box::new(Program { shared: self.shared.clone(), procedures, key, chains: self.chains }))
    }

    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>> {
        self.shared.fail(FailureStage::Allocate)?;
        let bytes = SharedBytes::new(layout.allocation)
            .map_err(|e| Error::new(ErrorKind::OutOfMemory, "no memory for a surface").with_source(e))?;
        Ok(Arc::new(HeapMemory(bytes)))
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(self)
    }
}

impl Events for Scripted {
    fn create(&self) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(EventCounter::default()))
    }
}

#[derive(Default)]
struct EventCounter {
    value: Mutex<u64>,
    raised: Condvar,
}

impl Event for EventCounter {
    fn value(&self) -> u64 {
        *lock(&self.value)
    }

    fn signal(&self, value: u64) {
        let mut now = lock(&self.value);
        *now = value.max(*now);
        self.raised.notify_all();
    }

    fn wait(&self, value: u64, timeout: Duration) -> bool {
        let now = lock(&self.value);
        let (now, _) =
            self.raised.wait_timeout_while(now, timeout, |now| *now < value).unwrap_or_else(PoisonError::into_inner);
        *now >= value
    }
}

#[derive(Clone)]
struct Program {
    shared: Arc<ScriptedContext>,
    procedures: Vec<Procedure>,
    key: String,
    chains: bool,
}

impl Compiled for Program {
    fn key(&self) -> &str {
        &self.key
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        None
    }

    fn load(&self) -> Result<Arc<dyn Loaded>> {
        self.shared.fail(FailureStage::Load)?;
        Ok(Arc::new(self.clone()))
    }
}

impl Program {
    fn procedure(&self, bindings: &Bindings) -> Result<&Procedure> {
        let name = bindings.procedure_name();
        let found = self.procedures.iter().find(|p| name.is_none_or(|n| n == p.name));
        found.ok_or_else(|| Error::new(ErrorKind::Binding, "no procedure"))
    }

    /// Prepares one step; `place` finds the guard of a port.
    fn step(&self, bindings: &Bindings, place: impl Fn(&Port) -> Result<PortIndex>) -> Result<ScriptedStep> {
        let procedure = self.procedure(bindings)?;
        let places = |ports: &[Port]| ports.iter().map(&place).collect::<Result<Vec<_>>>();
        let (inputs, outputs) = (places(&procedure.inputs)?, places(&procedure.outputs)?);
        let copies = outputs.iter().enumerate().filter_map(|(i, o)| Some((*inputs.get(i % inputs.len().max(1))?, *o)));
        Ok(ScriptedStep { copies: copies.collect(), states: places(&procedure.states)?, bindings: bindings.clone() })
    }
}

impl Loaded for Program {
    fn procedures(&self) -> &[Procedure] {
        &self.procedures
    }

    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>> {
        self.shared.fail(FailureStage::Prepare)?;
        let procedure = self.procedure(bindings)?;
        let at = |ports: &[Port], port: &Port| ports.iter().position(|p| p.name == port.name);
        let step = self.step(bindings, |port| {
            let input = at(&procedure.inputs, port).map(PortIndex::Input);
            let output = at(&procedure.outputs, port).map(PortIndex::Output);
            let state = at(&procedure.states, port).map(PortIndex::State);
            input.or(output).or(state).ok_or_else(|| Error::new(ErrorKind::Binding, "no port"))
        })?;
        Ok(Arc::new(Plan { shared: self.shared.clone(), steps: vec![step] }))
    }

    fn chaining(&self) -> Option<&dyn Chaining> {
        self.chains.then_some(self as &dyn Chaining)
    }

    fn unload(&self) -> Result<()> {
        self.shared.fail(FailureStage::Unload)
    }

    fn reload(&self) -> Result<()> {
        self.shared.fail(FailureStage::Unload)?;
        self.shared.fail(FailureStage::Load)
    }
}

impl Chaining for Program {
    fn prepare_chain(&self, steps: &[Bindings]) -> Result<Arc<dyn Prepared>> {
        self.shared.fail(FailureStage::Prepare)?;
        let (mut written, mut read): (Vec<SharedBytes>, Vec<SharedBytes>) = (Vec::new(), Vec::new());
        let memory =
            |bindings: &Bindings, port: &Port| bindings.surface(&port.name).map(|s| s.memory().bytes().clone());
        for bindings in steps {
            let procedure = self.procedure(bindings)?;
            for port in procedure.outputs.iter().chain(&procedure.states) {
                written.extend(memory(bindings, port).filter(|m| !written.iter().any(|w| w.same(m))));
            }
        }
        for bindings in steps {
            for port in &self.procedure(bindings)?.inputs {
                let new = |m: &SharedBytes| !written.iter().chain(&read).any(|w| w.same(m));
                let found = memory(bindings, port).filter(new);
                read.extend(found);
            }
        }
        let step = |bindings: &Bindings| {
            self.step(bindings, |port| {
                let wanted = memory(bindings, port).ok_or_else(|| Error::new(ErrorKind::Binding, "no surface"))?;
                let output = written.iter().position(|m| m.same(&wanted)).map(PortIndex::Output);
                let input = || read.iter().position(|m| m.same(&wanted)).map(PortIndex::Input);
                output.or_else(input).ok_or_else(|| Error::new(ErrorKind::Binding, "no surface"))
            })
        };
        let steps = steps.iter().map(step).collect::<Result<_>>()?;
        Ok(Arc::new(Plan { shared: self.shared.clone(), steps }))
    }
}

/// The position of a surface among the guards of a run.
#[derive(Clone, Copy)]
enum PortIndex {
    Input(usize),
    Output(usize),
    State(usize),
}

struct ScriptedStep {
    copies: Vec<(PortIndex, PortIndex)>,
    states: Vec<PortIndex>,
    bindings: Bindings,
}

struct Plan {
    shared: Arc<ScriptedContext>,
    steps: Vec<ScriptedStep>,
}

fn bytes_mut(accesses: &mut Accesses, place: PortIndex) -> Option<&mut [u8]> {
    match place {
        PortIndex::Input(_) => None,
        PortIndex::Output(i) => accesses.outputs.get_mut(i).map(|g| &mut **g),
        PortIndex::State(i) => accesses.states.get_mut(i).map(|g| &mut **g),
    }
}

impl Plan {
    fn run(&self, accesses: &mut Accesses) -> Result<Stats> {
        let start = Instant::now();
        self.shared.fail(FailureStage::Run)?;
        for step in &self.steps {
            for (event, value) in step.bindings.waits() {
                if !event.wait(*value, PATIENCE) {
                    return Err(Error::new(ErrorKind::Evaluate, format!("an event was not raised to {value}")));
                }
            }
            for &(from, to) in &step.copies {
                let source = match from {
                    PortIndex::Input(i) => accesses.inputs.get(i).map(|g| g.to_vec()),
                    other => bytes_mut(accesses, other).map(|b| b.to_vec()),
                };
                let missing = || Error::new(ErrorKind::Evaluate, "a guard is missing");
                let (source, target) = (source.ok_or_else(missing)?, bytes_mut(accesses, to).ok_or_else(missing)?);
                let n = source.len().min(target.len());
                target[..n].copy_from_slice(&source[..n]);
            }
            for &state in &step.states {
                for byte in bytes_mut(accesses, state).into_iter().flatten() {
                    *byte = byte.wrapping_add(1);
                }
            }
            for (event, value) in step.bindings.signals() {
                event.signal(*value);
            }
        }
        let mut stats = Stats::default();
        (stats.wall, stats.hardware) = (start.elapsed(), Some(Duration::from_nanos(1)));
        stats.chained = self.steps.len() > 1;
        Ok(stats)
    }
}

impl Prepared for Plan {
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats> {
        self.run(accesses)
    }

    fn submit(self: Arc<Self>, mut accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        if let Err(error) = self.shared.fail(FailureStage::Submit) {
            return Err((error, accesses));
        }
        let mut state = self.shared.lock();
        if state.in_flight >= self.shared.depth {
            let message = format!("the queue holds {} requests", self.shared.depth);
            return Err((Error::new(ErrorKind::QueueFull, message), accesses));
        }
        state.in_flight += 1;
        let this = self.clone();
        state.queue.push_back(Box::new(move || {
            let forget = std::mem::take(&mut this.shared.lock().forget);
            let result = this.run(&mut accesses);
            this.shared.lock().in_flight -= 1;
            if !forget {
                done(Completion { accesses, result });
            }
        }));
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }
}
