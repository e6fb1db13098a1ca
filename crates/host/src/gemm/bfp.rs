//! Products of fp16 factors in block floating point: sums of 16-bit integers, which the dot
//! products of AVX-512 VNNI take two at a time.
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

use std::arch::x86_64::*;
use std::sync::atomic::Ordering::Relaxed;

use half::f16;

use super::halves::TransposeF16 as _;
use super::isa::{Avx512, PanelFormat};
use super::pack::{Pack, panel_lines, source};
use super::tile::{PanelBlock, Spot, Tile, complete};
use super::vector::{ElementType, Simd as _};

/// Steps along K of a block.
pub(super) const BLOCK: usize = 32;
/// The largest norm of the integers of a block: with the rounding, its square is below 2³¹.
const NORM: f32 = 46330.0;
/// The largest integer of a block, which is at most 16 bits wide with its sign.
const LARGEST: f32 = 32767.0;
/// Below the norm of every block that is not zero; it keeps quotients finite.
const LEAST: f32 = 1e-18;
/// Lines that are converted together.
const LINES: usize = 16;
/// The most lines of narrow panels that are packed together, whole vectors.
const TOGETHER: usize = 3 * LINES;
/// Pairs of steps of a block, and the units.
const ROWS: usize = BLOCK / 2 + 1;
/// Columns of a full tile.
const COLS: usize = 32;
/// Bytes of a block of one line: the integers, and the unit.
const BYTES: usize = 2 * BLOCK + size_of::<f32>();

/// Panels of integers, and their tiles.
pub(super) const FORMAT: PanelFormat = PanelFormat {
    rows: TILES.len(),
    cols: COLS,
    lanes: LINES,
    tiles: TILES,
    pack: [pack; 2],
    bytes: [BYTES; 2],
    unit: BLOCK,
    step: BLOCK,
};

const TILES: &[&[Tile]] = &[
    &[tile::<1, 1>, tile::<1, 2>],
    &[tile::<2, 1>, tile::<2, 2>],
    &[tile::<3, 1>, tile::<3, 2>],
    &[tile::<4, 1>, tile::<4, 2>],
    &[tile::<5, 1>, tile::<5, 2>],
    &[tile::<6, 1>, tile::<6, 2>],
];

/// Whether the processor has the dot products, in addition to the AVX-512 of the other kernels.
pub(super) fn is_supported() -> bool {
    std::arch::is_x86_feature_detected!("avx512vnni")
}

/// Bytes of elements of panels, whole blocks.
#[inline(always)]
const fn bytes(elements: usize) -> usize {
    elements / BLOCK * BYTES
}

/// Packs lines of fp16 or fp32.
///
/// # Safety
/// As of [`super::pack::pack`], for panels of [`FORMAT`]; the steps are whole blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn pack(job: Pack) {
    // SAFETY: the caller guarantees it.
    let counts = unsafe {
        match (job.factor.kind, job.width < LINES) {
            (ElementType::F16, true) => narrow::<f16>(&job),
            (ElementType::F16, false) => wide::<f16>(&job),
            (_, true) => narrow::<f32>(&job),
            (_, false) => wide::<f32>(&job),
        }
    };
    // SAFETY: the factor's counts outlive the product.
    if let Some(found) = unsafe { job.found.as_ref() } {
        for (sum, count) in [&found.blocks, &found.single, &found.special].into_iter().zip(counts) {
            sum.fetch_add(count, Relaxed);
        }
    }
}

/// Packs into panels of at least [`LINES`] lines. Returns the counts of [`super::pack::Found`].
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn wide<T: BlockElement>(job: &Pack) -> [usize; 3] {
    let mut counts = [0; 3];
    for q in 0..job.lines.div_ceil(job.width) {
        let (lines, pitch) = panel_lines(job, q);
        let panel = job.to.wrapping_add(bytes(q * job.width * job.depth));
        for p in (0..job.depth).step_by(BLOCK) {
            let to = panel.wrapping_add(bytes(p * pitch)).cast::<i32>();
            for i in (0..lines).step_by(LINES) {
                let count = LINES.min(lines - i);
                // SAFETY: the lines and steps are inside the factor, and the panel has room for the
                // block: the lines of its steps are whole vectors.
                let found = unsafe { pack_block::<T>(job, (q * job.width + i, count), p, to, (i, pitch)) };
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
unsafe fn narrow<T: BlockElement>(job: &Pack) -> [usize; 3] {
    let mut counts = [0; 3];
    let together = TOGETHER / job.width * job.width;
    for first in (0..job.lines).step_by(together) {
        let lines = together.min(job.lines - first);
        for p in (0..job.depth).step_by(BLOCK) {
            // The pairs of steps, and the units.
            let mut block = [[0i32; TOGETHER]; ROWS];
            for i in (0..lines).step_by(LINES) {
                let (count, to) = (LINES.min(lines - i), block.as_flattened_mut().as_mut_ptr());
                // SAFETY: the lines and steps are inside the factor, and the block has room for
                // whole vectors of lines.
                let found = unsafe { pack_block::<T>(job, (first + i, count), p, to, (i, TOGETHER)) };
                add(&mut counts, found, count);
            }
            for at in (0..lines).step_by(job.width) {
                let q = (first + at) / job.width;
                let (count, pitch) = panel_lines(job, q);
                let to = job.to.wrapping_add(bytes(q * job.width * job.depth + p * pitch)).cast::<i32>();
                for (row, from) in block.iter().enumerate() {
                    let (from, to) = (&from[at..at + count], to.wrapping_add(row * pitch));
                    // SAFETY: the panel has room for the block.
                    unsafe {
                        match from.first_chunk::<{ TILES.len() }>() {
                            // A size that is a compile-time constant.
                            Some(from) => to.cast::<[i32; TILES.len()]>().write_unaligned(*from),
                            None => to.copy_from_nonoverlapping(from.as_ptr(), count),
                        }
                    }
                }
            }
        }
    }
    counts
}

/// Adds the lines of a block in which something was found.
#[inline(always)]
fn add(counts: &mut [usize; 3], found: [__mmask16; 3], lines: usize) {
    for (sum, found) in counts.iter_mut().zip(found) {
        *sum += (found & mask(lines)).count_ones() as usize;
    }
}

/// A type of the elements of a factor.
///
/// # Safety
/// For every function here: the processor supports the instructions of this module.
trait BlockElement: Copy + Default {
    /// Widens the first elements, up to the end of the mask.
    unsafe fn load(from: *const Self, present: __mmask16) -> __m512;
    /// Transposes [`BLOCK`] steps of [`LINES`] lines of neighboring elements.
    unsafe fn turn(line: impl Fn(usize) -> *const Self, to: &mut [[Self; LINES]; BLOCK]);
}

impl BlockElement for f16 {
    #[inline(always)]
    unsafe fn load(from: *const f16, present: __mmask16) -> __m512 {
        // SAFETY: the caller guarantees the elements of the mask.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(present, from.cast())) }
    }
    #[inline(always)]
    unsafe fn turn(line: impl Fn(usize) -> *const f16, to: &mut [[f16; LINES]; BLOCK]) {
        // SAFETY: the caller guarantees the elements.
        unsafe { Avx512::transpose_f16(line, to.as_flattened_mut().as_mut_ptr(), LINES) }
    }
}

impl BlockElement for f32 {
    #[inline(always)]
    unsafe fn load(from: *const f32, present: __mmask16) -> __m512 {
        // SAFETY: the caller guarantees the elements of the mask.
        unsafe { _mm512_maskz_loadu_ps(present, from) }
    }
    #[inline(always)]
    unsafe fn turn(line: impl Fn(usize) -> *const f32, to: &mut [[f32; LINES]; BLOCK]) {
        for (half, steps) in to.chunks_exact_mut(LINES).enumerate() {
            // SAFETY: the caller guarantees the elements.
            unsafe {
                let mut rows = [_mm512_setzero_ps(); LINES];
                for (r, row) in rows.iter_mut().enumerate() {
                    *row = _mm512_loadu_ps(line(r).add(half * LINES));
                }
                for (step, row) in steps.iter_mut().zip(Avx512::transpose(rows)) {
                    _mm512_storeu_ps(step.as_mut_ptr(), row);
                }
            }
        }
    }
}

/// Packs a block of up to [`LINES`] lines.
///
/// # Safety
/// As [`fixed`]; the lines and steps are inside the factor, whose elements have this type.
#[inline(always)]
unsafe fn pack_block<T: BlockElement>(
    job: &Pack,
    (line, count): (usize, usize),
    p: usize,
    to: *mut i32,
    place: (usize, usize),
) -> [__mmask16; 3] {
    // SAFETY: the caller guarantees it.
    unsafe {
        if job.factor.line == 1 {
            let (first, present) = (source::<T>(job, line, p), mask(count));
            return fixed(|s| T::load(first.wrapping_offset(job.factor.depth * s as isize), present), to, place);
        }
        let mut steps = [[T::default(); LINES]; BLOCK];
        turned(job, (line, count), p, &mut steps);
        fixed(|s| T::load(steps[s].as_ptr(), mask(LINES)), to, place)
    }
}

#[inline(always)]
fn mask(lines: usize) -> __mmask16 {
    ((1u32 << lines) - 1) as __mmask16
}

/// Copies a block of some lines, so that the elements of a step are contiguous. The last line
/// stands in for missing ones.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn turned<T: BlockElement>(
    job: &Pack,
    (line, count): (usize, usize),
    p: usize,
    steps: &mut [[T; LINES]; BLOCK],
) {
    let from = |r: usize, s: usize| source::<T>(job, line + r.min(count - 1), p + s);
    // SAFETY: the caller guarantees these elements.
    unsafe {
        if job.factor.depth == 1 {
            if p + 3 * BLOCK <= job.depth {
                for r in 0..count {
                    _mm_prefetch::<_MM_HINT_T0>(from(r, 2 * BLOCK).cast());
                }
            }
            T::turn(|r| from(r, 0), steps);
        } else {
            for (s, step) in steps.iter_mut().enumerate() {
                for (r, value) in step.iter_mut().enumerate() {
                    *value = from(r, s).read();
                }
            }
        }
    }
}

/// Writes a block of [`LINES`] lines, from line `i` of a panel of `pitch` lines on. Returns which
/// lines have a value that is not zero, a single one, and one that is not finite.
///
/// # Safety
/// The panel has room for the block; the processor supports the instructions.
#[inline(always)]
unsafe fn fixed(load: impl Fn(usize) -> __m512, to: *mut i32, (i, pitch): (usize, usize)) -> [__mmask16; 3] {
    // SAFETY: the caller guarantees it.
    unsafe {
        let (mut squares, mut largest) = ([_mm512_setzero_ps(); 4], [_mm512_setzero_ps(); 4]);
        for s in 0..BLOCK {
            let x = load(s);
            squares[s % 4] = _mm512_fmadd_ps(x, x, squares[s % 4]);
            // The larger magnitude, without a sign.
            largest[s % 4] = _mm512_range_ps::<0b1011>(x, largest[s % 4]);
        }
        let squares = _mm512_add_ps(_mm512_add_ps(squares[0], squares[1]), _mm512_add_ps(squares[2], squares[3]));
        let largest = _mm512_max_ps(_mm512_max_ps(largest[0], largest[1]), _mm512_max_ps(largest[2], largest[3]));
        let norm = _mm512_max_ps(_mm512_sqrt_ps(squares), _mm512_set1_ps(LEAST));
        let factor =
            _mm512_min_ps(_mm512_div_ps(_mm512_set1_ps(NORM), norm), _mm512_div_ps(_mm512_set1_ps(LARGEST), largest));
        for pair in 0..BLOCK / 2 {
            let [low, high] = [0, 1].map(|s| _mm512_cvtps_epi32(_mm512_mul_ps(load(2 * pair + s), factor)));
            let both = _mm512_mask_blend_epi16(0xAAAA_AAAA, low, _mm512_slli_epi32::<16>(high));
            _mm512_storeu_si512(to.wrapping_add(pair * pitch + i).cast(), both);
        }
        let unit = _mm512_div_ps(_mm512_set1_ps(1.0), factor);
        _mm512_storeu_ps(to.cast::<f32>().wrapping_add(BLOCK / 2 * pitch + i), unit);
        let zero = _mm512_setzero_ps();
        [
            _mm512_cmp_ps_mask::<_CMP_GT_OQ>(largest, zero),
            _mm512_cmp_ps_mask::<_CMP_GT_OQ>(largest, zero)
                & _mm512_cmp_ps_mask::<_CMP_LE_OQ>(squares, _mm512_mul_ps(largest, largest)),
            _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(squares, _mm512_set1_ps(f32::INFINITY)),
        ]
    }
}

/// Computes a tile of `M` rows and `N` vectors of columns.
///
/// # Safety
/// As [`super::tile::tile`], for panels of [`FORMAT`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn tile<const M: usize, const N: usize>(block: &PanelBlock<'_>, spot: Spot) {
    let width = N * LINES;
    // SAFETY: the panels hold whole blocks of `M` rows and of `width` columns.
    unsafe {
        let rows = spot.i * block.a_panel + (block.skipped + block.done[0]) * M;
        let a = block.a.cast::<u8>().add(bytes(rows));
        let b = block.b.add(bytes(spot.j * block.b_panel + block.done[1] * width));
        let mut sums = [[_mm512_setzero_ps(); N]; M];
        let blocks = block.depth / BLOCK;
        let mut ahead = spot.ahead.by(blocks);
        for t in 0..blocks {
            ahead.some(|at| _mm_prefetch::<_MM_HINT_T0>(at.cast()));
            let (a, b) = (a.add(t * BYTES * M).cast::<i32>(), b.add(t * BYTES * width).cast::<i32>());
            let mut whole = [[_mm512_setzero_si512(); N]; M];
            for pair in 0..BLOCK / 2 {
                let line: [__m512i; N] =
                    std::array::from_fn(|v| _mm512_loadu_si512(b.add(pair * width + v * LINES).cast()));
                for i in 0..M {
                    let x = _mm512_set1_epi32(a.add(pair * M + i).read_unaligned());
                    for v in 0..N {
                        whole[i][v] = _mm512_dpwssd_epi32(whole[i][v], line[v], x);
                    }
                }
            }
            let (rows, cols) = (a.add(BLOCK / 2 * M).cast::<f32>(), b.add(BLOCK / 2 * width).cast::<f32>());
            for v in 0..N {
                let col = _mm512_loadu_ps(cols.add(v * LINES));
                for i in 0..M {
                    let unit = _mm512_mul_ps(col, _mm512_set1_ps(rows.add(i).read_unaligned()));
                    sums[i][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[i][v]), unit, sums[i][v]);
                }
            }
        }
        complete::<Avx512, M, N>(block, spot, COLS, sums);
    }
}
