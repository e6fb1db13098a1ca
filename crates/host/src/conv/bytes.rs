//! Convolutions of images of bytes with weights of bytes, whose sums are exact: layers between two
//! 8-bit activations. Images have their channels last.
//!
//! A result is `(Σ (x - zero) · w) · scale + bias`, where `x` and `w` are codes, `zero` is the code
//! of an activation of 0, and each output channel has its scale, which is that of the activations
//! times that of its weights. The sum is an integer of 32 bits; the rest is fp32.

use half::f16;

use super::is_parallel;
use super::last::AXES;
use super::padded::{extents, strides};
use super::shape::ConvShape;
use crate::gemm::{ByteFinish, ByteProduct, ByteShape, ByteStore, GemmError, PointStep, Requantize};

/// A convolution of bytes of a known shape, without groups.
#[derive(Clone, Debug)]
pub struct ByteConv {
    input: [usize; AXES],
    output: [usize; AXES],
    kernel: [usize; AXES],
    steps: [usize; AXES],
    dilations: [usize; AXES],
    pad: [usize; AXES],
    channels: usize,
    outputs: usize,
    product: ByteShape,
}

/// Bytes of an image.
#[derive(Clone, Copy, Debug)]
pub enum BytePixels<'a> {
    /// From -128 to 127.
    I8(&'a [i8]),
    /// From 0 to 255.
    U8(&'a [u8]),
}

/// A channels-last image of bytes.
#[derive(Clone, Copy, Debug)]
pub struct ByteImage<'a> {
    /// The elements, perhaps among others.
    pub pixels: BytePixels<'a>,
    /// Index of the first channel of the first position.
    pub origin: usize,
    /// Elements from one position to the next along each spatial axis.
    pub strides: &'a [isize],
    /// The code of 0, which padding has.
    pub zero: i32,
}

/// Where results go: the elements from the first result on.
#[derive(Debug)]
pub enum ByteResults<'a> {
    /// fp32.
    F32(&'a mut [f32]),
    /// fp16, rounded once to nearest even.
    F16(&'a mut [f16]),
    /// Codes from -128 to 127.
    I8(&'a mut [i8], Requantize),
    /// Codes from 0 to 255.
    U8(&'a mut [u8], Requantize),
}

/// What follows the sums.
#[derive(Clone, Copy, Debug)]
pub struct ByteEpilogue<'a> {
    /// Integers that are added to the sums of each output channel, if any: [`ByteConv::starts`].
    pub starts: Option<&'a [i32]>,
    /// What the sums of each output channel are multiplied by.
    pub scales: &'a [f32],
    /// One value for each output channel, added to that.
    pub bias: Option<&'a [f32]>,
    /// What is done to each result then. No step adds another image.
    pub steps: &'a [PointStep],
    /// Rounds each result to the nearest fp16 value at the end.
    pub round: bool,
}

impl ByteConv {
    /// A convolution, or `None` for shapes that are inconsistent, have groups, or have sums that
    /// may not fit 32 bits: [`MOST_DEPTH`](crate::gemm::MOST_DEPTH).
    pub fn new(shape: &ConvShape) -> Option<ByteConv> {
        if !shape.is_consistent() || shape.groups != 1 {
            return None;
        }
        let [input, output, kernel] = [&shape.input, &shape.output, &shape.kernel].map(|e| extents(e));
        let [steps, dilations] = [&shape.strides, &shape.dilations].map(|e| extents(e));
        let mut pad = [0; AXES];
        pad[AXES - shape.pad.len()..].copy_from_slice(&shape.pad);
        for a in 0..AXES {
            // Positions of taps can be addressed.
            let reach =
                (kernel[a] - 1).checked_mul(dilations[a])?.checked_add((output[a] - 1).checked_mul(steps[a])?)?;
            reach.max(pad[a]).checked_add(input[a]).filter(|&n| n < isize::MAX as usize / 4)?;
        }
        let taps = kernel.iter().try_fold(1usize, |n, &k| n.checked_mul(k))?;
        let product = ByteShape::new(shape.outputs, shape.channels.checked_mul(taps)?)?;
        let (channels, outputs) = (shape.channels, shape.outputs);
        Some(ByteConv { input, output, kernel, steps, dilations, pad, channels, outputs, product })
    }

    fn places(&self) -> usize {
        self.output.iter().product()
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Multiply-adds of one image.
    pub fn multiply_adds(&self) -> usize {
        self.product.k.saturating_mul(self.outputs).saturating_mul(self.places())
    }

    /// Bytes of the packed weights.
    pub fn packed_len(&self) -> usize {
        self.product.packed_len()
    }

    /// Packs weights, a matrix of output channels by input channels and taps.
    ///
    /// # Errors
    /// [`GemmError`] if the codes have another number or `to` is too short.
    pub fn pack(&self, codes: &[i8], to: &mut [i8]) -> Result<(), GemmError> {
        self.check_codes(codes)?;
        let (taps, channels, k) = (self.taps(), self.channels, self.product.k);
        // Rows are gathered tap by tap.
        let at = |column: usize, step: usize| codes[column * k + step % channels * taps + step / channels];
        self.product.pack(at, to)
    }

    /// What is added to the sums of each output channel if activations have the code `zero` for 0,
    /// or `zero - 128` where they are unsigned: `-zero · Σ w`.
    ///
    /// # Errors
    /// [`GemmError`] if the codes have another number.
    pub fn starts(&self, codes: &[i8], zero: i32) -> Result<Vec<i32>, GemmError> {
        self.check_codes(codes)?;
        let row = |row: &[i8]| row.iter().map(|&w| i32::from(w)).sum::<i32>().wrapping_mul(-zero);
        Ok(codes.chunks_exact(self.product.k).map(row).collect())
    }

    fn check_codes(&self, codes: &[i8]) -> Result<(), GemmError> {
        let (rows, cols) = (self.outputs, self.product.k);
        if rows.checked_mul(cols) == Some(codes.len()) { Ok(()) } else { Err(GemmError::Codes { rows, cols }) }
    }

    /// Computes one image, whose results have `pitch` elements from one position to the next.
    ///
    /// # Errors
    /// [`GemmError`] if the memory or the numbers of channels do not fit, or scratch memory cannot
    /// be allocated.
    pub fn run(
        &self,
        image: ByteImage<'_>,
        weights: &[i8],
        out: ByteResults<'_>,
        pitch: usize,
        epilogue: ByteEpilogue<'_>,
    ) -> Result<(), GemmError> {
        let (places, outputs) = (self.places(), self.outputs);
        self.check(&image, &epilogue)?;
        let (store, len) = match out {
            ByteResults::F32(s) => (ByteStore::F32(s.as_mut_ptr()), s.len()),
            ByteResults::F16(s) => (ByteStore::F16(s.as_mut_ptr()), s.len()),
            ByteResults::I8(s, how) => (ByteStore::Codes(s.as_mut_ptr().cast(), how, true), s.len()),
            ByteResults::U8(s, how) => (ByteStore::Codes(s.as_mut_ptr(), how, false), s.len()),
        };
        let end = (places - 1).checked_mul(pitch).and_then(|n| n.checked_add(outputs));
        if places > 1 && pitch < outputs || end.is_none_or(|end| end > len) {
            let row_stride = isize::try_from(pitch).unwrap_or(isize::MAX);
            return Err(GemmError::OutOfBounds {
                rows: places,
                cols: outputs,
                row_stride,
                col_stride: 1,
                offset: 0,
                len,
            });
        }
        let ByteEpilogue { starts, scales, bias, steps, round } = epilogue;
        let product = ByteProduct {
            shape: self.product,
            rows: places,
            weights,
            gather: &|place, to| self.gather(&image, place, to),
            finish: ByteFinish { starts, scales, bias, steps, round, store, pitch },
        };
        // SAFETY: results of `places` rows at this pitch were checked, and are borrowed exclusively
        // until the end of this function; so were the lengths of what has values for each column.
        unsafe { product.run(is_parallel(self.multiply_adds())) }
    }

    fn check(&self, image: &ByteImage<'_>, epilogue: &ByteEpilogue<'_>) -> Result<(), GemmError> {
        let (outputs, channels) = (self.outputs, self.channels);
        let len = match image.pixels {
            BytePixels::I8(s) => s.len(),
            BytePixels::U8(s) => s.len(),
        };
        if image.strides.len() > AXES || epilogue.steps.contains(&PointStep::PlusAddend) {
            return Err(GemmError::Layout);
        }
        let (mut low, mut high) = (Some(image.origin), image.origin.checked_add(channels));
        for (extent, stride) in self.input.into_iter().zip(strides(image.strides)) {
            let span = (extent - 1).checked_mul(stride.unsigned_abs());
            if stride < 0 {
                low = low.and_then(|n| n.checked_sub(span?));
            } else {
                high = high.and_then(|n| n.checked_add(span?));
            }
        }
        if low.is_none() || high.is_none_or(|high| high > len) {
            let (row_stride, offset) = (image.strides.last().copied().unwrap_or(1), image.origin);
            let rows = self.input.iter().product();
            return Err(GemmError::OutOfBounds { rows, cols: channels, row_stride, col_stride: 1, offset, len });
        }
        if epilogue.scales.len() != outputs {
            return Err(GemmError::Scales { expected: outputs, found: epilogue.scales.len() });
        }
        let added = [epilogue.bias.map(<[f32]>::len), epilogue.starts.map(<[i32]>::len)];
        match added.into_iter().flatten().find(|&found| found != outputs) {
            Some(found) => Err(GemmError::Bias { expected: outputs, found }),
            None => Ok(()),
        }
    }

    /// The signed codes under the filter at a position, tap by tap.
    fn gather(&self, image: &ByteImage<'_>, place: usize, to: &mut [i8]) {
        let [_, heights, widths] = self.output;
        let strides = strides(image.strides);
        let at = [place / widths / heights, place / widths % heights, place % widths];
        for (tap, to) in to.chunks_exact_mut(self.channels).enumerate() {
            let taps =
                [tap / self.kernel[2] / self.kernel[1], tap / self.kernel[2] % self.kernel[1], tap % self.kernel[2]];
            let mut from = image.origin;
            let mut inside = true;
            for a in 0..AXES {
                let pixel = (at[a] * self.steps[a] + taps[a] * self.dilations[a]).wrapping_sub(self.pad[a]);
                inside &= pixel < self.input[a];
                from = from.wrapping_add_signed((pixel as isize).wrapping_mul(strides[a]));
            }
            match image.pixels {
                _ if !inside => to.fill(image.zero as i8),
                BytePixels::I8(s) => to.copy_from_slice(&s[from..from + self.channels]),
                BytePixels::U8(s) => to.copy_from_slice(bytemuck::cast_slice(&s[from..from + self.channels])),
            }
        }
        if matches!(image.pixels, BytePixels::U8(_)) {
            crate::vectorize!({
                for code in to {
                    // The code less 128.
                    *code ^= i8::MIN;
                }
            });
        }
    }
}
