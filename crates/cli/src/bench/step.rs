//! `ferrane bench step`: one training step of a preset with random weights and random tokens.
//!
//! Reported are medians over the measured steps; two more warm up. A micro-step is forward and
//! backward of one window; an update is the norm, AdamW and re-staging of every weight surface,
//! which the reference trainer leaves out of its step time (upstream-defects #12).

use std::time::{Duration, Instant};

use ferrane::llm::compaction::Compaction;
use ferrane::llm::config::{Config, preset};
use ferrane::llm::layout::Shape;
use ferrane::llm::random::Rng;
use ferrane::llm::weights::{Init, Weights};
use ferrane::train::metrics::timeline::{SpanKind, Tracer};
use ferrane::train::metrics::{Flops, Memory, Timeline};
use ferrane::train::optim::{AdamW, Gradients, Moments, Update, clip_factor, norms};
use ferrane::train::step::{Engine, Parts, Pipeline, ReferenceEngine};
use ferrane_host::memory::peak_resident;
use serde_json::{Map, Value, json};

use super::measure::{self, Spread, round};
use super::{machine, sweep};
use crate::args::BenchStep;
use crate::error::{Error, Result};
use crate::{memory, model, out, timeline_file};

/// Loss scale of the measured steps.
const SCALE: f32 = 256.0;
/// Steps that warm up.
const WARM_UP: usize = 2;

/// Runs the command.
pub fn run(args: BenchStep) -> Result<()> {
    let config = preset(&args.model)?;
    model::window(args.seq)?;
    measure::repeats("--repeat", args.repeat)?;
    let active = args.vocab.unwrap_or(config.vocab);
    if active < 2 || active > config.vocab {
        return Err(Error::new(format!(
            "--vocab {active}: {} has {} entries; name 2 or more of them",
            args.model, config.vocab
        )));
    }
    let config = Config { max_seq: config.max_seq.max(args.seq), ..config };
    if let Some(what) = args.sweep {
        return sweep::run(&args, what, &config, active);
    }
    let trace = args.timeline.as_deref().map(timeline_file::open).transpose()?;
    let steps = steps(&args, &config, args.seq, active, trace.as_ref().map(|(_, timeline)| timeline))?;
    if let Some((file, timeline)) = trace {
        timeline_file::write(file, &timeline)?;
    }
    let gflops = Flops::new(&config, args.seq, active).total() / steps.micro.median() / 1e6;
    let rss = peak_resident().map(|bytes| bytes as f64 / f64::from(1 << 20));
    if args.json {
        let parts: Map<_, _> = steps.parts.iter().map(|(name, ms)| (name.to_string(), round(*ms).into())).collect();
        let spread = |s: &Spread| Value::Object(s.json("ms"));
        let mut object = json!({
            "model": args.model, "device": args.device.device, "seq": args.seq, "vocab": active,
            "parameters": config.parameters(), "micro_step_ms": round(steps.micro.median()),
            "update_ms": round(steps.update.median()), "gflops": round(gflops), "peak_rss_mb": rss.map(round),
            "steps": steps.micro.count(), "parts": parts, "micro_step": spread(&steps.micro),
            "update": spread(&steps.update), "machine": machine::describe(),
        });
        if let (Some(account), Some(object)) = (&steps.memory, object.as_object_mut()) {
            object.insert("memory".into(), memory::json(account));
        }
        return out::line(object);
    }
    out::line(format_args!(
        "{} on {}: {} tokens, {active} of {} vocabulary entries",
        args.model, args.device.device, args.seq, config.vocab
    ))?;
    out::line(format_args!("  {}", machine::line()))?;
    let count = steps.micro.count();
    out::line(format_args!("  micro-step {}   {gflops:.0} GFLOP/s   (of {count})", steps.micro.text("ms")))?;
    out::line(format_args!("  update     {}", steps.update.text("ms")))?;
    for (name, ms) in steps.parts {
        out::line(format_args!("    {:20} {ms:9.1} ms", name.trim_end_matches("_ms").replace('_', " ")))?;
    }
    out::line(format_args!("  weight gradients overlap the other parts; waiting is what was left of them at the end"))?;
    if let Some(rss) = rss {
        out::line(format_args!("  peak memory {rss:.0} MB"))?;
    }
    steps.memory.iter().try_for_each(memory::show)
}

/// What was measured.
pub struct Steps {
    /// Forward and backward of a window.
    pub micro: Spread,
    /// Norm, AdamW and re-staging.
    pub update: Spread,
    /// The median of each part of a micro-step, in milliseconds.
    parts: [(&'static str, f64); 7],
    /// Who held the memory, if it is asked for.
    memory: Option<Memory>,
}

/// Measures steps of `seq` tokens over `active` entries of the vocabulary.
pub fn steps(
    args: &BenchStep,
    config: &Config,
    seq: usize,
    active: usize,
    timeline: Option<&Timeline>,
) -> Result<Steps> {
    let mut weights = Weights::init(config, Init::Normal { std: 0.02 }, 1);
    // As a training run would find it: the model keeps its vocabulary, the data use a part of it.
    let spread = (config.vocab / active).max(1) as u32;
    let compaction = Compaction::used((0..active as u32).map(|i| i * spread), config.vocab);
    let mut engine: Box<dyn Engine> = match model::device(&args.device.device)? {
        None if active < config.vocab => {
            return Err(Error::new("the reference computes the whole vocabulary; leave --vocab out"));
        }
        None => Box::new(ReferenceEngine::new(config.clone())),
        Some(device) => {
            let shape = Shape::new(config.clone(), seq, args.residual.into(), args.weights.into());
            Box::new(Pipeline::new(&device, shape, compaction.clone(), &weights)?)
        }
    };
    if let Some(timeline) = timeline {
        engine.record(timeline);
    }
    let mut gradients = Gradients::new(config);
    let mut moments = Moments::zeros(config);
    let mut rng = Rng::new(7);
    let mut rows = Vec::new();
    for count in 1..=(args.repeat + WARM_UP) as u64 {
        let ids: Vec<u32> =
            (0..=seq).map(|_| compaction.compact_to_full()[rng.below(active as u64) as usize]).collect();
        let begun = Instant::now();
        let micro = engine.micro_step(&weights, &mut gradients, &ids[..seq], &ids[1..], SCALE)?;
        let micro_time = begun.elapsed();
        if !micro.finite {
            return Err(Error::new("a measured step was not finite"));
        }
        let begun = Instant::now();
        let span = timeline.map_or(Tracer::off(), Timeline::update).span(SpanKind::Update, "update", None);
        let norm = norms(config, &gradients).scaled(1.0 / f64::from(SCALE)).total;
        let factor = clip_factor(norm, 1.0) / f64::from(SCALE);
        let (optimizer, lr) = (AdamW::default(), 1e-4);
        let (weights, gradients, moments) = (&mut weights, &mut gradients, &mut moments);
        engine.update(Update { optimizer, config, weights, gradients, moments, lr, factor, count })?;
        drop(span);
        rows.push((micro_time, begun.elapsed(), micro.parts));
    }
    let rows = &rows[WARM_UP..];
    let all = |of: &dyn Fn(&(Duration, Duration, Parts)) -> Duration| Spread::ms(rows.iter().map(of));
    let parts = [
        ("device_forward_ms", all(&|r| r.2.device_forward)),
        ("device_backward_ms", all(&|r| r.2.device_backward)),
        ("staging_ms", all(&|r| r.2.staging)),
        ("elementwise_ms", all(&|r| r.2.elementwise)),
        ("classifier_ms", all(&|r| r.2.classifier)),
        ("weight_gradients_ms", all(&|r| r.2.weight_gradients)),
        ("waiting_ms", all(&|r| r.2.waiting)),
    ]
    .map(|(name, spread)| (name, spread.median()));
    let memory = args.memory.then(|| Memory::new(config, engine.memory(), peak_resident()));
    Ok(Steps { micro: all(&|r| r.0), update: all(&|r| r.1), parts, memory })
}
