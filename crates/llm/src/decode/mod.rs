//! Generation through a device with a cache of keys and values: prefill in windows, then one token
//! at a time.
//!
//! A window takes two requests for each layer ([`program`]); the residual stream, RMSNorm,
//! embedding and classifier stay on the CPU in fp32, as in training. The cost of a token is its own
//! products and one pass over the cache, and it allocates nothing. Of a prompt, only the last token
//! needs the output of the last layer; for the other tokens that layer computes keys and values
//! only.
//!
//! | what | how |
//! |---|---|
//! | prefill | windows of 256 or 32 positions, the last one padded with zeros; the first window of a sequence runs without a cache |
//! | decode | windows of one position, or of the machine's minimum (C181), of which one is used |
//! | cache | a surface of keys and one of values for each layer, fp16, in buckets of 128, 256, 384, 512, 768, 1024 … positions; the host appends the rows that the program returns |
//! | weights | surfaces, staged once: one compile for all layers; every program binds the same ones |
//! | past the context | the last half of the context is fed again from position 0 |
//!
//! *Weights are inputs.* If they were constants, each layer would be a compile, and a process has a
//! budget of about 119 compiles (C154). With inputs, a bucket is one compile and each window size
//! is two more: the feed-forward part, and the last layer's keys and values. Training stages its
//! weights as inputs too. The price on an engine is that the program widens int8 codes.
//!
//! The host copies a window's keys and values from the output into the cache's surface: programs
//! have fixed shapes, and only Core ML has states that a program can write at a variable position.
//! Masked positions of the cache hold zeros or rows of an earlier sequence. Both are finite, and
//! their probability is zero.

pub mod program;
pub mod quantize;
mod rows;
mod window;

use std::ops::Range;

use ferrane_device::Device;
use ferrane_host::gemm::{Epilogue, Operand, Output, View, ViewMut, gemm};
use ferrane_host::pool;
use half::f16;

use crate::config::{Config, Rotation};
use crate::forward::Error;
use crate::kernels::MASKED;
use crate::layout::LayoutError;
use crate::weights::{self, Layer, Weights};
use program::{DecodeInput, DecodeKernel, DecodeShape};
use quantize::{HostMatrix, ONE, WeightType};
use rows::{Norm, Sum};
use window::{Cache, Staged, WindowKernel};

/// Positions in the windows of a prefill, wide and narrow.
const WINDOWS: [usize; 2] = [256, 32];
/// Number of tokens from which a window of 256 is cheaper than windows of 32.
const WIDE: usize = 128;
/// Positions in the smallest cache.
const SMALLEST: usize = 128;

/// Options of [`Decoder::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Element type of the matrices.
    pub weights: WeightType,
    /// Largest number of positions in a sequence; `None`: the model's `max_seq`. Larger values are
    /// reduced to it.
    pub context: Option<usize>,
}

/// The smallest bucket of at least `positions` positions. Buckets are powers of two, and 1.5 times
/// these.
fn bucket(positions: usize) -> usize {
    let mut size = SMALLEST;
    while size < positions {
        size = if size.is_power_of_two() && size > SMALLEST { size / 2 * 3 } else { (size + 1).next_power_of_two() };
    }
    size
}

/// The gains of a layer's norms, `[dim]`: before its halves, and after them, if it has these.
struct Gains {
    attn: Vec<f32>,
    ffn: Vec<f32>,
    post_attn: Option<Vec<f32>>,
    post_ffn: Option<Vec<f32>>,
}

impl Gains {
    fn of(layer: &Layer) -> Gains {
        Gains {
            attn: layer.attn_norm.clone(),
            ffn: layer.ffn_norm.clone(),
            post_attn: layer.post_attn_norm.clone(),
            post_ffn: layer.post_ffn_norm.clone(),
        }
    }
}

/// What layers of one kind of attention share.
struct Kind {
    /// Number of positions that a query sees, its own included.
    reach: usize,
    /// The rotation of heads, for sequences as long as the context.
    rope: Rotation,
    /// Cosines and sines, half a head each, of the positions prepared so far, `[positions,
    /// head_dim]`.
    rows: Vec<f16>,
}

impl Kind {
    fn all(config: &Config, context: usize) -> Vec<Kind> {
        let kind = |kind| Kind {
            reach: config.window(kind).unwrap_or(usize::MAX),
            rope: config.rotation(kind, context),
            rows: Vec::new(),
        };
        config.attention_kinds().into_iter().map(kind).collect()
    }

    /// Prepares `most` positions if fewer than `positions` are there.
    fn rotate(&mut self, positions: usize, most: usize, head: usize) {
        let there = self.rows.len() / head;
        if positions <= there {
            return;
        }
        self.rows.resize(most * head, f16::ZERO);
        for (t, row) in self.rows.chunks_exact_mut(head).enumerate().skip(there) {
            let (cos, sin) = row.split_at_mut(head / 2);
            for (i, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
                let (c, s) = self.rope.at(i, t);
                (*cos, *sin) = (f16::from_f64(c), f16::from_f64(s));
            }
        }
    }

    /// Writes the rotation of a window that begins at position `at`; the kind has this index.
    fn rotation(&self, kernel: &WindowKernel, index: usize, at: usize, head: usize) -> Result<(), Error> {
        let copy = |t: usize, row: &mut [f16]| row[..head].copy_from_slice(&self.rows[(at + t) * head..][..head]);
        kernel.fill(DecodeInput::Rope, index, copy)
    }
}

/// A model on a device, with the state of one sequence.
pub struct Decoder {
    device: Device,
    config: Config,
    weights: WeightType,
    context: usize,
    /// Positions in the window of a single token.
    least: usize,
    staged: Staged,
    kernels: Vec<(DecodeShape, WindowKernel)>,
    caches: Vec<Cache>,
    /// Positions in each cache.
    cached: usize,
    /// Number of leading positions of the caches that may hold rows, of this sequence or an earlier
    /// one.
    written: usize,
    embed: HostMatrix,
    classifier: Option<HostMatrix>,
    norm: Vec<f32>,
    gains: Vec<Gains>,
    /// What depends on the kind of a layer's attention, in the order of
    /// [`Config::attention_kinds`].
    kinds: Vec<Kind>,
    /// The sequence, of which the first `done` tokens are in the caches.
    tokens: Vec<u32>,
    done: usize,
    stream: Vec<f32>,
    normed: Vec<f32>,
    logits: Vec<f32>,
}

impl Decoder {
    /// Compiles the programs of a single token, allocates surfaces and stages the weights. Programs
    /// of longer windows and larger caches are compiled when they are first needed.
    ///
    /// # Errors
    /// [`Error::Weights`] if configuration and weights do not fit, [`Error::Quantize`] for weights
    /// that int8 cannot express, [`Error::Length`] for a context without positions,
    /// [`Error::Layout`] for a mixture of experts; or the device refused.
    pub fn new(device: &Device, config: &Config, weights: &Weights, options: Options) -> Result<Decoder, Error> {
        config.validate().map_err(weights::Error::from)?;
        weights.check(config)?;
        if config.experts.is_some() {
            let reason = "a mixture of experts has no programs for a device; the fp32 reference runs it";
            return Err(LayoutError::Shape(reason.into()).into());
        }
        let context = options.context.unwrap_or(config.max_seq).min(config.max_seq);
        if context == 0 {
            return Err(Error::Length { found: 0, seq: config.max_seq });
        }
        let table = |name, values: &[f32]| {
            let matrix = HostMatrix::new(values, config.dim, options.weights);
            matrix.ok_or(Error::Quantize { layer: 0, tensor: name, row: 0 })
        };
        let mut decoder = Decoder {
            device: device.clone(),
            config: config.clone(),
            weights: options.weights,
            context,
            least: device.profile().min_queries.value.max(1),
            staged: Staged::default(),
            kernels: Vec::new(),
            caches: Vec::new(),
            cached: 0,
            written: 0,
            embed: table("embed", &weights.embed)?,
            classifier: weights.classifier.as_deref().map(|values| table("classifier", values)).transpose()?,
            norm: weights.norm.clone(),
            gains: weights.layers.iter().map(Gains::of).collect(),
            kinds: Kind::all(config, context),
            tokens: Vec::new(),
            done: 0,
            stream: Vec::new(),
            normed: vec![0.0; config.dim],
            logits: vec![0.0; config.vocab],
        };
        decoder.grow(1)?;
        for part in [DecodeKernel::Attention, DecodeKernel::FeedForward] {
            decoder.bound(part, decoder.least, decoder.cached)?;
        }
        decoder.staged.stage(config, weights, options.weights)?;
        Ok(decoder)
    }

    /// Sizes and options of the model.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The tokens of the sequence so far, or of its kept half.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Bytes of weights that a token reads: the layers' matrices and the classifier.
    pub fn bytes_per_token(&self) -> usize {
        let c = &self.config;
        let bytes = |rows, cols| self.weights.bytes(rows, cols);
        let all = c.q_dim() + 2 * c.kv_dim();
        let layer = bytes(all, c.dim) + bytes(c.dim, c.q_dim()) + bytes(2 * c.hidden, c.dim) + bytes(c.dim, c.hidden);
        c.layers * layer + bytes(c.vocab, c.dim)
    }

    /// Begins a new sequence.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.done = 0;
    }

    /// Continues the sequence by tokens and returns the logits `[vocab]` of the one after them. A
    /// sequence that would exceed the context continues with its last half, from position 0.
    ///
    /// # Errors
    /// [`Error::Length`] without tokens, [`Error::Token`], or the device failed; the sequence is
    /// unchanged then.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        if tokens.is_empty() {
            return Err(Error::Length { found: 0, seq: self.context });
        }
        let (vocab, before) = (self.config.vocab, self.tokens.len());
        if let Some((i, &token)) = tokens.iter().enumerate().find(|(_, t)| **t as usize >= vocab) {
            return Err(Error::Token { token, position: before + i, vocab });
        }
        let kept = (before + tokens.len() > self.context).then(|| self.tokens.clone());
        self.tokens.extend_from_slice(tokens);
        if kept.is_some() {
            self.tokens.drain(..self.tokens.len() - self.context.div_ceil(2));
            self.done = 0;
        }
        // Runs on a thread of the pool, so that a parallel product wakes one thread less.
        if let Err(error) = pool::scope(|_| self.catch_up()) {
            match kept {
                Some(kept) => (self.tokens, self.done) = (kept, 0),
                None => self.tokens.truncate(before),
            }
            self.done = self.done.min(self.tokens.len());
            return Err(error);
        }
        Ok(&self.logits)
    }

    /// Computes the tokens that are not in the caches yet, and the logits after the last.
    fn catch_up(&mut self) -> Result<(), Error> {
        self.grow(self.tokens.len())?;
        while self.done < self.tokens.len() {
            let left = self.tokens.len() - self.done;
            let queries = match left {
                _ if left <= 2 * self.least => self.least,
                WIDE.. => WINDOWS[0],
                _ => WINDOWS[1],
            };
            let queries = queries.max(self.least);
            let count = if queries > self.least { left.min(queries) } else { 1 };
            // A single token at position 0 uses a cache that is masked entirely; that saves a
            // program.
            let cached = if self.done == 0 && queries > self.least { 0 } else { self.cached };
            self.forget(if cached == 0 { count } else { self.done })?;
            self.window(queries, cached, count)?;
            self.done += count;
        }
        self.classify()
    }

    /// Zeroes what an earlier sequence or a failed window left in the caches from position `from`
    /// on.
    fn forget(&mut self, from: usize) -> Result<(), Error> {
        if from < self.written {
            let at = |source| Error::Device { kernel: "cache", source };
            self.caches.iter().try_for_each(|cache| cache.clear(from..self.written)).map_err(at)?;
            self.written = from;
        }
        Ok(())
    }

    /// Grows the caches to hold at least `positions` positions.
    fn grow(&mut self, positions: usize) -> Result<(), Error> {
        if positions <= self.cached && !self.caches.is_empty() {
            return Ok(());
        }
        let cached = bucket(positions);
        let found = self.program(DecodeKernel::Attention, self.least, cached)?;
        let layouts = self.kernels[found].1.cache_layouts(&self.device)?;
        let at = |source| Error::Device { kernel: "cache", source };
        let mut caches = Vec::new();
        for layer in 0..self.config.layers {
            let cache = Cache::new(&self.device, &layouts).map_err(at)?;
            if let Some(before) = self.caches.get(layer) {
                cache.take(before, self.done).map_err(at)?;
            }
            caches.push(cache);
        }
        self.kernels.iter_mut().filter(|(shape, _)| shape.cached > 0).for_each(|(_, kernel)| kernel.unbind());
        (self.caches, self.cached, self.written) = (caches, cached, self.done);
        Ok(())
    }

    /// Compiles and loads a program; returns its index.
    fn program(&mut self, part: DecodeKernel, queries: usize, cached: usize) -> Result<usize, Error> {
        let shape = DecodeShape { config: self.config.clone(), queries, cached, weights: self.weights };
        let kernel = WindowKernel::new(&self.device, &shape, part)?;
        self.kernels.push((shape, kernel));
        Ok(self.kernels.len() - 1)
    }

    /// The index of a program, compiled if necessary, with the surfaces of every layer bound.
    fn bound(&mut self, part: DecodeKernel, queries: usize, cached: usize) -> Result<usize, Error> {
        let same =
            |(s, kernel): &(DecodeShape, WindowKernel)| (kernel.part(), s.queries, s.cached) == (part, queries, cached);
        let at = self.kernels.iter().position(same);
        let at = at.map_or_else(|| self.program(part, queries, cached), Ok)?;
        let (shape, kernel) = &mut self.kernels[at];
        if !kernel.is_bound() {
            kernel.bind(&self.device, shape, &mut self.staged, &self.caches)?;
        }
        Ok(at)
    }

    /// Runs one window, the next `count` tokens, and appends their keys and values to the caches.
    /// If no tokens are left, the first row of `stream` then holds the residual stream of the last
    /// token after the last layer.
    fn window(&mut self, queries: usize, cached: usize, count: usize) -> Result<(), Error> {
        let (dim, done, layers) = (self.config.dim, self.done, self.config.layers);
        self.stream.clear();
        self.stream.resize(queries * dim, 0.0);
        for (row, &token) in self.stream.chunks_exact_mut(dim).zip(&self.tokens[done..done + count]) {
            self.embed.row(token as usize, row);
            if self.config.embed_scale != 1.0 {
                row.iter_mut().for_each(|value| *value *= self.config.embed_scale);
            }
        }
        self.written = self.written.max(done + count);
        self.rotate(done + queries);
        if queries == self.least {
            return self.layers(0..layers, done, count, [queries, cached]);
        }
        self.layers(0..layers - 1, done, count, [queries, cached])?;
        self.keys_values(count, queries)?;
        if done + count == self.tokens.len() {
            // The last token runs through the last layer as a window of its own. Its own row in the
            // cache is masked.
            self.stream.copy_within((count - 1) * dim..count * dim, 0);
            self.stream.truncate(self.least * dim);
            self.stream[dim..].fill(0.0);
            self.rotate(done + count - 1 + self.least);
            self.layers(layers - 1..layers, done + count - 1, 1, [self.least, self.cached])?;
        }
        Ok(())
    }

    /// Runs `layers` on the stream of `count` positions from `at` on. The rotation must be prepared
    /// for the whole window.
    fn layers(
        &mut self,
        layers: Range<usize>,
        at: usize,
        count: usize,
        [queries, cached]: [usize; 2],
    ) -> Result<(), Error> {
        if layers.is_empty() {
            return Ok(());
        }
        let places =
            [self.bound(DecodeKernel::Attention, queries, cached)?, self.bound(DecodeKernel::FeedForward, queries, 0)?];
        let Decoder { config, stream, kinds, .. } = self;
        let [(_, attention), (_, feed_forward)] = places.map(|place| &self.kernels[place]);
        let (dim, head, kv, alpha) = (config.dim, config.head_dim, config.kv_dim(), config.residual_scale);
        let norm = |gain| Norm { gain, eps: config.norm_eps };
        for (i, kind) in kinds.iter().enumerate() {
            kind.rotation(attention, i, at, head)?;
            attention.fill(DecodeInput::Mask, i, |t, row| {
                row.fill(f16::from_f32(MASKED));
                let first = (at + t + 1).saturating_sub(kind.reach);
                if first < at.min(cached) {
                    row[first..at].fill(f16::ZERO);
                }
                row[cached + first.saturating_sub(at)..=cached + t].fill(f16::ZERO);
            })?;
        }
        for layer in layers.clone() {
            let gains = &self.gains[layer];
            if layer == layers.start {
                attention.write(DecodeInput::X, |x, stride| rows::step(stream, None, norm(&gains.attn), x, stride))?;
            }
            attention.run(layer, |y, stride| {
                let sum = Some(Sum { alpha, y, stride, norm: gains.post_attn.as_deref().map(norm) });
                feed_forward.write(DecodeInput::X, |x, stride| rows::step(stream, sum, norm(&gains.ffn), x, stride))?;
                self.caches[layer].append(at, [&y[dim..], &y[dim + kv..]], stride, count, head)
            })?;
            feed_forward.run(layer, |y, stride| {
                let sum = Sum { alpha, y, stride, norm: gains.post_ffn.as_deref().map(norm) };
                if layer + 1 == layers.end {
                    rows::add(stream, sum, dim);
                    return Ok(());
                }
                let next = norm(&self.gains[layer + 1].attn);
                attention.write(DecodeInput::X, |x, stride| rows::step(stream, Some(sum), next, x, stride))
            })?;
        }
        Ok(())
    }

    /// Appends the last layer's keys and values of the stream's `count` positions to the caches.
    /// The rotation must be prepared for the whole window.
    fn keys_values(&mut self, count: usize, queries: usize) -> Result<(), Error> {
        let place = self.bound(DecodeKernel::KeysValues, queries, 0)?;
        let Decoder { config, stream, kinds, done, .. } = self;
        let (layer, head, kv, (_, kernel)) =
            (config.layers - 1, config.head_dim, config.kv_dim(), &self.kernels[place]);
        let norm = Norm { gain: &self.gains[layer].attn, eps: config.norm_eps };
        for (i, kind) in kinds.iter().enumerate() {
            kind.rotation(kernel, i, *done, head)?;
        }
        kernel.write(DecodeInput::X, |x, stride| rows::step(stream, None, norm, x, stride))?;
        kernel.run(layer, |y, stride| self.caches[layer].append(self.done, [y, &y[kv..]], stride, count, head))
    }

    /// Computes the cosines and sines of the first `positions` positions if they are missing.
    fn rotate(&mut self, positions: usize) {
        // As many as the caches hold, so that a later token allocates nothing.
        let most = positions.max(self.cached + self.least);
        self.kinds.iter_mut().for_each(|kind| kind.rotate(positions, most, self.config.head_dim));
    }

    /// Computes the logits of the stream's first row.
    fn classify(&mut self) -> Result<(), Error> {
        let Config { dim, vocab, norm_eps, .. } = self.config;
        let (normed, norm) = (&mut self.normed, Norm { gain: &self.norm, eps: norm_eps });
        rows::rms_norm(&self.stream[..dim], norm, |at, values| normed[at..][..values.len()].copy_from_slice(values));
        let matrix = self.classifier.as_ref().unwrap_or(&self.embed);
        let rhs = match matrix {
            HostMatrix::Fp16(values) => Operand::F16(View::row_major(values, vocab, dim)?),
            HostMatrix::Int8(codes, _) => Operand::I8(View::row_major(codes, vocab, dim)?),
        };
        let lhs = Operand::F32(View::row_major(normed, 1, dim)?);
        let out = Output::F32(ViewMut::row_major(&mut self.logits, 1, vocab)?);
        gemm(lhs, rhs.t(), out, Epilogue::default())?;
        if let HostMatrix::Int8(_, units) = matrix {
            for (logit, unit) in self.logits.iter_mut().zip(units) {
                *logit *= unit.to_f32() / ONE;
            }
        }
        if let Some(cap) = self.config.logit_softcap {
            self.logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn buckets_grow_by_halves() {
        let sizes: Vec<usize> = [1, 128, 129, 257, 385, 513, 769, 1025].map(bucket).into();
        assert_eq!(sizes, [128, 128, 256, 384, 512, 768, 1024, 1536]);
    }
}
