//! Log-probabilities of tokens under the model's own distribution.

/// A token with its log-probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogProb {
    /// The token, an index of the logits.
    pub id: u32,
    /// Natural logarithm of its probability; -∞ if it cannot occur.
    pub log_prob: f32,
}

/// The log-probabilities at one position.
#[derive(Debug, Clone, PartialEq)]
pub struct LogProbs {
    /// The token that was chosen.
    pub chosen: LogProb,
    /// The most probable tokens, in descending order; equals by ascending id.
    pub top: Vec<LogProb>,
}

/// The log-probabilities of the token `chosen` and of the `top` most probable ones: the logarithm
/// of the softmax of the logits, as the model returns them and before any option of sampling.
/// `None` if `chosen` is outside the vocabulary or no logit is finite.
pub fn log_probs(logits: &[f32], chosen: u32, top: usize) -> Option<LogProbs> {
    let own = *logits.get(chosen as usize)?;
    let highest = logits.iter().copied().filter(|v| v.is_finite()).fold(f32::NEG_INFINITY, f32::max);
    if highest == f32::NEG_INFINITY {
        return None;
    }
    let sum: f64 = logits.iter().filter(|v| v.is_finite()).map(|&v| f64::from(v - highest).exp()).sum();
    let normalizer = sum.ln();
    let of = |v: f32| match v.is_finite() {
        true => (f64::from(v - highest) - normalizer) as f32,
        false => f32::NEG_INFINITY,
    };
    let mut ids: Vec<u32> = (0..logits.len() as u32).filter(|id| logits[*id as usize].is_finite()).collect();
    let order = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if top < ids.len() {
        ids.select_nth_unstable_by(top, order);
        ids.truncate(top);
    }
    ids.sort_unstable_by(order);
    let top = ids.into_iter().map(|id| LogProb { id, log_prob: of(logits[id as usize]) }).collect();
    Some(LogProbs { chosen: LogProb { id: chosen, log_prob: of(own) }, top })
}
