//! `ferrane generate`, and the ways in which a text gets its tokenizer.

use serde_json::{Value, json};

use crate::place::Place;

/// A run on a text, which makes its own tokenizer.
fn story() -> Place {
    let place = Place::new();
    let run =
        place.run("train --model tiny --data text.txt --steps 20 --accum 1 --seq 16 --eval-windows 2 --out run").ok();
    assert!(place.path("run/tokenizer.bin").is_file(), "{}", run.err);
    assert!(run.out.contains("generate --checkpoint run --prompt"), "{}", run.out);
    place
}

#[test]
fn the_seed_decides_and_temperature_0_needs_none() {
    let place = story();
    let text = |more: &str| place.run(&format!("generate --checkpoint run --steps 40 {more}")).ok().out;
    for device in ["emulator", "reference"] {
        let text = |more: &str| text(&format!("{more} --device {device}"));
        assert_eq!(text("--seed 7"), text("--seed 7"));
        assert_ne!(text("--seed 7"), text("--seed 8"));
        assert_eq!(text("--temperature 0 --seed 7"), text("--temperature 0 --seed 8"));
        assert_ne!(text("--temperature 0"), text("--temperature 1 --top-p 1"));
    }
}

#[test]
fn the_prompt_is_echoed_and_may_be_too_long() {
    let place = story();
    let generate = |prompt: &str, steps: &str| {
        let mut command = place.command(&format!("generate --checkpoint run --steps {steps}"));
        crate::place::Outcome::of(command.arg("--prompt").arg(prompt))
    };
    for prompt in ["Once upon a time", "-1 is ünlike \u{1f431}", " two  spaces"] {
        let out = generate(prompt, "60").ok().out;
        assert!(out.starts_with(prompt), "{out:?}");
    }
    let long = "cat ".repeat(50);
    generate(&long, "20").refused(1, &["the prompt has", "tokens, --steps allows 20 in all", "give more --steps"]);
    let json = place.run("generate --checkpoint run --steps 30 --prompt cat --json").ok().objects();
    assert_eq!(json.len(), 1);
    assert!(json[0]["text"].as_str().unwrap().starts_with("cat"), "{}", json[0]);
    assert!(json[0]["ids"].is_array() && json[0]["tokens_per_second"].is_number());
}

#[test]
fn rates_and_types_of_weights() {
    let place = story();
    let run =
        |more: &str| place.run(&format!("generate --checkpoint run --steps 40 --prompt cat --temperature 0 {more}"));
    for weights in ["fp16", "int8", "int4"] {
        let json = run(&format!("--weights-type {weights} --json")).ok().objects().remove(0);
        for rate in ["tokens_per_second", "prefill_tokens_per_second", "decode_tokens_per_second"] {
            assert!(json[rate].as_f64().unwrap() > 0.0, "{json}");
        }
    }
    // Rounding to fp16 changes no choice of a model like this.
    assert_eq!(run("").ok().out, run("--device reference").ok().out);
    let said = run("").ok().err;
    assert!(said.contains("tokens on emulator: prompt of") && said.contains("tokens/s, then"), "{said}");
    run("--weights-type int8 --device reference").refused(1, &["the reference computes in fp32", "--weights-type"]);
    run("--weights-type int3").refused(2, &["int3", "fp16", "int8", "int4"]);
    // Longer than the model's context.
    let long =
        place.run("generate --checkpoint run --steps 700 --temperature 1 --top-p 1 --json").ok().objects().remove(0);
    assert!(long["ids"].as_array().is_some());
}

#[test]
fn a_runs_folder_a_checkpoint_and_its_file_are_the_same_model() {
    let place = story();
    let text = |from: &str| place.run(&format!("generate --checkpoint {from} --steps 40 --temperature 0")).ok().out;
    let run = text("run");
    assert_eq!(text("run/step-000020"), run);
    assert_eq!(text("run/step-000020/model.safetensors"), run);
    // A tokenizer that happens to lie above a model is not the model's.
    std::fs::create_dir(place.path("run/models")).unwrap();
    std::fs::copy(place.path("run/step-000020/model.safetensors"), place.path("run/models/m.safetensors")).unwrap();
    let stray = place.run("generate --checkpoint run/models/m.safetensors");
    stray.refused(1, &["the model has no tokenizer", "--tokenizer"]);
}

#[test]
fn a_run_with_its_own_tokenizer_resumes_without_the_text_being_encoded_anew() {
    let place = story();
    let before = place.read("run/tokenizer.bin");
    let run = place.run("train --resume --out run --steps 22").ok();
    assert!(run.err.contains("resume  after update 20"), "{}", run.err);
    assert_eq!(place.read("run/tokenizer.bin"), before);
    // Another text in its place is refused.
    place.write("text.txt", "A cat sat on a mat.\n".repeat(300));
    place.run("train --resume --out run --steps 24").refused(1, &["the data are not those"]);
}

#[test]
fn the_embedded_default_in_small() {
    let place = Place::new();
    let run = place.run("train --steps 2 --accum 1 --seq 32 --eval-windows 2").ok();
    assert!(run.err.contains("data    embedded stories:"), "{}", run.err);
    assert!(run.out.contains("validation loss") && run.out.contains("runs/default/report.html"), "{}", run.out);
    assert!(place.read("runs/default/stories.txt").len() >= 900_000);
    let said = run.out.lines().find_map(|l| l.strip_prefix("next: ")).unwrap();
    let out = place.shell(said).ok();
    assert!(out.out.starts_with("One day"), "{}", out.out);
    place.run("eval --checkpoint runs/default --data runs/default/stories.txt --seq 32 --windows 2").ok();
}

#[test]
fn the_continuation_follows_a_grammar() {
    // A model that may draw any byte.
    let place = crate::chat::place();
    let schema = json!({
        "type": "object", "properties": {"n": {"enum": [1, 22]}}, "required": ["n"], "additionalProperties": false,
    });
    place.write("schema.json", schema.to_string());
    place.write("lark.txt", "start: \" so \" (\"it\" | \"they\") \" did\"");
    place.write("broken.txt", "start: missing");
    place.write("no.json", "{");
    let run = |more: &str| place.run(&format!("generate --checkpoint bot --steps 200 --prompt cat {more}"));
    let text = |more: &str| run(more).ok().out.strip_prefix("cat").unwrap().trim_end().to_string();
    for device in ["emulator", "reference"] {
        let written = text(&format!("--device {device} --json-schema schema.json --temperature 2"));
        let value: Value = serde_json::from_str(&written).unwrap();
        assert!(value == json!({"n": 1}) || value == json!({"n": 22}), "{written}");
    }
    assert!([" so it did", " so they did"].contains(&text("--grammar lark.txt").as_str()));
    assert!(["aa", "ba"].contains(&text("--regex [ab]a").as_str()));
    run("--json-schema schema.json --regex a").refused(2, &["--json-schema", "--regex", "cannot be used with"]);
    run("--grammar broken.txt").refused(1, &["broken.txt", "the grammar cannot be used", "missing"]);
    run("--json-schema no.json").refused(1, &["no.json", "EOF"]);
    run("--json-schema none.json").refused(1, &["none.json: no such file"]);
    run("--regex (").refused(1, &["--regex", "the regular expression cannot be used"]);
}

#[test]
fn a_run_on_few_characters_cannot_write_others() {
    let place = story();
    let run = |regex: &str| place.run(&format!("generate --checkpoint run --steps 40 --prompt cat --regex {regex}"));
    let some = run(".{3,12}").ok().out;
    assert!(some.starts_with("cat") && some.trim_end_matches('\n').len() <= 15, "{some:?}");
    run("[{]").refused(1, &["no token of the vocabulary begins a text that satisfies it"]);
}
