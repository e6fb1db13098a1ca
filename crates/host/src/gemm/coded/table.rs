//! Decoding through tables with AVX-512: 4-bit codes through a table of 16 entries, 6-bit ones
//! through a table of 64.

use std::arch::x86_64::*;

use half::f16;

/// Codes of 4 bits that are decoded at once.
pub(super) const FOURS: usize = 32;
/// Codes of 6 bits that are decoded at once.
pub(super) const SIXES: usize = 64;

pub(super) fn is_supported() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vbmi") && has!("avx2") && has!("f16c")
}

/// Decodes int4 codes whose blocks of a multiple of [`FOURS`] have a scale each: the bits of
/// `code · scale` rounded to nearest even.
///
/// # Safety
/// [`is_supported`]; `codes` has the nibbles of `to`, and `scales` an fp16 value for each block.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,f16c")]
pub(super) unsafe fn scaled(codes: &[u8], scales: &[u8], block: usize, to: &mut [f16]) {
    let values = _mm512_set_ps(-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0);
    for ((codes, to), scale) in
        codes.chunks_exact(block / 2).zip(to.chunks_exact_mut(block)).zip(scales.chunks_exact(2))
    {
        let scale = f16::from_le_bytes([scale[0], scale[1]]).to_f32();
        // An infinite scale times zero is NaN, as in the product.
        let table = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(_mm512_mul_ps(values, _mm512_set1_ps(scale)));
        let table = _mm512_castsi256_si512(table);
        for (codes, to) in codes.chunks_exact(FOURS / 2).zip(to.chunks_exact_mut(FOURS)) {
            // SAFETY: 16 bytes and 32 values.
            unsafe { four(codes.as_ptr(), table, to.as_mut_ptr()) };
        }
    }
}

/// Decodes 4-bit indices, in groups of [`FOURS`]; what is left of `to` is not written.
///
/// # Safety
/// [`is_supported`]; `indices` has the nibbles of `to`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,f16c")]
pub(super) unsafe fn palette4(indices: &[u8], entries: &[f16; 256], to: &mut [f16]) {
    // SAFETY: a vector of 32 of the 256 entries.
    let table = unsafe { _mm512_loadu_si512(entries.as_ptr().cast()) };
    for (indices, to) in indices.chunks_exact(FOURS / 2).zip(to.chunks_exact_mut(FOURS)) {
        // SAFETY: 16 bytes and 32 values.
        unsafe { four(indices.as_ptr(), table, to.as_mut_ptr()) };
    }
}

/// # Safety
/// 16 bytes are readable and 32 values writable; the set is supported.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,f16c")]
unsafe fn four(codes: *const u8, table: __m512i, to: *mut f16) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let bytes = _mm_loadu_si128(codes.cast());
        let nibble = _mm_set1_epi8(15);
        let (low, high) = (_mm_and_si128(bytes, nibble), _mm_and_si128(_mm_srli_epi16::<4>(bytes), nibble));
        let all = _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high));
        let decoded = _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(all), table);
        _mm512_storeu_si512(to.cast(), decoded);
    }
}

/// Decodes 6-bit indices, in groups of [`SIXES`]; what is left of `to` is not written.
///
/// # Safety
/// [`is_supported`]; `indices` has the bits of `to`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx2,f16c")]
pub(super) unsafe fn palette6(indices: &[u8], entries: &[f16; 256], to: &mut [f16]) {
    // Six bytes, which are eight indices, in each word of eight.
    let spread: [u8; 64] = std::array::from_fn(|i| (i / 8 * 6 + (i % 8).min(5)) as u8);
    // SAFETY: vectors inside the arrays; each group has 48 bytes and 64 values.
    unsafe {
        let spread = _mm512_loadu_si512(spread.as_ptr().cast());
        let shifts = _mm512_set1_epi64(0x2A24_1E18_120C_0600);
        let (first, second) =
            (_mm512_loadu_si512(entries.as_ptr().cast()), _mm512_loadu_si512(entries.as_ptr().add(32).cast()));
        for (indices, to) in indices.chunks_exact(SIXES / 4 * 3).zip(to.chunks_exact_mut(SIXES)) {
            let bytes = _mm512_maskz_loadu_epi8((1 << 48) - 1, indices.as_ptr().cast());
            let words = _mm512_permutexvar_epi8(spread, bytes);
            let all = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, words), _mm512_set1_epi8(63));
            for half in 0..2 {
                let indices = if half == 0 { _mm512_castsi512_si256(all) } else { _mm512_extracti64x4_epi64::<1>(all) };
                let decoded = _mm512_permutex2var_epi16(first, _mm512_cvtepu8_epi16(indices), second);
                _mm512_storeu_si512(to.as_mut_ptr().add(32 * half).cast(), decoded);
            }
        }
    }
}
