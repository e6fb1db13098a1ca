//! AVX-512: 16 lanes, masked tails.
#![allow(unsafe_op_in_unsafe_fn)] // Each body is one such operation; the trait states the requirements.

use std::arch::x86_64::*;

use half::f16;

use super::kernels;
use crate::gemm::halves::TransposeF16;
use crate::gemm::vector::{Avx512, Simd};
use crate::simd;

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

#[inline(always)]
fn mask(n: usize) -> u16 {
    ((1u32 << n) - 1) as u16
}

impl Simd for Avx512 {
    type V = __m512;
    type Rows = [__m512; 16];
    const LANES: usize = 16;
    const REGISTERS: usize = 32;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        _mm512_set1_ps(x)
    }
    #[inline(always)]
    unsafe fn zeros() -> [__m512; 16] {
        [_mm512_setzero_ps(); 16]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        _mm512_loadu_ps(from)
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m512) {
        _mm512_storeu_ps(to, v)
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut f16, v: __m512) {
        _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<NEAREST>(v))
    }
    #[inline(always)]
    unsafe fn round(v: __m512) -> __m512 {
        _mm512_cvtph_ps(_mm512_cvtps_ph::<NEAREST>(v))
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn larger(best: __m512, v: __m512) -> __m512 {
        let taken = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(v, best) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        _mm512_mask_blend_ps(taken, best, v)
    }
    #[inline(always)]
    unsafe fn at_least(low: __m512, v: __m512) -> __m512 {
        // The second operand if they are equal or one is NaN.
        _mm512_max_ps(low, v)
    }
    #[inline(always)]
    unsafe fn at_most(high: __m512, v: __m512) -> __m512 {
        _mm512_min_ps(high, v)
    }
    #[inline(always)]
    unsafe fn from(low: __m512, v: __m512) -> __m512 {
        _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(v, low), v)
    }
    #[inline(always)]
    unsafe fn sigmoid(v: __m512) -> __m512 {
        // As `simd::sigmoid`.
        let x = _mm512_or_ps(v, Self::splat(-0.0));
        let vanishes = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, Self::splat(simd::VANISHES));
        let e = _mm512_mask_mov_ps(simd::exp_avx512(x), vanishes, _mm512_setzero_ps());
        let negative = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(v, _mm512_setzero_ps());
        let numerator = _mm512_mask_mov_ps(Self::splat(1.0), negative, e);
        _mm512_div_ps(numerator, _mm512_add_ps(Self::splat(1.0), e))
    }
    #[inline(always)]
    unsafe fn gelu(v: __m512) -> __m512 {
        // As `simd::gelu`.
        let a = _mm512_andnot_ps(Self::splat(-0.0), v);
        let remains = _mm512_cmp_ps_mask::<_CMP_NGT_UQ>(a, Self::splat(simd::GELU_VANISHES));
        let a = _mm512_min_ps(a, Self::splat(simd::GELU_VANISHES));
        let mut q = Self::splat(simd::GELU[0]);
        for factor in &simd::GELU[1..] {
            q = _mm512_fmadd_ps(q, a, Self::splat(*factor));
        }
        let tail = _mm512_maskz_mov_ps(remains, simd::exp_avx512(q));
        let positive = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(v, _mm512_setzero_ps());
        _mm512_mul_ps(v, _mm512_mask_sub_ps(tail, positive, Self::splat(1.0), tail))
    }
    #[inline(always)]
    unsafe fn sum(v: __m512) -> f32 {
        _mm512_reduce_add_ps(v)
    }
    #[inline(always)]
    unsafe fn sums(r: [__m512; 16]) -> __m512 {
        // Each addition is a level of `sum`, of two vectors at a time.
        let mut half = [r[0]; 8];
        for j in 0..4 {
            half[j] = halves(r[j], r[j + 4]);
            half[j + 4] = halves(r[j + 8], r[j + 12]);
        }
        let (a, b) = (quarters(half[0], half[4]), quarters(half[1], half[5]));
        let (c, d) = (quarters(half[2], half[6]), quarters(half[3], half[7]));
        let (ab, cd) = (pairs(a, b), pairs(c, d));
        _mm512_add_ps(_mm512_shuffle_ps::<0x88>(ab, cd), _mm512_shuffle_ps::<0xDD>(ab, cd))
    }
    #[inline(always)]
    unsafe fn transpose(r: [__m512; 16]) -> [__m512; 16] {
        // Single values, then pairs, within the 128-bit quarters; then quarters across registers.
        let mut a = r;
        for i in (0..16).step_by(2) {
            a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
            a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
        }
        let mut b = a;
        for i in (0..16).step_by(4) {
            for (j, half) in [0, 1].into_iter().enumerate() {
                let (x, y) = (_mm512_castps_pd(a[i + half]), _mm512_castps_pd(a[i + half + 2]));
                b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
                b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
            }
        }
        // b[4 g + c]: columns c, c + 4, c + 8, c + 12 of rows 4 g .. 4 g + 4, one to a quarter.
        let mut out = r;
        for c in 0..4 {
            let (g0, g1, g2, g3) = (b[c], b[4 + c], b[8 + c], b[12 + c]);
            let (low, high) = (_mm512_shuffle_f32x4::<0x88>(g0, g1), _mm512_shuffle_f32x4::<0x88>(g2, g3));
            out[c] = _mm512_shuffle_f32x4::<0x88>(low, high);
            out[c + 8] = _mm512_shuffle_f32x4::<0xDD>(low, high);
            let (low, high) = (_mm512_shuffle_f32x4::<0xDD>(g0, g1), _mm512_shuffle_f32x4::<0xDD>(g2, g3));
            out[c + 4] = _mm512_shuffle_f32x4::<0x88>(low, high);
            out[c + 12] = _mm512_shuffle_f32x4::<0xDD>(low, high);
        }
        out
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> __m512 {
        _mm512_maskz_loadu_ps(mask(n), from)
    }
    #[inline(always)]
    unsafe fn load_f16_part(from: *const f16, n: usize) -> __m512 {
        _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask(n), from.cast()))
    }
    #[inline(always)]
    unsafe fn load_i8_part(from: *const i8, n: usize) -> __m512 {
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask(n), from)))
    }
    #[inline(always)]
    unsafe fn store_part(to: *mut f32, v: __m512, n: usize) {
        _mm512_mask_storeu_ps(to, mask(n), v)
    }
    #[inline(always)]
    unsafe fn store_f16_part(to: *mut f16, v: __m512, n: usize) {
        _mm256_mask_storeu_epi16(to.cast(), mask(n), _mm512_cvtps_ph::<NEAREST>(v))
    }
}

impl TransposeF16 for Avx512 {
    #[inline(always)]
    unsafe fn transpose_f16(line: impl Fn(usize) -> *const f16, to: *mut f16, pitch: usize) {
        // Words, pairs, then fours, within the 128-bit quarters; then quarters across registers.
        // Quarter `q` has steps from `8 q` on.
        let mut r = [_mm512_setzero_si512(); 16];
        for (i, r) in r.iter_mut().enumerate() {
            *r = _mm512_loadu_si512(line(i).cast());
        }
        let mut a = r;
        for i in (0..16).step_by(2) {
            a[i] = _mm512_unpacklo_epi16(r[i], r[i + 1]);
            a[i + 1] = _mm512_unpackhi_epi16(r[i], r[i + 1]);
        }
        for i in (0..16).step_by(4) {
            for j in 0..2 {
                r[i + 2 * j] = _mm512_unpacklo_epi32(a[i + j], a[i + j + 2]);
                r[i + 2 * j + 1] = _mm512_unpackhi_epi32(a[i + j], a[i + j + 2]);
            }
        }
        for i in (0..16).step_by(8) {
            for j in 0..4 {
                a[i + 2 * j] = _mm512_unpacklo_epi64(r[i + j], r[i + j + 4]);
                a[i + 2 * j + 1] = _mm512_unpackhi_epi64(r[i + j], r[i + j + 4]);
            }
        }
        // a[s], a[8 + s]: lines 0 to 7 and 8 to 15 of steps s, s + 8, s + 16, s + 24.
        let low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
        let high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
        for s in 0..8 {
            for (q, quarters) in [low, high].into_iter().enumerate() {
                let steps = _mm512_permutex2var_epi64(a[s], quarters, a[8 + s]);
                let to = to.add((s + 16 * q) * pitch);
                _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(steps));
                _mm256_storeu_si256(to.add(8 * pitch).cast(), _mm512_extracti64x4_epi64::<1>(steps));
            }
        }
    }
}

/// The halves of `a`, added; then those of `b`.
#[inline(always)]
unsafe fn halves(a: __m512, b: __m512) -> __m512 {
    _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xEE>(a, b))
}

/// In each half, its quarters, added: of `a`, then of `b`.
#[inline(always)]
unsafe fn quarters(a: __m512, b: __m512) -> __m512 {
    _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b))
}

/// In each quarter, the pairs of `a`, added; then those of `b`.
#[inline(always)]
unsafe fn pairs(a: __m512, b: __m512) -> __m512 {
    let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
    _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)))
}

kernels!("AVX-512", Avx512, [1 2 3 4 5 6 7 8 9 10 11 12 13] x 2,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]; halves);
