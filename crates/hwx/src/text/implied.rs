//! What a text may leave out because it follows from the rest: sizes, places of strings, the chain
//! of descriptors, names of symbols. The printer leaves it out, the reader fills it in.

use crate::container::{Command, CommandKind, SECTION, SECTIONS, StringPlace, SymbolTable};
use crate::registers::RecordFormat;
use crate::task::{self, Task};

/// Where the strings of a command begin that have an offset.
pub(crate) fn strings_begin(command: &Command) -> usize {
    match command.kind() {
        CommandKind::Program1 | CommandKind::Program4 | CommandKind::Tensor => command.state_end(),
        kind => kind.layout().least,
    }
}

/// The size that a command has if nothing is said of it.
pub(crate) fn natural_size(command: &Command) -> usize {
    let kind = command.kind();
    let mut end = strings_begin(command);
    if kind == CommandKind::Segment {
        end = SECTIONS + SECTION * command.get("nsects") as usize;
    }
    for text in kind.layout().texts {
        if let (Some((at, bytes)), false) =
            (command.text_at(&text.place), matches!(text.place, StringPlace::Fixed16(_)))
        {
            end = end.max(at + bytes.len() + 1);
        }
    }
    end.saturating_add(7) & !7
}

/// Where a task begins that follows one which ends at `end`, if nothing else is said.
pub(crate) fn natural_offset(stream: RecordFormat, end: usize) -> usize {
    match stream {
        // The frame of 16 bytes comes before the first.
        RecordFormat::WordAddressed => end.max(1).next_multiple_of(task::ALIGN),
        _ => end.next_multiple_of(0x100),
    }
}

/// The header's fields that follow from where tasks lie.
pub(crate) fn chained(
    stream: RecordFormat,
    task: &Task,
    next: Option<&Task>,
) -> Vec<(&'static str, &'static str, u32)> {
    match stream {
        RecordFormat::WordAddressed => vec![("Identity", "Words", task.len() as u32)],
        _ => vec![
            ("Size", "NextSize", next.map_or(0, |n| (n.len() as u32).saturating_sub(1))),
            ("Next", "NextPointer", next.map_or(0, |n| n.offset as u32)),
        ],
    }
}

/// True if the names are a zero byte and then those of the symbols in their order.
pub(super) fn names_follow(table: &SymbolTable<'_>, strings: &[u8]) -> bool {
    let mut at = 1;
    for symbol in &table.symbols {
        let end = at + symbol.name.len();
        if symbol.string as usize != at || strings.get(end) != Some(&0) {
            return false;
        }
        at = end + 1;
    }
    strings.first() == Some(&0) && at == strings.len()
}
