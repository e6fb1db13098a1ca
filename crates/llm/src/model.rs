//! A model on disk: configuration, weights, tokenizer, and the ids that it may produce.
//!
//! [`Model::open`] takes every path that `ferrane` writes or reads: the folder of a training run,
//! one of its checkpoints, a llama2.c `.bin`, a safetensors file, or a Hugging Face folder. The
//! parts that come out fit each other: the weights have the configuration's shapes and the
//! tokenizer has no id that the model lacks.
//!
//! ```no_run
//! use ferrane_llm::model::Model;
//! use ferrane_llm::sample::Sampler;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("runs/default")?;
//! // `None`: the fp32 reference. `Some(&device)` runs the model on a device.
//! let mut generator = model.generator(None, Default::default(), Sampler::new(0.8, 0.9, 1)?)?;
//! for piece in generator.generate("Once upon a time", 64)? {
//!     print!("{}", piece?.text);
//! }
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};

use ferrane_device::Device;

use crate::compaction::Compaction;
use crate::config::Config;
use crate::decode;
use crate::generate::{self, NextLogits, TextGenerator};
use crate::run_folder;
use crate::sample::Sampler;
use crate::tokenizer::{self, Tokenizer};
use crate::weights::{self, Weights};

/// Why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing lies at the path.
    #[error("{}: no such checkpoint", .0.display())]
    Missing(PathBuf),
    /// The weights or the configuration cannot be read.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// The tokenizer cannot be read.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// The tokenizer belongs to another model.
    #[error("the tokenizer has {ids} ids, the model only {vocab}; use the model's own tokenizer")]
    Vocabulary {
        /// Ids of the tokenizer.
        ids: usize,
        /// Ids of the model.
        vocab: usize,
    },
    /// Text was asked of a model without a tokenizer.
    #[error("no tokenizer lies with {}; name one with `tokenizer`", .0.display())]
    NoTokenizer(PathBuf),
}

/// A model as it was read.
#[derive(Debug, Clone)]
pub struct Model {
    /// The path it was opened at.
    pub path: PathBuf,
    /// The configuration.
    pub config: Config,
    /// The weights, which fit the configuration.
    pub weights: Weights,
    /// The tokenizer, if one lies with the weights or was named.
    pub tokenizer: Option<Tokenizer>,
    /// The ids that the loss of the training run ran over, if they were not all. Logits of other
    /// ids mean nothing.
    pub vocabulary: Option<Compaction>,
}

impl Model {
    /// Opens a model and the tokenizer that lies with it, if there is one ([`Tokenizer::find`]).
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Weights`], [`Error::Tokenizer`]; [`Error::Vocabulary`] if the
    /// tokenizer has ids that the model lacks.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = path.as_ref();
        let model = Model::open_without_tokenizer(path)?;
        match Tokenizer::find(path)? {
            Some(tokenizer) => model.with_tokenizer(tokenizer),
            None => Ok(model),
        }
    }

    /// Opens a model with the tokenizer at another path, whatever lies with the weights.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_with_tokenizer(path: impl AsRef<Path>, tokenizer: impl AsRef<Path>) -> Result<Model, Error> {
        Model::open_without_tokenizer(path)?.with_tokenizer(Tokenizer::open(tokenizer)?)
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
        let (config, weights) = weights::load(path, None)?;
        let vocabulary = match run_folder::find_model(path)? {
            // A map of another size belongs to other weights.
            Some(file) => run_folder::compaction(&file)?.filter(|map| map.vocabulary() == config.vocab),
            None => None,
        };
        Ok(Model { path: path.to_path_buf(), config, weights, tokenizer: None, vocabulary })
    }

    fn with_tokenizer(mut self, tokenizer: Tokenizer) -> Result<Model, Error> {
        fits(&tokenizer, &self.config)?;
        self.tokenizer = Some(tokenizer);
        Ok(self)
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`].
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_ref().ok_or_else(|| Error::NoTokenizer(self.path.clone()))
    }

    /// What gives the logits of the next token ([`generate::next_logits`]).
    ///
    /// # Errors
    /// As [`generate::next_logits`].
    pub fn next_logits(
        &self,
        device: Option<&Device>,
        options: decode::Options,
    ) -> Result<Box<dyn NextLogits + '_>, generate::Error> {
        generate::next_logits(&self.config, &self.weights, device, options)
    }

    /// Text from this model: on `device`, or by the fp32 reference without one. The sampler is
    /// restricted to the ids of [`Model::vocabulary`].
    ///
    /// # Errors
    /// [`generate::Error::Model`] without a tokenizer; else as [`generate::next_logits`].
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
        Ok(TextGenerator::new(tokenizer, self.next_logits(device, options)?, sampler))
    }
}

/// Refuses a tokenizer whose ids the model does not have.
///
/// # Errors
/// [`Error::Vocabulary`].
pub fn fits(tokenizer: &Tokenizer, config: &Config) -> Result<(), Error> {
    match (tokenizer.vocab_size(), config.vocab) {
        (ids, vocab) if ids > vocab => Err(Error::Vocabulary { ids, vocab }),
        _ => Ok(()),
    }
}
