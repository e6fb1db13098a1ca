//! Convolutions of images with channels first: every channel is a plane.
//!
//! There are four ways:
//!
//! - pointwise (a filter of one tap, no padding, stride 1): a product of the weights with the
//!   image in place;
//! - the same at no more than eight positions, as in squeeze-and-excitation gates: the weights are
//!   not packed, because reading them is all the work;
//! - depthwise (one input channel for each group): for each channel, sums of shifted rows;
//! - otherwise a product of the weights with the unfolded image (im2col). The unfolded matrix never
//!   lies in memory: the panels of the product are packed from the padded image.
//!
//! The last two read a copy of the image with its padding, split by the residues of the strides, so
//! that what a tap reads for a row of results are neighbors (module `padded`). Sums add their
//! products in order of channels, then taps.

use half::f16;

use super::padded::{self, Padded};
use super::shape::{ConvEpilogue, ConvShape, Image, Weights};
use crate::buffer::AllocError;
use crate::gemm::{
    Bias, Columns, Epilogue, GemmError, Operand, Output, Panels, Pixels, Unfolded, View, ViewMut, gemm, with_scratch,
};
use crate::pool;

/// The most positions of an image whose product reads the weights in place.
const FEW: usize = 8;

/// A convolution of a known shape.
#[derive(Clone, Debug)]
pub(super) struct First {
    pub(super) shape: ConvShape,
    pub(super) padded: Padded,
    method: Method,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Pointwise,
    /// Pointwise at few positions: the weights are read once, in place.
    Few,
    Depthwise,
    Unfold,
}

impl First {
    /// A convolution of a consistent shape, or `None` for shapes that are too large to address.
    pub(super) fn new(shape: ConvShape, finite: bool) -> Option<First> {
        let padded = Padded::new(&shape, finite)?;
        let one = |axis: &[usize]| axis.iter().all(|&k| k == 1);
        let plain = one(&shape.kernel) && one(&shape.strides) && shape.pad.iter().all(|&p| p == 0);
        let method = if shape.channels == shape.groups && !padded.taps.is_empty() {
            Method::Depthwise
        } else if plain && shape.input == shape.output {
            let places = shape.output.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
            if places <= FEW { Method::Few } else { Method::Pointwise }
        } else {
            Method::Unfold
        };
        // The packed weights can be addressed.
        shape.outputs.checked_mul(padded.steps.len())?;
        Some(First { shape, padded, method })
    }

    pub(super) fn outputs_per_group(&self) -> usize {
        self.shape.outputs / self.shape.groups
    }

    /// Length of a sum: input channels of a group times taps.
    pub(super) fn depth(&self) -> usize {
        self.padded.steps.len()
    }

    /// Number of values of the packed weights.
    pub(super) fn packed_len(&self) -> usize {
        self.shape.outputs * self.depth()
    }

    /// Packs the weights of the shape into as many values as they take packed.
    ///
    /// # Errors
    /// [`GemmError::Alloc`].
    pub(super) fn pack(&self, weights: Weights<'_>, to: &mut [f32]) -> Result<(), GemmError> {
        let taps: usize = self.shape.kernel.iter().product();
        let per_group = self.shape.channels / self.shape.groups;
        let (rows, all) = (self.outputs_per_group(), per_group * taps);
        if self.depth() == 0 {
            return Ok(());
        }
        let live = &self.padded.taps;
        let part = rows * self.depth();
        let mut kept = Vec::new();
        for (group, to) in to.chunks_exact_mut(part).enumerate() {
            let first = group * rows;
            if live.len() == taps && !matches!(self.method, Method::Depthwise | Method::Few) {
                Panels::pack(weights.rows_from(first, rows, all)?, to)?;
                continue;
            }
            kept.clear();
            kept.try_reserve_exact(part).map_err(|_| AllocError { len: part * 4 })?;
            for row in first..first + rows {
                for channel in 0..per_group {
                    kept.extend(live.iter().map(|&tap| weights.at(row * all + channel * taps + tap)));
                }
            }
            if matches!(self.method, Method::Depthwise | Method::Few) {
                to.copy_from_slice(&kept);
            } else {
                Panels::pack(Operand::F32(View::row_major(&kept, rows, self.depth())?), to)?;
            }
        }
        Ok(())
    }

    /// Computes one image, which was checked.
    pub(super) fn run<T: Pixel>(
        &self,
        image: Image<'_>,
        weights: &[f32],
        out: &mut [T],
        epilogue: ConvEpilogue<'_>,
        parallel: bool,
    ) -> Result<(), GemmError> {
        if self.method == Method::Depthwise {
            return self.depthwise(image, weights, out, epilogue, parallel);
        }
        let (groups, rows) = (self.shape.groups, self.outputs_per_group());
        let places: usize = self.shape.output.iter().product();
        let part = rows * self.depth();
        let group = |group: usize, out: &mut [T], parallel: bool| {
            let bias = epilogue.bias.map(|b| &b[group * rows..(group + 1) * rows]);
            let weights = &weights[group * part..(group + 1) * part];
            self.group(image, group, weights, out, ConvEpilogue { bias, ..epilogue }, parallel)
        };
        if groups == 1 || !parallel {
            for (i, out) in out.chunks_exact_mut(rows * places).enumerate() {
                group(i, out, parallel)?;
            }
            return Ok(());
        }
        pool::try_for_each_chunk_mut(out, rows * places, |i, out| group(i, out, false))
    }

    /// The product of one group.
    fn group<T: Pixel>(
        &self,
        image: Image<'_>,
        group: usize,
        weights: &[f32],
        out: &mut [T],
        epilogue: ConvEpilogue<'_>,
        parallel: bool,
    ) -> Result<(), GemmError> {
        let per_group = self.shape.channels / self.shape.groups;
        let places: usize = self.shape.output.iter().product();
        let first = image.origin.wrapping_add_signed((group * per_group) as isize * image.channel);
        let image = Image { origin: first, ..image };
        let rows = self.outputs_per_group();
        let out = T::output(out, rows, places)?;
        if self.method == Method::Few {
            return self.few(image, weights, out, epilogue);
        }
        let panels = Panels::new(weights, rows, self.depth())?;
        if self.method == Method::Pointwise
            && let Some(stride) = padded::merged(&self.shape.input, image.strides)
        {
            let strides = (image.channel, stride);
            let columns = Columns::Matrix(matrix(image, per_group, places, strides)?);
            return panels.multiply(columns, out, epilogue.bias, epilogue.round, parallel);
        }
        let (words, half) = match image.pixels {
            Pixels::F32(_) => (self.padded.len(per_group), false),
            Pixels::F16(_) => (self.padded.len(per_group).div_ceil(2), true),
        };
        with_scratch([words, 0, 0], |[memory, ..]| {
            let pixels = if half {
                let memory: &mut [f16] = bytemuck::cast_slice_mut(memory);
                self.padded.fill(&image, per_group, memory, parallel);
                Pixels::F16(memory)
            } else {
                self.padded.fill(&image, per_group, memory, parallel);
                Pixels::F32(memory)
            };
            let columns = Unfolded::new(pixels, &self.padded.steps, &self.padded.rows, self.padded.width())?;
            panels.multiply(Columns::Unfolded(columns), out, epilogue.bias, epilogue.round, parallel)
        })?
    }

    /// The product of one group at few positions.
    fn few(
        &self,
        image: Image<'_>,
        weights: &[f32],
        out: Output<'_>,
        epilogue: ConvEpilogue<'_>,
    ) -> Result<(), GemmError> {
        let depth = self.depth();
        let places: usize = self.shape.output.iter().product();
        let epilogue = Epilogue { bias: epilogue.bias.map(Bias::Rows), round: epilogue.round, ..Epilogue::default() };
        let weights = Operand::F32(View::row_major(weights, self.outputs_per_group(), depth)?);
        with_scratch([depth * places, 0, 0], |[columns, ..]| {
            let strides = padded::strides(image.strides);
            let [depths, heights, widths] = padded::extents(&self.shape.input);
            let element = |i: usize| match image.pixels {
                Pixels::F32(s) => s[i],
                Pixels::F16(s) => s[i].to_f32(),
            };
            let mut at = 0;
            for channel in 0..depth {
                for (z, y) in (0..depths).flat_map(|z| (0..heights).map(move |y| (z, y))) {
                    for x in 0..widths {
                        let offset = [z, y, x].iter().zip(strides).map(|(&i, s)| i as isize * s).sum::<isize>();
                        let offset = offset + channel as isize * image.channel;
                        columns[at] = element(image.origin.wrapping_add_signed(offset));
                        at += 1;
                    }
                }
            }
            gemm(weights, Operand::F32(View::row_major(columns, depth, places)?), out, epilogue)
        })?
    }
}

/// The channels of an image as rows of a matrix.
fn matrix<'a>(image: Image<'a>, rows: usize, cols: usize, strides: (isize, isize)) -> Result<Operand<'a>, GemmError> {
    // A view starts at its lowest element.
    let back = |count: usize, stride: isize| if stride < 0 { (count - 1) * stride.unsigned_abs() } else { 0 };
    let low = image.origin - back(rows, strides.0) - back(cols, strides.1);
    Ok(match image.pixels {
        Pixels::F32(s) => Operand::F32(View::new(&s[low..], rows, cols, strides.0, strides.1)?),
        Pixels::F16(s) => Operand::F16(View::new(&s[low..], rows, cols, strides.0, strides.1)?),
    })
}

/// An element of a result.
pub(super) trait Pixel: Copy + Send + Sync {
    fn output(out: &mut [Self], rows: usize, cols: usize) -> Result<Output<'_>, GemmError>;
    /// Stores rows of `width` sums with `pitch` elements from row to row, dense.
    fn store(sums: &mut [f32], pitch: usize, to: &mut [Self], width: usize, round: bool);
}

impl Pixel for f32 {
    fn output(out: &mut [f32], rows: usize, cols: usize) -> Result<Output<'_>, GemmError> {
        Ok(Output::F32(ViewMut::row_major(out, rows, cols)?))
    }

    fn store(sums: &mut [f32], pitch: usize, to: &mut [f32], width: usize, round: bool) {
        for (from, to) in sums.chunks(pitch).zip(to.chunks_exact_mut(width)) {
            to.copy_from_slice(&from[..width]);
        }
        if round {
            crate::convert::round_f16(to);
        }
    }
}

impl Pixel for f16 {
    fn output(out: &mut [f16], rows: usize, cols: usize) -> Result<Output<'_>, GemmError> {
        Ok(Output::F16(ViewMut::row_major(out, rows, cols)?))
    }

    fn store(sums: &mut [f32], pitch: usize, to: &mut [f16], width: usize, _: bool) {
        // Compacts the rows in place, so that one conversion takes them all.
        let rows = to.len() / width;
        for row in 1..rows {
            sums.copy_within(row * pitch..row * pitch + width, row * width);
        }
        crate::convert::f32_to_f16(&sums[..to.len()], to);
    }
}
