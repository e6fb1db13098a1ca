//! Products of fp16 factors in block floating point: sums of 16-bit integers, of which AVX2
//! multiplies and adds twice as many at a time as fp32 values, and AVX-512 VNNI too.
//!
//! Each line of a factor becomes, for each block of [`BLOCK`] steps along K, integers and a unit.
//! The unit is the smallest for which the integers have 16 bits and a Euclidean norm of at most
//! [`NORM`]. By the Cauchy–Schwarz inequality no partial sum of products of two blocks reaches 2³¹
//! then. The exact sum of a block is scaled by both units and added in fp32 with a fused
//! multiply-add, block after block.
//!
//! *Tolerance.* The values of a block with the norm ‖x‖ are rounded to multiples of ‖x‖ / 46,330,
//! or of 1/32,767 of the largest if that is more. Where the values of a block are of similar
//! magnitude, this error is a sixth of that of rounding them to fp16, and a result in fp16 has an
//! error 3 % larger than after sums in fp32. A value far below the norm of its block loses bits;
//! that matters where it is multiplied by a factor that lets little else through. Factors most of
//! whose blocks hold a single value, such as permutations and selections, are therefore left to
//! fp32 sums, and so are those with a value that is not finite, so that NaN and infinity follow
//! IEEE 754 ([`Found::suits`](super::pack::Found::suits)).
//!
//! Panels have the order of [`super::pack`], with a block instead of [`BLOCK`] steps: for each
//! of its pairs of steps `[line][2]` integers, then the units of the lines.

use std::sync::atomic::Ordering::Relaxed;

use half::f16;

use super::pack::{Pack, panel_lines, source, transposed};
use super::tile::{PanelBlock, Spot, complete};
use super::vector::{Element, ElementType, Simd};

mod x86;
pub(super) use x86::{AVX2, AVX512, has_avx512_vnni};

/// Steps along K of a block.
pub(super) const BLOCK: usize = 32;
/// The largest norm of the integers of a block: with the rounding, its square is below 2³¹.
const NORM: f32 = 46330.0;
/// The largest integer of a block, which is at most 16 bits wide with its sign.
const LARGEST: f32 = 32767.0;
/// Below the norm of every block that is not zero; it keeps quotients finite.
const LEAST: f32 = 1e-18;
/// The most lines of a vector.
const MOST_LANES: usize = 16;
/// Rows of the tallest tile.
const HEIGHT: usize = 6;
/// Lines of a narrow panel that are copied together: at least those of the tallest tile, at most
/// twice those of any tile but the last.
const COPIED: usize = 8;
const _: () = assert!(HEIGHT <= COPIED && COPIED <= 2 * (HEIGHT - 1));
/// The most lines of narrow panels that are packed together, whole vectors.
const TOGETHER: usize = 3 * MOST_LANES;
/// Pairs of steps of a block, and the units.
pub(super) const ROWS: usize = BLOCK / 2 + 1;
/// Bytes of a block of one line: the integers, and the unit.
const BYTES: usize = 2 * BLOCK + size_of::<f32>();

/// The operations that blocks need of an instruction set.
///
/// # Safety
/// As of [`Simd`].
pub(super) trait BlockSimd: Simd {
    /// `LANES` pairs of 16-bit integers, or `LANES` sums of 32 bits.
    type Integers: Copy;

    unsafe fn no_sums() -> Self::Integers;
    unsafe fn load_pairs(from: *const i32) -> Self::Integers;
    unsafe fn splat_pair(pair: i32) -> Self::Integers;
    unsafe fn store_pairs(to: *mut i32, pairs: Self::Integers);
    /// Adds both products of each pair.
    unsafe fn dot(sums: Self::Integers, a: Self::Integers, b: Self::Integers) -> Self::Integers;
    unsafe fn to_fp32(sums: Self::Integers) -> Self::V;
    /// Rounds both to 16-bit integers, of which each pair has one.
    unsafe fn pairs(first: Self::V, second: Self::V) -> Self::Integers;
    /// For each value, its magnitude if that is larger than `largest`, else `largest`, which is not
    /// negative.
    unsafe fn larger_magnitude(v: Self::V, largest: Self::V) -> Self::V;
    unsafe fn square_root(v: Self::V) -> Self::V;
    unsafe fn quotient(a: Self::V, b: Self::V) -> Self::V;
    /// A bit for each lane: whether `a < b`, which no NaN is.
    unsafe fn less(a: Self::V, b: Self::V) -> u32;
    /// Transposes [`BLOCK`] steps of `LANES` lines of neighboring elements.
    unsafe fn transpose_halves(line: impl Fn(usize) -> *const f16, to: &mut Steps<f16>);
}

/// Packs lines of fp16 or fp32.
///
/// # Safety
/// As of [`super::pack::pack`], for panels of blocks; the steps are whole blocks.
#[inline(always)]
unsafe fn pack<S: BlockSimd>(job: &Pack) {
    // SAFETY: the caller guarantees it.
    let counts = unsafe {
        match (job.factor.kind, job.width < S::LANES) {
            (ElementType::F16, true) => narrow::<S, f16>(job),
            (ElementType::F16, false) => wide::<S, f16>(job),
            (_, true) => narrow::<S, f32>(job),
            (_, false) => wide::<S, f32>(job),
        }
    };
    // SAFETY: the factor's counts outlive the product.
    if let Some(found) = unsafe { job.found.as_ref() } {
        for (sum, count) in [&found.blocks, &found.single, &found.special].into_iter().zip(counts) {
            sum.fetch_add(count, Relaxed);
        }
    }
}

/// Bytes of elements of panels, whole blocks.
#[inline(always)]
const fn bytes(elements: usize) -> usize {
    elements / BLOCK * BYTES
}

/// Packs into panels of at least a vector of lines. Returns the counts of [`super::pack::Found`].
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn wide<S: BlockSimd, T: BlockElement>(job: &Pack) -> [usize; 3] {
    let (mut counts, mut steps) = ([0; 3], [[T::default(); MOST_LANES]; BLOCK]);
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch) = panel_lines(job, q);
        let panel = job.to.wrapping_add(bytes(q * job.width * job.depth));
        for p in (0..job.depth).step_by(BLOCK) {
            let to = panel.wrapping_add(bytes(p * pitch)).cast::<i32>();
            for i in (0..lines).step_by(S::LANES) {
                let count = S::LANES.min(lines - i);
                // SAFETY: the lines and steps are inside the factor, and the panel has room for the
                // block: the lines of its steps are whole vectors.
                let found =
                    unsafe { pack_block::<S, T>(job, (q * job.width + i, count), p, &mut steps, to, (i, pitch)) };
                add(&mut counts, found, count);
            }
        }
    }
    counts
}

/// Packs into panels of fewer lines, some of them together, because vectors hold more lines.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn narrow<S: BlockSimd, T: BlockElement>(job: &Pack) -> [usize; 3] {
    let (mut counts, mut steps) = ([0; 3], [[T::default(); MOST_LANES]; BLOCK]);
    let together = TOGETHER / job.width * job.width;
    // The pairs of steps, and the units.
    let mut block = [[0i32; TOGETHER]; ROWS];
    let block = block.as_flattened_mut();
    for first in (0..job.lines).step_by(together) {
        let lines = together.min(job.lines - first);
        for p in (0..job.depth).step_by(BLOCK) {
            for i in (0..lines).step_by(S::LANES) {
                let (count, to) = (S::LANES.min(lines - i), block.as_mut_ptr());
                // SAFETY: the lines and steps are inside the factor, and the block has room for
                // whole vectors of lines.
                let found = unsafe { pack_block::<S, T>(job, (first + i, count), p, &mut steps, to, (i, TOGETHER)) };
                add(&mut counts, found, count);
            }
            for at in (0..lines).step_by(job.width) {
                let q = (first + at) / job.width;
                let (count, pitch) = panel_lines(job, q);
                let to = job.to.wrapping_add(bytes(q * job.width * job.depth + p * pitch)).cast::<i32>();
                // SAFETY: the block has these lines, and the panel has room for it.
                unsafe { copy_lines(&block[at..], to, count, pitch) };
            }
        }
    }
    counts
}

/// Copies `count` lines of a block of [`TOGETHER`] lines into a panel of `pitch` lines.
///
/// Copies of a few bytes whose number is known only at run time are function calls. Lines of a tile
/// are therefore copied as a whole [`COPIED`] lines: what is too much of a row is overwritten by
/// the next one, and the last row is copied in two parts that overlap.
///
/// # Safety
/// The panel has room for the block.
#[inline(always)]
unsafe fn copy_lines(block: &[i32], to: *mut i32, count: usize, pitch: usize) {
    let row = |row: usize| (block[row * TOGETHER..].as_ptr(), to.wrapping_add(row * pitch));
    // SAFETY: a row and the next one have more than `COPIED` elements; the caller guarantees the
    // rest.
    unsafe {
        if count == pitch && (COPIED / 2..=COPIED).contains(&count) {
            for (from, to) in (0..ROWS - 1).map(row) {
                to.copy_from_nonoverlapping(from, COPIED);
            }
            let (from, to) = row(ROWS - 1);
            for at in [0, count - COPIED / 2] {
                to.wrapping_add(at).copy_from_nonoverlapping(from.wrapping_add(at), COPIED / 2);
            }
        } else {
            for (from, to) in (0..ROWS).map(row) {
                to.copy_from_nonoverlapping(from, count);
            }
        }
    }
}

/// Adds the lines of a block in which something was found.
#[inline(always)]
fn add(counts: &mut [usize; 3], found: [u32; 3], lines: usize) {
    for (sum, found) in counts.iter_mut().zip(found) {
        *sum += (found & ((1 << lines) - 1)).count_ones() as usize;
    }
}

/// A type of the elements of a factor.
trait BlockElement: Element + Default {
    /// Transposes [`BLOCK`] steps of a vector of lines of neighboring elements.
    ///
    /// # Safety
    /// As of [`Simd`].
    unsafe fn transpose<S: BlockSimd>(line: impl Fn(usize) -> *const Self, to: &mut Steps<Self>);
}

impl BlockElement for f16 {
    #[inline(always)]
    unsafe fn transpose<S: BlockSimd>(line: impl Fn(usize) -> *const f16, to: &mut Steps<f16>) {
        // SAFETY: the caller guarantees it.
        unsafe { S::transpose_halves(line, to) }
    }
}

impl BlockElement for f32 {
    #[inline(always)]
    unsafe fn transpose<S: BlockSimd>(line: impl Fn(usize) -> *const f32, to: &mut Steps<f32>) {
        for (i, steps) in to.chunks_exact_mut(S::LANES).enumerate() {
            // SAFETY: the caller guarantees the elements.
            unsafe {
                let rows = transposed::<S>(|r| S::load(line(r).add(i * S::LANES)));
                for (step, row) in steps.iter_mut().zip(rows.as_ref()) {
                    S::store(step.as_mut_ptr(), *row);
                }
            }
        }
    }
}

/// A block of lines whose elements of a step are contiguous.
type Steps<T> = [[T; MOST_LANES]; BLOCK];

/// Packs a block of up to a vector of lines. `steps` is scratch memory.
///
/// # Safety
/// As [`fixed`]; the lines and steps are inside the factor, whose elements have this type.
#[inline(always)]
unsafe fn pack_block<S: BlockSimd, T: BlockElement>(
    job: &Pack,
    (line, count): (usize, usize),
    p: usize,
    steps: &mut Steps<T>,
    to: *mut i32,
    place: (usize, usize),
) -> [u32; 3] {
    // SAFETY: the caller guarantees it.
    unsafe {
        if job.factor.line == 1 {
            let first = source::<T>(job, line, p);
            let at = |s: usize| first.wrapping_offset(job.factor.depth * s as isize);
            return match count == S::LANES {
                true => fixed::<S>(|s| T::load::<S>(at(s)), to, place),
                false => fixed::<S>(|s| T::load_part::<S>(at(s), count), to, place),
            };
        }
        turned::<S, T>(job, (line, count), p, steps);
        fixed::<S>(|s| T::load::<S>(steps[s].as_ptr()), to, place)
    }
}

/// Copies a block of some lines, so that the elements of a step are contiguous. The last line
/// stands in for missing ones.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn turned<S: BlockSimd, T: BlockElement>(
    job: &Pack,
    (line, count): (usize, usize),
    p: usize,
    steps: &mut Steps<T>,
) {
    let from = |r: usize, s: usize| source::<T>(job, line + r.min(count - 1), p + s);
    // SAFETY: the caller guarantees these elements.
    unsafe {
        if job.factor.depth == 1 {
            if p + 3 * BLOCK <= job.depth {
                for r in 0..count {
                    S::prefetch(from(r, 2 * BLOCK).cast());
                }
            }
            T::transpose::<S>(|r| from(r, 0), steps);
        } else {
            for (s, step) in steps.iter_mut().enumerate() {
                for (r, value) in step.iter_mut().enumerate().take(S::LANES) {
                    *value = from(r, s).read();
                }
            }
        }
    }
}

/// Writes a block of a vector of lines, from line `i` of a panel of `pitch` lines on. Returns which
/// lines have a value that is not zero, a single one, and one that is not finite.
///
/// # Safety
/// The panel has room for the block; the processor supports the set.
#[inline(always)]
unsafe fn fixed<S: BlockSimd>(load: impl Fn(usize) -> S::V, to: *mut i32, (i, pitch): (usize, usize)) -> [u32; 3] {
    // SAFETY: the caller guarantees it.
    unsafe {
        let (mut squares, mut largest) = ([S::splat(0.0); 4], [S::splat(0.0); 4]);
        for first in (0..BLOCK).step_by(4) {
            for i in 0..4 {
                let x = load(first + i);
                squares[i] = S::fma(x, x, squares[i]);
                largest[i] = S::larger_magnitude(x, largest[i]);
            }
        }
        let squares = S::add(S::add(squares[0], squares[1]), S::add(squares[2], squares[3]));
        let largest = [1, 2, 3].into_iter().fold(largest[0], |all, s| S::larger_magnitude(largest[s], all));
        let norm = S::at_least(S::splat(LEAST), S::square_root(squares));
        let by_norm = S::quotient(S::splat(NORM), norm);
        // No more than by the norm if all values are zero.
        let factor = S::at_most(by_norm, S::quotient(S::splat(LARGEST), largest));
        for pair in 0..BLOCK / 2 {
            let [first, second] = [0, 1].map(|s| S::mul(load(2 * pair + s), factor));
            S::store_pairs(to.wrapping_add(pair * pitch + i), S::pairs(first, second));
        }
        let unit = S::quotient(S::splat(1.0), factor);
        S::store(to.cast::<f32>().wrapping_add(BLOCK / 2 * pitch + i), unit);
        let not_zero = S::less(S::splat(0.0), largest);
        let several = S::less(S::mul(largest, largest), squares);
        [not_zero, not_zero & !several, !S::less(squares, S::splat(f32::INFINITY))]
    }
}

/// Computes a tile of `M` rows and `N` vectors of columns; the tiles before it have `full` columns.
///
/// # Safety
/// As [`super::tile::tile`], for panels of blocks.
#[inline(always)]
unsafe fn tile<S: BlockSimd, const M: usize, const N: usize>(block: &PanelBlock<'_>, spot: Spot, full: usize) {
    let width = N * S::LANES;
    // SAFETY: the panels hold whole blocks of `M` rows and of `width` columns.
    unsafe {
        let rows = spot.i * block.a_panel + (block.skipped + block.done[0]) * M;
        let a = block.a.cast::<u8>().add(bytes(rows));
        let b = block.b.add(bytes(spot.j * block.b_panel + block.done[1] * width));
        let blocks = block.depth / BLOCK;
        let mut ahead = spot.ahead.by(blocks);
        let sums = add_blocks::<S, M, N>((a, b), blocks, [[S::splat(0.0); N]; M], || ahead.some(|at| S::prefetch(at)));
        complete::<S, M, N>(block, spot, full, sums);
    }
}

/// Adds to the `sums` those of the next blocks of a panel of `M` rows and one of `N` vectors of
/// columns, one block after the other.
///
/// # Safety
/// The panels have these blocks; the processor supports the set.
#[inline(always)]
pub(super) unsafe fn add_blocks<S: BlockSimd, const M: usize, const N: usize>(
    (a, b): (*const u8, *const u8),
    blocks: usize,
    mut sums: [[S::V; N]; M],
    mut prefetch: impl FnMut(),
) -> [[S::V; N]; M] {
    let width = N * S::LANES;
    for t in 0..blocks {
        prefetch();
        // SAFETY: the caller guarantees the blocks.
        unsafe {
            let (a, b) = (a.add(t * BYTES * M).cast::<i32>(), b.add(t * BYTES * width).cast::<i32>());
            let mut whole = [[S::no_sums(); N]; M];
            for pair in 0..BLOCK / 2 {
                let line: [S::Integers; N] = std::array::from_fn(|v| S::load_pairs(b.add(pair * width + v * S::LANES)));
                for i in 0..M {
                    let x = S::splat_pair(a.add(pair * M + i).read_unaligned());
                    for v in 0..N {
                        whole[i][v] = S::dot(whole[i][v], line[v], x);
                    }
                }
            }
            let (rows, cols) = (a.add(BLOCK / 2 * M).cast::<f32>(), b.add(BLOCK / 2 * width).cast::<f32>());
            for v in 0..N {
                let col = S::load(cols.add(v * S::LANES));
                for i in 0..M {
                    let unit = S::mul(col, S::splat(rows.add(i).read_unaligned()));
                    sums[i][v] = S::fma(S::to_fp32(whole[i][v]), unit, sums[i][v]);
                }
            }
        }
    }
    sums
}
