//! A convolution and the depthwise one that reads its results, as in inverted bottlenecks, computed
//! together: the image between the two, the largest of such a network, is never in memory.
//!
//! A task computes some rows of the last image, a band of them at a time: first the rows between
//! the two that the band reads, into a buffer that stays in the L2 cache, then the band. Rows that
//! the next band reads too are kept. Only where a task begins are some computed twice.
//!
//! Invariant: every result has the bits that the two convolutions give one after the other.

use std::ops::Range;

use super::last::{Area, Last, POSITIONS};
use super::shape::{ConvEpilogue, Finish, Image, ImageMut, Layout};
use super::{Conv, ConvForm, is_parallel, results};
use crate::gemm::{GemmError, Load, Pixels, Results, Store, panel_width, with_scratch};
use crate::pool;

/// Elements of a band: it stays in the L2 cache, next to the weights.
const BAND: usize = 96 << 10;

/// The most elements that a band of one row may have.
const MOST: usize = BAND / 2 * 3;

/// The least elements between the two: fewer stay in the L2 cache anyway.
const LEAST: usize = 64 << 10;

/// One of two convolutions that are computed together.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    /// One that was made by [`Conv::channels_last`].
    pub conv: &'a Conv,
    /// As [`Conv::pack`] has written them.
    pub weights: &'a [f32],
    /// What follows the sums. The first stage has no addend and nothing that finishes its results.
    pub epilogue: ConvEpilogue<'a>,
}

impl Conv {
    /// True if [`run_pair`] takes the two, and is faster than one after the other: if `next` is a
    /// depthwise convolution of the results, both have channels-last images, and these results are
    /// larger than what the caches hold.
    pub fn feeds(&self, next: &Conv) -> bool {
        let (ConvForm::Last(first), ConvForm::Last(second)) = (&self.form, &next.form) else { return false };
        first.pairs_with(second) && first.places().saturating_mul(first.outputs) >= LEAST
    }
}

/// Computes two convolutions of one image; the second reads the results of the first.
///
/// # Errors
/// [`GemmError`] if the memory or the layout does not fit, the convolutions are not a pair, or
/// scratch memory cannot be allocated.
pub fn run_pair([one, two]: [Stage<'_>; 2], image: Image<'_>, out: ImageMut<'_>) -> Result<(), GemmError> {
    let (ConvForm::Last(first), ConvForm::Last(second)) = (&one.conv.form, &two.conv.form) else {
        return Err(GemmError::Layout);
    };
    one.conv.check(one.weights, &one.epilogue)?;
    two.conv.check(two.weights, &two.epilogue)?;
    image.check(one.conv.shape.channels, &one.conv.shape.input)?;
    out.check(two.conv.shape.outputs, second.places())?;
    let plain = one.epilogue.addend.is_none() && one.epilogue.finish.is_none() && image.prologue.is_none();
    let Layout::ChannelsLast(pitch) = out.layout else { return Err(GemmError::Layout) };
    if !plain || !first.takes(&image) || !first.pairs_with(second) {
        return Err(GemmError::Layout);
    }
    let job = Pair {
        first,
        second: &second.with_columns_of_padding(),
        left: second.pad[2],
        image,
        weights: [one.weights, two.weights],
        between: one.epilogue,
        out: results(out.pixels, pitch, &two.epilogue),
        finish: two.epilogue.finish,
        pitch: first.outputs.next_multiple_of(panel_width().1),
    };
    // SAFETY: the images, the weights and what follows the sums were checked above, and the results
    // are borrowed exclusively.
    unsafe { job.run(is_parallel(one.conv.multiply_adds())) }
}

impl Last {
    /// True if the second convolution is depthwise, reads flat images that the first one computes,
    /// and both are computed row by row.
    fn pairs_with(&self, second: &Last) -> bool {
        let by_rows = !self.is_depthwise() && self.groups == 1 && self.winograd.is_none() && self.areas.is_empty();
        let flat = self.output[0] == 1 && second.output[0] == 1 && second.pad[0] == 0 && second.output[1] > 1;
        let line = || self.outputs.next_multiple_of(panel_width().1).saturating_mul(second.columns_with_padding());
        by_rows
            && flat
            && second.is_depthwise()
            && second.small.as_ref().is_none_or(|small| !small.is_tiny())
            && second.input == self.output
            && second.groups == self.outputs
            && line().saturating_mul(second.reach()) <= MOST
            && second.reads_new_rows(line())
    }

    /// True if a band reads at least half as many new rows as it keeps of the band before.
    /// Otherwise most of the time would go to moving these, as under a dilated filter.
    fn reads_new_rows(&self, line: usize) -> bool {
        let (reach, step) = (self.reach(), self.steps[1]);
        2 * band(line, reach, step) * step >= reach.saturating_sub(step)
    }

    /// Rows of the input from the first to the last one under the filter.
    pub(super) fn reach(&self) -> usize {
        self.taps.iter().map(|(_, at)| at[1] + 1).max().unwrap_or(1)
    }

    /// Pixels of a row of the input and of the padding on both sides of it that the filter sees.
    fn columns_with_padding(&self) -> usize {
        let reach = self.taps.iter().map(|(_, at)| at[2] + 1).max().unwrap_or(1);
        ((self.output[2] - 1) * self.steps[2] + reach).max(self.pad[2] + self.input[2])
    }

    /// The same convolution of an image that has the columns of its padding in memory.
    fn with_columns_of_padding(&self) -> Last {
        let mut padded = self.clone();
        (padded.input[2], padded.pad[2]) = (self.columns_with_padding(), 0);
        padded
    }
}

/// Rows of results of a band: `line` elements of the buffer are a row, `reach` rows are under the
/// filter.
fn band(line: usize, reach: usize, step: usize) -> usize {
    (BAND / line).saturating_sub(reach) / step + 1
}

struct Pair<'a> {
    first: &'a Last,
    /// Reads rows with zeros on both sides, so that every position sees all taps of a row.
    second: &'a Last,
    /// Zeros at the beginning of a row.
    left: usize,
    image: Image<'a>,
    weights: [&'a [f32]; 2],
    /// What is done to the results of the first convolution.
    between: ConvEpilogue<'a>,
    out: Results<'a>,
    finish: Option<Finish<'a>>,
    /// Elements from one pixel between the two to the next: whole vectors, so that no vector of
    /// channels lies in two cache lines.
    pitch: usize,
}

impl Pair<'_> {
    /// # Safety
    /// As of [`Last::run`], for both.
    unsafe fn run(&self, parallel: bool) -> Result<(), GemmError> {
        let (rows, reach, step) = (self.second.output[1], self.second.reach(), self.second.steps[1]);
        let line = self.line();
        // Rows of results of a band, and rows of the buffer.
        let band = band(line, reach, step);
        let high = ((band - 1) * step + reach).min(self.first.output[1]);
        // A task is so long that the rows which it computes again are few.
        let least = (4 * reach).div_ceil(step);
        let per_task = if parallel { rows.div_ceil(pool::threads()).max(least) } else { rows };
        pool::try_for_each_range(rows, per_task, |rows| {
            with_scratch([high * line, 0, 0], |[buffer, ..]| {
                let image = self.left * self.pitch..(self.left + self.first.output[2]) * self.pitch;
                for row in buffer.chunks_exact_mut(line) {
                    row[..image.start].fill(0.0);
                    row[image.end..].fill(0.0);
                }
                let mut held = 0..0;
                for start in rows.clone().step_by(band) {
                    let band = start..rows.end.min(start + band);
                    // SAFETY: tasks have different rows; the caller guarantees the rest.
                    unsafe { self.band(buffer, &mut held, band)? };
                }
                Ok(())
            })?
        })
    }

    /// Elements of a row of the buffer.
    fn line(&self) -> usize {
        self.second.input[2] * self.pitch
    }

    /// Computes a band. `held` are the rows between the two that are in the buffer.
    ///
    /// # Safety
    /// As of [`Pair::run`]; the buffer has room for the rows of the band.
    unsafe fn band(&self, buffer: &mut [f32], held: &mut Range<usize>, band: Range<usize>) -> Result<(), GemmError> {
        let (first, second) = (self.first, self.second);
        let line = self.line();
        let (step, pad) = (second.steps[1], second.pad[1]);
        let high = ((band.end - 1) * step + second.reach()).saturating_sub(pad).min(first.output[1]);
        let low = (band.start * step).saturating_sub(pad).min(high);
        let mut from = low;
        if held.contains(&low) {
            buffer.copy_within((low - held.start) * line..(held.end - held.start) * line, 0);
            from = held.end.min(high);
        }
        *held = low..high;
        let base = buffer.as_mut_ptr();
        let results = |row: usize| Results {
            store: Store::F32(base.wrapping_add((row - low) * line + self.left * self.pitch)),
            pitch: self.pitch,
            bias: self.between.bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
            steps: self.between.steps,
            addend: Load::NONE,
            round: self.between.round,
        };
        // SAFETY: the rows are in the buffer; the caller guarantees the rest.
        unsafe { first.rows(&self.image, self.weights[0], from..high, results)? };
        let strides = &[0, line as isize, self.pitch as isize];
        // Where row 0 would be.
        let origin = 0usize.wrapping_sub(low * line);
        let image = Image { pixels: Pixels::F32(buffer), origin, channel: 1, strides, prologue: None };
        // SAFETY: the rows under the filter are in the buffer; the caller guarantees the rest.
        unsafe { second.pixel_rows(&image, Some(self.weights[1]), self.out, self.finish, band) };
        Ok(())
    }
}

impl Last {
    /// Computes rows of results; `out` is where a row begins.
    ///
    /// # Safety
    /// As of [`Last::run`], for these rows.
    unsafe fn rows<'a>(
        &self,
        image: &Image<'_>,
        weights: &[f32],
        rows: Range<usize>,
        out: impl Fn(usize) -> Results<'a>,
    ) -> Result<(), GemmError> {
        if rows.is_empty() {
            return Ok(());
        }
        if let Some(planes) = &self.planes {
            // SAFETY: the caller guarantees it.
            return unsafe { planes.rows(self, image, weights, rows, out) };
        }
        let (width, panels) = (self.output[2], self.panels().count());
        for row in rows {
            // Where position 0 would be, if all rows were neighbors.
            let out = out(row).before(row * width);
            for part in parts(row * width..(row + 1) * width, POSITIONS) {
                let area = Area::neighbors(part);
                // SAFETY: the caller guarantees it.
                unsafe { self.product(image, weights, out, 0..1, area, 0..panels)? };
            }
        }
        Ok(())
    }
}

/// Parts of about the same length, at most `most`.
fn parts(all: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = all.len().div_ceil(most).max(1);
    let share = all.len().div_ceil(count).max(1);
    all.clone().step_by(share).map(move |start| start..all.end.min(start + share))
}
