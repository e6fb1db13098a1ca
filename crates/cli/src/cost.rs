//! `ferrane cost`: what a program costs on a chip, and published numbers beside predicted ones.

use std::fs;
use std::path::Path;

use ferrane::llm::config::{Config, preset};
use ferrane::llm::kernels;
use ferrane::llm::layout::{Kernel, Residual, Shape, WeightForm};
use ferrane::machine::Profile;
use ferrane::machine::cost::published::{ChipError, Comparison, ErrorSummary, Pipelines, compare};
use ferrane::machine::cost::{Cost, CostModel, KernelCost, StepCost, StepShape, predict, predict_step, roofline_svg};
use serde_json::{Map, Value, json};

use crate::args;
use crate::error::{Error, Result};
use crate::program::{self, Care};
use crate::{files, out};

/// Tokens of a window in the published training runs (training-dynamic §4).
const WINDOW: usize = 256;

/// Runs the command.
pub fn run(args: args::Cost) -> Result<()> {
    match (&args.published, &args.program) {
        (Some(file), _) => published(file, args.json),
        (None, Some(file)) => program(&args, file),
        (None, None) => Err(Error::new("name a program, or a file of published numbers with --published")),
    }
}

/// The model of a target: a profile (`m4-macos15-inmem`) or a chip (`m4`).
pub fn model(target: &str) -> Result<CostModel> {
    let profile = Profile::find(target).map_err(|e| Error::new(format!("--machine: {e}")))?;
    CostModel::for_profile(&profile).map_err(|e| Error::new(format!("--machine {target}: {e}")))
}

/// What a training step of the dynamic pipeline costs; none where the chip's CPU is not known.
pub fn step(shape: &Shape, vocab: usize, model: &CostModel) -> Result<Option<StepCost>> {
    let config = &shape.config;
    let mut costs = Vec::new();
    for kernel in Kernel::ALL {
        let (program, _) = kernels::build(shape, kernel)?;
        costs.push(KernelCost { name: kernel.name().to_string(), cost: predict(&program, model)? });
    }
    let sizes = StepShape {
        layers: config.layers,
        dim: config.dim,
        hidden: config.hidden,
        q_dim: config.q_dim(),
        kv_dim: config.kv_dim(),
        heads: config.heads,
        seq: shape.seq,
        vocab,
    };
    Ok(predict_step(&sizes, &costs, model))
}

fn program(args: &args::Cost, file: &Path) -> Result<()> {
    let model = model(&args.machine)?;
    let program = program::load(file, Care::Text)?.program;
    let cost = predict(&program, &model).map_err(|e| Error::new(format!("{}: {e}", file.display())))?;
    if let Some(picture) = &args.svg {
        fs::write(picture, roofline_svg(&cost, &model)).map_err(|e| files::failed(picture, e))?;
    }
    if args.json { out::line(object(args, &cost, &model)) } else { show(&cost) }
}

fn object(args: &args::Cost, cost: &Cost, model: &CostModel) -> Value {
    let ops: Vec<Value> = cost
        .ops
        .iter()
        .map(|op| {
            json!({
                "name": op.name, "op": op.op, "us": op.us, "bound": op.bound.map(|b| b.name()), "flops": op.flops,
                "bytes_weights": op.bytes_weights, "bytes_in": op.bytes_in, "bytes_out": op.bytes_out,
            })
        })
        .collect();
    let constants: Map<String, Value> = model
        .constants
        .all()
        .into_iter()
        .map(|(name, c)| (name.to_string(), json!({"value": c.value, "source": c.source})))
        .collect();
    json!({
        "target": args.machine, "chip": cost.chip, "compile_ms": cost.compile_ms, "dispatch_us": cost.dispatch_us,
        "total_us": cost.total_us, "bound": cost.bound.name(), "energy_mj": cost.energy_mj, "flops": cost.flops,
        "bytes": cost.bytes, "ops": ops, "constants": constants,
    })
}

fn show(cost: &Cost) -> Result<()> {
    out::line(format_args!("{:>10}  {:<8} {:<28} {:>10} {:>10}  name", "us", "bound", "op", "MFLOP", "MB"))?;
    let mut free = 0;
    for op in &cost.ops {
        let Some(bound) = op.bound else {
            free += 1;
            continue;
        };
        let bytes = [op.bytes_weights, op.bytes_in, op.bytes_out].iter().fold(0u64, |n, b| n.saturating_add(*b));
        out::line(format_args!(
            "{:>10.2}  {:<8} {:<28} {:>10.2} {:>10.3}  {}",
            op.us,
            bound.name(),
            op.op,
            op.flops as f64 / 1e6,
            bytes as f64 / 1e6,
            op.name
        ))?;
    }
    if free > 0 {
        out::line(format_args!("{free} more ops take no time: views, and what another op carries out"))?;
    }
    out::line(format_args!("{:>10.2}  dispatch", cost.dispatch_us))?;
    let rate = cost.flops as f64 / cost.total_us / 1e6;
    out::line(format_args!(
        "{:>10.2}  an evaluation on {}, bound by {} ({rate:.2} TFLOPS)",
        cost.total_us,
        cost.chip,
        cost.bound.name()
    ))?;
    out::line(format_args!("compile {:.1} ms, once", cost.compile_ms))?;
    match cost.energy_mj {
        Some(energy) => out::line(format_args!("energy {energy:.3} mJ an evaluation")),
        None => out::line(format_args!("energy unknown: no power is published for {}", cost.chip)),
    }
}

/// The models of published training runs.
struct Trained;

impl Pipelines for Trained {
    fn dynamic(&self, model: &str, cost: &CostModel) -> Option<StepCost> {
        let config = preset(&model.to_lowercase()).ok()?;
        let vocab = used(&config);
        let shape = Shape::new(config, WINDOW, Residual::Fp16, WeightForm::Packed);
        step(&shape, vocab, cost).ok()?
    }
}

/// Ids that the published data use: 9205 of 32000; a sixteenth and a half of 151936 (published
/// vocabulary compaction).
fn used(config: &Config) -> usize {
    if config.vocab == 32000 { 9205 } else { (config.vocab as f64 / 16.5) as usize }
}

fn published(file: &Path, as_json: bool) -> Result<()> {
    let bytes = files::read_text(file)?;
    let text = String::from_utf8_lossy(&bytes);
    let report = compare(&text, &Trained).map_err(|e| Error::new(format!("{}: {e}", file.display())))?;
    if as_json { out::line(rows(&report)) } else { table(&report) }
}

fn rows(report: &Comparison) -> Value {
    let rows: Vec<Value> = report
        .rows
        .iter()
        .map(|row| match &row.outcome {
            Ok(p) => json!({
                "record": row.record, "published": p.published, "predicted": p.predicted, "unit": p.unit, "error": p.error(),
            }),
            Err(why) => json!({"record": row.record, "reason": why.reason}),
        })
        .collect();
    json!({"rows": rows, "kernels": summary(&report.kernels)})
}

fn summary(summary: &ErrorSummary) -> Value {
    let one = |e: &ChipError| json!({"rows": e.rows, "median_error": e.median, "noise": e.noise});
    let chips: Map<String, Value> = summary.chips.iter().map(|(chip, e)| (chip.clone(), one(e))).collect();
    json!({"pooled": one(&summary.pooled), "chips": chips})
}

fn table(report: &Comparison) -> Result<()> {
    let text = |record: &Value, key: &str| record.get(key).and_then(Value::as_str).unwrap_or("").to_string();
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    out::line(format_args!("{:>12} {:>12} {:>8}  unit", "published", "predicted", "error"))?;
    for row in &report.rows {
        match &row.outcome {
            Ok(p) => {
                let error = p.error().map_or(String::new(), |e| format!("{:+.1} %", 100.0 * e));
                let (r, config) = (&row.record, row.record.get("config").map(Value::to_string).unwrap_or_default());
                let named = format!("{}, {}, {} {config}", text(r, "chip"), text(r, "what"), text(r, "metric"));
                let (a, b, unit) = (p.published, p.predicted, &p.unit);
                out::line(format_args!("{a:>12.4} {b:>12.4} {error:>8}  {unit:<10} {named}"))?;
            }
            Err(why) => match reasons.iter_mut().find(|(known, _)| *known == why.reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((why.reason, 1)),
            },
        }
    }
    let predicted = report.rows.iter().filter(|r| r.outcome.is_ok()).count();
    out::line(format_args!("\n{predicted} of {} records predicted; the others:", report.rows.len()))?;
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in reasons {
        out::line(format_args!("{count:>6}  {reason}"))?;
    }
    out::line("\nmedian error over kernel rows, and the noise between replicates:")?;
    let all = ("all".to_string(), report.kernels.pooled);
    for (chip, e) in report.kernels.chips.iter().map(|(c, e)| (c.clone(), *e)).chain([all]) {
        let noise = e.noise.map_or("none".to_string(), |n| format!("{:.1} %", 100.0 * n));
        out::line(format_args!("{chip:<10} {:>5} rows {:>7.1} %   noise {noise}", e.rows, 100.0 * e.median))?;
    }
    Ok(())
}
