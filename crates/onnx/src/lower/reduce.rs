//! Reductions, arg-reductions, cumulative sums, matrix products, determinants.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType, Transpose, ValueId};

use super::norm::hardmax_of;
use super::state::{Built, Lower, Stop, one, unmapped};
use crate::element::ElementType;

type Results = Built<Vec<Option<ValueId>>>;

fn reduction(l: &mut Lower<'_>, op: &str) -> Results {
    let mut x = l.x(0)?;
    let rank = l.shape(x)?.len();
    let given = match l.list("axes") {
        Some(axes) => Some(axes),
        None => l.ints_if(1)?,
    };
    let axes = match given {
        Some(axes) if !axes.is_empty() => axes.iter().map(|&a| l.normal(a, rank)).collect::<Built<Vec<_>>>()?,
        _ if l.int("noop_with_empty_axes", 0) != 0 => Vec::new(),
        _ => (0..rank).collect(),
    };
    let keep = l.int("keepdims", 1) != 0;
    if axes.is_empty() {
        // No axes: each element is a reduction of itself.
        return one(match op {
            "reduce_sum_square" => l.un("square", x)?,
            "reduce_l1_norm" | "reduce_l2_norm" => l.un("abs", x)?,
            "reduce_log_sum" => l.un("log", x)?,
            _ => l.un("identity", x)?,
        });
    }
    let logical = l.dtype(x) == DataType::Bool;
    if logical {
        x = l.cast(x, DataType::Int32)?;
    }
    let y = l.reduce(op, x, &axes, keep)?;
    one(if logical { l.cast(y, DataType::Bool)? } else { y })
}

macro_rules! reductions {
    ($($name:ident = $op:literal;)*) => {
        $(pub(super) fn $name(l: &mut Lower<'_>) -> Results {
            reduction(l, $op)
        })*
    };
}

reductions! {
    reduce_sum = "reduce_sum";
    reduce_mean = "reduce_mean";
    reduce_max = "reduce_max";
    reduce_min = "reduce_min";
    reduce_prod = "reduce_prod";
    reduce_l1 = "reduce_l1_norm";
    reduce_l2 = "reduce_l2_norm";
    reduce_log_sum = "reduce_log_sum";
    reduce_log_sum_exp = "reduce_log_sum_exp";
    reduce_sum_square = "reduce_sum_square";
}

fn arg(l: &mut Lower<'_>, op: &str) -> Results {
    let mut x = l.x(0)?;
    let shape = l.shape(x)?;
    let axis = l.axis(0, shape.len())?;
    let last = l.int("select_last_index", 0) != 0;
    if last {
        x = l.op("reverse", [("x", x.into()), ("axes", Constant::int32s(&[axis as i32]).into())])?;
    }
    let keep = Constant::bool(l.int("keepdims", 1) != 0);
    let axis_value = Constant::int32(axis as i32);
    let y = l.op(op, [("x", x.into()), ("axis", axis_value.into()), ("keep_dims", keep.into())])?;
    one(if last { l.bin("sub", Constant::int32(shape[axis] as i32 - 1), y)? } else { y })
}

pub(super) fn arg_max(l: &mut Lower<'_>) -> Results {
    arg(l, "reduce_argmax")
}

pub(super) fn arg_min(l: &mut Lower<'_>) -> Results {
    arg(l, "reduce_argmin")
}

pub(super) fn cum_sum(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.shape(x)?.len();
    let axis = l.normal(l.ints(1)?.first().copied().unwrap_or(0), rank)?;
    let flag = |name: &str| Constant::bool(l.int(name, 0) != 0);
    let (exclusive, reverse) = (flag("exclusive"), flag("reverse"));
    let axis = Constant::int32(axis as i32);
    let args = [("x", x.into()), ("axis", axis.into()), ("exclusive", exclusive.into()), ("reverse", reverse.into())];
    one(l.op("cumsum", args)?)
}

/// MIL has no cumulative product: one product for each position.
pub(super) fn cum_prod(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let axis = l.normal(l.ints(1)?.first().copied().unwrap_or(0), shape.len())?;
    let (exclusive, reverse) = (l.int("exclusive", 0) != 0, l.int("reverse", 0) != 0);
    let extent = shape[axis];
    l.spend(extent.saturating_mul(2))?;
    let first = l.slice(x, axis, 0, 1)?;
    let ones = if l.is_float(x) { l.bin("pow", first, l.num(x, 0.0))? } else { l.bin("equal", first, first)? };
    let mut total = l.cast(ones, l.dtype(x))?;
    let mut parts = Vec::new();
    for i in 0..extent {
        let part = l.slice(x, axis, if reverse { extent - 1 - i } else { i }, 1)?;
        let next = l.bin("mul", total, part)?;
        parts.push(if exclusive { total } else { next });
        total = next;
    }
    if reverse {
        parts.reverse();
    }
    one(l.concat(&parts, axis)?)
}

pub(super) fn matmul(l: &mut Lower<'_>) -> Results {
    let (x, y) = (l.x(0)?, l.x(1)?);
    one(l.bin("matmul", x, y)?)
}

pub(super) fn gemm(l: &mut Lower<'_>) -> Results {
    let (a, b) = (l.x(0)?, l.x(1)?);
    let (alpha, beta) = (l.float("alpha", 1.0), l.float("beta", 1.0));
    let mut y = l.b.matmul(&l.label, a, b, Transpose::from_flags(l.int("transA", 0) != 0, l.int("transB", 0) != 0))?;
    if alpha != 1.0 {
        y = l.bin("mul", y, l.num(y, alpha))?;
    }
    if let Some(mut c) = l.maybe(2)? {
        if beta != 1.0 {
            c = l.bin("mul", c, l.num(c, beta))?;
        }
        y = l.bin("add", y, c)?;
    }
    one(y)
}

/// Subtracts the zero point from x, as int32. A vector of zero points lies along `axis`.
pub(super) fn centered(l: &mut Lower<'_>, x: usize, zero: usize, axis: usize) -> Built {
    let x = l.x(x)?;
    let Some(mut point) = l.maybe(zero)? else { return Ok(x) };
    let (shape, extents) = (l.shape(x)?, l.shape(point)?);
    if extents.len() == 1 && extents[0] == 1 {
        point = l.reshape(point, &[])?;
    } else if extents.len() == 1 && axis < shape.len() {
        let mut wide = vec![1; shape.len()];
        wide[axis] = extents[0];
        point = l.reshape(point, &wide)?;
    }
    l.bin("sub", x, point)
}

pub(super) fn matmul_integer(l: &mut Lower<'_>) -> Results {
    let (rows, columns) = (l.extents(0)?.len(), l.extents(1)?.len());
    l.elements = Some(ElementType::Int32);
    let a = centered(l, 0, 2, rows.saturating_sub(2))?;
    let b = centered(l, 1, 3, columns.saturating_sub(1))?;
    one(l.bin("matmul", a, b)?)
}

/// Computes any equation: the axes of an ellipsis get letters of their own, letters that occur
/// twice in one operand are reduced to the diagonal, and the operands are broadcast over all
/// letters, multiplied and summed. Two operands use MIL's `einsum` if it accepts the equation.
pub(super) fn einsum(l: &mut Lower<'_>) -> Results {
    let equation: String = l.text("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    let operands: Vec<ValueId> = (0..l.count()).map(|i| l.x(i)).collect::<Built<_>>()?;
    if let [x, y] = operands[..] {
        let values = vec![x, y];
        let args = [("values", values.into()), ("equation", Constant::string(&equation).into())];
        if let Ok(z) = l.op("einsum", args) {
            return one(z);
        }
    }
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left.to_string(), Some(right.to_string())),
        None => (equation.clone(), None),
    };
    // Axes of an ellipsis get capital letters from Z down, right-aligned.
    let mut terms = Vec::new();
    let mut dots = 0;
    for (term, &x) in left.split(',').zip(&operands) {
        let rank = l.shape(x)?.len();
        let named = term.replace("...", "").len();
        let wide = if term.contains("...") { rank.saturating_sub(named) } else { 0 };
        dots = dots.max(wide);
        terms.push((term.to_string(), wide));
    }
    let named = |t: &str| t.replace("...", "").chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_uppercase());
    if dots > 16 || !equation.replace("->", ",").split(',').all(named) {
        return Err(Stop::Rejected(format!("the equation `{equation}`")));
    }
    let ellipsis = |n: usize| -> String { (0..n).rev().map(|i| (b'Z' - i as u8) as char).collect() };
    let terms: Vec<String> = terms.iter().map(|(t, n)| t.replace("...", &ellipsis(*n))).collect();
    let output = match right {
        Some(right) => right.replace("...", &ellipsis(dots)),
        None => {
            let all: String = terms.concat();
            let mut once: Vec<char> =
                all.chars().filter(|c| !c.is_ascii_uppercase() && all.matches(*c).count() == 1).collect();
            once.sort_unstable();
            ellipsis(dots) + &once.iter().collect::<String>()
        }
    };
    let mut letters: Vec<char> = output.chars().collect();
    for c in terms.concat().chars() {
        if !letters.contains(&c) {
            letters.push(c);
        }
    }
    if let ([a, b], [x, y]) = (&terms[..], &operands[..])
        && let Some(z) = contraction(l, (a, *x), (b, *y), &output)?
    {
        return one(z);
    }
    let mut product: Option<ValueId> = None;
    for (term, &operand) in terms.iter().zip(&operands) {
        let (mut x, mut names): (ValueId, Vec<char>) = (operand, term.chars().collect());
        if names.len() != l.shape(x)?.len() {
            return Err(Stop::Rejected(format!("`{term}` names {} axes of {:?}", names.len(), l.shape(x)?)));
        }
        while let Some((first, second)) = twice(&names) {
            x = diagonal(l, x, first, second)?;
            names.remove(second);
        }
        let order: Vec<usize> = letters.iter().filter_map(|c| names.iter().position(|n| n == c)).collect();
        let shape = l.shape(x)?;
        let wide: Vec<usize> =
            letters.iter().map(|c| names.iter().position(|n| n == c).map_or(1, |i| shape[i])).collect();
        x = l.transpose(x, &order)?;
        x = l.reshape(x, &wide)?;
        product = Some(match product {
            Some(p) => l.bin("mul", p, x)?,
            None => x,
        });
    }
    let Some(product) = product else { return unmapped("an equation without operands") };
    let summed: Vec<usize> = (output.len()..letters.len()).collect();
    one(match summed.is_empty() {
        true => l.un("identity", product)?,
        false => l.reduce("reduce_sum", product, &summed, false)?,
    })
}

/// A product of two operands as one batched matrix product; `None` if a letter occurs twice in a
/// term, or the extents of a letter differ.
fn contraction(l: &mut Lower<'_>, x: (&str, ValueId), y: (&str, ValueId), output: &str) -> Built<Option<ValueId>> {
    let mut sides = Vec::new();
    for (term, value, other) in [(x.0, x.1, y.0), (y.0, y.1, x.0)] {
        let (letters, shape) = (term.chars().collect::<Vec<char>>(), l.shape(value)?);
        if letters.len() != shape.len() || twice(&letters).is_some() {
            return Ok(None);
        }
        // What only this operand has and the result does not is summed first.
        let lone: Vec<usize> =
            (0..letters.len()).filter(|&i| !other.contains(letters[i]) && !output.contains(letters[i])).collect();
        let value = if lone.is_empty() { value } else { l.reduce("reduce_sum", value, &lone, false)? };
        let kept: Vec<(char, usize)> =
            (0..letters.len()).filter(|i| !lone.contains(i)).map(|i| (letters[i], shape[i])).collect();
        sides.push((value, kept));
    }
    let [(a, left), (b, right)] = &sides[..] else { return Ok(None) };
    let extent = |side: &[(char, usize)], c: char| side.iter().find(|(n, _)| *n == c).map(|(_, e)| *e);
    if left.iter().any(|(c, e)| extent(right, *c).is_some_and(|other| other != *e)) {
        return Ok(None);
    }
    if output.chars().any(|c| extent(left, c).is_none() && extent(right, c).is_none())
        || twice(&output.chars().collect::<Vec<_>>()).is_some()
    {
        return Ok(None);
    }
    let (mut batch, mut rows, mut inner) = (Vec::new(), Vec::new(), Vec::new());
    for (c, e) in left {
        match (extent(right, *c).is_some(), output.contains(*c)) {
            (true, true) => batch.push((*c, *e)),
            (true, false) => inner.push((*c, *e)),
            _ => rows.push((*c, *e)),
        }
    }
    let columns: Vec<(char, usize)> = right.iter().filter(|(c, _)| extent(left, *c).is_none()).copied().collect();
    let size = |part: &[(char, usize)]| part.iter().map(|(_, e)| e).product::<usize>();
    let mut arranged = |value: ValueId, side: &[(char, usize)], parts: [&[(char, usize)]; 3]| -> Built {
        let order: Vec<usize> =
            parts.concat().iter().filter_map(|(c, _)| side.iter().position(|(n, _)| n == c)).collect();
        let value = l.transpose(value, &order)?;
        l.reshape(value, &parts.map(size))
    };
    let p = arranged(*a, left, [&batch, &rows, &inner])?;
    let q = arranged(*b, right, [&batch, &inner, &columns])?;
    let z = l.bin("matmul", p, q)?;
    let made = [&batch[..], &rows[..], &columns[..]].concat();
    let z = l.reshape(z, &made.iter().map(|(_, e)| *e).collect::<Vec<_>>())?;
    let order: Vec<usize> = output.chars().filter_map(|c| made.iter().position(|(n, _)| *n == c)).collect();
    l.transpose(z, &order).map(Some)
}

fn twice(names: &[char]) -> Option<(usize, usize)> {
    (0..names.len()).find_map(|i| (i + 1..names.len()).find(|&j| names[i] == names[j]).map(|j| (i, j)))
}

/// Elements with equal indices on two axes; the second axis vanishes.
fn diagonal(l: &mut Lower<'_>, x: ValueId, first: usize, second: usize) -> Built {
    let shape = l.shape(x)?;
    let n = shape[first];
    if shape[second] != n {
        return Err(Stop::Rejected(format!("a diagonal of {n} by {}", shape[second])));
    }
    l.table(&[n, n])?;
    let mut mask_shape = vec![1; shape.len()];
    (mask_shape[first], mask_shape[second]) = (n, n);
    let eye: Vec<f64> = (0..n * n).map(|i| f64::from(u8::from(i / n == i % n))).collect();
    let mask = l.tensor(x, &mask_shape, &eye)?;
    let kept = l.bin("mul", x, mask)?;
    l.reduce("reduce_sum", kept, &[second], false)
}

/// Gaussian elimination: each step divides the rows below by the row with the largest first
/// element, and the determinant is the product of these elements and of the signs of the exchanges.
pub(super) fn det(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.ranked(x, 2)?;
    let (outer, sides) = shape.split_at(shape.len() - 2);
    let (batch, n) = (outer.iter().product::<usize>(), sides[0]);
    if sides[1] != n || shape.contains(&0) {
        return Err(Stop::Rejected(format!("matrices of shape {shape:?}")));
    }
    l.spend(n.saturating_mul(24))?;
    let mut rest = l.reshape(x, &[batch, n, n])?;
    let mut product: Option<ValueId> = None;
    for m in (1..=n).rev() {
        let first = l.slice(rest, 2, 0, 1)?;
        let mut factor = first;
        if m > 1 {
            let size = l.un("abs", first)?;
            let chosen = hardmax_of(l, size, 1)?;
            let choice = l.reshape(chosen, &[batch, 1, m])?;
            let row = l.bin("matmul", choice, rest)?;
            // The first row takes the place of the chosen one. Products with 0 and 1 are exact.
            let top = l.slice(rest, 1, 0, 1)?;
            let kept = l.bin("sub", l.num(chosen, 1.0), chosen)?;
            let (kept, placed) = (l.bin("mul", rest, kept)?, l.bin("mul", chosen, top)?);
            let exchanged = l.bin("add", kept, placed)?;
            let below = l.slice(exchanged, 1, 1, m - 1)?;
            let pivot = l.slice(row, 2, 0, 1)?;
            // Without a pivot the determinant is 0, whatever the other rows are divided by.
            let none = l.bin("equal", pivot, l.num(pivot, 0.0))?;
            let divisor = l.select(none, l.num(pivot, 1.0), pivot)?;
            let column = l.slice(below, 2, 0, 1)?;
            let ratio = l.bin("real_div", column, divisor)?;
            let tail = l.slice(row, 2, 1, m - 1)?;
            let taken = l.bin("mul", ratio, tail)?;
            let under = l.slice(below, 2, 1, m - 1)?;
            rest = l.bin("sub", under, taken)?;
            // An exchange of two rows changes the sign.
            let stays = l.slice(choice, 2, 0, 1)?;
            let twice = l.bin("mul", stays, l.num(stays, 2.0))?;
            let sign = l.bin("sub", twice, l.num(stays, 1.0))?;
            factor = l.bin("mul", pivot, sign)?;
        }
        product = Some(match product {
            Some(product) => l.bin("mul", product, factor)?,
            None => factor,
        });
    }
    let Some(product) = product else { return Err(Stop::Rejected("an empty matrix".into())) };
    one(l.reshape(product, outer)?)
}
