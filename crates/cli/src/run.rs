//! `ferrane run`: a program on given or random inputs.

mod compiled;

use std::path::PathBuf;
use std::time::Duration;

use ferrane::mil::Function;
use ferrane::mil::classifier::{Classifier, Label};
use ferrane::mil::package::{ColorSpace, Feature, FeatureType};
use ferrane::tensor_io::{self, Fit, Format, TensorSource, Unnamed, arguments};
use ferrane::{Call, Device, Numerics, Returned, Tensor, TensorSummary, Tensors};
use serde_json::{Value, json};

use crate::args::{OutputFormat, Run};
use crate::error::{Error, Result};
use crate::program::{self, Care, Runnable};
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
    let fit = if args.resize { Fit::Resize } else { Fit::Exact };
    let loaded = program::load(&args.program, Care::Whole, &program::extents(&args.program, &args.shapes)?)?;
    let ready = program::runnable(loaded, args.function.as_deref(), &args.shapes, sources, fit)?;
    let function = ready.function()?;
    let images = images(&args, &ready)?;
    let call = call(function, &ready.sources)?;
    if args.audit {
        return audit::run(&args, device.profile(), &ready.program, function, &call);
    }
    let label = args.program.display().to_string();
    let Returned { outputs, states, stats } = device.call(&ready.program, call.label(label))?;
    for note in device.notes() {
        out::note(format_args!("note: {note}"));
    }
    let outputs: Tensors = outputs.into_iter().chain(states).collect();
    let ran = Ran { function: &function.name, device: &device.name(), outputs: &outputs, wall: stats.wall };
    show(&args, &ran, ready.classifier.as_ref(), &images)
}

/// The outputs that a package describes as images; at least one if they are to be written as such.
fn images(args: &Run, ready: &Runnable) -> Result<Vec<(String, ColorSpace)>> {
    let ports = ready.description.as_ref().map(|d| d.functions()).unwrap_or_default();
    let outputs = ports.into_iter().filter(|p| p.function == ready.function).flat_map(|p| p.outputs);
    let image = |f: Feature| match f.ty {
        FeatureType::Image(image) => Some((f.name, image.color?)),
        _ => None,
    };
    let found: Vec<_> = outputs.filter_map(image).collect();
    if found.is_empty() && args.output_format == OutputFormat::Png {
        return Err(Error::new(format!(
            "--output-format png: `{}` has no output that its description calls an image; write npy",
            ready.function
        )));
    }
    Ok(found)
}

/// A run that is over.
struct Ran<'a> {
    function: &'a str,
    device: &'a str,
    outputs: &'a Tensors,
    wall: Duration,
}

/// Writes the outputs into the folder that `--output` names, and returns a path for each.
fn write(args: &Run, outputs: &Tensors, images: &[(String, ColorSpace)]) -> Result<Option<Vec<PathBuf>>> {
    let Some(folder) = &args.output else { return Ok(None) };
    let format = match args.output_format {
        OutputFormat::Npy => Format::Npy,
        OutputFormat::Safetensors => Format::Safetensors,
        OutputFormat::Png => {
            let one = |(name, tensor): &(String, Tensor)| {
                let color = images.iter().find(|(image, _)| image == name).map(|(_, color)| *color);
                let (format, bytes) = match color {
                    Some(color) => (Format::Png, tensor_io::image::to_png(tensor, color)?),
                    None => (Format::Npy, tensor_io::write(Format::Npy, &[(name.as_str(), tensor.clone())].into())?),
                };
                tensor_io::write_in(folder, name, format, &bytes)
            };
            return Ok(Some(outputs.iter().map(one).collect::<tensor_io::Result<_>>()?));
        }
    };
    Ok(Some(tensor_io::write_folder(folder, format, outputs)?))
}

/// The classes by probability, the most probable first; none if the function is no classifier.
fn classes<'a>(classifier: Option<&'a Classifier>, outputs: &Tensors) -> Result<Vec<(&'a Label, f32)>> {
    match classifier {
        Some(classifier) => Ok(classifier.ranked(&outputs.get(&classifier.probabilities_output)?.to_f32())?),
        None => Ok(Vec::new()),
    }
}

/// Writes and shows outputs.
fn show(args: &Run, ran: &Ran<'_>, classifier: Option<&Classifier>, images: &[(String, ColorSpace)]) -> Result<()> {
    let Ran { function, device, outputs, wall } = *ran;
    let written = write(args, outputs, images)?;
    let classes = classes(classifier, outputs)?;
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

/// An error about values, with what to do about a missing one, or an image of another size.
fn value_error(error: tensor_io::Error) -> Error {
    let size = |e: &tensor_io::Error| matches!(e, tensor_io::Error::ImageSize { .. });
    let hint = match &error {
        tensor_io::Error::Missing { .. } => Some("give each one, --input NAME=random:1 for example"),
        tensor_io::Error::Input { error, .. } if size(error) => Some("give --resize to scale it"),
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
