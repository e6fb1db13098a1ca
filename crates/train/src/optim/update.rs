//! The operands of one update, whichever optimizer computes it.
//!
//! [`AdamW`] is the only optimizer; its rule and the loop over memory are in its file.

use std::ops::Range;

use ferrane_llm::config::Config;
use ferrane_llm::weights::{Slot, Weights};

use super::{AdamW, Gradients, Moments};

/// A consumer of new weights. Its arguments are the tensor, the index of the first value, and the
/// values.
pub type RowSink<'a> = Box<dyn FnMut(Slot, usize, &[f32]) + Send + 'a>;

/// A part of an update that one thread computes in order, and the consumer of its new weights.
pub struct UpdateShare<'a> {
    /// Ranges of values by tensor. Ranges of a matrix consist of whole rows. Ranges of different
    /// shares do not overlap. Those of frozen tensors are left out.
    pub ranges: Vec<(Slot, Range<usize>)>,
    /// Receives the new values in order, some whole rows at a time.
    pub take: RowSink<'a>,
}

/// The operands of one update.
pub struct Update<'a> {
    /// Hyperparameters of the optimizer.
    pub optimizer: AdamW,
    /// Sizes and options of the model.
    pub config: &'a Config,
    /// The fp32 master weights, updated in place.
    pub weights: &'a mut Weights,
    /// The accumulated gradients; empty after the update.
    pub gradients: &'a mut Gradients,
    /// Both moments, updated in place.
    pub moments: &'a mut Moments,
    /// Learning rate of this update.
    pub lr: f64,
    /// Factor on the gradients: undoes loss scale and accumulation, and clips.
    pub factor: f64,
    /// The number of this update, from 1. Skipped updates do not count, because they do not change
    /// the moments.
    pub count: u64,
}
