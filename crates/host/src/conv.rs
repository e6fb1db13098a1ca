//! Convolutions of fp32 and fp16 images, with sums in fp32.
//!
//! A [`Conv`] is made once for a shape. It packs the weights once, and then computes one image at a
//! time in one of four ways:
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
//! that what a tap reads for a row of results are neighbors (module `padded`).
//!
//! Invariants: a sum adds its products in order of channels, then taps, in blocks that depend on
//! their number alone (see [`gemm`](crate::gemm)); no result depends on the number of threads. Taps
//! that only ever see padding are left out, but never if a weight is infinite or NaN.

mod depthwise;
mod padded;
mod pooling;

use half::f16;

use crate::buffer::AllocError;
use crate::gemm::{
    Bias, Columns, Epilogue, GemmError, Operand, Output, Panels, Unfolded, View, ViewMut, gemm, with_scratch,
};
use crate::pool;
use padded::Padded;

pub use crate::gemm::Pixels;
pub use pooling::{PoolFunction, Pooling};

/// Convolutions with fewer multiply-adds than this run on the calling thread.
const PARALLEL: usize = 1 << 18;

/// The most positions of an image whose product reads the weights in place.
const FEW: usize = 8;

/// The shape of a convolution over one to three spatial axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Input channels of all groups.
    pub channels: usize,
    /// Output channels of all groups.
    pub outputs: usize,
    /// Groups of channels; divides both.
    pub groups: usize,
    /// Extents of the input.
    pub input: Vec<usize>,
    /// Extents of the result.
    pub output: Vec<usize>,
    /// Extents of the filter.
    pub kernel: Vec<usize>,
    /// Steps of the filter over the padded input.
    pub strides: Vec<usize>,
    /// Distances of neighboring taps.
    pub dilations: Vec<usize>,
    /// Zeros before each axis. Zeros after it follow from the other extents.
    pub pad: Vec<usize>,
}

impl ConvShape {
    /// True if all axes have all extents, none of them zero, and the groups divide the channels.
    fn is_consistent(&self) -> bool {
        let rank = self.input.len();
        let axes = [&self.output, &self.kernel, &self.strides, &self.dilations, &self.pad];
        (1..=3).contains(&rank)
            && axes.iter().all(|a| a.len() == rank)
            && axes[..4].iter().all(|a| !a.contains(&0))
            && !self.input.contains(&0)
            && self.groups > 0
            && self.channels.checked_rem(self.groups) == Some(0)
            && self.outputs.checked_rem(self.groups) == Some(0)
            && self.channels > 0
            && self.outputs > 0
    }
}

/// One image: channels first, any strides.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The elements of all channels, perhaps among others.
    pub pixels: Pixels<'a>,
    /// Index of the first element of the first channel.
    pub origin: usize,
    /// Elements from one channel to the next.
    pub channel: isize,
    /// Elements from one position to the next along each spatial axis.
    pub strides: &'a [isize],
}

/// The results of one image: dense, channels first.
#[derive(Debug)]
pub enum ImageMut<'a> {
    /// fp32.
    F32(&'a mut [f32]),
    /// fp16, rounded once to nearest even.
    F16(&'a mut [f16]),
}

/// What follows the sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConvEpilogue<'a> {
    /// One value for each output channel.
    pub bias: Option<&'a [f32]>,
    /// Rounds an fp32 result to the nearest fp16 value.
    pub round: bool,
}

/// A convolution of a known shape.
#[derive(Clone, Debug)]
pub struct Conv {
    shape: ConvShape,
    padded: Padded,
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

impl Conv {
    /// A convolution, or `None` for shapes that are inconsistent or too large to address. With
    /// `finite` weights, taps that only see padding are left out.
    pub fn new(shape: ConvShape, finite: bool) -> Option<Conv> {
        if !shape.is_consistent() {
            return None;
        }
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
        Some(Conv { shape, padded, method })
    }

    /// The shape that the convolution was made for.
    pub fn shape(&self) -> &ConvShape {
        &self.shape
    }

    fn outputs_per_group(&self) -> usize {
        self.shape.outputs / self.shape.groups
    }

    /// Length of a sum: input channels of a group times taps.
    fn depth(&self) -> usize {
        self.padded.steps.len()
    }

    /// Number of values of the packed weights.
    pub fn packed_len(&self) -> usize {
        self.shape.outputs * self.depth()
    }

    /// Packs the weights, a matrix of output channels by input channels of a group and taps.
    ///
    /// # Errors
    /// [`GemmError`] if the weights have another shape or `to` is too short.
    pub fn pack(&self, weights: Weights<'_>, to: &mut [f32]) -> Result<(), GemmError> {
        let taps: usize = self.shape.kernel.iter().product();
        let per_group = self.shape.channels / self.shape.groups;
        let (rows, all) = (self.outputs_per_group(), per_group * taps);
        let view = weights.rows(self.shape.outputs, all)?;
        View::row_major(to, self.shape.outputs, self.depth())?;
        if self.depth() == 0 {
            return Ok(());
        }
        let live = &self.padded.taps;
        let part = rows * self.depth();
        let mut kept = Vec::new();
        for (group, to) in to[..self.packed_len()].chunks_exact_mut(part).enumerate() {
            let first = group * rows;
            if live.len() == taps && !matches!(self.method, Method::Depthwise | Method::Few) {
                Panels::pack(view.rows_from(first, rows, all)?, to)?;
                continue;
            }
            kept.clear();
            kept.try_reserve_exact(part).map_err(|_| AllocError { len: part * 4 })?;
            for row in first..first + rows {
                for channel in 0..per_group {
                    kept.extend(live.iter().map(|&tap| view.at(row * all + channel * taps + tap)));
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

    /// Computes one image.
    ///
    /// # Errors
    /// [`GemmError`] if the memory does not fit the shape, or scratch memory cannot be allocated.
    pub fn run(
        &self,
        image: Image<'_>,
        weights: &[f32],
        out: ImageMut<'_>,
        epilogue: ConvEpilogue<'_>,
    ) -> Result<(), GemmError> {
        let places: usize = self.shape.output.iter().product();
        View::row_major(weights, self.shape.outputs, self.depth())?;
        match &out {
            ImageMut::F32(s) => drop(View::row_major(s, self.shape.outputs, places)?),
            ImageMut::F16(s) => drop(View::row_major(s, self.shape.outputs, places)?),
        }
        if let Some(bias) = epilogue.bias.filter(|b| b.len() != self.shape.outputs) {
            return Err(GemmError::Bias { expected: self.shape.outputs, found: bias.len() });
        }
        self.padded.check(&image, self.shape.channels)?;
        let work = self.packed_len().saturating_mul(places);
        let parallel = work >= PARALLEL;
        match out {
            ImageMut::F32(out) => {
                self.typed(image, weights, &mut out[..self.shape.outputs * places], epilogue, parallel)
            }
            ImageMut::F16(out) => {
                self.typed(image, weights, &mut out[..self.shape.outputs * places], epilogue, parallel)
            }
        }
    }

    fn typed<T: Pixel>(
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

/// Weights: rows of output channels, dense.
#[derive(Clone, Copy, Debug)]
pub enum Weights<'a> {
    /// fp32.
    F32(&'a [f32]),
    /// fp16.
    F16(&'a [f16]),
}

impl<'a> Weights<'a> {
    /// True if every weight is a finite number.
    pub fn is_finite(&self) -> bool {
        match self {
            Weights::F32(s) => s.iter().all(|v| v.is_finite()),
            Weights::F16(s) => s.iter().all(|v| v.is_finite()),
        }
    }

    fn rows(self, rows: usize, cols: usize) -> Result<Weights<'a>, GemmError> {
        self.rows_from(0, rows, cols).map(|_| self)
    }

    fn rows_from(self, first: usize, rows: usize, cols: usize) -> Result<Operand<'a>, GemmError> {
        Ok(match self {
            Weights::F32(s) => Operand::F32(View::row_major(s.get(first * cols..).unwrap_or_default(), rows, cols)?),
            Weights::F16(s) => Operand::F16(View::row_major(s.get(first * cols..).unwrap_or_default(), rows, cols)?),
        })
    }

    fn at(&self, i: usize) -> f32 {
        match self {
            Weights::F32(s) => s[i],
            Weights::F16(s) => s[i].to_f32(),
        }
    }
}

/// An element of a result.
trait Pixel: Copy + Send + Sync {
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

#[cfg(test)]
mod tests;
