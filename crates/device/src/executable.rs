//! The front: devices, artifacts, executables, requests.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ferrane_mil::Program;
use ferrane_target::Profile;

use crate::backend::{Accesses, Backend, CompileOptions, Compiled, Event, Events, Loaded, Prepared, Source, Stats};
use crate::{Error, ErrorKind, Layout, Result, Surface};

/// A machine that compiles and runs programs.
#[derive(Clone)]
pub struct Device(Arc<dyn Backend>);

impl Device {
    /// Puts the front before a backend.
    pub fn new(backend: impl Backend + 'static) -> Device {
        Device(Arc::new(backend))
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// What it allows.
    pub fn profile(&self) -> &Profile {
        self.0.profile()
    }

    /// Compiles a source.
    ///
    /// # Errors
    /// An invalid or unsupported program, or a spent budget.
    pub fn compile(&self, source: Source<'_>, options: &CompileOptions) -> Result<Artifact> {
        Ok(Artifact(Arc::from(self.0.compile(source, options)?)))
    }

    /// Compiles and loads a program.
    ///
    /// # Errors
    /// As [`Device::compile`] and [`Artifact::load`].
    pub fn load(&self, program: &Program, label: &str) -> Result<Executable> {
        self.compile(Source::Program(program), &CompileOptions::labelled(label))?.load()
    }

    /// A surface of that layout, zeroed.
    ///
    /// # Errors
    /// No memory, or a layout that the machine refuses.
    pub fn surface(&self, layout: &Layout) -> Result<Surface> {
        Surface::new(self.0.allocate(layout)?, layout.clone())
    }

    /// Shared events, where the machine has them.
    pub fn events(&self) -> Option<&dyn Events> {
        self.0.events()
    }
}

/// A compiled program.
#[derive(Clone)]
pub struct Artifact(Arc<dyn Compiled>);

impl Artifact {
    /// Identifies program and weights.
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// A form to store, where there is one.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.0.bytes()
    }

    /// Loads it.
    ///
    /// # Errors
    /// The machine refused.
    pub fn load(&self) -> Result<Executable> {
        Ok(Executable(self.0.load()?))
    }
}

/// A place where a surface is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the program.
    pub name: String,
    /// The machine's index of it.
    pub symbol: u32,
    /// What a surface must be like.
    pub layout: Layout,
}

/// One entry point of a loaded program, as the machine reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// The function's name.
    pub name: String,
    /// The machine's index of it.
    pub id: u32,
    /// Inputs in the machine's order.
    pub inputs: Vec<Port>,
    /// Outputs in the machine's order.
    pub outputs: Vec<Port>,
    /// States.
    pub states: Vec<Port>,
}

impl Procedure {
    fn port(&self, name: &str) -> Option<&Port> {
        self.inputs.iter().chain(&self.outputs).chain(&self.states).find(|p| p.name == name)
    }
}

/// A loaded program.
#[derive(Clone)]
pub struct Executable(Arc<dyn Loaded>);

impl Executable {
    /// What it can run.
    pub fn procedures(&self) -> &[Procedure] {
        self.0.procedures()
    }

    /// The layout of a port of the first procedure.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name.
    pub fn port(&self, name: &str) -> Result<&Port> {
        let unknown = || {
            let known: Vec<_> = self
                .procedures()
                .iter()
                .flat_map(|p| p.inputs.iter().chain(&p.outputs).chain(&p.states))
                .map(|p| p.name.as_str())
                .collect();
            Error::new(ErrorKind::Binding, format!("no port `{name}`; there are {}", known.join(", "))).with_port(name)
        };
        self.procedures().first().and_then(|p| p.port(name)).ok_or_else(unknown)
    }

    /// Binds surfaces to a procedure.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`]: a port missing, unknown or bound twice, another type or too few bytes, or one memory both read
    /// and written. What only the machine knows comes from the backend.
    pub fn prepare(&self, bindings: Bindings) -> Result<Request> {
        let procedure = self.check(&bindings)?;
        let find = |port: &Port| bindings.surface(&port.name).cloned();
        let gather = |ports: &[Port]| ports.iter().filter_map(find).collect::<Vec<_>>();
        let (inputs, outputs, states) = (gather(&procedure.inputs), gather(&procedure.outputs), gather(&procedure.states));
        let prepared = self.0.prepare(&bindings)?;
        Ok(Request(Arc::new(RequestInner { prepared, inputs, outputs, states, spare: Mutex::default() })))
    }

    fn check(&self, bindings: &Bindings) -> Result<&Procedure> {
        let binding = |m: String, port: &str| Error::new(ErrorKind::Binding, m).with_port(port);
        let name = bindings.procedure.as_deref();
        let procedure = self
            .procedures()
            .iter()
            .find(|p| name.is_none_or(|n| n == p.name))
            .ok_or_else(|| Error::new(ErrorKind::Binding, format!("no procedure `{}`", name.unwrap_or("main"))))?;
        for (i, (port, surface)) in bindings.surfaces.iter().enumerate() {
            let wanted = &procedure.port(port).ok_or_else(|| binding(format!("no port `{port}`"), port))?.layout;
            if bindings.surfaces[..i].iter().any(|(p, _)| p == port) {
                return Err(binding("bound twice".into(), port));
            }
            let found = surface.layout();
            if found.dtype != wanted.dtype || found.shape != wanted.shape || found.strides != wanted.strides {
                let show = |l: &Layout| format!("{} {:?} strides {:?}", l.dtype, l.shape, l.strides);
                return Err(binding(format!("surface is {}, port wants {}", show(found), show(wanted)), port));
            }
        }
        let missing = |p: &&Port| bindings.surface(&p.name).is_none();
        let ports = || procedure.inputs.iter().chain(&procedure.outputs).chain(&procedure.states);
        if let Some(port) = ports().find(missing) {
            return Err(binding("no surface bound".into(), &port.name));
        }
        let written = || procedure.outputs.iter().chain(&procedure.states);
        for port in written() {
            let Some(surface) = bindings.surface(&port.name) else { continue };
            let clash = bindings.surfaces.iter().find(|(n, s)| *n != port.name && s.same_memory(surface));
            if let Some((other, _)) = clash {
                return Err(binding(format!("its memory is also bound to `{other}`"), &port.name));
            }
        }
        Ok(procedure)
    }

    /// Takes it off the machine.
    ///
    /// # Errors
    /// The machine refused.
    pub fn unload(&self) -> Result<()> {
        self.0.unload()
    }
}

/// Which surface goes to which port, and which events are waited for and raised.
#[derive(Clone, Default)]
pub struct Bindings {
    procedure: Option<String>,
    surfaces: Vec<(String, Surface)>,
    waits: Vec<(Arc<dyn Event>, u64)>,
    signals: Vec<(Arc<dyn Event>, u64)>,
}

impl Bindings {
    /// Nothing bound; the first procedure.
    pub fn new() -> Bindings {
        Bindings::default()
    }

    /// Another procedure than the first.
    #[must_use]
    pub fn procedure(mut self, name: impl Into<String>) -> Bindings {
        self.procedure = Some(name.into());
        self
    }

    /// Binds a surface to a port.
    #[must_use]
    pub fn bind(mut self, port: impl Into<String>, surface: &Surface) -> Bindings {
        self.surfaces.push((port.into(), surface.clone()));
        self
    }

    /// Waits for an event before each run.
    #[must_use]
    pub fn wait(mut self, event: &Arc<dyn Event>, value: u64) -> Bindings {
        self.waits.push((event.clone(), value));
        self
    }

    /// Raises an event after each run.
    #[must_use]
    pub fn signal(mut self, event: &Arc<dyn Event>, value: u64) -> Bindings {
        self.signals.push((event.clone(), value));
        self
    }

    /// The procedure asked for.
    pub fn procedure_name(&self) -> Option<&str> {
        self.procedure.as_deref()
    }

    /// The surface bound to a port.
    pub fn surface(&self, port: &str) -> Option<&Surface> {
        self.surfaces.iter().find(|(n, _)| n == port).map(|(_, s)| s)
    }

    /// Events to wait for.
    pub fn waits(&self) -> &[(Arc<dyn Event>, u64)] {
        &self.waits
    }

    /// Events to raise.
    pub fn signals(&self) -> &[(Arc<dyn Event>, u64)] {
        &self.signals
    }
}

struct RequestInner {
    prepared: Arc<dyn Prepared>,
    inputs: Vec<Surface>,
    outputs: Vec<Surface>,
    states: Vec<Surface>,
    /// Room for guards, kept between runs so that a run allocates nothing.
    spare: Mutex<Accesses>,
}

/// A procedure with bound surfaces. Clones are the same request.
#[derive(Clone)]
pub struct Request(Arc<RequestInner>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves nothing half-done in what these locks guard.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Request {
    fn acquire(&self) -> Result<Accesses> {
        let mut accesses = std::mem::take(&mut *lock(&self.0.spare));
        let busy = |i: usize, what: &str| Error::new(ErrorKind::Busy, format!("surface {i} of the {what} is in use"));
        let mut take = || {
            for (i, s) in self.0.inputs.iter().enumerate() {
                accesses.inputs.push(s.memory().bytes().try_read().ok_or_else(|| busy(i, "inputs"))?);
            }
            for (i, s) in self.0.outputs.iter().enumerate() {
                accesses.outputs.push(s.memory().bytes().try_write().ok_or_else(|| busy(i, "outputs"))?);
            }
            for (i, s) in self.0.states.iter().enumerate() {
                accesses.states.push(s.memory().bytes().try_write().ok_or_else(|| busy(i, "states"))?);
            }
            Ok(())
        };
        match take() {
            Ok(()) => Ok(accesses),
            Err(e) => {
                self.put_back(accesses);
                Err(e)
            }
        }
    }

    fn put_back(&self, mut accesses: Accesses) {
        accesses.release();
        *lock(&self.0.spare) = accesses;
    }

    /// Runs it and waits.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if a surface is in use, or the evaluation failed.
    pub fn evaluate(&self) -> Result<Stats> {
        let mut accesses = self.acquire()?;
        let result = self.0.prepared.evaluate(&mut accesses);
        self.put_back(accesses);
        result
    }

    /// Queues it.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if a surface is in use (also by this request in flight), [`ErrorKind::QueueFull`].
    pub fn submit(&self) -> Result<Submission> {
        let accesses = self.acquire()?;
        let slot = Arc::new((Mutex::new(None), Condvar::new()));
        let (theirs, request) = (slot.clone(), self.clone());
        let done = Box::new(move |completion: crate::Completion| {
            // Guards first: whoever wakes up may read the outputs at once.
            request.put_back(completion.accesses);
            *lock(&theirs.0) = Some(completion.result);
            theirs.1.notify_all();
        });
        match self.0.prepared.clone().submit(accesses, done) {
            Ok(()) => Ok(Submission(slot)),
            Err((error, accesses)) => {
                self.put_back(accesses);
                Err(error)
            }
        }
    }
}

/// A request in flight.
#[must_use = "wait for it, or its failure goes unseen"]
pub struct Submission(Arc<(Mutex<Option<Result<Stats>>>, Condvar)>);

impl Submission {
    /// Waits until it is done.
    ///
    /// # Errors
    /// The evaluation failed.
    pub fn wait(self) -> Result<Stats> {
        let mut slot = lock(&self.0.0);
        loop {
            if let Some(result) = slot.take() {
                return result;
            }
            slot = self.0.1.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// True when [`Submission::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        lock(&self.0.0).is_some()
    }
}
