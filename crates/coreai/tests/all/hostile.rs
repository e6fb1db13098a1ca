//! Damaged files: an error or a file that can be used, and nothing else.

use ferrane_coreai::summary::Summary;
use ferrane_coreai::{Bytecode, text};

use crate::samples::samples;

/// Reads a file and, if that works, uses all of it.
fn use_all(bytes: &[u8]) {
    let Ok(file) = Bytecode::read(bytes) else { return };
    text::program(&file);
    text::generic(&file, text::Locations::Show);
    Summary::of(&file);
    let written = file.write();
    let again = Bytecode::read(&written).expect("what was written is read");
    assert_eq!(again.write(), written);
}

#[test]
fn every_prefix_is_refused() {
    for (name, bytes) in samples() {
        for end in 0..bytes.len() {
            assert!(Bytecode::read(&bytes[..end]).is_err(), "{name}: {end} bytes");
        }
    }
}

#[test]
fn changed_bytes_do_no_harm() {
    for (_, bytes) in samples().into_iter().filter(|(_, bytes)| bytes.len() < 700) {
        for at in 0..bytes.len() {
            for change in [0x01, 0x02, 0x10, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                use_all(&changed);
            }
        }
    }
}

#[test]
fn errors_name_an_offset() {
    let (_, bytes) = samples().swap_remove(0);
    let offset = |bytes: &[u8]| Bytecode::read(bytes).unwrap_err().offset.unwrap();
    assert_eq!(offset(b"ML\xefS"), 0);
    assert_eq!(offset(&[&bytes[..4], &[0x0f]].concat()), 4);
    assert!(offset(&bytes[..bytes.len() - 1]) > 0);
}

#[test]
fn announced_lengths_allocate_nothing() {
    // A string section that announces 2^62 strings.
    let mut bytes = b"ML\xefR\x0d\0".to_vec();
    bytes.extend_from_slice(&[0x00, 0x13, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]);
    assert!(Bytecode::read(&bytes).is_err());
}

#[test]
fn attributes_that_contain_themselves_are_cut() {
    use ferrane_coreai::build::Builder;
    use ferrane_coreai::bytecode::AttributeId;
    use ferrane_coreai::dialect::Field;
    let mut builder = Builder::new();
    // Each array holds the one before it four times; the first holds itself.
    let mut last = AttributeId(builder.file().attributes.len() as u32);
    builder.attribute(5, vec![Field::Attributes(vec![last; 4])]);
    for _ in 0..100 {
        last = builder.attribute(5, vec![Field::Attributes(vec![last; 4])]);
    }
    let mut operation = builder.file().body.operations[0].clone();
    assert!(builder.replace_property(&mut operation, "version", last));
    builder.body_mut().operations[0] = operation;
    let written = builder.finish().write();
    let text = text::generic(&Bytecode::read(&written).unwrap(), text::Locations::Hide);
    assert!(text.contains('…') && text.len() < 1 << 22, "{} bytes", text.len());
}
