//! What a run must remember besides weights and moments.

use std::collections::BTreeMap;

use ferrane_llm::compaction::Compaction;
use serde::{Deserialize, Serialize};

use crate::data::SamplerState;
use crate::metrics::Record;
use crate::optim::LossScale;

/// Version of `state.json` that this code writes and reads.
pub const VERSION: u32 = 1;

/// The state of a run at the border of an accumulation window. A window that was cut short is no
/// part of it: the sampler's state is that of the window's start, so the window is drawn again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of this format.
    pub version: u32,
    /// Updates done, skipped ones included; the index of the next one. The schedule counts these.
    pub step: u64,
    /// Updates that changed weights; AdamW's bias correction counts these.
    pub updates: u64,
    /// Updates skipped because something was not finite.
    pub skipped: u64,
    /// Of these, the ones since the last good update.
    pub skipped_in_a_row: u64,
    /// Tokens trained on.
    pub tokens: u64,
    /// Seconds spent, over all resumed parts of the run.
    pub seconds: f64,
    /// The loss scale.
    pub loss_scale: LossScale,
    /// The sampler.
    pub sampler: SamplerState,
    /// The run's options, to be compared when it is resumed.
    pub options: serde_json::Value,
    /// SHA-256 of the token ids, in hexadecimal.
    pub data: String,
    /// Where the tokenizer lies, if the run has one.
    pub tokenizer: Option<String>,
    /// The ids that the loss runs over, if they are not all: what is generated or evaluated later
    /// must keep to them.
    #[serde(default)]
    pub compaction: Option<Compaction>,
    /// The last validation loss and the step after which it was measured.
    pub validation: Option<(u64, f64)>,
    /// The record of the last update, if the run was stopped in the validation that belongs to it.
    #[serde(default)]
    pub pending: Option<Record>,
    /// The other files of the checkpoint: filled in on the disk only, when it is saved.
    #[serde(default)]
    pub files: BTreeMap<String, Digest>,
}

/// Size and hash of a file, by which a damaged one is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
}
