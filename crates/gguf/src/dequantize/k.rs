//! Blocks of 256 values, whose parts of 16 or 32 values have scales of their own, which are
//! quantized too.

use super::blocks::NONLINEAR;
use super::{each_block, scale};
use ferrane_host::vectorize;

pub(super) fn q2_k(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 84], o: &mut [f32; 256]| {
            let (d, m) = (scale(b, 80), scale(b, 82));
            for part in 0..16 {
                let dl = d * f32::from(b[part] & 15);
                let ml = m * f32::from(b[part] >> 4);
                // Eight parts share 32 bytes: two bits of a byte for each pair of parts.
                let (from, shift) = (16 + part / 8 * 32 + part % 2 * 16, part % 8 / 2 * 2);
                for i in 0..16 {
                    o[16 * part + i] = dl * f32::from(b[from + i] >> shift & 3) - ml;
                }
            }
        }
    ));
}

pub(super) fn q3_k(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 110], o: &mut [f32; 256]| {
            let d = scale(b, 108);
            for part in 0..16 {
                // Eight bytes with the low four bits of the scales, then four with the high two.
                let low = b[96 + part % 8] >> (part / 8 * 4) & 15;
                let high = b[104 + part % 4] >> (part / 4 * 2) & 3;
                let dl = d * f32::from((low | high << 4) as i8 - 32);
                let (from, shift) = (32 + part / 8 * 32 + part % 2 * 16, part % 8 / 2 * 2);
                let (mask, bit) = (part % 2 * 16, part / 2);
                for i in 0..16 {
                    // A set bit of the mask means that nothing is subtracted.
                    let minus = (b[mask + i] >> bit & 1 ^ 1) << 2;
                    o[16 * part + i] = dl * f32::from((b[from + i] >> shift & 3) as i8 - minus as i8);
                }
            }
        }
    ));
}

/// The scales and minima of the eight parts of Q4_K and Q5_K, six bits each in twelve bytes.
#[inline(always)]
fn scales_and_minima(s: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut minima) = ([0; 8], [0; 8]);
    for i in 0..4 {
        scales[i] = s[i] & 63;
        minima[i] = s[4 + i] & 63;
        scales[4 + i] = s[8 + i] & 15 | s[i] >> 2 & 48;
        minima[4 + i] = s[8 + i] >> 4 | s[4 + i] >> 2 & 48;
    }
    (scales, minima)
}

pub(super) fn q4_k(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 144], o: &mut [f32; 256]| {
            let (d, m) = (scale(b, 0), scale(b, 2));
            let (scales, minima) = scales_and_minima(&b[4..16]);
            for part in 0..8 {
                let (dl, ml) = (d * f32::from(scales[part]), m * f32::from(minima[part]));
                let (from, shift) = (16 + part / 2 * 32, part % 2 * 4);
                for i in 0..32 {
                    o[32 * part + i] = dl * f32::from(b[from + i] >> shift & 15) - ml;
                }
            }
        }
    ));
}

pub(super) fn q5_k(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 176], o: &mut [f32; 256]| {
            let (d, m) = (scale(b, 0), scale(b, 2));
            let (scales, minima) = scales_and_minima(&b[4..16]);
            for part in 0..8 {
                let (dl, ml) = (d * f32::from(scales[part]), m * f32::from(minima[part]));
                let (from, shift) = (48 + part / 2 * 32, part % 2 * 4);
                for i in 0..32 {
                    let q = b[from + i] >> shift & 15 | (b[16 + i] >> part & 1) << 4;
                    o[32 * part + i] = dl * f32::from(q) - ml;
                }
            }
        }
    ));
}

pub(super) fn q6_k(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 210], o: &mut [f32; 256]| {
            let d = scale(b, 208);
            for part in 0..16 {
                let dl = d * f32::from(b[192 + part] as i8);
                // 128 values have 64 bytes of low halves and 32 bytes of high pairs of bits.
                let (half, row, side) = (part / 8, part % 8 / 2, part % 2 * 16);
                let (low, high) = (64 * half + row % 2 * 32 + side, 128 + 32 * half + side);
                for i in 0..16 {
                    let q = b[low + i] >> (row / 2 * 4) & 15 | (b[high + i] >> (2 * row) & 3) << 4;
                    o[16 * part + i] = dl * f32::from(q as i8 - 32);
                }
            }
        }
    ));
}

pub(super) fn iq4_xs(bytes: &[u8], out: &mut [f32]) {
    each_block(bytes, out, |b: &[u8; 136], o: &mut [f32; 256]| {
        let (d, high) = (scale(b, 0), u16::from_le_bytes([b[2], b[3]]));
        for part in 0..8 {
            let low = b[4 + part / 2] >> (part % 2 * 4) & 15;
            let dl = d * f32::from((low | ((high >> (2 * part) & 3) as u8) << 4) as i8 - 32);
            for i in 0..16 {
                let pair = b[8 + 16 * part + i];
                o[32 * part + i] = dl * NONLINEAR[usize::from(pair & 15)];
                o[32 * part + 16 + i] = dl * NONLINEAR[usize::from(pair >> 4)];
            }
        }
    });
}
