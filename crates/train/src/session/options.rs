//! What a session is built from.

use std::path::{Path, PathBuf};

use ferrane_llm::config::{Config, PRESETS};
use ferrane_llm::layout::{Residual, Shape, WeightForm};
use serde::{Deserialize, Serialize};

use crate::run::RunOptions;

/// Preset of a session that names neither a model nor weights.
pub const MODEL: &str = "stories260k";

/// Model, data and device of a run, and the options of its loop. Checkpoints keep them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionOptions {
    /// Preset, configuration file, or folder with a `config.json`; `None`: that of `init`, else
    /// [`MODEL`].
    pub model: Option<String>,
    /// Weights to start from: whatever [`ferrane_llm::model::Model::open`] reads; `None`: random.
    pub init: Option<PathBuf>,
    /// Training data ([`crate::data::Ids::open`]); `None`: the embedded corpus of simple stories.
    pub data: Option<PathBuf>,
    /// Tokenizer; `None`: the one that lies with `init` or `model`, else for a text one that is
    /// trained on it.
    pub tokenizer: Option<PathBuf>,
    /// Name of the device, for whoever opens it when the run is resumed. A session takes an opened
    /// device and only records this.
    pub device: String,
    /// Where the residual stream lives.
    pub residual: Residual,
    /// How weights reach the kernels.
    pub weights: WeightForm,
    /// Classifier and loss run over only the ids that occur in the data (training-dynamic §9). The
    /// reference always computes all.
    pub compact: bool,
    /// The numbers of the loop, and the run's folder.
    #[serde(flatten)]
    pub run: RunOptions,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            model: None,
            init: None,
            data: None,
            tokenizer: None,
            device: "emulator".into(),
            residual: Residual::Fp32,
            weights: WeightForm::Packed,
            compact: true,
            run: RunOptions::default(),
        }
    }
}

impl SessionOptions {
    /// A recipe for the embedded corpus: about three minutes on two cores.
    pub fn embedded() -> Self {
        // Found by experiment: the corpus is simple, so the small model takes a high rate, and more
        // updates beat larger ones.
        let run =
            RunOptions { steps: 3600, accum: 2, lr: 4e-3, eval_every: 600, save_every: 600, ..RunOptions::default() };
        SessionOptions { run, ..SessionOptions::default() }
    }

    /// The shapes of the kernels of a model.
    pub fn shape(&self, config: &Config) -> Shape {
        Shape::new(config.clone(), self.run.seq, self.residual, self.weights)
    }

    /// With absolute paths, which still hold when the run is resumed from another folder.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        for path in [&mut self.init, &mut self.data, &mut self.tokenizer].into_iter().flatten() {
            *path = absolute(path);
        }
        if let Some(model) = &mut self.model
            && !PRESETS.contains(&model.as_str())
        {
            *model = absolute(Path::new(model.as_str())).display().to_string();
        }
        self
    }

    /// The name of the model, if a name decides which it is.
    pub(super) fn model_name(&self) -> Option<String> {
        self.model.clone().or_else(|| self.init.is_none().then(|| MODEL.to_string()))
    }
}
