//! Fine-tuning with LoRA adapters: the weights of a model are frozen, and a change of low rank is
//! trained for some of its matrices.
//!
//! An adapted matrix is `W + alpha/rank · B · A`, with `A` `[rank, in]` and `B` `[out, rank]`.
//! Engines compute with the sum, which is staged like any other weight after each update; gradients
//! and moments exist only for `A` and `B`. The gradients need no gradient of `W`: with the inputs
//! `X` and the output gradients `Y` of a matrix, `dB = s·Y·(A·X)ᵀ` and `dA = s·(Bᵀ·Y)·Xᵀ`, which
//! are products of the rank instead of the width. Frozen matrices, the embedding and the classifier
//! get no product at all.
//!
//! Invariants: before the first update the sum is `W`, because `B` is zero; the sum is computed
//! from `W`, `A` and `B` in one fixed order, so a resumed run has the bits of the run that was
//! stopped, and [`ferrane_llm::lora::Adapter::merge_into`] gives the same sum.

mod adapters;
mod tuning;

pub use adapters::{Adapters, Factors};
pub use tuning::{StoredAdapters, Tuning, digest};

use ferrane_llm::config::Config;
use ferrane_llm::lora::TARGETS;
use ferrane_llm::weights::Part;
use serde::{Deserialize, Serialize};

/// The name that stands for all projections.
const ALL: &str = "all-linear";

/// Why adapters cannot be trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has an invalid value.
    #[error("`{name}` {value}: {reason}")]
    Option {
        /// `lora` (the rank), `lora_alpha` or `lora_targets`.
        name: &'static str,
        /// The value, as text.
        value: String,
        /// The violated condition, as a clause after the value.
        reason: String,
    },
    /// The frozen weights are not those that the adapters were trained for.
    #[error(
        "the weights of the model are not those that these adapters were begun with (their hash is {found}, not {expected}); \
         give `init` the same model"
    )]
    OtherBase {
        /// Beginning of the recorded hash.
        expected: String,
        /// Beginning of the hash of the given weights.
        found: String,
    },
    /// The matrices of adapters, their gradients or moments have sizes that do not fit each other.
    #[error("adapters and weights do not fit each other: {0}")]
    Sizes(String),
}

impl Error {
    /// [`Error::OtherBase`] with the beginnings of two hashes.
    pub(crate) fn other_base(expected: &str, found: &str) -> Error {
        let short = |hash: &str| hash.chars().take(12).collect();
        Error::OtherBase { expected: short(expected), found: short(found) }
    }
}

/// Which matrices are adapted, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoraOptions {
    /// Number of rows of `A`, at least 1.
    pub rank: usize,
    /// The change is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The adapted projections as PEFT names them, such as `q_proj`, or `all-linear`.
    pub targets: Vec<String>,
}

impl Default for LoraOptions {
    fn default() -> Self {
        LoraOptions { rank: 8, alpha: 16.0, targets: vec!["q_proj".into(), "v_proj".into()] }
    }
}

impl std::fmt::Display for LoraOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (alpha {}, targets {})", self.rank, self.alpha, self.targets.join(","))
    }
}

impl LoraOptions {
    /// The factor of the change.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// The adapted parts of each layer, in the order of the layer's tensors.
    ///
    /// # Errors
    /// [`Error::Option`] for an unknown target, a rank that is 0 or larger than a matrix, or an
    /// alpha that is not a positive number.
    pub fn parts(&self, config: &Config) -> Result<Vec<Part>, Error> {
        let refuse = |name, value: String, reason: String| Err(Error::Option { name, value, reason });
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return refuse("lora_alpha", self.alpha.to_string(), "must be finite and positive".into());
        }
        let known = TARGETS.map(|(name, _)| name).join(", ");
        let mut parts = Vec::new();
        for target in &self.targets {
            match TARGETS.iter().find(|(name, _)| name == target) {
                _ if target == ALL => parts.extend(TARGETS.map(|(_, part)| part)),
                Some((_, part)) => parts.push(*part),
                None => {
                    let reason = format!("no such projection; the targets are {known}, and {ALL} for all of them");
                    return refuse("lora_targets", target.clone(), reason);
                }
            }
        }
        if parts.is_empty() {
            return refuse("lora_targets", "without a name".into(), format!("give some of {known}, or {ALL}"));
        }
        parts.sort_by_key(|part| TARGETS.iter().position(|(_, known)| known == part));
        parts.dedup();
        let widths = parts.iter().flat_map(|part| part.shape(config));
        let most = widths.min().unwrap_or(0);
        if self.rank == 0 || self.rank > most {
            let reason = format!("the rank must be between 1 and {most}, the smaller side of the smallest target");
            return refuse("lora", self.rank.to_string(), reason);
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::preset;

    #[test]
    fn bad_options_are_named() {
        let config = preset("stories260k").unwrap();
        let good = LoraOptions::default();
        assert_eq!(good.parts(&config).unwrap(), [Part::Wq, Part::Wv]);
        let named = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let all = LoraOptions { targets: named(&["q_proj", "all-linear"]), ..good.clone() };
        assert_eq!(all.parts(&config).unwrap().len(), 7);
        for (options, field, needle) in [
            (LoraOptions { rank: 0, ..good.clone() }, "lora", "between 1 and 32"),
            (LoraOptions { rank: 33, ..good.clone() }, "lora", "between 1 and 32"),
            (LoraOptions { alpha: f64::NAN, ..good.clone() }, "lora_alpha", "positive"),
            (LoraOptions { alpha: 0.0, ..good.clone() }, "lora_alpha", "positive"),
            (LoraOptions { targets: vec![], ..good.clone() }, "lora_targets", "q_proj"),
            (LoraOptions { targets: named(&["lm_head"]), ..good.clone() }, "lora_targets", "`lora_targets` lm_head"),
            (LoraOptions { targets: named(&["q_proj", ""]), ..good }, "lora_targets", "no such projection"),
        ] {
            let error = options.parts(&config).unwrap_err();
            assert!(matches!(&error, Error::Option { name, .. } if *name == field), "{error}");
            assert!(error.to_string().contains(needle), "{error}");
        }
    }
}
