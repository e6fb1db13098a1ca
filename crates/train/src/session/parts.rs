//! The parts of a new run: tokenizer, corpus, configuration and initial weights.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use ferrane_llm::chat::Template;
use ferrane_llm::config::{self, Config};
use ferrane_llm::model::{self, Model};
use ferrane_llm::tokenizer::Tokenizer;
use ferrane_llm::weights::{Init, Weights};

use super::{MODEL, SessionError, SessionOptions};
use crate::checkpoint::{Checkpoint, Disk, create_folders};
use crate::data::{self, Corpus, DataEvent, DataSet, Format, Source, story};
use crate::lora::{self, Adapters, Tuning};
use crate::metrics::Memory;
use crate::optim::Frozen;
use crate::run::Event;

/// Smallest number of entries of a tokenizer that is trained on a text.
const VOCABULARY: usize = 512;
/// Largest number of bytes of text that it is trained on.
const TOKENIZER_TEXT: usize = 8 << 20;

/// The tokenizer of a new run's data: the one in the options; for the embedded corpus and a new
/// model its own; the one next to the model or its weights; for the embedded corpus and a model
/// without a tokenizer its own; or, for a text and a new model, one that is trained on the text.
/// `None` for data of ids.
pub fn tokenizer(options: &SessionOptions) -> Result<Option<Tokenizer>, SessionError> {
    if let Some(path) = &options.tokenizer {
        return Ok(Some(Tokenizer::open(path)?));
    }
    if options.data.is_empty() && options.init.is_none() {
        return Ok(Some(story::tokenizer(&corpus())?));
    }
    let folder = options.model.as_deref().map(Path::new).filter(|path| path.is_dir());
    for place in [options.init.as_deref(), folder].into_iter().flatten() {
        if let Some(tokenizer) = Tokenizer::find(place)? {
            return Ok(Some(tokenizer));
        }
    }
    if options.data.is_empty() {
        return Ok(Some(story::tokenizer(&corpus())?));
    }
    // A template needs the tokenizer that it was written for.
    if options.init.is_some() || options.chat {
        return Ok(None);
    }
    let text = data::beginning(&options.data, &options.data_field, TOKENIZER_TEXT)?;
    text.map(|text| trained_tokenizer(&text)).transpose()
}

/// Trains a byte-pair vocabulary on a text. It is larger if the text has many distinct characters.
fn trained_tokenizer(text: &str) -> Result<Tokenizer, SessionError> {
    let characters = text.chars().collect::<HashSet<char>>().len();
    // In addition to the characters and the 256 bytes there must be room for pairs.
    let size = (characters + 256 + VOCABULARY / 4).next_power_of_two().max(VOCABULARY);
    Ok(Tokenizer::train(text, size)?)
}

fn corpus() -> String {
    story::generate(story::DEFAULT.0, story::DEFAULT.1)
}

/// The chat template of conversations, if the data are some.
fn template(options: &SessionOptions) -> Result<Option<Template>, SessionError> {
    if !options.chat {
        return Ok(None);
    }
    if let Some(path) = &options.chat_template {
        let source = fs::read_to_string(path).map_err(|source| SessionError::Io { file: path.clone(), source })?;
        let read = Template::new(&source);
        return Ok(Some(read.map_err(|source| SessionError::TemplateFile { file: path.clone(), source })?));
    }
    let model = options.model.as_deref().map(Path::new).filter(|path| path.exists());
    for place in [options.init.as_deref(), model].into_iter().flatten() {
        if let Some(template) = Template::find(place)? {
            return Ok(Some(template));
        }
    }
    Err(SessionError::NoTemplate)
}

/// Opens the data, for a vocabulary of `vocabulary` entries.
pub fn corpus_of(
    options: &SessionOptions,
    tokenizer: Option<&Tokenizer>,
    vocabulary: usize,
    events: &mut dyn FnMut(&Event),
) -> Result<Corpus, SessionError> {
    let template = template(options)?;
    let source = Source {
        format: Format::Auto,
        tokenizer,
        vocabulary,
        field: options.field(),
        template: template.as_ref(),
        bad_rows: options.bad_rows,
        cache: options.data_cache.as_deref(),
    };
    let mut listen = |event: &DataEvent| match event {
        DataEvent::Encoding { path, done, total } => {
            events(&Event::Encoding { path: path.clone(), done: *done, total: *total });
        }
        DataEvent::Note(text) => events(&Event::Warning { text: text.clone() }),
    };
    Ok(if options.data.is_empty() {
        let embedded = DataSet::from(embedded_corpus(&options.run.out)?);
        Corpus::open(&[embedded], &source, &mut listen)?
    } else {
        Corpus::open(&options.data, &source, &mut listen)?
    })
}

/// Writes the embedded corpus into the run's folder, so that users can read it.
fn embedded_corpus(out: &Path) -> Result<PathBuf, SessionError> {
    let path = out.join("stories.txt");
    let text = corpus();
    if fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(path);
    }
    create_folder(out)?;
    fs::write(&path, text).map_err(|source| SessionError::Io { file: path.clone(), source })?;
    Ok(path)
}

/// Creates the run's folder.
pub fn create_folder(out: &Path) -> Result<(), SessionError> {
    create_folders(&Disk, out).map_err(|source| SessionError::Folder { folder: out.to_path_buf(), source })
}

/// The configuration and the initial weights of a new run, which must fit the memory.
pub fn model(
    options: &SessionOptions,
    tokenizer: Option<&Tokenizer>,
    on_device: bool,
) -> Result<(Config, Weights), SessionError> {
    let (mut config, weights) = match &options.init {
        Some(path) => started_from(path, options.model.as_deref(), tokenizer)?,
        None => {
            let mut config = config::named(options.model.as_deref().unwrap_or(MODEL))?;
            if let Some(tokenizer) = tokenizer {
                config.vocab = tokenizer.vocab_size();
            }
            (config, None)
        }
    };
    config.max_seq = config.max_seq.max(options.run.seq);
    config.validate()?;
    let loaded = weights.is_some();
    check_memory(&config, options, on_device, loaded, ferrane_host::memory::available())?;
    let weights = weights.unwrap_or_else(|| Weights::init(&config, Init::Normal { std: 0.02 }, options.run.seed));
    Ok((config, weights))
}

/// Checks that `available` bytes are enough for what the run needs at least, of which the weights
/// may be `loaded` already. An allocation of more than there is succeeds on most systems, which
/// then end the process when it uses the memory.
fn check_memory(
    config: &Config,
    options: &SessionOptions,
    on_device: bool,
    loaded: bool,
    available: Option<usize>,
) -> Result<(), SessionError> {
    let kept = match on_device {
        true => options.recompute.map_or(config.layers, |layers| layers.get().min(config.layers)),
        false => 0,
    };
    let needed = Memory::least(config, options.run.seq, kept);
    // Of adapters, only that they are small is known here.
    let trained = match options.lora {
        Some(_) => 0,
        None => Frozen::matching(config, &options.freeze)?.trained(config),
    };
    let mut needed = needed.of_trained(trained, 0);
    if options.run.shard_optimizer {
        // Over how many ranks the moments are sharded is not known here.
        needed.moments = 0;
    }
    let available = available.map(|bytes| bytes.saturating_add(if loaded { needed.weights } else { 0 }));
    match available {
        Some(available) if needed.owned() > available => {
            Err(SessionError::Memory { needed: Box::new(needed), available })
        }
        _ => Ok(()),
    }
}

/// New adapters for the weights of a run that trains them.
pub fn new_adapters(
    options: &SessionOptions,
    config: &Config,
    weights: &Weights,
) -> Result<Option<(Tuning, Adapters)>, SessionError> {
    let Some(lora) = &options.lora else { return Ok(None) };
    if options.init.is_none() {
        return Err(SessionError::NoBase(lora.rank));
    }
    Ok(Some(Tuning::begin(config, weights, lora, options.run.seed)?))
}

/// The adapters of a checkpoint, if it has any. Its weights become those of the model with the
/// adapters' changes.
pub fn resumed_adapters(
    options: &SessionOptions,
    tokenizer: Option<&Tokenizer>,
    on_device: bool,
    checkpoint: &mut Checkpoint,
) -> Result<Option<(Tuning, Adapters)>, SessionError> {
    let Some(stored) = checkpoint.adapters.take() else { return Ok(None) };
    let found = model(options, tokenizer, on_device).map_err(|error| SessionError::Base(Box::new(error)))?;
    if found.1.check(&checkpoint.config).is_err() {
        return Err(lora::Error::other_base(&stored.base, &lora::digest(&found.0, &found.1)).into());
    }
    checkpoint.weights = found.1;
    Ok(Some(Tuning::resume(&checkpoint.config, &mut checkpoint.weights, stored)?))
}

/// The weights in `path`, checked against the name of their model and against the tokenizer.
fn started_from(
    path: &Path,
    name: Option<&str>,
    tokenizer: Option<&Tokenizer>,
) -> Result<(Config, Option<Weights>), SessionError> {
    let Model { config, weights, .. } = Model::open_without_tokenizer(path)?;
    let widths = |c: &Config| (c.dim, c.hidden, c.layers, c.heads, c.kv_heads, c.head_dim);
    if let Some(name) = name
        && widths(&config::named(name)?) != widths(&config)
    {
        return Err(SessionError::Shapes { model: name.to_string(), init: path.to_path_buf() });
    }
    if let Some(tokenizer) = tokenizer {
        model::fits(tokenizer, &config)?;
    }
    let weights = Weights::read(&weights, &config).map_err(model::Error::from)?;
    Ok((config, Some(weights)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lora::LoraOptions;
    use ferrane_llm::config::preset;
    use std::num::NonZeroUsize;

    #[test]
    fn a_run_that_needs_more_than_there_is_is_refused_with_a_remedy() {
        let config = preset("stories110m").unwrap();
        let mut options = SessionOptions::default();
        let refused = |options: &SessionOptions, on_device, loaded, available| {
            check_memory(&config, options, on_device, loaded, Some(available)).err().map(|e| e.to_string())
        };
        let state = 16 * config.parameters();
        // Without a device, only weights, gradients and moments are counted.
        assert_eq!(refused(&options, false, false, state), None);
        let text = refused(&options, false, false, state - 1).unwrap();
        assert!(text.contains("1.8 GB at least") && text.ends_with("(`lora`)"), "{text}");
        assert_eq!(refused(&options, false, true, state - state / 4), None, "the weights are loaded already");
        assert!(refused(&options, true, false, state).is_some(), "activations");
        options.run.seq = 8192;
        let text = refused(&options, true, false, state + (2 << 30)).unwrap();
        assert!(text.contains("`recompute`"), "{text}");
        options.recompute = NonZeroUsize::new(1);
        assert_eq!(refused(&options, true, false, state + (2 << 30)), None);
        options.freeze = vec!["layers.*".into(), "norm".into()];
        assert_eq!(refused(&options, true, false, state / 2 + (2 << 30)), None, "only the embedding is trained");
        options.freeze.clear();
        options.run.shard_optimizer = true;
        assert_eq!(refused(&options, true, false, state / 2 + (2 << 30)), None, "other ranks may hold the moments");
        options.run.shard_optimizer = false;
        options.lora = Some(LoraOptions { rank: 4, alpha: 8.0, targets: vec!["q_proj".into()] });
        assert_eq!(refused(&options, true, false, state / 4 + (2 << 30)), None);
        assert_eq!(check_memory(&config, &options, true, false, None).ok(), Some(()), "an unknown amount");
    }
}
