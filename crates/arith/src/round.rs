//! Rounding to fp16.

/// How a value between two fp16 values becomes one of them. Both modes round to nearest; they
/// differ in ties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// Ties to even: IEEE, and M1 (C191).
    #[default]
    Even,
    /// Ties away from zero: M3-class and M5 (C192, C193, C198, C199).
    Away,
}

/// The value of an fp16 bit pattern.
pub fn half(bits: u16) -> f32 {
    half::f16::from_bits(bits).to_f32()
}

/// 2¹⁶ as `f32` bits. The smallest magnitude that rounds to infinity, 65520, is half a step below
/// it.
const OVERFLOW: u32 = 0x4780_0000;
/// 2⁻¹⁴ as `f32` bits. Below it the distance of fp16 values is 2⁻²⁴ everywhere.
const NORMAL: u32 = 0x3880_0000;

impl Rounding {
    /// The nearest fp16 value. Magnitudes from 65520 on give infinity, NaN stays NaN, and the sign
    /// is kept, also of zero.
    ///
    /// Branch-free, so that a loop over it is vectorized.
    #[inline(always)]
    pub fn f32(self, x: f32) -> f32 {
        let bits = x.to_bits();
        let magnitude = bits & 0x7FFF_FFFF;
        // Normal results: 13 bits are rounded away.
        let half = match self {
            Rounding::Even => 0x0FFF + ((magnitude >> 13) & 1),
            Rounding::Away => 0x1000,
        };
        let kept = magnitude.wrapping_add(half) & !0x1FFF;
        let kept = if kept >= OVERFLOW { 0x7F80_0000 } else { kept };
        // Subnormal results: multiples of 2⁻²⁴. The scaling is exact, and the fraction is kept.
        let steps = f32::from_bits(magnitude.min(NORMAL)) * 16_777_216.0;
        // Adding 2²³ rounds values below 2²³ to the nearest even integer.
        let even = (steps + 8_388_608.0) - 8_388_608.0;
        let whole = match self {
            Rounding::Even => even,
            // At a tie that was rounded down to even, `steps` is half a step above `even`.
            Rounding::Away => even + if steps - even == 0.5 { 1.0 } else { 0.0 },
        };
        let small = (whole * 5.960_464_5e-8).to_bits();
        let rounded = if magnitude < NORMAL { small } else { kept };
        let rounded = if magnitude > 0x7F80_0000 { magnitude } else { rounded };
        f32::from_bits(rounded | (bits & 0x8000_0000))
    }

    /// The fp16 value nearest to an `f64`, rounded once.
    #[inline(always)]
    pub fn f64(self, x: f64) -> f32 {
        self.f32(odd(x))
    }

    /// The nearest whole number, ties by the rounding.
    #[inline]
    pub fn whole(self, x: f64) -> f64 {
        match self {
            Rounding::Even => x.round_ties_even(),
            Rounding::Away => x.round(),
        }
    }
}

/// An `f64` as an `f32` that rounds to the same fp16 value: truncated, with the last bit set if a
/// one was truncated (rounding to odd). The 24 bits are at least two more than the 11 of fp16, so a
/// second rounding is exact.
#[inline(always)]
fn odd(x: f64) -> f32 {
    let near = x as f32;
    let bits = near.to_bits();
    // Truncates: steps back toward zero if the conversion rounded up.
    let low = if f64::from(near).abs() > x.abs() { bits.wrapping_sub(1) } else { bits };
    let is_exact = f64::from(near) == x || x.is_nan();
    f32::from_bits(if is_exact { bits } else { low | 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;
    use proptest::prelude::*;

    /// Reference: searches the fp16 values around a magnitude and applies the rule.
    fn plain(rounding: Rounding, x: f64) -> f32 {
        let magnitude = x.abs();
        // Values as if there were one more exponent: 2¹⁶ stands for infinity.
        let value = |bits: u16| if bits == 0x7C00 { 65536.0 } else { f64::from(half(bits)) };
        let (mut low, mut high) = (0u16, 0x7C00u16);
        if magnitude >= 65536.0 {
            low = 0x7C00;
        }
        while high > low + 1 {
            let middle = (low + high) / 2;
            if value(middle) <= magnitude { low = middle } else { high = middle }
        }
        let (below, above) = (magnitude - value(low), value(high) - magnitude);
        let up = match rounding {
            Rounding::Even => above < below || (above == below && high % 2 == 0),
            Rounding::Away => above <= below,
        };
        half(if up && low != 0x7C00 { high } else { low }).copysign(x as f32)
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits()
    }

    #[test]
    fn even_is_what_the_library_rounds_to() {
        for bits in (0..=u32::MAX).step_by(4093) {
            let x = f32::from_bits(bits);
            if !x.is_nan() {
                assert!(same(Rounding::Even.f32(x), f16::from_f32(x).to_f32()), "{x:e}");
            }
        }
        assert!(Rounding::Away.f32(f32::NAN).is_nan() && Rounding::Even.f64(f64::NAN).is_nan());
    }

    #[test]
    fn fp16_values_stay_and_midpoints_go_as_the_rule_says() {
        for bits in 0..0x7C00u16 {
            let (x, next) = (half(bits), if bits == 0x7BFF { 65536.0 } else { half(bits + 1) });
            let tie = (f64::from(x) + f64::from(next)) / 2.0;
            let above = if bits == 0x7BFF { f32::INFINITY } else { next };
            for sign in [1.0, -1.0] {
                for rounding in [Rounding::Even, Rounding::Away] {
                    assert!(same(rounding.f32(sign * x), sign * x));
                    assert!(same(rounding.f64(f64::from(sign) * tie.next_down()), sign * x), "{x:e}");
                    assert!(same(rounding.f64(f64::from(sign) * tie.next_up()), sign * above), "{x:e}");
                }
                let even = if bits % 2 == 0 { x } else { above };
                assert!(same(Rounding::Even.f32(sign * tie as f32), sign * even), "{x:e}");
                assert!(same(Rounding::Away.f32(sign * tie as f32), sign * above), "{x:e}");
            }
        }
    }

    #[test]
    fn a_tie_at_spacing_two() {
        // Numerics §2: M1 gives 2048, M5 gives 2050.
        assert_eq!((Rounding::Even.f32(2049.0), Rounding::Away.f32(2049.0)), (2048.0, 2050.0));
    }

    proptest! {
        #[test]
        fn any_number_goes_to_the_nearest(bits in any::<u64>(), scale in -26i32..18, away in any::<bool>()) {
            let rounding = if away { Rounding::Away } else { Rounding::Even };
            let unit = f64::from_bits(bits & 0x800F_FFFF_FFFF_FFFF | 0x3FF0_0000_0000_0000);
            let x = unit * f64::from(scale).exp2();
            prop_assert!(same(rounding.f64(x), plain(rounding, x)), "{x:e}");
            let y = x as f32;
            prop_assert!(same(rounding.f32(y), plain(rounding, f64::from(y))), "{y:e}");
        }
    }
}
