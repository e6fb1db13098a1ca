//! `ferrane bench program`: how long any program takes, and where in it the time goes.
//!
//! Reading, compiling, loading and preparing are timed once, each by itself; evaluations of the prepared request are repeated. Inputs
//! are seeded random numbers between -1 and 1 (integers 0 or 1), because zeros, infinities and subnormal numbers have speeds of their
//! own; outputs that are not finite are counted and told.

use std::path::Path;
use std::time::Instant;

use ferrane::mil::{Function, Program, Type};
use ferrane::{Bindings, CompileOptions, Device, Source, Surface};
use serde_json::{Map, Value, json};

use super::machine;
use super::measure::{self, Repeats, Spread, round, short};
use crate::args::BenchProgram;
use crate::array::{Array, Source as Values, Want};
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
    let inputs = inputs(function, &given, args.seed)?;
    let mut found = match runs::on_surfaces(function) {
        true => prepared(&device, &program, &args, function, &inputs)?,
        false => called(&program, &args, function, &inputs)?,
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

/// A value for every input: the one given, else random numbers.
fn inputs(function: &Function, given: &[(String, Values)], seed: u64) -> Result<Vec<(String, Array)>> {
    let values = || function.inputs.iter().map(|v| function.value(*v));
    if let Some((name, _)) = given.iter().find(|(name, _)| values().all(|v| v.name != *name)) {
        let known: Vec<&str> = values().map(|v| v.name.as_str()).collect();
        return Err(Error::new(format!("--input {name}: no such input (there are {})", known.join(", "))));
    }
    let wanted = || values().filter(|v| !matches!(v.ty, Type::State(_)));
    let elements = |ty: &Type| ty.shape().map_or(Some(0), |shape| crate::array::elements(&shape));
    let total = wanted().try_fold(0usize, |n, v| n.checked_add(elements(&v.ty)?));
    if total.is_none_or(|n| n > MOST) {
        return Err(Error::new(format!(
            "{}: its inputs have more than {MOST} elements, too many to make up",
            function.name
        )));
    }
    let one = |(i, value): (usize, &ferrane::mil::Value)| {
        let want = Want { name: &value.name, ty: &value.ty };
        let random = Values::Random(seed.wrapping_add(i as u64), None);
        let source = given.iter().find(|(name, _)| *name == value.name).map_or(&random, |(_, source)| source);
        let array = source.array(&want).map_err(|e| Error::new(format!("input {}: {e}", value.name)))?;
        Ok((value.name.clone(), array))
    };
    wanted().enumerate().map(one).collect()
}

/// On surfaces: each stage by itself, then evaluations of the prepared request.
fn prepared(
    device: &Device,
    program: &Program,
    args: &BenchProgram,
    function: &Function,
    inputs: &[(String, Array)],
) -> Result<Measured> {
    let mut stages = Vec::new();
    let mut begun = Instant::now();
    let mut stage = |name| {
        stages.push((name, ms(begun)));
        begun = Instant::now();
    };
    let options = CompileOptions::labelled(args.program.display().to_string());
    let artifact = device.compile(Source::Program(program), &options)?;
    stage("compile_ms");
    let executable = artifact.load()?;
    stage("load_ms");
    let procedure = executable.procedure(&function.name)?;
    let mut bindings = Bindings::new().procedure(&function.name);
    let mut outputs: Vec<Surface> = Vec::new();
    for (name, surface) in device.surfaces(procedure)? {
        if let Some((_, array)) = inputs.iter().find(|(n, _)| n == name) {
            runs::fill(&surface, array)?;
        }
        if procedure.outputs.iter().any(|p| p.name == name) {
            outputs.push(surface.clone());
        }
        bindings = bindings.bind(name, &surface);
    }
    stage("surfaces_ms");
    let request = executable.prepare(bindings)?;
    stage("prepare_ms");
    let evaluations = measure::repeat(measure::WARM_UP, Repeats::given(args.repeat), || {
        request.evaluate()?;
        Ok(())
    })?;
    for note in device.notes() {
        out::note(format_args!("note: {note}"));
    }
    let arrays = outputs.iter().map(runs::array).collect::<Result<Vec<Array>>>()?;
    Ok(Measured { stages, evaluations, odd: arrays.iter().map(odd).sum() })
}

/// A function whose ports have no surfaces (unknown extents, wide integers) is called on arrays, by the emulator.
fn called(program: &Program, args: &BenchProgram, function: &Function, inputs: &[(String, Array)]) -> Result<Measured> {
    if !runs::is_emulator(&args.device) {
        return Err(Error::new(format!(
            "{}: its ports have no surfaces (unknown extents or wide integers); only the emulator runs it",
            function.name
        )));
    }
    let emulator = ferrane::emulator(&args.device)?;
    let (inputs, mut states) = runs::constants(function, inputs.to_vec());
    let mut last = Vec::new();
    let evaluations = measure::repeat(measure::WARM_UP, Repeats::given(args.repeat), || {
        last = emulator.call(program, &function.name, &inputs, &mut states)?;
        Ok(())
    })?;
    let arrays = last.iter().filter_map(|(_, c)| Array::from_constant(c, &program.weights).ok());
    let odd = arrays.map(|a| odd(&a)).sum();
    Ok(Measured { stages: Vec::new(), evaluations, odd })
}

/// How many numbers are not finite.
fn odd(array: &Array) -> usize {
    array.floats().iter().filter(|v| !v.is_finite()).count()
}

/// The emulator's steps of the function.
fn steps(args: &BenchProgram, program: &Program, function: &Function) -> Result<Vec<ferrane::StepTime>> {
    // The trace is of the first function.
    let mut alone = program.clone();
    alone.functions.retain(|f| f.name == function.name);
    Ok(ferrane::emulator(&args.device)?.trace(&alone, args.repeat.unwrap_or(TRACED))?)
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
