//! Convolutions of images with few channels, as the first layer of a network has them: pixels are
//! read where a task has copied their rows, one channel after the other, with their padding.
//!
//! Gathering the pixels under the filter of each position would take as long as multiplying them
//! when there are few output channels. In the copy, the same tap of neighboring positions is at a
//! constant distance, so a tile broadcasts its pixels from there. The image may have its channels
//! first or last, so the input of a network needs no transposition.
//!
//! Sums add their products in order of taps, then channels.

use std::ops::Range;

use half::f16;

use super::last::{AXES, Last};
use super::padded::{neighbors, strides};
use super::shape::{Finish, Image};
use crate::convert;
use crate::gemm::{BLOCK, GemmError, PLANAR_STEPS, Pixels, Planar, Results, planar_rows, with_scratch};
use crate::pool;

/// The most input channels. With more, gathered rows have long runs.
const CHANNELS: usize = 4;

/// Elements that a task copies: they stay in the L2 cache.
const COPY: usize = 64 << 10;

/// How rows of an image are copied.
#[derive(Clone, Debug)]
pub(super) struct Planes {
    /// Elements of a row of one channel.
    width: usize,
    /// The distance of each product's pixel from where the filter begins.
    offsets: Vec<usize>,
}

impl Planes {
    /// `None` if the convolution is not of that kind, or its rows are shorter than a tile.
    pub(super) fn new(last: &Last) -> Option<Planes> {
        let flat = last.groups == 1 && last.input[0] == 1 && last.output[0] == 1 && last.pad[0] == 0;
        let small = last.channels <= CHANNELS && (2..=BLOCK).contains(&(last.taps.len() * last.channels));
        let step = last.steps[2];
        let tile = last.panels().map(|(_, width)| planar_rows(width)).max()?;
        if !flat || !small || last.taps.len() < 2 || last.output[2] < tile || step > PLANAR_STEPS {
            return None;
        }
        let reach = last.taps.iter().map(|(_, at)| at[2] + 1).max()?;
        let width = (last.output[2] - 1).checked_mul(step)?.checked_add(reach)?;
        let least = width.checked_mul(last.channels)?.checked_mul(last.reach())?;
        if least > COPY || last.taps.iter().any(|(_, at)| at[0] > 0) {
            return None;
        }
        let offset = |at: [usize; AXES], channel: usize| (at[1] * last.channels + channel) * width + at[2];
        let offsets =
            last.taps.iter().flat_map(|&(_, at)| (0..last.channels).map(move |channel| offset(at, channel))).collect();
        Some(Planes { width, offsets })
    }

    /// Elements of the copy for so many rows of results.
    pub(super) fn len(&self, last: &Last, rows: usize) -> usize {
        (rows - 1) * self.line(last) + last.reach() * last.channels * self.width
    }

    /// Elements of the copy from what a row of results sees to what the next one sees.
    fn line(&self, last: &Last) -> usize {
        last.steps[1] * last.channels * self.width
    }

    /// Computes one image.
    ///
    /// # Safety
    /// As of [`Last::run`], but for the order of the image's channels.
    pub(super) unsafe fn run(
        &self,
        last: &Last,
        image: &Image<'_>,
        weights: &[f32],
        out: Results<'_>,
        finish: Option<Finish<'_>>,
        parallel: bool,
    ) -> Result<(), GemmError> {
        let [_, rows, width] = last.output;
        let most = (COPY.saturating_sub(self.len(last, 1)) / self.line(last)).max(1);
        // As many rows for each thread.
        let copies = rows.div_ceil(most);
        let copies = if parallel { copies.next_multiple_of(pool::threads()).min(rows) } else { copies };
        let together = rows.div_ceil(copies);
        pool::try_for_each_range(rows, if parallel { together } else { rows }, |rows| {
            for first in rows.clone().step_by(together) {
                let rows = first..rows.end.min(first + together);
                // SAFETY: the caller guarantees it; tasks have different rows.
                unsafe {
                    self.rows(last, image, weights, rows.clone(), |row| out.at(row * width, 0))?;
                    last.finish(out, finish, rows.start * width..rows.end * width);
                }
            }
            Ok(())
        })
    }

    /// Computes rows of results; `out` is where a row begins.
    ///
    /// # Safety
    /// As of [`Planes::run`], for these rows.
    pub(super) unsafe fn rows<'a>(
        &self,
        last: &Last,
        image: &Image<'_>,
        weights: &[f32],
        rows: Range<usize>,
        out: impl Fn(usize) -> Results<'a>,
    ) -> Result<(), GemmError> {
        let line = self.line(last);
        let (count, step) = (last.output[2], last.steps[2]);
        with_scratch([self.len(last, rows.len()), 0, 0], |[copy, ..]| {
            self.fill(last, image, rows.start, copy);
            for row in rows.clone() {
                let (copy, out) = (&copy[(row - rows.start) * line..], out(row));
                for (first, width) in last.panels() {
                    let cols = width.min(last.outputs - first);
                    let tile = planar_rows(width);
                    let b = &weights[first * self.offsets.len()..][..width * self.offsets.len()];
                    for begin in (0..count).step_by(tile) {
                        // The last tile ends where the row does.
                        let at = begin.min(count - tile);
                        let tile = Planar {
                            offsets: &self.offsets,
                            a: &copy[at * step..],
                            b,
                            out: out.at(at, first),
                            cols,
                            skipped: begin - at,
                        };
                        // SAFETY: the copy has the pixels under the filter of all positions of the
                        // row, and the panel has all steps; the caller guarantees the rest.
                        unsafe { tile.run(step, width) };
                    }
                }
            }
        })
    }

    /// Copies the rows that results from row `first` on see.
    fn fill(&self, last: &Last, image: &Image<'_>, first: usize, copy: &mut [f32]) {
        let [_, line, pixel] = strides(image.strides);
        // Pixels that are copied to each row, and where they go.
        let left = last.pad[2].min(self.width);
        let right = (last.pad[2] + last.input[2]).clamp(left, self.width);
        for (i, to) in copy.chunks_exact_mut(self.width).enumerate() {
            let (row, channel) = (first * last.steps[1] + i / last.channels, i % last.channels);
            let row = row.wrapping_sub(last.pad[1]);
            if row >= last.input[1] {
                to.fill(0.0);
                continue;
            }
            to[..left].fill(0.0);
            to[right..].fill(0.0);
            let to = &mut to[left..right];
            let offset = row as isize * line + channel as isize * image.channel;
            let at = image.origin.wrapping_add_signed(offset);
            match image.pixels {
                Pixels::F32(from) => neighbors(from, at, pixel, to),
                Pixels::F16(from) if pixel == 1 => convert::f16_to_f32(&from[at..at + to.len()], to),
                Pixels::F16(from) => {
                    for (i, to) in to.iter_mut().enumerate() {
                        *to = f16::to_f32(from[at.wrapping_add_signed(i as isize * pixel)]);
                    }
                }
            }
        }
    }
}
