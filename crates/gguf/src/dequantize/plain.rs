//! Floating-point numbers and integers.

use super::each_block;
use half::{bf16, f16};

pub(super) fn f32s(bytes: &[u8], out: &mut [f32]) {
    each_block(bytes, out, |b: &[u8; 4], o: &mut [f32; 1]| o[0] = f32::from_le_bytes(*b));
}

pub(super) fn f16s(bytes: &[u8], out: &mut [f32]) {
    // Through a small buffer, because mapped bytes need not be aligned for fp16.
    let mut buffer = [f16::ZERO; 1024];
    for (bytes, out) in bytes.chunks(2 * buffer.len()).zip(out.chunks_mut(buffer.len())) {
        for (value, b) in buffer.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *value = f16::from_le_bytes(*b);
        }
        ferrane_host::convert::f16_to_f32(&buffer[..out.len()], out);
    }
}

pub(super) fn bf16s(bytes: &[u8], out: &mut [f32]) {
    each_block(bytes, out, |b: &[u8; 2], o: &mut [f32; 1]| {
        o[0] = f32::from_bits(u32::from(bf16::from_le_bytes(*b).to_bits()) << 16);
    });
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
