//! The control of the fake in a test: counts of calls, and failures on request.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
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
    CopyAllChannels,
    CreateSubscription,
    CreateSamples,
    CreateSamplesDelta,
    CreateEventClient,
    CopyServices,
}

/// How predictions report success without computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Outputs keep their contents.
    Untouched,
    /// Outputs become zeros, as with operations made by hand (apple-runtime §9).
    Zeros,
}

/// The behavior of chains of models from MIL text (apple-runtime §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chaining {
    /// Preparation fails with code 15, as on an M4 Max.
    Refused,
    /// Preparation succeeds for the inner model and a client that the caller created; later calls
    /// fail silently, as on an M5.
    Silent,
    /// Chains run, as one project reports for an M1.
    Works,
}

/// A failure in the form of an NSError.
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
    has_reports: bool,
    has_thermal: bool,
    frozen: Option<i64>,
    subscribed: Vec<String>,
    hidden: Vec<String>,
}

impl World {
    /// No budget, packed rows, layouts reported, predictions that compute and write to the given
    /// arrays.
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
            has_reports: true,
            has_thermal: true,
            frozen: None,
            subscribed: Vec::new(),
            hidden: Vec::new(),
        }
    }
}

/// The number of evaluations of this process. Counters of the sensors never start again, so it does
/// not belong to a session.
static EVALUATED: AtomicI64 = AtomicI64::new(0);

static WORLD: Mutex<World> = Mutex::new(World::new());
static RELEASED: Condvar = Condvar::new();
static SESSION: Mutex<()> = Mutex::new(());

fn world() -> MutexGuard<'static, World> {
    lock(&WORLD)
}

thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });

/// True while this thread is in an evaluation of the fake, whose allocations are not the caller's.
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// An evaluation of the fake, until it is dropped.
pub(crate) struct Inside {
    /// True if the evaluation only returns YES.
    pub(crate) instant: bool,
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Begins an evaluation as soon as the test permits it.
pub(crate) fn enter() -> Inside {
    DEPTH.set(DEPTH.get() + 1);
    let mut world = world();
    while world.held {
        world = RELEASED.wait(world).unwrap_or_else(PoisonError::into_inner);
    }
    Inside { instant: world.instant }
}

/// Counts a call; an error if a test requested a failure for it.
pub(crate) fn count(call: Call) -> Result<(), CallFailure> {
    let mut world = world();
    world.calls.push(call);
    match world.failures.iter().position(|(c, _)| *c == call) {
        Some(i) => Err(world.failures.remove(i).1),
        None => {
            use Call::{Evaluate, EvaluateDirect, EvaluateRealTime, Predict, ProcessRequest};
            let evaluates = matches!(call, Evaluate | EvaluateRealTime | ProcessRequest | EvaluateDirect | Predict);
            EVALUATED.fetch_add(i64::from(evaluates), Ordering::Relaxed);
            Ok(())
        }
    }
}

/// The number of evaluations so far.
pub(crate) fn evaluated() -> i64 {
    EVALUATED.load(Ordering::Relaxed)
}

/// The number of evaluations that the energy model has counted, if it counts no more.
pub(crate) fn frozen() -> Option<i64> {
    world().frozen
}

/// Whether IOReport has channels of a group.
pub(crate) fn has_group(group: &str) -> bool {
    !world().hidden.iter().any(|hidden| hidden == group)
}

/// Records the channels of a subscription.
pub(crate) fn subscribed(channels: Vec<String>) {
    world().subscribed = channels;
}

/// Whether the system has IOReport, and IOHID's event system.
pub(crate) fn has_sensors() -> (bool, bool) {
    let world = world();
    (world.has_reports, world.has_thermal)
}

/// Counts a successful compile; false if the budget is spent.
pub(crate) fn spend() -> bool {
    let mut world = world();
    let left = world.compiled < world.budget;
    world.compiled += usize::from(left);
    left
}

/// The alignment of rows in bytes, and whether models report the layout of their ports.
pub(crate) fn rows() -> (usize, bool) {
    let world = world();
    (world.row_alignment, world.reports_layouts)
}

/// How predictions are silent, and whether they allocate their own result arrays.
pub(crate) fn predictions() -> (Option<Silence>, bool) {
    let world = world();
    (world.silence, world.ignores_backings)
}

/// The folder of the E5 runtime's cache. The fake checks that it can be written, and keeps nothing
/// in it.
pub(crate) fn e5_cache() -> PathBuf {
    world().e5_cache.clone().unwrap_or_else(std::env::temp_dir)
}

/// The behavior of chains.
pub(crate) fn chains() -> Chaining {
    world().chaining
}

/// Whether requests signal their events.
pub(crate) fn raises() -> bool {
    world().raises
}

/// Whether models report attributes.
pub(crate) fn describes() -> bool {
    world().reports_ports
}

/// Exclusive use of the fake, whose state belongs to the process like the real framework's.
pub struct Session {
    _sole: MutexGuard<'static, ()>,
}

/// Waits for other tests, then starts with zero counts and no failures.
pub fn session() -> Session {
    let sole = lock(&SESSION);
    *world() = World::new();
    Session { _sole: sole }
}

impl Session {
    /// The number of times that a call was made.
    pub fn count(&self, call: Call) -> usize {
        world().calls.iter().filter(|c| **c == call).count()
    }

    /// Makes the next such call fail with this domain, code and text.
    pub fn fail(&self, call: Call, domain: &str, code: isize, text: &str) {
        world().failures.push((call, CallFailure { domain: domain.into(), code, text: text.into() }));
    }

    /// Lets this many compiles succeed; later ones fail without a reason, like the engine's.
    pub fn budget(&self, compiles: usize) {
        world().budget = compiles;
    }

    /// Pads rows of programs compiled from now on to a multiple of `bytes`; 64 is the published
    /// case.
    pub fn row_alignment(&self, bytes: usize) {
        world().row_alignment = bytes;
    }

    /// Sets the behavior of chains from now on.
    pub fn chaining(&self, chaining: Chaining) {
        world().chaining = chaining;
    }

    /// Requests end without signaling their events, like those that fail on the engine.
    pub fn without_signals(&self) {
        world().raises = false;
    }

    /// Models report no attributes.
    pub fn without_attributes(&self) {
        world().reports_ports = false;
    }

    /// Models do not report the layout of their ports, like older systems.
    pub fn without_layouts(&self) {
        world().reports_layouts = false;
    }

    /// Keeps evaluations from starting.
    pub fn hold(&self) {
        world().held = true;
    }

    /// Lets evaluations start that are on hold.
    pub fn release(&self) {
        world().held = false;
        RELEASED.notify_all();
    }

    /// Whether evaluations return YES at once, do nothing and are not counted; then only the
    /// caller's cost remains.
    pub fn instant(&self, instant: bool) {
        world().instant = instant;
    }

    /// Predictions report success without computing.
    pub fn silent(&self, how: Option<Silence>) {
        world().silence = how;
    }

    /// Predictions allocate new result arrays and ignore backings.
    pub fn without_backings(&self) {
        world().ignores_backings = true;
    }

    /// The system has no IOReport.
    pub fn without_reports(&self) {
        world().has_reports = false;
    }

    /// The system has no event system of IOHID.
    pub fn without_thermal(&self) {
        world().has_thermal = false;
    }

    /// The energy model counts no evaluations from now on, like macOS 27's.
    pub fn freeze_energy(&self) {
        world().frozen = Some(evaluated());
    }

    /// IOReport has no channels of these groups.
    pub fn without_groups(&self, groups: &[&str]) {
        world().hidden = groups.iter().map(|group| group.to_string()).collect();
    }

    /// The names of the channels of the last subscription to IOReport.
    pub fn subscribed(&self) -> Vec<String> {
        world().subscribed.clone()
    }

    /// Sets the cache folder of the E5 runtime.
    pub fn e5_cache(&self, folder: PathBuf) {
        world().e5_cache = Some(folder);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.release();
    }
}
