//! One training step of a model with random weights and random tokens.
//!
//! A *micro-step* is the forward and backward pass of one window. An *update* is the gradient norm,
//! AdamW, and the transfer of the new weights to their surfaces, which the reference trainer leaves
//! out of its step time.

mod sweep;

use std::fmt;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use ferrane_device::Device;
use ferrane_host::memory::peak_resident;
use ferrane_host::random::Rng;
use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::Config;
use ferrane_llm::layout::{PipelineKind, Residual, Shape, WeightForm};
use ferrane_llm::weights::{Init, Weights};
use ferrane_train::metrics::timeline::{SpanKind, Tracer};
use ferrane_train::metrics::{Flops, Memory, Timeline};
use ferrane_train::optim::{AdamW, Gradients, Moments, Update, clip_factor, norms};
use ferrane_train::step::{Engine, Parts, Pipeline, ReferenceEngine};
use serde::Serialize;

pub use sweep::{Axis, SweepFit, SweepPoint, SweepReport, sweep};

use crate::computer::Computer;
use crate::error::{Error, Result};
use crate::spread::{Spread, checked_count, rounded};

/// Loss scale of the measured steps.
const SCALE: f32 = 256.0;
/// Steps that warm up.
const WARM_UP: usize = 2;

/// What [`step`] and [`sweep`] measure.
#[derive(Clone)]
pub struct StepOptions<'a> {
    /// The name of the model in the report.
    pub model: String,
    /// Its configuration. Its context grows if the window needs it.
    pub config: Config,
    /// Entries of the vocabulary that are in use; if `None`, all.
    pub vocab: Option<usize>,
    /// Tokens in the window.
    pub seq: usize,
    /// Measured steps, after two that warm up.
    pub repeat: usize,
    /// How the residual stream is stored.
    pub residual: Residual,
    /// How weights reach the linear kernels of the dynamic pipeline.
    pub weights: WeightForm,
    /// The kernels of a step. Those of the static pipeline are compiled again in each measured
    /// micro-step, since an update precedes it.
    pub pipeline: PipelineKind,
    /// Layers whose activations are kept ([`Pipeline::recomputing`]); if `None`, all.
    pub recompute: Option<NonZeroUsize>,
    /// The device that runs the kernels; if `None`, the fp32 reference computes.
    pub device: Option<&'a Device>,
    /// The name of the device in the report.
    pub device_name: String,
}

impl StepOptions<'_> {
    /// The configuration and the number of vocabulary entries in use.
    fn checked(&self) -> Result<(Config, usize)> {
        checked_count("repeat", self.repeat)?;
        let most = ferrane_llm::config::MAX_POSITIONS;
        if self.seq == 0 || self.seq > most {
            return Err(Error::option("seq", self.seq, format!("give 1 to {most} tokens")));
        }
        let (all, active) = (self.config.vocab, self.vocab.unwrap_or(self.config.vocab));
        if active < 2 || active > all {
            return Err(Error::option("vocab", active, format!("{} has {all} entries; give 2 to {all}", self.model)));
        }
        if self.device.is_none() && active < all {
            return Err(Error::option("vocab", active, "the reference computes the whole vocabulary; leave it out"));
        }
        Ok((Config { max_seq: self.config.max_seq.max(self.seq), ..self.config.clone() }, active))
    }
}

/// The medians of the parts of a micro-step, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PartTimes {
    /// Requests of the forward pass.
    #[serde(serialize_with = "rounded")]
    pub device_forward_ms: f64,
    /// Requests of the backward pass.
    #[serde(serialize_with = "rounded")]
    pub device_backward_ms: f64,
    /// Copies between CPU activations and surfaces.
    #[serde(serialize_with = "rounded")]
    pub staging_ms: f64,
    /// Norms, residuals, rotary gradient, SiLU gradient on the CPU.
    #[serde(serialize_with = "rounded")]
    pub elementwise_ms: f64,
    /// Embedding, classifier and cross-entropy on the CPU, their gradients included.
    #[serde(serialize_with = "rounded")]
    pub classifier_ms: f64,
    /// Weight gradients of the layers, which overlap the other parts.
    #[serde(serialize_with = "rounded")]
    pub weight_gradients_ms: f64,
    /// Waiting for the weight gradients at the end of the step.
    #[serde(serialize_with = "rounded")]
    pub waiting_ms: f64,
}

impl PartTimes {
    fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("device forward", self.device_forward_ms),
            ("device backward", self.device_backward_ms),
            ("staging", self.staging_ms),
            ("elementwise", self.elementwise_ms),
            ("classifier", self.classifier_ms),
            ("weight gradients", self.weight_gradients_ms),
            ("waiting", self.waiting_ms),
        ]
    }
}

/// The times of measured steps.
struct Measured {
    micro: Spread,
    update: Spread,
    parts: PartTimes,
    memory: Memory,
}

/// What [`step`] measured. Prints as a few lines.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// The preset, or whatever the caller calls the model.
    pub model: String,
    /// The device as it was opened.
    pub device: String,
    /// The name of the pipeline; `None` without a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineKind>,
    /// Layers whose activations were kept; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recompute: Option<NonZeroUsize>,
    /// Tokens in the window.
    pub seq: usize,
    /// Entries of the vocabulary that are in use.
    pub vocab: usize,
    /// Entries of the vocabulary.
    #[serde(skip)]
    pub full_vocab: usize,
    /// Parameters of the model.
    pub parameters: usize,
    /// The median of [`StepReport::micro_step`].
    #[serde(serialize_with = "rounded")]
    pub micro_step_ms: f64,
    /// The median of [`StepReport::update`].
    #[serde(serialize_with = "rounded")]
    pub update_ms: f64,
    /// GFLOP/s of the median micro-step.
    #[serde(serialize_with = "rounded")]
    pub gflops: f64,
    /// Largest resident memory in MiB; `None` if the system does not report it.
    #[serde(serialize_with = "rounded_option")]
    pub peak_rss_mb: Option<f64>,
    /// The number of measured steps, without those that warm up.
    pub steps: usize,
    /// Where the time of a micro-step goes.
    pub parts: PartTimes,
    /// Forward and backward pass of a window.
    pub micro_step: Spread,
    /// Gradient norm, AdamW and transfer of the weights.
    pub update: Spread,
    /// The computer that the times come from.
    #[serde(rename = "machine")]
    pub computer: Computer,
    /// The bytes that each owner holds at the end. Set it to `None` to leave it out of the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

fn rounded_option<S: serde::Serializer>(value: &Option<f64>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    value.map(crate::spread::round).serialize(serializer)
}

/// Measures training steps. A timeline records the spans of micro-steps and updates.
///
/// # Errors
/// [`Error::Option`] for a window, a vocabulary or a number of repeats that cannot be measured,
/// [`Error::Step`], and [`Error::WrongResult`] if a step is not finite.
pub fn step(options: &StepOptions<'_>, timeline: Option<&Timeline>) -> Result<StepReport> {
    let (config, active) = options.checked()?;
    let Measured { micro, update, parts, memory } = measured(options, &config, active, timeline)?;
    Ok(StepReport {
        model: options.model.clone(),
        device: options.device_name.clone(),
        pipeline: options.device.map(|_| options.pipeline),
        recompute: options.device.and(options.recompute),
        seq: options.seq,
        vocab: active,
        full_vocab: config.vocab,
        parameters: config.parameters(),
        micro_step_ms: micro.median(),
        update_ms: update.median(),
        gflops: Flops::new(&config, options.seq, active).total() / micro.median() / 1e6,
        peak_rss_mb: memory.peak.map(|bytes| bytes as f64 / f64::from(1 << 20)),
        steps: micro.count(),
        parts,
        micro_step: micro,
        update,
        computer: Computer::detect(),
        memory: Some(memory),
    })
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepReport { model, device, seq, vocab, full_vocab, .. } = self;
        let pipeline = self.pipeline.map_or(String::new(), |kind| format!(", {} pipeline", kind.name()));
        let kept = self.recompute.map_or(String::new(), |layers| format!(", activations of {layers} layers kept"));
        writeln!(f, "{model} on {device}{pipeline}{kept}: {seq} tokens, {vocab} of {full_vocab} vocabulary entries")?;
        writeln!(f, "  {}", self.computer)?;
        let (micro, gflops, steps) = (&self.micro_step, self.gflops, self.steps);
        writeln!(f, "  micro-step {micro}   {gflops:.0} GFLOP/s   (of {steps})")?;
        writeln!(f, "  update     {}", self.update)?;
        for (name, ms) in self.parts.named() {
            writeln!(f, "    {name:20} {ms:9.1} ms")?;
        }
        writeln!(f, "  weight gradients overlap the other parts; waiting is what is left of them at the end")?;
        self.peak_rss_mb.iter().try_for_each(|rss| writeln!(f, "  peak memory {rss:.0} MB"))?;
        self.memory.iter().try_for_each(|memory| write!(f, "{memory}"))
    }
}

/// Steps of `options.seq` tokens over `active` entries of the vocabulary.
fn measured(
    options: &StepOptions<'_>,
    config: &Config,
    active: usize,
    timeline: Option<&Timeline>,
) -> Result<Measured> {
    let mut weights = Weights::init(config, Init::Normal { std: 0.02 }, 1);
    // As in a training run: the model keeps its vocabulary, the data use a part of it.
    let spread = (config.vocab / active).max(1) as u32;
    let compaction = Compaction::used((0..active as u32).map(|i| i * spread), config.vocab);
    let mut engine: Box<dyn Engine> = match options.device {
        None => Box::new(ReferenceEngine::new(config.clone())),
        Some(device) => {
            let shape = Shape::new(config.clone(), options.seq, options.residual, options.weights);
            let shape = shape.with_pipeline(options.pipeline);
            Box::new(Pipeline::recomputing(device, shape, compaction.clone(), &weights, options.recompute)?)
        }
    };
    if let Some(timeline) = timeline {
        engine.record(timeline);
    }
    let mut gradients = Gradients::new(config);
    let mut moments = Moments::zeros(config);
    let mut rng = Rng::new(7);
    let mut rows: Vec<(Duration, Duration, Parts)> = Vec::new();
    for count in 1..=(options.repeat + WARM_UP) as u64 {
        let mut id = || compaction.compact_to_full()[rng.below(active as u64) as usize];
        let ids: Vec<u32> = (0..=options.seq).map(|_| id()).collect();
        let begun = Instant::now();
        let micro = engine.micro_step(&weights, &mut gradients, &ids[..options.seq], &ids[1..], SCALE)?;
        let micro_time = begun.elapsed();
        if !micro.finite {
            return Err(Error::WrongResult("a measured step is not finite".into()));
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
    let part = |of: fn(&Parts) -> Duration| Spread::ms(rows.iter().map(|r| of(&r.2))).median();
    let parts = PartTimes {
        device_forward_ms: part(|p| p.device_forward),
        device_backward_ms: part(|p| p.device_backward),
        staging_ms: part(|p| p.staging),
        elementwise_ms: part(|p| p.elementwise),
        classifier_ms: part(|p| p.classifier),
        weight_gradients_ms: part(|p| p.weight_gradients),
        waiting_ms: part(|p| p.waiting),
    };
    let memory = Memory::new(config, engine.memory(), peak_resident());
    let (micro, update) = (Spread::ms(rows.iter().map(|r| r.0)), Spread::ms(rows.iter().map(|r| r.1)));
    Ok(Measured { micro, update, parts, memory })
}
