//! Products: `matmul`, `linear`, `conv`, and attention.

use super::infer::{same, same_extent, show, show_ints, tensor};
use super::{
    FLOATS, InferContext, Literal, NUMBERS, OpDef, Opset, Param, apart, bool_const, int_const, str_const, x_of,
};
use crate::error::MilError;
use crate::program::{DataType, Dim, Type};

const MATMUL: &[Param] = &[
    x_of(NUMBERS),
    Param::new("y", NUMBERS).of("T"),
    bool_const("transpose_x").or(Literal::Bool(false)).spelled(),
    bool_const("transpose_y").or(Literal::Bool(false)).spelled(),
];
const LINEAR: [Param; 3] = [
    x_of(NUMBERS),
    Param::new("weight", NUMBERS).of("T").constant(),
    Param::new("bias", NUMBERS).of("T").constant().optional(),
];
const CONV: [Param; 8] = [
    x_of(FLOATS),
    Param::new("weight", FLOATS).of("T"),
    float_const_optional("bias"),
    int_const("strides").optional(),
    str_const("pad_type").or(Literal::Str("valid")),
    int_const("pad").optional(),
    int_const("dilations").optional(),
    int_const("groups").or(Literal::Int(1)),
];
const ATTENTION: &[Param] = &[
    Param::new("query", FLOATS).of("T"),
    Param::new("key", FLOATS).of("T"),
    Param::new("value", FLOATS).of("T"),
    Param::new("attn_mask", &[DataType::Bool, DataType::Fp16, DataType::Fp32]).optional(),
];

const fn float_const_optional(name: &'static str) -> Param {
    super::float_const(name).optional()
}

pub(super) const OPS: &[OpDef] = &[
    OpDef::new("matmul", MATMUL, matmul_rule),
    OpDef::new("linear", &LINEAR, linear_rule),
    OpDef::new("linear", &apart(LINEAR), linear_rule).since(Opset::IOS17),
    OpDef::new("conv", &CONV, conv_rule),
    OpDef::new("conv", &apart(CONV), conv_rule).since(Opset::IOS17),
    OpDef::new("scaled_dot_product_attention", ATTENTION, attention_rule).since(Opset::IOS18),
];

/// Batched over the leading axes with broadcasting. A vector on one side counts as a row or a column and vanishes again.
fn matmul_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, mut x), (_, mut y)) = (c.tensor("x")?, c.tensor("y")?);
    if x.is_empty() || y.is_empty() {
        return Err(c.fail("x and y must have at least rank 1"));
    }
    let (x_vector, y_vector) = (x.len() == 1, y.len() == 1);
    if x_vector {
        x.insert(0, Dim::Fixed(1));
    }
    if y_vector {
        y.push(Dim::Fixed(1));
    }
    let (nx, ny) = (x.len(), y.len());
    if c.flag("transpose_x")? && !x_vector {
        x.swap(nx - 1, nx - 2);
    }
    if c.flag("transpose_y")? && !y_vector {
        y.swap(ny - 1, ny - 2);
    }
    if same(&x[nx - 1], &y[ny - 2]).is_none() {
        let reason = format!("inner extents differ: {} (as multiplied) times {}", show(&x), show(&y));
        return Err(c.fail(reason));
    }
    let mut shape = c.broadcast(&x[..nx - 2], &y[..ny - 2])?;
    if !x_vector {
        shape.push(x[nx - 2].clone());
    }
    if !y_vector {
        shape.push(y[ny - 1].clone());
    }
    Ok(tensor(dtype, shape))
}

/// `x · weightᵀ + bias`, weight `[out, in]`.
fn linear_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, mut x), (_, weight)) = (c.tensor("x")?, c.tensor("weight")?);
    if x.is_empty() || x.len() > 3 || weight.len() != 2 {
        return Err(c.fail(format!("x {} must be of rank 1 to 3 and weight {} of rank 2", show(&x), show(&weight))));
    }
    let last = x.len() - 1;
    if same(&x[last], &weight[1]).is_none() {
        return Err(c.fail(format!("x {} does not end in the weight's {} columns", show(&x), show(&weight[1..]))));
    }
    if c.has("bias") {
        let (_, bias) = c.tensor("bias")?;
        if bias.len() != 1 || same(&bias[0], &weight[0]).is_none() {
            return Err(c.fail(format!("bias {} does not fit weight {}", show(&bias), show(&weight))));
        }
    }
    x[last] = weight[0].clone();
    Ok(tensor(dtype, x))
}

/// x `[N, C, spatial…]`, weight `[out, C/groups, kernel…]`, one to three spatial axes.
fn conv_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, x), (_, weight)) = (c.tensor("x")?, c.tensor("weight")?);
    let spatial = x.len().saturating_sub(2);
    if !(1..=3).contains(&spatial) || weight.len() != x.len() {
        return Err(c.fail(format!("x {} and weight {} must both have rank 3 to 5", show(&x), show(&weight))));
    }
    let groups = c.int("groups")?;
    let group_count =
        usize::try_from(groups).ok().filter(|&g| g > 0).ok_or_else(|| c.fail("groups must be positive"))?;
    if let (Dim::Fixed(channels), Dim::Fixed(per_group)) = (&x[1], &weight[1])
        && per_group.checked_mul(group_count) != Some(*channels)
    {
        return Err(c.fail(format!("x has {channels} channels, weight {per_group} × {groups} groups")));
    }
    if let Dim::Fixed(out) = weight[0] {
        if out % group_count != 0 {
            return Err(c.fail(format!("{out} output channels do not divide into {groups} groups")));
        }
        if c.has("bias") {
            let (_, bias) = c.tensor("bias")?;
            if bias != [Dim::Fixed(out)] {
                return Err(c.fail(format!("bias {} must be [{out}]", show(&bias))));
            }
        }
    }
    let mut shape = vec![x[0].clone(), weight[0].clone()];
    shape.extend(window(c, &x[2..], &weight[2..], false)?);
    Ok(tensor(dtype, shape))
}

fn spatial_ints(
    c: &InferContext<'_>,
    name: &str,
    count: usize,
    default: i64,
    least: i64,
) -> Result<Vec<i64>, MilError> {
    let known = if c.def.param(name).is_some() { c.ints_if(name)? } else { None };
    let values = known.unwrap_or_else(|| vec![default; count]);
    if values.len() != count || values.iter().any(|&v| v < least || v > i64::from(i32::MAX)) {
        return Err(c.fail(format!("`{name}` must be {count} values of at least {least}, is {}", show_ints(&values))));
    }
    Ok(values)
}

/// The extents after sliding a kernel over the spatial axes with `strides`, `dilations`, `pad_type` and `pad`.
pub(super) fn window(c: &InferContext<'_>, x: &[Dim], kernel: &[Dim], ceil: bool) -> Result<Vec<Dim>, MilError> {
    let n = x.len();
    let strides = spatial_ints(c, "strides", n, 1, 1)?;
    let dilations = spatial_ints(c, "dilations", n, 1, 1)?;
    let pad_type = c.one_of("pad_type", &["valid", "same", "same_lower", "custom"])?;
    let pad = match pad_type.as_str() {
        "custom" => spatial_ints(c, "pad", 2 * n, 0, 0)?,
        _ => vec![0; 2 * n],
    };
    let mut shape = Vec::with_capacity(n);
    for i in 0..n {
        let (Dim::Fixed(extent), Dim::Fixed(k)) = (&x[i], &kernel[i]) else {
            shape.push(Dim::Unknown);
            continue;
        };
        let (extent, k, stride) = (*extent as i64, *k as i64, strides[i]);
        if pad_type.starts_with("same") {
            shape.push(Dim::Fixed(((extent + stride - 1) / stride) as usize));
            continue;
        }
        let reach = (k - 1).saturating_mul(dilations[i]) + 1;
        let free = extent + pad[2 * i] + pad[2 * i + 1] - reach;
        if free < 0 || k < 1 {
            return Err(
                c.fail(format!("a kernel that reaches {reach} does not fit an extent of {extent} with its padding"))
            );
        }
        let steps = if ceil { (free + stride - 1) / stride } else { free / stride };
        shape.push(Dim::Fixed((steps + 1) as usize));
    }
    Ok(shape)
}

/// query `[…, L, E]`, key `[…, S, E]`, value `[…, S, EV]` → `[…, L, EV]`; the mask broadcasts to `[…, L, S]`.
fn attention_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, q), (_, k), (_, v)) = (c.tensor("query")?, c.tensor("key")?, c.tensor("value")?);
    let rank = q.len();
    if rank < 3 || k.len() != rank || v.len() != rank {
        return Err(c.fail(format!("query {}, key {}, value {} must share a rank ≥ 3", show(&q), show(&k), show(&v))));
    }
    let fits = same(&q[rank - 1], &k[rank - 1]).is_some() && same(&k[rank - 2], &v[rank - 2]).is_some();
    if !fits {
        return Err(c.fail(format!("query {}, key {} and value {} do not fit", show(&q), show(&k), show(&v))));
    }
    let batch = c.broadcast(&q[..rank - 2], &k[..rank - 2])?;
    let batch = c.broadcast(&batch, &v[..rank - 2])?;
    if c.has("attn_mask") {
        let (_, mask) = c.tensor("attn_mask")?;
        let mut scores = batch.clone();
        scores.extend([q[rank - 2].clone(), k[rank - 2].clone()]);
        let found = c.broadcast(&mask, &scores)?;
        // The mask must not widen the scores; where an extent is unknown it may still fit.
        if found.len() != scores.len() || !found.iter().zip(&scores).all(|(f, s)| same_extent(f, s)) {
            return Err(c.fail(format!("attn_mask {} does not broadcast to {}", show(&mask), show(&scores))));
        }
    }
    let mut shape = batch;
    shape.extend([q[rank - 2].clone(), v[rank - 1].clone()]);
    Ok(tensor(dtype, shape))
}
