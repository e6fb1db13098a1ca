//! Blocks of 32 values with one scale, and some with an offset.
//!
//! Values 0 to 15 of a block are in the low halves of its bytes, 16 to 31 in the high halves.

use super::{each_block, scale};
use ferrane_host::vectorize;

/// The 16 values of IQ4_NL and IQ4_XS.
pub(super) const NONLINEAR: [f32; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

pub(super) fn q8_0(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 34], o: &mut [f32; 32]| {
            let d = scale(b, 0);
            for i in 0..32 {
                o[i] = f32::from(b[2 + i] as i8) * d;
            }
        }
    ));
}

pub(super) fn q4_0(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 18], o: &mut [f32; 32]| {
            let d = scale(b, 0);
            for i in 0..16 {
                o[i] = d * f32::from((b[2 + i] & 15) as i8 - 8);
                o[16 + i] = d * f32::from((b[2 + i] >> 4) as i8 - 8);
            }
        }
    ));
}

pub(super) fn q4_1(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 20], o: &mut [f32; 32]| {
            let (d, m) = (scale(b, 0), scale(b, 2));
            for i in 0..16 {
                o[i] = d * f32::from(b[4 + i] & 15) + m;
                o[16 + i] = d * f32::from(b[4 + i] >> 4) + m;
            }
        }
    ));
}

pub(super) fn q5_0(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 22], o: &mut [f32; 32]| {
            let (d, high) = (scale(b, 0), u32::from_le_bytes([b[2], b[3], b[4], b[5]]));
            for i in 0..16 {
                let (low, top) = (five(b[6 + i] & 15, high, i), five(b[6 + i] >> 4, high, 16 + i));
                o[i] = d * f32::from(low as i8 - 16);
                o[16 + i] = d * f32::from(top as i8 - 16);
            }
        }
    ));
}

pub(super) fn q5_1(bytes: &[u8], out: &mut [f32]) {
    vectorize!(each_block(
        bytes,
        out,
        #[inline(always)]
        |b: &[u8; 24], o: &mut [f32; 32]| {
            let (d, m, high) = (scale(b, 0), scale(b, 2), u32::from_le_bytes([b[4], b[5], b[6], b[7]]));
            for i in 0..16 {
                o[i] = d * f32::from(five(b[8 + i] & 15, high, i)) + m;
                o[16 + i] = d * f32::from(five(b[8 + i] >> 4, high, 16 + i)) + m;
            }
        }
    ));
}

/// Four low bits with the fifth from bit `at` of `high`.
#[inline(always)]
fn five(low: u8, high: u32, at: usize) -> u8 {
    low | ((high >> at & 1) as u8) << 4
}

pub(super) fn iq4_nl(bytes: &[u8], out: &mut [f32]) {
    each_block(bytes, out, |b: &[u8; 18], o: &mut [f32; 32]| {
        let d = scale(b, 0);
        for i in 0..16 {
            o[i] = d * NONLINEAR[usize::from(b[2 + i] & 15)];
            o[16 + i] = d * NONLINEAR[usize::from(b[2 + i] >> 4)];
        }
    });
}
