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
    relu = "relu";
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
    let y = l.un("abs", x)?;
    Ok(vec![l.wrapped(y, element)?])
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

/// Computes `ln(x + √(x² + add))` in fp32, because the square of an fp16 number overflows early.
fn inverse_hyperbolic(l: &mut Lower<'_>, x: ValueId, add: f32) -> Built {
    let square = l.un("square", x)?;
    let inner = l.bin("add", square, Constant::fp32(add))?;
    let root = l.un("sqrt", inner)?;
    let sum = l.bin("add", x, root)?;
    l.op("log", [("x", sum.into()), ("epsilon", Constant::fp32(0.0).into())])
}

pub(super) fn acosh(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let x = l.cast(x, DataType::Fp32)?;
    Ok(vec![inverse_hyperbolic(l, x, -1.0)?])
}

pub(super) fn asinh(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let x = l.cast(x, DataType::Fp32)?;
    let (size, sign) = (l.un("abs", x)?, l.un("sign", x)?);
    let positive = inverse_hyperbolic(l, size, 1.0)?;
    Ok(vec![l.bin("mul", sign, positive)?])
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
        let z = l.bin(op, x, y)?;
        return Ok(vec![if matches!(op, "maximum" | "minimum") { z } else { l.wrapped(z, element)? }]);
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

/// Of integers rounded toward zero, as in MIL.
pub(super) fn divide(l: &mut Lower<'_>) -> Results {
    arithmetic(l, "real_div", None)
}

pub(super) fn floor_divide(l: &mut Lower<'_>) -> Results {
    arithmetic(l, "floor_div", None)
}

pub(super) fn pow(l: &mut Lower<'_>) -> Results {
    arithmetic(l, "pow", None)
}

/// The remainder has the sign of x, unlike that of MIL's `mod`.
pub(super) fn modulo(l: &mut Lower<'_>) -> Results {
    let (x, y) = pair(l)?;
    if !l.is_float(x) {
        let quotient = l.bin("real_div", x, y)?;
        let whole = l.bin("mul", quotient, y)?;
        return Ok(vec![l.bin("sub", x, whole)?]);
    }
    let (sign, x, y) = (l.un("sign", x)?, l.un("abs", x)?, l.un("abs", y)?);
    let rest = l.bin("mod", x, y)?;
    Ok(vec![l.bin("mul", sign, rest)?])
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
    compare(l, "greater")
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

fn bitwise(l: &mut Lower<'_>, combine: fn(&mut Lower<'_>, ValueId, ValueId) -> Built) -> Results {
    let element = l.element(0)?;
    let width = element.bits().min(32) as usize;
    let operands = [l.x(0)?, l.x(1)?];
    let both = l.combined_bits(operands, width, combine)?;
    Ok(vec![if width < 32 { l.wrapped(both, element)? } else { both }])
}

pub(super) fn bitwise_and(l: &mut Lower<'_>) -> Results {
    bitwise(l, |l, a, b| l.bin("mul", a, b))
}

pub(super) fn bitwise_or(l: &mut Lower<'_>) -> Results {
    bitwise(l, |l, a, b| l.bin("maximum", a, b))
}

pub(super) fn bitwise_xor(l: &mut Lower<'_>) -> Results {
    bitwise(l, |l, a, b| {
        let differ = l.bin("not_equal", a, b)?;
        l.cast(differ, DataType::Int32)
    })
}

pub(super) fn select(l: &mut Lower<'_>) -> Results {
    let (condition, a, b) = (l.x(0)?, l.x(1)?, l.x(2)?);
    Ok(vec![l.select(condition, a, b)?])
}

/// Floats are rounded toward zero. What does not fit an integer type becomes the nearest number
/// that does, as Apple's runtime on Linux has it.
pub(super) fn cast(l: &mut Lower<'_>) -> Results {
    let Some(to) = l.result(0).map(|t| t.element) else { return rejected("its result is no tensor") };
    let from = l.element(0)?;
    let x = l.x(0)?;
    if is_float(to) && to.bits() <= 8 && from != to {
        return unmapped(format!("MIL has no numbers of type {}, to which the elements would be rounded", to.name()));
    }
    Ok(vec![match to {
        ElementType::Complex64 => return unmapped("MIL has no complex numbers"),
        ElementType::Bool => l.cast(x, DataType::Bool)?,
        ElementType::Float16 => l.cast(x, DataType::Fp16)?,
        _ if is_float(to) => l.cast(x, DataType::Fp32)?,
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
