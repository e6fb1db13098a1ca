//! The device of the parent: each stage is a message to the child.
//!
//! Everything needed to restart a program is kept: its compile message, and the procedure of each
//! request. So a program that is loaded or reloaded after its child has ended moves to a new child,
//! and its requests stay valid.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrane_device::backend::{
    Accesses, Backend, CompileOptions, Compiled, Done, Loaded, Prepared, ProgramSource, ProgramState, Stats,
};
use ferrane_device::queue::Queue;
use ferrane_device::{Bindings, Error, ErrorKind, Layout, Memory, Procedure, Result};
use ferrane_host::buffer::SharedBytes;
use ferrane_host::sync::lock;
use ferrane_machine::Profile;

use super::message::{Question, Reading, Writing};
use super::worker::Worker;
use super::{Ordering, SERVES};
use crate::source;

struct WorkerContext {
    options: String,
    patience: Duration,
    profile: Profile,
    queue: Queue,
    worker: Mutex<Arc<Worker>>,
}

impl WorkerContext {
    /// The child for new programs; a new one if the last has ended.
    fn worker(&self) -> Result<Arc<Worker>> {
        let mut worker = lock(&self.worker);
        if !worker.is_alive() {
            *worker = Arc::new(Worker::start(&self.options, self.patience)?);
        }
        Ok(worker.clone())
    }
}

/// The engine in a child process.
pub(crate) struct Isolated(Arc<WorkerContext>);

impl Isolated {
    /// Starts the child with its options.
    pub(crate) fn new(options: String, patience: Duration, profile: Profile) -> Result<Isolated> {
        if !SERVES.load(Ordering::Relaxed) {
            let why = "the option `isolate` starts this program again, whose `main` has to call `isolate::serve` first";
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        let worker = Mutex::new(Arc::new(Worker::start(&options, patience)?));
        let queue = Queue::new("ferrane-isolate", profile.queue_depth.value);
        Ok(Isolated(Arc::new(WorkerContext { options, patience, profile, queue, worker })))
    }
}

/// Memory of this process.
struct HeapMemory(SharedBytes);

impl Memory for HeapMemory {
    fn bytes(&self) -> &SharedBytes {
        &self.0
    }
}

impl Backend for Isolated {
    fn name(&self) -> String {
        format!("{} in a process of its own", lock(&self.0.worker).name())
    }

    fn profile(&self) -> &Profile {
        &self.0.profile
    }

    fn compile(&self, source: ProgramSource<'_>, options: &CompileOptions) -> Result<Box<dyn Compiled>> {
        let (mil, files) = source::parts(&source)?;
        let mut question = Writing::question(Question::Compile);
        question.bytes(options.label.as_bytes());
        question.bytes(&mil);
        question.number(files.len() as u64);
        for (path, bytes) in &files {
            question.bytes(path.as_bytes());
            question.bytes(bytes);
        }
        let recipe = Arc::new(Recipe { shared: self.0.clone(), question: question.0 });
        let (key, thing) = recipe.compile()?;
        Ok(Box::new(Program { recipe, key, thing: Mutex::new(Arc::new(thing)) }))
    }

    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>> {
        let bytes = SharedBytes::new(layout.allocation);
        Ok(Arc::new(HeapMemory(bytes.map_err(|e| Error::new(ErrorKind::OutOfMemory, e.to_string()))?)))
    }
}

/// An object in a child, released there on drop.
struct Thing {
    worker: Arc<Worker>,
    number: u64,
}

impl Thing {
    fn ask(&self, question: Question, more: impl FnOnce(&mut Writing)) -> Result<Vec<u8>> {
        let mut message = Writing::question(question);
        message.number(self.number);
        more(&mut message);
        self.worker.ask(&message.0)
    }

    /// The object at the end of an answer.
    fn last(worker: &Arc<Worker>, mut answer: Reading<'_>) -> Result<Thing> {
        let number = answer.number()?;
        answer.end()?;
        Ok(Thing { worker: worker.clone(), number })
    }
}

impl Drop for Thing {
    fn drop(&mut self) {
        // A child that has ended has released everything.
        let _ = self.ask(Question::Forget, |_| ());
    }
}

/// The message that compiles a program in any child.
struct Recipe {
    shared: Arc<WorkerContext>,
    question: Vec<u8>,
}

impl Recipe {
    /// Compiles in the current child; also returns the program's key.
    fn compile(&self) -> Result<(String, Thing)> {
        let worker = self.shared.worker()?;
        let answer = worker.ask(&self.question)?;
        let mut answer = Reading(&answer).answer()?;
        Ok((answer.text()?, Thing::last(&worker, answer)?))
    }
}

struct Program {
    recipe: Arc<Recipe>,
    key: String,
    thing: Mutex<Arc<Thing>>,
}

/// Loads a compiled program.
fn load(compiled: &Thing) -> Result<(Vec<Procedure>, Thing)> {
    let answer = compiled.ask(Question::Load, |_| ())?;
    let mut answer = Reading(&answer).answer()?;
    Ok((answer.procedures()?, Thing::last(&compiled.worker, answer)?))
}

impl Compiled for Program {
    fn key(&self) -> &str {
        &self.key
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        None
    }

    fn load(&self) -> Result<Arc<dyn Loaded>> {
        let mut thing = lock(&self.thing);
        if !thing.worker.is_alive() {
            *thing = Arc::new(self.recipe.compile()?.1);
        }
        let (procedures, loaded) = load(&thing)?;
        let live = Live { compiled: thing.clone(), loaded: Arc::new(loaded) };
        Ok(Arc::new(LoadedProgram {
            running: Arc::new(Running { recipe: self.recipe.clone(), live: Mutex::new(live) }),
            procedures,
        }))
    }
}

/// The current child of a loaded program.
struct Live {
    compiled: Arc<Thing>,
    loaded: Arc<Thing>,
}

struct Running {
    recipe: Arc<Recipe>,
    live: Mutex<Live>,
}

struct LoadedProgram {
    running: Arc<Running>,
    procedures: Vec<Procedure>,
}

impl Loaded for LoadedProgram {
    fn procedures(&self) -> &[Procedure] {
        &self.procedures
    }

    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>> {
        if !bindings.waits().is_empty() || !bindings.signals().is_empty() {
            return Err(Error::new(ErrorKind::Unavailable, "the engine in a child process has no events"));
        }
        let name = bindings.procedure_name();
        let found = self.procedures.iter().find(|p| name.is_none_or(|n| n == p.name));
        let procedure = found.ok_or_else(|| Error::new(ErrorKind::Binding, "no such procedure"))?.clone();
        let loaded = lock(&self.running.live).loaded.clone();
        let ready = Mutex::new(ready(&loaded, &procedure)?);
        Ok(Arc::new(Request { running: self.running.clone(), procedure, ready }))
    }

    fn unload(&self) -> Result<()> {
        let loaded = lock(&self.running.live).loaded.clone();
        // A child that has ended holds nothing.
        if !loaded.worker.is_alive() {
            return Ok(());
        }
        Reading(&loaded.ask(Question::Unload, |_| ())?).answer()?.end()
    }

    fn reload(&self) -> Result<()> {
        let mut live = lock(&self.running.live);
        if live.loaded.worker.is_alive() {
            return Reading(&live.loaded.ask(Question::Reload, |_| ())?).answer()?.end();
        }
        let compiled = Arc::new(self.running.recipe.compile()?.1);
        let (procedures, loaded) = load(&compiled)?;
        if procedures != self.procedures {
            return Err(Error::new(ErrorKind::Load, "the program has other ports in the new child process"));
        }
        *live = Live { compiled, loaded: Arc::new(loaded) };
        Ok(())
    }

    fn state(&self) -> ProgramState {
        if lock(&self.running.live).compiled.worker.is_alive() { ProgramState::Loaded } else { ProgramState::Error }
    }
}

/// A request in the child, and its loaded program.
struct Ready {
    loaded: Arc<Thing>,
    request: Thing,
}

fn ready(loaded: &Arc<Thing>, procedure: &Procedure) -> Result<Ready> {
    let answer = loaded.ask(Question::Prepare, |question| question.bytes(procedure.name.as_bytes()))?;
    let request = Thing::last(&loaded.worker, Reading(&answer).answer()?)?;
    Ok(Ready { loaded: loaded.clone(), request })
}

struct Request {
    running: Arc<Running>,
    procedure: Procedure,
    ready: Mutex<Ready>,
}

impl Prepared for Request {
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats> {
        let small = || Error::new(ErrorKind::Binding, "a surface has another size than its port");
        let mut current = lock(&self.ready);
        let loaded = lock(&self.running.live).loaded.clone();
        if !Arc::ptr_eq(&loaded, &current.loaded) {
            *current = ready(&loaded, &self.procedure)?;
        }
        let inputs = self.procedure.inputs.iter().zip(accesses.inputs.iter().map(|guard| &guard[..]));
        let states = self.procedure.states.iter().zip(accesses.states.iter().map(|guard| &guard[..]));
        let given = inputs.chain(states).map(|(port, bytes)| bytes.get(..port.layout.allocation).ok_or_else(small));
        let given = given.collect::<Result<Vec<_>>>()?;
        let answer =
            current.request.ask(Question::Evaluate, |question| given.iter().for_each(|b| question.bytes(b)))?;
        let mut answer = Reading(&answer).answer()?;
        let wall = Duration::from_nanos(answer.number()?);
        let ports = self.procedure.outputs.iter().chain(&self.procedure.states);
        for (port, guard) in ports.zip(accesses.outputs.iter_mut().chain(&mut accesses.states)) {
            let bytes = answer.bytes()?;
            let room = guard.get_mut(..port.layout.allocation).filter(|room| room.len() == bytes.len());
            room.ok_or_else(small)?.copy_from_slice(bytes);
        }
        answer.end()?;
        let mut stats = Stats::default();
        stats.wall = wall;
        Ok(stats)
    }

    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        let shared = self.running.recipe.shared.clone();
        shared.queue.submit(self, accesses, done)
    }
}
