//! The life of a program as on the engine: compiled, loaded, prepared, run, unloaded, and what
//! refuses each step.
//!
//! [`Limits`] say whether a call beyond a profile's limit fails, is noted, or is ignored; they are
//! independent of numerics. With limits on, in order:
//!
//! - *compile*: errors that the profile's check finds fail with the machine's message (`findings`);
//!   the files are staged (`staging`); a program whose key is known is not compiled again, and
//!   every other one is charged to the budget of its process (`process`); ports have the order and
//!   the row padding of the profile's compiler (`ports`);
//! - *load*: the number of loaded programs is limited; overwritten weight files are read again if
//!   the profile says so;
//! - *evaluate*: surfaces of other sizes than the profile requires fail with status 0x1d; a program
//!   that compiles and fails on the machine fails here; an op that poisons the process makes all
//!   later evaluations fail, until the device is opened again.
//!
//! Faults need no limits: they are requested by name.

mod arenas;
mod compiled;
mod fate;
mod findings;
mod folder;
mod loaded;
mod ports;
mod process;
mod program;
mod request;
mod resident;
mod staging;
mod words;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Weak};

use ferrane_device::backend::Accesses;
use ferrane_device::{Error, Port, Procedure, Result};
use ferrane_host::sync::lock;
use ferrane_machine::Profile;
use ferrane_machine::profile::Limit;

use crate::faults::{Action, FaultStage, Faults, Rule};
use crate::function::CompiledFunction;
use crate::pace::Engine;

use arenas::Arenas;
pub(crate) use compiled::Artifact;
pub use process::ProcessCounts;
use process::{LoadSlot, Ticket};
use program::CompiledProgram;
pub(crate) use program::Recipe;

/// What happens at a profile's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limits {
    /// Limits are ignored: everything that can be computed is computed. Ports are packed and in the
    /// program's order.
    #[default]
    Off,
    /// A call that would fail on the machine succeeds and is noted (`Device::notes`).
    Warn,
    /// A call that fails on the machine fails here, with the machine's message.
    Enforce,
}

impl Limits {
    /// The word that options use: `enforce`.
    pub fn name(self) -> &'static str {
        match self {
            Limits::Off => "off",
            Limits::Warn => "warn",
            Limits::Enforce => "enforce",
        }
    }
}

/// The most notes that are kept; later ones are dropped.
const MOST_NOTES: usize = 256;

/// The state that the programs of one opened device share.
pub(crate) struct Life {
    profile: Profile,
    limits: Limits,
    /// The compile budget, and whether it is enforced; `None` if compiles are not counted.
    budget: Option<(Limit, bool)>,
    process: ProcessCounts,
    /// The folder in which files are kept, if they are.
    staging: Option<PathBuf>,
    faults: Faults,
    compiles: AtomicU64,
    loads: AtomicU64,
    evaluations: AtomicU64,
    /// An op has poisoned the process: every evaluation fails.
    poisoned: AtomicBool,
    notes: Mutex<Vec<String>>,
    programs: Mutex<HashMap<String, Weak<CompiledProgram>>>,
    pub(crate) arenas: Arenas,
    /// The clock of the modeled engine.
    engine: Engine,
}

impl Life {
    pub(crate) fn new(
        profile: Profile,
        limits: Limits,
        budget: Option<Limit>,
        staging: Option<PathBuf>,
        faults: Faults,
        process: ProcessCounts,
    ) -> Life {
        // A budget that the options or the faults give holds even if limits are off.
        let asked = faults.budget.map(|n| (Limit(Some(n)), true));
        let asked = asked.or_else(|| budget.map(|limit| (limit, limits != Limits::Warn)));
        let own = (limits != Limits::Off).then_some((profile.compile_budget.value, limits == Limits::Enforce));
        Life {
            budget: asked.or(own),
            profile,
            limits,
            process,
            staging,
            faults,
            compiles: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            evaluations: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            notes: Mutex::default(),
            programs: Mutex::default(),
            arenas: Arenas::default(),
            engine: Engine::default(),
        }
    }

    /// Bytes of the constants of all programs in use; those that several share count once.
    pub(crate) fn constant_bytes(&self) -> usize {
        let programs: Vec<_> = lock(&self.programs).values().filter_map(Weak::upgrade).collect();
        let functions = || programs.iter().flat_map(|p| &p.functions);
        let shared: HashMap<usize, usize> = functions().flat_map(CompiledFunction::shared_constants).collect();
        functions().map(CompiledFunction::constant_bytes).chain(shared.into_values()).sum()
    }

    /// Notes on calls that would have failed on the machine.
    pub(crate) fn notes(&self) -> Vec<String> {
        lock(&self.notes).clone()
    }

    fn note(&self, text: String) {
        let mut notes = lock(&self.notes);
        if notes.len() < MOST_NOTES && !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// Whether limits are on.
    pub(crate) fn has_limits(&self) -> bool {
        self.limits != Limits::Off
    }

    /// Handles a call beyond a limit: an error, a note, or nothing.
    ///
    /// # Errors
    /// The error, where limits are enforced.
    fn beyond(&self, error: impl FnOnce() -> Error) -> Result<()> {
        match self.limits {
            Limits::Off => Ok(()),
            Limits::Warn => {
                self.note(error().to_string());
                Ok(())
            }
            Limits::Enforce => Err(error()),
        }
    }

    /// The number of compiles until one is refused; `None` if none is.
    pub(crate) fn compiles_left(&self) -> Option<usize> {
        let (limit, _) = self.budget.filter(|(_, enforced)| *enforced)?;
        Some(limit.0?.saturating_sub(self.process.compiles()))
    }

    /// Charges a compile to the process.
    fn charge(&self) -> Result<Option<Ticket>> {
        let Some((limit, enforced)) = self.budget else { return Ok(None) };
        let returns = self.profile.budget_returns.value;
        if let Some(ticket) = self.process.compile(limit, returns) {
            return Ok(Some(ticket));
        }
        let done = self.process.compiles();
        let error = words::budget(&format!("{done} programs were compiled in this process, and the budget is {limit}"));
        if enforced {
            self.process.exhaust();
            return Err(error);
        }
        self.note(error.to_string());
        Ok(self.process.compile(Limit(None), returns))
    }

    /// Takes a slot for a loaded program.
    fn slot(&self) -> Result<LoadSlot> {
        if self.process.is_exhausted() && self.budget.is_some_and(|(_, enforced)| enforced) {
            return Err(words::budget_at_load(
                "a compile was refused for the budget of this process, and loads fail since",
            ));
        }
        let limit = if self.has_limits() { self.profile.max_loaded.value } else { Limit(None) };
        if let Some(slot) = self.process.load(limit) {
            return Ok(slot);
        }
        let why = format!("{} programs are loaded, the most that this machine has room for", self.process.loaded());
        self.beyond(|| words::load(words::LOAD, &why))?;
        self.process.load(Limit(None)).ok_or_else(|| words::load(words::LOAD, &why))
    }

    /// Counts a call of a stage and injects its faults. Returns the call's number, 0 if no fault
    /// names the stage.
    ///
    /// # Errors
    /// The first failure among them.
    pub(crate) fn begin(&self, stage: FaultStage) -> Result<u64> {
        if !self.faults.touch(stage) {
            return Ok(0);
        }
        let count = match stage {
            FaultStage::Compile => &self.compiles,
            FaultStage::Load => &self.loads,
            FaultStage::Evaluate => &self.evaluations,
        };
        let n = count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut failure = None;
        for rule in self.faults.at(stage, n) {
            match rule.action {
                Action::Delay(time) => std::thread::sleep(time),
                Action::Kill => std::process::abort(),
                Action::Corrupt(_) | Action::Nan => {}
                action => failure = failure.or_else(|| Some(failed(rule, action))),
            }
        }
        failure.map_or(Ok(n), Err)
    }

    /// Corrupts the outputs of the `n`-th evaluation as the faults say.
    fn corrupt(&self, n: u64, procedure: &Procedure, accesses: &mut Accesses) {
        if n == 0 {
            return;
        }
        for rule in self.faults.at(FaultStage::Evaluate, n) {
            let ports = procedure.outputs.iter().zip(&mut accesses.outputs);
            let count = ports.len() as u64;
            let Some((port, bytes)) = ports.into_iter().nth(usize::try_from(n % count.max(1)).unwrap_or(0)) else {
                return;
            };
            match rule.action {
                Action::Corrupt(mask) => each_byte(port, bytes, n, |at, byte| *byte ^= mask.to_le_bytes()[at % 4]),
                Action::Nan => each_byte(port, bytes, n, |_, byte| *byte = 0xff),
                _ => {}
            }
        }
    }
}

/// Changes the bytes of one element, which `n` determines.
fn each_byte(port: &Port, bytes: &mut [u8], n: u64, change: impl Fn(usize, &mut u8)) {
    let (layout, size) = (&port.layout, port.layout.element_bytes());
    let width = layout.shape.last().copied().unwrap_or(1).max(1);
    // Consecutive evaluations touch distant elements (the multiplier of Fibonacci hashing).
    let chosen = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (layout.elements().max(1) as u64);
    let (row, column) = (chosen as usize / width, chosen as usize % width);
    let Some(start) = layout.row(row).map(|r| r.start + column * size) else { return };
    for (at, byte) in bytes.iter_mut().skip(start).take(size).enumerate() {
        change(at, byte);
    }
}

/// The failure that a rule injects.
fn failed(rule: &Rule, action: Action) -> Error {
    let why = format!("fault `{rule}`");
    match (rule.stage, action) {
        (FaultStage::Compile, Action::Invalid) => words::invalid_program(&why),
        (FaultStage::Compile, Action::Budget) => words::budget(&why),
        (FaultStage::Compile, _) => words::compile_failed(&why),
        (FaultStage::Load, Action::Budget) => words::budget_at_load(&why),
        (FaultStage::Load, Action::Status(status)) => words::load(status, &why),
        (FaultStage::Load, _) => words::load(words::LOAD, &why),
        (FaultStage::Evaluate, Action::Status(status)) => words::evaluation(status, &why),
        (FaultStage::Evaluate, _) => words::evaluation(words::INFERENCE, &why),
    }
}
