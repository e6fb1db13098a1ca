//! The options of a session.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use ferrane_llm::config::{Config, PRESETS};
use ferrane_llm::layout::{PipelineKind, Residual, Shape, WeightForm};
use serde::{Deserialize, Serialize};

use crate::data::{BAD_ROWS, DataSet, FIELD, MESSAGES_FIELD};
use crate::lora::LoraOptions;
use crate::run::RunOptions;

/// The preset of a session whose options name neither a model nor weights.
pub const MODEL: &str = "stories260k";

/// Model, data and device of a run, and the options of its loop. Checkpoints store them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionOptions {
    /// Preset, configuration file, or folder with a `config.json`; `None`: the model of `init`, or
    /// [`MODEL`] without `init`.
    pub model: Option<String>,
    /// Path of the initial weights, for [`ferrane_llm::model::Model::open`]; `None`: random
    /// weights.
    pub init: Option<PathBuf>,
    /// Adapters that are trained instead of the weights of `init`; `None`: all weights are trained.
    pub lora: Option<LoraOptions>,
    /// Patterns of the names of tensors that are not trained ([`crate::optim::Frozen::matching`]).
    /// A resumed run may have others.
    pub freeze: Vec<String>,
    /// Sets of training data ([`crate::data::Corpus::open`]); without one, the embedded corpus of
    /// simple stories.
    #[serde(deserialize_with = "DataSet::deserialize_list")]
    pub data: Vec<DataSet>,
    /// The field of JSON Lines, or the column of Parquet files, that holds the text.
    pub data_field: String,
    /// Whether the rows of JSON Lines are conversations, of which the loss runs over the tokens of
    /// the assistant; `data_field` then holds their messages.
    pub chat: bool,
    /// File with the chat template; `None`: the one of `init` or `model`.
    pub chat_template: Option<PathBuf>,
    /// Folder of the cache of ids; `None`: the user's ([`crate::data::IdsCache::user`]).
    pub data_cache: Option<PathBuf>,
    /// Largest number of broken rows of a set that are left out.
    pub bad_rows: u64,
    /// Path of the tokenizer; `None`: the one next to `init` or `model`, or one that is trained on
    /// the text.
    pub tokenizer: Option<PathBuf>,
    /// Name of the device, for the caller that opens it when the run is resumed. A session takes an
    /// opened device and only stores this name.
    pub device: String,
    /// Where the residual stream is kept.
    pub residual: Residual,
    /// How the kernels of the dynamic pipeline receive weights.
    pub weights: WeightForm,
    /// The kernels of a step on a device. A resumed run may have another pipeline.
    pub pipeline: PipelineKind,
    /// Number of layers whose activations a device keeps; those of the others are computed again in
    /// the backward pass ([`crate::step::Pipeline::recomputing`]). `None`: all are kept. Results
    /// are the same to the bit, and a resumed run may have another number.
    pub recompute: Option<NonZeroUsize>,
    /// Whether classifier and loss run only over the ids that occur in the data (training-dynamic
    /// §9). The reference always computes all ids, and so does a run that trains adapters, because
    /// the adapters are used with the model's own vocabulary.
    pub compact: bool,
    /// The options of the loop, and the run's folder.
    #[serde(flatten)]
    pub run: RunOptions,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            model: None,
            init: None,
            lora: None,
            freeze: Vec::new(),
            data: Vec::new(),
            data_field: FIELD.into(),
            chat: false,
            chat_template: None,
            data_cache: None,
            bad_rows: BAD_ROWS,
            tokenizer: None,
            device: "emulator".into(),
            residual: Residual::Fp32,
            weights: WeightForm::Packed,
            pipeline: PipelineKind::Dynamic,
            recompute: None,
            compact: true,
            run: RunOptions::default(),
        }
    }
}

impl SessionOptions {
    /// The options of a run on the embedded corpus, which takes about three minutes on two cores.
    pub fn embedded() -> Self {
        // Found by experiment: the corpus is simple, so the small model tolerates a high rate, and
        // more updates are better than larger ones.
        let run =
            RunOptions { steps: 3600, accum: 2, lr: 4e-3, eval_every: 600, save_every: 600, ..RunOptions::default() };
        SessionOptions { run, ..SessionOptions::default() }
    }

    /// The options of a new run on sets of data: the defaults, or [`SessionOptions::embedded`]
    /// without any.
    pub fn over(data: Vec<DataSet>) -> Self {
        match data.is_empty() {
            true => SessionOptions::embedded(),
            false => SessionOptions { data, ..SessionOptions::default() },
        }
    }

    /// Warms a short run up for a tenth of its updates. For new runs whose warmup was not chosen.
    pub fn shorten_warmup(&mut self) {
        self.run.warmup = self.run.warmup.min(self.run.steps / 10).max(1);
    }

    /// What determines the kernels' layouts, for a model and these options.
    pub fn shape(&self, config: &Config) -> Shape {
        Shape::new(config.clone(), self.run.seq, self.residual, self.weights).with_pipeline(self.pipeline)
    }

    /// Makes paths absolute, so that the run can be resumed from another working directory.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let files =
            [&mut self.init, &mut self.data_cache, &mut self.tokenizer, &mut self.chat_template].into_iter().flatten();
        for path in files.chain(self.data.iter_mut().map(|set| &mut set.path)) {
            *path = absolute(path);
        }
        if let Some(model) = &mut self.model
            && !PRESETS.contains(&model.as_str())
        {
            *model = absolute(Path::new(model.as_str())).display().to_string();
        }
        self
    }

    /// The field of JSON Lines with the text or the messages.
    pub(super) fn field(&self) -> &str {
        if self.chat && self.data_field == FIELD { MESSAGES_FIELD } else { &self.data_field }
    }

    /// The name of the model, if the options name one.
    pub(super) fn model_name(&self) -> Option<String> {
        self.model.clone().or_else(|| self.init.is_none().then(|| MODEL.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_data_is_one_on_the_embedded_corpus() {
        assert_eq!(SessionOptions::over(Vec::new()), SessionOptions::embedded());
        let own = SessionOptions::over(vec!["stories.txt".into()]);
        assert_eq!(own.data, [DataSet::from("stories.txt")]);
        assert_eq!(own.run, RunOptions::default());
    }
}
