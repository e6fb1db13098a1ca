//! One micro-step: forward and backward pass of one window of tokens.
//!
//! The trait [`Engine`] has two implementations: [`Pipeline`], whose forward pass and activation
//! gradients are requests on a device, and [`ReferenceEngine`], plain fp32 on the CPU. The training
//! loop uses only the trait, so a run can be repeated on either.

mod backward;
mod classifier;
mod cpu;
mod gradients;
mod kernels;
mod pipeline;
mod reference;

pub use pipeline::Pipeline;
pub use reference::ReferenceEngine;

use std::time::{Duration, Instant};

pub use ferrane_llm::reference::IGNORED;
use ferrane_llm::weights::Weights;

use crate::metrics::{EngineMemory, Timeline};
use crate::optim::{Gradients, Update};
use ferrane_llm::compaction::Compaction;

/// The time of a micro-step by part. Weight gradients overlap the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// Requests of the forward pass.
    pub device_forward: Duration,
    /// Requests of the backward pass.
    pub device_backward: Duration,
    /// Copies between CPU activations and surfaces.
    pub staging: Duration,
    /// Norms, residuals, rotary gradient, SiLU gradient on the CPU.
    pub elementwise: Duration,
    /// Embedding, classifier and cross-entropy on the CPU, with their gradients.
    pub classifier: Duration,
    /// Weight gradients of the layers: the summed time of their products, which run in parallel.
    pub weight_gradients: Duration,
    /// Time at the end of the step spent on the remaining weight gradients, working or waiting.
    pub waiting: Duration,
    /// Compiling programs with new weights as constants, before the step.
    pub compile: Duration,
}

/// The result of one micro-step.
#[derive(Clone, Copy, Debug, Default)]
pub struct MicroStep {
    /// Mean cross-entropy over the window's targets that count; 0 without any.
    pub loss: f32,
    /// False if the loss or a backward operand was not finite; the gradients must be discarded
    /// then.
    pub finite: bool,
    /// Largest magnitude of the gradient that entered the layers, scale included.
    pub max_dy: f32,
    /// The time by part.
    pub parts: Parts,
}

/// Number of targets that count.
pub fn counted(targets: &[u32]) -> usize {
    targets.iter().filter(|target| **target != IGNORED).count()
}

/// Computes micro-steps and updates. Targets may be [`IGNORED`]; no loss is computed for them.
///
/// Token ids are those of the full vocabulary, and gradients have the shapes of the full weights.
pub trait Engine: Send {
    /// Stages new weights. If weights change other than by [`Engine::update`], the caller must call
    /// this before the next step.
    ///
    /// # Errors
    /// A surface is in use, or the device refused.
    fn stage(&mut self, weights: &Weights) -> Result<(), StepError>;

    /// Makes an update and stages the new weights.
    ///
    /// # Errors
    /// The device refused, or weights, gradients and moments do not fit each other; nothing has
    /// changed then.
    fn update(&mut self, update: Update<'_>) -> Result<(), StepError> {
        let weights = update.run(Vec::new())?;
        self.stage(weights)
    }

    /// Adds the gradients of this window to `gradients`: those of the sum of the losses of targets
    /// that count, divided by the number of all, times `loss_scale`. The gradients are complete
    /// when this returns. After an error they must be discarded.
    ///
    /// # Errors
    /// The device failed, or an id is outside the vocabulary.
    fn micro_step(
        &mut self,
        weights: &Weights,
        gradients: &mut Gradients,
        inputs: &[u32],
        targets: &[u32],
        loss_scale: f32,
    ) -> Result<MicroStep, StepError>;

    /// Mean loss of one window over the targets that count, without gradients.
    ///
    /// # Errors
    /// As [`Engine::micro_step`].
    fn loss(&mut self, weights: &Weights, inputs: &[u32], targets: &[u32]) -> Result<f32, StepError>;

    /// Takes the remarks for the user since the last call, such as a kernel that succeeded at the
    /// second try.
    fn remarks(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Records micro-steps until the timeline is full.
    fn record(&mut self, _timeline: &Timeline) {}

    /// The ids that the loss runs over; `None` if it runs over all.
    fn vocabulary(&self) -> Option<&Compaction> {
        None
    }

    /// How long the programs that have the current weights as constants took to compile; zero if
    /// there are none.
    fn constants_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Memory of the engine, in bytes by kind.
    fn memory(&self) -> EngineMemory {
        EngineMemory::default()
    }
}

/// Why a micro-step, a loss or staging failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The device refused a compile, a binding or an evaluation.
    #[error("{kernel}: {source}")]
    Device {
        /// Name of the kernel, `sdpaFwd` for example.
        kernel: String,
        /// The cause, as the device reports it.
        source: ferrane_device::Error,
    },
    /// A token id is outside the vocabulary.
    #[error("token id {id} at position {position} is beyond the vocabulary of {vocab}")]
    Token {
        /// The id, which is `vocab` or more.
        id: u32,
        /// Index of the id in the window.
        position: usize,
        /// Number of ids of the vocabulary.
        vocab: usize,
    },
    /// The weights do not fit the model.
    #[error(transparent)]
    Weights(#[from] ferrane_llm::weights::Error),
    /// The window has the wrong length, or the engine does not support the model.
    #[error("{0}")]
    Shape(String),
}

/// Checks that all ids that count are in the vocabulary.
fn check_ids(ids: &[u32], vocab: usize) -> Result<(), StepError> {
    match ids.iter().position(|&id| id as usize >= vocab && id != IGNORED) {
        Some(position) => Err(StepError::Token { id: ids[position], position, vocab }),
        None => Ok(()),
    }
}

/// Writes the compact ids of targets to `compact`; an id outside the compact vocabulary is an
/// error.
fn compact_targets(ids: &[u32], vocabulary: &Compaction, compact: &mut Vec<u32>) -> Result<(), StepError> {
    check_ids(ids, vocabulary.vocabulary())?;
    compact.clear();
    for (position, &id) in ids.iter().enumerate() {
        if id == IGNORED {
            compact.push(IGNORED);
            continue;
        }
        compact.push(vocabulary.compact(id).ok_or_else(|| {
            StepError::Shape(format!(
                "token id {id} at position {position} is not in the compact vocabulary, which was made from other data"
            ))
        })?);
    }
    Ok(())
}

fn product_failed(error: ferrane_host::gemm::GemmError) -> StepError {
    StepError::Shape(error.to_string())
}

/// Adds the time of `work` to `part`.
fn timed<T>(part: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    *part += begun.elapsed();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_become_dense_and_strangers_are_refused() {
        let v = Compaction::used([7, 3, 7, 9], 10);
        let mut compact = vec![7];
        compact_targets(&[9, 3], &v, &mut compact).unwrap();
        assert_eq!(compact, [2, 0]);
        assert!(matches!(compact_targets(&[4], &v, &mut compact), Err(StepError::Shape(_))));
        assert!(matches!(
            compact_targets(&[3, 10], &v, &mut compact),
            Err(StepError::Token { id: 10, position: 1, vocab: 10 })
        ));
    }
}
