//! Steps that move elements: all tables share these routines.

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::{convert, f16};

use crate::ir::{Nest, Step, View};

use super::memory::{Reads, Slice, SliceMut, Writes};
use super::nest::{Odometer, divide, runs};
use super::strided;

/// Elements of a task.
const GRAIN: usize = 64 * 1024;

/// Copies elements, bit for bit.
pub(crate) fn copy(nest: &Nest, reads: &Reads<'_>, bases: &[usize], writes: Writes<'_>) {
    let inner = nest.depth() - 1;
    divide(nest, 1, writes, GRAIN, &|first, last, mut writes| {
        if matrices(nest, first, last, reads, bases, &mut writes[0]) {
            return;
        }
        let (rows, row) = runs(nest, inner, first, last);
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

/// Elements of a side of a block of a transposed matrix: its lines stay in the L1 cache.
const SIDE: usize = 32;

/// A copy whose two innermost loops turn columns into rows, or whose rows are a few elements: the
/// pixels of an image whose channels move. False if the copy is not of this form.
fn matrices(
    nest: &Nest,
    first: usize,
    last: usize,
    reads: &Reads<'_>,
    bases: &[usize],
    write: &mut SliceMut<'_>,
) -> bool {
    let Some(outer) = nest.depth().checked_sub(2) else { return false };
    let (to, from) = (&nest.strides[0][outer..], &nest.strides[1][outer..]);
    let (&[row_to, col_to], &[row_from, col_from]) = (to, from) else { return false };
    if col_to == 1 && col_from == 1 {
        return false;
    }
    let cols = nest.extents[outer + 1];
    let (count, rows) = runs(nest, outer, first, last);
    let mut place = Odometer::new(nest, 1, first, bases);
    let mut each = |copy: &mut dyn FnMut(isize, isize)| {
        for _ in 0..count {
            copy(place.offsets[0], place.offsets[1]);
            if outer > 0 {
                place.advance(nest, outer);
            }
        }
    };
    macro_rules! typed {
        ($d:expr, $s:expr) => {
            each(&mut |to, from| {
                for i0 in (0..rows).step_by(SIDE) {
                    for j0 in (0..cols).step_by(SIDE) {
                        for j in j0..cols.min(j0 + SIDE) {
                            let (to, from) = (to + j as isize * col_to, from + j as isize * col_from);
                            for i in i0..rows.min(i0 + SIDE) {
                                let (to, from) = (to + i as isize * row_to, from + i as isize * row_from);
                                $d[to as usize] = $s[from as usize];
                            }
                        }
                    }
                }
            })
        };
    }
    // Planes of a few channels become pixels without gaps.
    let color = cols == COLORS && col_to == 1 && row_to == COLORS as isize && row_from == 1 && col_from >= 0;
    // Both sides have the same number of elements, each of them once.
    let transposed = col_to == 1 && row_from == 1 && row_to >= cols as isize && col_from >= rows as isize;
    match (write, &reads[0]) {
        (SliceMut::F16(d), Slice::F16(s)) if color => each(&mut |to, from| {
            interleave(&s[from as usize..], col_from as usize, &mut d[to as usize..], rows);
        }),
        (SliceMut::F32(d), Slice::F32(s)) if color => each(&mut |to, from| {
            interleave(&s[from as usize..], col_from as usize, &mut d[to as usize..], rows);
        }),
        (SliceMut::F16(d), Slice::F16(s)) if transposed => each(&mut |to, from| {
            let (to, from) = (&mut d[to as usize..], &s[from as usize..]);
            convert::transpose_f16(from, col_from as usize, to, row_to as usize, cols, rows);
        }),
        (SliceMut::F16(d), Slice::F16(s)) => typed!(d, s),
        (SliceMut::F32(d), Slice::F32(s)) => typed!(d, s),
        _ => return false,
    }
    true
}

/// Channels of a color image, the usual input of a network.
const COLORS: usize = 3;

/// Writes `count` pixels of the planes that begin every `plane` elements.
fn interleave<T: Copy>(from: &[T], plane: usize, to: &mut [T], count: usize) {
    let planes: [&[T]; COLORS] = std::array::from_fn(|channel| &from[channel * plane..][..count]);
    let [red, green, blue] = planes;
    for (((pixel, &red), &green), &blue) in to.as_chunks_mut::<COLORS>().0.iter_mut().zip(red).zip(green).zip(blue) {
        *pixel = [red, green, blue];
    }
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
            strided::copy($d, (at as usize, stride), $s, (source as usize, source_stride), row)
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

/// Writes one element everywhere, given by its bytes.
pub(crate) fn fill(nest: &Nest, bits: [u8; 4], writes: Writes<'_>) {
    let float = f32::from_le_bytes(bits);
    let int = i64::from(i32::from_le_bytes(bits));
    let inner = nest.depth() - 1;
    let stride = nest.strides[0][inner];
    divide(nest, 1, writes, GRAIN, &|first, last, mut writes| {
        let (rows, row) = runs(nest, inner, first, last);
        let mut place = Odometer::new(nest, 1, first, &[]);
        for _ in 0..rows {
            let at = place.offsets[0];
            match &mut writes[0] {
                SliceMut::F16(to) if stride == 1 => to[at as usize..][..row].fill(f16::from_f32(float)),
                SliceMut::F32(to) if stride == 1 => to[at as usize..][..row].fill(float),
                to => {
                    for at in (0..row as isize).map(|i| (at + i * stride) as usize) {
                        match to {
                            SliceMut::F16(_) | SliceMut::F32(_) => to.set_float(at, float),
                            _ => to.set_int(at, int),
                        }
                    }
                }
            }
            if inner > 0 {
                place.advance(nest, inner);
            }
        }
    });
}

/// Calls `visit(index, offset)` for each index of some axes, row-major; offsets count from the
/// first element.
pub(super) fn places((shape, strides): (&[usize], &[isize]), mut visit: impl FnMut(&[usize], isize)) {
    let rank = shape.len();
    let mut index = [0usize; super::nest::MAX_LOOPS];
    let mut offset = 0;
    for _ in 0..shape.iter().product() {
        visit(&index[..rank], offset);
        for axis in (0..rank).rev() {
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            offset -= strides[axis] * shape[axis] as isize;
            index[axis] = 0;
        }
    }
}

/// The axes of a view from `first` on, up to `end`.
pub(super) fn axes(view: &View, first: usize, end: usize) -> (&[usize], &[isize]) {
    (&view.shape[first..end], &view.strides[first..end])
}

/// The stride of some axes as one merged row, if they can be merged.
pub(super) fn row_stride((shape, strides): (&[usize], &[isize])) -> Option<isize> {
    let mut row: Option<(usize, isize)> = None;
    for (&n, &stride) in shape.iter().zip(strides).rev().filter(|(n, _)| **n != 1) {
        row = Some(match row {
            None => (n, stride),
            Some((count, inner)) if stride == inner * count as isize => (n * count, inner),
            Some(_) => return None,
        });
    }
    Some(row.map_or(0, |(_, stride)| stride))
}

/// `out[i…] = x[maps[0][i0], …]`.
pub(crate) fn remap(step: &Step, maps: &[Vec<usize>], reads: &Reads<'_>, bases: &[usize], writes: Writes<'_>) {
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let [mut write, ..] = writes;
    let Some((inner, maps)) = maps.split_last() else {
        return write.set_from(0, &reads[0], bases[0]);
    };
    let last = maps.len();
    let (stride, source_stride) = (out.strides[last], x.strides[last]);
    places(axes(out, 0, last), |index, to| {
        let from: isize = index.iter().zip(maps).zip(&x.strides).map(|((&i, map), s)| map[i] as isize * s).sum();
        let from = bases[0].wrapping_add_signed(from) as isize;
        // Neighbors that are neighbors in the operand are copied as a row.
        let mut at = 0;
        while at < inner.len() {
            let row = 1 + inner[at..].windows(2).take_while(|pair| pair[1] == pair[0] + 1).count();
            let (to, from) = (to + at as isize * stride, from + inner[at] as isize * source_stride);
            if row == 1 {
                write.set_from(to as usize, &reads[0], from as usize);
            } else {
                copy_row(&mut write, to, stride, &reads[0], from, source_stride, row);
            }
            at += row;
        }
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
    // Inner slices with unit stride are copied as rows.
    let tail = axes(x, axis + 1, x.shape.len());
    let (heads, ends) = (axes(out, 0, axis + picked), axes(out, axis + picked, out.shape.len()));
    let row: usize = tail.0.iter().product();
    let mut result = Ok(());
    places(heads, |index, to| {
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
        match (row_stride(tail), row_stride(ends)) {
            (Some(s), Some(d)) => copy_row(&mut write, to, d, &reads[0], from, s, row),
            _ => places(ends, |inner, offset| {
                let more: isize = inner.iter().zip(tail.1).map(|(&i, s)| i as isize * s).sum();
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
    places(axes(out, 0, out.shape.len()), |index, to| {
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
