//! The switches.

use crate::{Function, Rounding};

/// How the multiply-accumulate unit adds up products (numerics §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Accumulator {
    /// Products and sums exact.
    #[default]
    Wide,
    /// Every product is rounded to a multiple of 2⁻¹⁶ and then summed exactly (§3.1; C195, C196).
    Grid,
    /// Tiles of four products are added in sequence, each addition aligned to the larger operand
    /// with 11 fraction bits and truncated; sums of tiles are exact (§3.2, M1).
    Tiles,
}

/// What the multiply-accumulate unit does with subnormal operands (numerics §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Denormals {
    /// They are numbers like others: M5 (C189).
    #[default]
    Keep,
    /// They count as zero: M1 (C188).
    Flush,
}

/// How a `reduce_sum` of its own adds up (numerics §2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Exactly, rounded once: M1 (C062).
    #[default]
    Wide,
    /// One after the other, each partial sum rounded to fp16: M2 Pro and M5 Pro by ANEForge (C061).
    Narrow,
}

/// Which table a `sigmoid` reads (numerics §6.2, §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SigmoidTable {
    /// 33 samples between -8 and 8 (C205).
    Plain,
    /// Half a table between 0 and 8, and a second pass that adds ½ (C206).
    #[default]
    HighPrecision,
}

/// What `round` does (numerics §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RoundOp {
    /// To the nearest whole number, ties to even (C112).
    #[default]
    Even,
    /// Adds ½ to the magnitude in fp16 and drops the fraction: ties away from zero, and wrong from
    /// 1024 on (C113).
    AddHalf,
}

/// Everything that the engine's arithmetic depends on. Plain data: a profile fills it, [`Default`]
/// is a clean engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// How results become fp16 values (numerics §2; C191 to C193, C198, C199).
    pub rounding: Rounding,
    /// How products are summed (numerics §3; C195, C196).
    pub accumulator: Accumulator,
    /// Fraction bits of the product grid, at most 16 (numerics §3.1). One published vector needs 14
    /// in two of its layers (C197).
    pub grid_bits: u8,
    /// On the grid, products below so many units vanish: somewhere between 1.02 and 1.55 (numerics
    /// §3.1).
    pub grid_flush: f32,
    /// Sums of two or more products of this magnitude and above become infinite, interior sums too
    /// (numerics §4; C183). `None`: 2¹⁶.
    pub mac_ceiling: Option<f32>,
    /// Subnormal operands of products (numerics §5; C188 to C190).
    pub mac_denormals: Denormals,
    /// Sums that are no products (numerics §2; C061, C062).
    pub reduce_sum: Reduction,
    /// A slice of the width axis that does not begin at 0 goes through 16-fold fixed point:
    /// magnitudes above 4094 become infinite (numerics §4; C184, C185).
    pub slice_crop: bool,
    /// The same happens to what is multiplied by int8 weights (numerics §4; C186).
    pub int8_crop: bool,
    /// Functions come from 33-knot tables (numerics §6; C198); else they are exact and rounded
    /// once.
    pub tables: bool,
    /// The sigmoid's table (C205, C206).
    pub sigmoid: SigmoidTable,
    /// `gelu` reads its own table (C051, C053); else it is exact and rounded once, as far as that
    /// is known for others (C052).
    pub gelu_table: bool,
    /// What `round` does (C112, C113).
    pub round_op: RoundOp,
    /// How `quantize` rounds to codes (int8 §2; C200, C201).
    pub quantize: Rounding,
    /// In a product of dequantized factors one takes the scale of another quantization of the
    /// product (int8 §2; C202).
    pub qdq_defect: bool,
    /// NaN becomes +∞ where it enters, and what has no value (∞-∞, 0·∞, the square root of a
    /// negative number) is +0 (numerics §5; C187).
    pub nan_to_inf: bool,
    /// `attn_mask` of `scaled_dot_product_attention` has no effect (numerics §1; C074, C075).
    pub attn_mask_ignored: bool,
}

impl Default for Rules {
    /// fp16 between operations, each exact and rounded once to nearest even. Nothing is lost,
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
    /// the product grid under a ceiling of 2¹⁵, tables, ties away from zero.
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

    /// A value as it enters the engine: NaN is +∞ where the rules say so.
    #[inline(always)]
    pub fn enter(&self, x: f32) -> f32 {
        if self.nan_to_inf && x.is_nan() { f32::INFINITY } else { x }
    }

    /// The result of one operation on fp16 values, from what IEEE fp32 makes of it: rounded, and +0
    /// where it has no value.
    ///
    /// Sums, differences, products, quotients and square roots of two fp16 values may come through
    /// fp32: where their exact value lies near the middle between two fp16 values, fp32 holds it or
    /// tells it apart.
    #[inline(always)]
    pub fn result(&self, x: f32) -> f32 {
        let x = if self.nan_to_inf && x.is_nan() { 0.0 } else { x };
        self.rounding.f32(x)
    }

    /// `round`.
    pub fn round(&self, x: f32) -> f32 {
        match self.round_op {
            RoundOp::Even => x.round_ties_even(),
            RoundOp::AddHalf => self.rounding.f32(x.abs() + 0.5).trunc().copysign(x),
        }
    }

    /// a / b: a times the table's reciprocal of b where functions are tables (numerics §6.2,
    /// `binary/div`), else rounded once.
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
