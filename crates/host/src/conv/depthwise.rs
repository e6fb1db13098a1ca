//! Depthwise convolutions with channels first: sums of shifted rows, one channel at a time.

use super::first::{First, Pixel};
use super::shape::{ConvEpilogue, Image};
use crate::gemm::{GemmError, SLACK, fir, with_scratch};
use crate::pool;

/// Multiply-adds of a task.
const TASK: usize = 128 << 10;

impl First {
    pub(super) fn depthwise<T: Pixel>(
        &self,
        image: Image<'_>,
        weights: &[f32],
        out: &mut [T],
        epilogue: ConvEpilogue<'_>,
        parallel: bool,
    ) -> Result<(), GemmError> {
        let places: usize = self.shape.output.iter().product();
        // The results of one input channel.
        let part = self.outputs_per_group() * places;
        let work = part.saturating_mul(self.depth()).max(1);
        let channels = if parallel { (TASK / work).max(1) } else { self.shape.channels };
        pool::try_for_each_chunk_mut(out, channels * part, |task, out| {
            self.channels(image, weights, task * channels, out, part, epilogue)
        })
    }

    /// The results of the input channels from `first` on, as many as `out` has room for.
    fn channels<T: Pixel>(
        &self,
        image: Image<'_>,
        weights: &[f32],
        first: usize,
        out: &mut [T],
        part: usize,
        epilogue: ConvEpilogue<'_>,
    ) -> Result<(), GemmError> {
        let (padded, taps, per_channel) = (&self.padded, self.depth(), self.outputs_per_group());
        let places = part / per_channel;
        let halves = padded.halves(&image);
        with_scratch([padded.len(1), halves, padded.run() + SLACK], |[plane, halves, sums]| {
            for (i, out) in out.chunks_exact_mut(part).enumerate() {
                let channel = first + i;
                let origin = image.origin.wrapping_add_signed(channel as isize * image.channel);
                let image = Image { origin, ..image };
                padded.plane(&image, false, plane, halves);
                for (j, out) in out.chunks_exact_mut(places).enumerate() {
                    let output = channel * per_channel + j;
                    let weights = &weights[output * taps..(output + 1) * taps];
                    let bias = epilogue.bias.map_or(0.0, |b| b[output]);
                    fir(weights, &padded.steps, bias, plane, sums, padded.run());
                    self.store(sums, out, epilogue.round);
                }
            }
        })
    }

    /// Stores the sums of one channel, whose rows lie as in the padded image.
    fn store<T: Pixel>(&self, sums: &mut [f32], out: &mut [T], round: bool) {
        let (width, pitch) = (self.padded.width(), self.padded.pitch());
        let rows = self.shape.output.len().checked_sub(2).map_or(1, |y| self.shape.output[y]);
        // Rows of one plane have one pitch.
        for (plane, out) in self.padded.rows.chunks_exact(rows).zip(out.chunks_exact_mut(rows * width)) {
            T::store(&mut sums[plane[0]..], pitch, out, width, round);
        }
    }
}
