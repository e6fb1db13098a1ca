//! Compressed constants: `constexpr_lut_to_dense` and `constexpr_blockwise_shift_scale`.

use super::infer::{MAX_RANK, show, tensor};
use super::{DataType, FLOATS, InferContext, OpDef, Opset, Param, int_const};
use crate::error::MilError;
use crate::program::{Dim, Type};

const PALETTE: &[DataType] = &[DataType::Int8, DataType::UInt8, DataType::Fp16, DataType::Fp32];
const INDICES: &[DataType] =
    &[DataType::UInt1, DataType::UInt2, DataType::UInt3, DataType::UInt4, DataType::UInt6, DataType::UInt8];
const BLOCKS: &[DataType] =
    &[DataType::Int4, DataType::UInt4, DataType::Int8, DataType::UInt8, DataType::Fp16, DataType::Fp32];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(
        "constexpr_lut_to_dense",
        &[
            Param::new("indices", &[DataType::UInt8]).constant(),
            Param::new("lut", PALETTE).constant(),
            Param::new("shape", &[DataType::UInt32]).constant(),
        ],
        packed_lut_rule,
    )
    .since(Opset::IOS16),
    OpDef::new(
        "constexpr_lut_to_dense",
        &[
            Param::new("indices", INDICES).constant(),
            Param::new("lut", PALETTE).constant(),
            int_const("vector_axis").optional(),
        ],
        lut_rule,
    )
    .since(Opset::IOS18),
    OpDef::new(
        "constexpr_blockwise_shift_scale",
        &[
            Param::new("data", BLOCKS).constant(),
            Param::new("scale", FLOATS).constant(),
            Param::new("offset", BLOCKS).constant().optional(),
        ],
        blockwise_rule,
    )
    .since(Opset::IOS18),
];

fn fixed(c: &InferContext<'_>, name: &str) -> Result<(DataType, Vec<usize>), MilError> {
    let (dtype, shape) = c.tensor(name)?;
    let extents = shape.iter().map(|d| if let Dim::Fixed(n) = d { Some(*n) } else { None }).collect();
    Ok((dtype, Option::ok_or(extents, c.fail(format!("`{name}` {} has an unknown extent", show(&shape))))?))
}

fn dims(shape: Vec<usize>) -> Vec<Dim> {
    shape.into_iter().map(Dim::Fixed).collect()
}

/// The bits of an index into a palette of that many entries.
fn index_bits(entries: usize) -> Option<usize> {
    entries.is_power_of_two().then(|| entries.trailing_zeros() as usize).filter(|b| (1..=8).contains(b))
}

/// iOS 16: indices are packed into a vector of bytes, `shape` says what they stand for.
fn packed_lut_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((_, indices), (dtype, lut)) = (fixed(c, "indices")?, fixed(c, "lut")?);
    let shape = c.ints("shape")?;
    if shape.len() > MAX_RANK {
        return Err(c.fail(format!("rank {} is too large", shape.len())));
    }
    let shape: Option<Vec<usize>> = shape.iter().map(|&n| usize::try_from(n).ok()).collect();
    let shape = shape.ok_or_else(|| c.fail("a negative extent"))?;
    let ([bytes], [entries]) = (indices.as_slice(), lut.as_slice()) else {
        return Err(c.fail("indices and lut must be vectors"));
    };
    let bits = index_bits(*entries).ok_or_else(|| c.fail(format!("a palette of {entries} entries")))?;
    let elements = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).and_then(|n| n.checked_mul(bits));
    if elements.map(|n| n.div_ceil(8)) != Some(*bytes) {
        return Err(c.fail(format!("{bytes} bytes of {bits}-bit indices do not fill {shape:?}")));
    }
    Ok(tensor(dtype, dims(shape)))
}

/// iOS 18: a palette for each block, `lut` `[blocks…, 2^bits, vector]`.
fn lut_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((index, mut shape), (dtype, lut)) = (fixed(c, "indices")?, fixed(c, "lut")?);
    let rank = shape.len();
    let blocks_fit = lut.len() == rank + 2 && shape.iter().zip(&lut).all(|(n, b)| *b != 0 && n % b == 0);
    if rank == 0 || !blocks_fit || index_bits(lut[rank]) != index.bits() {
        let (shape, lut) = (dims(shape), dims(lut));
        return Err(c.fail(format!("{index} indices {} do not fit lut {}", show(&shape), show(&lut))));
    }
    if lut[rank + 1] != 1 {
        if !c.has("vector_axis") {
            return Err(c.fail("a palette of vectors needs vector_axis"));
        }
        let axis = c.axis("vector_axis", rank)?;
        shape[axis] = shape[axis].checked_mul(lut[rank + 1]).ok_or_else(|| c.fail("extent overflows"))?;
    }
    Ok(tensor(dtype, dims(shape)))
}

/// `scale * (data - offset)`, one scale and offset for each block of `data`.
fn blockwise_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((source, data), (dtype, scale)) = (fixed(c, "data")?, fixed(c, "scale")?);
    let fits = scale.len() == data.len() && data.iter().zip(&scale).all(|(n, b)| *b != 0 && n % b == 0);
    if data.is_empty() || !fits {
        return Err(c.fail(format!("scale {} does not divide data {}", show(&dims(scale)), show(&dims(data)))));
    }
    if c.has("offset") {
        let (given, offset) = fixed(c, "offset")?;
        if offset != scale || !(given.is_float() || given == source) {
            return Err(c.fail("offset must have the shape of scale and the element type of data or a float type"));
        }
    }
    Ok(tensor(dtype, dims(data)))
}
