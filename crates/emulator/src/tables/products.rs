//! Matrix products and convolutions, all through `ferrane_host::gemm`.

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::gemm::{
    Bias, CODED_BLOCK, CODED_ROWS, CodedMatrix, CodedSums, Codes, Epilogue, GemmError, Operand, Output, View, ViewMut,
    gemm, gemm_batch, gemm_coded,
};
use ferrane_host::pool;

use crate::ir::{Along, CodedMatmul, Conv, Matmul, Step, View as Tensor};

use super::memory::{Reads, Slice, SliceMut, Writes, broken};
use super::{Table, scratch};

pub(super) fn failed(step: &Step, error: &GemmError) -> Error {
    let kind = if matches!(error, GemmError::Alloc(_)) { ErrorKind::OutOfMemory } else { ErrorKind::Evaluate };
    Error::new(kind, format!("op `{}` (`{}`): {error}", step.op, step.value))
}

pub(super) fn operand<'a>(
    slice: &Slice<'a>,
    rows: usize,
    cols: usize,
    strides: (isize, isize),
) -> std::result::Result<Operand<'a>, GemmError> {
    Ok(match slice {
        Slice::F16(s) => Operand::F16(View::new(s, rows, cols, strides.0, strides.1)?),
        Slice::F32(s) => Operand::F32(View::new(s, rows, cols, strides.0, strides.1)?),
        Slice::I8(s) => Operand::I8(View::new(s, rows, cols, strides.0, strides.1)?),
        // Refused by the plan.
        _ => Operand::F32(View::new(&[], 0, 0, 1, 1)?),
    })
}

/// Where the results of a product go; `None` for elements that are not floats, which the plan
/// refuses.
fn output<'a>(
    slice: &'a mut SliceMut<'_>,
    rows: usize,
    cols: usize,
    strides: (isize, isize),
) -> std::result::Result<Option<Output<'a>>, GemmError> {
    Ok(match slice {
        SliceMut::F16(s) => Some(Output::F16(ViewMut::new(s, rows, cols, strides.0, strides.1)?)),
        SliceMut::F32(s) => Some(Output::F32(ViewMut::new(s, rows, cols, strides.0, strides.1)?)),
        _ => None,
    })
}

/// 1 in fp16.
const FP16_ONE: u16 = 0x3C00;

/// Runs a batch of float products.
pub(crate) fn matmul(
    table: &Table,
    step: &Step,
    product: &Matmul,
    reads: &Reads<'_>,
    writes: Writes<'_>,
) -> Result<()> {
    let Matmul { m, n, k, strides: [left, right, out], .. } = *product;
    let [mut write, ..] = writes;
    let bias = match (product.bias, &reads[2]) {
        (None, _) => None,
        (Some(Along::Rows), Slice::F32(b)) => Some(Bias::Rows(b)),
        (Some(Along::Cols), Slice::F32(b)) => Some(Bias::Cols(b)),
        _ => return Err(broken("a bias is not fp32")),
    };
    if let (Some(hardware), true) = (&table.hardware, product.round) {
        return hardware.matmul(product, bias, reads, &mut write);
    }
    // The products of a batch are attention's: they have the bits that they have in a chain.
    let blocks = !table.wide_sums && product.round && product.batch.len() == 1;
    let epilogue = Epilogue { scale: product.scale, bias, round: product.round, blocks, ..Epilogue::default() };
    let mut run = || {
        if let (false, Some(codes)) = (table.wide_sums, int8_rows(product, &reads[1])) {
            // The codes stand for themselves: their scales, one a row, are 1.
            let scales = FP16_ONE.to_le_bytes().repeat(n);
            let matrix = CodedMatrix::new(n, k, Codes::Scaled { bits: 8, codes, scales: &scales, block: k })?;
            let Some(output) = output(&mut write, m, n, out)? else { return Ok(()) };
            return gemm_coded(operand(&reads[0], m, k, left)?, matrix, output, epilogue, CodedSums::Blocks);
        }
        let lhs = operand(&reads[0], m, k, left)?;
        let rhs = operand(&reads[1], k, n, right)?;
        let Some(output) = output(&mut write, m, n, out)? else { return Ok(()) };
        gemm_batch(&product.batch, lhs, rhs, output, epilogue)
    };
    run().map_err(|e| failed(step, &e))
}

/// The bytes of an int8 factor of an fp16 product that is large enough for sums of integers, if its
/// columns are contiguous one after the other.
fn int8_rows<'a>(product: &Matmul, factor: &Slice<'a>) -> Option<&'a [u8]> {
    let Matmul { m, n, k, strides: [_, right, _], .. } = *product;
    let Slice::I8(codes) = *factor else { return None };
    let large = product.round && product.batch.len() == 1 && m > CODED_ROWS && k.is_multiple_of(CODED_BLOCK);
    let rows = right == (1, k as isize) || right.0 == 1 && n == 1;
    if large && rows { codes.get(..n.checked_mul(k)?).map(bytemuck::cast_slice) } else { None }
}

/// Runs a product with a coded weight. The oracle sums over decoded weights.
pub(crate) fn coded(
    table: &Table,
    step: &Step,
    product: &CodedMatmul,
    reads: &Reads<'_>,
    writes: Writes<'_>,
) -> Result<()> {
    let [mut write, ..] = writes;
    let (x, out) = (&step.reads[0], &step.writes[0]);
    let bias = match (product.bias, &reads[1]) {
        (false, _) => None,
        (true, Slice::F32(b)) => Some(Bias::Cols(b)),
        _ => return Err(broken("a bias is not fp32")),
    };
    let sums = if table.wide_sums { CodedSums::Decoded } else { CodedSums::Blocks };
    let epilogue = Epilogue { bias, round: product.round, ..Epilogue::default() };
    let mut run = || {
        let lhs = operand(&reads[0], x.shape[0], x.shape[1], (x.strides[0], x.strides[1]))?;
        let to = output(&mut write, out.shape[0], out.shape[1], (out.strides[0], out.strides[1]))?;
        let Some(output) = to else { return Ok(()) };
        gemm_coded(lhs, product.weight.matrix()?, output, epilogue, sums)
    };
    run().map_err(|e| failed(step, &e))
}

/// Runs a batch of int32 products; sums wrap.
pub(crate) fn int_matmul(step: &Step, reads: &Reads<'_>, bases: &[usize], writes: Writes<'_>) {
    let (x, y, out) = (&step.reads[0], &step.reads[1], &step.writes[0]);
    let [mut write, ..] = writes;
    let at = |v: &Tensor, base: usize, i: [usize; 3]| {
        base.wrapping_add_signed((0..3).map(|a| i[a] as isize * v.strides[a]).sum::<isize>())
    };
    for b in 0..out.shape[0] {
        for i in 0..out.shape[1] {
            for j in 0..out.shape[2] {
                let mut total = 0i64;
                for c in 0..x.shape[2] {
                    let product =
                        reads[0].int(at(x, bases[0], [b, i, c])).wrapping_mul(reads[1].int(at(y, bases[1], [b, c, j])));
                    total = total.wrapping_add(product);
                }
                write.set_int(at(out, 0, [b, i, j]), total);
            }
        }
    }
}

/// The most elements of unfolded input at a time.
const UNFOLDED: usize = 4 << 20;

/// Convolution by unfolding (im2col): for each image and group, the input under the filter at some
/// output positions becomes the columns of a matrix. Reads x `[N, C, …]`, weight `[O, C/groups,
/// …]`, and a dense fp32 bias.
pub(crate) fn conv(
    table: &Table,
    step: &Step,
    conv: &Conv,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let (x, weight, out) = (&step.reads[0], &step.reads[1], &step.writes[0]);
    let [mut write, ..] = writes;
    let window = &conv.window;
    let spatial = x.shape.len() - 2;
    let (per_group, outputs) = (weight.shape[1], weight.shape[0] / conv.groups);
    let taps: usize = window.kernel.iter().product();
    let k = per_group * taps;
    let places: usize = out.shape[2..].iter().product();
    let chunk = (UNFOLDED / k.max(1)).clamp(1, places);
    let bias = match &reads[2] {
        Slice::F32(b) if conv.bias => Some(*b),
        _ => None,
    };
    scratch::with(k * chunk + outputs * chunk, |memory| {
        let (columns, sums) = memory.split_at_mut(k * chunk);
        for image in 0..x.shape[0] {
            for group in 0..conv.groups {
                let channel = |c: usize| {
                    bases[0] as isize + image as isize * x.strides[0] + (group * per_group + c) as isize * x.strides[1]
                };
                // Dense [O, k]: the plan guarantees it.
                let weights = reads[1].from(bases[1] + group * outputs * k);
                for first in (0..places).step_by(chunk) {
                    let count = chunk.min(places - first);
                    let columns = &mut columns[..k * count];
                    pool::for_each_chunk_mut(columns, count, |row, columns| {
                        let (c, tap) = (row / taps, row % taps);
                        unfold(&reads[0], x, channel(c), window, &out.shape[2..], tap, first, columns);
                    });
                    let sums = &mut sums[..outputs * count];
                    let bias = bias.map(|b| Bias::Rows(&b[group * outputs..(group + 1) * outputs]));
                    if let (Some(hardware), true) = (&table.hardware, conv.round) {
                        hardware.conv(&weights, columns, sums, [outputs, k, count], bias)?;
                    } else {
                        let mut run = || {
                            gemm(
                                operand(&weights, outputs, k, (k as isize, 1))?,
                                Operand::F32(View::row_major(columns, k, count)?),
                                Output::F32(ViewMut::row_major(sums, outputs, count)?),
                                Epilogue { bias, round: conv.round, ..Epilogue::default() },
                            )
                        };
                        run().map_err(|e| failed(step, &e))?;
                    }
                    for (o, row) in sums.chunks(count).enumerate() {
                        let base = image as isize * out.strides[0] + (group * outputs + o) as isize * out.strides[1];
                        scatter(&mut write, out, base, spatial, first, row);
                    }
                }
            }
        }
        Ok(())
    })?
}

/// One tap of the filter for one channel, at output positions from `first` on: zero outside of the
/// input.
fn unfold(
    slice: &Slice<'_>,
    x: &Tensor,
    channel: isize,
    window: &crate::ir::Window,
    places: &[usize],
    tap: usize,
    first: usize,
    to: &mut [f32],
) {
    let spatial = places.len();
    // Position of the tap along each axis.
    let mut taps = [0usize; 3];
    let mut rest = tap;
    for a in (0..spatial).rev() {
        taps[a] = rest % window.kernel[a] * window.dilations[a];
        rest /= window.kernel[a];
    }
    let last = spatial - 1;
    let width = places[last];
    let mut done = 0;
    while done < to.len() {
        // One output row, or what is left of it.
        let n = first + done;
        let column = n % width;
        let count = (width - column).min(to.len() - done);
        let row = &mut to[done..done + count];
        let mut line = n / width;
        let (mut at, mut inside) = (channel, true);
        for a in (0..last).rev() {
            let i = (line % places[a] * window.strides[a] + taps[a]).wrapping_sub(window.pad[a]);
            line /= places[a];
            inside &= i < x.shape[2 + a];
            at = at.wrapping_add((i as isize).wrapping_mul(x.strides[2 + a]));
        }
        let (step, shift) = (window.strides[last], taps[last]);
        let position = |j: usize| (j * step + shift).wrapping_sub(window.pad[last]);
        let stride = x.strides[2 + last];
        if !inside {
            row.fill(0.0);
        } else if position(column) < x.shape[2 + last] && position(column + count - 1) < x.shape[2 + last] {
            super::rows::load_row(slice, at + position(column) as isize * stride, step as isize * stride, row);
        } else {
            for (j, v) in row.iter_mut().enumerate() {
                let i = position(column + j);
                *v = if i < x.shape[2 + last] { slice.float((at + i as isize * stride) as usize) } else { 0.0 };
            }
        }
        done += count;
    }
}

/// Stores results of one channel at output positions from `first` on.
fn scatter(write: &mut SliceMut<'_>, out: &Tensor, base: isize, spatial: usize, first: usize, row: &[f32]) {
    let last = spatial - 1;
    let width = out.shape[2 + last];
    let mut done = 0;
    while done < row.len() {
        let n = first + done;
        let column = n % width;
        let count = (width - column).min(row.len() - done);
        let mut line = n / width;
        let mut at = base + column as isize * out.strides[2 + last];
        for a in (0..last).rev() {
            at += (line % out.shape[2 + a]) as isize * out.strides[2 + a];
            line /= out.shape[2 + a];
        }
        super::rows::store_row(write, at, out.strides[2 + last], &row[done..done + count]);
        done += count;
    }
}
