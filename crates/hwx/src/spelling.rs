//! The spelling of numbers, strings and field values in the text form and in descriptions.

use std::fmt::Write as _;

use crate::registers::{Field, FieldKind};

/// Quotes bytes; bytes that are not printable text are escaped.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '"' | '\\' => out.extend(['\\', c]),
                c if c.is_control() && (c as u32) < 0x80 => drop(write!(out, "\\x{:02x}", c as u32)),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

/// A number in readable form: small ones are decimal, others hexadecimal.
pub(crate) fn number(n: u64) -> String {
    if n < 10 { n.to_string() } else { format!("{n:#x}") }
}

/// The text without characters that would end a comment's line.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A field's value as the assembler reads it.
pub(crate) fn value(field: &Field, value: u32) -> String {
    let float = |f: f64, bits: Option<u32>| {
        // Floats without a short exact decimal form are written as their bits.
        let text = format!("{f:?}");
        let short = f.is_finite() && text.len() <= 12 && bits == Some(value);
        if short { text } else { format!("{value:#x}") }
    };
    match field.kind {
        FieldKind::Named(_) => field.word(value).map_or_else(|| value.to_string(), str::to_string),
        FieldKind::Float16 => {
            let f = half::f16::from_bits(value as u16).to_f64();
            float(f, encode_float(field, f))
        }
        FieldKind::Float19 | FieldKind::Float32 => {
            let f = f64::from(f32::from_bits(value));
            float(f, encode_float(field, f))
        }
        FieldKind::Number if field.in_place => number(value.into()),
        FieldKind::Number => {
            if value < 0x1_0000 {
                value.to_string()
            } else {
                format!("{value:#x}")
            }
        }
    }
}

/// The encoding of a float in a field, if the field holds floats and can represent it.
pub(crate) fn encode_float(field: &Field, f: f64) -> Option<u32> {
    match field.kind {
        FieldKind::Float16 => Some(half::f16::from_f64(f).to_bits().into()),
        FieldKind::Float19 => Some((f as f32).to_bits() & !0x1fff),
        FieldKind::Float32 => Some((f as f32).to_bits()),
        _ => None,
    }
}
