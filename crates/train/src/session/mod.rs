//! Builds a run from its options: data, vocabulary, weights, kernels and loop.
//!
//! [`Session::begin`] starts a run in a folder without one, and [`Session::resume`] continues the
//! run in a folder. Both return a [`Session`], which trains until the last update or until it is
//! stopped. A run's folder contains everything that resuming needs, including the tokenizer.
//!
//! Invariants: the loss runs over the ids that the checkpoints record, because both are taken from
//! the engine; a resumed run has the model, the tokenizer and the data that it was begun with; a
//! run that cannot begin leaves no checkpoint.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! use ferrane_train::session::{Session, SessionOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut options = SessionOptions::embedded();
//! options.run.steps = 100;
//! // `None`: the fp32 reference. `Some(&device)` trains on a device.
//! let mut session = Session::begin(options, None, &mut |_| {})?;
//! let summary = session.run(&mut |_| {}, &AtomicBool::new(false))?;
//! println!("{:?} in {}", summary.validation, summary.checkpoint.display());
//! # Ok(())
//! # }
//! ```

mod dry;
mod error;
mod options;
mod parts;
mod samples;

pub use dry::{DryRun, OnRanks};
pub use error::SessionError;
pub use options::{MODEL, SessionOptions};

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use ferrane_device::Device;
use ferrane_llm::compaction::Compaction;
use ferrane_llm::config::Config;
use ferrane_llm::decode;
use ferrane_llm::generate::{self, TextGenerator};
use ferrane_llm::layout::Shape;
use ferrane_llm::sample::Sampler;
use ferrane_llm::tokenizer::Tokenizer;
use ferrane_llm::weights::Weights;
use ferrane_sensors::{History, Sensors};

use crate::checkpoint::{self, Checkpoint, State, Store};
use crate::data::{Corpus, Split};
use crate::lora::{Adapters, LoraOptions, Tuning};
use crate::metrics::{Memory, Sink, Timeline};
use crate::optim::Frozen;
use crate::ranks::Ranks;
use crate::run::{self, Control, Event, Run, Summary};
use crate::step::{Engine, Pipeline, ReferenceEngine, StepError};

/// A run with its engine, data and vocabulary.
pub struct Session {
    run: Run,
    shape: Shape,
    tokenizer: Option<Tokenizer>,
    device: Option<Device>,
}

/// A run loaded from its folder, but not resumed yet. It holds the folder's lock.
pub struct StoredRun {
    ranks: Ranks,
    options: SessionOptions,
    store: Store,
    checkpoint: Checkpoint,
}

impl StoredRun {
    /// Loads the newest intact checkpoint of the run in `folder`.
    ///
    /// # Errors
    /// [`SessionError::NothingToResume`]; [`SessionError::Checkpoint`] if another process uses the
    /// folder or no checkpoint is intact; [`SessionError::Options`].
    pub fn open(folder: &Path) -> Result<StoredRun, SessionError> {
        StoredRun::open_with(folder, Ranks::default())
    }

    /// Like [`StoredRun::open`], as one of several ranks. All of them read the folder; the first
    /// one locks it.
    ///
    /// # Errors
    /// As [`StoredRun::open`], and [`SessionError::Ranks`].
    pub fn open_with(folder: &Path, mut ranks: Ranks) -> Result<StoredRun, SessionError> {
        let nothing = || SessionError::NothingToResume(folder.to_path_buf());
        let is_first = ranks.is_first();
        // The first rank removes what an interrupted save has left, before the others look.
        let (store, checkpoint) = ranks.first_alone(|| {
            if !folder.is_dir() {
                return Err(nothing());
            }
            let store = if is_first { Store::open(folder)? } else { Store::shared(folder) };
            let checkpoint = match store.load(None) {
                Err(checkpoint::Error::None(_)) => return Err(nothing()),
                found => found?,
            };
            Ok((store, checkpoint))
        })?;
        let mut options: SessionOptions = serde_json::from_value(checkpoint.state.options.clone())
            .map_err(|source| SessionError::Options { file: checkpoint.path.join("state.json"), source })?;
        options.run.out = folder.to_path_buf();
        Ok(StoredRun { ranks, options, store, checkpoint })
    }

    /// The options that the run was begun or last resumed with; `out` is the folder given to
    /// [`StoredRun::open`].
    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// Number of updates done, skipped ones included.
    pub fn step(&self) -> u64 {
        self.checkpoint.state.step
    }

    /// Checks that `options` name the same model and initial weights as the run's.
    ///
    /// # Errors
    /// [`SessionError::OtherStart`].
    pub fn check(&self, options: &SessionOptions) -> Result<(), SessionError> {
        let given = options.clone().absolute();
        let lora = |options: &SessionOptions| options.lora.as_ref().map(LoraOptions::to_string);
        let shown = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
        for (field, given, before) in [
            ("model", given.model.clone(), self.options.model_name()),
            ("init", shown(&given.init), shown(&self.options.init)),
            ("lora", lora(&given), lora(&self.options)),
        ] {
            if let Some(given) = given.filter(|given| before.as_ref() != Some(given)) {
                return Err(SessionError::OtherStart { field, given, before, folder: self.options.run.out.clone() });
            }
        }
        Ok(())
    }

    /// Resumes the run with `options`, usually [`StoredRun::options`] with another device or other
    /// numbers. Emits [`Event::Encoding`] if
    /// the ids of the data are not in the cache, [`Event::Prepared`] and [`Event::Compiled`].
    ///
    /// # Errors
    /// As [`Session::begin`], and [`SessionError::OtherStart`], [`SessionError::OtherTokenizer`],
    /// [`SessionError::Vocabulary`], [`run::Error::OtherData`].
    pub fn resume(
        self,
        options: SessionOptions,
        device: Option<&Device>,
        events: &mut dyn FnMut(&Event),
    ) -> Result<Session, SessionError> {
        options.run.check()?;
        self.check(&options)?;
        let StoredRun { mut ranks, options: before, store, mut checkpoint } = self;
        let kept = Tokenizer::find(store.root())?;
        let has_tokenizer = kept.is_some();
        // The tokenizer in the run's folder; its original file may no longer exist.
        let tokenizer = match (&options.tokenizer, &before.tokenizer) {
            (Some(named), before) if before.as_ref() != Some(named) || kept.is_none() => {
                let named = Tokenizer::open(named)?;
                if kept.as_ref().is_some_and(|kept| kept.digest() != named.digest()) {
                    return Err(SessionError::OtherTokenizer(options.run.out));
                }
                Some(named)
            }
            _ => kept,
        };
        let tuned = parts::resumed_adapters(&options, tokenizer.as_ref(), device.is_some(), &mut checkpoint)?;
        let vocab = checkpoint.config.vocab;
        let corpus = ranks.first_alone(|| parts::corpus_of(&options, tokenizer.as_ref(), vocab, events))?;
        let vocabulary = match &checkpoint.state.compaction {
            Some(stored) if device.is_none() && !stored.is_identity() => {
                return Err(SessionError::Vocabulary { active: stored.len(), vocab });
            }
            Some(stored) if stored.vocabulary() == vocab => stored.clone(),
            _ => Compaction::disabled(vocab),
        };
        Session::build(
            ranks,
            options,
            device,
            tokenizer,
            corpus,
            vocabulary,
            Start::StoredRun { store, checkpoint: Box::new(checkpoint), has_tokenizer },
            tuned,
            events,
        )
    }
}

/// The initial weights of a session, or the checkpoint that it resumes.
enum Start {
    New(Box<Config>, Weights),
    StoredRun {
        store: Store,
        checkpoint: Box<Checkpoint>,
        /// The run's folder has the tokenizer of the session.
        has_tokenizer: bool,
    },
}

impl Session {
    /// Begins a run in `options.run.out`, on `device` or, if that is `None`, with the fp32
    /// reference. Emits [`Event::Encoding`] if
    /// the ids of the data are not in the cache, [`Event::Prepared`] and [`Event::Compiled`].
    ///
    /// # Errors
    /// An invalid option, a folder that already contains a run, and all errors of model, weights,
    /// tokenizer and data are returned before a checkpoint is written; [`SessionError::Step`] if
    /// the device refuses a kernel.
    pub fn begin(
        options: SessionOptions,
        device: Option<&Device>,
        events: &mut dyn FnMut(&Event),
    ) -> Result<Session, SessionError> {
        Session::begin_with(Ranks::default(), options, device, events)
    }

    /// Like [`Session::begin`], as one of several ranks, which are given the same options. There is
    /// at least one group of windows for each rank then ([`RunOptions::groups`](run::RunOptions)).
    ///
    /// # Errors
    /// As [`Session::begin`], and [`SessionError::Ranks`].
    pub fn begin_with(
        mut ranks: Ranks,
        options: SessionOptions,
        device: Option<&Device>,
        events: &mut dyn FnMut(&Event),
    ) -> Result<Session, SessionError> {
        let out = &options.run.out;
        options.run.check()?;
        if !ranks.is_first() {
            // Nothing of the folder concerns this rank.
        } else if out.is_dir() {
            if let Some(step) = Store::open(out)?.steps()?.last().copied() {
                return Err(run::Error::Exists { folder: out.clone(), step }.into());
            }
        } else if out.exists() {
            return Err(SessionError::NotAFolder(out.clone()));
        }
        let tokenizer = parts::tokenizer(&options)?;
        let (config, weights) = parts::model(&options, tokenizer.as_ref(), device.is_some())?;
        let tuned = parts::new_adapters(&options, &config, &weights)?;
        let corpus = ranks.first_alone(|| parts::corpus_of(&options, tokenizer.as_ref(), config.vocab, events))?;
        let vocabulary = match device {
            Some(_) if options.compact && options.lora.is_none() => {
                let ends = tokenizer.iter().flat_map(|t| [t.bos(), t.eos()]).flatten();
                Compaction::used(corpus.iter().chain(ends), config.vocab)
            }
            _ => Compaction::disabled(config.vocab),
        };
        let start = Start::New(Box::new(config), weights);
        Session::build(ranks, options, device, tokenizer, corpus, vocabulary, start, tuned, events)
    }

    /// Resumes the run in `folder` with its stored options. [`StoredRun::resume`] takes other ones.
    ///
    /// # Errors
    /// As [`StoredRun::open`] and [`StoredRun::resume`].
    pub fn resume(
        folder: impl AsRef<Path>,
        device: Option<&Device>,
        events: &mut dyn FnMut(&Event),
    ) -> Result<Session, SessionError> {
        let stored = StoredRun::open(folder.as_ref())?;
        let options = stored.options().clone();
        stored.resume(options, device, events)
    }

    fn build(
        ranks: Ranks,
        mut options: SessionOptions,
        device: Option<&Device>,
        tokenizer: Option<Tokenizer>,
        corpus: Corpus,
        vocabulary: Compaction,
        start: Start,
        tuned: Option<(Tuning, Adapters)>,
        events: &mut dyn FnMut(&Event),
    ) -> Result<Session, SessionError> {
        options.run.groups = options.run.groups.max(ranks.size());
        options.run.check()?;
        let (config, weights) = match &start {
            Start::New(config, weights) => (&**config, weights),
            Start::StoredRun { checkpoint, .. } => (&checkpoint.config, &checkpoint.weights),
        };
        let beyond = if device.is_some() { config.beyond_kernels() } else { config.beyond_training() };
        if let Some(reason) = beyond {
            return Err(StepError::Shape(reason).into());
        }
        let frozen = Frozen::matching(config, &options.freeze)?;
        if options.run.shard_optimizer && tuned.is_some() {
            let reason = "adapters have few moments, and every rank needs all of them; leave the option out";
            return Err(run::Error::Option { name: "shard_optimizer", value: "true".into(), reason }.into());
        }
        if !frozen.is_empty() && tuned.is_some() {
            return Err(SessionError::FreezeOfAdapters);
        }
        if ranks.is_first() {
            parts::create_folder(&options.run.out)?;
        }
        // Data that are too short are refused before kernels are compiled.
        corpus.windows(Split::TRAIN, options.run.seq)?;
        events(&Event::Prepared { config: Box::new(config.clone()), tokens: corpus.len(), active: vocabulary.len() });
        let shape = options.shape(config);
        let engine: Box<dyn Engine> = match device {
            None => Box::new(ReferenceEngine::new(config.clone())),
            Some(device) => {
                let pipeline = Pipeline::recomputing(device, shape.clone(), vocabulary, weights, options.recompute)?;
                let seconds = pipeline.compile_time().as_secs_f64();
                let (programs, surface_bytes) = (pipeline.programs(), pipeline.surface_bytes());
                events(&Event::Compiled { programs, seconds, surface_bytes });
                Box::new(pipeline)
            }
        };
        let has_tokenizer = matches!(start, Start::StoredRun { has_tokenizer: true, .. }) || !ranks.is_first();
        let (out, seed) = (options.run.out.clone(), options.run.seed);
        let kept = options.absolute();
        let record = serde_json::to_value(&kept).unwrap_or_default();
        let source = kept.tokenizer.as_ref().map(|path| path.display().to_string());
        let mut run = match start {
            Start::New(config, weights) => {
                Run::new_with(ranks, kept.run, *config, weights, corpus, engine)?.with_origin(record, source, None)
            }
            Start::StoredRun { store, checkpoint, .. } => {
                let before = checkpoint.state.options.clone();
                Run::resume_with(ranks, kept.run, store, *checkpoint, corpus, engine)?.with_origin(
                    record,
                    source,
                    Some(&before),
                )
            }
        };
        if let Some(tokenizer) = &tokenizer {
            let text = samples::writer(tokenizer.clone(), run.state().compaction.clone(), seed);
            run = run.with_samples(text);
        }
        match tuned {
            Some((tuning, values)) => run = run.with_adapters(tuning, values),
            None if !frozen.is_empty() => run = run.with_frozen(frozen),
            None => {}
        }
        if let Some(tokenizer) = tokenizer.as_ref().filter(|_| !has_tokenizer) {
            keep_tokenizer(tokenizer, &out)?;
        }
        Ok(Session { run, shape, tokenizer, device: device.cloned() })
    }

    /// Trains until the last update, or until `stop` is set ([`Run::run`]).
    ///
    /// # Errors
    /// As [`Run::run`].
    pub fn run(&mut self, events: &mut dyn FnMut(&Event), stop: &AtomicBool) -> Result<Summary, SessionError> {
        Ok(self.run.run(events, stop)?)
    }

    /// Records micro-steps until the timeline is full.
    #[must_use]
    pub fn with_timeline(self, timeline: &Timeline) -> Self {
        Session { run: self.run.with_timeline(timeline), ..self }
    }

    /// Lets `control` pause the run and request checkpoints and samples.
    #[must_use]
    pub fn with_control(self, control: &Control) -> Self {
        Session { run: self.run.with_control(control), ..self }
    }

    /// Also writes every record to `sink`. One that fails is dropped with a warning.
    #[must_use]
    pub fn with_sink(self, sink: Box<dyn Sink + Send>) -> Self {
        Session { run: self.run.with_sink(sink), ..self }
    }

    /// Reads these sensors while the run trains ([`Run::with_sensors`]).
    #[must_use]
    pub fn with_sensors(self, sensors: Sensors) -> Self {
        Session { run: self.run.with_sensors(sensors), ..self }
    }

    /// All readings of the sensors, if the run reads some. It grows while the run trains.
    pub fn sensor_history(&self) -> Option<Arc<Mutex<History>>> {
        self.run.sensor_history()
    }

    /// A generator of text with the current weights, on the session's device. It restricts the
    /// sampler to the ids that the loss runs over. `None` if the run has no tokenizer.
    ///
    /// # Errors
    /// As [`generate::next_logits`].
    pub fn generator(&self, sampler: Sampler) -> Result<Option<TextGenerator<'_>>, SessionError> {
        let Some(tokenizer) = &self.tokenizer else { return Ok(None) };
        let sampler = match &self.run.state().compaction {
            Some(vocabulary) => sampler.only(vocabulary.compact_to_full()),
            None => sampler,
        };
        let options = decode::Options::default();
        let logits = generate::next_logits(self.run.config(), self.run.weights(), self.device.as_ref(), options)?;
        Ok(Some(TextGenerator::new(tokenizer, logits, sampler)))
    }

    /// Sizes and options of the model.
    pub fn config(&self) -> &Config {
        self.run.config()
    }

    /// The weights as of the last update.
    pub fn weights(&self) -> &Weights {
        self.run.weights()
    }

    /// The adapters as of the last update, if these are trained.
    pub fn adapters(&self) -> Option<&Adapters> {
        self.run.adapters()
    }

    /// The state as of the last update, with the ids that the loss runs over.
    pub fn state(&self) -> &State {
        self.run.state()
    }

    /// Number of ids that the loss runs over.
    pub fn active_ids(&self) -> usize {
        self.state().compaction.as_ref().map_or(self.config().vocab, Compaction::len)
    }

    /// What determines the kernels' layouts: model, window, residual and weight form.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The memory of the run by owner. `peak` is the peak resident memory of the process, as the
    /// system reports it.
    pub fn memory(&self, peak: Option<usize>) -> Memory {
        let whole = Memory::new(self.config(), self.run.memory(), peak);
        let memory = whole.of_trained(self.run.trained(), self.run.frozen_bytes().unwrap_or(0));
        let part = self.run.moments().part();
        Memory { moments: part.map_or(memory.moments, |[m, v]| size_of_val(m) + size_of_val(v)), ..memory }
    }
}

/// Saves the tokenizer in the run's folder, where [`Tokenizer::find`] finds it, unless it is there
/// already.
fn keep_tokenizer(tokenizer: &Tokenizer, out: &Path) -> Result<(), SessionError> {
    match Tokenizer::find(out)? {
        Some(found) if found.digest() == tokenizer.digest() => Ok(()),
        _ => Ok(tokenizer.save(out.join(tokenizer.file_name()))?),
    }
}
