//! Floating-point numbers and integers.

use super::each_block;
use ferrane_host::convert::bytes;

pub(super) fn f32s(from: &[u8], out: &mut [f32]) {
    bytes::f32_from_le(from, out);
}

pub(super) fn f16s(from: &[u8], out: &mut [f32]) {
    bytes::f16_to_f32_from_le(from, out);
}

pub(super) fn bf16s(from: &[u8], out: &mut [f32]) {
    bytes::bf16_to_f32_from_le(from, out);
}

pub(super) fn f64s(bytes: &[u8], out: &mut [f32]) {
    each_block(bytes, out, |b: &[u8; 8], o: &mut [f32; 1]| o[0] = f64::from_le_bytes(*b) as f32);
}

pub(super) fn i8s(bytes: &[u8], out: &mut [f32]) {
    each_block(bytes, out, |b: &[u8; 1], o: &mut [f32; 1]| o[0] = f32::from(b[0] as i8));
}

pub(super) fn i16s(bytes: &[u8], out: &mut [f32]) {
    each_block(bytes, out, |b: &[u8; 2], o: &mut [f32; 1]| o[0] = f32::from(i16::from_le_bytes(*b)));
}

pub(super) fn i32s(bytes: &[u8], out: &mut [f32]) {
    each_block(bytes, out, |b: &[u8; 4], o: &mut [f32; 1]| o[0] = i32::from_le_bytes(*b) as f32);
}

pub(super) fn i64s(bytes: &[u8], out: &mut [f32]) {
    each_block(bytes, out, |b: &[u8; 8], o: &mut [f32; 1]| o[0] = i64::from_le_bytes(*b) as f32);
}
