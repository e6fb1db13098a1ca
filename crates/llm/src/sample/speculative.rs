//! Draws that a draft model proposes and the model decides on.
//!
//! A token `x` that was drawn with probability `q(x)` is accepted with probability `min(1, p(x) /
//! q(x))`. Otherwise a token is drawn from what `p` has above `q`, in proportion. What results has
//! exactly the distribution `p`, whatever `q` is. Both are the distributions that the options
//! leave, so a token that `top_k` excludes is never accepted.

use super::{Error, Origin, Sampler};

/// A token that a draft proposes, with the distribution that it was drawn from, by ascending id.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    pub(crate) id: u32,
    probabilities: Vec<(u32, f64)>,
}

impl Sampler {
    /// Takes back the last `count` tokens of [`Sampler::accept`].
    pub(crate) fn retract(&mut self, count: usize) {
        if self.options.penalizes() {
            (0..count).for_each(|_| self.history.pop());
        }
    }

    /// Draws a token of a draft from its logits.
    ///
    /// # Errors
    /// [`Error::NoLogits`].
    pub(crate) fn propose(&mut self, logits: &[f32]) -> Result<Proposal, Error> {
        let probabilities = self.probabilities(logits)?;
        let id = draw(&probabilities, 1.0, self.rng.uniform()).ok_or(Error::NoLogits)?;
        Ok(Proposal { id, probabilities })
    }

    /// Decides on a proposal by the model's logits: `None` accepts it, otherwise another token
    /// takes its place. The history must be that of the proposal.
    ///
    /// # Errors
    /// [`Error::NoLogits`].
    pub(crate) fn decide(&mut self, logits: &[f32], proposal: &Proposal) -> Result<Option<u32>, Error> {
        let wanted = self.probabilities(logits)?;
        let of = |list: &[(u32, f64)], id: u32| {
            list.binary_search_by_key(&id, |(id, _)| *id).map_or(0.0, |found| list[found].1)
        };
        let drawn = &proposal.probabilities;
        if self.rng.uniform() * of(drawn, proposal.id) < of(&wanted, proposal.id) {
            return Ok(None);
        }
        let above = |&(id, p): &(u32, f64)| (id, (p - of(drawn, id)).max(0.0));
        let rest: Vec<(u32, f64)> = wanted.iter().map(above).filter(|(_, p)| *p > 0.0).collect();
        let sum = rest.iter().map(|(_, p)| p).sum();
        // Without anything above, the two are equal up to rounding, and the proposal stands.
        Ok(draw(&rest, sum, self.rng.uniform()))
    }

    /// The distribution that [`Sampler::sample`] draws from, by ascending id.
    fn probabilities(&mut self, logits: &[f32]) -> Result<Vec<(u32, f64)>, Error> {
        if let Some(certain) = self.prepare(logits, None)? {
            return Ok(vec![(certain, 1.0)]);
        }
        let sum: f64 = self.candidates.iter().map(|(weight, _)| weight).sum();
        let mut list: Vec<(u32, f64)> = self.candidates.iter().map(|&(weight, id)| (id, weight / sum)).collect();
        list.sort_unstable_by_key(|(id, _)| *id);
        Ok(list)
    }
}

/// The id at which the running sum exceeds `coin · sum`.
fn draw(list: &[(u32, f64)], sum: f64, coin: f64) -> Option<u32> {
    let (mut running, target) = (0.0, coin * sum);
    let found = list.iter().find(|(_, p)| {
        running += p;
        target < running
    });
    // No id is found only if rounding makes the whole sum smaller.
    found.or(list.last()).map(|(id, _)| *id)
}

impl super::History {
    /// Takes back the last [`super::History::push`].
    fn pop(&mut self) {
        // With a window that is full, a token has left for the last one.
        if self.from > 0 {
            self.from -= 1;
            let (id, origin) = self.tokens[self.from];
            let count = self.counts.entry(id).or_default();
            count.all += 1;
            count.output += usize::from(origin == Origin::Output);
        }
        if let Some((id, origin)) = self.tokens.pop() {
            self.remove(id, origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{History, Sampling};
    use super::*;

    #[test]
    fn what_was_pushed_can_be_taken_back() {
        for window in [None, Some(0), Some(1), Some(3), Some(20)] {
            let mut history = History::default();
            let mut before = Vec::new();
            for i in 0..8u32 {
                before.push((history.tokens.clone(), history.from, sorted(&history)));
                history.push(i * i % 3, if i < 3 { Origin::Prompt } else { Origin::Output }, window);
            }
            while let Some(expected) = before.pop() {
                history.pop();
                assert_eq!((history.tokens.clone(), history.from, sorted(&history)), expected, "{window:?}");
            }
        }
    }

    fn sorted(history: &History) -> Vec<(u32, usize, usize)> {
        let mut list: Vec<_> = history.counts.iter().map(|(id, count)| (*id, count.all, count.output)).collect();
        list.sort_unstable();
        list
    }

    #[test]
    fn a_proposal_that_the_model_excludes_is_never_accepted() {
        let mut sampler = Sampler::new(&Sampling { top_k: Some(1), seed: Some(3), ..Sampling::default() }).unwrap();
        for _ in 0..50 {
            let proposal = sampler.propose(&[9.0, 0.0, 1.0]).unwrap();
            assert_eq!((proposal.id, sampler.decide(&[0.0, 0.0, 1.0], &proposal).unwrap()), (0, Some(2)));
            assert_eq!(sampler.decide(&[0.2, 0.0, 0.1], &proposal).unwrap(), None);
        }
        assert!(matches!(sampler.propose(&[f32::NAN]), Err(Error::NoLogits)));
    }
}
