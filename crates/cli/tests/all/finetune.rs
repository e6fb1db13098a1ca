//! `ferrane train` from a model's weights: what it refuses, and the command that it names at the
//! end.

use std::fs;

use crate::chat;
use crate::place::Place;

/// A place with the model `bot` and the conversations `talk.jsonl`.
fn place() -> Place {
    let place = chat::place();
    let row = r#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"}]}"#;
    place.write("talk.jsonl", format!("{row}\n").repeat(300));
    place
}

const CHAT: &str = "train --init bot --data talk.jsonl --chat --seq 16 --steps 2 --accum 1 --eval-windows 2";
const LORA: &str = "train --init bot --data talk.jsonl --data-field messages --lora 2 --seq 16 --steps 2 --accum 1";

#[test]
fn wrong_templates() {
    let place = place();
    for (name, template, words) in [
        ("bad", "{% for m in messages %}{{ m.content", ["bad.jinja", "the chat template is invalid"]),
        ("none", "{{ raise_exception('I take none') }}", ["the chat template refuses", "I take none"]),
        (
            "long",
            "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
            ["line 1", "too long"],
        ),
        ("silent", "nothing of the messages", ["line 1", "no answer"]),
    ] {
        place.write(&format!("{name}.jinja"), template);
        place.run(&format!("{CHAT} --chat-template {name}.jinja --out {name}")).refused(1, &words);
        assert!(!place.path(name).join("step-000002").exists());
    }
    place.run(&format!("{CHAT} --chat-template missing.jinja")).refused(1, &["missing.jinja"]);
    place.run(CHAT).ok();
}

#[test]
fn adapters_of_another_model() {
    let place = place();
    let done = place.run(&format!("{} --chat --out ad", LORA.replace(" --data-field messages", ""))).ok();
    // The command that is named at the end works.
    let next = done.out.lines().find_map(|line| line.strip_prefix("next: ")).unwrap().to_string();
    assert!(next.contains("--checkpoint bot --lora ad"), "{next}");
    place.run("generate --checkpoint bot --lora ad --prompt Hi --steps 2").ok();
    for line in ["generate --checkpoint ad --prompt Hi", "train --init ad --data talk.jsonl --out other"] {
        place.run(line).refused(1, &["ad: these are adapters", "--lora"]);
    }
    // No weights, weights of other values, and of another width.
    fs::rename(place.path("bot"), place.path("own")).unwrap();
    let resume = "train --resume --out ad --steps 3";
    place.run(resume).refused(1, &["the run's adapters belong to", "bot"]);
    chat::model(&place, "bot", 6);
    place.run(resume).refused(1, &["not those that these adapters were begun with"]);
    fs::remove_dir_all(place.path("bot")).unwrap();
    let config = String::from_utf8(place.read("made/config.json")).unwrap();
    place.write("made/config.json", config.replace("\"hidden_size\": 16", "\"hidden_size\": 32"));
    chat::model(&place, "bot", 5);
    place.run(resume).refused(1, &["not those that these adapters were begun with"]);
    place.run("generate --checkpoint bot --lora ad --prompt Hi --steps 2").refused(1, &["lora_A", "expected shape"]);
    fs::remove_dir_all(place.path("bot")).unwrap();
    fs::rename(place.path("own"), place.path("bot")).unwrap();
    place.run(resume).ok();
}
