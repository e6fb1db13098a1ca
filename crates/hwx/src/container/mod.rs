//! The container: header, load commands, and the contents they refer to.
//!
//! A [`Hwx`] holds the header's numbers, the commands as bytes ([`Command`]) and the rest of the
//! file as one run of bytes. Segments, symbols, relocations and bindings are views, computed on
//! request.
//!
//! [`Hwx::read`] checks what all views rely on: the sizes of commands, that each range that a
//! command names lies in the file after the commands, and that no two ranges overlap.

mod bind;
mod command;
mod layout;
mod symbols;
mod view;

use std::ops::Range;

pub use bind::{Bar, BarUse, Bindings, Direction, PortBinding};
pub use command::{Command, Tag};
pub use layout::CommandKind;
pub(crate) use layout::{SECTION, SECTION_SLOTS, SECTIONS, STATE, StringPlace};
pub use symbols::{Relocation, Symbol, SymbolTable};
pub use view::{ProgramView, Section, Segment, TensorView};

use crate::error::{Error, Result};
use crate::registers::{self, Generation};

/// The compiler's magic number.
pub const MAGIC: u32 = 0xbeef_face;
/// The magic number with the compiler option `UseNewMachoMagicNumber`: that of 64-bit Mach-O.
pub const MAGIC_MACHO: u32 = 0xfeed_facf;
/// The `cputype` of the engine.
pub const CPU: u32 = 0x80;
/// The size of the header in bytes.
pub const HEADER: usize = 32;

/// A compiled program: a complete `.hwx` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hwx {
    /// The magic number: [`MAGIC`] or [`MAGIC_MACHO`].
    pub magic: u32,
    /// Always [`CPU`].
    pub cputype: u32,
    /// `cpusubtype`: the generation of the engine ([`registers::by_subtype`]).
    pub subtype: u32,
    /// The file type; 2 in all samples.
    pub filetype: u32,
    /// Flags of the header; 0x00200000 in all samples.
    pub flags: u32,
    /// A reserved word; 0 in all samples.
    pub reserved: u32,
    /// `sizeofcmds` of the header in bytes; it may exceed the size of the commands.
    pub commands_size: u32,
    /// The load commands, in the order of the file.
    pub commands: Vec<Command>,
    /// The bytes after the commands, up to the end of the file.
    pub body: Vec<u8>,
}

/// The kind of content in a range of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A section: the index of its command, and its index in the segment.
    Section(usize, usize),
    /// The relocations of a section, by the same indices.
    Relocations(usize, usize),
    /// The symbols of a symbol table, by the index of its command.
    Symbols(usize),
    /// The strings of a symbol table, by the index of its command.
    Strings(usize),
    /// The text of a note, by the index of its command.
    Note(usize),
}

/// A range of the file that a command refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// Byte offsets in the file.
    pub range: Range<u64>,
    /// The content of the range.
    pub content: Content,
}

impl Hwx {
    /// Reads a file.
    ///
    /// # Errors
    /// E0701 for a bad header, E0702 for a bad load command, E0703 for a range outside of the file
    /// or an overlap.
    pub fn read(file: &[u8]) -> Result<Hwx> {
        let word = |at: usize| file.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let words: Option<Vec<u32>> = (0..8).map(|i| word(4 * i)).collect();
        let Some([magic, cputype, subtype, filetype, count, size, flags, reserved]) = words.as_deref() else {
            return Err(Error::header(0, format!("{} bytes are no compiled program", file.len())));
        };
        if ![MAGIC, MAGIC_MACHO].contains(magic) {
            return Err(Error::header(0, format!("the magic number {magic:#x} is not that of a compiled program")));
        }
        if *cputype != CPU {
            return Err(Error::header(4, format!("cputype {cputype:#x} is not the engine's, {CPU:#x}")));
        }
        let end = HEADER.saturating_add(*size as usize);
        if end > file.len() {
            return Err(Error::header(20, format!("load commands of {size:#x} bytes reach beyond the file")));
        }
        let (mut commands, mut at) = (Vec::new(), HEADER);
        for _ in 0..*count {
            let command = Command::read(file, at, end)?;
            at += command.bytes().len();
            commands.push(command);
        }
        let hwx = Hwx {
            magic: *magic,
            cputype: *cputype,
            subtype: *subtype,
            filetype: *filetype,
            flags: *flags,
            reserved: *reserved,
            commands_size: *size,
            commands,
            body: file[at..].to_vec(),
        };
        hwx.check()?;
        Ok(hwx)
    }

    /// The bytes of the file; equal to the bytes that were read unless a field was changed.
    pub fn write(&self) -> Vec<u8> {
        let mut file = Vec::with_capacity(self.body_offset() + self.body.len());
        let count = self.commands.len() as u32;
        for word in [
            self.magic,
            self.cputype,
            self.subtype,
            self.filetype,
            count,
            self.commands_size,
            self.flags,
            self.reserved,
        ] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        for command in &self.commands {
            file.extend_from_slice(command.bytes());
        }
        file.extend_from_slice(&self.body);
        file
    }

    /// The generation that the program is compiled for; `None` if it is not known.
    pub fn generation(&self) -> Option<&'static Generation> {
        registers::by_subtype(self.subtype)
    }

    /// The offset of the body in the file.
    pub fn body_offset(&self) -> usize {
        HEADER + self.commands.iter().map(|c| c.bytes().len()).sum::<usize>()
    }

    /// The size of the file in bytes.
    pub fn size(&self) -> usize {
        self.body_offset() + self.body.len()
    }

    /// The bytes of a range of the file. `None` if it does not lie after the commands.
    pub fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let offset = self.body_offset() as u64;
        let at = |n: u64| n.checked_sub(offset).and_then(|n| usize::try_from(n).ok());
        self.body.get(at(range.start)?..at(range.end)?)
    }

    /// The same bytes, mutable.
    pub fn bytes_mut(&mut self, range: Range<u64>) -> Option<&mut [u8]> {
        let offset = self.body_offset() as u64;
        let at = |n: u64| n.checked_sub(offset).and_then(|n| usize::try_from(n).ok());
        self.body.get_mut(at(range.start)?..at(range.end)?)
    }

    /// The commands of one kind, with their indices.
    pub fn of_kind(&self, kind: CommandKind) -> impl Iterator<Item = (usize, &Command)> {
        self.commands.iter().enumerate().filter(move |(_, c)| c.kind() == kind)
    }

    /// The offset of the command with this index in the file.
    pub fn command_offset(&self, index: usize) -> usize {
        HEADER + self.commands.iter().take(index).map(|c| c.bytes().len()).sum::<usize>()
    }

    /// The nonempty ranges that commands refer to, sorted by offset.
    pub fn regions(&self) -> Vec<FileRange> {
        let mut all = Vec::new();
        let mut add = |start: u64, length: u64, content| {
            if length > 0 {
                all.push(FileRange { range: start..start.saturating_add(length), content });
            }
        };
        for (index, command) in self.commands.iter().enumerate() {
            match command.kind() {
                CommandKind::Segment => {
                    for section in view::sections(index, command) {
                        if section.has_content() {
                            add(section.offset.into(), section.size, Content::Section(index, section.index));
                        }
                        let size = u64::from(section.relocations) * Relocation::SIZE as u64;
                        add(section.relocation_offset.into(), size, Content::Relocations(index, section.index));
                    }
                }
                CommandKind::Symtab => {
                    let size = command.get("nsyms") * Symbol::SIZE as u64;
                    add(command.get("symoff"), size, Content::Symbols(index));
                    add(command.get("stroff"), command.get("strsize"), Content::Strings(index));
                }
                CommandKind::Note if note_text(command).is_none() => {
                    add(command.get("offset"), command.get("size"), Content::Note(index));
                }
                _ => {}
            }
        }
        all.sort_by_key(|r| (r.range.start, r.range.end));
        all
    }

    /// The text of a note, or `None` if the command is not a note.
    pub fn note(&self, index: usize) -> Option<&[u8]> {
        let command = self.commands.get(index).filter(|c| c.kind() == CommandKind::Note)?;
        let (start, size) = (command.get("offset"), command.get("size"));
        note_text(command).or_else(|| self.bytes(start..start.checked_add(size)?))
    }

    /// A description of a range for messages.
    pub fn describe(&self, content: Content) -> String {
        let section = |command: usize, index: usize| {
            let found = self.commands.get(command).and_then(|c| view::sections(command, c).into_iter().nth(index));
            found.map(|s| s.label()).unwrap_or_default()
        };
        match content {
            Content::Section(c, s) => format!("the section {}", section(c, s)),
            Content::Relocations(c, s) => format!("the relocations of {}", section(c, s)),
            Content::Symbols(_) => "the symbols".to_string(),
            Content::Strings(_) => "the names of the symbols".to_string(),
            Content::Note(_) => "a note".to_string(),
        }
    }

    /// Checks the invariants of the views.
    fn check(&self) -> Result<()> {
        let end = self.size() as u64;
        let regions = self.regions();
        for region in &regions {
            let (start, what) = (region.range.start, region.content);
            if region.range.end > end || start < self.body_offset() as u64 {
                let range = format!("{:#x} to {:#x}", start, region.range.end);
                let what = self.describe(what);
                let message =
                    format!("{what}, {range}, does not lie between the load commands and the file's end, {end:#x}");
                return Err(Error::range(start, message));
            }
        }
        // Sorted by start: each range must end before the next begins.
        for pair in regions.windows(2) {
            if pair[1].range.start < pair[0].range.end {
                let what = [self.describe(pair[0].content), self.describe(pair[1].content)];
                return Err(Error::range(pair[1].range.start, format!("{} overlaps {}", what[1], what[0])));
            }
        }
        for (index, command) in self.of_kind(CommandKind::Segment) {
            let (start, size) = (command.get("fileoff"), command.get("filesize"));
            if start.checked_add(size).is_none_or(|last| last > end) {
                let message = format!("the segment {} reaches beyond the file's end, {end:#x}", command.name("name"));
                return Err(Error::range(self.command_offset(index) as u64, message));
            }
            if command.get("vmaddr").checked_add(command.get("vmsize")).is_none() {
                let message = format!("the addresses of the segment {} wrap around", command.name("name"));
                return Err(Error::range(self.command_offset(index) as u64, message));
            }
        }
        Ok(())
    }
}

/// The text of a note that lies in its own command: its offset then counts from the start of the
/// command.
fn note_text(command: &Command) -> Option<&[u8]> {
    let start = usize::try_from(command.get("offset")).ok().filter(|start| *start >= 40)?;
    let end = start.checked_add(usize::try_from(command.get("size")).ok()?)?;
    command.bytes().get(start..end)
}
