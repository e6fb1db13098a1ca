//! Depthwise convolutions of channels-last images that are copied, one vector of channels at a
//! time.
//!
//! The pixels under a filter are far from each other, because all channels lie between them, often
//! at a distance that maps them to a few sets of the L1 cache, and in a small image most positions
//! see padding, each another part of the filter. In a copy with its padding the pixels are
//! neighbors, and every position sees all taps. The copy of a tiny image stays in the L1 cache,
//! that of a larger one in the L2 cache.
//!
//! Weights are finite, so the products with padding add zeros: at most the sign of a zero changes.

use std::ops::Range;

use super::last::{AXES, Last};
use super::padded::strides;
use super::shape::{Finish, Image};
use crate::gemm::{GemmError, PaddedTaps, Results, Tap, Taps, panel_width, with_scratch};
use crate::pool;

/// Elements of the copy of a tiny image: it stays in the L1 cache, next to the weights.
const TINY: usize = 6 << 10;

/// Elements of a copy: it stays in the L2 cache.
const COPY: usize = 64 << 10;

/// Taps for each pixel that the filter steps over, from which on the copy of a larger image pays
/// off.
const TAPS: usize = 4;

/// Multiply-adds of a task.
const TASK: usize = 128 << 10;

/// How a small image is copied.
#[derive(Clone, Debug)]
pub(super) struct Small {
    /// Rows and pixels of a copy.
    extents: [usize; 2],
    /// Rows and pixels of the image in it.
    size: [usize; 2],
    taps: Vec<Tap>,
    lanes: usize,
    tiny: bool,
}

impl Small {
    /// `None` if the image is too large or not flat, or a copy does not pay off.
    pub(super) fn new(last: &Last) -> Option<Small> {
        let lanes = panel_width().1;
        let reach = [0, 1, 2].map(|a: usize| {
            let taps = last.taps.iter().map(|(_, at)| at[a]).max().unwrap_or(0);
            (last.output[a] - 1) * last.steps[a] + taps + 1
        });
        let [1, high, wide] = reach else { return None };
        let flat = last.pad[0] == 0 && last.input[0] == 1;
        let copied = high.checked_mul(wide)?.checked_mul(lanes)?;
        let tiny = copied <= TINY;
        let pays = tiny || last.taps.len() >= last.steps[1].saturating_mul(last.steps[2]).saturating_mul(TAPS);
        if !flat || !pays || copied > COPY {
            return None;
        }
        let size = [1, 2].map(|a: usize| last.input[a].min(reach[a].saturating_sub(last.pad[a])));
        let tap = |(weights, (_, at)): (usize, &(usize, [usize; AXES]))| Tap {
            offset: ((at[1] * wide + at[2]) * lanes) as isize,
            weights,
        };
        let taps = last.taps.iter().enumerate().map(tap).collect();
        Some(Small { extents: [high, wide], size, taps, lanes, tiny })
    }

    /// True if the copies of the image stay in the L1 cache.
    pub(super) fn is_tiny(&self) -> bool {
        self.tiny
    }

    /// True if there are vectors of channels for all threads. Otherwise threads had better share
    /// the rows of a larger image; the results are the same.
    pub(super) fn occupies(&self, last: &Last, threads: usize) -> bool {
        self.tiny || last.groups.div_ceil(self.lanes) >= threads
    }

    /// Computes one image.
    ///
    /// # Safety
    /// As of [`Last::run`].
    pub(super) unsafe fn run(
        &self,
        last: &Last,
        image: &Image<'_>,
        weights: &[f32],
        out: Results<'_>,
        finish: Option<Finish<'_>>,
        parallel: bool,
    ) -> Result<(), GemmError> {
        let [_, rows, count] = last.output;
        let vectors = last.groups.div_ceil(self.lanes);
        let work = (rows * count * self.lanes).saturating_mul(self.taps.len()).max(1);
        let per_task = if parallel { (TASK / work).clamp(1, vectors.div_ceil(pool::threads())) } else { vectors };
        pool::try_for_each_range(vectors, per_task, |vectors| {
            // SAFETY: tasks have different channels; the caller guarantees the rest.
            unsafe { self.vectors(last, image, weights, out, vectors) }
        })?;
        // SAFETY: all results have been written.
        unsafe { last.finish_all(out, finish, if parallel { pool::threads() } else { 1 }) };
        Ok(())
    }

    /// The results of some vectors of channels.
    ///
    /// # Safety
    /// As of [`Small::run`].
    unsafe fn vectors(
        &self,
        last: &Last,
        image: &Image<'_>,
        weights: &[f32],
        out: Results<'_>,
        vectors: Range<usize>,
    ) -> Result<(), GemmError> {
        let ([high, wide], lanes) = (self.extents, self.lanes);
        let [_, line, pixel] = strides(image.strides);
        with_scratch([high * wide * lanes, 0, 0], |[copy, ..]| {
            copy.fill(0.0);
            let base = copy.as_mut_ptr();
            let first = (last.pad[1] * wide + last.pad[2]) * lanes;
            for channel in vectors.map(|v| v * lanes) {
                let job = PaddedTaps {
                    taps: Taps {
                        taps: &self.taps,
                        weights: weights.as_ptr().wrapping_add(channel),
                        pitch: last.groups,
                        channels: lanes.min(last.groups - channel),
                        width: last.tap_row,
                        pixel: lanes as isize,
                        count: last.output[2],
                        step: (last.steps[2] * lanes) as isize,
                        out: out.at(0, channel),
                    },
                    rows: last.output[1],
                    row: last.steps[1] * wide * lanes,
                    size: self.size,
                    strides: [line, pixel],
                    copy: base.wrapping_add(first),
                    width: wide,
                };
                // SAFETY: the copy has room for the reach of all positions, and the pixels that are
                // copied are inside of it and of the image; the caller guarantees the rest.
                unsafe { job.run(image.pixels, image.origin + channel, base.cast_const()) };
            }
        })
    }
}
