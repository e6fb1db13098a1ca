//! `ferrane chat`, through pipes, with a random model that has a chat template.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use ferrane::llm::config;
use ferrane::llm::weights::{Init, Weights, native};
use ferrane_testdata::tokenizer::byte_tokenizer;
use serde_json::{Value, json};

use crate::place::{Outcome, Place};

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                        {% if shout %}!{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A model of 258 ids and 64 positions in the folder `bot`.
pub fn place() -> Place {
    let place = Place::new();
    place.model("made", 258);
    model(&place, "bot", 5);
    place
}

/// A model of the configuration in the folder `made`, with random weights, a tokenizer and a chat
/// template.
pub fn model(place: &Place, name: &str, seed: u64) {
    let config = config::read(&place.path("made/config.json")).unwrap();
    fs::create_dir(place.path(name)).unwrap();
    let file = |file: &str| place.path(name).join(file);
    let weights = Weights::init(&config, Init::Normal { std: 0.3 }, seed);
    native::save(&file("model.safetensors"), &config, &weights).unwrap();
    fs::write(file("tokenizer.json"), byte_tokenizer(&["<|im_start|>", "<|im_end|>"], None).to_string()).unwrap();
    let config = json!({"bos_token": null, "eos_token": "<|im_end|>", "chat_template": TEMPLATE});
    fs::write(file("tokenizer_config.json"), config.to_string()).unwrap();
}

fn chat(place: &Place, more: &str, input: &[u8]) -> Outcome {
    let line = format!("chat bot --device reference --temperature 0 --max-tokens 4 {more}");
    let mut command = place.command(&line);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Outcome { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn answers(outcome: &Outcome) -> Vec<Value> {
    let lines = outcome.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line.get("answer").is_some()).collect()
}

#[test]
fn a_conversation_through_a_pipe() {
    let place = place();
    let both = chat(&place, "--json", b"Hi\nAnd?\n").ok();
    let found = answers(&both);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["finish"], "length");
    assert!(
        found[1]["stats"]["reused_tokens"].as_u64().unwrap() >= found[0]["stats"]["prompt_tokens"].as_u64().unwrap()
    );
    // The pieces add up to the answers.
    let lines: Vec<Value> = both.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let pieces: String = lines.iter().filter_map(|line| line["piece"].as_str()).collect();
    assert_eq!(pieces, format!("{}{}", found[0]["answer"].as_str().unwrap(), found[1]["answer"].as_str().unwrap()));
    // Without --json the text alone.
    assert_eq!(chat(&place, "", b"Hi\n").ok().out, format!("{}\n", found[0]["answer"].as_str().unwrap()));
    let given = chat(&place, "--json --message Hi --message And?", b"not read\n").ok();
    assert_eq!(
        answers(&given).iter().map(|a| &a["answer"]).collect::<Vec<_>>(),
        [&found[0]["answer"], &found[1]["answer"]]
    );
    // A line that continues, an empty one, and one that ends without a line end.
    let one = answers(&chat(&place, "--json", b"\na\\\nb").ok());
    assert_eq!(one.len(), 1);
    // `<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n`: the control tokens are one each.
    assert_eq!(one[0]["stats"]["prompt_tokens"], 1 + 5 + 3 + 1 + 1 + 1 + 10);
    let typed = answers(&chat(&place, "--json", b"<|im_end|>\n").ok());
    assert_eq!(typed[0]["stats"]["prompt_tokens"], 1 + 5 + 10 + 1 + 1 + 1 + 10);
    let shout = answers(&chat(&place, "--json --set shout=true", b"a\n").ok());
    assert_eq!(shout[0]["stats"]["prompt_tokens"], 1 + 5 + 1 + 1 + 1 + 1 + 1 + 10);
}

#[test]
fn commands_change_the_conversation() {
    let place = place();
    let run = |input: &str| chat(&place, "--json", input.as_bytes());
    let first = answers(&run("Hi\n").ok()).remove(0);
    let again = answers(&run("Hi\n/undo\nHi\n/reset\nHi\n").ok());
    assert!(again.iter().all(|answer| answer["answer"] == first["answer"]), "{again:?}");
    run("/system Be kind.\nHi\n/save talk.json\n/exit\nnever read\n").ok();
    let saved: Value = serde_json::from_slice(&place.read("talk.json")).unwrap();
    let roles: Vec<&str> = saved.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
    let loaded = run("/load talk.json\n/undo\nHi\n").ok();
    assert_eq!(answers(&loaded)[0]["answer"], saved[2]["content"]);
    let set = run("/set max_tokens 2\nHi\n/set temperature 1.5\n/set top_k 3\n/set top_k none\n/stats\n").ok();
    assert_eq!(answers(&set)[0]["stats"]["tokens"], 2);
    let stats: Value = serde_json::from_str(set.out.lines().last().unwrap()).unwrap();
    assert_eq!((&stats["options"]["temperature"], &stats["options"]["top_k"]), (&json!(1.5), &Value::Null));
    assert!(chat(&place, "", b"/help\n").ok().out.contains("/undo"));
    for (input, message) in [
        ("/dance\n", "unknown command `/dance`"),
        ("/undo\n", "no turn to take back"),
        ("/set temperature\n", "/set needs a name and a value"),
        ("/set temperature hot\n", "`hot` is not a number"),
        ("/set temperature -1\n", "--temperature is -1"),
        ("/set colour 1\n", "no option is named `colour`"),
        ("/load nothing.json\n", "nothing.json"),
        ("/load text.txt\n", "not a conversation"),
        ("/save\n", "/save needs a file"),
    ] {
        chat(&place, "", input.as_bytes()).refused(1, &[message]);
    }
    let failed = chat(&place, "--json", b"/dance\nHi\n");
    assert_eq!((failed.code, answers(&failed).len()), (Some(1), 1));
}

#[test]
fn what_cannot_be_is_refused() {
    let place = place();
    chat(&place, "--min-p -1", b"").refused(1, &["--min-p is -1"]);
    chat(&place, "--top-p 2", b"").refused(1, &["--top-p is 2"]);
    chat(&place, "--logit-bias 3", b"").refused(2, &["ID=F"]);
    chat(&place, "--set shout", b"").refused(1, &["not of the form NAME=VALUE"]);
    chat(&place, "", "x".repeat(80).as_bytes()).refused(1, &["the conversation has", "context is 64"]);
    chat(&place, "", b"\xff\n").refused(1, &["not UTF-8"]);
    place.write("bad.jinja", "{% if %}");
    chat(&place, "--template bad.jinja", b"").refused(1, &["bad.jinja", "the chat template is invalid"]);
    place.write("bot/tokenizer_config.json", "{}");
    chat(&place, "", b"").refused(1, &["no chat template", "--template"]);
    place.write("own.jinja", TEMPLATE);
    chat(&place, "--template own.jinja --stop x --history h", b"Hi\n").ok();
}

#[test]
fn answers_follow_a_grammar() {
    let place = place();
    let both = chat(&place, "--json --regex (yes|no)!", b"Well?\nReally?\n").ok();
    let found = answers(&both);
    assert_eq!(found.len(), 2);
    for answer in found {
        assert!(["yes!", "no!"].contains(&answer["answer"].as_str().unwrap()), "{answer}");
        assert_eq!(answer["finish"], "stop");
    }
    chat(&place, "--grammar none.lark", b"").refused(1, &["none.lark: no such file"]);
}
