//! Integers of the left factor as three signed bytes, `a + 256 b + 65536 c`, for instructions that
//! multiply unsigned bytes by signed ones.
//!
//! Codes become unsigned by adding 8 or 128; a sum begins with what that adds, negated. A prepared
//! chunk has vectors of 64 bytes: for int4 the bytes `a`, `b` and `c` of the even values, then of
//! the odd ones (the low and high nibbles), for int8 those of all values; then the first sums and
//! the units.

use super::fixed::{Fixed, LANES};

/// Bytes of the codes of a chunk, and of a vector of a prepared one.
pub(super) const VECTOR: usize = 64;

/// Bytes of a prepared chunk.
pub(super) const fn chunk_bytes(bits: usize) -> usize {
    VECTOR * if bits == 4 { 8 } else { 5 }
}

/// Splits the integers of a chunk.
#[inline(always)]
pub(super) fn limbs(fixed: &Fixed, bits: usize, to: &mut [u8]) {
    let mut split = [[0u8; 128]; 3];
    let [a, b, c] = &mut split;
    for i in 0..128 {
        // Each byte is the nearest one, so what is left is a multiple of 256.
        let value = fixed.values[i];
        let low = value as i8;
        let rest = (value - i32::from(low)) >> 8;
        let middle = rest as i8;
        a[i] = low as u8;
        b[i] = middle as u8;
        c[i] = ((rest - i32::from(middle)) >> 8) as u8;
    }
    let mut vectors = to.chunks_exact_mut(VECTOR);
    let bias = if bits == 4 { 8 } else { 128 };
    let per_lane = 32 / bits;
    if bits == 4 {
        for odd in 0..2 {
            for (limb, vector) in split.iter().zip(vectors.by_ref()) {
                for (byte, pair) in vector.iter_mut().zip(limb.chunks_exact(2)) {
                    *byte = pair[odd];
                }
            }
        }
    } else {
        for (limb, vector) in split.iter().zip(vectors.by_ref()) {
            vector.copy_from_slice(&limb[..VECTOR]);
        }
    }
    let mut words = vectors.flat_map(|vector| vector.chunks_exact_mut(4));
    for (values, word) in fixed.values.chunks_exact(per_lane).take(LANES).zip(words.by_ref()) {
        word.copy_from_slice(&(-bias * values.iter().sum::<i32>()).to_ne_bytes());
    }
    for (unit, word) in fixed.units.iter().zip(words) {
        word.copy_from_slice(&unit.to_ne_bytes());
    }
}
