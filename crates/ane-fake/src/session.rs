//! What a test sees of the fake, and how it makes calls fail.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ferrane_host::sync::lock;

/// The calls that are counted and can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Call {
    Descriptor,
    Compile,
    Load,
    Evaluate,
    Unload,
    CreateSurface,
    BeginRealTime,
    EndRealTime,
    EvaluateRealTime,
    ProcessRequest,
    EvaluateDirect,
    ReportFailure,
    CompileModel,
    CreateLibrary,
    PrepareEngine,
    Predict,
    PrepareChaining,
    EnqueueSets,
    BuffersReady,
    CompileFile,
}

/// How predictions report success without computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Outputs stay as they were.
    Untouched,
    /// Outputs become zeros, as those of operations made by hand do (apple-runtime §9).
    Zeros,
}

/// What becomes of chains of models of MIL text (apple-runtime §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chaining {
    /// Preparation fails with code 15, as on an M4 Max.
    Refused,
    /// Preparation succeeds for the model inside and a client of the caller's own; what follows
    /// fails without a word, as on an M5.
    Silent,
    /// Chains run, as one project says of an M1.
    Works,
}

/// A failure as an NSError tells it.
#[derive(Clone, Debug)]
pub(crate) struct CallFailure {
    pub(crate) domain: String,
    pub(crate) code: isize,
    pub(crate) text: String,
}

struct World {
    calls: Vec<Call>,
    failures: Vec<(Call, CallFailure)>,
    compiled: usize,
    budget: usize,
    row_alignment: usize,
    reports_layouts: bool,
    held: bool,
    instant: bool,
    silence: Option<Silence>,
    ignores_backings: bool,
    e5_cache: Option<PathBuf>,
    reports_ports: bool,
    chaining: Chaining,
    raises: bool,
}

impl World {
    /// No budget, packed rows, layouts reported, predictions that compute and write where they are
    /// told.
    const fn new() -> World {
        World {
            calls: Vec::new(),
            failures: Vec::new(),
            compiled: 0,
            budget: usize::MAX,
            row_alignment: 1,
            reports_layouts: true,
            held: false,
            instant: false,
            silence: None,
            ignores_backings: false,
            e5_cache: None,
            reports_ports: true,
            chaining: Chaining::Refused,
            raises: true,
        }
    }
}

static WORLD: Mutex<World> = Mutex::new(World::new());
static RELEASED: Condvar = Condvar::new();
static SESSION: Mutex<()> = Mutex::new(());

fn world() -> MutexGuard<'static, World> {
    lock(&WORLD)
}

thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });

/// True while this thread is in an evaluation of the fake: what it does there is not the caller's
/// doing.
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// An evaluation of the fake, until it is dropped.
pub(crate) struct Inside {
    /// True if there is nothing to do but to answer YES.
    pub(crate) instant: bool,
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Begins an evaluation, when a test lets it.
pub(crate) fn enter() -> Inside {
    DEPTH.set(DEPTH.get() + 1);
    let mut world = world();
    while world.held {
        world = RELEASED.wait(world).unwrap_or_else(PoisonError::into_inner);
    }
    Inside { instant: world.instant }
}

/// Counts a call; gives the failure that a test ordered for it.
pub(crate) fn count(call: Call) -> Result<(), CallFailure> {
    let mut world = world();
    world.calls.push(call);
    match world.failures.iter().position(|(c, _)| *c == call) {
        Some(i) => Err(world.failures.remove(i).1),
        None => Ok(()),
    }
}

/// Counts a successful compile; false if the budget is spent.
pub(crate) fn spend() -> bool {
    let mut world = world();
    let left = world.compiled < world.budget;
    world.compiled += usize::from(left);
    left
}

/// Bytes to which rows are padded, and whether models report how their ports lie.
pub(crate) fn rows() -> (usize, bool) {
    let world = world();
    (world.row_alignment, world.reports_layouts)
}

/// How predictions are silent, and whether they make arrays of their own for what they give.
pub(crate) fn predictions() -> (Option<Silence>, bool) {
    let world = world();
    (world.silence, world.ignores_backings)
}

/// The folder of the E5 runtime's cache. The fake checks that it can be written, and keeps nothing
/// in it.
pub(crate) fn e5_cache() -> PathBuf {
    world().e5_cache.clone().unwrap_or_else(std::env::temp_dir)
}

/// What becomes of chains.
pub(crate) fn chains() -> Chaining {
    world().chaining
}

/// Whether requests raise the events that they were given.
pub(crate) fn raises() -> bool {
    world().raises
}

/// Whether models describe themselves at all.
pub(crate) fn describes() -> bool {
    world().reports_ports
}

/// Sole use of the fake: its state is the process's, as the real framework's is.
pub struct Session {
    _sole: MutexGuard<'static, ()>,
}

/// Waits for other tests, then starts with nothing counted and nothing ordered.
pub fn session() -> Session {
    let sole = lock(&SESSION);
    *world() = World::new();
    Session { _sole: sole }
}

impl Session {
    /// How often a call was made.
    pub fn count(&self, call: Call) -> usize {
        world().calls.iter().filter(|c| **c == call).count()
    }

    /// Makes the next such call fail with that domain, code and text.
    pub fn fail(&self, call: Call, domain: &str, code: isize, text: &str) {
        world().failures.push((call, CallFailure { domain: domain.into(), code, text: text.into() }));
    }

    /// Lets so many compiles succeed; later ones fail without a reason, as the engine's do.
    pub fn budget(&self, compiles: usize) {
        world().budget = compiles;
    }

    /// Pads rows of programs compiled from now on to a multiple of so many bytes; 64 is the
    /// published case.
    pub fn row_alignment(&self, bytes: usize) {
        world().row_alignment = bytes;
    }

    /// What becomes of chains from now on.
    pub fn chaining(&self, chaining: Chaining) {
        world().chaining = chaining;
    }

    /// Requests end without raising their events, as those that fail on the engine do.
    pub fn without_signals(&self) {
        world().raises = false;
    }

    /// Models say nothing of themselves.
    pub fn without_attributes(&self) {
        world().reports_ports = false;
    }

    /// Models say nothing of how their ports lie, as older systems do.
    pub fn without_layouts(&self) {
        world().reports_layouts = false;
    }

    /// Keeps evaluations from going on.
    pub fn hold(&self) {
        world().held = true;
    }

    /// Lets them go on.
    pub fn release(&self) {
        world().held = false;
        RELEASED.notify_all();
    }

    /// Whether evaluations answer YES at once, look at nothing and are not counted: what is left is
    /// the caller's part.
    pub fn instant(&self, instant: bool) {
        world().instant = instant;
    }

    /// Predictions report success and compute nothing.
    pub fn silent(&self, how: Option<Silence>) {
        world().silence = how;
    }

    /// Predictions make new arrays for what they give, whatever backings they were given.
    pub fn without_backings(&self) {
        world().ignores_backings = true;
    }

    /// The folder in which the E5 runtime keeps what it compiles.
    pub fn e5_cache(&self, folder: PathBuf) {
        world().e5_cache = Some(folder);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.release();
    }
}
