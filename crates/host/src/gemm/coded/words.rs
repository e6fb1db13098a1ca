//! The sums of three rows or more, whose time is that of arithmetic: the integers of the left
//! factor have 16 bits, and dot products of pairs multiply them by codes that are widened to as
//! many.
//!
//! A word of codes is two halves of 16 bits, each of [`PAIRS`] codes: widening code `v` of both
//! gives a pair. A prepared chunk has vectors of 64 bytes: for each `v` the integers of these codes
//! of all lanes, then the units.

use std::arch::x86_64::*;

use super::avx2::{scales, some_scales};
use super::fixed::{CODED_BLOCK, Fixed, Job, LANES, codes_in_word};
use super::limbs::VECTOR;
use super::vnni;
use crate::gemm::bfp::BlockSimd;
use crate::gemm::skinny::write_sums;
use crate::gemm::vector::{Avx2, Avx512};

/// Prefetch distance in bytes.
const AHEAD: usize = 6 << 10;

/// Codes of half a word.
const fn pairs(bits: usize) -> usize {
    codes_in_word(bits) / 2
}

/// The most of them.
const PAIRS: usize = pairs(4);

/// Bytes of a prepared chunk.
pub(super) const fn chunk_bytes(bits: usize) -> usize {
    VECTOR * (pairs(bits) + 1)
}

/// Writes the integers and units of a chunk.
#[inline(always)]
pub(super) fn words(fixed: &Fixed, bits: usize, to: &mut [u8]) {
    let pairs = pairs(bits);
    let (integers, units) = to.split_at_mut(pairs * VECTOR);
    for (v, vector) in integers.chunks_exact_mut(VECTOR).enumerate() {
        for (half, bytes) in vector.chunks_exact_mut(2).enumerate() {
            bytes.copy_from_slice(&(fixed.values[half * pairs + v] as i16).to_ne_bytes());
        }
    }
    for (unit, bytes) in fixed.units.iter().zip(units.chunks_exact_mut(4)) {
        bytes.copy_from_slice(&unit.to_ne_bytes());
    }
}

/// The operations on codes.
///
/// # Safety
/// As of [`Simd`](crate::gemm::vector::Simd).
trait CodeSimd: BlockSimd {
    /// Widens code `v` of each half of a word.
    unsafe fn code<const BITS: usize>(words: Self::Integers, v: usize) -> Self::Integers;
    /// The scales of the lanes of part `part` of a chunk whose blocks have these scales.
    unsafe fn spread<const BITS: usize>(scales: __m128, part: usize) -> Self::V;
}

impl CodeSimd for Avx2 {
    #[inline(always)]
    unsafe fn code<const BITS: usize>(words: __m256i, v: usize) -> __m256i {
        // SAFETY: the caller guarantees the set.
        unsafe {
            match (BITS, v) {
                (8, 0) => _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(words)),
                (8, _) => _mm256_srai_epi16::<8>(words),
                (_, 0) => _mm256_srai_epi16::<12>(_mm256_slli_epi16::<12>(words)),
                (_, 1) => _mm256_srai_epi16::<12>(_mm256_slli_epi16::<8>(words)),
                (_, 2) => _mm256_srai_epi16::<12>(_mm256_slli_epi16::<4>(words)),
                _ => _mm256_srai_epi16::<12>(words),
            }
        }
    }
    #[inline(always)]
    unsafe fn spread<const BITS: usize>(scales: __m128, part: usize) -> __m256 {
        // SAFETY: the caller guarantees the set.
        unsafe {
            let lanes = match (BITS, part) {
                (4, 0) => _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1),
                (4, _) => _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3),
                (_, part) => _mm256_set1_epi32(part as i32),
            };
            _mm256_permutevar8x32_ps(_mm256_castps128_ps256(scales), lanes)
        }
    }
}

impl CodeSimd for Avx512 {
    #[inline(always)]
    unsafe fn code<const BITS: usize>(words: __m512i, v: usize) -> __m512i {
        // SAFETY: the caller guarantees the set.
        unsafe {
            match (BITS, v) {
                (8, 0) => _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(words)),
                (8, _) => _mm512_srai_epi16::<8>(words),
                (_, 0) => _mm512_srai_epi16::<12>(_mm512_slli_epi16::<12>(words)),
                (_, 1) => _mm512_srai_epi16::<12>(_mm512_slli_epi16::<8>(words)),
                (_, 2) => _mm512_srai_epi16::<12>(_mm512_slli_epi16::<4>(words)),
                _ => _mm512_srai_epi16::<12>(words),
            }
        }
    }
    #[inline(always)]
    unsafe fn spread<const BITS: usize>(scales: __m128, _: usize) -> __m512 {
        // SAFETY: the caller guarantees the set.
        unsafe { vnni::spread::<BITS>(scales) }
    }
}

/// # Safety
/// As [`super::blocks::Kernel::run`], for `rows` prepared rows of `stride` bytes: 4 or 8.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run_avx2(job: &Job<'_>, bits: usize, rows: usize, stride: usize, sums: *mut f32) {
    for c in job.first..job.first + job.count {
        // Four rows at a time: the accumulators of more do not fit the registers.
        for some in (0..rows).step_by(4) {
            let job = Job { prepared: &job.prepared[some * stride..], ..*job };
            let sums = sums.wrapping_add(some * job.pitch);
            // SAFETY: the caller guarantees it.
            unsafe {
                match bits {
                    4 => some_lines::<Avx2, 4, 4, 1, 2>(&job, c, stride, sums),
                    _ => some_lines::<Avx2, 8, 4, 1, 2>(&job, c, stride, sums),
                }
            }
        }
    }
}

/// As [`run_avx2`].
///
/// # Safety
/// As of [`run_avx2`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn run_vnni(job: &Job<'_>, bits: usize, rows: usize, stride: usize, sums: *mut f32) {
    let (mut c, end) = (job.first, job.first + job.count);
    while c < end {
        let together = if c + 2 <= end { 2 } else { 1 };
        // SAFETY: the caller guarantees it.
        unsafe {
            match (bits, rows, together) {
                (4, 4, 1) => some_lines::<Avx512, 4, 4, 1, 1>(job, c, stride, sums),
                (4, 4, _) => some_lines::<Avx512, 4, 4, 2, 1>(job, c, stride, sums),
                (4, _, 1) => some_lines::<Avx512, 4, 8, 1, 1>(job, c, stride, sums),
                (4, ..) => some_lines::<Avx512, 4, 8, 2, 1>(job, c, stride, sums),
                (_, 4, 1) => some_lines::<Avx512, 8, 4, 1, 1>(job, c, stride, sums),
                (_, 4, _) => some_lines::<Avx512, 8, 4, 2, 1>(job, c, stride, sums),
                (_, _, 1) => some_lines::<Avx512, 8, 8, 1, 1>(job, c, stride, sums),
                _ => some_lines::<Avx512, 8, 8, 2, 1>(job, c, stride, sums),
            }
        }
        c += together;
    }
}

/// `R` rows of codes from row `row` on with `M` prepared rows, in chunks of `H` vectors.
#[inline(always)]
unsafe fn some_lines<S: CodeSimd, const BITS: usize, const M: usize, const R: usize, const H: usize>(
    job: &Job<'_>,
    row: usize,
    stride: usize,
    sums: *mut f32,
) {
    const { assert!(H * S::LANES == LANES) }
    let (bytes, blocks) = (job.k * BITS / 8, job.k / job.block);
    // SAFETY: the caller guarantees the rows of codes and scales, the prepared rows and the sums.
    unsafe {
        let codes: [*const u8; R] = std::array::from_fn(|r| job.codes.as_ptr().add((row + r) * bytes));
        let row_scales: [*const u8; R] = std::array::from_fn(|r| job.scales.as_ptr().add(2 * (row + r) * blocks));
        let mut all = [[[S::splat(0.0); R]; M]; H];
        let fast = if job.block == CODED_BLOCK { bytes / VECTOR } else { 0 };
        for chunk in 0..fast {
            let from = codes.map(|codes| codes.wrapping_add(chunk * VECTOR));
            let mut four = [_mm_setzero_ps(); R];
            for r in 0..R {
                S::prefetch(from[r].wrapping_add(AHEAD));
                four[r] = _mm256_castps256_ps128(scales::<BITS>(row_scales[r], chunk));
            }
            add_chunk::<S, BITS, M, R, H>(from, four, (at(job, BITS, chunk), stride), &mut all);
        }
        for chunk in fast..bytes.div_ceil(VECTOR) {
            let left = VECTOR.min(bytes - chunk * VECTOR);
            let (mut some, mut four) = ([[0u8; VECTOR]; R], [_mm_setzero_ps(); R]);
            for r in 0..R {
                std::ptr::copy_nonoverlapping(codes[r].add(chunk * VECTOR), some[r].as_mut_ptr(), left);
                let of = |code: usize| row_scales[r].wrapping_add(2 * (code / job.block));
                four[r] = _mm256_castps256_ps128(some_scales::<BITS>(of, chunk, left * 8 / BITS / CODED_BLOCK));
            }
            let from = some.each_ref().map(|some| some.as_ptr());
            add_chunk::<S, BITS, M, R, H>(from, four, (at(job, BITS, chunk), stride), &mut all);
        }
        let mut lanes = all[0];
        for more in &all[1..] {
            for i in 0..M {
                for r in 0..R {
                    lanes[i][r] = S::add(lanes[i][r], more[i][r]);
                }
            }
        }
        write_sums::<S, M, R>(&lanes, sums.add(row), job.pitch);
    }
}

/// A chunk of the first prepared row.
#[inline(always)]
fn at(job: &Job<'_>, bits: usize, chunk: usize) -> *const u8 {
    job.prepared.as_ptr().wrapping_add(chunk * chunk_bytes(bits))
}

/// Adds the sums of a chunk of `R` rows of codes, with their scales, and `M` prepared ones.
#[inline(always)]
unsafe fn add_chunk<S: CodeSimd, const BITS: usize, const M: usize, const R: usize, const H: usize>(
    from: [*const u8; R],
    four: [__m128; R],
    (prepared, stride): (*const u8, usize),
    all: &mut [[[S::V; R]; M]; H],
) {
    // SAFETY: the caller guarantees the codes and the prepared chunks, at a distance of `stride`.
    unsafe {
        for h in 0..H {
            let part = h * VECTOR / H;
            let mut codes = [[S::no_sums(); PAIRS]; R];
            let mut scale = [S::splat(0.0); R];
            for r in 0..R {
                let words = S::load_pairs(from[r].add(part).cast());
                for v in 0..pairs(BITS) {
                    codes[r][v] = S::code::<BITS>(words, v);
                }
                scale[r] = S::spread::<BITS>(four[r], h);
            }
            for i in 0..M {
                let prepared = prepared.add(i * stride + part);
                let unit = S::load(prepared.add(pairs(BITS) * VECTOR).cast());
                for r in 0..R {
                    let mut whole = S::no_sums();
                    for v in 0..pairs(BITS) {
                        whole = S::dot(whole, codes[r][v], S::load_pairs(prepared.add(v * VECTOR).cast()));
                    }
                    all[h][i][r] = S::fma(S::to_fp32(whole), S::mul(scale[r], unit), all[h][i][r]);
                }
            }
        }
    }
}
