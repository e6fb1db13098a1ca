//! Attention that differs from layer to layer: windows on some layers, rotation on some.
//!
//! A model has few kinds of attention ([`Config::attention_kinds`]). What depends on the kind (a
//! mask, a table of cosines) exists once for each kind, and a layer refers to its kind by index.

use super::{Activation, Config, Error, Rotation, invalid};
use serde::{Deserialize, Serialize};

/// The attention of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionKind {
    /// Whether a position attends to [`Config::sliding_window`] positions only.
    pub window: bool,
    /// Whether queries and keys are rotated.
    pub rope: bool,
}

impl Config {
    /// The attention of a layer.
    pub fn attention(&self, layer: usize) -> AttentionKind {
        let all = AttentionKind { window: self.sliding_window.is_some(), rope: true };
        self.layer_attention.get(layer).copied().unwrap_or(all)
    }

    /// The kinds of attention of the model's layers, each once, in the order of the first layer
    /// that has it.
    pub fn attention_kinds(&self) -> Vec<AttentionKind> {
        self.attention_kinds_of(0..self.layers)
    }

    /// The kinds of attention that these layers have, each once, in the order of the layers.
    pub(crate) fn attention_kinds_of(&self, layers: std::ops::Range<usize>) -> Vec<AttentionKind> {
        let mut kinds = Vec::new();
        for layer in layers {
            let kind = self.attention(layer);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// The number of positions that a layer's attention reaches back, itself included; `None`: all.
    pub fn window(&self, kind: AttentionKind) -> Option<usize> {
        self.sliding_window.filter(|_| kind.window)
    }

    /// The rotation of heads in layers of a kind, in a context of `context` tokens.
    pub fn rotation(&self, kind: AttentionKind, context: usize) -> Rotation {
        match &self.local_rope {
            _ if !kind.rope => Rotation::none(),
            Some(local) if kind.window => local.rotation(self.head_dim, context),
            _ => self.rope.rotation(self.head_dim, context),
        }
    }

    /// Why no gradients of this model are computed, and what can be done; `None` if they are.
    pub fn beyond_training(&self) -> Option<String> {
        let reason = [
            (self.activation != Activation::Silu, "its gate is not SiLU (`activation`)"),
            (self.post_norms, "it has norms after attention and feed-forward part (`post_norms`)"),
            (self.experts.is_some(), "it is a mixture of experts (`experts`)"),
            (self.embed_scale != 1.0, "its embedding is scaled (`embed_scale`)"),
            (
                self.attn_softcap.is_some() || self.logit_softcap.is_some(),
                "its scores or logits are capped (`attn_softcap`, `logit_softcap`)",
            ),
        ];
        let (_, reason) = reason.into_iter().find(|(found, _)| *found)?;
        Some(format!(
            "training does not support this model: {reason}; start from a model of the Llama, Mistral, Qwen, Phi-3 or \
             SmolLM family"
        ))
    }

    /// Why the ten kernels of training do not compute this model, and what does; `None` if they do.
    pub fn beyond_kernels(&self) -> Option<String> {
        // The kernels are compiled once for all layers, with mask and rotation as constants.
        let reason = match self.attention_kinds().len() {
            _ if self.score_scale.is_some() => "the scores have a factor of their own (`score_scale`)",
            2.. => "the layers differ in windows or rotation (`layer_attention`)",
            _ => return self.beyond_training(),
        };
        let remedy = "the decoder generates on a device, and the fp32 reference trains and evaluates without one";
        let own = format!("the kernels of training do not support this model: {reason}; {remedy}");
        Some(self.beyond_training().unwrap_or(own))
    }

    pub(super) fn validate_attention(&self) -> Result<(), Error> {
        let list = &self.layer_attention;
        if !list.is_empty() && list.len() != self.layers {
            let reason = format!("must be empty or have one entry for each of {} layers", self.layers);
            return Err(invalid("layer_attention", format!("{} entries", list.len()), &reason));
        }
        if let Some(local) = &self.local_rope {
            local.validate("local_rope.base", self.head_dim)?;
            if (local.style, local.rotated) != (self.rope.style, self.rope.rotated) {
                return Err(invalid("local_rope", "an encoding", "must have the pairs of rope"));
            }
        }
        if self.sliding_window.is_none() && list.iter().any(|kind| kind.window) {
            return Err(invalid("layer_attention", "a window", "needs sliding_window"));
        }
        Ok(())
    }
}
