//! Steps that call a tensor op: operands are gathered, results are rounded and
//! scattered.

use std::sync::Arc;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::DataType;

use super::Table;
use super::memory::{Reads, Slice, SliceMut, Writes};
use crate::ir::{Step, TensorOpStep, TensorOperand, View, row_major};
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

/// Calls `visit` with the index of each element, row-major, and its offset from the lowest element.
fn each(view: &View, base: usize, mut visit: impl FnMut(usize, usize)) {
    let Some((&row, outer)) = view.shape.split_last() else { return visit(0, base) };
    let stride = view.strides[outer.len()];
    let mut index = vec![0usize; outer.len()];
    let mut at = base as isize;
    for r in 0..outer.iter().product::<usize>() {
        for i in 0..row {
            visit(r * row + i, (at + i as isize * stride) as usize);
        }
        for axis in (0..outer.len()).rev() {
            index[axis] += 1;
            at += view.strides[axis];
            if index[axis] < outer[axis] {
                break;
            }
            at -= view.strides[axis] * outer[axis] as isize;
            index[axis] = 0;
        }
    }
}

fn gather(dtype: DataType, view: &View, slice: &Slice<'_>, base: usize) -> HeapTensor {
    let count = view.elements();
    let packed = view.strides == row_major(&view.shape);
    if dtype.is_float() {
        let mut values = Vec::with_capacity(count);
        match slice {
            Slice::F32(s) if packed => values.extend_from_slice(&s[base..base + count]),
            _ => each(view, base, |_, at| values.push(slice.float(at))),
        }
        HeapTensor::floats(dtype, &view.shape, values)
    } else {
        let mut values = Vec::with_capacity(count);
        each(view, base, |_, at| values.push(slice.int(at)));
        HeapTensor::ints(dtype, &view.shape, values)
    }
}

fn scatter(table: &Table, result: &HeapTensor, view: &View, slice: &mut SliceMut<'_>) {
    let base = view.offset - view.span().0;
    match &result.data {
        Data::Floats(v) if table.rounds(result.dtype) => {
            // A store to fp16 memory rounds; wider memory gets the fp16 value.
            let round = |v: f32| {
                let mut v = [v];
                table.round(&mut v);
                v[0]
            };
            each(view, base, |i, at| slice.set_float(at, round(v[i])));
        }
        Data::Floats(v) => each(view, base, |i, at| slice.set_float(at, v[i])),
        Data::Ints(v) => each(view, base, |i, at| slice.set_int(at, v[i])),
        Data::Strings(_) => {}
    }
}
