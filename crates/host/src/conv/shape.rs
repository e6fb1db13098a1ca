//! Shapes, images, weights and epilogues: what a convolution is asked to compute, and on what.

use std::ops::Range;

use half::f16;

use crate::convert;
use crate::gemm::{GemmError, Operand, Pixels, PointStep, Prologue, View};

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
    pub(super) fn is_consistent(&self) -> bool {
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

/// One image, with any strides.
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
    /// What is done to each element before it is used. Only for convolutions that
    /// [take one](super::Conv::takes_prologue).
    pub prologue: Option<Prologue<'a>>,
}

impl Image<'_> {
    /// # Errors
    /// [`GemmError::OutOfBounds`] if an element is not in the image's memory.
    pub(super) fn check(&self, channels: usize, input: &[usize]) -> Result<(), GemmError> {
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
    /// The order of channels and positions, and the distance of neighboring positions.
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
    pub(super) fn check(&self, channels: usize, places: usize) -> Result<(), GemmError> {
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

/// A function of finished results: it gets their positions, and their elements from the first
/// channel of the first one to the last channel of the last one. It is called for all positions, in
/// pieces, while these are in the caches.
#[derive(Clone, Copy)]
pub struct Finish<'a>(pub &'a (dyn Fn(Range<usize>, PixelsMut<'_>) + Sync));

impl std::fmt::Debug for Finish<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Finish")
    }
}

/// A channels-last image of the shape of the results.
#[derive(Clone, Copy, Debug)]
pub struct Addend<'a> {
    /// The elements, perhaps among others.
    pub pixels: Pixels<'a>,
    /// Index of the first element of the first position.
    pub origin: usize,
    /// Elements from one position to the next.
    pub pitch: usize,
}

impl Addend<'_> {
    /// # Errors
    /// [`GemmError::OutOfBounds`] if an element is not in the image's memory.
    pub(super) fn check(&self, channels: usize, places: usize) -> Result<(), GemmError> {
        let last = (places - 1).checked_mul(self.pitch).and_then(|n| n.checked_add(channels - 1));
        let len = match self.pixels {
            Pixels::F32(s) => s.len(),
            Pixels::F16(s) => s.len(),
        };
        if last.and_then(|n| n.checked_add(self.origin)).is_some_and(|last| last < len) {
            return Ok(());
        }
        let row_stride = isize::try_from(self.pitch).unwrap_or(isize::MAX);
        Err(GemmError::OutOfBounds {
            rows: places,
            cols: channels,
            row_stride,
            col_stride: 1,
            offset: self.origin,
            len,
        })
    }
}

/// What follows the sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConvEpilogue<'a> {
    /// One value for each output channel.
    pub bias: Option<&'a [f32]>,
    /// Rounds an fp32 result to the nearest fp16 value.
    pub round: bool,
    /// What is done to each result before it is rounded. Channels-last images only.
    pub steps: &'a [PointStep],
    /// What [`PointStep::PlusAddend`] adds.
    pub addend: Option<Addend<'a>>,
    /// What is done to the results then. Channels-last images only.
    pub finish: Option<Finish<'a>>,
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
    /// True if every weight is finite and at most 2²⁴ in magnitude. Then padding may be left out,
    /// and a transformed filter does not lose its small weights among large ones.
    pub fn is_tame(&self) -> bool {
        const MOST: f32 = 16_777_216.0;
        match self {
            Weights::F32(s) => s.iter().all(|v| v.abs() <= MOST),
            Weights::F16(s) => s.iter().all(|v| v.is_finite()),
        }
    }

    pub(super) fn rows_from(self, first: usize, rows: usize, cols: usize) -> Result<Operand<'a>, GemmError> {
        Ok(match self {
            Weights::F32(s) => Operand::F32(View::row_major(s.get(first * cols..).unwrap_or_default(), rows, cols)?),
            Weights::F16(s) => Operand::F16(View::row_major(s.get(first * cols..).unwrap_or_default(), rows, cols)?),
        })
    }

    /// All weights as fp32.
    pub fn to_f32(&self) -> Vec<f32> {
        match self {
            Weights::F32(s) => s.to_vec(),
            Weights::F16(s) => {
                let mut wide = vec![0.0; s.len()];
                convert::f16_to_f32(s, &mut wide);
                wide
            }
        }
    }

    pub(super) fn at(&self, i: usize) -> f32 {
        match self {
            Weights::F32(s) => s[i],
            Weights::F16(s) => s[i].to_f32(),
        }
    }
}
