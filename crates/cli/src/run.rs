//! `ferrane run`: a program on given or random inputs.

mod compiled;

use std::time::Duration;

use ferrane::mil::Function;
use ferrane::tensor_io::{self, Format, TensorSource, Unnamed, arguments};
use ferrane::{Call, Device, Numerics, Returned, Tensor, TensorSummary, Tensors};
use serde_json::{Value, json};

use crate::args::{OutputFormat, Run};
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{audit, model, out};

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
    let format = match args.output_format {
        OutputFormat::Npy => Format::Npy,
        OutputFormat::Safetensors => Format::Safetensors,
    };
    let written = args.output.as_ref().map(|folder| tensor_io::write_folder(folder, format, outputs)).transpose()?;
    let file = |at: usize| written.as_ref().map(|paths| paths[at].display().to_string());
    let shown: Vec<TensorSummary> = outputs.iter().map(|(_, tensor)| TensorSummary::of(tensor, FIRST)).collect();
    let ms = (wall.as_secs_f64() * 1e6).round() / 1e3;
    if args.json {
        let output = |(at, ((name, tensor), shown)): (usize, (&(String, Tensor), &TensorSummary))| {
            json!({
                "name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape(), "min": finite(shown.min),
                "max": finite(shown.max), "mean": finite(shown.mean), "not_finite": shown.not_finite,
                "first": shown.first.iter().map(|v| finite(*v)).collect::<Vec<_>>(), "file": file(at),
            })
        };
        let outputs = outputs.iter().zip(&shown).enumerate().map(output);
        return out::line(json!({
            "program": args.program.display().to_string(), "function": function, "device": device,
            "wall_ms": ms, "outputs": outputs.collect::<Vec<_>>(),
        }));
    }
    out::line(format_args!("{function} on {device}: {ms} ms"))?;
    for (at, ((name, tensor), shown)) in outputs.iter().zip(&shown).enumerate() {
        out::line(format_args!("{name}: {} {:?}", tensor.dtype(), tensor.shape()))?;
        if !tensor.is_empty() {
            out::line(shown)?;
        }
        if let Some(file) = file(at) {
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

/// A number in JSON, which has no others.
fn finite(value: f64) -> Value {
    if value.is_finite() { value.into() } else { Value::Null }
}
