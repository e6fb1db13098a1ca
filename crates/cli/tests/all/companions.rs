//! Adapters, draft models, and texts longer than the context.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use ferrane::llm::config::{self, Config};
use ferrane::llm::weights::{Init, Weights, native};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::{Value, json};

use crate::chat;
use crate::place::Place;

/// An adapter as PEFT writes it, which changes the queries of all layers of a model.
fn adapter(folder: &Path, config: &Config) {
    const RANK: usize = 4;
    fs::create_dir(folder).unwrap();
    let fields = json!({"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"]});
    fs::write(folder.join("adapter_config.json"), fields.to_string()).unwrap();
    let mut tensors = HashMap::new();
    for layer in 0..config.layers {
        for (which, shape) in [("A", [RANK, config.dim]), ("B", [config.q_dim(), RANK])] {
            let name = format!("base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{which}.weight");
            let value = |i: usize| (((i * 37 + layer * 11 + which.len()) % 17) as f32 - 8.0) * 0.25;
            let bytes: Vec<u8> = (0..shape[0] * shape[1]).flat_map(|i| value(i).to_le_bytes()).collect();
            tensors.insert(name, (shape.to_vec(), bytes));
        }
    }
    let views: HashMap<_, _> = tensors
        .iter()
        .map(|(name, (shape, bytes))| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()))
        .collect();
    serialize_to_file(views, None, &folder.join("adapter_model.safetensors")).unwrap();
}

fn place() -> Place {
    let place = chat::place();
    let config = config::read(&place.path("made/config.json")).unwrap();
    adapter(&place.path("lora"), &config);
    place
}

/// The ids that follow "cat" at temperature 0.
fn ids(place: &Place, more: &str) -> Value {
    let line = format!("generate --checkpoint bot --prompt cat --steps 40 --temperature 0 --json {more}");
    place.run(&line).ok().objects().remove(0)["ids"].clone()
}

#[test]
fn an_adapter_changes_what_a_model_says() {
    let place = place();
    for device in ["emulator", "reference"] {
        let ids = |more: &str| ids(&place, &format!("--device {device} {more}"));
        let plain = ids("");
        assert_ne!(ids("--lora lora"), plain, "{device}");
        assert_eq!(ids("--lora lora:0"), plain, "{device}");
        assert_ne!(ids("--lora lora:0.5"), ids("--lora lora"), "{device}");
    }
    place.write("text.txt", "a cat sat on a mat and saw a bat. ".repeat(40));
    let loss = |more: &str| {
        let line = format!("eval --checkpoint bot --data text.txt --seq 32 --windows 4 --json {more}");
        place.run(&line).ok().objects().remove(0)["loss"].as_f64().unwrap()
    };
    let (plain, device, reference) = (loss(""), loss("--lora lora"), loss("--lora lora --device reference"));
    // fp16 activations against fp32.
    assert!((device - reference).abs() < 0.02 && (device - plain).abs() > 0.05, "{plain} {device} {reference}");
}

#[test]
fn adapters_that_cannot_be_used_are_named() {
    let place = place();
    let run = |more: &str| place.run(&format!("generate --checkpoint bot --steps 9 {more}"));
    run("--lora none").refused(1, &["none", "adapter_config.json"]);
    run("--lora lora:half").refused(1, &["--lora lora:half: `half` is not a number; write DIR:SCALE"]);
    run("--lora lora:inf").refused(1, &["`inf` is not a number"]);
    let config = config::read(&place.path("made/config.json")).unwrap();
    adapter(&place.path("wide"), &Config { dim: 2 * config.dim, ..config });
    run("--lora wide").refused(1, &["lora_A.weight", "shape"]);
}

#[test]
fn a_draft_changes_the_speed_and_not_the_text() {
    let place = place();
    for device in ["emulator", "reference"] {
        let plain = ids(&place, &format!("--device {device}"));
        let line = format!(
            "generate --checkpoint bot --prompt cat --steps 40 --temperature 0 --draft bot --draft-tokens 3 --device {device}"
        );
        let found = place.run(&format!("{line} --json")).ok().objects().remove(0);
        assert_eq!(found["ids"], plain, "{device}");
        // The model is its own draft: what it proposes is right.
        let (proposed, accepted) = (&found["draft"]["proposed"], &found["draft"]["accepted"]);
        assert!(proposed.as_u64().unwrap() > 10 && proposed == accepted, "{found}");
        let said = place.run(&line).ok().err;
        assert!(said.contains("proposals of the draft accepted (100 %)"), "{said}");
    }
    let run = |more: &str| place.run(&format!("generate --checkpoint bot --steps 9 {more}"));
    run("--draft bot --regex a").refused(2, &["--draft", "--regex", "cannot be used with"]);
    run("--draft-tokens 3").refused(2, &["--draft"]);
    run("--draft bot --draft-tokens 0").refused(1, &["--draft-tokens 0 proposes nothing"]);
    // The draft's ids must mean the same.
    place.model("other", 259);
    let config = config::read(&place.path("other/config.json")).unwrap();
    let weights = Weights::init(&config, Init::Normal { std: 0.3 }, 5);
    native::save(&place.path("other/model.safetensors"), &config, &weights).unwrap();
    run("--draft other").refused(1, &["the draft cannot propose tokens for this model: it has 259 ids, the model 258"]);
}

#[test]
fn a_text_beyond_the_context_follows_its_policy() {
    let place = place();
    let run = |more: &str| {
        place.run(&format!("generate --checkpoint bot --prompt cat --steps 60 --temperature 0 --json {more}"))
    };
    let ids = |more: &str| run(&format!("--context 16 {more}")).ok().objects().remove(0)["ids"].clone();
    let (shift, sinks) = (ids(""), ids("--context-policy sinks"));
    assert_eq!(shift.as_array().unwrap()[..12], sinks.as_array().unwrap()[..12]);
    assert_eq!(ids("--context-policy shift"), shift);
    run("--context 16 --context-policy error").refused(1, &["context"]);
    run("--context 0").refused(1, &["--context 0 holds no token; give 1 or more"]);
}
