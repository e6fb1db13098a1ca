//! The learning rate schedule: linear warm-up, then half a cosine.

use serde::{Deserialize, Serialize};

/// Linear warm-up to `max_lr`, then a cosine to `min_lr`, in units of optimizer updates, not
/// micro-steps (upstream-defects #10).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The highest rate, reached by the last update of the warm-up.
    pub max_lr: f64,
    /// The rate from update `total` on.
    pub min_lr: f64,
    /// Number of updates of the warm-up.
    pub warmup: u64,
    /// Number of updates of the whole run.
    pub total: u64,
}

impl Schedule {
    /// The rate of the update with this index; the first has index 0.
    ///
    /// While `index < warmup`: `max·(index+1)/warmup`; then `min +
    /// ½(1+cos(π·(index−warmup)/(total−warmup)))·(max−min)` (training-dynamic §8, with updates
    /// instead of micro-steps).
    pub fn rate(&self, index: u64) -> f64 {
        if index < self.warmup {
            return self.max_lr * (index + 1) as f64 / self.warmup as f64;
        }
        if index >= self.total {
            return self.min_lr;
        }
        let done = (index - self.warmup) as f64 / (self.total - self.warmup) as f64;
        self.min_lr + 0.5 * (1.0 + (std::f64::consts::PI * done).cos()) * (self.max_lr - self.min_lr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_convergence_recipe() {
        // The formula of the PyTorch baseline: peak 1e-3, warm-up 100, total 1000, cosine to 10 %.
        let schedule = Schedule { max_lr: 1e-3, min_lr: 1e-4, warmup: 100, total: 1000 };
        for it in 0..1000u64 {
            let want = if it < 100 {
                1e-3 * (it + 1) as f64 / 100.0
            } else {
                1e-3 * (0.1 + 0.45 * (1.0 + (std::f64::consts::PI * (it - 100) as f64 / 900.0).cos()))
            };
            // Both are a few f64 operations on numbers near 1e-3.
            assert!((schedule.rate(it) - want).abs() < 1e-15, "{it}");
        }
        assert_eq!(schedule.rate(0), 1e-5);
        assert_eq!(schedule.rate(99), 1e-3);
        assert_eq!(schedule.rate(100), 1e-3);
        assert_eq!(schedule.rate(5000), 1e-4);
    }

    #[test]
    fn edges_do_not_divide_by_zero() {
        let none = Schedule { max_lr: 1.0, min_lr: 0.5, warmup: 0, total: 0 };
        assert_eq!(none.rate(0), 0.5);
        let short = Schedule { max_lr: 1.0, min_lr: 0.5, warmup: 10, total: 4 };
        assert_eq!((short.rate(3), short.rate(9), short.rate(10)), (0.4, 1.0, 0.5));
    }
}
