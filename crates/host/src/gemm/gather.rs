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
        for _ in 0..count {
            // SAFETY: every pixel is inside the image.
            unsafe { copy::<S, C>(from, to, run.channels) };
            (from, to) = (from.wrapping_offset(pixel), to.wrapping_add(PITCH));
        }
        return;
    }
    let mut at = [first / widths / heights, first / widths % heights, first % widths];
    for _ in 0..count {
        // Where the filter begins: before the image, if this wraps.
        let mut begin = [0usize; AXES];
        let mut base = 0isize;
        for a in 0..AXES {
            begin[a] = (at[a] * job.steps[a]).wrapping_sub(job.pad[a]);
            base = base.wrapping_add((begin[a] as isize).wrapping_mul(job.strides[a]));
        }
        let mut row = to;
        for run in job.runs {
            let [z, y, x] = [0, 1, 2].map(|a: usize| begin[a].wrapping_add(run.at[a]));
            let inside = z < job.input[0] && y < job.input[1];
            let mut offset = base.wrapping_add(run.from as isize);
            for a in 0..AXES {
                offset = offset.wrapping_add(run.at[a] as isize * job.strides[a]);
            }
            // SAFETY: pixels are read only if they are inside the image.
            unsafe {
                if inside && x < job.input[2] && x + run.taps <= job.input[2] {
                    copy::<S, C>(origin.wrapping_offset(offset), row, run.taps * run.channels);
                    row = row.add(run.taps * run.channels);
                    continue;
                }
                for tap in 0..run.taps {
                    if inside && x.wrapping_add(tap) < job.input[2] {
                        let offset = offset.wrapping_add(tap as isize * job.strides[2]);
                        copy::<S, C>(origin.wrapping_offset(offset), row, run.channels);
                    } else {
                        zeros::<S>(row, run.channels);
                    }
                    row = row.add(run.channels);
                }
            }
        }
        to = to.wrapping_add(PITCH);
        at[2] += 1;
        if at[2] == widths {
            (at[1], at[2]) = (at[1] + 1, 0);
            if at[1] == heights {
                (at[0], at[1]) = (at[0] + 1, 0);
            }
        }
    }
}

/// Widens `n` elements; less than a vector after them may be overwritten.
#[inline(always)]
unsafe fn copy<S: Simd, C: Element>(from: *const C, to: *mut f32, n: usize) {
    let mut i = 0;
    // SAFETY: the caller guarantees it.
    unsafe {
        while i + S::LANES <= n {
            S::store(to.add(i), C::load::<S>(from.add(i)));
            i += S::LANES;
        }
        if i < n {
            S::store(to.add(i), C::load_part::<S>(from.add(i), n - i));
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
