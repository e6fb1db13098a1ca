//! Chains: every stage on one tile of rows, then the next tile.
//!
//! A slot holds a tile of fp32 values, rounded to fp16 where a member's result would be. Stages use
//! the functions of their members: the same products, the same instructions over registers, the
//! same order along a row. Each tile is computed by one thread; where tiles are cut depends only on
//! the shapes.

use std::ops::Range;
use std::sync::Mutex;

use ferrane_device::Result;
use ferrane_host::gemm::{Bias, Epilogue, GemmError, Output, PackedColumns, ViewMut, gemm, gemm_packed};
use ferrane_host::sync::{self, lock};
use ferrane_host::{convert, f16, pool, rounded, softmax, vectorize};

use crate::ir::{
    COLUMN_BLOCK, Causal, Chain, ChainOperand, ChainProduct, ChainSoftmax, ChainSoftmaxGradient, ChainStage, Divide,
    Group, MAX_WRITES, Reduction, SLOTS, SegmentMatrix, Step, TileLocation,
};

use super::group::{self, TILE as REGISTER};
use super::memory::{Reads, Slice, SliceMut, Writes, no_writes};
use super::{Table, products, rows, scratch};

/// The least number of elements of a task.
const GRAIN: usize = 32 * 1024;
/// Rows of a softmax that are computed together.
const ABREAST: usize = 4;
/// Tiles of a task that share a right factor, from which on it is packed once for all of them.
const SHARING: usize = 4;
/// The most products of a chain whose right factors are packed once.
const PACKED: usize = 4;
/// Lanes of a maximum.
const LANES: usize = 32;
/// A magnitude so small that two such numbers have a difference within the range of fp16.
const SMALL: f16 = f16::from_f32_const(32_000.0);

/// The largest bits of floats without their signs, which have the order of the magnitudes, with NaN
/// above infinity.
macro_rules! largest_bits {
    ($bits:expr, $type:ty, $sign:expr, ($lines:expr, $pitch:expr, $length:expr)) => {{
        let bits: &[$type] = $bits;
        let (lines, pitch, length) = ($lines, $pitch, $length);
        vectorize!({
            let mut lanes: [$type; LANES] = [0; LANES];
            let mut most: $type = 0;
            for line in 0..lines {
                let (blocks, rest) = bits[line * pitch..][..length].as_chunks::<LANES>();
                for block in blocks {
                    for i in 0..LANES {
                        lanes[i] = lanes[i].max(block[i] & !$sign);
                    }
                }
                for &bits in rest {
                    most = most.max(bits & !$sign);
                }
            }
            for i in 0..LANES {
                most = most.max(lanes[i]);
            }
            most
        })
    }};
}

/// The state that all tasks of a chain share.
struct ChainJob<'a, 'r> {
    table: &'a Table,
    chain: &'a Chain,
    reads: &'a Reads<'r>,
    /// What a mask hides, if hidden columns may be skipped.
    causal: Option<&'a Causal>,
    tasks: scratch::Tasks,
    failed: Mutex<Option<GemmError>>,
}

/// Runs a chain, its tiles divided among threads.
pub(crate) fn run(table: &Table, step: &Step, chain: &Chain, reads: &Reads<'_>, writes: Writes<'_>) -> Result<()> {
    let small = |causal: &&Causal| is_small(causal, chain.segments, reads);
    let causal = chain.causal.as_ref().filter(small);
    let failed = Mutex::new(None);
    let job = ChainJob { table, chain, reads, causal, tasks: scratch::Tasks::default(), failed };
    let tiles = chain.rows.div_ceil(chain.tile);
    let (units, cost) = match chain.divide {
        Divide::Segments => (chain.segments, chain.rows * chain.cols),
        Divide::Rows => (tiles, chain.segments * chain.tile * chain.cols),
        Divide::Nothing => (1, 1),
    };
    job.halve(0..units, GRAIN.div_ceil(cost), writes, [0; MAX_WRITES]);
    job.tasks.end()?;
    match sync::into_inner(job.failed) {
        Some(error) => Err(products::failed(step, &error)),
        None => Ok(()),
    }
}

/// Whether the scores are small enough, compared with the mask, that hidden probabilities are
/// exactly zero. Each thread checks the segments that it will compute.
fn is_small(causal: &Causal, segments: usize, reads: &Reads<'_>) -> bool {
    let Causal { factors: [left, right], finite, bound, .. } = causal;
    let elements: usize = [left, right].into_iter().chain(finite).map(|matrix| matrix.size.0 * matrix.size.1).sum();
    let segment = |segment: usize| {
        let of = |matrix: &SegmentMatrix| largest_magnitude(&reads[matrix.read], matrix, segment);
        [of(left), of(right), finite.iter().map(of).fold(0.0, f32::max)]
    };
    let part = |segments: Range<usize>| segments.map(segment).fold([0.0; 3], larger);
    pool::reduce(segments, GRAIN.div_ceil(elements.max(1)), part, larger)
        .is_none_or(|[left, right, values]| left * right <= *bound && values.is_finite())
}

fn larger(a: [f32; 3], b: [f32; 3]) -> [f32; 3] {
    std::array::from_fn(|i| a[i].max(b[i]))
}

/// The largest magnitude of a segment's matrix; infinite where there is a NaN.
fn largest_magnitude(slice: &Slice<'_>, matrix: &SegmentMatrix, segment: usize) -> f32 {
    let ChainOperand { offsets, row, col, .. } = &matrix.operand;
    // Lines with unit stride if there are any; else all elements from the first to the last one
    // count.
    let (lines, pitch, length) = match (matrix.size, (*row, *col)) {
        ((rows, cols), (row, 1)) if row == cols => (1, 0, rows * cols),
        ((rows, cols), (_, 1)) => (rows, *row, cols),
        ((rows, cols), (1, _)) => (cols, *col, rows),
        ((rows, cols), _) => (1, 1, rows.saturating_sub(1) * row + cols.saturating_sub(1) * col + 1),
    };
    let most = match slice {
        Slice::F16(s) => largest_half(&s[offsets[segment]..], lines, pitch, length).to_f32(),
        Slice::F32(s) => f32::from_bits(largest_bits!(
            bytemuck::cast_slice(&s[offsets[segment]..]),
            u32,
            0x8000_0000,
            (lines, pitch, length)
        )),
        _ => f32::INFINITY,
    };
    if most.is_nan() { f32::INFINITY } else { most }
}

/// The largest magnitude, or a NaN if there is one, of lines that begin every `pitch` elements.
fn largest_half(values: &[f16], lines: usize, pitch: usize, length: usize) -> f16 {
    f16::from_bits(largest_bits!(bytemuck::cast_slice(values), u16, 0x8000, (lines, pitch, length)))
}

impl ChainJob<'_, '_> {
    /// Divides units (segments, or tiles of all segments) among tasks, and cuts the writes
    /// accordingly. `starts` is the number of elements of each write before its slice.
    fn halve(&self, units: Range<usize>, per_task: usize, writes: Writes<'_>, starts: [usize; MAX_WRITES]) {
        let tasks = units.len().div_ceil(per_task);
        if tasks <= 1 {
            return self.task(units, writes, &starts);
        }
        let middle = units.start + tasks / 2 * per_task;
        let (mut low, mut high) = (no_writes(), no_writes());
        let mut after = starts;
        for (i, (slice, out)) in writes.into_iter().zip(&self.chain.outs).enumerate() {
            let cut = match self.chain.divide {
                Divide::Segments => out.offsets[middle],
                _ => out.offsets.iter().min().copied().unwrap_or(0) + middle * self.chain.tile * out.row,
            };
            (low[i], high[i]) = slice.split_at(cut - starts[i]);
            after[i] = cut;
        }
        pool::join(
            || self.halve(units.start..middle, per_task, low, starts),
            || self.halve(middle..units.end, per_task, high, after),
        );
    }

    fn task(&self, units: Range<usize>, mut writes: Writes<'_>, starts: &[usize; MAX_WRITES]) {
        let chain = self.chain;
        let tiles = chain.rows.div_ceil(chain.tile);
        let (segments, tiles) = match chain.divide {
            Divide::Segments => (units, 0..tiles),
            Divide::Rows => (0..chain.segments, units),
            Divide::Nothing => (0..chain.segments, 0..tiles),
        };
        let slot = chain.tile * chain.cols;
        let sizes = self.packed_sizes(tiles.len());
        let packed = sizes.iter().sum::<usize>();
        let wanted = chain.slots * slot + packed + (chain.registers + 1) * REGISTER + chain.cols;
        self.tasks.with(wanted, |memory| {
            let (packed_memory, memory) = memory.split_at_mut(packed);
            let (mut rest, registers) = memory.split_at_mut(chain.slots * slot);
            let mut slots: [&mut [f32]; SLOTS] = Default::default();
            for place in slots.iter_mut().take(chain.slots) {
                (*place, rest) = rest.split_at_mut(slot);
            }
            for segment in segments {
                let Ok(factors) = self.pack(segment, &sizes, packed_memory).map_err(|error| self.fail(error)) else {
                    return;
                };
                for tile in tiles.clone() {
                    let first = tile * chain.tile;
                    let mut place = Tile {
                        job: self,
                        segment,
                        first,
                        rows: chain.tile.min(chain.rows - first),
                        cols: self.causal.map_or(chain.cols, |causal| causal.limits[tile]),
                        starts,
                        factors,
                    };
                    for stage in &chain.stages {
                        if let Err(error) = place.run(stage, &mut slots, &mut writes, registers) {
                            return self.fail(error);
                        }
                    }
                }
            }
        });
    }
}

impl ChainJob<'_, '_> {
    fn fail(&self, error: GemmError) {
        *lock(&self.failed) = Some(error);
    }

    fn products(&self) -> impl Iterator<Item = &ChainProduct> {
        self.chain.stages.iter().filter_map(|stage| match stage {
            ChainStage::Product(product) => Some(product),
            _ => None,
        })
    }

    /// Values of each product's right factor, packed once for so many tiles; 0 if it is not.
    fn packed_sizes(&self, tiles: usize) -> [usize; PACKED] {
        let mut sizes = [0; PACKED];
        // A tile that needs fewer columns would have other panels.
        if tiles >= SHARING && self.causal.is_none() {
            for (size, product) in sizes.iter_mut().zip(self.products()) {
                *size = PackedColumns::len(product.size.0, product.size.1).unwrap_or(0);
            }
        }
        sizes
    }

    /// Packs the right factors of a segment.
    fn pack<'m>(
        &self,
        segment: usize,
        sizes: &[usize; PACKED],
        mut memory: &'m mut [f32],
    ) -> std::result::Result<[Option<PackedColumns<'m>>; PACKED], GemmError> {
        let mut factors = [None; PACKED];
        for ((factor, &size), product) in factors.iter_mut().zip(sizes).zip(self.products()) {
            let (to, rest) = memory.split_at_mut(size);
            memory = rest;
            if size > 0 {
                let ChainProduct { rhs, size: (depth, cols), .. } = product;
                let (slice, at) = self.matrix(rhs, segment);
                let matrix = products::operand(&slice.from(at), *depth, *cols, (rhs.row as isize, rhs.col as isize))?;
                *factor = Some(PackedColumns::pack(matrix, to)?);
            }
        }
        Ok(factors)
    }

    /// The second factor of a product, which all tiles of a segment read as a whole.
    fn matrix(&self, operand: &ChainOperand, segment: usize) -> (Slice<'_>, usize) {
        match operand.at {
            TileLocation::Slot(_) => (Slice::None, 0),
            TileLocation::Memory(read) => (self.reads[read], operand.offsets[segment]),
        }
    }
}

/// One tile of a segment, and the memory that its task may write.
struct Tile<'a, 'j, 'r> {
    job: &'a ChainJob<'j, 'r>,
    segment: usize,
    /// Its first row in the segment.
    first: usize,
    rows: usize,
    /// Columns that are computed.
    cols: usize,
    starts: &'a [usize; MAX_WRITES],
    /// The right factors of the products, if they are packed.
    factors: [Option<PackedColumns<'a>>; PACKED],
}

type Slots<'s> = [&'s mut [f32]; SLOTS];

impl Tile<'_, '_, '_> {
    fn run(
        &mut self,
        stage: &ChainStage,
        slots: &mut Slots<'_>,
        writes: &mut Writes<'_>,
        registers: &mut [f32],
    ) -> std::result::Result<(), GemmError> {
        match stage {
            ChainStage::Product(product) => self.product(product, slots, writes)?,
            ChainStage::Group { group, operands, width } => {
                self.group(group, operands, *width, slots, writes, registers);
            }
            ChainStage::Softmax(softmax) => self.softmax(softmax, slots),
            ChainStage::SoftmaxGradient(gradient) => self.softmax_gradient(gradient, slots),
            ChainStage::Reduce { reduction, from, to, round } => {
                self.reduce(*reduction, from, *to, *round, slots, registers);
            }
            ChainStage::Store { from, to, width } => self.store(&mut *slots[*from], to, *width, writes),
        }
        Ok(())
    }

    /// A product into a slot or into memory.
    fn product(
        &self,
        product: &ChainProduct,
        slots: &mut Slots<'_>,
        writes: &mut Writes<'_>,
    ) -> std::result::Result<(), GemmError> {
        let to = &product.to;
        match to.at {
            TileLocation::Slot(slot) => {
                let all = self.job.chain.cols as isize;
                let taken = std::mem::take(&mut slots[slot]);
                let result = ViewMut::new(&mut *taken, self.rows, self.cols, all, 1)
                    .and_then(|output| self.multiply(product, self.cols, slots, Output::F32(output)));
                slots[slot] = taken;
                result
            }
            TileLocation::Memory(write) => {
                let at = self.at(to) - self.starts[write];
                let (rows, cols, row, col) = (self.rows, product.size.1, to.row as isize, to.col as isize);
                let output = match &mut writes[write] {
                    SliceMut::F16(s) => {
                        Output::F16(ViewMut::new(s.get_mut(at..).unwrap_or_default(), rows, cols, row, col)?)
                    }
                    SliceMut::F32(s) => {
                        Output::F32(ViewMut::new(s.get_mut(at..).unwrap_or_default(), rows, cols, row, col)?)
                    }
                    _ => return Ok(()),
                };
                self.multiply(product, cols, slots, output)
            }
        }
    }

    /// The matrix product of a tile, `cols` columns wide.
    fn multiply(
        &self,
        product: &ChainProduct,
        cols: usize,
        slots: &Slots<'_>,
        output: Output<'_>,
    ) -> std::result::Result<(), GemmError> {
        let ChainProduct { lhs, rhs, size, scale, bias, round, .. } = product;
        let depth = if matches!(lhs.at, TileLocation::Slot(_)) { self.cols } else { size.0 };
        let (slice, at) = self.source(lhs, slots);
        let lhs = products::operand(&slice.from(at), self.rows, depth, (lhs.row as isize, lhs.col as isize))?;
        // A packed factor has all of its rows.
        let packed = self.job.products().position(|p| std::ptr::eq(p, product)).and_then(|i| *self.factors.get(i)?);
        let packed = packed.filter(|_| depth == size.0);
        let (slice, at) = self.job.matrix(rhs, self.segment);
        let rhs = products::operand(&slice.from(at), depth, cols, (rhs.row as isize, rhs.col as isize))?;
        let bias = match bias.map(|b| &self.job.reads[b]) {
            Some(Slice::F32(values)) => Some(Bias::Cols(&values[..cols])),
            _ => None,
        };
        let epilogue = Epilogue { scale: *scale, bias, round: *round, of_depth: Some(size.0), ..Epilogue::default() };
        match packed {
            Some(rhs) => gemm_packed(lhs, rhs, output, epilogue),
            None => gemm(lhs, rhs, output, epilogue),
        }
    }

    /// Softmax of each row, into a slot.
    fn softmax(&self, softmax: &ChainSoftmax, slots: &mut Slots<'_>) {
        let ChainSoftmax { from, to, round, masked } = softmax;
        let all = self.job.chain.cols;
        let to_slot = std::mem::take(&mut slots[*to]);
        let (slice, at) = self.source(from, slots);
        let mask = masked.as_ref().map(|masked| (masked, self.source(&masked.mask, slots)));
        // Several rows at a time: a row's factor has a long latency, which the other rows hide.
        for first in (0..self.rows).step_by(ABREAST) {
            let (some, mut lanes) = (first..self.rows.min(first + ABREAST), [[0.0; rows::LANES]; ABREAST]);
            for (r, lanes) in some.clone().zip(&mut lanes) {
                let cols = self.seen(r);
                let (row, hidden) = to_slot[r * all..][..self.cols].split_at_mut(cols);
                hidden.fill(0.0);
                match (slice, &mask) {
                    (Slice::F32(s), Some((masked, (Slice::F16(mask), first)))) => {
                        let mask = &mask[first + r * masked.mask.row..][..cols];
                        let from = &s[at + r * from.row..][..cols];
                        let most = rounded::scale_add(row, from, masked.scale, mask);
                        *lanes = softmax::exponential_lanes(row, None, most);
                    }
                    (Slice::F32(s), None) if from.col == 1 => {
                        let from = &s[at + r * from.row..][..cols];
                        *lanes = softmax::exponential_lanes(row, Some(from), rows::maximum(from));
                    }
                    _ => {
                        rows::load_row(&slice, (at + r * from.row) as isize, from.col as isize, row);
                        *lanes = softmax::exponential_lanes(row, None, rows::maximum(row));
                    }
                }
            }
            for (r, sum) in some.zip(rows::sums_of_lanes(&lanes)) {
                rows::scale_row(&mut to_slot[r * all..][..self.seen(r)], 1.0 / sum, *round);
            }
        }
        slots[*to] = to_slot;
    }

    /// The columns that a row of the tile sees, of those that are computed.
    fn seen(&self, row: usize) -> usize {
        self.job.causal.map_or(self.cols, |causal| causal.rows[self.first + row].min(self.cols))
    }

    /// The gradient of the softmax of each row, into a slot. Later stages skip the columns that it
    /// skips.
    fn softmax_gradient(&mut self, gradient: &ChainSoftmaxGradient, slots: &mut Slots<'_>) {
        let ChainSoftmaxGradient { probs, grads, scale, to, .. } = gradient;
        let all = self.job.chain.cols;
        let visible = self.visible(gradient);
        let to_slot = std::mem::take(&mut slots[*to]);
        let row = |operand: &ChainOperand, r: usize, cols: usize| match self.source(operand, slots) {
            (Slice::F16(s), at) => softmax::RowValues::F16(&s[at + r * operand.row..][..cols]),
            (Slice::F32(s), at) => softmax::RowValues::F32(&s[at + r * operand.row..][..cols]),
            _ => softmax::RowValues::F16(&[]),
        };
        let mut cols = visible;
        // As in a softmax, several rows hide the latency of a sum.
        for first in (0..self.rows).step_by(ABREAST) {
            let (some, mut lanes) = (first..self.rows.min(first + ABREAST), [[0.0; rows::LANES]; ABREAST]);
            for (r, lanes) in some.clone().zip(&mut lanes) {
                // The products of skipped columns are zero.
                *lanes = softmax::weighted_lanes(row(probs, r, visible), row(grads, r, visible));
            }
            let mut means = rows::sums_of_lanes(&lanes);
            convert::round_f16(&mut means);
            if cols < self.cols && !means.iter().all(|mean| mean.abs() <= SMALL.to_f32()) {
                // In these rows and all that follow, a difference may be infinite.
                for r in 0..first {
                    to_slot[r * all..][cols..self.cols].fill(0.0);
                }
                cols = self.cols;
            }
            for (r, mean) in some.zip(means) {
                softmax::centered(
                    &mut to_slot[r * all..][..cols],
                    row(probs, r, cols),
                    row(grads, r, cols),
                    mean,
                    *scale,
                );
            }
        }
        slots[*to] = to_slot;
        self.cols = cols;
    }

    /// The columns of a tile up to the last block with a probability that is not zero, or with a
    /// gradient that is too large for the product of a zero with its distance from the mean to be
    /// zero.
    fn visible(&self, gradient: &ChainSoftmaxGradient) -> usize {
        let Some(finite) = &gradient.zeros else { return self.cols };
        let slice = |operand: &ChainOperand| match operand.at {
            TileLocation::Memory(read) => (self.job.reads[read], self.at(operand)),
            TileLocation::Slot(_) => (Slice::None, 0),
        };
        let ((Slice::F16(probs), p), (Slice::F16(grads), d)) = (slice(&gradient.probs), slice(&gradient.grads)) else {
            return self.cols;
        };
        let largest = |values: &[f16], first: usize, pitch: usize, columns: Range<usize>| {
            largest_half(&values[first + columns.start..], self.rows, pitch, columns.len())
        };
        let mut cols = self.cols;
        while cols > COLUMN_BLOCK {
            let first = (cols - 1) / COLUMN_BLOCK * COLUMN_BLOCK;
            let is_zero = largest(probs, p, gradient.probs.row, first..cols) == f16::ZERO
                && largest(grads, d, gradient.grads.row, first..cols) <= SMALL;
            if !is_zero {
                break;
            }
            cols = first;
        }
        let is_finite =
            |matrix: &SegmentMatrix| largest_magnitude(&self.job.reads[matrix.read], matrix, self.segment).is_finite();
        if cols == self.cols || finite.iter().all(is_finite) { cols } else { self.cols }
    }

    /// One value for each row, into a slot. `registers` has room for a row.
    fn reduce(
        &self,
        reduction: Reduction,
        from: &ChainOperand,
        to: usize,
        round: bool,
        slots: &mut Slots<'_>,
        registers: &mut [f32],
    ) {
        let table = self.job.table;
        let to_slot = std::mem::take(&mut slots[to]);
        let (slice, at) = self.source(from, slots);
        let row = &mut registers[..self.job.chain.cols];
        for (r, value) in to_slot[..self.rows].iter_mut().enumerate() {
            rows::load_row(&slice, (at + r * from.row) as isize, from.col as isize, row);
            *value = rows::reduce_row(table, reduction, row);
        }
        if round {
            table.round(&mut to_slot[..self.rows]);
        }
        slots[to] = to_slot;
    }

    /// Copies a slot's rows to memory.
    fn store(&self, slot: &mut [f32], to: &ChainOperand, width: usize, writes: &mut Writes<'_>) {
        let TileLocation::Memory(write) = to.at else { return };
        let at = self.at(to) - self.starts[write];
        if width == 1 {
            return rows::store_row(&mut writes[write], at as isize, to.row as isize, &slot[..self.rows]);
        }
        let all = self.job.chain.cols;
        for r in 0..self.rows {
            let row = &mut slot[r * all..][..all];
            // Columns that a mask hides.
            row[self.cols..].fill(0.0);
            rows::store_row(&mut writes[write], (at + r * to.row) as isize, to.col as isize, row);
        }
    }

    /// Offset in memory of an operand's first element of this tile.
    fn at(&self, operand: &ChainOperand) -> usize {
        operand.offsets[self.segment] + self.first * operand.row
    }

    /// The tile's rows of an operand: a slice, and the offset of the first element.
    fn source<'s>(&'s self, operand: &ChainOperand, slots: &'s Slots<'_>) -> (Slice<'s>, usize) {
        match operand.at {
            TileLocation::Slot(slot) => (Slice::F32(&*slots[slot]), 0),
            TileLocation::Memory(read) => (self.job.reads[read], self.at(operand)),
        }
    }

    /// A group over the tile, in pieces of a register.
    fn group(
        &self,
        group: &Group,
        operands: &[ChainOperand],
        width: usize,
        slots: &mut Slots<'_>,
        writes: &mut Writes<'_>,
        registers: &mut [f32],
    ) {
        let (outs, ins) = operands.split_at(group.stores.len());
        let mut taken: [&mut [f32]; MAX_WRITES] = Default::default();
        for (place, out) in taken.iter_mut().zip(outs) {
            if let TileLocation::Slot(slot) = out.at {
                *place = std::mem::take(&mut slots[slot]);
            }
        }
        // A column is treated as a row with the row stride.
        let (count, length) = if width == 1 { (1, self.rows) } else { (self.rows, self.cols) };
        let strides = |o: &ChainOperand| if width == 1 { (0, o.row) } else { (o.row, o.col) };
        let (registers, gather) = registers.split_at_mut(group.registers * REGISTER);
        let gather = &mut gather[..REGISTER];
        let abreast = (REGISTER / length).clamp(1, count);
        for &(reg, bits) in &group.constants {
            registers[reg as usize * REGISTER..][..(abreast * length).min(REGISTER)].fill(f32::from_bits(bits));
        }
        for first in (0..count).step_by(abreast) {
            let here = abreast.min(count - first);
            for column in (0..length).step_by(REGISTER) {
                let piece = (length - column).min(REGISTER);
                for (operand, &reg) in ins.iter().zip(&group.loads) {
                    let (slice, at) = self.source(operand, slots);
                    let (row, col) = strides(operand);
                    let at = at + first * row + column * col;
                    let registers = &mut registers[reg as usize * REGISTER..][..here * piece];
                    let strides = [row as isize, col as isize];
                    group::load_rows(self.job.table, &slice, at as isize, strides, piece, registers, gather);
                }
                for instruction in &group.instructions {
                    group::execute(self.job.table, instruction, registers, here * piece);
                }
                for ((operand, place), &reg) in outs.iter().zip(&mut taken).zip(&group.stores) {
                    let (row, col) = strides(operand);
                    let registers = &registers[reg as usize * REGISTER..][..here * piece];
                    let put = |to: &mut SliceMut<'_>, at: usize| {
                        group::store_rows(to, at + first * row + column * col, [row, col], piece, registers);
                    };
                    match operand.at {
                        TileLocation::Slot(_) => put(&mut SliceMut::F32(place), 0),
                        TileLocation::Memory(write) => put(&mut writes[write], self.at(operand) - self.starts[write]),
                    }
                }
            }
        }
        for (place, out) in taken.iter_mut().zip(outs) {
            if let TileLocation::Slot(slot) = out.at {
                slots[slot] = std::mem::take(place);
            }
        }
    }
}
