//! `ferrane export`: a model as a Core ML package.

use std::path::{Path, PathBuf};

use ferrane::llm::export::{self, Exported, Options, WeightEncoding};
use ferrane::llm::model::Model;
use ferrane::mil::package::{Form, PackageError};
use indicatif::ProgressBar;
use serde_json::json;

use crate::args::{Export, ExportWeights};
use crate::error::{Error, Result};
use crate::{model, out};

impl From<ExportWeights> for WeightEncoding {
    fn from(weights: ExportWeights) -> WeightEncoding {
        match weights {
            ExportWeights::Fp16 => WeightEncoding::Fp16,
            ExportWeights::Int8 => WeightEncoding::Int8,
            ExportWeights::Int4 => WeightEncoding::Int4,
            ExportWeights::Palette4 => WeightEncoding::Palette4,
            ExportWeights::Palette6 => WeightEncoding::Palette6,
        }
    }
}

/// Encodes the weights, with a bar on standard error, and writes the packages.
pub fn run(args: Export) -> Result<()> {
    let path = &args.output;
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
    let model = model::open(&args.model, None)?;
    let options = Options { weights: args.weights.into(), context: args.context, prefill: args.prefill };
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
        report(exported, path, &args, &model)?;
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
fn report(exported: &Exported, path: &Path, args: &Export, model: &Model) -> Result<()> {
    let (parameters, weights) = (model.config.parameters(), WeightEncoding::from(args.weights).name());
    if args.json {
        return out::line(json!({
            "model": args.model.display().to_string(), "output": path.display().to_string(), "weights": weights,
            "context": exported.context, "prefill": exported.prefill, "vocab": model.config.vocab,
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
