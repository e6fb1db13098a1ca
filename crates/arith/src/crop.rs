//! Slices through 16-fold fixed point (numerics §4; C184, C186).

use crate::Rules;

/// The largest magnitude that passes: 4094 · 16 = 65504.
pub const CROP_LIMIT: f32 = 4094.0;

impl Rules {
    /// A value that goes through the crop: infinite where 16 times it is.
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
