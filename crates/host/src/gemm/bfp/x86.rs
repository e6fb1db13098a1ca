//! The operations of AVX2 and of AVX-512 VNNI, and their panels.
#![allow(unsafe_op_in_unsafe_fn)] // Each body is one such operation; the traits state the requirements.

use std::arch::x86_64::*;

use half::f16;

use super::super::halves::TransposeF16 as _;
use super::super::isa::PanelFormat;
use super::super::pack::Pack;
use super::super::tile::{PanelBlock, Spot};
use super::super::vector::{Avx2, Avx512, Simd};
use super::{BLOCK, BYTES, BlockSimd, HEIGHT, MOST_LANES, Steps};

impl BlockSimd for Avx2 {
    type Integers = __m256i;

    #[inline(always)]
    unsafe fn no_sums() -> __m256i {
        _mm256_setzero_si256()
    }
    #[inline(always)]
    unsafe fn load_pairs(from: *const i32) -> __m256i {
        _mm256_loadu_si256(from.cast())
    }
    #[inline(always)]
    unsafe fn splat_pair(pair: i32) -> __m256i {
        _mm256_set1_epi32(pair)
    }
    #[inline(always)]
    unsafe fn store_pairs(to: *mut i32, pairs: __m256i) {
        _mm256_storeu_si256(to.cast(), pairs);
    }
    #[inline(always)]
    unsafe fn dot(sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi32(sums, _mm256_madd_epi16(a, b))
    }
    #[inline(always)]
    unsafe fn to_fp32(sums: __m256i) -> __m256 {
        _mm256_cvtepi32_ps(sums)
    }
    #[inline(always)]
    unsafe fn pairs(first: __m256, second: __m256) -> __m256i {
        let [low, high] = [first, second].map(|v| _mm256_cvtps_epi32(v));
        _mm256_blend_epi16::<0xAA>(low, _mm256_slli_epi32::<16>(high))
    }
    #[inline(always)]
    unsafe fn larger_magnitude(v: __m256, largest: __m256) -> __m256 {
        _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0), v), largest)
    }
    #[inline(always)]
    unsafe fn square_root(v: __m256) -> __m256 {
        _mm256_sqrt_ps(v)
    }
    #[inline(always)]
    unsafe fn quotient(a: __m256, b: __m256) -> __m256 {
        _mm256_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn less(a: __m256, b: __m256) -> u32 {
        _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) as u32
    }
    #[inline(always)]
    unsafe fn transpose_halves(line: impl Fn(usize) -> *const f16, to: &mut Steps<f16>) {
        for (i, steps) in to.chunks_exact_mut(Self::LANES).enumerate() {
            let at = |r: usize| _mm_loadu_si128(line(r).add(i * Self::LANES).cast());
            let rows = [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)];
            // Single values, then pairs, then fours.
            let mut twos = rows;
            for r in 0..4 {
                twos[r] = _mm_unpacklo_epi16(rows[2 * r], rows[2 * r + 1]);
                twos[r + 4] = _mm_unpackhi_epi16(rows[2 * r], rows[2 * r + 1]);
            }
            let mut fours = twos;
            for half in [0, 4] {
                for r in [0, 1] {
                    let (x, y) = (twos[half + 2 * r], twos[half + 2 * r + 1]);
                    fours[half + r] = _mm_unpacklo_epi32(x, y);
                    fours[half + r + 2] = _mm_unpackhi_epi32(x, y);
                }
            }
            for (s, pair) in steps.chunks_exact_mut(2).enumerate() {
                let (x, y) = (fours[2 * s], fours[2 * s + 1]);
                _mm_storeu_si128(pair[0].as_mut_ptr().cast(), _mm_unpacklo_epi64(x, y));
                _mm_storeu_si128(pair[1].as_mut_ptr().cast(), _mm_unpackhi_epi64(x, y));
            }
        }
    }
}

impl BlockSimd for Avx512 {
    type Integers = __m512i;

    #[inline(always)]
    unsafe fn no_sums() -> __m512i {
        _mm512_setzero_si512()
    }
    #[inline(always)]
    unsafe fn load_pairs(from: *const i32) -> __m512i {
        _mm512_loadu_si512(from.cast())
    }
    #[inline(always)]
    unsafe fn splat_pair(pair: i32) -> __m512i {
        _mm512_set1_epi32(pair)
    }
    #[inline(always)]
    unsafe fn store_pairs(to: *mut i32, pairs: __m512i) {
        _mm512_storeu_si512(to.cast(), pairs);
    }
    #[inline(always)]
    unsafe fn dot(sums: __m512i, a: __m512i, b: __m512i) -> __m512i {
        _mm512_dpwssd_epi32(sums, a, b)
    }
    #[inline(always)]
    unsafe fn to_fp32(sums: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(sums)
    }
    #[inline(always)]
    unsafe fn pairs(first: __m512, second: __m512) -> __m512i {
        let [low, high] = [first, second].map(|v| _mm512_cvtps_epi32(v));
        _mm512_mask_blend_epi16(0xAAAA_AAAA, low, _mm512_slli_epi32::<16>(high))
    }
    #[inline(always)]
    unsafe fn larger_magnitude(v: __m512, largest: __m512) -> __m512 {
        // The larger magnitude, without a sign.
        _mm512_range_ps::<0b1011>(v, largest)
    }
    #[inline(always)]
    unsafe fn square_root(v: __m512) -> __m512 {
        _mm512_sqrt_ps(v)
    }
    #[inline(always)]
    unsafe fn quotient(a: __m512, b: __m512) -> __m512 {
        _mm512_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn less(a: __m512, b: __m512) -> u32 {
        u32::from(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    unsafe fn transpose_halves(line: impl Fn(usize) -> *const f16, to: &mut Steps<f16>) {
        Avx512::transpose_f16(line, to.as_flattened_mut().as_mut_ptr(), MOST_LANES);
    }
}

/// The panels of a set, with columns of two vectors.
macro_rules! format {
    ($name:ident, $simd:ty, $features:literal) => {
        pub(in crate::gemm) const $name: PanelFormat = {
            #[target_feature(enable = $features)]
            unsafe fn pack(job: Pack) {
                // SAFETY: the caller guarantees it.
                unsafe { super::pack::<$simd>(&job) }
            }
            #[target_feature(enable = $features)]
            unsafe fn tile<const M: usize, const N: usize>(block: &PanelBlock<'_>, spot: Spot) {
                // SAFETY: the caller guarantees it.
                unsafe { super::tile::<$simd, M, N>(block, spot, 2 * <$simd>::LANES) }
            }
            PanelFormat {
                rows: HEIGHT,
                cols: 2 * <$simd>::LANES,
                lanes: <$simd>::LANES,
                tiles: &[
                    &[tile::<1, 1>, tile::<1, 2>],
                    &[tile::<2, 1>, tile::<2, 2>],
                    &[tile::<3, 1>, tile::<3, 2>],
                    &[tile::<4, 1>, tile::<4, 2>],
                    &[tile::<5, 1>, tile::<5, 2>],
                    &[tile::<HEIGHT, 1>, tile::<HEIGHT, 2>],
                ],
                pack: [pack; 2],
                bytes: [BYTES; 2],
                unit: BLOCK,
                step: BLOCK,
            }
        };
    };
}
format!(AVX2, Avx2, "avx2,fma,f16c");
format!(AVX512, Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c");

/// Whether the processor has the dot products of [`AVX512`], in addition to the AVX-512 of the
/// other kernels.
pub(in crate::gemm) fn has_avx512_vnni() -> bool {
    std::arch::is_x86_feature_detected!("avx512vnni")
}
