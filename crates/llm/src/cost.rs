//! What the kernels of a model cost on a chip.

use ferrane_machine::cost::published::Pipelines;
use ferrane_machine::cost::{CostError, CostModel, KernelCost, StepCost, StepShape, predict, predict_step};

use crate::config::{Config, preset};
use crate::kernels;
use crate::layout::{Kernel, Residual, Shape, WeightForm};

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
    let config = &shape.config;
    let mut costs = Vec::new();
    for kernel in Kernel::ALL {
        let (program, _) = kernels::build(shape, kernel)?;
        costs.push(KernelCost { name: kernel.name().to_string(), cost: predict(&program, model)? });
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
    };
    Ok(predict_step(&sizes, &costs, model))
}

/// The models of the published training runs, for [`ferrane_machine::cost::published::compare`].
pub struct PublishedRuns;

impl Pipelines for PublishedRuns {
    fn dynamic(&self, model: &str, cost: &CostModel) -> Option<StepCost> {
        let config = preset(&model.to_lowercase()).ok()?;
        let vocab = used(&config);
        let shape = Shape::new(config, WINDOW, Residual::Fp16, WeightForm::Packed);
        training_step(&shape, vocab, cost).ok()?
    }
}

/// The ids that the published data use: 9205 of 32000, and one in 16.5 of 151936 (published
/// vocabulary compaction).
fn used(config: &Config) -> usize {
    if config.vocab == 32000 { 9205 } else { (config.vocab as f64 / 16.5) as usize }
}
