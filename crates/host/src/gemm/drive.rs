//! How a product is cut: chunks whose packed panels fit the caches, blocks of depth, tasks for the
//! threads.
//!
//! A chunk of rows, one of columns and one of depth are packed by all threads together; then all
//! threads multiply, each its own tiles. The depth is cut by its own size alone, so the order of a
//! sum does not depend on anything else: each block of depth is one chain from zero, and the blocks
//! are added in order.

use std::ops::Range;

use super::error::GemmError;
use super::finish::{Finish, StridedOutput};
use super::isa::Kernels;
use super::pack::{Pack, Prefetch};
use super::scratch::with_scratch;
use super::skinny::{Dot, SKINNY, Stream};
use super::tile::PanelBlock;
use super::vector::{ElementType, Factor};
use crate::pool;

/// The most steps of depth of one block: a panel of columns of that depth stays near the registers.
const BLOCK_DEPTH: usize = 768;

/// Blocks of depth that are packed together.
const BLOCKS_PACKED: usize = 4;

/// Elements of the packed panels of one factor.
const PACKED_ELEMENTS: usize = 1 << 20;

/// The most rows or columns of a chunk whose sums have to wait for another block of depth.
const PARTIAL_LINES: usize = 1536;

/// Elements of packed rows that stay in the second cache beside passing columns.
const L2_ROWS: usize = 208 << 10;

/// Multiply-adds of a task, at least.
const TASK_WORK: usize = 1 << 20;

/// Elements that a task packs, about.
const TASK_PACKS: usize = 32 << 10;

/// Elements of the large factor that a task of a skinny product reads, about.
const TASK_READS: usize = 64 << 10;

/// One product, checked and turned so that it suits the kernels.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub kernels: &'static Kernels,
    pub lhs: Factor,
    pub rhs: Factor,
    pub out: StridedOutput,
    pub finish: Finish<'a>,
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// `0..n` in pieces of the same size, but for the last, of at most `most`, which are multiples of
/// `unit`. One piece for `n` = 0.
fn pieces(n: usize, most: usize, unit: usize) -> (usize, usize) {
    let most = (most / unit).max(1) * unit;
    let count = n.div_ceil(most).max(1);
    let size = n.div_ceil(count).next_multiple_of(unit).max(1);
    (n.div_ceil(size).max(1), size)
}

/// As [`pieces`], but of a size that leaves the threads as little apart as one down to half of
/// `most` can.
fn even(n: usize, most: usize) -> (usize, usize) {
    let threads = pool::threads();
    let longest = |size: usize| n.div_ceil(size).div_ceil(threads) * size;
    let size = (most.div_ceil(2)..=most).rev().min_by_key(|&size| longest(size)).unwrap_or(1);
    (n.div_ceil(size), size)
}

/// Calls `task` for `0..n`, over the pool or in order.
fn each(n: usize, parallel: bool, task: impl Fn(usize) + Sync) {
    if parallel {
        pool::for_each_range(n, 1, |range| range.for_each(&task));
    } else {
        (0..n).for_each(task);
    }
}

impl Product<'_> {
    fn t(self) -> Self {
        let out = StridedOutput { row: self.out.col, col: self.out.row, ..self.out };
        Self { lhs: self.rhs, rhs: self.lhs, out, finish: self.finish.t(), m: self.n, n: self.m, ..self }
    }

    /// Computes it.
    ///
    /// # Safety
    /// The factors are readable and the places of the output writable; nobody else accesses the
    /// latter meanwhile. The processor has the kernels' set.
    pub unsafe fn run(self, parallel: bool) -> Result<(), GemmError> {
        let small = if self.m <= self.n { self } else { self.t() };
        if small.m <= SKINNY {
            let along = small.rhs.depth == 1 && small.k >= 4 * self.kernels.lanes;
            if along || (small.rhs.line == 1 && small.rhs.depth != 1) {
                // SAFETY: the caller's promise.
                return unsafe { small.skinny(along, parallel) };
            }
        }
        let turn = self.out.col != 1 && self.out.row == 1;
        // SAFETY: the caller's promise.
        unsafe { if turn { self.t().packed(parallel) } else { self.packed(parallel) } }
    }

    /// Few rows on the left: reads the right factor in place.
    ///
    /// # Safety
    /// As [`Product::run`]; the right factor's steps (`along`) or its lines are neighbors.
    unsafe fn skinny(self, along: bool, parallel: bool) -> Result<(), GemmError> {
        let Self { kernels, lhs, rhs, m, n, k, .. } = self;
        let in_place = lhs.kind == ElementType::F32 && lhs.depth == 1 && lhs.line >= 0;
        let pitch = n.next_multiple_of(16);
        let room = if in_place { 0 } else { m.saturating_mul(k) };
        let columns = if along {
            (TASK_READS / k.max(1)).next_multiple_of(8)
        } else {
            n.div_ceil(pool::threads()).next_multiple_of(64).clamp(128, 2048)
        };
        with_scratch([room, m.saturating_mul(pitch), 0], |[x, sums, _]| {
            let (x, x_row) = if in_place {
                (lhs.address.cast::<f32>(), lhs.line as usize)
            } else {
                let to = x.as_mut_ptr().cast();
                let job = Pack { factor: lhs, first: 0, lines: m, from: 0, depth: k, width: 1, last: 1, to };
                // SAFETY: the whole factor, into scratch of its size.
                unsafe { (kernels.pack)(job) };
                (x.as_ptr(), k)
            };
            let (x, sums) = (Address(x.cast_mut()), Address(sums.as_mut_ptr()));
            let parallel = parallel && n > columns;
            each(n.div_ceil(columns), parallel, |i| {
                let first = i * columns;
                let count = columns.min(n - first);
                let sums = sums.get().wrapping_add(first);
                let x = x.get().cast_const();
                let job = Dot { x, x_row, rows: m, factor: rhs, first, count, depth: k, sums, pitch };
                // SAFETY: these columns of the factor, the sums and the output are this task's;
                // `columns` is a multiple of a vector where whole vectors of sums are written.
                unsafe {
                    if along {
                        (kernels.dot)(&job);
                    } else {
                        (kernels.stream)(&Stream(job));
                    }
                    super::finish::finish(sums, pitch, (m, count), (0, first), self.out, &self.finish);
                }
            });
        })
    }

    /// Packs both factors.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn packed(self, parallel: bool) -> Result<(), GemmError> {
        let Self { kernels, lhs, rhs, m, n, k, .. } = self;
        let height = height(kernels, m);
        let (blocks, block) = pieces(k, BLOCK_DEPTH, 8);
        let (deep, depth) = (blocks.div_ceil(BLOCKS_PACKED), block * BLOCKS_PACKED.min(blocks));
        let most = if blocks > 1 { PARTIAL_LINES } else { usize::MAX };
        let lines = (PACKED_ELEMENTS / depth.max(1)).min(most);
        let (tall, rows) = pieces(m, lines, height);
        // One task meets a panel of columns, and once: it packs that panel itself, where it is
        // needed, for the near caches. The rows stay whole then, so that there must be columns for
        // all threads; the columns stay whole, too, if their sums wait for nothing.
        let few = m.div_ceil(height) <= panels_in_l2(height, block);
        let chunks = |most| pieces(n, most, kernels.cols);
        let whole = chunks(if blocks == 1 { usize::MAX } else { lines });
        let own = few && (!parallel || whole.1.div_ceil(kernels.cols) >= 4 * pool::threads());
        let (wide, cols) = if own { whole } else { chunks(lines) };
        debug_assert!(tall == 1 || !own);
        let halves = kernels.halves.as_ref().filter(|_| rhs.kind == ElementType::F16);
        let size = if halves.is_some() { size_of::<half::f16>() } else { size_of::<f32>() };
        let a_room = rows.min(m.next_multiple_of(height)).saturating_mul(depth);
        let b_room = if own {
            (pool::threads() + 1).saturating_mul(kernels.cols * block)
        } else {
            cols.min(n.next_multiple_of(kernels.cols)).saturating_mul(depth)
        };
        let waiting = if blocks > 1 { rows * cols } else { 0 };
        let words = b_room.saturating_mul(size).div_ceil(size_of::<f32>());
        with_scratch([a_room, words, waiting], |[a, b, partial]| {
            let (a, b, partial) = (Address(a.as_mut_ptr()), Address(b.as_mut_ptr()), partial.as_mut_ptr());
            let range = |i: usize, size: usize, n: usize| i * size..n.min((i + 1) * size);
            // What lies packed: a chunk of lines and one of depth.
            let (mut packed_a, mut packed_b) = (None, None);
            for w in 0..wide {
                let here_n = range(w, cols, n);
                for t in 0..tall {
                    let here_m = range(t, rows, m);
                    for d in 0..deep {
                        let here_k = range(d, depth, k);
                        let new = [
                            packed_a.replace((t, d)) != Some((t, d)),
                            packed_b.replace((w, d)) != Some((w, d)) && !own,
                        ];
                        let left = PackedFactor {
                            factor: lhs,
                            lines: here_m.clone(),
                            width: height,
                            unit: 1,
                            pack: kernels.pack,
                            to: Address(a.get().cast()),
                            size: size_of::<f32>(),
                            room: a_room,
                        };
                        let right = PackedFactor {
                            factor: rhs,
                            lines: here_n.clone(),
                            width: kernels.cols,
                            unit: kernels.lanes,
                            pack: halves.map_or(kernels.pack, |halves| halves.pack),
                            to: Address(b.get().cast()),
                            size,
                            room: b_room,
                        };
                        // SAFETY: the panels have room for these lines and this depth.
                        unsafe { pack([&left, &right], new, here_k.clone(), parallel) };
                        let shape = PanelBlock {
                            tiles: halves.map_or(kernels.tiles, |halves| halves.tiles),
                            depth: 0,
                            done: [0; 2],
                            a: a.get(),
                            height,
                            a_panel: height * here_k.len(),
                            b: b.get().cast(),
                            b_panel: kernels.cols * here_k.len(),
                            partial,
                            first: false,
                            last: false,
                            corner: (here_m.start, here_n.start),
                            size: (here_m.len(), here_n.len()),
                            out: self.out,
                            finish: self.finish,
                        };
                        let own = own.then_some(&right);
                        // SAFETY: the panels are packed but for those with an own side, and the
                        // chunk is inside the output.
                        unsafe { multiply(kernels, shape, own, here_k, block, k, parallel) };
                    }
                }
            }
        })
    }
}

/// Rows of the tiles of `m` rows: what the registers hold, or one less where that fills the last
/// tile better. With few rows a tile computes slower.
fn height(kernels: &Kernels, m: usize) -> usize {
    let missing = |height: usize| m.next_multiple_of(height) - m;
    let most = kernels.rows;
    if most > 1 && missing(most - 1) < missing(most) { most - 1 } else { most }
}

/// Panels of `height` rows of one block of depth that stay in the second cache beside passing
/// columns.
fn panels_in_l2(height: usize, block: usize) -> usize {
    (L2_ROWS / (height * block.max(1))).max(1)
}

/// An address that may cross threads; who sends it argues why.
#[derive(Clone, Copy)]
struct Address<T>(*mut T);
// SAFETY: a bare address; every use is argued where it happens.
unsafe impl<T> Send for Address<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Address<T> {}

impl<T> Address<T> {
    /// The address; a method, so that closures capture the whole wrapper.
    fn get(self) -> *mut T {
        self.0
    }
}

/// Lines of a factor that are packed.
struct PackedFactor {
    factor: Factor,
    lines: Range<usize>,
    width: usize,
    /// The last panel's steps are a multiple of this.
    unit: usize,
    pack: unsafe fn(Pack),
    to: Address<u8>,
    /// Bytes of an element of the panels.
    size: usize,
    /// Elements that there is room for.
    room: usize,
}

impl PackedFactor {
    /// To pack the lines from `begin` on, `lines` or as many as there are, whole panels, the depth
    /// `k` of them, to element `to`.
    fn job(&self, begin: usize, lines: usize, k: &Range<usize>, to: usize) -> Pack {
        let lines = lines.min(self.lines.len() - begin);
        // Once a panel at most, and what follows writes without a check.
        assert!(to + lines.next_multiple_of(self.unit) * k.len() <= self.room, "a panel beyond its room");
        Pack {
            factor: self.factor,
            first: self.lines.start + begin,
            lines,
            from: k.start,
            depth: k.len(),
            width: self.width,
            last: (lines % self.width).next_multiple_of(self.unit),
            to: self.place(to),
        }
    }

    /// Where element `i` of the panels is.
    fn place(&self, i: usize) -> *mut u8 {
        self.to.get().wrapping_add(i * self.size)
    }
}

/// Packs the lines of the sides that are `new`, the depth `k` of them.
///
/// # Safety
/// The lines are inside the factors, and the destinations have room and are nobody else's.
unsafe fn pack(sides: [&PackedFactor; 2], new: [bool; 2], k: Range<usize>, parallel: bool) {
    // Panels of a task: those that are filled side by side belong together. Lines that are not
    // neighbors are not.
    let group = |side: &PackedFactor| {
        let most = (TASK_PACKS / (side.width * k.len().max(1))).max(1);
        if side.factor.line != 1 && parallel {
            even(side.lines.len().div_ceil(side.width), most).1
        } else {
            most.next_multiple_of(super::pack::INTERLEAVED_PANELS)
        }
    };
    let tasks = |i: usize| {
        if new[i] { sides[i].lines.len().div_ceil(sides[i].width * group(sides[i])) } else { 0 }
    };
    let first = tasks(0);
    each(first + tasks(1), parallel, |task| {
        let (side, task) = if task < first { (sides[0], task) } else { (sides[1], task - first) };
        let lines = side.width * group(side);
        let begin = task * lines;
        let job = side.job(begin, lines, &k, begin * k.len());
        // SAFETY: whole panels of the caller's; tasks have different ones.
        unsafe { (side.pack)(job) };
    });
}

/// Multiplies a chunk, block of depth by block of depth. Its rows are packed, its columns, too,
/// unless they are `own`: then there is room for a panel of one block for each thread.
///
/// # Safety
/// The panels hold the depth `chunk` of the whole `k`; the chunk's places are inside the output and
/// nobody else's.
unsafe fn multiply(
    kernels: &Kernels,
    shape: PanelBlock<'_>,
    own: Option<&PackedFactor>,
    chunk: Range<usize>,
    block: usize,
    k: usize,
    parallel: bool,
) {
    let (m, n) = shape.size;
    let (tall, wide) = (m.div_ceil(shape.height), n.div_ceil(kernels.cols));
    let work = m.saturating_mul(n).saturating_mul(chunk.len());
    // Where a panel is packed by its task, small tasks cost nothing, and threads wait the less for
    // the last one.
    let most = if own.is_some() { usize::MAX } else { 8 * pool::threads() };
    let wanted = if parallel { (work / TASK_WORK).clamp(1, most) } else { 1 };
    // Rows first: a task's packed rows stay near while columns pass.
    let (mut row_tasks, mut rows) = pieces(tall, panels_in_l2(shape.height, block), 1);
    let most = wide.div_ceil(wanted.div_ceil(row_tasks));
    let (col_tasks, cols) = if parallel && row_tasks == 1 { even(wide, most) } else { pieces(wide, most, 1) };
    if row_tasks * col_tasks < wanted && own.is_none() {
        (row_tasks, rows) = pieces(tall, tall.div_ceil(wanted.div_ceil(col_tasks)), 1);
    }
    each(row_tasks * col_tasks, parallel, |task| {
        let (row, col) = (task / col_tasks * rows, task % col_tasks * cols);
        let (rows, cols) = (row..tall.min(row + rows), col..wide.min(col + cols));
        let mut from = chunk.start;
        loop {
            let depth = block.min(chunk.end - from);
            let here = from..from + depth;
            let shape = shape.block(from - chunk.start, depth, from == 0, here.end == k);
            match own {
                // SAFETY: the caller's promise; tasks have different tiles.
                None => {
                    cols.clone().for_each(|j| unsafe { shape.run(kernels, rows.clone(), j, |_| Prefetch::NOTHING) })
                }
                Some(side) => {
                    let room = kernels.cols * block;
                    let to = room * pool::thread_index().map_or(0, |i| i + 1);
                    let panel = |j: usize, k: &Range<usize>| side.job(j * kernels.cols, kernels.cols, k, to);
                    let shape = shape.panel(side.place(to));
                    for j in cols.clone() {
                        let (j_next, k_next) = if j + 1 < cols.end {
                            (j + 1, here.clone())
                        } else if here.end < chunk.end {
                            (cols.start, here.end..chunk.end.min(here.end + block))
                        } else {
                            // Of the next task, which most often is this thread's.
                            (j + 1, chunk.start..chunk.end.min(chunk.start + block))
                        };
                        let next = (j_next < wide).then(|| panel(j_next, &k_next));
                        let count = rows.len();
                        let ahead =
                            |i: usize| next.as_ref().map_or(Prefetch::NOTHING, |next| Prefetch::of(next, i, count));
                        // SAFETY: the room of this thread, which does one task at a time; the rest
                        // is the caller's promise.
                        unsafe {
                            (side.pack)(panel(j, &here));
                            shape.run(kernels, rows.clone(), j, ahead);
                        }
                    }
                }
            }
            from += depth;
            if from >= chunk.end {
                break;
            }
        }
    });
}
