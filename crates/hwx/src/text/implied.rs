//! Values that follow from others: sizes, positions of strings, the chain of descriptors, names of
//! symbols. The printer omits them and the assembler derives them.

use crate::container::{Command, CommandKind, SECTION, SECTIONS, StringPlace, SymbolTable};
use crate::registers::RecordFormat;
use crate::task::{self, Task};

/// The byte where the strings with an offset begin in a command.
pub(crate) fn strings_begin(command: &Command) -> usize {
    match command.kind() {
        CommandKind::Program1 | CommandKind::Program4 | CommandKind::Tensor => command.state_end(),
        kind => kind.layout().least,
    }
}

/// The size of a command without an explicit size.
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

/// The offset of a task without an explicit one, after a task that ends at `end`.
pub(crate) fn natural_offset(stream: RecordFormat, end: usize) -> usize {
    match stream {
        // The first descriptor follows the frame of 16 bytes.
        RecordFormat::WordAddressed => end.max(1).next_multiple_of(task::ALIGN),
        _ => end.next_multiple_of(0x100),
    }
}

/// The header fields that follow from the positions of tasks.
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

/// True if the strings are a zero byte followed by the names of the symbols in order.
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
