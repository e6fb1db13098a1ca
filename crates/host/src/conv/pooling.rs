//! Pooling: the largest element, a mean, or the root of a sum of squares under a sliding window.
//!
//! With channels first, a channel is copied with its padding ([`Padded`]); then a result is
//! combined from elements at fixed distances, and neighboring results are computed together.
//! Padding is −∞ for a maximum and zero for sums, so it changes no result. With channels last,
//! pixels are combined in place.
//!
//! Invariants: taps are combined in row-major order, sums in fp64 and divided once. A NaN under the
//! window gives NaN, and of equal largest elements the first one is kept (zeros have signs).

use super::first::Pixel;
use super::last::Last;
use super::padded::Padded;
use super::shape::{ConvShape, Image, ImageMut, Layout, PixelsMut};
use crate::gemm::{GemmError, Load, Pixels, Results, Store, with_scratch};
use crate::{convert, pool, vectorize};

/// Results that are computed together: a few vectors on every processor.
const BLOCK: usize = 32;

/// Windows with more taps are refused: the distances of all taps are kept.
const TAPS: usize = 4096;

/// Channels with more elements and results are refused: results have a divisor each.
const PLACES: usize = 1 << 26;

/// Combined elements of a task.
const TASK: usize = 256 << 10;

/// Poolings that combine fewer elements than this run on the calling thread.
const PARALLEL: usize = 1 << 18;

/// What a window computes from the elements of the input under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolFunction {
    /// The largest element; −∞ if there is none.
    Max,
    /// The mean of the elements; 0 if there is none.
    Mean,
    /// The sum of the elements divided by the number of taps inside of the padded input, which has
    /// these extents.
    MeanWithPadding(Vec<usize>),
    /// The square root of the sum of squares.
    L2,
}

/// A pooling of a known shape.
#[derive(Clone, Debug)]
pub struct Pooling {
    shape: ConvShape,
    function: PoolFunction,
    padded: Padded,
    last: Last,
    /// The divisor of each result of a channel, for means.
    counts: Vec<f64>,
}

impl Pooling {
    /// A pooling, or `None` for shapes that are inconsistent, whose channels are not pooled one by
    /// one, or whose padded copy is much larger than the input and the results, for windows of more
    /// than 4096 taps, and for channels of more than 2²⁶ elements.
    pub fn new(shape: ConvShape, function: PoolFunction) -> Option<Pooling> {
        let taps = shape.kernel.iter().try_fold(1usize, |n, &k| n.checked_mul(k))?;
        if !shape.is_consistent() || shape.channels != shape.groups || shape.outputs != shape.groups || taps > TAPS {
            return None;
        }
        let volume = |e: &[usize]| e.iter().try_fold(1usize, |n, &k| n.checked_mul(k));
        let room = volume(&shape.input)?.checked_add(volume(&shape.output)?).filter(|&n| n <= PLACES)? * 16;
        let padded = Padded::new(&shape, true).filter(|p| p.len(1) <= room.max(1 << 16))?;
        let last = Last::new(&shape, true)?;
        let ends = match &function {
            PoolFunction::Mean => {
                shape.input.iter().zip(&shape.pad).map(|(n, pad)| n.checked_add(*pad)).collect::<Option<Vec<_>>>()?
            }
            PoolFunction::MeanWithPadding(extents) if extents.len() == shape.input.len() => extents.clone(),
            PoolFunction::MeanWithPadding(_) => return None,
            PoolFunction::Max | PoolFunction::L2 => Vec::new(),
        };
        let mut counts = Vec::new();
        if !ends.is_empty() {
            counts.push(1.0);
        }
        for (a, &end) in ends.iter().enumerate() {
            let begin = if function == PoolFunction::Mean { shape.pad[a] } else { 0 };
            let along: Vec<usize> = (0..shape.output[a])
                .map(|o| {
                    let taps = (0..shape.kernel[a]).map(|t| o * shape.strides[a] + t * shape.dilations[a]);
                    taps.filter(|at| (begin..end).contains(at)).count()
                })
                .collect();
            counts = counts.iter().flat_map(|n| along.iter().map(move |m| n * *m as f64)).collect();
        }
        counts.iter_mut().for_each(|n| *n = n.max(1.0));
        Some(Pooling { shape, function, padded, last, counts })
    }

    /// Computes one image. With `round`, an fp32 result is rounded to the nearest fp16 value.
    ///
    /// # Errors
    /// [`GemmError`] if the memory does not fit the shape, or scratch memory cannot be allocated.
    pub fn run(&self, image: Image<'_>, out: ImageMut<'_>, round: bool) -> Result<(), GemmError> {
        let places: usize = self.shape.output.iter().product();
        let channels = self.shape.channels;
        out.check(channels, places)?;
        image.check(channels, &self.shape.input)?;
        let Layout::ChannelsLast(pitch) = out.layout else {
            return match out.pixels {
                PixelsMut::F32(out) => self.typed(image, &mut out[..channels * places], places, round),
                PixelsMut::F16(out) => self.typed(image, &mut out[..channels * places], places, round),
            };
        };
        if !self.last.takes(&image) {
            return Err(GemmError::Layout);
        }
        let end = (places - 1) * pitch + channels;
        match (self.function == PoolFunction::Max, out.pixels) {
            (true, PixelsMut::F32(out)) => self.largest_last(&image, Store::F32(out.as_mut_ptr()), pitch, round),
            (true, PixelsMut::F16(out)) => self.largest_last(&image, Store::F16(out.as_mut_ptr()), pitch, round),
            (false, PixelsMut::F32(out)) => self.sums_last(&image, &mut out[..end], pitch, round)?,
            (false, PixelsMut::F16(out)) => self.sums_last(&image, &mut out[..end], pitch, round)?,
        }
        Ok(())
    }

    /// True if the pooling is worth threads.
    fn parallel(&self) -> bool {
        let work = self.padded.run().saturating_mul(self.padded.steps.len()).max(self.padded.len(1));
        work.saturating_mul(self.shape.channels) >= PARALLEL
    }

    /// The largest pixels of a channels-last image, for results that were checked.
    fn largest_last(&self, image: &Image<'_>, store: Store, pitch: usize, round: bool) {
        let out = Results { store, pitch, bias: std::ptr::null(), steps: &[], addend: Load::NONE, round };
        // SAFETY: the image and the results were checked, and the results are borrowed exclusively.
        unsafe { self.last.pixels(image, None, out, None, self.parallel()) };
    }

    /// Means, or roots of sums of squares, of a channels-last image.
    fn sums_last<T: Pixel>(
        &self,
        image: &Image<'_>,
        out: &mut [T],
        pitch: usize,
        round: bool,
    ) -> Result<(), GemmError> {
        let (channels, places) = (self.shape.channels, self.shape.output.iter().product::<usize>());
        let per_task = if self.parallel() { places.div_ceil(4 * pool::threads()) } else { places };
        pool::try_for_each_chunk_mut(out, per_task * pitch, |task, out| {
            with_scratch([channels, 2 * channels, 0], |[pixel, sums, _]| {
                let sums: &mut [f64] = bytemuck::cast_slice_mut(sums);
                for (i, out) in out.chunks_mut(pitch).enumerate() {
                    let place = task * per_task + i;
                    sums.fill(0.0);
                    self.last.each_tap(image, place, |at| {
                        match image.pixels {
                            Pixels::F32(s) => pixel.copy_from_slice(&s[at..at + channels]),
                            Pixels::F16(s) => convert::f16_to_f32(&s[at..at + channels], pixel),
                        }
                        add(pixel, sums, self.function == PoolFunction::L2);
                    });
                    match self.counts.get(place) {
                        Some(count) => sums.iter_mut().for_each(|s| *s /= count),
                        None => sums.iter_mut().for_each(|s| *s = s.sqrt()),
                    }
                    for (pixel, sum) in pixel.iter_mut().zip(&*sums) {
                        *pixel = *sum as f32;
                    }
                    T::store(pixel, channels, &mut out[..channels], channels, round);
                }
            })
        })
    }

    fn typed<T: Pixel>(&self, image: Image<'_>, out: &mut [T], places: usize, round: bool) -> Result<(), GemmError> {
        let work = self.padded.run().saturating_mul(self.padded.steps.len()).max(self.padded.len(1));
        let parallel = self.parallel();
        let channels = if parallel { (TASK / work).max(1) } else { self.shape.channels };
        pool::try_for_each_chunk_mut(out, channels * places, |task, out| {
            self.channels(image, task * channels, out, places, round)
        })
    }

    /// The results of the channels from `first` on, as many as `out` has room for.
    fn channels<T: Pixel>(
        &self,
        image: Image<'_>,
        first: usize,
        out: &mut [T],
        places: usize,
        round: bool,
    ) -> Result<(), GemmError> {
        let (padded, length) = (&self.padded, self.padded.len(1));
        let run = padded.run().next_multiple_of(BLOCK);
        let halves = padded.halves(&image);
        let max = self.function == PoolFunction::Max;
        with_scratch([length, halves, 2 * run + places], |[plane, halves, memory]| {
            let (sums, values) = memory.split_at_mut(2 * run);
            for (i, out) in out.chunks_exact_mut(places).enumerate() {
                let origin = image.origin.wrapping_add_signed((first + i) as isize * image.channel);
                let image = Image { origin, ..image };
                padded.plane(&image, max, plane, halves);
                if max {
                    largest(plane, &padded.steps, &mut sums[..run]);
                    self.compact(&sums[..run], values);
                } else {
                    let sums: &mut [f64] = bytemuck::cast_slice_mut(sums);
                    if self.function == PoolFunction::L2 {
                        total::<true>(plane, &padded.steps, sums);
                    } else {
                        total::<false>(plane, &padded.steps, sums);
                    }
                    self.divide(sums, values);
                }
                T::store(values, places, out, places, round);
            }
        })
    }

    /// Moves the rows of results together.
    fn compact(&self, sums: &[f32], values: &mut [f32]) {
        let width = self.padded.width();
        for (to, &at) in values.chunks_exact_mut(width).zip(&self.padded.rows) {
            to.copy_from_slice(&sums[at..at + width]);
        }
    }

    /// Moves the rows of results together; divides them, or takes the root.
    fn divide(&self, sums: &[f64], values: &mut [f32]) {
        let (width, rows, counts) = (self.padded.width(), &self.padded.rows, &self.counts);
        if counts.is_empty() {
            vectorize!({
                for (to, &at) in values.chunks_exact_mut(width).zip(rows) {
                    for (to, sum) in to.iter_mut().zip(&sums[at..at + width]) {
                        *to = sum.sqrt() as f32;
                    }
                }
            });
            return;
        }
        vectorize!({
            for ((to, &at), counts) in values.chunks_exact_mut(width).zip(rows).zip(counts.chunks_exact(width)) {
                for ((to, sum), count) in to.iter_mut().zip(&sums[at..at + width]).zip(counts) {
                    *to = (sum / count) as f32;
                }
            }
        });
    }
}

/// Adds the elements, or their squares.
fn add(pixel: &[f32], sums: &mut [f64], squares: bool) {
    vectorize!({
        for (sum, v) in sums.iter_mut().zip(pixel) {
            let v = f64::from(*v);
            *sum += if squares { v * v } else { v };
        }
    });
}

/// The largest of the elements at the distances `taps`, for each position.
fn largest(plane: &[f32], taps: &[usize], to: &mut [f32]) {
    vectorize!({
        for (i, to) in to.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let mut best = [f32::NEG_INFINITY; BLOCK];
            for &tap in taps {
                let Some(from) = plane[i * BLOCK + tap..].first_chunk::<BLOCK>() else { break };
                for l in 0..BLOCK {
                    best[l] = if from[l] > best[l] || from[l].is_nan() { from[l] } else { best[l] };
                }
            }
            *to = best;
        }
    });
}

/// The sum of the elements at the distances `taps`, or of their squares, for each position.
fn total<const SQUARES: bool>(plane: &[f32], taps: &[usize], to: &mut [f64]) {
    vectorize!({
        for (i, to) in to.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let mut sums = [0.0f64; BLOCK];
            for &tap in taps {
                let Some(from) = plane[i * BLOCK + tap..].first_chunk::<BLOCK>() else { break };
                for l in 0..BLOCK {
                    let v = f64::from(from[l]);
                    sums[l] += if SQUARES { v * v } else { v };
                }
            }
            *to = sums;
        }
    });
}

#[cfg(test)]
mod tests {
    use half::f16;
    use proptest::prelude::*;

    use super::*;
    use crate::random::Rng;

    /// One result of one channel by the definition, tap after tap.
    fn reference(shape: &ConvShape, function: &PoolFunction, x: &[f32], place: usize) -> f32 {
        let split = |mut flat: usize, extents: &[usize]| {
            let mut index = vec![0; extents.len()];
            for a in (0..extents.len()).rev() {
                (index[a], flat) = (flat % extents[a], flat / extents[a]);
            }
            index
        };
        let at = split(place, &shape.output);
        let (mut best, mut sum, mut inside, mut counted) = (f32::NEG_INFINITY, 0.0f64, 0usize, 0usize);
        for tap in 0..shape.kernel.iter().product() {
            let tap = split(tap, &shape.kernel);
            let axes = 0..at.len();
            let position: Vec<usize> =
                axes.clone().map(|a| at[a] * shape.strides[a] + tap[a] * shape.dilations[a]).collect();
            if let PoolFunction::MeanWithPadding(extents) = function {
                counted += usize::from(axes.clone().all(|a| position[a] < extents[a]));
            }
            let mut flat = Some(0);
            for a in axes {
                let i = position[a].wrapping_sub(shape.pad[a]);
                flat = flat.filter(|_| i < shape.input[a]).map(|f| f * shape.input[a] + i);
            }
            let Some(flat) = flat else { continue };
            inside += 1;
            let v = x[flat];
            best = if v > best || v.is_nan() { v } else { best };
            sum += if *function == PoolFunction::L2 { f64::from(v) * f64::from(v) } else { f64::from(v) };
        }
        match function {
            PoolFunction::Max => best,
            PoolFunction::Mean => (sum / inside.max(1) as f64) as f32,
            PoolFunction::MeanWithPadding(_) => (sum / counted.max(1) as f64) as f32,
            PoolFunction::L2 => sum.sqrt() as f32,
        }
    }

    fn first(pixels: PixelsMut<'_>) -> ImageMut<'_> {
        ImageMut { pixels, layout: Layout::ChannelsFirst }
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    fn check(shape: ConvShape, after: &[usize], function: usize, half: bool, special: u64, seed: u64) {
        let extents = (0..after.len()).map(|a| shape.input[a] + shape.pad[a] + after[a]).collect();
        let function =
            [PoolFunction::Max, PoolFunction::Mean, PoolFunction::MeanWithPadding(extents), PoolFunction::L2][function]
                .clone();
        let volume: usize = shape.input.iter().product();
        let places: usize = shape.output.iter().product();
        let mut random = Rng::new(seed);
        let mut x: Vec<f32> = (0..shape.channels * volume)
            .map(|_| match random.uniform() * 400.0 {
                u if u >= special as f64 => (random.uniform() * 8.0 - 4.0) as f32,
                u if u < 10.0 => f32::NAN,
                u if u < 30.0 => f32::INFINITY,
                u if u < 60.0 => -0.0,
                _ => f32::NEG_INFINITY,
            })
            .collect();
        let halves: Vec<f16> = x.iter().map(|v| f16::from_f32(*v)).collect();
        if half {
            x = halves.iter().map(|v| v.to_f32()).collect();
        }
        let mut strides = vec![1isize; shape.input.len()];
        for a in (1..strides.len()).rev() {
            strides[a - 1] = strides[a] * shape.input[a] as isize;
        }
        let pixels = if half { Pixels::F16(&halves) } else { Pixels::F32(&x) };
        let image = Image { pixels, origin: 0, channel: volume as isize, strides: &strides, prologue: None };
        let pooling = Pooling::new(shape.clone(), function.clone()).expect("a shape that fits");
        let mut found = vec![f32::NAN; shape.channels * places];
        pooling.run(image, first(PixelsMut::F32(&mut found)), false).unwrap();
        let mut stored = vec![f16::NAN; shape.channels * places];
        pooling.run(image, first(PixelsMut::F16(&mut stored)), true).unwrap();
        // The same with channels last, and a gap between pixels.
        let pitch = shape.channels + 1;
        let spread = |x: &[f32]| {
            let mut spread = vec![f32::NAN; volume * pitch];
            for (i, v) in x.iter().enumerate() {
                spread[i % volume * pitch + i / volume] = *v;
            }
            spread
        };
        let x_last = spread(&x);
        let halves: Vec<f16> = x_last.iter().map(|v| f16::from_f32(*v)).collect();
        let pixels = if half { Pixels::F16(&halves) } else { Pixels::F32(&x_last) };
        let strides: Vec<isize> = strides.iter().map(|s| s * pitch as isize).collect();
        let image = Image { pixels, origin: 0, channel: 1, strides: &strides, prologue: None };
        let layout = Layout::ChannelsLast(shape.channels);
        let mut last = vec![f32::NAN; shape.channels * places];
        pooling.run(image, ImageMut { pixels: PixelsMut::F32(&mut last), layout }, false).unwrap();
        let mut stored_last = vec![f16::NAN; shape.channels * places];
        pooling.run(image, ImageMut { pixels: PixelsMut::F16(&mut stored_last), layout }, true).unwrap();
        for (i, found) in found.iter().enumerate() {
            let at = i % places * shape.channels + i / places;
            assert!(same(last[at], *found), "{i}: {}, not {found} ({shape:?}, {function:?})", last[at]);
            assert!(same(stored_last[at].to_f32(), f16::from_f32(*found).to_f32()), "{i}: {}", stored_last[at]);
        }
        for (i, (found, stored)) in found.iter().zip(&stored).enumerate() {
            let channel = &x[i / places * volume..][..volume];
            let wanted = reference(&shape, &function, channel, i % places);
            assert!(same(*found, wanted), "{i}: {found}, not {wanted} ({shape:?}, {function:?})");
            assert!(same(stored.to_f32(), f16::from_f32(wanted).to_f32()), "{i}: {stored}, not {wanted}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn every_shape_gives_the_bits_of_the_definition(
            axes in prop::collection::vec((1usize..24, 1usize..7, 1usize..4, 1usize..3, 0usize..5, 0usize..5), 1..4),
            channels in 1usize..6,
            function in 0usize..4,
            half: bool,
            special in prop_oneof![Just(0u64), Just(60), Just(400)],
            seed in 0u64..1000,
        ) {
            let empty = || Vec::with_capacity(axes.len());
            let mut shape = ConvShape {
                channels,
                outputs: channels,
                groups: channels,
                input: empty(),
                output: empty(),
                kernel: empty(),
                strides: empty(),
                dilations: empty(),
                pad: empty(),
            };
            let mut ends = empty();
            for &(input, kernel, stride, dilation, before, after) in &axes {
                let padded = input + before + after;
                let kernel = kernel.min((padded - 1) / dilation + 1);
                shape.input.push(input);
                // Some of the last windows leave the padded input, as with rounding up.
                let reach = (kernel - 1) * dilation + 1;
                shape.output.push((padded - reach).div_ceil(stride) + 1);
                shape.kernel.push(kernel);
                shape.strides.push(stride);
                shape.dilations.push(dilation);
                shape.pad.push(before);
                ends.push(after);
            }
            check(shape, &ends, function, half, special, seed);
        }
    }

    /// Shapes of real networks, large enough for threads.
    #[test]
    fn large_shapes_give_the_bits_of_the_definition() {
        let flat = |channels, size: usize, kernel, stride, pad: usize| ConvShape {
            channels,
            outputs: channels,
            groups: channels,
            input: vec![size; 2],
            output: vec![(size + 2 * pad - kernel) / stride + 1; 2],
            kernel: vec![kernel; 2],
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pad: vec![pad; 2],
        };
        for shape in [flat(40, 112, 3, 2, 1), flat(30, 56, 2, 2, 0), flat(20, 35, 3, 1, 1), flat(33, 7, 7, 1, 0)] {
            for function in 0..4 {
                for half in [false, true] {
                    check(shape.clone(), &[shape.pad[0]; 2], function, half, 8, 5);
                }
            }
        }
    }

    #[test]
    fn shapes_and_memory_that_do_not_fit_are_refused() {
        let shape = ConvShape {
            channels: 2,
            outputs: 2,
            groups: 2,
            input: vec![4, 4],
            output: vec![2, 2],
            kernel: vec![2, 2],
            strides: vec![2, 2],
            dilations: vec![1, 1],
            pad: vec![0, 0],
        };
        let new = |shape: ConvShape, function| Pooling::new(shape, function);
        for broken in [
            ConvShape { groups: 1, ..shape.clone() },
            ConvShape { kernel: vec![2], ..shape.clone() },
            ConvShape { kernel: vec![1 << 20, 1 << 20], ..shape.clone() },
            ConvShape { kernel: vec![usize::MAX, 2], ..shape.clone() },
            ConvShape { output: vec![usize::MAX, 2], ..shape.clone() },
        ] {
            assert!(new(broken.clone(), PoolFunction::Max).is_none(), "{broken:?}");
        }
        assert!(new(shape.clone(), PoolFunction::MeanWithPadding(vec![4])).is_none());
        let pooling = new(shape, PoolFunction::Mean).unwrap();
        let (x, mut out) = (vec![1.0f32; 32], vec![0.0f32; 8]);
        let image = |x, origin| Image { pixels: Pixels::F32(x), origin, channel: 16, strides: &[4, 1], prologue: None };
        assert!(pooling.run(image(&x, 0), first(PixelsMut::F32(&mut out)), false).is_ok());
        assert!(pooling.run(image(&x, 1), first(PixelsMut::F32(&mut out)), false).is_err());
        assert!(pooling.run(image(&x[1..], 0), first(PixelsMut::F32(&mut out)), false).is_err());
        assert!(pooling.run(image(&x, 0), first(PixelsMut::F32(&mut out[1..])), false).is_err());
    }
}
