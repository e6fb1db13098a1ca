//! `ferrane bench`: how long things take on this computer, measured by `ferrane_perf`.

mod reports;
pub(crate) mod suite;

use std::fmt::{self, Display};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use ferrane::Model;
use ferrane::llm::config::preset;
use ferrane::llm::cost::{GenerationShape, generation};
use ferrane::llm::decode::quantize::WeightType;
use ferrane::llm::weights::WeightSource;
use ferrane::train::metrics::Timeline;
use ferrane_perf::dispatch::dispatch;
use ferrane_perf::gemm::{GemmOptions, gemm};
use ferrane_perf::llm::{LlmOptions, LlmReport, llm};
use ferrane_perf::program::ProgramOptions;
use ferrane_perf::step::{StepOptions, step, sweep};
use serde::Serialize;

use crate::args::{Bench, BenchDispatch, BenchGemm, BenchLlm, BenchProgram, BenchStep, SweepArg};
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{cost, files, model, out, run as runs, timeline_file};

/// Runs `ferrane bench`.
pub fn run(bench: Bench) -> Result<()> {
    match bench {
        Bench::Step(args) => bench_step(args),
        Bench::Gemm(args) => bench_gemm(args),
        Bench::Llm(args) => bench_llm(&args),
        Bench::Program(args) => bench_program(args),
        Bench::Dispatch(args) => bench_dispatch(args),
        Bench::Suite(args) => suite::run(&args),
        Bench::Compare(args) => reports::compare(&args),
        Bench::Report(args) => reports::report(&args),
        Bench::Convert(args) => reports::convert(&args),
    }
}

/// Writes the plot of a report, if one is wanted, and prints the report.
fn plotted(
    path: Option<&Path>,
    json: bool,
    report: &(impl Display + Serialize),
    plot: impl FnOnce() -> ferrane_perf::Result<String>,
) -> Result<()> {
    let Some(path) = path else { return out::report(json, report) };
    files::replace(path, plot()?.as_bytes())?;
    out::report(json, report)?;
    if json { Ok(()) } else { out::line(format_args!("  written to {}", path.display())) }
}

fn bench_step(args: BenchStep) -> Result<()> {
    let device = model::device(&args.device.device)?;
    let options = StepOptions {
        config: preset(&args.model)?,
        model: args.model,
        vocab: args.vocab,
        seq: args.seq,
        repeat: args.repeat,
        residual: args.residual.into(),
        weights: args.weights.into(),
        pipeline: args.pipeline.into(),
        recompute: NonZeroUsize::new(args.recompute),
        device: device.as_ref(),
        device_name: args.device.device,
    };
    if let Some(axis) = args.sweep {
        return bench_sweep(&options, axis, args.plot.as_deref(), args.json);
    }
    let trace = args.timeline.as_deref().map(timeline_file::open).transpose()?;
    let timeline: Option<&Timeline> = trace.as_ref().map(|(_, timeline)| timeline);
    let mut report = step(&options, timeline)?;
    if let Some((file, timeline)) = trace {
        timeline_file::write(file, &timeline)?;
    }
    if !args.memory {
        report.memory = None;
    }
    out::report(args.json, &report)
}

fn bench_sweep(options: &StepOptions<'_>, axis: SweepArg, plot: Option<&Path>, json: bool) -> Result<()> {
    let report = sweep(options, axis.into(), |point| if json { Ok(()) } else { out::line(point) })?;
    plotted(plot, json, &report, || report.plot())
}

fn bench_gemm(args: BenchGemm) -> Result<()> {
    let types = args.types.into_iter().map(Into::into).collect();
    let options = GemmOptions { shapes: args.shapes, types, cold: args.cold, repeat: args.repeat };
    let report = gemm(&options)?;
    plotted(args.roofline.as_deref(), args.json, &report, || report.roofline())
}

fn bench_llm(args: &BenchLlm) -> Result<()> {
    let Some(device) = model::device(&args.device.device)? else {
        return Err(Error::new("--device reference decodes without a device and is not measured; name a device"));
    };
    let (config, opened) = match preset(&args.model) {
        Err(_) if Path::new(&args.model).exists() => {
            let opened = model::open(Path::new(&args.model), None)?;
            (opened.config.clone(), Some(opened))
        }
        found => (found?, None),
    };
    let types: Vec<WeightType> = args.types.iter().map(|of| (*of).into()).collect();
    let options = LlmOptions {
        model: &args.model,
        config: &config,
        weights: opened.as_ref().map(|model| &model.weights as &dyn WeightSource),
        device: &args.device.device,
        types: &types,
        prompt: args.prompt,
        tokens: args.tokens,
        batches: &args.batches,
    };
    // What takes no time is first: a machine may be unknown.
    options.check()?;
    let predicted = predictions(&args.machines, &options)?;
    out::report(args.json, &Generation { report: llm(&device, &options)?, predicted })
}

/// What the cost model predicts for each machine and type of weights.
fn predictions(machines: &[String], options: &LlmOptions<'_>) -> Result<Vec<PredictedGeneration>> {
    let mut rows = Vec::new();
    for machine in machines {
        let (least, model) = (cost::profile(machine)?.min_queries.value.max(1), cost::model(machine)?);
        for &of in options.types {
            let shape = GenerationShape { config: options.config, of, prompt: options.prompt, least };
            let cost = generation(&shape, &model).map_err(|e| Error::new(format!("--machine {machine}: {e}")))?;
            rows.push(PredictedGeneration {
                machine: machine.clone(),
                r#type: of.name(),
                prefill_tokens_per_second: cost.prefill_rate(),
                decode_tokens_per_second: cost.decode_rate(),
                millijoules_per_token: cost.token_mj,
            });
        }
    }
    Ok(rows)
}

/// What was measured of a language model, and what is predicted for chips.
#[derive(Serialize)]
struct Generation {
    #[serde(flatten)]
    report: LlmReport,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    predicted: Vec<PredictedGeneration>,
}

/// Predicted rates of one sequence.
#[derive(Serialize)]
struct PredictedGeneration {
    machine: String,
    r#type: &'static str,
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    millijoules_per_token: Option<f64>,
}

impl Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        for PredictedGeneration { machine, r#type, prefill_tokens_per_second, decode_tokens_per_second, .. } in
            &self.predicted
        {
            writeln!(
                f,
                "predicted for {machine}, {type} weights: prefill {prefill_tokens_per_second:.0} tokens/s, \
                 decode {decode_tokens_per_second:.1} tokens/s"
            )?;
        }
        Ok(())
    }
}

fn bench_program(args: BenchProgram) -> Result<()> {
    if args.steps && !runs::is_emulator(&args.device) {
        let device = &args.device;
        return Err(Error::new(format!("--steps shows the emulator's steps; leave it out with --device {device}")));
    }
    let inputs = runs::sources(&args.inputs, &[])?;
    let device = runs::open(&args.device)?;
    let begun = Instant::now();
    let options = program::options(args.function.as_deref(), &args.shapes);
    let loaded = program::load(&args.program, Care::Whole, &options)?;
    let read = begun.elapsed();
    let model = Model::new(loaded, &options, &inputs)?;
    let emulator = if args.steps { Some(ferrane::emulator(&args.device)?) } else { None };
    let options = ProgramOptions {
        name: args.program.display().to_string(),
        inputs: &model.sources(&inputs),
        seed: args.seed,
        repeat: args.repeat,
        steps: emulator.as_ref(),
        read,
    };
    let report = ferrane_perf::program::program(&device, model.program(), model.function(), &options)?;
    for note in device.notes() {
        out::note(format_args!("note: {note}"));
    }
    out::report(args.json, &report)
}

fn bench_dispatch(args: BenchDispatch) -> Result<()> {
    let device = runs::open(&args.device)?;
    out::report(args.json, &dispatch(&device, args.repeat)?)
}
