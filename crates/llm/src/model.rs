//! A model on disk: configuration, weights, tokenizer, and the ids that it was trained on.
//!
//! [`Model::open`] takes every path that `ferrane` writes or reads: the folder of a training run,
//! one of its checkpoints, a llama2.c `.bin`, a safetensors or GGUF file, or a Hugging Face folder.
//! The parts of an opened model fit each other: the weights have the configuration's shapes, and
//! every id of the tokenizer is below the model's vocabulary size.
//!
//! ```no_run
//! use ferrane_llm::model::Model;
//! use ferrane_llm::sample::{Sampler, Sampling};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("runs/default")?;
//! // `None`: the fp32 reference. `Some(&device)` runs the model on a device.
//! let sampler = Sampler::new(&Sampling { temperature: 0.8, top_p: 0.9, ..Sampling::default() })?;
//! let mut generator = model.generator(None, Default::default(), sampler)?;
//! for piece in generator.generate("Once upon a time", 64)? {
//!     print!("{}", piece?.text);
//! }
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ferrane_device::Device;

use crate::compaction::Compaction;
use crate::config::Config;
use crate::decode::{self, Decoder, quantize::WeightType};
use crate::generate::{self, NextLogits, TextGenerator};
use crate::generation_config::{self, GenerationConfig};
use crate::grammar::GrammarTokens;
use crate::lora::{self, Adapter};
use crate::run_folder;
use crate::sample::Sampler;
use crate::tokenizer::{self, Tokenizer};
use crate::weights::{self, StoredWeights, Weights};

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file or folder exists at the path.
    #[error("{}: no such checkpoint", .0.display())]
    Missing(PathBuf),
    /// The folder has adapters, without the weights of their model.
    #[error(
        "{}: these are adapters, without the weights of their model; generate, chat, serve, eval and export take the \
         model with these as `lora`",
        .0.display()
    )]
    OnlyAdapters(PathBuf),
    /// The weights or the configuration cannot be read.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// The tokenizer cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// The adapter does not fit the model.
    #[error(transparent)]
    Lora(#[from] lora::Error),
    /// The recommendations for generation cannot be read.
    #[error(transparent)]
    Generation(#[from] generation_config::Error),
    /// The tokenizer has more ids than the model.
    #[error("the tokenizer has {ids} ids, the model only {vocab}; use the model's own tokenizer")]
    Vocabulary {
        /// Number of ids of the tokenizer.
        ids: usize,
        /// Number of ids of the model.
        vocab: usize,
    },
    /// The operation needs a tokenizer, and the model has none.
    #[error("{}: the model has no tokenizer; give one with `tokenizer`", .0.display())]
    NoTokenizer(PathBuf),
}

/// An opened model: configuration, weights and tokenizer.
#[derive(Debug, Clone)]
pub struct Model {
    /// The path that the caller opened.
    pub path: PathBuf,
    /// Sizes and options of the transformer.
    pub config: Config,
    /// The weights in their files, with the shapes of the configuration.
    pub weights: StoredWeights,
    /// The tokenizer, if one was found with the weights or given by the caller.
    pub tokenizer: Option<Tokenizer>,
    /// The ids that the loss of the training run ran over, or those that the model's files do not
    /// suppress; `None` if there are no others. Logits of other ids are untrained.
    pub vocabulary: Option<Compaction>,
    /// What the model's files recommend for generation.
    pub generation: GenerationConfig,
    adapter: Option<Adapter>,
    /// Whether the caller gave the tokenizer.
    given_tokenizer: bool,
    /// The weights in fp32, with the adapter, once they were needed.
    widened: OnceLock<Weights>,
}

impl Model {
    /// Opens a model and the tokenizer next to it, if any ([`Tokenizer::find`]).
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Weights`], [`Error::Tokenizer`]; [`Error::Vocabulary`] if the
    /// tokenizer has more ids than the model.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = path.as_ref();
        let model = Model::open_without_tokenizer(path)?;
        match Tokenizer::find(path)? {
            Some(tokenizer) => model.with_tokenizer(tokenizer),
            None => Ok(model),
        }
    }

    /// Opens a model with the tokenizer at another path; one next to the weights is ignored.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_with_tokenizer(path: impl AsRef<Path>, tokenizer: impl AsRef<Path>) -> Result<Model, Error> {
        let model = Model::open_without_tokenizer(path)?.with_tokenizer(Tokenizer::open(tokenizer)?)?;
        Ok(Model { given_tokenizer: true, ..model })
    }

    /// Opens a model without looking for a tokenizer.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_without_tokenizer(path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(Error::Missing(path.to_path_buf()));
        }
        let (config, weights) = match weights::open(path, None) {
            Err(_) if lora::is_adapter(path) => return Err(Error::OnlyAdapters(path.to_path_buf())),
            opened => opened?,
        };
        let vocabulary = match run_folder::find_model(path)? {
            // A map of another vocabulary size belongs to other weights.
            Some(file) => run_folder::compaction(&file)?.filter(|map| map.vocabulary() == config.vocab),
            None => None,
        };
        let generation = GenerationConfig::find(path)?;
        let suppressed = (!generation.suppress.is_empty()).then(|| {
            let mut kept = vec![true; config.vocab];
            for id in &generation.suppress {
                if let Some(kept) = kept.get_mut(*id as usize) {
                    *kept = false;
                }
            }
            Compaction::used((0..config.vocab as u32).filter(|id| kept[*id as usize]), config.vocab)
        });
        let vocabulary = vocabulary.or(suppressed);
        Ok(Model {
            path: path.to_path_buf(),
            config,
            weights,
            tokenizer: None,
            vocabulary,
            generation,
            adapter: None,
            given_tokenizer: false,
            widened: OnceLock::new(),
        })
    }

    /// The model with an adapter: on a device as inputs of the programs, and merged into the fp32
    /// weights for the reference. [`Model::weights`] stay as they are.
    ///
    /// # Errors
    /// [`Error::Lora`] for an adapter of another model.
    pub fn with_adapter(mut self, adapter: Adapter) -> Result<Model, Error> {
        adapter.check(&self.config)?;
        (self.adapter, self.widened) = (Some(adapter), OnceLock::new());
        Ok(self)
    }

    /// The adapter, if the model has one.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.adapter.as_ref()
    }

    fn with_tokenizer(mut self, tokenizer: Tokenizer) -> Result<Model, Error> {
        fits(&tokenizer, &self.config)?;
        self.tokenizer = Some(tokenizer);
        Ok(self)
    }

    /// Whether the tokenizer is not that of the model's files ([`Model::open_with_tokenizer`]).
    pub(crate) fn has_given_tokenizer(&self) -> bool {
        self.given_tokenizer
    }

    /// The tokenizer, which generation of text needs.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] if the model has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_ref().ok_or_else(|| Error::NoTokenizer(self.path.clone()))
    }

    /// All weights in fp32, with the adapter, as training and the reference need them. They are
    /// read at the first call and then kept. A decoder on a device does without them: it reads rows
    /// of [`Model::weights`].
    ///
    /// # Errors
    /// As [`Weights::read`]; [`Error::Lora`] if the adapter cannot be merged.
    pub fn fp32_weights(&self) -> Result<&Weights, Error> {
        if let Some(weights) = self.widened.get() {
            return Ok(weights);
        }
        let mut weights = Weights::read(&self.weights, &self.config)?;
        if let Some(adapter) = &self.adapter {
            adapter.merge_into(&mut weights, &self.config)?;
        }
        Ok(self.widened.get_or_init(|| weights))
    }

    /// The tokens of the model for grammars, without those outside of [`Model::vocabulary`]. Make
    /// them once: each call looks at the whole vocabulary.
    ///
    /// # Errors
    /// [`generate::Error::Model`] without a tokenizer, [`generate::Error::Grammar`] if it is too
    /// large.
    pub fn grammar_tokens(&self) -> Result<GrammarTokens, generate::Error> {
        let only = self.vocabulary.as_ref().map(Compaction::compact_to_full);
        Ok(GrammarTokens::new(self.tokenizer()?, only)?)
    }

    /// The logits of the next token, on `device` or with the fp32 reference
    /// ([`generate::next_logits`]).
    ///
    /// # Errors
    /// As [`generate::next_logits`]; the weights cannot be read.
    pub fn next_logits(
        &self,
        device: Option<&Device>,
        options: decode::Options,
    ) -> Result<Box<dyn NextLogits + '_>, generate::Error> {
        match device {
            Some(device) => Ok(Box::new(self.decoder(device, options)?)),
            None if options.weights != WeightType::Fp16 => Err(generate::Error::ReferenceWeights),
            None => generate::next_logits(&self.config, self.fp32_weights()?, None, options),
        }
    }

    /// A decoder on `device`, with the model's adapter.
    ///
    /// # Errors
    /// As [`Decoder::new`].
    pub fn decoder(&self, device: &Device, options: decode::Options) -> Result<Decoder, generate::Error> {
        let rank = self.adapter.as_ref().map_or(0, Adapter::rank).max(options.adapter_rank);
        let options = decode::Options { adapter_rank: rank, ..options };
        let mut decoder = Decoder::new(device, &self.config, &self.weights, options)?;
        if self.adapter.is_some() {
            decoder.set_adapter(self.adapter())?;
        }
        Ok(decoder)
    }

    /// The ids outside of [`Model::vocabulary`], which a sampler must not draw; empty if it has
    /// all.
    pub fn untrained(&self) -> Vec<u32> {
        let Some(map) = &self.vocabulary else { return Vec::new() };
        (0..map.vocabulary() as u32).filter(|id| map.compact(*id).is_none()).collect()
    }

    /// A generator of text: on `device`, or with the fp32 reference if `device` is `None`. It
    /// restricts the sampler to the ids of [`Model::vocabulary`].
    ///
    /// # Errors
    /// [`generate::Error::Model`] if the model has no tokenizer; otherwise as
    /// [`generate::next_logits`].
    pub fn generator(
        &self,
        device: Option<&Device>,
        options: decode::Options,
        sampler: Sampler,
    ) -> Result<TextGenerator<'_>, generate::Error> {
        let tokenizer = self.tokenizer()?;
        let sampler = match &self.vocabulary {
            Some(vocabulary) => sampler.only(vocabulary.compact_to_full()),
            None => sampler,
        };
        let generator = TextGenerator::new(tokenizer, self.next_logits(device, options)?, sampler);
        Ok(generator.stop_at(&self.generation.stop, &[]))
    }
}

/// Checks that every id of the tokenizer is below the model's vocabulary size.
///
/// # Errors
/// [`Error::Vocabulary`].
pub fn fits(tokenizer: &Tokenizer, config: &Config) -> Result<(), Error> {
    match (tokenizer.vocab_size(), config.vocab) {
        (ids, vocab) if ids > vocab => Err(Error::Vocabulary { ids, vocab }),
        _ => Ok(()),
    }
}
