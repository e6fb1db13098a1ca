//! A training step of the dynamic pipeline, or of one with six kernels: its kernels on the engine,
//! and the work of the CPU between them.
//!
//! The CPU's parts are counted from the sizes of the model as listed in training-dynamic §6, each
//! at its own rate, which rests on a published breakdown of a step. Products for weight gradients
//! run in parallel with the rest (training-dynamic §6) and cost only the time by which they outlast
//! it. The optimizer is not part of a step's time (training-dynamic §13).

use super::constants::Constants;
use super::model::{Cost, CostModel};

/// The sizes of a model and its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepShape {
    /// The number of layers.
    pub layers: usize,
    /// The width of the residual stream.
    pub dim: usize,
    /// The width of the feed-forward part.
    pub hidden: usize,
    /// The number of query heads times the head width.
    pub q_dim: usize,
    /// The number of key heads times the head width.
    pub kv_dim: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of tokens in a window.
    pub seq: usize,
    /// The number of vocabulary entries that the classifier keeps.
    pub vocab: usize,
    /// Whether there are six kernels instead of ten, with the gradient of SiLU in one of them
    /// (training-static §1).
    pub fused: bool,
    /// Whether the CPU's part is the code of the reference's static trainers, which copies operands
    /// of weight gradients at a rate of its own where one is published.
    pub static_trainer: bool,
    /// Whether the engine computes the final norm, logits, softmax and the gradients of the layers'
    /// norms (training-static §3).
    pub extras: bool,
}

/// The cost of one kernel of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCost {
    /// The kernel's name, such as `sdpaFwd`.
    pub name: String,
    /// The cost of one evaluation.
    pub cost: Cost,
    /// Evaluations in a step: one for each layer, or one.
    pub runs: usize,
    /// Whether it is part of the forward pass.
    pub forward: bool,
}

/// Parts of a step as the reference trainers print them, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepParts {
    /// Evaluations of the forward pass on the engine. The static trainers time no others
    /// (training-static §3).
    pub forward_engine_ms: f64,
    /// Conversions of activations in the forward pass.
    pub forward_io_ms: f64,
    /// RMSNorm of the forward pass.
    pub forward_rms_ms: f64,
    /// One RMSNorm over the window.
    pub norm_ms: f64,
    /// The product for the logits on the CPU; zero if the engine computes them.
    pub logits_ms: f64,
    /// Softmax and loss on the CPU, and the residual sums of the forward pass.
    pub loss_ms: f64,
    /// Copies of the operands of the weight gradients.
    pub copy_ms: f64,
    /// Evaluations of the forward pass.
    pub forward_runs: usize,
}

/// The cost of a step. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct StepCost {
    /// Evaluations on the engine.
    pub engine_ms: f64,
    /// Conversions of activations between fp32 arrays and fp16 surfaces.
    pub io_ms: f64,
    /// The derivative of SiLU on the CPU.
    pub silu_ms: f64,
    /// RMSNorm, forward and backward.
    pub rms_ms: f64,
    /// Classifier and loss on the CPU.
    pub classifier_ms: f64,
    /// Simple passes: copying operands of the weight gradients, residual sums, repeating and
    /// reducing heads.
    pub pass_ms: f64,
    /// The time by which the weight gradients outlast everything else.
    pub wait_ms: f64,
    /// Compiling the kernels: once per run, or once per update where weights are constants.
    pub compile_ms: f64,
    /// The energy of the engine in mJ; `None` if its power is not published.
    pub energy_mj: Option<f64>,
    /// The parts that are logged separately; they are contained in the fields above.
    pub parts: StepParts,
}

impl StepCost {
    /// The time of the whole step in milliseconds.
    pub fn total_ms(&self) -> f64 {
        self.engine_ms + self.cpu_ms() + self.io_ms
    }

    /// The CPU's time without the conversions, in milliseconds.
    pub fn cpu_ms(&self) -> f64 {
        self.silu_ms + self.rms_ms + self.classifier_ms + self.pass_ms + self.wait_ms
    }
}

/// Predicts the cost of a step. `None` if the chip has no CPU constants.
pub fn predict_step(shape: &StepShape, kernels: &[KernelCost], model: &CostModel) -> Option<StepCost> {
    let c: &Constants = &model.constants;
    let value = |c: &Option<super::Constant>| c.as_ref().map(|c| c.value);
    let (io, silu, rms) = (value(&c.io_gb_s)?, value(&c.silu_ns)?, value(&c.rms_ns)?);
    let softmax = value(&c.softmax_ns)?;
    let (sgemm, copy) = (value(&c.sgemm_tflops)?, value(&c.copy_gb_s)?);
    let gradient_copy = value(&c.static_copy_gb_s).filter(|_| shape.static_trainer).unwrap_or(copy);
    let n = |size: usize| size as f64;
    let (layers, seq) = (n(shape.layers), n(shape.seq));
    let (dim, hidden, q, kv) = (n(shape.dim), n(shape.hidden), n(shape.q_dim), n(shape.kv_dim));
    // Elements per token and layer that are converted: written to or read from the surfaces of the
    // kernels. Six do not exchange attn_out, da, dgate and one part of dx; the one with the
    // gradient of SiLU reads h1 and h3.
    let converted = match shape.fused {
        false => 10.0 * dim + 14.0 * q + 4.0 * kv + 6.0 * hidden,
        true => 9.0 * dim + 11.0 * q + 4.0 * kv + 7.0 * hidden,
    };
    // Of these in the forward pass: xnorm, o_out, x2norm, x2, x_next; attn_out, which only ten
    // kernels write again, and Q; K, V; h1, h3, gate.
    let converted_forward = 5.0 * dim + if shape.fused { 2.0 } else { 3.0 } * q + 2.0 * kv + 3.0 * hidden;
    // With extras, dy, x and dx of both norms too, and once x and xnorm of the last one and the
    // probabilities of the classes; logits are copied between surfaces.
    let extras = if shape.extras { 1.0 } else { 0.0 };
    let converted = converted + extras * 6.0 * dim;
    let ends = extras * seq * (6.0 * (2.0 * dim + n(shape.vocab)) + 4.0 * (dim + n(shape.vocab)));
    // Probabilities and their gradient are copied between surfaces as fp16: read and written.
    let scores = n(shape.heads) * seq * seq * 2.0 * 4.0;
    // Operands of the seven weight gradients that are copied first: dffn, gate, dh1, dh3, x2norm,
    // s2, attn_out, dq, dk, dv, xnorm.
    let copied = 4.0 * dim + 3.0 * hidden + 2.0 * q + 2.0 * kv;
    // x2, the saved input, dffn, the two gradients of the stream, s2 and the two parts of dx; K and
    // V repeated over the query heads, their gradients reduced. With six kernels dx has one part.
    let summed = if shape.fused { 8.0 } else { 9.0 } * dim + 4.0 * q;
    let matrices = layers * (2.0 * dim * q + 2.0 * dim * kv + 3.0 * dim * hidden);
    let classes = 2.0 * n(shape.vocab) * dim * seq;
    let engine_ms = kernels.iter().map(|k| k.cost.total_us * n(k.runs)).sum::<f64>() / 1e3;
    let energy: Option<f64> = kernels.iter().map(|k| k.cost.energy_mj.map(|mj| mj * n(k.runs))).sum();
    let forward = kernels.iter().filter(|k| k.forward);
    let norm_ms = dim * seq * rms / 1e6;
    let loss_ms = (1.0 - extras) * n(shape.vocab) * seq * softmax / 1e6;
    // 1 TFLOPS is 1e9 per ms.
    let logits_ms = classes / (sgemm * 1e9);
    let parts = StepParts {
        forward_engine_ms: forward.clone().map(|k| k.cost.total_us * n(k.runs)).sum::<f64>() / 1e3,
        forward_io_ms: layers * converted_forward * seq * 6.0 / (io * 1e6),
        forward_rms_ms: (2.0 * layers + 1.0 - extras) * norm_ms,
        norm_ms,
        logits_ms: (1.0 - extras) * logits_ms,
        loss_ms: loss_ms + layers * seq * 12.0 * 2.0 * dim / (copy * 1e6),
        copy_ms: layers * seq * 8.0 * copied / (gradient_copy * 1e6),
        forward_runs: forward.map(|k| k.runs).sum(),
    };
    let mut step = StepCost {
        engine_ms,
        // 4 bytes of fp32 and 2 of fp16. 1 GB/s is 1e6 bytes per ms.
        io_ms: (layers * (converted * seq * 6.0 + scores) + ends) / (io * 1e6),
        silu_ms: if shape.fused { 0.0 } else { layers * hidden * seq * silu / 1e6 },
        // Two norms per layer and the last one, forward and backward. With extras the gradients of
        // the gains are left of the layers' backward passes, about a half, and the last norm has no
        // forward pass here.
        rms_ms: ((2.0 * layers) * (2.0 - 0.5 * extras) + 2.0 - extras) * norm_ms,
        // Logits and their gradient with respect to the last activations.
        classifier_ms: (2.0 - extras) * logits_ms + loss_ms,
        // A copy reads and writes 4 bytes, a sum three times 4.
        pass_ms: layers * seq * (8.0 * copied / gradient_copy + 12.0 * summed / copy) / 1e6,
        wait_ms: 0.0,
        compile_ms: kernels.iter().map(|k| k.cost.compile_ms).sum(),
        energy_mj: energy,
        parts,
    };
    let gradients = (2.0 * matrices * seq + classes) / (sgemm * 1e9);
    step.wait_ms = (gradients - step.total_ms()).max(0.0);
    Some(step)
}
