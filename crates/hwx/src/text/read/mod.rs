//! Assembles the text form of a file.

mod commands;
mod tasks;

use std::ops::Range;

use ferrane_diag::{Code, Diagnostic, Diagnostics, Span, nearest};

use super::tree::{self, Item, Value};

use crate::container::{CPU, Command, HEADER, Hwx, MAGIC, Symbol};
use crate::registers::{self, Generation};

/// An assembled file is at most this many bytes longer than its text, so a short text cannot
/// exhaust memory.
const LONGEST: u64 = 256 << 20;

/// Assembles the file that a text describes.
///
/// # Errors
/// All defects of the text (E071x), each with its span.
pub(super) fn file(text: &str) -> Result<Hwx, Diagnostics> {
    let mut problems = Diagnostics::new();
    let items = tree::parse(text, &mut problems);
    let mut made = Assembler::new(text, problems);
    let hwx = made.file(&items);
    let mut problems = made.problems;
    problems.sort();
    match hwx {
        Some(hwx) if !problems.has_errors() => match Hwx::read(&hwx.write()) {
            Ok(hwx) => Ok(hwx),
            Err(e) => {
                Err(Diagnostic::error(Code(713), None, format!("the assembled file cannot be read back: {e}")).into())
            }
        },
        _ => Err(problems),
    }
}

/// Assembles the only statement of a text, if it has no errors. The printer uses it to check its
/// output.
fn alone<T>(text: &str, make: impl FnOnce(&mut Assembler, &Item) -> Option<T>) -> Option<T> {
    let mut problems = Diagnostics::new();
    let items = tree::parse(text, &mut problems);
    let mut to = Assembler::new(text, problems);
    let [item] = items.as_slice() else { return None };
    make(&mut to, item).filter(|_| to.problems.is_empty())
}

/// Assembles a text that consists of one load command.
pub(in crate::text) fn command(text: &str) -> Option<Command> {
    alone(text, |to, item| match item.words.first() {
        Some((Value::Word(word), _)) => commands::assemble(to, item, commands::kind(word)?),
        _ => None,
    })
}

/// Assembles the contents of `tasks … { … }`, up to the last explicit byte.
pub(in crate::text) fn tasks(text: &str, generation: &'static Generation) -> Option<Vec<u8>> {
    alone(text, |to, item| to.tasks(item, Some(generation)).map(|content| content.bytes))
}

struct Assembler {
    problems: Diagnostics,
    /// The ranges of the file that are filled, with the spans that filled them.
    taken: Vec<(Range<u64>, Span)>,
    /// The size limit of the file in bytes.
    longest: u64,
    /// The bytes left for commands and contents.
    room: u64,
}

/// A range of the file and the bytes collected for it.
struct Content {
    start: u64,
    bytes: Vec<u8>,
    span: Span,
}

impl Assembler {
    fn new(text: &str, problems: Diagnostics) -> Assembler {
        let longest = LONGEST + text.len() as u64;
        Assembler { problems, taken: Vec::new(), longest, room: longest }
    }

    fn error(&mut self, code: u16, span: Span, message: impl Into<String>) {
        self.problems.push(Diagnostic::error(Code(code), span, message));
    }

    fn syntax(&mut self, span: Span, message: impl Into<String>) {
        self.problems.push(Diagnostic::error(Code(710), span, message));
    }

    /// Reports a name that is not one of the known ones.
    fn unknown<'a>(&mut self, what: &str, name: &str, span: Span, known: impl IntoIterator<Item = &'a str>) {
        let mut error = Diagnostic::error(Code(711), span, format!("no {what} `{name}` here"));
        if let Some(near) = nearest(name, known) {
            error = error.note(None, format!("there is `{near}`"));
        }
        self.problems.push(error);
    }

    fn misfit(&mut self, span: Span, message: impl Into<String>) {
        self.problems.push(Diagnostic::error(Code(712), span, message));
    }

    /// Takes `bytes` from the remaining room; false if there is not enough.
    fn take(&mut self, bytes: u64, span: Span) -> bool {
        match self.room.checked_sub(bytes) {
            Some(room) => self.room = room,
            None => {
                let message =
                    format!("with this the file exceeds the size limit for this text, {:#x} bytes", self.longest);
                self.error(713, span, message);
                return false;
            }
        }
        true
    }

    /// The one number after the `=`.
    fn number(&mut self, item: &Item) -> Option<u64> {
        match item.values.as_slice() {
            [(Value::Number(n), _)] => Some(*n),
            [] => {
                self.syntax(item.span, "a number is missing: `name = 1`");
                None
            }
            [(_, span), ..] => {
                self.syntax(*span, "expected one whole number");
                None
            }
        }
    }

    fn number32(&mut self, item: &Item) -> Option<u32> {
        let n = self.number(item)?;
        let small = u32::try_from(n).ok();
        if small.is_none() {
            self.misfit(item.span, format!("{n:#x} does not fit into 32 bits"));
        }
        small
    }

    fn file(&mut self, items: &[Item]) -> Option<Hwx> {
        let mut hwx = Hwx {
            magic: MAGIC,
            cputype: CPU,
            subtype: 0,
            filetype: 2,
            flags: 0x20_0000,
            reserved: 0,
            commands_size: 0,
            commands: Vec::new(),
            body: Vec::new(),
        };
        let (head, rest) = match items.split_first() {
            Some((first, rest)) if matches!(first.words.as_slice(), [(Value::Word(w), _)] if w == "hwx") => {
                (first, rest)
            }
            _ => {
                let span = items.first().map_or(Span::new(0, 0), |i| i.span);
                self.syntax(span, "a text begins with `hwx { … }`");
                return None;
            }
        };
        let (size, commands_size) = self.header(&mut hwx, head);
        let generation = hwx.generation();
        let mut contents: Vec<Content> = Vec::new();
        for item in rest {
            if self.problems.is_full() {
                return None;
            }
            let Some((Value::Word(word), span)) = item.words.first() else {
                self.syntax(item.span, "a statement begins with a word");
                continue;
            };
            match word.as_str() {
                "symbols" => contents.extend(self.symbols(item).into_iter().flatten()),
                "relocations" => contents.extend(self.relocations(item)),
                "bytes" => contents.extend(self.bytes(item)),
                "tasks" => contents.extend(self.tasks(item, generation)),
                _ => match commands::kind(word) {
                    Some(kind) => hwx.commands.extend(self.command(item, kind)),
                    None => {
                        let others = ["symbols", "relocations", "bytes", "tasks", "command"];
                        let (word, span) = (word.clone(), *span);
                        self.unknown("statement", &word, span, commands::words().chain(others));
                    }
                },
            }
        }
        let begin = hwx.body_offset();
        hwx.commands_size = commands_size.unwrap_or((begin - HEADER) as u32);
        let end = contents.iter().map(|c| c.start.saturating_add(c.bytes.len() as u64)).max().unwrap_or(0);
        let size = size.unwrap_or(end).max(begin as u64);
        if size > LONGEST || end > size {
            let message =
                format!("the contents reach to {end:#x}, and the file's size is {size:#x}, at most {LONGEST:#x}");
            self.error(713, head.span, message);
            return None;
        }
        hwx.body = vec![0; size as usize - begin];
        for content in contents {
            let range = content.start..content.start + content.bytes.len() as u64;
            if range.start < begin as u64 {
                let message = format!("offset {:#x} lies in the load commands, which end at {begin:#x}", range.start);
                self.error(713, content.span, message);
                continue;
            }
            self.taken.push((range.clone(), content.span));
            if let Some(place) = hwx.bytes_mut(range) {
                place.copy_from_slice(&content.bytes);
            }
        }
        self.taken.sort_by_key(|(range, _)| (range.start, range.end));
        let clash =
            |pair: &[(Range<u64>, Span)]| (pair[1].0.start < pair[0].0.end).then(|| (pair[1].1, pair[0].0.clone()));
        let clashes: Vec<_> = self.taken.windows(2).filter_map(clash).collect();
        for (span, other) in clashes {
            self.error(713, span, format!("this overlaps the bytes from {:#x} to {:#x}", other.start, other.end));
        }
        Some(hwx)
    }

    /// Assembles the header; the result is the size of the file and of the commands, if given.
    fn header(&mut self, hwx: &mut Hwx, head: &Item) -> (Option<u64>, Option<u32>) {
        let (mut size, mut commands_size, mut subtype) = (None, None, None);
        for item in head.block.iter().flatten() {
            let [(Value::Word(name), span)] = item.words.as_slice() else {
                self.syntax(item.span, "a line of the header is `name = number`");
                continue;
            };
            if let ("subtype", [(Value::Word(word), at)]) = (name.as_str(), item.values.as_slice()) {
                match registers::by_name(word) {
                    Some(generation) => subtype = Some(generation.subtype),
                    None => self.unknown("generation", word, *at, registers::generations().iter().map(|g| g.name)),
                }
                continue;
            }
            if name == "size" {
                size = self.number(item);
                continue;
            }
            let slot = match name.as_str() {
                "magic" => &mut hwx.magic,
                "cputype" => &mut hwx.cputype,
                "subtype" => subtype.insert(0),
                "filetype" => &mut hwx.filetype,
                "flags" => &mut hwx.flags,
                "reserved" => &mut hwx.reserved,
                "commands_size" => commands_size.insert(0),
                _ => {
                    let known =
                        ["magic", "cputype", "subtype", "filetype", "flags", "reserved", "commands_size", "size"];
                    self.unknown("field of the header", name, *span, known);
                    continue;
                }
            };
            *slot = self.number32(item).unwrap_or(0);
        }
        match subtype {
            Some(subtype) => hwx.subtype = subtype,
            None => self.syntax(head.span, "the header has no `subtype`"),
        }
        (size, commands_size)
    }

    /// Parses `WORD OFFSET [name OFFSET]…`: the offsets, the first without a name.
    fn places(&mut self, item: &Item, names: &[&str]) -> Option<(u64, Vec<Option<u64>>)> {
        let mut found = vec![None; names.len()];
        let mut words = item.words.iter().skip(1);
        let Some((Value::Number(first), _)) = words.next() else {
            self.syntax(item.span, "expected an offset in the file after the word");
            return None;
        };
        while let Some((word, span)) = words.next() {
            let at = names.iter().position(|n| matches!(word, Value::Word(w) if w == n));
            match (at, words.next()) {
                (Some(at), Some((Value::Number(n), _))) => found[at] = Some(*n),
                _ => self.syntax(*span, format!("expected an offset, and {names:?} each with a number")),
            }
        }
        Some((*first, found))
    }

    fn symbols(&mut self, item: &Item) -> Option<Vec<Content>> {
        let (start, places) = self.places(item, &["strings"])?;
        let strings_at = places[0];
        let (mut entries, mut strings) = (Vec::new(), vec![0]);
        for item in item.block.iter().flatten() {
            let name: &[u8] = match item.words.as_slice() {
                [(Value::Word(w), _)] if w == "symbol" => &[],
                [(Value::Word(w), _), (Value::Text(name), _)] if w == "symbol" => name,
                _ => {
                    self.syntax(item.span, "a symbol is `symbol \"name\" { … }`");
                    continue;
                }
            };
            let mut entry = [0u8; Symbol::SIZE];
            entry[..4].copy_from_slice(&(strings.len() as u32).to_le_bytes());
            strings.extend_from_slice(name);
            strings.push(0);
            for field in item.block.iter().flatten() {
                let [(Value::Word(name), span)] = field.words.as_slice() else {
                    self.syntax(field.span, "a line of a symbol is `name = number`");
                    continue;
                };
                let (name, span) = (name.clone(), *span);
                let kind = match (name.as_str(), field.values.as_slice()) {
                    ("kind", [(Value::Word(word), _)]) => commands::symbol_kind(word),
                    _ => None,
                };
                let Some(value) = kind.map(u64::from).or_else(|| self.number(field)) else { continue };
                let (at, width) = match name.as_str() {
                    "string" => (0, 4),
                    "kind" => (4, 1),
                    "section" => (5, 1),
                    "description" => (6, 2),
                    "value" => (8, 8),
                    _ => {
                        self.unknown(
                            "field of a symbol",
                            &name,
                            span,
                            ["string", "kind", "section", "description", "value"],
                        );
                        continue;
                    }
                };
                if width < 8 && value >> (8 * width) != 0 {
                    self.misfit(field.span, format!("{value:#x} does not fit into {width} bytes"));
                    continue;
                }
                entry[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            entries.extend_from_slice(&entry);
        }
        let span = item.span;
        let mut made = vec![Content { start, bytes: entries, span }];
        made.extend(strings_at.map(|start| Content { start, bytes: strings, span }));
        Some(made)
    }

    fn relocations(&mut self, item: &Item) -> Option<Content> {
        let (start, _) = self.places(item, &[])?;
        let mut bytes = Vec::new();
        for item in item.block.iter().flatten() {
            let address = match item.words.as_slice() {
                [(Value::Word(w), _), (Value::Number(n), _)] if w == "relocation" => u32::try_from(*n).ok(),
                _ => None,
            };
            let Some(address) = address else {
                self.syntax(item.span, "a relocation is `relocation 0x74 = 0x5000002`");
                continue;
            };
            let info = self.number32(item).unwrap_or(0);
            bytes.extend(address.to_le_bytes().into_iter().chain(info.to_le_bytes()));
        }
        Some(Content { start, bytes, span: item.span })
    }

    fn bytes(&mut self, item: &Item) -> Option<Content> {
        let (start, _) = self.places(item, &[])?;
        let mut bytes = Vec::new();
        for item in item.block.iter().flatten() {
            match item.words.as_slice() {
                [(Value::Word(w), _), (Value::Text(hex), span)] if w == "hex" => {
                    let digit = |b: &u8| (*b as char).to_digit(16).map(|d| d as u8);
                    let digits: Option<Vec<u8>> = hex.iter().map(digit).collect();
                    match digits.filter(|d| d.len().is_multiple_of(2)) {
                        Some(digits) => bytes.extend(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1])),
                        None => self.syntax(*span, "`hex` is followed by pairs of hexadecimal digits"),
                    }
                }
                [(Value::Word(w), _), (Value::Number(n), span)] if w == "zeros" => {
                    if !self.take(*n, *span) {
                        return None;
                    }
                    bytes.resize(bytes.len() + *n as usize, 0);
                }
                _ => self.syntax(item.span, "bytes are `hex \"0011\"` and `zeros 16`"),
            }
        }
        Some(Content { start, bytes, span: item.span })
    }

    fn tasks(&mut self, item: &Item, generation: Option<&'static Generation>) -> Option<Content> {
        let (start, _) = self.places(item, &[])?;
        let Some(generation) = generation else {
            self.misfit(item.span, "the descriptor encoding of the header's generation is not known");
            return None;
        };
        let bytes = tasks::section(self, item.block.as_deref().unwrap_or(&[]), generation);
        Some(Content { start, bytes, span: item.span })
    }

    fn command(&mut self, item: &Item, kind: crate::container::CommandKind) -> Option<Command> {
        commands::assemble(self, item, kind)
    }
}
