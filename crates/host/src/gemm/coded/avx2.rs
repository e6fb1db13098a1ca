//! The sums with AVX2.
//!
//! int4: `vpmaddubsw` multiplies unsigned codes by the [`limbs`](super::limbs) of integers. A pair
//! of products is at most 2 · 15 · 128, so two pairs fit into 16 bits.
//!
//! int8: such a pair would not fit. `vpmaddwd` multiplies codes that are widened to 16 bits by the
//! integers' halves, `a + 65536 b`. A prepared chunk has vectors of 64 bytes: the halves `a` of the
//! even values of each lane, then of the odd ones, `b` likewise, and the units.

use std::arch::x86_64::*;

use super::fixed::{CODED_BLOCK, Fixed, Job};
use super::limbs::{self, VECTOR};

/// Bytes of the codes of half a chunk.
const HALF_BYTES: usize = VECTOR / 2;
/// Prefetch distance in bytes.
const AHEAD: usize = 4 << 10;

/// Bytes of a prepared chunk.
pub(super) const fn chunk_bytes(bits: usize) -> usize {
    if bits == 4 { limbs::chunk_bytes(4) } else { 5 * VECTOR }
}

/// Splits the integers of a chunk for int8 codes.
#[inline(always)]
pub(super) fn halves(fixed: &Fixed, to: &mut [u8]) {
    let mut vectors = [[0i16; VECTOR / 2]; 4];
    for i in 0..VECTOR {
        let (value, at) = (fixed.values[i], i / 2);
        let low = value as i16;
        vectors[i % 2][at] = low;
        vectors[2 + i % 2][at] = ((value - i32::from(low)) >> 16) as i16;
    }
    let (integers, units) = to.split_at_mut(4 * VECTOR);
    for (half, bytes) in vectors.as_flattened().iter().zip(integers.chunks_exact_mut(2)) {
        bytes.copy_from_slice(&half.to_ne_bytes());
    }
    for (unit, bytes) in fixed.units.iter().zip(units.chunks_exact_mut(4)) {
        bytes.copy_from_slice(&unit.to_ne_bytes());
    }
}

/// # Safety
/// As [`super::blocks::Kernel::run`], for `rows` prepared rows of `stride` bytes: 1 or 2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run(job: &Job<'_>, bits: usize, rows: usize, stride: usize, sums: *mut f32) {
    let (mut row, end) = (job.first, job.first + job.count);
    while row < end {
        let together = if row + 2 <= end { 2 } else { 1 };
        // SAFETY: the caller guarantees it.
        unsafe {
            match (bits, rows, together) {
                (4, 1, 1) => some_rows::<4, 1, 1>(job, row, stride, sums),
                (4, 1, _) => some_rows::<4, 1, 2>(job, row, stride, sums),
                (4, _, 1) => some_rows::<4, 2, 1>(job, row, stride, sums),
                (4, ..) => some_rows::<4, 2, 2>(job, row, stride, sums),
                (_, 1, 1) => some_rows::<8, 1, 1>(job, row, stride, sums),
                (_, 1, _) => some_rows::<8, 1, 2>(job, row, stride, sums),
                (_, _, 1) => some_rows::<8, 2, 1>(job, row, stride, sums),
                _ => some_rows::<8, 2, 2>(job, row, stride, sums),
            }
        }
        row += together;
    }
}

/// The scales of the blocks of 32 codes of a whole chunk, in a row with a scale for each.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn scales<const BITS: usize>(scales: *const u8, chunk: usize) -> __m256 {
    // SAFETY: the caller guarantees four scales or two.
    let halves = unsafe {
        match BITS {
            4 => _mm_loadl_epi64(scales.add(8 * chunk).cast()),
            _ => _mm_cvtsi32_si128(scales.add(4 * chunk).cast::<i32>().read_unaligned()),
        }
    };
    _mm256_castps128_ps256(_mm_cvtph_ps(halves))
}

/// The scales of the first `count` blocks of 32 codes of a chunk; `of` is the address of that of a
/// code.
///
/// # Safety
/// They are readable.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn some_scales<const BITS: usize>(
    of: impl Fn(usize) -> *const u8,
    chunk: usize,
    count: usize,
) -> __m256 {
    let mut four = [0u16; 4];
    let per_chunk = 8 * VECTOR / BITS / CODED_BLOCK;
    for (b, scale) in four.iter_mut().take(count.min(per_chunk)).enumerate() {
        // SAFETY: the caller guarantees it.
        *scale = unsafe { of((chunk * per_chunk + b) * CODED_BLOCK).cast::<u16>().read_unaligned() };
    }
    // SAFETY: eight bytes.
    unsafe { _mm256_castps128_ps256(_mm_cvtph_ps(_mm_loadl_epi64(four.as_ptr().cast()))) }
}

/// The sums of each lane of half a chunk, of a row of `codes` and a prepared one. Both are two
/// vectors: the low and the high nibbles, or the even and the odd codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn lane_sums<const BITS: usize>(codes: [__m256i; 2], prepared: *const u8) -> __m256i {
    // SAFETY: the caller guarantees the prepared chunk.
    unsafe {
        let vector = |v: usize| _mm256_loadu_si256(prepared.add(v * VECTOR).cast());
        if BITS == 4 {
            let limb = |i: usize| {
                let (low, high) =
                    (_mm256_maddubs_epi16(codes[0], vector(i)), _mm256_maddubs_epi16(codes[1], vector(i + 3)));
                _mm256_add_epi16(low, high)
            };
            // a + 256 (b + 256 c)
            let (ones, more) = (_mm256_set1_epi16(1), _mm256_set1_epi16(256));
            let low = _mm256_add_epi32(vector(6), _mm256_madd_epi16(limb(0), ones));
            let high = _mm256_add_epi32(_mm256_madd_epi16(limb(1), ones), _mm256_madd_epi16(limb(2), more));
            return _mm256_add_epi32(low, _mm256_slli_epi32::<8>(high));
        }
        let half = |i: usize| {
            let (even, odd) = (_mm256_madd_epi16(codes[0], vector(i)), _mm256_madd_epi16(codes[1], vector(i + 1)));
            _mm256_add_epi32(even, odd)
        };
        _mm256_add_epi32(half(0), _mm256_slli_epi32::<16>(half(2)))
    }
}

/// The accumulators of `R` rows of codes and `M` prepared ones, in halves.
type Accumulators<const M: usize, const R: usize> = [[[__m256; 2]; R]; M];

/// Adds the sums of a chunk of `R` rows of codes, with their scales, and `M` prepared ones.
///
/// # Safety
/// The codes and the prepared chunks, at a distance of `stride`, are readable.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_chunk<const BITS: usize, const M: usize, const R: usize>(
    codes: [*const u8; R],
    scale: [__m256; R],
    (prepared, stride): (*const u8, usize),
    accumulators: &mut Accumulators<M, R>,
) {
    let unit_at = chunk_bytes(BITS) - VECTOR;
    for half in 0..2 {
        let lanes = match (BITS, half) {
            (4, 0) => _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1),
            (4, _) => _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3),
            (_, half) => _mm256_set1_epi32(half as i32),
        };
        for r in 0..R {
            // SAFETY: the caller guarantees the chunk.
            let word = unsafe { _mm256_loadu_si256(codes[r].add(half * HALF_BYTES).cast()) };
            let parts = if BITS == 4 {
                // The nibbles plus 8.
                let (sign, nibble) = (_mm256_set1_epi8(0x88u8 as i8), _mm256_set1_epi8(0x0F));
                let word = _mm256_xor_si256(word, sign);
                [_mm256_and_si256(word, nibble), _mm256_and_si256(_mm256_srli_epi16::<4>(word), nibble)]
            } else {
                [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(word)), _mm256_srai_epi16::<8>(word)]
            };
            let scale = _mm256_permutevar8x32_ps(scale[r], lanes);
            for i in 0..M {
                // SAFETY: the caller guarantees the prepared chunk.
                unsafe {
                    let prepared = prepared.add(i * stride + half * HALF_BYTES);
                    let unit = _mm256_loadu_ps(prepared.add(unit_at).cast());
                    let whole = _mm256_cvtepi32_ps(lane_sums::<BITS>(parts, prepared));
                    let sum = &mut accumulators[i][r][half];
                    *sum = _mm256_fmadd_ps(whole, _mm256_mul_ps(scale, unit), *sum);
                }
            }
        }
    }
}

/// As [`sum`](super::fixed::sum), of both halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum([low, high]: [__m256; 2]) -> f32 {
    let eight = _mm256_add_ps(low, high);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// `R` rows of codes with `M` prepared rows.
///
/// # Safety
/// As [`run`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn some_rows<const BITS: usize, const M: usize, const R: usize>(
    job: &Job<'_>,
    row: usize,
    stride: usize,
    sums: *mut f32,
) {
    let (bytes, blocks) = (job.k * BITS / 8, job.k / job.block);
    let prepared = |chunk: usize| (job.prepared.as_ptr().wrapping_add(chunk * chunk_bytes(BITS)), stride);
    // SAFETY: the caller guarantees the rows of codes and scales, the prepared rows and the sums.
    unsafe {
        let codes: [*const u8; R] = std::array::from_fn(|r| job.codes.as_ptr().add((row + r) * bytes));
        let row_scales: [*const u8; R] = std::array::from_fn(|r| job.scales.as_ptr().add(2 * (row + r) * blocks));
        let mut accumulators = [[[_mm256_setzero_ps(); 2]; R]; M];
        let mut scale = [_mm256_setzero_ps(); R];
        let fast = if job.block == CODED_BLOCK { bytes / VECTOR } else { 0 };
        for chunk in 0..fast {
            let from = codes.map(|codes| codes.add(chunk * VECTOR));
            for r in 0..R {
                _mm_prefetch::<_MM_HINT_T0>(from[r].wrapping_add(AHEAD).cast());
                scale[r] = scales::<BITS>(row_scales[r], chunk);
            }
            add_chunk::<BITS, M, R>(from, scale, prepared(chunk), &mut accumulators);
        }
        for chunk in fast..bytes.div_ceil(VECTOR) {
            let left = VECTOR.min(bytes - chunk * VECTOR);
            let mut some = [[0u8; VECTOR]; R];
            for r in 0..R {
                std::ptr::copy_nonoverlapping(codes[r].add(chunk * VECTOR), some[r].as_mut_ptr(), left);
                let of = |code: usize| row_scales[r].wrapping_add(2 * (code / job.block));
                scale[r] = some_scales::<BITS>(of, chunk, left * 8 / BITS / CODED_BLOCK);
            }
            let from = some.each_ref().map(|some| some.as_ptr());
            add_chunk::<BITS, M, R>(from, scale, prepared(chunk), &mut accumulators);
        }
        for (i, row_sums) in accumulators.into_iter().enumerate() {
            for (r, halves) in row_sums.into_iter().enumerate() {
                sums.add(i * job.pitch + row + r).write(sum(halves));
            }
        }
    }
}
