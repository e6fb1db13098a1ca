//! `ferrane train`: makes the parts of a run from the command line and shows how it goes.

mod show;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane::llm::config::Config;
use ferrane::llm::generate::Generator;
use ferrane::llm::layout::Shape;
use ferrane::llm::reference::Reference;
use ferrane::llm::sample::Sampler;
use ferrane::llm::tokenizer::Tokenizer;
use ferrane::llm::weights::{Init, Weights};
use ferrane::train::checkpoint::{Checkpoint, Store};
use ferrane::train::data::{Compaction, Format, Ids, Source, story};
use ferrane::train::run::{Run, RunOptions};
use ferrane::train::step::{Engine, Pipeline, ReferenceEngine};

use crate::args::{Train, Vocabulary};
use crate::error::{Error, Result};
use crate::model;
use show::Show;

/// Model of a run that names none.
const MODEL: &str = "stories260k";
/// Tokens of the sample that ends a run.
const SAMPLE: usize = 160;

/// Runs the command.
pub fn run(args: Train) -> Result<()> {
    let stored = if args.resume { Some(stored(&args.out)?) } else { None };
    let before = stored.as_ref().map(|(_, checkpoint)| {
        serde_json::from_value::<RunOptions>(checkpoint.state.options.clone()).unwrap_or_default()
    });
    let options = options(&args, before);
    // What is wrong with the numbers is said before any work is done.
    options.check()?;
    let device = model::device(&options.device)?;
    let mut show = Show::new(args.json);
    let (ids, tokenizer, config, start) = match stored {
        Some((store, checkpoint)) => {
            let config = checkpoint.config.clone();
            let tokenizer = data_tokenizer(&options, Some(&args.out))?;
            let ids = data(&options, tokenizer.as_ref(), config.vocab)?;
            (ids, tokenizer, config, Start::Resume(store, Box::new(checkpoint)))
        }
        None => {
            let tokenizer = data_tokenizer(&options, None)?;
            let (config, weights) = fresh(&options, tokenizer.as_ref())?;
            let ids = data(&options, tokenizer.as_ref(), config.vocab)?;
            (ids, tokenizer, config, Start::New(weights))
        }
    };
    let keep: Vec<u32> = tokenizer.iter().flat_map(|t| [t.bos(), t.eos()]).flatten().collect();
    let compaction = match options.compact {
        true => Compaction::scan(&ids, config.vocab, &keep),
        false => Compaction::disabled(config.vocab),
    };
    let classes = if device.is_some() { compaction.len() } else { config.vocab };
    show.parts(&options, &config, &ids, &compaction, device.as_ref());
    let engine: Box<dyn Engine> = match &device {
        None => Box::new(ReferenceEngine::new(config.clone())),
        Some(device) => {
            let shape = Shape::new(config.clone(), options.seq, options.residual, options.weights);
            let pipeline = Pipeline::new(device, shape, compaction, start.weights())?;
            show.compiled(pipeline.compile_time(), pipeline.surface_bytes());
            Box::new(pipeline)
        }
    };
    let mut run = match start {
        Start::New(weights) => Run::new(options.clone(), config, weights, ids, engine)?,
        Start::Resume(store, checkpoint) => Run::resume(options.clone(), store, *checkpoint, ids, engine)?,
    }
    .with_classes(classes);
    // So that `generate` finds it with the run.
    if let Some(tokenizer) = &tokenizer {
        tokenizer.save(options.out.join(tokenizer.file_name()))?;
    }
    let stop = stop_on_ctrl_c()?;
    let summary = run.run(&mut |event| show.event(event), &stop)?;
    show.finish();
    if !summary.stopped && !args.json {
        let sample = match &tokenizer {
            Some(tokenizer) => Some(sample(&run, tokenizer, device.as_ref(), options.seed)?),
            None => None,
        };
        show.end(&summary, &options.out, sample.as_deref());
    }
    Ok(())
}

enum Start {
    New(Weights),
    Resume(Store, Box<Checkpoint>),
}

impl Start {
    fn weights(&self) -> &Weights {
        match self {
            Start::New(weights) => weights,
            Start::Resume(_, checkpoint) => &checkpoint.weights,
        }
    }
}

/// The run that lies in a folder.
fn stored(out: &Path) -> Result<(Store, Checkpoint)> {
    if !out.is_dir() {
        return Err(Error::new(format!(
            "{}: there is no run to resume; leave --resume out to begin one",
            out.display()
        )));
    }
    let store = Store::open(out)?;
    let checkpoint = store.load(None)?;
    Ok((store, checkpoint))
}

/// Options in the order: command line, the run that is resumed, defaults.
fn options(args: &Train, before: Option<RunOptions>) -> RunOptions {
    let fresh = before.is_none();
    let mut o = before.unwrap_or_else(|| {
        // Found by trying: the corpus is simple, so the small model takes a high rate, and more updates beat larger ones.
        let embedded =
            RunOptions { steps: 2400, accum: 2, lr: 4e-3, eval_every: 400, save_every: 400, ..RunOptions::default() };
        if args.data.is_none() { embedded } else { RunOptions::default() }
    });
    macro_rules! take {
        ($($from:ident => $to:ident),*) => { $(if let Some(value) = args.$from.clone() { o.$to = value.into(); })* };
    }
    take!(steps => steps, accum => accum, seq => seq, batch => batch, warmup => warmup, seed => seed,
        eval_every => eval_every, eval_windows => eval_windows, save_every => save_every,
        residual => residual, weights => weights);
    let exact = |value: f32| value.to_string().parse::<f64>().unwrap_or(f64::from(value));
    for (from, to) in [(args.lr, &mut o.lr), (args.clip, &mut o.clip), (args.weight_decay, &mut o.weight_decay)] {
        if let Some(value) = from {
            *to = exact(value);
        }
    }
    o.min_lr = args.min_lr.map(exact).or(o.min_lr);
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

/// The tokenizer of the data: the one named; with the embedded corpus its own; for a resumed run the one in its folder.
fn data_tokenizer(options: &RunOptions, resumed: Option<&Path>) -> Result<Option<Tokenizer>> {
    if let Some(path) = &options.tokenizer {
        return Ok(Some(Tokenizer::open(path)?));
    }
    if let Some(out) = resumed {
        return Ok(model::tokenizer(None, out).ok());
    }
    if options.data.is_none() {
        return Ok(Some(story::tokenizer(&corpus())?));
    }
    // A Hugging Face folder brings its own.
    Ok(options.init.as_deref().and_then(|init| model::tokenizer(None, init).ok()))
}

fn corpus() -> String {
    story::generate(story::DEFAULT.0, story::DEFAULT.1)
}

/// Token ids of the data.
fn data(options: &RunOptions, tokenizer: Option<&Tokenizer>, vocabulary: usize) -> Result<Ids> {
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
    let failed = |e: std::io::Error| Error::new(format!("{}: {e}", path.display()));
    fs::create_dir_all(out).map_err(failed)?;
    fs::write(&path, text).map_err(failed)?;
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

/// The flag that Ctrl-C sets. A second Ctrl-C ends the process at once; the last checkpoint stays whole.
fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("\nstopping after this micro-step; press Ctrl-C again to stop at once");
    })
    .map_err(|e| Error::new(format!("Ctrl-C cannot be handled: {e}")))?;
    Ok(stop)
}

/// A text by the trained model, through the run's own device.
fn sample(run: &Run, tokenizer: &Tokenizer, device: Option<&ferrane::Device>, seed: u64) -> Result<String> {
    let (config, weights) = (run.config(), run.weights());
    let mut sampler = Sampler::new(0.7, 0.9, seed)?;
    let reference;
    let mut forward;
    let mut generator = match device {
        None => {
            reference = Reference::new(config, weights)?;
            Generator::reference(&reference)
        }
        Some(device) => {
            forward = crate::generate::open(device, config, weights, SAMPLE)?;
            Generator::device(&mut forward)
        }
    };
    let begin = tokenizer.bos().or(tokenizer.eos()).unwrap_or(0);
    let stop: Vec<u32> = [tokenizer.bos(), tokenizer.eos()].into_iter().flatten().collect();
    let mut stream = tokenizer.stream();
    let mut text = stream.push(begin);
    generator.generate(&[begin], SAMPLE, &mut sampler, &stop, |id| {
        text.push_str(&stream.push(id));
        true
    })?;
    text.push_str(&stream.finish());
    Ok(text)
}
