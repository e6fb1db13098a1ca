//! Sums of products by an equation.

use ferrane_device::Result;

use super::super::index::{Walk, strides};
use super::super::product::Matrix;
use super::super::{Call, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[("einsum", einsum)];

/// An axis by its letter, and its extent.
type Axis = (char, usize);

/// The values of `x`, whose axes are `letters`, permuted to the axes `order`; an axis that is
/// missing or has extent 1 is repeated.
fn arranged(call: &Call<'_>, x: &HeapTensor, letters: &[char], order: &[&[Axis]]) -> Result<Vec<f32>> {
    let values = call.reals("values", x)?;
    let dense = strides(&x.shape);
    let order = order.concat();
    let step = |axis: &Axis| match letters.iter().position(|l| *l == axis.0) {
        Some(at) if x.shape[at] != 1 => dense[at],
        _ => 0,
    };
    let steps: Vec<isize> = order.iter().map(step).collect();
    let shape: Vec<usize> = order.iter().map(|axis| axis.1).collect();
    call.elements(&shape)?;
    Ok(Walk::new(&shape, &steps, 0).map(|i| values[i]).collect())
}

/// `einsum` (coremltools 9.0: `nchw,nwhu->nchu` and `chw,whr->chr`). Any product of two operands is
/// supported in which no operand repeats a letter and only letters of both operands are summed.
/// Letters of both operands that are also in the result index a batch of matrix products. An extent
/// of 1 is broadcast.
fn einsum(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let equation: String = call.text("equation")?.split_whitespace().collect();
    let unfit = || call.fail(format!("cannot compute `{equation}`"));
    let [x, y] = call.list("values") else { return Err(unfit()) };
    let (inputs, out) = equation.split_once("->").ok_or_else(unfit)?;
    let (a, b) = inputs.split_once(',').ok_or_else(unfit)?;
    let [a, b, out] = [a, b, out].map(|part| part.chars().collect::<Vec<char>>());
    let once = |letters: &[char]| letters.iter().all(|l| letters.iter().filter(|m| l == *m).count() == 1);
    if a.len() != x.shape.len() || b.len() != y.shape.len() || ![&a, &b, &out].iter().all(|part| once(part)) {
        return Err(unfit());
    }
    let extent = |letters: &[char], shape: &[usize], l: char| letters.iter().position(|m| *m == l).map(|at| shape[at]);
    let (mut batch, mut rows, mut inner, mut cols) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (n, &l) in a.iter().chain(b.iter().filter(|l| !a.contains(l))).enumerate() {
        let found = (extent(&a, &x.shape, l), extent(&b, &y.shape, l));
        let size = match found {
            (Some(p), Some(q)) if p == q || q == 1 => p,
            (Some(1), Some(q)) => q,
            (Some(p), None) | (None, Some(p)) => p,
            _ => return Err(call.fail(format!("axis {n} of `{equation}` has two extents"))),
        };
        match (found, out.contains(&l)) {
            ((Some(_), Some(_)), true) => batch.push((l, size)),
            ((Some(_), Some(_)), false) => inner.push((l, size)),
            ((Some(_), None), true) => rows.push((l, size)),
            ((None, _), true) => cols.push((l, size)),
            _ => return Err(unfit()),
        }
    }
    let count = |axes: &[Axis]| axes.iter().map(|axis| axis.1).product::<usize>();
    let (items, m, k, n) = (count(&batch), count(&rows), count(&inner), count(&cols));
    let left = arranged(call, x, &a, &[&batch, &rows, &inner])?;
    let right = arranged(call, y, &b, &[&batch, &inner, &cols])?;
    let axes = [batch, rows, cols].concat();
    let (letters, shape): (Vec<char>, Vec<usize>) = axes.iter().copied().unzip();
    let mut values = vec![0.0f32; call.elements(&shape)?];
    for item in 0..items {
        let lhs = Matrix::dense(&left[item * m * k..(item + 1) * m * k], m, k);
        let rhs = Matrix::dense(&right[item * k * n..(item + 1) * k * n], k, n);
        call.product(lhs, rhs, &mut values[item * m * n..(item + 1) * m * n])?;
    }
    let product = HeapTensor::floats(x.dtype, &shape, values);
    let wanted: Option<Vec<Axis>> = out.iter().map(|l| axes.iter().find(|axis| axis.0 == *l).copied()).collect();
    let wanted = wanted.ok_or_else(unfit)?;
    let shape: Vec<usize> = wanted.iter().map(|axis| axis.1).collect();
    let values = arranged(call, &product, &letters, &[&wanted])?;
    Ok(vec![HeapTensor::floats(x.dtype, &shape, values)])
}
