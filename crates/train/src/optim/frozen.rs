//! The tensors that a run does not train, by patterns of their names.

use ferrane_llm::config::Config;
use ferrane_llm::weights::Slot;
use glob::{MatchOptions, Pattern};

/// Why tensors cannot be frozen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreezeError {
    /// A pattern is not one, or matches no tensor.
    #[error("`freeze` {pattern}: {reason}")]
    Pattern {
        /// The pattern as it was given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing is left to train.
    #[error("`freeze`: the patterns match all tensors of the model, and none is left to train")]
    Everything,
}

/// The tensors of a model that keep their values: they have no gradient, no weight decay and no
/// part in the gradient norm. By default there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frozen {
    /// In the order of [`Slot::list`]; without an entry nothing is frozen.
    tensors: Vec<bool>,
}

impl Frozen {
    /// The tensors whose names match a pattern. Names are those of a run's checkpoint: `embed`,
    /// `layers.0.wq`, `norm`, `classifier`. In a pattern `*` stands for any text, `?` for a
    /// character and `[0-3]` for one of several.
    ///
    /// # Errors
    /// [`FreezeError::Pattern`], [`FreezeError::Everything`].
    pub fn matching(config: &Config, patterns: &[String]) -> Result<Frozen, FreezeError> {
        if patterns.is_empty() {
            return Ok(Frozen::default());
        }
        let names: Vec<String> = Slot::list(config).into_iter().map(Slot::name).collect();
        let mut tensors = vec![false; names.len()];
        for text in patterns {
            let refuse = |reason| FreezeError::Pattern { pattern: text.clone(), reason };
            let pattern = Pattern::new(text).map_err(|e| refuse(e.msg.to_string()))?;
            let mut found = false;
            for (name, frozen) in names.iter().zip(&mut tensors) {
                let matches = pattern.matches_with(name, MatchOptions::new());
                (found, *frozen) = (found || matches, *frozen || matches);
            }
            if !found {
                let of_layer = names.iter().filter_map(|name| name.strip_prefix("layers.0."));
                let of_layer = of_layer.collect::<Vec<_>>().join(", ");
                let rest = names.iter().filter(|name| !name.starts_with("layers."));
                let rest = rest.map(String::as_str).collect::<Vec<_>>().join(", ");
                let last = config.layers.saturating_sub(1);
                return Err(refuse(format!(
                    "no tensor has such a name; there are {rest}, and in layers.0 to layers.{last}: {of_layer}"
                )));
            }
        }
        if tensors.iter().all(|frozen| *frozen) { Err(FreezeError::Everything) } else { Ok(Frozen { tensors }) }
    }

    /// Whether the tensor with this index in [`Slot::list`] is frozen.
    pub fn contains(&self, index: usize) -> bool {
        self.tensors.get(index).copied().unwrap_or(false)
    }

    /// Whether all tensors are trained.
    pub fn is_empty(&self) -> bool {
        !self.tensors.contains(&true)
    }

    /// Number of values in the tensors that are trained.
    pub fn trained(&self, config: &Config) -> usize {
        let slots = Slot::list(config).into_iter().enumerate().filter(|(index, _)| !self.contains(*index));
        slots.map(|(_, slot)| slot.shape(config).iter().product::<usize>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::preset;

    fn named(patterns: &[&str]) -> Result<Frozen, FreezeError> {
        let patterns: Vec<String> = patterns.iter().map(|text| text.to_string()).collect();
        Frozen::matching(&preset("stories260k").unwrap(), &patterns)
    }

    #[test]
    fn patterns_select_tensors() {
        let config = preset("stories260k").unwrap();
        let slots = Slot::list(&config);
        let count = |patterns: &[&str]| {
            let frozen = named(patterns).unwrap();
            (0..slots.len()).filter(|index| frozen.contains(*index)).count()
        };
        assert_eq!((count(&[]), count(&["embed"]), count(&["layers.[0-3].*"])), (0, 1, 4 * 9));
        // Five layers, and the final norm.
        assert_eq!((count(&["*norm"]), count(&["embed", "*.w?", "embed"])), (11, 1 + 5 * 7));
        let all = config.parameters();
        assert_eq!(
            (named(&[]).unwrap().trained(&config), named(&["embed"]).unwrap().trained(&config)),
            (all, all - 512 * 64)
        );
        assert!(named(&[]).unwrap().is_empty() && !named(&["norm"]).unwrap().is_empty());
    }

    #[test]
    fn patterns_that_are_refused() {
        let text = named(&["embed", "lm_head"]).unwrap_err().to_string();
        assert!(text.starts_with("`freeze` lm_head: no tensor has such a name; there are embed, norm,"), "{text}");
        assert!(text.contains("layers.0 to layers.4: attn_norm, wq,"), "{text}");
        assert!(matches!(named(&["layers.[0"]), Err(FreezeError::Pattern { pattern, .. }) if pattern == "layers.[0"));
        assert_eq!(named(&["embed", "*norm", "layers.*"]), Err(FreezeError::Everything));
    }
}
