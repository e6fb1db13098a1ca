//! What the reader refuses, and how.

use ferrane_onnx::proto::{ModelProto, NodeProto, StringStringEntryProto, TensorProto, bytes};
use ferrane_onnx::{Error, Model, Options};

use crate::common::{folder, model, node, port, read};

fn relu() -> ModelProto {
    model(vec![node("Relu", "x", "y")], vec![port("x", &[2])], vec![port("y", &[2])], vec![])
}

fn tensor(name: &str, dims: &[i64], floats: usize) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: dims.to_vec(),
        data_type: 1,
        float_data: vec![0.5; floats],
        ..TensorProto::default()
    }
}

fn message(found: Result<Model, Error>) -> String {
    found.err().map(|e| e.to_string()).expect("is refused")
}

#[test]
fn other_files_are_no_models() {
    for bytes in [&b"program(1.3)"[..], b"", &[0x08, 0x0a], &[0xff; 64]] {
        assert!(matches!(Model::from_bytes(bytes, None), Err(Error::NotAModel { .. })), "{bytes:?}");
    }
}

#[test]
fn unknown_versions_are_named() {
    let found = message(read(ModelProto { ir_version: 99, ..relu() }));
    assert!(found.contains("99") && found.contains("3 to 13"), "{found}");
}

#[test]
fn nodes_out_of_order_are_sorted_and_circles_refused() {
    let nodes = vec![node("Exp", "a", "y"), node("Relu", "x", "a")];
    let sorted = read(model(nodes, vec![port("x", &[2])], vec![port("y", &[2])], vec![])).expect("reads");
    assert!(sorted.to_mil(&Options::default()).is_ok());
    let nodes = vec![node("Add", "x b", "a"), node("Exp", "a", "b"), node("Relu", "b", "y")];
    let found = message(read(model(nodes, vec![port("x", &[2])], vec![port("y", &[2])], vec![])));
    assert!(found.contains("depends on its own result"), "{found}");
}

#[test]
fn names_are_defined_once() {
    let twice = vec![node("Relu", "x", "y"), node("Exp", "x", "y")];
    let found = message(read(model(twice, vec![port("x", &[2])], vec![port("y", &[2])], vec![])));
    assert!(found.contains("`y` is defined twice"), "{found}");
    let nowhere = vec![node("Add", "x z", "y")];
    let found = message(read(model(nowhere, vec![port("x", &[2])], vec![port("y", &[2])], vec![])));
    assert!(found.contains("`z`"), "{found}");
}

#[test]
fn tensors_have_the_bytes_of_their_extents() {
    let with = |t: TensorProto| {
        read(model(vec![node("Add", "x w", "y")], vec![port("x", &[2])], vec![port("y", &[2])], vec![t]))
    };
    assert!(with(tensor("w", &[2], 2)).is_ok());
    for (dims, count) in [(&[3][..], 2), (&[-1], 2), (&[i64::MAX, i64::MAX], 2), (&[1 << 40], 0), (&[1; 40], 1)] {
        assert!(matches!(with(tensor("w", dims, count)), Err(Error::Invalid { .. })), "{dims:?}");
    }
}

#[test]
fn external_data_stay_in_the_folder() {
    let place = tempfile::tempdir().expect("a folder");
    std::fs::write(place.path().join("w.bin"), [0u8; 16]).expect("writes");
    let with = |entries: &[(&str, &str)]| {
        let mut t = tensor("w", &[2], 0);
        t.data_location = 1;
        t.external_data =
            entries.iter().map(|(k, v)| StringStringEntryProto { key: (*k).into(), value: (*v).into() }).collect();
        let m = model(vec![node("Add", "x w", "y")], vec![port("x", &[2])], vec![port("y", &[2])], vec![t]);
        Model::from_bytes(&bytes(m), Some(place.path()))
    };
    assert!(with(&[("location", "w.bin"), ("offset", "8"), ("length", "8")]).is_ok());
    assert!(with(&[("location", "./w.bin")]).is_ok());
    for wrong in [
        &[("location", "w.bin"), ("offset", "12")][..],
        &[("location", "w.bin"), ("offset", "18446744073709551615")],
        &[("location", "w.bin"), ("length", "4")],
        &[("location", "w.bin"), ("offset", "-1")],
        &[("location", "../w.bin")],
        &[("location", "/etc/hostname")],
        &[("location", "")],
        &[("offset", "0")],
    ] {
        assert!(matches!(with(wrong), Err(Error::Invalid { .. })), "{wrong:?}");
    }
    let missing = message(with(&[("location", "none.bin")]));
    assert!(missing.contains("none.bin"), "{missing}");
    let bytes = std::fs::read(folder().join("functions.onnx")).expect("reads");
    let found = message(Model::from_bytes(&bytes, None));
    assert!(found.contains("without a folder"), "{found}");
}

#[test]
fn a_function_that_calls_itself_is_refused() {
    use ferrane_onnx::proto::FunctionProto;
    let inner = NodeProto { domain: "d".into(), ..node("F", "a", "b") };
    let function = FunctionProto {
        name: "F".into(),
        domain: "d".into(),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node: vec![bytes(inner)],
        ..FunctionProto::default()
    };
    let call = NodeProto { domain: "d".into(), ..node("F", "x", "y") };
    let mut m = model(vec![call], vec![port("x", &[2])], vec![port("y", &[2])], vec![]);
    m.functions = vec![bytes(function)];
    let found = message(read(m));
    assert!(found.contains("calls itself"), "{found}");
}

#[test]
fn huge_extents_are_refused_without_allocating() {
    let big = vec![i64::from(i32::MAX), i64::from(i32::MAX), i64::from(i32::MAX)];
    let m = model(vec![node("Relu", "x", "y")], vec![port("x", &big)], vec![port("y", &big)], vec![]);
    assert!(read(m).expect("reads").to_mil(&Options::default()).is_err());
}

#[test]
fn huge_attributes_of_windows_are_refused() {
    use ferrane_onnx::proto::AttributeProto;
    let wide = |name: &str, values: &[i64]| {
        let integers = AttributeProto { name: name.into(), r#type: 7, ints: values.to_vec(), ..Default::default() };
        let one = AttributeProto { name: name.into(), r#type: 2, i: Some(values[0]), ..Default::default() };
        bytes(if values.len() > 1 { integers } else { one })
    };
    let most = i64::MAX;
    for attribute in [
        wide("group", &[most]),
        wide("offset_group", &[most]),
        wide("strides", &[most; 2]),
        wide("dilations", &[most; 2]),
        wide("pads", &[most; 4]),
    ] {
        let inputs = || vec![port("x", &[1, 2, 4, 4]), port("w", &[2, 2, 3, 3]), port("o", &[1, 18, 2, 2])];
        for (op, names) in [("DeformConv", "x w o"), ("Conv", "x w")] {
            let given = NodeProto { attribute: vec![attribute.clone()], ..node(op, names, "y") };
            let m = model(vec![given], inputs(), vec![port("y", &[1, 2, 2, 2])], vec![]);
            let refused = read(m).expect("reads").to_mil(&Options::default()).is_err();
            assert!(refused || op == "Conv", "{op} {attribute:?}");
        }
    }
}

#[test]
fn positions_that_fp32_cannot_hold_are_refused() {
    for (extent, works) in [(1 << 24, true), ((1 << 24) + 1, false)] {
        let inputs = vec![port("x", &[1, 1, extent]), port("g", &[1, 2, 1])];
        let m = model(vec![node("GridSample", "x g", "y")], inputs, vec![port("y", &[1, 1, 2])], vec![]);
        let found = read(m).expect("reads").to_mil(&Options::default());
        assert_eq!(found.is_ok(), works, "{extent}");
    }
}
