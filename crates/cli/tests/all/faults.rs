//! A run over an emulator that fails on purpose: nothing is lost, and the end is that of a run that
//! nothing happened to.

use serde_json::Value;

use crate::place::{Outcome, Place};

const STEPS: u64 = 24;

/// A run with a checkpoint at every sixth update; a step takes some ten evaluations.
fn line(out: &str) -> String {
    format!(
        "train --model tiny --data ids.u16 --steps {STEPS} --accum 2 --seq 16 --eval-every 8 --eval-windows 2 --save-every 6 --json \
         --out {out}"
    )
}

/// A place with the run `whole`, which nothing happens to.
fn place() -> Place {
    let place = Place::new();
    place.run(&line("whole")).ok();
    place
}

fn run(place: &Place, faults: &str, line: &str) -> Outcome {
    Outcome::of(place.command(line).env("FERRANE_FAULTS", faults))
}

#[track_caller]
fn same(place: &Place) {
    let (whole, parts) = (place.state("whole", STEPS), place.state("parts", STEPS));
    assert!(whole.0 == parts.0, "weights differ");
    assert!(whole.1 == parts.1, "moments differ");
    assert_eq!(whole.2, parts.2, "metrics differ");
}

fn warnings(outcome: &Outcome) -> Vec<String> {
    let text = |event: Value| Some(event["text"].as_str()?.to_string());
    outcome.objects().into_iter().filter(|e| e["event"] == "warning").filter_map(text).collect()
}

#[test]
fn an_evaluation_that_fails_once_is_repeated() {
    let place = place();
    let outcome = run(&place, "evaluate:20=0x1d; evaluate:100=0x16; evaluate:101=delay 1ms", &line("parts")).ok();
    let warnings = warnings(&outcome);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("second try") && warnings[0].contains("status=0x1d"), "{warnings:?}");
    same(&place);
}

#[test]
fn an_evaluation_that_fails_for_good_stops_the_run_with_all_that_was_done() {
    let place = place();
    let outcome = run(&place, "evaluate:from 200=0x16", &line("parts"));
    assert_eq!(outcome.code, Some(1));
    for words in ["status=0x16", "updates are saved; to resume:", "train --resume --out parts"] {
        assert!(outcome.err.contains(words), "no `{words}` in {}", outcome.err);
    }
    let done = place.metrics("parts").len();
    assert!(done > 2 && done < STEPS as usize, "{done}");
    assert!(place.path(format!("parts/step-{done:06}")).is_dir(), "the last update is not saved");
    place.run("train --resume --json --out parts").ok();
    same(&place);
}

#[test]
fn a_load_that_fails_once_is_repeated_and_a_compile_that_fails_says_so() {
    let place = place();
    let outcome = run(&place, "compile:3=fail", &line("parts"));
    let events = outcome.objects();
    let kinds: Vec<&str> = events.iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!((outcome.code, &kinds[..]), (Some(1), &["prepared"][..]));
    for words in ["ANECCompile() FAILED", "Nothing was trained yet"] {
        assert!(outcome.err.contains(words), "no `{words}` in {}", outcome.err);
    }
    let outcome = run(&place, "load:2=0x20004; load:5=0x20004", &line("parts")).ok();
    assert_eq!(warnings(&outcome).len(), 2);
    same(&place);
}

#[test]
fn a_compile_that_fails_at_resume_leaves_the_checkpoint() {
    let place = place();
    let interrupted = run(&place, "evaluate:from 200=0x16", &line("parts"));
    assert_eq!(interrupted.code, Some(1));
    let step = place.metrics("parts").len() as u64;
    let before = place.state("parts", step);
    for faults in ["compile:10=fail", "compile:1=invalid", "load:from 1=fail"] {
        let outcome = run(&place, faults, "train --resume --out parts");
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.err.contains("updates are saved; to resume:"), "{}", outcome.err);
        assert!(before == place.state("parts", step));
    }
    place.run("train --resume --out parts").ok();
    same(&place);
}

#[test]
fn a_kill_loses_no_more_than_the_updates_since_the_checkpoint() {
    let place = place();
    let killed = run(&place, "evaluate:300=kill", &line("parts"));
    assert_eq!(killed.code, None, "{}", killed.err);
    let saved = killed.out.matches("\"event\":\"saved\"").count();
    assert!(saved > 0 && !killed.out.contains("\"event\":\"finished\""), "{}", killed.out);
    let resumed = place.run("train --resume --json --out parts").ok();
    let events = resumed.objects();
    let started = events.iter().find(|event| event["event"] == "started").unwrap();
    assert_eq!(started["step"], 6 * saved);
    same(&place);
}

#[test]
fn reversed_ports_change_nothing() {
    let place = place();
    run(&place, "ports=reverse", &line("parts")).ok();
    same(&place);
}

#[test]
fn a_number_that_is_none_skips_its_update() {
    let place = place();
    let outcome = run(&place, "evaluate:95=nan", &line("parts")).ok();
    let updates = outcome.objects().into_iter().filter(|e| e["event"] == "update");
    let skipped: Vec<_> = updates.filter(|e| e["record"]["skipped"] == true).collect();
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    let last = place.metrics("parts").pop().unwrap();
    assert!(last["loss"].is_f64() && last["valid_loss"].is_f64(), "{last}");
}

#[test]
fn where_the_budget_ends_in_the_middle_a_new_process_goes_on() {
    let place = place();
    // Every process evaluates 150 times, and then its program can be loaded no more.
    let outcome = run(&place, "evaluate:150=0x1d; load:11=budget", &line("parts")).ok();
    let restarts = warnings(&outcome).iter().filter(|w| w.contains("compile budget of this process is spent")).count();
    assert!(restarts >= 2, "{restarts} restarts: {}", outcome.out);
    same(&place);
}

#[test]
fn kept_programs_let_a_budget_below_the_kernels_suffice() {
    let place = place();
    let device = " --device emulator?staging=kept";
    let outcome = run(&place, "budget=4", &(line("parts") + device)).ok();
    assert_eq!(warnings(&outcome).iter().filter(|w| w.contains("before the first update")).count(), 2);
    same(&place);
    // Without them every process stops at the same place, and the run says so.
    let outcome = run(&place, "budget=4", &line("futile"));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("staging=DIR") && outcome.err.contains("the budget is 4"), "{}", outcome.err);
}

/// The tiny model has one layer: six programs, five of which an update compiles again.
#[test]
fn a_static_run_spends_a_budget_with_every_second_update() {
    let place = Place::new();
    let line = |out: &str| line(out) + " --pipeline static";
    place.run(&line("whole")).ok();
    let outcome = run(&place, "budget=15", &line("parts")).ok();
    let restarts: Vec<_> =
        warnings(&outcome).into_iter().filter(|w| w.contains("compile budget of this process is spent")).collect();
    assert_eq!(restarts.len() as u64, STEPS / 2, "{restarts:?}");
    assert!(restarts[0].contains("after update 2"), "{restarts:?}");
    same(&place);
    // A budget below the first programs makes no progress, and the run says so.
    let outcome = run(&place, "budget=5", &line("futile"));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("the budget is 5"), "{}", outcome.err);
}

#[test]
fn faults_that_cannot_be_read_are_told_with_their_grammar() {
    let place = Place::new();
    let outcome = run(&place, "evaluate:3=explode", &line("parts"));
    outcome.refused(
        1,
        &["FERRANE_FAULTS: fault `evaluate:3=explode`: expected `STAGE:WHEN=ACTION; ...`", "delay N us|ms|s"],
    );
}

#[test]
fn a_machines_limits_do_not_change_a_run() {
    let place = place();
    for profile in ["m4-macos15-inmem", "m3-pro-macos15-inmem"] {
        place.run(&format!("{} --device emulator?machine={profile}", line("parts"))).ok();
        same(&place);
        std::fs::remove_dir_all(place.path("parts")).unwrap();
    }
}
