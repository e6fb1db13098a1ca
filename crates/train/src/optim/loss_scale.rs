//! The factor on the loss that keeps fp16 gradients inside fp16's range.
//!
//! A constant factor does not suffice: during a run the gradient of the residual stream shrinks by
//! four orders of magnitude, into fp16's subnormal range (golden-traces §4). So the scale follows
//! the largest magnitude that enters the layers. It is always a power of two, so scaling is exact.

use serde::{Deserialize, Serialize};

/// Below this largest gradient, scale included, the scale grows at once (golden-traces §4).
const LOW: f32 = 16.0;
/// Above this largest gradient the scale shrinks, and it never grows so far that the gradient would
/// exceed it.
const HIGH: f32 = 1024.0;
/// Number of consecutive good updates after which a scale grows that is inside the band or has
/// overflowed.
const PATIENCE: u32 = 64;
/// The initial scale (training-dynamic §8), and the largest one for an engine that does not report
/// the size of gradients.
const START: f32 = 256.0;
const SMALLEST: f32 = 1.0 / 16_384.0;
const LARGEST: f32 = 16_777_216.0;

/// A dynamic loss scale.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    scale: f32,
    /// Number of good updates since the last change or overflow.
    good: u32,
    /// Largest gradient magnitude in these updates.
    peak: f32,
    /// Set by an overflow: the scale then grows only after [`PATIENCE`] good updates, so that it
    /// cannot overflow in every other update.
    cautious: bool,
    /// False for a fixed scale.
    dynamic: bool,
}

impl Default for LossScale {
    fn default() -> Self {
        LossScale { scale: START, good: 0, peak: 0.0, cautious: false, dynamic: true }
    }
}

impl LossScale {
    /// A scale that never changes; 1 for engines in fp32.
    pub fn fixed(scale: f32) -> Self {
        LossScale { scale, dynamic: false, ..LossScale::default() }
    }

    /// The current factor, which applies to all micro-steps of an update.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Records a finite update. `max_dy` is the largest gradient magnitude that entered its layers,
    /// scale included. If it is 0, which means unknown, the scale only recovers from overflows up
    /// to its initial value.
    pub fn good(&mut self, max_dy: f32) {
        self.good += 1;
        self.peak = self.peak.max(max_dy);
        if max_dy > HIGH {
            self.change(0.5);
        } else if self.peak == 0.0 && self.scale >= START {
            self.good = 0;
        } else if self.peak * 2.0 <= HIGH && (self.good >= PATIENCE || (max_dy < LOW && !self.cautious)) {
            self.cautious = false;
            self.change(2.0);
        } else if self.good >= PATIENCE {
            (self.good, self.peak) = (0, 0.0);
        }
    }

    /// Records an update that was skipped because a loss or gradient was not finite.
    pub fn overflow(&mut self) {
        self.cautious = true;
        self.change(0.5);
    }

    fn change(&mut self, factor: f32) {
        (self.good, self.peak) = (0, 0.0);
        if self.dynamic {
            self.scale = (self.scale * factor).clamp(SMALLEST, LARGEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_a_shrinking_gradient() {
        // The published trace: a gradient of 65 at scale 256, which shrinks by a factor of 60000
        // until the end.
        let mut scale = LossScale::default();
        for update in 0..2000 {
            let dy = (0.25 * f32::powf(60_000.0, -(update as f32) / 2000.0)) * scale.scale();
            assert!(update < 10 || (16.0 / 2.0..=1024.0).contains(&dy), "{update}: {dy} at {}", scale.scale());
            scale.good(dy);
            assert_eq!(scale.scale().log2().fract(), 0.0);
        }
        for _ in 0..40 {
            scale.good(100.0 * scale.scale());
        }
        assert!(100.0 * scale.scale() <= 1024.0);
    }

    #[test]
    fn overflow_halves_and_recovers() {
        let mut scale = LossScale::default();
        scale.good(100.0);
        scale.overflow();
        scale.overflow();
        assert_eq!(scale.scale(), 64.0);
        for _ in 0..PATIENCE - 1 {
            scale.good(1.0);
            assert_eq!(scale.scale(), 64.0, "no growth right after an overflow");
        }
        scale.good(1.0);
        assert_eq!(scale.scale(), 128.0);
        for _ in 0..PATIENCE {
            scale.good(100.0);
        }
        assert_eq!(scale.scale(), 256.0);
        for _ in 0..PATIENCE {
            scale.good(600.0);
        }
        assert_eq!(scale.scale(), 256.0, "twice 600 would leave the band");
    }

    #[test]
    fn limits_and_round_trip() {
        let mut scale = LossScale::default();
        (0..100).for_each(|_| scale.overflow());
        assert_eq!(scale.scale(), SMALLEST);
        (0..10_000).for_each(|_| scale.good(0.0));
        assert_eq!(scale.scale(), START, "unknown gradients");
        (0..10_000).for_each(|_| scale.good(1e-30));
        assert_eq!(scale.scale(), LARGEST);
        let mut fixed = LossScale::fixed(1.0);
        fixed.overflow();
        fixed.good(0.0);
        assert_eq!(fixed.scale(), 1.0);
        let text = serde_json::to_string(&scale).unwrap();
        assert_eq!(serde_json::from_str::<LossScale>(&text).unwrap(), scale);
    }
}
