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
    /// What the elements of a pixel are multiplied by, if anything: one value for each. Then every
    /// run has one tap.
    pub scales: Option<&'a [f32]>,
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

    /// The scales of a run; null if there are none.
    fn scales(&self, run: &TapRun) -> *const f32 {
        self.scales.map_or(std::ptr::null(), |scales| scales.as_ptr().wrapping_add(run.from))
    }
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
        let scales = job.scales(run);
        for _ in 0..count {
            // SAFETY: every pixel is inside the image.
            unsafe { copy::<S, C>(from, scales, to, run.channels) };
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
        let (length, scales) = (run.taps * run.channels, job.scales(run));
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
                copy::<S, C>(from, scales, to.wrapping_add(i * PITCH), length);
                from = from.wrapping_offset(step as isize * pixel);
            }
            for i in (0..low).chain(high..count) {
                let mut to = to.wrapping_add(i * PITCH);
                for tap in 0..run.taps {
                    let tap = (i * step + tap) as isize;
                    if inside && ((x + tap) as usize) < job.input[2] {
                        copy::<S, C>(line.wrapping_offset(tap * pixel), scales, to, run.channels);
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

/// Widens `n` elements, and multiplies them by `scales` unless that is null; less than a vector
/// after them may be overwritten.
#[inline(always)]
unsafe fn copy<S: Simd, C: Element>(from: *const C, scales: *const f32, to: *mut f32, n: usize) {
    let whole = n / S::LANES * S::LANES;
    // SAFETY: the caller guarantees it.
    unsafe {
        if scales.is_null() {
            for i in (0..whole).step_by(S::LANES) {
                S::store(to.add(i), C::load::<S>(from.add(i)));
            }
            if whole < n {
                S::store(to.add(whole), C::load_part::<S>(from.add(whole), n - whole));
            }
            return;
        }
        for i in (0..whole).step_by(S::LANES) {
            let scaled = S::mul(C::load::<S>(from.add(i)), S::load(scales.add(i)));
            S::store(to.add(i), C::rounded::<S>(scaled));
        }
        if whole < n {
            let (rest, scales) = (from.add(whole), scales.add(whole));
            let scaled = S::mul(C::load_part::<S>(rest, n - whole), S::load_part(scales, n - whole));
            S::store(to.add(whole), C::rounded::<S>(scaled));
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
