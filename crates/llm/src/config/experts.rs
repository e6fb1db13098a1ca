//! Mixtures of experts: layers whose feed-forward part is one of many for each token.

use super::{Config, Error, MAX_WIDTH, invalid};
use serde::{Deserialize, Serialize};

/// The experts of a layer. A softmax over the outputs of the router, one for each expert, gives
/// their probabilities; a token runs through those with the largest, and their outputs are added,
/// times these probabilities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Number of experts in a layer.
    pub count: usize,
    /// Number of experts that a token runs through; at most `count`.
    pub active: usize,
    /// Width inside an expert.
    pub hidden: usize,
    /// Whether the probabilities of the active experts are divided by their sum.
    pub normalize: bool,
    /// Layers with one ordinary feed-forward part of width [`Config::hidden`] instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dense_layers: Vec<usize>,
}

impl Config {
    /// The experts of a layer; `None` if it has an ordinary feed-forward part.
    pub fn experts(&self, layer: usize) -> Option<&Experts> {
        self.experts.as_ref().filter(|experts| !experts.dense_layers.contains(&layer))
    }

    /// Number of layers with experts, and of values in the feed-forward part of one.
    pub(super) fn sparse_parameters(&self) -> Option<(usize, usize)> {
        let Some(experts) = &self.experts else { return Some((0, 0)) };
        let one = self.dim.checked_mul(experts.hidden)?.checked_mul(3)?.checked_add(self.dim)?;
        let layers = (0..self.layers).filter(|&layer| self.experts(layer).is_some()).count();
        Some((layers, one.checked_mul(experts.count)?))
    }

    pub(super) fn validate_experts(&self) -> Result<(), Error> {
        let Some(experts) = &self.experts else { return Ok(()) };
        for (field, value) in [("experts.count", experts.count), ("experts.hidden", experts.hidden)] {
            if value == 0 || value > MAX_WIDTH {
                return Err(invalid(field, value, &format!("must be from 1 to {MAX_WIDTH}")));
            }
        }
        if experts.active == 0 || experts.active > experts.count {
            let reason = format!("must be from 1 to the {} experts", experts.count);
            return Err(invalid("experts.active", experts.active, &reason));
        }
        if experts.dense_layers.len() > self.layers {
            let reason = format!("are more than the {} layers", self.layers);
            return Err(invalid("experts.dense_layers", format!("{} entries", experts.dense_layers.len()), &reason));
        }
        Ok(())
    }
}
