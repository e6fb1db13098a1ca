//! Values of every type against those of the Python package `gguf`, bit for bit.
//!
//! `data/blocks.gguf` is written by scripts/gguf_blocks.py: for each type a tensor of blocks, and
//! one of its values in fp32.

use ferrane_gguf::{Array, Error, File, MetadataValue, TensorType, dequantize};
use std::path::Path;

fn fixture() -> File {
    File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blocks.gguf")).unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn values_have_the_bits_of_the_reference() {
    let file = fixture();
    let mut compared = Vec::new();
    for tensor in file.tensors().iter().filter(|t| !t.name().ends_with(".values")) {
        let expected = file.tensor(&format!("{}.values", tensor.name())).unwrap();
        assert_eq!((expected.ty(), expected.elements()), (TensorType::F32, tensor.elements()));
        let mut wanted = vec![0.0; tensor.elements()];
        file.read(expected, &mut wanted).unwrap();
        let mut found = vec![f32::NAN; tensor.elements()];
        file.read(tensor, &mut found).unwrap();
        let block = tensor.ty().block_values();
        for (index, (found, wanted)) in found.chunks(block).zip(wanted.chunks(block)).enumerate() {
            assert_eq!(bits(found), bits(wanted), "{} block {index}", tensor.name());
        }
        // Blocks do not depend on their neighbors.
        let last = tensor.ty().block_bytes();
        let mut alone = vec![f32::NAN; block];
        let raw = file.raw(tensor);
        dequantize(tensor.ty(), &raw[raw.len() - last..], &mut alone).unwrap();
        assert_eq!(bits(&alone), bits(&found[found.len() - block..]));
        compared.push(tensor.ty());
    }
    // All types whose values are more than plain numbers of another width.
    let plain = [TensorType::F32, TensorType::F64, TensorType::I8, TensorType::I16, TensorType::I32, TensorType::I64];
    for ty in TensorType::all().filter(|t| t.is_readable() && !plain.contains(t)) {
        assert!(compared.contains(&ty), "{} is not compared", ty.name());
    }
}

#[test]
fn plain_numbers() {
    let read = |ty, bytes: &[u8]| {
        let mut out = [0.0f32; 2];
        dequantize(ty, bytes, &mut out).unwrap();
        out
    };
    let bytes = |pair: [[u8; 8]; 2]| pair.concat();
    assert_eq!(read(TensorType::F64, &bytes([0.1f64.to_le_bytes(), 1e300f64.to_le_bytes()])), [0.1, f32::INFINITY]);
    assert_eq!(
        read(TensorType::I64, &bytes([(1i64 << 40).to_le_bytes(), (-1i64).to_le_bytes()])),
        [1.0995116e12, -1.0]
    );
    assert_eq!(read(TensorType::I32, &[0xfe, 0xff, 0xff, 0xff, 1, 0, 0, 1]), [-2.0, 16777217.0]);
    assert_eq!(read(TensorType::I16, &[0, 0x80, 1, 0]), [-32768.0, 1.0]);
    assert_eq!(read(TensorType::I8, &[0x80, 0x7f]), [-128.0, 127.0]);
    let zero = read(TensorType::F32, &[0, 0, 0, 0x80, 0, 0, 0xc0, 0x7f]);
    assert!(zero[0].to_bits() == 1 << 31 && zero[1].is_nan());
}

/// More values than one task of the pool has, so that the parts are put together.
#[test]
fn large_tensors_are_read_in_parts() {
    for (ty, count) in [(TensorType::Q4_0, 3 << 16), (TensorType::Q6_K, (2 << 16) + 256), (TensorType::F16, 70_001)] {
        let size = ty.bytes(count as u64).unwrap() as usize;
        let block: Vec<u8> = (0..size).map(|i| (i * 37 % 251) as u8 & 0x3b).collect();
        let (mut whole, mut parts) = (vec![0.0; count], vec![1.0; count]);
        dequantize(ty, &block, &mut whole).unwrap();
        dequantize::parallel(ty, &block, &mut parts).unwrap();
        assert_eq!(bits(&whole), bits(&parts), "{}", ty.name());
    }
}

#[test]
fn sizes_and_types_that_cannot_be() {
    let mut out = [0.0; 32];
    let length = |ty, bytes: &[u8], out: &mut [f32]| dequantize(ty, bytes, out).unwrap_err().to_string();
    assert_eq!(length(TensorType::Q8_0, &[0; 33], &mut out), "32 values of type Q8_0 need 34 bytes, there are 33");
    assert!(length(TensorType::Q8_0, &[0; 34], &mut out[..31]).contains("31 values"));
    assert!(length(TensorType::F32, &[0; 4], &mut []).contains("0 values"));
    for ty in TensorType::all().filter(|t| !t.is_readable()) {
        let bytes = vec![0; ty.block_bytes()];
        let mut out = vec![0.0; ty.block_values()];
        let error = dequantize(ty, &bytes, &mut out).unwrap_err();
        assert!(matches!(error, Error::Unsupported(t) if t == ty), "{error}");
        assert!(error.to_string().contains(&format!("type {} cannot be read", ty.name())), "{error}");
        assert!(error.to_string().contains("Q4_K"), "{error}");
    }
}

/// What the other implementation wrote, value by value.
#[test]
fn metadata_of_every_type() {
    let file = fixture();
    let value = |key: &str| file.get(key).unwrap().clone();
    assert_eq!(value("value.u8"), MetadataValue::U8(200));
    assert_eq!(value("value.i8"), MetadataValue::I8(-100));
    assert_eq!(value("value.u16"), MetadataValue::U16(60_000));
    assert_eq!(value("value.i16"), MetadataValue::I16(-30_000));
    assert_eq!(value("value.u32"), MetadataValue::U32(4_000_000_000));
    assert_eq!(value("value.i32"), MetadataValue::I32(-2_000_000_000));
    assert_eq!(value("value.u64"), MetadataValue::U64(1 << 63));
    assert_eq!(value("value.i64"), MetadataValue::I64(-(1 << 62)));
    assert_eq!(value("value.f32"), MetadataValue::F32(0.1));
    assert_eq!(value("value.f64"), MetadataValue::F64(0.1));
    assert_eq!(value("value.bool"), MetadataValue::Bool(true));
    assert_eq!(value("value.string"), MetadataValue::from("Grüße, 世界"));
    assert_eq!(value("array.i32"), MetadataValue::from(vec![1, -2, 3]));
    assert_eq!(value("array.f32"), MetadataValue::from(vec![0.5f32, -1.5]));
    assert_eq!(value("array.bool"), MetadataValue::from(vec![true, false]));
    assert_eq!(value("array.string"), MetadataValue::from(vec!["a", "", "▁b"]));
    let nested = Array::Array(vec![Array::I32(vec![1, 2]), Array::I32(vec![3])]);
    assert_eq!(value("array.nested"), MetadataValue::Array(nested));
    assert_eq!(file.get("value"), None);
    assert_eq!((value("value.u64").as_u64(), value("value.i8").as_u64()), (Some(1 << 63), None));
    assert_eq!(value("array.i32").as_array().unwrap().integers(), None);
}
