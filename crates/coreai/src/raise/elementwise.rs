//! Element-wise ops and activations.

use super::emit::APPROXIMATE;
use super::state::{Built, Raise, rejected};
use crate::bytecode::ValueId;
use crate::dialect::ElementType::Float16;

pub(super) type Results = Built<Vec<ValueId>>;

/// Defines the rule of an op that is one operation of `x`.
macro_rules! direct {
    ($($name:ident = $op:literal;)*) => {
        $(pub(super) fn $name(r: &mut Raise<'_>) -> Results {
            let x = r.x("x")?;
            Ok(vec![r.un($op, x)?])
        })*
    };
}

direct! {
    abs = "primitive.abs_v1";
    acos = "primitive.acos_v1";
    asin = "primitive.asin_v1";
    atan = "primitive.atan_v1";
    atanh = "primitive.atanh_v1";
    cos = "primitive.cos_v1";
    cosh = "primitive.cosh_v1";
    erf = "primitive.erf_v1";
    exp = "primitive.exp_v1";
    logical_not = "primitive.not_v1";
    round = "primitive.round_v1";
    sin = "primitive.sin_v1";
    sinh = "primitive.sinh_v1";
    sqrt = "primitive.sqrt_v1";
    tan = "primitive.tan_v1";
    tanh = "primitive.tanh_v1";
}

/// Defines the rule of an op that is one operation of `x` and `y`.
macro_rules! pairs {
    ($($name:ident = $op:literal;)*) => {
        $(pub(super) fn $name(r: &mut Raise<'_>) -> Results {
            let (x, y) = (r.x("x")?, r.x("y")?);
            Ok(vec![r.bin($op, x, y)?])
        })*
    };
}

pairs! {
    add = "add";
    equal = "equal";
    floor_div = "floor_divide";
    greater = "greater";
    logical_and = "logical_and";
    logical_or = "logical_or";
    logical_xor = "logical_xor";
    maximum = "maximum";
    minimum = "minimum";
    mul = "mul";
    not_equal = "not_equal";
    pow = "pow";
    real_div = "divide";
    sub = "sub";
}

pub(super) fn identity(r: &mut Raise<'_>) -> Results {
    Ok(vec![r.x("x")?])
}

pub(super) fn relu(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    Ok(vec![r.relu(x)?])
}

pub(super) fn sigmoid(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    Ok(vec![r.sigmoid(x)?])
}

pub(super) fn silu(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    Ok(vec![r.silu(x)?])
}

pub(super) fn less(r: &mut Raise<'_>) -> Results {
    let (x, y) = (r.x("x")?, r.x("y")?);
    Ok(vec![r.bin("greater", y, x)?])
}

/// Greater or equal, which a NaN is not.
fn ordered(r: &mut Raise<'_>, large: &str, small: &str) -> Results {
    let (x, y) = (r.x(large)?, r.x(small)?);
    let (greater, equal) = (r.bin("greater", x, y)?, r.bin("equal", x, y)?);
    Ok(vec![r.bin("logical_or", greater, equal)?])
}

pub(super) fn greater_equal(r: &mut Raise<'_>) -> Results {
    ordered(r, "x", "y")
}

pub(super) fn less_equal(r: &mut Raise<'_>) -> Results {
    ordered(r, "y", "x")
}

/// Core AI's remainder has the sign of x, MIL's that of y.
pub(super) fn modulo(r: &mut Raise<'_>) -> Results {
    let (x, y) = (r.x("x")?, r.x("y")?);
    let rest = r.bin("modulo", x, y)?;
    let zero = r.num(x, 0.0)?;
    let (below, negative) = (r.bin("greater", zero, rest)?, r.bin("greater", zero, y)?);
    let (differ, there) = (r.bin("logical_xor", below, negative)?, r.bin("not_equal", rest, zero)?);
    let moves = r.bin("logical_and", differ, there)?;
    let moved = r.bin("add", rest, y)?;
    Ok(vec![r.select(moves, moved, rest)?])
}

/// The nearest integer, or the one next to it in a direction.
fn rounded(r: &mut Raise<'_>, up: bool) -> Results {
    let x = r.x("x")?;
    let near = r.un("primitive.round_v1", x)?;
    let (beyond, step) = if up { (r.bin("greater", x, near)?, "add") } else { (r.bin("greater", near, x)?, "sub") };
    let moved = r.with(step, near, 1.0)?;
    Ok(vec![r.select(beyond, moved, near)?])
}

pub(super) fn floor(r: &mut Raise<'_>) -> Results {
    rounded(r, false)
}

pub(super) fn ceil(r: &mut Raise<'_>) -> Results {
    rounded(r, true)
}

pub(super) fn sign(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let (zero, element) = (r.num(x, 0.0)?, r.element(x)?);
    let (above, below) = (r.bin("greater", x, zero)?, r.bin("greater", zero, x)?);
    let (above, below) = (r.cast(above, element)?, r.cast(below, element)?);
    Ok(vec![r.bin("sub", above, below)?])
}

pub(super) fn square(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    Ok(vec![r.bin("mul", x, x)?])
}

pub(super) fn exp2(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let two = r.num(x, 2.0)?;
    Ok(vec![r.bin("pow", two, x)?])
}

/// An epsilon that fp16 rounds to zero next to every number but zero.
const UNSEEN: f64 = 1e-11;

pub(super) fn log(r: &mut Raise<'_>) -> Results {
    let (x, epsilon) = (r.x("x")?, r.number("epsilon")?);
    if epsilon > 0.0 && epsilon < UNSEEN && r.element(x)? == Float16 {
        let y = r.un("primitive.log_v1", x)?;
        return Ok(vec![r.with("maximum", y, epsilon.ln())?]);
    }
    let x = if epsilon == 0.0 { x } else { r.with("add", x, epsilon)? };
    Ok(vec![r.un("primitive.log_v1", x)?])
}

pub(super) fn rsqrt(r: &mut Raise<'_>) -> Results {
    let (mut x, epsilon) = (r.x("x")?, r.number("epsilon")?);
    if epsilon != 0.0 && !(epsilon.abs() < UNSEEN && r.element(x)? == Float16) {
        x = r.with("add", x, epsilon)?;
    }
    Ok(vec![r.un("primitive.rsqrt_v1", x)?])
}

pub(super) fn inverse(r: &mut Raise<'_>) -> Results {
    let (x, epsilon) = (r.x("x")?, r.number("epsilon")?);
    let (one, y) = (r.num(x, 1.0)?, if epsilon == 0.0 { x } else { r.with("add", x, epsilon)? });
    Ok(vec![r.bin("divide", one, y)?])
}

/// x held within two numbers.
fn held(r: &mut Raise<'_>, x: ValueId, low: f64, high: f64) -> Built {
    let above = r.with("maximum", x, low)?;
    r.with("minimum", above, high)
}

pub(super) fn clip(r: &mut Raise<'_>) -> Results {
    let (x, low, high) = (r.x("x")?, r.number("alpha")?, r.number("beta")?);
    Ok(vec![held(r, x, low, high)?])
}

pub(super) fn threshold(r: &mut Raise<'_>) -> Results {
    let (x, alpha) = (r.x("x")?, r.number("alpha")?);
    Ok(vec![r.with("maximum", x, alpha)?])
}

pub(super) fn select(r: &mut Raise<'_>) -> Results {
    let (cond, a, b) = (r.x("cond")?, r.x("a")?, r.x("b")?);
    Ok(vec![r.select(cond, a, b)?])
}

pub(super) fn cast(r: &mut Raise<'_>) -> Results {
    let (x, to) = (r.x("x")?, r.result(0)?.element);
    Ok(vec![r.cast(x, to)?])
}

pub(super) fn constexpr_cast(r: &mut Raise<'_>) -> Results {
    let (x, to) = (r.x("source_val")?, r.result(0)?.element);
    Ok(vec![r.cast(x, to)?])
}

pub(super) fn relu6(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let y = r.relu(x)?;
    Ok(vec![r.with("minimum", y, 6.0)?])
}

/// `ln(1 + eˣ)`, in a form that does not overflow.
fn softened(r: &mut Raise<'_>, x: ValueId) -> Built {
    let size = r.un("primitive.abs_v1", x)?;
    let negative = r.with("mul", size, -1.0)?;
    let small = r.un("primitive.exp_v1", negative)?;
    let sum = r.with("add", small, 1.0)?;
    let rest = r.un("primitive.log_v1", sum)?;
    let positive = r.relu(x)?;
    r.bin("add", positive, rest)
}

pub(super) fn softplus(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    Ok(vec![softened(r, x)?])
}

pub(super) fn softsign(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let size = r.un("primitive.abs_v1", x)?;
    let below = r.with("add", size, 1.0)?;
    Ok(vec![r.bin("divide", x, below)?])
}

/// `y` where x is below 0, else x.
fn below_zero(r: &mut Raise<'_>, x: ValueId, y: ValueId) -> Built {
    let zero = r.num(x, 0.0)?;
    let negative = r.bin("greater", zero, x)?;
    r.select(negative, y, x)
}

fn leaky(r: &mut Raise<'_>, x: ValueId) -> Built {
    let alpha = r.number("alpha")?;
    let scaled = r.with("mul", x, alpha)?;
    below_zero(r, x, scaled)
}

pub(super) fn leaky_relu(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    Ok(vec![leaky(r, x)?])
}

pub(super) fn clamped_relu(r: &mut Raise<'_>) -> Results {
    let (x, beta) = (r.x("x")?, r.number("beta")?);
    let y = leaky(r, x)?;
    Ok(vec![r.with("minimum", y, beta)?])
}

pub(super) fn elu(r: &mut Raise<'_>) -> Results {
    let (x, alpha) = (r.x("x")?, r.number("alpha")?);
    let power = r.un("primitive.exp_v1", x)?;
    let shifted = r.with("sub", power, 1.0)?;
    let scaled = r.with("mul", shifted, alpha)?;
    Ok(vec![below_zero(r, x, scaled)?])
}

pub(super) fn thresholded_relu(r: &mut Raise<'_>) -> Results {
    let (x, alpha) = (r.x("x")?, r.number("alpha")?);
    let (alpha, zero) = (r.num(x, alpha)?, r.num(x, 0.0)?);
    let below = r.bin("greater", alpha, x)?;
    Ok(vec![r.select(below, zero, x)?])
}

/// A vector of one number for each channel, which are axis 1.
fn by_channel(r: &mut Raise<'_>, name: &str, x: ValueId) -> Built {
    let (vector, rank) = (r.as_type_of(name, x)?, r.rank(x)?);
    if r.rank(vector)? != 1 || rank < 2 {
        return rejected(format!("`{name}` needs one number for each channel"));
    }
    r.along(vector, 1, rank)
}

pub(super) fn prelu(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let alpha = by_channel(r, "alpha", x)?;
    let scaled = r.bin("mul", x, alpha)?;
    Ok(vec![below_zero(r, x, scaled)?])
}

pub(super) fn softplus_parametric(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let (alpha, beta) = (by_channel(r, "alpha", x)?, by_channel(r, "beta", x)?);
    let inner = r.bin("mul", x, beta)?;
    let soft = softened(r, inner)?;
    Ok(vec![r.bin("mul", soft, alpha)?])
}

/// `alpha · x + beta`.
fn line(r: &mut Raise<'_>) -> Built {
    let (x, alpha, beta) = (r.x("x")?, r.number("alpha")?, r.number("beta")?);
    let scaled = r.with("mul", x, alpha)?;
    r.with("add", scaled, beta)
}

pub(super) fn linear_activation(r: &mut Raise<'_>) -> Results {
    Ok(vec![line(r)?])
}

pub(super) fn sigmoid_hard(r: &mut Raise<'_>) -> Results {
    let y = line(r)?;
    Ok(vec![held(r, y, 0.0, 1.0)?])
}

pub(super) fn scaled_tanh(r: &mut Raise<'_>) -> Results {
    let (x, alpha, beta) = (r.x("x")?, r.number("alpha")?, r.number("beta")?);
    let inner = r.with("mul", x, beta)?;
    let y = r.un("primitive.tanh_v1", inner)?;
    Ok(vec![r.with("mul", y, alpha)?])
}

pub(super) fn gelu(r: &mut Raise<'_>) -> Results {
    let (x, mode) = (r.x("x")?, r.text("mode")?);
    let form = match mode.as_str() {
        "EXACT" => 0,
        "TANH_APPROXIMATION" => 1,
        _ => {
            let inner = r.with("mul", x, 1.702)?;
            let gate = r.sigmoid(inner)?;
            return Ok(vec![r.bin("mul", x, gate)?]);
        }
    };
    let (shape, element, form) = (r.extents(x)?, r.element(x)?, r.choice(APPROXIMATE, form));
    Ok(vec![r.formed("primitive.gelu_v1", &[x], Some(("approximate", form)), shape, element)])
}

pub(super) fn softmax(r: &mut Raise<'_>) -> Results {
    let x = r.x("x")?;
    let axis = r.axis("axis", r.rank(x)?)?;
    Ok(vec![r.softmax(x, axis)?])
}

/// The gate or activation of a recurrent layer, by its name.
pub(super) fn named(r: &mut Raise<'_>, name: &str, x: ValueId) -> Built {
    match name.to_lowercase().as_str() {
        "tanh" | "scaled_tanh" => r.un("primitive.tanh_v1", x),
        "sigmoid" => r.sigmoid(x),
        "hard_sigmoid" | "sigmoid_hard" => {
            let scaled = r.with("mul", x, 0.2)?;
            let moved = r.with("add", scaled, 0.5)?;
            held(r, moved, 0.0, 1.0)
        }
        "relu" => r.relu(x),
        "linear" => Ok(x),
        other => rejected(format!("an activation `{other}`")),
    }
}
