//! Convolutions with packed weights, and pooling: one image after the other.

use ferrane_device::Result;
use ferrane_host::conv;

use crate::ir::{Addend, ByteLayer, Finish, MAX_READS, PackedConv, Pool, PoolForm, Prologue, Step, View};

use std::ops::Range;

use super::memory::{Reads, Slice, SliceMut, Writes, broken};
use super::moves::{axes, places};
use super::products::failed;
use super::{Table, group, scratch};

/// Convolution with packed weights, one image after the other.
pub(crate) fn packed_conv(
    table: &Table,
    step: &Step,
    packed: &PackedConv,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let [mut write, ..] = writes;
    let (weights, bias) = weights_and_bias(packed, reads, 1)?;
    let tasks = scratch::Tasks::default();
    let mut one_image = |i: usize, channel_values: &mut [f32]| {
        let finish = packed.finish.as_deref().map(|f| Finishing::new(f, reads, bases, i));
        let finish = finish
            .as_ref()
            .map(|f| |places: Range<usize>, pixels: conv::PixelsMut<'_>| f.run(table, places, pixels, &tasks));
        let finish = finish.as_ref().map(|f| conv::Finish(f));
        let addend = match packed.addend {
            Some(Addend { read, pitch, image }) => {
                let origin = bases[read].wrapping_add_signed(i as isize * image);
                Some(conv::Addend { pixels: pixels(&reads[read])?, origin, pitch })
            }
            None => None,
        };
        let epilogue = conv::ConvEpilogue { bias, round: packed.round, steps: &packed.steps, addend, finish };
        let mut image = image(x, i, &reads[0], bases[0])?;
        if let Some(Prologue { scales, shifts, relu }) = packed.prologue {
            let (factors, terms) = channel_values.split_at_mut(x.shape[1]);
            let read = |at: usize, to: &mut [f32]| channels(&step.reads[at], i, &reads[at], bases[at], to);
            read(scales, factors)?;
            shifts.map_or(Ok(()), |at| read(at, terms))?;
            image.prologue = Some(conv::Prologue { scales: factors, shifts: shifts.map(|_| &*terms), relu });
        }
        let to = image_mut(out, i, &mut write, packed.layout)?;
        packed.conv.run(image, weights, to, epilogue).map_err(|e| failed(step, &e))
    };
    for i in 0..x.shape[0] {
        match packed.prologue {
            Some(_) => scratch::with(2 * x.shape[1], |values| one_image(i, values))??,
            None => one_image(i, &mut [])?,
        }
    }
    tasks.end()
}

/// A convolution and the depthwise one of its results, one image after the other.
pub(crate) fn conv_pair(
    step: &Step,
    pair: &[PackedConv; 2],
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let [mut write, ..] = writes;
    let [first, second] = pair;
    let after = 2 + usize::from(first.bias);
    let operands = [weights_and_bias(first, reads, 1)?, weights_and_bias(second, reads, after)?];
    let stages = [0, 1].map(|n: usize| {
        let (packed, (weights, bias)) = (&pair[n], operands[n]);
        let epilogue =
            conv::ConvEpilogue { bias, round: packed.round, steps: &packed.steps, addend: None, finish: None };
        conv::Stage { conv: &packed.conv, weights, epilogue }
    });
    for i in 0..x.shape[0] {
        let image = image(x, i, &reads[0], bases[0])?;
        let to = image_mut(out, i, &mut write, second.layout)?;
        conv::run_pair(stages, image, to).map_err(|e| failed(step, &e))?;
    }
    Ok(())
}

/// A product of codes with codes, one image after the other.
pub(crate) fn byte_layer(
    step: &Step,
    layer: &ByteLayer,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let [mut write, ..] = writes;
    let (Slice::I8(weights), Slice::F32(scales)) = (reads[1], reads[2]) else {
        return Err(broken("packed codes or scales have another type"));
    };
    let starts = match reads[3] {
        Slice::I32(starts) if layer.starts => Some(starts),
        _ if layer.starts => return Err(broken("starts of sums are not int32")),
        _ => None,
    };
    let bias = match reads[3 + usize::from(layer.starts)] {
        Slice::F32(bias) if layer.bias => Some(bias),
        _ if layer.bias => return Err(broken("a bias is not fp32")),
        _ => None,
    };
    let pixels = match reads[0] {
        Slice::I8(codes) => conv::BytePixels::I8(codes),
        Slice::U8(codes) => conv::BytePixels::U8(codes),
        _ => return Err(broken("an image is not of bytes")),
    };
    let epilogue = conv::ByteEpilogue { starts, scales, bias, steps: &layer.steps, round: layer.round };
    for i in 0..x.shape[0] {
        let origin = bases[0].wrapping_add_signed(i as isize * x.strides[0]);
        let image = conv::ByteImage { pixels, origin, strides: &x.strides[2..], zero: layer.zero };
        let at = i * out.stride(0) as usize;
        let to = match (&mut write, layer.codes) {
            (SliceMut::F16(s), None) => s.get_mut(at..).map(conv::ByteResults::F16),
            (SliceMut::F32(s), None) => s.get_mut(at..).map(conv::ByteResults::F32),
            (SliceMut::I8(s), Some(how)) => s.get_mut(at..).map(|s| conv::ByteResults::I8(s, how)),
            (SliceMut::U8(s), Some(how)) => s.get_mut(at..).map(|s| conv::ByteResults::U8(s, how)),
            _ => None,
        };
        let to = to.ok_or_else(|| broken("the results of a product of codes have another type"))?;
        layer.conv.run(image, weights, to, layer.pitch, epilogue).map_err(|e| failed(step, &e))?;
    }
    Ok(())
}

/// The packed weights of a convolution, which are read `at`, and the bias after them, if it has
/// one.
fn weights_and_bias<'a>(packed: &PackedConv, reads: &Reads<'a>, at: usize) -> Result<(&'a [f32], Option<&'a [f32]>)> {
    let floats = |read: usize| match reads[read] {
        Slice::F32(values) => Ok(values),
        _ => Err(broken("packed weights are not fp32")),
    };
    Ok((floats(at)?, packed.bias.then(|| floats(at + 1)).transpose()?))
}

/// The values of an image that has one for each channel.
fn channels(x: &View, i: usize, slice: &Slice<'_>, base: usize, to: &mut [f32]) -> Result<()> {
    let first = base.wrapping_add_signed(i as isize * x.stride(0));
    let at = |channel: usize| first.wrapping_add_signed(channel as isize * x.stride(1));
    for (channel, to) in to.iter_mut().enumerate() {
        *to = match slice {
            Slice::F16(s) => s[at(channel)].to_f32(),
            Slice::F32(s) => s[at(channel)],
            _ => return Err(broken("values of channels are not floats")),
        };
    }
    Ok(())
}

/// The group that finishes the results of one image.
struct Finishing<'a> {
    finish: &'a Finish,
    /// What the group reads, in its order, and the offset of each read's first element.
    reads: Reads<'a>,
    bases: [usize; MAX_READS],
}

impl<'a> Finishing<'a> {
    fn new(finish: &'a Finish, from: &Reads<'a>, from_bases: &[usize], image: usize) -> Finishing<'a> {
        let (mut reads, mut bases) = ([Slice::None; MAX_READS], [0; MAX_READS]);
        let loads = (0..finish.group.loads.len()).filter(|i| *i != finish.own);
        for (at, load) in loads.enumerate() {
            let at = finish.others + at;
            reads[load] = from[at];
            bases[load] = from_bases[at].wrapping_add_signed(image as isize * finish.images[load + 1]);
        }
        Finishing { finish, reads, bases }
    }

    fn run(&self, table: &Table, places: Range<usize>, pixels: conv::PixelsMut<'_>, tasks: &scratch::Tasks) {
        let to = match pixels {
            conv::PixelsMut::F16(s) => SliceMut::F16(s),
            conv::PixelsMut::F32(s) => SliceMut::F32(s),
        };
        let Finish { group, own, .. } = self.finish;
        let bases = &self.bases[..group.loads.len()];
        group::in_place(table, group, *own, &self.reads, bases, to, (places.start, places.end), tasks);
    }
}

/// Pooling, one image after the other, or one result after the other.
pub(crate) fn pool(
    table: &Table,
    step: &Step,
    pool: &Pool,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let Some((pooling, layout)) = &pool.images else {
        results(table, step, pool, reads, bases, writes);
        return Ok(());
    };
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let [mut write, ..] = writes;
    for i in 0..x.shape[0] {
        let image = image(x, i, &reads[0], bases[0])?;
        let to = image_mut(out, i, &mut write, *layout)?;
        pooling.run(image, to, pool.round).map_err(|e| failed(step, &e))?;
    }
    Ok(())
}

/// An image of a tensor `[N, C, …]`.
fn image<'a>(x: &'a View, i: usize, slice: &Slice<'a>, base: usize) -> Result<conv::Image<'a>> {
    let pixels = pixels(slice)?;
    let origin = base.wrapping_add_signed(i as isize * x.strides[0]);
    Ok(conv::Image { pixels, origin, channel: x.strides[1], strides: &x.strides[2..], prologue: None })
}

fn pixels<'a>(slice: &Slice<'a>) -> Result<conv::Pixels<'a>> {
    match slice {
        Slice::F16(s) => Ok(conv::Pixels::F16(s)),
        Slice::F32(s) => Ok(conv::Pixels::F32(s)),
        _ => Err(broken("an image is not of floats")),
    }
}

/// The results of an image.
fn image_mut<'a>(
    out: &View,
    i: usize,
    slice: &'a mut SliceMut<'_>,
    layout: conv::Layout,
) -> Result<conv::ImageMut<'a>> {
    let at = i * out.strides[0] as usize;
    let pixels = match slice {
        SliceMut::F16(s) => s.get_mut(at..).map(conv::PixelsMut::F16),
        SliceMut::F32(s) => s.get_mut(at..).map(conv::PixelsMut::F32),
        _ => None,
    };
    let pixels = pixels.ok_or_else(|| broken("an image is not written to floats"))?;
    Ok(conv::ImageMut { pixels, layout })
}

/// Only taps inside of the input are visited, however large the window is.
fn results(table: &Table, step: &Step, pool: &Pool, reads: &Reads<'_>, bases: &[usize], writes: Writes<'_>) {
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let [mut write, ..] = writes;
    let window = &pool.window;
    let spatial = window.kernel.len();
    places(axes(out, 0, out.shape.len()), |index, to| {
        let mut base = bases[0] as isize + index[0] as isize * x.strides[0] + index[1] as isize * x.strides[1];
        // Taps inside of the input along each axis, and taps inside of the padded input.
        let mut extents = [0usize; 3];
        let mut counted = 1usize;
        for (a, extent) in extents[..spatial].iter_mut().enumerate() {
            let (start, kernel) = (index[2 + a] * window.strides[a], window.kernel[a]);
            let below = |end: usize| end.saturating_sub(start).min(kernel);
            let first = below(window.pad[a]);
            *extent = below(window.pad[a] + x.shape[2 + a]) - first;
            counted *= below(window.padded[a]);
            if *extent > 0 {
                base += (start + first - window.pad[a]) as isize * x.strides[2 + a];
            }
        }
        let inside: usize = extents[..spatial].iter().product();
        let (mut best, mut total) = (f32::NEG_INFINITY, 0.0f64);
        for tap in 0..inside {
            let (mut rest, mut at) = (tap, base);
            for a in (0..spatial).rev() {
                at += (rest % extents[a]) as isize * x.strides[2 + a];
                rest /= extents[a];
            }
            let mut v = [reads[0].float(at as usize)];
            table.enter(&mut v);
            let [v] = v;
            best = if v > best || v.is_nan() { v } else { best };
            total += match pool.form {
                PoolForm::L2 => f64::from(v) * f64::from(v),
                _ => f64::from(v),
            };
        }
        let mut value = [match pool.form {
            PoolForm::Max => best,
            PoolForm::Average(true) => (total / inside.max(1) as f64) as f32,
            PoolForm::Average(false) => (total / counted.max(1) as f64) as f32,
            PoolForm::L2 => total.sqrt() as f32,
        }];
        if pool.round {
            table.round(&mut value);
        }
        write.set_float(to as usize, value[0]);
    });
}
