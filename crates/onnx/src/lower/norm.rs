//! Normalizations, softmax and losses.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType, ValueId};

use super::conv::along_channels;
use super::state::{Built, Lower, Stop, one, unmapped};

type Results = Built<Vec<Option<ValueId>>>;

/// Reshapes a vector to `[1, C, 1, …]`.
fn channels(l: &mut Lower<'_>, v: ValueId, rank: usize) -> Built {
    let mut shape = vec![1; rank.max(2)];
    shape[1] = l.shape(v)?.iter().product();
    l.reshape(v, &shape)
}

pub(super) fn batch_norm(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.ranked(x, 2)?.len();
    let epsilon = l.float("epsilon", 1e-5);
    if l.int("training_mode", 0) == 0 {
        if (3..=5).contains(&rank) && (1..5).all(|i| l.is_known(i)) {
            let dtype = l.dtype(x);
            let (gamma, beta) = (l.typed(1, dtype)?, l.typed(2, dtype)?);
            let (mean, variance) = (l.typed(3, dtype)?, l.typed(4, dtype)?);
            let epsilon = l.num(x, epsilon);
            let y = l.op(
                "batch_norm",
                [
                    ("x", x.into()),
                    ("mean", mean.into()),
                    ("variance", variance.into()),
                    ("gamma", gamma.into()),
                    ("beta", beta.into()),
                    ("epsilon", epsilon.into()),
                ],
            )?;
            return one(y);
        }
        let (mean, variance) = (l.x(3)?, l.x(4)?);
        let (mean, variance) = (channels(l, mean, rank)?, channels(l, variance, rank)?);
        let centered = l.bin("sub", x, mean)?;
        return one(scaled(l, centered, variance, epsilon, rank)?);
    }
    let axes: Vec<usize> = (0..rank).filter(|&a| a != 1).collect();
    let mean = l.reduce("reduce_mean", x, &axes, true)?;
    let centered = l.bin("sub", x, mean)?;
    let square = l.un("square", centered)?;
    let variance = l.reduce("reduce_mean", square, &axes, true)?;
    let y = scaled(l, centered, variance, epsilon, rank)?;
    let mut results = vec![Some(y)];
    let momentum = l.float("momentum", 0.9);
    for (i, now) in [(3, mean), (4, variance)] {
        let old = l.x(i)?;
        let shape = l.shape(old)?;
        let now = l.reshape(now, &shape)?;
        let (a, b) = (l.bin("mul", old, l.num(old, momentum))?, l.bin("mul", now, l.num(now, 1.0 - momentum))?);
        results.push(Some(l.bin("add", a, b)?));
    }
    Ok(results)
}

/// Computes `x / √(variance + ε) · scale + bias`; scale and bias are inputs 1 and 2, along the
/// channels.
fn scaled(l: &mut Lower<'_>, x: ValueId, variance: ValueId, epsilon: f32, rank: usize) -> Built {
    let sum = l.bin("add", variance, l.num(variance, epsilon))?;
    let root = l.un("sqrt", sum)?;
    let y = l.bin("real_div", x, root)?;
    let (gamma, beta) = (l.x(1)?, l.x(2)?);
    let (gamma, beta) = (channels(l, gamma, rank)?, channels(l, beta, rank)?);
    let y = l.bin("mul", y, gamma)?;
    l.bin("add", y, beta)
}

pub(super) fn instance_norm(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.ranked(x, 3)?;
    if shape.len() <= 4 && l.is_known(1) && l.is_known(2) {
        let (gamma, beta, epsilon) = (l.fixed(1)?, l.fixed(2)?, l.num(x, l.float("epsilon", 1e-5)));
        let args = [("x", x.into()), ("gamma", gamma.into()), ("beta", beta.into()), ("epsilon", epsilon.into())];
        return one(l.op("instance_norm", args)?);
    }
    let axes: Vec<usize> = (2..shape.len()).collect();
    let (centered, _, inverse) = moments(l, x, &axes, l.float("epsilon", 1e-5))?;
    let y = l.bin("mul", centered, inverse)?;
    let (gamma, beta) = (l.x(1)?, l.x(2)?);
    let y = along_channels(l, "mul", y, gamma)?;
    one(along_channels(l, "add", y, beta)?)
}

/// Scale and bias have one element for each channel from opset 21 on, and for each group before.
pub(super) fn group_norm(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.ranked(x, 2)?;
    let groups = l.number("num_groups", 1, 1)?;
    let rest: usize = shape[1..].iter().product();
    if !shape[1].is_multiple_of(groups) {
        return Err(Stop::Rejected(format!("{groups} groups of {} channels", shape[1])));
    }
    let grouped = l.reshape(x, &[shape[0], groups, rest / groups])?;
    let epsilon = l.num(x, l.float("epsilon", 1e-5));
    let axes = Constant::int32s(&[2]);
    let y = l.op("layer_norm", [("x", grouped.into()), ("axes", axes.into()), ("epsilon", epsilon.into())])?;
    let mut y = l.reshape(y, &shape)?;
    for (i, op) in [(1, "mul"), (2, "add")] {
        let mut v = l.x(i)?;
        let count: usize = l.shape(v)?.iter().product();
        if count != shape[1] {
            if count == 0 || !shape[1].is_multiple_of(count) {
                return Err(Stop::Rejected(format!("{count} scales for {} channels", shape[1])));
            }
            let each = l.reshape(v, &[count, 1])?;
            let many = l.b.tile(&l.label, each, &[1, (shape[1] / count) as i32])?;
            v = l.reshape(many, &[shape[1]])?;
        }
        let v = channels(l, v, shape.len())?;
        y = l.bin(op, y, v)?;
    }
    one(y)
}

pub(super) fn layer_norm(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    let first = l.axis(-1, shape.len())?;
    let axes: Vec<usize> = (first..shape.len()).collect();
    let epsilon = l.float("epsilon", 1e-5);
    let fits = |i: usize| !l.has(i) || l.known(i).is_ok_and(|t| *t.shape() == shape[first..]);
    let y = if fits(1) && fits(2) {
        let mut args: Vec<(&str, ferrane_mil::Arg)> = vec![("x", x.into())];
        let numbers: Vec<i32> = axes.iter().map(|&a| a as i32).collect();
        args.push(("axes", Constant::int32s(&numbers).into()));
        let dtype = l.dtype(x);
        for (i, name) in [(1, "gamma"), (2, "beta")] {
            if l.has(i) {
                args.push((name, l.typed(i, dtype)?.into()));
            }
        }
        args.push(("epsilon", l.num(x, epsilon).into()));
        l.build("layer_norm", args)?
    } else {
        let (centered, _, inverse) = moments(l, x, &axes, epsilon)?;
        let y = l.bin("mul", centered, inverse)?;
        affine(l, y)?
    };
    if !l.wants(1) && !l.wants(2) {
        return one(y);
    }
    let (_, mean, inverse) = moments(l, x, &axes, epsilon)?;
    Ok(vec![Some(y), Some(mean), Some(inverse)])
}

/// Multiplies by input 1 and adds input 2, if given.
fn affine(l: &mut Lower<'_>, x: ValueId) -> Built {
    let gamma = l.x(1)?;
    let y = l.bin("mul", x, gamma)?;
    match l.maybe(2)? {
        Some(beta) => l.bin("add", y, beta),
        None => Ok(y),
    }
}

/// Returns `x - mean`, the mean, and `1/√(variance + ε)`.
fn moments(l: &mut Lower<'_>, x: ValueId, axes: &[usize], epsilon: f32) -> Built<(ValueId, ValueId, ValueId)> {
    let mean = l.reduce("reduce_mean", x, axes, true)?;
    let centered = l.bin("sub", x, mean)?;
    let square = l.un("square", centered)?;
    let variance = l.reduce("reduce_mean", square, axes, true)?;
    let sum = l.bin("add", variance, l.num(x, epsilon))?;
    let root = l.un("sqrt", sum)?;
    let inverse = l.bin("real_div", l.num(x, 1.0), root)?;
    Ok((centered, mean, inverse))
}

pub(super) fn rms_norm(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.shape(x)?.len();
    let axes: Vec<usize> = (l.axis(-1, rank)?..rank).collect();
    let square = l.un("square", x)?;
    let mean = l.reduce("reduce_mean", square, &axes, true)?;
    let sum = l.bin("add", mean, l.num(x, l.float("epsilon", 1e-5)))?;
    let root = l.un("sqrt", sum)?;
    let y = l.bin("real_div", x, root)?;
    let scale = l.x(1)?;
    one(l.bin("mul", y, scale)?)
}

pub(super) fn mean_variance(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.shape(x)?.len();
    let axes = l.list("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let axes = axes.iter().map(|&a| l.normal(a, rank)).collect::<Built<Vec<_>>>()?;
    let mean = l.reduce("reduce_mean", x, &axes, true)?;
    let centered = l.bin("sub", x, mean)?;
    let square = l.un("square", centered)?;
    let variance = l.reduce("reduce_mean", square, &axes, true)?;
    let deviation = l.un("sqrt", variance)?;
    let above = l.bin("add", deviation, l.num(x, 1e-9))?;
    one(l.bin("real_div", centered, above)?)
}

pub(super) fn lrn(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let size = Constant::int32(l.number("size", 1, 1)? as i32);
    let number = |name: &str, default: f32| l.num(x, l.float(name, default));
    let (alpha, beta, k) = (number("alpha", 0.0001), number("beta", 0.75), number("bias", 1.0));
    let args =
        [("x", x.into()), ("size", size.into()), ("alpha", alpha.into()), ("beta", beta.into()), ("k", k.into())];
    one(l.op("local_response_norm", args)?)
}

/// If the norm is 0, the result is 0.
pub(super) fn lp_norm(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let rank = l.shape(x)?.len();
    let axis = l.axis(-1, rank)?;
    let op = if l.int("p", 2) == 1 { "reduce_l1_norm" } else { "reduce_l2_norm" };
    let norm = l.reduce(op, x, &[axis], true)?;
    let none = l.bin("equal", norm, l.num(x, 0.0))?;
    let safe = l.select(none, l.num(x, 1.0), norm)?;
    one(l.bin("real_div", x, safe)?)
}

/// Before opset 13 all axes from `axis` on were treated as one.
fn over_axis(l: &mut Lower<'_>, run: impl Fn(&mut Lower<'_>, ValueId, usize) -> Built) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    if l.node.opset >= 13 {
        let axis = l.axis(-1, shape.len())?;
        return one(run(l, x, axis)?);
    }
    let rank = shape.len();
    let axis = if l.int("axis", 1) == rank as i64 { rank } else { l.axis(1, rank)? };
    let flat = l.reshape(x, &[shape[..axis].iter().product(), shape[axis..].iter().product()])?;
    let y = run(l, flat, 1)?;
    one(l.reshape(y, &shape)?)
}

pub(super) fn softmax(l: &mut Lower<'_>) -> Results {
    over_axis(l, |l, x, axis| Ok(l.b.softmax(&l.label, x, axis as i32)?))
}

/// Subtracts the largest element first: next to it the logarithm of the sum would vanish in fp32.
fn log_softmax_of(l: &mut Lower<'_>, x: ValueId, axis: usize) -> Built {
    let most = l.reduce("reduce_max", x, &[axis], true)?;
    let x = l.bin("sub", x, most)?;
    let total = l.reduce("reduce_log_sum_exp", x, &[axis], true)?;
    l.bin("sub", x, total)
}

pub(super) fn log_softmax(l: &mut Lower<'_>) -> Results {
    over_axis(l, log_softmax_of)
}

/// 1 at the largest element along an axis, the first of several, and 0 elsewhere.
pub(super) fn hardmax_of(l: &mut Lower<'_>, x: ValueId, axis: usize) -> Built {
    let extent = l.shape(x)?[axis] as i32;
    let at = Constant::int32(axis as i32);
    let best = l.op(
        "reduce_argmax",
        [("x", x.into()), ("axis", at.clone().into()), ("keep_dims", Constant::bool(false).into())],
    )?;
    let (on, off) = (l.num(x, 1.0), l.num(x, 0.0));
    let size = Constant::int32(extent);
    l.op(
        "one_hot",
        [
            ("indices", best.into()),
            ("one_hot_vector_size", size.into()),
            ("axis", at.into()),
            ("on_value", on.into()),
            ("off_value", off.into()),
        ],
    )
}

pub(super) fn hardmax(l: &mut Lower<'_>) -> Results {
    over_axis(l, hardmax_of)
}

/// Computes `-log p[target] · weight`, reduced; ignored targets contribute nothing.
fn nll(l: &mut Lower<'_>, log: ValueId) -> Built {
    let shape = l.ranked(log, 2)?;
    let target = l.x(1)?;
    let extents = l.shape(target)?;
    if extents.len() + 1 != shape.len() {
        return Err(Stop::Rejected(format!("targets of shape {extents:?} for scores of shape {shape:?}")));
    }
    let mut wide = extents.clone();
    wide.insert(1, 1);
    let mut indices = l.reshape(target, &wide)?;
    let mut kept = None;
    if l.given("ignore_index") {
        // The ignored index may be no valid class. Its weight is 0, so class 0 replaces it.
        let ignored = Constant::int32(l.int("ignore_index", -1) as i32);
        let skip = l.bin("equal", indices, ignored.clone())?;
        let none = l.bin("mul", indices, Constant::int32(0))?;
        indices = l.select(skip, none, indices)?;
        let counts = l.un("logical_not", skip)?;
        kept = Some(l.cast(counts, l.dtype(log))?);
    }
    let at = Constant::int32(1);
    let picked = l.op("gather_along_axis", [("x", log.into()), ("indices", indices.into()), ("axis", at.into())])?;
    let mut weight = match kept {
        Some(kept) => kept,
        None => {
            let equal = l.bin("equal", indices, indices)?;
            l.cast(equal, l.dtype(log))?
        }
    };
    if let Some(w) = l.maybe(2)? {
        let flat = l.reshape(indices, &[extents.iter().product()])?;
        let each = l.b.gather(&l.label, w, flat, 0)?;
        let each = l.reshape(each, &wide)?;
        weight = l.bin("mul", weight, each)?;
    }
    let loss = l.bin("mul", picked, weight)?;
    let loss = l.bin("mul", loss, l.num(log, -1.0))?;
    let axes: Vec<usize> = (0..wide.len()).collect();
    match l.text("reduction", "mean") {
        "none" => l.reshape(loss, &extents),
        "sum" => l.reduce("reduce_sum", loss, &axes, false),
        _ => {
            let (sum, total) =
                (l.reduce("reduce_sum", loss, &axes, false)?, l.reduce("reduce_sum", weight, &axes, false)?);
            l.bin("real_div", sum, total)
        }
    }
}

pub(super) fn nll_loss(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    one(nll(l, x)?)
}

pub(super) fn softmax_cross_entropy(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    if l.dtype(x) == DataType::Int32 {
        return unmapped("scores must be floats");
    }
    let log = log_softmax_of(l, x, 1)?;
    let loss = nll(l, log)?;
    Ok(vec![Some(loss), Some(log)])
}
