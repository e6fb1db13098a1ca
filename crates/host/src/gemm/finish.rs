//! The epilogue of a product, applied to sums before they are stored.
//!
//! Tiles apply it in registers ([`super::tile`]), in the same order of operations. This module
//! applies it to sums in a buffer: tiles at the right edge, outputs whose columns are not
//! contiguous, and skinny products.

use half::f16;

use crate::convert;

/// The address of the first element of an output, by its type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Store {
    F32(*mut f32),
    F16(*mut f16),
}

/// An output as the kernels write it: the address of element (0, 0), and strides in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct StridedOutput {
    pub store: Store,
    pub row: isize,
    pub col: isize,
}

// SAFETY: the address comes from an exclusive borrow that outlives the product; the threads of one
// product write different elements.
unsafe impl Send for StridedOutput {}
// SAFETY: as above.
unsafe impl Sync for StridedOutput {}

/// The epilogue, with vectors by rows and by columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish<'a> {
    pub scale: f32,
    pub row_scales: Option<&'a [f32]>,
    pub col_scales: Option<&'a [f32]>,
    pub accumulate: bool,
    pub round: bool,
    pub row_bias: Option<&'a [f32]>,
    pub col_bias: Option<&'a [f32]>,
}

impl Finish<'_> {
    /// The epilogue of the transposed product.
    pub fn t(self) -> Self {
        Self {
            row_scales: self.col_scales,
            col_scales: self.row_scales,
            row_bias: self.col_bias,
            col_bias: self.row_bias,
            ..self
        }
    }
}

/// fp16 values that are converted together if the columns of the output are not contiguous.
const HALVES: usize = 64;

/// Applies what of the epilogue precedes the rounding to sums of one row, from (`row`, `col`) of
/// the output on. `accumulate` adds what the output held.
#[inline(always)]
pub(super) fn apply(
    line: &mut [f32],
    (row, col): (usize, usize),
    finish: &Finish<'_>,
    accumulate: impl FnOnce(&mut [f32]),
) {
    if finish.scale != 1.0 {
        line.iter_mut().for_each(|v| *v *= finish.scale);
    }
    if let Some(scales) = finish.row_scales {
        line.iter_mut().for_each(|v| *v *= scales[row]);
    }
    if let Some(scales) = finish.col_scales {
        line.iter_mut().zip(&scales[col..]).for_each(|(v, s)| *v *= s);
    }
    accumulate(line);
    if let Some(bias) = finish.row_bias {
        line.iter_mut().for_each(|v| *v += bias[row]);
    }
    if let Some(bias) = finish.col_bias {
        line.iter_mut().zip(&bias[col..]).for_each(|(v, b)| *v += b);
    }
}

/// Applies the epilogue to `rows` × `cols` sums, with `pitch` elements from row to row, and stores
/// them from (`row`, `col`) of the output on. The sums are overwritten.
///
/// # Safety
/// The sums are readable and writable, the destination is inside the output and accessed by no
/// other thread, and the epilogue's vectors cover it.
pub(super) unsafe fn finish(
    sums: *mut f32,
    pitch: usize,
    (rows, cols): (usize, usize),
    (row, col): (usize, usize),
    out: StridedOutput,
    finish: &Finish<'_>,
) {
    for r in 0..rows {
        // SAFETY: row `r` of the sums.
        let line = unsafe { std::slice::from_raw_parts_mut(sums.add(r * pitch), cols) };
        let offset = (row + r) as isize * out.row + col as isize * out.col;
        apply(line, (row + r, col), finish, |line| {
            if let (true, Store::F32(base)) = (finish.accumulate, out.store) {
                for (c, v) in line.iter_mut().enumerate() {
                    // SAFETY: an element of the output.
                    *v += unsafe { base.offset(offset + c as isize * out.col).read() };
                }
            }
        });
        match out.store {
            Store::F32(base) => {
                if finish.round {
                    convert::round_f16(line);
                }
                for (c, v) in line.iter().enumerate() {
                    // SAFETY: an element of the output.
                    unsafe { base.offset(offset + c as isize * out.col).write(*v) };
                }
            }
            // SAFETY: `cols` contiguous elements of the output.
            Store::F16(base) if out.col == 1 => {
                convert::f32_to_f16(line, unsafe { std::slice::from_raw_parts_mut(base.offset(offset), cols) })
            }
            Store::F16(base) => {
                let mut halves = [f16::ZERO; HALVES];
                for (i, part) in line.chunks(HALVES).enumerate() {
                    let halves = &mut halves[..part.len()];
                    convert::f32_to_f16(part, halves);
                    for (c, v) in halves.iter().enumerate() {
                        // SAFETY: an element of the output.
                        unsafe { base.offset(offset + (i * HALVES + c) as isize * out.col).write(*v) };
                    }
                }
            }
        }
    }
}
