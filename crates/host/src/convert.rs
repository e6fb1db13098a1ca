//! fp32 ↔ fp16: contiguous, by strided rows, and transposing.
//!
//! All roundings are IEEE 754 round to nearest, ties to even; overflow gives infinity, subnormals
//! are kept, a NaN stays a NaN (quiet, upper payload bits kept). The result has the same bits on
//! every machine: x86 uses F16C or AVX-512 where the processor has them, everything else goes
//! through `half`, which uses the fp16 instructions of AArch64.
//!
//! [`bytes`] has the same for little-endian elements of files.
//!
//! The plain slice functions run on the calling thread. The row and transposing functions cut large
//! jobs for the [`pool`]; they fill the weight regions of a surface.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::pool;

/// The least number of elements that one task of the pool converts. Below two tasks, dispatching
/// them costs more than it saves.
const PER_TASK: usize = 64 * 1024;

/// Rounds `src` to fp16.
///
/// # Panics
/// If the lengths differ.
pub fn f32_to_f16(src: &[f32], dst: &mut [f16]) {
    assert_eq!(src.len(), dst.len(), "source and destination have one length");
    #[cfg(target_arch = "x86_64")]
    {
        if x86::has_avx512() {
            // SAFETY: the processor has AVX-512F.
            return unsafe { x86::f32_to_f16_avx512(src, dst) };
        }
        if x86::has_f16c() {
            // SAFETY: the processor has AVX and F16C.
            return unsafe { x86::f32_to_f16_f16c(src, dst) };
        }
    }
    dst.convert_from_f32_slice(src);
}

/// Widens `src` to fp32; exact.
///
/// # Panics
/// If the lengths differ.
pub fn f16_to_f32(src: &[f16], dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len(), "source and destination have one length");
    #[cfg(target_arch = "x86_64")]
    {
        if x86::has_avx512() {
            // SAFETY: the processor has AVX-512F.
            return unsafe { x86::f16_to_f32_avx512(src, dst) };
        }
        if x86::has_f16c() {
            // SAFETY: the processor has AVX and F16C.
            return unsafe { x86::f16_to_f32_f16c(src, dst) };
        }
    }
    src.convert_to_f32_slice(dst);
}

/// Rounds each value to the nearest fp16 and widens it again.
pub fn round_f16(values: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        if x86::has_avx512() {
            // SAFETY: the processor has AVX-512F.
            return unsafe { x86::round_f16_avx512(values) };
        }
        if x86::has_f16c() {
            // SAFETY: the processor has AVX and F16C.
            return unsafe { x86::round_f16_f16c(values) };
        }
    }
    let mut halves = [f16::ZERO; 64];
    for chunk in values.chunks_mut(64) {
        let halves = &mut halves[..chunk.len()];
        halves.convert_from_f32_slice(chunk);
        halves.convert_to_f32_slice(chunk);
    }
}

/// Widens signed bytes to fp32; exact.
///
/// # Panics
/// If the lengths differ.
pub fn i8_to_f32(src: &[i8], dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len(), "source and destination have one length");
    crate::vectorize!({
        for (d, &s) in dst.iter_mut().zip(src) {
            *d = f32::from(s);
        }
    });
}

/// Rounds `rows` rows of `cols` values. Row `r` starts at `r * stride` in each slice; strides are
/// in elements. Destination elements between rows are left alone. A single long row is divided
/// among tasks too.
///
/// # Panics
/// If a row does not fit its stride or its slice.
pub fn f32_rows_to_f16(
    src: &[f32],
    src_row_stride: usize,
    dst: &mut [f16],
    dst_row_stride: usize,
    rows: usize,
    cols: usize,
) {
    rows_with(src, src_row_stride, dst, dst_row_stride, rows, cols, f32_rows);
}

/// Widens `rows` rows of `cols` values; see [`f32_rows_to_f16`].
///
/// # Panics
/// If a row does not fit its stride or its slice.
pub fn f16_rows_to_f32(
    src: &[f16],
    src_row_stride: usize,
    dst: &mut [f32],
    dst_row_stride: usize,
    rows: usize,
    cols: usize,
) {
    rows_with(src, src_row_stride, dst, dst_row_stride, rows, cols, f16_rows);
}

/// Rounds and transposes: `dst[c][r] = src[r][c]` for `rows` × `cols` source values. Strides are in
/// elements; `dst_row_stride` is at least `rows`.
///
/// # Panics
/// If a row does not fit its stride or its slice.
pub fn f32_to_f16_transposed(
    src: &[f32],
    src_row_stride: usize,
    dst: &mut [f16],
    dst_row_stride: usize,
    rows: usize,
    cols: usize,
) {
    transpose_with(src, src_row_stride, dst, dst_row_stride, rows, cols, |s, d, rows, cols| {
        #[cfg(target_arch = "x86_64")]
        if x86::has_f16c() {
            // SAFETY: the processor has AVX and F16C; the function checks its bounds.
            return unsafe { x86::f32_to_f16_transposed(s, src_row_stride, d, dst_row_stride, rows, cols) };
        }
        transpose_scalar(s, src_row_stride, d, dst_row_stride, 0..rows, 0..cols, f16::from_f32);
    });
}

/// Widens and transposes: `dst[c][r] = src[r][c]`; see [`f32_to_f16_transposed`].
///
/// # Panics
/// If a row does not fit its stride or its slice.
pub fn f16_to_f32_transposed(
    src: &[f16],
    src_row_stride: usize,
    dst: &mut [f32],
    dst_row_stride: usize,
    rows: usize,
    cols: usize,
) {
    transpose_with(src, src_row_stride, dst, dst_row_stride, rows, cols, |s, d, rows, cols| {
        #[cfg(target_arch = "x86_64")]
        if x86::has_f16c() {
            // SAFETY: the processor has AVX and F16C; the function checks its bounds.
            return unsafe { x86::f16_to_f32_transposed(s, src_row_stride, d, dst_row_stride, rows, cols) };
        }
        transpose_scalar(s, src_row_stride, d, dst_row_stride, 0..rows, 0..cols, f16::to_f32);
    });
}

/// Transposes: `dst[c][r] = src[r][c]` for `rows` × `cols` source values, on the calling thread.
/// Strides as in [`f32_to_f16_transposed`].
///
/// # Panics
/// If a row does not fit its stride or its slice.
pub fn transpose_f16(
    src: &[f16],
    src_row_stride: usize,
    dst: &mut [f16],
    dst_row_stride: usize,
    rows: usize,
    cols: usize,
) {
    if rows == 0 || cols == 0 {
        return;
    }
    let src = &src[..extent(rows, cols, src_row_stride)];
    let dst = &mut dst[..extent(cols, rows, dst_row_stride)];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE2; the function checks its bounds.
    unsafe {
        x86::transpose_f16(src, src_row_stride, dst, dst_row_stride, rows, cols)
    };
    #[cfg(not(target_arch = "x86_64"))]
    transpose_scalar(src, src_row_stride, dst, dst_row_stride, 0..rows, 0..cols, |v| v);
}

/// Elements that `rows` rows of `cols` take at this stride. Panics on a stride that lets rows
/// overlap.
fn extent(rows: usize, cols: usize, stride: usize) -> usize {
    assert!(rows <= 1 || stride >= cols, "a row of {cols} does not fit the stride {stride}");
    match rows {
        0 => 0,
        _ => (rows - 1).saturating_mul(stride).saturating_add(cols),
    }
}

fn rows_with<S: Sync, D: Send>(
    src: &[S],
    src_row_stride: usize,
    dst: &mut [D],
    dst_row_stride: usize,
    rows: usize,
    cols: usize,
    convert: fn(&[S], usize, &mut [D], usize, usize),
) {
    if rows == 0 || cols == 0 {
        return;
    }
    let src = &src[..extent(rows, cols, src_row_stride)];
    let dst = &mut dst[..extent(rows, cols, dst_row_stride)];
    if rows == 1 || (src_row_stride == cols && dst_row_stride == cols) {
        pool::for_each_chunk_mut(dst, PER_TASK, |i, piece| {
            let length = piece.len();
            convert(&src[i * PER_TASK..][..length], length, piece, length, length);
        });
        return;
    }
    let rows_per_task = PER_TASK.div_ceil(cols);
    pool::for_each_chunk_mut(dst, rows_per_task * dst_row_stride, |i, piece| {
        convert(&src[i * rows_per_task * src_row_stride..], src_row_stride, piece, dst_row_stride, cols);
    });
}

/// Rounds as many rows as the destination has. Rows may be short, so the processor features are
/// checked once for all rows.
fn f32_rows(src: &[f32], src_row_stride: usize, dst: &mut [f16], dst_row_stride: usize, cols: usize) {
    #[cfg(target_arch = "x86_64")]
    if x86::has_avx512() {
        // SAFETY: the processor has AVX-512F.
        return unsafe { x86::f32_rows_avx512(src, src_row_stride, dst, dst_row_stride, cols) };
    }
    for (s, d) in src.chunks(src_row_stride).zip(dst.chunks_mut(dst_row_stride)) {
        f32_to_f16(&s[..cols], &mut d[..cols]);
    }
}

/// Widens as many rows as the destination has; see [`f32_rows`].
fn f16_rows(src: &[f16], src_row_stride: usize, dst: &mut [f32], dst_row_stride: usize, cols: usize) {
    #[cfg(target_arch = "x86_64")]
    if x86::has_avx512() {
        // SAFETY: the processor has AVX-512F.
        return unsafe { x86::f16_rows_avx512(src, src_row_stride, dst, dst_row_stride, cols) };
    }
    for (s, d) in src.chunks(src_row_stride).zip(dst.chunks_mut(dst_row_stride)) {
        f16_to_f32(&s[..cols], &mut d[..cols]);
    }
}

/// Cuts the columns of the source (rows of the destination) into tasks of whole 16-column strips.
fn transpose_with<S: Sync, D: Send>(
    src: &[S],
    src_row_stride: usize,
    dst: &mut [D],
    dst_row_stride: usize,
    rows: usize,
    cols: usize,
    tile: impl Fn(&[S], &mut [D], usize, usize) + Sync,
) {
    if rows == 0 || cols == 0 {
        return;
    }
    let src = &src[..extent(rows, cols, src_row_stride)];
    let dst = &mut dst[..extent(cols, rows, dst_row_stride)];
    let cols_per_task = if cols == 1 { 1 } else { PER_TASK.div_ceil(rows).next_multiple_of(16) };
    pool::for_each_chunk_mut(dst, cols_per_task.saturating_mul(dst_row_stride.max(1)), |i, piece| {
        let first = i * cols_per_task;
        tile(&src[first..], piece, rows, cols_per_task.min(cols - first));
    });
}

fn transpose_scalar<S: Copy, D>(
    src: &[S],
    src_row_stride: usize,
    dst: &mut [D],
    dst_row_stride: usize,
    rows: std::ops::Range<usize>,
    cols: std::ops::Range<usize>,
    convert: impl Fn(S) -> D,
) {
    // Tiles of 32 × 32 keep source and destination in the L1 cache.
    for c0 in cols.clone().step_by(32) {
        for r0 in rows.clone().step_by(32) {
            for c in c0..cols.end.min(c0 + 32) {
                for r in r0..rows.end.min(r0 + 32) {
                    dst[c * dst_row_stride + r] = convert(src[r * src_row_stride + c]);
                }
            }
        }
    }
}

pub mod bytes;

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::has_f16c;

#[cfg(test)]
mod tests;
