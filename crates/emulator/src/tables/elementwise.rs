//! Element-wise arithmetic over registers. Integers and bools use the same registers, as int32
//! bits.

use ferrane_host::{simd, vectorize};

use crate::ir::{Binary, Compare, Elementwise, IntUnary, Unary};

use super::Table;

/// Loops over one, two or three sources with vector code.
macro_rules! map {
    ($to:ident, $a:ident => $body:expr) => {
        vectorize!({
            for (t, &$a) in $to.iter_mut().zip($a) {
                *t = $body;
            }
        })
    };
    ($to:ident, $a:ident, $b:ident => $body:expr) => {
        vectorize!({
            for ((t, &$a), &$b) in $to.iter_mut().zip($a).zip($b) {
                *t = $body;
            }
        })
    };
    ($to:ident, $a:ident, $b:ident, $c:ident => $body:expr) => {
        vectorize!({
            for (((t, &$a), &$b), &$c) in $to.iter_mut().zip($a).zip($b).zip($c) {
                *t = $body;
            }
        })
    };
}

/// Runs one operation over whole registers.
pub(crate) fn run(table: &Table, op: Elementwise, to: &mut [f32], from: [&[f32]; 3]) {
    let [a, b, c] = from;
    match op {
        Elementwise::Unary(f) => (table.unary)(f, to, a),
        Elementwise::Binary(f) => binary(f, to, a, b),
        Elementwise::Compare(f) => compare(f, bytemuck::cast_slice_mut(to), a, b),
        Elementwise::MulAdd => map!(to, a, b, c => a * b + c),
        Elementwise::Dequantize => {
            let a: &[i32] = bytemuck::cast_slice(a);
            map!(to, a, b, c => (a as f32 - c) * b);
        }
        Elementwise::Quantize(low, high) => {
            let to: &mut [i32] = bytemuck::cast_slice_mut(to);
            let (low, high) = (low as f32, high as f32);
            map!(to, a, b, c => simd::integer(((a / b).round_ties_even() + c).max(low).min(high)));
        }
        Elementwise::Select => {
            let a: &[i32] = bytemuck::cast_slice(a);
            map!(to, a, b, c => if a != 0 { b } else { c });
        }
        Elementwise::FloatToInt(low, high) => {
            let to: &mut [i32] = bytemuck::cast_slice_mut(to);
            // `as` saturates and makes NaN 0.
            map!(to, a => (a as i32).clamp(low, high));
        }
        Elementwise::FloatToBool => {
            let to: &mut [i32] = bytemuck::cast_slice_mut(to);
            map!(to, a => i32::from(a != 0.0));
        }
        Elementwise::IntToFloat => {
            let a: &[i32] = bytemuck::cast_slice(a);
            map!(to, a => a as f32);
        }
        _ => integers(op, bytemuck::cast_slice_mut(to), bytemuck::cast_slice(a), bytemuck::cast_slice(b)),
    }
}

fn integers(op: Elementwise, to: &mut [i32], a: &[i32], b: &[i32]) {
    match op {
        Elementwise::IntUnary(f) => match f {
            IntUnary::Identity => to.copy_from_slice(a),
            IntUnary::Abs => map!(to, a => a.wrapping_abs()),
            IntUnary::Sign => map!(to, a => a.signum()),
            IntUnary::Square => map!(to, a => a.wrapping_mul(a)),
            IntUnary::Relu => map!(to, a => a.max(0)),
            IntUnary::Exp2 => map!(to, a => if (0..32).contains(&a) { 1i32.wrapping_shl(a as u32) } else { 0 }),
        },
        Elementwise::IntBinary(f) => match f {
            Binary::Add => map!(to, a, b => a.wrapping_add(b)),
            Binary::Sub => map!(to, a, b => a.wrapping_sub(b)),
            Binary::Mul => map!(to, a, b => a.wrapping_mul(b)),
            Binary::Max => map!(to, a, b => a.max(b)),
            Binary::Min => map!(to, a, b => a.min(b)),
            Binary::Div => scalar(to, a, b, |a, b| a.checked_div(b).unwrap_or(0)),
            Binary::FloorDiv => scalar(to, a, b, |a, b| if b == 0 { 0 } else { floor_div(a, b) }),
            Binary::Mod => {
                scalar(to, a, b, |a, b| if b == 0 { 0 } else { a.wrapping_sub(floor_div(a, b).wrapping_mul(b)) })
            }
            Binary::Pow => scalar(to, a, b, |a, b| match u32::try_from(b) {
                Ok(b) => a.wrapping_pow(b),
                // 1 / aᵇ truncated.
                Err(_) => match a {
                    1 => 1,
                    -1 => {
                        if b % 2 == 0 {
                            1
                        } else {
                            -1
                        }
                    }
                    _ => 0,
                },
            }),
        },
        Elementwise::IntCompare(f) => match f {
            Compare::Equal => map!(to, a, b => i32::from(a == b)),
            Compare::NotEqual => map!(to, a, b => i32::from(a != b)),
            Compare::Less => map!(to, a, b => i32::from(a < b)),
            Compare::LessEqual => map!(to, a, b => i32::from(a <= b)),
            Compare::Greater => map!(to, a, b => i32::from(a > b)),
            Compare::GreaterEqual => map!(to, a, b => i32::from(a >= b)),
        },
        Elementwise::IntToInt(bits, signed) => {
            let shift = 32 - u32::from(bits).min(32);
            if signed {
                map!(to, a => a << shift >> shift);
            } else {
                map!(to, a => ((a as u32) << shift >> shift) as i32);
            }
        }
        Elementwise::IntToBool => map!(to, a => i32::from(a != 0)),
        Elementwise::And => map!(to, a, b => i32::from(a != 0 && b != 0)),
        Elementwise::Or => map!(to, a, b => i32::from(a != 0 || b != 0)),
        Elementwise::Xor => map!(to, a, b => i32::from((a != 0) != (b != 0))),
        Elementwise::Not => map!(to, a => i32::from(a == 0)),
        _ => {}
    }
}

fn scalar(to: &mut [i32], a: &[i32], b: &[i32], f: impl Fn(i32, i32) -> i32) {
    for ((t, &a), &b) in to.iter_mut().zip(a).zip(b) {
        *t = f(a, b);
    }
}

/// Rounds toward minus infinity; the only overflow wraps.
fn floor_div(a: i32, b: i32) -> i32 {
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

fn binary(f: Binary, to: &mut [f32], a: &[f32], b: &[f32]) {
    match f {
        Binary::Add => map!(to, a, b => a + b),
        Binary::Sub => map!(to, a, b => a - b),
        Binary::Mul => map!(to, a, b => a * b),
        Binary::Div => map!(to, a, b => a / b),
        Binary::FloorDiv => map!(to, a, b => (a / b).floor()),
        Binary::Mod => map!(to, a, b => a - (a / b).floor() * b),
        Binary::Max => map!(to, a, b => if a > b || a.is_nan() { a } else { b }),
        Binary::Min => map!(to, a, b => if a < b || a.is_nan() { a } else { b }),
        Binary::Pow => {
            // Usually all exponents are equal; then a vector loop computes what `pow` does for that
            // exponent.
            let same = b.first().filter(|&&first| b.iter().all(|&e| e == first)).copied();
            match same {
                Some(2.0) => map!(to, a => a * a),
                Some(0.5) => map!(to, a => a.sqrt()),
                Some(-0.5) => map!(to, a => 1.0 / a.sqrt()),
                Some(-1.0) => map!(to, a => 1.0 / a),
                _ => {
                    for ((t, &a), &b) in to.iter_mut().zip(a).zip(b) {
                        *t = pow(a, b);
                    }
                }
            }
        }
    }
}

/// aᵇ. Common exponents, such as RMSNorm's -0.5, are special cases, with the same result for one
/// element as for a register.
fn pow(a: f32, b: f32) -> f32 {
    match b {
        2.0 => a * a,
        0.5 => a.sqrt(),
        -0.5 => 1.0 / a.sqrt(),
        -1.0 => 1.0 / a,
        _ => a.powf(b),
    }
}

fn compare(f: Compare, to: &mut [i32], a: &[f32], b: &[f32]) {
    match f {
        Compare::Equal => map!(to, a, b => i32::from(a == b)),
        Compare::NotEqual => map!(to, a, b => i32::from(a != b)),
        Compare::Less => map!(to, a, b => i32::from(a < b)),
        Compare::LessEqual => map!(to, a, b => i32::from(a <= b)),
        Compare::Greater => map!(to, a, b => i32::from(a > b)),
        Compare::GreaterEqual => map!(to, a, b => i32::from(a >= b)),
    }
}

/// √(2/π).
const SQRT_2_OVER_PI: f32 = 0.797_884_6;

/// The functions of `fast`: fp32, vectorized where they matter; errors are far below half an fp16
/// ulp.
pub(crate) fn fast_unary(f: Unary, to: &mut [f32], a: &[f32]) {
    match f {
        Unary::Exp => map!(to, a => simd::exp(a)),
        Unary::Sigmoid => map!(to, a => simd::sigmoid(a)),
        Unary::Tanh => map!(to, a => simd::tanh(a)),
        Unary::Silu => map!(to, a => a * simd::sigmoid(a)),
        Unary::Erf => map!(to, a => simd::erf(a)),
        Unary::ScaledTanh(alpha, beta) => map!(to, a => alpha * simd::tanh(beta * a)),
        Unary::GeluExact => map!(to, a => simd::gelu(a)),
        Unary::GeluTanh => {
            map!(to, a => 0.5 * a * (1.0 + simd::tanh(SQRT_2_OVER_PI * (a + 0.044_715 * a * a * a))))
        }
        Unary::GeluSigmoid => map!(to, a => a * simd::sigmoid(1.702 * a)),
        _ => plain_unary(f, to, a),
    }
}

/// The functions of `exact`: computed in fp64 and rounded to fp32 once.
pub(crate) fn exact_unary(f: Unary, to: &mut [f32], a: &[f32]) {
    let each = |to: &mut [f32], g: &dyn Fn(f64) -> f64| {
        for (t, &a) in to.iter_mut().zip(a) {
            *t = g(f64::from(a)) as f32;
        }
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match f {
        Unary::Exp => each(to, &f64::exp),
        Unary::Exp2 => each(to, &f64::exp2),
        Unary::Sin => each(to, &f64::sin),
        Unary::Cos => each(to, &f64::cos),
        Unary::Atan => each(to, &f64::atan),
        Unary::Tan => each(to, &f64::tan),
        Unary::Asin => each(to, &f64::asin),
        Unary::Acos => each(to, &f64::acos),
        Unary::Sinh => each(to, &f64::sinh),
        Unary::Cosh => each(to, &f64::cosh),
        Unary::Atanh => each(to, &f64::atanh),
        Unary::Sigmoid => each(to, &sigmoid),
        Unary::Tanh => each(to, &f64::tanh),
        Unary::Silu => each(to, &|x| x * sigmoid(x)),
        Unary::Erf => each(to, &erf),
        Unary::Log(e) => each(to, &|x| (x + f64::from(e)).ln()),
        Unary::Rsqrt(e) => each(to, &|x| 1.0 / (x + f64::from(e)).sqrt()),
        Unary::Inverse(e) => each(to, &|x| 1.0 / (x + f64::from(e))),
        Unary::Softplus => each(to, &|x| x.max(0.0) + (-x.abs()).exp().ln_1p()),
        Unary::Elu(alpha) => each(to, &|x| if x >= 0.0 { x } else { f64::from(alpha) * x.exp_m1() }),
        Unary::ScaledTanh(alpha, beta) => each(to, &|x| f64::from(alpha) * (f64::from(beta) * x).tanh()),
        Unary::GeluExact => each(to, &|x| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))),
        Unary::GeluTanh => {
            each(to, &|x| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh()))
        }
        Unary::GeluSigmoid => each(to, &|x| x * sigmoid(1.702 * x)),
        _ => plain_unary(f, to, a),
    }
}

fn plain_unary(f: Unary, to: &mut [f32], a: &[f32]) {
    match f {
        Unary::Identity => to.copy_from_slice(a),
        Unary::Abs => map!(to, a => a.abs()),
        Unary::Sign => map!(to, a => if a > 0.0 { 1.0 } else if a < 0.0 { -1.0 } else { a }),
        Unary::Square => map!(to, a => a * a),
        Unary::Floor => map!(to, a => a.floor()),
        Unary::Ceil => map!(to, a => a.ceil()),
        Unary::Round => map!(to, a => a.round_ties_even()),
        Unary::Sqrt => map!(to, a => a.sqrt()),
        Unary::Rsqrt(e) => map!(to, a => 1.0 / (a + e).sqrt()),
        Unary::Inverse(e) => map!(to, a => 1.0 / (a + e)),
        Unary::Clip(low, high) => map!(to, a => clamp(a, low, high)),
        Unary::Threshold(alpha) => map!(to, a => if a < alpha { alpha } else { a }),
        Unary::Relu => map!(to, a => if a < 0.0 { 0.0 } else { a }),
        Unary::Relu6 => map!(to, a => clamp(a, 0.0, 6.0)),
        Unary::Softsign => map!(to, a => a / (1.0 + a.abs())),
        Unary::LeakyRelu(alpha) => map!(to, a => if a >= 0.0 { a } else { alpha * a }),
        Unary::ThresholdedRelu(alpha) => map!(to, a => if a >= alpha { a } else { 0.0 }),
        Unary::ClampedRelu(alpha, beta) => {
            map!(to, a => { let v = if a >= 0.0 { a } else { alpha * a }; if v > beta { beta } else { v } })
        }
        Unary::Linear(alpha, beta) => map!(to, a => alpha * a + beta),
        Unary::SigmoidHard(alpha, beta) => map!(to, a => clamp(alpha * a + beta, 0.0, 1.0)),
        _ => {
            for (t, &a) in to.iter_mut().zip(a) {
                *t = match f {
                    Unary::Exp2 => a.exp2(),
                    Unary::Sin => a.sin(),
                    Unary::Cos => a.cos(),
                    Unary::Atan => a.atan(),
                    Unary::Tan => a.tan(),
                    Unary::Asin => a.asin(),
                    Unary::Acos => a.acos(),
                    Unary::Sinh => a.sinh(),
                    Unary::Cosh => a.cosh(),
                    Unary::Atanh => a.atanh(),
                    Unary::Log(e) => (a + e).ln(),
                    Unary::Softplus => a.max(0.0) + (-a.abs()).exp().ln_1p(),
                    Unary::Elu(alpha) => {
                        if a >= 0.0 {
                            a
                        } else {
                            alpha * a.exp_m1()
                        }
                    }
                    _ => a,
                };
            }
        }
    }
}

/// Like `f32::clamp`, but without a panic if `low > high`; NaN stays NaN.
#[inline(always)]
fn clamp(a: f32, low: f32, high: f32) -> f32 {
    let a = if a < low { low } else { a };
    if a > high { high } else { a }
}

/// The error function: Taylor series near 0, else the continued fraction of erfc. Error below
/// 1e-13.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let y = if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-17 * sum.abs() && n < 200.0 {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else if a < 6.0 {
        let mut fraction = a;
        for k in (1..=80).rev() {
            fraction = a + 0.5 * f64::from(k) / fraction;
        }
        1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())
    } else if a.is_nan() {
        a
    } else {
        1.0
    };
    y.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_has_its_known_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, want) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)] {
            assert!((erf(x) - want).abs() < 1e-10, "{x}");
            assert!((erf(-x) + want).abs() < 1e-10);
        }
        assert!((erf(2.499_999) - erf(2.500_001)).abs() < 1e-5);
        assert!(erf(f64::NAN).is_nan());
    }

    #[test]
    fn integer_division_rounds_down() {
        assert_eq!(
            (floor_div(7, -2), floor_div(-7, 2), floor_div(-6, 2), floor_div(i32::MIN, -1)),
            (-4, -4, -3, i32::MIN)
        );
    }
}
