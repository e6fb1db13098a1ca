//! Fourier transforms as products with matrices of cosines and sines. A complex number is a pair on
//! the last axis, as in ONNX.

use std::f64::consts::TAU;

use ferrane_mil::ValueId;
use ferrane_mil::emit::Emit;

use super::state::{Built, Lower, Stop, one};
use crate::element::ElementType;

type Results = Built<Vec<Option<ValueId>>>;

/// The transform of `rows` samples at `columns` frequencies of a signal of length `n`.
struct Waves {
    cos: ValueId,
    sin: ValueId,
}

/// Matrices `[rows, columns]` of `scale · weight · cos` and `scale · weight · sin` of `τ · row ·
/// column / n`.
fn waves(
    l: &mut Lower<'_>,
    like: ValueId,
    [rows, columns]: [usize; 2],
    n: usize,
    weight: impl Fn(usize) -> f64,
) -> Built<Waves> {
    l.table(&[rows, columns])?;
    let matrix = |f: fn(f64) -> f64| -> Vec<f64> {
        (0..rows)
            .flat_map(|r| (0..columns).map(move |c| (r, c)))
            .map(|(r, c)| f(TAU * ((r * c) % n.max(1)) as f64 / n as f64) * weight(r))
            .collect()
    };
    let (cos, sin) = (matrix(f64::cos), matrix(f64::sin));
    Ok(Waves { cos: l.tensor(like, &[rows, columns], &cos)?, sin: l.tensor(like, &[rows, columns], &sin)? })
}

/// Real and imaginary parts of `x`, whose last axis holds them, without that axis.
fn parts(l: &mut Lower<'_>, x: ValueId) -> Built<(ValueId, Option<ValueId>)> {
    let shape = l.ranked(x, 2)?;
    let (last, rest) = (shape[shape.len() - 1], &shape[..shape.len() - 1]);
    let axis = rest.len();
    let real = l.slice(x, axis, 0, 1)?;
    let real = l.reshape(real, rest)?;
    match last {
        1 => Ok((real, None)),
        2 => {
            let imaginary = l.slice(x, axis, 1, 1)?;
            Ok((real, Some(l.reshape(imaginary, rest)?)))
        }
        n => Err(Stop::Rejected(format!("numbers of {n} parts"))),
    }
}

/// `real · cos + sign · imaginary · sin` and `imaginary · cos - sign · real · sin`.
fn transformed(
    l: &mut Lower<'_>,
    (real, imaginary): (ValueId, Option<ValueId>),
    w: &Waves,
    sign: f32,
) -> Built<(ValueId, ValueId)> {
    let mut re = l.bin("matmul", real, w.cos)?;
    let cross = l.bin("matmul", real, w.sin)?;
    let mut im = l.bin("mul", cross, l.num(cross, -sign))?;
    if let Some(imaginary) = imaginary {
        let cross = l.bin("matmul", imaginary, w.sin)?;
        let cross = l.bin("mul", cross, l.num(cross, sign))?;
        re = l.bin("add", re, cross)?;
        let straight = l.bin("matmul", imaginary, w.cos)?;
        im = l.bin("add", im, straight)?;
    }
    Ok((re, im))
}

/// A pair on a new last axis.
fn pair(l: &mut Lower<'_>, re: ValueId, im: ValueId) -> Built {
    let mut shape = l.shape(re)?;
    shape.push(1);
    let (re, im) = (l.reshape(re, &shape)?, l.reshape(im, &shape)?);
    l.concat(&[re, im], shape.len() - 1)
}

/// Exchanges an axis with the last one.
fn swapped(l: &mut Lower<'_>, x: ValueId, axis: usize) -> Built {
    let rank = l.shape(x)?.len();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(axis, rank - 1);
    l.transpose(x, &perm)
}

pub(super) fn dft(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.ranked(x, 2)?;
    // The axis is an input from opset 20 on.
    let given = if l.has(2) { l.ints(2)?.first().copied() } else { None };
    let axis = given.unwrap_or_else(|| l.int("axis", if l.node.opset < 20 { 1 } else { -2 }));
    let axis = l.normal(axis, shape.len())?;
    if axis + 1 >= shape.len() {
        return Err(Stop::Rejected("the axis of the parts is not transformed".into()));
    }
    let (inverse, onesided) = (l.int("inverse", 0) != 0, l.int("onesided", 0) != 0);
    let found = shape[axis];
    let whole = if inverse && onesided { found.saturating_sub(1) * 2 } else { found };
    let n = match l.ints_if(1)?.and_then(|v| v.first().copied()) {
        Some(n) => n.clamp(0, 1 << 24) as usize,
        None => whole,
    };
    let half = n / 2 + 1;
    let rows = found.min(if inverse && onesided { half } else { n });
    if n == 0 || rows == 0 {
        return Err(Stop::Rejected(format!("a transform of length {n}")));
    }
    let x = l.slice(x, axis, 0, rows)?;
    let (real, imaginary) = parts(l, x)?;
    let real = swapped(l, real, axis)?;
    let imaginary = match imaginary {
        Some(i) => Some(swapped(l, i, axis)?),
        None => None,
    };
    if inverse && onesided {
        // The frequencies that are left out are the conjugates of the others.
        let weight = |k: usize| if k == 0 || 2 * k == n { 1.0 } else { 2.0 } / n as f64;
        let w = waves(l, real, [rows, n], n, weight)?;
        let (y, _) = transformed(l, (real, imaginary), &w, -1.0)?;
        let y = swapped(l, y, axis)?;
        let mut shape = l.shape(y)?;
        shape.push(1);
        return one(l.reshape(y, &shape)?);
    }
    let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
    let w = waves(l, real, [rows, if onesided { half } else { n }], n, |_| scale)?;
    let (re, im) = transformed(l, (real, imaginary), &w, if inverse { -1.0 } else { 1.0 })?;
    let (re, im) = (swapped(l, re, axis)?, swapped(l, im, axis)?);
    one(pair(l, re, im)?)
}

/// Frames of a signal `[batch, length, parts]`, each multiplied by the window and transformed.
pub(super) fn stft(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.ranked(x, 2)?;
    let x = if shape.len() == 2 { l.reshape(x, &[shape[0], shape[1], 1])? } else { x };
    let length = shape[1];
    let step = l.ints(1)?.first().copied().unwrap_or(0);
    let window = l.maybe(2)?;
    let frame = match (l.ints_if(3)?.and_then(|v| v.first().copied()), window) {
        (Some(n), _) => n.clamp(0, 1 << 24) as usize,
        (None, Some(w)) => l.shape(w)?.iter().product(),
        (None, None) => return Err(Stop::Rejected("neither a window nor a frame length".into())),
    };
    let Some(room) = length.checked_sub(frame).filter(|_| frame > 0 && step > 0) else {
        return Err(Stop::Rejected(format!("frames of {frame} in steps of {step} of {length} samples")));
    };
    let count = room / step as usize + 1;
    l.table(&[count, frame])?;
    let places: Vec<i64> = (0..count).flat_map(|f| (0..frame).map(move |i| (f * step as usize + i) as i64)).collect();
    let places = l.indices(&[count, frame], &places)?;
    let onesided = l.int("onesided", 1) != 0;
    let (real, imaginary) = parts(l, x)?;
    let framed = |l: &mut Lower<'_>, v: ValueId| -> Built {
        let v = l.b.gather(&l.label, v, places, 1)?;
        match window {
            Some(w) => l.bin("mul", v, w),
            None => Ok(v),
        }
    };
    let real = framed(l, real)?;
    let imaginary = match imaginary {
        Some(i) => Some(framed(l, i)?),
        None => None,
    };
    let bins = if onesided { frame / 2 + 1 } else { frame };
    let w = waves(l, real, [frame, bins], frame, |_| 1.0)?;
    let (re, im) = transformed(l, (real, imaginary), &w, 1.0)?;
    one(pair(l, re, im)?)
}

/// Triangular filters over the bins of a spectrum, evenly spaced in mel.
pub(super) fn mel_weights(l: &mut Lower<'_>) -> Results {
    let number = |i: usize| -> Built<f64> {
        let value = l.floats(i)?.first().copied().filter(|v| v.is_finite());
        value.ok_or_else(|| Stop::Rejected(format!("input {i} is no number")))
    };
    let (bins, length, rate) = (number(0)?, number(1)?, number(2)?);
    let (low, high) = (number(3)?, number(4)?);
    let (bins, rows) = (bins.clamp(0.0, 1e6) as usize, (length.clamp(0.0, 1e7) / 2.0) as usize + 1);
    let total = l.table(&[rows, bins])?;
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (mel(high) - mel(low)) / (bins + 2) as f64;
    let edge = |i: usize| {
        let hertz = 700.0 * (10f64.powf((i as f64 * step + mel(low)) / 2595.0) - 1.0);
        ((length + 1.0) * hertz / rate).floor() as i64
    };
    let mut values = vec![0.0; total];
    for bin in 0..bins {
        let (from, center, to) = (edge(bin), edge(bin + 1), edge(bin + 2));
        let mut set = |row: i64, value: f64| {
            if let Some(place) = usize::try_from(row).ok().filter(|&r| r < rows) {
                values[place * bins + bin] = value;
            }
        };
        if from == center {
            set(center, 1.0);
        } else {
            (from.max(0)..=center.min(rows as i64)).for_each(|r| set(r, (r - from) as f64 / (center - from) as f64));
        }
        (center.max(0)..to.min(rows as i64)).for_each(|r| set(r, (to - r) as f64 / (to - center) as f64));
    }
    let element = match l.int("output_datatype", 1) {
        number if number > 0 => ElementType::from_number(number as i32),
        _ => ElementType::Float,
    };
    let constant = l.constant(l.mil(element)?, &[rows, bins], &values)?;
    one(l.b.constant(&l.label, constant)?)
}
