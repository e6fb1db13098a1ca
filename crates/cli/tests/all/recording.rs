//! `ferrane recording`: recorded by one command, read by another.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::place::{Outcome, Place};

/// Wider than the engine of an M4 takes.
fn relu(width: usize) -> String {
    format!(
        r#"program(1.3)
[buildInfo = dict<string, string>({{{{"a", "b"}}}})]
{{
    func main<ios18>(tensor<fp16, [1, 4, 1, {width}]> x) {{
        tensor<fp16, [1, 4, 1, {width}]> y = relu(x = x)[name = string("y")];
    }} -> (y);
}}
"#
    )
}

fn place() -> Place {
    let place = Place::new();
    place.write("relu.mil", relu(8));
    place.write("wide.mil", relu(70_000));
    place
}

#[test]
fn what_is_recorded_is_replayed_and_taken_apart() {
    let place = place();
    let line = "recording make relu.mil --device emulator --input x=random:7 --runs 3 --json";
    let told = place.run(line).ok().objects().remove(0);
    assert_eq!((told["file"].as_str(), &told["header"]["version"]), (Some("relu.anetrace"), &json!(1)));
    assert_eq!(told["header"]["machine"]["profile"], "m4-macos15-inmem");
    assert_eq!((told["wall_ns"].as_array().unwrap().len(), &told["outputs"][0]["doubt"]), (3, &Value::Null));

    let replay = place.run("recording replay relu.anetrace --json").ok().objects().remove(0);
    assert_eq!((&replay["agrees"], &replay["verdict"]), (&json!(true), &json!("agrees")));
    assert_eq!((&replay["outputs"][0]["equal"], &replay["outputs"][0]["max_ulp"]), (&json!(32), &json!(0)));
    assert!(replay["predicted_ms"].as_f64().unwrap() > 0.0, "the chip has a cost model");
    assert_eq!(replay["outputs"][0]["elements"], 32);

    let shown = place.run("recording show relu.anetrace --text").ok().out;
    assert!(shown.contains("relu.mil `main`") && shown.contains("func main<ios18>"), "{shown}");

    place.run("recording extract relu.anetrace --out parts").ok();
    place
        .run("run parts/program.mil --input x=parts/inputs.safetensors --output again --output-format safetensors")
        .ok();
    assert_eq!(place.read("again/outputs.safetensors").len() % 8, place.read("parts/outputs.safetensors").len() % 8);
    let tensor = |file: &str| {
        let bytes = place.read(file);
        safetensors::SafeTensors::deserialize(&bytes).unwrap().tensor("y").unwrap().data().to_vec()
    };
    assert_eq!(tensor("again/outputs.safetensors"), tensor("parts/outputs.safetensors"));
    place.run("recording extract relu.anetrace --out parts").refused(1, &["is not empty"]);
}

#[test]
fn the_seed_says_what_is_not_given() {
    let place = place();
    let bytes = |line: &str| {
        place.run(&format!("recording make relu.mil --device emulator --runs 1 {line}")).ok();
        let file = place.read("relu.anetrace");
        safetensors::SafeTensors::deserialize(&file).unwrap().tensor("input/x").unwrap().data().to_vec()
    };
    assert_eq!(bytes("--seed 5"), bytes("--seed 5 --input x=random"));
    assert_eq!(bytes("--seed 5"), bytes("--input x=random:5"));
    assert_ne!(bytes("--seed 5"), bytes("--seed 6"));
    assert_eq!(bytes("--input x=1"), [0x00, 0x3C].repeat(32));
    let line = "recording make relu.mil --device emulator --input z=1";
    place.run(line).refused(1, &["has no input `z`"]);
}

#[test]
fn the_status_tells_a_difference_from_trouble() {
    let place = place();
    let corrupt = |line: &str| {
        let mut command = place.command(line);
        Outcome::of(command.env("FERRANE_FAULTS", "evaluate:1=corrupt 0x4"))
    };
    corrupt("recording make relu.mil --device emulator --runs 1 --out bad.anetrace").ok();
    place.run("recording make relu.mil --device emulator --runs 1 --out good.anetrace").ok();
    let found = place.run("recording replay bad.anetrace --json");
    assert_eq!(found.code, Some(1), "{}", found.err);
    let output = &found.objects()[0]["outputs"][0];
    // The third bit of the one element.
    assert_eq!((&output["equal"], &output["max_ulp"], &output["beyond"]), (&json!(31), &json!(4), &json!(1)));
    assert_eq!(place.run("recording replay bad.anetrace --ulp 3").code, Some(1));
    place.run("recording replay bad.anetrace --ulp 4").ok();
    let table =
        place.run("recording replay bad.anetrace good.anetrace --device emulator --device emulator?numerics=exact");
    assert_eq!(table.code, Some(1));
    let rows = table.out.lines().skip_while(|l| !l.starts_with("recording ")).count();
    assert_eq!(rows, 5, "a head, and each file on each device: {}", table.out);

    let whole = place.read("good.anetrace");
    place.write("cut.anetrace", &whole[..whole.len() - 1]);
    let found = place.run("recording replay cut.anetrace good.anetrace");
    assert_eq!(found.code, Some(2));
    assert!(found.out.contains("agrees") && found.err.contains("no recording, or a damaged one"), "{}", found.err);
    place.run("recording replay relu.mil").refused(2, &["no recording, or a damaged one"]);
    place.run("recording replay none.anetrace").refused(2, &["none.anetrace"]);
    place.run("recording replay good.anetrace --device emulatr").refused(2, &["did you mean `emulator`"]);
}

#[test]
fn a_refusal_is_ground_truth_too() {
    let place = place();
    let line = "recording make wide.mil --device emulator?machine=m4-macos15-inmem --json";
    let told = place.run(line).ok().objects().remove(0);
    let failed = &told["header"]["outcome"]["failed"];
    assert_eq!(
        (&failed["stage"], &failed["kind"], failed["domain"].is_string()),
        (&json!("compile"), &json!("E0602"), true)
    );
    // The same machine refuses alike, and the checker knows why; without limits it runs.
    let alike = place.run("recording replay wide.anetrace --json").ok().objects().remove(0);
    assert_eq!(alike["verdict"], "refused alike");
    let errors = alike["check"].as_array().unwrap().iter().filter(|f| f["severity"] == "error").count();
    assert!(errors > 0, "{alike}");
    let runs = place.run("recording replay wide.anetrace --device emulator");
    assert_eq!(runs.code, Some(1));
    assert!(runs.out.contains("runs here"), "{}", runs.out);
    // It ran there, and the checker would not have it.
    place.run("recording make wide.mil --device emulator --runs 1").ok();
    let odd = place.run("recording replay wide.anetrace").ok();
    assert!(odd.out.contains("(but it ran there)"), "{}", odd.out);
    let fails = place.run("recording replay wide.anetrace --device emulator?machine=m4-macos15-inmem");
    assert!(fails.code == Some(1) && fails.out.contains("fails here"), "{}", fails.out);
}

/// A file must not choose files: what it says of the machine is no option of the device that
/// replays it.
#[test]
fn a_trace_gives_no_options() {
    let place = place();
    place.run("recording make relu.mil --device emulator --runs 1").ok();
    let mut file = place.read("relu.anetrace");
    let (old, new) = (b"m4-macos15-inmem", b"m4&staging=stage");
    let at = file.windows(old.len()).position(|w| w == old).unwrap();
    file[at..at + old.len()].copy_from_slice(new);
    place.write("relu.anetrace", &file);
    let found = place.run("recording replay relu.anetrace").ok();
    assert!(found.out.contains("no profile `m4&staging=stage` here"), "{}", found.out);
    assert!(!place.path("stage").exists());
}

/// The filetests that are run, each line of them.
#[test]
fn a_suite_has_a_trace_for_each_run() {
    let place = Place::new();
    let filetests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests");
    let line =
        format!("recording make --suite {} --device emulator --runs 1 --out recordings --json", filetests.display());
    let told = place.run(&line).ok();
    let mut wanted = 0;
    for entry in fs::read_dir(filetests.join("run")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        wanted += text.lines().filter(|l| l.starts_with("// run:")).count();
    }
    assert_eq!(told.objects().len(), wanted, "{}", told.err);
    let files: Vec<_> = fs::read_dir(place.path("recordings")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(files.len(), wanted);
    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    let mut replay = place.command("recording replay --json");
    let replay = Outcome::of(replay.args(&names)).ok();
    assert!(replay.objects().iter().all(|o| o["agrees"] == json!(true)));

    // A folder of programs, two of whose names would be one.
    fs::create_dir_all(place.path("programs/a")).unwrap();
    for name in ["programs/a/b.mil", "programs/a-b.mil", "programs/c.mil"] {
        place.write(name, relu(4));
    }
    place.write("programs/broken.mil", "program(1.3) {");
    let told = place.run("recording make --suite programs --device emulator --runs 1 --out some");
    assert!(
        told.err.contains("3 recordings in some: 3 ran (0 with doubtful outputs), 0 refused; 1 left out"),
        "{}",
        told.err
    );
    assert_eq!(fs::read_dir(place.path("some")).unwrap().count(), 3);
}

/// A process compiles two programs, the next one the next two.
#[test]
fn a_suite_goes_on_where_the_budget_ended() {
    let place = Place::new();
    fs::create_dir_all(place.path("programs")).unwrap();
    for i in 1..=5 {
        place.write(&format!("programs/p{i}.mil"), relu(8 * i));
    }
    let line = "recording make --suite programs --device emulator?budget=2 --runs 1 --out recordings";
    for (status, told) in [
        (1, "stopped: 2 recordings in recordings: 2 ran (0 with doubtful outputs), 0 refused; 0 left out\n"),
        (
            1,
            "stopped: 2 recordings in recordings: 2 ran (0 with doubtful outputs), 0 refused; 0 left out, 2 were there already",
        ),
        (
            0,
            "done: 1 recording in recordings: 1 ran (0 with doubtful outputs), 0 refused; 0 left out, 4 were there already",
        ),
    ] {
        let found = place.run(line);
        assert_eq!(found.code, Some(status), "{}", found.err);
        assert!(found.err.contains(told), "{}", found.err);
        assert_eq!(found.err.contains("run the same command again"), status == 1);
    }
    assert_eq!(fs::read_dir(place.path("recordings")).unwrap().count(), 5);
}

#[test]
fn an_interrupted_suite_leaves_whole_files() {
    let place = Place::new();
    fs::create_dir_all(place.path("programs")).unwrap();
    for i in 0..40 {
        place.write(&format!("programs/p{i:02}.mil"), relu(64));
    }
    let mut command = place.command("recording make --suite programs --device emulator --runs 2 --out recordings");
    command.env("FERRANE_FAULTS", "evaluate:from 1=delay 40ms").stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let count = || fs::read_dir(place.path("recordings")).map_or(0, |entries| entries.count());
    let begun = Instant::now();
    while count() < 3 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    Outcome::of(Command::new("kill").args(["-INT", &child.id().to_string()]));
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let files: Vec<_> = fs::read_dir(place.path("recordings")).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(files.len() >= 3 && files.len() < 40, "{}", files.len());
    assert!(files.iter().all(|f| f.extension().is_some_and(|e| e == "anetrace")), "{files:?}");
    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    Outcome::of(place.command("recording replay --json").args(&names)).ok();
}

/// The format by its own definition, without a library for it.
#[test]
fn a_trace_is_laid_out_as_the_page_says() {
    let place = place();
    place.run("recording make relu.mil --device emulator --runs 2 --out model.anetrace").ok();
    let file = place.read("model.anetrace");
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let words: Value = serde_json::from_str(header["__metadata__"]["ferrane.trace"].as_str().unwrap()).unwrap();
    let mut keys: Vec<&String> = words.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["ferrane", "inputs", "machine", "outcome", "program", "states", "version"]);
    let data = &file[8 + length..];
    assert_eq!((8 + length) % 64, 0);
    let mut ends = vec![0];
    for (name, entry) in header.iter().filter(|(name, _)| *name != "__metadata__") {
        let number = |v: &Value| v.as_u64().unwrap() as usize;
        let (from, to) = (number(&entry["data_offsets"][0]), number(&entry["data_offsets"][1]));
        let width = match entry["dtype"].as_str().unwrap() {
            "U8" => 1,
            "F16" => 2,
            "U64" => 8,
            other => panic!("{name}: {other}"),
        };
        assert_eq!(
            entry["shape"].as_array().unwrap().iter().map(number).product::<usize>() * width,
            to - from,
            "{name}"
        );
        assert_eq!(from % width, 0, "{name}");
        if name == "program" {
            assert!(std::str::from_utf8(&data[from..to]).unwrap().starts_with("program(1.3)"));
        }
        ends.push(to);
    }
    assert_eq!(ends.into_iter().max(), Some(data.len()), "nothing follows the last tensor");
}

/// The first lines of Python on the page, where there is a Python.
#[test]
fn python_reads_it_as_the_page_says() {
    let place = place();
    place.run("recording make relu.mil --device emulator --runs 1 --out model.anetrace").ok();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recordings.md")).unwrap();
    let block = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(block.lines().count(), 3);
    let code = format!(
        "{block}\nprint(recording['version'], recording['outcome']['ran']['outputs'], header['output/y']['shape'])\n"
    );
    let Ok(output) = Command::new("python3").current_dir(place.path("")).args(["-c", &code]).output() else {
        eprintln!("skipped: no python3");
        return;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout).trim(), "1 ['y'] [1, 4, 1, 8]", "{}", text(&output.stderr));
}
