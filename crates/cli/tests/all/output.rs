//! Results on standard output, everything else on standard error; JSON; readers that go away.

use std::io::BufRead as _;
use std::process::Stdio;

use crate::place::{Outcome, Place, TINY};

#[test]
fn json_is_one_object_a_line_and_nothing_else() {
    let place = Place::new();
    let run = place.run(&format!("{TINY} --out run --json")).ok();
    assert_eq!(run.err, "");
    let events = run.objects();
    let kinds: Vec<&str> = events.iter().map(|e| e["event"].as_str().unwrap()).collect();
    let first = ["prepared", "compiled", "started", "validated", "update"];
    assert_eq!(kinds, [&first[..], &["update", "validated", "update", "saved", "finished"]].concat());
    let record = &events[4]["record"];
    for name in ["step", "loss", "lr", "grad_norm", "loss_scale", "tokens"] {
        assert!(record[name].is_number(), "{name} in {record}");
    }
    let eval = place.run("eval --checkpoint run --data ids.u16 --seq 16 --json").ok().objects();
    assert_eq!(eval.len(), 1);
    assert_eq!((&eval[0]["windows"], &eval[0]["tokens"]), (&64.into(), &1024.into()));
    let (loss, perplexity) = (eval[0]["loss"].as_f64().unwrap(), eval[0]["perplexity"].as_f64().unwrap());
    assert!((perplexity - loss.exp()).abs() < 1e-9 * perplexity);
    let names: Vec<_> = place.run("devices --json").ok().objects().iter().map(|d| d["name"].clone()).collect();
    assert_eq!(names, ["emulator", "ane", "ane-or-emulator", "reference"]);
    let bench = place.run("bench step --model stories260k --seq 32 --vocab 100 --repeat 1 --json").ok().objects();
    assert_eq!(bench.len(), 1);
    for name in ["micro_step_ms", "update_ms", "gflops"] {
        assert!(bench[0][name].as_f64().unwrap() > 0.0, "{name} in {}", bench[0]);
    }
    assert!(bench[0]["peak_rss_mb"].is_number() || cfg!(not(target_os = "linux")));
    assert!(bench[0]["parts"].is_object());
}

#[test]
fn a_timeline_and_an_account_of_memory_are_given_when_asked_for() {
    let place = Place::new();
    let command = "bench step --model stories260k --seq 32 --vocab 100 --repeat 1 --json --memory --timeline a.json";
    let bench = place.run(command).ok().objects();
    let memory = &bench[0]["memory"];
    assert_eq!(memory["weights"].as_u64(), bench[0]["parameters"].as_u64().map(|n| 4 * n));
    for name in ["gradients", "moments", "surfaces", "activations", "arenas", "constants"] {
        assert!(memory[name].as_u64().unwrap() > 0, "{name} in {memory}");
    }
    let run = place.run(&format!("{TINY} --out run --memory --timeline b.json")).ok();
    assert!(run.out.contains("surfaces") && run.out.contains("moments"), "{}", run.out);
    // Three micro-steps and as many updates each.
    for (file, steps) in [("a.json", 3), ("b.json", 3)] {
        let json: serde_json::Value = serde_json::from_slice(&place.read(file)).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let count = |name: &str| events.iter().filter(|e| e["name"] == name).count();
        assert!(count("micro-step") >= steps && count("update") == 3, "{file}");
        assert!(count("sdpaFwd") >= count("micro-step") && count("sdpaFwd") == count("kvBwd"), "{file}");
    }
    place.run("bench step --model stories260k --timeline none/a.json").refused(1, &["--timeline none/a.json"]);
}

#[test]
fn a_run_without_a_terminal_prints_plain_lines_and_leaves_its_files() {
    let place = Place::new();
    let run = place.run(&format!("{TINY} --out run")).ok();
    for words in ["vocabulary 64", "data    ids.u16: 3000 tokens", "device  emulator", "update     3  validation loss"]
    {
        assert!(run.err.contains(words), "no `{words}` in {}", run.err);
    }
    assert!(!run.err.contains('\u{1b}') && !run.err.contains('\r'), "no control characters: {:?}", run.err);
    for words in ["GFLOP/s", "device forward", "weight gradients", "optimizer", "validation loss", "run/report.html"] {
        assert!(run.out.contains(words), "no `{words}` in {}", run.out);
    }
    assert!(String::from_utf8(place.read("run/loss.svg")).unwrap().starts_with("<svg"));
    assert!(String::from_utf8(place.read("run/report.html")).unwrap().contains("\"validation loss"));
    let steps: Vec<_> = place.metrics("run").iter().map(|l| l["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3]);
    // Without a tokenizer there is no sample, and the next command says that it needs one.
    assert!(run.out.contains("generate --checkpoint run --tokenizer FILE"), "{}", run.out);
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let place = Place::new();
    place.run("train --data text.txt --model tiny --steps 2 --accum 1 --seq 16 --out story").ok();
    let long = TINY.replace("--steps 3", "--steps 100000");
    for line in [format!("{long} --json --out a"), "generate --checkpoint story --steps 200".into(), "devices".into()] {
        let (mut child, mut out) = place.start(&line);
        let mut first = [0];
        std::io::Read::read_exact(&mut out, &mut first).unwrap();
        drop(out);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{line}");
    }
    // The run whose output was closed was saved.
    place.run("eval --checkpoint a --data ids.u16 --seq 16").ok();
    // Standard error, where the lines of a run go.
    let mut child =
        place.command(&format!("{long} --out b")).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = std::io::BufReader::new(child.stderr.take().unwrap());
    err.read_line(&mut String::new()).unwrap();
    drop(err);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // Through a shell, as one does it.
    let out = place.shell("\"$FERRANE\" devices | head -1; \"$FERRANE\" train --help | head -1").ok();
    assert_eq!(out.out.lines().count(), 2);
    assert_eq!(out.err, "");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_standard_output_is_an_error() {
    let place = Place::new();
    let full = || Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    for line in ["devices".into(), format!("{TINY} --json --out run")] {
        Outcome::of(place.command(&line).stdout(full())).refused(1, &["standard output: No space left"]);
    }
}

#[test]
fn help_teaches_and_shows_the_defaults() {
    let place = Place::new();
    let all = place.run("--help").ok().out;
    for command in ["train", "generate", "eval", "devices", "bench", "Try one of these first"] {
        assert!(all.contains(command), "{command}");
    }
    let train = place.run("train --help").ok().out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["Examples:", "--resume", "Updates between validations; 0 validates only at the end [default: 250;"] {
        assert!(train.contains(words), "no `{words}` in {train}");
    }
    // Each option that has a default shows it; those without say in words what happens.
    let with_default =
        ["steps", "accum", "seq", "batch", "lr", "warmup", "clip", "weight-decay", "seed", "eval-every", "device"];
    for option in with_default {
        let text = train.split(&format!(" --{option} <")).nth(1).unwrap_or_else(|| panic!("{option}"));
        // Up to the next option.
        let text = text.split(" --").next().unwrap_or_default();
        assert!(text.contains("[default: "), "{option}: {text}");
    }
    place.run("").refused_usage();
}

impl Outcome {
    /// Without arguments the command shows how it is used.
    fn refused_usage(self) {
        assert_eq!(self.code, Some(2));
        assert!(self.err.contains("Usage: ferrane [OPTIONS] <COMMAND>"), "{}", self.err);
    }
}
