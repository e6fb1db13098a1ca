//! Rows of a product, gathered from a channels-last image: for each position of the result, the
//! pixels under the filter, one tap after the other, widened to fp32.

use super::strip::PITCH;
use super::unfold::Pixels;
use super::vector::{Element, Simd};

/// The spatial axes of an image; missing ones come first.
pub(crate) const AXES: usize = 3;

/// Neighboring elements under the filter: `taps` pixels next to each other along the last axis, of
/// `channels` elements each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapRun {
    /// Position of the first tap, relative to the pixel at which the filter begins.
    pub at: [usize; AXES],
    /// Neighbors along the last axis, at least one.
    pub taps: usize,
    /// Elements of each pixel.
    pub channels: usize,
    /// The first element of each pixel.
    pub from: usize,
}

/// What a convolution does to the elements of an image as it reads them: `x · scale + shift`,
/// rounded to fp16 if the elements are fp16, then perhaps ReLU.
#[derive(Clone, Copy, Debug)]
pub struct Prologue<'a> {
    /// One factor for each input channel.
    pub scales: &'a [f32],
    /// One term for each input channel, if any.
    pub shifts: Option<&'a [f32]>,
    /// Negative values become zero.
    pub relu: bool,
}

impl Prologue<'_> {
    /// True if there are so many factors and terms.
    pub(crate) fn fits(&self, channels: usize) -> bool {
        self.scales.len() == channels && self.shifts.is_none_or(|shifts| shifts.len() == channels)
    }
}

/// What is gathered: some positions of the result, and the runs of each.
#[derive(Clone, Copy)]
pub(crate) struct Gather<'a> {
    pub pixels: Pixels<'a>,
    /// Index of the first element of the image.
    pub origin: usize,
    /// Elements from one pixel to the next along each axis.
    pub strides: [isize; AXES],
    /// Extents of the image.
    pub input: [usize; AXES],
    /// Extents of the result.
    pub output: [usize; AXES],
    /// Steps of the filter.
    pub steps: [usize; AXES],
    /// Padding before each axis.
    pub pad: [usize; AXES],
    pub runs: &'a [TapRun],
    /// What is done to the elements, if anything. Then every run has one tap.
    pub prologue: Option<Prologue<'a>>,
}

impl Gather<'_> {
    /// The distance of neighboring positions, if each sees one pixel and they are evenly spaced.
    fn pixel(&self) -> Option<isize> {
        let [depths, heights, widths] = self.input.map(|n| n as isize);
        let [z, y, x] = self.strides;
        let plain = self.input == self.output && self.pad == [0; AXES] && self.steps == [1; AXES];
        let one = matches!(self.runs, [run] if run.taps == 1 && run.at == [0; AXES]);
        let even = (heights == 1 || y == widths * x) && (depths == 1 || z == heights * y && heights > 1);
        (plain && one && even).then_some(x)
    }

    /// What is done to the elements of a run.
    fn change(&self, run: &TapRun) -> Change {
        let from = |values: &[f32]| values.as_ptr().wrapping_add(run.from);
        let none = Change { scales: std::ptr::null(), shifts: std::ptr::null(), low: f32::NEG_INFINITY };
        self.prologue.map_or(none, |prologue| Change {
            scales: from(prologue.scales),
            shifts: prologue.shifts.map_or(std::ptr::null(), from),
            low: if prologue.relu { 0.0 } else { f32::NEG_INFINITY },
        })
    }
}

/// A [`Prologue`] for the elements of a run. The addresses are null if there are no such values.
#[derive(Clone, Copy)]
struct Change {
    scales: *const f32,
    shifts: *const f32,
    /// The least value of a result.
    low: f32,
}

/// # Safety
/// As of [`Gather::rows`]; the address is that of the pixels, the processor supports the
/// instruction set.
#[inline(always)]
pub(super) unsafe fn gather<S: Simd, C: Element>(
    job: &Gather<'_>,
    pixels: *const u8,
    first: usize,
    count: usize,
    mut to: *mut f32,
) {
    let [_, heights, widths] = job.output;
    let origin = pixels.cast::<C>().wrapping_add(job.origin);
    if let (Some(pixel), [run]) = (job.pixel(), job.runs) {
        let mut from = origin.wrapping_offset(first as isize * pixel).wrapping_add(run.from);
        let change = job.change(run);
        for _ in 0..count {
            // SAFETY: every pixel is inside the image.
            unsafe { copy::<S, C>(from, change, to, run.channels) };
            (from, to) = (from.wrapping_offset(pixel), to.wrapping_add(PITCH));
        }
        return;
    }
    let mut at = [first / widths / heights, first / widths % heights, first % widths];
    let mut left = count;
    while left > 0 {
        let line = left.min(widths - at[2]);
        // SAFETY: positions of one row of results.
        unsafe { gather_line::<S, C>(job, origin, at, line, to) };
        (to, left, at[2]) = (to.wrapping_add(line * PITCH), left - line, 0);
        at[1] += 1;
        if at[1] == heights {
            (at[0], at[1]) = (at[0] + 1, 0);
        }
    }
}

/// Gathers `count` positions of one row of results from `at` on, one run after the other.
#[inline(always)]
unsafe fn gather_line<S: Simd, C: Element>(
    job: &Gather<'_>,
    origin: *const C,
    at: [usize; AXES],
    count: usize,
    mut to: *mut f32,
) {
    let begin = |a: usize| (at[a] * job.steps[a]).wrapping_sub(job.pad[a]);
    let (z, y, x) = (begin(0), begin(1), begin(2) as isize);
    let (step, pixel) = (job.steps[2], job.strides[2]);
    for run in job.runs {
        let (z, y, x) = (z.wrapping_add(run.at[0]), y.wrapping_add(run.at[1]), x + run.at[2] as isize);
        let (length, change) = (run.taps * run.channels, job.change(run));
        let inside = z < job.input[0] && y < job.input[1];
        // Positions from `low` to `high` see all taps of the run.
        let (mut low, mut high) = (count, count);
        if inside {
            low = if x < 0 { x.unsigned_abs().div_ceil(step).min(count) } else { 0 };
            let room = job.input[2] as isize - run.taps as isize - x;
            high = if room < 0 { low } else { (room as usize / step + 1).clamp(low, count) };
        }
        let line = origin
            .wrapping_offset((z as isize).wrapping_mul(job.strides[0]))
            .wrapping_offset((y as isize).wrapping_mul(job.strides[1]))
            .wrapping_offset(x.wrapping_mul(pixel))
            .wrapping_add(run.from);
        // SAFETY: pixels are read only if they are inside the image.
        unsafe {
            let mut from = line.wrapping_offset(((low * step) as isize).wrapping_mul(pixel));
            for i in low..high {
                copy::<S, C>(from, change, to.wrapping_add(i * PITCH), length);
                from = from.wrapping_offset(step as isize * pixel);
            }
            for i in (0..low).chain(high..count) {
                let mut to = to.wrapping_add(i * PITCH);
                for tap in 0..run.taps {
                    let tap = (i * step + tap) as isize;
                    if inside && ((x + tap) as usize) < job.input[2] {
                        copy::<S, C>(line.wrapping_offset(tap * pixel), change, to, run.channels);
                    } else {
                        zeros::<S>(to, run.channels);
                    }
                    to = to.wrapping_add(run.channels);
                }
            }
        }
        to = to.wrapping_add(length);
    }
}

/// Widens `n` elements and changes them; less than a vector after them may be overwritten.
#[inline(always)]
unsafe fn copy<S: Simd, C: Element>(from: *const C, change: Change, to: *mut f32, n: usize) {
    let whole = n / S::LANES * S::LANES;
    // SAFETY: the caller guarantees it.
    unsafe {
        if change.scales.is_null() {
            for i in (0..whole).step_by(S::LANES) {
                S::store(to.add(i), C::load::<S>(from.add(i)));
            }
            if whole < n {
                S::store(to.add(whole), C::load_part::<S>(from.add(whole), n - whole));
            }
        } else if change.shifts.is_null() {
            changed::<S, C, false>(from, change, to, n);
        } else {
            changed::<S, C, true>(from, change, to, n);
        }
    }
}

/// [`copy`] with scales, and with shifts if `SHIFTS` is set.
#[inline(always)]
unsafe fn changed<S: Simd, C: Element, const SHIFTS: bool>(from: *const C, change: Change, to: *mut f32, n: usize) {
    let Change { scales, shifts, low } = change;
    let whole = n / S::LANES * S::LANES;
    // SAFETY: the caller guarantees it.
    unsafe {
        let low = S::splat(low);
        for i in (0..whole).step_by(S::LANES) {
            let mut v = S::mul(C::load::<S>(from.add(i)), S::load(scales.add(i)));
            if SHIFTS {
                v = S::add(v, S::load(shifts.add(i)));
            }
            S::store(to.add(i), S::at_least(low, C::rounded::<S>(v)));
        }
        if whole < n {
            let rest = n - whole;
            let mut v = S::mul(C::load_part::<S>(from.add(whole), rest), S::load_part(scales.add(whole), rest));
            if SHIFTS {
                v = S::add(v, S::load_part(shifts.add(whole), rest));
            }
            S::store(to.add(whole), S::at_least(low, C::rounded::<S>(v)));
        }
    }
}

#[inline(always)]
unsafe fn zeros<S: Simd>(to: *mut f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: the caller guarantees it.
        unsafe { S::store(to.add(i), S::splat(0.0)) };
    }
}

/// [`gather`] of one element type.
pub(super) type GatherKernel = unsafe fn(&Gather<'_>, *const u8, usize, usize, *mut f32);
