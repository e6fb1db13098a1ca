//! Little-endian elements of files, which need not be aligned.

use half::f16;

use super::{f16_to_f32, f32_to_f16};

/// Elements in a buffer that the first-level cache holds.
const BUFFER: usize = 1024;

/// Reads little-endian fp32 numbers.
///
/// # Panics
/// Unless `bytes` has four bytes for each number; so do the other functions here, with two.
pub fn f32_from_le(bytes: &[u8], dst: &mut [f32]) {
    assert_eq!(bytes.len(), 4 * dst.len(), "four bytes for each number");
    for (value, bytes) in dst.iter_mut().zip(bytes.as_chunks().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

/// Reads little-endian fp16 numbers.
///
/// # Panics
/// As [`f32_from_le`].
pub fn f16_from_le(bytes: &[u8], dst: &mut [f16]) {
    assert_eq!(bytes.len(), 2 * dst.len(), "two bytes for each number");
    for (value, bytes) in dst.iter_mut().zip(bytes.as_chunks().0) {
        *value = f16::from_le_bytes(*bytes);
    }
}

/// Reads little-endian fp16 numbers and widens them; exact.
///
/// # Panics
/// As [`f32_from_le`].
pub fn f16_to_f32_from_le(bytes: &[u8], dst: &mut [f32]) {
    assert_eq!(bytes.len(), 2 * dst.len(), "two bytes for each number");
    let mut buffer = [f16::ZERO; BUFFER];
    for (bytes, dst) in bytes.chunks(2 * BUFFER).zip(dst.chunks_mut(BUFFER)) {
        let buffer = &mut buffer[..dst.len()];
        f16_from_le(bytes, buffer);
        f16_to_f32(buffer, dst);
    }
}

/// Reads little-endian bf16 numbers and widens them; exact, and the bits of a NaN are kept.
///
/// # Panics
/// As [`f32_from_le`].
pub fn bf16_to_f32_from_le(bytes: &[u8], dst: &mut [f32]) {
    assert_eq!(bytes.len(), 2 * dst.len(), "two bytes for each number");
    crate::vectorize!({
        for (value, bytes) in dst.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
        }
    });
}

/// Fills `dst` with fp32 numbers that `read` computes in parts, rounded to fp16. `read` gets the
/// index of the first number and the numbers; all parts but the last have 1024.
///
/// # Errors
/// The first one of `read`.
pub fn f16_through_f32<E>(dst: &mut [f16], mut read: impl FnMut(usize, &mut [f32]) -> Result<(), E>) -> Result<(), E> {
    let mut buffer = [0.0; BUFFER];
    for (part, dst) in dst.chunks_mut(BUFFER).enumerate() {
        let buffer = &mut buffer[..dst.len()];
        read(part * BUFFER, buffer)?;
        f32_to_f16(buffer, dst);
    }
    Ok(())
}
