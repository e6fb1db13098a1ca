//! `ferrane watch`, `train --dashboard` and `train --tensorboard`, on a terminal of tmux where that
//! is installed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::place::{Place, TINY, wait_for};
use crate::terminal::Terminal;
use crate::top::{get, samples};

#[test]
fn a_picture_of_a_run_as_text() {
    let place = Place::new();
    let line =
        "train --model tiny --data text.txt --steps 4 --accum 1 --seq 16 --eval-windows 2 --sample-every 2 --out run";
    place.run(line).ok();
    let picture = place.run("watch run --once --width 130 --height 40").ok().out;
    for words in [
        " complete  update 4 of 4, 100 %",
        " loss ",
        "validation loss",
        "the run begins, 4 updates",
        "sample after update 4",
        "whole update",
        "device forward",
        "│ memory ",
        "│ cores ",
        " busy ",
    ] {
        assert!(picture.contains(words), "no `{words}` in\n{picture}");
    }
    assert!(picture.lines().count() == 40 && picture.lines().all(|l| l.chars().count() <= 130), "{picture}");
    let machine = place.run("watch run/metrics.jsonl --once --machine m4").ok().out;
    assert!(machine.contains("% of m4"), "{machine}");
    let lines = place.metrics("run");
    assert!(lines[1]["sample"].is_string() && lines[0].get("sample").is_none(), "{lines:?}");
}

#[test]
fn a_page_of_a_run() {
    let place = Place::new();
    let line = "train --model tiny --data text.txt --steps 3 --accum 1 --seq 16 --eval-windows 2 --sample-every 1";
    place.run(&format!("{line} --out run")).ok();
    place.run("watch run --html page.html").ok();
    let page = |name: &str| String::from_utf8(place.read(name)).unwrap();
    let (own, again) = (page("run/report.html"), page("page.html"));
    for words in ["<!DOCTYPE html>", "\"Gradient norm\"", "step-000003", "\"accum\"", "sample after update 2"] {
        assert!(own.contains(words) && again.contains(words), "no `{words}`");
    }
    place.run("watch run/metrics.jsonl --html page.html --once").refused(2, &["--once"]);
    place.run("watch nothing --html page.html").refused(1, &["nothing: no run is here"]);
    std::fs::create_dir(place.path("empty")).unwrap();
    place.run("watch empty --html page.html").refused(1, &["empty/metrics.jsonl"]);
}

#[test]
fn runs_are_listed_and_compared() {
    let place = Place::new();
    for (name, rate) in [("a", "0.5"), ("b", "0.25")] {
        let line = "train --model tiny --data text.txt --steps 3 --accum 1 --seq 16 --eval-windows 2";
        place.run(&format!("{line} --lr {rate} --out runs/{name}")).ok();
    }
    let list = place.run("runs").ok().out;
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let lines: Vec<_> = list.lines().map(words).collect();
    assert_eq!((lines.len(), &lines[1][..5]), (3, &words("runs/a complete 3 of 3")[..]), "{list}");
    let compared = place.run("runs runs/b runs/a --compare --plot losses.svg --over updates").ok().out;
    let rates: Vec<_> = compared.lines().map(words).filter(|line| line.first().is_some_and(|w| w == "lr")).collect();
    assert_eq!(rates, [words("lr 0.25 0.5")], "{compared}");
    let plot = String::from_utf8(place.read("losses.svg")).unwrap();
    assert!(plot.contains("runs/a") && plot.contains("runs/b") && plot.matches("<polyline").count() >= 2);
    let found = place.run("runs --json").ok().objects();
    assert_eq!((&found[0]["runs"][1]["status"], &found[0]["differences"]["lr"][0]), (&"complete".into(), &0.5.into()));
    let one = place.run("runs runs/a --compare").ok().out;
    assert!(one.contains("The settings are the same."), "{one}");
    place.run("runs nothing").refused(1, &["nothing"]);
    std::fs::create_dir(place.path("empty")).unwrap();
    place.run("runs empty").refused(1, &["empty: no run is here", "ferrane train --out"]);
}

#[test]
fn old_checkpoints_are_removed_but_not_those_of_a_run_that_trains() {
    let place = Place::new();
    let line = "train --model tiny --data text.txt --accum 1 --seq 16 --eval-windows 0 --save-every 2";
    place.run(&format!("{line} --steps 5 --out runs/done")).ok();
    let (mut child, mut out) = place.start(&format!("{line} --steps 1000000 --json --out runs/going"));
    assert!(wait_for(&mut out, "saved", 3));
    let shown = place.run("runs --prune 1").ok().out;
    assert!(shown.starts_with("runs/done: checkpoints removed: 4\n"), "{shown}");
    child.kill().unwrap();
    child.wait().unwrap();
    let found = place.run("runs --prune 1 --json").ok().objects().remove(0);
    assert_eq!(found["pruned"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["pruned"][0]["folder"], "runs/going");
    for run in found["runs"].as_array().unwrap() {
        assert_eq!(run["checkpoints"].as_array().unwrap().len(), 1, "{found}");
    }
    place.run("train --resume --steps 6 --out runs/done").ok();
    assert_eq!(place.run("runs --prune 0").code, Some(2));
}

#[test]
fn what_cannot_be_watched() {
    let place = Place::new();
    place.run("watch").refused(1, &["standard output is not a terminal", "ferrane watch --once"]);
    place.run(&format!("{TINY} --out run --dashboard")).refused(1, &["--dashboard", "ferrane watch --once"]);
    assert!(!place.path("run/metrics.jsonl").exists());
    place.run("watch nothing --once").refused(1, &["nothing: no run is here", "ferrane train --out"]);
    std::fs::create_dir(place.path("empty")).unwrap();
    place.run("watch empty --once").refused(1, &["metrics.jsonl"]);
    place.run("watch empty --once --width 0").refused(2, &["--width"]);
    place.run("watch empty --once --machine m99").refused(1, &["m99"]);
    place.write("hostile.jsonl", b"\x1b[2J{}\n\xff\xff\n{\"step\":1}\n");
    let picture = place.run("watch hostile.jsonl --once").ok().out;
    assert!(picture.contains("3 lines are no records") && !picture.contains('\u{1b}'), "{picture}");
    place.write("file", "");
    place.run(&format!("{TINY} --out run --tensorboard file")).refused(1, &["file: --tensorboard"]);
}

#[test]
fn metrics_of_a_run_are_served_while_it_trains() {
    let place = Place::new();
    let line = "train --model tiny --data text.txt --steps 1000000 --accum 1 --seq 16 --eval-every 2 --eval-windows 2 --out run";
    let mut command = place.command(&format!("{line} --prometheus 0"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let note = notes.find(|line| line.starts_with("metrics http://")).unwrap();
    let address = note.strip_prefix("metrics http://").unwrap().strip_suffix("/metrics").unwrap();
    let begun = Instant::now();
    let found = loop {
        let reply = get(address, "/metrics");
        let found = samples(reply.split_once("\r\n\r\n").unwrap().1);
        if found.iter().any(|(name, _)| name == "ferrane_train_validation_loss") {
            break found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{reply}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let value = |name: &str| found.iter().find(|(known, _)| known == name).map(|(_, value)| *value).unwrap();
    assert_eq!(value("ferrane_train_tokens_total"), 16.0 * value("ferrane_train_updates_total"));
    assert!((0.0..10.0).contains(&value("ferrane_train_loss")) && value("ferrane_train_learning_rate") > 0.0);
    assert_eq!(value("ferrane_train_planned_updates"), 1e6);
    child.kill().unwrap();
    child.wait().unwrap();
    place.run(&format!("{TINY} --out other --prometheus 300.0.0.1:1")).refused(1, &["--prometheus 300.0.0.1:1"]);
    assert!(!place.path("other").exists(), "nothing was trained");
}

#[test]
fn event_files_lie_where_they_should_and_a_resumed_run_has_another() {
    let place = Place::new();
    place.run(&format!("{TINY} --out run --tensorboard")).ok();
    let resumed = TINY.replace("--steps 3", "--steps 5");
    place.run(&format!("{resumed} --out run --resume --tensorboard")).ok();
    place.run(&format!("{TINY} --out other --tensorboard events/here")).ok();
    let files = |folder: &str| -> Vec<u64> {
        let entries = std::fs::read_dir(place.path(folder)).unwrap().flatten();
        entries.map(|entry| entry.metadata().unwrap().len()).collect()
    };
    assert_eq!((files("run/tensorboard").len(), files("events/here").len()), (2, 1));
    assert!(files("run/tensorboard").iter().all(|size| *size > 300), "{:?}", files("run/tensorboard"));
}

#[test]
fn every_key_of_a_run_on_a_terminal() {
    let place = Place::new();
    let line = "train --model tiny --data text.txt --steps 1000000 --accum 2 --seq 16 --eval-every 0 --save-every 0 --out run --dashboard";
    let Some(terminal) = Terminal::run(&place, &format!("\"$FERRANE\" {line}")) else { return };
    terminal.wait("training  update ");
    terminal.key("p", "paused after update");
    let paused = terminal.wait("run  paused  update");
    let update = paused.split("  update ").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
    terminal.key("c", &format!("checkpoint of update {update} saved"));
    assert!(place.path(format!("run/step-{update:06}/model.safetensors")).exists());
    terminal.key("s", &format!("sample after update {update}"));
    terminal.key("?", "any key closes this");
    terminal.press("x");
    terminal.wait_until("the help is closed", |screen| !screen.contains("any key closes this"));
    terminal.key("+", "loss, updates");
    terminal.press("0");
    terminal.key("p", "continued");
    terminal.wait("training  update ");
    // The run that is attached to shows the same.
    let attached = Terminal::run(&place, "\"$FERRANE\" watch run").unwrap();
    attached.wait("training  update ");
    attached.key("p", "belongs to another process");
    attached.press("q");
    attached.wait("status 0");
    assert!(attached.wait("icanon").lines().any(|l| l == "icanon"), "the terminal is not restored");
    terminal.press("q");
    let end = terminal.wait("status ");
    assert!(end.contains("status 0") && end.contains("to resume:"), "{end}");
    assert!(terminal.wait("icanon").lines().any(|l| l == "icanon"), "the terminal is not restored");
    // The run saved at its end.
    let resumed = place.run("watch run --once --width 130 --height 40").ok().out;
    let last = resumed.split("update ").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(last >= update && place.path(format!("run/step-{last:06}")).exists(), "{resumed}");
}

#[test]
fn a_run_whose_terminal_is_closed_saves_and_ends() {
    let place = Place::new();
    let line = "--model tiny --data text.txt --accum 2 --seq 16 --eval-every 0 --save-every 0 --out run";
    let run = format!("\"$FERRANE\" train --steps 1000000 {line} --dashboard");
    let Some(terminal) = Terminal::run(&place, &run) else { return };
    terminal.wait("training  update ");
    drop(terminal);
    // Its lock is free when the process is gone.
    let begun = Instant::now();
    while place.run(&format!("train --steps 1 {line} --resume")).code != Some(0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the process does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_file_that_is_written_shortened_and_replaced_is_followed() {
    let place = Place::new();
    let record = |step: u64| {
        format!(
            "{{\"step\":{step},\"loss\":2.5,\"lr\":0.001,\"grad_norm\":1.0,\"loss_scale\":256.0,\"skipped\":false,\
             \"tokens\":{},\"tokens_per_second\":100.0,\"max_dy\":1.0}}\n",
            16 * step
        )
    };
    place.write("metrics.jsonl", (1..=100_000).map(record).collect::<String>());
    let Some(terminal) = Terminal::run(&place, "\"$FERRANE\" watch metrics.jsonl") else { return };
    terminal.wait("update 100000");
    let mut file = std::fs::OpenOptions::new().append(true).open(place.path("metrics.jsonl")).unwrap();
    let (half, rest) = (record(100_001)[..40].to_string(), record(100_001)[40..].to_string());
    file.write_all(half.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    assert!(terminal.screen().contains("update 100000"));
    file.write_all(rest.as_bytes()).unwrap();
    terminal.wait("update 100001");
    place.write("metrics.jsonl", (1..=50).map(record).collect::<String>());
    terminal.wait("update 50");
    std::fs::remove_file(place.path("metrics.jsonl")).unwrap();
    terminal.wait("metrics.jsonl is not here");
    place.write("metrics.jsonl", (1..=60).map(record).collect::<String>());
    terminal.wait("update 60");
    terminal.press("C-c");
    terminal.wait("status 0");
    assert!(terminal.wait("icanon").lines().any(|l| l == "icanon"), "the terminal is not restored");
}
