//! The emulator as a backend of the seam.

use std::sync::Arc;
use std::time::Duration;

use ferrane_arith::Rules;
use ferrane_device::backend::{Backend, CompileOptions, Compiled, Event, Events, Source};
use ferrane_device::{Error, ErrorKind, Layout, Memory, Result};
use ferrane_host::buffer::SharedBytes;
use ferrane_mil::{Function, MilError, Program, Weights, check, parse, print, verify};
use ferrane_target::Profile;
use sha2::{Digest as _, Sha256};

use crate::body::Body;
use crate::events::Counter;
use crate::interpret::{self, Bounds};
use crate::life::{Artefact, Shared};
use crate::plan::Ports;
use crate::queue::Queue;
use crate::tables::hardware::rules;
use crate::tables::{EXACT, FAST, Table};
use crate::trace::{self, StepTime};

/// How values are computed and rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Numerics {
    /// fp16 values between ops, fp32 within; sums and products accumulate in fp32 and are rounded once, to nearest even.
    #[default]
    Fast,
    /// fp32 throughout: fp16 surfaces are widened when read and rounded when written. The oracle.
    Exact,
    /// The arithmetic of the profile's machine, as far as it is published: its rounding, accumulator, function tables, special
    /// values and defects. [`arithmetic`](crate::arithmetic) says for which ops.
    Hardware,
}

impl Numerics {
    /// The word of options and reports.
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
pub struct Options {
    /// The arithmetic.
    pub numerics: Numerics,
    /// The machine that is emulated; it gives the queue's depth and, under [`Numerics::Hardware`], the arithmetic. Its limits on
    /// programs are not enforced.
    pub profile: Profile,
    /// Under [`Numerics::Hardware`], rules in place of the profile's.
    pub rules: Option<Rules>,
    /// Bytes that the values of one evaluation may hold at a time, constants and surfaces not counted. A plan that needs more is
    /// refused at compile, an interpreted op that would make more when it comes to it: [`ErrorKind::OutOfMemory`].
    pub memory: usize,
    /// Iterations that all loops of one evaluation may take together, so that a loop that does not end is an error.
    pub iterations: u64,
    /// How long a request waits for an event before it fails. Submitted requests run in order, so those behind it wait as long.
    pub event_timeout: Duration,
}

impl Default for Options {
    /// `fast` numerics, the default profile, 4 GiB, a million iterations, a minute.
    fn default() -> Options {
        Options {
            numerics: Numerics::Fast,
            profile: default_profile(),
            rules: None,
            memory: usize::try_from(4u64 << 30).unwrap_or(usize::MAX),
            iterations: 1_000_000,
            event_timeout: Duration::from_secs(60),
        }
    }
}

/// The default profile.
#[allow(clippy::expect_used)]
fn default_profile() -> Profile {
    // Built in, and held by a test of its own crate and of this one.
    Profile::named(Profile::DEFAULT).expect("the default profile resolves")
}

/// A software Neural Engine. See the crate's documentation for what it does and does not do.
pub struct Emulator {
    options: Options,
    table: Table,
    queue: Arc<Queue>,
}

impl Emulator {
    /// An emulator with these options.
    pub fn new(options: Options) -> Emulator {
        let queue = Arc::new(Queue::new(options.profile.queue_depth.value));
        let table = match options.numerics {
            Numerics::Fast => FAST.clone(),
            Numerics::Exact => EXACT.clone(),
            Numerics::Hardware => Table::hardware(options.rules.clone().unwrap_or_else(|| rules(&options.profile))),
        };
        Emulator { options, table, queue }
    }

    /// Runs the program's first function over small numbers and says how long each step took at best, for looking into what a
    /// program costs here.
    ///
    /// # Errors
    /// As compiling and evaluating it.
    pub fn trace(&self, program: &Program, runs: usize) -> Result<Vec<StepTime>> {
        self.compile_program(program, "")?;
        if program.functions.first().is_some_and(interpret::is_needed) {
            return Err(Error::new(ErrorKind::Unsupported, "the function is interpreted: it has no steps"));
        }
        trace::trace(self.table(), program, runs)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { memory: self.options.memory, iterations: self.options.iterations }
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    fn compile_program(&self, program: &Program, label: &str) -> Result<Box<dyn Compiled>> {
        let named = |e: Error| if label.is_empty() { e } else { prefixed(label, &e) };
        let invalid = |e: &MilError| Error::new(ErrorKind::InvalidProgram, e.to_string());
        verify(program).map_err(|e| named(invalid(&e)))?;
        let mut bodies = Vec::new();
        for (id, function) in program.functions.iter().enumerate() {
            let body = checked(function, &program.weights)
                .and_then(|()| Ports::declared(id as u32, function))
                .and_then(|ports| Body::new(ports, function, &program.weights, self.table(), self.bounds()));
            bodies.push(body.map_err(named)?);
        }
        if bodies.is_empty() {
            return Err(named(Error::new(ErrorKind::InvalidProgram, "the program has no function")));
        }
        let procedures = bodies.iter().map(|b| b.procedure().clone()).collect();
        let shared =
            Arc::new(Shared { bodies, procedures, queue: self.queue.clone(), timeout: self.options.event_timeout });
        Ok(Box::new(Artefact { key: key(program), shared }))
    }
}

/// The errors of ops against the registry: the first.
pub(crate) fn checked(function: &Function, weights: &Weights) -> Result<()> {
    match check(function, weights).into_iter().next() {
        None => Ok(()),
        Some((_, error @ MilError::UnknownOp { .. })) => Err(Error::new(ErrorKind::Unsupported, error.to_string())),
        Some((_, error)) => Err(Error::new(ErrorKind::InvalidProgram, error.to_string())),
    }
}

/// The error with the program's label in front.
pub(crate) fn prefixed(label: &str, error: &Error) -> Error {
    let renamed = Error::new(error.kind(), format!("{label}: {}", error.message()));
    match error.port() {
        Some(port) => renamed.with_port(port),
        None => renamed,
    }
}

/// The error with the words that the engine's compiler has for its kind (emulator §1, apple-runtime §4).
fn refused(error: Error) -> Error {
    match error.kind() {
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

/// Plain memory.
struct Heap(SharedBytes);

impl Memory for Heap {
    fn bytes(&self) -> &SharedBytes {
        &self.0
    }
}

impl Backend for Emulator {
    fn name(&self) -> String {
        format!("emulator ({})", self.options.numerics.name())
    }

    fn profile(&self) -> &Profile {
        &self.options.profile
    }

    fn compile(&self, source: Source<'_>, options: &CompileOptions) -> Result<Box<dyn Compiled>> {
        match source {
            Source::Program(program) => self.compile_program(program, &options.label).map_err(refused),
            Source::Text { mil, weights } => {
                let invalid = |e| Error::new(ErrorKind::InvalidProgram, format!("{e}"));
                let program = parse(mil, weights).map_err(|e| refused(invalid(e)))?;
                self.compile_program(&program, &options.label).map_err(refused)
            }
            Source::Compiled(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "the emulator stores no compiled programs; compile from the program or its text",
            )),
            _ => Err(Error::new(ErrorKind::Unsupported, "the emulator cannot compile this kind of source")),
        }
    }

    fn allocate(&self, layout: &Layout) -> Result<Arc<dyn Memory>> {
        let bytes =
            SharedBytes::new(layout.allocation).map_err(|e| Error::new(ErrorKind::OutOfMemory, e.to_string()))?;
        Ok(Arc::new(Heap(bytes)))
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(self)
    }
}

impl Events for Emulator {
    fn create(&self) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(Counter::default()))
    }
}
