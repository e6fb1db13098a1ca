//! The command over the fake engine.
//!
//! With `FERRANE_ANE=fake` this binary is the command, and `ane` is the fake: `FERRANE_ANE=fake
//! cargo test -p ferrane-cli --test fake -- run add.mil --device ane`. Else it runs itself and the
//! real command, and compares. No binary that a user gets has the fake in it.
#![allow(clippy::print_stderr)]

#[cfg(not(target_vendor = "apple"))]
#[allow(dead_code)] // Other tests use the rest.
#[path = "all/place.rs"]
mod place;

#[cfg(not(target_vendor = "apple"))]
use std::process::{Command, ExitCode};

#[cfg(not(target_vendor = "apple"))]
use place::{Outcome, Place, TINY};

/// A Mac has an engine of its own.
#[cfg(target_vendor = "apple")]
fn main() {}

#[cfg(not(target_vendor = "apple"))]
fn main() -> ExitCode {
    if std::env::var_os("FERRANE_ANE").is_some_and(|engine| engine == "fake") {
        ferrane_ane_fake::install();
        return ferrane_cli::run(std::env::args_os());
    }
    training_is_the_emulators_to_the_bit();
    traces_of_the_engine_replay_to_the_bit();
    the_engine_is_examined_and_its_classes_are_dumped();
    programs_are_compiled_to_files();
    evaluations_are_timed();
    the_suite_runs_on_the_engine();
    power_is_metered();
    ExitCode::SUCCESS
}

/// This binary as the command.
#[cfg(not(target_vendor = "apple"))]
fn fake(place: &Place, line: &str) -> Outcome {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.current_dir(place.path("")).env("FERRANE_ANE", "fake").args(line.split_whitespace());
    Outcome::of(&mut command)
}

/// Losses, weights and the optimizer's state after three updates.
#[cfg(not(target_vendor = "apple"))]
fn training_is_the_emulators_to_the_bit() {
    let place = Place::new();
    let emulator = place.run(&format!("{TINY} --out emulator --device emulator"));
    assert_eq!(emulator.code, Some(0), "{}", emulator.err);
    let expected = place.state("emulator", 3);
    assert!(expected.2.len() >= 3, "{:?}", expected.2);
    let ways = ["ane", "ane?dispatch=realtime", "ane?dispatch=process-request", "ane?dispatch=direct", "ane?path=e5"];
    for way in ways {
        let out = way.replace(['?', '='], "-");
        let engine = fake(&place, &format!("{TINY} --out {out} --device {way}"));
        assert_eq!(engine.code, Some(0), "{way}: {}", engine.err);
        let found = place.state(&out, 3);
        assert_eq!(found.2, expected.2, "{way}: metrics");
        assert!(found.0 == expected.0 && found.1 == expected.1, "{way}: weights");
    }
    // The command itself has no such engine.
    let none = place.command(&format!("{TINY} --out none --device ane")).env("FERRANE_ANE", "fake").output().unwrap();
    assert!(!none.status.success());
    let words = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(words.contains("Apple"), "{words}");
}

/// The filetests, recorded on the engine, are replayed by the command that has no engine.
#[cfg(not(target_vendor = "apple"))]
fn traces_of_the_engine_replay_to_the_bit() {
    let place = Place::new();
    let filetests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/run");
    let line = format!("recording make --suite {} --device ane --out traces --runs 2 --json", filetests.display());
    let recorded = fake(&place, &line).ok();
    let told = recorded.objects();
    assert!(!told.is_empty());
    for trace in &told {
        let machine = &trace["header"]["machine"];
        assert!(machine["chip"].is_string() && machine["build"].is_string(), "{machine}");
        assert!(trace["header"]["outcome"].get("ran").is_some(), "{}", trace["header"]);
    }
    let files: Vec<String> = told.iter().map(|t| t["file"].as_str().unwrap().to_string()).collect();
    let mut replay = place.command("recording replay --device emulator --json");
    let replayed = Outcome::of(replay.args(&files)).ok().objects();
    assert_eq!(replayed.len(), told.len());
    for object in &replayed {
        for output in object["outputs"].as_array().unwrap() {
            assert_eq!(output["equal"], output["elements"], "{object}");
        }
    }
}

/// The probes over the engine, and the classes of its framework.
#[cfg(not(target_vendor = "apple"))]
fn the_engine_is_examined_and_its_classes_are_dumped() {
    let place = Place::new();
    let line = "doctor --device ane?cache=off --probes concat,port-order,qos,dispatch-floor,weights-reload,W1,W5 --json report.json";
    let told = fake(&place, line).ok();
    for words in [
        "device     ane (fake)",
        "generation h16",
        "cores      16",
        "output_order = alphabetical",
        "op.concat = native",
        "weights_reload = ",
        "realtime:",
        "process-request:",
        "qos_ignored = ",
    ] {
        assert!(told.out.contains(words), "{words} in {}", told.out);
    }
    assert!(!told.out.contains("open:") && !told.out.contains("problems"), "{}", told.out);
    let report: serde_json::Value = serde_json::from_slice(&place.read("report.json")).unwrap();
    assert_eq!(report["machine"]["variant"], "h16g");

    let dump = fake(&place, "classes --json").ok();
    place.write("classes.json", &dump.out);
    let dump: serde_json::Value = serde_json::from_str(&dump.out).unwrap();
    assert!(dump["classes"].as_array().is_some_and(|all| all.iter().any(|c| c["name"] == "_ANEClient")), "{dump}");
    assert!(fake(&place, "classes").ok().out.contains("    -beginRealTimeTask  "));
    assert!(fake(&place, "classes --diff").ok().out.contains(" 0 differences"));
    // The real command compares what was kept.
    assert!(place.run("classes --diff classes.json").ok().out.contains(" 0 differences"));
}

/// The compiler gets the program as text with its weights next to it; what it leaves goes, or stays
/// in one folder.
#[cfg(not(target_vendor = "apple"))]
fn programs_are_compiled_to_files() {
    let place = Place::new();
    place.write(
        "add.mil",
        "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n    func main<ios18>(\
         tensor<fp16, [1, 2]> x) {\n        tensor<fp16, [1, 2]> w = const()[name = string(\"w\"), val = tensor<fp16, [1, 2]>(\
         BLOBFILE(path = string(\"@model_path/weights/w.bin\"), offset = uint64(64)))];\n        \
         tensor<fp16, [1, 2]> y = add(x = x, y = w)[name = string(\"y\")];\n    } -> (y);\n}\n",
    );
    // One record of two fp16 numbers (weight-blob §1).
    let mut blob = [0u8; 132];
    (blob[0], blob[4], blob[68], blob[72], blob[80]) = (1, 2, 1, 4, 128);
    blob[64..68].copy_from_slice(&0xDEAD_BEEFu32.to_le_bytes());
    std::fs::create_dir(place.path("weights")).unwrap();
    place.write("weights/w.bin", blob);
    let left = |folder: &str| {
        let entries = std::fs::read_dir(place.path(folder)).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let line = "compile --aot add.mil --out built --target-architecture h15g --debug-mask 7";
    let told = fake(&place, line).ok().out;
    assert!(told.ends_with("built/model.hwx: 4 bytes\n"), "{told}");
    assert_eq!((place.read("built/model.hwx"), left("built")), (b"h15g".to_vec(), vec!["model.hwx".into()]));

    let told = fake(&place, &format!("{line} --keep")).ok().out;
    assert!(told.contains("built/intermediate: what went in and what the compiler wrote"), "{told}");
    assert_eq!(left("built"), ["intermediate", "model.hwx"]);
    assert_eq!(left("built/intermediate"), ["model.hwx.debug", "model.mil", "weights"]);

    // A text that the compiler does not take as it is.
    place.write("net.plist", "a network");
    let told = fake(&place, "compile --aot net.plist --out other").ok().out;
    assert!(told.ends_with("other/model.hwx: 4 bytes\n") && place.read("other/model.hwx") == b"host", "{told}");
}

/// The engine's evaluations, submissions and stages are timed; what only the emulator has is
/// refused.
#[cfg(not(target_vendor = "apple"))]
fn evaluations_are_timed() {
    let place = Place::new();
    for way in ["ane", "ane?dispatch=direct"] {
        let told = fake(&place, &format!("bench dispatch --device {way} --repeat 20 --json")).ok().objects();
        for kind in ["evaluate", "submit", "complete"] {
            assert!(told[0][kind]["p99_us"].as_f64().is_some_and(|us| us > 0.0), "{way}: {}", told[0]);
        }
    }
    place.write(
        "relu.mil",
        "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n    func main<ios18>(\
         tensor<fp16, [1, 8, 1, 32]> x) {\n        tensor<fp16, [1, 8, 1, 32]> y = relu(x = x)[name = string(\"y\")];\n    } -> (y);\n}\n",
    );
    let told = fake(&place, "bench program relu.mil --device ane --repeat 5 --json").ok().objects();
    for name in ["compile_ms", "load_ms", "median_ms"] {
        assert!(told[0][name].as_f64().is_some_and(|ms| ms > 0.0), "{name}: {}", told[0]);
    }
    let steps = fake(&place, "bench program relu.mil --device ane --repeat 5 --steps");
    steps.refused(1, &["--steps shows the emulator's steps"]);
}

/// Every benchmark, each in a process of its own, with small configurations.
#[cfg(not(target_vendor = "apple"))]
fn the_suite_runs_on_the_engine() {
    let place = Place::new();
    let shown = fake(&place, "bench suite --device ane --most-gflop 0.1 --repeat 2 --out suite.json").ok();
    assert!(!shown.out.contains("WRONG") && !shown.out.contains("failed:"), "{}", shown.out);
    let report: serde_json::Value = serde_json::from_slice(&place.read("suite.json")).unwrap();
    let rows = |name: &str| -> Vec<serde_json::Value> {
        let results = report["results"].as_array().unwrap();
        results.iter().find(|r| r["name"] == name).unwrap()["rows"].as_array().unwrap().clone()
    };
    // As opened and four ways, five shapes each.
    let paths = rows("paths");
    assert_eq!(paths.len(), 25);
    for way in ["standard", "realtime", "process-request", "direct"] {
        assert_eq!(paths.iter().filter(|row| row["config"]["path"] == way).count(), 5, "{way}");
    }
    assert!(paths.iter().all(|row| row["evaluation"]["median_ms"].as_f64().is_some_and(|ms| ms > 0.0)), "{paths:?}");
    assert_eq!((rows("qos").len(), rows("in-flight").len()), (7, 8));
    // Each row that evaluates a program has what the engine's counter counted meanwhile.
    let energy = |row: &serde_json::Value| {
        let power = row["power"].as_array().into_iter().flatten().find(|p| p["domain"] == "ane");
        power.and_then(|p| p["mj"].as_f64())
    };
    let metered = rows("inmem");
    assert!(metered.iter().all(|row| energy(row).is_some_and(|mj| mj > 0.0)), "{metered:?}");
    assert!(report["unread"].to_string().contains("no known unit"), "{}", report["unread"]);
}

/// The engine's counter moves while a program runs, and stands still before.
#[cfg(not(target_vendor = "apple"))]
fn power_is_metered() {
    let place = Place::new();
    place.write(
        "relu.mil",
        "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n    func main<ios18>(\
         tensor<fp16, [1, 8, 1, 32]> x) {\n        tensor<fp16, [1, 8, 1, 32]> y = relu(x = x)[name = string(\"y\")];\n    } -> (y);\n}\n",
    );
    let proof = fake(&place, "run relu.mil --input x=random:1 --device ane --proof --json").objects().remove(0);
    let evidence = proof["evidence"].as_array().unwrap().iter().find(|e| e["name"] == "energy").unwrap();
    assert_eq!(evidence["holds"], true, "{evidence}");
    assert!(evidence["observed"].as_str().unwrap().contains("IOReport"), "{evidence}");
    let seen = fake(&place, "top --json --count 1 --interval 0.2").ok().objects().remove(0);
    let power = seen["power"].as_array().unwrap();
    assert!(power.iter().any(|p| p["domain"] == "ane" && p["watts"] == 0.0), "nothing runs: {seen}");
    assert!(
        power.iter().any(|p| p["domain"] == "cpu") && !seen["temperatures"].as_array().unwrap().is_empty(),
        "{seen}"
    );
    let line = "train --model tiny --data text.txt --steps 5000 --accum 1 --seq 16 --eval-windows 2 --json --out run --device ane";
    let end = fake(&place, line).ok().objects().pop().unwrap();
    let energy = &end["summary"]["energy"];
    let ane = energy.as_array().unwrap().iter().find(|sum| sum["domain"] == "ane").unwrap();
    assert!(ane["joules"].as_f64().unwrap() > 0.0 && ane["source"].as_str().unwrap().contains("IOReport"), "{energy}");
    let picture = place.run("watch run --once --width 80 --height 24").ok().out;
    assert!(picture.contains(" ane ") && picture.contains(" °C"), "{picture}");
}
