//! The conversions with F16C (8 lanes) and AVX-512F (16 lanes).
//!
//! Each function is safe but for its processor features: bounds come from slices. `VCVTPS2PH` and
//! `VCVTPH2PS` ignore the flush-to-zero mode, so the thread's floating-point state does not matter.

use std::arch::x86_64::*;

use half::f16;

use super::transpose_scalar;

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

/// Rows of the source that one strip of a transposition covers: 8 destination rows × 512 bytes and
/// 256 source lines stay in the L1 and L2 caches.
const STRIP_ROWS: usize = 256;

pub fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
}

pub fn has_f16c() -> bool {
    std::arch::is_x86_feature_detected!("avx") && std::arch::is_x86_feature_detected!("f16c")
}

#[target_feature(enable = "avx512f")]
pub fn f32_rows_avx512(src: &[f32], src_stride: usize, dst: &mut [f16], dst_stride: usize, cols: usize) {
    for (s, d) in src.chunks(src_stride).zip(dst.chunks_mut(dst_stride)) {
        f32_to_f16_avx512(&s[..cols], &mut d[..cols]);
    }
}

#[target_feature(enable = "avx512f")]
pub fn f16_rows_avx512(src: &[f16], src_stride: usize, dst: &mut [f32], dst_stride: usize, cols: usize) {
    for (s, d) in src.chunks(src_stride).zip(dst.chunks_mut(dst_stride)) {
        f16_to_f32_avx512(&s[..cols], &mut d[..cols]);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn f32_to_f16_avx512(src: &[f32], dst: &mut [f16]) {
    let (blocks, tail) = src.as_chunks::<16>();
    let (out, out_tail) = dst.as_chunks_mut::<16>();
    for (s, d) in blocks.iter().zip(out) {
        // SAFETY: both arrays have 16 elements (64 and 32 bytes); `f16` is a transparent `u16`.
        unsafe {
            let half = _mm512_cvtps_ph::<NEAREST>(_mm512_loadu_ps(s.as_ptr()));
            _mm256_storeu_si256(d.as_mut_ptr().cast(), half);
        }
    }
    for (s, d) in tail.iter().zip(out_tail) {
        *d = f16::from_f32(*s);
    }
}

#[target_feature(enable = "avx,f16c")]
pub fn f32_to_f16_f16c(src: &[f32], dst: &mut [f16]) {
    let (blocks, tail) = src.as_chunks::<8>();
    let (out, out_tail) = dst.as_chunks_mut::<8>();
    for (s, d) in blocks.iter().zip(out) {
        // SAFETY: both arrays have 8 elements (32 and 16 bytes); `f16` is a transparent `u16`.
        unsafe {
            let half = _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(s.as_ptr()));
            _mm_storeu_si128(d.as_mut_ptr().cast(), half);
        }
    }
    for (s, d) in tail.iter().zip(out_tail) {
        *d = f16::from_f32(*s);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub fn f16_to_f32_avx512(src: &[f16], dst: &mut [f32]) {
    let (blocks, tail) = src.as_chunks::<16>();
    let (out, out_tail) = dst.as_chunks_mut::<16>();
    for (s, d) in blocks.iter().zip(out) {
        // SAFETY: both arrays have 16 elements (32 and 64 bytes).
        unsafe { _mm512_storeu_ps(d.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(s.as_ptr().cast()))) }
    }
    for (s, d) in tail.iter().zip(out_tail) {
        *d = s.to_f32();
    }
}

#[target_feature(enable = "avx,f16c")]
pub fn f16_to_f32_f16c(src: &[f16], dst: &mut [f32]) {
    let (blocks, tail) = src.as_chunks::<8>();
    let (out, out_tail) = dst.as_chunks_mut::<8>();
    for (s, d) in blocks.iter().zip(out) {
        // SAFETY: both arrays have 8 elements (16 and 32 bytes).
        unsafe { _mm256_storeu_ps(d.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(s.as_ptr().cast()))) }
    }
    for (s, d) in tail.iter().zip(out_tail) {
        *d = s.to_f32();
    }
}

#[target_feature(enable = "avx512f")]
pub fn round_f16_avx512(values: &mut [f32]) {
    let (blocks, tail) = values.as_chunks_mut::<16>();
    for v in blocks {
        // SAFETY: the array has 16 elements (64 bytes).
        unsafe {
            let half = _mm512_cvtps_ph::<NEAREST>(_mm512_loadu_ps(v.as_ptr()));
            _mm512_storeu_ps(v.as_mut_ptr(), _mm512_cvtph_ps(half));
        }
    }
    for v in tail {
        *v = f16::from_f32(*v).to_f32();
    }
}

#[target_feature(enable = "avx,f16c")]
pub fn round_f16_f16c(values: &mut [f32]) {
    let (blocks, tail) = values.as_chunks_mut::<8>();
    for v in blocks {
        // SAFETY: the array has 8 elements (32 bytes).
        unsafe {
            let half = _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(v.as_ptr()));
            _mm256_storeu_ps(v.as_mut_ptr(), _mm256_cvtph_ps(half));
        }
    }
    for v in tail {
        *v = f16::from_f32(*v).to_f32();
    }
}

/// The transposition of an 8 × 8 block of 16-bit lanes, held as rows.
#[target_feature(enable = "sse2")]
fn transpose_8x8(r: [__m128i; 8]) -> [__m128i; 8] {
    // Interleave 16-bit, then 32-bit, then 64-bit lanes; after the three steps register `c` holds
    // column `c`.
    let a = [
        _mm_unpacklo_epi16(r[0], r[1]),
        _mm_unpackhi_epi16(r[0], r[1]),
        _mm_unpacklo_epi16(r[2], r[3]),
        _mm_unpackhi_epi16(r[2], r[3]),
        _mm_unpacklo_epi16(r[4], r[5]),
        _mm_unpackhi_epi16(r[4], r[5]),
        _mm_unpacklo_epi16(r[6], r[7]),
        _mm_unpackhi_epi16(r[6], r[7]),
    ];
    let b = [
        _mm_unpacklo_epi32(a[0], a[2]),
        _mm_unpackhi_epi32(a[0], a[2]),
        _mm_unpacklo_epi32(a[1], a[3]),
        _mm_unpackhi_epi32(a[1], a[3]),
        _mm_unpacklo_epi32(a[4], a[6]),
        _mm_unpackhi_epi32(a[4], a[6]),
        _mm_unpacklo_epi32(a[5], a[7]),
        _mm_unpackhi_epi32(a[5], a[7]),
    ];
    [
        _mm_unpacklo_epi64(b[0], b[4]),
        _mm_unpackhi_epi64(b[0], b[4]),
        _mm_unpacklo_epi64(b[1], b[5]),
        _mm_unpackhi_epi64(b[1], b[5]),
        _mm_unpacklo_epi64(b[2], b[6]),
        _mm_unpackhi_epi64(b[2], b[6]),
        _mm_unpacklo_epi64(b[3], b[7]),
        _mm_unpackhi_epi64(b[3], b[7]),
    ]
}

/// A transposition by blocks of 8 × 8: `load` reads a row of a block as 16-bit lanes, `store`
/// writes one, `one` serves the edges.
macro_rules! transposed {
    ($(#[$attribute:meta])* $name:ident, $from:ty => $to:ty, $load:expr, $store:expr, $one:expr) => {
        $(#[$attribute])*
        pub fn $name(
            src: &[$from],
            src_row_stride: usize,
            dst: &mut [$to],
            dst_row_stride: usize,
            rows: usize,
            cols: usize,
        ) {
            let (rows8, cols8) = (rows / 8 * 8, cols / 8 * 8);
            for r0 in (0..rows8).step_by(STRIP_ROWS) {
                for c in (0..cols8).step_by(8) {
                    for r in (r0..rows8.min(r0 + STRIP_ROWS)).step_by(8) {
                        let mut block = [_mm_setzero_si128(); 8];
                        for (i, lane) in block.iter_mut().enumerate() {
                            let s = &src[(r + i) * src_row_stride + c..][..8];
                            // SAFETY: `s` has 8 elements, which is what is loaded.
                            *lane = unsafe { $load(s.as_ptr()) };
                        }
                        for (i, lane) in transpose_8x8(block).into_iter().enumerate() {
                            let d = &mut dst[(c + i) * dst_row_stride + r..][..8];
                            // SAFETY: `d` has 8 elements, which is what is stored.
                            unsafe { $store(d.as_mut_ptr(), lane) }
                        }
                    }
                }
            }
            transpose_scalar(src, src_row_stride, dst, dst_row_stride, rows8..rows, 0..cols8, $one);
            transpose_scalar(src, src_row_stride, dst, dst_row_stride, 0..rows, cols8..cols, $one);
        }
    };
}

transposed!(
    #[target_feature(enable = "avx,f16c")]
    f32_to_f16_transposed, f32 => f16,
    |s| _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(s)),
    |d: *mut f16, lane| _mm_storeu_si128(d.cast(), lane),
    f16::from_f32
);

transposed!(
    #[target_feature(enable = "avx,f16c")]
    f16_to_f32_transposed, f16 => f32,
    |s: *const f16| _mm_loadu_si128(s.cast()),
    |d, lane| _mm256_storeu_ps(d, _mm256_cvtph_ps(lane)),
    f16::to_f32
);

transposed!(
    #[target_feature(enable = "sse2")]
    transpose_f16, f16 => f16,
    |s: *const f16| _mm_loadu_si128(s.cast()),
    |d: *mut f16, lane| _mm_storeu_si128(d.cast(), lane),
    |v| v
);
