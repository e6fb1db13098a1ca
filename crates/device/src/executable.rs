//! The front: devices, artifacts, executables.

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

/// A machine that compiles and runs programs. Clones are the same machine.
#[derive(Clone)]
pub struct Device(Arc<dyn Backend>);

impl Device {
    /// Puts the front before a backend.
    pub fn new(backend: impl Backend + 'static) -> Device {
        Device(Arc::new(backend))
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.0
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
    pub fn compile(&self, source: ProgramSource<'_>, options: &CompileOptions) -> Result<Artifact> {
        let span = tracing::info_span!(target: TARGET, "compile", label = %options.label, device = %self.name());
        let compiled = span.in_scope(|| self.0.compile(source, options))?;
        Ok(Artifact { compiled: Arc::from(compiled), device: self.clone() })
    }

    /// Compiles and loads a program.
    ///
    /// # Errors
    /// As [`Device::compile`] and [`Artifact::load`].
    pub fn load(&self, program: &Program, label: &str) -> Result<Executable> {
        self.compile(ProgramSource::Program(program), &CompileOptions::labeled(label))?.load()
    }

    /// A surface of that layout, zeroed.
    ///
    /// # Errors
    /// No memory, or a layout that cannot be or that the machine refuses.
    pub fn surface(&self, layout: &Layout) -> Result<Surface> {
        layout.check()?;
        Surface::new(self.0.allocate(layout)?, layout.clone())
    }

    /// A surface for each port of a procedure, in the order of [`Procedure::ports`], zeroed. They
    /// satisfy what the profile wants beyond the layouts: its smallest surface, and one size for
    /// all inputs or all outputs (apple-runtime §4, status 0x1d).
    ///
    /// # Errors
    /// As [`Device::surface`].
    pub fn surfaces<'a>(&self, procedure: &'a Procedure) -> Result<Vec<(&'a str, Surface)>> {
        let ports = procedure.ports().map(|p| Ok((p.name.as_str(), self.surface(&self.fitted(procedure, &p.name)?)?)));
        ports.collect()
    }

    /// The layout of a port with the allocation that the profile wants of its surface, see
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

    /// The computer that the machine is in, where that matters to what it does.
    pub fn computer(&self) -> Option<Computer> {
        self.0.computer()
    }

    /// What the machine has to say that failed nothing, each remark once.
    pub fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    /// What its programs take of this process's memory now, surfaces left out; nothing where they
    /// live elsewhere.
    pub fn footprint(&self) -> Footprint {
        self.0.footprint()
    }

    /// Shared events, where the machine has them.
    pub fn events(&self) -> Option<&dyn Events> {
        self.0.events()
    }

    /// The same machine, with every call across the seam written down.
    pub fn recorded(&self) -> (Device, CallRecord) {
        let recorder = Recorder::new(self.0.clone());
        let record = recorder.record();
        (Device(Arc::new(recorder)), record)
    }
}

/// A compiled program.
#[derive(Clone)]
pub struct Artifact {
    compiled: Arc<dyn Compiled>,
    device: Device,
}

impl Artifact {
    /// Identifies program and weights.
    pub fn key(&self) -> &str {
        self.compiled.key()
    }

    /// A form to store, where there is one.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.compiled.bytes()
    }

    /// Where it stands.
    pub fn state(&self) -> ProgramState {
        self.compiled.state()
    }

    /// Loads it.
    ///
    /// # Errors
    /// The machine refused.
    pub fn load(&self) -> Result<Executable> {
        let span = tracing::info_span!(target: TARGET, "load", key = %self.key());
        let (loaded, device) = (span.in_scope(|| self.compiled.load())?, self.device.clone());
        Ok(Executable(Arc::new(ExecutableInner { loaded, life: Arc::default(), device })))
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
    /// Inputs, outputs, states, in the machine's order.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.inputs.iter().chain(&self.outputs).chain(&self.states)
    }

    /// The port of that name.
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

/// Whether a program is loaded, and how many of its requests run: the highest bit says unloaded,
/// the others count.
#[derive(Default)]
pub(crate) struct Life(AtomicU32);

const UNLOADED: u32 = 1 << 31;

impl Life {
    /// Counts a request until the ticket is dropped.
    pub(crate) fn enter(self: &Arc<Life>) -> Result<Running> {
        // Acquire and Release pair: an unload that finds no request sees all that the last one did.
        let entered =
            self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| (n & UNLOADED == 0).then_some(n + 1));
        entered.map(|_| Running(self.clone())).map_err(|_| unloaded())
    }

    /// Lets no request run from here on, if none runs now.
    pub(crate) fn stop(&self) -> Result<()> {
        let taken = self.0.compare_exchange(0, UNLOADED, Ordering::Acquire, Ordering::Relaxed);
        taken.map(drop).map_err(|n| match n & UNLOADED {
            0 => Error::new(ErrorKind::Busy, format!("{n} requests of the executable are running")),
            _ => unloaded(),
        })
    }

    /// Lets requests run again, who then see all that was done in between.
    pub(crate) fn resume(&self) {
        self.0.store(0, Ordering::Release);
    }
}

fn unloaded() -> Error {
    Error::new(ErrorKind::Unloaded, "the executable was unloaded")
}

/// A request that runs.
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

/// A loaded program. Clones are the same program.
#[derive(Clone)]
pub struct Executable(Arc<ExecutableInner>);

impl Executable {
    /// What it can run.
    pub fn procedures(&self) -> &[Procedure] {
        self.0.loaded.procedures()
    }

    /// The device that it is loaded on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The procedure of that name.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name; the message lists the known ones.
    pub fn procedure(&self, name: &str) -> Result<&Procedure> {
        check_name(self.procedures(), Some(name))
    }

    /// The procedure of that name, or the first one.
    pub(crate) fn procedure_or_first(&self, name: Option<&str>) -> Result<&Procedure> {
        check_name(self.procedures(), name)
    }

    /// A port of the first procedure.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name.
    pub fn port(&self, name: &str) -> Result<&Port> {
        check_name(self.procedures(), None)?.port(name)
    }

    /// Binds surfaces to a procedure.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`]: a port missing, unknown or bound twice, another type or shape or too few bytes, or one memory both
    /// read and written. [`ErrorKind::Unloaded`]. What only the machine knows comes from the
    /// backend.
    pub fn prepare(&self, bindings: Bindings) -> Result<Request> {
        let _running = self.0.life.enter()?;
        let procedure = check(self.procedures(), &bindings)?;
        let _span = tracing::debug_span!(target: TARGET, "prepare", procedure = %procedure.name).entered();
        let prepared = self.0.loaded.prepare(&bindings)?;
        Ok(Request::single(prepared, procedure, &bindings, self.0.life.clone()))
    }

    /// Binds several procedures that run one after another as one request; a later step may read
    /// what an earlier one wrote.
    ///
    /// Where the machine chains, the whole chain is one request to it: the surfaces of all steps
    /// are taken at submit and given back at the end. Elsewhere the steps are requests of their
    /// own, each takes its surfaces when its turn comes, and each is submitted when the one before
    /// it is done.
    ///
    /// # Errors
    /// As [`Executable::prepare`], for each step; no step at all is [`ErrorKind::Binding`].
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

    /// Takes it off the machine. Requests made from it fail afterward with [`ErrorKind::Unloaded`].
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a request of it runs, [`ErrorKind::Unloaded`] the second time, or
    /// the machine refused (it then stays loaded).
    pub fn unload(&self) -> Result<()> {
        self.0.life.stop()?;
        self.0.loaded.unload().inspect_err(|_| self.0.life.resume())
    }

    /// Takes it off the machine and loads it again: what may help after a failed evaluation. Its
    /// requests stay good.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a request of it runs, [`ErrorKind::Unloaded`], or the machine
    /// refused: the program is then unloaded.
    pub fn reload(&self) -> Result<()> {
        self.0.life.stop()?;
        let _span = tracing::info_span!(target: TARGET, "reload").entered();
        // Stays unloaded when it failed: there is nothing to run.
        self.0.loaded.reload()?;
        self.0.life.resume();
        Ok(())
    }

    /// Where it stands.
    pub fn state(&self) -> ProgramState {
        self.0.loaded.state()
    }
}

/// The procedure of that name, or the first.
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
