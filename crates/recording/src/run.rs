//! One program on one device, a number of times: what came out, how long it took, or what the
//! machine said.
//!
//! Outputs are filled with a pattern before the first run, so one that nobody wrote is seen. States
//! begin every run with the same bytes, so runs can be compared: a machine is expected to compute
//! the same each time, and [`Ran::unsteady`] says where it did not.

use std::time::{Duration, Instant};

use ferrane_device::{CompileOptions, Device, Error, ProgramSource, Tensors};
use ferrane_mil::Program;
use serde::{Deserialize, Serialize};

/// What every byte of an output is before the first run: a NaN in each float type.
pub(crate) const POISON: u8 = 0xFF;

/// What is run.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The program.
    pub program: &'a Program,
    /// Its function.
    pub function: &'a str,
    /// For messages of the machine.
    pub label: &'a str,
    /// A value for each input, by name.
    pub inputs: &'a Tensors,
    /// What states begin with; zeros where none is given.
    pub states: &'a Tensors,
    /// Evaluations; 0 is 1.
    pub runs: usize,
}

/// What a machine did.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Outputs of the first run in the machine's order.
    pub outputs: Tensors,
    /// States after the first run.
    pub states: Tensors,
    /// Compiling.
    pub compile: Duration,
    /// Loading.
    pub load: Duration,
    /// Each run as the host saw it, in nanoseconds.
    pub wall: Vec<u64>,
    /// Each run on the machine itself, if it says so of every run.
    pub hardware: Vec<u64>,
    /// Outputs and states that a later run gave other bytes, and how many runs did.
    pub unsteady: Vec<(String, usize)>,
}

/// Where in a program's life something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Compiling.
    Compile,
    /// Loading.
    Load,
    /// Making and binding surfaces.
    Bind,
    /// An evaluation.
    Evaluate,
}

impl Stage {
    /// Its word in a recording.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Compile => "compile",
            Stage::Load => "load",
            Stage::Bind => "bind",
            Stage::Evaluate => "evaluate",
        }
    }
}

/// What a machine said instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where.
    pub stage: Stage,
    /// Ferrane's code of the kind, `E0602` for example.
    pub kind: String,
    /// The machine's error domain.
    pub domain: Option<String>,
    /// Its error code.
    pub code: Option<i64>,
    /// Its status word.
    pub status: Option<u32>,
    /// The words.
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

    /// True if both say the same of the program: the machine's domain, code and status where both
    /// have them, and the kind.
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

/// Runs a job.
///
/// # Errors
/// What the machine said, whatever stage it was at.
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
