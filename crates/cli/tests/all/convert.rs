//! `ferrane convert` and `ferrane diff`.

use std::fs;

use crate::place::Place;
use crate::programs::{ADD, blob, place};

/// With `add.mil` next to its weights, and `add.mlpackage` made of it.
fn packaged() -> Place {
    let place = place();
    place.run("convert add.mil -o add.mlpackage").ok();
    place
}

#[test]
fn text_and_package_and_text_are_one_program() {
    let place = packaged();
    assert!(place.path("add.mlpackage/Manifest.json").is_file());
    place.run("check add.mlpackage").ok();
    assert!(place.run("inspect add.mlpackage").ok().out.contains("a package"));
    // What a package says about itself has no place in text.
    let told = place.run("convert add.mlpackage -o back/add.mil").ok().err;
    assert!(told.contains("back/add.mil") && told.contains("left out"), "{told}");
    let kept = place.run("convert add.mlpackage -o again.mlpackage --json").ok();
    assert_eq!((&kept.objects()[0]["description"], kept.err.as_str()), (&"kept".into(), ""));
    place.run("convert add.mil -o add.mlmodel").ok();
    for other in ["add.mlpackage", "add.mlmodel", "back/add.mil"] {
        let same = place.run(&format!("diff add.mil {other} --run 3 --json")).ok().objects();
        assert_eq!(same[0]["same"], true, "{other}: {}", same[0]);
        assert!(same[0]["outputs"][0]["max"] == 0.0 && same[0]["outputs"][0]["scale"].as_f64().unwrap() > 0.0);
        let run = |file: &str| {
            let run = place.run(&format!("run {file} -i x=random:1 -i z=random:2 --json")).ok();
            run.objects()[0]["outputs"].clone()
        };
        assert_eq!(run(other), run("add.mil"), "{other}");
    }
}

#[test]
fn nothing_is_replaced_unless_asked() {
    let place = packaged();
    let again = "convert add.mil -o add.mlpackage";
    place.run(again).refused(1, &["add.mlpackage: exists", "--force"]);
    place.run(&format!("{again} --force")).ok();
    // Other weights at the place of the blob file.
    fs::create_dir_all(place.path("out/weights")).unwrap();
    place.write("out/weights/w.bin", "other");
    place.run("convert add.mil -o out/add.mil").refused(1, &["w.bin: exists with other weights", "--force"]);
    assert!(!place.path("out/add.mil").exists());
    assert_eq!(place.read("out/weights/w.bin"), b"other");
    place.run("convert add.mil -o out/add.mil --force").ok();
    assert_eq!(place.read("out/weights/w.bin"), blob());
    assert_eq!(place.read("out/add.mil"), ADD.replace(" // two inputs", "").as_bytes());
}

#[test]
fn opsets_spellings_and_passes() {
    let place = place();
    let text = |more: &str| place.run(&format!("convert add.mil -o - {more}")).ok().out;
    assert!(text("--dialect verbose").contains(r#"tensor<string, []>("y")"#));
    assert!(text("--opset ios16").contains("func main<ios16>"));
    place.write("two.mil", ADD.replace("-> (y, r)", "-> (y)"));
    let optimized = place.run("convert two.mil -o - --optimize").ok();
    assert!(
        !optimized.out.contains("relu") && optimized.err.contains("dead_code"),
        "{}{}",
        optimized.out,
        optimized.err
    );
    assert!(!place.run("convert two.mil -o - --passes dead_code").ok().out.contains("relu"));
    place.run("convert add.mil -o - --passes ded_code").refused(1, &["did you mean `dead_code`"]);
    let state = ADD.replace("z) {", "z, state<tensor<fp16, [2]>> s) {");
    place.write("state.mil", state);
    place
        .run("convert state.mil -o - --opset ios17")
        .refused(1, &["cannot be expressed in ios17", "`s`: it is a state"]);
    place.run("convert add.mil -o - --opset ios12").refused(2, &["ios12"]);
    assert!(place.run("convert --help").ok().out.contains("dead_code"));
}

#[test]
fn what_cannot_be_converted() {
    let place = place();
    place.run("convert none.mil -o out.mil").refused(1, &["none.mil: no such file"]);
    place.run("convert add.mil -o out.onnx").refused(1, &[".mlpackage"]);
    place.run("convert add.mil -o out.mlmodelc").refused(1, &["Apple"]);
    place.run("convert add.mil -o add.mil/out.mil").refused(1, &["add.mil"]);
    place.run("convert add.mil -o - --json").refused(1, &["standard output"]);
    place.run("convert add.mil").refused(2, &["--output"]);
    place.write("broken.mlmodel", [8, 7, 255, 255, 255]);
    for command in ["check", "inspect", "run", "convert -o x.mil"] {
        place.run(&format!("{command} broken.mlmodel")).refused(1, &["broken.mlmodel"]);
    }
    assert!(!place.path("x.mil").exists());
}

#[test]
fn diff_has_a_status_for_each_answer() {
    let place = place();
    place.write("other.mil", ADD.replace("relu(x = z)", "sigmoid(x = z)"));
    let same = place.run("diff add.mil add.mil").ok();
    assert_eq!((same.out.as_str(), same.err.as_str()), ("the same\n", ""));
    let different = place.run("diff add.mil other.mil");
    assert_eq!((different.code, different.err.as_str()), (Some(1), ""));
    assert!(different.out.contains("main, `r`: changed `relu` became `sigmoid`"), "{}", different.out);
    let numbers = place.run("diff add.mil other.mil --run 1 --json");
    assert_eq!(numbers.code, Some(1));
    let outputs = numbers.objects()[0]["outputs"].clone();
    assert_eq!((&outputs[0]["same"], &outputs[1]["same"]), (&true.into(), &false.into()));
    // With numbers asked for, they decide: sigmoid and relu differ by less than the largest
    // magnitude and a half.
    place.run("diff add.mil other.mil --run 1 --within 100").ok();
    place.run("diff add.mil none.mil").refused(2, &["none.mil: no such file"]);
    place.run("diff add.mil").refused(2, &["required"]);
    // Other weights under the same text.
    fs::create_dir_all(place.path("b/weights")).unwrap();
    fs::copy(place.path("add.mil"), place.path("b/add.mil")).unwrap();
    let mut weights = blob();
    weights[128] = 1;
    place.write("b/weights/w.bin", weights);
    let found = place.run("diff add.mil b/add.mil");
    assert_eq!(found.code, Some(1));
    assert!(found.out.contains("main, `w`: weight 1 of 4 elements"), "{}", found.out);
}
