//! One program on one device, a number of times: what came out, how long it took, or what the machine said.
//!
//! Outputs are filled with a pattern before the first run, so one that nobody wrote is seen. States begin every run with the same
//! bytes, so runs can be compared: a machine is expected to compute the same each time, and [`Ran::unsteady`] says where it did not.

use std::time::{Duration, Instant};

use ferrane_device::{Bindings, CompileOptions, Device, Error, Executable, Procedure, Source, Surface};
use ferrane_mil::Program;
use serde::{Deserialize, Serialize};

use crate::Tensor;

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
    pub inputs: &'a [(String, Tensor)],
    /// What states begin with; zeros where none is given.
    pub states: &'a [(String, Tensor)],
    /// Evaluations; 0 is 1.
    pub runs: usize,
}

/// What a machine did.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Outputs of the first run in the machine's order.
    pub outputs: Vec<(String, Tensor)>,
    /// States after the first run.
    pub states: Vec<(String, Tensor)>,
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
    /// Its word in a trace.
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

    /// True if both say the same of the program: the machine's domain, code and status where both have them, and the kind.
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
        .compile(Source::Program(job.program), &CompileOptions::labelled(job.label))
        .map_err(at(Stage::Compile))?;
    let compile = clock.elapsed();
    let clock = Instant::now();
    let executable = artifact.load().map_err(at(Stage::Load))?;
    let mut ran = Ran { compile, load: clock.elapsed(), ..Ran::default() };
    let procedure = executable.procedure(job.function).map_err(at(Stage::Bind))?;
    let bound = Bound::new(device, &executable, procedure, job).map_err(at(Stage::Bind))?;
    let mut hardware = Vec::new();
    for i in 0..job.runs.max(1) {
        bound.begin(job).map_err(at(Stage::Bind))?;
        let stats = bound.request.evaluate().map_err(at(Stage::Evaluate))?;
        ran.wall.push(nanoseconds(stats.wall));
        hardware.extend(stats.hardware.map(nanoseconds));
        let found = bound.read().map_err(at(Stage::Evaluate))?;
        match i {
            0 => (ran.outputs, ran.states) = found,
            _ => ran.compare(&found.0, &found.1),
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
    fn compare(&mut self, outputs: &[(String, Tensor)], states: &[(String, Tensor)]) {
        let first = self.outputs.iter().chain(&self.states);
        for ((name, was), (_, is)) in first.zip(outputs.iter().chain(states)) {
            if **was.bytes() == **is.bytes() {
                continue;
            }
            match self.unsteady.iter_mut().find(|(n, _)| n == name) {
                Some((_, runs)) => *runs += 1,
                None => self.unsteady.push((name.clone(), 1)),
            }
        }
    }
}

/// A request with its surfaces.
struct Bound {
    request: ferrane_device::Request,
    outputs: Vec<(String, Surface)>,
    states: Vec<(String, Surface)>,
}

type Values = (Vec<(String, Tensor)>, Vec<(String, Tensor)>);

impl Bound {
    fn new(
        device: &Device,
        executable: &Executable,
        procedure: &Procedure,
        job: &Job<'_>,
    ) -> ferrane_device::Result<Bound> {
        let mut bindings = Bindings::new().procedure(job.function);
        let (mut outputs, mut states) = (Vec::new(), Vec::new());
        for port in procedure.ports() {
            let surface = device.surface(&device.fitted(procedure, &port.name)?)?;
            bindings = bindings.bind(&port.name, &surface);
            let at = |port: &ferrane_device::Port| (port.name.clone(), surface.clone());
            if let Some((_, tensor)) = job.inputs.iter().find(|(n, _)| *n == port.name) {
                tensor.fill(&surface).map_err(|e| e.with_port(&port.name))?;
            }
            if procedure.outputs.iter().any(|p| p.name == port.name) {
                surface.write()?.bytes_mut().fill(POISON);
                outputs.push(at(port));
            }
            if procedure.states.iter().any(|p| p.name == port.name) {
                states.push(at(port));
            }
        }
        Ok(Bound { request: executable.prepare(bindings)?, outputs, states })
    }

    /// Gives the states what a run begins with.
    fn begin(&self, job: &Job<'_>) -> ferrane_device::Result<()> {
        for (name, surface) in &self.states {
            match job.states.iter().find(|(n, _)| n == name) {
                Some((_, tensor)) => tensor.fill(surface).map_err(|e| e.with_port(name))?,
                None => surface.write()?.bytes_mut().fill(0),
            }
        }
        Ok(())
    }

    fn read(&self) -> ferrane_device::Result<Values> {
        let one = |(name, surface): &(String, Surface)| Ok((name.clone(), Tensor::of(surface)?));
        let all = |list: &[_]| list.iter().map(one).collect::<ferrane_device::Result<Vec<_>>>();
        Ok((all(&self.outputs)?, all(&self.states)?))
    }
}
