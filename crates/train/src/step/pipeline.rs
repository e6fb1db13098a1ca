//! The dynamic pipeline: forward and activation gradients on a device, weight gradients beside it (training-dynamic §6).
//!
//! Ten programs are compiled once. Each layer owns the input surfaces of the eight kernels with weights; their weight region is
//! written after an update only. Outputs are shared by all layers, so what a later part needs is copied out at once: taps stay
//! fp16, as the device rounded them; the residual stream is fp32.
//!
//! Differences to the reference (upstream-defects): query head h uses key-value head h div ratio in both directions, the norm's
//! gradient is the right one, and a failed evaluation is an error.

use std::time::{Duration, Instant};

use ferrane_device::Device;
use ferrane_host::gemm::{Epilogue, Operand, Output, View, ViewMut, gemm};
use ferrane_host::{convert, f16, pool};
use ferrane_llm::layout::{Kernel, Residual, Shape};
use ferrane_llm::norm;
use ferrane_llm::weights::Weights;

use super::backward::{Backward, Tape};
use super::cpu;
use super::kernels::Kernels;
use super::{Engine, MicroStep, Parts, StepError, check_ids, compact_targets, product_failed, timed};
use crate::data::Compaction;

/// What the backward pass needs of a layer. fp16 is what the device worked with.
pub(super) struct Saved {
    pub x: Vec<f32>,
    pub x2: Vec<f32>,
    pub xnorm: Vec<f16>,
    pub attn_out: Vec<f16>,
    pub q: Vec<f16>,
    pub k: Vec<f16>,
    pub v: Vec<f16>,
    /// Empty without QK-norm.
    pub q_pre: Vec<f16>,
    /// Empty without QK-norm.
    pub k_pre: Vec<f16>,
    pub x2norm: Vec<f16>,
    pub h1: Vec<f16>,
    pub h3: Vec<f16>,
    pub gate: Vec<f16>,
}

/// Buffers of the forward pass.
struct Forward {
    /// The residual stream, at the end the input of the final norm.
    x: Vec<f32>,
    /// A norm's output, at the end that of the final norm.
    normed: Vec<f32>,
    /// A tap `[dim, S]`.
    tap: Vec<f32>,
    /// `[active vocabulary, S]`; their gradient after the loss.
    logits: Vec<f32>,
}

/// The pipeline over a device.
pub struct Pipeline {
    shape: Shape,
    vocabulary: Compaction,
    /// Classifier rows of the compact vocabulary, where it is one.
    classifier: Vec<f32>,
    kernels: Kernels,
    saved: Vec<Saved>,
    forward: Forward,
    backward: Backward,
    /// Time to compile and load the ten kernels.
    compile_time: Duration,
    device: Device,
    /// Notes of the device that were told.
    told: usize,
}

impl Pipeline {
    /// Compiles the ten kernels and stages `weights`.
    ///
    /// # Errors
    /// A shape that has no layout, or the device refused a kernel.
    pub fn new(
        device: &Device,
        shape: Shape,
        vocabulary: Compaction,
        weights: &Weights,
    ) -> Result<Pipeline, StepError> {
        let begun = Instant::now();
        let kernels = Kernels::new(device, &shape)?;
        let compile_time = begun.elapsed();
        let c = &shape.config;
        let s = shape.seq;
        let (dim, q, kv, hidden) = (c.dim * s, c.q_dim() * s, c.kv_dim() * s, c.hidden * s);
        let half = |n: usize| vec![f16::ZERO; n];
        let pre = |n: usize| half(if c.qk_norm { n } else { 0 });
        let saved = (0..c.layers).map(|_| Saved {
            x: vec![0.0; dim],
            x2: vec![0.0; dim],
            xnorm: half(dim),
            attn_out: half(q),
            q: half(q),
            k: half(kv),
            v: half(kv),
            q_pre: pre(q),
            k_pre: pre(kv),
            x2norm: half(dim),
            h1: half(hidden),
            h3: half(hidden),
            gate: half(hidden),
        });
        let saved = saved.collect();
        let full = |n: usize| vec![0.0; n];
        let forward = Forward { x: full(dim), normed: full(dim), tap: full(dim), logits: full(vocabulary.len() * s) };
        let backward = Backward::new(c, s);
        let classifier = Vec::new();
        let device = device.clone();
        let mut pipeline = Pipeline {
            vocabulary,
            classifier,
            kernels,
            saved,
            forward,
            backward,
            compile_time,
            shape,
            device,
            told: 0,
        };
        pipeline.stage(weights)?;
        Ok(pipeline)
    }

    /// Time it took to build, compile and load the ten kernels.
    pub fn compile_time(&self) -> Duration {
        self.compile_time
    }

    /// Bytes of all surfaces: each layer's own inputs, shared inputs and outputs.
    pub fn surface_bytes(&self) -> usize {
        self.kernels.surface_bytes()
    }

    fn check(&self, inputs: &[u32], targets: &[u32]) -> Result<Vec<u32>, StepError> {
        let s = self.shape.seq;
        if inputs.len() != s || targets.len() != s {
            let text = format!("a window of {} inputs and {} targets, not {s}", inputs.len(), targets.len());
            return Err(StepError::Shape(text));
        }
        check_ids(inputs, self.vocabulary.vocabulary())?;
        compact_targets(targets, &self.vocabulary)
    }

    /// The forward pass up to the logits, which are left in the scratch.
    fn forward(&mut self, weights: &Weights, inputs: &[u32], parts: &mut Parts) -> Result<(), StepError> {
        let Pipeline { shape, kernels, saved, forward: scratch, classifier, vocabulary, .. } = self;
        let c = &shape.config;
        let (s, eps, alpha) = (shape.seq, c.norm_eps, c.residual_scale);
        timed(&mut parts.classifier, || cpu::embed(&weights.embed, inputs, c.dim, &mut scratch.x));
        for (l, (saved, layer)) in saved.iter_mut().zip(&weights.layers).enumerate() {
            let run = kernels.of_layer(l);
            timed(&mut parts.elementwise, || {
                saved.x.copy_from_slice(&scratch.x);
                norm::rmsnorm_forward(&saved.x, &layer.attn_norm, s, eps, &mut scratch.normed);
                convert::f32_to_f16(&scratch.normed, &mut saved.xnorm);
            });
            timed(&mut parts.staging, || run.write_half(Kernel::SdpaFwd, "xnorm", &saved.xnorm))?;
            timed(&mut parts.device_forward, || run.evaluate(Kernel::SdpaFwd))?;
            timed(&mut parts.staging, || {
                let taps = [
                    ("attn_out", &mut saved.attn_out),
                    ("q_rope", &mut saved.q),
                    ("k_rope", &mut saved.k),
                    ("v", &mut saved.v),
                ];
                for (tap, rows) in taps {
                    run.read_half(Kernel::SdpaFwd, tap, rows)?;
                }
                if c.qk_norm {
                    run.read_half(Kernel::SdpaFwd, "q_pre", &mut saved.q_pre)?;
                    run.read_half(Kernel::SdpaFwd, "k_pre", &mut saved.k_pre)?;
                }
                run.write_half(Kernel::WoFwd, "attn_out", &saved.attn_out)
            })?;
            timed(&mut parts.device_forward, || run.evaluate(Kernel::WoFwd))?;
            timed(&mut parts.staging, || run.read(Kernel::WoFwd, "o_out", &mut scratch.tap))?;
            timed(&mut parts.elementwise, || {
                cpu::add_scaled(&saved.x, alpha, &scratch.tap, &mut saved.x2);
                norm::rmsnorm_forward(&saved.x2, &layer.ffn_norm, s, eps, &mut scratch.normed);
                convert::f32_to_f16(&scratch.normed, &mut saved.x2norm);
            });
            timed(&mut parts.staging, || {
                run.write_half(Kernel::FfnFused, "x2norm", &saved.x2norm)?;
                match shape.residual {
                    Residual::Fp16 => run.write(Kernel::FfnFused, "x2", &saved.x2),
                    Residual::Fp32 => Ok(()),
                }
            })?;
            timed(&mut parts.device_forward, || run.evaluate(Kernel::FfnFused))?;
            timed(&mut parts.staging, || {
                for (tap, rows) in [("h1", &mut saved.h1), ("h3", &mut saved.h3), ("gate", &mut saved.gate)] {
                    run.read_half(Kernel::FfnFused, tap, rows)?;
                }
                match shape.residual {
                    Residual::Fp16 => run.read(Kernel::FfnFused, "x_next", &mut scratch.x),
                    Residual::Fp32 => run.read(Kernel::FfnFused, "ffn", &mut scratch.tap),
                }
            })?;
            if shape.residual == Residual::Fp32 {
                timed(&mut parts.elementwise, || cpu::add_scaled(&saved.x2, alpha, &scratch.tap, &mut scratch.x));
            }
        }
        timed(&mut parts.classifier, || {
            norm::rmsnorm_forward(&scratch.x, &weights.norm, s, eps, &mut scratch.normed);
            let rows = classifier_rows(classifier, weights);
            let lhs = Operand::F32(View::row_major(rows, vocabulary.len(), c.dim)?);
            let rhs = Operand::F32(View::row_major(&scratch.normed, c.dim, s)?);
            let out = Output::F32(ViewMut::row_major(&mut scratch.logits, vocabulary.len(), s)?);
            gemm(lhs, rhs, out, Epilogue::default())
        })
        .map_err(product_failed)
    }
}

/// The classifier's rows: the compact copy where there is one, else the model's own.
pub(super) fn classifier_rows<'a>(compact: &'a [f32], weights: &'a Weights) -> &'a [f32] {
    if compact.is_empty() { weights.classifier.as_deref().unwrap_or(&weights.embed) } else { compact }
}

impl Engine for Pipeline {
    fn stage(&mut self, weights: &Weights) -> Result<(), StepError> {
        if weights.layers.len() != self.shape.config.layers {
            let text =
                format!("{} layers of weights for a model of {}", weights.layers.len(), self.shape.config.layers);
            return Err(StepError::Shape(text));
        }
        if !self.vocabulary.is_identity() {
            let ids = self.vocabulary.compact_to_full();
            let dim = self.shape.config.dim;
            let rows = weights.classifier.as_deref().unwrap_or(&weights.embed);
            self.classifier.resize(ids.len() * dim, 0.0);
            pool::for_each_chunk_mut(&mut self.classifier, 256 * dim, |task, chunk| {
                for (row, &id) in chunk.chunks_exact_mut(dim).zip(&ids[task * 256..]) {
                    row.copy_from_slice(&rows[id as usize * dim..][..dim]);
                }
            });
        }
        self.kernels.stage(weights)
    }

    fn micro_step(
        &mut self,
        weights: &Weights,
        gradients: &mut Weights,
        inputs: &[u32],
        targets: &[u32],
        loss_scale: f32,
    ) -> Result<MicroStep, StepError> {
        let targets = self.check(inputs, targets)?;
        let mut step = MicroStep::default();
        self.forward(weights, inputs, &mut step.parts)?;
        step.loss =
            timed(&mut step.parts.classifier, || cpu::cross_entropy(&mut self.forward.logits, &targets, loss_scale));
        if !step.loss.is_finite() {
            // Nothing of this window has touched the gradients yet.
            return Ok(step);
        }
        let Pipeline { shape, vocabulary, classifier, kernels, saved, forward, backward, .. } = self;
        let tape = Tape {
            config: &shape.config,
            kernels,
            vocabulary,
            weights,
            saved,
            classifier: classifier_rows(classifier, weights),
            x: &forward.x,
            normed: &forward.normed,
            dlogits: &forward.logits,
            inputs,
        };
        (step.max_dy, step.finite) = backward.run(&tape, gradients, &mut step.parts)?;
        Ok(step)
    }

    fn loss(&mut self, weights: &Weights, inputs: &[u32], targets: &[u32]) -> Result<f32, StepError> {
        let targets = self.check(inputs, targets)?;
        self.forward(weights, inputs, &mut Parts::default())?;
        Ok(cpu::cross_entropy_loss(&mut self.forward.logits, &targets))
    }

    fn remarks(&mut self) -> Vec<String> {
        let mut remarks = self.kernels.repeated();
        let notes = self.device.notes();
        remarks.extend(notes.iter().skip(self.told).cloned());
        self.told = notes.len();
        remarks
    }
}
