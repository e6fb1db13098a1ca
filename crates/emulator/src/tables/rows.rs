//! Steps that work row by row: softmax, reductions, normalizations.
//!
//! A row is gathered into fp32 scratch, computed there, and stored. Sums have one order for each
//! plan: along a row, sixteen lanes and then the lanes in sequence; down neighboring columns
//! (`strip`), row after row. Under `exact` they accumulate in fp64.

use ferrane_device::Result;
use ferrane_host::softmax::exponential_lanes;
use ferrane_host::{convert, f16, rounded, vectorize};

use crate::ir::{Nest, Norm, NormForm, Reduce, Reduction};

use super::memory::{Reads, Slice, SliceMut, Writes};
use super::nest::{Odometer, divide, runs};
use super::{Table, hardware, means, scratch, strided};

/// The least number of elements of a task.
pub(super) const GRAIN: usize = 32 * 1024;
pub(super) const LANES: usize = 16;

/// Widens a strided row.
pub(crate) fn load_row(slice: &Slice<'_>, at: isize, stride: isize, row: &mut [f32]) {
    let start = at as usize;
    match slice {
        Slice::F16(s) if stride == 1 => convert::f16_to_f32(&s[start..start + row.len()], row),
        Slice::F32(s) if stride == 1 => row.copy_from_slice(&s[start..start + row.len()]),
        _ if stride == 0 => row.fill(if row.is_empty() { 0.0 } else { slice.float(start) }),
        Slice::F16(s) => {
            let mut halves = [f16::ZERO; 128];
            for (j, piece) in row.chunks_mut(128).enumerate() {
                let at = start.wrapping_add_signed((j * 128) as isize * stride);
                strided::copy(&mut halves, (0, 1), s, (at, stride), piece.len());
                convert::f16_to_f32(&halves[..piece.len()], piece);
            }
        }
        _ => {
            for (i, v) in row.iter_mut().enumerate() {
                *v = slice.float(start.wrapping_add_signed(i as isize * stride));
            }
        }
    }
}

/// Narrows a row into strided memory.
pub(crate) fn store_row(slice: &mut SliceMut<'_>, at: isize, stride: isize, row: &[f32]) {
    let start = at as usize;
    match slice {
        SliceMut::F16(s) if stride == 1 => convert::f32_to_f16(row, &mut s[start..start + row.len()]),
        SliceMut::F32(s) if stride == 1 => s[start..start + row.len()].copy_from_slice(row),
        _ => {
            for (i, v) in row.iter().enumerate() {
                slice.set_float(start.wrapping_add_signed(i as isize * stride), *v);
            }
        }
    }
}

/// The sum of `f` over a row, in one order for each length.
///
/// Here and below, accumulators are local to the vector code, and the rest of a row has
/// accumulators of its own. Otherwise the compiler keeps them in memory and loads and stores them
/// in every iteration.
macro_rules! partial_sums {
    ($row:expr, $v:ident => $f:expr) => {{
        let row: &[f32] = $row;
        let mut lanes = [0.0f32; LANES];
        let (blocks, rest) = row.as_chunks::<LANES>();
        for block in blocks {
            for i in 0..LANES {
                let $v = block[i];
                lanes[i] += $f;
            }
        }
        let mut last = [0.0f32; LANES];
        for (lane, &$v) in last.iter_mut().zip(rest) {
            *lane = $f;
        }
        for i in 0..LANES {
            lanes[i] += last[i];
        }
        lanes
    }};
}

macro_rules! lanes {
    ($row:expr, $v:ident => $f:expr) => {{ vectorize!(partial_sums!($row, $v => $f).iter().sum::<f32>()) }};
}

/// The sums of dense rows of `length` elements, each in the order of [`sum`] in fp32.
fn sum_rows(rows: &[f32], length: usize, sums: &mut [f32]) {
    vectorize!({
        for (row, sum) in rows.chunks_exact(length).zip(sums) {
            *sum = partial_sums!(row, v => v).iter().sum::<f32>();
        }
    });
}

/// The sum of a row under a table.
pub(crate) fn sum(table: &Table, row: &[f32]) -> f32 {
    if table.wide_sums { row.iter().map(|&v| f64::from(v)).sum::<f64>() as f32 } else { lanes!(row, v => v) }
}

fn sum_square(table: &Table, row: &[f32]) -> f32 {
    if table.wide_sums {
        row.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() as f32
    } else {
        lanes!(row, v => v * v)
    }
}

fn largest(row: &[f32]) -> f32 {
    vectorize!({
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (blocks, rest) = row.as_chunks::<LANES>();
        for block in blocks {
            for i in 0..LANES {
                // NaN wins, so that it propagates.
                lanes[i] = if block[i] > lanes[i] || block[i].is_nan() { block[i] } else { lanes[i] };
            }
        }
        let mut last = [f32::NEG_INFINITY; LANES];
        for (lane, &v) in last.iter_mut().zip(rest) {
            *lane = v;
        }
        for i in 0..LANES {
            lanes[i] = if last[i] > lanes[i] || last[i].is_nan() { last[i] } else { lanes[i] };
        }
        lanes.iter().copied().fold(f32::NEG_INFINITY, |m, v| if v > m || v.is_nan() { v } else { m })
    })
}

/// e^(v - max) over their sum, in place, rounded to fp16 if `round`.
fn softmax_row(table: &Table, row: &mut [f32], round: bool) {
    if table.wide_sums {
        let max = largest(row);
        let mut total = 0.0f64;
        for v in row.iter() {
            total += f64::from(*v - max).exp();
        }
        for v in row.iter_mut() {
            *v = (f64::from(*v - max).exp() / total) as f32;
        }
        if round {
            table.round(row);
        }
        return;
    }
    let [sum] = sums_of_lanes(&[exponential_lanes(row, None, maximum(row))]);
    scale_row(row, 1.0 / sum, round);
}

/// The sums of rows from their lanes. Each is one chain of additions, and those of several rows
/// hide each other's latency.
pub(crate) fn sums_of_lanes<const ROWS: usize>(lanes: &[[f32; LANES]; ROWS]) -> [f32; ROWS] {
    let mut sums = [0.0; ROWS];
    for i in 0..LANES {
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            *sum += lanes[i];
        }
    }
    sums
}

pub(crate) fn scale_row(row: &mut [f32], scale: f32, round: bool) {
    if round {
        return rounded::scale(row, scale);
    }
    vectorize!({
        for v in row.iter_mut() {
            *v *= scale;
        }
    });
}

/// The largest element. A NaN may be missed: the softmax of its row is NaN anyway, through its sum.
pub(crate) fn maximum(row: &[f32]) -> f32 {
    vectorize!({
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (blocks, rest) = row.as_chunks::<LANES>();
        for block in blocks {
            for i in 0..LANES {
                lanes[i] = if block[i] > lanes[i] { block[i] } else { lanes[i] };
            }
        }
        let mut last = [f32::NEG_INFINITY; LANES];
        for (lane, &v) in last.iter_mut().zip(rest) {
            *lane = v;
        }
        for i in 0..LANES {
            lanes[i] = if last[i] > lanes[i] { last[i] } else { lanes[i] };
        }
        lanes.iter().copied().fold(f32::NEG_INFINITY, |m, v| if v > m { v } else { m })
    })
}

/// Softmax along the last loop of the nest.
pub(crate) fn softmax(
    table: &Table,
    nest: &Nest,
    round: bool,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    rows(nest, 1, reads, bases, writes, |row| match &table.hardware {
        Some(hardware) if round => hardware.softmax(row),
        _ => softmax_row(table, row, round),
    })
}

/// Calls `work` on each row of read 0 (the last loop of the nest) and stores it to write 0.
fn rows(
    nest: &Nest,
    outs: usize,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
    work: impl Fn(&mut [f32]) + Sync,
) -> Result<()> {
    let inner = nest.depth() - 1;
    let length = nest.extents[inner];
    if inner == 0 {
        // One row: it is the outermost loop and must stay whole.
        let [mut out, ..] = writes;
        return scratch::with(length, |row| {
            load_row(&reads[0], bases[0] as isize, nest.strides[1][0], row);
            work(row);
            store_row(&mut out, 0, nest.strides[0][0], row);
        });
    }
    let tasks = scratch::Tasks::default();
    divide(nest, outs, writes, GRAIN, &|first, last, mut writes| {
        tasks.with(length, |row| {
            let mut place = Odometer::new(nest, outs, first, bases);
            for _ in 0..(last - first) * nest.extents[1..inner].iter().product::<usize>() {
                load_row(&reads[0], place.offsets[outs], nest.strides[outs][inner], row);
                work(row);
                store_row(&mut writes[0], place.offsets[0], nest.strides[0][inner], row);
                place.advance(nest, inner);
            }
        });
    });
    tasks.end()
}

/// Gathers all elements that are reduced to one result into a row, in a fixed order.
fn gather(slice: &Slice<'_>, at: isize, reduced: &[(usize, isize)], row: &mut [f32]) {
    match reduced {
        [] => load_row(slice, at, 1, row),
        [(_, stride)] => load_row(slice, at, *stride, row),
        [(extent, stride), rest @ ..] => {
            let length = row.len() / extent;
            for (i, piece) in row.chunks_mut(length.max(1)).enumerate() {
                gather(slice, at + i as isize * stride, rest, piece);
            }
        }
    }
}

/// Columns that are reduced together if the reduced axes are not the innermost.
pub(super) const STRIP: usize = 256;

/// Runs a reduction, its results divided among threads.
pub(crate) fn reduce(
    table: &Table,
    step: &Reduce,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let (nest, tasks) = (&step.kept, scratch::Tasks::default());
    let length: usize = step.reduced.iter().map(|r| r.0).product();
    // Axes that lie next to each other are one row.
    let mut room = [(1, 1); 8];
    let reduced = merged(&step.reduced, &mut room);
    let inner = nest.depth() - 1;
    let float = matches!(reads[0], Slice::F16(_) | Slice::F32(_));
    let arg = matches!(step.reduction, Reduction::ArgMax | Reduction::ArgMin);
    // Reducing down columns: neighboring results are accumulated as vectors, row after row.
    let strips = float
        && !arg
        && nest.strides[1][inner] == 1
        && nest.extents[inner] > 1
        && step.reduced.iter().all(|r| r.1 != 1)
        && !table.wide_sums
        && (length <= hardware::EXACT || table.hardware.is_none())
        && matches!(
            step.reduction,
            Reduction::Sum | Reduction::Mean | Reduction::Max | Reduction::Min | Reduction::SumSquare
        );
    // The pixels of images with their channels last.
    if strips
        && table.hardware.is_none()
        && matches!(step.reduction, Reduction::Sum | Reduction::Mean)
        && nest.depth() <= 2
        && nest.strides[0][inner] == 1
        && let [(rows, pitch)] = *reduced
        && pitch >= nest.extents[inner] as isize
    {
        return image_means(step, (rows, pitch as usize), &reads[0], bases[0], writes);
    }
    // Reducing dense rows that follow each other.
    let blocks = float
        && !arg
        && !strips
        && table.hardware.is_none()
        && reduced == [(length, 1)]
        && nest.strides[1][inner] == length as isize;
    let grain = (GRAIN / length.max(1)).max(1);
    divide(nest, 1, writes, grain, &|first, last, mut writes| {
        let mut place = Odometer::new(nest, 1, first, bases);
        if blocks {
            return tasks.with(length.max(BLOCK), |memory| {
                let (count, rows) = runs(nest, inner, first, last);
                for _ in 0..count {
                    let at = (place.offsets[1], place.offsets[0]);
                    dense_rows(table, step, &reads[0], &mut writes[0], at, (rows, length), memory);
                    if inner > 0 {
                        place.advance(nest, inner);
                    }
                }
            });
        }
        if strips {
            let (count, row) = runs(nest, inner, first, last);
            for _ in 0..count {
                for column in (0..row).step_by(STRIP) {
                    let width = STRIP.min(row - column);
                    let out = place.offsets[0] + column as isize * nest.strides[0][inner];
                    let at = place.offsets[1] + column as isize;
                    strip(table, step, &reads[0], at, &mut writes[0], out, nest.strides[0][inner], width, length);
                }
                if inner > 0 {
                    place.advance(nest, inner);
                }
            }
            return;
        }
        let places = (last - first) * nest.extents[1..].iter().product::<usize>();
        tasks.with(if float { length } else { 0 }, |row| {
            for _ in 0..places {
                let (at, out) = (place.offsets[1], place.offsets[0] as usize);
                if float {
                    gather(&reads[0], at, reduced, row);
                    if arg {
                        writes[0].set_int(out, argument(step.reduction, row) as i64);
                    } else {
                        let value = match &table.hardware {
                            Some(hardware) if step.round => hardware.reduce(step, row),
                            _ => {
                                let mut value = [reduce_row(table, step.reduction, row)];
                                if step.round {
                                    table.round(&mut value);
                                }
                                value[0]
                            }
                        };
                        writes[0].set_float(out, value);
                    }
                } else {
                    writes[0].set_int(out, reduce_ints(step.reduction, &reads[0], at, &step.reduced));
                }
                place.advance(nest, nest.depth());
            }
        });
    });
    tasks.end()
}

/// Elements that are widened at a time, if a row is shorter.
const BLOCK: usize = 4096;

/// The most results that are rounded and stored at a time.
const RESULTS: usize = 128;

/// Reduces dense rows that follow each other.
fn dense_rows(
    table: &Table,
    step: &Reduce,
    slice: &Slice<'_>,
    write: &mut SliceMut<'_>,
    (at, out): (isize, isize),
    (rows, length): (usize, usize),
    memory: &mut [f32],
) {
    let stride = step.kept.strides[0][step.kept.depth() - 1];
    let together = (memory.len() / length.max(1)).clamp(1, RESULTS);
    let mut results = [0.0f32; RESULTS];
    for first in (0..rows).step_by(together) {
        let results = &mut results[..together.min(rows - first)];
        let block = &mut memory[..results.len() * length];
        load_row(slice, at + (first * length) as isize, 1, block);
        match step.reduction {
            Reduction::Sum | Reduction::Mean if !table.wide_sums && length > 0 => {
                sum_rows(block, length, results);
                if step.reduction == Reduction::Mean {
                    results.iter_mut().for_each(|v| *v /= length as f32);
                }
            }
            _ => {
                for (i, result) in results.iter_mut().enumerate() {
                    *result = reduce_row(table, step.reduction, &mut block[i * length..(i + 1) * length]);
                }
            }
        }
        if step.round {
            table.round(results);
        }
        store_row(write, out + first as isize * stride, stride, results);
    }
}

/// Axes in memory order, outermost first, without those of extent 1, and with those that follow
/// each other without a gap as one. `room` holds the result.
fn merged<'a>(axes: &'a [(usize, isize)], room: &'a mut [(usize, isize); 8]) -> &'a [(usize, isize)] {
    let mut count = 0;
    for &(extent, stride) in axes.iter().filter(|a| a.0 != 1) {
        if let Some(last) = room[..count].last_mut()
            && last.1 == stride * extent as isize
        {
            *last = (last.0 * extent, stride);
        } else if let Some(next) = room.get_mut(count) {
            *next = (extent, stride);
            count += 1;
        } else {
            return axes;
        }
    }
    if count == 0 { &[(1, 1)] } else { &room[..count] }
}

/// Sums or means of the columns of matrices with `rows` rows each.
fn image_means(
    step: &Reduce,
    (rows, pitch): (usize, usize),
    read: &Slice<'_>,
    base: usize,
    writes: Writes<'_>,
) -> Result<()> {
    let (nest, inner) = (&step.kept, step.kept.depth() - 1);
    let [mut write, ..] = writes;
    let images = if inner == 0 { 1 } else { nest.extents[0] };
    for image in 0..images {
        let offset = |operand: usize| if inner == 0 { 0 } else { image as isize * nest.strides[operand][0] };
        let at = base.wrapping_add_signed(offset(1));
        means::sums(read, means::Columns { at, rows, pitch, width: nest.extents[inner] }, |sums| {
            if step.reduction == Reduction::Mean {
                let count = rows as f32;
                sums.iter_mut().for_each(|v| *v /= count);
            }
            // A store to fp16 memory rounds.
            if step.round && !matches!(write, SliceMut::F16(_)) {
                convert::round_f16(sums);
            }
            store_row(&mut write, offset(0), 1, sums);
        })?;
    }
    Ok(())
}

/// Reduces `width` neighboring columns, row after row.
fn strip(
    table: &Table,
    step: &Reduce,
    slice: &Slice<'_>,
    at: isize,
    write: &mut SliceMut<'_>,
    out: isize,
    out_stride: isize,
    width: usize,
    length: usize,
) {
    let mut sums = [0.0f32; STRIP];
    let sums = &mut sums[..width];
    match &table.hardware {
        Some(hardware) if step.round => {
            hardware.columns(step, sums, length, |visit| each_row(slice, at, &step.reduced, width, length, visit));
        }
        _ => {
            each_row(slice, at, &step.reduced, width, length, |n, row| combine(step.reduction, n == 0, sums, row));
            if step.reduction == Reduction::Mean {
                let count = length as f32;
                sums.iter_mut().for_each(|v| *v /= count);
            }
            if step.round {
                table.round(sums);
            }
        }
    }
    store_row(write, out, out_stride, sums);
}

/// Calls `visit(n, row)` for each of the `length` rows that are reduced, `width` elements wide.
fn each_row(
    slice: &Slice<'_>,
    at: isize,
    reduced: &[(usize, isize)],
    width: usize,
    length: usize,
    mut visit: impl FnMut(usize, &mut [f32]),
) {
    let mut row = [0.0f32; STRIP];
    let row = &mut row[..width];
    let mut index = [0usize; 8];
    for n in 0..length {
        let mut offset = at;
        for (i, (_, stride)) in index.iter().zip(reduced) {
            offset += *i as isize * stride;
        }
        load_row(slice, offset, 1, row);
        visit(n, row);
        for (axis, (extent, _)) in reduced.iter().enumerate().rev() {
            index[axis] += 1;
            if index[axis] < *extent {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// Combines one more row with the results so far.
pub(super) fn combine(reduction: Reduction, is_first: bool, sums: &mut [f32], row: &[f32]) {
    match reduction {
        _ if is_first => {
            sums.copy_from_slice(row);
            if reduction == Reduction::SumSquare {
                sums.iter_mut().for_each(|v| *v *= *v);
            }
        }
        Reduction::Max => zip(sums, row, |a, b| if b > a || b.is_nan() { b } else { a }),
        Reduction::Min => zip(sums, row, |a, b| if b < a || b.is_nan() { b } else { a }),
        Reduction::SumSquare => zip(sums, row, |a, b| a + b * b),
        _ => zip(sums, row, |a, b| a + b),
    }
}

#[inline(always)]
fn zip(a: &mut [f32], b: &[f32], f: impl Fn(f32, f32) -> f32) {
    vectorize!({
        for (a, &b) in a.iter_mut().zip(b) {
            *a = f(*a, b);
        }
    });
}

pub(super) fn reduce_row(table: &Table, reduction: Reduction, row: &mut [f32]) -> f32 {
    match reduction {
        Reduction::Sum => sum(table, row),
        Reduction::Mean => {
            if table.wide_sums {
                (row.iter().map(|&v| f64::from(v)).sum::<f64>() / row.len() as f64) as f32
            } else {
                sum(table, row) / row.len() as f32
            }
        }
        Reduction::Max => largest(row),
        Reduction::Min => row.iter().copied().fold(f32::INFINITY, |m, v| if v < m || v.is_nan() { v } else { m }),
        Reduction::Prod => row.iter().map(|&v| f64::from(v)).product::<f64>() as f32,
        Reduction::SumSquare => sum_square(table, row),
        Reduction::L1 => {
            row.iter_mut().for_each(|v| *v = v.abs());
            sum(table, row)
        }
        Reduction::L2 => sum_square(table, row).sqrt(),
        Reduction::LogSum => sum(table, row).ln(),
        Reduction::LogSumExp => {
            let max = largest(row);
            // An infinite maximum is the result: subtracting it would give NaN.
            if !max.is_finite() {
                return max;
            }
            let total: f64 = row.iter().map(|&v| f64::from(v - max).exp()).sum();
            (f64::from(max) + total.ln()) as f32
        }
        Reduction::ArgMax | Reduction::ArgMin => argument(reduction, row) as f32,
    }
}

/// The first index of the largest or smallest element.
fn argument(reduction: Reduction, row: &[f32]) -> usize {
    let better = |a: f32, b: f32| if reduction == Reduction::ArgMax { a > b } else { a < b };
    let mut best = 0;
    for (i, &v) in row.iter().enumerate() {
        if better(v, row[best]) {
            best = i;
        }
    }
    best
}

fn reduce_ints(reduction: Reduction, slice: &Slice<'_>, at: isize, reduced: &[(usize, isize)]) -> i64 {
    let length: usize = reduced.iter().map(|r| r.0).product();
    let element = |mut n: usize| {
        let mut offset = at;
        for (extent, stride) in reduced.iter().rev() {
            offset += (n % extent) as isize * stride;
            n /= extent;
        }
        slice.int(offset as usize)
    };
    let values = || (0..length).map(element);
    let total = |f: &dyn Fn(i64) -> i64| values().fold(0i64, |s, v| s.wrapping_add(f(v)));
    match reduction {
        Reduction::Sum => total(&|v| v),
        Reduction::Mean => total(&|v| v).checked_div(length as i64).unwrap_or(0),
        Reduction::Max => values().max().unwrap_or(0),
        Reduction::Min => values().min().unwrap_or(0),
        Reduction::Prod => values().fold(1i64, i64::wrapping_mul),
        Reduction::SumSquare => total(&|v| v.wrapping_mul(v)),
        Reduction::L1 => total(&i64::abs),
        Reduction::L2 => (total(&|v| v.wrapping_mul(v)) as f64).sqrt() as i64,
        Reduction::LogSum => (total(&|v| v) as f64).ln() as i64,
        Reduction::LogSumExp => values().map(|v| (v as f64).exp()).sum::<f64>().ln() as i64,
        Reduction::ArgMax => (0..length).rev().max_by_key(|&i| element(i)).unwrap_or(0) as i64,
        Reduction::ArgMin => (0..length).min_by_key(|&i| element(i)).unwrap_or(0) as i64,
    }
}

/// Runs a normalization: the block of each outer index is gathered, normalized, scaled, shifted and
/// stored.
pub(crate) fn norm(table: &Table, step: &Norm, reads: &Reads<'_>, bases: &[usize], writes: Writes<'_>) -> Result<()> {
    let tasks = scratch::Tasks::default();
    let length: usize = step.inner.extents.iter().product();
    let outer = &step.outer;
    divide(outer, 1, writes, GRAIN.div_ceil(length.max(1)), &|first, last, mut writes| {
        tasks.with(3 * length, |memory| {
            let (block, factors) = memory.split_at_mut(length);
            let factors = factors.split_at_mut(length);
            let factors = [factors.0, factors.1];
            // The offsets of gamma and beta that the factors were gathered from.
            let mut gathered = [None; 2];
            let given = [step.gamma, step.beta];
            // A store to fp16 memory rounds as the table without a machine does.
            let round = step.round && !(table.hardware.is_none() && matches!(writes[0], SliceMut::F16(_)));
            let mut place = Odometer::new(outer, 1, first, bases);
            for _ in 0..(last - first) * outer.extents[1..].iter().product::<usize>() {
                spread(&step.inner, 1, place.offsets[1], block, &reads[0]);
                table.enter(block);
                // fp32 values are computed in fp64: if gamma and beta are large and cancel, the
                // rounding of the normalized value would show.
                let scale = match step.form {
                    NormForm::Layer => layer(table, table.wide_sums || !step.round, block, step.epsilon),
                    NormForm::L2 => 1.0 / (sum_square(table, block) + step.epsilon).sqrt(),
                };
                for (read, i) in (1..).zip((0..2).filter(|&i| given[i])) {
                    let at = place.offsets[read + 1];
                    if gathered[i] != Some(at) {
                        spread(&step.inner, read + 1, at, factors[i], &reads[read]);
                        gathered[i] = Some(at);
                    }
                }
                let [gamma, beta] = &factors;
                affine(block, scale, step.gamma.then_some(gamma), step.beta.then_some(beta));
                if round {
                    table.round(block);
                }
                let inner = step.inner.depth() - 1;
                let row = step.inner.extents[inner];
                walk(&step.inner, 0, place.offsets[0], |n, at| {
                    store_row(&mut writes[0], at, step.inner.strides[0][inner], &block[n * row..(n + 1) * row]);
                });
                place.advance(outer, outer.depth());
            }
        });
    });
    tasks.end()
}

/// `v · scale · gamma + beta`, every operation rounded.
fn affine(block: &mut [f32], scale: f32, gamma: Option<&&mut [f32]>, beta: Option<&&mut [f32]>) {
    match (gamma, beta) {
        (Some(gamma), Some(beta)) => vectorize!({
            for ((v, g), b) in block.iter_mut().zip(gamma.iter()).zip(beta.iter()) {
                *v = *v * scale * *g + *b;
            }
        }),
        (Some(gamma), None) => vectorize!({
            for (v, g) in block.iter_mut().zip(gamma.iter()) {
                *v = *v * scale * *g;
            }
        }),
        (None, Some(beta)) => vectorize!({
            for (v, b) in block.iter_mut().zip(beta.iter()) {
                *v = *v * scale + *b;
            }
        }),
        (None, None) => scale_row(block, scale, false),
    }
}

/// Subtracts the mean, and returns the factor that is left to apply: the reciprocal of the standard
/// deviation, or 1 if it is applied already.
fn layer(table: &Table, wide: bool, block: &mut [f32], epsilon: f32) -> f32 {
    if wide {
        let count = block.len() as f64;
        let mean = wide_sum(block, |v| v) / count;
        let variance = wide_sum(block, |v| (v - mean) * (v - mean)) / count;
        let scale = 1.0 / (variance + f64::from(epsilon)).sqrt();
        vectorize!({
            for v in block.iter_mut() {
                *v = ((f64::from(*v) - mean) * scale) as f32;
            }
        });
        return 1.0;
    }
    let count = block.len() as f32;
    let mean = sum(table, block) / count;
    vectorize!({
        for v in block.iter_mut() {
            *v -= mean;
        }
    });
    let variance = sum_square(table, block) / count;
    1.0 / (variance + epsilon).sqrt()
}

/// A sum in fp64, in lanes: their number, and so the order, is the same on every processor.
fn wide_sum(block: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    vectorize!({
        let mut lanes = [0.0f64; LANES];
        let (chunks, rest) = block.as_chunks::<LANES>();
        for chunk in chunks {
            for i in 0..LANES {
                lanes[i] += term(f64::from(chunk[i]));
            }
        }
        let mut last = [0.0f64; LANES];
        for (lane, &v) in last.iter_mut().zip(rest) {
            *lane = term(f64::from(v));
        }
        for i in 0..LANES {
            lanes[i] += last[i];
        }
        lanes.iter().sum::<f64>()
    })
}

/// Gathers a block of one operand.
fn spread(inner: &Nest, operand: usize, at: isize, block: &mut [f32], slice: &Slice<'_>) {
    let last = inner.depth() - 1;
    let row = inner.extents[last];
    walk(inner, operand, at, |n, at| {
        load_row(slice, at, inner.strides[operand][last], &mut block[n * row..(n + 1) * row]);
    });
}

/// Calls `visit(n, offset)` for each row of a block.
fn walk(inner: &Nest, operand: usize, at: isize, mut visit: impl FnMut(usize, isize)) {
    let last = inner.depth() - 1;
    let rows: usize = inner.extents[..last].iter().product();
    for n in 0..rows {
        let (mut offset, mut rest) = (at, n);
        for axis in (0..last).rev() {
            offset += (rest % inner.extents[axis]) as isize * inner.strides[operand][axis];
            rest /= inner.extents[axis];
        }
        visit(n, offset);
    }
}
