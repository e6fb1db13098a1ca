//! The front end: devices, artifacts and executables.

use crate::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use ferrane_machine::Profile;
use ferrane_mil::Program;

use crate::backend::{
    Backend, CompileOptions, Compiled, Computer, Events, Footprint, Loaded, ProgramSource, ProgramState,
};
use crate::bindings::check;
use crate::log::TARGET;
use crate::recorder::{CallRecord, Recorder};
use crate::{Bindings, Error, ErrorKind, Layout, Request, Result, Surface};

/// A machine that compiles and runs programs. Clones refer to the same machine.
#[derive(Clone)]
pub struct Device(Arc<dyn Backend>);

impl Device {
    /// A device that runs on this backend.
    pub fn new(backend: impl Backend + 'static) -> Device {
        Device(Arc::new(backend))
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.0
    }

    /// The backend's name, such as `emulator (fast)`.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// The profile: the machine's limits.
    pub fn profile(&self) -> &Profile {
        self.0.profile()
    }

    /// Compiles a source.
    ///
    /// # Errors
    /// An invalid or unsupported program, or a spent budget.
    pub fn compile(&self, source: ProgramSource<'_>, options: &CompileOptions) -> Result<Artifact> {
        let span = tracing::info_span!(target: TARGET, "compile", label = %options.label, device = %self.name());
        let compiled = span.in_scope(|| self.0.compile(source, options))?;
        Ok(Artifact { compiled: Arc::from(compiled), device: self.clone() })
    }

    /// The number of further programs that this process can compile; `None` if there is no limit or
    /// the machine does not count. A program that the machine has kept costs none of them.
    pub fn compiles_left(&self) -> Option<usize> {
        self.0.compiles_left()
    }

    /// Compiles and loads a program.
    ///
    /// # Errors
    /// As [`Device::compile`] and [`Artifact::load`].
    pub fn load(&self, program: &Program, label: &str) -> Result<Executable> {
        self.compile(ProgramSource::Program(program), &CompileOptions::labeled(label))?.load()
    }

    /// Allocates a zeroed surface with a layout.
    ///
    /// # Errors
    /// No memory, or a layout that is invalid or that the machine refuses.
    pub fn surface(&self, layout: &Layout) -> Result<Surface> {
        layout.check()?;
        Surface::new(self.0.allocate(layout)?, layout.clone())
    }

    /// Allocates a zeroed surface for each port of a procedure, in the order of
    /// [`Procedure::ports`]. Their sizes meet the profile's requirements: the smallest surface, and
    /// one size for all inputs or all outputs (apple-runtime §4, status 0x1d).
    ///
    /// # Errors
    /// As [`Device::surface`].
    pub fn surfaces<'a>(&self, procedure: &'a Procedure) -> Result<Vec<(&'a str, Surface)>> {
        let ports = procedure.ports().map(|p| Ok((p.name.as_str(), self.surface(&self.fitted(procedure, &p.name)?)?)));
        ports.collect()
    }

    /// The layout of a port with the allocation that the profile requires; see
    /// [`Device::surfaces`].
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name.
    pub fn fitted(&self, procedure: &Procedure, port: &str) -> Result<Layout> {
        let mut layout = procedure.port(port)?.layout.clone();
        let profile = self.profile();
        let sides =
            [(&procedure.inputs, profile.uniform_inputs.value), (&procedure.outputs, profile.uniform_outputs.value)];
        let uniform = sides.into_iter().filter(|(ports, uniform)| *uniform && ports.iter().any(|p| p.name == port));
        let largest = uniform.flat_map(|(ports, _)| ports).map(|p| p.layout.allocation).max();
        layout.allocation = layout.allocation.max(profile.min_surface.value).max(largest.unwrap_or(0));
        Ok(layout)
    }

    /// The computer that contains the machine; `None` if its programs do not depend on it.
    pub fn computer(&self) -> Option<Computer> {
        self.0.computer()
    }

    /// The machine's notes about conditions that are not failures, each once.
    pub fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    /// The memory that its programs use in this process now, without surfaces; zero if they are
    /// elsewhere.
    pub fn footprint(&self) -> Footprint {
        self.0.footprint()
    }

    /// Shared events; `None` if the machine has none.
    pub fn events(&self) -> Option<&dyn Events> {
        self.0.events()
    }

    /// The same machine with a recorder of every call to the backend.
    pub fn recorded(&self) -> (Device, CallRecord) {
        let recorder = Recorder::new(self.0.clone());
        let record = recorder.record();
        (Device(Arc::new(recorder)), record)
    }
}

/// A compiled program that is not loaded.
#[derive(Clone)]
pub struct Artifact {
    compiled: Arc<dyn Compiled>,
    device: Device,
}

impl Artifact {
    /// A key of program and weights: equal keys mean equal artifacts.
    pub fn key(&self) -> &str {
        self.compiled.key()
    }

    /// A form that can be stored; `None` if the backend has none.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.compiled.bytes()
    }

    /// The state of the program on the machine.
    pub fn state(&self) -> ProgramState {
        self.compiled.state()
    }

    /// Loads the program.
    ///
    /// # Errors
    /// The machine refused.
    pub fn load(&self) -> Result<Executable> {
        let span = tracing::info_span!(target: TARGET, "load", key = %self.key());
        let (loaded, device) = (span.in_scope(|| self.compiled.load())?, self.device.clone());
        Ok(Executable(Arc::new(ExecutableInner { loaded, life: Arc::default(), device })))
    }
}

/// A port of a procedure, to which a surface is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name in the program.
    pub name: String,
    /// The machine's index of the port.
    pub symbol: u32,
    /// The layout that a bound surface must have.
    pub layout: Layout,
}

/// A procedure of a loaded program, as the machine reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// The name of the function.
    pub name: String,
    /// The machine's index of the procedure.
    pub id: u32,
    /// The inputs, in the machine's order.
    pub inputs: Vec<Port>,
    /// The outputs, in the machine's order.
    pub outputs: Vec<Port>,
    /// The states, in the machine's order; read and written by a run.
    pub states: Vec<Port>,
}

impl Procedure {
    /// All ports: inputs, outputs, states, each in the machine's order.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.inputs.iter().chain(&self.outputs).chain(&self.states)
    }

    /// The port with this name.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name; the message lists the known ones.
    pub fn port(&self, name: &str) -> Result<&Port> {
        self.ports().find(|p| p.name == name).ok_or_else(|| {
            let known: Vec<_> = self.ports().map(|p| p.name.as_str()).collect();
            Error::new(ErrorKind::Binding, format!("no port `{name}`; there are {}", known.join(", "))).with_port(name)
        })
    }
}

/// Whether a program is loaded, and the number of its running requests: the highest bit means
/// unloaded, the others are the count.
#[derive(Default)]
pub(crate) struct Life(AtomicU32);

const UNLOADED: u32 = 1 << 31;

impl Life {
    /// Counts a request until the result is dropped.
    pub(crate) fn enter(self: &Arc<Life>) -> Result<Running> {
        // Acquire and Release pair: an unload that finds no request sees all effects of the last
        // one.
        let entered =
            self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| (n & UNLOADED == 0).then_some(n + 1));
        entered.map(|_| Running(self.clone())).map_err(|_| unloaded())
    }

    /// Prevents further requests, if none is running.
    pub(crate) fn stop(&self) -> Result<()> {
        let taken = self.0.compare_exchange(0, UNLOADED, Ordering::Acquire, Ordering::Relaxed);
        taken.map(drop).map_err(|n| match n & UNLOADED {
            0 => Error::new(ErrorKind::Busy, format!("{n} requests of the executable are running")),
            _ => unloaded(),
        })
    }

    /// Permits requests again; they see all effects of the unload and load before.
    pub(crate) fn resume(&self) {
        self.0.store(0, Ordering::Release);
    }
}

fn unloaded() -> Error {
    Error::new(ErrorKind::Unloaded, "the executable was unloaded")
}

/// A running request, counted until this is dropped.
pub(crate) struct Running(Arc<Life>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

struct ExecutableInner {
    loaded: Arc<dyn Loaded>,
    life: Arc<Life>,
    device: Device,
}

/// A loaded program. Clones refer to the same program.
#[derive(Clone)]
pub struct Executable(Arc<ExecutableInner>);

impl Executable {
    /// The procedures of the program.
    pub fn procedures(&self) -> &[Procedure] {
        self.0.loaded.procedures()
    }

    /// The device that it is loaded on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The procedure with this name.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name; the message lists the known ones.
    pub fn procedure(&self, name: &str) -> Result<&Procedure> {
        check_name(self.procedures(), Some(name))
    }

    /// The procedure with this name, or the first.
    pub(crate) fn procedure_or_first(&self, name: Option<&str>) -> Result<&Procedure> {
        check_name(self.procedures(), name)
    }

    /// The port of the first procedure with this name.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name.
    pub fn port(&self, name: &str) -> Result<&Port> {
        check_name(self.procedures(), None)?.port(name)
    }

    /// Binds surfaces to a procedure.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`]: a port is missing, unknown or bound twice, has another type or shape
    /// or too few bytes, or one memory is both read and written. [`ErrorKind::Unloaded`]. The
    /// backend reports conditions that only the machine can check.
    pub fn prepare(&self, bindings: Bindings) -> Result<Request> {
        let _running = self.0.life.enter()?;
        let procedure = check(self.procedures(), &bindings)?;
        let _span = tracing::debug_span!(target: TARGET, "prepare", procedure = %procedure.name).entered();
        let prepared = self.0.loaded.prepare(&bindings)?;
        Ok(Request::single(prepared, procedure, &bindings, self.0.life.clone()))
    }

    /// Binds several procedures that run in sequence as one request; a later step may read the
    /// outputs of an earlier one.
    ///
    /// If the machine supports chains, the whole chain is one request: the surfaces of all steps
    /// are acquired at submit and released at the end. Otherwise the steps are separate requests:
    /// each acquires its surfaces when it starts, and is submitted when the previous one is done.
    ///
    /// # Errors
    /// As [`Executable::prepare`], for each step; an empty chain is [`ErrorKind::Binding`].
    pub fn prepare_chain(&self, steps: Vec<Bindings>) -> Result<Request> {
        let _running = self.0.life.enter()?;
        if steps.is_empty() {
            return Err(Error::new(ErrorKind::Binding, "a chain needs a step"));
        }
        let procedures = steps.iter().map(|b| check(self.procedures(), b)).collect::<Result<Vec<_>>>()?;
        let _span = tracing::debug_span!(target: TARGET, "prepare_chain", steps = steps.len()).entered();
        match self.0.loaded.chaining() {
            Some(chaining) => {
                let prepared = chaining.prepare_chain(&steps)?;
                Ok(Request::chained(prepared, &procedures, &steps, self.0.life.clone()))
            }
            None => {
                let steps = steps.into_iter().map(|b| self.prepare(b)).collect::<Result<_>>()?;
                Ok(Request::sequence(steps, self.0.life.clone()))
            }
        }
    }

    /// Unloads the program. Its requests then fail with [`ErrorKind::Unloaded`].
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a request of it runs, [`ErrorKind::Unloaded`] the second time, or
    /// the machine refused (it then stays loaded).
    pub fn unload(&self) -> Result<()> {
        self.0.life.stop()?;
        self.0.loaded.unload().inspect_err(|_| self.0.life.resume())
    }

    /// Unloads the program and loads it again, which may help after a failed evaluation. Its
    /// requests stay valid.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a request of it runs, [`ErrorKind::Unloaded`], or the machine
    /// refused: the program is then unloaded.
    pub fn reload(&self) -> Result<()> {
        self.0.life.stop()?;
        let _span = tracing::info_span!(target: TARGET, "reload").entered();
        // After a failure the program stays unloaded.
        self.0.loaded.reload()?;
        self.0.life.resume();
        Ok(())
    }

    /// The state of the program on the machine.
    pub fn state(&self) -> ProgramState {
        self.0.loaded.state()
    }
}

/// The procedure with this name, or the first.
pub(crate) fn check_name<'a>(procedures: &'a [Procedure], name: Option<&str>) -> Result<&'a Procedure> {
    let found = procedures.iter().find(|p| name.is_none_or(|n| n == p.name));
    found.ok_or_else(|| match name {
        None => Error::new(ErrorKind::Binding, "the program has no procedure"),
        Some(name) => {
            let known: Vec<_> = procedures.iter().map(|p| p.name.as_str()).collect();
            Error::new(ErrorKind::Binding, format!("no procedure `{name}`; there are {}", known.join(", ")))
        }
    })
}
