//! Rotary position encoding: which elements of a head form pairs, and by which angle each pair is
//! rotated.
//!
//! [`Rope::rotation`] is the only place that computes frequencies. The reference, the decoder and
//! the kernels of training take their cosines and sines from [`Rotation::at`], which includes the
//! attention factor of YaRN and LongRoPE: both queries and keys carry it, so scores carry its
//! square, as the definitions of both want it.
//!
//! *LongRoPE has two sets of frequencies*, for sequences within the original context and for longer
//! ones. Keys in a cache are rotated already, so a sequence cannot change from one set to the
//! other. The choice is made once, by the context: [`Config::max_seq`](super::Config::max_seq), or
//! the shorter context that a decoder is given.

use super::{Error, invalid};
use serde::{Deserialize, Serialize};

/// Which two elements of a head of `head_dim` values form a rotated pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RopeStyle {
    /// Pair `i` is elements `2i` and `2i + 1` (llama2.c and the reference trainer).
    Interleaved,
    /// Pair `i` is elements `i` and `i + n / 2` of the `n` rotated ones (Hugging Face).
    Half,
}

/// Rotary position encoding: pair `i` at position `p` is rotated by `p · base^(-2i / n)`, where `n`
/// is the number of rotated elements of a head, and [`Rope::scaling`] may change the frequencies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Which elements form a pair.
    pub style: RopeStyle,
    /// Base of the frequencies, often 10000 or 1000000.
    pub base: f32,
    /// Number of rotated elements at the start of a head, even; the others keep their values.
    /// `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<usize>,
    /// How the frequencies differ from the plain ones, for contexts beyond the first training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RopeScaling>,
}

/// A change of the frequencies that extends the context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum RopeScaling {
    /// All frequencies are divided by `factor`.
    Linear {
        /// The divisor, above 0.
        factor: f64,
    },
    /// Llama 3.1: wavelengths above `original / low` are multiplied by `factor`, those below
    /// `original / high` kept, and those between are interpolated.
    Llama3 {
        /// The factor of long wavelengths, above 0.
        factor: f64,
        /// Rotations within the original context below which a frequency is divided.
        low: f64,
        /// Rotations within the original context above which a frequency is kept; above `low`.
        high: f64,
        /// Context of the first training, in tokens.
        original: usize,
    },
    /// YaRN: pairs that rotate less than `beta_slow` times within the original context are divided
    /// by `factor`, those above `beta_fast` are kept, with a ramp over the pairs between.
    Yarn {
        /// The divisor of slow pairs, above 0.
        factor: f64,
        /// Context of the first training, in tokens.
        original: usize,
        /// Factor on the cosines and sines.
        attention: f64,
        /// Number of rotations at the fast end of the ramp.
        beta_fast: f64,
        /// Number of rotations at the slow end of the ramp.
        beta_slow: f64,
        /// Whether the ends of the ramp are rounded outwards to whole pairs.
        truncate: bool,
    },
    /// LongRoPE: the frequency of each pair is divided by a factor of its own.
    LongRope {
        /// Divisors for contexts of at most `original` tokens, one for each pair.
        short: Vec<f64>,
        /// Divisors for longer contexts, one for each pair.
        long: Vec<f64>,
        /// Context of the first training, in tokens.
        original: usize,
        /// Factor on the cosines and sines.
        attention: f64,
    },
}

/// The frequencies of a head's rotated pairs, and the factor on their cosines and sines.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotation {
    /// Angle per position of each rotated pair, in radians.
    frequencies: Vec<f64>,
    attention: f64,
}

impl Rotation {
    /// The rotation that keeps every value.
    pub fn none() -> Rotation {
        Rotation { frequencies: Vec::new(), attention: 1.0 }
    }

    /// Number of rotated pairs; further pairs of a head keep their values.
    pub fn pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// Cosine and sine of a pair at a position, times the attention factor; 1 and 0 for a pair that
    /// is not rotated.
    pub fn at(&self, pair: usize, position: usize) -> (f64, f64) {
        let Some(frequency) = self.frequencies.get(pair) else { return (1.0, 0.0) };
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        (self.attention * cos, self.attention * sin)
    }
}

impl Rope {
    /// The plain encoding of all elements of a head.
    pub fn new(style: RopeStyle, base: f32) -> Rope {
        Rope { style, base, rotated: None, scaling: None }
    }

    /// Number of rotated elements in a head of `head_dim`.
    pub fn rotated(&self, head_dim: usize) -> usize {
        self.rotated.unwrap_or(head_dim)
    }

    /// The two elements of pair `i` in a head of `head_dim` elements. After the rotated pairs come
    /// pairs of the other elements, which keep their values.
    pub fn pair(&self, head_dim: usize, i: usize) -> (usize, usize) {
        let rotated = self.rotated(head_dim);
        match self.style {
            _ if i >= rotated / 2 => (i + rotated / 2, i + head_dim / 2),
            RopeStyle::Interleaved => (2 * i, 2 * i + 1),
            RopeStyle::Half => (i, i + rotated / 2),
        }
    }

    /// The rotation of heads of `head_dim` elements in a context of `context` tokens, computed in
    /// fp64.
    pub fn rotation(&self, head_dim: usize, context: usize) -> Rotation {
        let n = self.rotated(head_dim);
        let plain = |i: usize| f64::from(self.base).powf(-2.0 * i as f64 / n as f64);
        let mut frequencies: Vec<f64> = (0..n / 2).map(plain).collect();
        let mut attention = 1.0;
        match &self.scaling {
            None => {}
            Some(RopeScaling::Linear { factor }) => frequencies.iter_mut().for_each(|f| *f /= factor),
            Some(RopeScaling::Llama3 { factor, low, high, original }) => {
                for frequency in &mut frequencies {
                    // Rotations within the original context: at most `low` gives a share of 0 to
                    // the plain frequency, `high` and more a share of 1.
                    let turns = *original as f64 * *frequency / std::f64::consts::TAU;
                    let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    *frequency *= share + (1.0 - share) / factor;
                }
            }
            Some(RopeScaling::Yarn { factor, original, attention: a, beta_fast, beta_slow, truncate }) => {
                let at = |turns: f64| self.pair_with(turns, n, *original);
                let (mut first, mut last) = (at(*beta_fast), at(*beta_slow));
                if *truncate {
                    (first, last) = (first.floor(), last.ceil());
                }
                let (first, last) = (first.max(0.0), last.min(n as f64 - 1.0));
                // A ramp without length is a step.
                let length = if first == last { 1e-3 } else { last - first };
                for (i, frequency) in frequencies.iter_mut().enumerate() {
                    let share = 1.0 - ((i as f64 - first) / length).clamp(0.0, 1.0);
                    *frequency *= share + (1.0 - share) / factor;
                }
                attention = *a;
            }
            Some(RopeScaling::LongRope { short, long, original, attention: a }) => {
                let divisors = if context > *original { long } else { short };
                frequencies.iter_mut().zip(divisors).for_each(|(f, divisor)| *f /= divisor);
                attention = *a;
            }
        }
        Rotation { frequencies, attention }
    }

    /// The pair, as a real number, that rotates `turns` times within `original` tokens.
    fn pair_with(&self, turns: f64, rotated: usize, original: usize) -> f64 {
        let angle = original as f64 / (turns * std::f64::consts::TAU);
        rotated as f64 * angle.ln() / (2.0 * f64::from(self.base).ln())
    }

    /// Checks the fields, for heads of `head_dim` elements; `base` is the name of the base.
    pub(super) fn validate(&self, base: &'static str, head_dim: usize) -> Result<(), Error> {
        if !(self.base.is_finite() && self.base > 0.0) {
            return Err(invalid(base, self.base, "must be finite and positive"));
        }
        let rotated = self.rotated(head_dim);
        if rotated == 0 || !rotated.is_multiple_of(2) || rotated > head_dim {
            return Err(invalid("rope.rotated", rotated, &format!("must be even and from 2 to head_dim = {head_dim}")));
        }
        let positive = |field, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(()),
            false => Err(invalid(field, value, "must be finite and positive")),
        };
        match &self.scaling {
            None => Ok(()),
            Some(RopeScaling::Linear { factor }) => positive("rope.scaling.factor", *factor),
            Some(RopeScaling::Llama3 { factor, low, high, original }) => {
                positive("rope.scaling.factor", *factor)?;
                positive("rope.scaling.low", *low)?;
                positive("rope.scaling.original", *original as f64)?;
                match high.is_finite() && high > low {
                    true => Ok(()),
                    false => Err(invalid("rope.scaling.high", high, &format!("must be finite and above low = {low}"))),
                }
            }
            Some(RopeScaling::Yarn { factor, original, attention, beta_fast, beta_slow, .. }) => {
                positive("rope.scaling.factor", *factor)?;
                positive("rope.scaling.original", *original as f64)?;
                positive("rope.scaling.attention", *attention)?;
                positive("rope.scaling.beta_slow", *beta_slow)?;
                if self.base <= 1.0 {
                    return Err(invalid(base, self.base, "must be above 1 with YaRN"));
                }
                match beta_fast.is_finite() && beta_fast >= beta_slow {
                    true => Ok(()),
                    false => {
                        let reason = format!("must be finite and at least beta_slow = {beta_slow}");
                        Err(invalid("rope.scaling.beta_fast", beta_fast, &reason))
                    }
                }
            }
            Some(RopeScaling::LongRope { short, long, original, attention }) => {
                positive("rope.scaling.original", *original as f64)?;
                positive("rope.scaling.attention", *attention)?;
                for (field, list) in [("rope.scaling.short", short), ("rope.scaling.long", long)] {
                    if list.len() != rotated / 2 {
                        let found = format!("{} numbers", list.len());
                        return Err(invalid(field, found, &format!("must have one for each of {} pairs", rotated / 2)));
                    }
                    list.iter().try_for_each(|divisor| positive(field, *divisor))?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_cover_a_head() {
        for (style, rotated) in [
            (RopeStyle::Half, None),
            (RopeStyle::Interleaved, None),
            (RopeStyle::Half, Some(6)),
            (RopeStyle::Interleaved, Some(2)),
        ] {
            let rope = Rope { rotated, ..Rope::new(style, 1e4) };
            let mut all: Vec<usize> = (0..5).flat_map(|i| <[usize; 2]>::from(rope.pair(10, i))).collect();
            all.sort_unstable();
            assert_eq!(all, (0..10).collect::<Vec<_>>(), "{style:?} {rotated:?}");
        }
        let rope = Rope { rotated: Some(6), ..Rope::new(RopeStyle::Half, 1e4) };
        assert_eq!([rope.pair(10, 1), rope.pair(10, 3)], [(1, 4), (6, 8)]);
        let rotation = rope.rotation(10, 64);
        assert_eq!((rotation.pairs(), rotation.at(3, 9)), (3, (1.0, 0.0)));
        // The exponent counts rotated elements: 2 · 1 / 6.
        assert!((rotation.at(1, 5).0 - (5.0 * 1e4f64.powf(-1.0 / 3.0)).cos()).abs() < 1e-12);
    }

    #[test]
    fn old_files_have_two_fields() {
        let rope: Rope = serde_json::from_str(r#"{"style":"half","base":1000000.0}"#).unwrap();
        assert_eq!(rope, Rope::new(RopeStyle::Half, 1e6));
        assert_eq!(serde_json::to_string(&rope).unwrap(), r#"{"style":"half","base":1000000.0}"#);
        let long = RopeScaling::LongRope { short: vec![1.0], long: vec![2.0], original: 8, attention: 1.5 };
        let rope = Rope { rotated: Some(2), scaling: Some(long), ..rope };
        let text = serde_json::to_string(&rope).unwrap();
        assert_eq!(serde_json::from_str::<Rope>(&text).unwrap(), rope);
        assert!(serde_json::from_str::<Rope>(&text.replace("attention", "other")).is_err());
    }

    #[test]
    fn bad_scalings_are_named() {
        let yarn = |beta_fast: f64, original| RopeScaling::Yarn {
            factor: 4.0,
            original,
            attention: 1.0,
            beta_fast,
            beta_slow: 1.0,
            truncate: true,
        };
        let long = |short: &[f64], long: &[f64]| RopeScaling::LongRope {
            short: short.into(),
            long: long.into(),
            original: 8,
            attention: 1.0,
        };
        let llama = |low: f64, high: f64| RopeScaling::Llama3 { factor: 8.0, low, high, original: 8192 };
        for (scaling, needle) in [
            (RopeScaling::Linear { factor: 0.0 }, Some("factor")),
            (RopeScaling::Linear { factor: f64::NAN }, Some("factor")),
            (llama(1.0, 1.0), Some("high")),
            (llama(1.0, 4.0), None),
            (yarn(0.5, 64), Some("beta_fast")),
            (yarn(32.0, 0), Some("original")),
            (yarn(32.0, 64), None),
            (long(&[1.0], &[1.0, 2.0]), Some("short")),
            (long(&[1.0, 1.0], &[1.0, -2.0]), Some("long")),
            (long(&[1.0, 1.0], &[1.0, 2.0]), None),
        ] {
            let rope = Rope { scaling: Some(scaling), ..Rope::new(RopeStyle::Half, 1e4) };
            let found = rope.validate("rope.base", 4).err().map(|e| e.to_string());
            assert_eq!(found.is_some(), needle.is_some(), "{rope:?} {found:?}");
            assert!(needle.is_none_or(|n| found.unwrap().contains(n)));
        }
        for rotated in [0, 3, 6] {
            let rope = Rope { rotated: Some(rotated), ..Rope::new(RopeStyle::Half, 1e4) };
            assert!(rope.validate("rope.base", 4).unwrap_err().to_string().contains("rotated"));
        }
    }
}
