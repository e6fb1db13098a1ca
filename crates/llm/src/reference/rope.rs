//! Rotary position encoding: each pair of a head is rotated by an angle proportional to the
//! position.

use super::Real;
use crate::config::{Config, RopeStyle};

/// Cosines and sines of the first positions, each `[positions, head_dim / 2]`. Angles are computed
/// in `f64`.
pub(super) struct Table<T> {
    style: RopeStyle,
    half: usize,
    cos: Vec<T>,
    sin: Vec<T>,
}

impl<T: Real> Table<T> {
    /// The table of positions below `positions`.
    pub(super) fn new(config: &Config, positions: usize) -> Self {
        let mut table = Table { style: config.rope.style, half: config.head_dim / 2, cos: vec![], sin: vec![] };
        (0..positions).for_each(|p| table.push(config, p));
        table
    }

    /// Appends a row for `position`, which must be the next one.
    pub(super) fn push(&mut self, config: &Config, position: usize) {
        for i in 0..self.half {
            let exponent = -2.0 * i as f64 / config.head_dim as f64;
            let (sin, cos) = (position as f64 * f64::from(config.rope.base).powf(exponent)).sin_cos();
            self.cos.push(T::from_f64(cos));
            self.sin.push(T::from_f64(sin));
        }
    }

    /// Rotates the heads of the row at `position` forward (`direction` 1) or back (−1: the
    /// transpose, and so the gradient).
    pub(super) fn turn(&self, row: &mut [T], position: usize, direction: T) {
        let range = position * self.half..(position + 1) * self.half;
        let (cos, sin) = (&self.cos[range.clone()], &self.sin[range]);
        for head in row.chunks_exact_mut(2 * self.half) {
            for i in 0..self.half {
                let (a, b) = match self.style {
                    RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                    RopeStyle::Half => (i, i + self.half),
                };
                let (x, y, s) = (head[a], head[b], direction * sin[i]);
                head[a] = x * cos[i] - y * s;
                head[b] = x * s + y * cos[i];
            }
        }
    }
}
