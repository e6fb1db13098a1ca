//! Samples of coreai-core: bytes and texts.

use std::path::{Path, PathBuf};

use ferrane_coreai::dialect::{ATTRIBUTES, ElementType, TYPES, decode, encode, ops};
use ferrane_coreai::summary::Summary;
use ferrane_coreai::{Asset, Bytecode, text};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Names and bytes of all samples.
pub(crate) fn samples() -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder())
        .expect("the folder of samples")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|e| e == "mlirb"))
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .collect();
    found.sort();
    assert!(found.len() > 20, "{} samples", found.len());
    found
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(format!("{name}.mlirb"))).expect("a sample")
}

#[test]
fn every_byte_is_written_again() {
    for (name, bytes) in samples() {
        let file = Bytecode::read(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(file.write() == bytes, "{name}");
    }
}

#[test]
fn every_attribute_and_type_is_known() {
    for (name, bytes) in samples() {
        let file = Bytecode::read(&bytes).unwrap();
        for (entries, kinds) in [(&file.attributes, ATTRIBUTES), (&file.types, TYPES)] {
            for entry in entries {
                let found = decode(&file, entry, kinds).unwrap_or_else(|| panic!("{name}: {:x?}", entry.bytes));
                assert_eq!(encode(&found), *entry.bytes, "{name}: {found:?}");
            }
        }
        for index in 0..file.op_names.len() {
            let id = ferrane_coreai::bytecode::OpNameId(index as u32);
            assert!(file.op(id).is_some(), "{name}: {:?}", file.op_name(id));
        }
    }
}

#[test]
fn texts_equal_those_of_coreai_core() {
    let mut compared = 0;
    for (name, bytes) in samples() {
        let file = Bytecode::read(&bytes).unwrap();
        for (form, ours) in [
            ("coreai", text::program(&file)),
            ("aicode", text::generic(&file, text::Locations::Hide)),
            ("debug", text::generic(&file, text::Locations::Show)),
        ] {
            if let Ok(theirs) = std::fs::read_to_string(folder().join(format!("{name}.{form}.mlir"))) {
                assert_eq!(ours.trim_end(), theirs.trim_end(), "{name}.{form}");
                compared += 1;
            }
        }
    }
    assert!(compared > 50, "{compared} texts");
}

#[test]
fn a_folder_is_opened() {
    let asset = Asset::open(folder().join("add_float16.aimodel")).unwrap();
    asset.check_hash().unwrap();
    assert_eq!(asset.metadata()["assetVersion"], "2.0");
    assert_eq!(asset.program().unwrap(), Bytecode::read(&read("add_float16")).unwrap());
    assert_eq!(Asset::open(folder()).unwrap_err().code.0, 905);
}

#[test]
fn ops_come_from_modules_and_lines() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("mlp.aimodel");
    std::fs::create_dir(&path).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/torch_mlp.mlirb");
    std::fs::copy(model, path.join("main.mlirb")).unwrap();
    std::fs::write(path.join("metadata.json"), "{}").unwrap();
    let asset = Asset::open(&path).unwrap();
    let program = asset.to_mil(&Default::default()).unwrap().unwrap();
    let origins = asset.origins(&Default::default()).unwrap();
    let function = &program.functions[0];
    let mut seen = std::collections::BTreeSet::new();
    for op in function.ops.iter().filter(|op| op.name != "const") {
        let name = function.value(op.outputs[0]).name.clone();
        let origin = &origins[&(function.name.clone(), name)];
        assert!(origin.starts_with("Sequential$1") && origin.contains(".py:"), "{origin}");
        seen.insert(origin.split(" (").next().unwrap().to_string());
    }
    assert!(seen.iter().any(|o| o.contains("Linear$")) && seen.len() > 2, "{seen:?}");
    // A model that was written without a source has none.
    let asset = Asset::open(folder().join("add_float16.aimodel")).unwrap();
    let origins = asset.origins(&Default::default()).unwrap();
    assert!(origins.values().all(|o| !o.contains('$')), "{origins:?}");
}

#[test]
fn a_summary_lists_functions_and_operations() {
    let bytes = read("functions");
    let summary = Summary::of(&Bytecode::read(&bytes).unwrap());
    let names: Vec<(&str, bool)> = summary.functions.iter().map(|f| (f.name.as_str(), f.private)).collect();
    assert_eq!(names, [("helper", true), ("main", false), ("other", false)]);
    assert_eq!(summary.functions[2].inputs[1], ("z".to_string(), "tensor<2x3xf32>".to_string()));
    assert_eq!(summary.operations["coreai.invoke"], 1);
    assert_eq!(summary.unknown, Vec::<String>::new());
    // An expansion is no part of the program.
    let bytes = read("relu_float16");
    let operations = Summary::of(&Bytecode::read(&bytes).unwrap()).operations;
    assert_eq!(operations.keys().collect::<Vec<_>>(), ["coreai.output", "coreai.relu"]);
    let bytes = read("constants_many");
    assert_eq!(Summary::of(&Bytecode::read(&bytes).unwrap()).weights, (2, 8192));
}

#[test]
fn weights_stay_in_the_file() {
    let bytes = read("constants_many");
    let file = Bytecode::read(&bytes).unwrap();
    let group = &file.resources[0];
    for resource in &group.resources {
        let ferrane_coreai::bytecode::ResourceValue::Blob { bytes: contents, .. } = &resource.value else { panic!() };
        assert!(bytes.as_ptr_range().contains(&contents.as_ptr()), "a copy of a weight");
    }
}

#[test]
fn tensors_have_shapes_and_elements() {
    let bytes = read("dynamic_reshape");
    let file = Bytecode::read(&bytes).unwrap();
    let tensors: Vec<_> = (0..)
        .map_while(|i| (i < file.types.len() as u32).then(|| file.tensor(ferrane_coreai::bytecode::TypeId(i))))
        .flatten()
        .collect();
    assert!(
        tensors.iter().any(|t| t.shape == [None, None] && t.element == ElementType::Float32 && t.count().is_none())
    );
    assert!(tensors.iter().any(|t| t.shape == [Some(1)] && t.element == ElementType::Int32 && t.count() == Some(1)));
}

#[test]
fn names_of_operations_are_unique_in_text() {
    // Versions of an operation may share a spelling; nothing else does.
    let mut seen = std::collections::BTreeMap::new();
    for op in ops::OPS.iter().filter(|op| !op.spelling.is_empty()) {
        if let Some(other) = seen.insert(op.spelling, op.name) {
            panic!("`{}` and `{other}` are spelled `{}`", op.name, op.spelling);
        }
    }
}
