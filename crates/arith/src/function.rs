//! Functions of one number, composed from tables as the engine does (numerics §6.2, §6.3).
//!
//! Range reductions separate the fp16 exponent and are exact. Each table look-up and each operation
//! between look-ups rounds.

use crate::table::{
    ATAN_FAR, ATAN_NEAR, EXP2, GELU, LOG2, PiecewiseTable, RECIPROCAL, RSQRT, SIGMOID, SIGMOID_ODD, SQRT, TANH,
};
use crate::{Rounding, Rules, SigmoidTable};

/// A function for which the engine has a table or a chain of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// 1 / (1 + e⁻ˣ), by the table that [`Rules::sigmoid`] selects.
    Sigmoid,
    /// tanh x, by its own table.
    Tanh,
    /// x·Φ(x), by its own table; without a result if [`Rules::gelu_table`] is off.
    Gelu,
    /// x times the high-precision sigmoid of x.
    Silu,
    /// 2ˣ.
    Exp2,
    /// eˣ: 2ˣ after a multiplication by log₂ e.
    Exp,
    /// ln x: log₂ x times ln 2.
    Log,
    /// √x, by its own table over [½, 2].
    Sqrt,
    /// 1/√x.
    Rsqrt,
    /// 1/x.
    Reciprocal,
    /// atan x: the sum of two tables.
    Atan,
    /// log(1 + eˣ).
    Softplus,
    /// x / (1 + |x|).
    Softsign,
}

/// log₂ e and ln 2, rounded to fp16.
const LOG2_E: f32 = 1.442_382_8;
const LN_2: f32 = 0.693_359_4;

/// The logarithm table's result for 0: the fp16 bit pattern of -∞ read as a finite number, -2¹⁶.
/// Therefore log 0 is -45440 (numerics §5).
const LOG2_OF_ZERO: f32 = -65536.0;

impl Rules {
    /// A function of an fp16 value, as fp16. `None` if the rules have no table for it: then the
    /// result is the exact value, rounded once.
    pub fn function(&self, function: Function, x: f32) -> Option<f32> {
        if !self.tables {
            return None;
        }
        let r = self.rounding;
        Some(match function {
            Function::Sigmoid => match self.sigmoid {
                SigmoidTable::Plain => SIGMOID.value(r, x),
                SigmoidTable::HighPrecision => precise_sigmoid(r, x),
            },
            Function::Tanh => TANH.value(r, x),
            Function::Gelu if self.gelu_table => GELU.value(r, x),
            Function::Gelu => return None,
            Function::Silu => self.result(x * precise_sigmoid(r, x)),
            Function::Exp2 => exp2(r, &EXP2, x),
            Function::Exp => self.exp(x),
            Function::Log => self.log(x),
            Function::Sqrt => root(r, &SQRT, x, 1),
            Function::Rsqrt => root(r, &RSQRT, x, -1),
            Function::Reciprocal => self.reciprocal(f64::from(x)),
            Function::Atan => r.f32(ATAN_NEAR.value(r, x) + ATAN_FAR.value(r, x)),
            // 1 + eˣ overflows from 11.09 on, and the logarithm of infinity is 0 by the table
            // (numerics §5, §6.2).
            Function::Softplus => self.log(r.f32(1.0 + self.exp(x))),
            Function::Softsign => self.result(x * self.reciprocal(f64::from(r.f32(1.0 + x.abs())))),
        })
    }

    /// eˣ by the table of 2ˣ.
    pub(crate) fn exp(&self, x: f32) -> f32 {
        exp2(self.rounding, &EXP2, self.result(x * LOG2_E))
    }

    fn log(&self, x: f32) -> f32 {
        self.result(log2(self.rounding, &LOG2, x) * LN_2)
    }

    /// 1/x of a number that may be wider than fp16: softmax divides by an unrounded sum (numerics
    /// §6.2).
    pub(crate) fn reciprocal(&self, x: f64) -> f32 {
        reciprocal(self.rounding, &RECIPROCAL, x)
    }
}

impl PiecewiseTable {
    /// Evaluates any table at an fp16 number, including the range reduction that its mode implies.
    /// `None` if the range reduction of the mode is unknown, or if the table's step is not the one
    /// of its mode.
    pub fn evaluate(&self, rounding: Rounding, x: f32) -> Option<f32> {
        let has = |step: f32| self.step() == Some(step);
        Some(match self.mode() {
            mode if PiecewiseTable::TAKES_ARGUMENT.contains(&mode) => self.value(rounding, x),
            0x0A if has(1.0 / 32.0) => exp2(rounding, self, x),
            0xC9 if has(1.0 / 64.0) => rounding.f32(log2(rounding, self, x)),
            0x67 if has(1.0 / 64.0) => reciprocal(rounding, self, f64::from(x)),
            0xC5 if has(1.0 / 16.0) => root(rounding, self, x, 1),
            0xC6 if has(1.0 / 16.0) => root(rounding, self, x, -1),
            _ => return None,
        })
    }
}

fn reciprocal(r: Rounding, table: &PiecewiseTable, x: f64) -> f32 {
    if x == 0.0 {
        return table.y_at_min();
    }
    if x.is_infinite() {
        return table.y_at_max();
    }
    let (mantissa, exponent) = split(x.abs());
    let y = table.between(r, (mantissa - 0.5) * 64.0);
    r.f64(f64::from(y) * power(-exponent) * x.signum())
}

fn precise_sigmoid(r: Rounding, x: f32) -> f32 {
    r.f32(0.5 + SIGMOID_ODD.value(r, x))
}

/// The table gives 2 to the fraction of x; the integer part is added to the exponent.
fn exp2(r: Rounding, table: &PiecewiseTable, x: f32) -> f32 {
    if x <= table.x_min() {
        return table.y_at_min();
    }
    if x >= table.x_max() {
        return table.y_at_max();
    }
    let whole = x.floor();
    let y = table.between(r, f64::from(x - whole) * 32.0);
    r.f64(f64::from(y) * power(whole as i32))
}

/// The table gives log₂ of the mantissa. The result is unrounded at 0, where it is -2¹⁶.
fn log2(r: Rounding, table: &PiecewiseTable, x: f32) -> f32 {
    if x < 0.0 {
        // The result is indeterminate, which the engine replaces by +0 (numerics §5).
        return 0.0;
    }
    if x == 0.0 {
        return LOG2_OF_ZERO;
    }
    if x >= table.x_max() {
        return table.y_at_max();
    }
    let (mantissa, exponent) = split(f64::from(x));
    let y = table.between(r, (mantissa - 0.5) * 64.0);
    r.f32(exponent as f32 + y)
}

/// √x (`sign` 1) or 1/√x (`sign` -1). The table covers [½, 2); a factor of 4 in x is a factor of 2
/// (or ½) in the result.
fn root(r: Rounding, table: &PiecewiseTable, x: f32, sign: i32) -> f32 {
    if x == 0.0 {
        return table.y_at_min();
    }
    if x < 0.0 {
        return 0.0;
    }
    if x >= table.x_max() {
        return table.y_at_max();
    }
    let (mut mantissa, mut exponent) = split(f64::from(x));
    if exponent % 2 != 0 {
        mantissa *= 2.0;
        exponent -= 1;
    }
    let y = table.between(r, mantissa * 16.0);
    r.f64(f64::from(y) * power(sign * exponent / 2))
}

/// A positive finite normal number as `(m, e)` with x = m·2ᵉ and m in [½, 1).
fn split(x: f64) -> (f64, i32) {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7FF) as i32 - 1022;
    (f64::from_bits(bits & 0x000F_FFFF_FFFF_FFFF | 0x3FE0_0000_0000_0000), exponent)
}

/// Two to the power of `exponent`.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + i64::from(exponent.clamp(-1022, 1023))) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half;

    fn value(function: Function, x: f32) -> f32 {
        Rules::published().function(function, x).unwrap()
    }

    #[test]
    fn constants_are_fp16_values() {
        assert_eq!(Rounding::Even.f64(std::f64::consts::LOG2_E), LOG2_E);
        assert_eq!(Rounding::Even.f64(std::f64::consts::LN_2), LN_2);
    }

    #[test]
    fn chains_of_tables_stay_near_the_function() {
        // A table's error is below 0.4 % of the value (numerics §6.1), and each step of a chain
        // adds a rounding of 2⁻¹¹. The exponential's argument is rounded after its scale: at 16
        // that alone is 0.4 % of the result, and the error of the rounded constant is as large.
        type Case<'a> = (Function, f32, f32, &'a dyn Fn(f64) -> f64);
        let cases: [Case<'_>; 9] = [
            (Function::Exp, -9.0, 11.0, &f64::exp),
            (Function::Exp2, -14.0, 15.9, &f64::exp2),
            (Function::Log, 2.0, 60000.0, &f64::ln),
            (Function::Sqrt, 1e-4, 60000.0, &f64::sqrt),
            (Function::Rsqrt, 1e-4, 60000.0, &|x| x.sqrt().recip()),
            (Function::Reciprocal, 1e-4, 10000.0, &|x| x.recip()),
            (Function::Reciprocal, -10000.0, -0.5, &|x| x.recip()),
            (Function::Softplus, 0.5, 11.0, &|x| x.exp().ln_1p()),
            (Function::Atan, -64.0, 64.0, &f64::atan),
        ];
        for (function, low, high, f) in cases {
            for i in 0..=2000 {
                let x = Rounding::Even.f32(low + (high - low) * i as f32 / 2000.0);
                let (got, want) = (f64::from(value(function, x)), f(f64::from(x)));
                let near = match function {
                    // Where the two tables meet, errors of 0.04 and more were measured (numerics
                    // §5).
                    Function::Atan => 0.04,
                    Function::Exp => 0.008 * want,
                    _ => 0.004 * want.abs(),
                };
                assert!((got - want).abs() <= near, "{function:?}({x}) = {got}, not {want}");
            }
        }
    }

    #[test]
    fn a_table_of_a_file_gives_what_the_function_gives() {
        let rules = Rules::published();
        let pairs = [
            (Function::Sigmoid, &SIGMOID),
            (Function::Tanh, &TANH),
            (Function::Exp2, &EXP2),
            (Function::Sqrt, &SQRT),
            (Function::Rsqrt, &RSQRT),
            (Function::Reciprocal, &RECIPROCAL),
        ];
        for (function, table) in pairs {
            let copy = PiecewiseTable::read(*table.halfwords());
            for bits in (0..=u16::MAX).step_by(7) {
                let x = rules.enter(half(bits));
                assert_eq!(copy.evaluate(rules.rounding, x), rules.function(function, x), "{function:?}({x})");
            }
        }
        // The range reduction of the integer table is unknown, and a step that is not the mode's is
        // rejected.
        assert_eq!(crate::table::INT.evaluate(rules.rounding, 1.5), None);
        let mut halfwords = *EXP2.halfwords();
        halfwords[41] = 4;
        assert_eq!(PiecewiseTable::read(halfwords).evaluate(rules.rounding, 1.5), None);
    }

    #[test]
    fn no_table_panics() {
        for seed in 0..2000u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut halfwords = [0; 43];
            for h in &mut halfwords {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *h = (state >> 20) as u16;
            }
            halfwords[42] = [0x01, 0x02, 0x60, 0x0A, 0xC9, 0x67, 0xC5, 0xC6][seed as usize % 8];
            halfwords[41] = [0, 1, 4, 5, 6, 0x40, 0xFFFF, halfwords[41]][seed as usize / 8 % 8];
            let table = PiecewiseTable::read(halfwords);
            for bits in (0..=u16::MAX).step_by(997) {
                let _ = table.evaluate(Rounding::Away, half(bits));
            }
        }
    }

    #[test]
    fn ends_are_those_of_the_tables() {
        let infinity = f32::INFINITY;
        // Numerics §5.
        assert_eq!(value(Function::Log, 0.0), -45440.0);
        assert_eq!(value(Function::Exp, Rounding::Even.f32(11.094)), infinity);
        assert!(value(Function::Exp, half(0x498B)).is_finite());
        for function in [Function::Sqrt, Function::Rsqrt, Function::Log] {
            assert_eq!(value(function, -1.0).to_bits(), 0, "{function:?}");
        }
        for function in [Function::Rsqrt, Function::Reciprocal] {
            assert_eq!(value(function, -0.0), infinity, "{function:?}");
            assert_eq!(value(function, infinity), 0.0, "{function:?}");
        }
        assert_eq!(value(Function::Sqrt, -0.0).to_bits(), 0);
        for function in [Function::Softplus, Function::Softsign] {
            assert_eq!(value(function, infinity).to_bits(), 0, "{function:?}");
        }
        assert_eq!((value(Function::Softplus, 11.1), value(Function::Softplus, 10.0)), (0.0, 10.0));
        assert_eq!((value(Function::Exp, -infinity), value(Function::Exp2, -24.0)), (0.0, half(1)));
    }

    #[test]
    fn no_function_panics_or_leaves_fp16() {
        use Function::*;
        for rules in [
            Rules::published(),
            Rules { sigmoid: SigmoidTable::HighPrecision, rounding: Rounding::Even, ..Rules::published() },
        ] {
            for f in [Sigmoid, Tanh, Gelu, Silu, Exp2, Exp, Log, Sqrt, Rsqrt, Reciprocal, Atan, Softplus, Softsign] {
                for bits in 0..=u16::MAX {
                    let x = rules.enter(half(bits));
                    let y = rules.function(f, x).unwrap();
                    assert!(y.to_bits() == rules.rounding.f32(y).to_bits() && !y.is_nan(), "{f:?}({x})");
                }
            }
        }
    }
}
