//! Pooling.

use ferrane_device::Result;
use ferrane_host::conv;

use crate::ir::{Pool, PoolForm, Step, View};

use super::Table;
use super::memory::{Reads, Slice, SliceMut, Writes, broken};
use super::moves::{axes, places};
use super::products::failed;

/// Pooling, one image after the other, or one result after the other.
pub(crate) fn pool(
    table: &Table,
    step: &Step,
    pool: &Pool,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let Some(pooling) = &pool.images else {
        results(table, step, pool, reads, bases, writes);
        return Ok(());
    };
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let [mut write, ..] = writes;
    for i in 0..x.shape[0] {
        let image = image(x, i, &reads[0], bases[0])?;
        let to = image_mut(out, i, &mut write)?;
        pooling.run(image, to, pool.round).map_err(|e| failed(step, &e))?;
    }
    Ok(())
}

/// An image of a tensor `[N, C, …]`.
fn image<'a>(x: &'a View, i: usize, slice: &Slice<'a>, base: usize) -> Result<conv::Image<'a>> {
    let pixels = match slice {
        Slice::F16(s) => conv::Pixels::F16(s),
        Slice::F32(s) => conv::Pixels::F32(s),
        _ => return Err(broken("an image is not of floats")),
    };
    let origin = base.wrapping_add_signed(i as isize * x.strides[0]);
    Ok(conv::Image { pixels, origin, channel: x.strides[1], strides: &x.strides[2..] })
}

/// The results of an image, which are dense.
fn image_mut<'a>(out: &View, i: usize, slice: &'a mut SliceMut<'_>) -> Result<conv::ImageMut<'a>> {
    let at = i * out.strides[0] as usize;
    match slice {
        SliceMut::F16(s) => s.get_mut(at..).map(conv::ImageMut::F16),
        SliceMut::F32(s) => s.get_mut(at..).map(conv::ImageMut::F32),
        _ => None,
    }
    .ok_or_else(|| broken("an image is not written to dense floats"))
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
