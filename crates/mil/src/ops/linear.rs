//! Products: `matmul`, `linear`, `einsum`, and attention.

use super::infer::{InferContext, fits, same, show, tensor};
use super::signature::{ALIKE, FLOATS, Literal, NUMBERS, OpDef, Param, apart, bool_const, str_const, x_of};
use crate::error::MilError;
use crate::op;
use crate::opset::Opset;
use crate::program::{DataType, Dim, Type};

const MATMUL: [Param; 4] = [
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
const EINSUM: &[Param] = &[Param::new("values", ALIKE).of("T").variadic(), str_const("equation")];
const ATTENTION: &[Param] = &[
    Param::new("query", FLOATS).of("T"),
    Param::new("key", FLOATS).of("T"),
    Param::new("value", FLOATS).of("T"),
    Param::new("attn_mask", &[DataType::Bool, DataType::Fp16, DataType::Fp32]).of("M").optional(),
];

const PRODUCT: OpDef =
    OpDef::new(op::MATMUL, "the matrix product over the last two axes, batched", &MATMUL, matmul_rule);
const FULLY_CONNECTED: OpDef = OpDef::new(op::LINEAR, "x · weightᵀ + bias", &LINEAR, linear_rule);

pub(super) const OPS: &[OpDef] = &[
    PRODUCT,
    OpDef { infer: mixed_matmul_rule, ..PRODUCT.again(Opset::IOS17, &apart(MATMUL)) },
    FULLY_CONNECTED,
    FULLY_CONNECTED.again(Opset::IOS17, &apart(LINEAR)),
    OpDef::new(op::EINSUM, "a product of two tensors summed over one axis of each", EINSUM, einsum_rule),
    OpDef::new(
        op::SCALED_DOT_PRODUCT_ATTENTION,
        "softmax(query · keyᵀ / √E + mask) · value",
        ATTENTION,
        attention_rule,
    )
    .since(Opset::IOS18),
];

/// Batched over the leading axes with broadcasting. A vector operand counts as a row or a column,
/// whose axis the result does not have.
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
    if x.is_empty() || weight.len() != 2 {
        return Err(c.fail(format!("x {} must have an axis and weight {} rank 2", show(&x), show(&weight))));
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

/// From iOS 17 on a constant side may have another element type; the result has that of the other
/// side.
fn mixed_matmul_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let types = matmul_rule(c)?;
    let ((x, _), (y, _)) = (c.tensor("x")?, c.tensor("y")?);
    let (x_constant, y_constant) = (c.constant("x").is_some(), c.constant("y").is_some());
    if x_constant == y_constant && x != y {
        return Err(c.fail(format!("x is {x} and y {y}: only when one side is a constant may they differ")));
    }
    let dtype = if x_constant && !y_constant { y } else { x };
    Ok(types
        .into_iter()
        .map(|ty| match ty {
            Type::Tensor { shape, .. } => Type::Tensor { dtype, shape },
            other => other,
        })
        .collect())
}

/// The two equations that MIL has: `nchw,nwhr->nchr` and `chw,whr->chr`, by any letters.
fn einsum_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let equation = c.text("equation")?;
    let mut letters = Vec::new();
    let pattern: String = equation
        .chars()
        .take(32)
        .map(|letter| match letter {
            ',' | '-' | '>' => letter,
            _ => {
                let known = letters.iter().position(|l| *l == letter);
                let index = known.unwrap_or_else(|| {
                    letters.push(letter);
                    letters.len() - 1
                });
                char::from(b'a' + index.min(25) as u8)
            }
        })
        .collect();
    let rank = match pattern.as_str() {
        "abcd,adce->abce" => 4,
        "abc,cbd->abd" => 3,
        _ => return Err(c.fail(format!("the equation \"{equation}\" is not `nchw,nwhr->nchr` or `chw,whr->chr`"))),
    };
    let types = c.types("values");
    let [Type::Tensor { dtype, shape: x }, Type::Tensor { shape: y, .. }] = types.as_slice() else {
        return Err(c.fail(format!("takes two tensors, not {}", types.len())));
    };
    if x.len() != rank || y.len() != rank || same(&x[rank - 1], &y[rank - 3]).is_none() {
        return Err(c.fail(format!("{} and {} do not fit \"{equation}\"", show(x), show(y))));
    }
    let mut shape = c.broadcast(&x[..rank - 3], &y[..rank - 3])?;
    shape.push(x[rank - 3].clone());
    shape.extend(c.broadcast(&x[rank - 2..rank - 1], &y[rank - 2..rank - 1])?);
    shape.push(y[rank - 1].clone());
    Ok(tensor(*dtype, shape))
}

/// query `[…, L, E]`, key `[…, S, E]`, value `[…, S, EV]` → `[…, L, EV]`; the mask broadcasts to
/// `[…, L, S]`.
fn attention_rule(c: &InferContext<'_>) -> Result<Vec<Type>, MilError> {
    let ((dtype, q), (_, k), (_, v)) = (c.tensor("query")?, c.tensor("key")?, c.tensor("value")?);
    let rank = q.len();
    if rank < 3 || k.len() != rank || v.len() != rank {
        return Err(c.fail(format!("query {}, key {}, value {} must share a rank ≥ 3", show(&q), show(&k), show(&v))));
    }
    let alike = same(&q[rank - 1], &k[rank - 1]).is_some() && same(&k[rank - 2], &v[rank - 2]).is_some();
    if !alike {
        return Err(c.fail(format!("query {}, key {} and value {} do not fit", show(&q), show(&k), show(&v))));
    }
    let batch = |t: &[Dim]| t[..rank - 2].to_vec();
    if !fits(&batch(&q), &batch(&k)) || !fits(&batch(&q), &batch(&v)) {
        let reason = format!("query {}, key {} and value {} differ in their batch", show(&q), show(&k), show(&v));
        return Err(c.fail(reason));
    }
    if c.has("attn_mask") {
        let (_, mask) = c.tensor("attn_mask")?;
        let scores = [&q[..rank - 1], &k[rank - 2..rank - 1]].concat();
        let last = mask.last().is_some_and(|m| same(m, &scores[rank - 1]).is_some());
        // The mask must not widen the scores; where an extent is unknown it may still fit.
        if !last || !c.broadcast(&mask, &scores).is_ok_and(|found| fits(&found, &scores)) {
            return Err(c.fail(format!("attn_mask {} does not broadcast to {}", show(&mask), show(&scores))));
        }
    }
    Ok(tensor(dtype, [&q[..rank - 1], &v[rank - 1..]].concat()))
}
