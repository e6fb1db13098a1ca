//! The backend: the stages of the seam as calls of the standard path.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ferrane_device::backend::{
    Accesses, Backend, CompileOptions, Compiled, Completion, Done, Loaded, Prepared, Source, Stats,
};
use ferrane_device::staging::Staged;
use ferrane_device::{Bindings, Error, ErrorKind, Foreign, Layout, Memory, Port, Procedure, Result};
use ferrane_mil::text::{Missing, Options};
use ferrane_mil::weights::Strictness;
use ferrane_target::Profile;

use crate::framework::iosurface::IoSurface;
use crate::framework::{Foundation, Framework, Model, Object};
use crate::ports::{self, Declared};
use crate::queue::Queue;
use crate::surface::SurfaceMemory;

/// Successful compiles of this process: the budget is the process's, whatever devices are open.
static COMPILES: AtomicUsize = AtomicUsize::new(0);

/// How long to wait before the one retry of a load, as the published bridge does (bridge-c-api).
const LOAD_PAUSE: Duration = Duration::from_millis(100);

/// The engine.
pub(crate) struct Ane {
    framework: Arc<Framework>,
    profile: Profile,
    name: &'static str,
    queue: Arc<Queue>,
}

impl Ane {
    pub(crate) fn new(framework: Framework, profile: Profile, name: &'static str) -> Ane {
        let queue = Arc::new(Queue::new(profile.queue_depth.value));
        Ane { framework: Arc::new(framework), profile, name, queue }
    }

    /// A spent budget has no words of its own: compiles and loads just fail (apple-runtime §3).
    fn budget(&self, error: Error) -> Error {
        let (spent, budget) = (COMPILES.load(Ordering::Relaxed), self.profile.compile_budget.value);
        if !budget.exceeded_by(spent.saturating_add(1)) || error.kind() == ErrorKind::InvalidProgram {
            return error;
        }
        let message = format!("{spent} programs were compiled in this process, and the budget is about {budget}");
        Error::new(ErrorKind::CompileBudget, message).with_source(error)
    }
}

impl Backend for Ane {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn compile(&self, source: Source<'_>, options: &CompileOptions) -> Result<Box<dyn Compiled>> {
        let alignment = self.profile.row_alignment.value;
        let (mil, files, declared) = match source {
            Source::Program(program) => {
                let declared = ports::declared(program, alignment)?;
                (ferrane_mil::print(program).into_bytes(), program.weights.files(), declared)
            }
            Source::Text { mil, weights } => {
                // The text goes to the compiler as it is; it is read for its ports only.
                let reading = Options { missing: Missing::Keep, strictness: Strictness::Lenient, ..Options::default() };
                let parsed = ferrane_mil::parse_with(mil, weights, reading);
                let refused = || {
                    let why = parsed.diagnostics.iter().next().map(|d| d.message.clone()).unwrap_or_default();
                    Error::new(ErrorKind::InvalidProgram, format!("{}: {why}", options.label))
                };
                let program = parsed.program.as_ref().ok_or_else(refused)?;
                (mil.to_vec(), weights.files(), ports::declared(program, alignment)?)
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the standard path takes programs and text, nothing compiled",
                ));
            }
        };
        let weights: Vec<(String, &[u8])> = files.iter().map(|(path, bytes)| (path.clone(), &bytes[..])).collect();
        let framework = &self.framework;
        let descriptor = framework.describe(&mil, &weights)?;
        let model = framework.model(&descriptor)?;
        let identifier = model.identifier(&framework.foundation)?;
        let staged = Staged::new(&std::env::temp_dir(), &identifier, &mil, &weights, false)?;
        model.compile(&framework.foundation).map_err(|e| self.budget(e))?;
        COMPILES.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Program {
            framework: framework.clone(),
            queue: self.queue.clone(),
            staged: Arc::new(staged),
            declared,
            identifier,
            descriptor,
            compiled: Mutex::new(Some(model)),
        }))
    }

    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(SurfaceMemory::new(&self.framework, layout)?))
    }
}

struct Program {
    framework: Arc<Framework>,
    queue: Arc<Queue>,
    staged: Arc<Staged>,
    declared: Vec<Declared>,
    identifier: String,
    descriptor: Object,
    /// The model that was compiled, until the first load takes it.
    compiled: Mutex<Option<Model>>,
}

impl Compiled for Program {
    fn key(&self) -> &str {
        &self.identifier
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        None
    }

    fn load(&self) -> Result<Arc<dyn Loaded>> {
        let foundation = &self.framework.foundation;
        let compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Later loads make a model anew; it finds what the first one compiled in the staged directory.
        let model = compiled.map_or_else(|| self.framework.model(&self.descriptor), Ok)?;
        load(&model, foundation)?;
        let procedures = ports::procedures(foundation, model.attributes().as_ref(), &self.declared);
        let procedures = procedures.inspect_err(|_| {
            // A model whose ports make no sense is of no use; its unloading can only fail silently.
            let _ = model.unload(foundation);
        })?;
        Ok(Arc::new(LoadedModel {
            framework: self.framework.clone(),
            queue: self.queue.clone(),
            _staged: self.staged.clone(),
            model: Arc::new(Running { framework: self.framework.clone(), model, loaded: Mutex::new(true) }),
            procedures,
        }))
    }
}

/// Loads a model, with one retry.
fn load(model: &Model, foundation: &Foundation) -> Result<()> {
    model.load(foundation).or_else(|first| {
        std::thread::sleep(LOAD_PAUSE);
        // The first error is the one that tells why.
        model.load(foundation).map_err(|_| first)
    })
}

/// A loaded model, unloaded at the latest when nobody has it any more.
struct Running {
    framework: Arc<Framework>,
    model: Model,
    loaded: Mutex<bool>,
}

impl Running {
    fn unload(&self) -> Result<()> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if *loaded {
            self.model.unload(&self.framework.foundation)?;
            *loaded = false;
        }
        Ok(())
    }

    fn reload(&self) -> Result<()> {
        self.unload()?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        load(&self.model, &self.framework.foundation)?;
        *loaded = true;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure.
        let _ = self.unload();
    }
}

struct LoadedModel {
    framework: Arc<Framework>,
    queue: Arc<Queue>,
    _staged: Arc<Staged>,
    model: Arc<Running>,
    procedures: Vec<Procedure>,
}

impl Loaded for LoadedModel {
    fn procedures(&self) -> &[Procedure] {
        &self.procedures
    }

    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>> {
        if !bindings.waits().is_empty() || !bindings.signals().is_empty() {
            return Err(Error::new(ErrorKind::Unavailable, "the standard path has no events"));
        }
        let name = bindings.procedure_name();
        let found = self.procedures.iter().find(|p| name.is_none_or(|n| n == p.name));
        let procedure = found.ok_or_else(|| Error::new(ErrorKind::Binding, "no such procedure"))?;
        let bind = |port: &Port| {
            let bad = |why: &str| Error::new(ErrorKind::Binding, why).with_port(&port.name);
            let surface = bindings.surface(&port.name).ok_or_else(|| bad("no surface bound"))?;
            match surface.memory().foreign() {
                Foreign::IoSurface(address) => {
                    Ok((port.symbol, self.framework.surface_object(address as *mut IoSurface)?))
                }
                _ => Err(bad("the surface is not of this device")),
            }
        };
        let inputs = procedure.inputs.iter().map(bind).collect::<Result<Vec<_>>>()?;
        let outputs = procedure.outputs.iter().map(bind).collect::<Result<Vec<_>>>()?;
        let request = self.framework.request(&inputs, &outputs, procedure.id)?;
        Ok(Arc::new(Ready { model: self.model.clone(), queue: self.queue.clone(), request }))
    }

    fn unload(&self) -> Result<()> {
        self.model.unload()
    }

    fn reload(&self) -> Result<()> {
        self.model.reload()
    }
}

/// A request with its model.
struct Ready {
    model: Arc<Running>,
    queue: Arc<Queue>,
    request: Object,
}

impl Ready {
    fn run(&self) -> Result<Stats> {
        let start = Instant::now();
        self.model.model.evaluate(&self.model.framework.foundation, &self.request)?;
        let mut stats = Stats::default();
        stats.wall = start.elapsed();
        Ok(stats)
    }
}

impl Prepared for Ready {
    fn evaluate(&self, _accesses: &mut Accesses) -> Result<Stats> {
        self.run()
    }

    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        let place = match self.queue.reserve() {
            Ok(place) => place,
            Err(error) => return Err((error, accesses)),
        };
        let queue = self.queue.clone();
        queue.push(Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(|| self.run()))
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::Evaluate, "the backend failed inside; this is a bug")));
            drop(place);
            done(Completion { accesses, result });
        }));
        Ok(())
    }
}
