//! A training step of the dynamic pipeline: its kernels on the engine, and what the CPU does
//! between them.
//!
//! The CPU's parts are counted from the sizes of the model as training-dynamic §6 lists them, each
//! at a rate of its own that rests on a published breakdown of a step. Products for weight
//! gradients run beside the rest (training-dynamic §6) and cost only what outlasts it. The
//! optimizer is not part of a step's time (training-dynamic §13).

use super::constants::Constants;
use super::model::{Cost, CostModel};

/// The sizes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepShape {
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub dim: usize,
    /// Width of the feed-forward part.
    pub hidden: usize,
    /// Query heads times their width.
    pub q_dim: usize,
    /// Key heads times their width.
    pub kv_dim: usize,
    /// Query heads.
    pub heads: usize,
    /// Tokens of a window.
    pub seq: usize,
    /// Tokens of the vocabulary that the classifier keeps.
    pub vocab: usize,
}

/// A kernel of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCost {
    /// Its name.
    pub name: String,
    /// Its cost; every layer evaluates it once.
    pub cost: Cost,
}

/// What a step costs. Times in ms.
#[derive(Clone, Debug, PartialEq)]
pub struct StepCost {
    /// The engine.
    pub engine_ms: f64,
    /// Activations between fp32 arrays and fp16 surfaces.
    pub io_ms: f64,
    /// The derivative of SiLU.
    pub silu_ms: f64,
    /// RMSNorm, forward and backward.
    pub rms_ms: f64,
    /// Classifier and loss.
    pub classifier_ms: f64,
    /// Plain passes: operands of the weight gradients copied, residual sums, heads repeated and
    /// reduced.
    pub pass_ms: f64,
    /// What the weight gradients take beyond all the rest.
    pub wait_ms: f64,
    /// Compiling the kernels, once.
    pub compile_ms: f64,
    /// Energy of the engine in mJ, where its power is published.
    pub energy_mj: Option<f64>,
}

impl StepCost {
    /// The step.
    pub fn total_ms(&self) -> f64 {
        self.engine_ms + self.cpu_ms() + self.io_ms
    }

    /// The CPU's parts but for the conversions.
    pub fn cpu_ms(&self) -> f64 {
        self.silu_ms + self.rms_ms + self.classifier_ms + self.pass_ms + self.wait_ms
    }
}

/// What a step of the dynamic pipeline costs. `None` where the chip's CPU has no constants.
pub fn predict_step(shape: &StepShape, kernels: &[KernelCost], model: &CostModel) -> Option<StepCost> {
    let c: &Constants = &model.constants;
    let value = |c: &Option<super::Constant>| c.as_ref().map(|c| c.value);
    let (io, silu, rms) = (value(&c.io_gb_s)?, value(&c.silu_ns)?, value(&c.rms_ns)?);
    let softmax = value(&c.softmax_ns)?;
    let (sgemm, copy) = (value(&c.sgemm_tflops)?, value(&c.copy_gb_s)?);
    let n = |size: usize| size as f64;
    let (layers, seq) = (n(shape.layers), n(shape.seq));
    let (dim, hidden, q, kv) = (n(shape.dim), n(shape.hidden), n(shape.q_dim), n(shape.kv_dim));
    // Elements per token and layer that are converted: written to the surfaces of the ten kernels
    // or read from them.
    let converted = 10.0 * dim + 14.0 * q + 4.0 * kv + 6.0 * hidden;
    // Probabilities and their gradient pass from surface to surface as fp16: read and written.
    let scores = n(shape.heads) * seq * seq * 2.0 * 4.0;
    // Operands of the seven weight gradients that are copied first: dffn, gate, dh1, dh3, x2norm,
    // s2, attn_out, dq, dk, dv, xnorm.
    let copied = 4.0 * dim + 3.0 * hidden + 2.0 * q + 2.0 * kv;
    // x2, the saved input, dffn, the two gradients of the stream, s2 and the two parts of dx; K and
    // V repeated over the query heads, their gradients reduced.
    let summed = 9.0 * dim + 4.0 * q;
    let matrices = layers * (2.0 * dim * q + 2.0 * dim * kv + 3.0 * dim * hidden);
    let classes = 2.0 * n(shape.vocab) * dim * seq;
    let engine_ms = kernels.iter().map(|k| k.cost.total_us).sum::<f64>() * layers / 1e3;
    let energy: Option<f64> = kernels.iter().map(|k| k.cost.energy_mj).sum();
    let mut step = StepCost {
        engine_ms,
        // 4 bytes of fp32 and 2 of fp16. GB/s is 1e6 bytes per ms.
        io_ms: layers * (converted * seq * 6.0 + scores) / (io * 1e6),
        silu_ms: layers * hidden * seq * silu / 1e6,
        // Two norms a layer and the last one, forward and backward.
        rms_ms: (2.0 * layers + 1.0) * 2.0 * dim * seq * rms / 1e6,
        // Logits and their gradient with respect to the last activations; TFLOPS is 1e9 per ms.
        classifier_ms: 2.0 * classes / (sgemm * 1e9) + n(shape.vocab) * seq * softmax / 1e6,
        // 4 bytes read and written by a copy, three times 4 by a sum.
        pass_ms: layers * seq * (8.0 * copied + 12.0 * summed) / (copy * 1e6),
        wait_ms: 0.0,
        compile_ms: kernels.iter().map(|k| k.cost.compile_ms).sum(),
        energy_mj: energy.map(|e| e * layers),
    };
    let gradients = (2.0 * matrices * seq + classes) / (sgemm * 1e9);
    step.wait_ms = (gradients - step.total_ms()).max(0.0);
    Some(step)
}
