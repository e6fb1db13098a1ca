//! Every command that has `--json` prints JSON and nothing else on standard output.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::place::Place;

const ADD: &str = "program(1.3)
{
    func main<ios18>(tensor<fp16, [2]> x) {
        tensor<fp16, [2]> y = add(x = x, y = x)[name = string(\"y\")];
    } -> (y);
}
";

/// A line for each command with `--json`, in an order in which each finds what it needs.
fn lines() -> Vec<(&'static str, String)> {
    let tiny_step = "--model stories260k --seq 8 --vocab 100 --repeat 1";
    [
        ("train", "train --model tiny --data text.txt --steps 2 --accum 1 --seq 16 --eval-windows 2 --out run".into()),
        ("runs", "runs run".into()),
        ("eval", "eval --checkpoint run --data text.txt --seq 16".into()),
        ("cache", "cache".into()),
        ("generate", "generate --checkpoint run --prompt cat --steps 30".into()),
        ("chat", "chat run --template own.jinja --message Hi --max-tokens 3".into()),
        ("quantize", "quantize run -o small --weights palette4 --eval text.txt --seq 16".into()),
        ("export", "export run -o run.mlpackage --weights int8".into()),
        ("export", "export run -o folder --weights fp32".into()),
        ("export", "export run -o run.gguf".into()),
        ("devices", "devices".into()),
        ("doctor", "doctor --device emulator --probes minimum-surface".into()),
        ("classes", "classes --diff classes.json".into()),
        ("machine list", "machine list".into()),
        ("machine show", "machine show m4 max_axis".into()),
        ("machine claims", "machine claims op.concat".into()),
        ("bench step", format!("bench step {tiny_step}")),
        ("bench suite", "bench suite sdpa-masks --repeat 2".into()),
        ("bench gemm", "bench gemm --shape 2x2x2 --type fp32 --repeat 1".into()),
        ("bench llm", "bench llm stories260k --prompt 2 --tokens 1".into()),
        ("bench program", "bench program add.mil --repeat 1".into()),
        ("bench dispatch", "bench dispatch --repeat 2".into()),
        ("bench suite", "bench suite inmem --most-gflop 0.01 --repeat 2 --out suite.json".into()),
        ("bench compare", "bench compare suite.json suite.json".into()),
        ("inspect", "inspect add.mil".into()),
        ("run", "run add.mil --input x=[1,2]".into()),
        ("convert", "convert add.mil -o other.mil".into()),
        ("diff", "diff add.mil other.mil --run 1".into()),
        ("grad", "grad add.mil -o backward.mil".into()),
        ("cost", "cost add.mil".into()),
        ("place", "place add.mil".into()),
        ("recording make", "recording make add.mil --device emulator --out add.anetrace".into()),
        ("recording replay", "recording replay add.anetrace --device emulator".into()),
        ("recording show", "recording show add.anetrace".into()),
        ("disasm", "disasm net.hwx".into()),
        ("top", "top --interval 0.1 --count 2".into()),
    ]
    .into()
}

/// The paths of the commands that have `--json`.
fn with_json(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    if command.get_arguments().any(|a| a.get_long() == Some("json")) {
        found.insert(path.to_string());
    }
    for sub in command.get_subcommands() {
        with_json(sub, format!("{path} {}", sub.get_name()).trim(), found);
    }
}

#[test]
fn every_command_with_json_prints_json_only() {
    let place = Place::new();
    place.write("add.mil", ADD);
    place.write("own.jinja", "{{ messages[0].content }}");
    place.write("net.txt", crate::compiled::TEXT);
    place.run("assemble net.txt -o net.hwx").ok();
    place.write("classes.json", r#"{"format": "ferrane-classes", "version": 1, "classes": []}"#);
    let mut known = BTreeSet::new();
    with_json(&ferrane_cli::command(), "", &mut known);
    assert_eq!(known, lines().iter().map(|(path, _)| (*path).to_string()).collect::<BTreeSet<_>>());
    for (path, line) in lines() {
        let json = if path == "doctor" { "--json -" } else { "--json" };
        let outcome = place.run(&format!("{line} {json}"));
        assert_eq!(outcome.code, Some(0), "{line}: {}", outcome.err);
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&outcome.out).into_iter().collect();
        let values = values.unwrap_or_else(|e| panic!("{line}: {e} in {}", outcome.out));
        assert!(!values.is_empty() && values.iter().all(Value::is_object), "{line}: {}", outcome.out);
    }
}

#[test]
fn the_command_lists_its_commands_by_topic_and_writes_its_pages() {
    let place = Place::new();
    let help = place.run("--help").ok().out;
    for words in
        ["\nPrograms:\n", "\nModels:\n", "\nMachines:\n", "\nMeasurements:\n", "\nCompiled files:\n", "\nOptions:\n"]
    {
        assert!(help.contains(words), "no `{words}` in {help}");
    }
    assert!(!help.contains('\u{1b}'), "no colors without a terminal: {help}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&format!("completions {shell}")).ok().out;
        assert!(script.contains("ferrane") && script.contains("recording"), "{shell}: {script}");
    }
    place.run("completions tcsh").refused(2, &["tcsh", "bash"]);
    let page = place.run("man").ok().out;
    assert!(page.contains(".TH") && page.contains("ferrane"), "{page}");
    let written = place.run("man --out man").ok().out;
    assert!(written.lines().any(|l| l.ends_with("ferrane-recording-make.1")), "{written}");
    let written = place.run("man --format markdown --out pages").ok().out;
    assert_eq!(written.lines().count(), place.run("man --out man").ok().out.lines().count());
    let page = String::from_utf8(place.read("pages/ferrane-recording-make.md")).unwrap();
    assert!(
        page.starts_with("# ferrane recording make\n\n```text\n") && page.contains("Usage: ferrane recording make")
    );
    assert!(String::from_utf8(place.read("man/ferrane-check.1")).unwrap().contains("\\-\\-machine"));
}
