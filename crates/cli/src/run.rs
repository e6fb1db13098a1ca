//! `ferrane run`: a program on given or random inputs.

mod compiled;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ferrane::mil::{Constant, Function, Program, Type};
use ferrane::{Bindings, Device, Executable, Numerics, Port, Surface};
use serde_json::{Value, json};

use crate::args::{OutputFormat, Run};
use crate::array::{Array, Source, Want, npy, safe};
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{audit, files, model, out};

/// Values of an output that are shown.
const FIRST: usize = 8;

/// Runs the command.
pub fn run(args: Run) -> Result<()> {
    let sources = sources(&args.inputs, &args.states)?;
    let spec = spec(&args)?;
    if let Some(file) = compiled::read(&args.program)? {
        return compiled::run(&args, &spec, &file, &sources);
    }
    let device = open(&spec)?;
    let program = program::load(&args.program, Care::Whole)?.program;
    let function = program::function(&program, args.function.as_deref())?;
    let inputs = inputs(function, &sources)?;
    if args.audit {
        let (inputs, states) = constants(function, inputs);
        return audit::run(&args, device.profile(), &program, function, &inputs, &states);
    }
    let (outputs, wall) = match on_surfaces(function) || !is_emulator(&spec) {
        true => {
            let executable = device.load(&program, &args.program.display().to_string())?;
            evaluate(&device, &executable, &function.name, &inputs)?
        }
        false => call(&spec, &program, function, inputs)?,
    };
    show(&args, &function.name, &device.name(), &outputs, wall)
}

/// Writes and shows outputs.
fn show(args: &Run, function: &str, device: &str, outputs: &[(String, Array)], wall: Duration) -> Result<()> {
    let written = match &args.output {
        Some(folder) => write(folder, args.output_format, outputs)?,
        None => vec![None; outputs.len()],
    };
    let shown: Vec<Shown> = outputs.iter().map(|(_, array)| Shown::of(array)).collect();
    let ms = (wall.as_secs_f64() * 1e6).round() / 1e3;
    if args.json {
        let output = |(((name, array), shown), file): (((&String, &Array), &Shown), &Option<String>)| {
            json!({
                "name": name, "dtype": array.dtype.name(), "shape": array.shape, "min": finite(shown.min),
                "max": finite(shown.max), "mean": finite(shown.mean), "not_finite": shown.odd,
                "first": shown.first.iter().map(|v| finite(*v)).collect::<Vec<_>>(), "file": file,
            })
        };
        let outputs = outputs.iter().map(|(n, a)| (n, a)).zip(&shown).zip(&written).map(output);
        return out::line(json!({
            "program": args.program.display().to_string(), "function": function, "device": device,
            "wall_ms": ms, "outputs": outputs.collect::<Vec<_>>(),
        }));
    }
    out::line(format_args!("{function} on {device}: {ms} ms"))?;
    for (((name, array), shown), file) in outputs.iter().zip(&shown).zip(&written) {
        out::line(format_args!("{name}: {} {:?}", array.dtype, array.shape))?;
        if !array.floats().is_empty() {
            let odd = if shown.odd > 0 { format!("  not finite {}", shown.odd) } else { String::new() };
            out::line(format_args!("  min {}  max {}  mean {}{odd}", shown.min, shown.max, shown.mean))?;
            let more = if array.floats().len() > FIRST { ", …" } else { "" };
            let first: Vec<String> = shown.first.iter().map(f64::to_string).collect();
            out::line(format_args!("  [{}{more}]", first.join(", ")))?;
        }
        if let Some(file) = file {
            out::line(format_args!("  written to {file}"))?;
        }
    }
    Ok(())
}

/// `NAME=SOURCE`, each name once.
pub fn sources(inputs: &[String], states: &[String]) -> Result<Vec<(String, Source)>> {
    let mut sources: Vec<(String, Source)> = Vec::new();
    let given = inputs.iter().map(|text| ("--input", text)).chain(states.iter().map(|text| ("--state", text)));
    for (option, text) in given {
        let failed = |why: String| Error::new(format!("{option} {text}: {why}"));
        let (name, source) =
            text.split_once('=').ok_or_else(|| failed("expected NAME=SOURCE, x=random:1 for example".into()))?;
        let name = name.trim();
        if sources.iter().any(|(n, _)| n == name) {
            return Err(failed(format!("`{name}` is given twice")));
        }
        sources.push((name.to_string(), Source::parse(source).map_err(failed)?));
    }
    Ok(sources)
}

/// The device with its options.
fn spec(args: &Run) -> Result<String> {
    let numerics = args.numerics.map(|numerics| Numerics::from(numerics).name());
    let mut spec = args.device.clone();
    for (option, value) in [("numerics", numerics), ("profile", args.profile.as_deref())] {
        let Some(value) = value else { continue };
        if !is_emulator(&args.device) || args.device.contains(&format!("{option}=")) {
            return Err(Error::new(format!(
                "--{option} is an option of the emulator, given once; leave it out with --device {}",
                args.device
            )));
        }
        spec = format!("{spec}{}{option}={value}", if spec.contains('?') { "&" } else { "?" });
    }
    if args.audit && !is_emulator(&spec) {
        return Err(Error::new(format!("--audit is the emulator's; leave it out with --device {}", args.device)));
    }
    Ok(spec)
}

/// True if the device is the emulator, with whatever options.
pub fn is_emulator(spec: &str) -> bool {
    spec.split('?').next() == Some("emulator")
}

/// Opens a device that programs run on.
pub fn open(name: &str) -> Result<Device> {
    let known = "a program runs on emulator, ane or ane-or-emulator";
    model::device(name)?.ok_or_else(|| Error::new(format!("--device {name} is for training; {known}")))
}

/// A value for every input. States begin as zeros unless one is given.
pub fn inputs(function: &Function, sources: &[(String, Source)]) -> Result<Vec<(String, Array)>> {
    let ports: Vec<(&str, &Type)> =
        function.inputs.iter().map(|v| function.value(*v)).map(|v| (v.name.as_str(), &v.ty)).collect();
    values(&function.name, &ports, sources)
}

/// A value for every port that is no state.
fn values(owner: &str, ports: &[(&str, &Type)], sources: &[(String, Source)]) -> Result<Vec<(String, Array)>> {
    if let Some((name, _)) = sources.iter().find(|(n, _)| ports.iter().all(|(port, _)| port != n)) {
        let near = ferrane::diag::nearest(name, ports.iter().map(|(port, _)| *port));
        let near = near.map(|n| format!(", did you mean `{n}`?")).unwrap_or_default();
        let known = ports.iter().map(|(port, _)| *port).collect::<Vec<_>>().join(", ");
        return Err(Error::new(format!("--input {name}: `{owner}` has no such input{near} (there are {known})")));
    }
    let mut inputs = Vec::new();
    let mut missing = Vec::new();
    for &(port, ty) in ports {
        let state = matches!(ty, Type::State(_));
        match sources.iter().find(|(n, _)| n == port) {
            Some((name, source)) => {
                let want = Want { name, ty };
                let array = source.array(&want).map_err(|e| Error::new(format!("--input {name}: {e}")))?;
                inputs.push((name.clone(), array));
            }
            None if state => {}
            None => missing.push(format!("  {port}  {ty}")),
        }
    }
    if missing.is_empty() {
        return Ok(inputs);
    }
    Err(Error::new(format!(
        "no value for these inputs of `{owner}`:\n{}\n  give each one, --input NAME=random:1 for example",
        missing.join("\n")
    )))
}

/// True if surfaces can be made for every port: extents that are known and not 0, elements of at most 32 bits.
pub fn on_surfaces(function: &Function) -> bool {
    let ports = function.inputs.iter().chain(&function.body().outputs);
    ports.map(|v| &function.value(*v).ty).all(|ty| {
        let small = ty.dtype().and_then(|d| d.bytes()).is_some_and(|b| b <= 4);
        small && ty.shape().is_some_and(|shape| !shape.contains(&0))
    })
}

/// Constants of inputs, and of states.
pub fn constants(
    function: &Function,
    arrays: Vec<(String, Array)>,
) -> (Vec<(String, Constant)>, BTreeMap<String, Constant>) {
    let held = |name: &str| {
        function.inputs.iter().map(|v| function.value(*v)).any(|v| v.name == name && matches!(v.ty, Type::State(_)))
    };
    let constants = arrays.into_iter().map(|(name, array)| (name, array.constant()));
    let (states, inputs): (Vec<_>, Vec<_>) = constants.partition(|(name, _)| held(name));
    (inputs, states.into_iter().collect())
}

/// Runs a function of the emulator on arrays of any shape; the time is that of compiling and running it.
fn call(
    spec: &str,
    program: &Program,
    function: &Function,
    inputs: Vec<(String, Array)>,
) -> Result<(Vec<(String, Array)>, Duration)> {
    let (inputs, mut states) = constants(function, inputs);
    let begun = Instant::now();
    let outputs = ferrane::emulator(spec)?.call(program, &function.name, &inputs, &mut states)?;
    let wall = begun.elapsed();
    let array = |(name, constant): (String, Constant)| {
        Ok((name, Array::from_constant(&constant, &program.weights).map_err(Error::new)?))
    };
    Ok((outputs.into_iter().chain(states).map(array).collect::<Result<_>>()?, wall))
}

/// Runs a procedure once: outputs in its order, and then the states, each by name.
fn evaluate(
    device: &Device,
    executable: &Executable,
    function: &str,
    inputs: &[(String, Array)],
) -> Result<(Vec<(String, Array)>, Duration)> {
    let procedure = executable.procedure(function)?;
    let mut bindings = Bindings::new().procedure(function);
    let mut results: Vec<(&Port, Surface)> = Vec::new();
    for port in procedure.ports() {
        let surface = device.surface(&device.fitted(procedure, &port.name)?)?;
        if let Some((_, array)) = inputs.iter().find(|(n, _)| *n == port.name) {
            fill(&surface, array)?;
        }
        bindings = bindings.bind(&port.name, &surface);
        if procedure.inputs.iter().all(|p| p.name != port.name) {
            results.push((port, surface));
        }
    }
    let stats = executable.prepare(bindings)?.evaluate()?;
    for note in device.notes() {
        out::note(format_args!("note: {note}"));
    }
    let read = |(port, surface): (&Port, Surface)| Ok((port.name.clone(), array(&surface)?));
    Ok((results.into_iter().map(read).collect::<Result<_>>()?, stats.wall))
}

/// Writes an array of the surface's type and shape.
pub fn fill(surface: &Surface, array: &Array) -> Result<()> {
    let layout = surface.layout().clone();
    let array = array.to(layout.dtype).map_err(Error::new)?;
    let bytes = array.to_bytes();
    let mut access = surface.write()?;
    let mut rest = bytes.as_slice();
    for row in (0..).map_while(|i| layout.row(i)) {
        let Some((now, later)) = rest.split_at_checked(row.len()) else { break };
        if let Some(place) = access.bytes_mut().get_mut(row) {
            place.copy_from_slice(now);
        }
        rest = later;
    }
    Ok(())
}

/// What a surface holds.
pub fn array(surface: &Surface) -> Result<Array> {
    let layout = surface.layout();
    let access = surface.read()?;
    let rows = (0..).map_while(|i| layout.row(i)).filter_map(|row| access.bytes().get(row));
    let bytes: Vec<u8> = rows.flatten().copied().collect();
    Array::from_bytes(layout.dtype, &layout.shape, &bytes).map_err(Error::new)
}

/// The names of the files, one for each output.
fn write(folder: &Path, format: OutputFormat, outputs: &[(String, Array)]) -> Result<Vec<Option<String>>> {
    std::fs::create_dir_all(folder).map_err(|e| files::failed(folder, e))?;
    if format == OutputFormat::Safetensors {
        let path = folder.join("outputs.safetensors");
        files::replace(&path, &safe::write(outputs).map_err(|e| files::failed(&path, e))?)?;
        return Ok(vec![Some(path.display().to_string()); outputs.len()]);
    }
    let one = |(name, array): &(String, Array)| {
        // A name out of a package may be anything; a file's name must not lead out of the folder.
        let safe = |c: char| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
        let path = folder.join(format!("{}.npy", name.chars().map(safe).collect::<String>()));
        files::replace(&path, &npy::write(array))?;
        Ok(Some(path.display().to_string()))
    };
    outputs.iter().map(one).collect()
}

/// A number in JSON, which has no others.
fn finite(value: f64) -> Value {
    if value.is_finite() { value.into() } else { Value::Null }
}

/// What is shown of an output. Extremes and mean are those of the finite numbers.
struct Shown {
    min: f64,
    max: f64,
    mean: f64,
    odd: usize,
    first: Vec<f64>,
}

impl Shown {
    fn of(array: &Array) -> Shown {
        let values = array.floats();
        let finite = || values.iter().copied().filter(|v| v.is_finite());
        let count = finite().count();
        Shown {
            min: finite().fold(f64::INFINITY, f64::min),
            max: finite().fold(f64::NEG_INFINITY, f64::max),
            mean: finite().sum::<f64>() / count as f64,
            odd: values.len() - count,
            first: values.into_iter().take(FIRST).collect(),
        }
    }
}
