//! Assembles load commands.

use super::super::implied::strings_begin;
use super::super::tree::{Item, Value};
use super::Assembler;
use crate::container::{Command, CommandKind, SECTION, SECTION_SLOTS, SECTIONS, StringPlace};

/// The size limit of a command in bytes; the rest of a file's limit is for its contents.
const LARGEST: u64 = 1 << 24;

/// The kind of command with this keyword.
pub(super) fn kind(word: &str) -> Option<CommandKind> {
    CommandKind::ALL.into_iter().find(|k| k.word() == word)
}

/// The keywords of all kinds.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    CommandKind::ALL.into_iter().map(CommandKind::word)
}

/// The number for the name of a symbol's type.
pub(super) fn symbol_kind(word: &str) -> Option<u8> {
    Some(match word {
        "defined" => 0x0f,
        "type" => 0x80,
        "tensor" => 0x20,
        "debug" => 0x0e,
        _ => return None,
    })
}

/// The number after the keyword of a statement, as in `bar 5` and `word 0x850`.
fn index(item: &Item) -> Option<usize> {
    match item.words.as_slice() {
        [_, (Value::Number(n), _)] => usize::try_from(*n).ok(),
        _ => None,
    }
}

fn first(item: &Item) -> &str {
    match item.words.first() {
        Some((Value::Word(word), _)) => word,
        _ => "",
    }
}

/// The size that the statements of a command require, and the byte where its state ends.
fn size(to: &mut Assembler, item: &Item, kind: CommandKind) -> (usize, usize) {
    let layout = kind.layout();
    let block = || item.block.iter().flatten();
    let mut state = layout.least;
    let mut said = None;
    for line in block() {
        let word = first(line);
        if ["count", "command_size"].contains(&word) && to.number(line).is_some_and(|n| n > LARGEST) {
            to.misfit(line.span, format!("a command has at most {LARGEST:#x} bytes"));
        }
        match word {
            "count" if layout.slots.iter().any(|s| s.name == "count") => {
                let words = to.number(line).unwrap_or(0).min(LARGEST);
                state = state.max(16 + 4 * words as usize);
            }
            "command_size" => said = to.number(line).map(|n| n.min(LARGEST) as usize),
            _ => {}
        }
    }
    if kind == CommandKind::Segment {
        state = SECTIONS + SECTION * block().filter(|line| first(line) == "section").count();
    }
    let mut next = state;
    let mut end = state;
    for text in layout.texts {
        let line = block().find(|line| first(line) == text.name);
        let Some([(Value::Text(bytes), _), rest @ ..]) = line.map(|l| l.values.as_slice()) else { continue };
        let at = match (&text.place, rest) {
            (StringPlace::Fixed16(_), _) => continue,
            (StringPlace::At(at), _) => *at,
            (StringPlace::Offset(_), [_, (Value::Number(at), _)]) => (*at).min(LARGEST) as usize,
            (StringPlace::Offset(_), _) => next,
        };
        next = at + bytes.len() + 1;
        end = end.max(next);
    }
    (said.unwrap_or(end.saturating_add(7) & !7), state)
}

/// Assembles a command of the given kind from its statement.
pub(super) fn assemble(to: &mut Assembler, item: &Item, kind: CommandKind) -> Option<Command> {
    let (size, state) = size(to, item, kind);
    if !to.take(size as u64, item.span) {
        return None;
    }
    let made = match (kind, item.words.as_slice()) {
        (CommandKind::Other, [_, (Value::Number(cmd), _)]) => {
            u32::try_from(*cmd).ok().and_then(|cmd| Command::other(cmd, size))
        }
        (CommandKind::Other, _) => {
            to.syntax(item.span, "a command without a name has its number: `command 0x77 { … }`");
            return None;
        }
        (_, [_]) => Command::new(kind, size),
        _ => {
            to.syntax(item.span, format!("`{}` is followed by its block", kind.word()));
            return None;
        }
    };
    let Some(mut command) = made else {
        to.misfit(item.span, format!("a {} command cannot have {size:#x} bytes", kind.word()));
        return None;
    };
    if let Some((_, Some(_))) = kind.number() {
        command.set("count", (state.saturating_sub(16) / 4) as u64);
    }
    let mut strings = None;
    let (mut sections, mut tags) = (0, 0);
    // Numbers first: the positions of strings depend on the length of the state.
    for line in item.block.iter().flatten().filter(|l| first(l) != "command_size") {
        let word = first(line);
        let done = match word {
            _ if kind.layout().texts.iter().any(|t| t.name == word) => continue,
            "section" if kind == CommandKind::Segment => {
                sections += 1;
                section(to, &mut command, line, sections - 1);
                continue;
            }
            "word" | "byte" => {
                let width = if word == "word" { 4 } else { 1 };
                let value = to.number(line).unwrap_or(0);
                index(line).filter(|at| *at >= 8).and_then(|at| command.put(at, width, value))
            }
            "bar" => {
                let value = to.number(line).unwrap_or(0);
                let at = index(line).and_then(|i| u32::try_from(i).ok()).and_then(|i| command.bar_at(i));
                at.and_then(|at| command.put(at, 8, value))
            }
            "tag" => {
                let value = to.number(line).unwrap_or(0);
                tags += 1;
                tag(&mut command, tags, index(line), value)
            }
            _ => {
                let slots = kind.layout().slots;
                if line.words.len() != 1 || !slots.iter().any(|s| s.name == word) || word == "nsects" {
                    let known = slots.iter().map(|s| s.name).filter(|n| *n != "nsects");
                    let others = ["word", "byte", "section", "bar", "tag", "command_size"];
                    let known = known.chain(kind.layout().texts.iter().map(|t| t.name)).chain(others);
                    to.unknown(&format!("field of a {} command", kind.word()), word, line.span, known);
                    continue;
                }
                let value = to.number(line).unwrap_or(0);
                command.set(word, value)
            }
        };
        if done.is_none() {
            to.misfit(line.span, "the command has no room for this, or the number does not fit");
        }
    }
    if kind == CommandKind::Segment {
        command.set("nsects", sections as u64);
    }
    // In the order of the layout, which is the order of the bytes.
    for text in kind.layout().texts {
        let Some(line) = item.block.iter().flatten().find(|line| first(line) == text.name) else { continue };
        let (bytes, at) = match line.values.as_slice() {
            [(Value::Text(bytes), _)] => (bytes, None),
            [(Value::Text(bytes), _), (Value::Word(w), _), (Value::Number(at), _)] if w == "at" => {
                (bytes, Some((*at).min(LARGEST) as usize))
            }
            _ => {
                to.syntax(line.span, "a string is quoted, with `at` and its offset where that is not the default");
                continue;
            }
        };
        let natural = match text.place {
            StringPlace::Fixed16(at) | StringPlace::At(at) => at,
            StringPlace::Offset(_) => strings.unwrap_or_else(|| strings_begin(&command)),
        };
        let at = at.unwrap_or(natural);
        if command.put_text(&text.place, at, bytes).is_none() {
            to.misfit(line.span, "the command has no room for the string");
        }
        if matches!(text.place, StringPlace::Offset(_)) {
            strings = Some(at + bytes.len() + 1);
        }
    }
    Some(command)
}

fn tag(command: &mut Command, count: usize, kind: Option<usize>, value: u64) -> Option<()> {
    let base = command.tags_at()?;
    let at = base + 8 + 16 * (count - 1);
    if at + 16 > command.state_end() {
        return None;
    }
    command.put(base, 4, count as u64)?;
    command.put(at, 4, kind? as u64)?;
    command.put(at + 4, 4, 8)?;
    command.put(at + 8, 8, value)
}

fn section(to: &mut Assembler, command: &mut Command, item: &Item, number: usize) {
    let [_, (Value::Text(name), _), (Value::Text(segment), _)] = item.words.as_slice() else {
        to.syntax(item.span, "a section is `section \"__text\" \"__TEXT\" { … }`");
        return;
    };
    let base = SECTIONS + SECTION * number;
    for (at, name) in [(base, name), (base + 16, segment)] {
        if command.put_text(&StringPlace::Fixed16(at), at, name).is_none() {
            to.misfit(item.span, "a name has at most sixteen bytes");
        }
    }
    for line in item.block.iter().flatten() {
        let word = first(line);
        if line.words.len() != 1 || !SECTION_SLOTS.iter().any(|s| s.name == word) {
            to.unknown("field of a section", word, line.span, SECTION_SLOTS.iter().map(|s| s.name));
            continue;
        }
        let value = to.number(line).unwrap_or(0);
        if command.set_section(number, word, value).is_none() {
            to.misfit(line.span, format!("{value:#x} does not fit"));
        }
    }
}
