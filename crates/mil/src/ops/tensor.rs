//! Ops on whole tensors: sorting, counting, filling, selecting.

use super::elementwise::unary_rule;
use super::infer::{InferContext, MAX_EXTENT, same, show, tensor};
use super::signature::{
    BASIC, COUNTS, FLOATS, INT32, Literal, NUMBERS, OpDef, Param, bool_const, float_const, int_const, str_const, x_of,
};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{DataType, Dim, Type};

/// What `topk` and gathers take from iOS 17 on.
pub(super) const SORTABLE: &[DataType] = &[
    DataType::Fp16,
    DataType::Fp32,
    DataType::Int8,
    DataType::UInt8,
    DataType::Int16,
    DataType::UInt16,
    DataType::Int32,
];

const AXIS: Param = int_const("axis").or(Literal::Int(-1));
const ASCENDING: Param = bool_const("ascending").or(Literal::Bool(false));
const ARGSORT: &[Param] = &[x_of(NUMBERS), AXIS, ASCENDING];
const SORT: Param = bool_const("sort").or(Literal::Bool(true));
const RETURN_INDICES: Param = bool_const("return_indices").or(Literal::Bool(true));
const K: Param = int_const("k").or(Literal::Int(1));
const K_17: Param = Param::new("k", COUNTS).of("K").constant().or(Literal::Int(1));
const TOPK: OpDef = OpDef::new(
    op::TOPK,
    "the k largest (or smallest) along an axis, and where they are",
    &[x_of(NUMBERS), K, AXIS, ASCENDING],
    topk_rule,
);
const TOPK_17: &[Param] = &[
    x_of(SORTABLE),
    K_17,
    AXIS,
    ASCENDING,
    SORT,
    RETURN_INDICES,
    str_const("output_indices_dtype").or(Literal::Str("int32")),
];
const CUMSUM: &[Param] = &[
    x_of(NUMBERS),
    int_const("axis").or(Literal::Int(0)),
    bool_const("exclusive").or(Literal::Bool(false)),
    bool_const("reverse").or(Literal::Bool(false)),
];
const BAND: &[Param] = &[x_of(BASIC), int_const("lower").or(Literal::Int(-1)), int_const("upper").or(Literal::Int(-1))];
const FILL: &[Param] =
    &[Param::new("shape", INT32), Param::new("value", BASIC).of("T").constant().or(Literal::Float(0.0))];
const FILL_LIKE: &[Param] =
    &[Param::new("ref_tensor", BASIC).of("T"), Param::new("value", BASIC).of("U").constant().or(Literal::Float(0.0))];
const ONE_HOT: &[Param] = &[
    Param::new("indices", INT32),
    Param::new("one_hot_vector_size", INT32),
    AXIS,
    Param::new("on_value", BASIC).of("T").constant().or(Literal::Int(1)),
    Param::new("off_value", BASIC).of("T").constant().or(Literal::Int(0)),
];
const RANGE: &[Param] =
    &[Param::new("end", NUMBERS).of("T"), Param::new("start", NUMBERS).of("T"), Param::new("step", NUMBERS).of("T")];
const BOXES: Param = Param::new("boxes", FLOATS).of("T");
const SCORES: Param = Param::new("scores", FLOATS).of("T");
const PER_CLASS: Param = bool_const("per_class_suppression").or(Literal::Bool(false));
const NMS: OpDef = OpDef::new(
    op::NON_MAXIMUM_SUPPRESSION,
    "the best boxes that overlap no better one",
    &[BOXES, SCORES, float_const("iou_threshold"), float_const("score_threshold"), int_const("max_boxes"), PER_CLASS],
    nms_rule,
);
const NMS_17: &[Param] = &[BOXES, SCORES, float_const("iou_threshold"), int_const("max_boxes"), PER_CLASS];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new(op::ARGSORT, "the indices that sort along an axis", ARGSORT, argsort_rule),
    TOPK,
    TOPK.again(Opset::IOS16, &[x_of(NUMBERS), K, AXIS, ASCENDING, SORT, RETURN_INDICES]),
    TOPK.again(Opset::IOS17, TOPK_17),
    OpDef::new(op::CUMSUM, "sums of all elements up to each along an axis", CUMSUM, cumsum_rule),
    OpDef::new(op::BAND_PART, "x with zeros outside of a band around the diagonal", BAND, band_rule),
    OpDef::new(op::FILL, "a tensor of one value", FILL, fill_rule),
    OpDef::new(op::FILL_LIKE, "a tensor of one value with the shape of another", FILL_LIKE, fill_like_rule)
        .since(Opset::IOS16),
    OpDef::new(
        op::FLATTEN2D,
        "x as a matrix, its axes parted at one",
        &[x_of(BASIC), int_const("axis").or(Literal::Int(1))],
        flatten_rule,
    ),
    OpDef::new(op::NON_ZERO, "the indices of what is not zero, a row each", &[x_of(BASIC)], non_zero_rule),
    OpDef::new(op::ONE_HOT, "on_value at each index along a new axis, else off_value", ONE_HOT, one_hot_rule),
    OpDef::new(op::RANGE_1D, "numbers from start in steps, below end", RANGE, range_rule),
    OpDef::new(op::SHAPE, "the extents of x", &[x_of(BASIC)], shape_rule),
    NMS,
    OpDef { infer: nms_17_rule, ..NMS.again(Opset::IOS17, NMS_17) },
];

fn argsort_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("x")?;
    c.axis("axis", shape.len())?;
    Ok(tensor(DataType::Int32, shape))
}

/// Values, and their indices unless `return_indices` is false.
fn topk_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, mut shape) = c.tensor("x")?;
    let axis = c.axis("axis", shape.len())?;
    // -1 takes all.
    let k = match (c.int("k")?, &shape[axis]) {
        (-1, Dim::Fixed(n)) => *n,
        _ => c.count("k", 1)?,
    };
    if matches!(shape[axis], Dim::Fixed(n) if k > n) {
        return Err(c.fail(format!("k is {k}, axis {axis} of {} has fewer", show(&shape))));
    }
    shape[axis] = Dim::Fixed(k);
    let mut types = vec![Type::Tensor { dtype, shape: shape.clone() }];
    let indices = c.def.param("return_indices").is_none() || c.flag("return_indices")?;
    let mut dtype = DataType::Int32;
    if c.def.param("output_indices_dtype").is_some() {
        if !indices && c.has("output_indices_dtype") {
            return Err(c.fail("output_indices_dtype goes with return_indices only"));
        }
        if c.one_of("output_indices_dtype", &["int32", "uint16"])? == "uint16" {
            dtype = DataType::UInt16;
        }
    }
    if indices {
        types.push(Type::Tensor { dtype, shape });
    }
    Ok(types)
}

fn cumsum_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("x")?;
    let axis = c.int("axis")?;
    if axis < -1 {
        return Err(c.fail(format!("axis {axis} must be -1 or one of {}", show(&shape))));
    }
    c.normal_axis(axis, shape.len())?;
    unary_rule(c)
}

fn band_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("x")?;
    if shape.len() < 2 {
        return Err(c.fail(format!("x {} must have at least rank 2", show(&shape))));
    }
    unary_rule(c)
}

/// The element type of an argument, or of its default.
fn dtype_of(c: &InferContext<'_>, name: &str, default: DataType) -> Result<DataType, MilError> {
    if c.has(name) { Ok(c.tensor(name)?.0) } else { Ok(default) }
}

fn fill_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    Ok(tensor(dtype_of(c, "value", DataType::Fp32)?, c.extents("shape")?))
}

fn fill_like_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    Ok(tensor(dtype_of(c, "value", DataType::Fp32)?, c.tensor("ref_tensor")?.1))
}

fn flatten_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, shape) = c.tensor("x")?;
    let (axis, rank) = (c.int("axis")?, shape.len() as i64);
    let at = if axis < 0 { axis + rank } else { axis };
    if at < 0 || at > rank {
        return Err(c.fail(format!("axis {axis} is out of range for {}", show(&shape))));
    }
    let (before, after) = shape.split_at(at as usize);
    Ok(tensor(dtype, vec![c.volume(before)?, c.volume(after)?]))
}

fn non_zero_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("x")?;
    let count = c.nonzero("x").map_or(Dim::Unknown, Dim::Fixed);
    Ok(tensor(DataType::Int32, vec![count, Dim::Fixed(shape.len())]))
}

fn one_hot_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, mut shape) = c.tensor("indices")?;
    let (on, off) = (dtype_of(c, "on_value", DataType::Int32)?, dtype_of(c, "off_value", DataType::Int32)?);
    if on != off {
        return Err(c.fail(format!("on_value is {on}, off_value {off} (int32 if left out)")));
    }
    let axis = c.axis("axis", shape.len() + 1)?;
    let size = match c.ints_known("one_hot_vector_size")?.as_deref() {
        None => Dim::Unknown,
        Some(&[n]) => Dim::Fixed(usize::try_from(n).map_err(|_| c.fail(format!("a vector of {n}")))?),
        Some(_) => return Err(c.fail("one_hot_vector_size must be a scalar")),
    };
    shape.insert(axis, size);
    Ok(tensor(on, shape))
}

fn range_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, _) = c.tensor("start")?;
    let known = (c.number_known("start")?, c.number_known("end")?, c.number_known("step")?);
    let (Some(start), Some(end), Some(step)) = known else { return Ok(tensor(dtype, vec![Dim::Unknown])) };
    // As coremltools counts: in the element type, the quotient rounded up.
    let count = match dtype {
        DataType::Int32 => ((end - start) / step).ceil(),
        _ => f64::from((end as f32 - start as f32) / step as f32).ceil(),
    };
    if step == 0.0 || !count.is_finite() || count > MAX_EXTENT as f64 {
        return Err(c.fail(format!("from {start} to {end} in steps of {step} is not a range")));
    }
    Ok(tensor(dtype, vec![Dim::Fixed(count.max(0.0) as usize)]))
}

fn shape_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (_, shape) = c.tensor("x")?;
    Ok(tensor(DataType::Int32, vec![Dim::Fixed(shape.len())]))
}

struct Boxes {
    dtype: DataType,
    batch: Dim,
    scores: Vec<Dim>,
    max: Dim,
}

fn boxes(c: &InferContext<'_>, coordinates: usize) -> Result<Boxes, MilError> {
    let ((dtype, boxes), (_, scores)) = (c.ranked("boxes", 3)?, c.ranked("scores", 3)?);
    let max = Dim::Fixed(c.count("max_boxes", 0)?);
    // The axis that counts boxes is the one that is neither the batch nor the coordinates.
    let count = 3 - coordinates;
    let batch = same(&boxes[0], &scores[0]);
    let alike = same(&boxes[coordinates], &Dim::Fixed(4)).is_some() && same(&boxes[count], &scores[count]).is_some();
    match batch {
        Some(batch) if alike => Ok(Boxes { dtype, batch, scores, max }),
        _ => Err(c.fail(format!("boxes {} and scores {} do not fit", show(&boxes), show(&scores)))),
    }
}

/// boxes `[n, B, 4]`, scores `[n, B, K]`: boxes, scores, indices, and how many boxes each of the
/// batch has.
fn nms_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let Boxes { dtype, batch, scores, max } = boxes(c, 2)?;
    let of = |dtype, shape: &[&Dim]| Type::Tensor { dtype, shape: shape.iter().map(|&d| d.clone()).collect() };
    Ok(vec![
        of(dtype, &[&batch, &max, &Dim::Fixed(4)]),
        of(dtype, &[&batch, &max, &scores[2]]),
        of(DataType::Int32, &[&batch, &max]),
        of(DataType::Int32, &[&batch]),
    ])
}

/// boxes `[n, 4, B]`, scores `[n, K, B]`: boxes, scores, indices.
fn nms_17_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let Boxes { dtype, batch, scores, max } = boxes(c, 1)?;
    let of = |dtype, shape: &[&Dim]| Type::Tensor { dtype, shape: shape.iter().map(|&d| d.clone()).collect() };
    Ok(vec![
        of(dtype, &[&batch, &Dim::Fixed(4), &max]),
        of(dtype, &[&batch, &scores[1], &max]),
        of(DataType::Int32, &[&batch, &max]),
    ])
}
