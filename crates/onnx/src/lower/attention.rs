//! Attention, linear attention, rotary embedding, and the causal convolution that such models use.

use ferrane_mil::emit::Emit;
use ferrane_mil::{DataType, Transpose, ValueId};

use super::state::{Built, Lower, Stop, one, unmapped};
use crate::element::ElementType;

type Results = Built<Vec<Option<ValueId>>>;

/// Transposes `[batch, sequence, heads · size]` to `[batch, heads, sequence, size]`.
fn heads(l: &mut Lower<'_>, x: ValueId, count: i64) -> Built {
    let shape = l.ranked(x, 3)?;
    if shape.len() == 4 {
        return Ok(x);
    }
    let count = usize::try_from(count).unwrap_or(0);
    if shape.len() != 3 || count == 0 || !shape[2].is_multiple_of(count) {
        return Err(Stop::Rejected(format!("{shape:?} does not hold {count} heads")));
    }
    let x = l.reshape(x, &[shape[0], shape[1], count, shape[2] / count])?;
    l.transpose(x, &[0, 2, 1, 3])
}

/// Repeats each head `times` times, copies next to each other.
fn repeated(l: &mut Lower<'_>, x: ValueId, times: usize) -> Built {
    if times == 1 {
        return Ok(x);
    }
    let shape = l.ranked(x, 4)?;
    let wide = l.reshape(x, &[shape[0], shape[1], 1, shape[2] * shape[3]])?;
    let wide = l.b.tile(&l.label, wide, &[1, 1, times as i32, 1])?;
    l.reshape(wide, &[shape[0], shape[1] * times, shape[2], shape[3]])
}

/// An additive mask: −∞ where a bool mask is false, a float mask as it is; padded with −∞ to the
/// width of the scores.
fn additive(l: &mut Lower<'_>, mask: ValueId, like: ValueId, width: usize) -> Built {
    let mut mask = mask;
    if l.dtype(mask) == DataType::Bool {
        mask = l.select(mask, l.num(like, 0.0), l.num(like, f32::NEG_INFINITY))?;
    }
    let mut shape = l.ranked(mask, 1)?;
    let last = shape.len() - 1;
    if shape[last] < width {
        let missing = width - shape[last];
        shape[last] = missing;
        let total = l.table(&shape)?;
        let fill = l.tensor(like, &shape, &vec![f64::NEG_INFINITY; total])?;
        mask = l.concat(&[mask, fill], last)?;
    }
    Ok(mask)
}

pub(super) fn attention(l: &mut Lower<'_>) -> Results {
    let (q, k, v) = (l.x(0)?, l.x(1)?, l.x(2)?);
    let dtype = l.dtype(q);
    let flat = l.shape(q)?.len() == 3;
    let (q_heads, kv_heads) = (l.int("q_num_heads", 1), l.int("kv_num_heads", 1));
    let q = heads(l, q, q_heads)?;
    let (mut k, mut v) = (heads(l, k, kv_heads)?, heads(l, v, kv_heads)?);
    let mut past = 0;
    if let Some(key) = l.maybe(4)? {
        past = l.ranked(key, 4)?[2];
        k = l.concat(&[key, k], 2)?;
    }
    if let Some(value) = l.maybe(5)? {
        v = l.concat(&[value, v], 2)?;
    }
    let (present_key, present_value) = (k, v);
    let (q_shape, k_shape) = (l.ranked(q, 4)?, l.ranked(k, 4)?);
    let Some(groups) = q_shape[1].checked_div(k_shape[1]) else {
        return Err(Stop::Rejected("keys without heads".into()));
    };
    let (k, v) = (repeated(l, k, groups)?, repeated(l, v, groups)?);
    let (rows, columns) = (q_shape[2], k_shape[2]);
    let scale = l.float("scale", 1.0 / (q_shape[3] as f32).sqrt());
    let softcap = l.float("softcap", 0.0);
    let causal = l.int("is_causal", 0) != 0;
    let fused = l.target >= ferrane_mil::Opset::IOS18;
    let plain = fused && !l.given("scale") && softcap == 0.0 && !l.wants(3);
    let mut bias: Option<ValueId> = None;
    if let Some(mask) = l.maybe(3)? {
        bias = Some(additive(l, mask, q, columns)?);
    }
    if causal {
        l.table(&[rows, columns])?;
        let hidden: Vec<f64> = (0..rows * columns)
            .map(|i| if i % columns > i / columns + past { f64::NEG_INFINITY } else { 0.0 })
            .collect();
        let triangle = l.tensor(q, &[rows, columns], &hidden)?;
        bias = Some(match bias {
            Some(b) => l.bin("add", b, triangle)?,
            None => triangle,
        });
    }
    if let Some(lengths) = l.ints_if(6)? {
        l.table(&[lengths.len(), columns])?;
        let padding: Vec<f64> = lengths
            .iter()
            .flat_map(|&n| (0..columns as i64).map(move |j| if j < n { 0.0 } else { f64::NEG_INFINITY }))
            .collect();
        let padding = l.tensor(q, &[lengths.len(), 1, 1, columns], &padding)?;
        bias = Some(match bias {
            Some(b) => l.bin("add", b, padding)?,
            None => padding,
        });
    }
    let (mut y, mut scores) = (q, q);
    if plain {
        let whole = match bias {
            Some(b) => {
                let b = l.cast(b, dtype)?;
                Some(super::shape::broadcast_to(l, b, &[q_shape[0], q_shape[1], rows, columns])?)
            }
            None => None,
        };
        y = l.b.scaled_dot_product_attention(&l.label, q, k, v, whole)?;
    } else {
        let scaled = l.bin("mul", q, l.num(q, scale))?;
        let mut s = l.b.matmul(&l.label, scaled, k, Transpose::Y)?;
        let mode = l.int("qk_matmul_output_mode", 0);
        scores = s;
        if softcap > 0.0 {
            let small = l.bin("mul", s, l.num(s, 1.0 / softcap))?;
            let bent = l.un("tanh", small)?;
            s = l.bin("mul", bent, l.num(s, softcap))?;
            scores = s;
        }
        if let Some(b) = bias {
            let b = l.cast(b, dtype)?;
            s = l.bin("add", s, b)?;
        }
        if mode == 2 {
            scores = s;
        }
        let p = l.b.softmax(&l.label, s, -1)?;
        if mode == 3 {
            scores = p;
        }
        y = if y == q { l.bin("matmul", p, v)? } else { y };
    }
    if flat {
        let size = l.ranked(y, 4)?[3];
        y = l.transpose(y, &[0, 2, 1, 3])?;
        y = l.reshape(y, &[q_shape[0], rows, q_shape[1] * size])?;
    }
    Ok(vec![Some(y), Some(present_key), Some(present_value), Some(scores)])
}

/// Passes `x` through the graph of this name, if the node has one.
fn modified(l: &mut Lower<'_>, name: &str, x: ValueId, element: ElementType) -> Built {
    if !l.given(name) {
        return Ok(x);
    }
    let graph = l.graph_of(name)?;
    let entry = l.make(Some(x), None, element);
    let found = l.subgraph(graph, vec![entry])?;
    let [found] = &found[..] else { return Err(Stop::Rejected(format!("`{name}` has {} outputs", found.len()))) };
    let y = l.value_of(name, found)?;
    let (before, after) = (l.shape(x)?, l.shape(y)?);
    if before != after {
        return Err(Stop::Rejected(format!("`{name}` makes {after:?} of {before:?}")));
    }
    l.cast(y, l.dtype(x))
}

/// Attention with graphs that change the scores and the probabilities as a whole.
pub(super) fn flex_attention(l: &mut Lower<'_>) -> Results {
    let (q, k, v) = (l.x(0)?, l.x(1)?, l.x(2)?);
    let (q_shape, k_shape) = (l.ranked(q, 4)?, l.ranked(k, 4)?);
    let groups = q_shape[1].checked_div(k_shape[1]).filter(|groups| groups * k_shape[1] == q_shape[1]);
    let Some(groups) = groups.filter(|_| q_shape.len() == 4 && k_shape.len() == 4) else {
        return Err(Stop::Rejected(format!("queries of shape {q_shape:?} for keys of shape {k_shape:?}")));
    };
    let (k, v) = (repeated(l, k, groups)?, repeated(l, v, groups)?);
    let scale = l.float("scale", 1.0 / (q_shape[3] as f32).sqrt());
    let scaled = l.bin("mul", q, l.num(q, scale))?;
    let scores = l.b.matmul(&l.label, scaled, k, Transpose::Y)?;
    let element = ElementType::from_number(l.int("softmax_precision", 1) as i32);
    let dtype = l.mil(element)?;
    let scores = l.cast(scores, dtype)?;
    let scores = modified(l, "score_mod", scores, element)?;
    let probabilities = l.b.softmax(&l.label, scores, -1)?;
    let probabilities = modified(l, "prob_mod", probabilities, element)?;
    let values = l.cast(v, dtype)?;
    let y = l.bin("matmul", probabilities, values)?;
    one(l.cast(y, l.dtype(v))?)
}

pub(super) fn rotary(l: &mut Lower<'_>) -> Results {
    rotated(l, [1, 2, 3])
}

/// A rotation with the tables of cosines and sines and the positions at these inputs.
pub(super) fn rotated(l: &mut Lower<'_>, [cos_at, sin_at, ids_at]: [usize; 3]) -> Results {
    let x = l.x(0)?;
    let shape = l.ranked(x, 3)?;
    let count = l.int("num_heads", 0);
    if shape.len() == 3 && count == 0 {
        return unmapped("no number of heads is stated");
    }
    let x4 = heads(l, x, count)?;
    let whole = l.ranked(x4, 4)?;
    let (batch, sequence, size) = (whole[0], whole[2], whole[3]);
    let rotated = match l.int("rotary_embedding_dim", 0) {
        0 => size,
        n if n > 0 && n as usize <= size => n as usize,
        n => return Err(Stop::Rejected(format!("{n} of {size} elements rotate"))),
    };
    let half = rotated / 2;
    let mut table = |i: usize| -> Built {
        let mut t = l.x(i)?;
        if l.has(ids_at) {
            let ids = l.x(ids_at)?;
            t = l.b.gather(&l.label, t, ids, 0)?;
        }
        l.reshape(t, &[batch, 1, sequence, half])
    };
    let (cos, sin) = (table(cos_at)?, table(sin_at)?);
    let turning = l.slice(x4, 3, 0, rotated)?;
    let paired = l.int("interleaved", 0) != 0;
    let (a, b) = if paired {
        let pairs = l.reshape(turning, &[batch, whole[1] * sequence, half, 2])?;
        let mut side = |i: usize| -> Built {
            let s = l.slice(pairs, 3, i, 1)?;
            l.reshape(s, &[batch, whole[1], sequence, half])
        };
        (side(0)?, side(1)?)
    } else {
        (l.slice(turning, 3, 0, half)?, l.slice(turning, 3, half, half)?)
    };
    let (ac, bs) = (l.bin("mul", a, cos)?, l.bin("mul", b, sin)?);
    let (bc, as_) = (l.bin("mul", b, cos)?, l.bin("mul", a, sin)?);
    let (real, imaginary) = (l.bin("sub", ac, bs)?, l.bin("add", bc, as_)?);
    let mut y = if paired {
        let real = l.reshape(real, &[batch, whole[1] * sequence, half, 1])?;
        let imaginary = l.reshape(imaginary, &[batch, whole[1] * sequence, half, 1])?;
        let both = l.concat(&[real, imaginary], 3)?;
        l.reshape(both, &[batch, whole[1], sequence, rotated])?
    } else {
        l.concat(&[real, imaginary], 3)?
    };
    if rotated < size {
        let rest = l.slice(x4, 3, rotated, size - rotated)?;
        y = l.concat(&[y, rest], 3)?;
    }
    if shape.len() == 3 {
        y = l.transpose(y, &[0, 2, 1, 3])?;
        y = l.reshape(y, &shape)?;
    }
    one(y)
}

/// Updates the state `[batch, heads, key, value]` step by step: decay, correct, write, read.
pub(super) fn linear_attention(l: &mut Lower<'_>) -> Results {
    let (q_heads, kv_heads) = (l.int("q_num_heads", 1), l.int("kv_num_heads", 1));
    let rule = l.text("update_rule", "gated_delta");
    let (gated, delta) = (rule.starts_with("gated"), rule.ends_with("delta"));
    let (q, k, v) = (l.x(0)?, l.x(1)?, l.x(2)?);
    let dtype = l.dtype(q);
    let open = |l: &mut Lower<'_>, x: ValueId, heads_of: i64| -> Built {
        let x = heads(l, x, heads_of)?;
        l.cast(x, DataType::Fp32)
    };
    let (q, k, v) = (open(l, q, q_heads)?, open(l, k, kv_heads)?, open(l, v, kv_heads)?);
    let (k_shape, v_shape) = (l.ranked(k, 4)?, l.ranked(v, 4)?);
    let (batch, count, steps, width) = (k_shape[0], k_shape[1], k_shape[2], k_shape[3]);
    let decay = if gated { Some(l.x(4)?) } else { None };
    let decay = match decay {
        Some(g) => Some(open(l, g, kv_heads)?),
        None => None,
    };
    let beta = if delta { Some(l.x(5)?) } else { None };
    let beta = match beta {
        Some(b) => {
            let last = l.ranked(b, 3)?[2] as i64;
            Some(open(l, b, last)?)
        }
        None => None,
    };
    let mut state = match l.maybe(3)? {
        Some(s) => l.cast(s, DataType::Fp32)?,
        None => {
            let shape = [batch, count, width, v_shape[3]];
            let total = l.table(&shape)?;
            l.tensor(q, &shape, &vec![0.0; total])?
        }
    };
    let scale = match l.float("scale", 0.0) {
        0.0 => 1.0 / (width as f32).sqrt(),
        s => s,
    };
    let groups = q_heads.checked_div(kv_heads).unwrap_or(0).max(0) as usize;
    l.spend(steps.saturating_mul(8))?;
    let mut outputs = Vec::new();
    for step in 0..steps {
        let at = |l: &mut Lower<'_>, x: ValueId| l.slice(x, 2, step, 1);
        let (qt, kt, mut vt) = (at(l, q)?, at(l, k)?, at(l, v)?);
        let column = l.transpose(kt, &[0, 1, 3, 2])?;
        if let Some(decay) = decay {
            let g = at(l, decay)?;
            let g = l.transpose(g, &[0, 1, 3, 2])?;
            let g = l.un("exp", g)?;
            state = l.bin("mul", state, g)?;
        }
        if let Some(beta) = beta {
            let found = l.bin("matmul", kt, state)?;
            let missing = l.bin("sub", vt, found)?;
            let b = at(l, beta)?;
            vt = l.bin("mul", missing, b)?;
        }
        let outer = l.bin("mul", column, vt)?;
        state = l.bin("add", state, outer)?;
        let read = repeated(l, state, groups)?;
        let y = l.bin("matmul", qt, read)?;
        outputs.push(l.bin("mul", y, l.num(y, scale))?);
    }
    let y = l.concat(&outputs, 2)?;
    let y = l.transpose(y, &[0, 2, 1, 3])?;
    let y = l.reshape(y, &[batch, steps, q_heads as usize * v_shape[3]])?;
    let kept = if l.has(3) { l.element(3)?.mil().unwrap_or(dtype) } else { dtype };
    let (y, state) = (l.cast(y, dtype)?, l.cast(state, kept)?);
    Ok(vec![Some(y), Some(state)])
}

/// A depthwise convolution over the past and the input; the end of both is the next past.
pub(super) fn causal_conv(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (l.x(0)?, l.x(1)?);
    let (shape, kernel) = (l.ranked(x, 3)?, l.ranked(weight, 3)?);
    let Some(past) = kernel[2].checked_sub(1) else { return Err(Stop::Rejected("an empty kernel".into())) };
    let padded = match l.maybe(3)? {
        Some(state) if past > 0 => l.concat(&[state, x], 2)?,
        None if past > 0 => {
            let total = l.table(&[shape[0], shape[1], past])?;
            let zeros = l.tensor(x, &[shape[0], shape[1], past], &vec![0.0; total])?;
            l.concat(&[zeros, x], 2)?
        }
        _ => x,
    };
    let bias = if l.has(2) { Some(l.x(2)?) } else { None };
    let mut options = ferrane_mil::Conv::default();
    (options.strides, options.pad, options.dilations) = (vec![1], vec![0, 0], vec![1]);
    options.groups = shape[1] as i32;
    let mut y = l.b.conv(&l.label, padded, weight, None, &options)?;
    if let Some(bias) = bias {
        let bias = l.reshape(bias, &[1, shape[1], 1])?;
        y = l.bin("add", y, bias)?;
    }
    if l.text("activation", "none") != "none" {
        y = l.un("silu", y)?;
    }
    if past == 0 && l.wants(1) {
        return unmapped("a state without elements");
    }
    let state = if past > 0 { Some(l.slice(padded, 2, shape[2], past)?) } else { None };
    Ok(vec![Some(y), state])
}
