//! Configurations by name. The values are from models.md §3–4 for the story models and Qwen3-0.6B,
//! and from the published configuration for Qwen2.5-0.5B.

use super::{Activation, Config, Error, Rope, RopeStyle};

/// The names that [`preset`] accepts.
pub const PRESETS: [&str; 6] = ["stories260k", "stories15m", "stories42m", "stories110m", "qwen2.5-0.5b", "qwen3-0.6b"];

/// The configuration of a published model.
///
/// # Errors
/// [`Error::UnknownPreset`], with the nearest name of a preset.
pub fn preset(name: &str) -> Result<Config, Error> {
    Ok(match name {
        "stories260k" => stories(64, 172, 5, 8, 4, 512, 512),
        "stories15m" => stories(288, 768, 6, 6, 6, 32000, 256),
        "stories42m" => stories(512, 1376, 8, 8, 8, 32000, 1024),
        "stories110m" => stories(768, 2048, 12, 12, 12, 32000, 1024),
        "qwen2.5-0.5b" => Config {
            dim: 896,
            hidden: 4864,
            layers: 24,
            heads: 14,
            kv_heads: 2,
            head_dim: 64,
            max_seq: 32768,
            qkv_bias: true,
            ..qwen()
        },
        "qwen3-0.6b" => Config {
            dim: 1024,
            hidden: 3072,
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            max_seq: 40960,
            qk_norm: true,
            ..qwen()
        },
        _ => return Err(Error::UnknownPreset { name: name.to_string(), nearest: nearest(name) }),
    })
}

fn stories(
    dim: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    vocab: usize,
    max_seq: usize,
) -> Config {
    Config {
        dim,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim: dim / heads,
        vocab,
        max_seq,
        rope: Rope::new(RopeStyle::Interleaved, 1e4),
        local_rope: None,
        norm_eps: 1e-5,
        qk_norm: false,
        qkv_bias: false,
        post_norms: false,
        experts: None,
        activation: Activation::Silu,
        embed_scale: 1.0,
        score_scale: None,
        attn_softcap: None,
        logit_softcap: None,
        sliding_window: None,
        layer_attention: Vec::new(),
        tied: true,
        residual_scale: 1.0,
    }
}

/// The fields that both Qwen presets share; the caller sets the sizes.
fn qwen() -> Config {
    Config { rope: Rope::new(RopeStyle::Half, 1e6), norm_eps: 1e-6, ..stories(1, 1, 1, 1, 1, 151_936, 1) }
}

fn nearest(name: &str) -> &'static str {
    let name = name.to_lowercase();
    ferrane_diag::closest(&name, PRESETS).unwrap_or(PRESETS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid() {
        for name in PRESETS {
            preset(name).unwrap().validate().unwrap();
        }
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        for (typed, expected) in [
            ("storys110m", "stories110m"),
            ("stories-15m", "stories15m"),
            ("Qwen3", "qwen3-0.6b"),
            ("qwen2.5", "qwen2.5-0.5b"),
        ] {
            match preset(typed) {
                Err(Error::UnknownPreset { nearest, .. }) => assert_eq!(nearest, expected, "{typed}"),
                other => panic!("{typed}: {other:?}"),
            }
        }
    }
}
