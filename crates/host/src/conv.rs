//! Convolutions of fp32 and fp16 images, with sums in fp32.
//!
//! A [`Conv`] is made once for a shape and a layout of the images. It packs the weights once, and
//! then computes one image at a time. Images have their channels first (module `first`), or last
//! (module `last`), which is faster in all but a few cases. A [`ByteConv`] is one of 8-bit codes
//! with 8-bit codes, whose sums are integers.
//!
//! Invariants: a sum adds its products in an order that depends on the shape and the layout alone;
//! no result depends on the number of threads. Taps that only ever see padding may be left out, but
//! never if a weight is infinite or NaN.

mod bytes;
mod depthwise;
mod first;
mod last;
mod padded;
mod pair;
mod planes;
mod pooling;
mod shape;
mod small;
mod winograd;

use crate::gemm::{GemmError, Load, Results, Store, View};
use crate::pool;
use first::First;
use last::Last;

pub use crate::gemm::{Gate, Pixels, PointStep, Prologue, Requantize};
pub use bytes::{ByteConv, ByteEpilogue, ByteImage, BytePixels, ByteResults};
pub use pair::{Stage, run_pair};
pub use pooling::{PoolFunction, Pooling};
pub use shape::{Addend, ConvEpilogue, ConvShape, Finish, Image, ImageMut, Layout, PixelsMut, Weights};

/// Convolutions with fewer multiply-adds than this run on the calling thread.
const PARALLEL: usize = 1 << 18;

/// The same for calls from outside of the pool: to wake its threads and to wait for them costs more
/// than such a convolution.
const PARALLEL_OUTSIDE: usize = 1 << 21;

/// True if several threads are to share so many multiply-adds.
fn is_parallel(multiply_adds: usize) -> bool {
    multiply_adds >= if pool::thread_index().is_some() { PARALLEL } else { PARALLEL_OUTSIDE }
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
    First(Box<First>),
    Last(Box<Last>),
}

impl Conv {
    /// A convolution of images with channels first, or `None` for shapes that are inconsistent or
    /// too large to address. With `finite` weights, taps that only see padding are left out.
    pub fn new(shape: ConvShape, finite: bool) -> Option<Conv> {
        if !shape.is_consistent() {
            return None;
        }
        let first = First::new(shape.clone(), finite)?;
        Some(Conv { shape, form: ConvForm::First(Box::new(first)) })
    }

    /// A convolution of channels-last images: the input's channels must be neighbors, unless it
    /// [takes planes](Conv::takes_planes), and so are those of the results. `None` as for
    /// [`Conv::new`], and for what is computed with channels first only: depthwise convolutions
    /// with several results for each channel, or with weights that are not `finite`.
    pub fn channels_last(shape: ConvShape, finite: bool) -> Option<Conv> {
        if !shape.is_consistent() {
            return None;
        }
        let last = Last::new(&shape, finite)?;
        Some(Conv { shape, form: ConvForm::Last(Box::new(last)) })
    }

    /// The shape that the convolution was made for.
    pub fn shape(&self) -> &ConvShape {
        &self.shape
    }

    /// Multiply-adds of one image, roughly.
    pub fn multiply_adds(&self) -> usize {
        self.packed_len().saturating_mul(self.shape.output.iter().product())
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

    /// True if images may have a [prologue](Image::prologue): if the filter has one tap and images
    /// have their channels last.
    pub fn takes_prologue(&self) -> bool {
        matches!(&self.form, ConvForm::Last(last) if last.takes_prologue())
    }

    /// True if the channels of an image need not be neighbors.
    pub fn takes_planes(&self) -> bool {
        match &self.form {
            ConvForm::First(_) => true,
            ConvForm::Last(last) => last.planes.is_some(),
        }
    }

    /// Computes one image.
    ///
    /// # Errors
    /// [`GemmError`] if the memory or the layout does not fit, or scratch memory cannot be
    /// allocated.
    pub fn run(
        &self,
        image: Image<'_>,
        weights: &[f32],
        out: ImageMut<'_>,
        epilogue: ConvEpilogue<'_>,
    ) -> Result<(), GemmError> {
        let places: usize = self.shape.output.iter().product();
        self.check(weights, &epilogue)?;
        out.check(self.shape.outputs, places)?;
        image.check(self.shape.channels, &self.shape.input)?;
        let channels = self.shape.channels;
        if image.prologue.is_some_and(|prologue| !self.takes_prologue() || !prologue.fits(channels)) {
            return Err(GemmError::Layout);
        }
        let parallel = is_parallel(self.multiply_adds());
        match (&self.form, out.layout) {
            (ConvForm::First(first), Layout::ChannelsFirst)
                if epilogue.finish.is_none() && epilogue.steps.is_empty() =>
            {
                match out.pixels {
                    PixelsMut::F32(out) => {
                        first.run(image, weights, &mut out[..self.shape.outputs * places], epilogue, parallel)
                    }
                    PixelsMut::F16(out) => {
                        first.run(image, weights, &mut out[..self.shape.outputs * places], epilogue, parallel)
                    }
                }
            }
            (ConvForm::Last(last), Layout::ChannelsLast(pitch)) if last.takes(&image) => {
                let results = results(out.pixels, pitch, &epilogue);
                // SAFETY: the image, the weights, the bias, the addend and the results were checked
                // above, and the results are borrowed exclusively.
                unsafe { last.run(&image, weights, results, epilogue.finish, parallel) }
            }
            _ => Err(GemmError::Layout),
        }
    }

    /// # Errors
    /// [`GemmError`] if the weights or what follows the sums do not fit.
    fn check(&self, weights: &[f32], epilogue: &ConvEpilogue<'_>) -> Result<(), GemmError> {
        View::row_major(weights, 1, self.packed_len())?;
        if let Some(bias) = epilogue.bias.filter(|b| b.len() != self.shape.outputs) {
            return Err(GemmError::Bias { expected: self.shape.outputs, found: bias.len() });
        }
        match epilogue.addend {
            Some(addend) => addend.check(self.shape.outputs, self.shape.output.iter().product()),
            None if epilogue.steps.contains(&PointStep::PlusAddend) => Err(GemmError::Layout),
            None => Ok(()),
        }
    }
}

/// Where the results of a channels-last convolution go, and what is done to them.
fn results<'e>(pixels: PixelsMut<'_>, pitch: usize, epilogue: &ConvEpilogue<'e>) -> Results<'e> {
    let store = match pixels {
        PixelsMut::F32(out) => Store::F32(out.as_mut_ptr()),
        PixelsMut::F16(out) => Store::F16(out.as_mut_ptr()),
    };
    let bias = epilogue.bias.map_or(std::ptr::null(), <[f32]>::as_ptr);
    let addend = match epilogue.addend {
        Some(Addend { pixels: Pixels::F32(s), origin, pitch }) => (Load::F32(s.as_ptr().wrapping_add(origin)), pitch),
        Some(Addend { pixels: Pixels::F16(s), origin, pitch }) => (Load::F16(s.as_ptr().wrapping_add(origin)), pitch),
        None => Load::NONE,
    };
    Results { store, pitch, bias, steps: epilogue.steps, addend, round: epilogue.round }
}

#[cfg(test)]
mod tests;
