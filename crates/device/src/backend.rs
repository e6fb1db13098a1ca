//! The traits that a backend implements. Each stage creates the next, so no downcasts are needed.

use std::sync::Arc;
use std::time::Duration;

use ferrane_host::buffer::{ReadGuard, WriteGuard};
use ferrane_machine::Profile;
use ferrane_mil::{Program, Weights};

use crate::{Bindings, Call, Error, Foreign, Layout, Memory, Procedure, Result, Returned};

/// The input of a compile.
#[non_exhaustive]
pub enum ProgramSource<'a> {
    /// A program in memory.
    Program(&'a Program),
    /// MIL text with its weights.
    Text {
        /// MIL text, UTF-8.
        mil: &'a [u8],
        /// The weights that its BLOBFILE references resolve to.
        weights: &'a Weights,
    },
    /// Bytes from [`Compiled::bytes`], or a backend's own file format.
    Compiled(&'a [u8]),
}

/// Options of a compile.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CompileOptions {
    /// A name for messages and traces, such as `woFwd`.
    pub label: String,
}

impl CompileOptions {
    /// Options with only a label.
    pub fn labeled(label: impl Into<String>) -> CompileOptions {
        CompileOptions { label: label.into() }
    }
}

/// The time of one evaluation.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The duration on the host, including waits for events. It begins when the run starts, so time
    /// in the queue of a submitted request is not included.
    pub wall: Duration,
    /// The duration on the machine; `None` if the machine does not report it.
    pub hardware: Option<Duration>,
    /// True if the steps of a chain ran as one request of the machine; false for a single
    /// procedure, and for steps that ran as separate requests.
    pub chained: bool,
}

impl Stats {
    /// The sum of this run and the next. The time on the machine is known only if both report it.
    #[must_use]
    pub fn then(self, next: Stats) -> Stats {
        let hardware = self.hardware.zip(next.hardware).map(|(a, b)| a + b);
        Stats { wall: self.wall + next.wall, hardware, chained: self.chained && next.chained }
    }
}

/// The guards of a request in flight, in the order of the procedure's ports. They are released when
/// the request completes.
#[derive(Default)]
pub struct Accesses {
    /// Guards of the inputs, in port order.
    pub inputs: Vec<ReadGuard>,
    /// Guards of the outputs, in port order.
    pub outputs: Vec<WriteGuard>,
    /// Guards of the states, in port order; a run reads and writes them.
    pub states: Vec<WriteGuard>,
}

impl Accesses {
    /// Releases every guard; the vectors keep their capacity.
    pub fn release(&mut self) {
        self.inputs.clear();
        self.outputs.clear();
        self.states.clear();
    }
}

/// The completion of a submitted request.
pub struct Completion {
    /// The guards, which must be dropped before the result is reported.
    pub accesses: Accesses,
    /// The result of the evaluation.
    pub result: Result<Stats>,
}

/// Called once, on any thread, when a submitted request ends.
pub type Done = Box<dyn FnOnce(Completion) + Send>;

/// The state of a program, numbered as by the engine (apple-runtime §2, §11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProgramState {
    /// Only described: before a compile or after an unload.
    Created = 1,
    /// After a compile, before a load.
    Compiled = 2,
    /// On the machine, ready for requests.
    Loaded = 3,
    /// The last load failed.
    Error = 5,
}

/// The computer that contains the machine, as the system reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computer {
    /// The chip, such as `Apple M4 Pro`.
    pub chip: String,
    /// The system, such as `macOS 15.5`.
    pub system: String,
    /// The build of the system, such as `24F74`.
    pub build: String,
}

/// Memory of this process that a machine's programs use in addition to their surfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes for intermediate values of evaluations.
    pub arenas: usize,
    /// Bytes for constants of programs.
    pub constants: usize,
}

/// A machine that compiles and runs programs.
pub trait Backend: Send + Sync {
    /// The name with the relevant options, such as `emulator (fast)`.
    fn name(&self) -> String;
    /// The profile: the machine's limits.
    fn profile(&self) -> &Profile;
    /// Compiles a program. This spends the compile budget if there is one.
    ///
    /// # Errors
    /// An invalid or unsupported program, or a spent budget.
    fn compile(&self, source: ProgramSource<'_>, options: &CompileOptions) -> Result<Box<dyn Compiled>>;
    /// The number of further programs that this process can compile; `None` if there is no limit or
    /// the machine does not count.
    fn compiles_left(&self) -> Option<usize> {
        None
    }
    /// Allocates memory that the machine can reach.
    ///
    /// # Errors
    /// No memory, or a layout that the machine refuses.
    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>>;
    /// Shared events; `None` if the machine has none.
    fn events(&self) -> Option<&dyn Events> {
        None
    }
    /// The computer that contains the machine; `None` if its programs do not depend on it.
    fn computer(&self) -> Option<Computer> {
        None
    }
    /// Notes about conditions that are not failures, such as limits that the machine only warns
    /// about; each note once.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Runs a function on tensors without surfaces, for functions with ports that no surface can
    /// have. `None` if the backend cannot do this; the front end then compiles the program as
    /// usual.
    fn call(&self, _program: &Program, _function: &str, _call: &Call) -> Option<Result<Returned>> {
        None
    }
    /// The memory that its programs use in this process now.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }
}

/// A compiled program that is not loaded.
pub trait Compiled: Send + Sync {
    /// A key of program and weights: equal keys mean equal artifacts.
    fn key(&self) -> &str;
    /// A form that can be stored and compiled again as [`ProgramSource::Compiled`]; `None` if the
    /// backend has none.
    fn bytes(&self) -> Option<Vec<u8>>;
    /// Loads the program.
    ///
    /// # Errors
    /// The machine refused.
    fn load(&self) -> Result<Arc<dyn Loaded>>;
    /// The state of the program on the machine.
    fn state(&self) -> ProgramState {
        ProgramState::Compiled
    }
}

/// A program that is loaded on the machine.
pub trait Loaded: Send + Sync {
    /// The procedures with their ports, as the machine reports them.
    fn procedures(&self) -> &[Procedure];
    /// Binds surfaces. The front end has checked completeness, types and sizes.
    ///
    /// # Errors
    /// Conditions that only the machine can check: order, foreign memory, events.
    fn prepare(&self, bindings: &Bindings) -> Result<Arc<dyn Prepared>>;
    /// Support for running several procedures as one request; `None` if the machine lacks it.
    fn chaining(&self) -> Option<&dyn Chaining> {
        None
    }
    /// Unloads the program. The front end calls it once, while no request of the program runs, and
    /// runs none afterward.
    ///
    /// # Errors
    /// The machine refused.
    fn unload(&self) -> Result<()>;
    /// Unloads the program and loads it again; its requests stay valid. The front end calls it
    /// while none of them runs.
    ///
    /// # Errors
    /// The machine refused; the program is then not loaded.
    fn reload(&self) -> Result<()>;
    /// The state of the program on the machine.
    fn state(&self) -> ProgramState {
        ProgramState::Loaded
    }
}

/// Runs procedures of one loaded program in sequence without involving the host between them
/// (apple-runtime §8).
pub trait Chaining: Send + Sync {
    /// Binds the surfaces of all steps; the front end has checked each step. A run gets a guard for
    /// each memory once: in [`Accesses::outputs`] if any step writes it, in the order in which the
    /// steps' outputs and then states first mention it, else in [`Accesses::inputs`], in the order
    /// in which the steps' inputs first mention it.
    ///
    /// # Errors
    /// Conditions that only the machine can check (`Program chaining prepare error`, code 15).
    fn prepare_chain(&self, steps: &[Bindings]) -> Result<Arc<dyn Prepared>>;
}

/// A request: a procedure with bound surfaces, reusable for any number of runs.
pub trait Prepared: Send + Sync {
    /// Runs the request and returns when it is done. The guards cover the bound surfaces in port
    /// order.
    ///
    /// # Errors
    /// The evaluation failed; the contents of the outputs must be discarded.
    fn evaluate(&self, accesses: &mut Accesses) -> Result<Stats>;
    /// Queues the request. `done` is called once, also after a failed run, unless `submit` itself
    /// fails.
    ///
    /// # Errors
    /// [`crate::ErrorKind::QueueFull`] (with the guards returned), or the machine refused.
    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)>;
}

/// Shared events: counters that requests wait for and signal (apple-runtime §6).
pub trait Events: Send + Sync {
    /// A new event at value 0.
    ///
    /// # Errors
    /// The machine refused.
    fn create(&self) -> Result<Arc<dyn Event>>;
}

/// A counter whose value only increases.
pub trait Event: Send + Sync {
    /// The value, at least that of the last signal.
    fn value(&self) -> u64;
    /// Raises the value from the CPU.
    fn signal(&self, value: u64);
    /// Waits until it has reached `value`; false after the timeout.
    fn wait(&self, value: u64, timeout: Duration) -> bool;
    /// The handle in the underlying system, for requests and other devices.
    fn foreign(&self) -> Foreign {
        Foreign::Heap
    }
}
