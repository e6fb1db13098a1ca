//! Which layers of a model have a window, and which rotate: `sliding_window`, `layer_types` and the
//! fields that take their place in some architectures.

use super::{Defaults, Family, Fields};
use crate::config::{AttentionKind, Error, MAX_LAYERS};
use serde_json::Value;

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

impl Fields<'_> {
    /// The window, if any layer has one, and the attention of each layer, empty if all are alike.
    pub(super) fn attention(
        &self,
        family: Family,
        defaults: &Defaults,
        layers: usize,
    ) -> Result<(Option<usize>, Vec<AttentionKind>), Error> {
        if layers > MAX_LAYERS {
            // Refused by `Config::validate`, with the limit.
            return Ok((None, Vec::new()));
        }
        let window = match family {
            Family::Llama => None,
            Family::Qwen2 | Family::Qwen3 | Family::Qwen3Moe | Family::SmolLm3
                if !self.flag("use_sliding_window", false)? =>
            {
                None
            }
            _ => self.size_or_null("sliding_window", defaults.window)?,
        };
        let rope = match family {
            Family::SmolLm3 => self.rotated_layers(layers)?,
            _ => vec![true; layers],
        };
        let windows = self.windowed_layers(family, window, &rope)?;
        let list: Vec<AttentionKind> =
            windows.into_iter().zip(rope).map(|(window, rope)| AttentionKind { window, rope }).collect();
        let window = window.filter(|_| list.iter().any(|kind| kind.window));
        let alike = list.iter().all(|kind| *kind == AttentionKind { window: window.is_some(), rope: true });
        Ok((window, if alike { Vec::new() } else { list }))
    }

    /// Whether each layer has the window: as `layer_types` says, or by the rule of the family.
    fn windowed_layers(&self, family: Family, window: Option<usize>, rope: &[bool]) -> Result<Vec<bool>, Error> {
        let layers = rope.len();
        let by_rule: Vec<bool> = match family {
            _ if window.is_none() => vec![false; layers],
            Family::Llama | Family::Mistral | Family::Qwen3Moe | Family::Phi3 => vec![true; layers],
            Family::Qwen2 | Family::Qwen3 => {
                let first = self.size("max_window_layers", Some(28))?;
                (0..layers).map(|layer| layer >= first).collect()
            }
            Family::SmolLm3 => rope.iter().map(|rope| !rope).collect(),
            Family::Gemma2 => (0..layers).map(|layer| layer % 2 == 0).collect(),
            Family::Gemma3 => {
                let period = match self.optional_size("sliding_window_pattern")? {
                    Some(period) => period,
                    None => self.size("_sliding_window_pattern", Some(6))?,
                };
                if period == 0 {
                    return Err(self.error("sliding_window_pattern", "must not be zero"));
                }
                (0..layers).map(|layer| (layer + 1) % period != 0).collect()
            }
        };
        let Some(value) = self.get("layer_types") else { return Ok(by_rule) };
        let list = value.as_array().ok_or_else(|| self.error("layer_types", "is not a list of names"))?;
        if list.len() != layers {
            return Err(self.error("layer_types", format!("{} entries for {layers} layers", list.len())));
        }
        let mut stated = Vec::new();
        for (layer, kind) in list.iter().enumerate() {
            let sliding = match kind.as_str() {
                Some(FULL) => false,
                Some(SLIDING) => true,
                _ => return Err(self.error("layer_types", format!("layer {layer}: {kind} is not supported"))),
            };
            if sliding && window.is_none() {
                return Err(self.error("layer_types", format!("layer {layer} is {kind}, but there is no window")));
            }
            stated.push(sliding);
        }
        // These architectures have one mask for all layers, whatever the list says.
        let one = matches!(family, Family::Llama | Family::Mistral | Family::Qwen3Moe | Family::Phi3);
        match stated.iter().zip(&by_rule).position(|(stated, rule)| stated != rule) {
            Some(layer) if one => {
                let rule = if by_rule[layer] { SLIDING } else { FULL };
                let reason = format!("layer {layer} is {}, but the window makes it \"{rule}\"", list[layer]);
                Err(self.error("layer_types", reason))
            }
            _ => Ok(stated),
        }
    }

    /// Whether each layer of SmolLM3 rotates. Entries of `no_rope_layers` are 1 for layers that do.
    fn rotated_layers(&self, layers: usize) -> Result<Vec<bool>, Error> {
        let field = "no_rope_layers";
        let Some(value) = self.get(field) else {
            let interval = self.size("no_rope_layer_interval", Some(4))?;
            if interval == 0 {
                return Err(self.error("no_rope_layer_interval", "must not be zero"));
            }
            return Ok((0..layers).map(|layer| (layer + 1) % interval != 0).collect());
        };
        let list = value.as_array().ok_or_else(|| self.error(field, "is not a list of 0 and 1"))?;
        if list.len() != layers {
            return Err(self.error(field, format!("{} entries for {layers} layers", list.len())));
        }
        let entry = |value: &Value| match value.as_u64() {
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            _ => Err(self.error(field, format!("{value} is neither 0 nor 1"))),
        };
        list.iter().map(entry).collect()
    }
}
