//! `ferrane hwx`, and `ferrane inspect` of what is no program.

use std::path::Path;

use ferrane_testdata::Suite;

use crate::compiled::place;
use crate::place::Place;

#[test]
fn for_the_linux_driver_and_back() {
    let place = place();
    place.run("hwx convert net.hwx net.anec").ok();
    assert_eq!(place.read("net.anec").len(), 0x1000 + 0x300);
    place.run("hwx convert net.hwx near.anec --libane").ok();
    assert_eq!(place.read("near.anec").len(), 0x800 + 0x300);
    place.run("hwx convert net.anec other.anec --libane").ok();
    assert_eq!(place.read("other.anec"), place.read("near.anec"));
    place.run("hwx convert net.anec back.hwx").ok();
    place.run("hwx convert back.hwx again.anec").ok();
    assert_eq!(place.read("again.anec"), place.read("net.anec"));
    place.run("hwx convert near.anec payload.bin").ok();
    assert_eq!(place.read("payload.bin"), place.read("near.anec")[0x800..]);
    for file in ["net.anec", "back.hwx"] {
        let told = place.run(&format!("disasm {file}")).ok().out;
        assert!(told.contains("input0 → output0"), "{told}");
    }
    place.run("hwx convert net.hwx net.anec").refused(1, &["net.anec: exists", "--force"]);
    place.run("hwx convert net.hwx net.mil").refused(1, &["net.mil: unknown kind of file"]);
    place.run("hwx convert net.hwx x.bin").refused(1, &["x.bin: only an .anec"]);
    place.run("hwx convert net.txt x.anec").refused(1, &["net.txt: E0701"]);
    place.write("h16.txt", crate::compiled::TEXT.replace("subtype = h13", "subtype = h11"));
    place.run("assemble h16.txt -o h11.hwx --force");
    if place.path("h11.hwx").exists() {
        place.run("hwx convert h11.hwx x.anec").refused(1, &["h11.hwx: E0721", "H13 (A14, M1) only"]);
    }
    place.run("hwx unpack net.hwx -o w").refused(1, &["net.hwx: no task reads weights"]);
}

#[test]
fn core_ai_models_are_listed() {
    let place = place();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../coreai/tests/data/add_float16.aimodel");
    std::fs::create_dir(place.path("m.aimodel")).unwrap();
    for name in ["main.mlirb", "main.hash", "metadata.json"] {
        std::fs::copy(sample.join(name), place.path("m.aimodel").join(name)).unwrap();
    }
    let shown = place.run("inspect m.aimodel").ok().out;
    assert!(shown.contains("a Core AI model, by coreai-core 1.0.0b3"), "{shown}");
    assert!(shown.contains("function main(x: tensor<2x5xf16>, y: tensor<2x5xf16>) -> (y: tensor<2x5xf16>)"), "{shown}");
    let json = place.run("inspect m.aimodel --json").ok().objects().remove(0);
    assert_eq!(json["content"]["operations"]["coreai.add"], 1, "{json}");
    place.write("m.aimodel/main.hash", [0; 32]);
    place.run("inspect m.aimodel").refused(1, &["m.aimodel: E0906", "main.hash"]);
    place.write("m.aimodel/main.mlirb", "MIL");
    place.run("inspect m.aimodel").refused(1, &["E0906"]);
}

/// The seeds of the fuzz targets have a file of each kind.
#[test]
fn files_are_known_by_their_contents() {
    let place = place();
    place.run("hwx convert net.hwx net.anec").ok();
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hwx_bundle");
    let seed = |name: &str| std::fs::read(seeds.join(name)).unwrap();
    for (kind, bytes, words) in [
        ("hwx", place.read("net.hwx"), &["for H13", "ferrane disasm"][..]),
        ("anec", place.read("net.anec"), &["payload at 0x1000", "buffer 5, input 0: [1, 3, 1, 1]"]),
        ("e5", seed("e5"), &["format 4", "main_ane", "not known: what the fields mean"]),
        ("coreml_data", seed("coremldata"), &["ML Program, specification version 7", "inputs:"]),
        ("analytics", seed("analytics"), &["SpecificationDetails", "modelName: m"]),
        ("network", seed("plist"), &["network net", "c: Conv of x"]),
        ("espresso_net", seed("net"), &["1 convolution"]),
        ("espresso_net", seed("shape"), &["x: [1, 3, 1, 1]"]),
        ("espresso_packed", seed("pbze"), &["100 bytes packed in 50"]),
        ("espresso_weights", seed("weights"), &["1: 4 bytes at 0x40"]),
    ] {
        // The name says nothing.
        place.write("file", bytes);
        let told = place.run("inspect file").ok().out;
        for word in words {
            assert!(told.contains(word), "{kind}: no `{word}` in {told}");
        }
        let json = place.run("inspect file --json").ok().objects().remove(0);
        assert_eq!((json["kind"].as_str(), json["content"].is_object()), (Some(kind), true), "{json}");
    }
    std::fs::create_dir_all(place.path("H16G.bundle/main/main_ane")).unwrap();
    place.write("H16G.bundle/H16G.e5", seed("e5"));
    place.write("H16G.bundle/main/main_ane/model.hwx", place.read("net.hwx"));
    place.write("H16G.bundle/model.anehash", "abc");
    let json = place.run("inspect H16G.bundle --json").ok().objects().remove(0);
    let kinds: Vec<&str> = json["files"].as_array().unwrap().iter().filter_map(|f| f["kind"].as_str()).collect();
    assert_eq!(kinds, ["e5", "hwx"]);
    place.write("cut.hwx", &place.read("net.hwx")[..0x400]);
    place.run("inspect cut.hwx").refused(1, &["looks like a compiled program", "E0701"]);
    place.write("cut", &seed("coremldata")[..0x50]);
    place.run("inspect cut").refused(1, &["coremldata.bin", "E0731"]);
}

/// Weights that are taken out and put in again change nothing; others change only them.
#[test]
fn weights_of_samples() {
    let Some(mut suite) = Suite::open("cli-weights", "hwx") else { return };
    let mut open = vec![suite.folder().to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(folder).expect("test data can be read").flatten();
        for path in entries.map(|e| e.path()) {
            if path.is_dir() {
                open.push(path);
                continue;
            }
            if path.extension().is_none_or(|e| e != "hwx") {
                continue;
            }
            let place = Place::new();
            let file = path.display();
            let unpacked = place.run(&format!("hwx unpack {file} -o weights"));
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if unpacked.code != Some(0) {
                let known = ["no task reads weights", "no weights whose order is known"];
                let told = known.iter().any(|k| unpacked.err.contains(k));
                suite.case(&name, if told { Ok(()) } else { Err(unpacked.err) });
                continue;
            }
            place.run(&format!("hwx pack {file} weights -o same.hwx")).ok();
            let same = place.read("same.hwx") == std::fs::read(&path).expect("test data can be read");
            suite.case(&name, if same { Ok(()) } else { Err("other bytes".to_string()) });
        }
    }
    suite.finish();
}
