//! The two element types of the reference.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// `f32` or `f64`, with the arithmetic that the model needs.
pub trait Real:
    Copy
    + Send
    + Sync
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Negative infinity, the start of a maximum.
    const NEG_INFINITY: Self;
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// The value, widened if necessary.
    fn to_f64(self) -> f64;
    /// e raised to the power `self`.
    fn exp(self) -> Self;
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// The hyperbolic tangent, from −1 to 1.
    fn tanh(self) -> Self;
    /// The larger of two values; if one is NaN, the other.
    fn max(self, other: Self) -> Self;
}

macro_rules! real {
    ($t:ty) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = <$t>::NEG_INFINITY;
            fn from_f64(value: f64) -> Self {
                value as $t
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn exp(self) -> Self {
                <$t>::exp(self)
            }
            fn sqrt(self) -> Self {
                <$t>::sqrt(self)
            }
            fn tanh(self) -> Self {
                <$t>::tanh(self)
            }
            fn max(self, other: Self) -> Self {
                <$t>::max(self, other)
            }
        }
    };
}
real!(f32);
real!(f64);
