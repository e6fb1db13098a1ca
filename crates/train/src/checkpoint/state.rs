//! The state of a run, except weights and moments.

use std::collections::BTreeMap;

use ferrane_llm::compaction::Compaction;
use serde::{Deserialize, Serialize};

use crate::data::SamplerState;
use crate::metrics::Record;
use crate::optim::LossScale;

/// Version of `state.json` that this code writes and reads.
pub const VERSION: u32 = 1;

/// The state of a run between two updates. An interrupted update is not part of it: the sampler's
/// state is that of the update's start, so its windows are drawn again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of this format.
    pub version: u32,
    /// Number of updates done, skipped ones included, and so the index of the next one. The
    /// learning rate schedule counts these.
    pub step: u64,
    /// Number of updates that changed weights. AdamW's bias correction counts these.
    pub updates: u64,
    /// Number of updates skipped because a loss or gradient was not finite.
    pub skipped: u64,
    /// Number of updates skipped since the last one that changed weights.
    pub skipped_in_a_row: u64,
    /// Number of tokens trained on.
    pub tokens: u64,
    /// Seconds of training, summed over all resumed parts of the run.
    pub seconds: f64,
    /// The dynamic loss scale of the next update.
    pub loss_scale: LossScale,
    /// The sampler's state before the next window.
    pub sampler: SamplerState,
    /// The run's options, which are compared with the new ones when the run is resumed.
    pub options: serde_json::Value,
    /// SHA-256 of the token ids, in hexadecimal.
    pub data: String,
    /// Path of the tokenizer, if the run has one.
    pub tokenizer: Option<String>,
    /// The ids that the loss runs over; `None` if it runs over all. Generation and evaluation must
    /// use only these.
    #[serde(default)]
    pub compaction: Option<Compaction>,
    /// The step of the last validation, and its mean loss in nats per token.
    pub validation: Option<(u64, f64)>,
    /// The record of the last update, if the run was stopped during the validation after it.
    #[serde(default)]
    pub pending: Option<Record>,
    /// The other files of the checkpoint by name; set when the checkpoint is saved, empty in
    /// memory.
    #[serde(default)]
    pub files: BTreeMap<String, Digest>,
}

/// Size and hash of a file, for detecting damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
}
