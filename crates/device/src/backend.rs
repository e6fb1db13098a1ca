//! What a machine implements. Each stage makes the next, so nobody downcasts.

use std::sync::Arc;
use std::time::Duration;

use ferrane_host::buffer::{ReadGuard, WriteGuard};
use ferrane_machine::Profile;
use ferrane_mil::{Program, Weights};

use crate::{Bindings, Call, Error, Foreign, Layout, Memory, Procedure, Result, Returned};

/// What is compiled.
#[non_exhaustive]
pub enum ProgramSource<'a> {
    /// A program.
    Program(&'a Program),
    /// MIL text with its weights.
    Text {
        /// UTF-8 text.
        mil: &'a [u8],
        /// What its BLOBFILE references point into.
        weights: &'a Weights,
    },
    /// Bytes that [`Compiled::bytes`] once gave, or a machine's own file format.
    Compiled(&'a [u8]),
}

/// Options of a compile.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CompileOptions {
    /// A name for messages and traces, `woFwd` for example.
    pub label: String,
}

impl CompileOptions {
    /// Options with a label.
    pub fn labeled(label: impl Into<String>) -> CompileOptions {
        CompileOptions { label: label.into() }
    }
}

/// What one evaluation took.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The run as the host sees it, waits for events included. The clock starts when the run does:
    /// time in the queue of a submitted request is not in it.
    pub wall: Duration,
    /// On the machine itself, where it says so.
    pub hardware: Option<Duration>,
    /// True if the steps of a chain ran as one request of the machine; false for a procedure alone,
    /// and for steps that went one after another as requests of their own.
    pub chained: bool,
}

impl Stats {
    /// This run and one after it. Time on the machine is known only if both know theirs.
    #[must_use]
    pub fn then(self, next: Stats) -> Stats {
        let hardware = self.hardware.zip(next.hardware).map(|(a, b)| a + b);
        Stats { wall: self.wall + next.wall, hardware, chained: self.chained && next.chained }
    }
}

/// The guards of a request in flight, in the order of the procedure's ports. They go back when the
/// request completes.
#[derive(Default)]
pub struct Accesses {
    /// Inputs.
    pub inputs: Vec<ReadGuard>,
    /// Outputs.
    pub outputs: Vec<WriteGuard>,
    /// States, read and written.
    pub states: Vec<WriteGuard>,
}

impl Accesses {
    /// Gives every guard back; the vectors keep their room.
    pub fn release(&mut self) {
        self.inputs.clear();
        self.outputs.clear();
        self.states.clear();
    }
}

/// The end of a submitted request.
pub struct Completion {
    /// The guards, to be dropped before anybody is told.
    pub accesses: Accesses,
    /// How it went.
    pub result: Result<Stats>,
}

/// Called once, on any thread, when a submitted request ends.
pub type Done = Box<dyn FnOnce(Completion) + Send>;

/// Where a program stands in its life, with the engine's numbers (apple-runtime §2, §11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProgramState {
    /// Described and no more: before a compile, after an unload.
    Created = 1,
    /// Compiled, not loaded.
    Compiled = 2,
    /// Loaded.
    Loaded = 3,
    /// A load failed.
    Error = 5,
}

/// The computer that a machine is in, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computer {
    /// Its chip, `Apple M4 Pro` for example.
    pub chip: String,
    /// The system, `macOS 15.5` for example.
    pub system: String,
    /// The system's build, `24F74` for example.
    pub build: String,
}

/// Memory of this process that a machine's programs take beside their surfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of intermediate values of evaluations.
    pub arenas: usize,
    /// Bytes of constants.
    pub constants: usize,
}

/// A machine.
pub trait Backend: Send + Sync {
    /// Its name with the options that matter, `emulator (fast)` for example.
    fn name(&self) -> String;
    /// What it allows.
    fn profile(&self) -> &Profile;
    /// Compiles. Spends the budget where there is one.
    ///
    /// # Errors
    /// An invalid or unsupported program, or a spent budget.
    fn compile(&self, source: ProgramSource<'_>, options: &CompileOptions) -> Result<Box<dyn Compiled>>;
    /// Allocates memory that the machine can reach.
    ///
    /// # Errors
    /// No memory, or a layout that the machine refuses.
    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>>;
    /// Shared events, where the machine has them.
    fn events(&self) -> Option<&dyn Events> {
        None
    }
    /// The computer that it is in, where that matters to what it does.
    fn computer(&self) -> Option<Computer> {
        None
    }
    /// What it has to say that failed nothing, each remark once: limits that it only warns of, for
    /// example.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Runs a function on tensors without surfaces: one with ports that no surface can be made for.
    /// `None` if the machine cannot do so; the front then compiles the program as any other.
    fn call(&self, _program: &Program, _function: &str, _call: &Call) -> Option<Result<Returned>> {
        None
    }
    /// What its programs take of this process's memory now.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }
}

/// A compiled program, not loaded.
pub trait Compiled: Send + Sync {
    /// Identifies program and weights; equal keys mean equal artifacts.
    fn key(&self) -> &str;
    /// A form that can be stored and given back as [`ProgramSource::Compiled`], where there is one.
    fn bytes(&self) -> Option<Vec<u8>>;
    /// Loads it.
    ///
    /// # Errors
    /// The machine refused.
    fn load(&self) -> Result<Arc<dyn Loaded>>;
    /// Where it stands.
    fn state(&self) -> ProgramState {
        ProgramState::Compiled
    }
}

/// A loaded program.
pub trait Loaded: Send + Sync {
    /// What it can run, with ports as the machine reports them.
    fn procedures(&self) -> &[Procedure];
    /// Binds surfaces. The front has checked completeness, types and sizes.
    ///
    /// # Errors
    /// What only the machine knows: order, foreign memory, events.
    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>>;
    /// Running several procedures as one request, where the machine can.
    fn chaining(&self) -> Option<&dyn Chaining> {
        None
    }
    /// Takes it off the machine. The front calls it once, while no request of it runs, and lets
    /// none run afterward.
    ///
    /// # Errors
    /// The machine refused.
    fn unload(&self) -> Result<()>;
    /// Takes it off the machine and loads it again; requests made from it stay good. The front
    /// calls it while none of them runs.
    ///
    /// # Errors
    /// The machine refused; the program is then not loaded.
    fn reload(&self) -> Result<()>;
    /// Where it stands.
    fn state(&self) -> ProgramState {
        ProgramState::Loaded
    }
}

/// Procedures of one loaded program, run one after another without the host between them
/// (apple-runtime §8).
pub trait Chaining: Send + Sync {
    /// Binds the surfaces of all steps; the front has checked each step. A run gets each memory
    /// once: in [`Accesses::outputs`] if any step writes it, in the order in which the steps'
    /// outputs and then states first name it, else in [`Accesses::inputs`], in the order in which
    /// the steps' inputs first name it.
    ///
    /// # Errors
    /// What only the machine knows (`Program chaining prepare error`, code 15).
    fn prepare_chain(&self, steps: &[Bindings]) -> Result<Arc<dyn Prepared>>;
}

/// A request: a procedure with bound surfaces, submitted as often as wanted.
pub trait Prepared: Send + Sync {
    /// Runs it now and returns when it is done. The guards cover the bound surfaces in port order.
    ///
    /// # Errors
    /// The evaluation failed; outputs hold nothing of worth.
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats>;
    /// Queues it; `done` is called once, also after a failure, unless submit itself fails.
    ///
    /// # Errors
    /// [`crate::ErrorKind::QueueFull`] (the guards are given back), or the machine refused.
    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)>;
}

/// Shared events: counters that requests wait for and raise (apple-runtime §6).
pub trait Events: Send + Sync {
    /// A new event at value 0.
    ///
    /// # Errors
    /// The machine refused.
    fn create(&self) -> Result<Arc<dyn Event>>;
}

/// A counter that only grows.
pub trait Event: Send + Sync {
    /// Its value.
    fn value(&self) -> u64;
    /// Raises it from the CPU.
    fn signal(&self, value: u64);
    /// Waits until it has reached `value`; false after the timeout.
    fn wait(&self, value: u64, timeout: Duration) -> bool;
    /// Its handle in the system below, so that requests and other devices can name it.
    fn foreign(&self) -> Foreign {
        Foreign::Heap
    }
}
