//! `ferrane export`: a model as a Core ML package, as a folder of Hugging Face, or as a GGUF file.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use ferrane::llm::export::{self, Exported, Options, WeightEncoding};
use ferrane::llm::model::Model;
use ferrane::llm::save::{self, Saved, SavedWeights};
use ferrane::llm::weights::Slot;
use ferrane::mil::package::{Form, PackageError};
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::{Export, ExportFormat, ExportWeights};
use crate::error::{Error, Result};
use crate::{files, model, out};

/// The encoding in a package, if it has this one.
fn encoding(weights: ExportWeights) -> Result<WeightEncoding> {
    match weights {
        ExportWeights::Fp16 => Ok(WeightEncoding::Fp16),
        ExportWeights::Int8 => Ok(WeightEncoding::Int8),
        ExportWeights::Int4 => Ok(WeightEncoding::Int4),
        ExportWeights::Palette4 => Ok(WeightEncoding::Palette4),
        ExportWeights::Palette6 => Ok(WeightEncoding::Palette6),
        ExportWeights::Fp32 | ExportWeights::Q8_0 => {
            Err(Error::new("a package has --weights fp16, int8, int4, palette4 or palette6"))
        }
    }
}

/// The form in a folder or a GGUF file, if it has this one.
fn saved(weights: ExportWeights, format: ExportFormat) -> Result<SavedWeights> {
    match (weights, format) {
        (ExportWeights::Fp16, _) => Ok(SavedWeights::Fp16),
        (ExportWeights::Fp32, _) => Ok(SavedWeights::Fp32),
        (ExportWeights::Q8_0, ExportFormat::Gguf) => Ok(SavedWeights::Q8_0),
        (_, ExportFormat::Gguf) => {
            Err(Error::new("a GGUF file has --weights fp16, fp32 or q8_0; `ferrane quantize` has more"))
        }
        _ => Err(Error::new(
            "a Hugging Face folder has --weights fp16 or fp32; `ferrane quantize` writes one with fewer bits",
        )),
    }
}

/// What the output is, by --format or by its name.
fn format(args: &Export) -> Result<ExportFormat> {
    if let Some(format) = args.format {
        return Ok(format);
    }
    match args.output.extension().and_then(|extension| extension.to_str()) {
        Some("gguf") => Ok(ExportFormat::Gguf),
        Some("mlpackage") => Ok(ExportFormat::Coreml),
        None if args.output.extension().is_none() => Ok(ExportFormat::Huggingface),
        _ => {
            let what =
                "give a name that ends in .mlpackage or .gguf, or one without an extension for a Hugging Face folder";
            Err(Error::new(format!("-o {}: {what}, or add --format", args.output.display())))
        }
    }
}

/// Writes the model in the form that is asked for.
pub fn run(args: Export) -> Result<()> {
    match format(&args)? {
        ExportFormat::Coreml => package(args),
        format => other(&args, format),
    }
}

/// Writes a folder or a GGUF file, with a bar on standard error.
fn other(args: &Export, format: ExportFormat) -> Result<()> {
    let only = [
        ("--context", args.context.is_some()),
        ("--prefill", args.prefill.is_some()),
        ("--part-size", args.part_size.is_some()),
    ];
    if let Some((flag, _)) = only.iter().find(|(_, given)| *given) {
        return Err(Error::new(format!("{flag} is for a package; -o {} is none", args.output.display())));
    }
    let weights = saved(args.weights, format)?;
    // Before the work, which may take minutes.
    save::check_target(&args.model, &args.output, args.force)?;
    let model = model::open_adapted(&args.model, args.tokenizer.as_deref(), &args.adapter)?;
    let stop = files::stop_on_ctrl_c("tensor")?;
    let bar = match args.json {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(Slot::list(&model.config).len() as u64).with_message("tensors"),
    };
    let mut progress = |tensors: usize| {
        bar.set_position(tensors as u64);
        !stop.load(Ordering::SeqCst)
    };
    let saved = match format {
        ExportFormat::Gguf => save::gguf(&model, weights, &args.output, args.force, &mut progress),
        _ => save::huggingface(&model, weights, &args.output, args.force, &mut progress),
    };
    bar.finish_and_clear();
    report_saved(&saved?, args, format, weights, &model)
}

/// Says what a folder or a GGUF file has.
fn report_saved(
    saved: &Saved,
    args: &Export,
    format: ExportFormat,
    weights: SavedWeights,
    model: &Model,
) -> Result<()> {
    let (parameters, form) = (model.config.parameters(), weights.name());
    if args.json {
        let format = if format == ExportFormat::Gguf { "gguf" } else { "huggingface" };
        return out::line(json!({
            "model": args.model.display().to_string(), "output": args.output.display().to_string(), "format": format,
            "weights": form, "vocab": model.config.vocab, "parameters": parameters, "tensors": saved.tensors,
            "weight_bytes": saved.weight_bytes, "files": saved.files, "notes": saved.notes,
        }));
    }
    saved.notes.iter().for_each(|note| _ = out::note(format_args!("note: {note}")));
    let files = if format == ExportFormat::Gguf { String::new() } else { format!(": {}", saved.files.join(", ")) };
    out::line(format_args!(
        "{}: {parameters} parameters as {form} in {} tensors, {:.2} MB of weights{files}",
        args.output.display(),
        saved.tensors,
        saved.weight_bytes as f64 / 1e6,
    ))
}

/// Encodes the weights, with a bar on standard error, and writes the packages.
fn package(args: Export) -> Result<()> {
    let path = &args.output;
    let weights = encoding(args.weights)?;
    if args.tokenizer.is_some() {
        return Err(Error::new(
            "--tokenizer is for a Hugging Face folder or a GGUF file; a package takes the model's files",
        ));
    }
    if Form::of_target(path)? != Form::Package {
        return Err(Error::new(format!("-o {}: give a name that ends in .mlpackage", path.display())));
    }
    // Before the work, which may take minutes.
    let refuse = |path: &Path| match args.force || path.symlink_metadata().is_err() {
        true => Ok(()),
        false => Err(Error::from(PackageError::Exists { path: path.to_path_buf() })),
    };
    if args.part_size.is_none() {
        refuse(path)?;
    }
    let model = model::open_adapted(&args.model, None, &args.adapter)?;
    let options = Options { weights, context: args.context, prefill: args.prefill };
    let bar = ProgressBar::new(model.config.layers as u64).with_message("layers");
    let mut progress = |layers| bar.set_position(layers as u64);
    let exported = match args.part_size {
        Some(size) => export::export_parts(&model, &options, size.saturating_mul(1_000_000), &mut progress),
        None => export::export(&model, &options, &mut progress).map(|whole| vec![whole]),
    };
    bar.finish_and_clear();
    let exported = exported?;
    let count = exported.len();
    let paths: Vec<PathBuf> = (1..=count).map(|part| part_path(path, args.part_size.map(|_| (part, count)))).collect();
    // None is written if one exists.
    paths.iter().try_for_each(|path| refuse(path))?;
    for (exported, path) in exported.iter().zip(&paths) {
        exported.write(path, args.force)?;
        report(exported, path, &args, &model, weights)?;
    }
    Ok(())
}

/// `OUT-1of3.mlpackage` for the first of three parts of `OUT.mlpackage`.
fn part_path(path: &Path, part: Option<(usize, usize)>) -> PathBuf {
    match (part, path.file_stem().and_then(|stem| stem.to_str())) {
        (Some((part, count)), Some(stem)) => path.with_file_name(format!("{stem}-{part}of{count}.mlpackage")),
        _ => path.to_path_buf(),
    }
}

/// Says what was written.
fn report(exported: &Exported, path: &Path, args: &Export, model: &Model, weights: WeightEncoding) -> Result<()> {
    let (parameters, weights) = (model.config.parameters(), weights.name());
    if args.json {
        return out::line(json!({
            "model": args.model.display().to_string(), "output": path.display().to_string(), "format": "coreml",
            "weights": weights, "context": exported.context, "prefill": exported.prefill, "vocab": model.config.vocab,
            "layers": [exported.layers.start, exported.layers.end],
            "parameters": parameters, "weight_bytes": exported.weight_bytes,
            "functions": exported.program.functions.iter().map(|f| &f.name).collect::<Vec<_>>(),
            "left_out": exported.left_out,
        }));
    }
    for file in &exported.left_out {
        out::note(format_args!("not in the metadata: {file}"));
    }
    let megabytes = exported.weight_bytes as f64 / 1e6;
    if args.part_size.is_some() {
        let (first, end) = (exported.layers.start, exported.layers.end);
        return out::line(format_args!("{}: layers {first} to {end}, {megabytes:.1} MB", path.display()));
    }
    let bits = 8.0 * exported.weight_bytes as f64 / parameters.max(1) as f64;
    out::line(format_args!(
        "{}: {parameters} parameters as {weights}, {megabytes:.1} MB of weights and tables ({bits:.2} bits a parameter); decode, and \
         prefill of {} tokens, over {} positions",
        path.display(),
        exported.prefill,
        exported.context
    ))
}
