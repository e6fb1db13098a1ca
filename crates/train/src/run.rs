//! The training loop.
//!
//! An update accumulates gradients over `accum` micro-steps of `batch` windows each, then computes
//! norm, clipping, and AdamW with staging. All state that determines results (weights, moments and
//! [`State`]) is that between updates, and a checkpoint always stores such a state.
//!
//! A run that is stopped during an update discards it and rewinds to its start, sampler included.
//! That costs at most the work of one update. It makes N updates, stop, resume, M updates equal N +
//! M updates bit for bit, and no partial gradients are written to the disk.
//!
//! A non-finite loss or gradient skips its update: gradients are discarded, weights and moments do
//! not change, and the loss scale is halved. The skip is counted and emitted. The remaining
//! micro-steps of that update are not computed, or, if other ranks have computed them, count as
//! not drawn.

mod control;
mod event;
mod options;
mod report;
mod shard;
mod window;

use options::changes;

pub use control::Control;
pub(crate) use control::SampleText;
pub use event::{Event, Summary};
pub use options::{Change, RunOptions};

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::Config;
use ferrane_llm::weights::{self, Weights};

use crate::checkpoint::{self, AdapterSnapshot, Checkpoint, Snapshot, State, Store};
use crate::data::{self, Corpus, Sampler, Split, Windows};
use crate::lora::{Adapters, Tuning};
use crate::metrics::timeline::{SpanKind, Tracer};
use crate::metrics::{
    Efficiency, EngineMemory, Flops, JsonLines, METRICS, Meter, Record, SensorMeter, Sink, Timeline, finite,
};
use crate::optim::{self, Frozen, Gradients, LossScale, Moments, Update};
use crate::ranks::{RankError, Ranks};
use crate::step::{self, Engine, StepError};

/// The target of the run's log events, which docs/logging.md lists.
const TARGET: &str = "ferrane::train";

/// Number of consecutive skipped updates after which a run ends: the loss scale is then so small
/// that it cannot be the cause.
const GIVE_UP: u64 = 40;

/// Why a run cannot begin or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of [`RunOptions`] has an invalid value.
    #[error("`{name}` {value}: {reason}")]
    Option {
        /// Name of the field.
        name: &'static str,
        /// The value, as text.
        value: String,
        /// The violated condition, as a clause after the value.
        reason: &'static str,
    },
    /// A new run would overwrite an existing one.
    #[error("{}: a run at step {step} is here; resume it, or give another `out`", folder.display())]
    Exists {
        /// Path of the run's folder.
        folder: PathBuf,
        /// Step of its newest checkpoint.
        step: u64,
    },
    /// A resumed run was given other data.
    #[error(
        "the data are not those that this run was begun with (their hash is {found}, not {expected}); to train on \
         other data begin a new run with `init` set to the checkpoint"
    )]
    OtherData {
        /// Beginning of the hash in the checkpoint.
        expected: String,
        /// Beginning of the hash of the given data.
        found: String,
    },
    /// Many consecutive updates were not finite.
    #[error(
        "the run diverged: {skipped} updates in a row were not finite, the last at step {step}; the checkpoint holds the \
         weights before them: resume with a smaller `lr`, or begin again with one if these weights are damaged already"
    )]
    Diverged {
        /// Number of consecutive skipped updates.
        skipped: u64,
        /// Number of updates done, skipped ones included.
        step: u64,
    },
    /// The data are too short for a window, or a file of ids changed during the run.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// The weights do not fit the configuration.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// Adapters cannot be trained with these options or weights.
    #[error(transparent)]
    Lora(#[from] crate::lora::Error),
    /// The ranks of the run cannot work together.
    #[error(transparent)]
    Ranks(#[from] RankError),
    /// The engine failed in a micro-step or an update.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A checkpoint could not be written or read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// A file of the run's folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The cause, as the system reports it.
        source: std::io::Error,
    },
}

/// The training loop with its state: engine, data, weights and checkpoints.
pub struct Run {
    options: RunOptions,
    config: Config,
    engine: Box<dyn Engine>,
    corpus: Corpus,
    windows: Windows,
    sampler: Sampler,
    store: Store,
    weights: Weights,
    gradients: Gradients,
    moments: Moments,
    /// The state of adapters, if these are trained; their values are in `gradients`.
    tuning: Option<Tuning>,
    state: State,
    /// `metrics.jsonl`; `None` after a failed write, which emits one warning.
    lines: Option<JsonLines>,
    efficiency: Efficiency,
    /// Step and path of the newest checkpoint, if any.
    saved: Option<(u64, PathBuf)>,
    changes: Vec<Change>,
    warnings: Vec<String>,
    last_loss: Option<f64>,
    timeline: Option<Timeline>,
    control: Control,
    /// Destinations of records in addition to `metrics.jsonl`.
    sinks: Vec<Box<dyn Sink + Send>>,
    /// Writes samples; `None` without a tokenizer.
    text: Option<SampleText>,
    ranks: Ranks,
    /// The values of the weights whose moments each rank holds, if they are sharded.
    parts: Vec<Range<usize>>,
    /// Whether a checkpoint was requested that needs all ranks.
    save_requested: bool,
    /// Sums of groups after the first one of this rank.
    partial: Vec<Gradients>,
    /// Seconds in which each rank computed its windows of the last update; none without others.
    rank_seconds: Vec<f64>,
    /// Whether all ranks are to stop; false without other ranks, where the stop flag decides.
    agreed_stop: bool,
    /// A sample for the next record.
    sampled: Option<String>,
    meter: Meter,
    /// What the computer draws, if the run reads sensors.
    sensors: Option<SensorMeter>,
    /// When [`Run::run`] began, and the seconds of the run before.
    since: (Instant, f64),
    /// Sum of all pauses since then.
    paused: Duration,
}

/// The result of a validation.
enum Validation {
    /// Interrupted by a stop. It is repeated when the run resumes.
    Stopped,
    /// Complete, with the mean loss; `None` if there are no windows or the loss is not finite.
    Done(Option<f64>),
}

impl Run {
    /// Begins a run in `options.out`, which must contain no checkpoints.
    ///
    /// # Errors
    /// [`Error::Option`], [`Error::Exists`], [`Error::Data`] for too short data,
    /// [`Error::Weights`], [`Error::Checkpoint`] if the folder is in use, [`Error::Io`].
    pub fn new(
        options: RunOptions,
        config: Config,
        weights: Weights,
        corpus: impl Into<Corpus>,
        engine: Box<dyn Engine>,
    ) -> Result<Self, Error> {
        Run::new_with(Ranks::default(), options, config, weights, corpus.into(), engine)
    }

    /// Like [`Run::new`], as one of several ranks, which all begin with the same weights.
    ///
    /// # Errors
    /// As [`Run::new`]. Ranks that do not fit each other are found by [`Run::run`].
    pub fn new_with(
        ranks: Ranks,
        options: RunOptions,
        config: Config,
        weights: Weights,
        corpus: Corpus,
        engine: Box<dyn Engine>,
    ) -> Result<Self, Error> {
        options.check()?;
        let store = if ranks.is_first() { Store::open(&options.out)? } else { Store::shared(&options.out) };
        if ranks.is_first()
            && let Some(step) = store.steps()?.last().copied()
        {
            return Err(Error::Exists { folder: options.out, step });
        }
        let sampler = Sampler::new(options.seed);
        let state = State {
            version: checkpoint::VERSION,
            step: 0,
            updates: 0,
            skipped: 0,
            skipped_in_a_row: 0,
            tokens: 0,
            seconds: 0.0,
            loss_scale: LossScale::default(),
            sampler: sampler.state(),
            options: serde_json::Value::Null,
            data: hex(&corpus),
            tokenizer: None,
            compaction: None,
            validation: None,
            pending: None,
            files: Default::default(),
        };
        let moments = Moments::zeros(&config);
        Run::build(ranks, options, config, weights, moments, state, store, corpus, engine)
    }

    /// Continues from a checkpoint that `store` loaded.
    ///
    /// # Errors
    /// As [`Run::new`], and [`Error::OtherData`].
    pub fn resume(
        options: RunOptions,
        store: Store,
        checkpoint: Checkpoint,
        corpus: impl Into<Corpus>,
        engine: Box<dyn Engine>,
    ) -> Result<Self, Error> {
        Run::resume_with(Ranks::default(), options, store, checkpoint, corpus.into(), engine)
    }

    /// Like [`Run::resume`], as one of several ranks, which all loaded the same checkpoint.
    ///
    /// # Errors
    /// As [`Run::resume`]. Ranks that do not fit each other are found by [`Run::run`].
    pub(crate) fn resume_with(
        ranks: Ranks,
        options: RunOptions,
        store: Store,
        checkpoint: Checkpoint,
        corpus: Corpus,
        engine: Box<dyn Engine>,
    ) -> Result<Self, Error> {
        options.check()?;
        let Checkpoint { path, config, weights, moments, state, warnings, adapters: _ } = checkpoint;
        let found = hex(&corpus);
        if found != state.data {
            let short = |hash: &str| hash.chars().take(12).collect();
            return Err(Error::OtherData { expected: short(&state.data), found: short(&found) });
        }
        let changes = changes(&serde_json::to_value(&options).unwrap_or_default(), &state.options);
        let saved = Some((state.step, path));
        let run = Run::build(ranks, options, config, weights, moments, state, store, corpus, engine)?;
        Ok(Run { changes, warnings, saved, ..run })
    }

    fn build(
        ranks: Ranks,
        options: RunOptions,
        config: Config,
        weights: Weights,
        moments: Moments,
        mut state: State,
        store: Store,
        corpus: Corpus,
        engine: Box<dyn Engine>,
    ) -> Result<Self, Error> {
        if options.groups < ranks.size() {
            let (value, reason) = (options.groups.to_string(), "must be at least the number of ranks");
            return Err(Error::Option { name: "groups", value, reason });
        }
        config.validate().map_err(weights::Error::from)?;
        weights.check(&config)?;
        let windows = corpus.windows(Split::TRAIN, options.seq)?;
        let lines = match ranks.is_first() {
            true => Some(lines(&store, &state)?),
            false => None,
        };
        state.options = serde_json::to_value(&options).unwrap_or_default();
        state.compaction = engine.vocabulary().filter(|v| !v.is_identity()).cloned();
        let vocabulary = engine.vocabulary().map_or(config.vocab, Compaction::len);
        let efficiency = Efficiency::new(Flops::new(&config, options.seq, vocabulary));
        let mut run = Run {
            meter: Meter::new(&efficiency),
            sensors: None,
            since: (Instant::now(), state.seconds),
            paused: Duration::ZERO,
            efficiency,
            control: Control::default(),
            sinks: Vec::new(),
            text: None,
            sampled: None,
            ranks,
            parts: Vec::new(),
            save_requested: false,
            partial: Vec::new(),
            rank_seconds: Vec::new(),
            agreed_stop: false,
            gradients: Gradients::new(&config),
            sampler: Sampler::from_state(&state.sampler),
            last_loss: None,
            timeline: None,
            tuning: None,
            saved: None,
            changes: Vec::new(),
            warnings: Vec::new(),
            options,
            config,
            engine,
            corpus,
            windows,
            store,
            weights,
            moments,
            state,
            lines,
        };
        run.shard();
        Ok(run)
    }

    /// Stores `options`, which contain the loop's options, in the checkpoints instead of these, so
    /// that a session can resume. `before` are the options in the checkpoint that is resumed.
    pub(crate) fn with_origin(
        mut self,
        options: serde_json::Value,
        tokenizer: Option<String>,
        before: Option<&serde_json::Value>,
    ) -> Self {
        self.changes = before.map_or_else(Vec::new, |before| changes(&options, before));
        (self.state.options, self.state.tokenizer) = (options, tokenizer);
        self
    }

    /// Trains these adapters and freezes the weights, which have the adapters' changes already.
    #[must_use]
    pub(crate) fn with_adapters(mut self, tuning: Tuning, values: Adapters) -> Self {
        self.gradients = Gradients::of_adapters(&self.config, values);
        self.efficiency.flops = self.efficiency.flops.frozen();
        (self.tuning, self.moments) = (Some(tuning), Moments::none());
        self
    }

    /// Trains all tensors but these.
    #[must_use]
    pub(crate) fn with_frozen(mut self, frozen: Frozen) -> Self {
        self.gradients = Gradients::without(&self.config, frozen);
        self
    }

    /// The adapters as of the last update, if these are trained.
    pub fn adapters(&self) -> Option<&Adapters> {
        self.gradients.adapters()
    }

    /// Bytes of frozen matrices that a run of adapters holds in addition to the weights.
    pub fn frozen_bytes(&self) -> Option<usize> {
        self.tuning.as_ref().map(Tuning::base_bytes)
    }

    /// Number of trained values.
    pub fn trained(&self) -> usize {
        self.adapters().map_or_else(|| self.gradients.frozen().trained(&self.config), Adapters::parameters)
    }

    /// Records micro-steps until the timeline is full.
    #[must_use]
    pub fn with_timeline(mut self, timeline: &Timeline) -> Self {
        self.engine.record(timeline);
        self.timeline = Some(timeline.clone());
        self
    }

    /// Memory of the engine, in bytes by kind.
    pub fn memory(&self) -> EngineMemory {
        self.engine.memory()
    }

    /// How long the programs that have the current weights as constants took to compile.
    pub(crate) fn constants_time(&self) -> Duration {
        self.engine.constants_time()
    }

    /// Sizes and options of the model.
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// Number of windows of a validation that asks for `count`.
    pub(crate) fn validation_windows(&self, count: usize) -> usize {
        self.windows.validation(count).len()
    }

    /// The weights as of the last update.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The moments as of the last update.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// The state as of the last update.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Trains until the last update, then validates, saves, writes `report.html` and draws
    /// `loss.svg`. If `stop` is set, it finishes the current micro-step, discards the unfinished
    /// update, saves, and writes `report.html`.
    ///
    /// # Errors
    /// [`Error::Step`] if the engine fails (all complete updates are saved), [`Error::Diverged`],
    /// [`Error::Checkpoint`] if the last checkpoint cannot be written. A failure to write an
    /// intermediate checkpoint emits a warning, and the previous one is kept.
    pub fn run(&mut self, events: &mut dyn FnMut(&Event), stop: &AtomicBool) -> Result<Summary, Error> {
        let (begun, before, first) = (Instant::now(), self.state.seconds, self.state.step);
        (self.since, self.paused, self.meter) = ((begun, before), Duration::ZERO, Meter::new(&self.efficiency));
        if let Some(sensors) = &mut self.sensors {
            sensors.begin(self.state.tokens);
        }
        let changes = std::mem::take(&mut self.changes);
        let (step, steps) = (self.state.step, self.options.steps);
        self.emit(&Event::Started { step, steps, parameters: self.trained(), changes }, events);
        for text in std::mem::take(&mut self.warnings) {
            self.emit(&Event::Warning { text }, events);
        }
        let result = self.train(events, stop, begun, before, first);
        self.state.seconds = before + begun.elapsed().as_secs_f64();
        // Where a checkpoint needs all ranks, only what ends all of them in the same place allows
        // one.
        let together = !self.is_sharded() || matches!(result, Err(Error::Diverged { .. }));
        if result.is_err() && self.saved.as_ref().is_none_or(|s| s.0 < self.state.step) {
            // Discards the unfinished update and saves the complete ones. The first error is
            // returned.
            self.rewind();
            if !together {
                let text = "the moments are on several ranks, so the updates after the last checkpoint are lost";
                events(&Event::Warning { text: text.into() });
            } else if let Err(error) = self.save(events) {
                events(&Event::Warning { text: format!("the checkpoint could not be written: {error}") });
            }
        }
        let stopped = result?;
        self.save(events)?;
        self.efficiency.wall += begun.elapsed().as_secs_f64();
        if self.ranks.is_first() {
            self.report(events);
        }
        if !stopped {
            if self.ranks.is_first() {
                self.plot(events);
            }
        } else {
            events(&Event::Stopped { step: self.state.step, folder: self.options.out.clone() });
        }
        let summary = Summary {
            step: self.state.step,
            skipped: self.state.skipped,
            stopped,
            loss: self.last_loss,
            validation: self.state.validation,
            checkpoint: self.saved.as_ref().map(|s| s.1.clone()).unwrap_or_default(),
            efficiency: self.efficiency.clone(),
            energy: self.sensors.as_ref().map_or_else(Vec::new, |sensors| sensors.total().sums().cloned().collect()),
        };
        events(&Event::Finished { summary: Box::new(summary.clone()) });
        Ok(summary)
    }

    /// The loop; returns true if it was stopped before the end of the run.
    fn train(
        &mut self,
        events: &mut dyn FnMut(&Event),
        stop: &AtomicBool,
        begun: Instant,
        before: f64,
        first: u64,
    ) -> Result<bool, Error> {
        self.agree(stop)?;
        self.engine.stage(&self.weights)?;
        self.remark(events);
        if self.state.step == 0 && self.options.eval_every > 0 {
            self.validate(events, stop)?;
        }
        let mut last_save = Instant::now();
        while self.state.pending.is_some() || self.state.step < self.options.steps {
            if self.stopping(stop) {
                return Ok(true);
            }
            let mut record = match self.state.pending.clone() {
                Some(record) => record,
                None => match self.update(events, stop)? {
                    Some(record) => record,
                    None => return Ok(true),
                },
            };
            let (step, last) = (self.state.step, self.state.step >= self.options.steps);
            let due = |every: u64| every > 0 && step.is_multiple_of(every);
            if due(self.options.eval_every) || last {
                self.state.pending = Some(record.clone());
                match self.validate(events, stop)? {
                    Validation::Stopped => return Ok(true),
                    Validation::Done(loss) => record.valid_loss = loss,
                }
                self.state.pending = None;
            }
            if self.ranks.is_first() && due(self.options.sample_every) {
                self.sample(events);
            }
            self.write_record(&mut record, events);
            let worked = begun.elapsed().saturating_sub(self.paused).as_secs_f64();
            let speed = worked / (step - first).max(1) as f64;
            let seconds_left = speed * self.options.steps.saturating_sub(step) as f64;
            events(&Event::Update { record: Box::new(record), skipped: self.state.skipped, seconds_left });
            if self.state.skipped_in_a_row >= GIVE_UP {
                // A resumed run starts with the initial scale, because the halved one would take
                // long to grow.
                self.state.loss_scale = LossScale::default();
                let skipped = std::mem::take(&mut self.state.skipped_in_a_row);
                return Err(Error::Diverged { skipped, step });
            }
            let minutes = self.options.save_minutes;
            let time = minutes > 0.0 && last_save.elapsed().as_secs_f64() >= 60.0 * minutes;
            let requested = std::mem::take(&mut self.save_requested);
            let wanted = self.ranks.is_first() && (due(self.options.save_every) || time || requested);
            if !last && self.agree_to_save(wanted)? {
                self.state.seconds = before + begun.elapsed().as_secs_f64();
                self.save_or_warn(events);
                last_save = Instant::now();
            }
        }
        Ok(false)
    }

    /// Makes one update; `None` if it was stopped during the update, which is then discarded.
    fn update(&mut self, events: &mut dyn FnMut(&Event), stop: &AtomicBool) -> Result<Option<Record>, Error> {
        let (begun, paused) = (Instant::now(), self.paused);
        let scale = self.state.loss_scale.scale();
        let Some(window) = self.windows(scale, events, stop)? else {
            self.rewind();
            return Ok(None);
        };
        let (optimizer, mut gathering) = (Instant::now(), Duration::ZERO);
        let tracer = self.timeline.as_ref().map_or(Tracer::off(), Timeline::update);
        let span = tracer.span(SpanKind::Update, "update", None);
        let lr = self.options.schedule().rate(self.state.step);
        // The number of windows that were accumulated, not the planned one (upstream-defects #10).
        let windows = if window.accumulated > 0.0 { window.accumulated } else { 1.0 };
        let mean = 1.0 / (windows * f64::from(scale));
        let norm = match window.finite {
            true => optim::norms(&self.config, &self.gradients).total * mean,
            false => f64::NAN,
        };
        let skipped = !norm.is_finite();
        if skipped {
            let step = self.state.step + 1;
            tracing::warn!(target: TARGET, step, loss_scale = scale, "update skipped: the gradients are not finite");
            self.gradients.clear();
            self.state.loss_scale.overflow();
            self.state.skipped += 1;
            self.state.skipped_in_a_row += 1;
        } else {
            let factor = mean * optim::clip_factor(norm, self.options.clip);
            let (optimizer, count) = (self.options.optimizer(), self.state.updates + 1);
            let Run { config, weights, gradients, moments, engine, tuning, ranks, parts, .. } = self;
            match tuning {
                Some(tuning) => {
                    tuning.update(&optimizer, weights, gradients, lr, factor, count)?;
                    engine.stage(weights)?;
                }
                None if moments.part().is_some() => {
                    Update { optimizer, config, weights, gradients, moments, lr, factor, count }.run(Vec::new())?;
                    let begun = Instant::now();
                    let mut values: Vec<_> = weights.tensors_mut(config).into_iter().map(|t| t.data).collect();
                    ranks.gather(&mut values, parts)?;
                    gathering = begun.elapsed();
                    engine.stage(weights)?;
                }
                None => engine.update(Update { optimizer, config, weights, gradients, moments, lr, factor, count })?,
            }
            self.state.updates = count;
            self.state.skipped_in_a_row = 0;
            self.state.loss_scale.good(window.max_dy);
        }
        drop(span);
        self.state.step += 1;
        self.state.tokens += window.tokens;
        self.state.sampler = self.sampler.state();
        self.efficiency.updates += 1;
        self.efficiency.optimizer += (optimizer.elapsed() - gathering).as_secs_f64();
        self.efficiency.exchange += gathering.as_secs_f64();
        let loss = (window.accumulated > 0.0).then(|| window.loss / window.accumulated);
        self.last_loss = loss.or(self.last_loss);
        tracing::debug!(target: TARGET, step = self.state.step, loss, norm, lr, skipped, "update");
        Ok(Some(Record {
            step: self.state.step,
            loss,
            lr,
            grad_norm: finite(norm),
            loss_scale: f64::from(scale),
            skipped,
            tokens: self.state.tokens,
            tokens_per_second: window.tokens as f64 / (begun.elapsed() - (self.paused - paused)).as_secs_f64(),
            max_dy: finite(f64::from(window.max_dy)),
            ..Record::default()
        }))
    }

    /// Rewinds to the state before the current update.
    fn rewind(&mut self) {
        self.gradients.clear();
        self.sampler = Sampler::from_state(&self.state.sampler);
    }

    /// Computes the mean loss over evenly spaced windows of the validation part.
    fn validate(&mut self, events: &mut dyn FnMut(&Event), stop: &AtomicBool) -> Result<Validation, Error> {
        let (begun, seq) = (Instant::now(), self.options.seq);
        self.compare_weights()?;
        let starts = self.windows.validation(self.options.eval_windows);
        if starts.is_empty() {
            return Ok(Validation::Done(None));
        }
        // Ranks take turns, and each has some of the losses, by the index of the window.
        let mut losses = Vec::new();
        for start in starts.iter().skip(self.ranks.rank()).step_by(self.ranks.size()) {
            if self.stopping(stop) {
                return Ok(Validation::Stopped);
            }
            let (inputs, targets) = self.corpus.sample(*start, seq)?;
            let share = step::counted(&targets) as f64 / seq as f64;
            let loss = match share > 0.0 {
                true => share * f64::from(self.engine.loss(&self.weights, &inputs, &targets)?),
                false => 0.0,
            };
            losses.push((share, loss.to_bits()));
            self.remark(events);
            self.sense();
        }
        let losses = self.ranks.exchange(losses)?;
        let (mut sum, mut windows) = (0.0, 0.0);
        for index in 0..starts.len() {
            let (rank, at) = (index % losses.len(), index / losses.len());
            let Some((share, loss)) = losses[rank].get(at) else { continue };
            (sum, windows) = (sum + f64::from_bits(*loss), windows + share);
        }
        self.efficiency.validation += begun.elapsed().as_secs_f64();
        if windows == 0.0 {
            return Ok(Validation::Done(None));
        }
        let Some(loss) = finite(sum / windows) else {
            let text = format!("the validation loss is not finite at step {}", self.state.step);
            self.emit(&Event::Warning { text }, events);
            return Ok(Validation::Done(None));
        };
        self.state.validation = Some((self.state.step, loss));
        events(&Event::Validated { step: self.state.step, loss });
        Ok(Validation::Done(Some(loss)))
    }

    /// Emits the engine's remarks as warnings.
    fn remark(&mut self, events: &mut dyn FnMut(&Event)) {
        for text in self.engine.remarks() {
            self.emit(&Event::Warning { text }, events);
        }
    }

    /// Saves a checkpoint of this step if there is none yet. If moments are sharded, all ranks call
    /// this.
    fn save(&mut self, events: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        let step = self.state.step;
        if self.saved.as_ref().is_some_and(|s| s.0 == step) {
            return Ok(());
        }
        if !self.ranks.is_first() && !self.is_sharded() {
            return Ok(());
        }
        let begun = Instant::now();
        let _span = tracing::info_span!(target: TARGET, "checkpoint", step).entered();
        let path = if self.is_sharded() {
            let Some(path) = self.write_together()? else { return Ok(()) };
            path
        } else {
            let Run { config, weights, moments, state, tuning, gradients, .. } = &*self;
            let adapters = tuning.as_ref().zip(gradients.adapters());
            let adapters = adapters.map(|(tuning, values)| AdapterSnapshot { tuning, values });
            self.store.save(&Snapshot { config, weights, moments, state, adapters })?
        };
        self.efficiency.checkpoints += begun.elapsed().as_secs_f64();
        self.saved = Some((step, path.clone()));
        if self.ranks.is_first() {
            self.emit(&Event::Saved { path, step }, events);
        }
        Ok(())
    }
}

/// Opens `metrics.jsonl` of a run in this state.
fn lines(store: &Store, state: &State) -> Result<JsonLines, Error> {
    let path = store.root().join(METRICS);
    let lines = match state.step {
        0 => JsonLines::create(&path),
        // A pending record is written after its validation.
        step => JsonLines::resume(&path, step - u64::from(state.pending.is_some())),
    };
    lines.map_err(|source| Error::Io { path, source })
}

fn hex(corpus: &Corpus) -> String {
    corpus.digest().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
