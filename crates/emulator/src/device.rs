//! The emulator as a backend of the seam.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferrane_arith::Rules;
use ferrane_device::backend::{Backend, CompileOptions, Compiled, Event, Events, ProgramSource};
use ferrane_device::queue::Queue;
use ferrane_device::{Call, Error, ErrorKind, Footprint, Layout, Memory, Result, Returned};
use ferrane_host::buffer::SharedBytes;
use ferrane_machine::Profile;
use ferrane_machine::profile::Limit;
use ferrane_mil::{Program, parse, print, verify};
use sha2::{Digest as _, Sha256};

use crate::events::HostEvent;
use crate::faults::{FaultStage, Faults};
use crate::interpret::{self, Bounds};
use crate::life::{Artifact, Life, Limits, ProcessCounts, Recipe};
use crate::refusal::checked;
use crate::tables::hardware::rules;
use crate::tables::{EXACT, FAST, Table};
use crate::timing::{self, StepTime};

/// How values are computed and rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Numerics {
    /// fp16 values between ops, fp32 within an op; sums and products accumulate in fp32 and are
    /// rounded once, to nearest even. On a processor with AVX2 or AVX-512 VNNI, a large product of
    /// two fp16 factors, except for those of a batch, is a sum of 16-bit integers for each block of
    /// 32 values, which adds 3 % to the error of that rounding where a block's values are of
    /// similar magnitude.
    #[default]
    Fast,
    /// fp32 throughout: fp16 surfaces are widened when read and rounded when written. The oracle.
    Exact,
    /// The arithmetic of the profile's machine, as far as it is published: its rounding,
    /// accumulator, function tables, special values and defects. [`arithmetic`](crate::arithmetic)
    /// says for which ops it is.
    Hardware,
}

impl Numerics {
    /// The word that options and reports use: `fast`.
    pub fn name(self) -> &'static str {
        match self {
            Numerics::Fast => "fast",
            Numerics::Exact => "exact",
            Numerics::Hardware => "hardware",
        }
    }
}

/// Options of opening an emulator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmulatorOptions {
    /// How values are computed and rounded.
    pub numerics: Numerics,
    /// The machine that is emulated; its profile determines the queue's depth, the limits and,
    /// under [`Numerics::Hardware`], the arithmetic.
    pub profile: Profile,
    /// Under [`Numerics::Hardware`], rules instead of the profile's.
    pub rules: Option<Rules>,
    /// What happens at the profile's limits.
    pub limits: Limits,
    /// Compiles that the process may do. With `None`, the profile's budget holds if limits are on.
    /// A given budget is enforced even if limits are off.
    pub budget: Option<Limit>,
    /// Where the files of compiled programs are kept: `DIR/KEY/{model.mil, weights/, net.plist,
    /// data}`. A program whose folder is complete is not charged to the budget. `None` keeps
    /// nothing; with limits, the files are in the system's temporary folder for as long as they are
    /// needed.
    pub staging: Option<PathBuf>,
    /// Faults to inject; see [`faults`](crate::faults).
    pub faults: Faults,
    /// Compiles, loads and evaluations take at least as long as the profile's cost model predicts.
    /// The engine runs one evaluation at a time; requests in flight overlap as was measured.
    pub pace: bool,
    /// The counts of the process: the current one's, or new ones, as after a restart.
    pub process: ProcessCounts,
    /// Bytes that the values of one evaluation may occupy at a time, without constants and
    /// surfaces. A plan that needs more is refused at compile; an interpreted op that needs more
    /// fails when it runs: [`ErrorKind::OutOfMemory`].
    pub memory: usize,
    /// Iterations that all loops of one evaluation may take together, so that an endless loop is an
    /// error.
    pub iterations: u64,
    /// How long a request waits for an event before it fails. Submitted requests run in order, so
    /// later ones wait as long.
    pub event_timeout: Duration,
}

impl Default for EmulatorOptions {
    /// `fast` numerics, the default profile without its limits, no faults, 4 GiB, a million
    /// iterations, a minute.
    fn default() -> EmulatorOptions {
        EmulatorOptions {
            numerics: Numerics::Fast,
            profile: default_profile(),
            rules: None,
            limits: Limits::Off,
            budget: None,
            staging: None,
            faults: Faults::default(),
            pace: false,
            process: ProcessCounts::this(),
            memory: usize::try_from(4u64 << 30).unwrap_or(usize::MAX),
            iterations: 1_000_000,
            event_timeout: Duration::from_secs(60),
        }
    }
}

/// The built-in profile that [`Profile::DEFAULT`] names.
#[allow(clippy::expect_used)]
fn default_profile() -> Profile {
    // It is built in, and tests of this crate and of `machine` resolve it.
    Profile::named(Profile::DEFAULT).expect("the default profile resolves")
}

/// A software Neural Engine. The crate's documentation says what it does and does not do.
pub struct Emulator {
    options: EmulatorOptions,
    table: Table,
    queue: Arc<Queue>,
    life: Arc<Life>,
}

impl Emulator {
    /// An emulator with these options.
    pub fn new(options: EmulatorOptions) -> Emulator {
        let queue = Arc::new(Queue::new("ferrane-emulator", options.profile.queue_depth.value));
        let table = match options.numerics {
            Numerics::Fast => FAST.clone(),
            Numerics::Exact => EXACT.clone(),
            Numerics::Hardware => Table::hardware(options.rules.clone().unwrap_or_else(|| rules(&options.profile))),
        };
        let EmulatorOptions { profile, limits, budget, staging, faults, process, .. } = options.clone();
        let life = Arc::new(Life::new(profile, limits, budget, staging, faults, process));
        Emulator { options, table, queue, life }
    }

    /// Runs the program's first function over small numbers and returns the shortest time of each
    /// step, to find out where a program spends its time on this host.
    ///
    /// # Errors
    /// As compiling and evaluating it.
    pub fn time_steps(&self, program: &Program, runs: usize) -> Result<Vec<StepTime>> {
        verify(program).map_err(|e| Error::new(ErrorKind::InvalidProgram, e.to_string()))?;
        if let Some(function) = program.functions.first() {
            checked(function, &program.weights)?;
            if interpret::is_needed(function) {
                return Err(Error::new(ErrorKind::Unsupported, "the function is interpreted: it has no steps"));
            }
        }
        timing::time_steps(self.table(), program, runs)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { memory: self.options.memory, iterations: self.options.iterations }
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    fn compile_program(&self, program: &Program, text: Option<&str>) -> Result<Box<dyn Compiled>> {
        verify(program).map_err(|e| Error::new(ErrorKind::InvalidProgram, e.to_string()))?;
        let recipe = Recipe {
            life: self.life.clone(),
            queue: self.queue.clone(),
            timeout: self.options.event_timeout,
            table: self.table.clone(),
            bounds: self.bounds(),
            pace: self.options.pace,
        };
        Ok(Box::new(Artifact::compile(recipe, program, text, key(program))?))
    }
}

/// The error with the message that the engine's compiler has for its kind (numerics §1,
/// apple-runtime §4).
fn refused(error: Error) -> Error {
    match error.kind() {
        _ if error.domain().is_some() => error,
        ErrorKind::InvalidProgram => error.with_row("invalid-mil"),
        ErrorKind::Unsupported => error.with_row("compile-failed"),
        _ => error,
    }
}

/// Hash of the program and its weights.
fn key(program: &Program) -> String {
    let mut hash = Sha256::new();
    hash.update(print(program));
    for id in 0..program.weights.len() {
        let id = ferrane_mil::WeightId(id as u32);
        hash.update(format!("{:?}{:?}", program.weights.location(id), program.weights.dtype(id)));
        hash.update(program.weights.bytes(id).unwrap_or_default());
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// A surface in ordinary memory.
struct HeapMemory(SharedBytes);

impl Memory for HeapMemory {
    fn bytes(&self) -> &SharedBytes {
        &self.0
    }
}

impl Backend for Emulator {
    fn name(&self) -> String {
        let numerics = self.options.numerics.name();
        let machine = &self.options.profile.subject.name;
        let pace = if self.options.pace { ", paced" } else { "" };
        match self.options.limits {
            Limits::Off => format!("emulator ({numerics}{pace})"),
            Limits::Warn => format!("emulator ({numerics}, warns of {machine}'s limits{pace})"),
            Limits::Enforce => format!("emulator ({numerics}, limits of {machine}{pace})"),
        }
    }

    fn profile(&self) -> &Profile {
        &self.options.profile
    }

    fn compile(&self, source: ProgramSource<'_>, options: &CompileOptions) -> Result<Box<dyn Compiled>> {
        let labeled = |e: Error| refused(if options.label.is_empty() { e } else { e.labeled(&options.label) });
        self.life.begin(FaultStage::Compile).map_err(labeled)?;
        match source {
            ProgramSource::Program(program) => self.compile_program(program, None).map_err(labeled),
            ProgramSource::Text { mil, weights } => {
                let invalid = |e| Error::new(ErrorKind::InvalidProgram, format!("{e}"));
                let program = parse(mil, weights).map_err(|e| refused(invalid(e)))?;
                self.compile_program(&program, std::str::from_utf8(mil).ok()).map_err(labeled)
            }
            ProgramSource::Compiled(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "the emulator stores no compiled programs; compile from the program or its text",
            )),
            _ => Err(Error::new(ErrorKind::Unsupported, "the emulator cannot compile this kind of source")),
        }
    }

    fn compiles_left(&self) -> Option<usize> {
        self.life.compiles_left()
    }

    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>> {
        // Surfaces of a program may all have the size of the largest one.
        let bytes = SharedBytes::padded(layout.allocation, layout.span());
        let bytes = bytes.map_err(|e| Error::new(ErrorKind::OutOfMemory, e.to_string()))?;
        Ok(Arc::new(HeapMemory(bytes)))
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(self)
    }

    fn notes(&self) -> Vec<String> {
        self.life.notes()
    }

    fn call(&self, program: &Program, function: &str, call: &Call) -> Option<Result<Returned>> {
        Some(self.call_tensors(program, function, call))
    }

    fn footprint(&self) -> Footprint {
        Footprint { arenas: self.life.arenas.bytes(), constants: self.life.constant_bytes() }
    }
}

impl Events for Emulator {
    fn create(&self) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(HostEvent::default()))
    }
}
