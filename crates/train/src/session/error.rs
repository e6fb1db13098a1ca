//! Why a session cannot be built or does not reach its end.

use std::io;
use std::path::PathBuf;

use ferrane_llm::{config, generate, model, tokenizer, weights};

use crate::step::StepError;
use crate::{checkpoint, data, run};

/// Why a session cannot be built or does not reach its end. Messages name fields of
/// [`SessionOptions`](super::SessionOptions) in backquotes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// There is no run in the folder.
    #[error("{}: there is no run to resume", .0.display())]
    NothingToResume(PathBuf),
    /// The options in a checkpoint are damaged.
    #[error("{}: the options of the run cannot be read: {source}", file.display())]
    Options {
        /// The file.
        file: PathBuf,
        /// What the parser reports.
        source: serde_json::Error,
    },
    /// A resumed run keeps the model and the weights that it was begun with.
    #[error(
        "`{field}` {given}: the run in {} was begun with {}, which a resumed run keeps",
        folder.display(),
        before.as_ref().map_or_else(|| "none".to_string(), |before| format!("`{field}` {before}"))
    )]
    OtherStart {
        /// `model` or `init`.
        field: &'static str,
        /// What was asked for.
        given: String,
        /// What the run was begun with, if anything.
        before: Option<String>,
        /// The run's folder.
        folder: PathBuf,
    },
    /// A resumed run keeps its tokenizer.
    #[error("`tokenizer` is not the one that the run in {} was begun with; leave it out", .0.display())]
    OtherTokenizer(PathBuf),
    /// The run's folder is a file.
    #[error("`out` {}: this is a file; give a folder", .0.display())]
    NotAFolder(PathBuf),
    /// The run's folder cannot be created.
    #[error("`out` {}: the folder cannot be made: {source}; give another `out`", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The weights have other shapes than the model.
    #[error("`model` {model} and the weights in {} have different shapes; leave `model` out", init.display())]
    Shapes {
        /// The model.
        model: String,
        /// The weights.
        init: PathBuf,
    },
    /// The reference computes the loss over the whole vocabulary.
    #[error(
        "this run's loss runs over {active} of {vocab} ids, the reference's over all; resume on a device, or begin a run \
         over the full `vocabulary`"
    )]
    Vocabulary {
        /// Ids that the run's loss runs over.
        active: usize,
        /// Ids of the model.
        vocab: usize,
    },
    /// The model or its weights.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The configuration.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// Weights that do not belong to the configuration.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// The data.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// The run's folder or a checkpoint in it.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// The kernels.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The loop.
    #[error(transparent)]
    Run(#[from] run::Error),
    /// Text from the trained model.
    #[error(transparent)]
    Generate(#[from] generate::Error),
}
