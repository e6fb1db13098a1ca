//! The pipelines: forward pass and activation gradients on a device, weight gradients in parallel
//! on the CPU (training-dynamic §6, training-static §1).
//!
//! In the dynamic pipeline ten programs are compiled once, in the fused one six. Each layer owns
//! the input surfaces of the kernels with weights. Only an update writes their weight regions, with
//! new weights that are still in the cache. In the static pipeline five of the six are programs of
//! each layer, with weights as constants. The first step or loss after an update compiles them, not
//! the update itself: a compile that fails, as when the budget is spent, then leaves a complete
//! update, which a checkpoint can store.
//!
//! A micro-step runs on a thread of the pool, so that its parallel parts, its weight
//! gradients and the thread itself never use more threads than the pool has. All layers share the
//! output surfaces, so values that are needed later are copied out immediately: taps in fp16, as
//! the device rounded them, and the residual stream in fp32.
//!
//! The layers form segments. The forward pass keeps the input of each segment and the values of the
//! last one; the backward pass runs the layers of the others again, segment by segment, into the
//! same buffers. The same kernels read the same input, so the gradients have the same bits for any
//! length of a segment. One segment, the default, repeats nothing.
//!
//! Differences from the reference trainer (upstream-defects): query head h uses key-value head h
//! div ratio in both directions, the gradient of RMSNorm is correct, and a failed evaluation is an
//! error.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::{Duration, Instant};

use ferrane_device::Device;
use ferrane_host::{f16, pool};
use ferrane_llm::config::Config;
use ferrane_llm::layout::{Activation, Kernel, Residual, Shape};
use ferrane_llm::norm;
use ferrane_llm::weights::{Slot, Weights};

use super::backward::{Backward, SegmentSums, Tape};
use super::classifier::{Classifier, Operands};
use super::cpu;
use super::gradients::LayerAdapters;
use super::kernels::{Kernels, LayerRun};
use super::{Engine, IGNORED, MicroStep, Parts, StepError, check_ids, compact_targets, product_failed, timed};
use crate::metrics::timeline::{SpanKind, Tracer};
use crate::metrics::{EngineMemory, Timeline};
use crate::optim::{Gradients, RowSet, Update, UpdateShare};
use ferrane_llm::compaction::Compaction;

/// Number of rows of the compact classifier that one share of an update writes.
const SHARE_ROWS: usize = 1024;

/// The values of a layer that the backward pass reads; fp16 where the device computed them.
pub(super) struct Saved {
    pub x: Vec<f32>,
    pub x2: Vec<f32>,
    pub xnorm: Vec<f16>,
    pub attn_out: Vec<f16>,
    pub q: Vec<f16>,
    pub k: Vec<f16>,
    pub v: Vec<f16>,
    /// Queries before their norm, `[q_dim, S]`; empty without QK-norm.
    pub q_pre: Vec<f16>,
    /// Keys before their norm, `[kv_dim, S]`; empty without QK-norm.
    pub k_pre: Vec<f16>,
    pub x2norm: Vec<f16>,
    pub h1: Vec<f16>,
    pub h3: Vec<f16>,
    pub gate: Vec<f16>,
}

impl Saved {
    fn new(c: &Config, s: usize) -> Saved {
        let (dim, q, kv, hidden) = (c.dim * s, c.q_dim() * s, c.kv_dim() * s, c.hidden * s);
        let half = |n: usize| vec![f16::ZERO; n];
        let pre = |n: usize| half(if c.qk_norm { n } else { 0 });
        Saved {
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
        }
    }

    fn bytes(&self) -> usize {
        let half = [&self.xnorm, &self.attn_out, &self.q, &self.k, &self.v, &self.q_pre, &self.k_pre, &self.x2norm];
        let more = [&self.h1, &self.h3, &self.gate];
        4 * (self.x.len() + self.x2.len()) + 2 * half.iter().chain(&more).map(|v| v.len()).sum::<usize>()
    }
}

/// Buffers of the forward pass.
struct Forward {
    /// The residual stream `[dim, S]`; after the last layer the input of the final norm.
    x: Vec<f32>,
    /// Output of the latest norm, `[dim, S]`; after the pass that of the final norm.
    normed: Vec<f32>,
    /// Scratch buffer for a tap, `[dim, S]`.
    tap: Vec<f32>,
    /// Targets of the window, as rows of the classifier.
    targets: Vec<u32>,
}

impl Forward {
    /// Runs the layers of a segment on the residual stream.
    fn layers(
        &mut self,
        shape: &Shape,
        kernels: &Kernels,
        weights: &Weights,
        saved: &mut [Saved],
        segment: Range<usize>,
        tracer: Tracer<'_>,
        parts: &mut Parts,
    ) -> Result<(), StepError> {
        let c = &shape.config;
        let (s, eps, alpha) = (shape.seq, c.norm_eps, c.residual_scale);
        for (saved, l) in saved.iter_mut().zip(segment) {
            let layer = &weights.layers[l];
            let _layer = tracer.span(SpanKind::Layer, "layer forward", Some(l));
            let run = kernels.of_layer(l, tracer);
            let elementwise = |name| tracer.span(SpanKind::Elementwise, name, Some(l));
            timed(&mut parts.elementwise, || {
                let _span = elementwise("norm");
                // The old content of the buffer is overwritten completely before it is read.
                std::mem::swap(&mut saved.x, &mut self.x);
                norm::rmsnorm_forward_f16(&saved.x, &layer.attn_norm, s, eps, &mut saved.xnorm);
            });
            attention(run, c, saved, &mut self.tap, parts)?;
            timed(&mut parts.elementwise, || {
                let _span = elementwise("residual and norm");
                cpu::add_scaled(&saved.x, alpha, &self.tap, &mut saved.x2);
                norm::rmsnorm_forward_f16(&saved.x2, &layer.ffn_norm, s, eps, &mut saved.x2norm);
            });
            timed(&mut parts.staging, || {
                run.write_half(Kernel::FfnFused, Activation::X2norm, &saved.x2norm)?;
                match shape.residual {
                    Residual::Fp16 => run.write(Kernel::FfnFused, Activation::X2, &saved.x2),
                    Residual::Fp32 => Ok(()),
                }
            })?;
            timed(&mut parts.device_forward, || run.evaluate(Kernel::FfnFused))?;
            timed(&mut parts.staging, || {
                for (tap, rows) in [
                    (Activation::H1, &mut saved.h1),
                    (Activation::H3, &mut saved.h3),
                    (Activation::Gate, &mut saved.gate),
                ] {
                    run.read_half(Kernel::FfnFused, tap, rows)?;
                }
                match shape.residual {
                    Residual::Fp16 => run.read(Kernel::FfnFused, Activation::XNext, &mut self.x),
                    Residual::Fp32 => run.read(Kernel::FfnFused, Activation::Ffn, &mut self.tap),
                }
            })?;
            if shape.residual == Residual::Fp32 {
                let _span = elementwise("residual");
                timed(&mut parts.elementwise, || cpu::add_scaled(&saved.x2, alpha, &self.tap, &mut self.x));
            }
        }
        Ok(())
    }
}

impl Forward {
    /// The final norm, the logits and their softmax as kernels; returns the loss.
    fn device_loss(
        &mut self,
        run: LayerRun<'_>,
        classifier: &mut Classifier,
        parts: &mut Parts,
    ) -> Result<f32, StepError> {
        timed(&mut parts.staging, || run.write(Kernel::RmsFinal, Activation::X, &self.x))?;
        timed(&mut parts.device_forward, || run.evaluate(Kernel::RmsFinal))?;
        timed(&mut parts.staging, || {
            run.read(Kernel::RmsFinal, Activation::Xnorm, &mut self.normed)?;
            run.copy(Kernel::RmsFinal, Kernel::Classifier, Activation::Xnorm)
        })?;
        timed(&mut parts.device_forward, || run.evaluate(Kernel::Classifier))?;
        timed(&mut parts.staging, || run.copy(Kernel::Classifier, Kernel::Softmax, Activation::Logits))?;
        timed(&mut parts.device_forward, || run.evaluate(Kernel::Softmax))?;
        timed(&mut parts.staging, || run.read(Kernel::Softmax, Activation::ClassProbs, classifier.probabilities()))?;
        timed(&mut parts.classifier, || {
            classifier
                .loss_of_probabilities(&self.targets, |logits| run.read(Kernel::Classifier, Activation::Logits, logits))
        })
    }
}

/// The segments of the layers, in their order; the last one may be shorter.
fn segments(layers: usize, segment: usize) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator {
    (0..layers).step_by(segment.max(1)).map(move |first| first..layers.min(first + segment))
}

/// The engine on a device.
pub struct Pipeline {
    shape: Shape,
    vocabulary: Compaction,
    /// The rows of embedding and classifier that are in the vocabulary.
    active: RowSet,
    /// Copy of the classifier rows of the compact vocabulary; empty if the vocabulary is not
    /// compact.
    rows: Vec<f32>,
    classifier: Classifier,
    kernels: Kernels,
    /// For each layer of a segment.
    saved: Vec<Saved>,
    /// The input `[dim, S]` of each segment but the last, which is not repeated.
    starts: Vec<Vec<f32>>,
    forward: Forward,
    backward: Backward,
    /// Time to compile and load the kernels for the first time.
    compile_time: Duration,
    device: Device,
    /// Number of the device's notes that [`Engine::remarks`] has returned.
    told: usize,
    timeline: Option<Timeline>,
}

impl Pipeline {
    /// Compiles the kernels of the shape's pipeline, allocates their surfaces and stages `weights`.
    ///
    /// # Errors
    /// The shape has no layout, or the device refused a kernel or surface.
    pub fn new(
        device: &Device,
        shape: Shape,
        vocabulary: Compaction,
        weights: &Weights,
    ) -> Result<Pipeline, StepError> {
        Pipeline::recomputing(device, shape, vocabulary, weights, None)
    }

    /// As [`Pipeline::new`], with segments of `layers` layers: activations are kept for that many,
    /// and the backward pass computes those of all but the last segment again. `None`: the
    /// activations of all layers are kept.
    ///
    /// Gradients are the same to the bit. The products for the weight gradients of a segment end
    /// before the next one begins.
    ///
    /// # Errors
    /// As [`Pipeline::new`].
    pub fn recomputing(
        device: &Device,
        shape: Shape,
        vocabulary: Compaction,
        weights: &Weights,
        layers: Option<NonZeroUsize>,
    ) -> Result<Pipeline, StepError> {
        let begun = Instant::now();
        let shape = shape.with_classes(vocabulary.len());
        let mut rows = Vec::new();
        compact_rows(&vocabulary, shape.config.dim, weights, &mut rows);
        let kernels = Kernels::new(device, &shape, weights, classifier_rows(&rows, weights))?;
        let compile_time = begun.elapsed();
        let (c, s) = (&shape.config, shape.seq);
        let dim = c.dim * s;
        let segment = layers.map_or(c.layers, |layers| layers.get().min(c.layers));
        let saved = (0..segment).map(|_| Saved::new(c, s)).collect();
        let starts = vec![vec![0.0; dim]; c.layers.div_ceil(segment.max(1)).saturating_sub(1)];
        let full = |n: usize| vec![0.0; n];
        let forward = Forward { x: full(dim), normed: full(dim), tap: full(dim), targets: Vec::new() };
        let backward = Backward::new(c, s);
        let classifier = Classifier::new(vocabulary.len(), c.dim, s);
        let device = device.clone();
        let mut pipeline = Pipeline {
            active: RowSet::of(vocabulary.vocabulary(), vocabulary.compact_to_full()),
            vocabulary,
            rows,
            classifier,
            kernels,
            saved,
            starts,
            forward,
            backward,
            compile_time,
            shape,
            device,
            told: 0,
            timeline: None,
        };
        pipeline.stage(weights)?;
        Ok(pipeline)
    }

    /// Time it took to build, compile and load the kernels for the first time.
    pub fn compile_time(&self) -> Duration {
        self.compile_time
    }

    /// Number of loaded programs. In the static pipeline all but one have the weights of a layer.
    pub fn programs(&self) -> usize {
        self.kernels.programs()
    }

    /// Bytes of all surfaces: each layer's own inputs, shared inputs and outputs.
    pub fn surface_bytes(&self) -> usize {
        self.kernels.surface_bytes()
    }

    /// Checks a window and stores its targets as rows of the classifier.
    fn begin(&mut self, inputs: &[u32], targets: &[u32]) -> Result<(), StepError> {
        let s = self.shape.seq;
        if inputs.len() != s || targets.len() != s {
            let text = format!("a window of {} inputs and {} targets, not {s}", inputs.len(), targets.len());
            return Err(StepError::Shape(text));
        }
        if inputs.contains(&IGNORED) {
            return Err(StepError::Shape("an input cannot be left out of the loss".into()));
        }
        check_ids(inputs, self.vocabulary.vocabulary())?;
        compact_targets(targets, &self.vocabulary, &mut self.forward.targets)
    }

    /// The forward pass, up to the loss.
    fn forward(
        &mut self,
        weights: &Weights,
        inputs: &[u32],
        tracer: Tracer<'_>,
        parts: &mut Parts,
    ) -> Result<f32, StepError> {
        let Pipeline { shape, kernels, saved, starts, forward: scratch, classifier, rows, .. } = self;
        let (c, s, eps) = (&shape.config, shape.seq, shape.config.norm_eps);
        timed(&mut parts.classifier, || cpu::embed(&weights.embed, inputs, c.dim, &mut scratch.x));
        for (index, segment) in segments(c.layers, saved.len()).enumerate() {
            if let Some(start) = starts.get_mut(index) {
                timed(&mut parts.elementwise, || start.copy_from_slice(&scratch.x));
            }
            scratch.layers(shape, kernels, weights, saved, segment, tracer, parts)?;
        }
        let _span = tracer.span(SpanKind::Classifier, "classifier and loss", None);
        if shape.pipeline.has_extras() {
            return scratch.device_loss(kernels.of_model(tracer), classifier, parts);
        }
        timed(&mut parts.classifier, || {
            norm::rmsnorm_forward(&scratch.x, &weights.norm, s, eps, &mut scratch.normed);
            let weights = classifier_rows(rows, weights);
            classifier.loss(Operands { weights, normed: &scratch.normed, targets: &scratch.targets })
        })
        .map_err(product_failed)
    }

    fn step(
        &mut self,
        weights: &Weights,
        gradients: &mut Gradients,
        inputs: &[u32],
        loss_scale: f32,
        tracer: Tracer<'_>,
    ) -> Result<MicroStep, StepError> {
        let mut step = MicroStep::default();
        let forward = tracer.span(SpanKind::Step, "forward", None);
        step.loss = self.forward(weights, inputs, tracer, &mut step.parts)?;
        drop(forward);
        if !step.loss.is_finite() {
            // This window has not changed the gradients yet.
            return Ok(step);
        }
        let Pipeline { shape, vocabulary, active, rows, classifier, kernels, saved, starts, forward, backward, .. } =
            self;
        let config = &shape.config;
        let _backward = tracer.span(SpanKind::Step, "backward", None);
        let (sums, first) = gradients.begin(config.dim, inputs, active);
        let span = tracer.span(SpanKind::Classifier, "classifier gradient", None);
        timed(&mut step.parts.classifier, || {
            let weights = classifier_rows(rows, weights);
            let of = Operands { weights, normed: &forward.normed, targets: &forward.targets };
            let table = sums.weights.classifier.as_mut().unwrap_or(&mut sums.weights.embed);
            // A frozen classifier has no gradient.
            let table = (!table.is_empty()).then_some(table.as_mut_slice());
            classifier.backward(of, loss_scale, backward.entry(), table, vocabulary, first)
        })
        .map_err(product_failed)?;
        drop(span);
        let Weights { embed, layers, norm, .. } = sums.weights;
        step.max_dy = backward.begin(config, weights, &forward.x, norm, first, tracer, &mut step.parts);
        let mut adapters = LayerAdapters::of(sums.adapters);
        let mut rest = layers.as_mut_slice();
        for (index, segment) in segments(config.layers, saved.len()).enumerate().rev() {
            if let Some(start) = starts.get(index) {
                timed(&mut step.parts.elementwise, || forward.x.copy_from_slice(start));
                forward.layers(shape, kernels, weights, saved, segment.clone(), tracer, &mut step.parts)?;
            }
            let (before, layers) = std::mem::take(&mut rest).split_at_mut(segment.start);
            rest = before;
            let adapters = adapters.split_off(segment.start.min(adapters.len()));
            // The gradient that the first segment passes on is the embedding's.
            let embed = (index == 0).then_some((inputs, embed.as_mut_slice()));
            let tape = Tape { config, kernels, weights, saved, first_layer: segment.start, tracer };
            backward.segment(tape, SegmentSums { layers, adapters, embed, first }, &mut step.parts)?;
        }
        step.finite = step.max_dy.is_finite() && backward.is_finite();
        Ok(step)
    }

    /// The shares of an update that copy new rows of the compact classifier.
    fn classifier_shares<'a>(
        ids: &'a [u32],
        dim: usize,
        vocab: usize,
        slot: Slot,
        rows: &'a mut [f32],
    ) -> Vec<UpdateShare<'a>> {
        let mut shares = Vec::new();
        let (mut rest, mut done) = (rows, 0);
        for first in (0..vocab).step_by(SHARE_ROWS) {
            let end = vocab.min(first + SHARE_ROWS);
            let until = ids.partition_point(|id| (*id as usize) < end);
            let (mine, others) = std::mem::take(&mut rest).split_at_mut((until - done) * dim);
            let ids = &ids[done..until];
            (rest, done) = (others, until);
            let take = move |_: Slot, at: usize, values: &[f32]| {
                let rows = at / dim..(at + values.len()) / dim;
                let begin = ids.partition_point(|id| (*id as usize) < rows.start);
                let mine = mine[begin * dim..].chunks_exact_mut(dim);
                for (&id, row) in ids[begin..].iter().zip(mine).take_while(|(id, _)| (**id as usize) < rows.end) {
                    row.copy_from_slice(&values[(id as usize - rows.start) * dim..][..dim]);
                }
            };
            shares.push(UpdateShare { ranges: vec![(slot, first * dim..end * dim)], take: Box::new(take) });
        }
        shares
    }
}

/// The attention part of a layer's forward pass, from `saved.xnorm` to the output projection, which
/// is written to `out`.
fn attention(
    run: LayerRun<'_>,
    c: &Config,
    saved: &mut Saved,
    out: &mut [f32],
    parts: &mut Parts,
) -> Result<(), StepError> {
    let kernel = if run.is_fused() { Kernel::FwdAttn } else { Kernel::SdpaFwd };
    timed(&mut parts.staging, || run.write_half(kernel, Activation::Xnorm, &saved.xnorm))?;
    timed(&mut parts.device_forward, || run.evaluate(kernel))?;
    timed(&mut parts.staging, || {
        let taps = [
            (Activation::AttnOut, &mut saved.attn_out),
            (Activation::QRope, &mut saved.q),
            (Activation::KRope, &mut saved.k),
            (Activation::V, &mut saved.v),
        ];
        for (tap, rows) in taps {
            run.read_half(kernel, tap, rows)?;
        }
        if c.qk_norm {
            run.read_half(kernel, Activation::QPre, &mut saved.q_pre)?;
            run.read_half(kernel, Activation::KPre, &mut saved.k_pre)?;
        }
        Ok::<_, StepError>(())
    })?;
    if run.is_fused() {
        return timed(&mut parts.staging, || run.read(kernel, Activation::OOut, out));
    }
    timed(&mut parts.staging, || run.write_half(Kernel::WoFwd, Activation::AttnOut, &saved.attn_out))?;
    timed(&mut parts.device_forward, || run.evaluate(Kernel::WoFwd))?;
    timed(&mut parts.staging, || run.read(Kernel::WoFwd, Activation::OOut, out))
}

/// Copies the rows of a compact vocabulary from the model's classifier; `rows` stays empty if the
/// vocabulary is not compact.
fn compact_rows(vocabulary: &Compaction, dim: usize, weights: &Weights, rows: &mut Vec<f32>) {
    if vocabulary.is_identity() {
        return;
    }
    let (ids, from) = (vocabulary.compact_to_full(), weights.classifier.as_deref().unwrap_or(&weights.embed));
    rows.resize(ids.len() * dim, 0.0);
    pool::for_each_chunk_mut(rows, 256 * dim, |task, chunk| {
        for (row, &id) in chunk.chunks_exact_mut(dim).zip(&ids[task * 256..]) {
            row.copy_from_slice(&from[id as usize * dim..][..dim]);
        }
    });
}

/// The classifier's rows: the compact copy if there is one, otherwise the model's matrix.
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
        compact_rows(&self.vocabulary, self.shape.config.dim, weights, &mut self.rows);
        self.kernels.stage(weights)
    }

    fn update(&mut self, update: Update<'_>) -> Result<(), StepError> {
        let Pipeline { shape, vocabulary, rows, kernels, .. } = self;
        let config = &shape.config;
        let mut shares = kernels.shares(config)?;
        if !vocabulary.is_identity() {
            let slot = if config.tied { Slot::Embed } else { Slot::Classifier };
            let ids = vocabulary.compact_to_full();
            shares.extend(Pipeline::classifier_shares(ids, config.dim, config.vocab, slot, rows));
        }
        update.run(shares)?;
        kernels.outdate();
        Ok(())
    }

    fn micro_step(
        &mut self,
        weights: &Weights,
        gradients: &mut Gradients,
        inputs: &[u32],
        targets: &[u32],
        loss_scale: f32,
    ) -> Result<MicroStep, StepError> {
        self.begin(inputs, targets)?;
        let mut compile = Duration::ZERO;
        timed(&mut compile, || self.kernels.refresh(weights, classifier_rows(&self.rows, weights)))?;
        let timeline = self.timeline.clone();
        let tracer = timeline.as_ref().map_or(Tracer::off(), Timeline::step);
        let mut step = pool::scope(|_| {
            let _span = tracer.span(SpanKind::Step, "micro-step", None);
            self.step(weights, gradients, inputs, loss_scale, tracer)
        })?;
        step.parts.compile = compile;
        Ok(step)
    }

    fn loss(&mut self, weights: &Weights, inputs: &[u32], targets: &[u32]) -> Result<f32, StepError> {
        self.begin(inputs, targets)?;
        self.kernels.refresh(weights, classifier_rows(&self.rows, weights))?;
        pool::scope(|_| self.forward(weights, inputs, Tracer::off(), &mut Parts::default()))
    }

    fn record(&mut self, timeline: &Timeline) {
        self.timeline = Some(timeline.clone());
    }

    fn vocabulary(&self) -> Option<&Compaction> {
        Some(&self.vocabulary)
    }

    fn constants_time(&self) -> Duration {
        self.kernels.constants_time()
    }

    fn memory(&self) -> EngineMemory {
        let saved: usize = self.saved.iter().map(Saved::bytes).sum();
        let forward = &self.forward;
        let starts: usize = self.starts.iter().map(Vec::len).sum();
        let full = starts + forward.x.len() + forward.normed.len() + forward.tap.len() + self.rows.len();
        let ferrane_device::Footprint { arenas, constants } = self.device.footprint();
        EngineMemory {
            surfaces: self.kernels.surface_bytes(),
            activations: saved + 4 * full + self.classifier.bytes() + self.backward.bytes(),
            arenas,
            constants,
        }
    }

    fn remarks(&mut self) -> Vec<String> {
        let mut remarks = self.kernels.repeated();
        let notes = self.device.notes();
        remarks.extend(notes.iter().skip(self.told).cloned());
        self.told = notes.len();
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::layer_activations;
    use ferrane_llm::config::preset;

    #[test]
    fn what_a_layer_keeps_has_the_announced_size() {
        for name in ["stories260k", "qwen3-0.6b"] {
            let config = preset(name).unwrap();
            assert_eq!(Saved::new(&config, 24).bytes(), layer_activations(&config, 24), "{name}");
        }
    }

    #[test]
    fn segments_cover_the_layers() {
        let lengths = |layers, segment| segments(layers, segment).map(|s| s.len()).collect::<Vec<_>>();
        assert_eq!((lengths(5, 2), lengths(4, 2), lengths(3, 3)), (vec![2, 2, 1], vec![2, 2], vec![3]));
        assert_eq!((lengths(0, 0), segments(5, 2).next_back()), (vec![], Some(4..5)));
    }
}
