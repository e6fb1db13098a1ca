//! `constexpr_*` ops of sparse weights: values for the elements that a mask has, in row-major order.

use ferrane_device::Result;

use super::super::{Call, Data, Kernel, Tensor};

pub(super) const FAMILY: &[(&str, Kernel)] = &[
    ("constexpr_cast", constexpr_cast),
    ("constexpr_sparse_to_dense", sparse_to_dense),
    ("constexpr_lut_to_sparse", lut_to_sparse),
    ("constexpr_sparse_blockwise_shift_scale", sparse_blockwise_shift_scale),
];

/// `constexpr_cast`: an fp16 weight as fp32 (coremltools 9.0).
fn constexpr_cast(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.tensor("source_val")?;
    let values = call.reals("source_val", x)?.to_vec();
    Ok(vec![Tensor::floats(call.dtype(0)?, &x.shape, values)])
}

/// The place of each set element of a mask among the set ones.
fn ranks(call: &Call<'_>, mask: impl Iterator<Item = bool>, values: usize) -> Result<Vec<Option<usize>>> {
    let mut count = 0;
    let ranks: Vec<Option<usize>> = mask.map(|set| set.then(|| (count, count += 1).0)).collect();
    if count != values {
        return Err(call.fail(format!("{values} values for {count} places")));
    }
    Ok(ranks)
}

/// `constexpr_sparse_to_dense`: zero where the mask is not set (coremltools 9.0). iOS 16: eight elements to a byte of the mask, from the
/// lowest bit on, and a shape; iOS 18: a mask of that shape.
fn sparse_to_dense(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (values, mask) = (call.tensor("nonzero_data")?, call.tensor("mask")?);
    let (shape, ranks) = match call.ints_if("shape") {
        Some(extents) => {
            let shape = call.extents(&extents)?;
            let count = call.elements(&shape)?;
            if mask.len() != count.div_ceil(8) {
                return Err(call.fail(format!("a mask of {} bytes for {count} elements", mask.len())));
            }
            let ranks = ranks(call, (0..count).map(|i| mask.int(i / 8) >> (i % 8) & 1 == 1), values.len())?;
            (shape, ranks)
        }
        None => (mask.shape.clone(), ranks(call, (0..mask.len()).map(|i| mask.int(i) != 0), values.len())?),
    };
    Ok(vec![values.pick_or_zero(&shape, ranks.into_iter())])
}

/// Which block, row-major among `blocks`, an element lies in.
fn block(index: &[usize], shape: &[usize], blocks: &[usize]) -> usize {
    index.iter().zip(shape).zip(blocks).fold(0, |at, ((&i, &n), &b)| at * b + i / (n / b))
}

/// That `blocks` cuts `shape` into whole blocks.
fn divides(call: &Call<'_>, blocks: &[usize], shape: &[usize]) -> Result<()> {
    let whole = blocks.len() == shape.len() && shape.iter().zip(blocks).all(|(&n, &b)| b > 0 && n % b == 0);
    if whole { Ok(()) } else { Err(call.fail(format!("{blocks:?} blocks of shape {shape:?}"))) }
}

/// The index of element `i` of a dense tensor.
fn index_of(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (at, &n) in index.iter_mut().zip(shape).rev() {
        (*at, i) = (i % n, i / n);
    }
    index
}

/// `constexpr_lut_to_sparse`: indices of the set elements to the palette entries of their block, which may be vectors along
/// `vector_axis` (coremltools 9.0, iOS 18). Results: the mask, stretched for vectors, and the values.
fn lut_to_sparse(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (mask, indices) = (call.tensor("indices_mask")?, call.tensor("indices_nonzero_data")?);
    let lut = call.tensor("lut")?;
    let rank = mask.shape.len();
    let [blocks @ .., entries, vector] = lut.shape.as_slice() else {
        return Err(call.fail("needs a palette of entries of vectors"));
    };
    let (entries, vector) = (*entries, *vector);
    divides(call, blocks, &mask.shape)?;
    let axis = match call.maybe("vector_axis") {
        Some(_) => call.axis("vector_axis", rank)?,
        None if vector == 1 && rank > 0 => 0,
        None => return Err(call.fail("vectors need `vector_axis`")),
    };
    let ranks = ranks(call, (0..mask.len()).map(|i| mask.int(i) != 0), indices.len())?;
    let mut shape = mask.shape.clone();
    shape[axis] = shape[axis].saturating_mul(vector);
    let count = call.elements(&shape)?;
    let (mut set, mut places) = (Vec::with_capacity(count), Vec::with_capacity(indices.len()));
    for i in 0..count {
        let mut index = index_of(i, &shape);
        let lane = index[axis] % vector;
        index[axis] /= vector;
        let at = index.iter().zip(&mask.shape).fold(0, |at, (i, n)| at * n + i);
        set.push(i64::from(ranks[at].is_some()));
        if let Some(nth) = ranks[at] {
            let entry = usize::try_from(indices.int(nth)).ok().filter(|&e| e < entries);
            let entry = entry.ok_or_else(|| call.fail("an index leaves the palette"))?;
            places.push((block(&index, &mask.shape, blocks) * entries + entry) * vector + lane);
        }
    }
    let values = lut.pick(&[places.len()], places.into_iter());
    Ok(vec![Tensor { dtype: mask.dtype, shape, data: Data::Ints(set) }, values])
}

/// `constexpr_sparse_blockwise_shift_scale`: `(value - offset) · scale`, one of each for every block (coremltools 9.0, iOS 18). Results:
/// the mask, and the values.
fn sparse_blockwise_shift_scale(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (mask, values, scale) = (call.tensor("data_mask")?, call.tensor("nonzero_data")?, call.tensor("scale")?);
    let offset = call.maybe("offset");
    divides(call, &scale.shape, &mask.shape)?;
    if offset.is_some_and(|o| o.shape != scale.shape) {
        return Err(call.fail("`offset` must have the shape of `scale`"));
    }
    let ranks = ranks(call, (0..mask.len()).map(|i| mask.int(i) != 0), values.len())?;
    let set = ranks.iter().enumerate().filter_map(|(i, nth)| nth.map(|nth| (i, nth)));
    let shifted = set.map(|(i, nth)| {
        let b = block(&index_of(i, &mask.shape), &mask.shape, &scale.shape);
        (values.float(nth) - offset.map_or(0.0, |o| o.float(b))) * scale.float(b)
    });
    let shifted = Tensor::floats(scale.dtype, &[values.len()], shifted.collect());
    Ok(vec![mask.clone(), shifted])
}
