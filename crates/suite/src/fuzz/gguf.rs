//! GGUF files.

use ferrane_gguf::{GgufHeader, GgufSummary, TensorType, Writer, dequantize};

/// The most values of a tensor that are computed; more only cost time.
const MOST_VALUES: usize = 1 << 16;

/// Any bytes are a file or rejected. Tensors lie inside the file without overlap, their values are
/// computed if their type can be read, and what is written again is read as the same.
///
/// # Panics
/// If a property does not hold.
pub fn gguf(data: &[u8]) {
    let Ok(header) = GgufHeader::read(data) else { return };
    let summary = GgufSummary::of(&header);
    summary.json();
    assert!(summary.bytes() <= data.len() as u64, "tensors overlap");
    let text = summary.to_string();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "control characters are printed");
    let mut writer = Writer::new();
    for (key, value) in header.metadata() {
        assert_eq!(header.get(key).map(|v| v.to_string()), Some(value.to_string()));
        // The alignment of the file may be larger than the file.
        if key != "general.alignment" {
            writer.metadata(key, value.clone()).expect("keys are distinct");
        }
    }
    for tensor in header.tensors() {
        let bytes = &data[tensor.range()];
        writer.tensor(tensor.name(), tensor.shape(), tensor.ty(), bytes).expect("a tensor that was read fits");
        if tensor.elements() <= MOST_VALUES {
            let mut values = vec![0.0; tensor.elements()];
            assert_eq!(dequantize(tensor.ty(), bytes, &mut values).is_ok(), tensor.ty().is_readable());
        }
    }
    let mut written = Vec::new();
    writer.write(&mut written).expect("memory takes everything");
    let again = GgufHeader::read(&written).expect("what was written is read");
    assert_eq!(
        again.metadata().len() + usize::from(header.get("general.alignment").is_some()),
        header.metadata().len()
    );
    for (old, new) in header.tensors().iter().zip(again.tensors()) {
        assert_eq!((old.name(), old.shape(), old.ty()), (new.name(), new.shape(), new.ty()));
        assert!(data[old.range()] == written[new.range()], "the bytes of {} differ", old.name());
    }
    // Blocks that no tensor describes: the first bytes choose the type.
    if let Some((&first, bytes)) = data.get(4..).and_then(<[u8]>::split_first)
        && let Some(ty) = TensorType::all().nth(usize::from(first) % TensorType::all().count())
    {
        let blocks = bytes.len() / ty.block_bytes();
        let mut values =
            vec![0.0; (blocks * ty.block_values()).min(MOST_VALUES) / ty.block_values() * ty.block_values()];
        let bytes = &bytes[..values.len() / ty.block_values() * ty.block_bytes()];
        assert_eq!(dequantize(ty, bytes, &mut values).is_ok(), ty.is_readable());
    }
}
