//! The life of a program as the engine has it: compiled, loaded, prepared, run, unloaded, and what
//! refuses each of these.
//!
//! [`Limits`] say whether a profile's limits fail a call, are noted, or are of no concern; they are
//! apart from numerics. With limits, in the order of a life:
//!
//! - *compile*: what the profile's check finds fails with its words (`findings`); the files are
//!   staged (`staging`), a program known by its key is not compiled again, each other one is
//!   charged to the budget of its process (`process`); ports come in the order and with the rows
//!   that the profile's compiler gives them (`ports`);
//! - *load*: so many programs at a time; overwritten weight files count or do not, as the profile
//!   says;
//! - *evaluate*: surfaces have the sizes that the profile wants, or status 0x1d; a program that
//!   compiles and fails on the machine fails here; an op that spoils the state of the process
//!   spoils all later evaluations, until the device is opened again.
//!
//! Faults need no limits: they are asked for by name.

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

use arenas::Arenas;
pub(crate) use compiled::Artifact;
pub use process::ProcessCounts;
use process::{LoadSlot, Ticket};
use program::CompiledProgram;
pub(crate) use program::Recipe;

/// What becomes of a profile's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limits {
    /// They are of no concern: whatever can be computed is. Ports are packed and in the program's
    /// order.
    #[default]
    Off,
    /// What would fail on the machine is noted (`Device::notes`) and done.
    Warn,
    /// What fails on the machine fails here, with the machine's words.
    Enforce,
}

impl Limits {
    /// The word of options.
    pub fn name(self) -> &'static str {
        match self {
            Limits::Off => "off",
            Limits::Warn => "warn",
            Limits::Enforce => "enforce",
        }
    }
}

/// Remarks that are kept; what comes after them is more of the same.
const MOST_NOTES: usize = 256;

/// What the programs of one opened device share.
pub(crate) struct Life {
    profile: Profile,
    limits: Limits,
    /// The budget, and whether it is enforced; `None` where nobody counts.
    budget: Option<(Limit, bool)>,
    process: ProcessCounts,
    /// Where files are kept, if they are.
    staging: Option<PathBuf>,
    faults: Faults,
    compiles: AtomicU64,
    loads: AtomicU64,
    evaluations: AtomicU64,
    /// An op has spoilt the state: every evaluation fails.
    poisoned: AtomicBool,
    notes: Mutex<Vec<String>>,
    programs: Mutex<HashMap<String, Weak<CompiledProgram>>>,
    pub(crate) arenas: Arenas,
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
        // A budget that somebody asks for holds without limits, too.
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
        }
    }

    /// Bytes of the constants of all programs in use.
    pub(crate) fn constant_bytes(&self) -> usize {
        let programs: Vec<_> = lock(&self.programs).values().filter_map(Weak::upgrade).collect();
        programs.iter().flat_map(|p| &p.functions).map(crate::function::CompiledFunction::constant_bytes).sum()
    }

    /// What the device has to say that failed nothing.
    pub(crate) fn notes(&self) -> Vec<String> {
        lock(&self.notes).clone()
    }

    fn note(&self, text: String) {
        let mut notes = lock(&self.notes);
        if notes.len() < MOST_NOTES && !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// Whether limits matter at all.
    pub(crate) fn has_limits(&self) -> bool {
        self.limits != Limits::Off
    }

    /// A limit that a call is beyond: an error, a note, or nothing.
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

    /// A place for a loaded program.
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

    /// Counts a call of a stage and lets happen what the faults say; gives the call's number.
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

    /// Spoils the outputs of the `n`-th evaluation as the faults say.
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

/// Changes the bytes of one element, which `n` decides.
fn each_byte(port: &Port, bytes: &mut [u8], n: u64, change: impl Fn(usize, &mut u8)) {
    let (layout, size) = (&port.layout, port.layout.element_bytes());
    let width = layout.shape.last().copied().unwrap_or(1).max(1);
    // Neighboring evaluations touch elements far apart (the golden ratio's multiplier).
    let chosen = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (layout.elements().max(1) as u64);
    let (row, column) = (chosen as usize / width, chosen as usize % width);
    let Some(start) = layout.row(row).map(|r| r.start + column * size) else { return };
    for (at, byte) in bytes.iter_mut().skip(start).take(size).enumerate() {
        change(at, byte);
    }
}

/// The failure that a rule makes.
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
