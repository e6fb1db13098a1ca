//! Options of `ferrane train` for adapters and conversations.

use std::path::PathBuf;

use clap::Args;
use ferrane::train::lora::LoraOptions;

use super::{finite, whole};

/// Adapters that are trained instead of the weights (docs/finetuning.md).
#[derive(Args, Debug, Clone)]
pub struct TrainLora {
    /// Train LoRA adapters of this rank for the model of --init, whose weights stay as they are.
    #[arg(long, value_name = "RANK", value_parser = whole::<usize>)]
    pub lora: Option<usize>,
    /// The change of a matrix is multiplied by this divided by the rank [default: 16].
    #[arg(long, value_name = "F", value_parser = finite, requires = "lora")]
    pub lora_alpha: Option<f64>,
    /// Projections that get an adapter: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj,
    /// down_proj, or all-linear for all of them [default: q_proj,v_proj].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', requires = "lora")]
    pub lora_targets: Vec<String>,
}

/// Conversations as training data (docs/finetuning.md).
#[derive(Args, Debug, Clone)]
pub struct TrainChat {
    /// The rows of JSON Lines are conversations: a list of messages in `messages` or --data-field.
    /// The loss runs over what the assistant wrote.
    #[arg(long)]
    pub chat: bool,
    /// Chat template (Jinja) of --chat; by default that of the model.
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
}

impl TrainLora {
    /// The options of the adapters, if any are trained.
    pub fn options(&self) -> Option<LoraOptions> {
        let default = LoraOptions::default();
        self.lora.map(|rank| LoraOptions {
            rank,
            alpha: self.lora_alpha.unwrap_or(default.alpha),
            targets: if self.lora_targets.is_empty() { default.targets } else { self.lora_targets.clone() },
        })
    }
}
