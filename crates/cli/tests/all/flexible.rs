//! `--shape`, images and class labels, on packages that coremltools converted.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::place::{Outcome, Place};

/// A folder in which `converted` has the packages and images of `scripts/export_flow.py`.
fn place() -> Place {
    let place = Place::new();
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("../suite/fixtures/converted"), place.path("converted"))
        .unwrap();
    place
}

#[test]
fn a_shape_is_chosen_from_those_that_the_package_allows() {
    let place = place();
    let run =
        |options: &str| place.run(&format!("run converted/conv_enumerated.mlpackage -i x=random:1 --json {options}"));
    let shape = |outcome: Outcome| outcome.ok().objects()[0]["outputs"][0]["shape"].to_string();
    assert_eq!(shape(run("")), "[1,3]");
    assert_eq!(shape(run("--shape x=2x3x8x8")), "[2,3]");
    for (choice, message) in [
        ("x=1x3x20x20", "it may have 1x3x16x16 (default), 1x3x24x32 or 2x3x8x8"),
        ("seq=4", "`seq` is neither an input nor a named extent"),
        ("x=1x3x16x16,x=1x3x16x16", "`x` is given twice"),
        ("x", "chooses no shape; write INPUT=1x3x224x224"),
    ] {
        run(&format!("--shape {choice}")).refused(1, &[message]);
    }
    let inspected = place.run("inspect converted/conv_enumerated.mlpackage").ok();
    assert!(inspected.out.contains("1x3x16x16 (default), 1x3x24x32 or 2x3x8x8"), "{}", inspected.out);
    for command in [
        "cost converted/conv_range.mlpackage --shape x=1x3x32x32",
        "check --machine m4 converted/conv_range.mlpackage --shape x=1x3x32x32",
        "check --machine m4 converted/conv_range.mlpackage --shape default",
        "bench program converted/conv_range.mlpackage --repeat 1 --shape x=1x3x32x32",
        "recording make converted/conv_range.mlpackage --device emulator --runs 1 --shape x=1x3x32x32",
    ] {
        place.run(command).ok();
    }
    assert_eq!(place.run("check --machine m4 converted/conv_range.mlpackage").code, Some(1));
}

#[test]
fn images_are_inputs_and_outputs() {
    let place = place();
    let photo = "-i image=converted/photo.png";
    place.run(&format!("run converted/image_bgr.mlpackage {photo} -o out --output-format png")).ok();
    assert!(place.read("out/y.png").starts_with(b"\x89PNG"));
    place.run("run converted/image_bgr.mlpackage -i image=converted/photo.jpg").ok();

    let range = format!("run converted/image_range.mlpackage {photo}");
    let words = ["6 wide and 8 high, the input takes 16 wide and 16 high", "give --resize to scale it"];
    place.run(&format!("{range} --shape image=1x3x16x16")).refused(1, &words);
    place.run(&format!("{range} --resize")).ok();
    let words = ["has no output that its description calls an image"];
    place.run(&format!("{range} -o out --output-format png")).refused(1, &words);
    let inspected = place.run("inspect converted/image_range.mlpackage").ok();
    assert!(inspected.out.contains("RGB image, 16 wide and 16 high, 1x3x8..64x6..32"), "{}", inspected.out);
}

#[test]
fn a_classifier_gives_labels_with_probabilities() {
    let place = place();
    let shown = place.run("run converted/classifier_words.mlpackage -i image=converted/photo.png").ok();
    assert!(shown.out.contains("\nclassLabel: ") && shown.out.contains("  tree frog\n"), "{}", shown.out);
    let numbers = place.run("run converted/classifier_numbers.mlpackage -i image=converted/photo.png --json").ok();
    let found: Value = numbers.objects().remove(0);
    let classes = found["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 3);
    assert_eq!(found["label"]["name"], "classLabel");
    assert_eq!(found["label"]["value"], classes[0]["label"]);
    let p = |i: usize| classes[i]["probability"].as_f64().unwrap();
    // Three probabilities that were rounded to fp16.
    assert!(p(0) >= p(1) && p(1) >= p(2) && (p(0) + p(1) + p(2) - 1.0).abs() < 2e-3, "{classes:?}");
    let inspected = place.run("inspect converted/classifier_words.mlpackage").ok();
    assert!(inspected.out.contains("one of 3 class labels"), "{}", inspected.out);
}
