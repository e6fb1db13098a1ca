//! One micro-step: forward and backward of one window of tokens.
//!
//! Two engines do it: the pipeline, whose forward and activation gradients are requests on a device, and the reference,
//! plain fp32 on the CPU. The trainer knows only the trait [`Engine`], so a run can be repeated on either.

use std::time::Duration;

use ferrane_llm::weights::Weights;

/// Time of a micro-step by part. The parts of the worker queue overlap the others.
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
    /// Embedding, classifier and cross-entropy on the CPU.
    pub classifier: Duration,
    /// Weight gradients, on the worker queue.
    pub weight_gradients: Duration,
    /// Time the step waited for the worker queue.
    pub waiting: Duration,
}

/// What one micro-step found.
#[derive(Clone, Copy, Debug, Default)]
pub struct MicroStep {
    /// Mean cross-entropy over the window's tokens.
    pub loss: f32,
    /// False if the loss or a backward operand was not finite; then the gradients of this window are of no worth.
    pub finite: bool,
    /// Largest magnitude of the gradient that entered the layers, scale included.
    pub max_dy: f32,
    /// Where the time went.
    pub parts: Parts,
}

/// What computes a micro-step.
///
/// Token ids given to an engine are ids of the full vocabulary. Gradients have the shapes of the full weights.
pub trait Engine: Send {
    /// Takes over new weights. Must be called after every update, before the next step.
    ///
    /// # Errors
    /// The device refused.
    fn stage(&mut self, weights: &Weights) -> Result<(), StepError>;

    /// Adds the gradients of the mean loss of this window, times `loss_scale`, to `gradients`.
    /// The gradients are complete when this returns.
    ///
    /// # Errors
    /// The device refused, or ids are beyond the vocabulary.
    fn micro_step(
        &mut self,
        weights: &Weights,
        gradients: &mut Weights,
        inputs: &[u32],
        targets: &[u32],
        loss_scale: f32,
    ) -> Result<MicroStep, StepError>;

    /// Mean loss of one window, without gradients.
    ///
    /// # Errors
    /// As [`Engine::micro_step`].
    fn loss(&mut self, weights: &Weights, inputs: &[u32], targets: &[u32]) -> Result<f32, StepError>;
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
    /// A window of the wrong length or a model that the engine cannot run.
    #[error("{0}")]
    Shape(String),
}
