//! Convolutions of fp32 and fp16 images, with sums in fp32.
//!
//! A [`Conv`] is made once for a shape and a layout of the images. It packs the weights once, and
//! then computes one image at a time. Images have their channels first (module `first`), or last
//! (module `last`), which is faster in all but a few cases.
//!
//! Invariants: a sum adds its products in an order that depends on the shape and the layout alone;
//! no result depends on the number of threads. Taps that only ever see padding may be left out, but
//! never if a weight is infinite or NaN.

mod depthwise;
mod first;
mod last;
mod padded;
mod pooling;
mod winograd;

use std::ops::Range;

use half::f16;

use crate::gemm::{GemmError, Operand, Results, Store, View};
use first::First;
use last::Last;

pub use crate::gemm::Pixels;
pub use pooling::{PoolFunction, Pooling};

/// Convolutions with fewer multiply-adds than this run on the calling thread.
const PARALLEL: usize = 1 << 18;

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

impl Image<'_> {
    /// # Errors
    /// [`GemmError::OutOfBounds`] if an element is not in the image's memory.
    fn check(&self, channels: usize, input: &[usize]) -> Result<(), GemmError> {
        let len = match self.pixels {
            Pixels::F32(s) => s.len(),
            Pixels::F16(s) => s.len(),
        };
        let axes = input.iter().copied().zip(self.strides.iter().copied());
        let (mut low, mut high) = (Some(self.origin), Some(self.origin));
        for (extent, stride) in std::iter::once((channels, self.channel)).chain(axes) {
            let span = (extent - 1).checked_mul(stride.unsigned_abs());
            if stride < 0 {
                low = low.and_then(|n| n.checked_sub(span?));
            } else {
                high = high.and_then(|n| n.checked_add(span?));
            }
        }
        if input.len() == self.strides.len() && low.is_some() && high.is_some_and(|high| high < len) {
            return Ok(());
        }
        let (row_stride, col_stride) = (self.channel, self.strides.last().copied().unwrap_or(1));
        let cols = input.iter().product();
        Err(GemmError::OutOfBounds { rows: channels, cols, row_stride, col_stride, offset: self.origin, len })
    }
}

/// The results of one image.
#[derive(Debug)]
pub struct ImageMut<'a> {
    /// The elements, from the first result on.
    pub pixels: PixelsMut<'a>,
    /// Where they lie.
    pub layout: Layout,
}

/// Elements of an image that is written.
#[derive(Debug)]
pub enum PixelsMut<'a> {
    /// fp32.
    F32(&'a mut [f32]),
    /// fp16, rounded once to nearest even.
    F16(&'a mut [f16]),
}

/// How the results of an image lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One channel after the other, dense.
    ChannelsFirst,
    /// The channels of one position after the other, with so many elements from one position to the
    /// next.
    ChannelsLast(usize),
}

impl ImageMut<'_> {
    /// # Errors
    /// [`GemmError::OutOfBounds`] if there are fewer elements than the results of the shape.
    fn check(&self, channels: usize, places: usize) -> Result<(), GemmError> {
        let (rows, cols, pitch) = match self.layout {
            Layout::ChannelsFirst => (channels, places, places),
            Layout::ChannelsLast(pitch) => (places, channels, pitch),
        };
        let pitch = isize::try_from(pitch).unwrap_or(isize::MAX);
        let fits = |len: usize| {
            let end = (rows - 1).checked_mul(pitch.unsigned_abs()).and_then(|n| n.checked_add(cols));
            let apart = rows == 1 || pitch >= cols as isize;
            if apart && end.is_some_and(|end| end <= len) {
                return Ok(());
            }
            Err(GemmError::OutOfBounds { rows, cols, row_stride: pitch, col_stride: 1, offset: 0, len })
        };
        match &self.pixels {
            PixelsMut::F32(s) => fits(s.len()),
            PixelsMut::F16(s) => fits(s.len()),
        }
    }
}

/// A function of finished results: it gets their positions, and their elements from the first channel
/// of the first one to the last channel of the last one. It is called for all positions, in pieces,
/// while these are in the caches.
#[derive(Clone, Copy)]
pub struct Finish<'a>(pub &'a (dyn Fn(Range<usize>, PixelsMut<'_>) + Sync));

impl std::fmt::Debug for Finish<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Finish")
    }
}

/// What follows the sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConvEpilogue<'a> {
    /// One value for each output channel.
    pub bias: Option<&'a [f32]>,
    /// Rounds an fp32 result to the nearest fp16 value.
    pub round: bool,
    /// What is done to the results then. Channels-last images only.
    pub finish: Option<Finish<'a>>,
}

/// A convolution of a known shape.
#[derive(Clone, Debug)]
pub struct Conv {
    shape: ConvShape,
    form: ConvForm,
}

/// What the layout of the images decides.
#[derive(Clone, Debug)]
enum ConvForm {
    First(First),
    Last(Last),
}

impl Conv {
    /// A convolution of images with channels first, or `None` for shapes that are inconsistent or too
    /// large to address. With `finite` weights, taps that only see padding are left out.
    pub fn new(shape: ConvShape, finite: bool) -> Option<Conv> {
        if !shape.is_consistent() {
            return None;
        }
        let first = First::new(shape.clone(), finite)?;
        Some(Conv { shape, form: ConvForm::First(first) })
    }

    /// A convolution of channels-last images: the input's channels must be neighbors, and the results
    /// are written that way. `None` as for [`Conv::new`], and for what is computed with channels first
    /// only: depthwise convolutions with several results for each channel, or with weights that are
    /// not `finite`.
    pub fn channels_last(shape: ConvShape, finite: bool) -> Option<Conv> {
        if !shape.is_consistent() {
            return None;
        }
        let last = Last::new(&shape, finite)?;
        Some(Conv { shape, form: ConvForm::Last(last) })
    }

    /// The shape that the convolution was made for.
    pub fn shape(&self) -> &ConvShape {
        &self.shape
    }

    /// Number of values of the packed weights.
    pub fn packed_len(&self) -> usize {
        match &self.form {
            ConvForm::First(first) => first.packed_len(),
            ConvForm::Last(last) => last.packed_len(),
        }
    }

    /// Packs the weights, a matrix of output channels by input channels of a group and taps.
    ///
    /// # Errors
    /// [`GemmError`] if the weights have another shape or `to` is too short.
    pub fn pack(&self, weights: Weights<'_>, to: &mut [f32]) -> Result<(), GemmError> {
        let taps: usize = self.shape.kernel.iter().product();
        let row = self.shape.channels / self.shape.groups * taps;
        weights.rows_from(0, self.shape.outputs, row)?;
        View::row_major(to, 1, self.packed_len())?;
        let to = &mut to[..self.packed_len()];
        match &self.form {
            ConvForm::First(first) => first.pack(weights, to),
            ConvForm::Last(last) => {
                last.pack(weights, taps, to);
                Ok(())
            }
        }
    }

    /// Computes one image.
    ///
    /// # Errors
    /// [`GemmError`] if the memory or the layout does not fit, or scratch memory cannot be allocated.
    pub fn run(
        &self,
        image: Image<'_>,
        weights: &[f32],
        out: ImageMut<'_>,
        epilogue: ConvEpilogue<'_>,
    ) -> Result<(), GemmError> {
        let places: usize = self.shape.output.iter().product();
        View::row_major(weights, 1, self.packed_len())?;
        out.check(self.shape.outputs, places)?;
        if let Some(bias) = epilogue.bias.filter(|b| b.len() != self.shape.outputs) {
            return Err(GemmError::Bias { expected: self.shape.outputs, found: bias.len() });
        }
        image.check(self.shape.channels, &self.shape.input)?;
        let work = self.packed_len().saturating_mul(places);
        let parallel = work >= PARALLEL;
        match (&self.form, out.layout) {
            (ConvForm::First(first), Layout::ChannelsFirst) if epilogue.finish.is_none() => match out.pixels {
                PixelsMut::F32(out) => {
                    first.run(image, weights, &mut out[..self.shape.outputs * places], epilogue, parallel)
                }
                PixelsMut::F16(out) => {
                    first.run(image, weights, &mut out[..self.shape.outputs * places], epilogue, parallel)
                }
            },
            (ConvForm::Last(last), Layout::ChannelsLast(pitch)) if last.takes(&image) => {
                let store = match out.pixels {
                    PixelsMut::F32(out) => Store::F32(out.as_mut_ptr()),
                    PixelsMut::F16(out) => Store::F16(out.as_mut_ptr()),
                };
                let bias = epilogue.bias.map_or(std::ptr::null(), <[f32]>::as_ptr);
                let results = Results { store, pitch, bias, round: epilogue.round };
                // SAFETY: the image, the weights, the bias and the results were checked above, and the
                // results are borrowed exclusively.
                unsafe { last.run(&image, weights, results, epilogue.finish, parallel) }
            }
            _ => Err(GemmError::Layout),
        }
    }
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

#[cfg(test)]
mod tests;
