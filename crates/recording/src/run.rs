//! Runs one program on one device several times: the outputs and the times, or the error of the
//! machine.
//!
//! Outputs are filled with a pattern before the first run, so an output that the machine does not
//! write is noticed. States begin every run with the same bytes, so runs can be compared: a machine
//! is expected to compute the same each time, and [`Ran::unsteady`] lists where it did not.

use std::time::{Duration, Instant};

use ferrane_device::{CompileOptions, Device, Error, ProgramSource, Tensors};
use ferrane_mil::Program;
use serde::{Deserialize, Serialize};

/// The value of every byte of an output before the first run: a NaN in each float type.
pub(crate) const POISON: u8 = 0xFF;

/// A program with its inputs, to be run.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The program that has the function.
    pub program: &'a Program,
    /// Name of the function to run.
    pub function: &'a str,
    /// The name of the program in messages of the machine.
    pub label: &'a str,
    /// A value for each input, by name.
    pub inputs: &'a Tensors,
    /// Initial values of states; states that are not listed begin as zeros.
    pub states: &'a Tensors,
    /// Number of evaluations; 0 counts as 1.
    pub runs: usize,
}

/// What a machine computed, and how long it took.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Outputs of the first run in the machine's order.
    pub outputs: Tensors,
    /// States after the first run.
    pub states: Tensors,
    /// Time that the compile took.
    pub compile: Duration,
    /// Time that the load took.
    pub load: Duration,
    /// Time of each run as measured by the host, in nanoseconds.
    pub wall: Vec<u64>,
    /// Time of each run on the machine itself, in nanoseconds; empty unless it reports every run.
    pub hardware: Vec<u64>,
    /// Outputs and states whose bytes differed in a later run, and in how many runs they did.
    pub unsteady: Vec<(String, usize)>,
}

/// The stage of a program's life that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The compile of the program.
    Compile,
    /// The load of the artifact.
    Load,
    /// Allocating and binding surfaces.
    Bind,
    /// One of the evaluations.
    Evaluate,
}

impl Stage {
    /// The word for it in the header of a recording.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Compile => "compile",
            Stage::Load => "load",
            Stage::Bind => "bind",
            Stage::Evaluate => "evaluate",
        }
    }
}

/// The error of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The stage that failed.
    pub stage: Stage,
    /// Ferrane's code of the kind of error, for example `E0602`.
    pub kind: String,
    /// The machine's error domain, if it has one.
    pub domain: Option<String>,
    /// The error code within the domain.
    pub code: Option<i64>,
    /// The status word in the error text, if any.
    pub status: Option<u32>,
    /// The text of the error.
    pub message: String,
}

impl Failure {
    fn new(stage: Stage, error: &Error) -> Failure {
        Failure {
            stage,
            kind: error.kind().code().to_string(),
            domain: error.domain().map(str::to_string),
            code: error.raw_code(),
            status: error.status(),
            message: error.message().to_string(),
        }
    }

    /// True if both are the same error: of one kind, with equal domain, code and status if both
    /// have them.
    pub fn agrees(&self, other: &Failure) -> bool {
        fn near<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            a.is_none() || b.is_none() || a == b
        }
        self.kind == other.kind
            && near(&self.domain, &other.domain)
            && near(&self.code, &other.code)
            && near(&self.status, &other.status)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} {}", self.stage.name(), self.kind, self.message)?;
        if let (Some(domain), Some(code)) = (&self.domain, self.code) {
            write!(f, " [{domain} code {code}")?;
            if let Some(status) = self.status {
                write!(f, " status={status:#x}")?;
            }
            f.write_str("]")?;
        }
        Ok(())
    }
}

/// Compiles, loads and evaluates the program of a job.
///
/// # Errors
/// The error of the machine, with its stage.
pub fn run(device: &Device, job: &Job<'_>) -> Result<Ran, Failure> {
    let at = |stage| move |error: Error| Failure::new(stage, &error);
    let clock = Instant::now();
    let artifact = device
        .compile(ProgramSource::Program(job.program), &CompileOptions::labeled(job.label))
        .map_err(at(Stage::Compile))?;
    let compile = clock.elapsed();
    let clock = Instant::now();
    let executable = artifact.load().map_err(at(Stage::Load))?;
    let mut ran = Ran { compile, load: clock.elapsed(), ..Ran::default() };
    let bound = executable.bind(Some(job.function)).map_err(at(Stage::Bind))?;
    bound.write_inputs(job.inputs).map_err(at(Stage::Bind))?;
    for output in &bound.procedure().outputs {
        let poison = || bound.surface(&output.name)?.write().map(|mut access| access.bytes_mut().fill(POISON));
        poison().map_err(at(Stage::Bind))?;
    }
    let mut hardware = Vec::new();
    for i in 0..job.runs.max(1) {
        bound.write_states(job.states).map_err(at(Stage::Bind))?;
        let stats = bound.evaluate().map_err(at(Stage::Evaluate))?;
        ran.wall.push(nanoseconds(stats.wall));
        hardware.extend(stats.hardware.map(nanoseconds));
        let outputs = bound.outputs().map_err(at(Stage::Evaluate))?;
        let states = bound.states().map_err(at(Stage::Evaluate))?;
        match i {
            0 => (ran.outputs, ran.states) = (outputs, states),
            _ => ran.compare(&outputs, &states),
        }
    }
    if hardware.len() == ran.wall.len() {
        ran.hardware = hardware;
    }
    Ok(ran)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Ran {
    fn compare(&mut self, outputs: &Tensors, states: &Tensors) {
        let first = self.outputs.iter().chain(&self.states);
        for ((name, was), (_, is)) in first.zip(outputs.iter().chain(states)) {
            if was == is {
                continue;
            }
            match self.unsteady.iter_mut().find(|(n, _)| n == name) {
                Some((_, runs)) => *runs += 1,
                None => self.unsteady.push((name.clone(), 1)),
            }
        }
    }
}
