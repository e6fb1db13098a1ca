//! Steps that call a tensor op: operands are gathered, results are rounded and
//! scattered.

use std::sync::Arc;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::{convert, pool};
use ferrane_mil::DataType;

use super::Table;
use super::memory::{Reads, Slice, SliceMut, Writes};
use super::moves::{axes, places, row_stride};
use super::rows::{load_row, store_row};
use crate::ir::{Step, TensorOpStep, TensorOperand, View};
use crate::tensor_ops::{Call, Data, HeapTensor};

/// Calls the tensor op of a step.
pub(super) fn run(
    table: &Table,
    step: &Step,
    call: &TensorOpStep,
    reads: &Reads<'_>,
    bases: &[usize],
    writes: Writes<'_>,
) -> Result<()> {
    let operand = |o: &TensorOperand| match o {
        TensorOperand::Known(tensor) => tensor.clone(),
        TensorOperand::Read(i, dtype) => {
            let mut tensor = gather(*dtype, &step.reads[*i], &reads[*i], bases[*i]);
            table.enter_tensor(&mut tensor);
            Arc::new(tensor)
        }
    };
    let operands = call.operands.iter().map(|(name, list)| (*name, list.iter().map(operand).collect())).collect();
    let (def, opset, results) = (call.def, call.opset, &call.results[..]);
    let results = (call.routine)(&Call { def, opset, operands, results, wide: table.wide_sums })?;
    let mut writes = writes;
    for ((&i, view), slice) in call.kept.iter().zip(&step.writes).zip(&mut writes) {
        let Some(result) = results.get(i).filter(|r| r.shape == view.shape && r.len() == view.elements()) else {
            let shape = results.get(i).map(|r| &r.shape[..]).unwrap_or_default();
            let message = format!("op `{}` returns extents {shape:?}, not {:?} as declared", step.op, view.shape);
            return Err(Error::new(ErrorKind::Evaluate, message));
        };
        scatter(table, result, view, slice);
    }
    Ok(())
}

/// Calls `visit` for each row of elements in row-major order: the index of its first element, the
/// offset of that from the lowest element, the stride, and the length.
fn rows(view: &View, base: usize, mut visit: impl FnMut(usize, isize, isize, usize)) {
    let at = base as isize;
    if let Some(stride) = row_stride((&view.shape, &view.strides)) {
        return visit(0, at, stride, view.elements());
    }
    let last = view.shape.len() - 1;
    let (row, stride) = (view.shape[last], view.strides[last]);
    let mut first = 0;
    places(axes(view, 0, last), |_, offset| {
        visit(first, at + offset, stride, row);
        first += row;
    });
}

fn gather(dtype: DataType, view: &View, slice: &Slice<'_>, base: usize) -> HeapTensor {
    let count = view.elements();
    if dtype.is_float() {
        let mut values = vec![0.0; count];
        rows(view, base, |i, at, stride, row| load_row(slice, at, stride, &mut values[i..i + row]));
        HeapTensor::floats(dtype, &view.shape, values)
    } else {
        let mut values = Vec::with_capacity(count);
        rows(view, base, |_, at, stride, row| {
            values.extend((0..row as isize).map(|i| slice.int((at + i * stride) as usize)));
        });
        HeapTensor::ints(dtype, &view.shape, values)
    }
}

/// Elements that are rounded at a time.
const PIECE: usize = 1024;

/// Elements that a task of a dense result stores.
const STORED: usize = 32 << 10;

fn scatter(table: &Table, result: &HeapTensor, view: &View, slice: &mut SliceMut<'_>) {
    let base = view.offset - view.span().0;
    let dense = row_stride((&view.shape, &view.strides)) == Some(1);
    let stored = base..base + view.elements();
    match (&result.data, &mut *slice) {
        // The conversion rounds as the table does, unless that follows a machine.
        (Data::Floats(v), SliceMut::F16(s)) if dense && table.hardware.is_none() => {
            pool::for_each_chunk_mut(&mut s[stored], STORED, |i, to| {
                convert::f32_to_f16(&v[i * STORED..i * STORED + to.len()], to);
            });
            return;
        }
        (Data::Floats(v), SliceMut::F32(s)) if dense && !table.rounds(result.dtype) => {
            pool::for_each_chunk_mut(&mut s[stored], STORED, |i, to| {
                to.copy_from_slice(&v[i * STORED..i * STORED + to.len()]);
            });
            return;
        }
        _ => {}
    }
    match &result.data {
        // A store to fp16 memory rounds; wider memory gets the fp16 value.
        Data::Floats(v) if table.rounds(result.dtype) => {
            let mut rounded = [0.0; PIECE];
            rows(view, base, |first, at, stride, row| {
                for i in (0..row).step_by(PIECE) {
                    let rounded = &mut rounded[..PIECE.min(row - i)];
                    rounded.copy_from_slice(&v[first + i..first + i + rounded.len()]);
                    table.round(rounded);
                    store_row(slice, at + i as isize * stride, stride, rounded);
                }
            });
        }
        Data::Floats(v) => {
            rows(view, base, |i, at, stride, row| store_row(slice, at, stride, &v[i..i + row]));
        }
        Data::Ints(v) => rows(view, base, |first, at, stride, row| {
            for (i, v) in v[first..first + row].iter().enumerate() {
                slice.set_int((at + i as isize * stride) as usize, *v);
            }
        }),
        Data::Strings(_) => {}
    }
}
