//! Products of many rows with codes, as sums of 16-bit integers: the prefill of a language model.
//!
//! Both factors become panels of 16-bit integers, in pairs along the sum, in the layout of
//! `gemm::bfp`, whose tiles multiply them. A row of the left factor is in fixed point for each
//! block of [`CODED_BLOCK`] values: integers of 16 bits in units of a power of two, as in
//! [`super::fixed`] but narrower. Codes are widened; their unit is their scale. The sum of a block
//! is an exact integer; it is scaled by both units and added in fp32 with a fused multiply-add,
//! block after block. So the bits depend neither on the instruction set nor on the number of
//! threads.
//!
//! A panel of [`TALL`] rows of the left factor, or of [`wide`] columns of the result, has [`ROWS`]
//! words of 32 bits for each block of each line: the [`PAIRS`] pairs, then the unit. What is beyond
//! the edge of a factor is 0.

use std::ops::Range;

use half::f16;

use super::blocks::Kernel;
use super::fixed::{CODED_BLOCK, exponent, whole};
use super::widen::widen;
use crate::gemm::vector::{ElementType, Factor};
use crate::{convert, vectorize};

/// Rows of a tile.
pub(super) const TALL: usize = 6;
/// The most columns of a tile, and those of a task.
pub(super) const WIDE: usize = 32;
/// The most rows, whole tiles, whose sums are kept: they fit the L2 cache.
pub(super) const MOST_ROWS: usize = 128 * TALL;
/// Lanes of a vector of 32 bits.
const LANES: usize = 16;
/// Pairs of a block.
const PAIRS: usize = CODED_BLOCK / 2;
/// Words of a line of a block.
pub(super) const ROWS: usize = PAIRS + 1;
/// Blocks of both factors that stay in the L1 cache while the rows stream through it.
pub(super) const L1_BLOCKS: usize = 8;

/// Rows of the left factor that are loaded together: some whole tiles.
pub(super) const GROUP: usize = 8 * TALL;

/// A block of each row of a group.
type BlockOfRows = [[f32; CODED_BLOCK]; GROUP];

/// Writes the panels of rows `first..first + rows` of the left factor, at most [`GROUP`]; false if
/// a value is not finite.
///
/// # Safety
/// These rows have `k` readable elements.
pub(super) unsafe fn left(factor: &Factor, (first, rows): (usize, usize), k: usize, to: &mut [i32]) -> bool {
    let mut x: BlockOfRows = [[0.0; CODED_BLOCK]; GROUP];
    let mut finite = true;
    let blocks = k / CODED_BLOCK;
    for block in 0..blocks {
        // SAFETY: the caller guarantees the elements; blocks are whole.
        unsafe { load(factor, (first, rows), block * CODED_BLOCK, &mut x) };
        for (x, to) in x.chunks_exact(TALL).zip(to.chunks_exact_mut(blocks * ROWS * TALL)) {
            finite &= vectorize!(fixed(x, &mut to[block * ROWS * TALL..][..ROWS * TALL]));
        }
    }
    finite
}

/// Widens a block of some rows.
///
/// # Safety
/// As [`left`], for [`CODED_BLOCK`] elements from `at` on.
unsafe fn load(factor: &Factor, (first, rows): (usize, usize), at: usize, x: &mut BlockOfRows) {
    if factor.kind == ElementType::F16 && factor.line == 1 && factor.depth >= rows as isize {
        let (depth, address) = (factor.depth as usize, factor.at(first, at).cast::<f16>());
        // SAFETY: the caller guarantees the elements of these lines, and what lies between them is
        // of the same factor.
        let from = unsafe { std::slice::from_raw_parts(address, (CODED_BLOCK - 1) * depth + rows) };
        convert::f16_to_f32_transposed(from, depth, x.as_flattened_mut(), CODED_BLOCK, CODED_BLOCK, rows);
        return;
    }
    for (i, row) in x.iter_mut().enumerate().take(rows) {
        // SAFETY: the caller guarantees the elements.
        unsafe { widen(factor, (first + i, at), row) };
    }
}

/// Rounds a block of each row of a tile to integers; false if a value is not finite.
#[inline(always)]
fn fixed(x: &[[f32; CODED_BLOCK]], to: &mut [i32]) -> bool {
    let mut top = 0u32;
    for i in 0..TALL {
        let mut largest = 0u32;
        for value in &x[i] {
            largest = largest.max(value.to_bits() & 0x7FFF_FFFF);
        }
        top = top.max(largest);
        let (factor, unit) = exponent(largest, 15);
        to[PAIRS * TALL + i] = unit.to_bits() as i32;
        let mut integers = [0i32; CODED_BLOCK];
        for p in 0..CODED_BLOCK {
            // The largest value may be rounded up to 2¹⁵.
            integers[p] = whole(x[i][p] * factor).min(i32::from(i16::MAX));
        }
        for p in 0..PAIRS {
            to[p * TALL + i] = pair(integers[2 * p], integers[2 * p + 1]);
        }
    }
    top < 0x7F80_0000
}

/// Two integers of 16 bits.
#[inline(always)]
fn pair(first: i32, second: i32) -> i32 {
    (first & 0xFFFF) | (second << 16)
}

/// Rows of codes that become panels.
pub(super) struct Rows<'a> {
    pub codes: &'a [u8],
    pub scales: &'a [u8],
    /// Codes that share a scale.
    pub block: usize,
    pub k: usize,
}

impl Rows<'_> {
    /// The panels of some blocks of the rows `lines`, as wide as the kernel's, until `to` is full.
    pub(super) fn panels(&self, kernel: Kernel, lines: Range<usize>, blocks: Range<usize>, to: &mut [i32]) {
        let (groups, wide) = (self.k / self.block, wide(kernel));
        for (i, to) in to.chunks_exact_mut(blocks.len() * ROWS * wide).enumerate() {
            let first = lines.end.min(lines.start + i * wide);
            let lines = first..lines.end.min(first + wide);
            match (kernel, lines.len() == wide) {
                // SAFETY: the kernels are made only where the processor supports them.
                #[cfg(target_arch = "x86_64")]
                (Kernel::Avx2(bits), true) => unsafe { x86::widen_avx2(self, bits, (lines.start, blocks.start), to) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                (Kernel::Vnni(bits), true) => unsafe { x86::widen_avx512(self, bits, (lines.start, blocks.start), to) },
                _ if kernel.bits() == 4 => vectorize!(self.widen::<4>(lines.clone(), blocks.start, wide, to)),
                _ => vectorize!(self.widen::<8>(lines.clone(), blocks.start, wide, to)),
            }
            for (block, to) in blocks.clone().zip(to.chunks_exact_mut(ROWS * wide)) {
                let at = 2 * (block * CODED_BLOCK / self.block);
                let units = &mut to[PAIRS * wide..];
                units.fill(0);
                for (line, unit) in lines.clone().zip(units) {
                    let own = &self.scales[2 * line * groups + at..];
                    *unit = f16::from_le_bytes([own[0], own[1]]).to_f32().to_bits() as i32;
                }
            }
        }
    }

    /// The pairs of some blocks of at most `wide` lines.
    #[inline(always)]
    fn widen<const BITS: usize>(&self, lines: Range<usize>, block: usize, wide: usize, to: &mut [i32]) {
        let (bytes, per_block) = (self.k * BITS / 8, CODED_BLOCK * BITS / 32);
        let per_word = 32 / BITS / 2;
        for (b, to) in to.chunks_exact_mut(ROWS * wide).enumerate() {
            let from = (block + b) * 4 * per_block;
            for half in 0..wide / LANES {
                for at in 0..per_block {
                    let mut words = [0u32; LANES];
                    for (lane, word) in words.iter_mut().enumerate().take(lines.len().saturating_sub(half * LANES)) {
                        let from = (lines.start + half * LANES + lane) * bytes + from + 4 * at;
                        let code = &self.codes[from..from + 4];
                        *word = u32::from_le_bytes([code[0], code[1], code[2], code[3]]);
                    }
                    for p in 0..per_word {
                        let to = &mut to[(at * per_word + p) * wide + half * LANES..][..LANES];
                        for lane in 0..LANES {
                            let word = words[lane] >> (2 * BITS * p);
                            let code = |end: usize| ((word << (32 - end)) as i32) >> (32 - BITS);
                            to[lane] = pair(code(BITS), code(2 * BITS));
                        }
                    }
                }
            }
        }
    }
}

/// Columns of a tile: all of [`WIDE`], or half of them.
pub(super) fn wide(kernel: Kernel) -> usize {
    match kernel {
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2(_) => WIDE / 2,
        _ => WIDE,
    }
}

/// Adds the products of panels of the left factor, of `blocks` blocks, and of codes, which hold
/// `some` of them, to sums in rows of [`WIDE`].
pub(super) fn multiply(
    kernel: Kernel,
    (left, blocks): (&[i32], usize),
    (right, some): (&[i32], Range<usize>),
    sums: &mut [f32],
) {
    let wide = wide(kernel);
    let left = left.chunks_exact(TALL * blocks * ROWS);
    for (left, sums) in left.zip(sums.chunks_exact_mut(TALL * WIDE)) {
        let left = &left[TALL * ROWS * some.start..TALL * ROWS * some.end];
        for (right, col) in right.chunks_exact(wide * some.len() * ROWS).zip((0..WIDE).step_by(wide)) {
            Tile { left, right }.run(kernel, &mut sums[col..]);
        }
    }
}

/// Some blocks of a panel of the left factor and of one of codes.
struct Tile<'a> {
    left: &'a [i32],
    right: &'a [i32],
}

impl Tile<'_> {
    /// Adds the sums of the blocks to [`TALL`] rows of sums, at a distance of [`WIDE`].
    fn run(&self, kernel: Kernel, sums: &mut [f32]) {
        match kernel {
            Kernel::Plain(_) => vectorize!(self.loops(sums)),
            // SAFETY: the kernels are made only where the processor supports them.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(_) => unsafe { x86::avx2(self, sums) },
            #[cfg(target_arch = "x86_64")]
            Kernel::Vnni(_) => unsafe { x86::avx512(self, sums) },
        }
    }

    #[inline(always)]
    fn loops(&self, sums: &mut [f32]) {
        for (left, right) in self.left.chunks_exact(ROWS * TALL).zip(self.right.chunks_exact(ROWS * WIDE)) {
            for i in 0..TALL {
                let mut whole = [0i32; WIDE];
                for p in 0..PAIRS {
                    let (a, b) = halves(left[p * TALL + i]);
                    let codes = &right[p * WIDE..][..WIDE];
                    for c in 0..WIDE {
                        let (x, y) = halves(codes[c]);
                        whole[c] += a * x + b * y;
                    }
                }
                let unit = f32::from_bits(left[PAIRS * TALL + i] as u32);
                let scales = &right[PAIRS * WIDE..][..WIDE];
                let sums = &mut sums[i * WIDE..][..WIDE];
                for c in 0..WIDE {
                    sums[c] = (whole[c] as f32).mul_add(f32::from_bits(scales[c] as u32) * unit, sums[c]);
                }
            }
        }
    }
}

/// The two integers of a pair.
#[inline(always)]
fn halves(pair: i32) -> (i32, i32) {
    ((pair << 16) >> 16, pair >> 16)
}

/// Panels of two vectors of columns: codes are widened in registers, and the tiles of `gemm::bfp`
/// multiply them.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{CODED_BLOCK, PAIRS, ROWS, Rows, TALL, Tile, WIDE};
    use crate::gemm::bfp::{self, BlockSimd, add_blocks};
    use crate::gemm::vector::{Avx2, Avx512};

    const _: () = assert!(CODED_BLOCK == bfp::BLOCK && ROWS == bfp::ROWS);

    const VECTORS: usize = 2;

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn avx2(tile: &Tile<'_>, sums: &mut [f32]) {
        // SAFETY: the caller guarantees the set.
        unsafe { add::<Avx2>(tile, sums) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    pub(super) unsafe fn avx512(tile: &Tile<'_>, sums: &mut [f32]) {
        // SAFETY: the caller guarantees the set.
        unsafe { add::<Avx512>(tile, sums) }
    }

    /// # Safety
    /// The processor supports the set.
    #[inline(always)]
    unsafe fn add<S: BlockSimd>(tile: &Tile<'_>, sums: &mut [f32]) {
        let wide = VECTORS * S::LANES;
        let blocks = tile.left.len() / (ROWS * TALL);
        assert!(tile.right.len() >= blocks * ROWS * wide && sums.len() >= (TALL - 1) * WIDE + wide);
        let sums = sums.as_mut_ptr();
        // SAFETY: so many blocks and sums were checked; the caller guarantees the set.
        unsafe {
            let mut all = [[S::splat(0.0); VECTORS]; TALL];
            for i in 0..TALL {
                for v in 0..VECTORS {
                    all[i][v] = S::load(sums.add(i * WIDE + v * S::LANES));
                }
            }
            let panels = (tile.left.as_ptr().cast(), tile.right.as_ptr().cast());
            let all = add_blocks::<S, TALL, VECTORS>(panels, blocks, all, || ());
            for i in 0..TALL {
                for v in 0..VECTORS {
                    S::store(sums.add(i * WIDE + v * S::LANES), all[i][v]);
                }
            }
        }
    }

    /// Writes the pairs of some blocks, from block `block` of line `line` on, to a whole panel.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn widen_avx2(rows: &Rows<'_>, bits: usize, (line, block): (usize, usize), to: &mut [i32]) {
        // SAFETY: the caller guarantees the set.
        unsafe {
            match bits {
                4 => widen::<Avx2, 4>(rows, (line, block), to),
                _ => widen::<Avx2, 8>(rows, (line, block), to),
            }
        }
    }

    /// As [`widen_avx2`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    pub(super) unsafe fn widen_avx512(rows: &Rows<'_>, bits: usize, (line, block): (usize, usize), to: &mut [i32]) {
        // SAFETY: the caller guarantees the set.
        unsafe {
            match bits {
                4 => widen::<Avx512, 4>(rows, (line, block), to),
                _ => widen::<Avx512, 8>(rows, (line, block), to),
            }
        }
    }

    /// Bytes of a line that are transposed together.
    const PIECE: usize = 16;

    /// # Safety
    /// The processor supports the set.
    #[inline(always)]
    unsafe fn widen<S: WordSimd, const BITS: usize>(rows: &Rows<'_>, (line, block): (usize, usize), to: &mut [i32]) {
        let (wide, per_word) = (VECTORS * S::LANES, 32 / BITS / 2);
        let (bytes, of_block) = (rows.k * BITS / 8, CODED_BLOCK * BITS / 8);
        let blocks = to.len() / (ROWS * wide);
        assert!((block + blocks) * of_block <= bytes && rows.codes.len() >= (line + wide) * bytes);
        for (b, to) in to.chunks_exact_mut(ROWS * wide).enumerate() {
            for first in (0..wide).step_by(S::LANES) {
                for at in (0..of_block).step_by(PIECE) {
                    let from = (line + first) * bytes + (block + b) * of_block + at;
                    let pair = at / 4 * per_word;
                    debug_assert!(pair + 4 * per_word <= PAIRS);
                    // SAFETY: so many blocks of so many lines were checked, a panel has a vector
                    // for each pair, and the caller guarantees the set.
                    unsafe {
                        let mut to = to.as_mut_ptr().add(pair * wide + first);
                        for words in S::words(rows.codes.as_ptr().add(from), bytes) {
                            for p in 0..per_word {
                                S::store_pairs(to, S::pair::<BITS>(words, p));
                                to = to.wrapping_add(wide);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The operations on words of codes.
    ///
    /// # Safety
    /// As of [`Simd`](crate::gemm::vector::Simd).
    trait WordSimd: BlockSimd {
        /// Vector `i` has word `i` of each line. The lines are `stride` bytes from each other.
        unsafe fn words(from: *const u8, stride: usize) -> [Self::Integers; PIECE / 4];
        /// Widens codes `2 · p` and `2 · p + 1` of each word to 16 bits.
        unsafe fn pair<const BITS: usize>(words: Self::Integers, p: usize) -> Self::Integers;
    }

    impl WordSimd for Avx2 {
        #[inline(always)]
        unsafe fn words(from: *const u8, stride: usize) -> [__m256i; PIECE / 4] {
            // SAFETY: the caller guarantees the lines and the set.
            unsafe {
                let mut lines = [_mm256_setzero_si256(); 4];
                // A loop: `map` of arrays is a function without the set, which is not inlined.
                for i in 0..4 {
                    let low = _mm256_castsi128_si256(_mm_loadu_si128(from.add(i * stride).cast()));
                    lines[i] = _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(from.add((i + 4) * stride).cast()));
                }
                let [a, b, c, d] = lines;
                let (low, high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
                let (more_low, more_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
                [
                    _mm256_unpacklo_epi64(low, more_low),
                    _mm256_unpackhi_epi64(low, more_low),
                    _mm256_unpacklo_epi64(high, more_high),
                    _mm256_unpackhi_epi64(high, more_high),
                ]
            }
        }
        #[inline(always)]
        unsafe fn pair<const BITS: usize>(words: __m256i, p: usize) -> __m256i {
            // SAFETY: the caller guarantees the set.
            unsafe {
                // Each code moves to the top of its half.
                let (low, high) = match (BITS, p) {
                    (4, 0) => (_mm256_slli_epi32::<12>(words), _mm256_slli_epi32::<24>(words)),
                    (4, 1) => (_mm256_slli_epi32::<4>(words), _mm256_slli_epi32::<16>(words)),
                    (4, 2) => (_mm256_srli_epi32::<4>(words), _mm256_slli_epi32::<8>(words)),
                    (4, _) => (_mm256_srli_epi32::<12>(words), words),
                    (_, 0) => (_mm256_slli_epi32::<8>(words), _mm256_slli_epi32::<16>(words)),
                    _ => (_mm256_srli_epi32::<8>(words), words),
                };
                let both = _mm256_blend_epi16::<0xAA>(low, high);
                if BITS == 4 { _mm256_srai_epi16::<12>(both) } else { _mm256_srai_epi16::<8>(both) }
            }
        }
    }

    impl WordSimd for Avx512 {
        #[inline(always)]
        unsafe fn words(from: *const u8, stride: usize) -> [__m512i; PIECE / 4] {
            // SAFETY: the caller guarantees the lines and the set.
            unsafe {
                let mut lines = [_mm512_setzero_si512(); 4];
                for i in 0..4 {
                    let first = _mm_loadu_si128(from.add(i * stride).cast());
                    let mut all = _mm512_castsi128_si512(first);
                    all = _mm512_inserti32x4::<1>(all, _mm_loadu_si128(from.add((i + 4) * stride).cast()));
                    all = _mm512_inserti32x4::<2>(all, _mm_loadu_si128(from.add((i + 8) * stride).cast()));
                    lines[i] = _mm512_inserti32x4::<3>(all, _mm_loadu_si128(from.add((i + 12) * stride).cast()));
                }
                let [a, b, c, d] = lines;
                let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
                let (more_low, more_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
                [
                    _mm512_unpacklo_epi64(low, more_low),
                    _mm512_unpackhi_epi64(low, more_low),
                    _mm512_unpacklo_epi64(high, more_high),
                    _mm512_unpackhi_epi64(high, more_high),
                ]
            }
        }
        #[inline(always)]
        unsafe fn pair<const BITS: usize>(words: __m512i, p: usize) -> __m512i {
            // SAFETY: the caller guarantees the set.
            unsafe {
                // Each code moves to the top of its half.
                let (low, high) = match (BITS, p) {
                    (4, 0) => (_mm512_slli_epi32::<12>(words), _mm512_slli_epi32::<24>(words)),
                    (4, 1) => (_mm512_slli_epi32::<4>(words), _mm512_slli_epi32::<16>(words)),
                    (4, 2) => (_mm512_srli_epi32::<4>(words), _mm512_slli_epi32::<8>(words)),
                    (4, _) => (_mm512_srli_epi32::<12>(words), words),
                    (_, 0) => (_mm512_slli_epi32::<8>(words), _mm512_slli_epi32::<16>(words)),
                    _ => (_mm512_srli_epi32::<8>(words), words),
                };
                let both = _mm512_mask_blend_epi16(0xAAAA_AAAA, low, high);
                if BITS == 4 { _mm512_srai_epi16::<12>(both) } else { _mm512_srai_epi16::<8>(both) }
            }
        }
    }
}
