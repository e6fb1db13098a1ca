//! Disassembling and assembling reproduces the bytes, and an edited text gives the intended file.

use ferrane_hwx::container::{Bindings, Hwx};
use ferrane_hwx::{registers, text};
use ferrane_testdata::Suite;
use proptest::prelude::*;

use crate::{samples, synthetic};

/// The text of a file, which must assemble to the same file.
fn there_and_back(bytes: &[u8]) -> Result<String, String> {
    let hwx = Hwx::read(bytes).map_err(|e| e.to_string())?;
    let text = text::print(&hwx);
    let back = text::assemble(&text).map_err(|problems| {
        let source = ferrane_diag::Source::new("text", &text);
        problems.render(&source, false)
    })?;
    let made = back.write();
    if made != bytes {
        let at = made.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(made.len().min(bytes.len()));
        return Err(format!("{:#x} bytes of {:#x}; they differ at {at:#x}", made.len(), bytes.len()));
    }
    Ok(text)
}

#[test]
fn samples_assemble_to_their_bytes() {
    let Some(mut suite) = Suite::open("hwx-text", "hwx") else { return };
    for (name, bytes) in samples::programs(&suite) {
        let done = there_and_back(&bytes).and_then(|text| {
            // Descriptors are printed by their registers, not as bytes.
            if text.contains("not decoded") || !text.contains("    task {") {
                Err("no tasks".to_string())
            } else {
                Ok(())
            }
        });
        suite.case(&name, done);
    }
    suite.finish();
}

#[test]
fn made_files_assemble_to_their_bytes() {
    for bytes in [synthetic::h13(), synthetic::h16()] {
        let text = there_and_back(&bytes).unwrap();
        assert!(!text.contains("not decoded"), "{text}");
    }
}

/// Assembles the file's text with one edit.
fn edited(bytes: &[u8], from: &str, to: &str) -> Result<Hwx, String> {
    let text = text::print(&Hwx::read(bytes).unwrap());
    assert!(text.contains(from), "{from} is not in\n{text}");
    text::assemble(&text.replacen(from, to, 1)).map_err(|e| e.to_string())
}

#[test]
fn a_field_is_edited() {
    let before = Hwx::read(&synthetic::h13()).unwrap();
    let h13 = registers::by_name("h13").unwrap();
    let conv = h13.address("Common", "ConvCfg").unwrap();
    let value = |hwx: &Hwx| {
        let (section, first) = hwx.task_sections().pop().unwrap();
        hwx.tasks(&section, first).unwrap()[0].register(h13, conv).unwrap()
    };
    assert_eq!(value(&before), 0x5000_a021);
    for edit in ["ConvCfg { Kw = 3; Kh = 3;", "ConvCfg.Kw = 3\nConvCfg.Kh = 3\nConvCfg {"] {
        let from = if edit.ends_with('{') { "ConvCfg {" } else { "ConvCfg { Kw = 1; Kh = 1;" };
        // The last statement wins, so an assignment before the block has no effect on the fields
        // that the block sets.
        let wanted = if edit.ends_with('{') { 0x5000_a021 } else { 0x5000_a063 };
        assert_eq!(value(&edited(&synthetic::h13(), from, edit).unwrap()), wanted);
    }
    let changed =
        edited(&synthetic::h13(), "InDepth.Din = 1\n", "InDepth.Din = 1\nConvCfg = 0x5042a063\nConvCfg.Px = 2\n");
    // The block of ConvCfg comes later and sets all fields again.
    assert_eq!(value(&changed.unwrap()), 0x5000_a021);
    // Only one word of the file differs.
    let after = edited(&synthetic::h13(), "ConvCfg { Kw = 1;", "ConvCfg { Kw = 3;").unwrap().write();
    let differ: Vec<usize> = (0..after.len()).filter(|i| after[*i] != synthetic::h13()[*i]).collect();
    assert_eq!(differ.len(), 1);
    // Names of values, and floats.
    let scale = edited(&synthetic::h13(), "PostScale = 1.0", "PostScale = 0.5").unwrap().write();
    assert!(scale.windows(4).any(|w| w == 0x3800u32.to_le_bytes()));
    edited(&synthetic::h13(), "OpMode = conv", "OpMode = bypass").unwrap();
}

/// An added register lengthens its descriptor: the next one moves, and chain and lengths are
/// updated.
#[test]
fn a_register_is_added() {
    let longer = |text: String| {
        let old = Hwx::read(&synthetic::h16()).unwrap().task_sections()[0].0.size;
        text.replacen(
            "        dense 0x4 words 3 {",
            "        dense 0x24 { NumGroups = 4 }\n        dense 0x4 words 3 {",
            1,
        )
        .replace(&format!("size = {old:#x}"), &format!("size = {:#x}", old + 16))
    };
    let text = longer(text::print(&Hwx::read(&synthetic::h16()).unwrap()));
    let hwx = text::assemble(&text).unwrap();
    let (section, first) = hwx.task_sections().pop().unwrap();
    let tasks = hwx.tasks(&section, first).unwrap();
    let h16 = hwx.generation().unwrap();
    assert_eq!(tasks[0].register(h16, 0x24), Some(4));
    assert_eq!(tasks[1].register(h16, 0x24), Some(1), "the default of a register that is not set");
    assert_eq!(tasks[1].header[9], 0x1234_5678);
}

/// A handwritten text: sizes of commands, positions of strings and lengths are derived.
#[test]
fn what_follows_may_be_left_out() {
    let text = r#"
        hwx { subtype = h13; size = 0x2000 }
        segment { name = "__TEXT"; vmaddr = 0x30000000; vmsize = 0x4000; fileoff = 0x1800; filesize = 0x800
            section "__text" "__TEXT" { addr = 0x30000000; size = 0x200; offset = 0x1800; flags = 0x28 }
        }
        fvmlib { name = "y@output"; vmaddr = 0x30004000 }
        program1 { name = "net"; text_addr = 0x30000000; first_task_words_less_one = 12; tasks = 2; bar 0 = 0x30000000; bar 4 = 0x30004000 }
        tensor { direction = 2; procedure = "net"; symbol = "y@output"; name = "y" }
        tasks 0x1800 {
            task {
                TileBars { WBase = 4; WBE = 1 }
                dense 0x1c { ConvCfg.Kw = 3 }     // one word
            }
            task { Identity.EON = 1 }
        }
    "#;
    let hwx = text::assemble(text).map_err(|e| e.render(&ferrane_diag::Source::new("text", text), false)).unwrap();
    let program = &hwx.programs()[0];
    let port = Bindings::of(&hwx, program).ports.remove(0);
    assert_eq!((port.name.as_str(), port.bars.as_slice()), ("y@output", &[4][..]));
    assert_eq!(program.name, "net");
    assert_eq!(port.tensor.unwrap().name, "y");
    let (section, _) = hwx.task_sections().pop().unwrap();
    let tasks = hwx.tasks(&section, Some(12)).unwrap();
    assert_eq!(tasks.iter().map(|t| (t.offset, t.len())).collect::<Vec<_>>(), [(0, 12), (0x100, 10)]);
    assert_eq!((tasks[0].header[1] >> 16, tasks[0].header[7], tasks[1].header[7]), (9, 0x100, 0));
}

/// A short text must not allocate unbounded memory.
#[test]
fn sizes_of_short_texts_are_bounded() {
    let many = format!("hwx {{ subtype = h13 }}\n{}", "command 0x77 { command_size = 0x1000000 }\n".repeat(100));
    let far =
        "hwx { subtype = h16 }\ntasks 0x100 { task 0xffffff0 { } }\ntasks 0x100 { task 0xffffff0 { } }\n".to_string();
    let texts = [
        "hwx { subtype = h13; size = 0xffffffffffff }".to_string(),
        "hwx { subtype = h13 }\nbytes 0x100 { zeros 0xffffffffffffffff }".to_string(),
        "hwx { subtype = h13 }\nbytes 0xffffffffffffffff { hex \"00\" }".to_string(),
        "hwx { subtype = h13 }\nsegment { command_size = 0xffffffffffffffff }".to_string(),
        "hwx { subtype = h13 }\nprogram1 { count = 0xffffffffffffffff }".to_string(),
        many,
        far,
    ];
    for text in texts {
        let message = text::assemble(&text).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("E071"), "{message} of {}", &text[..60.min(text.len())]);
    }
}

/// Every error has a span and a remedy.
#[test]
fn mistakes_have_their_places() {
    let mistakes = [
        ("ConvCfg { Kw = 1;", "ConvCfg { Kv = 1;", "E0711", "no field of ConvCfg `Kv`"),
        ("ConvCfg {", "ConfCfg {", "E0711", "no register `ConfCfg` here"),
        ("ConvCfg { Kw = 1;", "ConvCfg { Kw = 32;", "E0712", "0x20 does not fit into Kw: 5 bits"),
        ("RowStride.Stride = 0x40", "RowStride.Stride = 0x41", "E0712", "6 bits, a multiple of 0x40"),
        ("OpMode = conv", "OpMode = convolve", "E0711", "no value of OpMode `convolve`"),
        ("words 62", "words 3", "E0712", "words are too few"),
        ("subtype = h13", "subtype = h31", "E0711", "no generation `h31`"),
        ("subtype = h13", "", "E0710", "has no `subtype`"),
        ("    task {", "    task 0x2 {", "E0710", "a task is"),
        ("\nbytes 0x3000", "\nbytes 0x2000", "E0713", "overlaps"),
        ("\nbytes 0x3000", "\nbytes 0x40", "E0713", "lies in the load commands"),
        ("size = 0x4000\n}", "size = 0x3000\n}", "E0713", "the contents reach to"),
        ("\nsegment {", "\nsegmnet {", "E0711", "no statement `segmnet`"),
        ("name = \"__TEXT\"", "name = \"__TEXT__TEXT__TEXT\"", "E0712", "no room for the string"),
        ("magic = 0xbeefface", "magic = 0x1beefface", "E0712", "does not fit into 32 bits"),
        ("magic = 0xbeefface", "magic = \"x", "E0710", "a string must end on its line"),
        ("hwx {", "", "E0710", "a text begins with"),
        ("fvmlib {", "fvmlib {\n    bar 1 = 3", "E0712", "no room for this"),
        ("bar 5 = ", "bar 500 = ", "E0712", "no room for this"),
        ("nsyms = 3", "nsyms = 300", "E0713", "cannot be read back"),
    ];
    for (from, to, code, part) in mistakes {
        let message = match edited(&synthetic::h13(), from, to) {
            Err(message) => message,
            Ok(_) => panic!("{to} is taken"),
        };
        assert!(message.contains(code) && message.contains(part), "{to}: {message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// A readable file, however odd, survives printing and assembling.
    #[test]
    fn changed_files_come_back(which in any::<bool>(), changes in prop::collection::vec((0usize..0x4000, any::<u8>()), 1..6)) {
        let mut bytes = if which { synthetic::h13() } else { synthetic::h16() };
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if Hwx::read(&bytes).is_ok() {
            prop_assert!(there_and_back(&bytes).is_ok(), "{:?}", there_and_back(&bytes).err());
        }
    }

    /// Any text is assembled or refused.
    #[test]
    fn changed_texts_are_assembled_or_refused(which in any::<bool>(), cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), "[ -~\n]{0,6}"), 1..6)) {
        let bytes = if which { synthetic::h13() } else { synthetic::h16() };
        let mut text: Vec<char> = text::print(&Hwx::read(&bytes).unwrap()).chars().collect();
        for (at, length, new) in cuts {
            let at = at.index(text.len());
            let end = (at + length.index(8)).min(text.len());
            text.splice(at..end, new.chars());
        }
        let text: String = text.into_iter().collect();
        if let Ok(hwx) = text::assemble(&text) {
            prop_assert!(Hwx::read(&hwx.write()).is_ok());
        }
    }
}
