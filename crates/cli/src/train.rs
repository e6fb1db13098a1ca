//! `ferrane train`: makes the parts of a run from the command line and shows how it goes.

mod restart;
mod show;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane::host::memory::peak_resident;
use ferrane::llm::config::{Config, PRESETS};
use ferrane::llm::decode::{self, Decoder};
use ferrane::llm::generate::Generator;
use ferrane::llm::layout::Shape;
use ferrane::llm::reference::Reference;
use ferrane::llm::sample::Sampler;
use ferrane::llm::tokenizer::Tokenizer;
use ferrane::llm::weights::{Init, Weights};
use ferrane::train::checkpoint::{self, Checkpoint, Store};
use ferrane::train::data::{self, Compaction, Format, Ids, Source, story};
use ferrane::train::metrics::Memory;
use ferrane::train::run::{self, Run, RunOptions};
use ferrane::train::step::{Engine, Pipeline, ReferenceEngine};

use crate::args::{Train, Vocabulary};
use crate::error::{Error, Result};
use crate::{cost, model, out, timeline_file};
use show::Show;

/// Model of a run that names none.
const MODEL: &str = "stories260k";
/// Entries of a tokenizer that is made from a text, at least.
const VOCABULARY: usize = 512;
/// Bytes of the text that it is made from, at most.
const TOKENIZER_TEXT: usize = 8 << 20;
/// Tokens of the sample that ends a run.
const SAMPLE: usize = 160;

/// Runs the command.
pub fn run(args: Train) -> Result<()> {
    let stored = if args.resume { Some(stored(&args.out)?) } else { None };
    let before = stored.as_ref().map(|(_, checkpoint)| before(checkpoint)).transpose()?;
    if let Some(before) = &before {
        same_start(&args, before)?;
    }
    let options = options(&args, before);
    // What is wrong with the numbers is said before any work is done, and a run that is in the way
    // too.
    options.check()?;
    if stored.is_none() {
        vacant(&options.out)?;
    }
    let target = args.machine.as_deref().map(|name| Ok::<_, Error>((name, cost::model(name)?))).transpose()?;
    let device = model::device(&options.device)?;
    let timeline = args.timeline.as_deref().map(timeline_file::open).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut show = Show::new(args.json, stop.clone());
    let (ids, tokenizer, config, start) = match stored {
        Some((store, checkpoint)) => {
            let config = checkpoint.config.clone();
            let tokenizer = match &args.tokenizer {
                Some(path) => Some(Tokenizer::open(path)?),
                // The one that was saved with the run; the file it came from may have gone.
                None => model::tokenizer(None, &args.out)?,
            };
            let ids = ids(&options, tokenizer.as_ref(), config.vocab)?;
            (ids, tokenizer, config, Start::Resume(store, Box::new(checkpoint)))
        }
        None => {
            let tokenizer = data_tokenizer(&options)?;
            let (config, weights) = fresh(&options, tokenizer.as_ref())?;
            let ids = ids(&options, tokenizer.as_ref(), config.vocab)?;
            (ids, tokenizer, config, Start::New(weights))
        }
    };
    fs::create_dir_all(&options.out).map_err(|e| no_folder(&options.out, &e))?;
    // Too short data are refused before kernels are built for a window that they cannot fill.
    data::Split::new(ids.len(), data::Split::TRAIN, options.seq)?;
    let compaction = vocabulary(&options, &start, tokenizer.as_ref(), &ids, &config, device.is_some())?;
    show.parts(&options, &config, &ids, &compaction, device.as_ref());
    let shape = Shape::new(config.clone(), options.seq, options.residual, options.weights);
    let predicted = match &target {
        None => None,
        Some((name, model)) => {
            let step = cost::step(&shape, compaction.len(), model)?;
            Some((*name, step.ok_or_else(|| Error::new(format!("--machine {name}: nothing is known of its CPU")))?))
        }
    };
    let engine: Box<dyn Engine> = match &device {
        None => Box::new(ReferenceEngine::new(config.clone())),
        Some(device) => {
            let pipeline = match Pipeline::new(device, shape, compaction.clone(), start.weights()) {
                Ok(pipeline) => pipeline,
                Err(error) => {
                    let step = start.step();
                    // What holds the run's folder goes first.
                    drop(start);
                    return restart::after(told(error.into(), &options.out, step), &args, step, &mut show);
                }
            };
            show.compiled(pipeline.compile_time(), pipeline.surface_bytes());
            Box::new(pipeline)
        }
    };
    let kept = absolute(options.clone());
    let mut run = match start {
        Start::New(weights) => Run::new(kept, config, weights, ids, engine)?,
        Start::Resume(store, checkpoint) => Run::resume(kept, store, *checkpoint, ids, engine)?,
    }
    .with_vocabulary(&compaction);
    if let Some((_, timeline)) = &timeline {
        run = run.with_timeline(timeline);
    }
    if let Some(tokenizer) = &tokenizer {
        keep_tokenizer(tokenizer, &options)?;
    }
    stop_on_ctrl_c(&stop)?;
    let result = run.run(&mut |event| show.event(event), &stop);
    show.finish();
    if let Some((file, timeline)) = timeline {
        timeline_file::write(file, &timeline)?;
    }
    let summary = match result {
        Ok(summary) => summary,
        Err(error) => {
            let step = run.state().step;
            drop(run);
            return restart::after(told(error, &options.out, Some(step)), &args, Some(step), &mut show);
        }
    };
    show.failure()?;
    if !summary.stopped && !args.json {
        let sample = match &tokenizer {
            Some(tokenizer) => match sample(&run, tokenizer, device.as_ref(), options.seed, &stop) {
                Ok(text) => Some(text),
                // The run is done and whole; only its sample cannot be shown, for a device may fail
                // here, too.
                Err(error) if error.device().is_some() => {
                    show.event(&run::Event::Warning { text: format!("no sample: {error}") });
                    None
                }
                Err(error) => return Err(error),
            },
            None => None,
        };
        show.end(&summary, &options.out, sample.as_deref())?;
    }
    if args.memory {
        show.memory(&Memory::new(run.config(), run.memory(), peak_resident()))?;
    }
    if let Some((target, step)) = &predicted {
        show.predicted(target, step, summary.efficiency.micro_step_ms())?;
    }
    Ok(())
}

/// Adds to the help what every option is when it is not given.
pub fn describe(mut command: clap::Command) -> clap::Command {
    let value = |options: RunOptions| serde_json::to_value(options).unwrap_or_default();
    let (embedded, own) = (value(embedded()), value(RunOptions::default()));
    let ids: Vec<String> = command.get_arguments().map(|a| a.get_id().to_string()).collect();
    for id in ids {
        let shown = |options: &serde_json::Value| match options.get(&id) {
            Some(serde_json::Value::String(word)) if id != "out" => Some(word.clone()),
            Some(serde_json::Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let text = match (shown(&embedded), shown(&own)) {
            (Some(embedded), Some(own)) if embedded == own => format!("[default: {own}]"),
            (Some(embedded), Some(own)) => format!("[default: {own}; without --data {embedded}]"),
            _ => continue,
        };
        command = command.mut_arg(&id, |arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(format!("{help} {text}"))
        });
    }
    command
}

enum Start {
    New(Weights),
    Resume(Store, Box<Checkpoint>),
}

impl Start {
    /// Updates done by the run that goes on.
    fn step(&self) -> Option<u64> {
        match self {
            Start::New(_) => None,
            Start::Resume(_, checkpoint) => Some(checkpoint.state.step),
        }
    }

    fn weights(&self) -> &Weights {
        match self {
            Start::New(weights) => weights,
            Start::Resume(_, checkpoint) => &checkpoint.weights,
        }
    }
}

/// The ids that the loss runs over: those of the run that goes on, else those in the data. The
/// reference knows only all.
fn vocabulary(
    options: &RunOptions,
    start: &Start,
    tokenizer: Option<&Tokenizer>,
    ids: &Ids,
    config: &Config,
    device: bool,
) -> Result<Compaction> {
    let compaction = match start {
        Start::Resume(_, checkpoint) => checkpoint.state.compaction.clone(),
        Start::New(_) if options.compact && device => {
            let keep: Vec<u32> = tokenizer.iter().flat_map(|t| [t.bos(), t.eos()]).flatten().collect();
            Some(Compaction::scan(ids, config.vocab, &keep))
        }
        Start::New(_) => None,
    };
    match compaction {
        Some(compaction) if !device && !compaction.is_identity() => Err(Error::new(format!(
            "this run's loss runs over {} of {} ids, the reference's over all; resume on a device, or begin a run with \
             --vocabulary full",
            compaction.len(),
            config.vocab
        ))),
        Some(compaction) if compaction.vocabulary() == config.vocab => Ok(compaction),
        _ => Ok(Compaction::disabled(config.vocab)),
    }
}

/// Puts the tokenizer with the run, where `generate` finds it. A run keeps the one it was begun
/// with.
fn keep_tokenizer(tokenizer: &Tokenizer, options: &RunOptions) -> Result<()> {
    match model::tokenizer(None, &options.out)? {
        Some(found) if options.resume && found.digest() != tokenizer.digest() => Err(Error::new(format!(
            "--tokenizer is not the one that the run in {} was begun with; leave it out",
            options.out.display()
        ))),
        Some(found) if found.digest() == tokenizer.digest() => Ok(()),
        _ => Ok(tokenizer.save(options.out.join(tokenizer.file_name()))?),
    }
}

/// The run that lies in a folder.
fn stored(out: &Path) -> Result<(Store, Checkpoint)> {
    let nothing =
        || Error::new(format!("{}: there is no run to resume; leave --resume out to begin one", out.display()));
    if !out.is_dir() {
        return Err(nothing());
    }
    let store = Store::open(out)?;
    match store.load(None) {
        Err(checkpoint::Error::None(_)) => Err(nothing()),
        Err(error) => Err(error.into()),
        Ok(checkpoint) => Ok((store, checkpoint)),
    }
}

/// The options that a run was begun with.
fn before(checkpoint: &Checkpoint) -> Result<RunOptions> {
    serde_json::from_value(checkpoint.state.options.clone()).map_err(|e| {
        let state = checkpoint.path.join("state.json");
        Error::new(format!("{}: the options of the run cannot be read: {e}", state.display()))
    })
}

/// Model and first weights are settled when a run begins; naming them again is fine, naming others
/// is a mistake.
fn same_start(args: &Train, before: &RunOptions) -> Result<()> {
    let given = absolute(RunOptions { model: args.model.clone(), init: args.init.clone(), ..RunOptions::default() });
    let out = args.out.display();
    for (name, given, before) in [
        ("model", given.model, before.model.clone().or_else(|| before.init.is_none().then(|| MODEL.to_string()))),
        ("init", given.init.map(|p| p.display().to_string()), before.init.as_ref().map(|p| p.display().to_string())),
    ] {
        if let Some(given) = given.filter(|given| before.as_ref() != Some(given)) {
            let before = before.map_or("none".to_string(), |before| format!("--{name} {before}"));
            return Err(Error::new(format!(
                "--{name} {given}: the run in {out} was begun with {before}, which --resume keeps; leave --{name} out, or begin \
                 another run with another --out"
            )));
        }
    }
    Ok(())
}

/// Refuses a folder that has a run, or that is none.
fn vacant(out: &Path) -> Result<()> {
    if out.is_dir() {
        if let Some(step) = Store::open(out)?.steps()?.last().copied() {
            return Err(run::Error::Exists { folder: out.to_path_buf(), step }.into());
        }
    } else if out.exists() {
        return Err(Error::new(format!("--out {}: this is a file; give a folder", out.display())));
    }
    Ok(())
}

/// What is still whole after a failure, and how to go on; `step` is that of the newest checkpoint.
fn told(error: run::Error, out: &Path, step: Option<u64>) -> Error {
    let full = matches!(&error, run::Error::Checkpoint(checkpoint::Error::Io { .. }));
    let error = Error::from(error);
    let (program, out) = (model::program(), run::quoted(&out.to_string_lossy()));
    if full {
        return Error::new(format!(
            "the checkpoint could not be written: {error}\n  The one before it is whole. Make room, then: {program} train --resume \
             --out {out}"
        ));
    }
    match step {
        Some(step) if error.device().is_some() => {
            error.hint(&format!("All {step} updates are saved; to go on: {program} train --resume --out {out}"))
        }
        None if error.device().is_some() => error.hint("Nothing was trained yet; the same command begins again."),
        _ => error,
    }
}

fn no_folder(out: &Path, error: &std::io::Error) -> Error {
    Error::new(format!("--out {}: the folder cannot be made: {error}; give another --out", out.display()))
}

/// With paths that still hold when the run is resumed from elsewhere.
fn absolute(mut options: RunOptions) -> RunOptions {
    for path in [&mut options.init, &mut options.data, &mut options.tokenizer].into_iter().flatten() {
        *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
    }
    if let Some(model) = &mut options.model
        && !PRESETS.contains(&model.as_str())
        && let Ok(path) = std::path::absolute(&*model)
    {
        *model = path.display().to_string();
    }
    options
}

/// Options of the embedded default.
fn embedded() -> RunOptions {
    // Found by trying: the corpus is simple, so the small model takes a high rate, and more updates
    // beat larger ones.
    RunOptions { steps: 3600, accum: 2, lr: 4e-3, eval_every: 600, save_every: 600, ..RunOptions::default() }
}

/// Options in the order: command line, the run that is resumed, defaults.
fn options(args: &Train, before: Option<RunOptions>) -> RunOptions {
    let fresh = before.is_none();
    let mut o = before.unwrap_or_else(|| if args.data.is_none() { embedded() } else { RunOptions::default() });
    macro_rules! take {
        ($($from:ident => $to:ident),*) => { $(if let Some(value) = args.$from.clone() { o.$to = value.into(); })* };
    }
    take!(steps => steps, accum => accum, seq => seq, batch => batch, warmup => warmup, seed => seed,
        eval_every => eval_every, eval_windows => eval_windows, save_every => save_every,
        lr => lr, clip => clip, weight_decay => weight_decay, residual => residual, weights => weights);
    o.min_lr = args.min_lr.or(o.min_lr);
    o.model = args.model.clone().or(o.model);
    o.init = args.init.clone().or(o.init);
    o.data = args.data.clone().or(o.data);
    o.tokenizer = args.tokenizer.clone().or(o.tokenizer);
    if let Some(device) = &args.device {
        o.device = device.clone();
    }
    if fresh && args.warmup.is_none() {
        // A short run keeps a tenth of its updates for warm-up.
        o.warmup = o.warmup.min(o.steps / 10).max(1);
    }
    if let Some(vocabulary) = args.vocabulary {
        o.compact = vocabulary == Vocabulary::Compact;
    }
    o.out = args.out.clone();
    o.resume = args.resume;
    o.json = args.json;
    o
}

/// The tokenizer of a new run's data: the one named; with the embedded corpus its own; the one that
/// lies with the model or its weights; for a text and a new model one that is made from the text.
fn data_tokenizer(options: &RunOptions) -> Result<Option<Tokenizer>> {
    if let Some(path) = &options.tokenizer {
        return Ok(Some(Tokenizer::open(path)?));
    }
    let Some(data) = &options.data else {
        return Ok(Some(story::tokenizer(&corpus())?));
    };
    let folder = options.model.as_deref().map(Path::new).filter(|path| path.is_dir());
    for place in [options.init.as_deref(), folder].into_iter().flatten() {
        if let Some(tokenizer) = model::tokenizer(None, place)? {
            return Ok(Some(tokenizer));
        }
    }
    let extension = data.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    let ids = ["u16", "bin", "u32"].contains(&extension.as_str());
    if ids || options.init.is_some() || !data.is_file() {
        return Ok(None);
    }
    tokenizer_of(data)
}

/// A vocabulary of byte pairs for a text, from its beginning: twice the size when the text has many
/// different characters.
fn tokenizer_of(path: &Path) -> Result<Option<Tokenizer>> {
    let bytes = fs::read(path).map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(e) => return Err(data::Error::NotUtf8 { path: path.to_path_buf(), offset: e.valid_up_to() }.into()),
    };
    let mut end = text.len().min(TOKENIZER_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = data::documents(&text[..end]).collect::<Vec<_>>().join("\n");
    let characters = text.chars().collect::<HashSet<char>>().len();
    // Beside the characters and the 256 bytes there must be room for pairs.
    let size = (characters + 256 + VOCABULARY / 4).next_power_of_two().max(VOCABULARY);
    Ok(Some(Tokenizer::train(&text, size)?))
}

fn corpus() -> String {
    story::generate(story::DEFAULT.0, story::DEFAULT.1)
}

/// Token ids of the data.
fn ids(options: &RunOptions, tokenizer: Option<&Tokenizer>, vocabulary: usize) -> Result<Ids> {
    let source = Source { format: Format::Auto, tokenizer, vocabulary, cache: Some(&options.out) };
    let path = match &options.data {
        Some(path) => path.clone(),
        None => embedded_corpus(&options.out)?,
    };
    Ok(Ids::open(path, &source)?)
}

/// Writes the embedded corpus into the run's folder, where one can read what the model learns.
fn embedded_corpus(out: &Path) -> Result<PathBuf> {
    let path = out.join("stories.txt");
    let text = corpus();
    if fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(path);
    }
    fs::create_dir_all(out).map_err(|e| no_folder(out, &e))?;
    fs::write(&path, text)
        .map_err(|e| Error::new(format!("{}: {e}; make room or give another --out", path.display())))?;
    Ok(path)
}

/// Configuration and weights of a new run.
fn fresh(options: &RunOptions, tokenizer: Option<&Tokenizer>) -> Result<(Config, Weights)> {
    let (mut config, weights) = match &options.init {
        Some(path) => {
            let (config, weights) = model::load(path)?;
            if let Some(name) = &options.model {
                let named = model::config(name)?;
                let same = (named.dim, named.hidden, named.layers, named.heads, named.kv_heads, named.head_dim)
                    == (config.dim, config.hidden, config.layers, config.heads, config.kv_heads, config.head_dim);
                if !same {
                    let path = path.display();
                    return Err(Error::new(format!(
                        "--model {name} and the weights in {path} have different shapes; leave --model out"
                    )));
                }
            }
            if let Some(tokenizer) = tokenizer {
                model::fits(tokenizer, &config)?;
            }
            (config, Some(weights))
        }
        None => {
            let mut config = model::config(options.model.as_deref().unwrap_or(MODEL))?;
            if let Some(tokenizer) = tokenizer {
                config.vocab = tokenizer.vocab_size();
            }
            (config, None)
        }
    };
    config.max_seq = config.max_seq.max(options.seq);
    config.validate()?;
    let weights = weights.unwrap_or_else(|| Weights::init(&config, Init::Normal { std: 0.02 }, options.seed));
    Ok((config, weights))
}

/// Ctrl-C, and a polite kill, set the flag. A second one ends the process at once; the last
/// checkpoint stays whole.
fn stop_on_ctrl_c(stop: &Arc<AtomicBool>) -> Result<()> {
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        out::note("\nstopping after this micro-step; press Ctrl-C again to stop at once");
    })
    .map_err(|e| Error::new(format!("Ctrl-C cannot be handled: {e}")))
}

/// A text by the trained model, through the run's own device.
fn sample(
    run: &Run,
    tokenizer: &Tokenizer,
    device: Option<&ferrane::Device>,
    seed: u64,
    stopped: &AtomicBool,
) -> Result<String> {
    let (config, weights) = (run.config(), run.weights());
    let mut sampler = Sampler::new(0.7, 0.9, seed)?;
    if let Some(vocabulary) = &run.state().compaction {
        sampler = sampler.only(vocabulary.compact_to_full());
    }
    let reference;
    let mut decoder;
    let mut generator = match device {
        None => {
            reference = Reference::new(config, weights)?;
            Generator::reference(&reference)
        }
        Some(device) => {
            decoder = Decoder::new(device, config, weights, decode::Options::default())?;
            Generator::device(&mut decoder)
        }
    };
    let begin = tokenizer.bos().or(tokenizer.eos()).unwrap_or(0);
    let stop: Vec<u32> = [tokenizer.bos(), tokenizer.eos()].into_iter().flatten().collect();
    let mut stream = tokenizer.stream();
    let mut text = stream.push(begin);
    generator.generate(&[begin], SAMPLE, &mut sampler, &stop, |id| {
        text.push_str(&stream.push(id));
        !stopped.load(Ordering::SeqCst)
    })?;
    text.push_str(&stream.finish());
    Ok(text)
}
