//! What a run would take, measured without making it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ferrane_device::Device;
use ferrane_host::memory::peak_resident;
use ferrane_llm::layout::Shape;
use serde::Serialize;

use super::{Session, SessionError, SessionOptions};
use crate::checkpoint::folder_size;
use crate::data::Split;
use crate::metrics::{Memory, PartTimes};
use crate::ranks::Link;
use crate::run::{Event, RunOptions};

/// Updates of a dry run, with a micro-step each. The first one warms up.
const UPDATES: u64 = 3;
/// Largest number of validation windows of a dry run.
const WINDOWS: usize = 2;

/// What a run with some options takes on this computer: sizes, times, memory.
///
/// Times are means of a few measured windows; `seconds` and `tokens_per_second` follow from them.
/// Samples, and checkpoints that are due because of the time, are not counted.
#[derive(Debug, Clone, Serialize)]
pub struct DryRun {
    /// Parameters of the model.
    pub parameters: usize,
    /// Number of trained values: the parameters, or those of adapters.
    pub trained: usize,
    /// Ids of the data, validation included.
    pub tokens: usize,
    /// Number of ids that the loss runs over.
    pub active: usize,
    /// Updates of the run.
    pub updates: u64,
    /// Windows of an update.
    pub update_windows: usize,
    /// Tokens of an update.
    pub update_tokens: u64,
    /// Bytes of the gradients that several ranks would sum: those of ids that the loss does not run
    /// over are left out.
    pub gradient_bytes: usize,
    /// Bytes of the weights that ranks with sharded moments would pass on; 0 without.
    pub gather_bytes: usize,
    /// How often the run sees each token of its training data, on average.
    pub epochs: f64,
    /// Forward and backward pass of a window, in milliseconds.
    pub micro_step_ms: f64,
    /// Norm, clipping, AdamW and staging of an update, in milliseconds.
    pub update_ms: f64,
    /// Compiling the programs of new weights, for each update that has them as constants.
    pub compile_ms: f64,
    /// The loss of a validation window, in milliseconds.
    pub validation_ms: f64,
    /// Writing a checkpoint into the folder for temporary files, in milliseconds.
    pub checkpoint_ms: f64,
    /// Size of a checkpoint. A run keeps the last two.
    pub checkpoint_bytes: u64,
    /// Trained tokens a second, without validation and checkpoints.
    pub tokens_per_second: f64,
    /// The time of the whole run, in seconds.
    pub seconds: f64,
    /// Memory by owner, with the peak of this process so far.
    pub memory: Memory,
    /// Memory that was available before, in bytes; `None` if the system does not report it.
    pub available: Option<usize>,
    /// What determines the kernels' layouts, for a prediction.
    #[serde(skip)]
    pub shape: Shape,
}

/// What an update would take on several ranks, each as fast as this computer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OnRanks {
    /// From 1 to the windows of an update.
    pub ranks: usize,
    /// Name of the link between them.
    pub link: &'static str,
    /// Seconds of an update.
    pub update_seconds: f64,
    /// The part of it in which gradients, and weights of sharded ranks, are exchanged.
    pub exchange_seconds: f64,
    /// Trained tokens a second of all ranks, without validation and checkpoints.
    pub tokens_per_second: f64,
    /// How many times as fast as one rank.
    pub speedup: f64,
}

impl DryRun {
    /// Predicts an update on several ranks from the measured times and a model of the link between
    /// them. `None` if an update has fewer windows than there are ranks.
    pub fn on_ranks(&self, ranks: usize, link: &Link) -> Option<OnRanks> {
        if ranks == 0 || ranks > self.update_windows {
            return None;
        }
        let exchange_seconds =
            link.sum_seconds(self.gradient_bytes, ranks) + link.gather_seconds(self.gather_bytes, ranks);
        let rest = (self.update_ms + self.compile_ms) / 1e3;
        let of = |windows: usize| windows as f64 * self.micro_step_ms / 1e3 + rest;
        let update_seconds = of(self.update_windows.div_ceil(ranks)) + exchange_seconds;
        let tokens_per_second = self.update_tokens as f64 / update_seconds;
        let speedup = of(self.update_windows) / update_seconds;
        Some(OnRanks { ranks, link: link.name, update_seconds, exchange_seconds, tokens_per_second, speedup })
    }
}

impl fmt::Display for OnRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OnRanks { ranks, link, update_seconds, exchange_seconds, tokens_per_second, speedup } = self;
        write!(
            f,
            "{ranks} rank{} over {link}: {update_seconds:.2} s an update, {exchange_seconds:.2} s of it exchange; \
             {tokens_per_second:.0} tokens/s, {speedup:.2} times one rank",
            if *ranks == 1 { "" } else { "s" }
        )
    }
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        if self.trained != self.parameters {
            writeln!(
                f,
                "trains      {:.2} of {:.2} M values",
                self.trained as f64 / 1e6,
                self.parameters as f64 / 1e6
            )?;
        }
        let (tokens, epochs) = (self.updates as f64 * self.update_tokens as f64 / 1e6, self.epochs);
        writeln!(
            f,
            "tokens      {tokens:.1} M, {epochs:.2} times the training data; {} an update",
            self.update_tokens
        )?;
        let compile = match self.compile_ms >= 0.5 {
            true => format!(" and {:.0} ms of compiles", self.compile_ms),
            false => String::new(),
        };
        writeln!(
            f,
            "micro-step  {:.2} ms; {:.2} ms{compile} an update in addition",
            self.micro_step_ms, self.update_ms
        )?;
        let hours = self.seconds / 3600.0;
        let whole = match self.seconds {
            s if s < 60.0 => format!("{s:.0} s"),
            s if s < 3600.0 => format!("{:.0} min", s / 60.0),
            s if s < 48.0 * 3600.0 => format!("{hours:.1} h"),
            _ => format!("{:.1} days", hours / 24.0),
        };
        writeln!(
            f,
            "run         {whole}, {:.0} tokens/s; {:.2} ms a validation window",
            self.tokens_per_second, self.validation_ms
        )?;
        writeln!(
            f,
            "checkpoint  {:.1} MB, {:.0} ms; a run keeps two",
            self.checkpoint_bytes as f64 / 1e6,
            self.checkpoint_ms
        )?;
        let peak = self.memory.peak.map_or(String::new(), |peak| format!("{:.1} MB at most", mb(peak)));
        let of = self.available.map_or(String::new(), |bytes| format!(", {:.1} MB available", mb(bytes)));
        writeln!(f, "memory      {peak}{of}")?;
        write!(f, "{}", self.memory)
    }
}

impl Session {
    /// Measures what [`Session::begin`] with these options and its run would take, with a few
    /// updates in a temporary folder. The folder of the options is neither created nor read, and
    /// only the ids of the data remain, in their cache. Emits the events of a run.
    ///
    /// `None` if `stop` was set before the measurement was complete.
    ///
    /// # Errors
    /// As [`Session::begin`] and [`Session::run`]; [`SessionError::Memory`] for a run that needs
    /// more memory than there is.
    pub fn dry_run(
        options: SessionOptions,
        device: Option<&Device>,
        events: &mut dyn FnMut(&Event),
        stop: &AtomicBool,
    ) -> Result<Option<DryRun>, SessionError> {
        let wanted = options.run.clone();
        wanted.check()?;
        let available = ferrane_host::memory::available();
        let scratch = tempfile::tempdir().map_err(|source| SessionError::Io { file: std::env::temp_dir(), source })?;
        // Programs with the weights as constants are compiled for each update, and an engine's
        // budget may not allow a second compile. So there is one update, of two micro-steps, with
        // the validation before it instead of after it.
        let constants = options.pipeline.has_constants();
        let (steps, accum) = if constants { (1, 2) } else { (UPDATES, 1) };
        let eval_every = if constants { u64::MAX } else { 0 };
        let run = RunOptions {
            steps,
            accum,
            batch: 1,
            groups: 1,
            warmup: wanted.warmup.min(steps),
            eval_every,
            eval_windows: wanted.eval_windows.min(WINDOWS),
            sample_every: 0,
            save_every: 0,
            save_minutes: 0.0,
            out: scratch.path().join("run"),
            ..wanted.clone()
        };
        let mut session = Session::begin(SessionOptions { run, ..options }, device, events)?;
        let mut times = Times::default();
        let enough = AtomicBool::new(stop.load(Ordering::Relaxed));
        let summary = session.run(
            &mut |event| {
                times.event(event);
                events(event);
                let last = matches!(event, Event::Window { done, of, .. } if constants && done == of);
                enough.fetch_or(last || stop.load(Ordering::Relaxed), Ordering::Relaxed);
            },
            &enough,
        )?;
        let efficiency = &summary.efficiency;
        if efficiency.updates < steps || (summary.stopped && !constants) {
            return Ok(None);
        }
        let windows = session.run.validation_windows(wanted.eval_windows);
        let validated = windows.clamp(1, WINDOWS);
        let validation = efficiency.validation / validated as f64;
        let micro = times.micro_step();
        let update = if constants { efficiency.optimizer } else { times.of(|t| t.optimizer) };
        let compile = session.run.constants_time().as_secs_f64();
        let per_update = wanted.windows() as f64 * micro + update + compile;
        let repeats = |every: u64| wanted.steps.saturating_sub(1).checked_div(every).unwrap_or(0);
        // With an interval, also one before the first update; one at the end in any case.
        let validations = repeats(wanted.eval_every) + u64::from(wanted.eval_every > 0) + 1;
        let saves = repeats(wanted.save_every) + 1;
        let update_tokens = (wanted.windows() * wanted.seq) as u64;
        let (tokens, updates) = (session.run.corpus().len(), wanted.steps as f64);
        let (config, trained) = (session.config(), session.run.trained());
        // Adapters have gradients of their own, and frozen tables have none.
        let tables = if config.tied { 1 } else { 2 };
        let idle = tables * (config.vocab - session.active_ids().min(config.vocab)) * config.dim;
        let summed = if trained == config.parameters() { trained - idle } else { trained };
        let passed = if wanted.shard_optimizer { config.parameters() } else { 0 };
        Ok(Some(DryRun {
            parameters: config.parameters(),
            trained,
            tokens,
            active: session.active_ids(),
            updates: wanted.steps,
            update_windows: wanted.windows(),
            update_tokens,
            gradient_bytes: summed * size_of::<f32>(),
            gather_bytes: passed * size_of::<f32>(),
            epochs: updates * update_tokens as f64 / (Split::TRAIN * tokens as f64).max(1.0),
            micro_step_ms: 1e3 * micro,
            update_ms: 1e3 * update,
            compile_ms: 1e3 * compile,
            validation_ms: 1e3 * validation,
            checkpoint_ms: 1e3 * efficiency.checkpoints,
            checkpoint_bytes: folder_size(&summary.checkpoint),
            tokens_per_second: update_tokens as f64 / per_update,
            seconds: updates * per_update
                + validations as f64 * windows as f64 * validation
                + saves as f64 * efficiency.checkpoints,
            memory: session.memory(peak_resident()),
            available,
            shape: session.shape.clone(),
        }))
    }
}

/// The times of the micro-steps and updates of a dry run.
#[derive(Default)]
struct Times {
    /// When the latest event came.
    last: Option<Instant>,
    /// Seconds of each micro-step.
    micro_steps: Vec<f64>,
    parts: Vec<PartTimes>,
}

impl Times {
    fn event(&mut self, event: &Event) {
        let now = Instant::now();
        match event {
            Event::Window { .. } => {
                self.micro_steps.extend(self.last.map(|last| now.duration_since(last).as_secs_f64()));
            }
            Event::Update { record, .. } => self.parts.extend(record.process.as_ref().map(|process| process.parts_ms)),
            _ => {}
        }
        self.last = Some(now);
    }

    /// The mean seconds of a part of an update, without the first one if there are more.
    fn of(&self, part: fn(&PartTimes) -> f64) -> f64 {
        mean(self.parts.iter().skip(usize::from(self.parts.len() > 1)).map(part)) / 1e3
    }

    /// The mean seconds of a micro-step without the first one.
    fn micro_step(&self) -> f64 {
        mean(self.micro_steps.iter().skip(1).copied())
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count == 0.0 { 0.0 } else { sum / count }
}
