//! A load command: its bytes and access to its fields.

use super::layout::{BARS, CommandKind, NumberField, SECTION, SECTION_SLOTS, SECTIONS, STATE, StringPlace};
use crate::error::{Error, Result};

/// A load command. The bytes are kept unchanged; fields are read from and written into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    bytes: Vec<u8>,
}

/// A tag with an eight-byte value at the end of a program's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its meaning: 2 is the size of the scratch memory, 7 the longest time of a task (a float).
    pub kind: u32,
    /// The size of its value in bytes; 8 in all samples.
    pub length: u32,
    /// The value; its encoding depends on `kind`.
    pub value: u64,
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

fn put(bytes: &mut [u8], at: usize, width: usize, value: u64) -> Option<()> {
    if width < 8 && value >> (8 * width) != 0 {
        return None;
    }
    bytes.get_mut(at..at.checked_add(width)?)?.copy_from_slice(&value.to_le_bytes()[..width]);
    Some(())
}

/// The field with this name, if there is one.
fn slot<'a>(slots: &'a [NumberField], name: &str) -> Option<&'a NumberField> {
    slots.iter().find(|s| s.name == name)
}

impl Command {
    /// Reads the command at `offset` of a file whose commands end at `end`.
    pub(crate) fn read(file: &[u8], offset: usize, end: usize) -> Result<Command> {
        let file = &file[..end];
        let (Some(cmd), Some(size)) = (number(file, offset, 4), number(file, offset + 4, 4)) else {
            return Err(Error::command(offset, "the load commands end before their number is reached"));
        };
        let bytes = usize::try_from(size).ok().and_then(|size| file.get(offset..offset.checked_add(size)?));
        let Some(bytes) = bytes.filter(|b| b.len() >= 8 && b.len().is_multiple_of(4)) else {
            return Err(Error::command(offset, format!("load command {cmd:#x} cannot have {size:#x} bytes here")));
        };
        let command = Command { bytes: bytes.to_vec() };
        command.check().map_err(|what| Error::command(offset, what))?;
        Ok(command)
    }

    /// A command of `size` bytes that is zero except for its number, size and flavor. `None` for
    /// [`CommandKind::Other`], which has no number, and if the kind does not fit into `size` bytes.
    pub fn new(kind: CommandKind, size: usize) -> Option<Command> {
        let (cmd, flavor) = kind.number()?;
        let mut command = Command::other(cmd, size).filter(|_| size >= kind.layout().least)?;
        if let Some(flavor) = flavor {
            command.put(8, 4, flavor.into())?;
            command.put(12, 4, (size.saturating_sub(STATE) / 4) as u64)?;
        }
        if kind == CommandKind::Tensor {
            command.put(STATE, 4, 3)?;
        }
        Some(command)
    }

    /// A command with any number, otherwise zero. `None` if `size` is not a valid command size.
    pub fn other(cmd: u32, size: usize) -> Option<Command> {
        if size < 8 || !size.is_multiple_of(4) || size > u32::MAX as usize {
            return None;
        }
        let mut command = Command { bytes: vec![0; size] };
        command.put(0, 4, cmd.into())?;
        command.put(4, 4, size as u64)?;
        Some(command)
    }

    /// All bytes of the command, including number and size.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The command number (`cmd`).
    pub fn cmd(&self) -> u32 {
        self.at(0, 4) as u32
    }

    /// The kind, from the number and the flavor.
    pub fn kind(&self) -> CommandKind {
        CommandKind::of(self.cmd(), number(&self.bytes, 8, 4).map(|n| n as u32))
    }

    /// The number of `width` bytes at byte `at`, or 0 if it lies outside of the command.
    pub fn at(&self, at: usize, width: usize) -> u64 {
        number(&self.bytes, at, width).unwrap_or(0)
    }

    /// Sets the number of `width` bytes at byte `at`. `None` if it does not fit or would change the
    /// size of the command.
    pub fn put(&mut self, at: usize, width: usize, value: u64) -> Option<()> {
        let size = self.bytes.len() as u64;
        put(&mut self.bytes, at, width, value)?;
        if self.at(4, 4) != size {
            put(&mut self.bytes, 4, 4, size)?;
        }
        Some(())
    }

    /// The value of a field, or 0 if this kind of command does not have it.
    pub fn get(&self, name: &str) -> u64 {
        slot(self.kind().layout().slots, name).map_or(0, |s| self.at(s.at, s.width))
    }

    /// Sets a field. `None` if this kind of command does not have it or the value does not fit.
    pub fn set(&mut self, name: &str, value: u64) -> Option<()> {
        let slot = slot(self.kind().layout().slots, name)?;
        self.put(slot.at, slot.width, value)
    }

    /// The value of a field of a segment's section, or 0 if there is none.
    pub fn section(&self, index: usize, name: &str) -> u64 {
        slot(SECTION_SLOTS, name).map_or(0, |s| self.at(SECTIONS + SECTION * index + s.at, s.width))
    }

    /// Sets a field of a segment's section. `None` if there is none or the value does not fit.
    pub fn set_section(&mut self, index: usize, name: &str, value: u64) -> Option<()> {
        let slot = slot(SECTION_SLOTS, name)?;
        self.put(SECTIONS + SECTION * index + slot.at, slot.width, value)
    }

    /// The bytes of a string, without its terminator; empty if there is none.
    pub fn text(&self, name: &str) -> &[u8] {
        let text = self.kind().layout().texts.iter().find(|t| t.name == name);
        text.and_then(|t| self.text_at(&t.place)).map_or(&[], |(_, bytes)| bytes)
    }

    /// The string as text for messages.
    pub fn name(&self, name: &str) -> String {
        String::from_utf8_lossy(self.text(name)).into_owned()
    }

    /// The sixteen-byte name at `at`, without trailing zeros.
    pub fn name16(&self, at: usize) -> &[u8] {
        let bytes = self.bytes.get(at..at.saturating_add(16)).unwrap_or(&[]);
        &bytes[..bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1)]
    }

    /// The offset of a string and its bytes. `None` if it lies outside of the command.
    pub(crate) fn text_at(&self, place: &StringPlace) -> Option<(usize, &[u8])> {
        let start = match *place {
            StringPlace::Fixed16(at) => return Some((at, self.name16(at))),
            StringPlace::At(at) => at,
            StringPlace::Offset(at) => usize::try_from(self.at(at, 4)).ok()?,
        };
        let rest = self.bytes.get(start..)?;
        let end = rest.iter().position(|b| *b == 0)?;
        Some((start, &rest[..end]))
    }

    /// Writes a string and, if its place has one, its offset. `None` if it does not fit.
    pub(crate) fn put_text(&mut self, place: &StringPlace, at: usize, text: &[u8]) -> Option<()> {
        let (start, room) = match *place {
            StringPlace::Fixed16(at) => (at, 16),
            _ => (at, usize::MAX),
        };
        if text.len() > room {
            return None;
        }
        if let StringPlace::Offset(slot) = *place {
            self.put(slot, 4, start as u64)?;
        }
        self.bytes.get_mut(start..start.checked_add(text.len())?)?.copy_from_slice(text);
        Some(())
    }

    /// The nonzero base addresses of a program with their indices. With flavor 4, whose indices
    /// count 32-bit slots, the indices are even.
    pub fn bars(&self) -> Vec<(u32, u64)> {
        let step = match self.kind() {
            CommandKind::Program1 => 1,
            CommandKind::Program4 => 2,
            _ => return Vec::new(),
        };
        let all = (0..BARS).map(|i| (i as u32 * step, self.at(STATE + 8 * i, 8)));
        all.filter(|(_, address)| *address != 0).collect()
    }

    /// The byte of the base address with this index.
    pub(crate) fn bar_at(&self, index: u32) -> Option<usize> {
        let entry = match self.kind() {
            CommandKind::Program1 => index,
            CommandKind::Program4 if index.is_multiple_of(2) => index / 2,
            _ => return None,
        };
        (entry < BARS as u32).then_some(STATE + 8 * entry as usize)
    }

    /// The byte where the tags of a program begin: their number, followed by 16 bytes each.
    pub(crate) fn tags_at(&self) -> Option<usize> {
        let at = match self.kind() {
            CommandKind::Program1 => STATE + 0x850,
            CommandKind::Program4 => STATE + 0x860,
            _ => return None,
        };
        // In files of old compilers the state ends before the number of tags.
        (at + 8 <= self.state_end()).then_some(at)
    }

    /// The tags of a program; empty if their number disagrees with the length of the state.
    pub fn tags(&self) -> Vec<Tag> {
        let Some(at) = self.tags_at() else { return Vec::new() };
        let count = self.at(at, 4) as usize;
        if count > (self.state_end() - at - 8) / 16 {
            return Vec::new();
        }
        let tag = |i: usize| {
            let at = at + 8 + 16 * i;
            Tag { kind: self.at(at, 4) as u32, length: self.at(at + 4, 4) as u32, value: self.at(at + 8, 8) }
        };
        (0..count).map(tag).collect()
    }

    /// The byte where the state of a thread ends and its strings begin.
    pub(crate) fn state_end(&self) -> usize {
        usize::try_from(self.at(12, 4)).map_or(usize::MAX, |words| words.saturating_mul(4).saturating_add(STATE))
    }

    /// Checks the command against its layout.
    fn check(&self) -> Result<(), String> {
        let kind = self.kind();
        let (layout, size) = (kind.layout(), self.bytes.len());
        if size < layout.least {
            return Err(format!("a {} command has at least {:#x} bytes, not {size:#x}", layout.word, layout.least));
        }
        if matches!(kind, CommandKind::Program1 | CommandKind::Program4 | CommandKind::Tensor)
            && self.state_end() > size
        {
            return Err(format!("a thread's state of {:#x} words is longer than its command", self.at(12, 4)));
        }
        if kind == CommandKind::Segment && self.get("nsects") > ((size - SECTIONS) / SECTION) as u64 {
            return Err(format!("a segment of {:#x} sections is longer than its command", self.get("nsects")));
        }
        for text in layout.texts.iter().filter(|t| matches!(t.place, StringPlace::Offset(_))) {
            if self.text_at(&text.place).is_none() {
                return Err(format!("the {} of a {} command does not lie in it or has no end", text.name, layout.word));
            }
        }
        Ok(())
    }
}
