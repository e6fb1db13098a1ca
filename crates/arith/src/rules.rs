//! [`Rules`]: the switches of the arithmetic.

use crate::{Function, Rounding};

/// How the multiply-accumulate unit sums products (numerics §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Accumulator {
    /// Products and sums are exact.
    #[default]
    Wide,
    /// Every product is rounded to a multiple of 2⁻¹⁶ and then summed exactly (§3.1; C195, C196).
    Grid,
    /// Tiles of four products are summed in sequence; each addition aligns both operands to the
    /// larger one with 11 fraction bits and truncates. Sums of tiles are exact (§3.2, M1).
    Tiles,
}

/// What the multiply-accumulate unit does with subnormal operands (numerics §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Denormals {
    /// They are used as they are: M5 (C189).
    #[default]
    Keep,
    /// They are read as zero: M1 (C188).
    Flush,
}

/// How a `reduce_sum` op sums (numerics §2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The exact sum, rounded once: M1 (C062).
    #[default]
    Wide,
    /// In sequence, each partial sum rounded to fp16: M2 Pro and M5 Pro by ANEForge (C061).
    Narrow,
}

/// Which table a `sigmoid` reads (numerics §6.2, §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SigmoidTable {
    /// 33 samples from -8 to 8 (C205).
    Plain,
    /// Samples of the odd function σ - ½ from 0 to 8, and a second pass that adds ½ (C206).
    #[default]
    HighPrecision,
}

/// How the `round` op rounds (numerics §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RoundOp {
    /// To the nearest whole number, ties to even (C112).
    #[default]
    Even,
    /// Adds ½ to the magnitude in fp16 and truncates: ties away from zero, and wrong from 1024 on
    /// (C113).
    AddHalf,
}

/// Everything that the engine's arithmetic depends on, as plain data. A profile fills it;
/// [`Default`] is a clean engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// How results are rounded to fp16 (numerics §2; C191 to C193, C198, C199).
    pub rounding: Rounding,
    /// How products are summed (numerics §3; C195, C196).
    pub accumulator: Accumulator,
    /// Fraction bits of the product grid, at most 16 (numerics §3.1). One published vector needs 14
    /// in two of its layers (C197).
    pub grid_bits: u8,
    /// Products of a smaller magnitude, in units of the grid, become zero. The measured bound is
    /// between 1.02 and 1.55 (numerics §3.1).
    pub grid_flush: f32,
    /// Sums of two or more products of at least this magnitude become infinite, partial sums too
    /// (numerics §4; C183). `None` is 2¹⁶.
    pub mac_ceiling: Option<f32>,
    /// What subnormal operands of products are read as (numerics §5; C188 to C190).
    pub mac_denormals: Denormals,
    /// How values other than products are summed (numerics §2; C061, C062).
    pub reduce_sum: Reduction,
    /// A slice of the width axis that does not begin at 0 passes through fixed point with a factor
    /// of 16: magnitudes above 4094 become infinite (numerics §4; C184, C185).
    pub slice_crop: bool,
    /// The same applies to the activations that are multiplied by int8 weights (numerics §4; C186).
    pub int8_crop: bool,
    /// Functions are read from 33-knot tables (numerics §6; C198). If false, they are exact and
    /// rounded once.
    pub tables: bool,
    /// The table that `sigmoid` reads (C205, C206).
    pub sigmoid: SigmoidTable,
    /// `gelu` reads its own table (C051, C053). If false, it is exact and rounded once, as far as
    /// is known of other machines (C052).
    pub gelu_table: bool,
    /// How the `round` op rounds (C112, C113).
    pub round_op: RoundOp,
    /// How `quantize` rounds to codes (int8 §2; C200, C201).
    pub quantize: Rounding,
    /// In a product of two dequantized factors, the scale of one is replaced by that of another
    /// quantization of the product (int8 §2; C202).
    pub qdq_defect: bool,
    /// NaN inputs become +∞, and indeterminate results (∞-∞, 0·∞, the square root of a negative
    /// number) are +0 (numerics §5; C187).
    pub nan_to_inf: bool,
    /// `attn_mask` of `scaled_dot_product_attention` has no effect (numerics §1; C074, C075).
    pub attn_mask_ignored: bool,
}

impl Default for Rules {
    /// fp16 between operations, each exact and rounded once to nearest even. Nothing is flushed,
    /// cropped or ignored.
    fn default() -> Rules {
        Rules {
            rounding: Rounding::Even,
            accumulator: Accumulator::Wide,
            grid_bits: 16,
            grid_flush: 1.5,
            mac_ceiling: None,
            mac_denormals: Denormals::Keep,
            reduce_sum: Reduction::Wide,
            slice_crop: false,
            int8_crop: false,
            tables: false,
            sigmoid: SigmoidTable::HighPrecision,
            gelu_table: false,
            round_op: RoundOp::Even,
            quantize: Rounding::Even,
            qdq_defect: false,
            nan_to_inf: false,
            attn_mask_ignored: false,
        }
    }
}

impl Rules {
    /// The model that reproduces published device outputs bit for bit (numerics §3.1, §6.3, §11):
    /// the product grid with a ceiling of 2¹⁵, tables, ties away from zero.
    pub fn published() -> Rules {
        Rules {
            rounding: Rounding::Away,
            accumulator: Accumulator::Grid,
            mac_ceiling: Some(32768.0),
            tables: true,
            sigmoid: SigmoidTable::Plain,
            gelu_table: true,
            round_op: RoundOp::AddHalf,
            quantize: Rounding::Away,
            nan_to_inf: true,
            ..Rules::default()
        }
    }

    /// A value as it enters the engine: NaN becomes +∞ if the rules state so.
    #[inline(always)]
    pub fn enter(&self, x: f32) -> f32 {
        if self.nan_to_inf && x.is_nan() { f32::INFINITY } else { x }
    }

    /// The fp16 result of one operation on fp16 values, from its fp32 result: rounded, and +0 for a
    /// NaN if the rules replace indeterminate results.
    ///
    /// Rounding twice is exact for sums, differences, products, quotients and square roots of two
    /// fp16 values: where the exact value is near the midpoint of two fp16 values, fp32 represents
    /// it or is on its side of the midpoint.
    #[inline(always)]
    pub fn result(&self, x: f32) -> f32 {
        let x = if self.nan_to_inf && x.is_nan() { 0.0 } else { x };
        self.rounding.f32(x)
    }

    /// The `round` op, in the form that [`Rules::round_op`] selects.
    pub fn round(&self, x: f32) -> f32 {
        match self.round_op {
            RoundOp::Even => x.round_ties_even(),
            RoundOp::AddHalf => self.rounding.f32(x.abs() + 0.5).trunc().copysign(x),
        }
    }

    /// a / b. With tables, a times the table's reciprocal of b (numerics §6.2, `binary/div`);
    /// otherwise the quotient, rounded once.
    pub fn divide(&self, a: f32, b: f32) -> f32 {
        match self.function(Function::Reciprocal, b) {
            Some(reciprocal) => self.result(a * reciprocal),
            None => self.result(a / b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_value_is_zero_only_under_the_rule() {
        let (clean, device) = (Rules::default(), Rules::published());
        for x in [f32::INFINITY - f32::INFINITY, 0.0 * f32::INFINITY] {
            assert!(clean.result(x).is_nan());
            assert_eq!(device.result(x).to_bits(), 0);
        }
        assert_eq!(device.enter(f32::NAN), f32::INFINITY);
        assert!(clean.enter(f32::NAN).is_nan());
        assert_eq!(device.enter(-1.5), -1.5);
    }

    #[test]
    fn round_as_measured_on_m5() {
        let device = Rules::published();
        for (x, want) in [(1024.0, 1025.0), (1025.0, 1026.0), (-2047.0, -2048.0), (0.5, 1.0), (-2.5, -3.0), (2.25, 2.0)]
        {
            assert_eq!(device.round(x), want, "{x}");
        }
        assert_eq!((Rules::default().round(2.5), Rules::default().round(1025.0)), (2.0, 1025.0));
    }
}
