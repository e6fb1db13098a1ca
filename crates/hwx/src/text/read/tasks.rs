//! Assembles task descriptors.

use std::collections::BTreeMap;

use ferrane_diag::Span;

use super::super::implied::{chained, natural_offset};
use super::super::tree::{Item, Value};
use super::Assembler;
use crate::registers::{Field, Generation, Register, indexed};
use crate::spelling::encode_float;
use crate::task::{self, RegisterRecord, Task};

/// The size limit of a section of descriptors in bytes.
const LARGEST: u64 = 1 << 28;

/// A descriptor whose chain fields are not set yet.
struct Draft {
    task: Task,
    /// The header fields that the text sets.
    said: Vec<(&'static str, &'static str)>,
    span: Span,
}

/// Assembles the bytes of a section.
pub(super) fn section(to: &mut Assembler, items: &[Item], generation: &'static Generation) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut drafts: Vec<Draft> = Vec::new();
    let mut end = 0;
    for item in items {
        match item.words.as_slice() {
            [(Value::Word(w), _), rest @ ..] if w == "task" => {
                let offset = match rest {
                    [] => natural_offset(generation.record_format, end),
                    [(Value::Number(n), _)] if *n <= LARGEST && n.is_multiple_of(4) => *n as usize,
                    _ => {
                        to.syntax(
                            item.span,
                            "a task is `task { … }`, with its offset in the section where that is not the default",
                        );
                        continue;
                    }
                };
                if offset < end {
                    to.error(
                        713,
                        item.span,
                        format!("a task at {offset:#x} begins before the last one ends, at {end:#x}"),
                    );
                    continue;
                }
                let draft = draft(to, item, generation, offset);
                end = offset + 4 * draft.task.len();
                drafts.push(draft);
            }
            [(Value::Word(w), _), (Value::Number(at), _)] if w == "word" || w == "byte" => {
                let width = if w == "word" { 4 } else { 1 };
                let value = to.number32(item).unwrap_or(0);
                if *at > LARGEST || (width == 1 && value > 0xff) {
                    to.misfit(item.span, "the offset or the number is too large");
                    continue;
                }
                put(to, &mut bytes, *at as usize, &value.to_le_bytes()[..width], item.span);
            }
            _ => to.syntax(item.span, "expected `task { … }` or `word 0x0 = 1`"),
        }
    }
    for i in 0..drafts.len() {
        let (before, behind) = drafts.split_at_mut(i + 1);
        let draft = &mut before[i];
        for (name, field, value) in chained(generation.record_format, &draft.task, behind.first().map(|d| &d.task)) {
            if !draft.said.contains(&(name, field)) && !set(&mut draft.task.header, generation, name, field, value) {
                let what = format!("{value:#x} does not fit into {name}.{field}");
                to.misfit(draft.span, format!("{what}: a descriptor is too long or too far away"));
            }
        }
        // Tasks are in ascending order, so their words do not overlap; words that are set
        // individually must not overlap them either.
        let words: Vec<u8> = draft.task.encode(generation.record_format).iter().flat_map(|w| w.to_le_bytes()).collect();
        let range = draft.task.offset..draft.task.offset + words.len();
        if bytes.get(range.start..).is_some_and(|b| b.iter().take(range.len()).any(|b| *b != 0)) {
            to.error(713, draft.span, "a `word` of the section lies in this task");
        }
        put(to, &mut bytes, draft.task.offset, &words, draft.span);
    }
    bytes
}

fn put(to: &mut Assembler, bytes: &mut Vec<u8>, at: usize, part: &[u8], span: Span) {
    let end = at + part.len();
    if bytes.len() < end {
        if !to.take((end - bytes.len()) as u64, span) {
            return;
        }
        bytes.resize(end, 0);
    }
    bytes[at..at + part.len()].copy_from_slice(part);
}

/// Sets a header field if the generation has it; false if the value does not fit.
fn set(header: &mut [u32], generation: &Generation, name: &str, field: &str, value: u32) -> bool {
    let register = generation.header.iter().find(|r| r.name == name);
    let found = register.and_then(|r| Some((header.get_mut(r.address as usize)?, r.field(field)?)));
    let Some((word, field)) = found else { return true };
    let new = field.set(*word, value);
    *word = new.unwrap_or(*word);
    new.is_some()
}

fn draft(to: &mut Assembler, item: &Item, generation: &'static Generation, offset: usize) -> Draft {
    let mut header = vec![0; generation.header_words];
    let mut extra = None;
    let (mut records, mut said) = (Vec::new(), Vec::new());
    for line in item.block.iter().flatten() {
        let Some((Value::Word(word), span)) = line.words.first() else {
            to.syntax(line.span, "a line of a task is a word of its header, or a record");
            continue;
        };
        match word.as_str() {
            "dense" | "masked" | "address" => {
                if let Some(record) = record(to, line, generation) {
                    match task::fits(&record, generation.record_format) {
                        Ok(()) => records.push(record),
                        Err(why) => to.misfit(line.span, why),
                    }
                }
            }
            "head" => match line.words.get(1) {
                Some((Value::Number(n), _)) if (*n as usize) < header.len() => {
                    header[*n as usize] = to.number32(line).unwrap_or(0);
                }
                Some((Value::Number(n), _)) if *n as usize == header.len() && generation.extra.is_some() => {
                    extra = to.number32(line);
                }
                _ => to.misfit(line.span, format!("the header has {} words", header.len())),
            },
            path => {
                let (name, _) = path.split_once('.').unwrap_or((path, ""));
                let Some((register, _)) = indexed(&generation.header, name) else {
                    let known = generation.header.iter().map(|r| r.name).chain(["dense", "masked", "address", "head"]);
                    to.unknown("word of the header", name, *span, known);
                    continue;
                };
                let value = &mut header[register.address as usize];
                assign(to, line, path, register, value, &mut |field| said.push((register.name, field)));
            }
        }
    }
    if generation.extra.is_some_and(|(word, bit)| header.get(word).is_some_and(|w| w >> bit & 1 != 0)) {
        header.push(extra.unwrap_or(0));
    } else if extra.is_some() {
        to.misfit(item.span, "the header has one more word only where its flag says so");
    }
    Draft { task: Task { offset, header, records }, said, span: item.span }
}

/// `dense ADDRESS [words N]`, `masked ADDRESS`, `address ADDRESS slot N [words N]`.
fn record(to: &mut Assembler, item: &Item, generation: &Generation) -> Option<RegisterRecord> {
    let (first, places) = to.places(item, &["words", "slot"])?;
    let Ok(first) = u32::try_from(first) else {
        to.misfit(item.span, "an address has 32 bits");
        return None;
    };
    let mut values: BTreeMap<u32, u32> = BTreeMap::new();
    let block = generation.block(first).map(|b| b.name);
    for line in item.block.iter().flatten() {
        match line.words.as_slice() {
            [(Value::Number(address), _)] => {
                let Ok(address) = u32::try_from(*address) else {
                    to.misfit(line.span, "an address has 32 bits");
                    continue;
                };
                let value = to.number32(line).unwrap_or(0);
                values.insert(address, value);
            }
            [(Value::Word(path), span)] => {
                let (name, _) = path.split_once('.').unwrap_or((path, ""));
                let Some((register, index)) = block.and_then(|b| generation.named(b, name)) else {
                    let block = generation.blocks.iter().find(|b| Some(b.name) == block);
                    let known = block.into_iter().flat_map(|b| b.registers.iter().map(|r| r.name));
                    to.unknown("register", name, *span, known);
                    continue;
                };
                let value = values.entry(register.address + 4 * index).or_insert(0);
                assign(to, line, path, register, value, &mut |_| {});
            }
            _ => to.syntax(
                line.span,
                "a line of a record is `Register = 1`, `Register.Field = 1` or `Register { Field = 1 }`",
            ),
        }
    }
    let kind = match item.words.first() {
        Some((Value::Word(word), _)) => word.as_str(),
        _ => "",
    };
    let far = |address: u32| address.checked_sub(first).filter(|n| n.is_multiple_of(4)).map(|n| n / 4);
    let last = values.keys().next_back().copied().unwrap_or(first);
    let most = if kind == "masked" { 16 } else { 63 };
    if let Some(address) = values.keys().find(|a| far(**a).is_none_or(|n| n > most)) {
        to.misfit(item.span, format!("the register {address:#x} is not among the {} from {first:#x} on", most + 1));
        return None;
    }
    if kind == "masked" {
        let mask = values.keys().filter_map(|a| far(*a)?.checked_sub(1)).fold(0u16, |mask, bit| mask | 1 << bit);
        let rest = (0..16).filter(|bit| mask >> bit & 1 != 0).map(|bit| first + 4 * (bit + 1));
        let words = std::iter::once(first).chain(rest).map(|a| values.get(&a).copied().unwrap_or(0)).collect();
        return Some(RegisterRecord::Masked { address: first, mask, words });
    }
    let span = far(last).unwrap_or(0) + 1;
    let count = places[0].unwrap_or(span.into());
    if count < span.into() || count > 64 {
        to.misfit(item.span, format!("{count} words are too few for the registers named here, or more than 64"));
        return None;
    }
    let words = (0..count as u32).map(|i| values.get(&(first.wrapping_add(4 * i))).copied().unwrap_or(0)).collect();
    if kind == "dense" {
        return Some(RegisterRecord::Dense { address: first, words });
    }
    match places[1].map(u8::try_from) {
        Some(Ok(slot)) => Some(RegisterRecord::Address { address: first, slot, words }),
        _ => {
            to.syntax(item.span, "an address record names its BAR: `slot 20`");
            None
        }
    }
}

/// Assembles `Register = 1`, `Register.Field = 1` or `Register { Field = 1 }`.
fn assign(
    to: &mut Assembler,
    line: &Item,
    path: &str,
    register: &Register,
    word: &mut u32,
    said: &mut dyn FnMut(&'static str),
) {
    if let Some(block) = &line.block {
        for item in block {
            match item.words.as_slice() {
                [(Value::Word(name), _)] => field(to, item, register, name, word, said),
                _ => to.syntax(item.span, "a line of a register is `Field = 1`"),
            }
        }
        return;
    }
    match path.split_once('.') {
        Some((_, name)) => field(to, line, register, name, word, said),
        None => {
            *word = to.number32(line).unwrap_or(0);
            register.fields.iter().for_each(|f| said(f.name));
        }
    }
}

fn field(
    to: &mut Assembler,
    item: &Item,
    register: &Register,
    name: &str,
    word: &mut u32,
    said: &mut dyn FnMut(&'static str),
) {
    if name == "Other" {
        let value = to.number32(item).unwrap_or(0);
        if value & register.known() != 0 {
            to.misfit(
                item.span,
                format!("`Other` is for bits without a name; those of {:#x} have one", value & register.known()),
            );
        }
        *word = *word & register.known() | value & !register.known();
        return;
    }
    let Some(field) = register.field(name) else {
        to.unknown(&format!("field of {}", register.name), name, item.span, register.fields.iter().map(|f| f.name));
        return;
    };
    said(field.name);
    let Some(value) = field_value(to, item, field) else { return };
    match field.set(*word, value) {
        Some(new) => *word = new,
        None => {
            let bits = field.hi - field.lo + 1;
            let place = if field.in_place { format!(", a multiple of {:#x}", 1u32 << field.lo) } else { String::new() };
            to.misfit(item.span, format!("{value:#x} does not fit into {name}: {bits} bits{place}"));
        }
    }
}

fn field_value(to: &mut Assembler, item: &Item, field: &Field) -> Option<u32> {
    match item.values.as_slice() {
        [(Value::Word(word), span)] => {
            let value = field.value(word);
            if value.is_none() {
                let known: &[(u32, &str)] = match field.kind {
                    crate::registers::FieldKind::Named(names) => names,
                    _ => &[],
                };
                to.unknown(&format!("value of {}", field.name), word, *span, known.iter().map(|(_, n)| *n));
            }
            value
        }
        [(Value::Float(f), span)] => {
            let bits = encode_float(field, *f);
            if bits.is_none() {
                to.misfit(*span, format!("{} is a whole number", field.name));
            }
            bits
        }
        _ => to.number32(item),
    }
}
