//! Weighted sums over the pixels under a filter, or the largest of them, one channel at a time:
//! depthwise convolutions and poolings of channels-last images, with vectors of channels.

use super::strip::Results;
use super::vector::{Element, Simd};

/// Positions whose sums are held in registers: enough to hide the latency of a multiply-add, and a
/// divisor of the usual widths of images.
const POSITIONS: usize = 7;

/// Half of them, rounded down.
const HALF: usize = POSITIONS / 2;

/// Vectors whose results are held in registers for a single position.
const VECTORS: usize = 4;

/// A tap of the filter: the distance of its pixel from where the filter begins, and the index of
/// its weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tap {
    pub offset: isize,
    pub weights: usize,
}

/// Results of one row that see the same taps.
#[derive(Clone, Copy)]
pub(crate) struct Taps<'a> {
    pub taps: &'a [Tap],
    /// One row of channels for each tap of the filter; null for the largest pixel instead of a sum.
    pub weights: *const f32,
    /// Elements from the weights of one tap to those of the next.
    pub pitch: usize,
    pub channels: usize,
    /// Taps of a row of the filter, if each sees the neighbor of what the tap before it sees; else
    /// 1.
    pub width: usize,
    /// Elements from a pixel to its neighbor.
    pub pixel: isize,
    /// Number of results next to each other in the row.
    pub count: usize,
    /// Elements from what a position reads to what the next one reads.
    pub step: isize,
    pub out: Results<'a>,
}

/// Weighted sums of a vector of channels over a small image, which is copied with its padding: then
/// every position sees every tap, and the pixels of all taps are near each other.
#[derive(Clone, Copy)]
pub(crate) struct PaddedTaps<'a> {
    /// The first row of results. Taps and steps count elements of the copy.
    pub taps: Taps<'a>,
    /// Rows of results, and elements of the copy from one to the next.
    pub rows: usize,
    pub row: usize,
    /// Rows and pixels of the image that are copied, and elements from one to the next.
    pub size: [usize; 2],
    pub strides: [isize; 2],
    /// Where the first pixel goes, and pixels of a row of the copy. The rest of it is zeros.
    pub copy: *mut f32,
    pub width: usize,
}

/// [`padded`] of one element type.
pub(super) type PaddedKernel = unsafe fn(&PaddedTaps<'_>, *const u8, *const f32);

/// # Safety
/// As of [`PaddedTaps::run`]; the first address is that of the first pixel, the second one that of
/// the copy; the processor supports the instruction set.
#[inline(always)]
pub(super) unsafe fn padded<S: Simd, C: Element>(job: &PaddedTaps<'_>, from: *const u8, copy: *const f32) {
    let n = job.taps.channels;
    for y in 0..job.size[0] {
        let line = from.cast::<C>().wrapping_offset(y as isize * job.strides[0]);
        for x in 0..job.size[1] {
            let pixel = line.wrapping_offset(x as isize * job.strides[1]);
            // SAFETY: the caller guarantees it.
            unsafe {
                let pixel = if n == S::LANES { C::load::<S>(pixel) } else { C::load_part::<S>(pixel, n) };
                S::store(job.copy.add((y * job.width + x) * S::LANES), pixel);
            }
        }
    }
    for row in 0..job.rows {
        let taps = Taps { out: job.taps.out.at(row * job.taps.count, 0), ..job.taps };
        // SAFETY: the caller guarantees it.
        unsafe { channels::<S, f32, Weighted>(&taps, copy.add(row * job.row), S::LANES as isize) };
    }
}

/// [`taps`] of one element type.
pub(super) type TapsKernel = unsafe fn(&Taps<'_>, *const u8);

/// # Safety
/// As of [`Taps::run`]; the address is where the filter of the first position begins, the processor
/// supports the instruction set.
#[inline(always)]
pub(super) unsafe fn taps<S: Simd, C: Element>(job: &Taps<'_>, from: *const u8) {
    // SAFETY: the caller guarantees it.
    unsafe {
        if job.weights.is_null() {
            channels::<S, C, Largest>(job, from.cast(), job.pixel);
        } else {
            channels::<S, C, Weighted>(job, from.cast(), job.pixel);
        }
    }
}

/// What a pixel contributes to a result.
trait Combine {
    /// The result of no pixel.
    const NONE: f32;

    /// # Safety
    /// Of [`Simd`]; the weights of a sum are readable, `n` of them.
    unsafe fn weight<S: Simd>(weights: *const f32, n: usize) -> S::V;

    /// # Safety
    /// Of [`Simd`].
    unsafe fn with<S: Simd>(result: S::V, weight: S::V, pixel: S::V) -> S::V;
}

struct Weighted;

impl Combine for Weighted {
    const NONE: f32 = 0.0;

    #[inline(always)]
    unsafe fn weight<S: Simd>(weights: *const f32, n: usize) -> S::V {
        // SAFETY: the caller guarantees it.
        unsafe { if n == S::LANES { S::load(weights) } else { S::load_part(weights, n) } }
    }

    #[inline(always)]
    unsafe fn with<S: Simd>(result: S::V, weight: S::V, pixel: S::V) -> S::V {
        // SAFETY: the caller guarantees it.
        unsafe { S::fma(weight, pixel, result) }
    }
}

struct Largest;

impl Combine for Largest {
    const NONE: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    unsafe fn weight<S: Simd>(_: *const f32, _: usize) -> S::V {
        // SAFETY: the caller guarantees it.
        unsafe { S::splat(1.0) }
    }

    #[inline(always)]
    unsafe fn with<S: Simd>(result: S::V, _: S::V, pixel: S::V) -> S::V {
        // SAFETY: the caller guarantees it.
        unsafe { S::larger(result, pixel) }
    }
}

/// All results: several positions of one vector of channels, half as many of two vectors, then
/// positions one by one with several vectors. `pixel` is that of the job, a constant of the
/// instruction set where the pixels were copied, so that addresses need no arithmetic.
#[inline(always)]
unsafe fn channels<S: Simd, C: Element, F: Combine>(job: &Taps<'_>, from: *const C, pixel: isize) {
    let many = job.count / POSITIONS * POSITIONS;
    let whole = job.channels / S::LANES * S::LANES;
    // SAFETY: the caller guarantees it.
    unsafe {
        for channel in (0..whole).step_by(S::LANES) {
            for at in (0..many).step_by(POSITIONS) {
                neighbors::<S, C, F>(job, from, pixel, channel, S::LANES, at);
            }
        }
        let mut rest = many;
        if many + HALF <= job.count {
            let pairs = whole / (2 * S::LANES) * (2 * S::LANES);
            for channel in (0..pairs).step_by(2 * S::LANES) {
                results::<S, C, F, HALF, 2>(job, from, channel, S::LANES, many);
            }
            if pairs < whole {
                results::<S, C, F, HALF, 1>(job, from, pairs, S::LANES, many);
            }
            rest += HALF;
        }
        for at in rest..job.count {
            let mut channel = 0;
            while channel + VECTORS * S::LANES <= whole {
                results::<S, C, F, 1, VECTORS>(job, from, channel, S::LANES, at);
                channel += VECTORS * S::LANES;
            }
            while channel < whole {
                results::<S, C, F, 1, 1>(job, from, channel, S::LANES, at);
                channel += S::LANES;
            }
        }
        if whole < job.channels {
            let n = job.channels - whole;
            for at in (0..many).step_by(POSITIONS) {
                neighbors::<S, C, F>(job, from, pixel, whole, n, at);
            }
            for at in many..job.count {
                results::<S, C, F, 1, 1>(job, from, whole, n, at);
            }
        }
    }
}

/// [`POSITIONS`] positions from `at` on, of one vector of channels, `n` values of it.
///
/// Neighboring positions see the same pixels through different taps, so those that a row of the
/// filter sees are loaded once for all of them.
#[inline(always)]
unsafe fn neighbors<S: Simd, C: Element, F: Combine>(
    job: &Taps<'_>,
    from: *const C,
    pixel: isize,
    channel: usize,
    n: usize,
    at: usize,
) {
    let step = if pixel == 0 { 0 } else { job.step / pixel };
    // With fewer registers the pixels of a row would be stored and loaded again.
    let width = if S::REGISTERS < 32 { 1 } else { job.width };
    let pixels = from.wrapping_offset(at as isize * job.step).wrapping_add(channel);
    // SAFETY: the caller guarantees it.
    unsafe {
        let results = match (width, step) {
            (3, 1) => by_rows::<S, C, F, 3, 1>(job, pixels, pixel, channel, n),
            (3, 2) => by_rows::<S, C, F, 3, 2>(job, pixels, pixel, channel, n),
            (5, 1) => by_rows::<S, C, F, 5, 1>(job, pixels, pixel, channel, n),
            (5, 2) => by_rows::<S, C, F, 5, 2>(job, pixels, pixel, channel, n),
            (7, 1) => by_rows::<S, C, F, 7, 1>(job, pixels, pixel, channel, n),
            _ => return results::<S, C, F, POSITIONS, 1>(job, from, channel, n, at),
        };
        job.out.store::<S, POSITIONS>(at, channel, n, results);
    }
}

/// Results of positions that are `STEP` pixels from each other, under a filter whose rows have
/// `WIDTH` taps. `pixels` is where it begins for the first of them.
#[inline(always)]
unsafe fn by_rows<S: Simd, C: Element, F: Combine, const WIDTH: usize, const STEP: usize>(
    job: &Taps<'_>,
    pixels: *const C,
    pixel: isize,
    channel: usize,
    n: usize,
) -> [S::V; POSITIONS] {
    /// Pixels that the positions see of a row, at most.
    const MOST: usize = (POSITIONS - 1) * 2 + 5;
    // SAFETY: the caller guarantees it.
    unsafe {
        let mut results = [S::splat(F::NONE); POSITIONS];
        for row in job.taps.chunks_exact(WIDTH) {
            let from = pixels.wrapping_offset(row[0].offset);
            let weights = job.weights.wrapping_add(row[0].weights * job.pitch + channel);
            let mut seen = [S::splat(0.0); MOST];
            for i in 0..(POSITIONS - 1) * STEP + WIDTH {
                let at = from.wrapping_offset(i as isize * pixel);
                seen[i] = if n == S::LANES { C::load::<S>(at) } else { C::load_part::<S>(at, n) };
            }
            for tap in 0..WIDTH {
                let weight = F::weight::<S>(weights.wrapping_add(tap * job.pitch), n);
                for p in 0..POSITIONS {
                    results[p] = F::with::<S>(results[p], weight, seen[p * STEP + tap]);
                }
            }
        }
        results
    }
}

/// `P` positions from `at` on, of `V` vectors of channels from `channel` on; `n` values of the only
/// vector, if they are not all.
#[inline(always)]
unsafe fn results<S: Simd, C: Element, F: Combine, const P: usize, const V: usize>(
    job: &Taps<'_>,
    from: *const C,
    channel: usize,
    n: usize,
    at: usize,
) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let mut results = [[S::splat(F::NONE); V]; P];
        let from = from.wrapping_offset(at as isize * job.step).wrapping_add(channel);
        let weights = job.weights.wrapping_add(channel);
        for tap in job.taps {
            let pixel = from.wrapping_offset(tap.offset);
            let weights = weights.wrapping_add(tap.weights * job.pitch);
            for v in 0..V {
                let weight = F::weight::<S>(weights.wrapping_add(v * S::LANES), n);
                for p in 0..P {
                    let pixel = pixel.wrapping_offset(p as isize * job.step).wrapping_add(v * S::LANES);
                    let pixel = if n == S::LANES { C::load::<S>(pixel) } else { C::load_part::<S>(pixel, n) };
                    results[p][v] = F::with::<S>(results[p][v], weight, pixel);
                }
            }
        }
        for v in 0..V {
            let mut column = [S::splat(0.0); P];
            for p in 0..P {
                column[p] = results[p][v];
            }
            job.out.store::<S, P>(at, channel + v * S::LANES, n, column);
        }
    }
}
