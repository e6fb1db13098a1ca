//! The backward pass of one window: activation gradients on the device, products for weight gradients to the worker.
//!
//! The order is that of training-dynamic §6, step 7. What enters a kernel and a product is the same fp16 value wherever the
//! device computed it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use ferrane_host::f16;
use ferrane_host::gemm::{Epilogue, Operand, Output, View, ViewMut, gemm};
use ferrane_llm::config::Config;
use ferrane_llm::layout::Kernel;
use ferrane_llm::norm;
use ferrane_llm::weights::{Layer, Part, Weights};

use super::cpu::{self, RopeTables};
use super::gradients::{self, Matrix, Product, Rows, Spare};
use super::kernels::{Kernels, LayerRun};
use super::pipeline::Saved;
use super::{Parts, StepError, product_failed, timed};
use crate::data::Compaction;

/// What the forward pass left and the backward pass reads.
pub struct Tape<'a> {
    pub config: &'a Config,
    pub kernels: &'a Kernels,
    pub vocabulary: &'a Compaction,
    pub weights: &'a Weights,
    pub saved: &'a [Saved],
    /// Rows of the active vocabulary, `[V, dim]`.
    pub classifier: &'a [f32],
    /// Input of the final norm.
    pub x: &'a [f32],
    /// Output of the final norm.
    pub normed: &'a [f32],
    /// Gradient of the logits, `[V, S]`, loss scale included.
    pub dlogits: &'a [f32],
    /// The window's tokens.
    pub inputs: &'a [u32],
}

/// Buffers of the backward pass.
pub struct Backward {
    s: usize,
    rope: RopeTables,
    /// Gradient of the residual stream.
    dy: Vec<f32>,
    /// Gradient of a norm's output.
    dx: Vec<f32>,
    /// Gradient of the stream between attention and feed-forward part.
    dx2: Vec<f32>,
    /// A gradient that is added to another, `[dim, S]`.
    part: Vec<f32>,
    /// A gradient for each query head.
    per_query: Vec<f32>,
    dgate: Vec<f16>,
    /// Values that entered the QK-norm, widened.
    pre: Vec<f32>,
    compact: Vec<f32>,
    spare: Spare,
}

/// Gradients that are vectors. They are summed on this thread while the worker owns the others.
struct Vectors {
    norm: Vec<f32>,
    layers: Vec<Layer>,
}

impl Vectors {
    /// Zeros for every tensor of a layer that is no matrix.
    fn zeros(weights: &Weights) -> Vectors {
        let zeros = |v: &[f32]| vec![0.0; v.len()];
        let maybe = |v: &Option<Vec<f32>>| v.as_deref().map(zeros);
        let layer = |l: &Layer| Layer {
            attn_norm: zeros(&l.attn_norm),
            ffn_norm: zeros(&l.ffn_norm),
            q_norm: maybe(&l.q_norm),
            k_norm: maybe(&l.k_norm),
            bq: maybe(&l.bq),
            bk: maybe(&l.bk),
            bv: maybe(&l.bv),
            ..Layer::default()
        };
        Vectors { norm: zeros(&weights.norm), layers: weights.layers.iter().map(layer).collect() }
    }

    fn add_to(self, gradients: &mut Weights) {
        let add = |to: &mut [f32], from: &[f32]| to.iter_mut().zip(from).for_each(|(t, f)| *t += f);
        add(&mut gradients.norm, &self.norm);
        for (to, from) in gradients.layers.iter_mut().zip(&self.layers) {
            for ((_, to), (_, from)) in to.parts_mut().into_iter().zip(from.parts()) {
                // Matrices are empty here.
                add(to, from);
            }
        }
    }
}

impl Backward {
    /// Buffers for windows of `s` tokens.
    pub fn new(config: &Config, s: usize) -> Backward {
        let full = |channels: usize| vec![0.0; channels * s];
        Backward {
            s,
            rope: RopeTables::new(config, s),
            dy: full(config.dim),
            dx: full(config.dim),
            dx2: full(config.dim),
            part: full(config.dim),
            per_query: full(config.q_dim()),
            dgate: vec![f16::ZERO; config.hidden * s],
            pre: full(if config.qk_norm { config.q_dim() } else { 0 }),
            compact: Vec::new(),
            spare: Spare::default(),
        }
    }

    /// Adds the gradients of a window. Returns the largest magnitude of the gradient that entered the layers, and whether
    /// everything stayed finite.
    ///
    /// # Errors
    /// The device refused an evaluation.
    pub fn run(
        &mut self,
        tape: &Tape<'_>,
        gradients: &mut Weights,
        parts: &mut Parts,
    ) -> Result<(f32, bool), StepError> {
        let s = self.s;
        let mut vectors = Vectors::zeros(tape.weights);
        let (send, receive) = channel();
        let (give_back, returned) = channel();
        let mut compact = std::mem::take(&mut self.compact);
        let (result, worker) = std::thread::scope(|scope| {
            let (gradients, compact, vocabulary) = (&mut *gradients, &mut compact, tape.vocabulary);
            let work = move || gradients::work(receive, give_back, gradients, vocabulary, compact, s);
            let worker = scope.spawn(work);
            let result = self.layers(tape, &mut vectors, &send, &returned, parts);
            drop(send);
            let worker = timed(&mut parts.waiting, || worker.join());
            (result, worker)
        });
        self.compact = compact;
        parts.weight_gradients +=
            worker.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(product_failed)?;
        let max_dy = result?;
        timed(&mut parts.classifier, || {
            cpu::embed_gradient(&self.dy, tape.inputs, tape.config.dim, &mut gradients.embed);
        });
        vectors.add_to(gradients);
        Ok((max_dy, max_dy.is_finite() && cpu::max_abs(&self.dy).is_finite()))
    }

    fn layers<'a>(
        &mut self,
        tape: &Tape<'a>,
        vectors: &mut Vectors,
        queue: &Sender<Product<'a>>,
        returned: &Receiver<Vec<f32>>,
        parts: &mut Parts,
    ) -> Result<f32, StepError> {
        let (s, eps, dim) = (self.s, tape.config.norm_eps, tape.config.dim);
        send(queue, Matrix::Classifier, Rows::Full(tape.dlogits), Rows::Full(tape.normed));
        let begun = Instant::now();
        let active = tape.vocabulary.len();
        let mut product = || {
            let lhs = Operand::F32(View::row_major(tape.classifier, active, dim)?).t();
            let rhs = Operand::F32(View::row_major(tape.dlogits, active, s)?);
            gemm(lhs, rhs, Output::F32(ViewMut::row_major(&mut self.dx, dim, s)?), Epilogue::default())
        };
        product().map_err(product_failed)?;
        parts.classifier += begun.elapsed();
        norm::rmsnorm_backward(&self.dx, tape.x, &tape.weights.norm, s, eps, &mut self.dy, &mut vectors.norm);
        let max_dy = cpu::max_abs(&self.dy);
        for (l, saved) in tape.saved.iter().enumerate().rev() {
            returned.try_iter().for_each(|buffer| self.spare.give(buffer));
            let layer = LayerTape {
                config: tape.config,
                run: tape.kernels.of_layer(l),
                weights: &tape.weights.layers[l],
                saved,
                index: l,
                queue,
            };
            self.feed_forward(&layer, &mut vectors.layers[l], parts)?;
            self.attention(&layer, &mut vectors.layers[l], parts)?;
        }
        Ok(max_dy)
    }

    /// dy → dx2: steps a to d.
    fn feed_forward(&mut self, l: &LayerTape<'_, '_>, vectors: &mut Layer, parts: &mut Parts) -> Result<(), StepError> {
        let (run, saved, s) = (l.run, l.saved, self.s);
        let mut dffn = self.spare.take(self.dy.len());
        cpu::scaled(l.config.residual_scale, &self.dy, &mut dffn);
        timed(&mut parts.staging, || run.write(Kernel::FfnBwdW2t, "dffn", &dffn))?;
        l.send(Part::W2, Rows::Owned(dffn), Rows::Half(&saved.gate));
        timed(&mut parts.device_backward, || run.evaluate(Kernel::FfnBwdW2t))?;
        timed(&mut parts.staging, || run.read_half(Kernel::FfnBwdW2t, "dgate", &mut self.dgate))?;
        let (mut dh1, mut dh3) = (self.spare.take(saved.h1.len()), self.spare.take(saved.h3.len()));
        timed(&mut parts.elementwise, || {
            cpu::silu_backward(&self.dgate, &saved.h1, &saved.h3, &mut dh1, &mut dh3);
        });
        timed(&mut parts.staging, || {
            run.write(Kernel::FfnBwdW13t, "dh1", &dh1)?;
            run.write(Kernel::FfnBwdW13t, "dh3", &dh3)
        })?;
        l.send(Part::W1, Rows::Owned(dh1), Rows::Half(&saved.x2norm));
        l.send(Part::W3, Rows::Owned(dh3), Rows::Half(&saved.x2norm));
        timed(&mut parts.device_backward, || run.evaluate(Kernel::FfnBwdW13t))?;
        timed(&mut parts.staging, || run.read(Kernel::FfnBwdW13t, "dx", &mut self.dx))?;
        timed(&mut parts.elementwise, || {
            let (gain, eps) = (&l.weights.ffn_norm, l.config.norm_eps);
            norm::rmsnorm_backward(&self.dx, &saved.x2, gain, s, eps, &mut self.part, &mut vectors.ffn_norm);
            cpu::add_scaled(&self.dy, 1.0, &self.part, &mut self.dx2);
        });
        Ok(())
    }

    /// dx2 → dy: steps e to j.
    fn attention(&mut self, l: &LayerTape<'_, '_>, vectors: &mut Layer, parts: &mut Parts) -> Result<(), StepError> {
        let (run, saved, c, s) = (l.run, l.saved, l.config, self.s);
        let (hd, ratio) = (c.head_dim, c.gqa_ratio());
        let mut dattn = self.spare.take(self.dx2.len());
        cpu::scaled(c.residual_scale, &self.dx2, &mut dattn);
        timed(&mut parts.staging, || run.write(Kernel::WotBwd, "dx2", &dattn))?;
        l.send(Part::Wo, Rows::Owned(dattn), Rows::Half(&saved.attn_out));
        timed(&mut parts.device_backward, || run.evaluate(Kernel::WotBwd))?;
        timed(&mut parts.staging, || {
            run.write_half(Kernel::SdpaBwd1, "q", &saved.q)?;
            run.write_half_tiled(Kernel::SdpaBwd1, "k_tiled", &saved.k, c)?;
            run.write_half_tiled(Kernel::SdpaBwd1, "v_tiled", &saved.v, c)?;
            run.copy(Kernel::WotBwd, Kernel::SdpaBwd1, "da")
        })?;
        timed(&mut parts.device_backward, || run.evaluate(Kernel::SdpaBwd1))?;
        timed(&mut parts.staging, || {
            run.copy(Kernel::SdpaBwd1, Kernel::SdpaBwd2, "probs")?;
            run.copy(Kernel::SdpaBwd1, Kernel::SdpaBwd2, "dp")?;
            run.write_half(Kernel::SdpaBwd2, "q", &saved.q)?;
            run.write_half_tiled(Kernel::SdpaBwd2, "k_tiled", &saved.k, c)
        })?;
        timed(&mut parts.device_backward, || run.evaluate(Kernel::SdpaBwd2))?;
        let mut dq = self.spare.take(saved.q.len());
        let (mut dk, mut dv) = (self.spare.take(saved.k.len()), self.spare.take(saved.v.len()));
        timed(&mut parts.staging, || {
            run.read(Kernel::SdpaBwd2, "dq", &mut dq)?;
            for (kernel, tap, out) in [(Kernel::SdpaBwd2, "dk", &mut dk), (Kernel::SdpaBwd1, "dv", &mut dv)] {
                run.read(kernel, tap, &mut self.per_query)?;
                cpu::sum_heads(&self.per_query, out, hd * s, ratio);
            }
            Ok(())
        })?;
        timed(&mut parts.elementwise, || {
            cpu::rope_backward(&mut dq, &self.rope, c, s);
            cpu::rope_backward(&mut dk, &self.rope, c, s);
            self.heads_norm_backward(&mut dq, &saved.q_pre, &l.weights.q_norm, &mut vectors.q_norm, c);
            self.heads_norm_backward(&mut dk, &saved.k_pre, &l.weights.k_norm, &mut vectors.k_norm, c);
            for (bias, d) in [(&mut vectors.bq, &dq), (&mut vectors.bk, &dk), (&mut vectors.bv, &dv)] {
                if let Some(bias) = bias {
                    cpu::sum_rows(d, s, bias);
                }
            }
        });
        timed(&mut parts.staging, || {
            run.write(Kernel::QBwd, "dq", &dq)?;
            run.write(Kernel::KvBwd, "dk", &dk)?;
            run.write(Kernel::KvBwd, "dv", &dv)
        })?;
        for (part, d) in [(Part::Wq, dq), (Part::Wk, dk), (Part::Wv, dv)] {
            l.send(part, Rows::Owned(d), Rows::Half(&saved.xnorm));
        }
        timed(&mut parts.device_backward, || {
            run.evaluate(Kernel::QBwd)?;
            run.evaluate(Kernel::KvBwd)
        })?;
        timed(&mut parts.staging, || {
            run.read(Kernel::QBwd, "dx", &mut self.dx)?;
            run.read(Kernel::KvBwd, "dx", &mut self.part)
        })?;
        timed(&mut parts.elementwise, || {
            self.dx.iter_mut().zip(&self.part).for_each(|(a, b)| *a += b);
            let (gain, eps) = (&l.weights.attn_norm, c.norm_eps);
            norm::rmsnorm_backward(&self.dx, &saved.x, gain, s, eps, &mut self.part, &mut vectors.attn_norm);
            cpu::add_scaled(&self.dx2, 1.0, &self.part, &mut self.dy);
        });
        Ok(())
    }

    /// Gradient through the norm of every head, in place. Without QK-norm there is nothing to do.
    fn heads_norm_backward(
        &mut self,
        d: &mut [f32],
        pre: &[f16],
        gain: &Option<Vec<f32>>,
        gain_gradient: &mut Option<Vec<f32>>,
        config: &Config,
    ) {
        let (Some(gain), Some(gain_gradient)) = (gain, gain_gradient) else { return };
        let head = config.head_dim * self.s;
        let pre_f32 = &mut self.pre[..pre.len()];
        ferrane_host::convert::f16_to_f32(pre, pre_f32);
        let mut out = vec![0.0; head];
        for (d, x) in d.chunks_exact_mut(head).zip(pre_f32.chunks_exact(head)) {
            norm::rmsnorm_backward(d, x, gain, self.s, config.norm_eps, &mut out, gain_gradient);
            d.copy_from_slice(&out);
        }
    }
}

/// One layer of a [`Tape`].
struct LayerTape<'a, 'q> {
    config: &'a Config,
    run: LayerRun<'a>,
    weights: &'a Layer,
    saved: &'a Saved,
    index: usize,
    queue: &'q Sender<Product<'a>>,
}

impl<'a> LayerTape<'a, '_> {
    fn send(&self, part: Part, lhs: Rows<'a>, rhs: Rows<'a>) {
        send(self.queue, Matrix::Layer(self.index, part), lhs, rhs);
    }
}

fn send<'a>(queue: &Sender<Product<'a>>, matrix: Matrix, lhs: Rows<'a>, rhs: Rows<'a>) {
    // A worker that is gone has failed, and its error is taken when the pass ends.
    let _ = queue.send(Product { matrix, lhs, rhs });
}
