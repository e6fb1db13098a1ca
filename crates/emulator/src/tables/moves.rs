//! Steps that move elements, and pooling: no arithmetic that a table could choose, one kernel for all.

use ferrane_device::{Error, ErrorKind, Result};

use crate::plan::step::{Nest, Pool, PoolForm, Step};
use crate::plan::view::View;

use super::Table;
use super::memory::{Reads, Slice, SliceMut, Writes};
use super::nest::{Odometer, divide};

/// Elements of a task.
const GRAIN: usize = 64 * 1024;

/// The same elements elsewhere, bit for bit.
pub(crate) fn copy(nest: &Nest, reads: &Reads<'_>, bases: &[usize], writes: Writes<'_>) {
    let inner = nest.depth() - 1;
    divide(nest, 1, writes, GRAIN, &|first, last, mut writes| {
        let (rows, row) = match inner {
            0 => (1, last - first),
            _ => ((last - first) * nest.extents[1..inner].iter().product::<usize>(), nest.extents[inner]),
        };
        let mut place = Odometer::new(nest, 1, first, bases);
        for _ in 0..rows {
            copy_row(
                &mut writes[0],
                place.offsets[0],
                nest.strides[0][inner],
                &reads[0],
                place.offsets[1],
                nest.strides[1][inner],
                row,
            );
            if inner > 0 {
                place.advance(nest, inner);
            }
        }
    });
}

fn copy_row(
    to: &mut SliceMut<'_>,
    at: isize,
    stride: isize,
    from: &Slice<'_>,
    source: isize,
    source_stride: isize,
    row: usize,
) {
    macro_rules! typed {
        ($d:expr, $s:expr) => {
            if stride == 1 && source_stride == 1 {
                $d[at as usize..][..row].copy_from_slice(&$s[source as usize..][..row]);
            } else {
                for i in 0..row as isize {
                    $d[(at + i * stride) as usize] = $s[(source + i * source_stride) as usize];
                }
            }
        };
    }
    match (to, from) {
        (SliceMut::F16(d), Slice::F16(s)) => typed!(d, s),
        (SliceMut::F32(d), Slice::F32(s)) => typed!(d, s),
        (SliceMut::I32(d), Slice::I32(s)) => typed!(d, s),
        (SliceMut::U32(d), Slice::U32(s)) => typed!(d, s),
        (SliceMut::I16(d), Slice::I16(s)) => typed!(d, s),
        (SliceMut::U16(d), Slice::U16(s)) => typed!(d, s),
        (SliceMut::I8(d), Slice::I8(s)) => typed!(d, s),
        (SliceMut::U8(d), Slice::U8(s)) => typed!(d, s),
        (d, s) => {
            for i in 0..row as isize {
                d.set_from((at + i * stride) as usize, s, (source + i * source_stride) as usize);
            }
        }
    }
}

/// One element everywhere.
pub(crate) fn fill(nest: &Nest, bits: [u8; 4], writes: Writes<'_>) {
    let float = f32::from_le_bytes(bits);
    let int = i64::from(i32::from_le_bytes(bits));
    divide(nest, 1, writes, GRAIN, &|first, last, mut writes| {
        let mut place = Odometer::new(nest, 1, first, &[]);
        for _ in 0..(last - first) * nest.extents[1..].iter().product::<usize>() {
            let at = place.offsets[0] as usize;
            match &mut writes[0] {
                to @ (SliceMut::F16(_) | SliceMut::F32(_)) => to.set_float(at, float),
                to => to.set_int(at, int),
            }
            place.advance(nest, nest.depth());
        }
    });
}

/// Calls `visit(index, offset)` for each place of a view, row-major; offsets count from the view's element 0.
fn places(view: &View, mut visit: impl FnMut(&[usize], isize)) {
    let rank = view.shape.len();
    let mut index = [0usize; super::nest::MAX_LOOPS];
    let mut offset = 0;
    for _ in 0..view.elements() {
        visit(&index[..rank], offset);
        for axis in (0..rank).rev() {
            index[axis] += 1;
            offset += view.strides[axis];
            if index[axis] < view.shape[axis] {
                break;
            }
            offset -= view.strides[axis] * view.shape[axis] as isize;
            index[axis] = 0;
        }
    }
}

/// `out[i…] = x[maps[0][i0], …]`.
pub(crate) fn remap(step: &Step, maps: &[Vec<usize>], reads: &Reads<'_>, bases: &[usize], writes: Writes<'_>) {
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let [mut write, ..] = writes;
    places(out, |index, to| {
        let from: isize = index.iter().zip(maps).zip(&x.strides).map(|((&i, map), s)| map[i] as isize * s).sum();
        write.set_from(to as usize, &reads[0], bases[0].wrapping_add_signed(from));
    });
}

fn checked(step: &Step, index: i64, extent: usize) -> Result<usize> {
    let wrapped = if index < 0 { index + extent as i64 } else { index };
    usize::try_from(wrapped).ok().filter(|&i| i < extent).ok_or_else(|| {
        let message =
            format!("op `{}` (`{}`): index {index} is out of range for an extent of {extent}", step.op, step.value);
        Error::new(ErrorKind::Evaluate, message)
    })
}

/// `out[a…, i…, b…] = x[a…, indices[batch…, i…], b…]`; negative indices count from the end.
pub(crate) fn gather(
    step: &Step,
    axis: usize,
    batch_dims: usize,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let (x, indices, out) = (&step.reads[0], &step.reads[1], &step.writes[0]);
    let [mut write, ..] = writes;
    let picked = indices.shape.len() - batch_dims;
    // Slices behind the axis are moved as rows where they lie side by side.
    let tail = &x.shape[axis + 1..];
    let row: usize = tail.iter().product();
    let rows_move = crate::plan::view::reshape_strides(tail, &x.strides[axis + 1..], &[row]).unwrap_or_default();
    let heads = View {
        shape: out.shape[..axis + picked].to_vec(),
        strides: out.strides[..axis + picked].to_vec(),
        ..out.clone()
    };
    let ends = View {
        shape: out.shape[axis + picked..].to_vec(),
        strides: out.strides[axis + picked..].to_vec(),
        ..out.clone()
    };
    let end_row = crate::plan::view::reshape_strides(&ends.shape, &ends.strides, &[row]).unwrap_or_default();
    let mut result = Ok(());
    places(&heads, |index, to| {
        if result.is_err() {
            return;
        }
        let mut at = bases[1] as isize;
        for (d, stride) in indices.strides.iter().enumerate() {
            at += index[if d < batch_dims { d } else { axis + d - batch_dims }] as isize * stride;
        }
        let chosen = match checked(step, reads[1].int(at as usize), x.shape[axis]) {
            Ok(i) => i,
            Err(e) => return result = Err(e),
        };
        let mut from = bases[0] as isize + chosen as isize * x.strides[axis];
        from += index[..axis].iter().zip(&x.strides).map(|(&i, s)| i as isize * s).sum::<isize>();
        match (rows_move.as_slice(), end_row.as_slice()) {
            ([s], [d]) => copy_row(&mut write, to, *d, &reads[0], from, *s, row),
            _ => places(&ends, |inner, offset| {
                let more: isize = inner.iter().zip(&x.strides[axis + 1..]).map(|(&i, s)| i as isize * s).sum();
                write.set_from((to + offset) as usize, &reads[0], (from + more) as usize);
            }),
        }
    });
    result
}

/// `out[i0, …, ia, …] = x[i0, …, indices[i…], …]`.
pub(crate) fn gather_along(
    step: &Step,
    axis: usize,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let (x, indices, out) = (&step.reads[0], &step.reads[1], &step.writes[0]);
    let [mut write, ..] = writes;
    let mut result = Ok(());
    places(out, |index, to| {
        let at: isize = index.iter().zip(&indices.strides).map(|(&i, s)| i as isize * s).sum();
        match checked(step, reads[1].int(bases[1].wrapping_add_signed(at)), x.shape[axis]) {
            Ok(chosen) => {
                let along = (chosen as isize - index[axis] as isize) * x.strides[axis];
                let from: isize = index.iter().zip(&x.strides).map(|(&i, s)| i as isize * s).sum();
                write.set_from(to as usize, &reads[0], bases[0].wrapping_add_signed(from + along));
            }
            Err(e) => {
                if result.is_ok() {
                    result = Err(e);
                }
            }
        }
    });
    result
}

/// Pooling, place by place. Only the taps inside of the input are visited, however large the window is.
pub(crate) fn pool(table: &Table, step: &Step, pool: &Pool, reads: &Reads<'_>, bases: &[usize], writes: Writes<'_>) {
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let [mut write, ..] = writes;
    let window = &pool.window;
    let spatial = window.kernel.len();
    places(out, |index, to| {
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
