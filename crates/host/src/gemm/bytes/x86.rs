//! The tiles of [`bytes`](super) with AVX2, AVX-VNNI and AVX-512 VNNI.

use std::arch::x86_64::*;

use super::{TALL, Tile, WIDE};

pub(super) fn has_avx_vnni() -> bool {
    std::arch::is_x86_feature_detected!("avxvnni")
}

/// The operations on vectors of sums.
///
/// # Safety
/// For every function here: the processor supports the set, and an address is valid for a vector.
trait ByteSimd {
    type Sums: Copy;
    /// Sums of a vector.
    const LANES: usize;
    /// Bytes of each column that a step multiplies.
    const DEPTH: usize;
    unsafe fn splat(x: i32) -> Self::Sums;
    /// The codes of a step, as they are multiplied.
    unsafe fn codes(from: *const i8) -> Self::Sums;
    /// Adds the products of the codes with those of `x`, which are in each lane.
    unsafe fn add(sums: Self::Sums, codes: Self::Sums, x: Self::Sums) -> Self::Sums;
    unsafe fn store(to: *mut i32, sums: Self::Sums);
}

struct Pairs;
struct Short;
struct Long;

impl ByteSimd for Pairs {
    type Sums = __m256i;
    const LANES: usize = 8;
    const DEPTH: usize = 2;
    #[inline(always)]
    unsafe fn splat(x: i32) -> __m256i {
        // SAFETY: the caller guarantees the set, here and below.
        unsafe { _mm256_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn codes(from: *const i8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn add(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(codes, x)) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut i32, sums: __m256i) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(to.cast(), sums) }
    }
}

impl ByteSimd for Short {
    type Sums = __m256i;
    const LANES: usize = 8;
    const DEPTH: usize = 4;
    #[inline(always)]
    unsafe fn splat(x: i32) -> __m256i {
        // SAFETY: the caller guarantees the set, here and below.
        unsafe { _mm256_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn codes(from: *const i8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn add(sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_dpbusd_avx_epi32(sums, codes, x) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut i32, sums: __m256i) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(to.cast(), sums) }
    }
}

impl ByteSimd for Long {
    type Sums = __m512i;
    const LANES: usize = 16;
    const DEPTH: usize = 4;
    #[inline(always)]
    unsafe fn splat(x: i32) -> __m512i {
        // SAFETY: the caller guarantees the set, here and below.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn codes(from: *const i8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn add(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_dpbusd_epi32(sums, codes, x) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut i32, sums: __m512i) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(to.cast(), sums) }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn avx2(tile: &Tile<'_>, sums: &mut [i32; TALL * WIDE]) {
    // SAFETY: the caller guarantees the sizes and the set.
    unsafe { narrow::<Pairs>(tile, sums) }
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn avx_vnni(tile: &Tile<'_>, sums: &mut [i32; TALL * WIDE]) {
    // SAFETY: as above.
    unsafe { narrow::<Short>(tile, sums) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn avx512(tile: &Tile<'_>, sums: &mut [i32; TALL * WIDE]) {
    // SAFETY: as above.
    unsafe {
        match tile.vectors {
            4 => rows::<Long, 4>(tile, sums),
            2 => rows::<Long, 2>(tile, sums),
            _ => rows::<Long, 1>(tile, sums),
        }
    }
}

/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn narrow<S: ByteSimd>(tile: &Tile<'_>, sums: &mut [i32; TALL * WIDE]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match tile.vectors {
            2 => rows::<S, 2>(tile, sums),
            _ => rows::<S, 1>(tile, sums),
        }
    }
}

/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn rows<S: ByteSimd, const N: usize>(tile: &Tile<'_>, sums: &mut [i32; TALL * WIDE]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        match tile.begins.len() {
            6 => multiply::<S, 6, N>(tile, sums),
            5 => multiply::<S, 5, N>(tile, sums),
            4 => multiply::<S, 4, N>(tile, sums),
            3 => multiply::<S, 3, N>(tile, sums),
            2 => multiply::<S, 2, N>(tile, sums),
            _ => multiply::<S, 1, N>(tile, sums),
        }
    }
}

/// # Safety
/// The tile has `M` rows and `N` vectors, and its slices the sizes that belong to these; the
/// processor supports the set.
#[inline(always)]
unsafe fn multiply<S: ByteSimd, const M: usize, const N: usize>(tile: &Tile<'_>, sums: &mut [i32; TALL * WIDE]) {
    let (left, steps) = (tile.left.as_ptr(), tile.steps);
    let (mut right, line) = (tile.right.as_ptr(), N * S::LANES * S::DEPTH);
    // SAFETY: each row has `steps` integers, the panel so many lines, and the tile has room for all
    // sums; the caller guarantees the set.
    unsafe {
        let mut all = [[S::splat(0); N]; M];
        for (i, row) in all.iter_mut().enumerate() {
            *row = [S::splat(*tile.begins.get_unchecked(i)); N];
        }
        for step in 0..steps {
            let mut codes = [S::splat(0); N];
            for (v, codes) in codes.iter_mut().enumerate() {
                *codes = S::codes(right.add(v * S::LANES * S::DEPTH));
            }
            right = right.add(line);
            for i in 0..M {
                let x = S::splat(*left.add(i * steps + step));
                for v in 0..N {
                    all[i][v] = S::add(all[i][v], codes[v], x);
                }
            }
        }
        let to = sums.as_mut_ptr();
        for (i, row) in all.iter().enumerate() {
            for (v, sums) in row.iter().enumerate() {
                S::store(to.add((i * N + v) * S::LANES), *sums);
            }
        }
    }
}
