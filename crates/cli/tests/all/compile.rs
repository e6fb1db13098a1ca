//! `ferrane compile`, on a computer without the compiler.
#![cfg(not(target_vendor = "apple"))]

use crate::place::Place;
use crate::programs::{ADD, place};

fn left(place: &Place, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn without_macos_it_says_so_and_leaves_nothing() {
    let place = place();
    place.write("net.plist", "");
    let words = ["the compiler is a framework of macOS", "\n  Use the emulator"];
    for program in ["add.mil", "net.plist"] {
        let line = format!("compile --aot {program} --out built --target-architecture h16g --debug-mask 7");
        place.run(&line).refused(1, &words);
        assert!(left(&place, "built").is_empty());
    }
    // What is kept is said, and not written over.
    place.run("compile --aot add.mil --out built --keep").refused(1, &[words[0], "built/intermediate: what went in"]);
    assert_eq!(left(&place, "built"), ["intermediate"]);
    assert_eq!(left(&place, "built/intermediate"), ["model.mil", "weights"]);
    assert_eq!(place.read("built/intermediate/weights/w.bin"), place.read("weights/w.bin"));
    place.run("compile --aot add.mil --out built --keep").refused(1, &["is there already"]);
    assert_eq!(left(&place, "built/intermediate"), ["model.mil", "weights"]);
}

#[test]
fn what_cannot_be_compiled_anywhere_is_refused() {
    let place = place();
    place.write("broken.mil", ADD.replace("relu", "rely"));
    for (line, words) in [
        ("add.mil --target-architecture h99", ["`h99` is not a known architecture", "h13g, h14, h14g"]),
        ("broken.mil", ["broken.mil: the program is not right", "rely"]),
        ("none.mil", ["none.mil", "no such file"]),
        ("none.plist", ["none.plist", "No such file"]),
    ] {
        place.run(&format!("compile --aot --out built {line}")).refused(1, &words);
        assert!(left(&place, "built").is_empty(), "{line}");
    }
    place.run("compile add.mil --out built").refused(1, &["--aot"]);
    place.run("compile --aot add.mil --out add.mil").refused(1, &["add.mil"]);
    assert_eq!(place.read("add.mil"), ADD.as_bytes());
}
