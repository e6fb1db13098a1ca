//! Prints the text form of a file completely, so that the assembler reproduces its bytes.

use std::fmt::Write as _;

use super::implied::{chained, names_follow, natural_offset, natural_size, strings_begin};
use crate::container::{
    Command, CommandKind, Content, Hwx, Relocation, SECTION, SECTION_SLOTS, SECTIONS, STATE, Section, StringPlace,
    SymbolTable,
};
use crate::describe::TaskReport;
use crate::registers::{Field, Generation, Register};
use crate::spelling::{number, plain, quoted, value};
use crate::task::{RegisterRecord, Task};

/// The number of bytes on a line of data.
const LINE: usize = 32;

/// Prints the whole file.
pub(super) fn print(hwx: &Hwx) -> String {
    let mut out = String::new();
    let generation = hwx.generation();
    out.push_str("hwx {\n");
    for (name, value) in [
        ("magic", hwx.magic),
        ("cputype", hwx.cputype),
        ("subtype", hwx.subtype),
        ("filetype", hwx.filetype),
        ("flags", hwx.flags),
        ("reserved", hwx.reserved),
    ] {
        match generation {
            Some(g) if name == "subtype" => drop(writeln!(out, "    subtype = {}", g.name)),
            _ => drop(writeln!(out, "    {name} = {}", number(value.into()))),
        }
    }
    if hwx.commands_size as usize != hwx.body_offset() - crate::container::HEADER {
        let _ = writeln!(out, "    commands_size = {:#x}", hwx.commands_size);
    }
    let _ = writeln!(out, "    size = {:#x}\n}}", hwx.size());
    for c in &hwx.commands {
        command(&mut out, c);
    }
    contents(&mut out, hwx);
    out
}

/// Prints a load command by the names of its fields, or by its words if fields overlap, which names
/// cannot express.
fn command(out: &mut String, command: &Command) {
    let mut text = String::new();
    named(&mut text, command);
    if super::read::command(&text).as_ref() != Some(command) {
        let (cmd, bytes) = (command.cmd(), command.bytes());
        text = format!("\n{} {cmd:#x} {{ // {}\n", CommandKind::Other.word(), command.kind().word());
        let _ = writeln!(text, "    command_size = {:#x}", bytes.len());
        let said: Vec<bool> = (0..bytes.len()).map(|at| at < 8).collect();
        rest(&mut text, "    ", bytes, &said);
        text.push_str("}\n");
    }
    out.push_str(&text);
}

fn named(out: &mut String, command: &Command) {
    let (kind, bytes) = (command.kind(), command.bytes());
    let layout = kind.layout();
    // The bytes that named fields cover.
    let mut said = vec![false; bytes.len()];
    let mut say = |at: usize, length: usize| {
        if let Some(part) = said.get_mut(at..at.saturating_add(length)) {
            part.fill(true);
        }
    };
    say(0, 8);
    out.push('\n');
    out.push_str(layout.word);
    if kind == CommandKind::Other {
        let _ = write!(out, " {:#x}", command.cmd());
    }
    out.push_str(" {\n");
    if bytes.len() != natural_size(command) {
        let _ = writeln!(out, "    command_size = {:#x}", bytes.len());
    }
    if kind.number().is_some_and(|(_, flavor)| flavor.is_some()) {
        say(8, 4);
    }
    if kind == CommandKind::Tensor && command.at(STATE, 4) == 3 {
        say(STATE, 4);
    }
    for slot in layout.slots {
        say(slot.at, slot.width);
        let value = command.at(slot.at, slot.width);
        if value != 0 && (kind, slot.name) != (CommandKind::Segment, "nsects") {
            let _ = writeln!(out, "    {} = {}", slot.name, number(value));
        }
    }
    let mut next = strings_begin(command);
    for text in layout.texts {
        let Some((at, bytes)) = command.text_at(&text.place) else { continue };
        let _ = write!(out, "    {} = {}", text.name, quoted(bytes));
        if let StringPlace::Offset(slot) = text.place {
            say(slot, 4);
            if at != next {
                let _ = write!(out, " at {at:#x}");
            }
            next = at + bytes.len() + 1;
        }
        say(at, if matches!(text.place, StringPlace::Fixed16(_)) { 16 } else { bytes.len() });
        out.push('\n');
    }
    for (index, address) in command.bars() {
        if let Some(at) = command.bar_at(index) {
            say(at, 8);
        }
        let _ = writeln!(out, "    bar {index} = {address:#x}");
    }
    let tags = command.tags();
    if let Some(at) = command.tags_at().filter(|_| !tags.is_empty() && tags.iter().all(|t| t.length == 8)) {
        say(at, 4);
        say(at + 8, 16 * tags.len());
        for tag in tags {
            let _ = writeln!(out, "    tag {} = {}", tag.kind, number(tag.value));
        }
    }
    if kind == CommandKind::Segment {
        for i in 0..command.get("nsects") as usize {
            let base = SECTIONS + SECTION * i;
            let names = [command.name16(base), command.name16(base + 16)].map(quoted);
            let _ = writeln!(out, "    section {} {} {{", names[0], names[1]);
            say(base, 32);
            for slot in SECTION_SLOTS {
                say(base + slot.at, slot.width);
                let value = command.section(i, slot.name);
                if value != 0 {
                    let _ = writeln!(out, "        {} = {}", slot.name, number(value));
                }
            }
            out.push_str("    }\n");
        }
    }
    rest(out, "    ", bytes, &said);
    out.push_str("}\n");
}

/// Prints the nonzero bytes that named fields do not cover.
fn rest(out: &mut String, indent: &str, bytes: &[u8], said: &[bool]) {
    for (i, chunk) in bytes.chunks(4).enumerate() {
        let at = 4 * i;
        let open = &said[at..at + chunk.len()];
        if chunk.len() == 4 && open.iter().all(|s| !s) {
            let value = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
            if value != 0 {
                let _ = writeln!(out, "{indent}word {at:#x} = {}", number(value.into()));
            }
            continue;
        }
        for (j, byte) in chunk.iter().enumerate().filter(|(j, byte)| **byte != 0 && !open[*j]) {
            let _ = writeln!(out, "{indent}byte {:#x} = {}", at + j, number(u64::from(*byte)));
        }
    }
}

/// Prints everything nonzero after the commands, by offset in the file.
fn contents(out: &mut String, hwx: &Hwx) {
    let regions = hwx.regions();
    let sections = hwx.sections();
    let (offset, mut done) = (hwx.body_offset() as u64, hwx.body_offset() as u64);
    let (tables, texts) = (hwx.symbols(), hwx.task_sections());
    let strings = |table: &SymbolTable<'_>| regions.iter().find(|r| r.content == Content::Strings(table.command));
    // Names that follow from the symbols need no bytes.
    let implied: Vec<bool> = tables
        .iter()
        .map(|t| strings(t).and_then(|r| hwx.bytes(r.range.clone())).is_some_and(|s| names_follow(t, s)))
        .collect();
    for region in regions.iter() {
        data(out, hwx, done..region.range.start, "");
        done = region.range.end;
        let find = |command: usize, index: usize| sections.iter().find(|s| (s.command, s.index) == (command, index));
        match region.content {
            Content::Section(c, s) => match find(c, s) {
                Some(section) if section.is_text() => {
                    let first =
                        texts.iter().find(|(t, _)| (t.command, t.index) == (c, s)).and_then(|(_, first)| *first);
                    tasks(out, hwx, section, first);
                }
                section => {
                    let name = section.map(Section::label).unwrap_or_default();
                    data(out, hwx, region.range.clone(), &name);
                }
            },
            Content::Relocations(c, s) => {
                if let Some(section) = find(c, s) {
                    relocations(out, hwx, section, &sections);
                }
            }
            Content::Symbols(c) => {
                if let Some((table, implied)) = tables.iter().zip(&implied).find(|(t, _)| t.command == c) {
                    let names = strings(table).filter(|_| *implied).map(|r| r.range.start);
                    symbols(out, region.range.start, table, names);
                }
            }
            Content::Strings(c) if tables.iter().zip(&implied).any(|(t, implied)| t.command == c && *implied) => {}
            content => data(out, hwx, region.range.clone(), &hwx.describe(content)),
        }
    }
    data(out, hwx, done..offset + hwx.body.len() as u64, "");
}

fn symbols(out: &mut String, offset: u64, table: &SymbolTable<'_>, names: Option<u64>) {
    let _ = write!(out, "\nsymbols {offset:#x}");
    if let Some(names) = names {
        let _ = write!(out, " strings {names:#x}");
    }
    out.push_str(" {\n");
    for s in &table.symbols {
        let kind = match s.kind_name() {
            "other" => number(s.kind.into()),
            name => name.to_string(),
        };
        match names {
            Some(_) => drop(write!(out, "    symbol {} {{ kind = {kind}", quoted(s.name))),
            None => drop(write!(out, "    symbol {{ string = {}; kind = {kind}", number(s.string.into()))),
        }
        for (name, value) in [("section", s.section.into()), ("description", s.description.into()), ("value", s.value)]
        {
            if value != 0 {
                let _ = write!(out, "; {name} = {}", number(value));
            }
        }
        out.push_str(" }\n");
    }
    out.push_str("}\n");
}

fn relocations(out: &mut String, hwx: &Hwx, section: &Section, sections: &[Section]) {
    let _ = write!(out, "\nrelocations {:#x} {{", section.relocation_offset);
    let _ = writeln!(out, " // of {},{}", plain(&section.segment), plain(&section.name));
    for Relocation { address, info } in hwx.relocations(section) {
        let relocation = Relocation { address, info };
        let target = (relocation.section() as usize).checked_sub(1).and_then(|i| sections.get(i));
        let target = target.map_or_else(String::new, |s| format!(" of {},{}", plain(&s.segment), plain(&s.name)));
        let length = relocation.length();
        let _ = writeln!(out, "    relocation {address:#x} = {info:#x} // {length} bytes: the address{target}");
    }
    out.push_str("}\n");
}

/// Prints bytes; trailing zeros are omitted because 0 is the default.
fn data(out: &mut String, hwx: &Hwx, range: std::ops::Range<u64>, what: &str) {
    let Some(bytes) = hwx.bytes(range.clone()) else { return };
    let bytes = &bytes[..bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1)];
    if bytes.is_empty() {
        return;
    }
    let what = if what.is_empty() { String::new() } else { format!(" // {}", plain(what)) };
    let _ = writeln!(out, "\nbytes {:#x} {{{what}", range.start);
    let mut zeros = 0;
    for line in bytes.chunks(LINE) {
        if line.iter().all(|b| *b == 0) {
            zeros += line.len();
            continue;
        }
        if zeros > 0 {
            let _ = writeln!(out, "    zeros {zeros:#x}");
            zeros = 0;
        }
        out.push_str("    hex \"");
        for byte in line {
            let _ = write!(out, "{byte:02x}");
        }
        out.push_str("\"\n");
    }
    out.push_str("}\n");
}

fn tasks(out: &mut String, hwx: &Hwx, section: &Section, first: Option<usize>) {
    let range = u64::from(section.offset)..u64::from(section.offset) + section.size;
    let what = section.label();
    let (Some(generation), tasks) = (hwx.generation(), hwx.tasks(section, first)) else {
        return data(out, hwx, range, &what);
    };
    let tasks = match tasks {
        Ok(tasks) => tasks,
        Err(e) => return data(out, hwx, range, &format!("{what}, not decoded: {e}")),
    };
    let bytes = hwx.content(section);
    let mut said = vec![false; bytes.len()];
    let mut text = format!("\ntasks {:#x} {{ // {}\n", section.offset, plain(&what));
    let said_of = crate::describe::report::tasks(hwx, section, &tasks);
    let mut body = String::new();
    let mut end = 0;
    for (i, task) in tasks.iter().enumerate() {
        said[task.offset..task.offset + 4 * task.len()].fill(true);
        one(&mut body, generation, task, tasks.get(i + 1), end, said_of.get(i));
        end = task.offset + 4 * task.len();
    }
    rest(&mut text, "    ", bytes, &said);
    text.push_str(&body);
    text.push_str("}\n");
    // Some sections have no text form, for example if a length covers less than its descriptor has.
    // They are printed as bytes.
    let made = super::read::tasks(&text, generation).filter(|made| {
        let behind = bytes.get(made.len()..);
        bytes.starts_with(made) && behind.is_some_and(|b| b.iter().all(|b| *b == 0))
    });
    match made {
        Some(_) => out.push_str(&text),
        None => data(out, hwx, range, &format!("{what}, which task statements cannot express")),
    }
}

fn one(
    out: &mut String,
    generation: &Generation,
    task: &Task,
    next: Option<&Task>,
    end: usize,
    words: Option<&TaskReport>,
) {
    out.push('\n');
    if let Some(words) = words {
        let _ = writeln!(out, "    // {}", plain(&words.summary));
        for line in crate::describe::prose::lines(words) {
            let _ = writeln!(out, "    //   {}", plain(&line));
        }
    }
    out.push_str("    task");
    if task.offset != natural_offset(generation.record_format, end) {
        let _ = write!(out, " {:#x}", task.offset);
    }
    let _ = writeln!(out, " {{ // at {:#x}, {} words", task.offset, task.len());
    let chained = chained(generation.record_format, task, next);
    for (i, &word) in task.header.iter().enumerate() {
        let Some(register) = generation.header.iter().find(|r| r.address as usize == i) else {
            if word != 0 {
                let _ = writeln!(out, "        head {i} = {}", number(word.into()));
            }
            continue;
        };
        let implied = |f: &Field| {
            let value = chained.iter().find(|(r, n, _)| (*r, *n) == (register.name, f.name));
            value.is_some_and(|(_, _, value)| *value == f.get(word))
        };
        let left = register.fields.iter().filter(|f| !implied(f)).fold(!register.known(), |bits, f| bits | f.mask());
        if word & left != 0 {
            set(out, "        ", register, register.name, word, &implied);
        }
    }
    for record in &task.records {
        let block = generation.block(record.address()).map_or(String::new(), |b| format!(" // {}", b.name));
        let address = record.address();
        let count = record.words().len();
        let _ = match record {
            RegisterRecord::Dense { .. } => writeln!(out, "        dense {address:#x} words {count} {{{block}"),
            RegisterRecord::Masked { .. } => writeln!(out, "        masked {address:#x} {{{block}"),
            RegisterRecord::Address { slot, .. } => {
                writeln!(out, "        address {address:#x} slot {slot} words {count} {{{block}")
            }
        };
        let all = matches!(record, RegisterRecord::Masked { .. });
        for (address, word) in record.registers().filter(|(_, word)| all || *word != 0) {
            match generation
                .register(address)
                .filter(|_| generation.block(address) == generation.block(record.address()))
            {
                Some((register, index)) => set(out, "            ", register, &register.label(index), word, &|_| false),
                None => drop(writeln!(out, "            {address:#x} = {}", number(word.into()))),
            }
        }
        out.push_str("        }\n");
    }
    out.push_str("    }\n");
}

/// Prints a register with its fields.
fn set(out: &mut String, indent: &str, register: &Register, label: &str, word: u32, implied: &dyn Fn(&Field) -> bool) {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for field in register.fields.iter().filter(|f| !implied(f)) {
        parts.push((field.name, value(field, field.get(word))));
    }
    let other = word & !register.known();
    if other != 0 && !register.fields.is_empty() {
        parts.push(("Other", format!("{other:#x}")));
    }
    let _ = match parts.as_slice() {
        [] => writeln!(out, "{indent}{label} = {}", number(word.into())),
        [(name, value)] => writeln!(out, "{indent}{label}.{name} = {value}"),
        parts => {
            let parts: Vec<String> = parts.iter().map(|(n, v)| format!("{n} = {v}")).collect();
            writeln!(out, "{indent}{label} {{ {} }}", parts.join("; "))
        }
    };
}
