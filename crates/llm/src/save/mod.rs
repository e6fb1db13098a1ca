//! Models written for other programs: folders of Hugging Face, and GGUF files.
//!
//! [`huggingface`] and [`gguf`] write any model that [`Model::open`] opens, with its adapter merged
//! and with a tokenizer that the other program reads. A target appears when it is complete, and
//! never replaces the model that is read.
//!
//! ```no_run
//! use ferrane_llm::model::Model;
//! use ferrane_llm::save::{self, SavedWeights};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("runs/default")?;
//! save::huggingface(&model, SavedWeights::Fp16, "stories".as_ref(), false, &mut |_| true)?;
//! save::gguf(&model, SavedWeights::Q8_0, "stories.gguf".as_ref(), false, &mut |_| true)?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what |
//! |---|---|
//! | `prepare` | models of other formats in the form of Hugging Face |
//! | `folder`, `hub` | what is in a folder; the one that the model was read from |
//! | `tensors` | the file of the weights, shared with [`mod@crate::quantize`] |
//! | `gguf` | the file of llama.cpp |

mod error;
mod folder;
mod gguf;
pub(crate) mod hub;
mod prepare;
pub(crate) mod tensors;

use std::fs;
use std::path::Path;

pub use error::Error;
pub use folder::huggingface;
pub use gguf::gguf;
pub use prepare::prepare;

use crate::config::Config;
use crate::model::Model;
use crate::weights::Weights;

/// How the matrices of a written model are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SavedWeights {
    /// fp16, rounded to nearest even. In a GGUF file norms and biases are fp32.
    #[default]
    Fp16,
    /// fp32.
    Fp32,
    /// 8-bit codes with a scale for each block of 32 weights, only in GGUF files. Matrices whose
    /// rows are not whole blocks are fp16; norms and biases are fp32.
    Q8_0,
}

impl SavedWeights {
    /// `fp16`, `fp32` or `q8_0`.
    pub fn name(self) -> &'static str {
        match self {
            SavedWeights::Fp16 => "fp16",
            SavedWeights::Fp32 => "fp32",
            SavedWeights::Q8_0 => "q8_0",
        }
    }
}

/// The files of a written model, with what their reader should know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Saved {
    /// The names of the files in the folder, in ascending order; of a GGUF file, its name.
    pub files: Vec<String>,
    /// Number of tensors in the file, whose names are those of the format.
    pub tensors: usize,
    /// Bytes of all tensors.
    pub weight_bytes: u64,
    /// What a reader of the file should know: what it lacks, each as a sentence without its end.
    pub notes: Vec<String>,
}

/// Refuses a target that exists, unless it may be overwritten, and one that the model is read from.
/// The writers check it too; a caller that does so first fails before the work.
///
/// # Errors
/// [`Error::Exists`], [`Error::Source`], [`Error::Io`].
pub fn check_target(source: &Path, target: &Path, overwrite: bool) -> Result<(), Error> {
    if target.symlink_metadata().is_err() {
        return Ok(());
    }
    let real = |path: &Path| fs::canonicalize(path).map_err(Error::io(path));
    if real(source)?.starts_with(real(target)?) {
        return Err(Error::Source(target.to_path_buf()));
    }
    if overwrite { Ok(()) } else { Err(Error::Exists(target.to_path_buf())) }
}

/// Checks a target against everything that is read.
fn check(model: &Model, target: &Path, overwrite: bool) -> Result<(), Error> {
    check_target(&model.path, target, overwrite)?;
    model.adapter().map_or(Ok(()), |adapter| check_target(adapter.path(), target, overwrite))
}

/// The configuration and the weights in the form of Hugging Face, with the adapter.
fn prepared(model: &Model) -> Result<(Config, Weights), Error> {
    let (mut config, mut weights) = (model.config.clone(), Weights::read(&model.weights, &model.config)?);
    if let Some(adapter) = model.adapter() {
        adapter.merge_into(&mut weights, &config).map_err(crate::model::Error::from)?;
    }
    prepare(&mut config, &mut weights);
    Ok((config, weights))
}

/// The ids that end a text: those of the tokenizer, and those that the model's files list.
fn ends(model: &Model) -> Vec<u32> {
    let own = model.tokenizer.as_ref().map(|tokenizer| tokenizer.text_ends()).unwrap_or_default();
    let mut ends: Vec<u32> = Vec::new();
    for id in own.into_iter().chain(model.generation.stop.iter().copied()) {
        if !ends.contains(&id) {
            ends.push(id);
        }
    }
    ends
}

/// The ids that the training run left out, if any, and what to say about them.
fn untrained(model: &Model) -> Option<(Vec<u32>, String)> {
    let ids = model.untrained();
    let all = model.config.vocab;
    let note = format!(
        "the training text has {} of {all} ids; the logits of the other {} are untrained",
        all - ids.len(),
        ids.len()
    );
    (!ids.is_empty()).then_some((ids, note))
}
