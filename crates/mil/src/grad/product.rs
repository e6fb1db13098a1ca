//! `matmul`, `linear`, `einsum`, attention.

use super::activation::softmax_vjp;
use super::pullback::{Expr, Pullback};
use super::{GradError, Rule, Table};
use crate::program::{Constant, DataType, ValueId};

pub(super) const RULES: Table = &[
    ("matmul", Rule::Vjp(matmul)),
    ("linear", Rule::Vjp(linear)),
    ("einsum", Rule::Vjp(einsum)),
    ("scaled_dot_product_attention", Rule::Vjp(attention)),
];

/// `z = x · y`, each transposed first if its flag says so. A vector takes part as a row or a column.
fn matmul(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (mut xs, mut ys) = (p.shape_of("x")?, p.shape_of("y")?);
    let (row, column) = (xs.len() == 1, ys.len() == 1);
    // What a flag means for a vector is nothing.
    let (tx, ty) = (p.c.flag("transpose_x")? && !row, p.c.flag("transpose_y")? && !column);
    let mut zs = p.result_shape(0)?;
    if row {
        xs.insert(0, 1);
        zs.insert(zs.len() - usize::from(!column), 1);
    }
    if column {
        ys.push(1);
        zs.push(1);
    }
    let dz = p.dy()?;
    let dz = p.reshape(dz, &zs)?;
    if p.wants("x") {
        let y = p.x("y")?;
        let y = p.reshape(y, &ys)?;
        let dx = match tx {
            false => product(p, dz, y, false, !ty, &xs)?,
            true => product(p, y, dz, ty, true, &xs)?,
        };
        let dx = p.sum_to(dx, &xs)?;
        let shape = p.shape_of("x")?;
        let dx = p.reshape(dx, &shape)?;
        p.give("x", dx)?;
    }
    if p.wants("y") {
        let x = p.x("x")?;
        let x = p.reshape(x, &xs)?;
        let dy = match ty {
            false => product(p, x, dz, !tx, false, &ys)?,
            true => product(p, dz, x, true, tx, &ys)?,
        };
        let dy = p.sum_to(dy, &ys)?;
        let shape = p.shape_of("y")?;
        let dy = p.reshape(dy, &shape)?;
        p.give("y", dy)?;
    }
    Ok(())
}

/// `a · b` for an operand of the shape `wanted`. Where that operand was broadcast over all batches and the batches lie along
/// the summed axis of both factors, they are summed by the product itself instead of after it.
fn product(p: &mut Pullback<'_, '_>, a: ValueId, b: ValueId, ta: bool, tb: bool, wanted: &[usize]) -> Expr {
    let (sa, sb) = (p.shape(a)?, p.shape(b)?);
    let (na, nb) = (sa.len(), sb.len());
    let shared = wanted[..wanted.len() - 2].iter().all(|&n| n == 1);
    if shared && ta && !tb && na == nb && na > 2 && sa[..na - 1] == sb[..nb - 1] {
        let rows: usize = sa[..na - 1].iter().product();
        let a = p.reshape(a, &[rows, sa[na - 1]])?;
        let b = p.reshape(b, &[rows, sb[nb - 1]])?;
        let d = p.matmul(a, b, true, false)?;
        return p.reshape(d, wanted);
    }
    p.matmul(a, b, ta, tb)
}

/// `x · weightᵀ + bias`.
fn linear(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (xs, ws) = (p.shape_of("x")?, p.shape_of("weight")?);
    let rows: usize = xs[..xs.len() - 1].iter().product();
    let dy = p.dy()?;
    if p.wants("x") {
        let weight = p.x("weight")?;
        let weight = p.cast_like(weight, dy)?;
        let flat = p.reshape(dy, &[rows, ws[0]])?;
        let dx = p.matmul(flat, weight, false, false)?;
        let dx = p.reshape(dx, &xs)?;
        p.give("x", dx)?;
    }
    if p.wants("weight") {
        let x = p.x("x")?;
        let x = p.reshape(x, &[rows, ws[1]])?;
        let flat = p.reshape(dy, &[rows, ws[0]])?;
        let d = p.matmul(flat, x, true, false)?;
        p.give("weight", d)?;
    }
    if p.wants("bias") {
        p.give("bias", dy)?;
    }
    Ok(())
}

/// The cotangent of a factor is the product of the other factor and the result's cotangent, under the same letters. A letter
/// that only this factor has is summed by the forward; its cotangent repeats along it.
fn einsum(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let equation: String = p.c.text("equation")?.chars().filter(|c| !c.is_whitespace()).collect();
    let parts = equation.split_once("->").and_then(|(terms, out)| Some((terms.split_once(',')?, out)));
    let Some(((first, second), out)) = parts else {
        return Err(p.refuse(format!("the equation \"{equation}\" does not have the form a,b->c")));
    };
    let terms = [first, second];
    let distinct = |t: &str| t.chars().enumerate().all(|(i, c)| c.is_ascii_alphabetic() && !t[..i].contains(c));
    if !terms.iter().chain([&out]).all(|t| t.is_ascii() && distinct(t)) {
        return Err(p.refuse(format!("the equation \"{equation}\" has a letter twice in one term")));
    }
    let values = p.operands("values");
    let [x, y] = values[..] else { return Err(p.refuse("has not two operands")) };
    let dz = p.dy()?;
    for (i, (wanted, other)) in [(x, y), (y, x)].into_iter().enumerate() {
        if !p.tape.is_active(wanted) {
            continue;
        }
        let (own, others) = (terms[i], terms[1 - i]);
        if own.chars().any(|c| !out.contains(c) && !others.contains(c)) {
            return Err(p.refuse(format!("a letter of \"{equation}\" is summed within one factor")));
        }
        let other = p.tape.forward(other)?;
        let equation = Constant::string(&format!("{out},{others}->{own}"));
        let d = p.emit("einsum", [("values", vec![dz, other].into()), ("equation", equation.into())])?;
        p.give_value(wanted, d)?;
    }
    Ok(())
}

/// `softmax(q kᵀ / √E + mask) v`; a mask of truth values keeps or drops.
fn attention(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (q, k, v, dy) = (p.x("query")?, p.x("key")?, p.x("value")?, p.dy()?);
    let (qs, rank) = (p.shape(q)?, p.shape(q)?.len());
    let scale = 1.0 / (qs[rank - 1] as f32).sqrt();
    let scaled = p.scale(q, scale)?;
    let mut scores = p.matmul(scaled, k, false, true)?;
    if p.c.has("attn_mask") {
        let mask = p.x("attn_mask")?;
        scores = match p.dtype(mask) {
            Some(DataType::Bool) => {
                // Below any score, and finite, so that a row without a key has a softmax.
                let lowest = if p.dtype(q) == Some(DataType::Fp16) { -6e4 } else { -3e38 };
                let lowest = p.tape.b.scalar_like(q, lowest)?;
                p.select(mask, scores, lowest)?
            }
            _ => {
                let mask = p.cast_like(mask, scores)?;
                p.add(scores, mask)?
            }
        };
    }
    let probs = p.emit("softmax", [("x", scores.into()), ("axis", Constant::int32(-1).into())])?;
    if p.wants("value") {
        let dv = p.matmul(probs, dy, true, false)?;
        p.give("value", dv)?;
    }
    if !["query", "key", "attn_mask"].iter().any(|a| p.wants(a)) {
        return Ok(());
    }
    let dprobs = p.matmul(dy, v, false, true)?;
    let axis = p.shape(probs)?.len() - 1;
    let ds = softmax_vjp(p, probs, dprobs, axis)?;
    if p.wants("attn_mask") {
        p.give("attn_mask", ds)?;
    }
    if p.wants("query") {
        let dq = p.matmul(ds, k, false, false)?;
        let dq = p.scale(dq, scale)?;
        p.give("query", dq)?;
    }
    if p.wants("key") {
        let dk = p.matmul(ds, scaled, true, false)?;
        p.give("key", dk)?;
    }
    Ok(())
}
