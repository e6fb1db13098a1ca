//! N updates, a stop of any kind, and the rest, are the same bits as all of them at once.

use std::io::Read as _;
use std::process::Child;
use std::time::Duration;

use crate::place::{Outcome, Place, wait_for};

/// A run long enough to be stopped in the middle; validations and checkpoints fall on different
/// updates.
fn line(steps: u64, out: &str, more: &str) -> String {
    format!(
        "train --model tiny --data ids.u16 --steps {steps} --accum 2 --seq 16 --eval-every 7 --eval-windows 2 --json --out {out} {more}"
    )
}

/// Numbers that look random and are the same in every run of the test (a linear congruential
/// generator).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn interrupt(child: &Child) {
    Outcome::of(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]));
}

#[track_caller]
fn same(place: &Place, step: u64) {
    let (whole, parts) = (place.state("whole", step), place.state("parts", step));
    assert!(whole.0 == parts.0, "weights differ");
    assert!(whole.1 == parts.1, "moments differ");
    assert_eq!(whole.2, parts.2, "metrics differ");
}

#[test]
fn ctrl_c_saves_and_resume_with_only_out_goes_on_bit_for_bit() {
    let mut random = Random(1);
    for device in ["emulator", "reference"] {
        let place = Place::new();
        let steps = 600;
        let more = format!("--device {device} --lr 0.003 --seed 5 --clip 0.5 --warmup 20 --save-every 250");
        place.run(&line(steps, "whole", &more)).ok();
        let mut command = line(steps, "parts", &more);
        let mut stops = 0;
        loop {
            let (mut child, mut out) = place.start(&command);
            if wait_for(&mut out, "update", 20 + random.below(100) as usize) {
                std::thread::sleep(Duration::from_micros(random.below(3000)));
                interrupt(&child);
            }
            let mut rest = String::new();
            out.read_to_string(&mut rest).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
            if !rest.contains("\"stopped\":true") {
                break;
            }
            assert!(rest.contains("ferrane train --resume --out parts"), "{rest}");
            stops += 1;
            // Everything else is found with the run.
            command = "train --resume --json --out parts".into();
        }
        assert!(stops >= 3, "{device}: stopped only {stops} times");
        same(&place, steps);
    }
}

#[test]
fn an_interrupt_while_saving_loses_nothing() {
    let place = Place::new();
    let steps = 60;
    place.run(&line(steps, "whole", "")).ok();
    let mut command = line(steps, "parts", "--save-every 1");
    let (mut random, mut stops) = (Random(2), 0);
    loop {
        let (mut child, mut out) = place.start(&command);
        // The line of an update comes right before its checkpoint is written.
        if wait_for(&mut out, "update", 2) {
            std::thread::sleep(Duration::from_micros(random.below(4000)));
            interrupt(&child);
        }
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
        if !rest.contains("\"stopped\":true") {
            break;
        }
        stops += 1;
        command = "train --resume --json --out parts".into();
    }
    assert!(stops >= 3, "stopped only {stops} times");
    same(&place, steps);
}

/// Kills a run with the options `more` 20 times without warning and lets it end; `whole` are the
/// options of the run that nothing happens to. Returns the process that reached the end.
fn killed(whole: &str, more: &str) -> Outcome {
    let place = Place::new();
    let steps = 220;
    let more = format!("{more} --save-every 1");
    place.run(&line(steps, "whole", whole)).ok();
    let (mut random, mut kills, mut tries) = (Random(3), 0, 0);
    while kills < 20 {
        tries += 1;
        assert!(tries < 60, "{kills} kills in {tries} runs");
        let entries = std::fs::read_dir(place.path("parts")).into_iter().flatten().flatten();
        let begun = entries.map(|e| e.file_name()).any(|name| name.to_string_lossy().starts_with("step-"));
        let line = if begun { "train --resume --json --out parts".into() } else { line(steps, "parts", &more) };
        let (mut child, mut out) = place.start(&line);
        // Every fourth kill falls into the beginning, the others between or inside of updates and
        // saves.
        if tries % 4 != 0 && !wait_for(&mut out, "saved", 1 + random.below(4) as usize) {
            break;
        }
        std::thread::sleep(Duration::from_micros(random.below(5000)));
        let alive = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        kills += u64::from(alive);
        // What lies there can be read at any time.
        if begun && tries % 5 == 0 {
            place.run("eval --checkpoint parts --data ids.u16 --seq 16 --windows 1").ok();
        }
    }
    assert_eq!(kills, 20, "the run ended before it was killed often enough");
    let last = place.run("train --resume --json --out parts").ok();
    same(&place, steps);
    last
}

#[test]
fn killed_twenty_times_on_the_emulator() {
    killed("--device emulator", "--device emulator");
}

#[test]
fn killed_twenty_times_on_the_reference() {
    killed("--device reference", "--device reference");
}

/// Programs have the weights as constants, and a process can compile those of two updates. So it
/// executes itself again all the time, and a kill can fall into that as well.
#[test]
fn killed_twenty_times_while_it_restarts_for_its_compiles() {
    let device = "--pipeline static --device emulator";
    let last = killed(device, &format!("{device}?budget=15"));
    let restarts = last.out.matches("compile budget of this process is spent").count();
    assert!(restarts >= 20, "{restarts} restarts after the last kill");
}

#[test]
fn a_run_is_resumed_from_another_folder_and_paths_are_quoted() {
    let place = Place::new();
    std::fs::create_dir(place.path("else where")).unwrap();
    let long = line(100_000, "", "").replace(" --json --out ", "");
    let out = place.path("my runs").join("it's a run");
    let mut child = place.command(&long).arg("--out").arg(&out).stderr(std::process::Stdio::piped()).spawn().unwrap();
    while !out.join("metrics.jsonl").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(30));
    interrupt(&child);
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    // The command that it prints works, wherever it is typed.
    let command = text.lines().find_map(|l| l.split_once("to resume: ")).unwrap_or_else(|| panic!("{text}")).1;
    assert!(command.contains(r"it'\''s a run'"), "{command}");
    let step = text.split("stopped after update ").nth(1).unwrap().split(';').next().unwrap().parse::<u64>().unwrap();
    let end = step + 2;
    let resumed = place.shell(&format!("cd 'else where' && {command} --steps {end}")).ok();
    assert!(resumed.err.contains(&format!("resume  after update {step}")), "{}", resumed.err);
    assert!(resumed.err.contains("changed steps: 100000 before"), "{}", resumed.err);
    // Nothing is left to do.
    let over = place.shell(&format!("{command} --steps {end}")).ok();
    assert!(over.out.contains(&format!("has done all its {end} updates; to continue, give more")), "{}", over.out);
}

#[test]
fn what_a_run_was_begun_with_stays() {
    let place = Place::new();
    place.run(&line(3, "run", "")).ok();
    let words = ["the run in run was begun with", "Leave --model out"];
    place.run("train --resume --out run --model stories15m").refused(1, &words);
    place.run("train --resume --out run --init run").refused(1, &["was begun with none", "Leave --init out"]);
    place.write("other.u16", [7, 0].repeat(3000));
    let other = place.run("train --resume --out run --data other.u16 --steps 5");
    other.refused(1, &["the data are not those that this run was begun with", "begin a new run with --init"]);
    // The same names again are no change.
    place.run(&line(5, "run", "--resume")).ok();
    assert_eq!(place.metrics("run").len(), 5);
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let place = Place::new();
    let (mut child, mut out) = place.start(&line(100_000, "run", "--save-every 1"));
    assert!(wait_for(&mut out, "saved", 1));
    place.run("train --resume --out run").refused(1, &["run: another run is using this folder"]);
    child.kill().unwrap();
    child.wait().unwrap();
    place.run("train --resume --out run --steps 1").ok();
}

#[test]
fn a_full_disk_leaves_the_last_checkpoint_and_says_what_to_do() {
    let place = Place::new();
    place.run(&line(4, "run", "")).ok();
    place.run(&line(4, "whole", "")).ok();
    let before = place.state("run", 4);
    // 40 blocks of 512 bytes take the weights' file and not the moments'.
    let limited = "trap '' XFSZ; ulimit -f 40; exec \"$FERRANE\" train --resume --out run --steps 8 --save-every 1";
    let failed = place.shell(limited);
    assert_eq!(failed.code, Some(1), "{}", failed.err);
    for words in [
        "warning: the checkpoint could not be written; the previous one is kept",
        "optimizer.safetensors",
        "File too large",
        "The previous checkpoint is intact. Free some space, then run:",
        "train --resume --out run",
    ] {
        assert!(failed.err.contains(words), "no `{words}` in {}", failed.err);
    }
    let after = place.state("run", 4);
    assert!(before.0 == after.0 && before.1 == after.1);
    place.run("eval --checkpoint run --data ids.u16 --seq 16").ok();
    // With free space it continues as if nothing had happened.
    place.run("train --resume --out run --steps 8").ok();
    place.run("train --resume --out whole --steps 8").ok();
    assert!(place.state("run", 8) == place.state("whole", 8));
}
