//! `ferrane bench program`: how long any program takes, and where in it the time goes.
//!
//! Reading, compiling, loading and preparing are timed once, each by itself; evaluations of the
//! prepared request are repeated. Inputs are seeded random numbers between -1 and 1 (integers 0 or
//! 1), because zeros, infinities and subnormal numbers have speeds of their own; outputs that are
//! not finite are counted and told.

use std::path::Path;
use std::time::Instant;

use ferrane::mil::{Function, Program, Type};
use ferrane::tensor_io::{self, TensorSource, Unnamed};
use ferrane::{Call, CompileOptions, Device, ProgramSource, Tensors, fits_surfaces};
use serde_json::{Map, Value, json};

use super::machine;
use super::measure::{self, Repeats, Spread, round, short};
use crate::args::BenchProgram;
use crate::error::{Error, Result};
use crate::out;
use crate::program::{self, Care};
use crate::run as runs;

/// Elements of all ports together at most: what is made up takes 8 bytes each for a while.
const MOST: usize = 1 << 28;
/// Evaluations of which a step's time is the shortest.
const TRACED: usize = 7;
/// Steps that are shown without --json.
const SHOWN: usize = 20;

/// What a run came to.
struct Measured {
    /// The stages before the first evaluation, in milliseconds.
    stages: Vec<(&'static str, f64)>,
    /// Evaluations, in milliseconds.
    evaluations: Spread,
    /// Numbers of the outputs that are not finite.
    odd: usize,
}

/// Runs the command.
pub fn run(args: BenchProgram) -> Result<()> {
    if let Some(count) = args.repeat {
        measure::repeats("--repeat", count)?;
    }
    if args.steps && !runs::is_emulator(&args.device) {
        return Err(Error::new(format!(
            "--steps shows the emulator's steps; leave it out with --device {}",
            args.device
        )));
    }
    let given = runs::sources(&args.inputs, &[])?;
    let device = runs::open(&args.device)?;
    let begun = Instant::now();
    let program = program::load(&args.program, Care::Whole)?.program;
    let read = ms(begun);
    let function = program::function(&program, args.function.as_deref())?;
    let call = arguments(function, &given, args.seed)?;
    let mut found = if fits_surfaces(function) {
        prepared(&device, &program, &args, &call)?
    } else {
        called(&device, &program, &args, &call)?
    };
    found.stages.insert(0, ("read_ms", read));
    let steps = if args.steps { steps(&args, &program, function)? } else { Vec::new() };
    if args.json {
        report(&args, &device, function, &found, &steps)
    } else {
        show(&args, &device, function, &found, &steps)
    }
}

fn ms(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

/// A call with a value for every input: the one given, else random numbers.
fn arguments(function: &Function, given: &[(String, TensorSource)], seed: u64) -> Result<Call> {
    let mut wanted = function.inputs.iter().map(|v| &function.value(*v).ty).filter(|ty| !matches!(ty, Type::State(_)));
    let elements = |ty: &Type| {
        let Some(shape) = ty.shape() else { return Some(0) };
        shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    };
    let total = wanted.try_fold(0usize, |n, ty| n.checked_add(elements(ty)?));
    if total.is_none_or(|n| n > MOST) {
        let name = &function.name;
        return Err(Error::new(format!("{name}: its inputs have more than {MOST} elements, too many to generate")));
    }
    Ok(tensor_io::arguments(function, given, Unnamed::Random(seed))?)
}

/// On surfaces: each stage by itself, then evaluations of the prepared request.
fn prepared(device: &Device, program: &Program, args: &BenchProgram, call: &Call) -> Result<Measured> {
    let mut stages = Vec::new();
    let mut begun = Instant::now();
    let mut stage = |name| {
        stages.push((name, ms(begun)));
        begun = Instant::now();
    };
    let options = CompileOptions::labeled(args.program.display().to_string());
    let artifact = device.compile(ProgramSource::Program(program), &options)?;
    stage("compile_ms");
    let executable = artifact.load()?;
    stage("load_ms");
    let bound = executable.bind(call.function_name())?;
    stage("prepare_ms");
    bound.write_inputs(call.given_inputs())?;
    let evaluations = measure::repeat(measure::WARM_UP, Repeats::given(args.repeat), || {
        bound.evaluate()?;
        Ok(())
    })?;
    for note in device.notes() {
        out::note(format_args!("note: {note}"));
    }
    Ok(Measured { stages, evaluations, odd: odd(&bound.outputs()?) })
}

/// A function whose ports have no surfaces (unknown extents, wide integers) is called on tensors,
/// by the emulator.
fn called(device: &Device, program: &Program, args: &BenchProgram, call: &Call) -> Result<Measured> {
    if !runs::is_emulator(&args.device) {
        return Err(Error::new(format!(
            "{}: its ports have no surfaces (unknown extents or wide integers); only the emulator runs it",
            call.function_name().unwrap_or_default()
        )));
    }
    let mut last = Tensors::new();
    let evaluations = measure::repeat(measure::WARM_UP, Repeats::given(args.repeat), || {
        last = device.call(program, call.clone())?.outputs;
        Ok(())
    })?;
    Ok(Measured { stages: Vec::new(), evaluations, odd: odd(&last) })
}

/// How many numbers are not finite.
fn odd(tensors: &Tensors) -> usize {
    tensors.iter().map(|(_, tensor)| tensor.to_f64().filter(|v| !v.is_finite()).count()).sum()
}

/// The emulator's steps of the function.
fn steps(args: &BenchProgram, program: &Program, function: &Function) -> Result<Vec<ferrane::StepTime>> {
    // The trace is of the first function.
    let mut alone = program.clone();
    alone.functions.retain(|f| f.name == function.name);
    Ok(ferrane::emulator(&args.device)?.time_steps(&alone, args.repeat.unwrap_or(TRACED))?)
}

fn report(
    args: &BenchProgram,
    device: &Device,
    function: &Function,
    found: &Measured,
    steps: &[ferrane::StepTime],
) -> Result<()> {
    let mut object = Map::new();
    object.insert("program".into(), json!(args.program.display().to_string()));
    object.insert("function".into(), json!(function.name));
    object.insert("device".into(), json!(device.name()));
    object.insert("machine".into(), machine::describe());
    object.insert("seed".into(), json!(args.seed));
    object.extend(found.stages.iter().map(|(name, ms)| (name.to_string(), json!(round(*ms)))));
    object.extend(found.evaluations.json("ms"));
    object.insert("not_finite".into(), json!(found.odd));
    if args.steps {
        let step = |s: &ferrane::StepTime| {
            json!({
                "op": s.op, "value": s.value, "read_bytes": s.read, "written_bytes": s.written,
                "us": round(s.wall.as_secs_f64() * 1e6),
            })
        };
        object.insert("steps".into(), steps.iter().map(step).collect());
    }
    out::line(Value::Object(object))
}

fn show(
    args: &BenchProgram,
    device: &Device,
    function: &Function,
    found: &Measured,
    steps: &[ferrane::StepTime],
) -> Result<()> {
    let name = Path::new(&args.program).file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    out::line(format_args!("{} of {name} on {}", function.name, device.name()))?;
    out::line(format_args!("  {}", machine::line()))?;
    let count = found.evaluations.count();
    out::line(format_args!("  evaluation  {}   (of {count})", found.evaluations.text("ms")))?;
    let stage = |(name, ms): &(&str, f64)| format!("{} {} ms", name.trim_end_matches("_ms"), short(*ms));
    let stages: Vec<String> = found.stages.iter().map(stage).collect();
    out::line(format_args!("  once        {}", stages.join(", ")))?;
    if found.odd > 0 {
        out::line(format_args!(
            "  {} numbers of the outputs are not finite: their speed may not be that of others",
            found.odd
        ))?;
    }
    if !args.steps {
        return Ok(());
    }
    let total: f64 = steps.iter().map(|s| s.wall.as_secs_f64()).sum();
    let mut order: Vec<&ferrane::StepTime> = steps.iter().collect();
    order.sort_by_key(|s| std::cmp::Reverse(s.wall));
    out::line(format_args!("  {} steps, {} ms together, the longest first:", steps.len(), short(total * 1e3)))?;
    out::line("        µs   share     GB/s  op")?;
    for step in order.iter().take(SHOWN) {
        let seconds = step.wall.as_secs_f64();
        let share = 100.0 * seconds / total.max(f64::MIN_POSITIVE);
        let rate = (step.read + step.written) as f64 / seconds.max(1e-9) / 1e9;
        let (us, rate) = (short(seconds * 1e6), short(rate));
        out::line(format_args!("  {us:>8} {share:>6.1}% {rate:>8}  {} -> {}", step.op, step.value))?;
    }
    let rest: f64 = order.iter().skip(SHOWN).map(|s| s.wall.as_secs_f64()).sum();
    if rest > 0.0 {
        out::line(format_args!(
            "  {:>8} {:>6.1}%           {} more",
            short(rest * 1e6),
            100.0 * rest / total,
            steps.len() - SHOWN
        ))?;
    }
    Ok(())
}
