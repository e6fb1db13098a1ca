//! `ferrane doctor` and `ferrane classes`, on a computer without an engine.

use serde_json::{Value, json};

use crate::place::{Outcome, Place};

const MACHINE: &str = "emulator?machine=m3-pro-macos15-inmem&limits=enforce";

#[test]
fn probes_are_listed() {
    let place = Place::new();
    let text = place.run("doctor --list").ok().out;
    for words in ["minimum-surface", "risky How many programs may a process compile", "(experiment W1)"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    place.run("doctor --probes concatt").refused(1, &["no probe `concatt`", "did you mean `concat`?", "--list"]);
    place.run("doctor --device emulatr").refused(1, &["did you mean `emulator`"]);
}

#[test]
fn an_examination_is_told_and_its_report_is_a_machine() {
    let place = Place::new();
    let probes = "concat,minimum-surface,row-alignment,W1,loaded-programs,compile-budget";
    let told = place.run(&format!("doctor --device {MACHINE} --probes {probes} --json report.json")).ok();
    for words in [
        "m3-pro-macos15-inmem",
        "min_surface = 16384  as C133\n",
        "op.concat = native  as C042, C043",
        "row_alignment = 64  as C142",
        "max_loaded = 55  as C158",
        "compile_budget = 119  as C154",
        "canary            conv 256: largest difference: 0",
        "the report is in report.json",
    ] {
        assert!(told.out.contains(words), "{words} in {}", told.out);
    }
    assert!(
        told.err.contains("[1/6] minimum-surface: How small") && told.err.contains("[6/6] compile-budget"),
        "{}",
        told.err
    );
    let report: Value = serde_json::from_slice(&place.read("report.json")).unwrap();
    assert_eq!((&report["format"], &report["version"]), (&json!("ferrane-doctor"), &json!(1)));
    assert_eq!(report["probes"].as_array().unwrap().len(), 6);
    assert_eq!(report["stopped"], false);

    let shown = place.run("target show report.json min_surface max_axis").ok().out;
    for words in ["m3-pro-macos15-inmem", "min_surface = 16384", "rests on measured:minimum-surface, C133"] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    place.write(
        "small.mil",
        "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n    func main<ios17>(\
         tensor<fp16, [1, 4, 1, 64]> p) {\n        tensor<fp16, [1, 4, 1, 64]> r = add(x = p, y = p)[name = string(\"r\")];\n    \
         } -> (r);\n}\n",
    );
    let checked = place.run("check --machine report.json small.mil").ok().out;
    assert!(checked.contains("E0436") && checked.contains("16384"), "{checked}");
    // The machine made from the report measures as the one that it was made from.
    let again = place.run(&format!("doctor --device emulator?machine=report.json --probes {probes} --json -")).ok();
    let again: Value = serde_json::from_str(&again.out).unwrap();
    let values = |report: &Value| {
        let probes = report["probes"].as_array().unwrap();
        probes.iter().map(|p| p["values"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(values(&again), values(&report));
}

#[test]
fn reports_of_others_are_refused_with_reasons() {
    let place = Place::new();
    let report = |probes: &str| {
        format!(r#"{{"format": "ferrane-doctor", "version": 1, "profile": "m4", "probes": [{probes}]}}"#)
    };
    for (name, text, words) in [
        ("empty", String::new(), "EOF"),
        ("other", r#"{"format": "x"}"#.into(), "ferrane-doctor"),
        ("newer", r#"{"format": "ferrane-doctor", "version": 7}"#.into(), "version 7"),
        ("huge", report(r#"{"name": "p", "values": {"min_surface": 18446744073709551615}}"#), "min_surface"),
        ("odd", report(r#"{"name": "p", "values": {"op.concat": 3}}"#), "op.concat"),
        ("deep", "[".repeat(1 << 20), "recursion"),
    ] {
        let file = format!("{name}.json");
        place.write(&file, &text);
        place.run(&format!("target show {file}")).refused(1, &[&file, words]);
        place.run(&format!("check --machine {file} none.mil")).refused(1, &[&file, words]);
        place.run(&format!("doctor --device emulator?machine={file} --probes concat")).refused(1, &[&file, words]);
    }
    // The largest numbers that are believed make no trouble beyond an error.
    place.write(
        "large.json",
        report(r#"{"name": "p", "values": {"row_alignment": 1099511627776, "queue_depth": 1099511627776}}"#),
    );
    let told = place.run("doctor --device emulator?machine=large.json --probes port-order,W4").ok();
    assert!(told.out.contains("2 probes"), "{}", told.out);
}

fn faulty(place: &Place, faults: &str, line: &str) -> Outcome {
    Outcome::of(place.command(line).env("FERRANE_FAULTS", faults)).ok()
}

#[test]
fn a_probe_that_breaks_its_process_or_hangs_takes_nothing_with_it() {
    let place = Place::new();
    // The second compile of a process ends it.
    let told =
        faulty(&place, "compile:2=kill", "doctor --device emulator --probes concat,minimum-surface --json report.json");
    assert!(told.out.contains("concat            open: the probe's process ended with signal: 6"), "{}", told.out);
    assert!(
        told.out.contains("2 probes, 0 values") && told.out.contains("2 probes left something open"),
        "{}",
        told.out
    );
    let told = faulty(&place, "compile:1=delay 60s", "doctor --device emulator --probes concat --timeout 1");
    assert!(told.out.contains("open: it did not come back within 1 s"), "{}", told.out);
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let place = Place::new();
    let line = "doctor --device emulator --json report.json --probes port-order,several-inputs,throughput,types,axis";
    let mut child =
        place.command(line).stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn().unwrap();
    // Once the first answers are in the file.
    let begun = std::time::Instant::now();
    while !place.path("report.json").exists() && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert!(child.wait().unwrap().success());
    let report: Value = serde_json::from_slice(&place.read("report.json")).unwrap();
    assert_eq!(report["probes"][0]["values"]["input_order"], "declaration");
    let asked = report["probes"].as_array().unwrap().len();
    assert_eq!(report["stopped"], json!(asked < 5), "{asked}");
}

#[test]
fn classes_are_apples_and_a_dump_is_compared_anywhere() {
    let place = Place::new();
    place.run("classes").refused(1, &["AppleNeuralEngine", "Apple's"]);
    place.run("classes --diff").refused(2, &["AppleNeuralEngine"]);
    let dump = json!({
        "format": "ferrane-classes", "version": 1, "classes": [
            {"name": "_ANEDeviceInfo", "superclass": "NSObject", "methods": [
                {"name": "+aneSubType", "types": "@16@0:8"},
                {"name": "+numANECores", "types": "Q16@0:8"},
            ]},
        ],
    });
    place.write("classes.json", dump.to_string());
    let told = place.run("classes --diff classes.json");
    assert_eq!(told.code, Some(1), "{}", told.err);
    for words in [
        "no class _ANEClient\n",
        "+[_ANEDeviceInfo numANECores] has the types Q16@0:8, but is called with I@:\n",
        "no method +[_ANEDeviceInfo numANEs]\n",
        "1 classes, ",
    ] {
        assert!(told.out.contains(words), "{words} in {}", told.out);
    }
    assert!(!told.out.contains("aneSubType"), "{}", told.out);
    for (text, words) in
        [("", "EOF"), ("{}", "ferrane-classes"), (r#"{"format": "ferrane-classes", "version": 2}"#, "version 1")]
    {
        place.write("bad.json", text);
        place.run("classes --diff bad.json").refused(2, &["bad.json", words]);
    }
}
