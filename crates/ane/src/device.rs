//! The backend: implements the stages of `ferrane_device` by calls of the in-memory path
//! (apple-runtime §2).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferrane_device::backend::{
    Accesses, Backend, Chaining, CompileOptions, Compiled, Computer, Done, Events, Loaded, Prepared, ProgramSource,
    ProgramState, Stats,
};
use ferrane_device::queue::Queue;
use ferrane_device::staging::{Staged, sweep};
use ferrane_device::{Bindings, Error, ErrorKind, Layout, Memory, Port, Procedure, Result};
use ferrane_host::sync::lock;
use ferrane_machine::Profile;

use crate::bind::foundation::{Map, Number, data, list, map, number};
use crate::bind::{Descriptor, InMemoryModel, Request, SurfaceObject, Wrap as _};
use crate::cache::{self, Cache};
use crate::chain::{Active, Chain, Chains};
use crate::compile;
use crate::dispatch::{Dispatch, Route};
use crate::events::{Counters, Fences, Fencing};
use crate::ports::{self, Declared};
use crate::source;
use crate::surface::{SurfaceMemory, behind};
use crate::system::System;

/// The pause before the single retry of a load, as in the published bridge (bridge-c-api).
const LOAD_PAUSE: Duration = Duration::from_millis(100);

/// The options with which a device was opened.
pub(crate) struct Opened {
    pub(crate) profile: Profile,
    pub(crate) dispatch: Dispatch,
    pub(crate) qos: u32,
    pub(crate) cache: Option<Cache>,
    pub(crate) fencing: Fencing,
    pub(crate) chains: Chains,
    /// The timeout of a request that waits for events.
    pub(crate) event_timeout: Duration,
}

/// The state that programs of a device share.
pub(crate) struct DeviceContext {
    pub(crate) system: &'static System,
    pub(crate) opened: Opened,
    /// The empty dictionary that every call requires instead of nil.
    pub(crate) no_options: Map,
    pub(crate) queue: Queue,
    counters: Counters,
    notes: Mutex<Vec<String>>,
}

impl DeviceContext {
    /// Adds a note unless it is already there.
    pub(crate) fn note(&self, remark: String) {
        let mut notes = lock(&self.notes);
        if !notes.contains(&remark) {
            notes.push(remark);
        }
    }
}

/// The backend of an opened engine.
pub(crate) struct Ane(Arc<DeviceContext>);

impl Ane {
    /// Opens the engine of a system with the private classes.
    pub(crate) fn new(system: &'static System, opened: Opened) -> Result<Ane> {
        for method in crate::standard() {
            method.check()?;
        }
        sweep(&std::env::temp_dir());
        let queue = Queue::new("ferrane-ane", opened.profile.queue_depth.value);
        let (counters, notes) = (Counters::default(), Mutex::default());
        Ok(Ane(Arc::new(DeviceContext { system, opened, no_options: map([])?, queue, counters, notes })))
    }
}

/// The alignment of surface sizes in bytes: two lines on the H17 family, where a port of a
/// published trainer requires them (claim C143); 1 elsewhere, because every trainer that ran used
/// exact sizes.
fn alignment(profile: &Profile) -> usize {
    if profile.subject.generation() >= 17 { 128 } else { 1 }
}

impl Backend for Ane {
    fn name(&self) -> String {
        let dispatch = match self.0.opened.dispatch {
            Dispatch::Standard => String::new(),
            other => format!(" ({})", other.word()),
        };
        format!("ane{}{dispatch}", self.0.system.suffix)
    }

    fn profile(&self) -> &Profile {
        &self.0.opened.profile
    }

    fn computer(&self) -> Option<Computer> {
        let System { chip, os, build, .. } = self.0.system;
        Some(Computer { chip: chip.clone(), system: os.clone(), build: build.clone() })
    }

    fn compile(&self, source: ProgramSource<'_>, options: &CompileOptions) -> Result<Box<dyn Compiled>> {
        let declared = ports::declared(&*source::program(&source, &options.label)?)?;
        let (mil, files) = source::parts(&source)?;
        let weights: Vec<(String, &[u8])> = files.iter().map(|(path, bytes)| (path.clone(), &bytes[..])).collect();
        let descriptor = describe(&mil, &weights)?;
        let model = model(&descriptor)?;
        let identifier = model.identifier()??.read()?;
        let staged = Staged::new(&std::env::temp_dir(), &identifier, &mil, &weights, false)?;
        let shared = self.0.clone();
        let key = cache::key(&mil, &weights, &shared.system.chip, &shared.system.build, shared.opened.qos);
        let restored = shared.opened.cache.as_ref().is_some_and(|c| c.restore(&key, staged.folder()));
        if shared.opened.cache.is_some() {
            tracing::debug!(target: "ferrane::cache", hit = restored, key, "compiled program");
        }
        let program = Program {
            staged: Arc::new(staged),
            declared,
            identifier,
            cache_key: key,
            descriptor,
            shared,
            compiled: Mutex::new(CompiledModel { model: Some(model), restored }),
        };
        if !restored {
            let stage = program.stage();
            stage.model.as_ref().map_or(Ok(()), |m| program.compile(m))?;
        }
        Ok(Box::new(program))
    }

    fn compiles_left(&self) -> Option<usize> {
        compile::left(&self.0.opened.profile)
    }

    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>> {
        let alignment = alignment(&self.0.opened.profile);
        Ok(Arc::new(SurfaceMemory::new(self.0.system.surfaces, layout, alignment)?))
    }

    /// Always present: if the system has no such events, creating one reports what is missing.
    fn events(&self) -> Option<&dyn Events> {
        Some(&self.0.counters)
    }

    fn notes(&self) -> Vec<String> {
        lock(&self.0.notes).clone()
    }
}

/// A descriptor of text and weight files. The dictionary is never nil: without weights it is empty.
fn describe(mil: &[u8], weights: &[(String, &[u8])]) -> Result<Descriptor> {
    let entry = |(path, bytes): &(String, &[u8])| {
        let (offset, bytes) = (number(0)?, data(bytes)?);
        let parts = [("offset", offset.object().clone()), ("data", bytes.object().clone())];
        Ok((path.clone(), map(parts)?.object().clone()))
    };
    let entries = weights.iter().map(entry).collect::<Result<Vec<_>>>()?;
    let weights = map(entries.iter().map(|(path, entry)| (path.as_str(), entry.clone())))?;
    // The class gives no reason for nil; usually the text is not UTF-8 or not MIL.
    Descriptor::with_text(&data(mil)?, &weights, None)?
        .ok_or_else(|| Error::new(ErrorKind::InvalidProgram, "the framework makes no descriptor of this text"))
}

fn model(descriptor: &Descriptor) -> Result<InMemoryModel> {
    InMemoryModel::with(descriptor)?
        .ok_or_else(|| Error::new(ErrorKind::System, "the framework makes no model of the descriptor"))
}

/// The state between a compile and the first load.
struct CompiledModel {
    /// The compiled model, until the first load takes it.
    model: Option<InMemoryModel>,
    /// True if the staged files came from the cache and have not been loaded yet.
    restored: bool,
}

struct Program {
    shared: Arc<DeviceContext>,
    staged: Arc<Staged>,
    declared: Vec<Declared>,
    identifier: String,
    cache_key: String,
    descriptor: Descriptor,
    compiled: Mutex<CompiledModel>,
}

impl Program {
    fn stage(&self) -> std::sync::MutexGuard<'_, CompiledModel> {
        lock(&self.compiled)
    }

    /// Compiles the staged files, and stores the result in the cache.
    fn compile(&self, model: &InMemoryModel) -> Result<()> {
        let DeviceContext { system, opened, no_options, .. } = &*self.shared;
        compile::paced(&opened.profile, system.recovery, || model.compile(opened.qos, no_options))?;
        if let Some(cache) = &opened.cache {
            cache.store(&self.cache_key, self.staged.folder());
        }
        Ok(())
    }
}

impl Compiled for Program {
    fn key(&self) -> &str {
        &self.identifier
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        None
    }

    fn load(&self) -> Result<Arc<dyn Loaded>> {
        let mut stage = self.stage();
        // Later loads create a new model, which finds the compiled files of the first one in the
        // staged directory.
        let model = stage.model.take().map_or_else(|| model(&self.descriptor), Ok)?;
        let running =
            Running { shared: self.shared.clone(), model, loaded: Mutex::new(false), _staged: self.staged.clone() };
        if let Err(error) = running.load() {
            // Files from the cache may be unusable on this system; then the program is compiled.
            if !stage.restored {
                return Err(error);
            }
            if let Some(cache) = &self.shared.opened.cache {
                cache.remove(&self.cache_key);
            }
            self.compile(&running.model)?;
            running.load()?;
        }
        stage.restored = false;
        drop(stage);
        let alignment = self.shared.opened.profile.row_alignment.value;
        let procedures = ports::procedures(running.model.attributes()?.as_ref(), &self.declared, alignment)?;
        let route = Route::new(self.shared.opened.dispatch, &running.model)?;
        let model = Arc::new(Routed { active: Mutex::new(None), route: Mutex::new(Arc::new(route)), running });
        Ok(Arc::new(LoadedModel { model, procedures }))
    }
}

/// A loaded model, unloaded at the latest on drop.
pub(crate) struct Running {
    pub(crate) shared: Arc<DeviceContext>,
    pub(crate) model: InMemoryModel,
    loaded: Mutex<bool>,
    /// The files are removed after the model is unloaded.
    _staged: Arc<Staged>,
}

impl Running {
    /// Loads the model, with one retry.
    fn load(&self) -> Result<()> {
        let mut loaded = lock(&self.loaded);
        let DeviceContext { opened, no_options, .. } = &*self.shared;
        let load = || self.model.load(opened.qos, no_options);
        load().or_else(|first| {
            std::thread::sleep(LOAD_PAUSE);
            // The first error has the reason.
            load().map_err(|_| first)
        })?;
        *loaded = true;
        Ok(())
    }

    fn unload(&self) -> Result<()> {
        let mut loaded = lock(&self.loaded);
        if *loaded {
            self.model.unload(self.shared.opened.qos)?;
            *loaded = false;
            compile::returned(&self.shared.opened.profile);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failure to unload cannot be reported from a destructor.
        let _ = self.unload();
    }
}

/// A model with its dispatch route.
pub(crate) struct Routed {
    /// The chain that the engine has prepared.
    pub(crate) active: Mutex<Option<Active>>,
    /// Dropped before the model is unloaded. A reload creates another.
    route: Mutex<Arc<Route>>,
    pub(crate) running: Running,
}

impl Routed {
    fn route(&self) -> Arc<Route> {
        lock(&self.route).clone()
    }
}

pub(crate) struct LoadedModel {
    pub(crate) model: Arc<Routed>,
    procedures: Vec<Procedure>,
}

/// The symbol of a port, and the engine's object for the bound surface.
pub(crate) fn placed(port: &Port, bindings: &Bindings) -> Result<(Number, SurfaceObject)> {
    let bad = |why: &str| Error::new(ErrorKind::Binding, why).with_port(&port.name);
    let surface = bindings.surface(&port.name).ok_or_else(|| bad("no surface bound"))?;
    let found = behind(surface.memory().foreign()).ok_or_else(|| bad("the surface is not of this device"))?;
    // SAFETY: the bound memory lives as long as this call, and the object retains the surface.
    let object = SurfaceObject::with(unsafe { found.as_ref() })?;
    Ok((number(u64::from(port.symbol))?, object.ok_or_else(|| bad("the framework takes no such surface"))?))
}

impl LoadedModel {
    /// The procedure of bindings.
    pub(crate) fn procedure(&self, bindings: &Bindings) -> Result<&Procedure> {
        let name = bindings.procedure_name();
        let found = self.procedures.iter().find(|p| name.is_none_or(|n| n == p.name));
        found.ok_or_else(|| Error::new(ErrorKind::Binding, "no such procedure"))
    }

    /// Prepares a request of one procedure.
    pub(crate) fn ready(&self, bindings: &Bindings) -> Result<Ready> {
        let procedure = self.procedure(bindings)?;
        let side = |ports: &[Port]| {
            let places = ports.iter().map(|port| placed(port, bindings)).collect::<Result<Vec<_>>>()?;
            let (symbols, objects): (Vec<_>, Vec<_>) = places.into_iter().unzip();
            Ok::<_, Error>((list(&objects)?, list(&symbols)?))
        };
        let (inputs, outputs) = (side(&procedure.inputs)?, side(&procedure.outputs)?);
        let id = number(u64::from(procedure.id))?;
        let shared = &*self.model.running.shared;
        let (opened, note) = (&shared.opened, |remark| shared.note(remark));
        let symbol = procedure.outputs.first().map_or(0, |port| port.symbol);
        let fences = Fences::new(opened.fencing, &shared.counters, bindings, symbol, opened.event_timeout, note)?;
        let request = match fences.shared() {
            None => Request::with(&inputs.0, &inputs.1, &outputs.0, &outputs.1, None, None, &id)?,
            Some(e) => Request::with_events(&inputs.0, &inputs.1, &outputs.0, &outputs.1, None, None, &id, e)?,
        };
        let none = || Error::new(ErrorKind::Binding, "the framework makes no request of these surfaces");
        let request = request.ok_or_else(none)?;
        fences.attach(&request)?;
        Ok(Ready { model: self.model.clone(), request, fences })
    }
}

impl Loaded for LoadedModel {
    fn procedures(&self) -> &[Procedure] {
        &self.procedures
    }

    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>> {
        Ok(Arc::new(self.ready(bindings)?))
    }

    fn chaining(&self) -> Option<&dyn Chaining> {
        (self.model.running.shared.opened.chains != Chains::Off).then_some(self as &dyn Chaining)
    }

    fn unload(&self) -> Result<()> {
        self.model.running.unload()
    }

    fn reload(&self) -> Result<()> {
        let running = &self.model.running;
        running.unload()?;
        running.load()?;
        let route = Route::new(running.shared.opened.dispatch, &running.model)?;
        // The engine's chain was unloaded with the program.
        *lock(&self.model.active) = None;
        *lock(&self.model.route) = Arc::new(route);
        Ok(())
    }

    fn state(&self) -> ProgramState {
        match self.model.running.model.state() {
            Ok(1) => ProgramState::Created,
            Ok(2) => ProgramState::Compiled,
            Ok(5) => ProgramState::Error,
            _ => ProgramState::Loaded,
        }
    }
}

impl Chaining for LoadedModel {
    fn prepare_chain(&self, steps: &[Bindings]) -> Result<Arc<dyn Prepared>> {
        Ok(Arc::new(Chain::new(self, self.model.running.shared.opened.chains, steps)?))
    }
}

/// A prepared request with its model.
pub(crate) struct Ready {
    model: Arc<Routed>,
    request: Request,
    fences: Fences,
}

impl Prepared for Ready {
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats> {
        let start = Instant::now();
        let DeviceContext { opened, no_options, .. } = &*self.model.running.shared;
        let route = self.model.route();
        self.fences.around(accesses, || route.evaluate(opened.qos, no_options, &self.request))?;
        let mut stats = Stats::default();
        stats.wall = start.elapsed();
        Ok(stats)
    }

    // Every dispatch is synchronous, or made synchronous by its fences.
    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        let shared = self.model.running.shared.clone();
        shared.queue.submit(self, accesses, done)
    }
}
