//! The values of tensors in fp32.
//!
//! Every routine does the operations of the reference implementation in the Python package `gguf`,
//! in fp32 and in their order, so the bits agree. NaN comes back as NaN; its bits depend on the
//! processor.
//!
//! | module | types |
//! |---|---|
//! | `plain` | floating-point numbers and integers |
//! | `blocks` | blocks of 32 values with one scale: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL |
//! | `k` | blocks of 256 values with scales of parts: Q2_K to Q6_K, IQ4_XS |

mod blocks;
mod k;
mod plain;

use crate::{Error, TensorType};
use ferrane_host::pool;

/// Values in one task of the pool: a multiple of every block, and few enough for the cache.
const TASK: usize = 1 << 16;

/// Fills `out` from whole blocks.
type Routine = fn(&[u8], &mut [f32]);

/// The routine of a type; `None` for a type that cannot be read.
pub(crate) fn routine(ty: TensorType) -> Option<Routine> {
    Some(match ty {
        TensorType::F32 => plain::f32s,
        TensorType::F16 => plain::f16s,
        TensorType::BF16 => plain::bf16s,
        TensorType::F64 => plain::f64s,
        TensorType::I8 => plain::i8s,
        TensorType::I16 => plain::i16s,
        TensorType::I32 => plain::i32s,
        TensorType::I64 => plain::i64s,
        TensorType::Q4_0 => blocks::q4_0,
        TensorType::Q4_1 => blocks::q4_1,
        TensorType::Q5_0 => blocks::q5_0,
        TensorType::Q5_1 => blocks::q5_1,
        TensorType::Q8_0 => blocks::q8_0,
        TensorType::IQ4_NL => blocks::iq4_nl,
        TensorType::Q2_K => k::q2_k,
        TensorType::Q3_K => k::q3_k,
        TensorType::Q4_K => k::q4_k,
        TensorType::Q5_K => k::q5_k,
        TensorType::Q6_K => k::q6_k,
        TensorType::IQ4_XS => k::iq4_xs,
        _ => return None,
    })
}

/// Computes the values of whole blocks of a type.
///
/// # Errors
/// [`Error::Unsupported`] for a type that cannot be read; [`Error::Length`] unless `bytes` are
/// exactly the blocks of `out`.
pub fn dequantize(ty: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    check(ty, bytes, out)?(bytes, out);
    Ok(())
}

/// As [`dequantize`], on the threads of the pool.
///
/// # Errors
/// As [`dequantize`].
pub fn parallel(ty: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    let routine = check(ty, bytes, out)?;
    let task_bytes = TASK / ty.block_values() * ty.block_bytes();
    pool::for_each_chunk_mut(out, TASK, |index, out| {
        let begin = index * task_bytes;
        routine(&bytes[begin..bytes.len().min(begin + task_bytes)], out);
    });
    Ok(())
}

fn check(ty: TensorType, bytes: &[u8], out: &[f32]) -> Result<Routine, Error> {
    let routine = routine(ty).ok_or(Error::Unsupported(ty))?;
    let expected = ty.bytes(out.len() as u64);
    if !out.len().is_multiple_of(ty.block_values()) || expected != Some(bytes.len() as u64) {
        let (expected, found) = (expected.unwrap_or(u64::MAX), bytes.len() as u64);
        return Err(Error::Length { ty, values: out.len(), expected, found });
    }
    Ok(routine)
}

/// Calls `block` for each block of `B` bytes and `N` values.
#[inline(always)]
fn each_block<const B: usize, const N: usize>(bytes: &[u8], out: &mut [f32], block: impl Fn(&[u8; B], &mut [f32; N])) {
    for (bytes, out) in bytes.as_chunks::<B>().0.iter().zip(out.as_chunks_mut::<N>().0) {
        block(bytes, out);
    }
}

/// The fp16 number at `at`, widened.
#[inline(always)]
fn scale<const B: usize>(block: &[u8; B], at: usize) -> f32 {
    half::f16::from_bits(u16::from_le_bytes([block[at], block[at + 1]])).to_f32()
}
