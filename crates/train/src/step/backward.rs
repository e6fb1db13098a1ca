//! The backward pass of one window: activation gradients on the device, and at the same time
//! products for weight gradients on the CPU.
//!
//! The order is that of training-dynamic §6, step 7. Kernels and products read the same fp16 values
//! wherever the device computed them.

use std::time::Instant;

use ferrane_host::{f16, pool};
use ferrane_llm::config::Config;
use ferrane_llm::layout::{Activation, Kernel};
use ferrane_llm::norm;
use ferrane_llm::weights::{Layer, Part, Weights};

use super::cpu::{self, RopeTables};
use super::gradients::{GradientSink, Jobs, LayerAdapters, ProductRows, Queue};
use super::kernels::{Kernels, LayerRun};
use super::pipeline::Saved;
use super::{Parts, StepError, product_failed, timed};
use crate::metrics::timeline::{SpanKind, Tracer};

/// The results of the forward pass that the backward pass of a segment reads.
#[derive(Clone, Copy)]
pub struct Tape<'a> {
    pub config: &'a Config,
    pub kernels: &'a Kernels,
    pub weights: &'a Weights,
    /// For each layer of the segment; more are not read.
    pub saved: &'a [Saved],
    /// The segment's first layer.
    pub first_layer: usize,
    pub tracer: Tracer<'a>,
}

/// The gradients that a segment adds to.
pub struct SegmentSums<'a> {
    /// Those of the segment's layers.
    pub layers: &'a mut [Layer],
    /// Those of adapters of its last layers.
    pub adapters: Vec<LayerAdapters<'a>>,
    /// For the first segment: the window's input ids `[S]`, and the embedding's gradient, which is
    /// empty if the embedding is frozen.
    pub embed: Option<(&'a [u32], &'a mut [f32])>,
    /// Whether this is the first contribution of an accumulation. It overwrites the gradients of
    /// the layers, later ones add to them. The embedding's are always added to.
    pub first: bool,
}

/// Buffers of the backward pass, reused for every window.
pub struct Backward {
    stream: Stream,
    jobs: Jobs,
}

/// The gradient of the residual stream, passed from layer to layer, and scratch buffers.
struct Stream {
    s: usize,
    rope: RopeTables,
    /// Gradient of the residual stream, `[dim, S]`.
    dy: Vec<f32>,
    /// Gradient of a norm's output, `[dim, S]`.
    dx: Vec<f32>,
    /// Gradient of the stream between attention and feed-forward part, `[dim, S]`.
    dx2: Vec<f32>,
    /// One summand of a gradient, `[dim, S]`.
    part: Vec<f32>,
    /// A gradient for each query head, `[q_dim, S]`.
    per_query: Vec<f32>,
    dgate: Vec<f16>,
    /// Inputs of the QK-norm, widened to fp32.
    pre: Vec<f32>,
    /// Gradient of the input of one head's QK-norm, before it is copied over that of the output.
    head: Vec<f32>,
}

impl Backward {
    /// Buffers for windows of `s` tokens.
    pub fn new(config: &Config, s: usize) -> Backward {
        let full = |channels: usize| vec![0.0; channels * s];
        let stream = Stream {
            s,
            rope: RopeTables::new(config, s),
            dy: full(config.dim),
            dx: full(config.dim),
            dx2: full(config.dim),
            part: full(config.dim),
            per_query: full(config.q_dim()),
            dgate: vec![f16::ZERO; config.hidden * s],
            pre: full(if config.qk_norm { config.q_dim() } else { 0 }),
            head: full(if config.qk_norm { config.head_dim } else { 0 }),
        };
        Backward { stream, jobs: Jobs::default() }
    }

    /// Size of the buffers in bytes.
    pub fn bytes(&self) -> usize {
        let s = &self.stream;
        let full =
            [&s.dy, &s.dx, &s.dx2, &s.part, &s.per_query, &s.pre, &s.head].iter().map(|b| b.len()).sum::<usize>();
        4 * full + 2 * s.dgate.len() + s.rope.bytes() + self.jobs.bytes()
    }

    /// The buffer into which the classifier writes the gradient of the final norm's output.
    pub fn entry(&mut self) -> &mut [f32] {
        &mut self.stream.dx
    }

    /// Begins the pass with the final norm, whose input was `x` `[dim, S]`. Returns the largest
    /// magnitude of the gradient that enters the layers.
    pub fn begin(
        &mut self,
        config: &Config,
        weights: &Weights,
        x: &[f32],
        norm_gradient: &mut [f32],
        first: bool,
        tracer: Tracer<'_>,
        parts: &mut Parts,
    ) -> f32 {
        let Stream { s, dy, dx, .. } = &mut self.stream;
        let span = tracer.span(SpanKind::Elementwise, "final norm", None);
        if first {
            norm_gradient.fill(0.0);
        }
        timed(&mut parts.elementwise, || {
            norm::rmsnorm_backward(dx, x, &weights.norm, *s, config.norm_eps, dy, norm_gradient);
        });
        drop(span);
        cpu::max_abs(dy)
    }

    /// Computes the gradients of a segment's layers, from that of its output to that of its input.
    /// Its products are complete when this returns.
    ///
    /// # Errors
    /// The device failed an evaluation.
    pub fn segment(&mut self, tape: Tape<'_>, sums: SegmentSums<'_>, parts: &mut Parts) -> Result<(), StepError> {
        let Backward { stream, jobs } = self;
        let SegmentSums { layers, adapters, embed, first } = sums;
        let s = stream.s;
        let (result, begun) = pool::scope(|scope| {
            let queue = Queue { scope, jobs: &*jobs, tracer: tape.tracer, s, first };
            let result = stream.layers(tape, layers, adapters, queue, parts);
            if let Some((inputs, embed)) = embed
                && result.is_ok()
                && !embed.is_empty()
            {
                let _span = tape.tracer.span(SpanKind::Classifier, "embedding gradient", None);
                timed(&mut parts.classifier, || cpu::embed_gradient(&stream.dy, inputs, tape.config.dim, embed));
            }
            (result, Instant::now())
        });
        parts.waiting += begun.elapsed();
        parts.weight_gradients += jobs.finish().map_err(product_failed)?;
        result
    }

    /// Whether the gradient of the residual stream is finite everywhere.
    pub fn is_finite(&self) -> bool {
        cpu::max_abs(&self.stream.dy).is_finite()
    }
}

impl Stream {
    fn layers<'a>(
        &mut self,
        tape: Tape<'a>,
        gradients: &'a mut [Layer],
        mut adapters: Vec<LayerAdapters<'a>>,
        queue: Queue<'_, 'a>,
        parts: &mut Parts,
    ) -> Result<(), StepError> {
        for (index, (saved, gradients)) in tape.saved.iter().zip(gradients).enumerate().rev() {
            let l = tape.first_layer + index;
            let span = tape.tracer.span(SpanKind::Layer, "layer backward", Some(l));
            let run = tape.kernels.of_layer(l, tape.tracer);
            let layer =
                LayerTape { config: tape.config, run, weights: &tape.weights.layers[l], saved, index: l, queue };
            let Layer { attn_norm, wq, wk, wv, wo, ffn_norm, w1, w3, w2, q_norm, k_norm, bq, bk, bv, .. } = gradients;
            let mut vectors = Vectors { attn_norm, ffn_norm, q_norm, k_norm, bq, bk, bv };
            if queue.first {
                vectors.zero();
            }
            // The last of the layers that are left.
            let mut adapters = adapters.pop().unwrap_or_default();
            let ffn = [(Part::W1, w1), (Part::W3, w3), (Part::W2, w2)].map(|(part, w)| adapters.sink(part, w));
            let attention = [(Part::Wq, wq), (Part::Wk, wk), (Part::Wv, wv), (Part::Wo, wo)];
            let attention = attention.map(|(part, w)| adapters.sink(part, w));
            self.feed_forward(&layer, ffn, &mut vectors, parts)?;
            self.attention(&layer, attention, &mut vectors, parts)?;
            drop(span);
        }
        Ok(())
    }

    /// Steps a to d: computes `dx2` from `dy`.
    fn feed_forward<'a>(
        &mut self,
        l: &LayerTape<'a, '_>,
        [w1, w3, w2]: [GradientSink<'a>; 3],
        vectors: &mut Vectors<'_>,
        parts: &mut Parts,
    ) -> Result<(), StepError> {
        let (run, saved, jobs) = (l.run, l.saved, l.queue.jobs);
        let mut dffn = jobs.take(self.dy.len());
        cpu::scaled(l.config.residual_scale, &self.dy, &mut dffn);
        let first = if run.is_fused() { Kernel::FfnBwd } else { Kernel::FfnBwdW2t };
        timed(&mut parts.staging, || run.write(first, Activation::Dffn, &dffn))?;
        l.product(Part::W2, w2, ProductRows::Owned(dffn), ProductRows::Half(&saved.gate));
        let (mut dh1, mut dh3) = (jobs.take(saved.h1.len()), jobs.take(saved.h3.len()));
        if run.is_fused() {
            timed(&mut parts.staging, || {
                run.write_half(first, Activation::H1, &saved.h1)?;
                run.write_half(first, Activation::H3, &saved.h3)
            })?;
            timed(&mut parts.device_backward, || run.evaluate(first))?;
            timed(&mut parts.staging, || {
                run.read(first, Activation::Dh1, &mut dh1)?;
                run.read(first, Activation::Dh3, &mut dh3)
            })?;
        } else {
            timed(&mut parts.device_backward, || run.evaluate(first))?;
            timed(&mut parts.staging, || run.read_half(first, Activation::Dgate, &mut self.dgate))?;
            timed(&mut parts.elementwise, || {
                let _span = l.span("SiLU gradient");
                cpu::silu_backward(&self.dgate, &saved.h1, &saved.h3, &mut dh1, &mut dh3);
            });
            timed(&mut parts.staging, || {
                run.write(Kernel::FfnBwdW13t, Activation::Dh1, &dh1)?;
                run.write(Kernel::FfnBwdW13t, Activation::Dh3, &dh3)
            })?;
        }
        l.product(Part::W1, w1, ProductRows::Owned(dh1), ProductRows::Half(&saved.x2norm));
        l.product(Part::W3, w3, ProductRows::Owned(dh3), ProductRows::Half(&saved.x2norm));
        let last = if run.is_fused() { first } else { Kernel::FfnBwdW13t };
        if !run.is_fused() {
            timed(&mut parts.device_backward, || run.evaluate(last))?;
        }
        timed(&mut parts.staging, || run.read(last, Activation::Dx, &mut self.dx))?;
        let norm = (Kernel::RmsFfnBwd, &saved.x2[..], &l.weights.ffn_norm[..]);
        self.norm_backward(l, norm, vectors.ffn_norm, parts)?;
        timed(&mut parts.elementwise, || cpu::add_scaled(&self.dy, 1.0, &self.part, &mut self.dx2));
        Ok(())
    }

    /// Steps e to j: computes `dy` of the layer's input from `dx2`.
    fn attention<'a>(
        &mut self,
        l: &LayerTape<'a, '_>,
        [wq, wk, wv, wo]: [GradientSink<'a>; 4],
        vectors: &mut Vectors<'_>,
        parts: &mut Parts,
    ) -> Result<(), StepError> {
        let (run, saved, c, s, jobs) = (l.run, l.saved, l.config, self.s, l.queue.jobs);
        let (hd, ratio) = (c.head_dim, c.gqa_ratio());
        let mut dattn = jobs.take(self.dx2.len());
        cpu::scaled(c.residual_scale, &self.dx2, &mut dattn);
        let (projection, first) = match run.is_fused() {
            true => (Kernel::WoSdpaBwd1, Kernel::WoSdpaBwd1),
            false => (Kernel::WotBwd, Kernel::SdpaBwd1),
        };
        timed(&mut parts.staging, || run.write(projection, Activation::Dx2, &dattn))?;
        l.product(Part::Wo, wo, ProductRows::Owned(dattn), ProductRows::Half(&saved.attn_out));
        if !run.is_fused() {
            timed(&mut parts.device_backward, || run.evaluate(projection))?;
            timed(&mut parts.staging, || run.copy(projection, first, Activation::Da))?;
        }
        timed(&mut parts.staging, || {
            run.write_half(first, Activation::Q, &saved.q)?;
            run.write_half_tiled(first, Activation::KTiled, &saved.k, c)?;
            run.write_half_tiled(first, Activation::VTiled, &saved.v, c)
        })?;
        timed(&mut parts.device_backward, || run.evaluate(first))?;
        timed(&mut parts.staging, || {
            run.copy(first, Kernel::SdpaBwd2, Activation::Probs)?;
            run.copy(first, Kernel::SdpaBwd2, Activation::Dp)?;
            run.write_half(Kernel::SdpaBwd2, Activation::Q, &saved.q)?;
            run.write_half_tiled(Kernel::SdpaBwd2, Activation::KTiled, &saved.k, c)
        })?;
        timed(&mut parts.device_backward, || run.evaluate(Kernel::SdpaBwd2))?;
        let mut dq = jobs.take(saved.q.len());
        let (mut dk, mut dv) = (jobs.take(saved.k.len()), jobs.take(saved.v.len()));
        timed(&mut parts.staging, || {
            run.read(Kernel::SdpaBwd2, Activation::Dq, &mut dq)?;
            for (kernel, tap, out) in [(Kernel::SdpaBwd2, Activation::Dk, &mut dk), (first, Activation::Dv, &mut dv)] {
                run.read(kernel, tap, &mut self.per_query)?;
                cpu::sum_heads(&self.per_query, out, hd * s, ratio);
            }
            Ok::<_, StepError>(())
        })?;
        timed(&mut parts.elementwise, || {
            let _span = l.span("rotary gradient");
            cpu::rope_backward(&mut dq, &self.rope, c, s);
            cpu::rope_backward(&mut dk, &self.rope, c, s);
            self.heads_norm_backward(&mut dq, &saved.q_pre, &l.weights.q_norm, vectors.q_norm, c);
            self.heads_norm_backward(&mut dk, &saved.k_pre, &l.weights.k_norm, vectors.k_norm, c);
            let biases = [&mut *vectors.bq, &mut *vectors.bk, &mut *vectors.bv];
            for (bias, d) in biases.into_iter().zip([&dq, &dk, &dv]) {
                if let Some(bias) = bias {
                    cpu::sum_rows(d, s, bias);
                }
            }
        });
        let (q_kernel, kv_kernel) = match run.is_fused() {
            true => (Kernel::QkvBwd, Kernel::QkvBwd),
            false => (Kernel::QBwd, Kernel::KvBwd),
        };
        timed(&mut parts.staging, || {
            run.write(q_kernel, Activation::Dq, &dq)?;
            run.write(kv_kernel, Activation::Dk, &dk)?;
            run.write(kv_kernel, Activation::Dv, &dv)
        })?;
        for (part, out, d) in [(Part::Wq, wq, dq), (Part::Wk, wk, dk), (Part::Wv, wv, dv)] {
            l.product(part, out, ProductRows::Owned(d), ProductRows::Half(&saved.xnorm));
        }
        timed(&mut parts.device_backward, || run.evaluate(q_kernel))?;
        timed(&mut parts.staging, || run.read(q_kernel, Activation::Dx, &mut self.dx))?;
        if !run.is_fused() {
            timed(&mut parts.device_backward, || run.evaluate(kv_kernel))?;
            timed(&mut parts.staging, || run.read(kv_kernel, Activation::Dx, &mut self.part))?;
            timed(&mut parts.elementwise, || cpu::add(&mut self.dx, &self.part));
        }
        let norm = (Kernel::RmsAttnBwd, &saved.x[..], &l.weights.attn_norm[..]);
        self.norm_backward(l, norm, vectors.attn_norm, parts)?;
        timed(&mut parts.elementwise, || cpu::add_scaled(&self.dx2, 1.0, &self.part, &mut self.dy));
        Ok(())
    }

    /// The gradient `part` of a norm's input `x` from that of its output, `dx`; adds that of the
    /// gains. `kernel` computes the former if the pipeline has extras.
    fn norm_backward(
        &mut self,
        l: &LayerTape<'_, '_>,
        (kernel, x, gain): (Kernel, &[f32], &[f32]),
        gain_gradient: &mut [f32],
        parts: &mut Parts,
    ) -> Result<(), StepError> {
        let (run, s, eps) = (l.run, self.s, l.config.norm_eps);
        if !run.has_extras() {
            timed(&mut parts.elementwise, || {
                let _span = l.span("norm gradient");
                norm::rmsnorm_backward(&self.dx, x, gain, s, eps, &mut self.part, gain_gradient);
            });
            return Ok(());
        }
        timed(&mut parts.staging, || {
            run.write(kernel, Activation::Dy, &self.dx)?;
            run.write(kernel, Activation::X, x)
        })?;
        timed(&mut parts.device_backward, || run.evaluate(kernel))?;
        timed(&mut parts.staging, || run.read(kernel, Activation::Dx, &mut self.part))?;
        timed(&mut parts.elementwise, || {
            let _span = l.span("gain gradient");
            norm::rmsnorm_gain_gradient(&self.dx, x, s, eps, gain_gradient);
        });
        Ok(())
    }

    /// The backward pass of the QK-norm, head by head and in place; does nothing without QK-norm.
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
        for (d, x) in d.chunks_exact_mut(head).zip(pre_f32.chunks_exact(head)) {
            norm::rmsnorm_backward(d, x, gain, self.s, config.norm_eps, &mut self.head, gain_gradient);
            d.copy_from_slice(&self.head);
        }
    }
}

/// The gradients of a layer's vectors, which the step's own thread computes.
struct Vectors<'a> {
    attn_norm: &'a mut Vec<f32>,
    ffn_norm: &'a mut Vec<f32>,
    q_norm: &'a mut Option<Vec<f32>>,
    k_norm: &'a mut Option<Vec<f32>>,
    bq: &'a mut Option<Vec<f32>>,
    bk: &'a mut Option<Vec<f32>>,
    bv: &'a mut Option<Vec<f32>>,
}

impl Vectors<'_> {
    fn zero(&mut self) {
        self.attn_norm.fill(0.0);
        self.ffn_norm.fill(0.0);
        for vector in [&mut self.q_norm, &mut self.k_norm, &mut self.bq, &mut self.bk, &mut self.bv] {
            vector.iter_mut().for_each(|v| v.fill(0.0));
        }
    }
}

/// A [`Tape`], restricted to one layer.
struct LayerTape<'a, 'q> {
    config: &'a Config,
    run: LayerRun<'a>,
    weights: &'a Layer,
    saved: &'a Saved,
    index: usize,
    queue: Queue<'q, 'a>,
}

impl<'a> LayerTape<'a, '_> {
    fn product(&self, part: Part, out: GradientSink<'a>, lhs: ProductRows<'a>, rhs: ProductRows<'a>) {
        self.queue.product(self.index, part, out, lhs, rhs);
    }

    fn span(&self, name: &'static str) -> crate::metrics::timeline::Span<'a> {
        self.queue.tracer.span(SpanKind::Elementwise, name, Some(self.index))
    }
}
