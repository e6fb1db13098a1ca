//! Element-wise operations. Those with `broadcasting_` in their name are the same ops of MIL, which
//! broadcasts by itself.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType, ValueId};

use super::known::{is_float, range};
use super::state::{Built, Lower, rejected, unmapped};
use crate::dialect::ElementType;

pub(super) type Results = Built<Vec<ValueId>>;

/// Defines the lowering of an operation that is one op of MIL with the single argument `x`.
macro_rules! direct {
    ($($name:ident = $op:literal;)*) => {
        $(pub(super) fn $name(l: &mut Lower<'_>) -> Results {
            let x = l.x(0)?;
            Ok(vec![l.un($op, x)?])
        })*
    };
}

direct! {
    acos = "acos";
    asin = "asin";
    atan = "atan";
    atanh = "atanh";
    cos = "cos";
    cosh = "cosh";
    erf = "erf";
    exp = "exp";
    not = "logical_not";
    sigmoid = "sigmoid";
    silu = "silu";
    sin = "sin";
    sinh = "sinh";
    sqrt = "sqrt";
    tan = "tan";
    tanh = "tanh";
}

pub(super) fn abs(l: &mut Lower<'_>) -> Results {
    let (x, element) = (l.x(0)?, l.element(0)?);
    if element == ElementType::UInt32 {
        return Ok(vec![x]);
    }
    let y = l.un("abs", x)?;
    Ok(vec![l.wrapped(y, element)?])
}

pub(super) fn relu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    Ok(vec![if l.element(0)? == ElementType::UInt32 { x } else { l.un("relu", x)? }])
}

/// Integers are round already.
pub(super) fn round(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    Ok(vec![if l.is_float(x) { l.un("round", x)? } else { x }])
}

/// MIL adds a small number to x unless it is 0.
fn without_epsilon(l: &mut Lower<'_>, op: &str) -> Results {
    let x = l.x(0)?;
    let none = l.num(x, 0.0);
    Ok(vec![l.op(op, [("x", x.into()), ("epsilon", none.into())])?])
}

pub(super) fn log(l: &mut Lower<'_>) -> Results {
    without_epsilon(l, "log")
}

pub(super) fn rsqrt(l: &mut Lower<'_>) -> Results {
    without_epsilon(l, "rsqrt")
}

pub(super) fn gelu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let mode = match l.word("approximate")? {
        "none" => "EXACT",
        "tanh" => "TANH_APPROXIMATION",
        _ => "SIGMOID_APPROXIMATION",
    };
    Ok(vec![l.op("gelu", [("x", x.into()), ("mode", Constant::string(mode).into())])?])
}

/// Computes `ln x + ln(1 + root)` in fp32, with `root` = √(1 ± 1/x²): the square of x, which
/// overflows, does not occur.
fn inverse_hyperbolic(l: &mut Lower<'_>, x: ValueId, root: ValueId) -> Built {
    let none = || Constant::fp32(0.0).into();
    let sum = l.bin("add", root, Constant::fp32(1.0))?;
    let rest = l.op("log", [("x", sum.into()), ("epsilon", none())])?;
    let log = l.op("log", [("x", x.into()), ("epsilon", none())])?;
    l.bin("add", log, rest)
}

pub(super) fn acosh(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let x = l.cast(x, DataType::Fp32)?;
    // (1 - 1/x)(1 + 1/x) in a form that is exact near 1.
    let finite = l.bin("minimum", x, Constant::fp32(f32::MAX))?;
    let below = l.bin("sub", finite, Constant::fp32(1.0))?;
    let below = l.bin("real_div", below, finite)?;
    let above = l.bin("add", finite, Constant::fp32(1.0))?;
    let above = l.bin("real_div", above, finite)?;
    let inner = l.bin("mul", below, above)?;
    let root = l.un("sqrt", inner)?;
    Ok(vec![inverse_hyperbolic(l, x, root)?])
}

/// For small numbers it is `atanh(x / √(1 + x²))`, which keeps their digits.
pub(super) fn asinh(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let x = l.cast(x, DataType::Fp32)?;
    let (size, sign) = (l.un("abs", x)?, l.un("sign", x)?);
    let inverse = l.bin("real_div", Constant::fp32(1.0), size)?;
    let square = l.un("square", inverse)?;
    let inner = l.bin("add", square, Constant::fp32(1.0))?;
    let root = l.un("sqrt", inner)?;
    let positive = inverse_hyperbolic(l, size, root)?;
    let large = l.bin("mul", sign, positive)?;
    let square = l.un("square", x)?;
    let inner = l.bin("add", square, Constant::fp32(1.0))?;
    let root = l.un("sqrt", inner)?;
    let sine = l.bin("real_div", x, root)?;
    let small = l.un("atanh", sine)?;
    let is_small = l.bin("less", size, Constant::fp32(0.5))?;
    Ok(vec![l.select(is_small, small, large)?])
}

/// Both operands as values of one type.
fn pair(l: &mut Lower<'_>) -> Built<(ValueId, ValueId)> {
    let (x, y) = (l.x(0)?, l.x(1)?);
    match l.dtype(x) == l.dtype(y) {
        true => Ok((x, y)),
        false => rejected("its operands are of different types"),
    }
}

/// An op of arithmetic; on bools it is `logical`, and narrow integers wrap.
fn arithmetic(l: &mut Lower<'_>, op: &str, logical: Option<&str>) -> Results {
    let (x, y) = pair(l)?;
    let element = l.element(0)?;
    if l.dtype(x) != DataType::Bool {
        if !matches!(op, "maximum" | "minimum") {
            let z = l.bin(op, x, y)?;
            return Ok(vec![l.wrapped(z, element)?]);
        }
        let (x, y) = (l.moved(x, element)?, l.moved(y, element)?);
        let z = l.bin(op, x, y)?;
        return Ok(vec![l.moved(z, element)?]);
    }
    match logical {
        Some(op) => Ok(vec![l.bin(op, x, y)?]),
        None => unmapped("Core AI defines no such arithmetic of truth values"),
    }
}

pub(super) fn add(l: &mut Lower<'_>) -> Results {
    arithmetic(l, "add", Some("logical_or"))
}

pub(super) fn sub(l: &mut Lower<'_>) -> Results {
    arithmetic(l, "sub", None)
}

pub(super) fn mul(l: &mut Lower<'_>) -> Results {
    arithmetic(l, "mul", Some("logical_and"))
}

pub(super) fn maximum(l: &mut Lower<'_>) -> Results {
    arithmetic(l, "maximum", Some("logical_or"))
}

pub(super) fn minimum(l: &mut Lower<'_>) -> Results {
    arithmetic(l, "minimum", Some("logical_and"))
}

/// The quotient and the remainder of integers of 32 bits without a sign. MIL's have one, so half of
/// x is divided, and the result doubled; it may be one too small. A divisor of at least half the
/// range fits once or not at all.
fn unsigned_division(l: &mut Lower<'_>) -> Built<(ValueId, ValueId)> {
    let (x, y) = pair(l)?;
    let (high_x, high_y) = (l.moved(x, ElementType::UInt32)?, l.moved(y, ElementType::UInt32)?);
    let reaches = l.bin("greater_equal", high_x, high_y)?;
    let once = l.cast(reaches, DataType::Int32)?;
    let half = l.bin("floor_div", x, Constant::int32(2))?;
    let negative = l.bin("less", x, Constant::int32(0))?;
    let lifted = l.bin("sub", half, Constant::int32(i32::MIN))?;
    let half = l.select(negative, lifted, half)?;
    let part = l.bin("real_div", half, y)?;
    let twice = l.bin("mul", part, Constant::int32(2))?;
    let covered = l.bin("mul", twice, y)?;
    let rest = l.bin("sub", x, covered)?;
    let rest = l.moved(rest, ElementType::UInt32)?;
    let more = l.bin("greater_equal", rest, high_y)?;
    let more = l.cast(more, DataType::Int32)?;
    let often = l.bin("add", twice, more)?;
    let large = l.bin("less", y, Constant::int32(0))?;
    let quotient = l.select(large, once, often)?;
    let covered = l.bin("mul", quotient, y)?;
    Ok((quotient, l.bin("sub", x, covered)?))
}

/// Of integers rounded toward zero, as in MIL.
pub(super) fn divide(l: &mut Lower<'_>) -> Results {
    match l.element(0)? {
        ElementType::UInt32 => Ok(vec![unsigned_division(l)?.0]),
        _ => arithmetic(l, "real_div", None),
    }
}

pub(super) fn floor_divide(l: &mut Lower<'_>) -> Results {
    match l.element(0)? {
        ElementType::UInt32 => Ok(vec![unsigned_division(l)?.0]),
        _ => arithmetic(l, "floor_div", None),
    }
}

pub(super) fn pow(l: &mut Lower<'_>) -> Results {
    arithmetic(l, "pow", None)
}

/// The remainder has the sign of x, unlike that of MIL's `mod`. It is x if x is smaller than y,
/// which may be infinite.
pub(super) fn modulo(l: &mut Lower<'_>) -> Results {
    if l.element(0)? == ElementType::UInt32 {
        return Ok(vec![unsigned_division(l)?.1]);
    }
    let (x, y) = pair(l)?;
    if !l.is_float(x) {
        let quotient = l.bin("real_div", x, y)?;
        let whole = l.bin("mul", quotient, y)?;
        return Ok(vec![l.bin("sub", x, whole)?]);
    }
    let (sign, size, of) = (l.un("sign", x)?, l.un("abs", x)?, l.un("abs", y)?);
    let rest = l.bin("mod", size, of)?;
    let rest = l.bin("mul", sign, rest)?;
    let is_smaller = l.bin("less", size, of)?;
    Ok(vec![l.select(is_smaller, x, rest)?])
}

fn compare(l: &mut Lower<'_>, op: &str) -> Results {
    let (mut x, mut y) = pair(l)?;
    if l.dtype(x) == DataType::Bool {
        (x, y) = (l.cast(x, DataType::Int32)?, l.cast(y, DataType::Int32)?);
    }
    Ok(vec![l.bin(op, x, y)?])
}

pub(super) fn equal(l: &mut Lower<'_>) -> Results {
    compare(l, "equal")
}

pub(super) fn not_equal(l: &mut Lower<'_>) -> Results {
    compare(l, "not_equal")
}

pub(super) fn greater(l: &mut Lower<'_>) -> Results {
    let element = l.element(0)?;
    if element != ElementType::UInt32 {
        return compare(l, "greater");
    }
    let (x, y) = pair(l)?;
    let (x, y) = (l.moved(x, element)?, l.moved(y, element)?);
    Ok(vec![l.bin("greater", x, y)?])
}

fn logical(l: &mut Lower<'_>, op: &str) -> Results {
    let (x, y) = pair(l)?;
    Ok(vec![l.bin(op, x, y)?])
}

pub(super) fn and(l: &mut Lower<'_>) -> Results {
    logical(l, "logical_and")
}

pub(super) fn or(l: &mut Lower<'_>) -> Results {
    logical(l, "logical_or")
}

pub(super) fn xor(l: &mut Lower<'_>) -> Results {
    logical(l, "logical_xor")
}

/// Truth values have one bit.
fn bitwise(l: &mut Lower<'_>, one: &str, combine: fn(&mut Lower<'_>, ValueId, ValueId) -> Built) -> Results {
    let element = l.element(0)?;
    if element == ElementType::Bool {
        return logical(l, one);
    }
    let width = element.bits().min(32) as usize;
    let operands = [l.x(0)?, l.x(1)?];
    let both = l.combined_bits(operands, width, combine)?;
    Ok(vec![if width < 32 { l.wrapped(both, element)? } else { both }])
}

pub(super) fn bitwise_and(l: &mut Lower<'_>) -> Results {
    bitwise(l, "logical_and", |l, a, b| l.bin("mul", a, b))
}

pub(super) fn bitwise_or(l: &mut Lower<'_>) -> Results {
    bitwise(l, "logical_or", |l, a, b| l.bin("maximum", a, b))
}

pub(super) fn bitwise_xor(l: &mut Lower<'_>) -> Results {
    bitwise(l, "logical_xor", |l, a, b| {
        let differ = l.bin("not_equal", a, b)?;
        l.cast(differ, DataType::Int32)
    })
}

pub(super) fn select(l: &mut Lower<'_>) -> Results {
    let (condition, a, b) = (l.x(0)?, l.x(1)?, l.x(2)?);
    Ok(vec![l.select(condition, a, b)?])
}

/// Numbers as integers of 32 bits without a sign, which MIL holds with one. Those of 64 bits are
/// not larger than MIL's integers.
fn unsigned(l: &mut Lower<'_>, x: ValueId, to: ElementType) -> Built {
    if !l.is_float(x) {
        let x = l.cast(x, DataType::Int32)?;
        return match l.element(0)? {
            ElementType::UInt32 => Ok(x),
            _ => l.bin("maximum", x, Constant::int32(0)),
        };
    }
    let x = l.cast(x, DataType::Fp32)?;
    let positive = l.bin("maximum", x, Constant::fp32(0.0))?;
    if to == ElementType::UInt64 {
        return l.cast(positive, DataType::Int32);
    }
    let (half, all) = (Constant::fp32(2f32.powi(31)), Constant::fp32(2f32.powi(32)));
    let is_large = l.bin("greater_equal", positive, half)?;
    let is_beyond = l.bin("greater_equal", positive, all.clone())?;
    let below = l.bin("sub", positive, all)?;
    let inside = l.select(is_large, below, positive)?;
    let inside = l.cast(inside, DataType::Int32)?;
    l.select(is_beyond, Constant::int32(-1), inside)
}

/// Integers of 32 bits without a sign, which MIL holds with one, as floats or as what becomes the
/// nearest integer of a type.
fn from_unsigned(l: &mut Lower<'_>, x: ValueId, to: ElementType) -> Built {
    let is_large = l.bin("less", x, Constant::int32(0))?;
    if is_float(to) {
        let float = l.cast(x, DataType::Fp32)?;
        let above = l.bin("add", float, Constant::fp32(2f32.powi(32)))?;
        return l.select(is_large, above, float);
    }
    match to {
        ElementType::UInt32 | ElementType::UInt64 | ElementType::Int64 => Ok(x),
        _ => l.select(is_large, Constant::int32(i32::MAX), x),
    }
}

/// Floats are rounded toward zero. What does not fit an integer type becomes the nearest number
/// that does, as Apple's runtime on Linux has it.
pub(super) fn cast(l: &mut Lower<'_>) -> Results {
    let Some(to) = l.result(0).map(|t| t.element) else { return rejected("its result is no tensor") };
    let from = l.element(0)?;
    let mut x = l.x(0)?;
    if from == ElementType::UInt32 && to != ElementType::Bool {
        x = from_unsigned(l, x, to)?;
    }
    if is_float(to) && to.bits() <= 8 && from != to {
        return unmapped(format!("MIL has no numbers of type {}, to which the elements would be rounded", to.name()));
    }
    Ok(vec![match to {
        ElementType::Complex64 => return unmapped("MIL has no complex numbers"),
        ElementType::Bool => l.cast(x, DataType::Bool)?,
        ElementType::Float16 => l.cast(x, DataType::Fp16)?,
        _ if is_float(to) => l.cast(x, DataType::Fp32)?,
        ElementType::UInt32 | ElementType::UInt64 if from != to => unsigned(l, x, to)?,
        _ => {
            let y = l.cast(x, DataType::Int32)?;
            match range(to).filter(|_| to.bits() < 32 && from != to && from != ElementType::Bool) {
                Some((low, high)) => {
                    let above = l.bin("maximum", y, Constant::int32(low as i32))?;
                    l.bin("minimum", above, Constant::int32(high as i32))?
                }
                None => y,
            }
        }
    }])
}
