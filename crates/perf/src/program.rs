//! How long any program takes, and where in it the time goes.
//!
//! Compiling, loading and preparing are timed once, each by itself; evaluations of the prepared
//! request are repeated. Inputs that are not given are seeded random numbers from -1 to 1 (integers
//! 0 or 1), because zeros, infinities and subnormal numbers have speeds of their own; outputs that
//! are not finite are counted.

use std::fmt;
use std::time::{Duration, Instant};

use ferrane_device::{Call, CompileOptions, Device, ProgramSource, Tensors, fits_surfaces};
use ferrane_emulator::{Emulator, StepTime};
use ferrane_mil::{Function, Program, Type};
use ferrane_tensor_io::{self as tensor_io, TensorSource, Unnamed};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::computer::Computer;
use crate::error::Result;
use crate::spread::{Repeats, Spread, WARM_UP, measure, round, rounded, short};

/// The most elements of all inputs together: generating one takes 8 bytes.
const ELEMENTS: usize = 1 << 28;
/// The evaluations of which a step's time is the shortest.
const TRACED: usize = 7;
/// The steps that are printed.
const SHOWN: usize = 20;

/// What [`program()`] measures.
pub struct ProgramOptions<'a> {
    /// The name of the program in the report.
    pub name: String,
    /// The values of inputs; the others are random.
    pub inputs: &'a [(String, TensorSource)],
    /// The seed of random inputs.
    pub seed: u64,
    /// Measured evaluations; if `None`, as many as a second holds, from 7 to 1000.
    pub repeat: Option<usize>,
    /// The emulator whose steps are timed as well, if any.
    pub steps: Option<&'a Emulator>,
    /// The time that the caller took to read the program.
    pub read: Duration,
}

/// A stage before the first evaluation.
#[derive(Clone, Copy, Debug)]
pub struct StageTime {
    /// `read`, `compile`, `load` or `prepare`.
    pub name: &'static str,
    /// Its duration in milliseconds.
    pub ms: f64,
}

/// One step of the emulator's plan.
#[derive(Clone, Debug, serde::Serialize)]
pub struct StepRow {
    /// The MIL op; of a group of ops, the last one.
    pub op: String,
    /// The value that it computes.
    pub value: String,
    /// Bytes that it reads.
    pub read_bytes: usize,
    /// Bytes that it writes.
    pub written_bytes: usize,
    /// Its shortest time in microseconds.
    #[serde(serialize_with = "rounded")]
    pub us: f64,
}

impl From<StepTime> for StepRow {
    fn from(step: StepTime) -> StepRow {
        let us = step.wall.as_secs_f64() * 1e6;
        StepRow { op: step.op, value: step.value, read_bytes: step.read, written_bytes: step.written, us }
    }
}

/// What [`program()`] measured.
///
/// Prints the median and the longest steps. Serializes with the stages as `compile_ms` and the like
/// and the evaluations as `median_ms`, `lowest_ms`, `highest_ms` and `repeats`.
#[derive(Clone, Debug)]
pub struct ProgramReport {
    /// The program's name, usually its path.
    pub program: String,
    /// The name of the function that ran.
    pub function: String,
    /// The device, with its options.
    pub device: String,
    /// The computer that the times come from.
    pub computer: Computer,
    /// The seed of random inputs.
    pub seed: u64,
    /// The stages before the first evaluation. A function that is called without surfaces has only
    /// `read`.
    pub stages: Vec<StageTime>,
    /// Milliseconds of an evaluation.
    pub evaluations: Spread,
    /// Output elements that are not finite.
    pub not_finite: usize,
    /// The steps of the emulator's plan in their order, if they were measured.
    pub steps: Option<Vec<StepRow>>,
}

/// Measures one function of a program on a device.
///
/// # Errors
/// [`Error::Option`](crate::Error::Option) for a refused number of repeats,
/// [`Error::Arguments`](crate::Error::Arguments) for inputs that cannot be made, and
/// [`Error::Device`](crate::Error::Device), also if the ports of the function have no surfaces
/// (unknown extents, wide integers) and the device is not the emulator.
pub fn program(
    device: &Device,
    program: &Program,
    function: &Function,
    options: &ProgramOptions<'_>,
) -> Result<ProgramReport> {
    let repeats = Repeats::new(options.repeat, Duration::from_secs(1))?;
    let call = arguments(function, options)?;
    let mut report = ProgramReport {
        program: options.name.clone(),
        function: function.name.clone(),
        device: device.name(),
        computer: Computer::detect(),
        seed: options.seed,
        stages: vec![StageTime { name: "read", ms: options.read.as_secs_f64() * 1e3 }],
        evaluations: Spread::ms([]),
        not_finite: 0,
        steps: None,
    };
    if fits_surfaces(function) {
        report.prepared(device, program, &call, repeats)?;
    } else {
        report.called(device, program, &call, repeats)?;
    }
    if let Some(emulator) = options.steps {
        // The emulator times the first function of a program.
        let mut alone = program.clone();
        alone.functions.retain(|f| f.name == function.name);
        let steps = emulator.time_steps(&alone, options.repeat.unwrap_or(TRACED))?;
        report.steps = Some(steps.into_iter().map(StepRow::from).collect());
    }
    Ok(report)
}

/// A call with a value for every input: the one given, else random numbers.
fn arguments(function: &Function, options: &ProgramOptions<'_>) -> Result<Call> {
    let mut wanted = function.inputs.iter().map(|v| &function.value(*v).ty).filter(|ty| !matches!(ty, Type::State(_)));
    let elements = |ty: &Type| {
        let Some(shape) = ty.shape() else { return Some(0) };
        shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    };
    let total = wanted.try_fold(0usize, |n, ty| n.checked_add(elements(ty)?));
    if total.is_none_or(|n| n > ELEMENTS) {
        let name = &function.name;
        let message = format!("{name}: its inputs have more than {ELEMENTS} elements, too many to generate");
        return Err(ferrane_device::Error::new(ferrane_device::ErrorKind::InvalidProgram, message).into());
    }
    Ok(tensor_io::arguments(function, options.inputs, Unnamed::Random(options.seed))?)
}

impl ProgramReport {
    /// On surfaces: each stage by itself, then evaluations of the prepared request.
    fn prepared(&mut self, device: &Device, program: &Program, call: &Call, repeats: Repeats) -> Result<()> {
        let mut begun = Instant::now();
        let mut stage = |name| {
            self.stages.push(StageTime { name, ms: begun.elapsed().as_secs_f64() * 1e3 });
            begun = Instant::now();
        };
        let artifact =
            device.compile(ProgramSource::Program(program), &CompileOptions::labeled(self.program.clone()))?;
        stage("compile");
        let executable = artifact.load()?;
        stage("load");
        let bound = executable.bind(call.function_name())?;
        stage("prepare");
        bound.write_inputs(call.given_inputs())?;
        self.evaluations = measure(WARM_UP, repeats, || {
            bound.evaluate()?;
            Ok(())
        })?;
        self.not_finite = not_finite(&bound.outputs()?);
        Ok(())
    }

    /// On tensors: a function whose ports have no surfaces is called as a whole.
    fn called(&mut self, device: &Device, program: &Program, call: &Call, repeats: Repeats) -> Result<()> {
        let mut last = Tensors::new();
        self.evaluations = measure(WARM_UP, repeats, || {
            last = device.call(program, call.clone())?.outputs;
            Ok(())
        })?;
        self.not_finite = not_finite(&last);
        Ok(())
    }
}

fn not_finite(tensors: &Tensors) -> usize {
    tensors.iter().map(|(_, tensor)| tensor.to_f64().filter(|v| !v.is_finite()).count()).sum()
}

impl fmt::Display for ProgramReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.program.rsplit('/').next().unwrap_or(&self.program);
        writeln!(f, "{} of {name} on {}", self.function, self.device)?;
        writeln!(f, "  {}", self.computer)?;
        writeln!(f, "  evaluation  {}   (of {})", self.evaluations, self.evaluations.count())?;
        let stages: Vec<String> = self.stages.iter().map(|s| format!("{} {} ms", s.name, short(s.ms))).collect();
        writeln!(f, "  once        {}", stages.join(", "))?;
        if self.not_finite > 0 {
            let count = self.not_finite;
            writeln!(f, "  {count} numbers of the outputs are not finite: their speed may not be that of others")?;
        }
        self.steps.iter().try_for_each(|steps| write_steps(f, steps))
    }
}

/// The longest steps, and the rest in one line.
fn write_steps(f: &mut fmt::Formatter<'_>, steps: &[StepRow]) -> fmt::Result {
    let total: f64 = steps.iter().map(|s| s.us).sum();
    let share = |us: f64| 100.0 * us / total.max(f64::MIN_POSITIVE);
    let mut order: Vec<&StepRow> = steps.iter().collect();
    order.sort_by(|a, b| b.us.total_cmp(&a.us));
    writeln!(f, "  {} steps, {} ms together, the longest first:", steps.len(), short(total / 1e3))?;
    writeln!(f, "        µs   share     GB/s  op")?;
    for step in order.iter().take(SHOWN) {
        let rate = (step.read_bytes + step.written_bytes) as f64 / step.us.max(1e-3) / 1e3;
        let (us, rate) = (short(step.us), short(rate));
        writeln!(f, "  {us:>8} {:>6.1}% {rate:>8}  {} -> {}", share(step.us), step.op, step.value)?;
    }
    let rest: f64 = order.iter().skip(SHOWN).map(|s| s.us).sum();
    if rest > 0.0 {
        writeln!(f, "  {:>8} {:>6.1}%           {} more", short(rest), share(rest), steps.len() - SHOWN)?;
    }
    Ok(())
}

impl Serialize for ProgramReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Fields<'a> {
            program: &'a str,
            function: &'a str,
            device: &'a str,
            machine: &'a Computer,
            seed: u64,
            #[serde(flatten)]
            stages: Stages<'a>,
            #[serde(flatten)]
            evaluations: &'a Spread,
            not_finite: usize,
            #[serde(skip_serializing_if = "Option::is_none")]
            steps: &'a Option<Vec<StepRow>>,
        }
        struct Stages<'a>(&'a [StageTime]);
        impl Serialize for Stages<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(self.0.len()))?;
                self.0.iter().try_for_each(|s| map.serialize_entry(&format!("{}_ms", s.name), &round(s.ms)))?;
                map.end()
            }
        }
        let fields = Fields {
            program: &self.program,
            function: &self.function,
            device: &self.device,
            machine: &self.computer,
            seed: self.seed,
            stages: Stages(&self.stages),
            evaluations: &self.evaluations,
            not_finite: self.not_finite,
            steps: &self.steps,
        };
        fields.serialize(serializer)
    }
}
