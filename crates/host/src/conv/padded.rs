//! A copy of an image with its padding, split by the residues of the strides.
//!
//! Along an axis with stride `s`, tap `t` of result `o` reads position `o · s + t · d` of the
//! padded input. The copy keeps positions of one residue modulo `s` together, so result `o` reads
//! element `o + (t · d) / s` of residue `(t · d) % s`: neighbors for neighboring results, for every
//! stride and dilation. Residues that no tap reads are left out.

use half::f16;

use super::shape::{ConvShape, Image};
use crate::gemm::{Pixels, SLACK};
use crate::{convert, pool, vectorize};

/// Spatial axes of a layout; missing ones come first and have extent 1.
const AXES: usize = 3;

/// Elements that a task copies.
const TASK: usize = 16 << 10;

/// One axis of the copy.
#[derive(Clone, Debug, Default)]
struct PaddedAxis {
    input: usize,
    output: usize,
    stride: usize,
    pad: usize,
    /// The taps that can see the input: their index, their residue's index, and their shift.
    taps: Vec<(usize, usize, usize)>,
    /// The residues, as the position of the first element of their copy in the padded input.
    residues: Vec<usize>,
    /// Elements of each residue.
    extent: usize,
}

/// The layout of the copy, and where the taps lie in it.
#[derive(Clone, Debug)]
pub(super) struct Padded {
    axes: [PaddedAxis; AXES],
    /// Elements of one residue of a channel.
    plane: usize,
    /// Elements of a channel.
    block: usize,
    /// Taps of the filter that are not left out, by their index.
    pub taps: Vec<usize>,
    /// Offset of each channel of a group and each tap.
    pub steps: Vec<usize>,
    /// Offset of each row of results.
    pub rows: Vec<usize>,
}

impl PaddedAxis {
    fn new(shape: &ConvShape, at: usize, finite: bool) -> Option<PaddedAxis> {
        let (input, output, kernel) = (shape.input[at], shape.output[at], shape.kernel[at]);
        let (stride, dilation, pad) = (shape.strides[at], shape.dilations[at], shape.pad[at]);
        let last = (output - 1).checked_mul(stride)?;
        let reach = (kernel - 1).checked_mul(dilation)?.checked_add(last)?;
        reach.max(pad).checked_add(input).filter(|&n| n < isize::MAX as usize / 4)?;
        // A tap sees the positions from `tap` to `tap + last` of the padded input.
        let sees = |tap: usize| tap + last >= pad && tap < pad + input;
        let seen: Vec<usize> = (0..kernel).filter(|&t| !finite || sees(t * dilation)).collect();
        let least = seen.iter().map(|&t| t * dilation / stride).min().unwrap_or(0);
        let most = seen.iter().map(|&t| t * dilation / stride).max().unwrap_or(0);
        let mut residues: Vec<usize> = Vec::new();
        let mut taps = Vec::with_capacity(seen.len());
        for t in seen {
            let begin = t * dilation % stride + least * stride;
            let residue = residues.iter().position(|&r| r == begin).unwrap_or_else(|| {
                residues.push(begin);
                residues.len() - 1
            });
            taps.push((t, residue, t * dilation / stride - least));
        }
        Some(PaddedAxis { input, output, stride, pad, taps, residues, extent: output + most - least })
    }

    /// The range of elements of a residue that lie inside the input, and the position of the first.
    fn inside(&self, residue: usize) -> (usize, usize, usize) {
        let begin = self.residues[residue];
        let first = self.pad.saturating_sub(begin).div_ceil(self.stride).min(self.extent);
        let end = (self.pad + self.input).saturating_sub(begin).div_ceil(self.stride).clamp(first, self.extent);
        (first, end, (begin + first * self.stride).saturating_sub(self.pad))
    }
}

impl Padded {
    pub(super) fn new(shape: &ConvShape, finite: bool) -> Option<Padded> {
        let rank = shape.input.len();
        let missing = AXES - rank;
        let mut axes: [PaddedAxis; AXES] = Default::default();
        for (a, axis) in axes.iter_mut().enumerate() {
            *axis = if a < missing {
                PaddedAxis {
                    input: 1,
                    output: 1,
                    stride: 1,
                    pad: 0,
                    taps: vec![(0, 0, 0)],
                    residues: vec![0],
                    extent: 1,
                }
            } else {
                PaddedAxis::new(shape, a - missing, finite)?
            };
        }
        let product = |f: fn(&PaddedAxis) -> usize| axes.iter().try_fold(1usize, |n, a| n.checked_mul(f(a)));
        let plane = product(|a| a.extent)?;
        let block = product(|a| a.residues.len())?.checked_mul(plane)?;
        let per_group = shape.channels / shape.groups;
        let count = product(|a| a.taps.len())?;
        // The tables take less memory than an image with one channel more than the weights have.
        block.checked_mul(per_group)?.checked_add(SLACK).filter(|&n| n < isize::MAX as usize / 8)?;
        count.checked_mul(per_group).filter(|&n| n < isize::MAX as usize / 16)?;
        let kernel = extents(&shape.kernel);
        let (mut taps, mut shifts) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let [z, y, x] = &axes;
        for &(tz, rz, sz) in &z.taps {
            for &(ty, ry, sy) in &y.taps {
                for &(tx, rx, sx) in &x.taps {
                    taps.push((tz * kernel[1] + ty) * kernel[2] + tx);
                    let residue = (rz * y.residues.len() + ry) * x.residues.len() + rx;
                    shifts.push(residue * plane + (sz * y.extent + sy) * x.extent + sx);
                }
            }
        }
        let steps = (0..per_group).flat_map(|c| shifts.iter().map(move |s| c * block + s)).collect();
        let rows = (0..z.output).flat_map(|i| (0..y.output).map(move |j| (i * y.extent + j) * x.extent)).collect();
        Some(Padded { plane, block, taps, steps, rows, axes })
    }

    /// Results in a row.
    pub(super) fn width(&self) -> usize {
        self.axes[2].output
    }

    /// Elements from one row of results to the next within a plane of results.
    pub(super) fn pitch(&self) -> usize {
        self.axes[2].extent
    }

    /// Elements from the first to the end of the last result, as they lie in the copy.
    pub(super) fn run(&self) -> usize {
        self.rows.last().map_or(0, |last| last + self.width())
    }

    /// Elements of the copy of some channels, with what packing may read after them.
    pub(super) fn len(&self, channels: usize) -> usize {
        self.block * channels + SLACK
    }

    /// Copies channels to the first [`len`](Self::len) elements of `to`, with zeros around them.
    pub(super) fn fill<T: Element>(&self, image: &Image<'_>, channels: usize, to: &mut [T], parallel: bool) {
        self.fill_all(image, channels, to, parallel, T::default());
    }

    /// Words of scratch that [`plane`](Self::plane) needs for fp16.
    pub(super) fn halves(&self, image: &Image<'_>) -> usize {
        if matches!(image.pixels, Pixels::F16(_)) { self.len(1).div_ceil(2) } else { 0 }
    }

    /// Copies the first channel to `plane` as fp32, with −∞ around it if `least`, else with zeros.
    pub(super) fn plane(&self, image: &Image<'_>, least: bool, plane: &mut [f32], halves: &mut [f32]) {
        fn outside<T: Element>(least: bool) -> T {
            if least { T::LEAST } else { T::default() }
        }
        if matches!(image.pixels, Pixels::F16(_)) {
            let halves: &mut [f16] = &mut bytemuck::cast_slice_mut(halves)[..self.len(1)];
            self.fill_all(image, 1, halves, false, outside(least));
            convert::f16_to_f32(halves, plane);
        } else {
            self.fill_all(image, 1, plane, false, outside(least));
        }
    }

    fn fill_all<T: Element>(&self, image: &Image<'_>, channels: usize, to: &mut [T], parallel: bool, outside: T) {
        let Some(from) = T::of(image.pixels) else { return };
        let to = &mut to[..self.len(channels)];
        let (blocks, slack) = to.split_at_mut(channels * self.block);
        slack.fill(outside);
        // No tap sees the input.
        if self.block == 0 {
            return;
        }
        let copy = |channel: usize, to: &mut [T]| {
            let base = image.origin.wrapping_add_signed(channel as isize * image.channel);
            self.channel(from, base, image.strides, to, outside);
        };
        if parallel {
            let per_task = (TASK / self.block).max(1);
            pool::for_each_chunk_mut(blocks, per_task * self.block, |task, to| {
                for (i, to) in to.chunks_exact_mut(self.block).enumerate() {
                    copy(task * per_task + i, to);
                }
            });
        } else {
            for (i, to) in blocks.chunks_exact_mut(self.block).enumerate() {
                copy(i, to);
            }
        }
    }

    /// Copies the channel that starts at `base`.
    fn channel<T: Element>(&self, from: &[T], base: usize, spatial: &[isize], to: &mut [T], outside: T) {
        let [z, y, x] = &self.axes;
        let strides = strides(spatial);
        let mut planes = to.chunks_exact_mut(self.plane);
        for rz in 0..z.residues.len() {
            for ry in 0..y.residues.len() {
                for rx in 0..x.residues.len() {
                    let Some(plane) = planes.next() else { return };
                    let (z_first, z_end, z_at) = z.inside(rz);
                    let (y_first, y_end, y_at) = y.inside(ry);
                    let (x_first, x_end, x_at) = x.inside(rx);
                    let base = base.wrapping_add_signed(x_at as isize * strides[2]);
                    for (i, rows) in plane.chunks_exact_mut(y.extent * x.extent).enumerate() {
                        if i < z_first || i >= z_end {
                            rows.fill(outside);
                            continue;
                        }
                        let base = base.wrapping_add_signed((z_at + (i - z_first) * z.stride) as isize * strides[0]);
                        rows[..y_first * x.extent].fill(outside);
                        rows[y_end * x.extent..].fill(outside);
                        let rows = &mut rows[y_first * x.extent..y_end * x.extent];
                        for (j, row) in rows.chunks_exact_mut(x.extent).enumerate() {
                            let at = base.wrapping_add_signed((y_at + j * y.stride) as isize * strides[1]);
                            row[..x_first].fill(outside);
                            row[x_end..].fill(outside);
                            neighbors(from, at, x.stride as isize * strides[2], &mut row[x_first..x_end]);
                        }
                    }
                }
            }
        }
    }
}

/// Copies every `stride`-th element.
pub(super) fn neighbors<T: Element>(from: &[T], at: usize, stride: isize, to: &mut [T]) {
    match (stride, from.get(at..)) {
        (_, Some(_)) if to.is_empty() => {}
        (1, Some(from)) => to.copy_from_slice(&from[..to.len()]),
        (2, Some(from)) => {
            let last = to.len() - 1;
            let (to, end) = to.split_at_mut(last);
            vectorize!({
                for (to, pair) in to.iter_mut().zip(from.as_chunks::<2>().0) {
                    *to = pair[0];
                }
            });
            end[0] = from[2 * last];
        }
        _ => {
            for (i, to) in to.iter_mut().enumerate() {
                *to = from[at.wrapping_add_signed(i as isize * stride)];
            }
        }
    }
}

/// The strides of all axes; those of missing axes are 0.
pub(super) fn strides(spatial: &[isize]) -> [isize; AXES] {
    let mut strides = [0; AXES];
    strides[AXES - spatial.len()..].copy_from_slice(spatial);
    strides
}

/// The extents of all axes; those of missing axes are 1.
pub(super) fn extents(spatial: &[usize]) -> [usize; AXES] {
    let mut extents = [1; AXES];
    extents[AXES - spatial.len()..].copy_from_slice(spatial);
    extents
}

/// The one stride of positions in row-major order, if there is one.
pub(super) fn merged(extents: &[usize], strides: &[isize]) -> Option<isize> {
    let mut real = extents.iter().zip(strides).rev().filter(|(n, _)| **n != 1);
    let Some((&extent, &stride)) = real.next() else { return Some(1) };
    let mut next = stride.checked_mul(extent as isize)?;
    for (&extent, &outer) in real {
        if outer != next {
            return None;
        }
        next = outer.checked_mul(extent as isize)?;
    }
    Some(stride)
}

/// An element of an image.
pub(super) trait Element: Copy + Default + Send + Sync {
    /// −∞, which surrounds the input of a maximum.
    const LEAST: Self;

    /// The pixels, if they are of this type.
    fn of(pixels: Pixels<'_>) -> Option<&[Self]>;
}

impl Element for f32 {
    const LEAST: f32 = f32::NEG_INFINITY;

    fn of(pixels: Pixels<'_>) -> Option<&[f32]> {
        if let Pixels::F32(s) = pixels { Some(s) } else { None }
    }
}

impl Element for f16 {
    const LEAST: f16 = f16::NEG_INFINITY;

    fn of(pixels: Pixels<'_>) -> Option<&[f16]> {
        if let Pixels::F16(s) = pixels { Some(s) } else { None }
    }
}
