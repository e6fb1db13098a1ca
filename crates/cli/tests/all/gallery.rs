//! The models of gallery/, as its page uses them.

use std::path::Path;

use crate::place::Place;

/// A place in which `gallery` is the folder of the repository.
fn place() -> Place {
    let place = Place::new();
    std::os::unix::fs::symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../gallery"), place.path("gallery"))
        .expect("a link");
    place
}

#[test]
fn a_classifier_names_what_it_sees_and_has_a_cost() {
    let place = place();
    let seen = place.run("run gallery/digits.mlpackage -i image=gallery/digits/seven.png").ok().out;
    assert!(seen.contains("digit: seven"), "{seen}");
    let cost = place.run("cost --machine m4 gallery/digits.mlpackage").ok().out;
    assert!(cost.contains("conv") && !cost.contains("classify"), "{cost}");
}

#[test]
fn the_clean_models_are_clean() {
    let place = place();
    for model in ["tones.onnx", "upscale.mlpackage"] {
        let checked = place.run(&format!("check --machine m4-macos15-inmem --format json gallery/{model}")).ok();
        assert_eq!(checked.objects()[0]["findings"].as_array().map(Vec::len), Some(0), "{model}");
    }
}

/// A package has no lines to point at.
#[test]
fn a_finding_in_a_package_names_its_op() {
    let found = place().run("check --machine m5-macos26-client gallery/digits.mlpackage");
    let lines: Vec<&str> = found.out.lines().filter(|line| line.starts_with("note E0458")).collect();
    assert!(lines.len() == 2 && lines[0] != lines[1] && lines[0].contains("(`"), "{}", found.out);
}

#[test]
fn the_troubled_one_is_not() {
    let place = place();
    let found = place.run("check --machine m4-macos15-inmem gallery/overflow.mil");
    for code in ["E0490", "E1001", "E0438"] {
        assert!(found.err.contains(code) || found.out.contains(code), "{code}: {}{}", found.out, found.err);
    }
    let audit =
        place.run("run gallery/overflow.mil -i q=random:1 -i k=random:2 -i v=random:3 --audit --machine m4").ok();
    assert!(audit.out.contains("overflow"), "{}", audit.out);
}
