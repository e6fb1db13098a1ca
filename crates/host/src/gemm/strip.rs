//! Products of rows that lie in memory one after the other, at a fixed pitch, with packed columns:
//! what convolutions over channels-last images consist of.
//!
//! The left factor is a block of [`PITCH`] elements for each row (a position of the image), so a
//! kernel reads all rows of a tile at constant distances from one address. The right factor is the
//! packed weights: panels of whole vectors, one for each step along K. In a tile, a value of the
//! left factor is broadcast and multiplies vectors of output channels.
//!
//! Invariant: a sum is one chain of multiply-adds along K. Blocks along K continue the chain from
//! the stored sums, so neither blocks nor tiles nor threads change a bit.

use std::mem::MaybeUninit;

use half::f16;

use super::finish::Store;
use super::pack::LINE;
use super::vector::Simd;

/// Steps along K of a block.
pub(crate) const BLOCK: usize = 512;

/// Elements from one row of a block to the next: no multiple of a power of two that would map rows
/// to the same cache sets, and a vector more than the block, which copies may overwrite.
pub(crate) const PITCH: usize = BLOCK + 16;

/// Rows that are finished together: enough to hide the latency of a step, few enough for two sets
/// of registers.
pub(super) const TOGETHER: usize = 4;

/// The part of K that a tile multiplies: `count` runs of `length` steps, at a distance of `stride`
/// in the rows of the left factor and adjacent in the panels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    pub count: usize,
    pub length: usize,
    pub stride: usize,
}

/// One tile: some rows times one panel.
#[derive(Clone, Copy)]
pub(crate) struct Strip<'a> {
    pub a: *const f32,
    pub runs: Runs,
    pub b: *const f32,
    /// Sums of the earlier blocks, a row of the panel's width after the other.
    pub partial: *mut f32,
    pub first: bool,
    pub last: bool,
    pub out: Results<'a>,
    /// Columns that are stored; the panel may have more.
    pub cols: usize,
    /// What is prefetched during the product.
    pub ahead: Ahead,
}

/// Values that are read soon, prefetched a part with each of some tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    at: *const u8,
    lines: usize,
    /// Lines of a part.
    share: usize,
    /// Lines that a tile prefetches every [`PREFETCH_INTERVAL`] steps: a burst would wait for the
    /// buffers of outstanding loads.
    burst: usize,
}

impl Ahead {
    /// The values, spread over so many tiles of so many steps along K.
    pub fn spread(values: &[f32], tiles: usize, steps: usize) -> Ahead {
        let lines = size_of_val(values).div_ceil(LINE);
        let share = lines.div_ceil(tiles.max(1));
        let burst = share.div_ceil((steps / PREFETCH_INTERVAL).max(1));
        Ahead { at: values.as_ptr().cast(), lines, share, burst }
    }

    /// What tile `tile` prefetches.
    pub fn part(self, tile: usize) -> Ahead {
        let from = (tile * self.share).min(self.lines);
        Ahead { at: self.at.wrapping_add(from * LINE), lines: self.share.min(self.lines - from), ..self }
    }
}

/// Steps along K between two prefetches.
const PREFETCH_INTERVAL: usize = 8;

/// One operation on a result, in the order in which they are applied: activations that cost less
/// than a pass over the results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointStep {
    /// At least the first number and at most the second; NaN stays.
    Clamp(f32, f32),
    /// 0 unless it is at least so large.
    From(f32),
    /// Multiplied, then added, with two roundings.
    Affine(f32, f32),
    /// [`sigmoid`](crate::simd::sigmoid).
    Sigmoid,
    /// Multiplied by its sigmoid.
    Silu,
    /// [`gelu`](crate::simd::gelu).
    Gelu,
    /// Rounded to the nearest fp16 value.
    Round,
    /// Kept for [`PointStep::TimesHeld`].
    Hold,
    /// Multiplied by the value that was kept.
    TimesHeld,
    /// Multiplied by a gate that it sets itself, as in hard-swish.
    Gate(Gate),
    /// The element of another image at the same position and channel is added.
    PlusAddend,
}

/// The factor of [`PointStep::Gate`]: the value times `factor` plus `term`, with two roundings, at
/// least `low` and at most `high`, and then rounded to the nearest fp16 value if `round`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// What the value is multiplied by.
    pub factor: f32,
    /// What is added then.
    pub term: f32,
    /// Smaller gates become so large.
    pub low: f32,
    /// Larger gates become so small.
    pub high: f32,
    /// Rounds the gate to the nearest fp16 value.
    pub round: bool,
}

impl Gate {
    /// The product of each value with its gate.
    ///
    /// # Safety
    /// The processor supports the instruction set.
    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, values: &mut [S::V]) {
        // SAFETY: the caller guarantees it.
        unsafe {
            let (factor, term) = (S::splat(self.factor), S::splat(self.term));
            let (low, high) = (S::splat(self.low), S::splat(self.high));
            // A loop for each case: the choice would be made for every value.
            if self.round {
                for v in values {
                    let gate = S::at_most(high, S::at_least(low, S::add(S::mul(factor, *v), term)));
                    *v = S::mul(S::round(gate), *v);
                }
            } else {
                for v in values {
                    let gate = S::at_most(high, S::at_least(low, S::add(S::mul(factor, *v), term)));
                    *v = S::mul(gate, *v);
                }
            }
        }
    }
}

/// The address of an element of an image that is read, by its type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    F32(*const f32),
    F16(*const f16),
}

impl Load {
    pub const NONE: (Load, usize) = (Load::F32(std::ptr::null()), 0);

    fn after(self, elements: usize) -> Load {
        match self {
            Load::F32(at) => Load::F32(at.wrapping_add(elements)),
            Load::F16(at) => Load::F16(at.wrapping_add(elements)),
        }
    }

    /// # Safety
    /// The processor supports the instruction set, and `n` elements are readable.
    #[inline(always)]
    unsafe fn load<S: Simd>(self, n: usize) -> S::V {
        // SAFETY: the caller guarantees it.
        unsafe {
            match self {
                Load::F32(at) if n == S::LANES => S::load(at),
                Load::F32(at) => S::load_part(at, n),
                Load::F16(at) if n == S::LANES => S::load_f16(at),
                Load::F16(at) => S::load_f16_part(at, n),
            }
        }
    }
}

/// Where results go: rows of columns, and what is done to them first.
#[derive(Clone, Copy)]
pub(crate) struct Results<'a> {
    pub store: Store,
    pub pitch: usize,
    /// One value for each column, or null.
    pub bias: *const f32,
    /// What is done to sums and biases.
    pub steps: &'a [PointStep],
    /// What [`PointStep::PlusAddend`] adds: the element of the first position and channel, and
    /// elements from one position to the next. Not used without such a step.
    pub addend: (Load, usize),
    pub round: bool,
}

// SAFETY: the addresses come from borrows that outlive the product, and its threads write different
// elements.
unsafe impl Send for Results<'_> {}
// SAFETY: as above.
unsafe impl Sync for Results<'_> {}

impl<'a> Results<'a> {
    /// The results of `row` and later rows, `col` and later columns.
    pub fn at(self, row: usize, col: usize) -> Results<'a> {
        let offset = row * self.pitch + col;
        let store = match self.store {
            Store::F32(base) => Store::F32(base.wrapping_add(offset)),
            Store::F16(base) => Store::F16(base.wrapping_add(offset)),
        };
        let bias = if self.bias.is_null() { self.bias } else { self.bias.wrapping_add(col) };
        let (addend, pitch) = self.addend;
        Results { store, bias, addend: (addend.after(row * pitch + col), pitch), ..self }
    }

    /// The results, if these are those of `row` and later rows, and there is no addend.
    pub fn before(self, row: usize) -> Results<'a> {
        let store = match self.store {
            Store::F32(base) => Store::F32(base.wrapping_sub(row * self.pitch)),
            Store::F16(base) => Store::F16(base.wrapping_sub(row * self.pitch)),
        };
        Results { store, ..self }
    }

    /// Adds the bias to the sums of `R` rows, a vector each, applies the steps, and stores them
    /// from `row` on: `n` values of a vector that begins at column `col`.
    ///
    /// `R` is a constant, so the values stay in registers from the first step to the last.
    ///
    /// # Safety
    /// The results are writable, so many biases are readable, and the addend, if a step adds it,
    /// has an element for each result.
    #[inline(always)]
    pub(super) unsafe fn store<S: Simd, const R: usize>(&self, row: usize, col: usize, n: usize, mut sums: [S::V; R]) {
        let at = row * self.pitch + col;
        let whole = n == S::LANES;
        // SAFETY: the caller guarantees it.
        unsafe {
            if !self.bias.is_null() {
                let bias = self.bias.add(col);
                let bias = if whole { S::load(bias) } else { S::load_part(bias, n) };
                for v in &mut sums {
                    *v = S::add(*v, bias);
                }
            }
            if !self.steps.is_empty() {
                let (addend, pitch) = self.addend;
                sums = steps::<S, R>(self.steps, sums, (addend.after(row * pitch + col), pitch), n);
            }
            match (self.store, whole) {
                (Store::F32(base), _) => {
                    if self.round {
                        for v in &mut sums {
                            *v = S::round(*v);
                        }
                    }
                    for (i, v) in sums.iter().enumerate() {
                        let to = base.add(at + i * self.pitch);
                        if whole { S::store(to, *v) } else { S::store_part(to, *v, n) }
                    }
                }
                (Store::F16(base), true) => {
                    for (i, v) in sums.iter().enumerate() {
                        S::store_f16(base.add(at + i * self.pitch), *v);
                    }
                }
                (Store::F16(base), false) => {
                    for (i, v) in sums.iter().enumerate() {
                        S::store_f16_part(base.add(at + i * self.pitch), *v, n);
                    }
                }
            }
        }
    }
}

impl Results<'_> {
    /// Prefetches the memory of a tile of `rows` rows and `n` columns that is about to be computed,
    /// so that its stores do not wait for memory.
    ///
    /// # Safety
    /// The processor supports the instruction set.
    #[inline(always)]
    pub(super) unsafe fn prefetch<S: Simd>(&self, rows: usize, n: usize) {
        let (base, size) = match self.store {
            Store::F32(base) => (base.cast::<u8>(), size_of::<f32>()),
            Store::F16(base) => (base.cast::<u8>(), size_of::<f16>()),
        };
        for row in 0..rows {
            let line = base.wrapping_add(row * self.pitch * size);
            for at in (0..n * size).step_by(LINE) {
                // SAFETY: the caller guarantees it.
                unsafe { S::prefetch(line.wrapping_add(at)) };
            }
        }
    }

    /// True if no step needs more registers than a large tile leaves.
    fn is_simple(&self) -> bool {
        let simple = |step: &PointStep| {
            matches!(step, PointStep::Clamp(..) | PointStep::Round | PointStep::PlusAddend | PointStep::Gate(_))
        };
        self.steps.iter().all(simple)
    }

    /// As [`Results::store`] for a tile of whole vectors and steps that are
    /// [simple](Results::is_simple): its sums stay in their registers.
    ///
    /// # Safety
    /// As of [`Results::store`].
    #[inline(always)]
    unsafe fn store_tile<S: Simd, const M: usize, const N: usize>(&self, mut sums: [[S::V; N]; M]) {
        // SAFETY: the caller guarantees it.
        unsafe {
            if !self.bias.is_null() {
                for v in 0..N {
                    let bias = S::load(self.bias.add(v * S::LANES));
                    for row in &mut sums {
                        row[v] = S::add(row[v], bias);
                    }
                }
            }
            for step in self.steps {
                match *step {
                    PointStep::Clamp(low, high) => clamp::<S>(low, high, sums.as_flattened_mut()),
                    PointStep::PlusAddend => {
                        let (addend, pitch) = self.addend;
                        for (i, row) in sums.iter_mut().enumerate() {
                            for (v, sum) in row.iter_mut().enumerate() {
                                *sum = S::add(*sum, addend.after(i * pitch + v * S::LANES).load::<S>(S::LANES));
                            }
                        }
                    }
                    PointStep::Gate(gate) => gate.apply::<S>(sums.as_flattened_mut()),
                    _ => {
                        for v in sums.as_flattened_mut() {
                            *v = S::round(*v);
                        }
                    }
                }
            }
            if self.round {
                for v in sums.as_flattened_mut() {
                    *v = S::round(*v);
                }
            }
            for (i, row) in sums.iter().enumerate() {
                for (v, sum) in row.iter().enumerate() {
                    let at = i * self.pitch + v * S::LANES;
                    match self.store {
                        Store::F32(base) => S::store(base.add(at), *sum),
                        Store::F16(base) => S::store_f16(base.add(at), *sum),
                    }
                }
            }
        }
    }
}

/// [`PointStep::Clamp`].
///
/// # Safety
/// The processor supports the instruction set.
#[inline(always)]
unsafe fn clamp<S: Simd>(low: f32, high: f32, values: &mut [S::V]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let (low, bounded, high) = (S::splat(low), high < f32::INFINITY, S::splat(high));
        for v in &mut *values {
            *v = S::at_least(low, *v);
        }
        if bounded {
            for v in values {
                *v = S::at_most(high, *v);
            }
        }
    }
}

/// Applies steps to vectors of `n` values; the addends of one vector are so many elements after
/// those of the vector before.
#[inline(always)]
unsafe fn steps<S: Simd, const R: usize>(
    steps: &[PointStep],
    mut values: [S::V; R],
    (addend, pitch): (Load, usize),
    n: usize,
) -> [S::V; R] {
    // SAFETY: the caller guarantees the instruction set.
    unsafe {
        // Loops: a closure that is not inlined would be compiled without the instruction set.
        let mut held = values;
        for step in steps {
            match *step {
                PointStep::Clamp(low, high) => clamp::<S>(low, high, &mut values),
                PointStep::From(low) => {
                    let low = S::splat(low);
                    for v in &mut values {
                        *v = S::from(low, *v);
                    }
                }
                PointStep::Affine(factor, term) => {
                    let (factor, term) = (S::splat(factor), S::splat(term));
                    for v in &mut values {
                        *v = S::add(S::mul(factor, *v), term);
                    }
                }
                PointStep::Sigmoid => {
                    for v in &mut values {
                        *v = S::sigmoid(*v);
                    }
                }
                PointStep::Silu => {
                    for v in &mut values {
                        *v = S::mul(*v, S::sigmoid(*v));
                    }
                }
                PointStep::Gelu => {
                    for v in &mut values {
                        *v = S::gelu(*v);
                    }
                }
                PointStep::Round => {
                    for v in &mut values {
                        *v = S::round(*v);
                    }
                }
                PointStep::Hold => held = values,
                PointStep::PlusAddend => {
                    for (i, v) in values.iter_mut().enumerate() {
                        *v = S::add(*v, addend.after(i * pitch).load::<S>(n));
                    }
                }
                PointStep::Gate(gate) => gate.apply::<S>(&mut values),
                PointStep::TimesHeld => {
                    for (v, held) in values.iter_mut().zip(&held) {
                        *v = S::mul(*v, *held);
                    }
                }
            }
        }
        values
    }
}

/// [`strip`] of one size.
pub(super) type StripKernel = unsafe fn(&Strip<'_>);

/// Multiplies `M` rows with a panel of `N` vectors.
///
/// # Safety
/// `a` has `M` rows of the runs, `b` the same number of steps of `N` vectors; `partial` has room
/// for the sums of the tile unless this is the first and the last block; the results are writable
/// and nothing else accesses them; the processor supports the instruction set.
#[inline(always)]
pub(super) unsafe fn strip<S: Simd, const M: usize, const N: usize>(job: &Strip<'_>) {
    let width = N * S::LANES;
    // SAFETY: the caller guarantees it.
    unsafe {
        let mut sums = [[S::splat(0.0); N]; M];
        if !job.first {
            for i in 0..M {
                for v in 0..N {
                    sums[i][v] = S::load(job.partial.add(i * width + v * S::LANES));
                }
            }
        }
        if job.last {
            job.out.prefetch::<S>(M, job.cols);
        }
        let (mut a, mut b) = (job.a, job.b);
        let mut ahead = job.ahead;
        for _ in 0..job.runs.count {
            let mut k = 0;
            while k < job.runs.length {
                for _ in 0..ahead.burst.min(ahead.lines) {
                    S::prefetch(ahead.at);
                    ahead = Ahead { at: ahead.at.wrapping_add(LINE), lines: ahead.lines - 1, ..ahead };
                }
                let end = job.runs.length.min(k + PREFETCH_INTERVAL);
                while k < end {
                    let mut line = [S::splat(0.0); N];
                    for (v, x) in line.iter_mut().enumerate() {
                        *x = S::load(b.add(v * S::LANES));
                    }
                    b = b.add(width);
                    for i in 0..M {
                        let x = S::splat(*a.add(i * PITCH + k));
                        for v in 0..N {
                            sums[i][v] = S::fma(x, line[v], sums[i][v]);
                        }
                    }
                    k += 1;
                }
            }
            a = a.wrapping_add(job.runs.stride);
        }
        if job.last {
            store_sums::<S, M, N>(sums, 0, &job.out, job.cols);
        } else {
            for i in 0..M {
                for v in 0..N {
                    S::store(job.partial.add(i * width + v * S::LANES), sums[i][v]);
                }
            }
        }
    }
}

/// Stores the sums of a tile without its first `skipped` rows, `cols` columns of it. `out` is where
/// the first row is or would be.
///
/// # Safety
/// The results are writable, and the processor supports the instruction set.
#[inline(always)]
pub(super) unsafe fn store_sums<S: Simd, const M: usize, const N: usize>(
    sums: [[S::V; N]; M],
    skipped: usize,
    out: &Results<'_>,
    cols: usize,
) {
    let width = N * S::LANES;
    // SAFETY: the caller guarantees it.
    unsafe {
        if skipped == 0 && cols == width && out.is_simple() {
            return out.store_tile::<S, M, N>(sums);
        }
        // Otherwise the sums leave the registers through memory, so that the epilogue is a loop:
        // unrolled, it would not leave enough registers for the sums of a large tile.
        let mut buffer = [[[MaybeUninit::<f32>::uninit(); 16]; N]; M];
        let to = buffer.as_mut_ptr().cast::<f32>();
        for i in 0..M {
            for v in 0..N {
                S::store(to.add(i * width + v * S::LANES), sums[i][v]);
            }
        }
        finish::<S>(to.add(skipped * width), width, M - skipped, &out.at(skipped, 0), cols);
    }
}

/// Stores sums from memory.
///
/// # Safety
/// `sums` has `rows` rows of `width` values, and the results are writable.
#[inline(always)]
unsafe fn finish<S: Simd>(sums: *const f32, width: usize, rows: usize, out: &Results<'_>, cols: usize) {
    for col in (0..cols).step_by(S::LANES) {
        let n = (cols - col).min(S::LANES);
        let mut row = 0;
        // SAFETY: the caller guarantees it.
        unsafe {
            while row + TOGETHER <= rows {
                let values = std::array::from_fn(|i| S::load(sums.add((row + i) * width + col)));
                out.store::<S, TOGETHER>(row, col, n, values);
                row += TOGETHER;
            }
            for row in row..rows {
                out.store::<S, 1>(row, col, n, [S::load(sums.add(row * width + col))]);
            }
        }
    }
}
