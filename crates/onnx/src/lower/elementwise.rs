//! Element-wise operators.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, DataType, ValueId};

use super::state::{Built, Lower, one, unmapped};
use crate::element::ElementType;

type Results = Built<Vec<Option<ValueId>>>;

/// Defines the lowering of an operator that is one MIL op with the single argument `x`.
macro_rules! direct {
    ($($name:ident = $op:literal;)*) => {
        $(pub(super) fn $name(l: &mut Lower<'_>) -> Results {
            let x = l.x(0)?;
            one(l.un($op, x)?)
        })*
    };
}

direct! {
    acos = "acos";
    asin = "asin";
    atan = "atan";
    ceil = "ceil";
    cos = "cos";
    cosh = "cosh";
    erf = "erf";
    exp = "exp";
    floor = "floor";
    not = "logical_not";
    round = "round";
    sigmoid = "sigmoid";
    sin = "sin";
    sinh = "sinh";
    softplus = "softplus";
    softsign = "softsign";
    sqrt = "sqrt";
    tan = "tan";
    tanh = "tanh";
    atanh = "atanh";
    identity = "identity";
    abs = "abs";
    sign = "sign";
    relu = "relu";
}

/// MIL adds 1e-45 to x unless another number is given.
pub(super) fn log_of(l: &mut Lower<'_>, x: ValueId) -> Built {
    let none = l.num(x, 0.0);
    l.op("log", [("x", x.into()), ("epsilon", none.into())])
}

pub(super) fn log(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    one(log_of(l, x)?)
}

pub(super) fn acosh(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let square = l.un("square", x)?;
    let inner = l.bin("sub", square, l.num(x, 1.0))?;
    let root = l.un("sqrt", inner)?;
    let sum = l.bin("add", x, root)?;
    one(l.un("log", sum)?)
}

pub(super) fn asinh(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let (size, sign) = (l.un("abs", x)?, l.un("sign", x)?);
    let square = l.un("square", x)?;
    let inner = l.bin("add", square, l.num(x, 1.0))?;
    let root = l.un("sqrt", inner)?;
    let sum = l.bin("add", size, root)?;
    let log = l.un("log", sum)?;
    one(l.bin("mul", sign, log)?)
}

pub(super) fn neg(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    one(l.bin("mul", x, l.num(x, -1.0))?)
}

pub(super) fn reciprocal(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    one(l.bin("real_div", l.num(x, 1.0), x)?)
}

pub(super) fn hard_sigmoid(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let (alpha, beta) = (l.num(x, l.float("alpha", 0.2)), l.num(x, l.float("beta", 0.5)));
    one(l.op("sigmoid_hard", [("x", x.into()), ("alpha", alpha.into()), ("beta", beta.into())])?)
}

pub(super) fn hard_swish(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let (alpha, beta) = (l.num(x, 1.0 / 6.0), l.num(x, 0.5));
    let gate = l.op("sigmoid_hard", [("x", x.into()), ("alpha", alpha.into()), ("beta", beta.into())])?;
    one(l.bin("mul", x, gate)?)
}

fn elu_of(l: &mut Lower<'_>, x: ValueId, alpha: f32) -> Built {
    let alpha = l.num(x, alpha);
    l.op("elu", [("x", x.into()), ("alpha", alpha.into())])
}

pub(super) fn elu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    one(elu_of(l, x, l.float("alpha", 1.0))?)
}

pub(super) fn celu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let alpha = l.float("alpha", 1.0);
    let scaled = l.bin("mul", x, l.num(x, 1.0 / alpha))?;
    let y = elu_of(l, scaled, 1.0)?;
    one(l.bin("mul", y, l.num(x, alpha))?)
}

pub(super) fn selu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let y = elu_of(l, x, l.float("alpha", 1.673_263_2))?;
    one(l.bin("mul", y, l.num(x, l.float("gamma", 1.050_701)))?)
}

pub(super) fn leaky_relu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let alpha = l.num(x, l.float("alpha", 0.01));
    one(l.op("leaky_relu", [("x", x.into()), ("alpha", alpha.into())])?)
}

/// MIL's `prelu` if the slope is one number for each channel, else the sum of the positive and the
/// scaled negative part.
pub(super) fn prelu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let shape = l.shape(x)?;
    if !l.is_known(1) {
        return prelu_of_parts(l, x);
    }
    let slope = l.known(1)?;
    let per_channel = shape.len() >= 3
        && slope.shape().len() + 1 == shape.len()
        && slope.shape()[0] == shape[1]
        && slope.len() == shape[1];
    if per_channel {
        let slope = l.constant(l.dtype(x), &[shape[1]], slope.values())?;
        return one(l.op("prelu", [("x", x.into()), ("alpha", slope.into())])?);
    }
    prelu_of_parts(l, x)
}

fn prelu_of_parts(l: &mut Lower<'_>, x: ValueId) -> Results {
    let slope = l.x(1)?;
    let positive = l.bin("maximum", x, l.num(x, 0.0))?;
    let negative = l.bin("minimum", x, l.num(x, 0.0))?;
    let scaled = l.bin("mul", negative, slope)?;
    one(l.bin("add", positive, scaled)?)
}

/// MIL's `thresholded_relu` keeps x at the threshold itself; ONNX does not.
pub(super) fn thresholded_relu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let above = l.bin("greater", x, l.num(x, l.float("alpha", 1.0)))?;
    one(l.select(above, x, l.num(x, 0.0))?)
}

pub(super) fn shrink(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let (lambd, bias) = (l.float("lambd", 0.5), l.float("bias", 0.0));
    let f = l.cast(x, DataType::Fp32)?;
    let (low, high) = (l.bin("less", f, Constant::fp32(-lambd))?, l.bin("greater", f, Constant::fp32(lambd))?);
    let (up, down) = (l.bin("add", f, Constant::fp32(bias))?, l.bin("sub", f, Constant::fp32(bias))?);
    let zero = l.bin("mul", f, Constant::fp32(0.0))?;
    let upper = l.select(high, down, zero)?;
    let y = l.select(low, up, upper)?;
    one(l.cast(y, l.dtype(x))?)
}

pub(super) fn gelu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let mode = if l.text("approximate", "none") == "tanh" { "TANH_APPROXIMATION" } else { "EXACT" };
    one(l.op("gelu", [("x", x.into()), ("mode", Constant::string(mode).into())])?)
}

pub(super) fn mish(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let soft = l.un("softplus", x)?;
    let gate = l.un("tanh", soft)?;
    one(l.bin("mul", x, gate)?)
}

pub(super) fn swish(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let alpha = l.float("alpha", 1.0);
    if alpha == 1.0 {
        return one(l.un("silu", x)?);
    }
    let scaled = l.bin("mul", x, l.num(x, alpha))?;
    let gate = l.un("sigmoid", scaled)?;
    one(l.bin("mul", x, gate)?)
}

pub(super) fn clip(l: &mut Lower<'_>) -> Results {
    let first = l.x(0)?;
    let mut x = first;
    // The upper bound is applied last: it wins if the lower bound is larger. Before opset 11 the
    // bounds are attributes.
    for (i, op, name) in [(1, "maximum", "min"), (2, "minimum", "max")] {
        if let Some(bound) = l.maybe(i)? {
            x = l.bin(op, x, bound)?;
        } else if l.given(name) {
            x = l.bin(op, x, l.num(x, l.float(name, 0.0)))?;
        }
    }
    one(if x == first { l.un("identity", x)? } else { x })
}

/// Defines the lowering of an operator that is one MIL op with two operands. Narrow integers wrap.
macro_rules! pair {
    ($($name:ident = $op:literal;)*) => {
        $(pub(super) fn $name(l: &mut Lower<'_>) -> Results {
            let (x, y) = (l.x(0)?, l.x(1)?);
            let z = l.bin($op, x, y)?;
            let element = l.element(0)?;
            one(if l.dtype(z) == DataType::Int32 { wrapped(l, z, element)? } else { z })
        })*
    };
}

pair! {
    add = "add";
    sub = "sub";
    mul = "mul";
    and = "logical_and";
    or = "logical_or";
    xor = "logical_xor";
    greater = "greater";
    greater_equal = "greater_equal";
    less = "less";
    less_equal = "less_equal";
}

pub(super) fn equal(l: &mut Lower<'_>) -> Results {
    let (mut x, mut y) = (l.x(0)?, l.x(1)?);
    if l.dtype(x) == DataType::Bool {
        (x, y) = (l.cast(x, DataType::Int32)?, l.cast(y, DataType::Int32)?);
    }
    one(l.bin("equal", x, y)?)
}

/// Divides the magnitudes and restores the sign: integer division rounds toward zero in ONNX.
pub(super) fn div(l: &mut Lower<'_>) -> Results {
    let (x, y) = (l.x(0)?, l.x(1)?);
    if l.is_float(x) {
        return one(l.bin("real_div", x, y)?);
    }
    let (a, b) = (l.un("abs", x)?, l.un("abs", y)?);
    let size = l.bin("floor_div", a, b)?;
    let (p, q) = (l.un("sign", x)?, l.un("sign", y)?);
    let sign = l.bin("mul", p, q)?;
    one(l.bin("mul", sign, size)?)
}

/// MIL's `mod` has the sign of the divisor; `fmod` has that of the dividend.
pub(super) fn modulo(l: &mut Lower<'_>) -> Results {
    let (x, y) = (l.x(0)?, l.x(1)?);
    if l.int("fmod", 0) == 0 {
        return one(l.bin("mod", x, y)?);
    }
    let (a, b) = (l.un("abs", x)?, l.un("abs", y)?);
    let size = l.bin("mod", a, b)?;
    let sign = l.un("sign", x)?;
    one(l.bin("mul", sign, size)?)
}

pub(super) fn pow(l: &mut Lower<'_>) -> Results {
    let (x, y) = (l.x(0)?, l.x(1)?);
    let dtype = l.dtype(x);
    if dtype == l.dtype(y) && dtype.is_float() {
        return one(l.bin("pow", x, y)?);
    }
    let (a, b) = (l.cast(x, DataType::Fp32)?, l.cast(y, DataType::Fp32)?);
    let z = l.bin("pow", a, b)?;
    one(l.cast(z, dtype)?)
}

fn fold(l: &mut Lower<'_>, op: &str) -> Built {
    let mut total = l.x(0)?;
    for i in 1..l.count() {
        let next = l.x(i)?;
        total = l.bin(op, total, next)?;
    }
    if l.count() == 1 { l.un("identity", total) } else { Ok(total) }
}

pub(super) fn max(l: &mut Lower<'_>) -> Results {
    one(fold(l, "maximum")?)
}

pub(super) fn min(l: &mut Lower<'_>) -> Results {
    one(fold(l, "minimum")?)
}

pub(super) fn sum(l: &mut Lower<'_>) -> Results {
    one(fold(l, "add")?)
}

pub(super) fn mean(l: &mut Lower<'_>) -> Results {
    let total = fold(l, "add")?;
    one(l.bin("mul", total, l.num(total, 1.0 / l.count() as f32))?)
}

/// Multiplies or divides by a power of two.
pub(super) fn bit_shift(l: &mut Lower<'_>) -> Results {
    let (x, bits, element) = (l.x(0)?, l.known(1)?, l.element(0)?);
    let powers: Vec<f64> = bits.values().iter().map(|&n| 2f64.powf(n)).collect();
    if powers.iter().any(|&p| p > f64::from(i32::MAX)) {
        return unmapped("a shift beyond int32");
    }
    let factor = l.tensor(x, bits.shape(), &powers)?;
    let left = l.text("direction", "LEFT") == "LEFT";
    let y = l.bin(if left { "mul" } else { "floor_div" }, x, factor)?;
    one(if left { wrapped(l, y, element)? } else { y })
}

/// Two's complement: `-1 - x`.
pub(super) fn bitwise_not(l: &mut Lower<'_>) -> Results {
    let (x, element) = (l.x(0)?, l.element(0)?);
    let y = l.bin("sub", Constant::int32(-1), x)?;
    one(wrapped(l, y, element)?)
}

fn bitwise(l: &mut Lower<'_>, combine: fn(&mut Lower<'_>, ValueId, ValueId) -> Built) -> Results {
    let element = l.element(0)?;
    let width = element.integer().map_or(32, |(bits, _)| bits.min(32)) as usize;
    let operands = [l.x(0)?, l.x(1)?];
    let both = l.combined_bits(operands, width, combine)?;
    one(if width < 32 { wrapped(l, both, element)? } else { both })
}

pub(super) fn bitwise_and(l: &mut Lower<'_>) -> Results {
    bitwise(l, |l, a, b| l.bin("mul", a, b))
}

pub(super) fn bitwise_or(l: &mut Lower<'_>) -> Results {
    bitwise(l, |l, a, b| l.bin("maximum", a, b))
}

pub(super) fn bitwise_xor(l: &mut Lower<'_>) -> Results {
    bitwise(l, |l, a, b| {
        let same = l.bin("not_equal", a, b)?;
        l.cast(same, DataType::Int32)
    })
}

pub(super) fn is_nan(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    one(l.bin("not_equal", x, x)?)
}

pub(super) fn is_inf(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let (up, down) = (l.int("detect_positive", 1) != 0, l.int("detect_negative", 1) != 0);
    let positive = l.bin("equal", x, l.num(x, f32::INFINITY))?;
    let negative = l.bin("equal", x, l.num(x, f32::NEG_INFINITY))?;
    one(match (up, down) {
        (true, true) => l.bin("logical_or", positive, negative)?,
        (true, false) => positive,
        (false, true) => negative,
        (false, false) => l.bin("logical_and", positive, negative)?,
    })
}

pub(super) fn select(l: &mut Lower<'_>) -> Results {
    let (cond, a, b) = (l.x(0)?, l.x(1)?, l.x(2)?);
    one(l.select(cond, a, b)?)
}

/// Integers wrap to the width of a narrower type; floats are rounded toward zero.
fn cast_to(l: &mut Lower<'_>, to: ElementType) -> Results {
    let dtype = l.mil(to)?;
    let from = l.element(0)?;
    let x = l.x(0)?;
    l.elements = Some(to);
    let y = if l.dtype(x) == dtype { l.un("identity", x)? } else { l.cast(x, dtype)? };
    if to == ElementType::BFloat16 && from != to && l.is_float(y) && l.dtype(y) == DataType::Fp32 {
        return one(bfloat16(l, y)?);
    }
    one(match (from.integer(), to.integer()) {
        (None, Some((narrow, _))) if narrow < 32 && from != ElementType::Bool => wrapped(l, y, to)?,
        (Some((wide, _)), Some((narrow, _))) if narrow < wide && narrow < 32 => wrapped(l, y, to)?,
        (Some((same, true)), Some((width, false))) if same == width && width < 32 => wrapped(l, y, to)?,
        (Some((same, false)), Some((width, true))) if same == width && width < 32 => wrapped(l, y, to)?,
        _ => y,
    })
}

/// x rounded to 8 significant bits: a multiple of x is so large that its sum with x keeps only the
/// upper bits (Veltkamp's splitting). Numbers next to the largest ones stay as they are.
fn bfloat16(l: &mut Lower<'_>, x: ValueId) -> Built {
    let scaled = l.bin("mul", x, Constant::fp32(65537.0))?;
    let lower = l.bin("sub", scaled, x)?;
    let rounded = l.bin("sub", scaled, lower)?;
    let size = l.un("abs", x)?;
    let small = l.bin("less", size, Constant::fp32(1e30))?;
    l.select(small, rounded, x)
}

/// An int32 value modulo the width of a narrow integer type.
pub(super) fn wrapped(l: &mut Lower<'_>, x: ValueId, to: ElementType) -> Built {
    let Some((low, high)) = to.range().filter(|(low, high)| high - low < 2f64.powi(31)) else { return Ok(x) };
    let (low, span) = (low as i32, (high - low + 1.0) as i32);
    let moved = if low == 0 { x } else { l.bin("sub", x, Constant::int32(low))? };
    let inside = l.bin("mod", moved, Constant::int32(span))?;
    if low == 0 { Ok(inside) } else { l.bin("add", inside, Constant::int32(low)) }
}

pub(super) fn cast(l: &mut Lower<'_>) -> Results {
    cast_to(l, ElementType::from_number(l.int("to", 0) as i32))
}

pub(super) fn cast_like(l: &mut Lower<'_>) -> Results {
    let like = l.element(1)?;
    cast_to(l, like)
}

/// At inference: x itself, and a mask of ones.
pub(super) fn dropout(l: &mut Lower<'_>) -> Results {
    let training = l.has(2) && l.floats(2)?.first().is_some_and(|&v| v != 0.0) || l.int("is_test", 1) == 0;
    let zero = l.has(1) && l.floats(1)?.first() == Some(&0.0);
    if training && !zero {
        return unmapped("training drops elements at random");
    }
    let x = l.x(0)?;
    let y = l.un("identity", x)?;
    let mask = if l.wants(1) { Some(l.bin("equal", x, x)?) } else { None };
    Ok(vec![Some(y), mask])
}
