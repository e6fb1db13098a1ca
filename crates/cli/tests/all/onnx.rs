//! `.onnx` files: the commands that take a program take them like packages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ferrane::onnx::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, bytes,
};
use serde_json::Value;

use crate::place::Place;

/// With `mlp.onnx`, `[batch, 8]` to `[batch, 4]`, and `gru.onnx`, whose extents are fixed.
fn place() -> Place {
    let place = Place::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::copy(crates.join("ferrane/examples/mlp.onnx"), place.path("mlp.onnx")).unwrap();
    fs::copy(crates.join("suite/zoo/gru.onnx"), place.path("gru.onnx")).unwrap();
    place
}

fn port(name: &str) -> ValueInfoProto {
    let dim = vec![DimensionProto { dim_value: Some(2), dim_param: None }];
    let tensor_type = Some(TensorTypeProto { elem_type: 1, shape: Some(TensorShapeProto { dim }) });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}

/// A model from `x` to `y`, both fp32 `[2]`. A node is `NAME OPERATOR INPUT… > OUTPUT`.
fn model(nodes: &[&str], initializers: Vec<TensorProto>) -> Vec<u8> {
    let node = |text: &&str| {
        let (left, output) = text.split_once(" > ").unwrap();
        let mut words = left.split(' ').map(str::to_string);
        let (name, op_type) = (words.next().unwrap(), words.next().unwrap());
        bytes(NodeProto { name, op_type, input: words.collect(), output: vec![output.into()], ..NodeProto::default() })
    };
    let graph = GraphProto {
        node: nodes.iter().map(node).collect(),
        input: vec![bytes(port("x"))],
        output: vec![bytes(port("y"))],
        initializer: initializers.into_iter().map(bytes).collect(),
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 21 };
    let model = ModelProto {
        ir_version: 10,
        opset_import: vec![bytes(opset)],
        graph: Some(bytes(graph)),
        ..ModelProto::default()
    };
    bytes(model).to_vec()
}

/// A model that adds two fp32 numbers which lie in this file.
fn external(location: &str) -> Vec<u8> {
    let w = TensorProto {
        name: "w".into(),
        dims: vec![2],
        data_type: 1,
        data_location: 1,
        external_data: vec![StringStringEntryProto { key: "location".into(), value: location.into() }],
        ..TensorProto::default()
    };
    model(&["sum Add x w > y"], vec![w])
}

#[test]
fn a_model_is_shown_checked_and_estimated() {
    let place = place();
    let shown = place.run("inspect mlp.onnx --shape batch=3").ok().out;
    assert!(shown.starts_with("mlp.onnx: an ONNX model, program(1.3)\n"), "{shown}");
    let told = place.run("inspect mlp.onnx --shape batch=3 --json").ok().objects().remove(0);
    assert_eq!(told["kind"], "onnx");
    assert!(told["functions"].to_string().contains("[3,8]"), "{}", told["functions"]);
    for command in ["check mlp.onnx --shape batch=3", "check gru.onnx", "check --machine m4 mlp.onnx --shape batch=3"] {
        place.run(command).ok();
    }
    let cost = place.run("cost mlp.onnx --machine m4 --shape batch=64 --json").ok().objects().remove(0);
    assert!(cost.to_string().contains("ms"), "{cost}");
    place.run("cost gru.onnx --machine m4").ok();
}

#[test]
fn a_package_of_a_model_gives_the_same_numbers() {
    let place = place();
    for (name, shape, input) in [("mlp", "--shape batch=3", "x=random:1"), ("gru", "", "ids=random:1:0:50")] {
        place.run(&format!("convert {name}.onnx -o {name}.mlpackage {shape}")).ok();
        let run = |file: &str, shape: &str| {
            let ran = place.run(&format!("run {file} {shape} -i {input} -o {file}.out --json")).ok();
            let ran = ran.objects().remove(0);
            let names: Vec<String> = ran["outputs"].as_array().unwrap().iter().map(|o| o["name"].to_string()).collect();
            let files = names.iter().map(|n| place.read(&format!("{file}.out/{}.npy", n.trim_matches('"')))).collect();
            (names, files)
        };
        let (names, files): (Vec<String>, Vec<Vec<u8>>) = run(&format!("{name}.onnx"), shape);
        assert!(!files.is_empty());
        assert_eq!(run(&format!("{name}.mlpackage"), ""), (names, files), "{name}");
        let same = place.run(&format!("diff {name}.onnx {name}.mlpackage {shape} --run 2 --json"));
        let told = same.ok().objects().remove(0);
        assert_eq!((&told["same"], &told["outputs"][0]["max"]), (&Value::Bool(true), &0.0.into()), "{told}");
    }
    place.run("convert mlp.onnx -o half.mlpackage --shape batch=3 --fp16").ok();
    let halves = place.run("diff mlp.onnx half.mlpackage --shape batch=3");
    assert_eq!(halves.code, Some(1), "{}", halves.err);
    assert!(halves.out.contains("(tensor<fp32, [3, 4]> y) became (tensor<fp16, [3, 4]> y)"), "{}", halves.out);
    assert_eq!(place.run("diff gru.onnx mlp.mlpackage").code, Some(1));
    place.run("diff gru.onnx mlp.onnx --shape batch=3").refused(2, &["`batch`", "no such extent"]);
}

#[test]
fn a_recording_holds_the_model_with_chosen_extents() {
    let place = place();
    let make = "recording make mlp.onnx --device emulator --runs 1";
    place.run(make).refused(1, &["the extents `batch` have no number"]);
    place.run(&format!("{make} --shape batch=5")).ok();
    let shown = place.run("recording show mlp.anetrace --text").ok().out;
    assert!(shown.contains("mlp.onnx `main`") && shown.contains("tensor<fp32, [5, 8]> x"), "{shown}");
    place.run("recording replay mlp.anetrace").ok();
}

#[test]
fn extents_are_named_when_they_are_open() {
    let place = place();
    for command in ["run mlp.onnx -i x=random:1", "check mlp.onnx", "inspect mlp.onnx", "convert mlp.onnx -o m.mil"] {
        let refused = place.run(command);
        assert_eq!(refused.code, Some(1), "{command}");
        let said = format!("{}{}", refused.out, refused.err);
        assert!(said.contains("E0805") && said.contains("`batch`") && said.contains("batch=1"), "{command}: {said}");
    }
    assert!(!place.path("m.mil").exists());
    place.run("run mlp.onnx --shape batch -i x=random:1").refused(1, &["--shape batch", "write it as `batch=1`"]);
    place.run("run mlp.onnx --shape batch=99999999999 -i x=random:1").refused(1, &["E08"]);
    place.run("run none.onnx -i x=random:1").refused(1, &["none.onnx: no such file"]);
}

#[test]
fn everything_that_has_no_program_is_listed_at_once() {
    let place = place();
    let nodes = ["first Unique x > a", "second Frobnicate x > b", "third Abs x > c", "fourth TfIdfVectorizer c > d"];
    let nodes: Vec<&str> = nodes.into_iter().chain(["sum Sum a b d > y"]).collect();
    place.write("odd.onnx", model(&nodes, Vec::new()));
    for command in ["run odd.onnx -i x=1", "convert odd.onnx -o odd.mil", "inspect odd.onnx", "check odd.onnx"] {
        let refused = place.run(command);
        assert_eq!(refused.code, Some(1), "{command}");
        let said = format!("{}{}", refused.out, refused.err);
        for word in ["`first` (Unique)", "`second` (Frobnicate)", "`fourth` (TfIdfVectorizer)", "E0806"] {
            assert!(said.contains(word), "{command}: no {word} in {said}");
        }
        assert!(!said.contains("`third`"), "{command}: {said}");
    }
    assert!(!place.path("odd.mil").exists());
}

#[test]
fn external_data_stay_in_the_folder_of_the_model() {
    let place = place();
    fs::create_dir(place.path("inner")).unwrap();
    let numbers: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    place.write("inner/w.bin", &numbers);
    place.write("outer.bin", &numbers);
    symlink(place.path("outer.bin"), place.path("inner/link.bin")).unwrap();
    for (name, location) in [("good", "w.bin"), ("none", "none.bin"), ("up", "../outer.bin"), ("link", "link.bin")] {
        place.write(&format!("inner/{name}.onnx"), external(location));
    }
    let absolute = place.path("outer.bin");
    place.write("inner/absolute.onnx", external(&absolute.display().to_string()));
    let found = place.run("run inner/good.onnx -i x=[1,1] --json").ok().objects().remove(0);
    assert_eq!(found["outputs"][0]["first"].to_string(), "[2.0,3.0]");
    place.run("run inner/none.onnx -i x=1").refused(1, &["inner/none.onnx", "none.bin", "No such file"]);
    for name in ["up", "link", "absolute"] {
        for command in [format!("run inner/{name}.onnx -i x=1"), format!("convert inner/{name}.onnx -o out.mlpackage")]
        {
            place.run(&command).refused(1, &["tensor `w`", "leads out of the model's folder"]);
        }
    }
    assert!(!place.path("out.mlpackage").exists());
}

#[test]
fn damaged_files_are_named() {
    let place = place();
    let whole = place.read("mlp.onnx");
    place.write("text.onnx", "program(1.3)");
    place.write("short.onnx", &whole[..whole.len() / 2]);
    for name in ["text", "short"] {
        for command in ["run", "check", "inspect", "convert -o out.mil", "cost --machine m4"] {
            let words = [&format!("{name}.onnx") as &str, "not an ONNX model"];
            place.run(&format!("{command} {name}.onnx --shape batch=1")).refused(1, &words);
        }
    }
}
