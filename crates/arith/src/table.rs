//! The 33-knot tables of the activation unit, and their evaluation.
//!
//! Source: 36 H13 payloads of published compiler output, decoded (numerics §6.1, §6.2). A table is
//! 43 halfwords: the ends of its domain and the values there, 33 knots, a line to the left of the
//! knots and one to the right, the step between knots, and a mode. The rows below follow that
//! layout: ends, knots, then lines, step and mode.
//!
//! Evaluation (numerics §6.3): with t the position inside of a segment, y = r(K + r(ΔK·t)), where r
//! rounds to fp16.

use crate::{Rounding, half};

/// One table, in the form in which the compiler writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PiecewiseTable {
    name: &'static str,
    halfwords: [u16; 43],
}

/// Number of knots of a table.
pub const KNOTS: usize = 33;
/// The mode of tables that are odd functions: negative arguments are mirrored.
const ODD: u16 = 0x60;
/// The mode of tables whose last knot is at 0.
const RIGHT_ALIGNED: u16 = 0x02;
/// The mode of tables whose middle knot is at 0.
const CENTERED: u16 = 0x01;

impl PiecewiseTable {
    /// The modes whose tables take their argument without a range reduction.
    pub(crate) const TAKES_ARGUMENT: [u16; 3] = [CENTERED, RIGHT_ALIGNED, ODD];

    /// A table from the 43 halfwords of a kernel section; [`name`](Self::name) is then a fixed
    /// text.
    pub fn read(halfwords: [u16; 43]) -> PiecewiseTable {
        PiecewiseTable { name: "of a file", halfwords }
    }

    /// The function that the table approximates, such as `tanh`; for messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The table as it lies in a kernel section: 43 halfwords.
    pub fn halfwords(&self) -> &[u16; 43] {
        &self.halfwords
    }

    /// Halfword `i` as an fp16 number.
    fn at(&self, i: usize) -> f32 {
        self.halfwords.get(i).map_or(0.0, |&bits| half(bits))
    }

    /// The value is constant at and below this argument.
    pub fn x_min(&self) -> f32 {
        self.at(0)
    }

    /// The value is constant at and above this argument.
    pub fn x_max(&self) -> f32 {
        self.at(1)
    }

    /// The value at and below [`x_min`](Self::x_min).
    pub fn y_at_min(&self) -> f32 {
        self.at(2)
    }

    /// The value at and above [`x_max`](Self::x_max).
    pub fn y_at_max(&self) -> f32 {
        self.at(3)
    }

    /// Knot `k` of 33; zero for other indices.
    pub fn knot(&self, k: usize) -> f32 {
        if k < KNOTS { self.at(4 + k) } else { 0.0 }
    }

    /// The distance between knots in the argument; `None` for tables of two lines only.
    pub fn step(&self) -> Option<f32> {
        match self.halfwords[41] {
            0x40 => None,
            0xFFFF => Some(2.0),
            shift => Some(f32::from(shift).exp2().recip()),
        }
    }

    /// The last halfword, which states the range reduction that leads to the table.
    pub fn mode(&self) -> u16 {
        self.halfwords[42]
    }

    /// The value at `position` steps after the first knot: y = r(K + r(ΔK·t)). A position beyond
    /// the knots extends the last segment.
    pub fn between(&self, rounding: Rounding, position: f64) -> f32 {
        let k = (position as usize).min(KNOTS - 2);
        let t = position - k as f64;
        let (low, high) = (f64::from(self.knot(k)), f64::from(self.knot(k + 1)));
        rounding.f64(low + f64::from(rounding.f64((high - low) * t)))
    }

    /// The value of a table that takes its argument as it is (modes centered, right-aligned and
    /// odd).
    pub fn value(&self, rounding: Rounding, x: f32) -> f32 {
        if self.mode() == ODD {
            return self.ahead(rounding, x.abs()).copysign(x);
        }
        self.ahead(rounding, x)
    }

    fn ahead(&self, rounding: Rounding, x: f32) -> f32 {
        if x <= self.x_min() {
            return self.y_at_min();
        }
        if x >= self.x_max() {
            return self.y_at_max();
        }
        let line = |slope: usize| {
            let product = rounding.f32(self.at(slope) * x);
            rounding.f32(product + self.at(slope + 1))
        };
        let Some(step) = self.step() else { return if x < 0.0 { line(37) } else { line(39) } };
        let first = match self.mode() {
            CENTERED => -16.0 * step,
            RIGHT_ALIGNED => -32.0 * step,
            _ => 0.0,
        };
        let position = f64::from((x - first) / step);
        if position < 0.0 {
            line(37)
        } else if position > 32.0 {
            line(39)
        } else {
            self.between(rounding, position)
        }
    }
}

/// Every table, in the order of numerics §6.2.
pub static ALL: [&PiecewiseTable; 18] = [
    &SIGMOID,
    &SIGMOID_ODD,
    &TANH,
    &GELU,
    &SELU,
    &EXP2,
    &LOG2,
    &RECIPROCAL,
    &SQRT,
    &RSQRT,
    &ATAN_FAR,
    &ATAN_NEAR,
    &RELU6,
    &HARDTANH,
    &LEAKY_RELU,
    &SIGN,
    &INT,
    &FRAC,
];

/// Sigmoid, plain: samples of σ from -8 to 8 at a spacing of ½.
pub static SIGMOID: PiecewiseTable = PiecewiseTable {
    name: "sigmoid",
    #[rustfmt::skip]
    halfwords: [
        0xc8f8, 0x4829, 0x0000, 0x3c00,
        0x0d7f, 0x1087, 0x1377, 0x1626, 0x1910, 0x1c2b, 0x1eda, 0x21a0,
        0x249b, 0x2781, 0x2a12, 0x2cdb, 0x2fa1, 0x31d6, 0x344e, 0x360a,
        0x3800, 0x38fb, 0x39d9, 0x3a8a, 0x3b0c, 0x3b65, 0x3b9f, 0x3bc4,
        0x3bdb, 0x3be9, 0x3bf2, 0x3bf8, 0x3bfb, 0x3bfd, 0x3bfe, 0x3bff,
        0x3bff,
        0x09ac, 0x170c, 0x163e, 0x3be6, 0x0001, 0x0001,
    ],
};

/// Sigmoid, high precision: samples of σ - ½ from 0 to 8 at a spacing of ¼; a second pass adds ½.
pub static SIGMOID_ODD: PiecewiseTable = PiecewiseTable {
    name: "sigmoid_high_precision",
    #[rustfmt::skip]
    halfwords: [
        0xbc00, 0x4900, 0x0000, 0x3800,
        0x0000, 0x2bf5, 0x2fd6, 0x31bc, 0x3365, 0x3470, 0x3515, 0x35a2,
        0x3618, 0x3679, 0x36c9, 0x370a, 0x373e, 0x3767, 0x3788, 0x37a2,
        0x37b6, 0x37c6, 0x37d3, 0x37dd, 0x37e5, 0x37eb, 0x37ef, 0x37f3,
        0x37f6, 0x37f8, 0x37fa, 0x37fb, 0x37fc, 0x37fd, 0x37fe, 0x37fe,
        0x37ff,
        0x0000, 0x0000, 0x0800, 0x37fb, 0x0002, 0x0060,
    ],
};

/// Hyperbolic tangent: samples from 0 to 4 at a spacing of ⅛.
pub static TANH: PiecewiseTable = PiecewiseTable {
    name: "tanh",
    #[rustfmt::skip]
    halfwords: [
        0x0000, 0x4400, 0x0000, 0x3c00,
        0x0000, 0x2ff5, 0x33d6, 0x35bc, 0x3765, 0x3870, 0x3915, 0x39a2,
        0x3a18, 0x3a79, 0x3ac9, 0x3b0a, 0x3b3e, 0x3b67, 0x3b88, 0x3ba2,
        0x3bb6, 0x3bc6, 0x3bd3, 0x3bdd, 0x3be5, 0x3beb, 0x3bef, 0x3bf3,
        0x3bf6, 0x3bf8, 0x3bfa, 0x3bfb, 0x3bfc, 0x3bfd, 0x3bfe, 0x3bfe,
        0x3bff,
        0x0000, 0x0000, 0x0000, 0x3c00, 0x0003, 0x0060,
    ],
};

/// GELU: knots fitted to the function, from -4 to 4 at a spacing of ¼ (numerics §6.4).
pub static GELU: PiecewiseTable = PiecewiseTable {
    name: "gelu",
    #[rustfmt::skip]
    halfwords: [
        0xc466, 0x7c00, 0x0000, 0x7c00,
        0x0000, 0x8e8a, 0x9230, 0x9757, 0x9bf0, 0xa011, 0xa3bf, 0xa6ec,
        0xa9bf, 0xac75, 0xae67, 0xb03d, 0xb11e, 0xb184, 0xb104, 0xaecf,
        0x922d, 0x3098, 0x357e, 0x389f, 0x3ab8, 0x3c78, 0x3d9a, 0x3eb9,
        0x3fd2, 0x4072, 0x40f8, 0x417c, 0x41fe, 0x427f, 0x4300, 0x4380,
        0x4400,
        0x0000, 0x0000, 0x3c00, 0x0000, 0x0002, 0x0001,
    ],
};

/// SELU: knots from -8 to 0 at a spacing of ¼ (numerics §6.4).
pub static SELU: PiecewiseTable = PiecewiseTable {
    name: "selu",
    #[rustfmt::skip]
    halfwords: [
        0xc800, 0x7c00, 0xbf08, 0x7c00,
        0xbf07, 0xbf07, 0xbf07, 0xbf07, 0xbf06, 0xbf06, 0xbf05, 0xbf05,
        0xbf04, 0xbf03, 0xbf01, 0xbeff, 0xbefb, 0xbef8, 0xbef4, 0xbeef,
        0xbee7, 0xbede, 0xbed1, 0xbec3, 0xbeaf, 0xbe94, 0xbe74, 0xbe4a,
        0xbe14, 0xbdcf, 0xbd77, 0xbd04, 0xbc72, 0xbb6c, 0xb988, 0xb639,
        0x0000,
        0x0000, 0xbf08, 0x3c34, 0x0000, 0x0002, 0x0002,
    ],
};

/// 2ˣ of the fraction of x, at a spacing of 1/32.
pub static EXP2: PiecewiseTable = PiecewiseTable {
    name: "exp2",
    #[rustfmt::skip]
    halfwords: [
        0xce40, 0x4c00, 0x0000, 0x7c00,
        0x3c00, 0x3c16, 0x3c2d, 0x3c45, 0x3c5d, 0x3c75, 0x3c8e, 0x3ca8,
        0x3cc2, 0x3cdc, 0x3cf8, 0x3d14, 0x3d30, 0x3d4d, 0x3d6b, 0x3d89,
        0x3da8, 0x3dc8, 0x3de8, 0x3e09, 0x3e2b, 0x3e4e, 0x3e71, 0x3e95,
        0x3eba, 0x3ee0, 0x3f06, 0x3f2e, 0x3f56, 0x3f7f, 0x3fa9, 0x3fd4,
        0x4000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0005, 0x000a,
    ],
};

/// log₂ of the mantissa in [½, 1), at a spacing of 1/64.
pub static LOG2: PiecewiseTable = PiecewiseTable {
    name: "log2",
    #[rustfmt::skip]
    halfwords: [
        0x0000, 0x7c00, 0xfc00, 0x0000,
        0xbc00, 0xbba5, 0xbb4d, 0xbaf7, 0xbaa4, 0xba53, 0xba04, 0xb9b7,
        0xb96d, 0xb924, 0xb8dd, 0xb897, 0xb853, 0xb811, 0xb79f, 0xb720,
        0xb6a4, 0xb62a, 0xb5b3, 0xb53e, 0xb4cb, 0xb45a, 0xb3d8, 0xb2ff,
        0xb22a, 0xb159, 0xb08b, 0xaf83, 0xadf6, 0xac6f, 0xa9dd, 0xa5d1,
        0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0006, 0x00c9,
    ],
};

/// 1/x of the mantissa in [½, 1), at a spacing of 1/64.
pub static RECIPROCAL: PiecewiseTable = PiecewiseTable {
    name: "reciprocal",
    #[rustfmt::skip]
    halfwords: [
        0x0000, 0x7c00, 0x7c00, 0x0000,
        0x4000, 0x3fc2, 0x3f88, 0x3f50, 0x3f1c, 0x3eeb, 0x3ebd, 0x3e90,
        0x3e66, 0x3e3e, 0x3e18, 0x3df4, 0x3dd1, 0x3db0, 0x3d91, 0x3d72,
        0x3d55, 0x3d39, 0x3d1f, 0x3d05, 0x3cec, 0x3cd5, 0x3cbe, 0x3ca8,
        0x3c92, 0x3c7e, 0x3c6a, 0x3c57, 0x3c44, 0x3c32, 0x3c21, 0x3c10,
        0x3c00,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0006, 0x0067,
    ],
};

/// √x on [½, 2], at a spacing of 1/16; the first eight knots are unused.
pub static SQRT: PiecewiseTable = PiecewiseTable {
    name: "sqrt",
    #[rustfmt::skip]
    halfwords: [
        0x0000, 0x7c00, 0x0000, 0x7c00,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x39a8, 0x3a00, 0x3a53, 0x3aa2, 0x3aee, 0x3b36, 0x3b7c, 0x3bbf,
        0x3c00, 0x3c20, 0x3c3e, 0x3c5c, 0x3c79, 0x3c95, 0x3cb1, 0x3ccc,
        0x3ce6, 0x3d00, 0x3d19, 0x3d32, 0x3d4b, 0x3d63, 0x3d7a, 0x3d91,
        0x3da8,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0004, 0x00c5,
    ],
};

/// 1/√x on [½, 2], at a spacing of 1/16; the first eight knots are unused.
pub static RSQRT: PiecewiseTable = PiecewiseTable {
    name: "rsqrt",
    #[rustfmt::skip]
    halfwords: [
        0x0000, 0x7c00, 0x7c00, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x3da8, 0x3d55, 0x3d0f, 0x3cd3, 0x3c9e, 0x3c70, 0x3c47, 0x3c22,
        0x3c00, 0x3bc3, 0x3b8b, 0x3b57, 0x3b28, 0x3afc, 0x3ad3, 0x3aac,
        0x3a88, 0x3a66, 0x3a47, 0x3a29, 0x3a0c, 0x39f1, 0x39d8, 0x39bf,
        0x39a8,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0004, 0x00c6,
    ],
};

/// Arctangent, second part: atan x - atan 2 beyond 2, at a spacing of 2.
pub static ATAN_FAR: PiecewiseTable = PiecewiseTable {
    name: "atan_part1",
    #[rustfmt::skip]
    halfwords: [
        0x4000, 0x67d0, 0x0000, 0x3769,
        0xbc6e, 0x0000, 0x32ff, 0x34c7, 0x356e, 0x35d3, 0x3617, 0x3647,
        0x366b, 0x3688, 0x369e, 0x36b1, 0x36c1, 0x36ce, 0x36d9, 0x36e3,
        0x36eb, 0x36f3, 0x36f9, 0x36ff, 0x3705, 0x370a, 0x370e, 0x3712,
        0x3716, 0x3719, 0x371c, 0x371f, 0x3722, 0x3724, 0x3727, 0x3729,
        0x372b,
        0x0000, 0x0000, 0x0083, 0x372b, 0xffff, 0x0060,
    ],
};

/// Arctangent, first part: up to 2, at a spacing of 1/16.
pub static ATAN_NEAR: PiecewiseTable = PiecewiseTable {
    name: "atan_part2",
    #[rustfmt::skip]
    halfwords: [
        0x0000, 0x4000, 0x0000, 0x3c6e,
        0x0000, 0x2bfd, 0x2ff5, 0x31ee, 0x33d7, 0x34d9, 0x35be, 0x3699,
        0x376b, 0x3819, 0x3878, 0x38d1, 0x3926, 0x3975, 0x39c0, 0x3a06,
        0x3a48, 0x3a87, 0x3ac1, 0x3af8, 0x3b2b, 0x3b5c, 0x3b89, 0x3bb4,
        0x3bdd, 0x3c02, 0x3c14, 0x3c25, 0x3c35, 0x3c44, 0x3c53, 0x3c61,
        0x3c6e,
        0x3c00, 0x0000, 0x0000, 0x3c6e, 0x0004, 0x0060,
    ],
};

/// The clamp to [0, 6], as two lines.
pub static RELU6: PiecewiseTable = PiecewiseTable {
    name: "relu6",
    #[rustfmt::skip]
    halfwords: [
        0x0000, 0x4600, 0x0000, 0x4600,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000,
        0x3c00, 0x0000, 0x3c00, 0x0000, 0x0040, 0x0001,
    ],
};

/// The clamp to [-1, 1], as two lines.
pub static HARDTANH: PiecewiseTable = PiecewiseTable {
    name: "hardtanh",
    #[rustfmt::skip]
    halfwords: [
        0xbc00, 0x3c00, 0xbc00, 0x3c00,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000,
        0x3c00, 0x0000, 0x3c00, 0x0000, 0x0040, 0x0001,
    ],
};

/// Two lines that meet at 0; the left one has slope 0.01.
pub static LEAKY_RELU: PiecewiseTable = PiecewiseTable {
    name: "leaky_relu_0.01",
    #[rustfmt::skip]
    halfwords: [
        0xfc00, 0x7c00, 0xfc00, 0x7c00,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000,
        0x211f, 0x0000, 0x3c00, 0x0000, 0x0040, 0x0001,
    ],
};

/// The sign of x: a step, odd.
pub static SIGN: PiecewiseTable = PiecewiseTable {
    name: "sign",
    #[rustfmt::skip]
    halfwords: [
        0x0000, 0x3c00, 0x0000, 0x3c00,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000,
        0x0000, 0x0000, 0x0000, 0x3c00, 0x0040, 0x0060,
    ],
};

/// The integer part of x (mode 0x63).
pub static INT: PiecewiseTable = PiecewiseTable {
    name: "int",
    #[rustfmt::skip]
    halfwords: [
        0xfc00, 0x7c00, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0063,
    ],
};

/// The fraction of x (mode 0x64).
pub static FRAC: PiecewiseTable = PiecewiseTable {
    name: "frac",
    #[rustfmt::skip]
    halfwords: [
        0xfc00, 0x7c00, 0xfc00, 0x7c00,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000,
        0x0000, 0x0000, 0x0000, 0x0000, 0x0005, 0x0064,
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knots_are_samples_where_the_table_is_one() {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        type Sample<'a> = (&'a PiecewiseTable, usize, &'a dyn Fn(f64) -> f64);
        let samples: [Sample<'_>; 10] = [
            (&SIGMOID, 0, &|k| sigmoid(-8.0 + k / 2.0)),
            (&SIGMOID_ODD, 0, &|k| sigmoid(k / 4.0) - 0.5),
            (&TANH, 0, &|k| (k / 8.0).tanh()),
            (&EXP2, 0, &|k| (k / 32.0).exp2()),
            (&LOG2, 0, &|k| (0.5 + k / 64.0).log2()),
            (&RECIPROCAL, 0, &|k| 1.0 / (0.5 + k / 64.0)),
            (&SQRT, 8, &|k| (k / 16.0).sqrt()),
            (&RSQRT, 8, &|k| (k / 16.0).sqrt().recip()),
            (&ATAN_NEAR, 0, &|k| (k / 16.0).atan()),
            (&ATAN_FAR, 0, &|k| (2.0 * k).atan() - 2f64.atan()),
        ];
        for (table, from, f) in samples {
            for k in from..KNOTS {
                assert_eq!(table.knot(k), Rounding::Even.f64(f(k as f64)), "{} {k}", table.name());
            }
        }
    }

    #[test]
    fn errors_are_those_that_were_decoded() {
        // Numerics §6.1: in exact arithmetic the error is 0.0014 for tanh and 0.0007 for the
        // high-precision sigmoid; rounding adds its step.
        let worst = |table: &PiecewiseTable, f: &dyn Fn(f64) -> f64| {
            (0..=4000)
                .map(|i| Rounding::Even.f32(i as f32 / 500.0))
                .map(|x| (f64::from(table.value(Rounding::Away, x)) - f(f64::from(x))).abs())
                .fold(0.0, f64::max)
        };
        assert!((worst(&TANH, &f64::tanh) - 0.0014).abs() < 0.0005);
        assert!((worst(&SIGMOID_ODD, &|x| 1.0 / (1.0 + (-x).exp()) - 0.5) - 0.0007).abs() < 0.0003);
    }

    #[test]
    fn outside_of_the_knots_lines_and_ends_apply() {
        let r = Rounding::Away;
        assert_eq!((SIGMOID.value(r, -20.0), SIGMOID.value(r, 9.0), SIGMOID.value(r, f32::INFINITY)), (0.0, 1.0, 1.0));
        assert_eq!(SIGMOID.value(r, 8.0625), half(0x3BFF));
        assert_eq!((GELU.value(r, 5.0), GELU.value(r, -4.25), GELU.value(r, 0.0)), (5.0, 0.0, half(0x922D)));
        assert_eq!((SELU.value(r, 2.0), SELU.value(r, -11.0)), (half(0x3C34) * 2.0, half(0xBF08)));
        assert_eq!((RELU6.value(r, 7.0), RELU6.value(r, 3.5), RELU6.value(r, -1.0)), (6.0, 3.5, 0.0));
        assert_eq!((HARDTANH.value(r, -0.5), HARDTANH.value(r, -3.0)), (-0.5, -1.0));
        assert_eq!((LEAKY_RELU.value(r, -1.0), LEAKY_RELU.value(r, 2.0)), (-half(0x211F), 2.0));
        assert_eq!((SIGN.value(r, -0.25), SIGN.value(r, 7.0), SIGN.value(r, 0.0)), (-1.0, 1.0, 0.0));
    }
}
