//! The commands that read programs: fmt, check, inspect, run.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::Value;

use crate::place::{Outcome, Place};

/// Adds a weight to its input; formatted.
pub const ADD: &str = r#"program(1.3)
[buildInfo = dict<string, string>({{"coremlc-version", "3505.4.1"}})]
{
    func main<ios18>(tensor<fp16, [2, 2]> x, tensor<fp32, [2, 2]> z) { // two inputs
        tensor<fp16, [2, 2]> w = const()[name = string("w"), val = tensor<fp16, [2, 2]>(BLOBFILE(path = string("@model_path/weights/w.bin"), offset = uint64(64)))];
        tensor<fp16, [2, 2]> y = add(x = x, y = w)[name = string("y")];
        tensor<fp32, [2, 2]> r = relu(x = z)[name = string("r")];
    } -> (y, r);
}
"#;

/// A blob file with the fp16 numbers 1, 2, 3, 4 (weight-blob §1).
pub fn blob() -> Vec<u8> {
    let mut file = vec![0; 64];
    (file[0], file[4]) = (1, 2);
    file.extend(0xDEAD_BEEFu32.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend(8u64.to_le_bytes());
    file.extend(128u64.to_le_bytes());
    file.resize(128, 0);
    file.extend([0x00, 0x3c, 0x00, 0x40, 0x00, 0x42, 0x00, 0x44]);
    file
}

/// With `add.mil` and its weights.
pub fn place() -> Place {
    let place = Place::new();
    place.write("add.mil", ADD);
    fs::create_dir(place.path("weights")).unwrap();
    place.write("weights/w.bin", blob());
    place
}

/// Of fp32 and rank 2 or less (NumPy's format, version 1).
fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let header = format!("{header:117}\n");
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), &data].concat()
}

#[test]
fn fmt_writes_one_form_in_place_and_only_where_it_must() {
    let place = place();
    let loose = ADD.replace("    ", " ").replace(", val", " ,\n val");
    place.write("loose.mil", &loose);
    place.write("broken.mil", "program(1.3) {");
    fs::set_permissions(place.path("loose.mil"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("loose.mil", place.path("link.mil")).unwrap();
    let before = fs::metadata(place.path("add.mil")).unwrap().modified().unwrap();
    // What is not formatted is named, and nothing is written.
    let check = place.run("fmt --check add.mil loose.mil");
    assert_eq!((check.code, check.out.as_str(), check.err.as_str()), (Some(1), "loose.mil\n", ""));
    assert_eq!(place.read("loose.mil"), loose.as_bytes());
    assert_eq!(place.run("fmt --stdout loose.mil").ok().out, ADD);
    // A file that cannot be read does not keep the others from being formatted.
    place.run("fmt broken.mil link.mil add.mil").refused(1, &["broken.mil: not formatted", "E0102", "broken.mil:1:"]);
    assert_eq!(place.read("loose.mil"), ADD.as_bytes());
    assert_eq!(place.read("broken.mil"), b"program(1.3) {");
    assert!(fs::symlink_metadata(place.path("link.mil")).unwrap().is_symlink());
    assert_eq!(fs::metadata(place.path("loose.mil")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::metadata(place.path("add.mil")).unwrap().modified().unwrap(), before, "not touched");
    place.run("fmt --check add.mil loose.mil").ok();
    // Nothing else is left in the folder.
    let hidden = |e: &fs::DirEntry| e.file_name().to_string_lossy().starts_with('.');
    assert_eq!(fs::read_dir(place.path("")).unwrap().flatten().filter(hidden).count(), 0);
}

#[test]
fn fmt_reads_standard_input_and_changes_the_dialect() {
    let place = place();
    assert_eq!(place.shell("\"$FERRANE\" fmt - < add.mil").ok().out, ADD);
    assert_eq!(place.shell("\"$FERRANE\" fmt --check - < add.mil").ok().out, "");
    let verbose = place.run("fmt --dialect verbose --stdout add.mil").ok().out;
    assert!(verbose.contains(r#"tensor<string, []>("y")"#), "{verbose}");
    place.write("verbose.mil", &verbose);
    place.run("fmt verbose.mil").ok();
    assert_eq!(place.read("verbose.mil"), verbose.as_bytes(), "a file keeps its own dialect");
    assert_eq!(place.run("fmt --dialect shorthand --stdout verbose.mil").ok().out, ADD);
}

#[test]
fn an_interrupted_fmt_leaves_the_old_text_or_the_new_one() {
    let place = place();
    // Long enough to be interrupted while it is read, formatted or written.
    let line = ADD.lines().nth(6).unwrap();
    let many: String = (0..20_000).map(|i| format!("{}\n", line.replace(" r ", &format!("  r{i} ")))).collect();
    let old = ADD.replace(line, &format!("{many}{line}"));
    let new = old.len() - 20_000;
    for wait in [1, 5, 20, 60, 150] {
        place.write("long.mil", &old);
        let mut child = place.command("fmt long.mil").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
        let found = place.read("long.mil").len();
        assert!([old.len(), new].contains(&found), "{found} bytes of {} or {new}", old.len());
    }
}

#[test]
fn check_tells_all_that_is_wrong_with_its_place() {
    let place = place();
    let fine = place.run("check add.mil").ok();
    assert_eq!((fine.out.as_str(), fine.err.as_str()), ("add.mil: ok (1 function, 3 ops)\n", ""));
    let broken = ADD.replace("relu(x = z)", "rellu(x = z)").replace("add(x = x, y = w)", "add(x = q, y = w)");
    place.write("broken.mil", &broken);
    let found = place.run("check broken.mil add.mil");
    assert_eq!((found.code, found.err.as_str()), (Some(1), ""));
    for words in ["error E0202: `q` is not defined", "--> broken.mil:6:42", "^", "add.mil: ok"] {
        assert!(found.out.contains(words), "no `{words}` in {}", found.out);
    }
    assert!(!found.out.contains('\u{1b}'), "no colors without a terminal");
    let unknown = ADD.replace("relu(x = z)", "rellu(x = z)");
    place.write("unknown.mil", unknown);
    let found = place.run("check unknown.mil");
    assert_eq!((found.code, found.out.matches("E0204").count()), (Some(1), 1), "{}", found.out);
    assert!(found.out.contains("did you mean `relu`"), "{}", found.out);
    // For programs: one object a file.
    let json = place.run("check --format json unknown.mil add.mil");
    let objects = json.objects();
    assert_eq!((json.code, objects.len()), (Some(1), 2));
    assert_eq!(objects.iter().map(|o| o["ok"].clone()).collect::<Vec<_>>(), [Value::Bool(false), Value::Bool(true)]);
    let span = &objects[0]["diagnostics"][0]["span"];
    assert_eq!((&span["line"], &span["column"]), (&7.into(), &34.into()));
}

#[test]
fn check_looks_for_blob_files_unless_told_not_to() {
    let place = place();
    fs::remove_file(place.path("weights/w.bin")).unwrap();
    let found = place.run("check add.mil");
    assert_eq!(found.code, Some(1));
    assert!(found.out.contains("there is no blob file") && found.out.contains("weights/w.bin"), "{}", found.out);
    place.run("check --no-weights add.mil").ok();
    place.run("fmt --check add.mil").ok();
    place.write("weights/w.bin", &blob()[..100]);
    assert_eq!(place.run("check add.mil").code, Some(1));
    // A folder in its place is no file.
    fs::remove_file(place.path("weights/w.bin")).unwrap();
    fs::create_dir(place.path("weights/w.bin")).unwrap();
    assert_eq!(place.run("check add.mil").code, Some(1));
}

#[test]
fn inspect_shows_functions_ops_and_weights() {
    let place = place();
    let text = place.run("inspect add.mil").ok().out;
    for words in [
        "program(1.3), shorthand",
        "coremlc-version: 3505.4.1",
        "function main, opset ios18",
        "tensor<fp16, [2, 2]>",
        "1 add",
        "@model_path/weights/w.bin: 1 record in 8 B",
        "3 ops, 4 weight elements, 8 B of weights in 1 file",
    ] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    let json = place.run("inspect --json add.mil").ok().objects();
    let main = &json[0]["functions"][0];
    assert_eq!((&main["name"], &main["inputs"][1]["name"]), (&"main".into(), &"z".into()));
    assert_eq!(
        main["outputs"][1],
        serde_json::json!({"name": "r", "type": "tensor<fp32, [2, 2]>", "dtype": "fp32", "shape": [2, 2]})
    );
    assert_eq!(main["ops"], serde_json::json!({"add": 1, "const": 1, "relu": 1}));
    let record = &json[0]["weights"][0]["records"][0];
    assert_eq!((&record["bytes"], &record["found"], &record["names"][0]), (&8.into(), &true.into(), &"w".into()));
    fs::remove_file(place.path("weights/w.bin")).unwrap();
    assert!(place.run("inspect add.mil").ok().out.contains("not found"));
}

#[test]
fn run_takes_inputs_from_files_literals_and_seeds() {
    let place = place();
    place.write("z.npy", npy("(2, 2)", &[-1.0, 2.0, -3.0, 4.5]));
    let run = place.run("run add.mil --input x=[[1,2],[3,4]] --input z=z.npy --json").ok();
    assert_eq!(run.err, "");
    let outputs = run.objects()[0]["outputs"].clone();
    assert_eq!(outputs[0]["first"], serde_json::json!([2.0, 4.0, 6.0, 8.0]));
    assert_eq!(outputs[1]["first"], serde_json::json!([0.0, 2.0, 0.0, 4.5]));
    assert_eq!((&outputs[1]["max"], &outputs[1]["mean"]), (&4.5.into(), &1.625.into()));
    let text = place.run("run add.mil -i x=0.5 -i z=random:1").ok().out;
    assert!(text.contains("main on emulator (fast)") && text.contains("y: fp16 [2, 2]"), "{text}");
    assert!(text.contains("[1.5, 2.5, 3.5, 4.5]"), "{text}");
    let seeded = |seed: &str| {
        place.run(&format!("run add.mil -i x=zeros -i z={seed} --json")).ok().objects()[0]["outputs"].clone()
    };
    assert_eq!(seeded("random:1"), seeded("random:1"));
    assert_ne!(seeded("random:1"), seeded("random:2"));
    assert!(seeded("random:1:5:6")[1]["min"].as_f64().unwrap() >= 5.0);
}

#[test]
fn run_writes_outputs_that_can_be_inputs() {
    let place = place();
    place.run("run add.mil -i x=[1,2,3,4] -i z=ones --output out").ok();
    place.run("run add.mil -i x=out/y.npy -i z=out/r.npy --output again --output-format safetensors").ok();
    let run = place.run("run add.mil -i x=again/outputs.safetensors:y -i z=again/outputs.safetensors:r --json").ok();
    assert_eq!(run.objects()[0]["outputs"][0]["first"], serde_json::json!([4.0, 8.0, 12.0, 16.0]));
    // A tensor without a name is the one named as the input, which is not there.
    place.run("run add.mil -i x=again/outputs.safetensors -i z=ones").refused(1, &["no tensor `x`", "there are r, y"]);
    // A failed run writes nothing.
    place.run("run add.mil -i x=[1,2,3] -i z=ones --output none").refused(1, &["3 values for the 4 elements"]);
    assert!(!place.path("none").exists());
    place.run("run add.mil -i x=1 -i z=1 --output add.mil").refused(1, &["add.mil"]);
}

#[test]
fn run_says_what_does_not_fit() {
    let place = place();
    place.write("long.npy", npy("(4,)", &[1.0; 4]));
    place.write("cut.npy", &npy("(2, 2)", &[1.0; 4])[..130]);
    place.write("huge.npy", npy("(99999999999, 99999999999)", &[1.0; 4]));
    let run = |more: &str| place.run(&format!("run add.mil {more}"));
    run("").refused(1, &["no value for these inputs of `main`", "x  tensor<fp16, [2, 2]>", "--input NAME=random:1"]);
    run("-i x=1").refused(1, &["z  tensor<fp32, [2, 2]>"]);
    run("-i x").refused(1, &["expected NAME=SOURCE"]);
    run("-i x=1 -i x=2").refused(1, &["given twice"]);
    run("-i x=1 -i z=1 -i w=1").refused(1, &["has no input `w`", "there are x, z"]);
    run("-i x=1 -i z=long.npy").refused(1, &["the value is fp32 [4], the input is tensor<fp32, [2, 2]>"]);
    run("-i x=1 -i z=cut.npy").refused(1, &["cut.npy", "does not fit"]);
    run("-i x=1 -i z=huge.npy").refused(1, &["huge.npy"]);
    run("-i x=1 -i z=none.npy").refused(1, &["none.npy: no such file"]);
    run("-i x=1 -i z=weights").refused(1, &["`weights` is neither a value nor a tensor file"]);
    run("-i x=1 -i z=[[1,2]").refused(1, &["a `]` is missing"]);
    run("-i x=1 -i z=random:99999999999999999999").refused(1, &["not a whole number"]);
    run("-i x=1 -i z=1 --function mian").refused(1, &["did you mean `main`"]);
    run("-i x=1 -i z=1 --device emulatr").refused(1, &["did you mean `emulator`"]);
    run("-i x=1 -i z=1 --device reference").refused(1, &["is for training"]);
    run("-i x=1 -i z=1 --device ane --numerics exact").refused(1, &["--numerics is an option of the emulator"]);
    run("-i x=1 -i z=1 --numerics best").refused(2, &["best"]);
    run("-i x=1 -i z=1 --output-format npy").refused(2, &["--output <DIR>"]);
}

#[test]
fn numerics_are_those_asked_for() {
    let place = place();
    // 2049 is no fp16 number: `fast` rounds it, `exact` keeps it until the fp16 port.
    let text = ADD.replace("relu(x = z)", "add(x = z, y = z)");
    place.write("two.mil", text);
    let device = |more: &str| {
        let run = place.run(&format!("run two.mil -i x=1 -i z=1 --json {more}")).ok();
        run.objects()[0]["device"].as_str().unwrap().to_string()
    };
    assert_eq!(device(""), "emulator (fast)");
    assert_eq!(device("--numerics exact"), "emulator (exact)");
    assert_eq!(device("--device emulator?numerics=exact"), "emulator (exact)");
}

#[test]
fn run_takes_open_shapes_from_the_values_and_keeps_states() {
    let place = place();
    let open = ADD
        .replace("z) {", "z, tensor<fp32, [?, 2]> o) {")
        .replace("-> (y, r)", "-> (y, r, s)")
        .replace("    } ->", "        tensor<fp32, [?, 2]> s = relu(x = o)[name = string(\"s\")];\n    } ->");
    place.write("open.mil", open);
    let run = |o: &str| place.run(&format!("run open.mil -i x=1 -i z=1 -i o={o} --json"));
    let outputs = run("[[1,-2],[3,4],[5,6]]").ok().objects()[0]["outputs"].clone();
    assert_eq!(outputs[2]["shape"], serde_json::json!([3, 2]));
    assert_eq!(outputs[2]["first"], serde_json::json!([1.0, 0.0, 3.0, 4.0, 5.0, 6.0]));
    run("random:1").refused(1, &["whose shape is open", "nested literals"]);
    place.write("count.mil", COUNT);
    let count = |more: &str| place.run(&format!("run count.mil -i x=[1,2] --json {more}")).ok().objects()[0].clone();
    // The state comes after the outputs, and goes in again.
    assert_eq!(count("--output out")["outputs"][1]["name"], "total");
    assert_eq!(count("--state total=out/total.npy")["outputs"][1]["first"], serde_json::json!([2.0, 4.0]));
    place.run("run count.mil -i x=1 --state total=[1]").refused(1, &["total"]);
}

/// Adds its input to a state.
const COUNT: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> total) {
        tensor<fp16, [2]> old = read_state(input = total)[name = string("old")];
        tensor<fp16, [2]> y = add(x = x, y = old)[name = string("y")];
        tensor<fp16, [2]> new = coreml_update_state(state = total, value = y)[name = string("new")];
    } -> (y);
}
"#;

#[test]
fn files_that_are_no_programs() {
    let place = place();
    place.write("empty.mil", "");
    place.write("latin1.mil", b"program(1.3) // caf\xe9");
    place.write("zeros.mil", [0; 4096]);
    place.write("deep.mil", "(".repeat(100_000));
    place.write("nested.mil", ADD.replace("fp16, [2, 2]", &"tuple<".repeat(50_000)));
    place.write("large.mil", ADD.replace("[2, 2]", "[99999999999999999999, 2]"));
    place.write("vast.mil", ADD.replace("[2, 2]", "[4294967295, 4294967295]"));
    place.write("offset.mil", ADD.replace("uint64(64)", "uint64(18446744073709551615)"));
    place.write("away.mil", ADD.replace("weights/w.bin", "../../../../../../etc/hostname"));
    for name in ["empty", "latin1", "zeros", "deep", "nested", "large", "vast", "offset", "away"] {
        for command in ["check", "run"] {
            let outcome = place.run(&format!("{command} {name}.mil"));
            assert_eq!(outcome.code, Some(1), "{command} {name}: {}", outcome.out);
        }
        place.run(&format!("inspect {name}.mil"));
        place.run(&format!("fmt --stdout {name}.mil"));
    }
    for (command, folder) in [
        ("check", "weights: a folder without"),
        ("inspect", "weights: a folder without"),
        ("run", "weights: a folder without"),
        ("fmt", "weights: is a directory"),
    ] {
        place.run(&format!("{command} none.mil")).refused(1, &["none.mil: no such file"]);
        place.run(&format!("{command} weights")).refused(1, &[folder]);
        place.run(command).refused(2, &["required"]);
    }
    let json = place.run("check --format json none.mil add.mil");
    assert_eq!(json.code, Some(1));
    let objects = json.objects();
    assert!(objects[0]["error"].as_str().unwrap().contains("no such file") && objects[1]["ok"] == true);
    // A name that is no UTF-8 is a name all the same.
    let odd = place.path(std::ffi::OsStr::from_bytes(b"caf\xe9.mil"));
    fs::write(&odd, ADD).unwrap();
    for command in ["check", "inspect", "fmt"] {
        Outcome::of(place.command(command).arg(&odd)).ok();
    }
}
