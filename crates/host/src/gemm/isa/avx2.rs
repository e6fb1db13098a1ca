//! AVX2 with FMA and F16C: 8 lanes.
#![allow(unsafe_op_in_unsafe_fn)] // Each body is one such operation; the trait states the requirements.

use std::arch::x86_64::*;

use half::f16;

use super::kernels;
use crate::gemm::vector::{Avx2, Simd};

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

impl Simd for Avx2 {
    type V = __m256;
    type Rows = [__m256; 8];
    const LANES: usize = 8;
    const REGISTERS: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        _mm256_set1_ps(x)
    }
    #[inline(always)]
    unsafe fn zeros() -> [__m256; 8] {
        [_mm256_setzero_ps(); 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        _mm256_loadu_ps(from)
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m256) {
        _mm256_storeu_ps(to, v)
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> __m256 {
        _mm256_cvtph_ps(_mm_loadu_si128(from.cast()))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> __m256 {
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())))
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut f16, v: __m256) {
        _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<NEAREST>(v))
    }
    #[inline(always)]
    unsafe fn round(v: __m256) -> __m256 {
        _mm256_cvtph_ps(_mm256_cvtps_ph::<NEAREST>(v))
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        _mm256_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn larger(best: __m256, v: __m256) -> __m256 {
        let taken = _mm256_or_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(v, best), _mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        _mm256_blendv_ps(best, v, taken)
    }
    #[inline(always)]
    unsafe fn at_least(low: __m256, v: __m256) -> __m256 {
        // The second operand if they are equal or one is NaN.
        _mm256_max_ps(low, v)
    }
    #[inline(always)]
    unsafe fn at_most(high: __m256, v: __m256) -> __m256 {
        _mm256_min_ps(high, v)
    }
    #[inline(always)]
    unsafe fn from(low: __m256, v: __m256) -> __m256 {
        _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(v, low), v)
    }
    #[inline(always)]
    unsafe fn sum(v: __m256) -> f32 {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }
    #[inline(always)]
    unsafe fn sums(r: [__m256; 8]) -> __m256 {
        // Each addition is a level of `sum`, of two vectors at a time.
        let (a, b) = (halves(r[0], r[4]), halves(r[1], r[5]));
        let (c, d) = (halves(r[2], r[6]), halves(r[3], r[7]));
        let (ab, cd) = (pairs(a, b), pairs(c, d));
        _mm256_add_ps(_mm256_shuffle_ps::<0x88>(ab, cd), _mm256_shuffle_ps::<0xDD>(ab, cd))
    }
    #[inline(always)]
    unsafe fn transpose(r: [__m256; 8]) -> [__m256; 8] {
        // Single values, then pairs, within the 128-bit halves; then halves across registers.
        let mut a = r;
        for i in (0..8).step_by(2) {
            a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
            a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
        }
        let mut b = a;
        for i in (0..8).step_by(4) {
            for half in [0, 1] {
                let (x, y) = (_mm256_castps_pd(a[i + half]), _mm256_castps_pd(a[i + half + 2]));
                b[i + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
                b[i + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
            }
        }
        let mut out = r;
        for c in 0..4 {
            out[c] = _mm256_permute2f128_ps::<0x20>(b[c], b[4 + c]);
            out[c + 4] = _mm256_permute2f128_ps::<0x31>(b[c], b[4 + c]);
        }
        out
    }
}

/// The halves of `a`, added; then those of `b`.
#[inline(always)]
unsafe fn halves(a: __m256, b: __m256) -> __m256 {
    _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
}

/// In each half, the pairs of `a`, added; then those of `b`.
#[inline(always)]
unsafe fn pairs(a: __m256, b: __m256) -> __m256 {
    let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
    _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)))
}

kernels!("AVX2", Avx2, [1 2 3 4 5 6] x 2, #[target_feature(enable = "avx2,fma,f16c")]);
