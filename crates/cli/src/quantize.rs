//! `ferrane quantize`: a model with weights of a few bits.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ferrane::llm::config::{self, Config};
use ferrane::llm::evaluate::{Evaluation, evaluate};
use ferrane::llm::model::Model;
use ferrane::llm::quantize::{self, QuantizedForm, QuantizedModel, QuantizedTensor};
use ferrane::llm::reference::Reference;
use ferrane::llm::weights::{Slot, Weights};
use ferrane::train::data::{Ids, Source, Split};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::args::Quantize;
use crate::error::{Error, Result};
use crate::{files, model, out};

/// Windows of a text, as ids.
type Windows = Vec<Vec<u32>>;

/// Quantizes the model, writes it, and reports what it costs.
pub fn run(args: Quantize) -> Result<()> {
    model::window(args.seq)?;
    let (target, form) = (&args.output, QuantizedForm::from(args.weights));
    let gguf = target.extension().is_some_and(|extension| extension == "gguf");
    // Before the work, which may take minutes.
    quantize::check_target(&args.model, target, args.force)?;
    if gguf && !ferrane::gguf::File::recognize(&args.model).unwrap_or(false) {
        let why = "a .gguf is made of a model that is a .gguf, whose metadata have the tokenizer";
        return Err(Error::new(format!("-o {}: {why}; give a folder", target.display())));
    }
    let mut model = model::open(&args.model, args.tokenizer.as_deref())?;
    let begun = Instant::now();
    let stop = files::stop_on_ctrl_c("tensor")?;
    // Every pass below changes or reads all of them.
    let mut weights = Weights::read(&model.weights, &model.config)?;
    quantize::prepare(&mut model.config, &mut weights);
    let (calibration, evaluation) = texts(&args, &model)?;
    let before = perplexity(&args, &model, &weights, &evaluation, "before", &stop)?;
    let bar = bar(&args, Slot::list(&model.config).len(), "tensors");
    let quantized = quantize::quantize(&model.config, &mut weights, form, &calibration, &mut |done| {
        bar.set_position(done as u64);
        !stop.load(Ordering::SeqCst)
    });
    bar.finish_and_clear();
    let quantized = quantized?;
    let after = perplexity(&args, &model, &weights, &evaluation, "after", &stop)?;
    if gguf {
        quantized.write_gguf(&model.config, &weights, &args.model, target, args.force)?;
    } else {
        // A folder of Hugging Face has its tokenizer among its files.
        let own = args.tokenizer.is_none() && config::read_hf(&args.model.join("config.json")).is_ok();
        let tokenizer = model.tokenizer.as_ref().filter(|_| !own);
        let untrained = model.untrained();
        quantized.write_folder(&model.config, &weights, &args.model, tokenizer, &untrained, target, args.force)?;
    }
    let report = Report {
        args: &args,
        config: &model.config,
        quantized: &quantized,
        calibration: calibration.iter().map(Vec::len).sum(),
        perplexity: before.zip(after),
        seconds: begun.elapsed().as_secs_f64(),
    };
    if args.json { out::line(report.json()) } else { report.print() }
}

/// The windows of the two texts; none for a text that is not given.
fn texts(args: &Quantize, model: &Model) -> Result<(Windows, Windows)> {
    let same = args.calibrate.is_some() && args.calibrate == args.eval;
    let windows = |path: Option<&Path>, extra: usize, half: usize| -> Result<Vec<Vec<u32>>> {
        let Some(path) = path else { return Ok(Vec::new()) };
        let source = Source::new(model.tokenizer.as_ref(), model.config.vocab);
        let ids = Ids::open(path, &source)?;
        let (first, length) = if same { (half * (ids.len() / 2), ids.len() / 2) } else { (0, ids.len()) };
        let starts = Split::evaluation(length, args.seq, args.windows)?;
        // The targets of an evaluation are one token further than its inputs.
        let window = |start: usize| -> Result<Vec<u32>> {
            Ok(ids.window(first + start, args.seq)?[..args.seq + extra].to_vec())
        };
        starts.into_iter().map(window).collect()
    };
    Ok((windows(args.calibrate.as_deref(), 0, 0)?, windows(args.eval.as_deref(), 1, 1)?))
}

fn bar(args: &Quantize, length: usize, what: &'static str) -> ProgressBar {
    if args.json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:20} {wide_bar} {pos}/{len} {eta:>5}");
    ProgressBar::new(length as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(what)
}

/// The loss of a text with the weights as they are; `None` without a text.
fn perplexity(
    args: &Quantize,
    model: &Model,
    weights: &Weights,
    windows: &[Vec<u32>],
    when: &'static str,
    stop: &AtomicBool,
) -> Result<Option<Evaluation>> {
    if windows.is_empty() {
        return Ok(None);
    }
    let config = Config { max_seq: model.config.max_seq.max(args.seq), ..model.config.clone() };
    let mut forced = Reference::new(&config, weights)?;
    let bar = bar(args, windows.len(), if when == "before" { "perplexity before" } else { "perplexity after" });
    let until = windows.iter().take_while(|_| !stop.load(Ordering::SeqCst)).cloned();
    let found = evaluate(&mut forced, model.vocabulary.as_ref(), until, || bar.inc(1));
    bar.finish_and_clear();
    if stop.load(Ordering::SeqCst) {
        return Err(quantize::Error::Cancelled.into());
    }
    Ok(Some(found?))
}

/// What was made, and what it costs.
struct Report<'a> {
    args: &'a Quantize,
    config: &'a Config,
    quantized: &'a QuantizedModel,
    /// Tokens of the calibration text.
    calibration: usize,
    perplexity: Option<(Evaluation, Evaluation)>,
    seconds: f64,
}

impl Report<'_> {
    fn parameters(&self) -> usize {
        self.config.parameters()
    }

    fn bits(&self) -> f64 {
        8.0 * self.quantized.bytes() as f64 / self.parameters().max(1) as f64
    }

    fn json(&self) -> Value {
        let tensor = |tensor: &QuantizedTensor| {
            json!({
                "name": tensor.slot.name(), "shape": tensor.slot.shape(self.config), "bytes": tensor.bytes,
                "bits": tensor.pieces.first().map(|piece| piece.encoding.bits()),
                "weight_error": tensor.weight_error, "product_error": tensor.product_error,
            })
        };
        let perplexity = self.perplexity.map(|(before, after)| {
            json!({ "before": before.perplexity(), "after": after.perplexity(), "tokens": after.scored })
        });
        json!({
            "model": self.args.model.display().to_string(), "output": self.args.output.display().to_string(),
            "weights": self.quantized.form.name(), "parameters": self.parameters(),
            "fp16_bytes": 2 * self.parameters(), "bytes": self.quantized.bytes(), "bits_per_weight": self.bits(),
            "calibration_tokens": self.calibration, "perplexity": perplexity, "seconds": self.seconds,
            "kept": self.quantized.kept().map(|tensor| tensor.slot.name()).collect::<Vec<_>>(),
            "tensors": self.quantized.tensors.iter().map(tensor).collect::<Vec<_>>(),
        })
    }

    fn print(&self) -> Result<()> {
        let coded = |tensor: &&QuantizedTensor| !tensor.pieces.is_empty();
        let tensors: Vec<&QuantizedTensor> = self.quantized.tensors.iter().filter(coded).collect();
        out::line(format_args!("{:<22} {:>4} {:>12} {:>9} {:>9}", "tensor", "bits", "bytes", "weights", "products"))?;
        if self.args.tensors {
            tensors.iter().try_for_each(|tensor| line(&tensor.slot.name(), &[tensor]))?;
        } else {
            // One line for the same matrix of all layers.
            let name = |slot: Slot| match slot {
                Slot::Layer(_, part) => format!("layers.*.{}", part.name()),
                other => other.name(),
            };
            let mut names: Vec<String> = Vec::new();
            for tensor in &tensors {
                if !names.contains(&name(tensor.slot)) {
                    names.push(name(tensor.slot));
                }
            }
            for wanted in names {
                let group: Vec<_> = tensors.iter().copied().filter(|tensor| name(tensor.slot) == wanted).collect();
                line(&wanted, &group)?;
            }
        }
        let kept: Vec<String> = self.quantized.kept().map(|tensor| tensor.slot.name()).collect();
        if !kept.is_empty() {
            out::note(format_args!("fp16, because rows are no whole blocks, or for routing: {}", kept.join(", ")));
        }
        if let Some((before, after)) = self.perplexity {
            let change = 100.0 * (after.perplexity() / before.perplexity() - 1.0);
            out::line(format_args!(
                "perplexity {:.4} before, {:.4} after ({change:+.2} %) over {} tokens",
                before.perplexity(),
                after.perplexity(),
                after.scored
            ))?;
        }
        out::line(format_args!(
            "{}: {} parameters as {}, {:.2} MB instead of {:.2} MB in fp16 ({:.2} bits a weight), in {:.1} s",
            self.args.output.display(),
            self.parameters(),
            self.quantized.form.name(),
            self.quantized.bytes() as f64 / 1e6,
            2.0 * self.parameters() as f64 / 1e6,
            self.bits(),
            self.seconds
        ))
    }
}

/// A line of the table: of one tensor, or the mean errors of several.
fn line(name: &str, tensors: &[&QuantizedTensor]) -> Result<()> {
    let count = tensors.len().max(1) as f64;
    let bits = tensors.first().and_then(|tensor| tensor.pieces.first()).map_or(16, |piece| piece.encoding.bits());
    let bytes: usize = tensors.iter().map(|tensor| tensor.bytes).sum();
    let weights = tensors.iter().map(|tensor| tensor.weight_error).sum::<f64>() / count;
    let products: Option<f64> = tensors.iter().map(|tensor| tensor.product_error).sum();
    let products = products.map_or("-".to_string(), |sum| format!("{:.3} %", 100.0 * sum / count));
    out::line(format_args!("{name:<22} {bits:>4} {bytes:>12} {:>7.3} % {products:>9}", 100.0 * weights))
}
