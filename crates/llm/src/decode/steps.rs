//! Steps of a decoder: windows of one sequence, and windows of one token of each of several.

use std::ops::Range;

use ferrane_host::gemm::{Epilogue, Operand, Output, View, ViewMut, gemm};
use half::f16;

use super::program::{DecodeInput, DecodeKernel};
use super::quantize::{HostMatrix, ONE};
use super::rows::{self, Norm, Sum};
use super::slots::Slot;
use super::{Decoder, kinds::Kind};
use crate::config::Config;
use crate::forward::Error;
use crate::kernels::MASKED;

/// Positions in the windows of a prefill, wide and narrow.
const WINDOWS: [usize; 2] = [256, 32];
/// Positions in the windows of a few tokens whose logits are all wanted, such as the proposals of a
/// draft.
const FEW: usize = 8;
/// Number of tokens from which a window of 256 is cheaper than windows of 32.
const WIDE: usize = 128;

/// Positions in the next window of a prompt of which `left` tokens are left, on a machine whose
/// windows have at least `least`.
pub(crate) fn prompt_window(left: usize, least: usize) -> usize {
    let queries = match left {
        _ if left <= 2 * least => least,
        WIDE.. => WINDOWS[0],
        _ => WINDOWS[1],
    };
    queries.max(least)
}

/// Rows whose logits are computed at once if all are wanted: more would take memory, fewer would
/// read the classifier's matrix more often.
const AT_ONCE: usize = 32;

/// Takes the index of a token and the logits after it.
pub(super) type Each<'a> = &'a mut dyn FnMut(usize, &[f32]);

/// What the rows of a window are.
#[derive(Clone, Copy)]
enum Rows<'a> {
    /// `count` successive positions of the sequence in `slot`, from `at` on.
    Window { slot: usize, at: usize, count: usize },
    /// Row `i` is the next position of the sequence in slot `i`, of these slots; other rows are not
    /// used.
    Slots(&'a [(usize, usize)]),
}

impl Rows<'_> {
    /// The slot and the position of a row, if it is used.
    fn row(self, slots: &[Slot], t: usize) -> Option<(usize, usize)> {
        match self {
            Rows::Window { slot, at, .. } => Some((slot, at + t)),
            Rows::Slots(of) => of.iter().any(|(slot, _)| *slot == t).then(|| (t, slots[t].done)),
        }
    }

    /// The row of the mask of query `t`: zero where it attends.
    fn mask(self, slots: &[Slot], kind: &Kind, cached: usize, t: usize, row: &mut [f16]) {
        row.fill(f16::from_f32(MASKED));
        // Rows that are not used attend to themselves: a softmax needs a column.
        let Some((_, position)) = self.row(slots, t) else { return row[cached] = f16::ZERO };
        // The first position of the window, whose columns follow those of the cache, and the row.
        let (at, own) = match self {
            Rows::Window { at, .. } => (at, t),
            Rows::Slots(_) => (position, 0),
        };
        let first = (position + 1).saturating_sub(kind.reach);
        if first < at.min(cached) {
            row[first..at].fill(f16::ZERO);
        }
        row[cached + first.saturating_sub(at)..=cached + own].fill(f16::ZERO);
    }

    /// Appends the rows' keys and values, which follow each other in the rows of `y` from column
    /// `from` on.
    fn append(
        self,
        slots: &[Slot],
        layer: usize,
        (y, stride): (&[f16], usize),
        from: usize,
        config: &Config,
    ) -> Result<(), Error> {
        let (head, kv) = (config.head_dim, config.kv_dim());
        match self {
            Rows::Window { slot, at, count } => {
                slots[slot].caches[layer].append(at, [&y[from..], &y[from + kv..]], stride, count, head)
            }
            Rows::Slots(of) => of.iter().try_for_each(|&(slot, _)| {
                let (at, y) = (slots[slot].done, &y[slot * stride + from..]);
                slots[slot].caches[layer].append(at, [y, &y[kv..]], stride, 1, head)
            }),
        }
    }
}

impl Decoder {
    /// Computes the pending tokens of the slots, and the logits after the last of each.
    pub(super) fn catch_up(&mut self, feeds: &[(usize, &[u32])]) -> Result<(), Error> {
        self.logits.resize(feeds.len() * self.config.vocab, 0.0);
        self.hidden.resize(feeds.len() * self.config.dim, 0.0);
        let mut together = std::mem::take(&mut self.together);
        together.clear();
        let single = |slot: &Slot| slot.pending().len() == 1;
        // A machine that wants several queries of a sequence gets them from windows.
        if self.least == 1 && feeds.iter().filter(|(slot, _)| single(&self.slots[*slot])).count() > 1 {
            let rows = feeds.iter().enumerate().map(|(row, (slot, _))| (*slot, row));
            together.extend(rows.filter(|(slot, _)| single(&self.slots[*slot])));
        }
        let longest = feeds.iter().map(|(slot, _)| self.slots[*slot].tokens.len()).max().unwrap_or(0);
        for (row, &(slot, _)) in feeds.iter().enumerate() {
            if !together.iter().any(|(other, _)| *other == slot) {
                self.grow(longest, slot..slot + 1)?;
                self.catch_up_one(slot, None)?;
                self.classify(&[(0, row)])?;
            }
        }
        if let Some(last) = together.iter().map(|(slot, _)| *slot).max() {
            let slots = (last + 1).next_power_of_two().min(self.slots.len());
            self.grow(longest, 0..slots)?;
            self.step(&together, slots)?;
        }
        self.together = together;
        Ok(())
    }

    /// Computes the tokens of a slot that are not in its caches yet, and calls `each` with the
    /// index and the logits of every one. Without `each`, the first row of `stream` then holds the
    /// residual stream of the last one after the last layer.
    pub(super) fn catch_up_one(&mut self, slot: usize, mut each: Option<Each<'_>>) -> Result<(), Error> {
        let begin = self.slots[slot].done;
        loop {
            let (left, done) = (self.slots[slot].pending().len(), self.slots[slot].done);
            let queries = match left {
                0 => return Ok(()),
                ..=FEW if each.is_some() && left > 2 * self.least => FEW.max(self.least),
                _ => prompt_window(left, self.least),
            };
            let count = if queries > self.least { left.min(queries) } else { 1 };
            // A single token at position 0 uses a cache that is masked entirely; that saves a
            // program.
            let cached = if done == 0 && queries > self.least { 0 } else { self.cached };
            self.slots[slot].forget(if cached == 0 { count } else { done })?;
            self.window(slot, [queries, cached], count, each.is_none())?;
            self.slots[slot].done += count;
            if let Some(each) = &mut each {
                self.classify_all(count, |row, logits| each(done - begin + row, logits))?;
            }
        }
    }

    /// Computes the logits of the first `count` rows of the stream, some at a time.
    fn classify_all(&mut self, count: usize, mut each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        let (vocab, dim) = (self.config.vocab, self.config.dim);
        for from in (0..count).step_by(AT_ONCE) {
            let rows: Vec<_> = (from..count.min(from + AT_ONCE)).enumerate().map(|(at, row)| (row, at)).collect();
            self.logits.resize(rows.len() * vocab, 0.0);
            self.hidden.resize(rows.len() * dim, 0.0);
            self.classify(&rows)?;
            self.logits.chunks_exact(vocab).enumerate().for_each(|(at, logits)| each(from + at, logits));
        }
        Ok(())
    }

    /// Runs one window, the next `count` tokens of a slot, and appends their keys and values to the
    /// caches. If only the end of the sequence is wanted, other tokens skip what the last layer
    /// does after its keys and values.
    fn window(
        &mut self,
        slot: usize,
        [queries, cached]: [usize; 2],
        count: usize,
        only_end: bool,
    ) -> Result<(), Error> {
        let (dim, layers, done) = (self.config.dim, self.config.layers, self.slots[slot].done);
        let last = done + count == self.slots[slot].tokens.len();
        let rows = Rows::Window { slot, at: done, count };
        self.embed(queries, rows);
        self.slots[slot].writes(done + count);
        self.rotate(done + queries);
        if queries == self.least || !only_end {
            return self.layers(0..layers, rows, [queries, cached]);
        }
        self.layers(0..layers - 1, rows, [queries, cached])?;
        self.keys_values(rows, queries)?;
        if last {
            // The last token runs through the last layer as a window of its own. Its own row in the
            // cache is masked.
            self.stream.copy_within((count - 1) * dim..count * dim, 0);
            self.stream.truncate(self.least * dim);
            self.stream[dim..].fill(0.0);
            self.rotate(done + count - 1 + self.least);
            let row = Rows::Window { slot, at: done + count - 1, count: 1 };
            self.layers(layers - 1..layers, row, [self.least, self.cached])?;
        }
        Ok(())
    }

    /// Runs one window of the next token of each of these slots, as rows of a window of `slots`,
    /// and computes their rows of the logits.
    fn step(&mut self, of: &[(usize, usize)], slots: usize) -> Result<(), Error> {
        let mut longest = 0;
        for &(slot, _) in of {
            let slot = &mut self.slots[slot];
            slot.forget(slot.done)?;
            slot.writes(slot.done + 1);
            longest = longest.max(slot.done + 1);
        }
        self.embed(slots, Rows::Slots(of));
        self.rotate(longest);
        self.layers(0..self.config.layers, Rows::Slots(of), [slots, self.cached])?;
        for &(slot, _) in of {
            self.slots[slot].done += 1;
        }
        self.classify(of)
    }

    /// Fills the stream, `queries` rows, with the embeddings of tokens; other rows are zero.
    fn embed(&mut self, queries: usize, rows: Rows<'_>) {
        let dim = self.config.dim;
        self.stream.clear();
        self.stream.resize(queries * dim, 0.0);
        let count = if let Rows::Window { count, .. } = rows { count } else { queries };
        for (t, row) in self.stream.chunks_exact_mut(dim).take(count).enumerate() {
            let Some((slot, position)) = rows.row(&self.slots, t) else { continue };
            self.embed.row(self.slots[slot].tokens[position] as usize, row);
            if self.config.embed_scale != 1.0 {
                row.iter_mut().for_each(|value| *value *= self.config.embed_scale);
            }
        }
    }

    /// Runs `layers` on the stream. The rotation must be prepared for the whole window.
    fn layers(&mut self, layers: Range<usize>, rows: Rows<'_>, [queries, cached]: [usize; 2]) -> Result<(), Error> {
        if layers.is_empty() {
            return Ok(());
        }
        let (slot, slots) = match rows {
            Rows::Window { slot, .. } => (slot, 1),
            Rows::Slots(_) => (0, queries),
        };
        let places = [
            self.bound(DecodeKernel::Attention, [queries, slots, cached], slot)?,
            self.bound(DecodeKernel::FeedForward, [queries, 1, 0], 0)?,
        ];
        self.rotation(places[0], rows)?;
        let Decoder { config, stream, kinds, .. } = self;
        let [(_, attention), (_, feed_forward)] = places.map(|place| &self.kernels[place]);
        let (dim, alpha) = (config.dim, config.residual_scale);
        let norm = |gain| Norm { gain, eps: config.norm_eps };
        for (i, kind) in kinds.iter().enumerate() {
            attention.fill(DecodeInput::Mask, i, |t, row| rows.mask(&self.slots, kind, cached, t, row))?;
        }
        for layer in layers.clone() {
            let gains = &self.gains[layer];
            if layer == layers.start {
                attention.write(DecodeInput::X, |x, stride| rows::step(stream, None, norm(&gains.attn), x, stride))?;
            }
            attention.run(slot, layer, |y, stride| {
                let sum = Some(Sum { alpha, y, stride, norm: gains.post_attn.as_deref().map(norm) });
                feed_forward.write(DecodeInput::X, |x, stride| rows::step(stream, sum, norm(&gains.ffn), x, stride))?;
                rows.append(&self.slots, layer, (y, stride), dim, config)
            })?;
            feed_forward.run(0, layer, |y, stride| {
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

    /// Appends the last layer's keys and values of the stream's positions to the caches. The
    /// rotation must be prepared for the whole window.
    fn keys_values(&mut self, rows: Rows<'_>, queries: usize) -> Result<(), Error> {
        let place = self.bound(DecodeKernel::KeysValues, [queries, 1, 0], 0)?;
        self.rotation(place, rows)?;
        let Decoder { config, stream, .. } = self;
        let (layer, (_, kernel)) = (config.layers - 1, &self.kernels[place]);
        let norm = Norm { gain: &self.gains[layer].attn, eps: config.norm_eps };
        kernel.write(DecodeInput::X, |x, stride| rows::step(stream, None, norm, x, stride))?;
        kernel.run(0, layer, |y, stride| rows.append(&self.slots, layer, (y, stride), 0, config))
    }

    /// Computes the cosines and sines of the first `positions` positions if they are missing.
    fn rotate(&mut self, positions: usize) {
        // As many as the caches hold, so that a later token allocates nothing.
        let most = positions.max(self.cached + self.least);
        self.kinds.iter_mut().for_each(|kind| kind.rotate(positions, most, self.config.head_dim));
    }

    /// Writes the rotation of a window's rows to the program with this index.
    fn rotation(&self, place: usize, rows: Rows<'_>) -> Result<(), Error> {
        let head = self.config.head_dim;
        for (i, kind) in self.kinds.iter().enumerate() {
            self.kernels[place].1.fill(DecodeInput::Rope, i, |t, row| {
                let position = rows.row(&self.slots, t).map_or(0, |(_, position)| position);
                row[..head].copy_from_slice(kind.row(position, head));
            })?;
        }
        Ok(())
    }

    /// Computes logits and the normed rows that they come from: each pair is a row of the stream
    /// and its row of the results.
    fn classify(&mut self, of: &[(usize, usize)]) -> Result<(), Error> {
        let Config { dim, vocab, norm_eps, .. } = self.config;
        let norm = Norm { gain: &self.norm, eps: norm_eps };
        let matrix = self.classifier.as_ref().unwrap_or(&self.embed);
        // Rows that follow each other in the logits are one product.
        for run in of.chunk_by(|a, b| a.1 + 1 == b.1) {
            let hidden = &mut self.hidden[run[0].1 * dim..][..run.len() * dim];
            for (normed, (row, _)) in hidden.chunks_exact_mut(dim).zip(run) {
                let stream = &self.stream[row * dim..][..dim];
                rows::rms_norm(stream, norm, |at, values| normed[at..][..values.len()].copy_from_slice(values));
            }
            let rhs = match matrix {
                HostMatrix::Fp16(values) => Operand::F16(View::row_major(values, vocab, dim)?),
                HostMatrix::Int8(codes, _) => Operand::I8(View::row_major(codes, vocab, dim)?),
            };
            let logits = &mut self.logits[run[0].1 * vocab..][..run.len() * vocab];
            let lhs = Operand::F32(View::row_major(hidden, run.len(), dim)?);
            let out = Output::F32(ViewMut::row_major(logits, run.len(), vocab)?);
            gemm(lhs, rhs.t(), out, Epilogue::default())?;
            if let HostMatrix::Int8(_, units) = matrix {
                for logits in logits.chunks_exact_mut(vocab) {
                    logits.iter_mut().zip(units).for_each(|(logit, unit)| *logit *= unit.to_f32() / ONE);
                }
            }
            if let Some(cap) = self.config.logit_softcap {
                logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
            }
        }
        Ok(())
    }
}
