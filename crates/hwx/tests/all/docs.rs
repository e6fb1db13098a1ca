//! docs/hwx-registers.md equals the register table. `FERRANE_BLESS=1` writes it.

use std::fmt::Write as _;
use std::path::Path;

use ferrane_hwx::registers::{self, Field, FieldKind, Generation, RecordFormat, Register};

const INTRODUCTION: &str = "\
# Registers of the engine

The words of task descriptors, for each generation, with the names that the text of a compiled program uses. Generated from `crates/hwx/data/registers.txt`, whose head names the sources: `FERRANE_BLESS=1 cargo test -p ferrane-hwx registers_doc`.

A field is `Name[high:low]`; one marked *in place* is not shifted, so its value is in bytes and its lower bits are zero. *Verified* facts are checked on samples, *reported* ones are published by another project and not checked, *inferred* ones are read from the values in samples. A register that a descriptor does not set has its default, where that is known; it does not keep the value of the previous task. All other bits and registers are kept, printed and assembled by their addresses.
";

fn bits(field: &Field) -> String {
    let place = if field.hi == field.lo { field.hi.to_string() } else { format!("{}:{}", field.hi, field.lo) };
    let kind = match field.kind {
        FieldKind::Number if field.in_place => " in place".to_string(),
        FieldKind::Number => String::new(),
        FieldKind::Float16 => " fp16".to_string(),
        FieldKind::Float19 => " upper 19 bits of an fp32".to_string(),
        FieldKind::Float32 => " fp32".to_string(),
        FieldKind::Named(names) => {
            let names: Vec<String> = names.iter().map(|(value, name)| format!("{value} {name}")).collect();
            format!(" ({})", names.join(", "))
        }
    };
    format!("`{}[{place}]`{kind}", field.name)
}

fn row(out: &mut String, place: &str, register: &Register) {
    let fields: Vec<String> = register.fields.iter().map(bits).collect();
    let default = register.default.map(|d| format!("{d:#x}")).unwrap_or_default();
    let (name, evidence) = (register.name, register.evidence.name());
    let name = if register.count > 1 { format!("{name}[0..{}]", register.count) } else { name.to_string() };
    let _ = writeln!(out, "| {place} | {name} | {} | {default} | {evidence} | {} |", fields.join(", "), register.note);
}

fn generation(out: &mut String, g: &Generation) {
    let _ = writeln!(out, "\n## {}\n", g.name.to_uppercase());
    let chips = if g.chips.is_empty() { String::new() } else { format!(", {}", g.chips) };
    let _ = write!(out, "Subtype {}, descriptor version {}{chips}. ", g.subtype, g.version);
    match g.record_format {
        RecordFormat::Unknown => {
            let _ = writeln!(out, "The encoding of its descriptors is not known.");
            return;
        }
        RecordFormat::ByteAddressed => out.push_str("Records at byte addresses"),
        RecordFormat::WordAddressed => out.push_str("Packets at word addresses"),
    }
    let _ = write!(out, "; a header of {} words", g.header_words);
    if let Some((word, bit)) = g.extra {
        let _ = write!(out, ", and one more where bit {bit} of word {word} is set");
    }
    let _ = writeln!(out, "; {}.", g.evidence.name());
    const HEAD: &str = "| name | fields | default | evidence | note |\n|---|---|---|---|---|---|\n";
    if !g.header.is_empty() {
        let _ = write!(out, "\n### Header\n\n| word {HEAD}");
        g.header.iter().for_each(|r| row(out, &r.address.to_string(), r));
    }
    for block in &g.blocks {
        let words = block.words.map(|n| format!(", {n} words")).unwrap_or_default();
        let _ = writeln!(out, "\n### {} ({:#x}{words})", block.name, block.address);
        if !block.registers.is_empty() {
            let _ = write!(out, "\n| address {HEAD}");
            block.registers.iter().for_each(|r| row(out, &format!("{:#x}", r.address), r));
        }
    }
}

#[test]
fn registers_doc_is_what_the_table_says() {
    let mut text = INTRODUCTION.to_string();
    for g in registers::generations() {
        let like = registers::generations()
            .iter()
            .find(|o| o.subtype < g.subtype && !o.blocks.is_empty() && o.blocks == g.blocks);
        match like {
            Some(other) => {
                let _ = writeln!(text, "\n## {}\n", g.name.to_uppercase());
                let chips = if g.chips.is_empty() { String::new() } else { format!(", {}", g.chips) };
                let (name, evidence) = (other.name.to_uppercase(), g.evidence.name());
                let _ = writeln!(
                    text,
                    "Subtype {}, descriptor version {}{chips}. Header and registers of {name}; {evidence}.",
                    g.subtype, g.version
                );
            }
            None => generation(&mut text, g),
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hwx-registers.md");
    if std::env::var_os("FERRANE_BLESS").is_some() {
        std::fs::write(&path, &text).expect("docs/hwx-registers.md can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, text,
        "FERRANE_BLESS=1 cargo test -p ferrane-hwx registers_doc writes docs/hwx-registers.md again"
    );
}
