//! `constexpr_*` ops of sparse weights: values for the set elements of a mask, in row-major order.

use ferrane_device::Result;

use super::super::{Call, Data, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[
    ("constexpr_cast", constexpr_cast),
    ("constexpr_sparse_to_dense", sparse_to_dense),
    ("constexpr_lut_to_sparse", lut_to_sparse),
    ("constexpr_sparse_blockwise_shift_scale", sparse_blockwise_shift_scale),
];

/// `constexpr_cast`: an fp16 weight as fp32 (coremltools 9.0).
fn constexpr_cast(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let x = call.tensor("source_val")?;
    let values = call.reals("source_val", x)?.to_vec();
    Ok(vec![HeapTensor::floats(call.dtype(0)?, &x.shape, values)])
}

/// The position of each set element of a mask among the set elements.
fn ranks(call: &Call<'_>, mask: impl Iterator<Item = bool>, values: usize) -> Result<Vec<Option<usize>>> {
    let mut count = 0;
    let ranks: Vec<Option<usize>> = mask.map(|set| set.then(|| (count, count += 1).0)).collect();
    if count != values {
        return Err(call.fail(format!("{values} values for {count} places")));
    }
    Ok(ranks)
}

/// `constexpr_sparse_to_dense`: zero where the mask is not set (coremltools 9.0). In iOS 16 the
/// mask has eight elements in each byte, from the lowest bit up, and there is a `shape`; in iOS 18
/// the mask has the shape of the result.
fn sparse_to_dense(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
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

/// The block of an element, row-major among `blocks`.
fn block(index: &[usize], shape: &[usize], blocks: &[usize]) -> usize {
    index.iter().zip(shape).zip(blocks).fold(0, |at, ((&i, &n), &b)| at * b + i / (n / b))
}

/// Checks that `blocks` divides `shape` into whole blocks.
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

/// `constexpr_lut_to_sparse`: indices of the set elements to the palette entries of their block,
/// which may be vectors along `vector_axis` (coremltools 9.0, iOS 18). Results: the mask, repeated
/// for vectors, and the values.
fn lut_to_sparse(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
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
    Ok(vec![HeapTensor { dtype: mask.dtype, shape, data: Data::Ints(set) }, values])
}

/// `constexpr_sparse_blockwise_shift_scale`: `(value - offset) · scale`, one of each for every
/// block (coremltools 9.0, iOS 18). Results: the mask, and the values.
fn sparse_blockwise_shift_scale(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
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
    let shifted = HeapTensor::floats(scale.dtype, &[values.len()], shifted.collect());
    Ok(vec![mask.clone(), shifted])
}

#[cfg(test)]
mod tests {
    use ferrane_mil::{DataType, Opset, Type, ops};

    use super::*;

    fn run(op: &str, opset: Opset, arguments: &[(&str, HeapTensor)], results: &[Type]) -> Result<Vec<HeapTensor>> {
        let def = ops::lookup(op, opset).unwrap();
        let operands = arguments.iter().map(|(name, t)| (*name, vec![t.clone().into()])).collect();
        let routine = crate::tensor_ops::tensor_op(op).unwrap();
        routine(&Call { def, opset, operands, results, wide: false })
    }

    fn ints(dtype: DataType, shape: &[usize], values: &[i64]) -> HeapTensor {
        HeapTensor::ints(dtype, shape, values.to_vec())
    }

    fn floats(shape: &[usize], values: &[f32]) -> HeapTensor {
        HeapTensor::floats(DataType::Fp32, shape, values.to_vec())
    }

    fn mask() -> HeapTensor {
        ints(DataType::UInt1, &[2, 4], &[1, 1, 0, 0, 1, 0, 1, 1])
    }

    /// Expected values from `decompress` of coremltools 9.0.
    #[test]
    fn palettes_of_sparse_indices() {
        let arguments = |lut: &[usize], axis: Option<i64>| {
            let values: Vec<f32> = (1..=lut.iter().product()).map(|v| v as f32).collect();
            let mut arguments = vec![
                ("indices_mask", mask()),
                ("indices_nonzero_data", ints(DataType::UInt1, &[5], &[0, 1, 1, 0, 1])),
                ("lut", floats(lut, &values)),
            ];
            arguments.extend(axis.map(|axis| ("vector_axis", ints(DataType::Int32, &[], &[axis]))));
            run("constexpr_lut_to_sparse", Opset::IOS18, &arguments, &[])
        };
        let found = arguments(&[2, 2, 2, 1], None).unwrap();
        assert_eq!(found[0], mask());
        assert_eq!(found[1], floats(&[5], &[1.0, 2.0, 6.0, 7.0, 8.0]));
        let found = arguments(&[1, 2, 2, 2], Some(0)).unwrap();
        assert_eq!(found[0].shape, [4, 4]);
        assert_eq!(found[1], floats(&[10], &[1.0, 3.0, 2.0, 4.0, 3.0, 5.0, 7.0, 4.0, 6.0, 8.0]));
        let found = arguments(&[1, 2, 2, 2], Some(-1)).unwrap();
        assert_eq!(found[0], ints(DataType::UInt1, &[2, 8], &[1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1]));
        assert_eq!(found[1], floats(&[10], &[1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        // Vectors without an axis; blocks that do not divide the mask.
        assert!(arguments(&[1, 2, 2, 2], None).is_err());
        assert!(arguments(&[1, 3, 2, 1], None).is_err());
    }

    /// Expected values from `decompress` of coremltools 9.0.
    #[test]
    fn shifts_and_scales_of_sparse_values() {
        let values = ints(DataType::Int8, &[5], &[10, 11, -3, 4, 5]);
        let data = [("data_mask", mask()), ("nonzero_data", values)];
        let with = |more: &[(&str, HeapTensor)]| {
            run("constexpr_sparse_blockwise_shift_scale", Opset::IOS18, &[data.as_slice(), more].concat(), &[])
        };
        let offset = ints(DataType::Int8, &[1, 2], &[1, -2]);
        let found = with(&[("scale", floats(&[1, 2], &[0.5, 2.0])), ("offset", offset)]).unwrap();
        assert_eq!(found, [mask(), floats(&[5], &[4.5, 5.0, -2.0, 12.0, 14.0])]);
        let found = with(&[("scale", floats(&[2, 1], &[0.5, 4.0]))]).unwrap();
        assert_eq!(found[1], floats(&[5], &[5.0, 5.5, -12.0, 16.0, 20.0]));
        assert!(with(&[("scale", floats(&[1, 3], &[1.0; 3]))]).is_err());
    }

    #[test]
    fn sparse_weights_become_dense() {
        let values = ints(DataType::Int8, &[5], &[1, 2, 3, 4, 5]);
        let wanted = ints(DataType::Int8, &[2, 4], &[1, 2, 0, 0, 3, 0, 4, 5]);
        let op = "constexpr_sparse_to_dense";
        let found = run(op, Opset::IOS18, &[("nonzero_data", values.clone()), ("mask", mask())], &[]).unwrap();
        assert_eq!(found, std::slice::from_ref(&wanted));
        // iOS 16: the same mask, packed from the lowest bit of each byte.
        let packed = |bits: i64| {
            let mask = ints(DataType::UInt8, &[1], &[bits]);
            let shape = ints(DataType::UInt32, &[2], &[2, 4]);
            run(op, Opset::IOS16, &[("nonzero_data", values.clone()), ("mask", mask), ("shape", shape)], &[])
        };
        assert_eq!(packed(0b1101_0011).unwrap(), [wanted]);
        assert!(packed(0b1101_0010).is_err());
    }
}
