//! Ops that rearrange elements: reshape, transpose, concat, split, stack, squeeze, tile, pad.

use super::infer::{InferContext, MAX_RANK, MAX_RESULTS, same, show, show_ints, tensor};
use super::signature::{
    ALIKE, BASIC, BOOL, COUNTS, FLOATS, INT32, Literal, MOVABLE, OpDef, Param, bool_const, float_const, int_const,
    str_const, x_of,
};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{DataType, Dim, Type};

const VALUES: Param = Param::new("values", ALIKE).of("T").variadic();
const AXES: Param = int_const("axes");
const SHAPE_17: Param = Param::new("shape", COUNTS).of("U");

const RESHAPE: OpDef = OpDef::new(
    op::RESHAPE,
    "the elements of x in another shape",
    &[x_of(BASIC), Param::new("shape", INT32)],
    reshape_rule,
);
const TRANSPOSE: OpDef =
    OpDef::new(op::TRANSPOSE, "x with its axes in another order", &[x_of(BASIC), int_const("perm")], transpose_rule);
const SQUEEZE: OpDef =
    OpDef::new(op::SQUEEZE, "x without axes of extent 1", &[x_of(BASIC), AXES.optional()], squeeze_rule);
const EXPAND_DIMS: OpDef =
    OpDef::new(op::EXPAND_DIMS, "x with new axes of extent 1", &[x_of(BASIC), AXES], expand_dims_rule);
const REVERSE: OpDef = OpDef::new(op::REVERSE, "x backwards along axes", &[x_of(BASIC), AXES.optional()], reverse_rule);
const SEQ_AXIS: Param = int_const("seq_axis").or(Literal::Int(0));
const BATCH_AXIS: Param = int_const("batch_axis").or(Literal::Int(0));
const REVERSE_SEQUENCE: OpDef = OpDef::new(
    op::REVERSE_SEQUENCE,
    "x with the first elements of each sequence backwards",
    &[x_of(BASIC), Param::new("lengths", INT32), SEQ_AXIS, BATCH_AXIS],
    reverse_sequence_rule,
);

const fn reshape_like(x: &'static [DataType]) -> [Param; 5] {
    [
        x_of(x),
        Param::new("ref_tensors", ALIKE).variadic(),
        Param::new("begins", INT32).variadic().constant(),
        Param::new("ends", INT32).variadic().constant(),
        Param::new("end_masks", BOOL).variadic().constant(),
    ]
}
const RESHAPE_LIKE: OpDef = OpDef::new(
    op::RESHAPE_LIKE,
    "the elements of x in a shape put together from those of other tensors",
    &reshape_like(BASIC),
    reshape_like_rule,
);
const PAD: &[Param] = &[
    x_of(FLOATS),
    Param::new("pad", INT32),
    str_const("mode").or(Literal::Str("constant")),
    float_const("constant_val").or(Literal::Float(0.0)),
];

pub(super) const OPS: &[OpDef] = &[
    RESHAPE,
    RESHAPE.again(Opset::IOS17, &[x_of(MOVABLE), SHAPE_17]),
    RESHAPE_LIKE.since(Opset::IOS16),
    RESHAPE_LIKE.again(Opset::IOS17, &reshape_like(MOVABLE)),
    TRANSPOSE,
    TRANSPOSE.again(Opset::IOS17, &[x_of(MOVABLE), int_const("perm")]),
    OpDef::new(
        op::CONCAT,
        "the values one after the other along an axis",
        &[VALUES, int_const("axis"), bool_const("interleave").or(Literal::Bool(false)).spelled()],
        concat_rule,
    ),
    OpDef::new(op::STACK, "the values along a new axis", &[VALUES, int_const("axis")], stack_rule),
    OpDef::new(
        op::SPLIT,
        "x in parts along an axis",
        &[x_of(BASIC), int_const("num_splits").optional(), int_const("split_sizes").optional(), int_const("axis")],
        split_rule,
    ),
    SQUEEZE,
    SQUEEZE.again(Opset::IOS17, &[x_of(MOVABLE), AXES.optional()]),
    EXPAND_DIMS,
    EXPAND_DIMS.again(Opset::IOS17, &[x_of(MOVABLE), AXES]),
    OpDef::new(op::TILE, "x repeated along each axis", &[x_of(BASIC), Param::new("reps", INT32)], tile_rule),
    OpDef::new(op::PAD, "x with margins", PAD, pad_rule),
    REVERSE,
    REVERSE.again(Opset::IOS17, &[x_of(MOVABLE), AXES.optional()]),
    REVERSE_SEQUENCE,
    REVERSE_SEQUENCE.again(Opset::IOS17, &[x_of(MOVABLE), Param::new("lengths", COUNTS).of("U"), SEQ_AXIS, BATCH_AXIS]),
];

fn reshape_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    if c.constant("shape").is_none() {
        return Ok(tensor(dtype, c.extents("shape")?));
    }
    let wanted = c.ints("shape")?;
    if wanted.len() > MAX_RANK {
        return Err(c.fail(format!("rank {} is too large", wanted.len())));
    }
    // 0 keeps an extent of x: before iOS 17 the one of the same axis, from then on counted from the
    // end, and 1 if x has no such axis.
    let from_end = c.def.since >= Opset::IOS17;
    if !from_end && wanted.contains(&0) && wanted.len() != x.len() {
        return Err(c.fail(format!("a shape with a 0 must have the rank of x {}, not {}", show(&x), wanted.len())));
    }
    let kept = |i: usize| match (x.len() + i).checked_sub(wanted.len()) {
        Some(at) if from_end => x.get(at).cloned().unwrap_or(Dim::Fixed(1)),
        None => Dim::Fixed(1),
        _ => x.get(i).cloned().unwrap_or(Dim::Fixed(1)),
    };
    let mut shape = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (i, &n) in wanted.iter().enumerate() {
        shape.push(match n {
            -1 if open.is_none() => {
                open = Some(i);
                Dim::Unknown
            }
            0 => kept(i),
            n if n > 0 => Dim::Fixed(n as usize),
            _ => return Err(c.fail(format!("shape {wanted:?} may hold one -1 and no other negative extent"))),
        });
    }
    let overflow = || c.fail(format!("{} to {wanted:?}: too many elements", show(&x)));
    let total = product(&x, None).map_err(|Overflow| overflow())?;
    let rest = product(&shape, open).map_err(|Overflow| overflow())?;
    let (Some(total), Some(rest)) = (total, rest) else { return Ok(tensor(dtype, shape)) };
    let fits = match open {
        Some(i) if rest != 0 && total % rest == 0 => {
            shape[i] = Dim::Fixed(total / rest);
            true
        }
        Some(_) => false,
        None => total == rest,
    };
    if !fits {
        return Err(c.fail(format!("{} with {total} elements cannot become {wanted:?}", show(&x))));
    }
    Ok(tensor(dtype, shape))
}

/// Slices of the shapes of `ref_tensors`, joined.
fn reshape_like_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let references = c.types("ref_tensors");
    let (begins, ends, masks) = (c.item_ints("begins")?, c.item_ints("ends")?, c.item_ints("end_masks")?);
    let count = references.len();
    if [begins.len(), ends.len(), masks.len()].iter().any(|&n| n != count) {
        return Err(c.fail(format!("needs a begin, an end and an end mask for each of {count} tensors")));
    }
    let mut shape = Vec::new();
    for (i, reference) in references.iter().enumerate() {
        let Type::Tensor { shape: from, .. } = reference else { return Err(c.fail("takes tensors only")) };
        // As Python slices: negative bounds count from the end, both are clamped.
        let rank = from.len() as i64;
        let bound = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
        let (begin, end) = (bound(begins[i]), if masks[i] != 0 { from.len() } else { bound(ends[i]) });
        shape.extend_from_slice(from.get(begin..end).unwrap_or(&[]));
        if shape.len() > MAX_RANK {
            return Err(c.fail(format!("rank {} is too large", shape.len())));
        }
    }
    let overflow = || c.fail(format!("{}: too many elements", show(&shape)));
    let total = product(&x, None).map_err(|Overflow| overflow())?;
    let wanted = product(&shape, None).map_err(|Overflow| overflow())?;
    if let (Some(total), Some(wanted)) = (total, wanted)
        && total != wanted
    {
        return Err(c.fail(format!("{} cannot become {}", show(&x), show(&shape))));
    }
    Ok(tensor(dtype, shape))
}

struct Overflow;

/// The number of elements without one axis; `None` if an extent is unknown.
fn product(shape: &[Dim], skip: Option<usize>) -> Result<Option<usize>, Overflow> {
    let kept = shape.iter().enumerate().filter(|(i, _)| Some(*i) != skip);
    let extents: Option<Vec<usize>> = kept.map(|(_, d)| if let Dim::Fixed(n) = d { Some(*n) } else { None }).collect();
    match extents {
        Some(e) if e.contains(&0) => Ok(Some(0)),
        Some(e) => e.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).map(Some).ok_or(Overflow),
        None => Ok(None),
    }
}

fn transpose_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let perm = c.ints("perm")?;
    let axes = c.normal_axes(&perm, x.len())?;
    if axes.len() != x.len() {
        return Err(c.fail(format!("perm {} does not name every axis of {}", show_ints(&perm), show(&x))));
    }
    Ok(tensor(dtype, axes.iter().map(|&a| x[a].clone()).collect()))
}

fn shapes(c: &InferContext<'_>) -> Result<(crate::program::DataType, Vec<Vec<Dim>>), MilError> {
    let types = c.types("values");
    let dtype = types.first().and_then(Type::dtype).ok_or_else(|| c.fail("needs at least one value"))?;
    let shapes = types.into_iter().map(|t| match t {
        Type::Tensor { shape, .. } => shape,
        _ => Vec::new(),
    });
    Ok((dtype, shapes.collect()))
}

fn concat_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, parts) = shapes(c)?;
    let first = parts.first().ok_or_else(|| c.fail("needs at least one value"))?;
    // Scalars join to a vector.
    let mut shape = if first.is_empty() { vec![Dim::Fixed(1)] } else { first.clone() };
    let axis = c.axis("axis", shape.len())?;
    let parts: Vec<Vec<Dim>> =
        parts.iter().map(|p| if p.is_empty() && first.is_empty() { vec![Dim::Fixed(1)] } else { p.clone() }).collect();
    let interleave = c.flag("interleave")?;
    for part in &parts[1..] {
        if part.len() != shape.len() {
            return Err(c.fail(format!("{} and {} differ in rank", show(&shape), show(part))));
        }
        for i in 0..shape.len() {
            let (a, b) = (shape[i].clone(), &part[i]);
            if i != axis {
                shape[i] = same(&a, b).ok_or_else(|| {
                    c.fail(format!("{} and {} differ outside of axis {axis}", show(&parts[0]), show(part)))
                })?;
                continue;
            }
            if interleave && same(&parts[0][axis], b).is_none() {
                return Err(c.fail("interleave needs parts of one extent"));
            }
            shape[i] = match (a, b) {
                (Dim::Fixed(a), Dim::Fixed(b)) => {
                    Dim::Fixed(a.checked_add(*b).ok_or_else(|| c.fail("extent overflows"))?)
                }
                _ => Dim::Unknown,
            };
        }
    }
    Ok(tensor(dtype, shape))
}

fn stack_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, parts) = shapes(c)?;
    let mut shape = parts.first().ok_or_else(|| c.fail("needs at least one value"))?.clone();
    for part in &parts[1..] {
        let both = shape.iter().zip(part).map(|(a, b)| same(a, b)).collect::<Option<Vec<Dim>>>();
        shape = both
            .filter(|_| part.len() == parts[0].len())
            .ok_or_else(|| c.fail(format!("{} and {} differ", show(&parts[0]), show(part))))?;
    }
    let axis = c.axis("axis", shape.len() + 1)?;
    shape.insert(axis, Dim::Fixed(parts.len()));
    Ok(tensor(dtype, shape))
}

fn split_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let axis = c.axis("axis", x.len())?;
    let count = if c.has("num_splits") { Some(c.count("num_splits", 1)?) } else { None };
    let extent = x[axis].clone();
    let parts = match (c.ints_if("split_sizes")?, count) {
        (Some(sizes), count) => {
            if sizes.len() > MAX_RESULTS {
                return Err(c.fail(format!("{} parts are too many", sizes.len())));
            }
            let sizes: Option<Vec<usize>> = sizes.iter().map(|&s| usize::try_from(s).ok().filter(|&s| s > 0)).collect();
            let sizes = sizes.ok_or_else(|| c.fail("a part must have at least one element"))?;
            if count.is_some_and(|n| n != sizes.len()) {
                return Err(c.fail("num_splits and split_sizes disagree"));
            }
            let total = sizes.iter().try_fold(0usize, |n, &s| n.checked_add(s));
            if sizes.is_empty() || total.is_none_or(|n| same(&extent, &Dim::Fixed(n)).is_none()) {
                return Err(c.fail(format!("the {} parts do not add up to {}", sizes.len(), show(&[extent]))));
            }
            sizes.into_iter().map(Dim::Fixed).collect()
        }
        (None, Some(n)) if n > MAX_RESULTS => return Err(c.fail(format!("{n} parts are too many"))),
        (None, Some(n)) => vec![c.map(&extent, |e| (e % n as i64 == 0).then(|| e / n as i64))?; n],
        (None, None) => return Err(c.fail("needs num_splits or split_sizes")),
    };
    let part = |size| {
        let mut shape = x.clone();
        shape[axis] = size;
        Type::Tensor { dtype, shape }
    };
    Ok(parts.into_iter().map(part).collect())
}

fn squeeze_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let axes = match c.ints_if("axes")? {
        Some(axes) => c.normal_axes(&axes, x.len())?,
        None => (0..x.len()).filter(|&i| x[i] == Dim::Fixed(1)).collect(),
    };
    if let Some(&a) = axes.iter().find(|&&a| same(&x[a], &Dim::Fixed(1)).is_none()) {
        return Err(c.fail(format!("axis {a} of {} is not 1", show(&x))));
    }
    let kept = x.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| d.clone());
    Ok(tensor(dtype, kept.collect()))
}

fn expand_dims_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let axes = c.ints("axes")?;
    let rank = x.len() + axes.len();
    let axes = c.normal_axes(&axes, rank)?;
    if rank > MAX_RANK {
        return Err(c.fail(format!("rank {rank} is too large")));
    }
    let mut old = x.into_iter();
    let shape = (0..rank).map(|i| if axes.contains(&i) { Some(Dim::Fixed(1)) } else { old.next() });
    Ok(tensor(dtype, shape.flatten().collect()))
}

fn tile_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let Some(reps) = c.ints_known("reps")? else {
        let (_, length) = c.ranked("reps", 1)?;
        if same(&length[0], &Dim::Fixed(x.len())).is_none() {
            return Err(c.fail(format!("reps {} must be one number for each axis of {}", show(&length), show(&x))));
        }
        return Ok(tensor(dtype, vec![Dim::Unknown; x.len()]));
    };
    if reps.len() != x.len() || reps.iter().any(|&r| r < 1) {
        return Err(c.fail(format!(
            "reps {} must be one positive number for each axis of {}",
            show_ints(&reps),
            show(&x)
        )));
    }
    let shape: Option<Vec<Dim>> = x
        .iter()
        .zip(&reps)
        .map(|(d, &r)| match d {
            Dim::Fixed(n) => n.checked_mul(r as usize).map(Dim::Fixed),
            Dim::Unknown => Some(Dim::Unknown),
        })
        .collect();
    Ok(tensor(dtype, shape.ok_or_else(|| c.fail("extent overflows"))?))
}

/// `pad` holds pairs for the last axes.
fn pad_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, mut x) = c.tensor("x")?;
    c.one_of("mode", &["constant", "reflect", "replicate"])?;
    let (_, length) = c.ranked("pad", 1)?;
    let Some(pad) = c.ints_known("pad")? else {
        if same(&length[0], &Dim::Fixed(2 * x.len())).is_none() {
            let reason = format!(
                "a pad of {} known at run time only must hold a pair for each axis of {}",
                show(&length),
                show(&x)
            );
            return Err(c.fail(reason));
        }
        return Ok(tensor(dtype, vec![Dim::Unknown; x.len()]));
    };
    let axes = pad.len() / 2;
    if pad.len() % 2 != 0 || axes > x.len() || pad.iter().any(|&p| !(0..=i64::from(i32::MAX)).contains(&p)) {
        return Err(c.fail(format!("pad {} must be non-negative pairs for at most {} axes", show_ints(&pad), x.len())));
    }
    let first = x.len() - axes;
    for (i, pair) in pad.chunks_exact(2).enumerate() {
        if let Dim::Fixed(n) = &mut x[first + i] {
            *n = n.checked_add((pair[0] + pair[1]) as usize).ok_or_else(|| c.fail("extent overflows"))?;
        }
    }
    Ok(tensor(dtype, x))
}

fn reverse_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    if let Some(axes) = c.ints_if("axes")? {
        c.normal_axes(&axes, x.len())?;
    }
    Ok(tensor(dtype, x))
}

fn reverse_sequence_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, lengths)) = (c.tensor("x")?, c.ranked("lengths", 1)?);
    c.axis("seq_axis", x.len())?;
    let batch = c.axis("batch_axis", x.len())?;
    if same(&lengths[0], &x[batch]).is_none() {
        return Err(c.fail(format!("lengths {} must be one for each of axis {batch} of {}", show(&lengths), show(&x))));
    }
    Ok(tensor(dtype, x))
}
