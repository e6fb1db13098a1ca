//! Ops that arrange the same elements anew: reshape, transpose, concat, split, stack, squeeze, tile, pad.

use super::infer::{MAX_RANK, MAX_RESULTS, same, show, show_ints, tensor};
use super::{FLOATS, InferContext, Literal, MOVABLE, OpDef, Param, bool_const, int_const, str_const, x_of};
use crate::error::MilError;
use crate::program::{Dim, Type};

const VALUES: Param = Param::new("values", MOVABLE).of("T").variadic();

pub(super) const OPS: &[OpDef] = &[
    OpDef::new("reshape", &[x_of(MOVABLE), Param::new("shape", super::INDICES)], reshape_rule),
    OpDef::new("transpose", &[x_of(MOVABLE), int_const("perm")], transpose_rule),
    OpDef::new(
        "concat",
        &[VALUES, int_const("axis"), bool_const("interleave").or(Literal::Bool(false)).spelled()],
        concat_rule,
    ),
    OpDef::new("stack", &[VALUES, int_const("axis")], stack_rule),
    OpDef::new(
        "split",
        &[x_of(MOVABLE), int_const("num_splits").optional(), int_const("split_sizes").optional(), int_const("axis")],
        split_rule,
    ),
    OpDef::new("squeeze", &[x_of(MOVABLE), int_const("axes").optional()], squeeze_rule),
    OpDef::new("expand_dims", &[x_of(MOVABLE), int_const("axes")], expand_dims_rule),
    OpDef::new("tile", &[x_of(MOVABLE), int_const("reps")], tile_rule),
    OpDef::new(
        "pad",
        &[
            x_of(MOVABLE),
            int_const("pad"),
            str_const("mode").or(Literal::Str("constant")),
            Param::new("constant_val", FLOATS).constant().or(Literal::Float(0.0)),
        ],
        pad_rule,
    ),
    OpDef::new("reverse", &[x_of(MOVABLE), int_const("axes").optional()], reverse_rule),
];

fn reshape_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let Some(_) = c.constant("shape") else {
        // A shape known only at run time: the rank is what its length says.
        let (_, extents) = c.tensor("shape")?;
        let [Dim::Fixed(rank)] = extents.as_slice() else { return Err(c.fail("`shape` must be a vector")) };
        if *rank > MAX_RANK {
            return Err(c.fail(format!("rank {rank} is too large")));
        }
        return Ok(tensor(dtype, vec![Dim::Unknown; *rank]));
    };
    let wanted = c.ints("shape")?;
    if wanted.len() > MAX_RANK {
        return Err(c.fail(format!("rank {} is too large", wanted.len())));
    }
    let mut shape = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (i, &n) in wanted.iter().enumerate() {
        shape.push(match n {
            -1 if open.is_none() => {
                open = Some(i);
                Dim::Unknown
            }
            // 0 keeps the extent of x at this place.
            0 => x.get(i).cloned().ok_or_else(|| c.fail(format!("shape {wanted:?}: x has no axis {i} to keep")))?,
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

struct Overflow;

/// The number of elements, one axis left out; `None` if an extent is unknown.
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
    let (dtype, _) = c.tensor("values")?;
    let shapes = c.types("values").into_iter().map(|t| match t {
        Type::Tensor { shape, .. } => shape,
        _ => Vec::new(),
    });
    Ok((dtype, shapes.collect()))
}

fn concat_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, parts) = shapes(c)?;
    let mut shape = parts[0].clone();
    let axis = c.axis("axis", shape.len())?;
    let interleave = c.flag("interleave")?;
    for part in &parts[1..] {
        if part.len() != shape.len() {
            return Err(c.fail(format!("{} and {} differ in rank", show(&shape), show(part))));
        }
        for i in 0..shape.len() {
            let (a, b) = (shape[i].clone(), &part[i]);
            if i != axis {
                shape[i] = same(&a, b).ok_or_else(|| {
                    c.fail(format!("{} and {} differ beside axis {axis}", show(&parts[0]), show(part)))
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
    let mut shape = parts[0].clone();
    for part in &parts[1..] {
        let fits = part.len() == shape.len() && shape.iter().zip(part).all(|(a, b)| same(a, b).is_some());
        if !fits {
            return Err(c.fail(format!("{} and {} differ", show(&shape), show(part))));
        }
    }
    let axis = c.axis("axis", shape.len() + 1)?;
    shape.insert(axis, Dim::Fixed(parts.len()));
    Ok(tensor(dtype, shape))
}

fn split_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let (dtype, x) = c.tensor("x")?;
    let axis = c.axis("axis", x.len())?;
    let Dim::Fixed(extent) = x[axis] else { return Err(c.fail("the split axis must have a known extent")) };
    let count = if c.has("num_splits") { Some(c.int("num_splits")?) } else { None };
    let sizes: Vec<usize> = match (c.ints_if("split_sizes")?, count) {
        (Some(sizes), count) => {
            let sizes: Option<Vec<usize>> = sizes.iter().map(|&s| usize::try_from(s).ok().filter(|&s| s > 0)).collect();
            let sizes = sizes.ok_or_else(|| c.fail("a part must have at least one element"))?;
            if count.is_some_and(|n| n != sizes.len() as i64) {
                return Err(c.fail("num_splits and split_sizes disagree"));
            }
            sizes
        }
        (None, Some(n)) if n > 0 && n <= MAX_RESULTS as i64 && extent as i64 % n == 0 => {
            vec![extent / n as usize; n as usize]
        }
        (None, Some(n)) => return Err(c.fail(format!("extent {extent} does not split into {n} equal parts"))),
        (None, None) => return Err(c.fail("needs num_splits or split_sizes")),
    };
    if sizes.len() > MAX_RESULTS {
        return Err(c.fail(format!("{} parts are too many", sizes.len())));
    }
    if sizes.is_empty() || sizes.iter().try_fold(0usize, |n, &s| n.checked_add(s)) != Some(extent) {
        return Err(c.fail(format!("the {} parts do not add up to {extent}", sizes.len())));
    }
    Ok(sizes
        .into_iter()
        .map(|size| {
            let mut shape = x.clone();
            shape[axis] = Dim::Fixed(size);
            Type::Tensor { dtype, shape }
        })
        .collect())
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
    let reps = c.ints("reps")?;
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
    let pad = c.ints("pad")?;
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
