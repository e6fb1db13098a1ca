//! `ferrane export`: a model as a Core ML package.

use ferrane::llm::export::{self, Options, WeightEncoding};
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

/// Encodes the weights, with a bar on standard error, and writes the package.
pub fn run(args: Export) -> Result<()> {
    let path = &args.output;
    if Form::of_target(path)? != Form::Package {
        return Err(Error::new(format!("-o {}: give a name that ends in .mlpackage", path.display())));
    }
    // Before the work, which may take minutes.
    if !args.force && path.symlink_metadata().is_ok() {
        return Err(PackageError::Exists { path: path.clone() }.into());
    }
    let model = model::open(&args.model, None)?;
    let options = Options { weights: args.weights.into(), context: args.context, prefill: args.prefill };
    let bar = ProgressBar::new(model.config.layers as u64).with_message("layers");
    let exported = export::export(&model, &options, &mut |layers| bar.set_position(layers as u64));
    bar.finish_and_clear();
    let exported = exported?;
    exported.write(path, args.force)?;
    let (parameters, weights) = (model.config.parameters(), options.weights.name());
    if args.json {
        return out::line(json!({
            "model": args.model.display().to_string(), "output": path.display().to_string(), "weights": weights,
            "context": exported.context, "prefill": exported.prefill, "vocab": model.config.vocab,
            "parameters": parameters, "weight_bytes": exported.weight_bytes,
            "functions": exported.program.functions.iter().map(|f| &f.name).collect::<Vec<_>>(),
            "left_out": exported.left_out,
        }));
    }
    for file in &exported.left_out {
        out::note(format_args!("not in the metadata: {file}"));
    }
    let bits = 8.0 * exported.weight_bytes as f64 / parameters.max(1) as f64;
    out::line(format_args!(
        "{}: {parameters} parameters as {weights}, {:.1} MB of weights and tables ({bits:.2} bits a parameter); decode, and prefill of {} \
         tokens, over {} positions",
        path.display(),
        exported.weight_bytes as f64 / 1e6,
        exported.prefill,
        exported.context
    ))
}
