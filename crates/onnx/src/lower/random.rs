//! Random numbers: MIL's random ops, which draw other numbers than ONNX's for the same seed.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Arg, Constant, DataType, ValueId};

use super::state::{Built, Lower, Stop, one};
use crate::element::ElementType;

type Results = Built<Vec<Option<ValueId>>>;

/// The extents of the result: the attribute `shape`, or those of input 0.
fn extents(l: &Lower<'_>) -> Built<Vec<usize>> {
    match l.list("shape") {
        Some(shape) => shape
            .iter()
            .map(|&n| usize::try_from(n).map_err(|_| Stop::Rejected(format!("the shape {shape:?}"))))
            .collect(),
        None => l.extents(0),
    }
}

fn seed(l: &Lower<'_>) -> Constant {
    // MIL chooses a seed for -1.
    Constant::int32(if l.given("seed") { l.float("seed", 0.0).abs() as i32 } else { -1 })
}

/// Draws fp32 numbers of an extent and casts them to the type that the node states, or that of
/// input 0.
fn draw(l: &mut Lower<'_>, op: &str, first: (&'static str, f32), second: (&'static str, f32)) -> Built {
    let shape: Vec<i32> = extents(l)?.iter().map(|&n| n as i32).collect();
    if shape.is_empty() || shape.contains(&0) {
        return Err(Stop::Unmapped(format!("MIL draws no tensors of shape {shape:?}")));
    }
    let args: Vec<(&str, Arg)> = vec![
        ("shape", Constant::int32s(&shape).into()),
        (first.0, Constant::fp32(first.1).into()),
        (second.0, Constant::fp32(second.1).into()),
        ("seed", seed(l).into()),
    ];
    l.build(op, args)
}

/// The element type that the node states, or that of its input, or FLOAT.
fn stated(l: &Lower<'_>) -> ElementType {
    match l.int("dtype", 0) {
        0 if l.has(0) => l.element(0).unwrap_or(ElementType::Float),
        0 => ElementType::Float,
        number => ElementType::from_number(number as i32),
    }
}

pub(super) fn normal(l: &mut Lower<'_>) -> Results {
    let (mean, scale) = (l.float("mean", 0.0), l.float("scale", 1.0));
    let y = draw(l, "random_normal", ("mean", mean), ("stddev", scale))?;
    let dtype = l.mil(stated(l))?;
    one(l.cast(y, dtype)?)
}

pub(super) fn uniform(l: &mut Lower<'_>) -> Results {
    let (low, high) = (l.float("low", 0.0), l.float("high", 1.0));
    let y = draw(l, "random_uniform", ("low", low), ("high", high))?;
    let dtype = l.mil(stated(l))?;
    one(l.cast(y, dtype)?)
}

/// 1 where a uniform number is below the probability.
pub(super) fn bernoulli(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let x = l.cast(x, DataType::Fp32)?;
    let u = draw(l, "random_uniform", ("low", 0.0), ("high", 1.0))?;
    let y = l.bin("less", u, x)?;
    let element = stated(l);
    l.elements = Some(element);
    let dtype = l.mil(element)?;
    one(l.cast(y, dtype)?)
}

/// Indices drawn by unnormalized log-probabilities.
pub(super) fn multinomial(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let size = l.number("sample_size", 1, 1)?;
    let args: Vec<(&str, Arg)> = vec![
        ("x", x.into()),
        ("mode", Constant::string("logits").into()),
        ("size", Constant::int32(size as i32).into()),
        ("seed", seed(l).into()),
    ];
    let y = l.build("random_categorical", args)?;
    l.elements = Some(ElementType::Int32);
    one(l.cast(y, DataType::Int32)?)
}
