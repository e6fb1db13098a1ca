//! Decoding through tables: 4-bit codes have a table of 16 entries, 6-bit ones a table of 64.
//! AVX-512 looks up 16-bit values; AVX2 looks up their low bytes and their high bytes, in tables of
//! 16 bytes.

use std::arch::x86_64::*;

use half::f16;

/// Codes of 4 bits that are decoded at once.
pub(super) const FOURS: usize = 32;
/// Codes of 6 bits that are decoded at once.
pub(super) const SIXES: usize = 64;

/// The instructions of a processor that look up values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Avx2,
    Avx512,
}

impl Lookup {
    /// The best one that this processor has.
    pub(super) fn best() -> Option<Lookup> {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("f16c");
        let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vbmi");
        avx2.then_some(if avx512 { Lookup::Avx512 } else { Lookup::Avx2 })
    }

    /// All that this processor has.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Lookup> {
        let best = Lookup::best();
        best.into_iter().chain((best == Some(Lookup::Avx512)).then_some(Lookup::Avx2)).collect()
    }

    /// Decodes int4 codes whose blocks of a multiple of [`FOURS`] have a scale each: the bits of
    /// `code · scale` rounded to nearest even.
    ///
    /// # Safety
    /// The processor has the instructions; `codes` has the nibbles of `to`, and `scales` an fp16
    /// value for each block.
    pub(super) unsafe fn scaled(self, codes: &[u8], scales: &[u8], block: usize, to: &mut [f16]) {
        // SAFETY: the caller guarantees it.
        unsafe {
            match self {
                Lookup::Avx2 => avx2::scaled(codes, scales, block, to),
                Lookup::Avx512 => avx512::scaled(codes, scales, block, to),
            }
        }
    }

    /// Decodes 4-bit indices, in groups of [`FOURS`]; what is left of `to` is not written.
    ///
    /// # Safety
    /// The processor has the instructions; `indices` has the nibbles of `to`.
    pub(super) unsafe fn palette4(self, indices: &[u8], entries: &[f16; 16], to: &mut [f16]) {
        // SAFETY: the caller guarantees it.
        unsafe {
            match self {
                Lookup::Avx2 => avx2::palette4(indices, entries, to),
                Lookup::Avx512 => avx512::palette4(indices, entries, to),
            }
        }
    }

    /// Decodes 6-bit indices, in groups of [`SIXES`]; what is left of `to` is not written.
    ///
    /// # Safety
    /// The processor has the instructions; `indices` has the bits of `to`.
    pub(super) unsafe fn palette6(self, indices: &[u8], entries: &[f16; 64], to: &mut [f16]) {
        // SAFETY: the caller guarantees it.
        unsafe {
            match self {
                Lookup::Avx2 => avx2::palette6(indices, entries, to),
                Lookup::Avx512 => avx512::palette6(indices, entries, to),
            }
        }
    }
}

/// The values of int4 codes with a scale, in the order of unsigned nibbles, eight in each vector.
/// An infinite scale times zero is NaN, as in the product.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn scaled_entries(scale: &[u8]) -> [__m128i; 2] {
    let scale = _mm256_set1_ps(f16::from_le_bytes([scale[0], scale[1]]).to_f32());
    let halves = |values| _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(_mm256_mul_ps(values, scale));
    [
        halves(_mm256_setr_ps(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)),
        halves(_mm256_setr_ps(-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0)),
    ]
}

/// The nibbles of 16 bytes, in order.
///
/// # Safety
/// The bytes are readable.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn nibbles(codes: *const u8) -> __m256i {
    // SAFETY: the caller guarantees it.
    let bytes = unsafe { _mm_loadu_si128(codes.cast()) };
    let nibble = _mm_set1_epi8(15);
    let (low, high) = (_mm_and_si128(bytes, nibble), _mm_and_si128(_mm_srli_epi16::<4>(bytes), nibble));
    _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high))
}

mod avx512 {
    use std::arch::x86_64::*;

    use half::f16;

    use super::{FOURS, SIXES, nibbles, scaled_entries};

    /// # Safety
    /// As [`super::Lookup::scaled`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,f16c")]
    pub(super) unsafe fn scaled(codes: &[u8], scales: &[u8], block: usize, to: &mut [f16]) {
        let blocks = codes.chunks_exact(block / 2).zip(to.chunks_exact_mut(block));
        for ((codes, to), scale) in blocks.zip(scales.chunks_exact(2)) {
            let [low, high] = scaled_entries(scale);
            // SAFETY: the caller guarantees as many codes as values.
            unsafe { fours(codes, _mm512_castsi256_si512(_mm256_set_m128i(high, low)), to) };
        }
    }

    /// # Safety
    /// As [`super::Lookup::palette4`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,f16c")]
    pub(super) unsafe fn palette4(indices: &[u8], entries: &[f16; 16], to: &mut [f16]) {
        // SAFETY: a vector of the 16 entries; the caller guarantees as many indices as values.
        unsafe { fours(indices, _mm512_castsi256_si512(_mm256_loadu_si256(entries.as_ptr().cast())), to) };
    }

    /// # Safety
    /// `codes` has the nibbles of `to`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,f16c")]
    unsafe fn fours(codes: &[u8], table: __m512i, to: &mut [f16]) {
        for (codes, to) in codes.chunks_exact(FOURS / 2).zip(to.chunks_exact_mut(FOURS)) {
            // SAFETY: each group has 16 bytes and 32 values.
            unsafe {
                let decoded = _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(nibbles(codes.as_ptr())), table);
                _mm512_storeu_si512(to.as_mut_ptr().cast(), decoded);
            }
        }
    }

    /// # Safety
    /// As [`super::Lookup::palette6`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx2,f16c")]
    pub(super) unsafe fn palette6(indices: &[u8], entries: &[f16; 64], to: &mut [f16]) {
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
                    let indices =
                        if half == 0 { _mm512_castsi512_si256(all) } else { _mm512_extracti64x4_epi64::<1>(all) };
                    let decoded = _mm512_permutex2var_epi16(first, _mm512_cvtepu8_epi16(indices), second);
                    _mm512_storeu_si512(to.as_mut_ptr().add(32 * half).cast(), decoded);
                }
            }
        }
    }
}

mod avx2 {
    use std::arch::x86_64::*;

    use half::f16;

    use super::{FOURS, SIXES, nibbles, scaled_entries};

    /// The low bytes and the high bytes of 16 entries, in both lanes.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn table([first, second]: [__m128i; 2]) -> [__m256i; 2] {
        let byte = _mm_set1_epi16(0xFF);
        let low = _mm_packus_epi16(_mm_and_si128(first, byte), _mm_and_si128(second, byte));
        let high = _mm_packus_epi16(_mm_srli_epi16::<8>(first), _mm_srli_epi16::<8>(second));
        [_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high)]
    }

    /// Entries as vectors.
    ///
    /// # Safety
    /// There are 16 from `entries` on.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn load(entries: *const f16) -> [__m128i; 2] {
        // SAFETY: the caller guarantees them.
        unsafe { [_mm_loadu_si128(entries.cast()), _mm_loadu_si128(entries.add(8).cast())] }
    }

    /// Stores 32 values, of which the lanes have 16 each.
    ///
    /// # Safety
    /// They are writable.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn store([low, high]: [__m256i; 2], to: *mut f16) {
        let (even, odd) = (_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high));
        // SAFETY: the caller guarantees it.
        unsafe {
            _mm256_storeu_si256(to.cast(), _mm256_permute2x128_si256::<0x20>(even, odd));
            _mm256_storeu_si256(to.add(16).cast(), _mm256_permute2x128_si256::<0x31>(even, odd));
        }
    }

    /// # Safety
    /// As [`super::Lookup::scaled`].
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn scaled(codes: &[u8], scales: &[u8], block: usize, to: &mut [f16]) {
        let blocks = codes.chunks_exact(block / 2).zip(to.chunks_exact_mut(block));
        for ((codes, to), scale) in blocks.zip(scales.chunks_exact(2)) {
            // SAFETY: the caller guarantees as many codes as values.
            unsafe { fours(codes, table(scaled_entries(scale)), to) };
        }
    }

    /// # Safety
    /// As [`super::Lookup::palette4`].
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn palette4(indices: &[u8], entries: &[f16; 16], to: &mut [f16]) {
        // SAFETY: 16 entries; the caller guarantees as many indices as values.
        unsafe { fours(indices, table(load(entries.as_ptr())), to) };
    }

    /// # Safety
    /// `codes` has the nibbles of `to`.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn fours(codes: &[u8], table: [__m256i; 2], to: &mut [f16]) {
        for (codes, to) in codes.chunks_exact(FOURS / 2).zip(to.chunks_exact_mut(FOURS)) {
            // SAFETY: each group has 16 bytes and 32 values.
            unsafe {
                let codes = nibbles(codes.as_ptr());
                store(table.map(|table| _mm256_shuffle_epi8(table, codes)), to.as_mut_ptr());
            }
        }
    }

    /// # Safety
    /// As [`super::Lookup::palette6`].
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn palette6(indices: &[u8], entries: &[f16; 64], to: &mut [f16]) {
        // SAFETY: 64 entries.
        let quarters: [[__m256i; 2]; 4] = std::array::from_fn(|q| table(unsafe { load(entries.as_ptr().add(16 * q)) }));
        for (indices, to) in indices.chunks_exact(SIXES / 4 * 3).zip(to.chunks_exact_mut(SIXES)) {
            for half in 0..2 {
                // SAFETY: each group has 48 bytes and 64 values. The last vector begins four bytes
                // early, so that it ends with the group.
                unsafe {
                    let from = indices.as_ptr().add(24 * half);
                    let load = |at: usize| _mm_loadu_si128(from.add(at).cast());
                    let (bytes, skip) = match half {
                        0 => (_mm256_set_m128i(load(12), load(0)), 0),
                        _ => (_mm256_set_m128i(load(8), load(0)), 4),
                    };
                    let decoded = lookup(&quarters, sixes(bytes, skip));
                    store(decoded, to.as_mut_ptr().add(32 * half));
                }
            }
        }
    }

    /// The 6-bit indices of the first 12 bytes of the low lane, and of the high one those after the
    /// first `skip` bytes.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn sixes(bytes: __m256i, skip: i8) -> __m256i {
        // Three bytes, which are four indices, in each word of four.
        let spread = _mm256_setr_epi8(
            0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
        );
        let skip = _mm256_set_m128i(_mm_set1_epi8(skip), _mm_setzero_si128());
        // A byte that is not wanted stays negative: its index is -1 + 4 at most, and is masked.
        let words = _mm256_shuffle_epi8(bytes, _mm256_add_epi8(spread, skip));
        let index = |shifted: __m256i, i: i32| _mm256_and_si256(shifted, _mm256_set1_epi32(63 << (8 * i)));
        let (first, second) = (index(words, 0), index(_mm256_slli_epi32::<2>(words), 1));
        let (third, last) = (index(_mm256_slli_epi32::<4>(words), 2), index(_mm256_slli_epi32::<6>(words), 3));
        _mm256_or_si256(_mm256_or_si256(first, second), _mm256_or_si256(third, last))
    }

    /// The low and the high bytes of the entries at 6-bit indices, of four tables of 16.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn lookup(quarters: &[[__m256i; 2]; 4], indices: __m256i) -> [__m256i; 2] {
        // A shuffle takes the low four bits; the next two, as signs of bytes, choose the table.
        let (second, upper) = (_mm256_slli_epi16::<3>(indices), _mm256_slli_epi16::<2>(indices));
        [0, 1].map(|byte| {
            let of = |q: usize| _mm256_shuffle_epi8(quarters[q][byte], indices);
            let halves = [0, 2].map(|q| _mm256_blendv_epi8(of(q), of(q + 1), second));
            _mm256_blendv_epi8(halves[0], halves[1], upper)
        })
    }
}
