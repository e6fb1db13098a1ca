//! `ferrane run`: a program on given or random inputs.

mod compiled;

use std::path::PathBuf;
use std::time::Duration;

use ferrane::mil::classifier::Label;
use ferrane::proof::prove;
use ferrane::tensor_io::{self, Fit, Format, TensorSource, write_folder};
use ferrane::{Call, Device, Model, ModelError, Numerics, Returned, Tensor, TensorSummary, Tensors};
use serde_json::{Value, json};

use crate::args::{OutputFormat, Run};
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{audit, model, out};

/// Values of an output that are shown.
const FIRST: usize = 8;
/// Classes of a classifier that are shown.
const TOP: usize = 5;

/// Runs `ferrane run`.
pub fn run(args: Run) -> Result<()> {
    let sources = sources(&args.inputs, &args.states)?;
    let spec = spec(&args)?;
    if let Some(file) = compiled::read(&args.program)? {
        return compiled::run(&args, &spec, &file, &sources);
    }
    let device = open(&spec)?;
    let options = program::options(args.function.as_deref(), &args.shapes);
    let options = options.fit(if args.resize { Fit::Resize } else { Fit::Exact });
    let model = Model::new(program::load(&args.program, Care::Whole, &options)?, &options, &sources)?;
    model.check_format(args.output_format.into())?;
    let call = model.call(&sources).map_err(value_error)?;
    if args.audit {
        return audit::run(&args, device.profile(), &model, &call);
    }
    if args.proof {
        return proof(&args, &device, &model, &call);
    }
    let Returned { outputs, states, stats } = device.call(model.program(), call)?;
    for note in device.notes() {
        out::note(format_args!("note: {note}"));
    }
    let outputs: Tensors = outputs.into_iter().chain(states).collect();
    let function = &model.function().name;
    let ran = Ran { function, device: &device.name(), outputs: &outputs, wall: stats.wall };
    show(&args, &ran, Some(&model))
}

/// Evidence that an engine ran the program. Fails if something speaks against the engine.
fn proof(args: &Run, device: &Device, model: &Model, call: &Call) -> Result<()> {
    let found = prove(device, model.program(), call)?;
    match args.json {
        true => out::json(&found)?,
        false => out::print(&found)?,
    }
    if found.on_engine && !found.is_consistent() {
        return Err(Error::new("something speaks against the engine having run it"));
    }
    Ok(())
}

impl From<OutputFormat> for Format {
    fn from(format: OutputFormat) -> Format {
        match format {
            OutputFormat::Npy => Format::Npy,
            OutputFormat::Safetensors => Format::Safetensors,
            OutputFormat::Png => Format::Png,
        }
    }
}

/// A run that is over.
struct Ran<'a> {
    function: &'a str,
    device: &'a str,
    outputs: &'a Tensors,
    wall: Duration,
}

/// Writes the outputs into the folder that `--output` names, and returns a path for each.
fn write(args: &Run, outputs: &Tensors, model: Option<&Model>) -> Result<Option<Vec<PathBuf>>> {
    let Some(folder) = &args.output else { return Ok(None) };
    let format = args.output_format.into();
    Ok(Some(match model {
        Some(model) => model.write_outputs(folder, format, outputs)?,
        None => write_folder(folder, format, outputs)?,
    }))
}

/// Writes and shows outputs. A compiled program has no model: no images and no classes.
fn show(args: &Run, ran: &Ran<'_>, model: Option<&Model>) -> Result<()> {
    let Ran { function, device, outputs, wall } = *ran;
    let written = write(args, outputs, model)?;
    let classes = model.map_or(Ok(Vec::new()), |model| model.classes(outputs))?;
    let classifier = model.and_then(Model::classifier);
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
        let mut object = json!({
            "program": args.program.display().to_string(), "function": function, "device": device,
            "wall_ms": ms, "outputs": outputs.collect::<Vec<_>>(),
        });
        if let Some(classifier) = classifier {
            let class =
                |(label, p): &(&Label, f32)| json!({"label": label_json(label), "probability": finite(f64::from(*p))});
            object["label"] =
                json!({"name": classifier.label_output, "value": classes.first().map(|(l, _)| label_json(l))});
            object["classes"] = classes.iter().map(class).collect();
        }
        return out::line(object);
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
    let Some(classifier) = classifier else { return Ok(()) };
    if let Some((label, _)) = classes.first() {
        out::line(format_args!("{}: {label}", classifier.label_output))?;
    }
    for (label, probability) in classes.iter().take(TOP) {
        out::line(format_args!("  {probability:8.5}  {label}"))?;
    }
    match classes.len().saturating_sub(TOP) {
        0 => Ok(()),
        more => out::line(format_args!("  … and {more} more")),
    }
}

fn label_json(label: &Label) -> Value {
    match label {
        Label::Text(text) => text.as_str().into(),
        Label::Number(number) => (*number).into(),
    }
}

/// `NAME=SOURCE`, each name once.
pub fn sources(inputs: &[String], states: &[String]) -> Result<Vec<(String, TensorSource)>> {
    let mut sources: Vec<(String, TensorSource)> = Vec::new();
    let given = inputs.iter().map(|text| ("--input", text)).chain(states.iter().map(|text| ("--state", text)));
    for (option, text) in given {
        let failed = |why: String| Error::new(format!("{option} {text}: {why}"));
        let (name, source) = TensorSource::parse_named(text).map_err(|e| failed(e.to_string()))?;
        if sources.iter().any(|(n, _)| *n == name) {
            return Err(failed(format!("`{name}` is given twice")));
        }
        sources.push((name, source));
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

/// An error about values, with what to do about a missing one, or an image of another size.
fn value_error(error: ModelError) -> Error {
    let size = |e: &tensor_io::Error| matches!(e, tensor_io::Error::ImageSize { .. });
    let hint = match &error {
        ModelError::Tensor(tensor_io::Error::Missing { .. }) => {
            Some("give each one, --input NAME=random:1 for example")
        }
        ModelError::Tensor(tensor_io::Error::Input { error, .. }) if size(error) => Some("give --resize to scale it"),
        _ => None,
    };
    let error = Error::from(error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// A number in JSON, which has no others.
fn finite(value: f64) -> Value {
    if value.is_finite() { value.into() } else { Value::Null }
}
