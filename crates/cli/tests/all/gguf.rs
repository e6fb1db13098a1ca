//! GGUF files: `ferrane inspect` lists them, `ferrane generate` opens them.

use ferrane::gguf::{MetadataValue, TensorType, Writer};
use ferrane::llm::config::{Config, Rope, RopeStyle, preset};
use ferrane::llm::weights::{Init, Weights};

use crate::place::Place;

/// With `tiny.gguf`, a model of one layer with random fp32 weights and six pieces of text.
fn place() -> Place {
    let place = Place::new();
    let config = Config {
        dim: 8,
        hidden: 16,
        layers: 1,
        heads: 2,
        kv_heads: 2,
        head_dim: 4,
        vocab: 6,
        max_seq: 32,
        rope: Rope::new(RopeStyle::Half, 1e4),
        tied: true,
        ..preset("stories260k").unwrap()
    };
    let weights = Weights::init(&config, Init::Normal { std: 0.5 }, 3);
    let names = [
        "token_embd",
        "blk.0.attn_norm",
        "blk.0.attn_q",
        "blk.0.attn_k",
        "blk.0.attn_v",
        "blk.0.attn_output",
        "blk.0.ffn_norm",
        "blk.0.ffn_gate",
        "blk.0.ffn_up",
        "blk.0.ffn_down",
        "output_norm",
    ];
    let tensors = weights.tensors(&config);
    assert_eq!(tensors.len(), names.len());
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|t| t.data.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let mut writer = Writer::new();
    let mut key = |key: &str, value: MetadataValue| writer.metadata(key, value).unwrap();
    key("general.architecture", MetadataValue::from("llama"));
    for (name, value) in [
        ("embedding_length", 8u32),
        ("feed_forward_length", 16),
        ("block_count", 1),
        ("context_length", 32),
        ("attention.head_count", 2),
    ] {
        key(&format!("llama.{name}"), MetadataValue::U32(value));
    }
    key("llama.attention.layer_norm_rms_epsilon", MetadataValue::F32(1e-5));
    key("tokenizer.ggml.model", MetadataValue::from("llama"));
    key("tokenizer.ggml.tokens", MetadataValue::from(vec!["<unk>", "<s>", "</s>", "\u{2581}", "a", "b"]));
    for ((name, tensor), bytes) in names.iter().zip(&tensors).zip(&bytes) {
        writer.tensor(&format!("{name}.weight"), &tensor.shape, TensorType::F32, bytes).unwrap();
    }
    writer.save(place.path("tiny.gguf")).unwrap();
    place
}

#[test]
fn files_are_listed() {
    let place = place();
    let shown = place.run("inspect tiny.gguf").ok().out;
    for line in [
        "tiny.gguf: a language model",
        "GGUF version 3, 9 keys, 11 tensors",
        "32.00 bits per value",
        "general.architecture",
        "(6 elements of string)",
        "[16, 8], 512 bytes",
        "`ferrane generate --checkpoint tiny.gguf`",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    let json = place.run("inspect tiny.gguf --json").ok().objects().remove(0);
    assert_eq!((json["kind"].as_str(), json["content"]["bits_per_value"].as_f64()), (Some("gguf"), Some(32.0)));
    assert_eq!(json["content"]["metadata"]["llama.block_count"], 1);
    assert_eq!(json["content"]["tensors"].as_array().map(Vec::len), Some(11));
    let file = std::fs::read(place.path("tiny.gguf")).unwrap();
    std::fs::write(place.path("cut.gguf"), &file[..file.len() - 16]).unwrap();
    place.run("inspect cut.gguf").refused(1, &["cut.gguf", "output_norm.weight", "do not lie inside the file"]);
}

#[test]
fn models_generate() {
    let place = place();
    let run = |more: &str| {
        place.run(&format!("generate --checkpoint tiny.gguf --prompt ab --steps 12 --temperature 0 {more}"))
    };
    let reference = run("--device reference").ok().out;
    assert!(reference.starts_with("ab"), "{reference:?}");
    assert!(run("").ok().out.starts_with("ab"));
    std::fs::write(place.path("tiny.gguf"), b"GGUF\x03\0\0\0").unwrap();
    run("").refused(1, &["tiny.gguf", "ends inside the number of tensors"]);
}
