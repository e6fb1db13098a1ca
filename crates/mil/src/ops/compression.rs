//! Compressed constants: casts, palettes, sparsity, and blocks with a scale each.

use super::infer::{InferContext, MAX_RANK, show, tensor};
use super::signature::{FLOATS, OpDef, Param, UINT32, int_const, str_const};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{DataType, Dim, Type};

const DENSE: &[DataType] = &[DataType::Int8, DataType::UInt8, DataType::Fp16, DataType::Fp32];
const INDICES: &[DataType] =
    &[DataType::UInt1, DataType::UInt2, DataType::UInt3, DataType::UInt4, DataType::UInt6, DataType::UInt8];
const BLOCKS: &[DataType] =
    &[DataType::Int4, DataType::UInt4, DataType::Int8, DataType::UInt8, DataType::Fp16, DataType::Fp32];
const MASK: &[DataType] = &[DataType::UInt1];

const SHAPE: Param = Param::new("shape", UINT32).constant();
const LUT: Param = Param::new("lut", DENSE).of("T").constant();
const VECTOR_AXIS: Param = int_const("vector_axis").optional();
const SCALE: Param = Param::new("scale", FLOATS).of("DstT").constant();
const OFFSET: Param = Param::new("offset", BLOCKS).of("OffsetT").constant().optional();

const CAST: OpDef = OpDef::new(
    op::CONSTEXPR_CAST,
    "a constant with another element type",
    &[Param::new("source_val", &[DataType::Fp16]).constant(), str_const("output_dtype")],
    cast_rule,
);
const LUT_TO_DENSE: OpDef = OpDef::new(
    op::CONSTEXPR_LUT_TO_DENSE,
    "the constant of the entries of a palette at indices",
    &[Param::new("indices", &[DataType::UInt8]).constant(), LUT, SHAPE],
    packed_lut_rule,
);
const SPARSE_TO_DENSE: OpDef = OpDef::new(
    op::CONSTEXPR_SPARSE_TO_DENSE,
    "the constant with given elements where a mask has ones, else zeros",
    &[Param::new("nonzero_data", DENSE).of("T").constant(), Param::new("mask", &[DataType::UInt8]).constant(), SHAPE],
    packed_sparse_rule,
);

pub(super) const OPS: &[OpDef] = &[
    CAST.since(Opset::IOS16),
    LUT_TO_DENSE.since(Opset::IOS16),
    OpDef {
        infer: lut_rule,
        ..LUT_TO_DENSE
            .again(Opset::IOS18, &[Param::new("indices", INDICES).of("IndicesT").constant(), LUT, VECTOR_AXIS])
    },
    SPARSE_TO_DENSE.since(Opset::IOS16),
    OpDef {
        infer: sparse_rule,
        ..SPARSE_TO_DENSE.again(
            Opset::IOS18,
            &[Param::new("nonzero_data", BLOCKS).of("T").constant(), Param::new("mask", MASK).constant()],
        )
    },
    OpDef::new(
        op::CONSTEXPR_BLOCKWISE_SHIFT_SCALE,
        "the constant scale · (data - offset) with a scale and an offset for each block",
        &[Param::new("data", BLOCKS).of("SrcT").constant(), SCALE, OFFSET],
        blockwise_rule,
    )
    .since(Opset::IOS18),
    OpDef::new(
        op::CONSTEXPR_LUT_TO_SPARSE,
        "a mask, and the entries of a palette at indices where it has ones",
        &[
            Param::new("indices_mask", MASK).constant(),
            Param::new("indices_nonzero_data", INDICES).of("IndicesT").constant(),
            LUT,
            VECTOR_AXIS,
        ],
        lut_to_sparse_rule,
    )
    .since(Opset::IOS18),
    OpDef::new(
        op::CONSTEXPR_SPARSE_BLOCKWISE_SHIFT_SCALE,
        "a mask, and scale · (data - offset) where it has ones",
        &[
            Param::new("data_mask", MASK).constant(),
            Param::new("nonzero_data", BLOCKS).of("SrcT").constant(),
            SCALE,
            OFFSET,
        ],
        sparse_blockwise_rule,
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

fn cast_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("source_val")?;
    c.one_of("output_dtype", &["fp32"])?;
    Ok(tensor(DataType::Fp32, shape))
}

/// The extents in `shape`, and their product.
fn dense_shape(c: &InferContext<'_>) -> Result<(Vec<usize>, usize), MilError> {
    let shape = c.ints("shape")?;
    if shape.len() > MAX_RANK {
        return Err(c.fail(format!("rank {} is too large", shape.len())));
    }
    let shape: Option<Vec<usize>> = shape.iter().map(|&n| usize::try_from(n).ok()).collect();
    let shape = shape.ok_or_else(|| c.fail("a negative extent"))?;
    let elements = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e));
    let elements =
        elements.filter(|&n| n <= usize::MAX / 8).ok_or_else(|| c.fail(format!("{shape:?} is too large")))?;
    Ok((shape, elements))
}

/// iOS 16: indices are packed into a vector of bytes, `shape` gives their extents.
fn packed_lut_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((_, indices), (dtype, lut)) = (fixed(c, "indices")?, fixed(c, "lut")?);
    let (shape, elements) = dense_shape(c)?;
    let ([bytes], [entries]) = (indices.as_slice(), lut.as_slice()) else {
        return Err(c.fail("indices and lut must be vectors"));
    };
    // Of 1, 2, 4, 6 or 8 bits.
    let bits = index_bits(*entries).filter(|b| matches!(b, 1 | 2 | 4 | 6 | 8));
    let bits = bits.ok_or_else(|| c.fail(format!("a palette of {entries} entries")))?;
    if (elements * bits).div_ceil(8) != *bytes {
        return Err(c.fail(format!("{bytes} bytes of {bits}-bit indices do not fill {shape:?}")));
    }
    Ok(tensor(dtype, dims(shape)))
}

/// iOS 16: the mask is packed into a vector of bytes.
fn packed_sparse_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, data), (_, mask)) = (fixed(c, "nonzero_data")?, fixed(c, "mask")?);
    let (shape, elements) = dense_shape(c)?;
    let ([values], [bytes]) = (data.as_slice(), mask.as_slice()) else {
        return Err(c.fail("nonzero_data and mask must be vectors"));
    };
    if elements.div_ceil(8) != *bytes {
        return Err(c.fail(format!("a mask of {bytes} bytes does not fill {shape:?}")));
    }
    if let Some(bits) = c.constant("mask").and_then(|m| m.bytes(c.weights)) {
        let ones: usize = bits.iter().map(|b| b.count_ones() as usize).sum();
        let behind = bits.last().is_some_and(|last| elements % 8 != 0 && last >> (elements % 8) != 0);
        if ones != *values || behind {
            return Err(c.fail(format!("the mask has {ones} ones for {values} values, or ones after its end")));
        }
    }
    Ok(tensor(dtype, dims(shape)))
}

/// The mask has as many ones as there are values.
fn check_mask(c: &InferContext<'_>, mask: &str, data: &str) -> Result<(DataType, Vec<usize>, usize), MilError> {
    let ((_, shape), (dtype, values)) = (fixed(c, mask)?, fixed(c, data)?);
    let [values] = values.as_slice() else { return Err(c.fail(format!("`{data}` must be a vector"))) };
    if let Some(ones) = c.nonzero(mask).filter(|ones| ones != values) {
        return Err(c.fail(format!("`{mask}` has {ones} ones for {values} values")));
    }
    Ok((dtype, shape, *values))
}

fn sparse_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape, _) = check_mask(c, "mask", "nonzero_data")?;
    Ok(tensor(dtype, dims(shape)))
}

/// A palette for each block, `lut` `[blocks…, 2^bits, vector]`: the element type, the dense shape,
/// and the vector's length.
fn palettes(
    c: &InferContext<'_>,
    index: DataType,
    mut shape: Vec<usize>,
) -> Result<(DataType, Vec<usize>, usize), MilError> {
    let (dtype, lut) = fixed(c, "lut")?;
    let rank = shape.len();
    let blocks_fit = lut.len() == rank + 2 && shape.iter().zip(&lut).all(|(n, b)| *b != 0 && n % b == 0);
    if rank == 0 || !blocks_fit || index_bits(lut[rank]) != index.bits() {
        let (shape, lut) = (dims(shape), dims(lut));
        return Err(c.fail(format!("{index} indices {} do not fit lut {}", show(&shape), show(&lut))));
    }
    let vector = lut[rank + 1];
    if c.has("vector_axis") {
        let axis = c.axis("vector_axis", rank)?;
        shape[axis] = shape[axis].checked_mul(vector).ok_or_else(|| c.fail("extent overflows"))?;
    } else if vector != 1 {
        return Err(c.fail("a palette of vectors needs vector_axis"));
    }
    Ok((dtype, shape, vector))
}

fn lut_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (index, shape) = fixed(c, "indices")?;
    let (dtype, shape, _) = palettes(c, index, shape)?;
    Ok(tensor(dtype, dims(shape)))
}

fn lut_to_sparse_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (index, shape, values) = check_mask(c, "indices_mask", "indices_nonzero_data")?;
    let (dtype, shape, vector) = palettes(c, index, shape)?;
    let values = values.checked_mul(vector).ok_or_else(|| c.fail("extent overflows"))?;
    Ok(vec![Type::tensor(DataType::UInt1, &shape), Type::tensor(dtype, &[values])])
}

/// `scale * (data - offset)`, one scale and offset for each block of `data`; the element type of
/// the result.
fn check_blocks(c: &InferContext<'_>, source: DataType, data: &[usize]) -> Result<DataType, MilError> {
    let (dtype, scale) = fixed(c, "scale")?;
    let fits = scale.len() == data.len() && data.iter().zip(&scale).all(|(n, b)| *b != 0 && n % b == 0);
    if data.is_empty() || !fits {
        let (scale, data) = (dims(scale), dims(data.to_vec()));
        return Err(c.fail(format!("scale {} does not divide data {}", show(&scale), show(&data))));
    }
    if c.has("offset") {
        let (given, offset) = fixed(c, "offset")?;
        if offset != scale || !(given.is_float() || given == source) {
            return Err(c.fail("offset must have the shape of scale and the element type of data or a float type"));
        }
    }
    Ok(dtype)
}

fn blockwise_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (source, data) = fixed(c, "data")?;
    Ok(tensor(check_blocks(c, source, &data)?, dims(data)))
}

fn sparse_blockwise_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (source, shape, values) = check_mask(c, "data_mask", "nonzero_data")?;
    let dtype = check_blocks(c, source, &shape)?;
    Ok(vec![Type::tensor(DataType::UInt1, &shape), Type::tensor(dtype, &[values])])
}
