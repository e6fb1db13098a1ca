//! `matmul`, `linear`, `einsum`, attention.

use super::activation::softmax_vjp;
use super::error::GradError;
use super::pullback::{Expr, Pullback};
use super::rule::{Rule, RuleTable};
use crate::build::Transpose;
use crate::op;
use crate::program::{Constant, DataType, ValueId};

pub(super) const RULES: RuleTable = &[
    (op::MATMUL, Rule::Vjp(matmul)),
    (op::LINEAR, Rule::Vjp(linear)),
    (op::EINSUM, Rule::Vjp(einsum)),
    (op::SCALED_DOT_PRODUCT_ATTENTION, Rule::Vjp(attention)),
];

/// `z = x · y`, each transposed first if its flag says so. A vector takes part as a row or a
/// column.
fn matmul(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (mut xs, mut ys) = (p.shape_of("x")?, p.shape_of("y")?);
    let (row, column) = (xs.len() == 1, ys.len() == 1);
    // The flags do not apply to vectors.
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

/// `a · b` for an operand of the shape `wanted`. If that operand was broadcast over all batches,
/// and the batches can be merged with the reduction axis of both factors, the product itself sums
/// over them.
fn product(p: &mut Pullback<'_, '_>, a: ValueId, b: ValueId, ta: bool, tb: bool, wanted: &[usize]) -> Expr {
    let (sa, sb) = (p.shape(a)?, p.shape(b)?);
    let (na, nb) = (sa.len(), sb.len());
    let shared = wanted[..wanted.len() - 2].iter().all(|&n| n == 1);
    if shared && ta && !tb && na == nb && na > 2 && sa[..na - 1] == sb[..nb - 1] {
        let rows: usize = sa[..na - 1].iter().product();
        let a = p.reshape(a, &[rows, sa[na - 1]])?;
        let b = p.reshape(b, &[rows, sb[nb - 1]])?;
        let d = p.matmul(a, b, Transpose::X)?;
        return p.reshape(d, wanted);
    }
    p.matmul(a, b, Transpose::from_flags(ta, tb))
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
        let dx = p.matmul(flat, weight, Transpose::Neither)?;
        let dx = p.reshape(dx, &xs)?;
        p.give("x", dx)?;
    }
    if p.wants("weight") {
        let x = p.x("x")?;
        let x = p.reshape(x, &[rows, ws[1]])?;
        let flat = p.reshape(dy, &[rows, ws[0]])?;
        let d = p.matmul(flat, x, Transpose::X)?;
        p.give("weight", d)?;
    }
    if p.wants("bias") {
        p.give("bias", dy)?;
    }
    Ok(())
}

/// Computed with matrix products: the letters that all terms share are batches, and those of both
/// factors only are summed. `einsum` itself accepts only two equations, and neither is the adjoint
/// of the other.
fn einsum(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let equation: String = p.c.text("equation")?.chars().filter(|c| !c.is_whitespace()).collect();
    let parts = equation.split_once("->").and_then(|(terms, out)| Some((terms.split_once(',')?, out)));
    let Some(((first, second), out)) = parts else {
        return Err(p.refuse(format!("the equation \"{equation}\" does not have the form a,b->c")));
    };
    let only = |keep: &dyn Fn(char) -> bool, of: &str| of.chars().filter(|c| keep(*c)).collect::<Vec<char>>();
    let batch = only(&|c| first.contains(c) && second.contains(c), out);
    let rows = only(&|c| first.contains(c) && !second.contains(c), out);
    let columns = only(&|c| second.contains(c) && !first.contains(c), out);
    let summed = only(&|c| second.contains(c) && !out.contains(c), first);
    let [x, y] = p.operands("values")[..] else { return Err(p.refuse("does not have two operands")) };
    let (lhs, rhs, result) = (
        [&batch[..], &rows, &summed].concat(),
        [&batch[..], &summed, &columns].concat(),
        [&batch[..], &rows, &columns].concat(),
    );
    let perms = [(first, &lhs), (second, &rhs), (out, &result)].map(|(term, order)| order_of(term, order));
    let [Some(lhs), Some(rhs), Some(result)] = perms else {
        return Err(p.refuse(format!("the equation \"{equation}\" sums within a factor or has a letter twice")));
    };
    let dz = p.dy()?;
    let dz = matrices(p, dz, &result, batch.len(), rows.len())?;
    for (wanted, other, own, others, is_left) in [(x, y, &lhs, &rhs, true), (y, x, &rhs, &lhs, false)] {
        if !p.tape.is_active(wanted) {
            continue;
        }
        let shape = p.source_shape(wanted)?;
        let other = p.tape.forward(other)?;
        let other_rows = if is_left { summed.len() } else { rows.len() };
        let other = matrices(p, other, others, batch.len(), other_rows)?;
        let d = if is_left { p.matmul(dz, other, Transpose::Y)? } else { p.matmul(other, dz, Transpose::X)? };
        let ordered: Vec<usize> = own.iter().map(|&a| shape[a]).collect();
        let d = p.reshape(d, &ordered)?;
        let mut back = vec![0; own.len()];
        own.iter().enumerate().for_each(|(i, &a)| back[a] = i);
        let d = p.transpose(d, &back)?;
        p.give_value(wanted, d)?;
    }
    Ok(())
}

/// The position in `term` of each letter of `order`; `None` unless both have the same letters, each
/// once.
fn order_of(term: &str, order: &[char]) -> Option<Vec<usize>> {
    let letters: Vec<char> = term.chars().collect();
    let perm: Option<Vec<usize>> = order.iter().map(|c| letters.iter().position(|l| l == c)).collect();
    let distinct = |p: &[usize]| p.iter().enumerate().all(|(i, a)| !p[..i].contains(a));
    perm.filter(|p| p.len() == letters.len() && distinct(p))
}

/// A tensor as `[batch, rows, columns]`, its axes put in order first.
fn matrices(p: &mut Pullback<'_, '_>, x: ValueId, perm: &[usize], batch: usize, rows: usize) -> Expr {
    let x = p.transpose(x, perm)?;
    let shape = p.shape(x)?;
    let extent = |range: &[usize]| range.iter().product::<usize>();
    let (outer, inner) = (extent(&shape[..batch]), extent(&shape[batch + rows..]));
    p.reshape(x, &[outer, extent(&shape[batch..batch + rows]), inner])
}

/// `softmax(q kᵀ / √E + mask) v`; a boolean mask selects the scores that count.
fn attention(p: &mut Pullback<'_, '_>) -> Result<(), GradError> {
    let (q, k, v, dy) = (p.x("query")?, p.x("key")?, p.x("value")?, p.dy()?);
    let (qs, rank) = (p.shape(q)?, p.shape(q)?.len());
    let scale = 1.0 / (qs[rank - 1] as f32).sqrt();
    let scaled = p.scale(q, scale)?;
    let mut scores = p.matmul(scaled, k, Transpose::Y)?;
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
    let probs = p.emit(op::SOFTMAX, [("x", scores.into()), ("axis", Constant::int32(-1).into())])?;
    if p.wants("value") {
        let dv = p.matmul(probs, dy, Transpose::X)?;
        p.give("value", dv)?;
    }
    if !["query", "key", "attn_mask"].iter().any(|a| p.wants(a)) {
        return Ok(());
    }
    let dprobs = p.matmul(dy, v, Transpose::Y)?;
    let axis = p.shape(probs)?.len() - 1;
    let ds = softmax_vjp(p, probs, dprobs, axis)?;
    if p.wants("attn_mask") {
        p.give("attn_mask", ds)?;
    }
    if p.wants("query") {
        let dq = p.matmul(ds, k, Transpose::Neither)?;
        let dq = p.scale(dq, scale)?;
        p.give("query", dq)?;
    }
    if p.wants("key") {
        let dk = p.matmul(ds, scaled, Transpose::X)?;
        p.give("key", dk)?;
    }
    Ok(())
}
