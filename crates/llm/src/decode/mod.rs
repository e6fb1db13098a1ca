//! Generation through a device with a cache of keys and values: prefill in windows, then one token at a time.
//!
//! Two requests a layer and window ([`program`]); the residual stream, RMSNorm, embedding and classifier stay on the CPU in
//! fp32, as in training. A token costs its own products and a pass over the cache, whatever came before; nothing is allocated
//! for it.
//!
//! | what | how |
//! |---|---|
//! | prefill | windows of 256 or 32 positions, the last one filled up with zeros; the first window of a sequence runs without a cache |
//! | decode | windows of one position, or of as many as the machine wants at least (C181) of which one counts |
//! | cache | a surface of keys and one of values for each layer, fp16, in buckets of 128, 256, 384, 512, 768, 1024 … positions; the host appends the rows that the program gives |
//! | weights | surfaces, staged once: one compile for all layers; every program binds the same ones |
//! | past the context | the last half of the context is fed anew from position 0 |
//!
//! The one decision: *weights are inputs*. As constants they would make each layer a compile, and a process may have about
//! 119 of them (C154), where this way a bucket is one compile, and so is each size of window for the feed-forward part.
//! Inputs are also what training stages. The price on an engine is that int8 codes are widened in the program.
//!
//! Keys and values of a window go to the host and back into the cache's surface: programs have fixed shapes, and a state that
//! a program could write at a position of its own is Core ML's alone. Masked positions of the cache are zeros or rows of before,
//! which are finite; their probability is zero.

pub mod program;
pub mod quantize;
mod window;

use ferrane_device::Device;
use ferrane_host::gemm::{Epilogue, Operand, Output, View, ViewMut, gemm};
use ferrane_host::{pool, vectorize};
use half::f16;

use crate::config::Config;
use crate::forward::Error;
use crate::kernels::MASKED;
use crate::weights::{self, Weights};
use program::{Part, Shape};
use quantize::{Matrix, ONE, WeightType};
use window::{Cache, Stage, Staged};

/// Positions in the windows of a prefill.
const WINDOWS: [usize; 2] = [256, 32];
/// From so many tokens on a window of 256 is cheaper than windows of 32.
const WIDE: usize = 128;
/// Positions in the smallest cache.
const SMALLEST: usize = 128;

/// How a decoder is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Element type of the matrices.
    pub weights: WeightType,
    /// Positions in a sequence at most; `None`: as many as the model was made for.
    pub context: Option<usize>,
}

/// The smallest bucket that holds `positions`: powers of two, and one and a half of them.
fn bucket(positions: usize) -> usize {
    let mut size = SMALLEST;
    while size < positions {
        size = if size.is_power_of_two() && size > SMALLEST { size / 2 * 3 } else { (size + 1).next_power_of_two() };
    }
    size
}

/// A model on a device and one sequence under way.
pub struct Decoder {
    device: Device,
    config: Config,
    weights: WeightType,
    context: usize,
    /// Positions in the window of a single token.
    least: usize,
    staged: Staged,
    attention: Vec<(Shape, Stage)>,
    feed_forward: Vec<(Shape, Stage)>,
    caches: Vec<Cache>,
    /// Positions in each cache.
    cached: usize,
    embed: Matrix,
    classifier: Option<Matrix>,
    norm: Vec<f32>,
    gains: Vec<(Vec<f32>, Vec<f32>)>,
    /// Angle per position of each pair.
    frequencies: Vec<f64>,
    /// The sequence, of which the first `done` tokens are in the caches.
    tokens: Vec<u32>,
    done: usize,
    stream: Vec<f32>,
    normed: Vec<f32>,
    logits: Vec<f32>,
}

impl Decoder {
    /// Compiles the programs of a single token, allocates surfaces and stages the weights. Programs of longer windows and
    /// larger caches are compiled when they are first needed.
    ///
    /// # Errors
    /// [`Error::Weights`] if configuration and weights do not fit, [`Error::Quantize`] for weights that int8 cannot express,
    /// [`Error::Length`] for a context without positions; or the device refused.
    pub fn new(device: &Device, config: &Config, weights: &Weights, options: Options) -> Result<Decoder, Error> {
        config.validate().map_err(weights::Error::from)?;
        weights.check(config)?;
        let context = options.context.unwrap_or(config.max_seq).min(config.max_seq);
        if context == 0 {
            return Err(Error::Length { found: 0, seq: config.max_seq });
        }
        let table = |name, values: &[f32]| {
            let matrix = Matrix::new(values, config.dim, options.weights);
            matrix.ok_or(Error::Quantize { layer: 0, tensor: name, row: 0 })
        };
        let half = config.head_dim / 2;
        let frequency = |i: usize| f64::from(config.rope.base).powf(-2.0 * i as f64 / config.head_dim as f64);
        let mut decoder = Decoder {
            device: device.clone(),
            config: config.clone(),
            weights: options.weights,
            context,
            least: device.profile().min_queries.value.max(1),
            staged: Staged::default(),
            attention: Vec::new(),
            feed_forward: Vec::new(),
            caches: Vec::new(),
            cached: 0,
            embed: table("embed", &weights.embed)?,
            classifier: weights.classifier.as_deref().map(|values| table("classifier", values)).transpose()?,
            norm: weights.norm.clone(),
            gains: weights.layers.iter().map(|l| (l.attn_norm.clone(), l.ffn_norm.clone())).collect(),
            frequencies: (0..half).map(frequency).collect(),
            tokens: Vec::new(),
            done: 0,
            stream: Vec::new(),
            normed: Vec::new(),
            logits: vec![0.0; config.vocab],
        };
        decoder.grow(1)?;
        decoder.stage(decoder.least, decoder.cached)?;
        decoder.staged.stage(config, weights, options.weights)?;
        Ok(decoder)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The sequence so far.
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

    /// Continues the sequence by tokens and returns the logits `[vocab]` of the one after them. A sequence that would leave
    /// the context goes on with the last half of it, from position 0.
    ///
    /// # Errors
    /// [`Error::Length`] without tokens, [`Error::Token`], or the device failed; the sequence is then what it was.
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
        // On a thread of the pool: each product then waits for one thread to wake, not for two.
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

    /// Runs what is not in the caches yet.
    fn catch_up(&mut self) -> Result<(), Error> {
        if self.done == 0 {
            let at = |source| Error::Device { kernel: "cache", source };
            self.caches.iter().try_for_each(Cache::clear).map_err(at)?;
        }
        self.grow(self.tokens.len())?;
        while self.done < self.tokens.len() {
            let left = self.tokens.len() - self.done;
            let queries = match left {
                _ if left <= 2 * self.least => self.least,
                WIDE.. => WINDOWS[0],
                _ => WINDOWS[1],
            };
            let queries = queries.max(self.least);
            // A single token finds its cache masked; that saves programs.
            let cached = if self.done == 0 && queries > self.least { 0 } else { self.cached };
            let count = if queries > self.least { left.min(queries) } else { 1 };
            let (attention, feed_forward) = self.stage(queries, cached)?;
            self.window(attention, feed_forward, count)?;
            self.done += count;
        }
        self.classify()
    }

    /// Makes room in the caches for so many positions.
    fn grow(&mut self, positions: usize) -> Result<(), Error> {
        if positions <= self.cached && !self.caches.is_empty() {
            return Ok(());
        }
        let cached = bucket(positions);
        let found = self.program(Part::Attention, self.least, cached)?;
        let layouts = self.attention[found].1.cache_layouts(&self.device)?;
        let at = |source| Error::Device { kernel: "cache", source };
        let mut caches = Vec::new();
        for layer in 0..self.config.layers {
            let cache = Cache::new(&self.device, &layouts).map_err(at)?;
            if let Some(before) = self.caches.get(layer) {
                cache.take(before, self.done).map_err(at)?;
            }
            caches.push(cache);
        }
        self.attention.iter_mut().filter(|(shape, _)| shape.cached > 0).for_each(|(_, stage)| stage.unbind());
        (self.caches, self.cached) = (caches, cached);
        Ok(())
    }

    /// The place of a loaded program, which is compiled if it is not there yet.
    fn program(&mut self, part: Part, queries: usize, cached: usize) -> Result<usize, Error> {
        let shape = Shape { config: self.config.clone(), queries, cached, weights: self.weights };
        let list = match part {
            Part::Attention => &mut self.attention,
            Part::FeedForward => &mut self.feed_forward,
        };
        let stage = Stage::new(&self.device, &shape, part)?;
        list.push((shape, stage));
        Ok(list.len() - 1)
    }

    /// The places of both programs of a window, bound.
    fn stage(&mut self, queries: usize, cached: usize) -> Result<(usize, usize), Error> {
        let attention = self.bound(Part::Attention, queries, cached)?;
        Ok((attention, self.bound(Part::FeedForward, queries, 0)?))
    }

    fn bound(&mut self, part: Part, queries: usize, cached: usize) -> Result<usize, Error> {
        let at = self.find(part, queries, cached);
        let at = at.map_or_else(|| self.program(part, queries, cached), Ok)?;
        let list = match part {
            Part::Attention => &mut self.attention,
            Part::FeedForward => &mut self.feed_forward,
        };
        let (shape, stage) = &mut list[at];
        if !stage.is_bound() {
            stage.bind(&self.device, shape, &mut self.staged, &self.caches)?;
        }
        Ok(at)
    }

    fn find(&self, part: Part, queries: usize, cached: usize) -> Option<usize> {
        let list = match part {
            Part::Attention => &self.attention,
            Part::FeedForward => &self.feed_forward,
        };
        list.iter().position(|(shape, _)| (shape.queries, shape.cached) == (queries, cached))
    }

    /// One window: the next `count` tokens. Their keys and values go into the caches; the stream behind the last layer stays
    /// in `stream`, its last row first.
    fn window(&mut self, attention: usize, feed_forward: usize, count: usize) -> Result<(), Error> {
        let Decoder { config, attention: stages, feed_forward: ffn_stages, stream, normed, .. } = self;
        let ((shape, stage), (_, ffn)) = (&stages[attention], &ffn_stages[feed_forward]);
        let (dim, head, kv, queries) = (config.dim, config.head_dim, config.kv_dim(), shape.queries);
        let (eps, alpha, done) = (config.norm_eps, config.residual_scale, self.done);
        for buffer in [&mut *stream, &mut *normed] {
            buffer.clear();
            buffer.resize(queries * dim, 0.0);
        }
        for (row, &token) in stream.chunks_exact_mut(dim).zip(&self.tokens[done..done + count]) {
            self.embed.row(token as usize, row);
        }
        let frequencies = &self.frequencies;
        stage.fill("rope", |t, row| {
            for (i, frequency) in frequencies.iter().enumerate() {
                let angle = (done + t) as f64 * frequency;
                let (cos, sin) = (f16::from_f64(angle.cos()), f16::from_f64(angle.sin()));
                (row[i], row[i + head / 2]) = (cos, cos);
                (row[i + head], row[i + head + head / 2]) = (sin, sin);
            }
        })?;
        let reach = config.sliding_window.unwrap_or(usize::MAX);
        stage.fill("mask", |t, row| {
            row.fill(f16::from_f32(MASKED));
            let first = (done + t + 1).saturating_sub(reach);
            if first < done.min(shape.cached) {
                row[first..done].fill(f16::ZERO);
            }
            row[shape.cached + first.saturating_sub(done)..=shape.cached + t].fill(f16::ZERO);
        })?;
        for (layer, (attn_gain, ffn_gain)) in self.gains.iter().enumerate() {
            norm_rows(stream, attn_gain, eps, normed);
            stage.write("x", normed, dim)?;
            stage.run(layer, |words, stride| {
                add_rows(stream, alpha, words, stride, dim);
                let rows = [&words[dim..], &words[dim + kv..]];
                self.caches[layer].append(done, rows, stride, count, head)
            })?;
            norm_rows(stream, ffn_gain, eps, normed);
            ffn.write("x", normed, dim)?;
            ffn.run(layer, |words, stride| {
                add_rows(stream, alpha, words, stride, dim);
                Ok(())
            })?;
        }
        stream.copy_within((count - 1) * dim..count * dim, 0);
        Ok(())
    }

    /// The logits of the stream's first row.
    fn classify(&mut self) -> Result<(), Error> {
        let Config { dim, vocab, norm_eps, .. } = self.config;
        let normed = &mut self.normed[..dim];
        norm_rows(&self.stream[..dim], &self.norm, norm_eps, normed);
        let matrix = self.classifier.as_ref().unwrap_or(&self.embed);
        let rhs = match matrix {
            Matrix::Fp16(values) => Operand::F16(View::row_major(values, vocab, dim)?),
            Matrix::Int8(codes, _) => Operand::I8(View::row_major(codes, vocab, dim)?),
        };
        let lhs = Operand::F32(View::row_major(normed, 1, dim)?);
        let out = Output::F32(ViewMut::row_major(&mut self.logits, 1, vocab)?);
        gemm(lhs, rhs.t(), out, Epilogue::default())?;
        if let Matrix::Int8(_, units) = matrix {
            for (logit, unit) in self.logits.iter_mut().zip(units) {
                *logit *= unit.to_f32() / ONE;
            }
        }
        Ok(())
    }
}

/// Rows that one task of an element-wise loop works on.
const ROWS: usize = 16;
/// Running sums of a sum along a row.
const LANES: usize = 16;

/// RMSNorm of each row `[gain.len()]`.
fn norm_rows(x: &[f32], gain: &[f32], eps: f32, y: &mut [f32]) {
    let dim = gain.len();
    pool::for_each_chunk_mut(y, ROWS * dim, |task, y| {
        let x = &x[task * ROWS * dim..][..y.len()];
        for (x, y) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)) {
            vectorize!({
                let mut lanes = [0.0f32; LANES];
                let whole = dim / LANES * LANES;
                for start in (0..whole).step_by(LANES) {
                    for lane in 0..LANES {
                        lanes[lane] += x[start + lane] * x[start + lane];
                    }
                }
                let mut sum = 0.0;
                for lane in lanes {
                    sum += lane;
                }
                for i in whole..dim {
                    sum += x[i] * x[i];
                }
                let r = 1.0 / (sum / dim as f32 + eps).sqrt();
                for i in 0..dim {
                    y[i] = x[i] * r * gain[i];
                }
            });
        }
    });
}

/// `x += alpha · y` for rows `[dim]` of `x`; rows of `y` are `stride` words apart.
fn add_rows(x: &mut [f32], alpha: f32, y: &[f16], stride: usize, dim: usize) {
    pool::for_each_chunk_mut(x, ROWS * dim, |task, x| {
        let mut wide = [0.0f32; 256];
        for (t, x) in x.chunks_exact_mut(dim).enumerate() {
            let row = &y[(task * ROWS + t) * stride..][..dim];
            for (x, y) in x.chunks_mut(wide.len()).zip(row.chunks(wide.len())) {
                let wide = &mut wide[..y.len()];
                ferrane_host::convert::f16_to_f32(y, wide);
                for (x, y) in x.iter_mut().zip(wide) {
                    *x += alpha * *y;
                }
            }
        }
    });
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
