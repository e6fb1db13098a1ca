//! What a training step and generation cost on a chip.

use std::collections::BTreeMap;

use ferrane_machine::cost::published::{Pipelines, TrainerPipeline};
use ferrane_machine::cost::{CostError, CostModel, KernelCost, StepCost, StepShape, predict, predict_step};

use crate::config::{Config, preset};
use crate::decode::bucket;
use crate::decode::constants::LayerMatrices;
use crate::decode::program::{DecodeKernel, DecodeShape};
use crate::decode::quantize::WeightType;
use crate::decode::steps::prompt_window;
use crate::forward;
use crate::kernels::{self, ModelConstants};
use crate::layout::{Kernel, PipelineKind, Residual, Shape, WeightForm};
use crate::weights::{Init, Weights};

/// Tokens of a window in the published training runs (training-dynamic §4).
const WINDOW: usize = 256;

/// Why the cost of a step is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepCostError {
    /// A kernel of this shape cannot be built.
    #[error("{0}")]
    Build(#[from] kernels::KernelError),
    /// The model has no cost for an op of a kernel.
    #[error("{0}")]
    Cost(#[from] CostError),
}

/// The predicted cost of a training step in which `vocab` entries of the vocabulary are in use;
/// `None` if the speed of the chip's CPU is not known.
///
/// # Errors
/// [`StepCostError`] for a shape whose kernels cannot be built or predicted.
pub fn training_step(shape: &Shape, vocab: usize, model: &CostModel) -> Result<Option<StepCost>, StepCostError> {
    step_of(shape, vocab, model, false)
}

fn step_of(
    shape: &Shape,
    vocab: usize,
    model: &CostModel,
    static_trainer: bool,
) -> Result<Option<StepCost>, StepCostError> {
    let config = &shape.config;
    let mut costs = Vec::new();
    // The cost of a constant does not depend on its values.
    let mut weights = Weights::zeros(&Config { layers: 1, vocab: 1, ..config.clone() });
    let layer = weights.layers.remove(0);
    let shape = &shape.clone().with_classes(vocab);
    let rows = if shape.pipeline.has_extras() { vec![0.0; vocab * config.dim] } else { Vec::new() };
    let constants = ModelConstants { norm: &weights.norm, classifier: &rows };
    for &kernel in shape.pipeline.kernels() {
        let (program, _) = match kernel.is_of_model() {
            true => kernels::build_model(shape, kernel, constants)?,
            false => kernels::build_layer(shape, kernel, &layer)?,
        };
        let mut cost = predict(&program, model)?;
        let runs = if kernel.is_of_model() { 1 } else { config.layers };
        if shape.pipeline.has_constants() && kernel.has_weights() {
            cost.compile_ms *= runs as f64;
        }
        let forward = Kernel::FORWARD.contains(&kernel)
            || matches!(kernel, Kernel::FwdAttn | Kernel::RmsFinal | Kernel::Classifier | Kernel::Softmax);
        costs.push(KernelCost { name: kernel.name().to_string(), cost, runs, forward });
    }
    let sizes = StepShape {
        layers: config.layers,
        dim: config.dim,
        hidden: config.hidden,
        q_dim: config.q_dim(),
        kv_dim: config.kv_dim(),
        heads: config.heads,
        seq: shape.seq,
        vocab,
        fused: shape.pipeline.is_fused(),
        static_trainer,
        extras: shape.pipeline.has_extras(),
    };
    Ok(predict_step(&sizes, &costs, model))
}

/// Why the cost of generation is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerationCostError {
    /// A program of this shape cannot be built.
    #[error("{0}")]
    Build(#[from] ferrane_mil::MilError),
    /// The matrices have a shape that int4 cannot express.
    #[error("{0}")]
    Weights(#[from] forward::Error),
    /// The model has no cost for an op of a program.
    #[error("{0}")]
    Cost(#[from] CostError),
    /// A prompt without tokens, or with more than a program can have positions.
    #[error("a prompt of {0} tokens; a program has positions for 1 to {most}", most = i32::MAX - 1)]
    Prompt(usize),
    /// The chip's CPU, which computes the classifier, has no published speed.
    #[error("the speed of the CPU of {chip} is not published")]
    Cpu {
        /// Its name, such as `m5-pro`.
        chip: String,
    },
}

/// A model, and a prompt for it.
#[derive(Clone, Copy, Debug)]
pub struct GenerationShape<'a> {
    /// Sizes and options of the model.
    pub config: &'a Config,
    /// Element type of the matrices.
    pub of: WeightType,
    /// Tokens of the prompt, at least 1.
    pub prompt: usize,
    /// The fewest positions of a window ([`ferrane_machine::Profile::min_queries`]).
    pub least: usize,
}

/// The predicted cost of generation with the decoder's programs
/// ([`crate::decode`]). Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationCost {
    /// The windows of the prompt on the engine.
    pub prompt_ms: f64,
    /// The window of a token after the prompt on the engine.
    pub token_ms: f64,
    /// The classifier on the CPU, which reads its matrix once; after the prompt and for each token.
    pub classifier_ms: f64,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Energy of the engine for a token after the prompt, in mJ; `None` if its power is not
    /// published.
    pub token_mj: Option<f64>,
}

impl GenerationCost {
    /// Tokens of the prompt per second.
    pub fn prefill_rate(&self) -> f64 {
        self.prompt as f64 * 1e3 / (self.prompt_ms + self.classifier_ms)
    }

    /// Tokens per second after the prompt.
    pub fn decode_rate(&self) -> f64 {
        1e3 / (self.token_ms + self.classifier_ms)
    }
}

/// Predicts what generation costs: the same windows and caches as a decoder's, each program once a
/// layer. Norms, rotations and the rows of the caches, which the CPU copies, are left out.
///
/// # Errors
/// [`GenerationCostError`] for a shape whose programs cannot be built or predicted.
pub fn generation(shape: &GenerationShape<'_>, model: &CostModel) -> Result<GenerationCost, GenerationCostError> {
    let GenerationShape { config, of, prompt, least } = *shape;
    if prompt == 0 || prompt >= i32::MAX as usize {
        return Err(GenerationCostError::Prompt(prompt));
    }
    let constants = match of {
        // The values do not matter, and those of one layer stand for all.
        WeightType::Int4 => {
            let one = Config { layers: 1, vocab: 1, ..config.clone() };
            Some(LayerMatrices::new(&one, &Weights::init(&one, Init::Normal { std: 0.02 }, 1), 0)?)
        }
        WeightType::Fp16 | WeightType::Int8 => None,
    };
    // Milliseconds and millijoules of all layers.
    let window = |queries: usize, cached: usize| -> Result<(f64, Option<f64>), GenerationCostError> {
        let shape = DecodeShape { config: config.clone(), queries, slots: 1, cached, weights: of, adapter_rank: 0 };
        let (mut us, mut energy) = (0.0, Some(0.0));
        for part in [DecodeKernel::Attention, DecodeKernel::FeedForward] {
            let cost = predict(&shape.build_over(part, constants.as_ref())?, model)?;
            us += cost.total_us;
            energy = energy.zip(cost.energy_mj).map(|(sum, energy)| sum + energy);
        }
        let layers = config.layers as f64;
        Ok((us * layers / 1e3, energy.map(|energy| energy * layers)))
    };
    let cached = bucket(prompt + 1);
    // How often each window is computed: a long prompt has many that are alike.
    let (mut windows, mut done) = (BTreeMap::<_, usize>::new(), 0);
    while done < prompt {
        let queries = prompt_window(prompt - done, least);
        let wide = queries > least;
        *windows.entry((queries, if wide && done == 0 { 0 } else { cached })).or_default() += 1;
        done += if wide { queries } else { 1 };
    }
    let mut prompt_ms = 0.0;
    for ((queries, cached), count) in windows {
        prompt_ms += window(queries, cached)?.0 * count as f64;
    }
    let (token_ms, token_mj) = window(least, cached)?;
    let Some(copy) = &model.constants.copy_gb_s else {
        return Err(GenerationCostError::Cpu { chip: model.constants.chip.clone() });
    };
    let table = of.of_tables().bytes(config.vocab, config.dim) as f64;
    Ok(GenerationCost { prompt_ms, token_ms, classifier_ms: table / (copy.value * 1e6), prompt, token_mj })
}

/// The models of the published training runs, for [`ferrane_machine::cost::published::compare`].
pub struct PublishedRuns;

impl Pipelines for PublishedRuns {
    fn step(&self, pipeline: TrainerPipeline, model: &str, cost: &CostModel) -> Option<StepCost> {
        let config = preset(model).ok()?;
        let (vocab, kind, residual) = match pipeline {
            TrainerPipeline::Dynamic => (used(&config), PipelineKind::Dynamic, Residual::Fp16),
            // The static trainers know no compaction and add residuals on the CPU (training-static
            // §2).
            TrainerPipeline::Static => (config.vocab, PipelineKind::Static, Residual::Fp32),
            TrainerPipeline::StaticExtras => (config.vocab, PipelineKind::StaticExtras, Residual::Fp32),
        };
        let shape = Shape::new(config, WINDOW, residual, WeightForm::Packed).with_pipeline(kind);
        step_of(&shape, vocab, cost, pipeline != TrainerPipeline::Dynamic).ok()?
    }
}

/// The ids that the published data use: 9205 of 32000, and one in 16.5 of 151936 (published
/// vocabulary compaction).
fn used(config: &Config) -> usize {
    if config.vocab == 32000 { 9205 } else { (config.vocab as f64 / 16.5) as usize }
}
