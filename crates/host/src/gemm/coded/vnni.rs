//! The sums with AVX-512 and VNNI, whose dot products take unsigned times signed bytes: codes and
//! the [`limbs`](super::limbs) of integers.

use std::arch::x86_64::*;

use half::f16;

use super::fixed::{CODED_BLOCK, Job, LANES, sum};
use super::limbs::{VECTOR, chunk_bytes};
use crate::gemm::{bfp, isa};

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
            (4, 1) => all::<4, 1, 2>(job, stride, sums),
            (4, _) => all::<4, 2, 2>(job, stride, sums),
            (_, 1) => all::<8, 1, 2>(job, stride, sums),
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

/// The scales of the lanes of a chunk of a row: of `blocks` of 32 codes, or of any size.
#[inline(always)]
unsafe fn lane_scales<const BITS: usize>(job: &Job<'_>, scales: *const u8, chunk: usize, groups: usize) -> __m512 {
    let per_chunk = BITS_CHUNK / BITS / CODED_BLOCK;
    // SAFETY: the caller guarantees the scales of the row, and the instruction set.
    unsafe {
        let four = if job.block == CODED_BLOCK {
            let mask = (1u32 << groups.min(per_chunk)) - 1;
            let halves = _mm_maskz_loadu_epi16(mask as u8, scales.add(2 * chunk * per_chunk).cast());
            _mm_cvtph_ps(halves)
        } else {
            let mut four = [0.0f32; 4];
            for (g, scale) in four.iter_mut().take(groups.min(per_chunk)).enumerate() {
                let at = (chunk * per_chunk + g) * CODED_BLOCK / job.block;
                let bits = scales.add(2 * at).cast::<u16>().read_unaligned();
                *scale = f16::from_bits(u16::from_le(bits)).to_f32();
            }
            _mm_loadu_ps(four.as_ptr())
        };
        let lanes = match BITS {
            4 => _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0),
            _ => _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0),
        };
        _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(four))
    }
}

/// Bits of a chunk.
const BITS_CHUNK: usize = 8 * VECTOR;

/// `R` rows of codes with `M` prepared rows.
#[inline(always)]
unsafe fn some<const BITS: usize, const M: usize, const R: usize>(
    job: &Job<'_>,
    row: usize,
    stride: usize,
    sums: *mut f32,
) {
    let bytes = job.k * BITS / 8;
    let blocks = job.k / job.block;
    // SAFETY: the caller guarantees the rows of codes and scales, the prepared rows and the sums.
    unsafe {
        let mut codes = [std::ptr::null::<u8>(); R];
        let mut scales = [std::ptr::null::<u8>(); R];
        for r in 0..R {
            codes[r] = job.codes.as_ptr().add((row + r) * bytes);
            scales[r] = job.scales.as_ptr().add(2 * (row + r) * blocks);
        }
        let (sign, nibble) = (_mm512_set1_epi8(0x88u8 as i8), _mm512_set1_epi8(0x0F));
        let top = _mm512_set1_epi8(0x80u8 as i8);
        let mut accumulators = [[_mm512_setzero_ps(); R]; M];
        for chunk in 0..bytes.div_ceil(VECTOR) {
            let at = chunk * VECTOR;
            let left = bytes - at;
            let groups = left * 8 / BITS / CODED_BLOCK;
            let mask = if left >= VECTOR { u64::MAX } else { (1u64 << left) - 1 };
            let mut low = [_mm512_setzero_si512(); R];
            let mut high = [_mm512_setzero_si512(); R];
            let mut scale = [_mm512_setzero_ps(); R];
            for r in 0..R {
                let word = if left >= VECTOR {
                    _mm512_loadu_si512(codes[r].add(at).cast())
                } else {
                    _mm512_maskz_loadu_epi8(mask, codes[r].add(at).cast())
                };
                _mm_prefetch::<_MM_HINT_T0>(codes[r].wrapping_add(at + AHEAD).cast());
                if BITS == 4 {
                    // (word ^ 0x88) & 0x0F: the nibble plus 8.
                    low[r] = _mm512_ternarylogic_epi32::<0x28>(word, sign, nibble);
                    high[r] = _mm512_ternarylogic_epi32::<0x28>(_mm512_srli_epi32::<4>(word), sign, nibble);
                } else {
                    low[r] = _mm512_xor_si512(word, top);
                }
                scale[r] = lane_scales::<BITS>(job, scales[r], chunk, groups);
            }
            for i in 0..M {
                let prepared = job.prepared.as_ptr().add(i * stride + chunk * chunk_bytes(BITS));
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
                    let all =
                        _mm512_add_epi32(_mm512_add_epi32(a, _mm512_slli_epi32::<8>(b)), _mm512_slli_epi32::<16>(c));
                    accumulators[i][r] =
                        _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), _mm512_mul_ps(scale[r], unit), accumulators[i][r]);
                }
            }
        }
        for (i, row_sums) in accumulators.iter().enumerate() {
            for (r, lanes) in row_sums.iter().enumerate() {
                let mut all = [0.0f32; LANES];
                _mm512_storeu_ps(all.as_mut_ptr(), *lanes);
                sums.add(i * job.pitch + row + r).write(sum(all));
            }
        }
    }
}
