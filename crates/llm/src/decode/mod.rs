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
//! | several sequences | each in a slot with its own caches; a window of one position of each, unless the machine wants more queries of a sequence |
//! | cache | a surface of keys and one of values for each layer, fp16, in buckets of 128, 256, 384, 512, 768, 1024 … positions; the host appends the rows that the program returns |
//! | weights | surfaces, staged once: one compile for all layers; every program binds the same ones |
//! | adapters | inputs, too, if [`Options::adapter_rank`] leaves room for one: switching needs no compile |
//! | past the context | what [`ContextPolicy`] says: the last half is fed again from position 0, the oldest tokens after the first four are dropped, or an error |
//!
//! *Weights are inputs.* If they were constants, each layer would be a compile, and a process has a
//! budget of about 119 compiles (C154). With inputs, a bucket is one compile and each window size
//! is two more: the feed-forward part, and the last layer's keys and values. Training stages its
//! weights as inputs too. The price on an engine is that the program widens int8 codes. int4
//! weights are constants all the same, and a program for each layer is their price ([`constants`]).
//!
//! The host copies a window's keys and values from the output into the cache's surface: programs
//! have fixed shapes, and only Core ML has states that a program can write at a variable position.
//! Masked positions of the cache hold zeros or rows of an earlier sequence. Both are finite, and
//! their probability is zero.

mod adapter;
pub mod constants;
mod context;
mod kinds;
pub mod program;
pub mod quantize;
mod rows;
mod slots;
pub(crate) mod steps;
mod window;

pub use context::ContextPolicy;

use ferrane_device::{Device, Layout};
use ferrane_host::pool;

use crate::config::Config;
use crate::forward::Error;
use crate::layout::LayoutError;
use crate::lora::Adapter;
use crate::weights::{self, WeightSource};
use constants::LayerMatrices;
use kinds::{Gains, Kind};
use program::{DecodeKernel, DecodeShape, MAX_SLOTS};
use quantize::{HostMatrix, WeightType};
use slots::Slot;
use window::{Staged, WindowKernel};

/// Positions in the smallest cache.
const SMALLEST: usize = 128;

/// Options of [`Decoder::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Element type of the matrices.
    pub weights: WeightType,
    /// Largest number of positions in a sequence; `None`: the model's `max_seq`. Larger values are
    /// reduced to it.
    pub context: Option<usize>,
    /// Number of sequences, each with its own caches, which are allocated when it is first used: 1
    /// to [`MAX_SLOTS`]; other values are changed to the nearest of these.
    pub slots: usize,
    /// Largest rank of the adapters that [`Decoder::set_adapter`] takes. 0: the programs have no
    /// inputs for an adapter, which would cost time even when none is set.
    pub adapter_rank: usize,
    /// What happens to a sequence that would exceed the context.
    pub policy: ContextPolicy,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            weights: WeightType::default(),
            context: None,
            slots: 1,
            adapter_rank: 0,
            policy: ContextPolicy::default(),
        }
    }
}

/// The smallest bucket of at least `positions` positions. Buckets are powers of two, and 1.5 times
/// these.
pub(crate) fn bucket(positions: usize) -> usize {
    let mut size = SMALLEST;
    while size < positions {
        size = if size.is_power_of_two() && size > SMALLEST { size / 2 * 3 } else { (size + 1).next_power_of_two() };
    }
    size
}

/// A model on a device, with one or several sequences.
///
/// [`Decoder::feed`] continues the first sequence. A server has a slot for each conversation:
/// [`Decoder::feed_all`] continues several, and those of one token each share a pass over the
/// weights.
pub struct Decoder {
    device: Device,
    config: Config,
    weights: WeightType,
    /// The matrices of the layers, if they are constants.
    constants: Vec<LayerMatrices>,
    adapter_rank: usize,
    context: usize,
    policy: ContextPolicy,
    /// Positions in the window of a single token.
    least: usize,
    staged: Staged,
    kernels: Vec<(DecodeShape, WindowKernel)>,
    slots: Vec<Slot>,
    /// Positions in each cache.
    cached: usize,
    /// Layouts of caches of that size.
    layouts: Option<[Layout; 2]>,
    embed: HostMatrix,
    classifier: Option<HostMatrix>,
    norm: Vec<f32>,
    gains: Vec<Gains>,
    /// What depends on the kind of a layer's attention, in the order of
    /// [`Config::attention_kinds`].
    kinds: Vec<Kind>,
    stream: Vec<f32>,
    /// Normed rows of the stream, of the positions of `logits`.
    hidden: Vec<f32>,
    logits: Vec<f32>,
    /// What a failed call must restore of each sequence: its length, or all of it. Kept, like
    /// `together`, so that a token allocates nothing.
    undo: Vec<(usize, Option<Vec<u32>>)>,
    /// Slots that share a window, and their rows of the logits.
    together: Vec<(usize, usize)>,
}

impl Decoder {
    /// Compiles the programs of a single token, allocates surfaces and stages the weights, which
    /// are read row by row and never held in fp32. Programs of longer windows, larger caches and
    /// several sequences are compiled when they are first needed.
    ///
    /// # Errors
    /// [`Error::Weights`] if configuration and weights do not fit, [`Error::Quantize`] for weights
    /// that int8 or int4 cannot express, [`Error::Constants`] if the device compiles too few
    /// programs, [`Error::Length`] for a context without positions, [`Error::Layout`] for a mixture
    /// of experts; or the device refused.
    pub fn new(
        device: &Device,
        config: &Config,
        weights: &dyn WeightSource,
        options: Options,
    ) -> Result<Decoder, Error> {
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
        let table = |slot| HostMatrix::new(weights, slot, [config.vocab, config.dim], options.weights);
        let mut norm = vec![0.0; config.dim];
        weights.rows(weights::Slot::Norm, 0..1, &mut norm)?;
        let gains = (0..config.layers).map(|layer| Gains::read(weights, config, layer));
        let mut decoder = Decoder {
            device: device.clone(),
            config: config.clone(),
            weights: options.weights,
            constants: Vec::new(),
            adapter_rank: options.adapter_rank,
            context,
            policy: options.policy,
            least: device.profile().min_queries.value.max(1),
            staged: Staged::default(),
            kernels: Vec::new(),
            slots: (0..options.slots.clamp(1, MAX_SLOTS)).map(|_| Slot::default()).collect(),
            cached: 0,
            layouts: None,
            embed: table(weights::Slot::Embed)?,
            classifier: (!config.tied).then(|| table(weights::Slot::Classifier)).transpose()?,
            norm,
            gains: gains.collect::<Result<_, _>>()?,
            kinds: Kind::all(config, context),
            stream: Vec::new(),
            hidden: Vec::new(),
            logits: Vec::new(),
            undo: Vec::new(),
            together: Vec::new(),
        };
        if options.weights == WeightType::Int4 {
            decoder.constants = LayerMatrices::all(config, weights)?;
        }
        decoder.grow(1, 0..1)?;
        for part in [DecodeKernel::Attention, DecodeKernel::FeedForward] {
            decoder.bound(part, [decoder.least, 1, decoder.cached], 0)?;
        }
        decoder.staged.stage(config, weights, options.weights)?;
        decoder.staged.adapt(config, None, options.adapter_rank)?;
        Ok(decoder)
    }

    /// Sizes and options of the model.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The tokens of the first sequence so far; of one that exceeded the context, those that it
    /// kept.
    pub fn tokens(&self) -> &[u32] {
        self.slot_tokens(0)
    }

    /// Number of sequences that the decoder can hold, at least 1.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Largest number of tokens in a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The tokens of a slot's sequence so far; of one that exceeded the context, those that it
    /// kept. None if there is no such slot.
    pub fn slot_tokens(&self, slot: usize) -> &[u32] {
        self.slots.get(slot).map_or(&[], |slot| &slot.tokens)
    }

    /// Number of leading tokens of the first sequence whose keys and values depend on its kept
    /// tokens only. Those after them were computed with tokens that [`ContextPolicy::Sinks`]
    /// dropped.
    pub fn reusable(&self) -> usize {
        self.slots.first().map_or(0, |slot| slot.own.min(slot.tokens.len()))
    }

    /// Bytes of weights that a token reads: the layers' matrices and the classifier.
    pub fn bytes_per_token(&self) -> usize {
        let c = &self.config;
        let bytes = |rows, cols| self.weights.bytes(rows, cols);
        let all = c.q_dim() + 2 * c.kv_dim();
        let layer = bytes(all, c.dim) + bytes(c.dim, c.q_dim()) + bytes(2 * c.hidden, c.dim) + bytes(c.dim, c.hidden);
        c.layers * layer + self.weights.of_tables().bytes(c.vocab, c.dim)
    }

    /// Makes the model the one with this adapter, or without one. All sequences begin again, since
    /// their keys and values belong to the model before. The adapter is an input of the programs:
    /// nothing is compiled, and the cost is that of copying its matrices.
    ///
    /// # Errors
    /// [`Error::Lora`] for an adapter of another model; [`Error::AdapterRank`] if its rank is above
    /// [`Options::adapter_rank`]; [`Error::Quantize`] for values beyond fp16; or the device failed.
    /// After the last two the model has no adapter.
    pub fn set_adapter(&mut self, adapter: Option<&Adapter>) -> Result<(), Error> {
        if let Some(adapter) = adapter {
            adapter.check(&self.config)?;
            if adapter.rank() > self.adapter_rank {
                return Err(Error::AdapterRank { found: adapter.rank(), most: self.adapter_rank });
            }
        }
        (0..self.slots.len()).for_each(|slot| self.rewind(slot, 0));
        let result = self.staged.adapt(&self.config, adapter, self.adapter_rank);
        if result.is_err() {
            self.staged.adapt(&self.config, None, self.adapter_rank)?;
        }
        result
    }

    /// Begins a new first sequence.
    pub fn clear(&mut self) {
        self.rewind(0, 0);
    }

    /// Shortens a slot's sequence to its first `count` tokens, whose keys and values stay cached. A
    /// `count` above its length changes nothing.
    pub fn rewind(&mut self, slot: usize, count: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.rewind(count);
        }
    }

    /// Replaces a slot's sequence by the first `count` tokens of another one. Their keys and values
    /// are copied and not computed again.
    ///
    /// # Errors
    /// [`Error::Slot`]; or the device has no memory for caches.
    pub fn copy(&mut self, from: usize, to: usize, count: usize) -> Result<(), Error> {
        self.check_slot(from)?;
        self.check_slot(to)?;
        if from == to {
            self.rewind(to, count);
            return Ok(());
        }
        self.grow(self.cached, to..to + 1)?;
        let mut taken = std::mem::take(&mut self.slots[to]);
        let result = taken.take(&self.slots[from], count);
        if result.is_err() {
            taken.rewind(0);
        }
        self.slots[to] = taken;
        result
    }

    /// Continues the first sequence by tokens and returns the logits `[vocab]` of the one after
    /// them. [`Options::policy`] says what happens to a sequence that would exceed the context.
    ///
    /// # Errors
    /// [`Error::Length`] without tokens, [`Error::Token`], [`Error::Context`], or the device
    /// failed; the sequence is unchanged then.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        self.feed_all(&[(0, tokens)])
    }

    /// Continues the sequences of different slots, each by its tokens, and returns the logits
    /// `[feeds, vocab]` of the tokens after them. Sequences that are continued by one token are
    /// computed together, which takes little more time than one of them alone.
    ///
    /// # Errors
    /// As [`Decoder::feed`]; [`Error::Slot`] for a slot that does not exist or is given twice. All
    /// sequences are unchanged then.
    pub fn feed_all(&mut self, feeds: &[(usize, &[u32])]) -> Result<&[f32], Error> {
        self.check(feeds)?;
        let mut undo = std::mem::take(&mut self.undo);
        undo.extend(feeds.iter().map(|&(slot, tokens)| self.extend(slot, tokens)));
        // Runs on a thread of the pool, so that a parallel product wakes one thread less.
        let result = pool::scope(|_| self.make_room(feeds).and_then(|()| self.catch_up(feeds)));
        for (&(slot, _), before) in feeds.iter().zip(undo.drain(..)).filter(|_| result.is_err()) {
            let slot = &mut self.slots[slot];
            match before {
                (_, Some(kept)) => (slot.tokens, slot.done, slot.own) = (kept, 0, usize::MAX),
                (before, None) => slot.rewind(before),
            }
        }
        self.undo = undo;
        result?;
        Ok(&self.logits)
    }

    /// Continues a slot's sequence by tokens, and calls `each` with the index and the logits
    /// `[vocab]` of every one: what a text's likelihood needs.
    ///
    /// # Errors
    /// As [`Decoder::feed_all`]; [`Error::Length`] if the sequence would exceed the context. The
    /// sequence is unchanged then, though `each` may have been called.
    pub fn feed_each(&mut self, slot: usize, tokens: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        self.check(&[(slot, tokens)])?;
        let before = self.slots[slot].tokens.len();
        if before + tokens.len() > self.context {
            return Err(Error::Length { found: before + tokens.len(), seq: self.context });
        }
        self.extend(slot, tokens);
        let result = self.grow(before + tokens.len(), slot..slot + 1);
        // Tokens that an earlier call could not compute have no logits here.
        let pending = self.slots[slot].pending().len() - tokens.len();
        let mut wanted = |index: usize, logits: &[f32]| {
            if let Some(index) = index.checked_sub(pending) {
                each(index, logits);
            }
        };
        let result = result.and_then(|()| self.catch_up_one(slot, Some(&mut wanted)));
        if result.is_err() {
            self.slots[slot].rewind(before);
        }
        result
    }

    /// The residual stream after the last norm, `[feeds, dim]`, of the positions whose logits
    /// [`Decoder::feed_all`] returned last.
    pub fn hidden(&self) -> &[f32] {
        &self.hidden
    }

    fn check(&self, feeds: &[(usize, &[u32])]) -> Result<(), Error> {
        for (i, &(slot, tokens)) in feeds.iter().enumerate() {
            self.check_slot(slot)?;
            if feeds[..i].iter().any(|(other, _)| *other == slot) {
                return Err(Error::Slot { slot, slots: self.slots.len() });
            }
            if tokens.is_empty() {
                return Err(Error::Length { found: 0, seq: self.context });
            }
            let (vocab, before) = (self.config.vocab, self.slots[slot].tokens.len());
            if let Some((i, &token)) = tokens.iter().enumerate().find(|(_, t)| **t as usize >= vocab) {
                return Err(Error::Token { token, position: before + i, vocab });
            }
            let found = before + tokens.len();
            if self.policy == ContextPolicy::Error && found > self.context {
                return Err(Error::Context { found, context: self.context });
            }
        }
        Ok(())
    }

    fn check_slot(&self, slot: usize) -> Result<(), Error> {
        if slot < self.slots.len() { Ok(()) } else { Err(Error::Slot { slot, slots: self.slots.len() }) }
    }

    /// Grows the caches to hold at least `positions` positions, and allocates those of the slots
    /// `wanted`.
    fn grow(&mut self, positions: usize, wanted: std::ops::Range<usize>) -> Result<(), Error> {
        let layers = self.config.layers;
        let fits = positions <= self.cached;
        if fits && self.slots[wanted.clone()].iter().all(|slot| !slot.caches.is_empty()) {
            return Ok(());
        }
        let layouts = match &self.layouts {
            Some(layouts) if fits => layouts.clone(),
            _ => {
                let cached = bucket(positions);
                let found = self.program(DecodeKernel::Attention, [self.least, 1, cached])?;
                let layouts = self.kernels[found].1.cache_layouts(&self.device)?;
                for slot in self.slots.iter_mut().filter(|slot| !slot.caches.is_empty()) {
                    slot.grow(&self.device, &layouts, layers)?;
                }
                self.kernels.iter_mut().filter(|(shape, _)| shape.cached > 0).for_each(|(_, kernel)| kernel.unbind());
                (self.layouts, self.cached) = (Some(layouts.clone()), cached);
                layouts
            }
        };
        for slot in &mut self.slots[wanted] {
            if slot.caches.is_empty() {
                slot.grow(&self.device, &layouts, layers)?;
            }
        }
        Ok(())
    }

    /// Compiles and loads a program for `[queries, slots, cached]`; returns its index.
    fn program(&mut self, part: DecodeKernel, [queries, slots, cached]: [usize; 3]) -> Result<usize, Error> {
        let (config, weights, adapter_rank) = (self.config.clone(), self.weights, self.adapter_rank);
        let shape = DecodeShape { config, queries, slots, cached, weights, adapter_rank };
        let kernel = WindowKernel::new(&self.device, &shape, part, &self.constants)?;
        self.kernels.push((shape, kernel));
        Ok(self.kernels.len() - 1)
    }

    /// The index of a program, compiled if necessary, with the surfaces of every layer bound and
    /// the caches of the slots from `slot` on.
    fn bound(&mut self, part: DecodeKernel, sizes: [usize; 3], slot: usize) -> Result<usize, Error> {
        let same = |(s, kernel): &(DecodeShape, WindowKernel)| {
            (kernel.part(), [s.queries, s.slots, s.cached]) == (part, sizes)
        };
        let at = self.kernels.iter().position(same);
        let at = at.map_or_else(|| self.program(part, sizes), Ok)?;
        let (shape, kernel) = &mut self.kernels[at];
        if !kernel.is_bound(slot) {
            kernel.bind(&self.device, shape, &mut self.staged, &self.slots, slot)?;
        }
        Ok(at)
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
