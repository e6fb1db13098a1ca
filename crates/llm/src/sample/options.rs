//! Options of sampling.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why options are invalid, or no token can be drawn.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is outside its range.
    #[error("`{option}` is {value}; it must be {range}")]
    Option {
        /// The field of [`Sampling`].
        option: &'static str,
        /// The value that the caller gave.
        value: f32,
        /// The values that are allowed.
        range: &'static str,
    },
    /// There are no logits, or none of them allows its token: all are NaN, -∞ or masked.
    #[error("no token can be drawn: every logit is NaN, -∞ or masked")]
    NoLogits,
}

/// How a token is chosen. The fields, their meaning and their order of application are those of
/// `transformers` and OpenAI ([module documentation](super)); the default changes nothing: tokens
/// are drawn from the model's own distribution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Divisor of the logits, at least 0. Smaller values prefer probable tokens; 0 always takes the
    /// most probable one. Default 1.
    pub temperature: f32,
    /// Draw among this many most probable tokens. `None` or 0: among all.
    pub top_k: Option<usize>,
    /// Draw among the most probable tokens whose probabilities add up to this, 0…1. Default 1: all.
    pub top_p: f32,
    /// Leave out tokens that are less probable than this fraction of the most probable one, 0…1.
    /// Default 0: none.
    pub min_p: f32,
    /// Divisor of positive logits, and factor of negative ones, of the tokens that the prompt or
    /// the output contains; above 0. Default 1: no penalty.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens that the output contains. Default 0.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit for each time that the output contains it. Default 0.
    pub frequency_penalty: f32,
    /// The penalties count only the last tokens, at most this many. `None`: all.
    pub penalty_window: Option<usize>,
    /// Added to the logits of these ids. Ids outside the vocabulary have no effect.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Seed of the random numbers: the same seed, logits and options give the same tokens. `None`:
    /// a new one each time.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: None,
            logit_bias: BTreeMap::new(),
            seed: None,
        }
    }
}

impl Sampling {
    /// Options that always take the most probable token.
    pub fn greedy() -> Sampling {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    /// Checks that every option is in its range.
    ///
    /// # Errors
    /// [`Error::Option`] for the first one that is not.
    pub fn validate(&self) -> Result<(), Error> {
        let check = |valid: bool, option, value, range| match valid {
            true => Ok(()),
            false => Err(Error::Option { option, value, range }),
        };
        let unit = 0.0..=1.0;
        let (t, r) = (self.temperature, self.repetition_penalty);
        check(t.is_finite() && t >= 0.0, "temperature", t, "a finite number, 0 or more")?;
        check(unit.contains(&self.top_p), "top_p", self.top_p, "a number from 0 to 1")?;
        check(unit.contains(&self.min_p), "min_p", self.min_p, "a number from 0 to 1")?;
        check(r.is_finite() && r > 0.0, "repetition_penalty", r, "a finite number above 0")?;
        let finite = |option, value: f32| check(value.is_finite(), option, value, "a finite number");
        finite("presence_penalty", self.presence_penalty)?;
        finite("frequency_penalty", self.frequency_penalty)?;
        self.logit_bias.values().try_for_each(|&bias| finite("logit_bias", bias))
    }

    /// Whether logits depend on the tokens so far.
    pub(super) fn penalizes(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}
