//! Blocking of a product: chunks whose packed panels fit the caches, blocks along K, and tasks for
//! the threads.
//!
//! All threads pack a chunk of rows, of columns and of K together; then all threads multiply, each
//! its own tiles. The blocks along K (`depth` in the code) depend on K alone, and so does the order
//! of a sum: within a block it is one chain of multiply-adds from zero, and the blocks are added in
//! order.

use std::ops::Range;

use super::error::GemmError;
use super::finish::{Finish, StridedOutput};
use super::isa::{Kernels, PanelFormat};
use super::pack::{Found, Pack, Prefetch};
use super::scratch::with_scratch;
use super::skinny::{Dot, SKINNY, Stream};
use super::tile::PanelBlock;
use super::vector::{ElementType, Factor};
use crate::pool;

/// The longest block along K: a panel of columns of that depth stays in the L1 cache.
pub(super) const BLOCK_DEPTH: usize = 768;

/// Blocks along K that are packed together.
const BLOCKS_PACKED: usize = 4;

/// The longest K of columns that are packed at once.
pub(super) const MOST_DEPTH: usize = BLOCK_DEPTH * BLOCKS_PACKED;

/// The most elements of the packed panels of one factor.
const PACKED_ELEMENTS: usize = 1 << 20;

/// The most rows or columns of a chunk if its partial sums are stored between blocks along K.
const PARTIAL_LINES: usize = 1536;

/// Elements of packed rows that stay in the L2 cache while columns stream through it.
const L2_ROWS: usize = 208 << 10;

/// The least number of multiply-adds of a task.
const TASK_WORK: usize = 1 << 20;

/// The least rows and columns of a product that is summed in block floating point.
pub(super) const LEAST_BLOCKS: usize = 24;

/// Approximate number of elements that a task packs.
const TASK_PACKS: usize = 32 << 10;

/// Approximate number of elements of the large factor that a task of a skinny product reads.
pub(super) const TASK_READS: usize = 64 << 10;

/// One checked product, with both factors as lines along K.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub kernels: &'static Kernels,
    /// The sums may be in block floating point.
    pub blocks: bool,
    pub lhs: Factor,
    /// The rows are packed already, over all of K, into panels of this height, which begin at the
    /// address of `lhs`.
    pub packed: Option<usize>,
    pub rhs: Factor,
    /// Panels of the columns over all of K, if they are packed already: in blocks if `blocks`,
    /// otherwise instead of `rhs`.
    pub packed_columns: Option<*const u8>,
    pub out: StridedOutput,
    pub finish: Finish<'a>,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// The K that decides on the order of a sum: `k`, or more if the terms after `k` are zero.
    pub of_depth: usize,
}

/// How a product is divided into chunks whose packed panels fit the caches: number and size along
/// each dimension.
struct Chunks {
    /// Rows of a tile.
    height: usize,
    /// Blocks along K, each one chain of multiply-adds.
    blocks: usize,
    block: usize,
    /// Chunks along K, each of several blocks that are packed together.
    deep: usize,
    depth: usize,
    /// Chunks of rows that are packed together.
    tall: usize,
    rows: usize,
    /// Chunks of columns that are packed together.
    wide: usize,
    cols: usize,
    /// Each task packs the panels of columns that it multiplies.
    own: bool,
}

/// Divides `0..n` into pieces of equal size (the last may be shorter), a multiple of `unit` and at
/// most `most`. Returns their number and size; one piece for `n` = 0.
fn pieces(n: usize, most: usize, unit: usize) -> (usize, usize) {
    let most = (most / unit).max(1) * unit;
    let count = n.div_ceil(most).max(1);
    let size = n.div_ceil(count).next_multiple_of(unit).max(1);
    (n.div_ceil(size).max(1), size)
}

/// As [`pieces`], with the size from half of `most` to `most` that balances the load of the threads
/// best.
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

/// Whether a factor can be packed in block floating point.
pub(super) fn has_blocks(format: &PanelFormat, factor: &Factor, k: usize) -> bool {
    factor.kind != ElementType::I8 && factor.tables.is_none() && k > 0 && k.is_multiple_of(format.step)
}

impl Product<'_> {
    /// The transposed product, whose columns are not packed.
    pub(super) fn t(self) -> Self {
        let out = StridedOutput { row: self.out.col, col: self.out.row, ..self.out };
        let (lhs, rhs, finish) = (self.rhs, self.lhs, self.finish.t());
        Self { lhs, rhs, packed_columns: None, out, finish, m: self.n, n: self.m, ..self }
    }

    /// Computes the product.
    ///
    /// # Safety
    /// The factors are readable and the elements of the output writable, and no other thread
    /// accesses the output during the call. The processor supports the instruction set of the
    /// kernels.
    pub unsafe fn run(self, parallel: bool) -> Result<(), GemmError> {
        let packed = self.packed.is_some() || (self.packed_columns.is_some() && !self.blocks);
        if packed || self.rhs.tables.is_some() {
            // SAFETY: the caller guarantees it.
            return unsafe { self.packed(parallel) };
        }
        let small = if self.m <= self.n { self } else { self.t() };
        if small.m <= SKINNY {
            let along = small.rhs.depth == 1 && small.of_depth >= 4 * self.kernels.lanes;
            if along || (small.rhs.line == 1 && small.rhs.depth != 1) {
                // SAFETY: the caller guarantees it.
                return unsafe { small.skinny(along, parallel) };
            }
        }
        let product = if self.out.col != 1 && self.out.row == 1 { self.t() } else { self };
        // SAFETY: the caller guarantees it.
        unsafe {
            if product.blocks && product.in_blocks(parallel)? {
                return Ok(());
            }
            Product { packed_columns: None, ..product }.packed(parallel)
        }
    }

    /// Sums in block floating point, where the processor, the factors and their values allow it;
    /// otherwise false, and the result is still to be computed.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn in_blocks(self, parallel: bool) -> Result<bool, GemmError> {
        let Self { lhs, rhs, m, n, k, .. } = self;
        let Some(format) = self.kernels.blocks() else { return Ok(false) };
        let suits = |factor: &Factor| [k, self.of_depth].iter().all(|&k| has_blocks(&format, factor, k));
        if ![lhs, rhs].iter().all(suits) || m.min(n) < LEAST_BLOCKS {
            return Ok(false);
        }
        let found = [Found::default(), Found::default()];
        // SAFETY: the caller guarantees it.
        unsafe { self.packed_as(&format, Some(&found), parallel) }
    }

    /// A product with few rows on the left: reads the right factor in place.
    ///
    /// # Safety
    /// As [`Product::run`]; the elements of a line of the right factor (`along`), or its lines, are
    /// contiguous.
    unsafe fn skinny(self, along: bool, parallel: bool) -> Result<(), GemmError> {
        let Self { kernels, lhs, rhs, m, n, k, .. } = self;
        let in_place = lhs.kind == ElementType::F32 && lhs.depth == 1 && lhs.line >= 0;
        let pitch = n.next_multiple_of(16);
        let room = if in_place { 0 } else { m.saturating_mul(k) };
        let columns = if along {
            // A line may be longer than what a task reads.
            (TASK_READS / k.max(1)).max(1).next_multiple_of(8)
        } else {
            n.div_ceil(pool::threads()).next_multiple_of(64).clamp(128, 2048)
        };
        with_scratch([room, m.saturating_mul(pitch), 0], |[x, sums, _]| {
            let (x, x_row) = if in_place {
                (lhs.address.cast::<f32>(), lhs.line as usize)
            } else {
                let to = x.as_mut_ptr().cast();
                let job = Pack {
                    factor: lhs,
                    first: 0,
                    lines: m,
                    from: 0,
                    depth: k,
                    width: 1,
                    last: 1,
                    to,
                    found: std::ptr::null(),
                };
                // SAFETY: reads the whole factor, and the scratch has room for it.
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
                // SAFETY: these columns of the factor, the sums and the output belong to this task;
                // `columns` is a multiple of the vector width where whole vectors of sums are
                // written.
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

    /// Packs both factors and multiplies them.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn packed(self, parallel: bool) -> Result<(), GemmError> {
        // SAFETY: the caller guarantees it.
        unsafe { self.packed_as(&self.kernels.format(self.rhs.kind), None, parallel)? };
        Ok(())
    }

    /// Divides the product into chunks. `together`: no task packs columns itself.
    fn chunks(&self, format: &PanelFormat, together: bool, parallel: bool) -> Chunks {
        let Self { m, n, k, .. } = *self;
        let height = self.packed.unwrap_or_else(|| height(format.rows, m));
        let (_, block) = pieces(self.of_depth, BLOCK_DEPTH, format.step);
        let blocks = k.div_ceil(block).max(1);
        let (deep, depth) = (blocks.div_ceil(BLOCKS_PACKED), block * BLOCKS_PACKED.min(blocks));
        let most = if blocks > 1 { PARTIAL_LINES } else { usize::MAX };
        let lines = (PACKED_ELEMENTS / depth.max(1)).min(most);
        let (tall, rows) = pieces(m, if self.packed.is_some() { most } else { lines }, height);
        // If each panel of columns is used by one task, once, that task packs it itself, into its
        // own caches. The rows are not divided then, so there must be columns for all threads; the
        // columns are not divided into chunks either unless partial sums are stored.
        let few = m.div_ceil(height) <= panels_in_l2(height, block);
        let chunks = |most| pieces(n, most, format.cols);
        let whole = chunks(if blocks == 1 { usize::MAX } else { lines });
        let enough = !parallel || whole.1.div_ceil(format.cols) >= 4 * pool::threads();
        let shared = self.packed_columns.is_some();
        let own = few && enough && !shared && !together;
        let (wide, cols) = if own || shared { whole } else { chunks(lines) };
        debug_assert!((tall == 1 || !own) && (deep == 1 || !shared));
        Chunks { height, blocks, block, deep, depth, tall, rows, wide, cols, own }
    }

    /// As [`Product::packed`], with panels of one form. False if packing has `found` a factor for
    /// which that form is not right: then results are not, but if they accumulate, nothing was
    /// added.
    ///
    /// # Safety
    /// As [`Product::run`]; the form suits the types of the factors.
    unsafe fn packed_as(
        self,
        format: &PanelFormat,
        found: Option<&[Found; 2]>,
        parallel: bool,
    ) -> Result<bool, GemmError> {
        let Self { lhs, rhs, m, n, k, .. } = self;
        // What is added to must not be touched before both factors were looked at.
        let first = found.filter(|_| self.finish.accumulate);
        let Chunks { height, blocks, block, deep, depth, tall, rows, wide, cols, own } =
            self.chunks(format, first.is_some(), parallel);
        if first.is_some() && wide * tall * deep > 1 {
            return Ok(false);
        }
        let a_room = match self.packed {
            Some(_) => 0,
            None => rows.min(m.next_multiple_of(height)).saturating_mul(depth),
        };
        let b_room = if own {
            (pool::threads() + 1).saturating_mul(format.cols * block)
        } else {
            cols.min(n.next_multiple_of(format.cols)).saturating_mul(depth)
        };
        let waiting = if blocks > 1 { rows * cols } else { 0 };
        let words = |side: usize, room: usize| format.place(side, room).div_ceil(size_of::<f32>());
        let rooms = [words(0, a_room), if self.packed_columns.is_some() { 0 } else { words(1, b_room) }, waiting];
        with_scratch(rooms, |[a, b, partial]| {
            let (a, b, partial) = (Address(a.as_mut_ptr()), Address(b.as_mut_ptr()), partial.as_mut_ptr());
            let range = |i: usize, size: usize, n: usize| i * size..n.min((i + 1) * size);
            // The chunks of lines and of K that are packed now.
            let (mut packed_a, mut packed_b) = (None, None);
            for w in 0..wide {
                let here_n = range(w, cols, n);
                for t in 0..tall {
                    let here_m = range(t, rows, m);
                    for d in 0..deep {
                        let here_k = range(d, depth, k);
                        let new = [
                            packed_a.replace((t, d)) != Some((t, d)) && self.packed.is_none(),
                            packed_b.replace((w, d)) != Some((w, d)) && !own && self.packed_columns.is_none(),
                        ];
                        let left = PackedFactor {
                            factor: lhs,
                            lines: here_m.clone(),
                            width: height,
                            unit: 1,
                            format,
                            side: 0,
                            to: Address(a.get().cast()),
                            room: a_room,
                            found: found.map(|found| &found[0]),
                        };
                        let right = PackedFactor {
                            factor: rhs,
                            lines: here_n.clone(),
                            width: format.cols,
                            unit: format.lanes,
                            format,
                            side: 1,
                            to: Address(b.get().cast()),
                            room: b_room,
                            found: found.map(|found| &found[1]),
                        };
                        // SAFETY: the panels have room for these lines and this range of K.
                        unsafe { pack([&left, &right], new, here_k.clone(), parallel) };
                        if found.is_some_and(|found| !found.iter().all(Found::suits)) {
                            return false;
                        }
                        let shape = PanelBlock {
                            tiles: format.tiles,
                            depth: 0,
                            done: [0; 2],
                            skipped: if self.packed.is_some() { here_k.start } else { 0 },
                            a: match self.packed {
                                // The panels before the chunk hold all of K.
                                Some(_) => lhs.address.cast::<f32>().wrapping_add(here_m.start * k),
                                None => a.get(),
                            },
                            height,
                            a_panel: height * if self.packed.is_some() { k } else { here_k.len() },
                            b: match self.packed_columns {
                                Some(panels) => panels.wrapping_add(format.place(1, here_n.start * k)),
                                None => b.get().cast(),
                            },
                            b_panel: format.cols * here_k.len(),
                            partial,
                            first: false,
                            last: false,
                            corner: (here_m.start, here_n.start),
                            size: (here_m.len(), here_n.len()),
                            out: self.out,
                            finish: self.finish,
                        };
                        let own = own.then_some(&right);
                        // SAFETY: the panels are packed, except for those that a task packs itself,
                        // and the chunk is inside the output.
                        unsafe { multiply(format, shape, own, here_k, block, k, parallel) };
                    }
                }
            }
            found.is_none_or(|found| found.iter().all(Found::suits))
        })
    }
}

/// Height of the tiles for `m` rows: as many as the registers hold, or one less if that fills the
/// last tile better, because a tile of few rows is slow.
fn height(most: usize, m: usize) -> usize {
    let missing = |height: usize| m.next_multiple_of(height) - m;
    if most > 1 && missing(most - 1) < missing(most) { most - 1 } else { most }
}

/// The number of panels of `height` rows and one block along K that stay in the L2 cache while
/// columns stream through it.
fn panels_in_l2(height: usize, block: usize) -> usize {
    (L2_ROWS / (height * block.max(1))).max(1)
}

/// An address that may cross threads; the code that sends it states why that is sound.
#[derive(Clone, Copy)]
struct Address<T>(*mut T);
// SAFETY: an address alone; the code that dereferences it states why that is sound.
unsafe impl<T> Send for Address<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Address<T> {}

impl<T> Address<T> {
    /// The address; a method, so that closures capture the whole wrapper.
    fn get(self) -> *mut T {
        self.0
    }
}

/// Lines of a factor, and the panels that they are packed into.
struct PackedFactor<'a> {
    factor: Factor,
    lines: Range<usize>,
    width: usize,
    /// A step along K of the last panel has a multiple of this many elements.
    unit: usize,
    format: &'a PanelFormat,
    /// 0 for rows, 1 for columns.
    side: usize,
    to: Address<u8>,
    /// Capacity of the panels in elements.
    room: usize,
    found: Option<&'a Found>,
}

impl PackedFactor<'_> {
    /// The job of packing at most `lines` lines (whole panels) from `begin` on, over the range `k`,
    /// to element `to` of the panels.
    fn job(&self, begin: usize, lines: usize, k: &Range<usize>, to: usize) -> Pack {
        let lines = lines.min(self.lines.len() - begin);
        // Runs at most once for each panel, and the kernels write without a bounds check.
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
            found: self.found.map_or(std::ptr::null(), std::ptr::from_ref),
        }
    }

    /// The address of element `i` of the panels.
    fn place(&self, i: usize) -> *mut u8 {
        self.to.get().wrapping_add(self.format.place(self.side, i))
    }
}

/// Packs the range `k` of the factors that are `new`.
///
/// # Safety
/// The lines are inside the factors, and the destinations have room and are accessed by no other
/// thread.
unsafe fn pack(sides: [&PackedFactor<'_>; 2], new: [bool; 2], k: Range<usize>, parallel: bool) {
    // Panels for each task: interleaved panels stay together. Lines that are not contiguous are not
    // interleaved.
    let group = |side: &PackedFactor<'_>| {
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
        // SAFETY: whole panels of the caller; each task has its own.
        unsafe { (side.format.pack[side.side])(job) };
    });
}

/// Multiplies a chunk, one block along K after the other. Its rows are packed, and so are its
/// columns unless `own` is given: then each thread has room for one panel of one block, which it
/// packs itself.
///
/// # Safety
/// The panels hold the range `chunk` of `0..k`; the chunk is inside the output, and no other thread
/// accesses it.
unsafe fn multiply(
    format: &PanelFormat,
    shape: PanelBlock<'_>,
    own: Option<&PackedFactor<'_>>,
    chunk: Range<usize>,
    block: usize,
    k: usize,
    parallel: bool,
) {
    let (m, n) = shape.size;
    let (tall, wide) = (m.div_ceil(shape.height), n.div_ceil(format.cols));
    let work = m.saturating_mul(n).saturating_mul(chunk.len());
    // If each task packs its panels, small tasks cost nothing and balance the load better.
    let most = if own.is_some() { usize::MAX } else { 8 * pool::threads() };
    let wanted = if parallel { (work / TASK_WORK).clamp(1, most) } else { 1 };
    // Rows first: the packed rows of a task stay in its cache while columns stream through it.
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
                // SAFETY: the caller guarantees the panels; each task has its own tiles.
                None => cols.clone().for_each(|j| unsafe { shape.run(format, rows.clone(), j, |_| Prefetch::NOTHING) }),
                Some(side) => {
                    let room = format.cols * block;
                    let to = room * pool::thread_index().map_or(0, |i| i + 1);
                    let panel = |j: usize, k: &Range<usize>| side.job(j * format.cols, format.cols, k, to);
                    let shape = shape.panel(side.place(to));
                    for j in cols.clone() {
                        let (j_next, k_next) = if j + 1 < cols.end {
                            (j + 1, here.clone())
                        } else if here.end < chunk.end {
                            (cols.start, here.end..chunk.end.min(here.end + block))
                        } else {
                            // The first panel of the next task, which is usually run by this
                            // thread.
                            (j + 1, chunk.start..chunk.end.min(chunk.start + block))
                        };
                        let next = (j_next < wide).then(|| panel(j_next, &k_next));
                        let count = rows.len();
                        let ahead =
                            |i: usize| next.as_ref().map_or(Prefetch::NOTHING, |next| Prefetch::of(next, i, count));
                        // SAFETY: the room belongs to this thread, which runs one task at a time;
                        // the caller guarantees the rest.
                        unsafe {
                            (format.pack[1])(panel(j, &here));
                            shape.run(format, rows.clone(), j, ahead);
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
