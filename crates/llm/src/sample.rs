//! Choosing the next token from logits: greedy, by temperature, or by nucleus sampling (top-p).
//!
//! The rules are llama2.c's: temperature 0 takes the largest logit. Otherwise logits are divided by
//! the temperature and turned into probabilities, and one uniform draw picks a token among all or,
//! for `0 < top_p < 1`, among the most probable ones whose sum first exceeds `top_p`. Ties go to
//! the lowest id, so the same seed gives the same tokens.

use crate::random::Rng;

/// Why a sampler cannot be made, or cannot sample.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The temperature is negative, infinite or NaN.
    #[error("temperature {0} is not a finite number ≥ 0")]
    Temperature(f32),
    /// `top_p` is NaN or outside 0…1.
    #[error("top-p {0} is not in 0…1")]
    TopP(f32),
    /// There are no logits, or all of them are NaN.
    #[error("no logit is a number")]
    NoLogits,
}

/// Draws tokens. It owns the state of its random generator, which each draw advances.
#[derive(Debug, Clone)]
pub struct Sampler {
    temperature: f32,
    top_p: f32,
    rng: Rng,
    /// The ids that may be drawn, sorted; `None`: all.
    only: Option<Vec<u32>>,
}

impl Sampler {
    /// A sampler. A `top_p` of 0 or 1 switches nucleus sampling off.
    ///
    /// # Errors
    /// [`Error::Temperature`], [`Error::TopP`].
    pub fn new(temperature: f32, top_p: f32, seed: u64) -> Result<Self, Error> {
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(Error::Temperature(temperature));
        }
        if !(0.0..=1.0).contains(&top_p) {
            return Err(Error::TopP(top_p));
        }
        Ok(Sampler { temperature, top_p, rng: Rng::new(seed), only: None })
    }

    /// Restricts the draws to these ids. A model that was trained with a compact vocabulary has
    /// untrained logits for all other ids.
    #[must_use]
    pub fn only(mut self, ids: &[u32]) -> Self {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        self.only = Some(ids);
        self
    }

    /// Draws the id of the next token.
    ///
    /// # Errors
    /// [`Error::NoLogits`].
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, Error> {
        let Some(only) = &self.only else { return self.draw(logits) };
        let mut allowed = vec![f32::NEG_INFINITY; logits.len()];
        for &id in only {
            if let (Some(to), Some(from)) = (allowed.get_mut(id as usize), logits.get(id as usize)) {
                *to = *from;
            }
        }
        self.draw(&allowed)
    }

    fn draw(&mut self, logits: &[f32]) -> Result<u32, Error> {
        let best = argmax(logits).ok_or(Error::NoLogits)?;
        let top = logits[best as usize];
        // An infinite logit would make every probability NaN, and it is certain to be chosen.
        if self.temperature == 0.0 || top.is_infinite() {
            return Ok(best);
        }
        let weight = |v: f32| (f64::from(v - top) / f64::from(self.temperature)).exp();
        let all: Vec<f64> = logits.iter().map(|&v| if v.is_nan() { 0.0 } else { weight(v) }).collect();
        let coin = self.rng.uniform();
        let sum: f64 = all.iter().sum();
        if self.top_p <= 0.0 || self.top_p >= 1.0 {
            let target = coin * sum;
            let mut running = 0.0;
            for (id, p) in all.iter().enumerate() {
                running += p;
                if target < running {
                    return Ok(id as u32);
                }
            }
            return Ok(best);
        }
        // A token with less than an even share of the probability outside the nucleus cannot belong
        // to it; leaving these out keeps the sort short.
        let limit = f64::from(self.top_p) * sum;
        let cutoff = (sum - limit) / (all.len().max(2) - 1) as f64;
        let mut nucleus: Vec<(f64, u32)> =
            all.iter().enumerate().filter(|(_, p)| **p >= cutoff).map(|(id, &p)| (p, id as u32)).collect();
        nucleus.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut running = 0.0;
        let mut length = nucleus.len();
        for (i, (p, _)) in nucleus.iter().enumerate() {
            running += p;
            if running > limit {
                length = i + 1;
                break;
            }
        }
        let target = coin * running;
        let mut reached = 0.0;
        for (p, id) in &nucleus[..length] {
            reached += p;
            if target < reached {
                return Ok(*id);
            }
        }
        Ok(best)
    }
}

/// The id of the largest logit, the lowest id on a tie; NaN is skipped. `None` if there is no other
/// value.
pub fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(usize, f32)> = None;
    for (id, &value) in logits.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|(_, top)| value > top) {
            best = Some((id, value));
        }
    }
    best.map(|(id, _)| id as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(temperature: f32, top_p: f32, logits: &[f32], draws: usize) -> Vec<usize> {
        let mut sampler = Sampler::new(temperature, top_p, 5).unwrap();
        let mut counts = vec![0; logits.len()];
        (0..draws).for_each(|_| counts[sampler.sample(logits).unwrap() as usize] += 1);
        counts
    }

    #[test]
    fn only_the_named_ids_are_drawn() {
        let logits = [9.0, 1.0, 8.0, 1.5, 7.0];
        let mut greedy = Sampler::new(0.0, 1.0, 1).unwrap().only(&[3, 1]);
        assert_eq!(greedy.sample(&logits), Ok(3));
        for top_p in [0.9, 1.0] {
            let mut sampler = Sampler::new(1.0, top_p, 1).unwrap().only(&[3, 1, 77]);
            let drawn: Vec<u32> = (0..200).map(|_| sampler.sample(&logits).unwrap()).collect();
            assert!(drawn.iter().all(|id| [1, 3].contains(id)) && drawn.contains(&1) && drawn.contains(&3));
        }
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(argmax(&[f32::NAN, -1.0]), Some(1));
        assert_eq!(argmax(&[]), None);
        assert_eq!(counts(0.0, 0.9, &[0.0, 2.0, 2.0], 3), [0, 3, 0]);
        assert_eq!(counts(1.0, 0.0, &[0.0, f32::INFINITY], 3), [0, 3]);
    }

    #[test]
    fn temperature_follows_the_probabilities() {
        // Probabilities 1/2, 1/3, 1/6 at temperature 1; at 1/2 their squares, normalized.
        let logits = [3f32.ln(), 2f32.ln(), 0.0];
        let n = 60_000;
        for (temperature, expected) in [(1.0, [30_000, 20_000, 10_000]), (0.5, [38_571, 17_143, 4_286])] {
            for (found, expected) in counts(temperature, 1.0, &logits, n).into_iter().zip(expected) {
                // Five standard deviations of a binomial are at most 5·√(n/4).
                assert!(found.abs_diff(expected) < 612, "{temperature}: {found} {expected}");
            }
        }
    }

    #[test]
    fn nucleus_cuts_the_tail() {
        let logits = [3f32.ln(), 2f32.ln(), 0.0];
        // 1/2 does not exceed 0.6, 5/6 does: two tokens remain, in the ratio 3 to 2.
        let found = counts(1.0, 0.6, &logits, 50_000);
        assert_eq!(found[2], 0);
        assert!(found[0].abs_diff(30_000) < 560, "{found:?}");
        assert_eq!(counts(1.0, 0.4, &logits, 100), [100, 0, 0]);
        // Four equal tokens: the lowest ids are the nucleus.
        let even = counts(1.0, 0.3, &[0.0; 4], 1000);
        assert_eq!((even[2], even[3]), (0, 0));
    }

    #[test]
    fn a_seed_repeats_and_bad_input_is_refused() {
        let logits: Vec<f32> = (0..50).map(|i| (i as f32).sin()).collect();
        let run = |seed| {
            let mut sampler = Sampler::new(1.0, 0.9, seed).unwrap();
            (0..20).map(|_| sampler.sample(&logits).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!(matches!(Sampler::new(f32::NAN, 0.0, 0), Err(Error::Temperature(_))));
        assert_eq!(Sampler::new(-1.0, 0.0, 0).unwrap_err(), Error::Temperature(-1.0));
        assert_eq!(Sampler::new(1.0, 1.5, 0).unwrap_err(), Error::TopP(1.5));
        assert_eq!(Sampler::new(1.0, 0.5, 0).unwrap().sample(&[f32::NAN]), Err(Error::NoLogits));
    }
}
