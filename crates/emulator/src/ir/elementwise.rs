//! Element-wise operations.

use ferrane_host::rounded;

/// Element-wise operations. Registers hold fp32, or int32 for every integer and bool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Elementwise {
    /// A function of one float.
    Unary(Unary),
    /// A function of two floats.
    Binary(Binary),
    /// A comparison of two floats.
    Compare(Compare),
    /// `a · b + c`: product and sum in fp32, rounded to fp16 once, at the end.
    MulAdd,
    /// `(a first b) second c`, a sum, difference or product each, rounded after each; if the flag
    /// is set, `a` is rounded first.
    Pair([rounded::Binary; 2], bool),
    /// `(a - c) · b` for an integer `a`, rounded once.
    Dequantize,
    /// `round(a / b) + c` saturated to the range.
    Quantize(i32, i32),
    /// The second register where the first is not 0, else the third.
    Select,
    IntUnary(IntUnary),
    IntBinary(Binary),
    IntCompare(Compare),
    /// Truncates toward zero and saturates to the range; NaN becomes 0.
    FloatToInt(i32, i32),
    /// 1 unless zero.
    FloatToBool,
    IntToFloat,
    /// Wraps to this number of bits; the flag says whether the result is signed.
    IntToInt(u8, bool),
    IntToBool,
    And,
    Or,
    Xor,
    Not,
}

/// One float to one float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unary {
    Identity,
    Abs,
    Sign,
    Square,
    Floor,
    Ceil,
    Round,
    Exp,
    Exp2,
    Sqrt,
    Erf,
    Sin,
    Cos,
    Atan,
    Tan,
    Asin,
    Acos,
    Sinh,
    Cosh,
    Atanh,
    Log(f32),
    Rsqrt(f32),
    Inverse(f32),
    Clip(f32, f32),
    Threshold(f32),
    Sigmoid,
    Relu,
    Relu6,
    Tanh,
    Silu,
    Softplus,
    Softsign,
    LeakyRelu(f32),
    Elu(f32),
    ThresholdedRelu(f32),
    ClampedRelu(f32, f32),
    Linear(f32, f32),
    ScaledTanh(f32, f32),
    SigmoidHard(f32, f32),
    GeluExact,
    GeluTanh,
    GeluSigmoid,
    /// The crop of width slices, under the rules of a machine.
    Crop,
}

impl Unary {
    /// True if the result for an fp16 value is an fp16 value, so that rounding changes nothing.
    pub(crate) fn exact(self) -> bool {
        use Unary::*;
        matches!(self, Identity | Abs | Sign | Floor | Ceil | Relu)
    }
}

/// Two values to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
    Max,
    Min,
}

/// Two values to a bool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// One integer to one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntUnary {
    Identity,
    Abs,
    Sign,
    Square,
    Relu,
    Exp2,
}
