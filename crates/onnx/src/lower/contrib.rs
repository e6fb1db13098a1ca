//! Operators of `com.microsoft` that optimizers of ONNX Runtime write.

use ferrane_mil::emit::Emit;
use ferrane_mil::{Constant, Transpose, ValueId};

use super::conv::{conv_of, real, stored};
use super::state::{Built, Lower, one, unmapped};

type Results = Built<Vec<Option<ValueId>>>;

/// `Gelu(x + bias)`.
pub(super) fn bias_gelu(l: &mut Lower<'_>) -> Results {
    let (x, bias) = (l.x(0)?, l.x(1)?);
    let x = l.bin("add", x, bias)?;
    one(l.op("gelu", [("x", x.into()), ("mode", Constant::string("EXACT").into())])?)
}

/// The tanh approximation, with an optional bias.
pub(super) fn fast_gelu(l: &mut Lower<'_>) -> Results {
    let mut x = l.x(0)?;
    if let Some(bias) = l.maybe(1)? {
        x = l.bin("add", x, bias)?;
    }
    one(l.op("gelu", [("x", x.into()), ("mode", Constant::string("TANH_APPROXIMATION").into())])?)
}

/// `x · sigmoid(alpha · x)`.
pub(super) fn quick_gelu(l: &mut Lower<'_>) -> Results {
    let x = l.x(0)?;
    let scaled = l.bin("mul", x, l.num(x, l.float("alpha", 1.702)))?;
    let gate = l.un("sigmoid", scaled)?;
    one(l.bin("mul", x, gate)?)
}

/// The activation that is fused into a node.
fn activated(l: &mut Lower<'_>, y: ValueId) -> Built {
    let parameters = match l.node.attribute("activation_params") {
        Some(crate::graph::Attribute::Floats(v)) => v.clone(),
        _ => Vec::new(),
    };
    let parameter = |i: usize, default: f32| parameters.get(i).copied().unwrap_or(default);
    match l.text("activation", "") {
        "" => Ok(y),
        "Relu" => l.un("relu", y),
        "Tanh" => l.un("tanh", y),
        "Sigmoid" => l.un("sigmoid", y),
        "LeakyRelu" => {
            let alpha = l.num(y, parameter(0, l.float("leaky_relu_alpha", 0.01)));
            l.op("leaky_relu", [("x", y.into()), ("alpha", alpha.into())])
        }
        "Clip" => {
            let (low, high) = (l.num(y, parameter(0, f32::MIN)), l.num(y, parameter(1, f32::MAX)));
            let above = l.bin("maximum", y, low)?;
            l.bin("minimum", above, high)
        }
        "HardSigmoid" => {
            let (alpha, beta) = (l.num(y, parameter(0, 0.2)), l.num(y, parameter(1, 0.5)));
            l.op("sigmoid_hard", [("x", y.into()), ("alpha", alpha.into()), ("beta", beta.into())])
        }
        other => unmapped(format!("the fused activation {other}")),
    }
}

/// A convolution, then a tensor to add, then an activation.
pub(super) fn fused_conv(l: &mut Lower<'_>) -> Results {
    let (x, weight) = (l.x(0)?, l.x(1)?);
    if l.has(2) {
        l.known(2)?;
    }
    let bias = l.maybe(2)?;
    let mut y = conv_of(l, x, weight, bias)?;
    if let Some(z) = l.maybe(3)? {
        y = l.bin("add", y, z)?;
    }
    one(activated(l, y)?)
}

pub(super) fn fused_gemm(l: &mut Lower<'_>) -> Results {
    let found = super::reduce::gemm(l)?;
    match found.into_iter().flatten().next() {
        Some(y) => one(activated(l, y)?),
        None => unmapped("a product without a result"),
    }
}

/// A matrix product with transposed operands and a factor.
pub(super) fn fused_matmul(l: &mut Lower<'_>) -> Results {
    if l.int("transBatchA", 0) != 0 || l.int("transBatchB", 0) != 0 {
        return unmapped("transposed batches");
    }
    let (a, b) = (l.x(0)?, l.x(1)?);
    let y = l.b.matmul(&l.label, a, b, Transpose::from_flags(l.int("transA", 0) != 0, l.int("transB", 0) != 0))?;
    let alpha = l.float("alpha", 1.0);
    one(if alpha == 1.0 { y } else { l.bin("mul", y, l.num(y, alpha))? })
}

fn q_linear(l: &mut Lower<'_>, op: &str) -> Results {
    let (a, b) = (real(l, 0, 1, 2, usize::MAX)?, real(l, 3, 4, 5, usize::MAX)?);
    let y = l.bin(op, a, b)?;
    one(stored(l, y, 6, 7)?)
}

pub(super) fn q_linear_add(l: &mut Lower<'_>) -> Results {
    q_linear(l, "add")
}

pub(super) fn q_linear_mul(l: &mut Lower<'_>) -> Results {
    q_linear(l, "mul")
}

/// The contributed operator has the positions before the tables.
pub(super) fn rotary(l: &mut Lower<'_>) -> Results {
    if l.float("scale", 1.0) != 1.0 || l.int("is_packed_batching", 0) != 0 {
        return unmapped("a scale or packed batches");
    }
    if l.extents(1)?.len() != 2 {
        return unmapped("a single offset instead of positions");
    }
    super::attention::rotated(l, [2, 3, 1])
}

/// The sum of x, a residual and an optional bias; `bias` is its input.
fn skip(l: &mut Lower<'_>, bias: usize) -> Built {
    let (x, skip) = (l.x(0)?, l.x(1)?);
    let mut sum = l.bin("add", x, skip)?;
    if let Some(bias) = l.maybe(bias)? {
        sum = l.bin("add", sum, bias)?;
    }
    Ok(sum)
}

/// The results of a normalization of a sum: outputs 1 and 2 are statistics of training.
fn with_sum(l: &mut Lower<'_>, y: ValueId, sum: ValueId) -> Results {
    let sum = if l.wants(3) { Some(sum) } else { None };
    Ok(vec![Some(y), None, None, sum])
}

/// `LayerNormalization(x + skip + bias)`.
pub(super) fn skip_layer_norm(l: &mut Lower<'_>) -> Results {
    let sum = skip(l, 4)?;
    let dtype = l.dtype(sum);
    let mut args: Vec<(&str, ferrane_mil::Arg)> = vec![("x", sum.into()), ("axes", Constant::int32s(&[-1]).into())];
    for (i, name) in [(2, "gamma"), (3, "beta")] {
        if l.has(i) {
            args.push((name, l.typed(i, dtype)?.into()));
        }
    }
    args.push(("epsilon", l.num(sum, l.float("epsilon", 1e-12)).into()));
    let y = l.build("layer_norm", args)?;
    with_sum(l, y, sum)
}

/// `RMSNormalization(x + skip + bias)`.
pub(super) fn skip_rms_norm(l: &mut Lower<'_>) -> Results {
    let sum = skip(l, 3)?;
    let last = l.ranked(sum, 1)?.len() - 1;
    let square = l.un("square", sum)?;
    let mean = l.reduce("reduce_mean", square, &[last], true)?;
    let above = l.bin("add", mean, l.num(sum, l.float("epsilon", 1e-12)))?;
    let root = l.un("sqrt", above)?;
    let y = l.bin("real_div", sum, root)?;
    let gamma = l.x(2)?;
    let y = l.bin("mul", y, gamma)?;
    with_sum(l, y, sum)
}
