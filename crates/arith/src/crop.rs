//! Values that pass through fixed point with a factor of 16 (numerics §4; C184, C186).

use crate::Rules;

/// The largest magnitude that survives: 4094 · 16 = 65504, the largest fp16 value.
pub const CROP_LIMIT: f32 = 4094.0;

impl Rules {
    /// The value after the fixed point: infinite if 16 times it overflows fp16.
    #[inline(always)]
    pub fn crop(&self, x: f32) -> f32 {
        if x.abs() > CROP_LIMIT { f32::INFINITY.copysign(x) } else { x }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_passes_up_to_4094() {
        let rules = Rules::default();
        assert_eq!((rules.crop(4094.0), rules.crop(-4094.0)), (4094.0, -4094.0));
        assert_eq!((rules.crop(4096.0), rules.crop(-4096.0)), (f32::INFINITY, f32::NEG_INFINITY));
    }
}
