//! `ferrane run`: a program on given or random inputs.

mod compiled;

use std::path::Path;
use std::time::Duration;

use ferrane::mil::Function;
use ferrane::tensor_io::{self, Format, TensorSource, Unnamed, arguments};
use ferrane::{Call, Device, Numerics, Returned, Tensor, Tensors};
use serde_json::{Value, json};

use crate::args::{OutputFormat, Run};
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{audit, files, model, out};

/// Values of an output that are shown.
const FIRST: usize = 8;

/// Runs `ferrane run`.
pub fn run(args: Run) -> Result<()> {
    let sources = sources(&args.inputs, &args.states)?;
    let spec = spec(&args)?;
    if let Some(file) = compiled::read(&args.program)? {
        return compiled::run(&args, &spec, &file, &sources);
    }
    let device = open(&spec)?;
    let program = program::load(&args.program, Care::Whole)?.program;
    let function = program::function(&program, args.function.as_deref())?;
    let call = call(function, &sources)?;
    if args.audit {
        return audit::run(&args, device.profile(), &program, function, &call);
    }
    let Returned { outputs, states, stats } = device.call(&program, call.label(args.program.display().to_string()))?;
    for note in device.notes() {
        out::note(format_args!("note: {note}"));
    }
    let shown: Tensors = outputs.into_iter().chain(states).collect();
    show(&args, &function.name, &device.name(), &shown, stats.wall)
}

/// Writes and shows outputs.
fn show(args: &Run, function: &str, device: &str, outputs: &Tensors, wall: Duration) -> Result<()> {
    let written = match &args.output {
        Some(folder) => write(folder, args.output_format, outputs)?,
        None => vec![None; outputs.len()],
    };
    let shown: Vec<Shown> = outputs.iter().map(|(_, tensor)| Shown::of(tensor)).collect();
    let ms = (wall.as_secs_f64() * 1e6).round() / 1e3;
    if args.json {
        let output = |(((name, tensor), shown), file): ((&(String, Tensor), &Shown), &Option<String>)| {
            json!({
                "name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape(), "min": finite(shown.min),
                "max": finite(shown.max), "mean": finite(shown.mean), "not_finite": shown.odd,
                "first": shown.first.iter().map(|v| finite(*v)).collect::<Vec<_>>(), "file": file,
            })
        };
        let outputs = outputs.iter().zip(&shown).zip(&written).map(output);
        return out::line(json!({
            "program": args.program.display().to_string(), "function": function, "device": device,
            "wall_ms": ms, "outputs": outputs.collect::<Vec<_>>(),
        }));
    }
    out::line(format_args!("{function} on {device}: {ms} ms"))?;
    for (((name, tensor), shown), file) in outputs.iter().zip(&shown).zip(&written) {
        out::line(format_args!("{name}: {} {:?}", tensor.dtype(), tensor.shape()))?;
        if !tensor.is_empty() {
            let odd = if shown.odd > 0 { format!("  not finite {}", shown.odd) } else { String::new() };
            out::line(format_args!("  min {}  max {}  mean {}{odd}", shown.min, shown.max, shown.mean))?;
            let more = if tensor.len() > FIRST { ", …" } else { "" };
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
pub fn sources(inputs: &[String], states: &[String]) -> Result<Vec<(String, TensorSource)>> {
    let mut sources: Vec<(String, TensorSource)> = Vec::new();
    let given = inputs.iter().map(|text| ("--input", text)).chain(states.iter().map(|text| ("--state", text)));
    for (option, text) in given {
        let failed = |why: String| Error::new(format!("{option} {text}: {why}"));
        let (name, source) =
            text.split_once('=').ok_or_else(|| failed("expected NAME=SOURCE, x=random:1 for example".into()))?;
        let name = name.trim();
        if sources.iter().any(|(n, _)| n == name) {
            return Err(failed(format!("`{name}` is given twice")));
        }
        sources.push((name.to_string(), TensorSource::parse(source).map_err(|e| failed(e.to_string()))?));
    }
    Ok(sources)
}

/// The device with its options.
fn spec(args: &Run) -> Result<String> {
    let numerics = args.numerics.map(|numerics| Numerics::from(numerics).name());
    let mut spec = args.device.clone();
    for (option, value) in [("numerics", numerics), ("machine", args.machine.as_deref())] {
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

/// The call of a function with a value for every input. States begin as zeros unless one is given.
pub fn call(function: &Function, sources: &[(String, TensorSource)]) -> Result<Call> {
    arguments(function, sources, Unnamed::Refuse).map_err(value_error)
}

/// An error about values, with what to do about a missing one.
fn value_error(error: tensor_io::Error) -> Error {
    let missing = matches!(error, tensor_io::Error::Missing { .. });
    let error = Error::from(error);
    if missing { error.hint("give each one, --input NAME=random:1 for example") } else { error }
}

/// The names of the files, one for each output.
fn write(folder: &Path, format: OutputFormat, outputs: &Tensors) -> Result<Vec<Option<String>>> {
    std::fs::create_dir_all(folder).map_err(|e| files::failed(folder, e))?;
    if format == OutputFormat::Safetensors {
        let path = folder.join("outputs.safetensors");
        files::replace(&path, &tensor_io::write(Format::Safetensors, outputs)?)?;
        return Ok(vec![Some(path.display().to_string()); outputs.len()]);
    }
    let one = |(name, tensor): &(String, Tensor)| {
        // A name out of a package may be anything; a file's name must not lead out of the folder.
        let safe = |c: char| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
        let path = folder.join(format!("{}.npy", name.chars().map(safe).collect::<String>()));
        files::replace(&path, &tensor_io::write(Format::Npy, &[(name.as_str(), tensor.clone())].into())?)?;
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
    fn of(tensor: &Tensor) -> Shown {
        let values: Vec<f64> = tensor.to_f64().collect();
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
