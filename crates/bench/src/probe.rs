//! A question to a machine.

use ferrane_device::Result;
use serde_json::Value;

use crate::{Found, Place};

/// What asking costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// A few compiles.
    Light,
    /// Many compiles, or many that fail and are waited out, or minutes.
    Dear,
    /// It may spoil the process it runs in, or does: asked last, and only when asked for.
    Risky,
}

/// What a claim says of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Word {
    /// It is this, as text: `refused`, `true`, `119`.
    Is(&'static str),
    /// It is anything but this.
    Not(&'static str),
    /// It is that or more, or no limit at all.
    AtLeast(u64),
    /// It is that or less.
    AtMost(u64),
    /// It is a list that holds this.
    Has(&'static str),
    /// It is a list without this.
    Lacks(&'static str),
}

impl Word {
    /// Whether a value, in a profile's form, is as the word says.
    pub fn fits(self, value: &Value) -> bool {
        let listed = |word: &str| value.as_array().is_some_and(|all| all.iter().any(|v| v.as_str() == Some(word)));
        match self {
            Word::Is(word) => plain(value) == word,
            Word::Not(word) => plain(value) != word,
            Word::AtLeast(least) => value.as_u64().map_or(plain(value) == "none", |n| n >= least),
            Word::AtMost(most) => value.as_u64().is_some_and(|n| n <= most),
            Word::Has(word) => listed(word),
            Word::Lacks(word) => value.is_array() && !listed(word),
        }
    }
}

/// A value without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// A claim, and what it says of a value that the probe measures.
#[derive(Clone, Copy, Debug)]
pub struct Says {
    /// Its id.
    pub claim: &'static str,
    /// The value, by its name in a profile.
    pub value: &'static str,
    /// What it is said to be.
    pub word: Word,
}

/// A row of a probe's claims.
pub(crate) const fn says(claim: &'static str, value: &'static str, word: Word) -> Says {
    Says { claim, value, word }
}

/// A question: what is measured, which claims that decides, and how.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its name.
    pub name: &'static str,
    /// The question.
    pub question: &'static str,
    /// The experiments of pull request 40 of the reference work that it repeats, by their letters.
    pub experiments: &'static [&'static str],
    /// What asking costs.
    pub cost: Cost,
    /// The values that it measures.
    pub values: &'static [&'static str],
    /// The claims that it decides.
    pub says: &'static [Says],
    pub(crate) run: fn(&mut Place<'_>) -> Result<Found>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_held_against_values() {
        for (word, value, fits) in [
            (Word::Is("refused"), json!("refused"), true),
            (Word::Is("true"), json!(true), true),
            (Word::Is("119"), json!(120), false),
            (Word::Not("refused"), json!("native"), true),
            (Word::AtLeast(128), json!("none"), true),
            (Word::AtLeast(128), json!(127), false),
            (Word::AtMost(119), json!(119), true),
            (Word::AtMost(119), json!("none"), false),
            (Word::Has("fp32"), json!(["fp16", "fp32"]), true),
            (Word::Lacks("fp32"), json!(["fp16"]), true),
            (Word::Lacks("fp32"), json!("fp16"), false),
        ] {
            assert_eq!(word.fits(&value), fits, "{word:?} {value}");
        }
    }
}
