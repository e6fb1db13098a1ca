//! What is written is read again, and the other way around.

use ferrane_gguf::{Array, File, GgufHeader, GgufSummary, MetadataValue, TensorType, Writer};
use proptest::prelude::*;

fn value() -> impl Strategy<Value = MetadataValue> {
    let array = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..5).prop_map(Array::U8),
        proptest::collection::vec(any::<i64>(), 0..5).prop_map(Array::I64),
        proptest::collection::vec(any::<bool>(), 0..5).prop_map(Array::Bool),
        proptest::collection::vec(".{0,6}", 0..5).prop_map(Array::String),
        proptest::collection::vec(-1e9f32..1e9, 0..5).prop_map(Array::F32),
    ];
    let array = array.prop_recursive(3, 12, 3, |inner| proptest::collection::vec(inner, 0..3).prop_map(Array::Array));
    prop_oneof![
        any::<i8>().prop_map(MetadataValue::I8),
        any::<u16>().prop_map(MetadataValue::U16),
        any::<i32>().prop_map(MetadataValue::I32),
        any::<u64>().prop_map(MetadataValue::U64),
        (-1e300f64..1e300).prop_map(MetadataValue::F64),
        any::<bool>().prop_map(MetadataValue::Bool),
        ".{0,20}".prop_map(MetadataValue::String),
        array.prop_map(MetadataValue::Array),
    ]
}

proptest! {
    #[test]
    fn written_files_are_read(
        values in proptest::collection::vec(value(), 0..6),
        shapes in proptest::collection::vec(proptest::collection::vec(0usize..5, 0..5), 0..5),
        alignment in proptest::option::of(0u32..8),
    ) {
        let mut writer = Writer::new();
        if let Some(power) = alignment {
            writer.metadata("general.alignment", MetadataValue::U32(1 << power)).unwrap();
        }
        for (index, value) in values.iter().enumerate() {
            writer.metadata(&format!("key {index}"), value.clone()).unwrap();
        }
        let data: Vec<Vec<u8>> =
            shapes.iter().enumerate().map(|(i, s)| vec![i as u8 + 1; s.iter().product::<usize>() * 2]).collect();
        for (index, (shape, bytes)) in shapes.iter().zip(&data).enumerate() {
            writer.tensor(&format!("tensor {index}"), shape, TensorType::F16, bytes).unwrap();
        }
        let mut file = Vec::new();
        writer.write(&mut file).unwrap();
        let header = GgufHeader::read(&file).unwrap();
        prop_assert_eq!(header.alignment(), alignment.map_or(32, |power| 1 << power));
        for (index, value) in values.iter().enumerate() {
            prop_assert_eq!(header.get(&format!("key {index}")), Some(value));
        }
        for (index, (shape, bytes)) in shapes.iter().zip(&data).enumerate() {
            let tensor = header.tensor(&format!("tensor {index}")).unwrap();
            prop_assert_eq!(tensor.shape(), &shape[..]);
            prop_assert_eq!(&file[tensor.range()], &bytes[..]);
            prop_assert_eq!(tensor.range().start as u64 % header.alignment(), 0);
        }
        // A file that ends earlier is refused.
        let end = header.tensors().iter().map(|t| t.range().end).max().unwrap_or(24);
        for cut in 0..end {
            prop_assert!(GgufHeader::read(&file[..cut]).is_err(), "{} of {}", cut, end);
        }
        GgufSummary::of(&header).to_string();
        GgufSummary::of(&header).json();
    }
}

#[test]
fn files_are_mapped_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut writer = Writer::new();
    writer.metadata("general.architecture", MetadataValue::from("llama")).unwrap();
    writer.metadata("long", MetadataValue::from(vec!["x"; 40])).unwrap();
    let block = [0u8; 18];
    writer.tensor("a", &[1, 32], TensorType::Q4_0, &block).unwrap();
    writer.tensor("b", &[2], TensorType::F32, &block[..8]).unwrap();
    assert!(
        !File::recognize({
            std::fs::write(&path, b"GGU").unwrap();
            &path
        })
        .unwrap()
    );
    writer.save(&path).unwrap();
    assert!(File::recognize(&path).unwrap());
    let file = File::open(&path).unwrap();
    assert_eq!((file.path(), file.tensors().len()), (path.as_path(), 2));
    let summary = GgufSummary::of(file.header());
    assert_eq!((summary.values(), summary.bytes()), (34, 26));
    let text = summary.to_string();
    for line in [
        "GGUF version 3, 2 keys, 2 tensors",
        "34 values in 26 bytes, 6.12 bits per value",
        "  general.architecture  \"llama\"",
        "(40 elements of string)",
        "  Q4_0     1 tensors, 32 values, 18 bytes, 4.5000 bits per value",
        "  a  Q4_0     [1, 32], 18 bytes",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let json = summary.json();
    assert_eq!(json["metadata"]["general.architecture"], "llama");
    assert_eq!(
        (json["metadata"]["long"]["length"].as_u64(), json["tensors"][0]["type"].as_str()),
        (Some(40), Some("Q4_0"))
    );
    // The values of a tensor of the wrong size are refused with the path of the file.
    let error = file.read(&file.tensors()[1], &mut [0.0; 3]).unwrap_err().to_string();
    assert!(error.contains("model.gguf: 3 values of type F32 need 12 bytes, there are 8"), "{error}");
    assert!(File::open(folder.path().join("none.gguf")).unwrap_err().to_string().contains("none.gguf"));
}

#[test]
fn a_writer_refuses_what_cannot_be_read() {
    let mut writer = Writer::new();
    writer.metadata("a", MetadataValue::U8(1)).unwrap();
    let text = |e: ferrane_gguf::Error| e.to_string();
    assert!(text(writer.metadata("a", MetadataValue::U8(1)).unwrap_err()).contains("`a`"));
    assert!(text(writer.metadata("general.alignment", MetadataValue::U32(24)).unwrap_err()).contains("24"));
    assert!(text(writer.metadata("general.alignment", MetadataValue::U64(32)).unwrap_err()).contains("32"));
    writer.tensor("t", &[1], TensorType::F32, &[0; 4]).unwrap();
    assert!(text(writer.tensor("t", &[1], TensorType::F32, &[0; 4]).unwrap_err()).contains("twice"));
    assert!(text(writer.tensor("u", &[1; 5], TensorType::F32, &[0; 4]).unwrap_err()).contains("5 axes"));
    assert!(text(writer.tensor("u", &[3, 16], TensorType::Q4_0, &[0; 27]).unwrap_err()).contains("whole blocks"));
    assert!(text(writer.tensor("u", &[2], TensorType::F32, &[0; 4]).unwrap_err()).contains("need 8 bytes"));
    assert!(text(writer.tensor("u", &[usize::MAX, 2], TensorType::F32, &[]).unwrap_err()).contains("overflow"));
}
