//! What happens to sums of products of bytes: scales, a bias, activations, and a conversion to
//! fp16, fp32 or bytes.

use std::ops::Range;

use half::f16;

use super::{TALL, WIDE};
use crate::convert;
use crate::gemm::strip::{Gate, PointStep};
use crate::{simd, vectorize};

/// How results become bytes: `round(x / scale) + zero`, ties to even, limited to the type's range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requantize {
    /// What a result is divided by.
    pub scale: f32,
    /// The byte of zero.
    pub zero: f32,
}

/// The address of the first result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ByteStore {
    F32(*mut f32),
    F16(*mut f16),
    /// Bytes, and whether they are signed.
    Codes(*mut u8, Requantize, bool),
}

/// What is done to the sums, column by column, and where the results go.
#[derive(Clone, Copy)]
pub(crate) struct ByteFinish<'a> {
    /// What is added to the sums of each column, if anything.
    pub starts: Option<&'a [i32]>,
    /// What they are multiplied by then.
    pub scales: &'a [f32],
    /// What is added to that, if anything.
    pub bias: Option<&'a [f32]>,
    pub steps: &'a [PointStep],
    /// Rounds to the nearest fp16 value at the end.
    pub round: bool,
    pub store: ByteStore,
    /// Elements from one row of results to the next.
    pub pitch: usize,
}

// SAFETY: the address comes from a borrow that outlives the product, and its threads write
// different elements.
unsafe impl Send for ByteFinish<'_> {}
// SAFETY: as above.
unsafe impl Sync for ByteFinish<'_> {}

impl ByteFinish<'_> {
    /// Stores the results of some rows and columns, whose sums are rows of `width`.
    ///
    /// # Safety
    /// These results are writable, and nothing else accesses them.
    pub(super) unsafe fn tile(
        &self,
        sums: &mut [i32; TALL * WIDE],
        width: usize,
        rows: Range<usize>,
        columns: Range<usize>,
    ) {
        let sums = &mut sums[..rows.len() * width];
        vectorize!(self.scale(sums, width, columns.clone()));
        let values: &mut [f32] = bytemuck::cast_slice_mut(sums);
        if !self.steps.is_empty() {
            apply(self.steps, values);
        }
        // A conversion to fp16 rounds anyway.
        if self.round && !matches!(self.store, ByteStore::F16(_)) {
            convert::round_f16(values);
        }
        let count = columns.len();
        for (row, values) in rows.zip(values.chunks_exact(width)) {
            let (at, values) = (row * self.pitch + columns.start, &values[..count]);
            // SAFETY: the caller guarantees these results.
            unsafe {
                match self.store {
                    ByteStore::F32(base) => {
                        std::slice::from_raw_parts_mut(base.add(at), count).copy_from_slice(values);
                    }
                    ByteStore::F16(base) => {
                        convert::f32_to_f16(values, std::slice::from_raw_parts_mut(base.add(at), count));
                    }
                    ByteStore::Codes(base, how, signed) => {
                        how.codes(values, std::slice::from_raw_parts_mut(base.add(at), count), signed);
                    }
                }
            }
        }
    }

    /// Makes floats of the sums; those of columns that are not there become 0.
    #[inline(always)]
    fn scale(&self, sums: &mut [i32], width: usize, columns: Range<usize>) {
        let scales = &self.scales[columns.clone()];
        for row in sums.chunks_exact_mut(width) {
            let (row, rest) = row.split_at_mut(columns.len());
            rest.fill(0);
            if let Some(starts) = self.starts {
                for (sum, start) in row.iter_mut().zip(&starts[columns.clone()]) {
                    *sum = sum.wrapping_add(*start);
                }
            }
            if let Some(bias) = self.bias {
                for ((sum, scale), bias) in row.iter_mut().zip(scales).zip(&bias[columns.clone()]) {
                    *sum = (*sum as f32 * scale + bias).to_bits() as i32;
                }
            } else {
                for (sum, scale) in row.iter_mut().zip(scales) {
                    *sum = (*sum as f32 * scale).to_bits() as i32;
                }
            }
        }
    }
}

impl Requantize {
    /// The bytes of values.
    pub(super) fn codes(self, values: &[f32], to: &mut [u8], signed: bool) {
        let Requantize { scale, zero } = self;
        let (low, high) = if signed { (-128.0f32, 127.0f32) } else { (0.0, 255.0) };
        // The reciprocal of a power of two is exact, and so the product is the quotient.
        let inverse = scale.recip();
        if inverse.is_normal() && scale.is_normal() && scale.to_bits() << 9 == 0 {
            vectorize!({
                for (to, &v) in to.iter_mut().zip(values) {
                    *to = simd::integer(((v * inverse).round_ties_even() + zero).max(low).min(high)) as u8;
                }
            });
        } else {
            vectorize!({
                for (to, &v) in to.iter_mut().zip(values) {
                    *to = simd::integer(((v / scale).round_ties_even() + zero).max(low).min(high)) as u8;
                }
            });
        }
    }
}

/// Applies steps to at most as many values as a tile has. The results are those of the steps of
/// images of floats, bit for bit.
fn apply(steps: &[PointStep], values: &mut [f32]) {
    let mut held = [0.0f32; TALL * WIDE];
    let held = &mut held[..values.len()];
    for step in steps {
        match *step {
            PointStep::Hold => held.copy_from_slice(values),
            PointStep::Round => convert::round_f16(values),
            _ => vectorize!(point(*step, values, held)),
        }
    }
}

#[inline(always)]
fn point(step: PointStep, values: &mut [f32], held: &[f32]) {
    match step {
        PointStep::Clamp(low, high) => {
            for v in values {
                let raised = if *v < low { low } else { *v };
                *v = if raised > high { high } else { raised };
            }
        }
        PointStep::From(low) => {
            for v in values {
                *v = if *v >= low { *v } else { 0.0 };
            }
        }
        PointStep::Affine(factor, term) => {
            for v in values {
                *v = factor * *v + term;
            }
        }
        PointStep::Sigmoid => {
            for v in values {
                *v = simd::sigmoid(*v);
            }
        }
        PointStep::Silu => {
            for v in values {
                *v *= simd::sigmoid(*v);
            }
        }
        PointStep::Gelu => {
            for v in values {
                *v = simd::gelu(*v);
            }
        }
        PointStep::TimesHeld => {
            for (v, held) in values.iter_mut().zip(held) {
                *v *= held;
            }
        }
        PointStep::Gate(gate) => gates(gate, values),
        // Done by the caller, which has whole values; products of bytes take no other image.
        PointStep::Round | PointStep::Hold | PointStep::PlusAddend => {}
    }
}

#[inline(always)]
fn gates(gate: Gate, values: &mut [f32]) {
    let Gate { factor, term, low, high, round } = gate;
    for v in values {
        let wide = factor * *v + term;
        let raised = if wide < low { low } else { wide };
        let limited = if raised > high { high } else { raised };
        *v *= if round { f16::from_f32(limited).to_f32() } else { limited };
    }
}
