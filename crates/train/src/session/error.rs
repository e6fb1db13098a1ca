//! The errors of a session.

use std::io;
use std::path::PathBuf;

use ferrane_llm::{config, generate, model, tokenizer, weights};

use crate::metrics::Memory;
use crate::ranks::RankError;
use crate::step::StepError;
use crate::{checkpoint, data, lora, run};

/// The errors of a session. Messages name fields of [`SessionOptions`](super::SessionOptions) in
/// backquotes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The ranks of the run cannot work together.
    #[error(transparent)]
    Ranks(#[from] RankError),
    /// There is no run in the folder.
    #[error("{}: there is no run to resume", .0.display())]
    NothingToResume(PathBuf),
    /// The options in a checkpoint cannot be parsed.
    #[error("{}: the options of the run cannot be read: {source}", file.display())]
    Options {
        /// Path of the file.
        file: PathBuf,
        /// The cause, as the parser reports it.
        source: serde_json::Error,
    },
    /// A resumed run was given another model or other initial weights, which it must keep.
    #[error(
        "`{field}` {given}: the run in {} was begun with {}, which a resumed run keeps",
        folder.display(),
        before.as_ref().map_or_else(|| "none".to_string(), |before| format!("`{field}` {before}"))
    )]
    OtherStart {
        /// `model`, `init` or `lora`.
        field: &'static str,
        /// The value that the caller gave.
        given: String,
        /// The value that the run was begun with; `None` if it was not given then.
        before: Option<String>,
        /// Path of the run's folder.
        folder: PathBuf,
    },
    /// A resumed run was given another tokenizer than its own.
    #[error("`tokenizer` is not the one that the run in {} was begun with; leave it out", .0.display())]
    OtherTokenizer(PathBuf),
    /// The path of the run's folder is a file.
    #[error("`out` {}: this is a file; give a folder", .0.display())]
    NotAFolder(PathBuf),
    /// The run's folder cannot be created.
    #[error("`out` {}: the folder cannot be made: {source}; give another `out`", folder.display())]
    Folder {
        /// Path of the run's folder.
        folder: PathBuf,
        /// The cause, as the system reports it.
        source: io::Error,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// Path of the file.
        file: PathBuf,
        /// The cause, as the system reports it.
        source: io::Error,
    },
    /// The weights have other shapes than the model.
    #[error("`model` {model} and the weights in {} have different shapes; leave `model` out", init.display())]
    Shapes {
        /// Name of the model.
        model: String,
        /// Path of the weights.
        init: PathBuf,
    },
    /// A run with a compact vocabulary cannot resume on the reference, whose loss runs over all
    /// ids.
    #[error(
        "this run's loss runs over {active} of {vocab} ids, the reference's over all; resume on a device, or begin a run \
         over the full `vocabulary`"
    )]
    Vocabulary {
        /// Number of ids that the run's loss runs over.
        active: usize,
        /// Number of ids of the model.
        vocab: usize,
    },
    /// The model or its weights cannot be opened.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The configuration is invalid or cannot be read.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The weights do not fit the configuration, or cannot be read.
    #[error(transparent)]
    Weights(#[from] weights::Error),
    /// The tokenizer cannot be opened, trained or saved.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// The data cannot be opened, or are too short.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// The run's folder is in use, or a checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// A kernel cannot be built, compiled, loaded or evaluated.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Conversations without a template.
    #[error("`chat`: the model has no chat template; give one with `chat_template`")]
    NoTemplate,
    /// The chat template of the model cannot be read.
    #[error(transparent)]
    Template(#[from] ferrane_llm::chat::Error),
    /// The chat template in a file is not one.
    #[error("{}: {source}", file.display())]
    TemplateFile {
        /// Path of the file.
        file: PathBuf,
        /// The mistake in it.
        source: ferrane_llm::chat::Error,
    },
    /// The model whose adapters a run trains cannot be opened.
    #[error("the model that the run's adapters belong to: {0}")]
    Base(Box<SessionError>),
    /// Adapters cannot be trained with these options or weights.
    #[error(transparent)]
    Lora(#[from] lora::Error),
    /// The run needs more memory than there is.
    #[error(
        "this run needs {:.1} GB at least ({:.1} GB for weights, gradients and moments, {:.1} GB for activations), and \
         {:.1} GB are available: {}",
        gb(needed.owned()),
        gb(needed.weights + needed.gradients + needed.moments),
        gb(needed.engine.activations),
        gb(*available),
        remedy(needed)
    )]
    Memory {
        /// What it needs at least.
        needed: Box<Memory>,
        /// Bytes that are available.
        available: usize,
    },
    /// Tensors cannot be frozen.
    #[error(transparent)]
    Freeze(#[from] crate::optim::FreezeError),
    /// Frozen tensors of a run that trains adapters.
    #[error("`freeze`: a run of adapters (`lora`) trains no tensor of the model; leave one of the two out")]
    FreezeOfAdapters,
    /// Adapters without a model.
    #[error("`lora` {0}: adapters need the weights of a model; give `init`")]
    NoBase(usize),
    /// The training loop failed.
    #[error(transparent)]
    Run(#[from] run::Error),
    /// Text generation with the trained model failed.
    #[error(transparent)]
    Generate(#[from] generate::Error),
}

fn gb(bytes: usize) -> f64 {
    bytes as f64 / 1e9
}

/// What makes a run smaller, the larger part first.
fn remedy(needed: &Memory) -> &'static str {
    if needed.engine.activations > needed.owned() / 2 {
        "set `recompute` to 1, or give a smaller `seq`"
    } else {
        "take a smaller `model`, or train adapters of it (`lora`)"
    }
}
