//! The sums with AVX-512 and VNNI, whose dot products take unsigned times signed bytes: codes and
//! the [`limbs`](super::limbs) of integers.

use std::arch::x86_64::*;

use super::avx2::{scales, some_scales};
use super::fixed::{CODED_BLOCK, Job};
use super::limbs::{VECTOR, chunk_bytes};
use crate::gemm::skinny::write_sums;
use crate::gemm::vector::Avx512;
use crate::gemm::{bfp, isa};

/// Bytes of a line of codes from which on lines are read one by one.
const LONG_LINE: usize = 2048;

/// Prefetch distance in bytes.
const AHEAD: usize = 6 << 10;

pub(super) fn is_supported() -> bool {
    isa::has_avx512() && bfp::has_avx512_vnni()
}

/// # Safety
/// As [`super::blocks::Kernel::run`], for `rows` prepared rows of `stride` bytes: 1 or 2.
pub(super) unsafe fn run(job: &Job<'_>, bits: usize, rows: usize, stride: usize, sums: *mut f32) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match (bits, rows) {
            // Lines one by one are a single stream, which memory delivers fastest. Two rows take
            // two short lines together, for which arithmetic takes longer than memory.
            (4, 1) => all::<4, 1, 1>(job, stride, sums),
            (_, 1) => all::<8, 1, 1>(job, stride, sums),
            (4, _) if job.k * bits / 8 >= LONG_LINE => all::<4, 2, 1>(job, stride, sums),
            (_, _) if job.k * bits / 8 >= LONG_LINE => all::<8, 2, 1>(job, stride, sums),
            (4, _) => all::<4, 2, 2>(job, stride, sums),
            _ => all::<8, 2, 2>(job, stride, sums),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn all<const BITS: usize, const M: usize, const R: usize>(job: &Job<'_>, stride: usize, sums: *mut f32) {
    let mut c = 0;
    // SAFETY: the caller guarantees it.
    unsafe {
        while c + R <= job.count {
            some::<BITS, M, R>(job, job.first + c, stride, sums);
            c += R;
        }
        while c < job.count {
            some::<BITS, M, 1>(job, job.first + c, stride, sums);
            c += 1;
        }
    }
}

/// `R` rows of codes from row `row` on with `M` prepared rows.
#[inline(always)]
unsafe fn some<const BITS: usize, const M: usize, const R: usize>(
    job: &Job<'_>,
    row: usize,
    stride: usize,
    sums: *mut f32,
) {
    let (bytes, blocks) = (job.k * BITS / 8, job.k / job.block);
    // SAFETY: the caller guarantees the rows of codes and scales, the prepared rows and the sums.
    unsafe {
        let codes: [*const u8; R] = std::array::from_fn(|r| job.codes.as_ptr().add((row + r) * bytes));
        let row_scales: [*const u8; R] = std::array::from_fn(|r| job.scales.as_ptr().add(2 * (row + r) * blocks));
        let mut all = [[_mm512_setzero_ps(); R]; M];
        let fast = if job.block == CODED_BLOCK { bytes / VECTOR } else { 0 };
        for chunk in 0..fast {
            let mut some = [_mm512_setzero_si512(); R];
            let mut four = [_mm_setzero_ps(); R];
            for r in 0..R {
                let from = codes[r].wrapping_add(chunk * VECTOR);
                some[r] = _mm512_loadu_si512(from.cast());
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD).cast());
                four[r] = _mm256_castps256_ps128(scales::<BITS>(row_scales[r], chunk));
            }
            add_chunk::<BITS, M, R>(some, four, (at(job, BITS, chunk), stride), &mut all);
        }
        for chunk in fast..bytes.div_ceil(VECTOR) {
            let left = VECTOR.min(bytes - chunk * VECTOR);
            let mut some = [_mm512_setzero_si512(); R];
            let mut four = [_mm_setzero_ps(); R];
            for r in 0..R {
                let mask = u64::MAX >> (VECTOR - left);
                some[r] = _mm512_maskz_loadu_epi8(mask, codes[r].add(chunk * VECTOR).cast());
                let of = |code: usize| row_scales[r].wrapping_add(2 * (code / job.block));
                four[r] = _mm256_castps256_ps128(some_scales::<BITS>(of, chunk, left * 8 / BITS / CODED_BLOCK));
            }
            add_chunk::<BITS, M, R>(some, four, (at(job, BITS, chunk), stride), &mut all);
        }
        write_sums::<Avx512, M, R>(&all, sums.add(row), job.pitch);
    }
}

/// A chunk of the first prepared row.
#[inline(always)]
fn at(job: &Job<'_>, bits: usize, chunk: usize) -> *const u8 {
    job.prepared.as_ptr().wrapping_add(chunk * chunk_bytes(bits))
}

/// Adds the sums of a chunk of `R` rows of codes, with their scales, and `M` prepared ones.
#[inline(always)]
unsafe fn add_chunk<const BITS: usize, const M: usize, const R: usize>(
    codes: [__m512i; R],
    four: [__m128; R],
    (prepared, stride): (*const u8, usize),
    all: &mut [[__m512; R]; M],
) {
    // SAFETY: the caller guarantees the prepared chunks, at a distance of `stride`, and the set.
    unsafe {
        let (sign, nibble) = (_mm512_set1_epi8(0x88u8 as i8), _mm512_set1_epi8(0x0F));
        let top = _mm512_set1_epi8(0x80u8 as i8);
        let mut low = [_mm512_setzero_si512(); R];
        let mut high = [_mm512_setzero_si512(); R];
        let mut scale = [_mm512_setzero_ps(); R];
        for r in 0..R {
            if BITS == 4 {
                // (codes ^ 0x88) & 0x0F: the nibble plus 8.
                low[r] = _mm512_ternarylogic_epi32::<0x28>(codes[r], sign, nibble);
                high[r] = _mm512_ternarylogic_epi32::<0x28>(_mm512_srli_epi32::<4>(codes[r]), sign, nibble);
            } else {
                low[r] = _mm512_xor_si512(codes[r], top);
            }
            scale[r] = spread::<BITS>(four[r]);
        }
        for i in 0..M {
            let prepared = prepared.add(i * stride);
            let vector = |v: usize| _mm512_loadu_si512(prepared.add(v * VECTOR).cast());
            let (first, unit) = if BITS == 4 { (6, 7) } else { (3, 4) };
            let unit = _mm512_castsi512_ps(vector(unit));
            for r in 0..R {
                let mut parts = [vector(first), _mm512_setzero_si512(), _mm512_setzero_si512()];
                for (limb, part) in parts.iter_mut().enumerate() {
                    *part = _mm512_dpbusd_epi32(*part, low[r], vector(limb));
                    if BITS == 4 {
                        *part = _mm512_dpbusd_epi32(*part, high[r], vector(limb + 3));
                    }
                }
                let [a, b, c] = parts;
                let whole =
                    _mm512_add_epi32(_mm512_add_epi32(a, _mm512_slli_epi32::<8>(b)), _mm512_slli_epi32::<16>(c));
                all[i][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), _mm512_mul_ps(scale[r], unit), all[i][r]);
            }
        }
    }
}

/// The scales of the lanes of a chunk whose blocks have these scales.
///
/// # Safety
/// The processor supports AVX-512.
#[inline(always)]
pub(super) unsafe fn spread<const BITS: usize>(scales: __m128) -> __m512 {
    // SAFETY: the caller guarantees the set.
    unsafe {
        let lanes = match BITS {
            4 => _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0),
            _ => _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0),
        };
        _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(scales))
    }
}
