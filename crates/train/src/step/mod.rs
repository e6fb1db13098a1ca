//! One micro-step: forward and backward of one window of tokens.
//!
//! Two engines do it: [`Pipeline`], whose forward and activation gradients are requests on a
//! device, and [`ReferenceEngine`], plain fp32 on the CPU. The trainer knows only the trait
//! [`Engine`], so a run can be repeated on either.

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

use ferrane_llm::weights::Weights;

use crate::metrics::{EngineMemory, Timeline};
use crate::optim::{Gradients, Update};
use ferrane_llm::compaction::Compaction;

/// Time of a micro-step by part. Weight gradients overlap the others.
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
    /// Embedding, classifier and cross-entropy on the CPU, their gradients included.
    pub classifier: Duration,
    /// Weight gradients of the layers, beside the step: the time of their products, summed.
    pub weight_gradients: Duration,
    /// Time the step worked off, or waited for, what was left of them at its end.
    pub waiting: Duration,
}

/// What one micro-step found.
#[derive(Clone, Copy, Debug, Default)]
pub struct MicroStep {
    /// Mean cross-entropy over the window's tokens.
    pub loss: f32,
    /// False if the loss or a backward operand was not finite; then the gradients of this window
    /// are of no worth.
    pub finite: bool,
    /// Largest magnitude of the gradient that entered the layers, scale included.
    pub max_dy: f32,
    /// Where the time went.
    pub parts: Parts,
}

/// What computes a micro-step.
///
/// Token ids given to an engine are ids of the full vocabulary. Gradients have the shapes of the
/// full weights.
pub trait Engine: Send {
    /// Takes over new weights. Must be called when weights changed by other means than
    /// [`Engine::update`], before the next step.
    ///
    /// # Errors
    /// The device refused.
    fn stage(&mut self, weights: &Weights) -> Result<(), StepError>;

    /// Makes an update and takes over the new weights.
    ///
    /// # Errors
    /// The device refused, before anything has changed; weights, gradients and moments that do not
    /// belong together.
    fn update(&mut self, update: Update<'_>) -> Result<(), StepError> {
        let weights = update.run(Vec::new())?;
        self.stage(weights)
    }

    /// Adds the gradients of the mean loss of this window, times `loss_scale`, to `gradients`.
    /// The gradients are complete when this returns. After an error they are of no worth.
    ///
    /// # Errors
    /// The device refused, or ids are beyond the vocabulary.
    fn micro_step(
        &mut self,
        weights: &Weights,
        gradients: &mut Gradients,
        inputs: &[u32],
        targets: &[u32],
        loss_scale: f32,
    ) -> Result<MicroStep, StepError>;

    /// Mean loss of one window, without gradients.
    ///
    /// # Errors
    /// As [`Engine::micro_step`].
    fn loss(&mut self, weights: &Weights, inputs: &[u32], targets: &[u32]) -> Result<f32, StepError>;

    /// What happened since the last call that a person should know though nothing failed: a kernel
    /// that ran at the second try.
    fn remarks(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Records the next micro-steps, as many as the timeline wants.
    fn record(&mut self, _timeline: &Timeline) {}

    /// The ids that the loss runs over; `None` if these are all.
    fn vocabulary(&self) -> Option<&Compaction> {
        None
    }

    /// What the engine holds.
    fn memory(&self) -> EngineMemory {
        EngineMemory::default()
    }
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The device refused a compile, a binding or an evaluation.
    #[error("{kernel}: {source}")]
    Device {
        /// The kernel at work.
        kernel: String,
        /// What the device said.
        source: ferrane_device::Error,
    },
    /// A token id beyond the vocabulary.
    #[error("token id {id} at position {position} is beyond the vocabulary of {vocab}")]
    Token {
        /// The id.
        id: u32,
        /// Its position in the window.
        position: usize,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// Weights that do not belong to the model.
    #[error(transparent)]
    Weights(#[from] ferrane_llm::weights::Error),
    /// A window of the wrong length or a model that the engine cannot run.
    #[error("{0}")]
    Shape(String),
}

/// Refuses ids beyond the vocabulary.
fn check_ids(ids: &[u32], vocab: usize) -> Result<(), StepError> {
    match ids.iter().position(|&id| id as usize >= vocab) {
        Some(position) => Err(StepError::Token { id: ids[position], position, vocab }),
        None => Ok(()),
    }
}

/// Compact ids of targets into `compact`; one that the compaction was not told of is an error.
fn compact_targets(ids: &[u32], vocabulary: &Compaction, compact: &mut Vec<u32>) -> Result<(), StepError> {
    check_ids(ids, vocabulary.vocabulary())?;
    compact.clear();
    for (position, &id) in ids.iter().enumerate() {
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
