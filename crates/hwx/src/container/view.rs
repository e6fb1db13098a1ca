//! Views of segments, sections, programs and tensors, decoded from the commands.

use serde::Serialize;

use super::command::{Command, Tag};
use super::layout::{CommandKind, SECTION, SECTIONS};
use super::{Hwx, bind::Direction};

/// A segment: a range of memory with its sections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// The index of its load command.
    pub command: usize,
    /// A name such as `__TEXT`.
    pub name: String,
    /// The address of its first byte.
    pub vmaddr: u64,
    /// Its size in memory, in bytes.
    pub vmsize: u64,
    /// Its offset in the file.
    pub fileoff: u64,
    /// Its size in the file, in bytes.
    pub filesize: u64,
    /// Access bits: 1 read, 2 write, 4 execute.
    pub protection: u32,
    /// The flags of the command, uninterpreted.
    pub flags: u32,
    /// The sections, in the order of the command.
    pub sections: Vec<Section>,
}

/// A section of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// The index of its segment's load command.
    pub command: usize,
    /// The index in its segment.
    pub index: usize,
    /// The name of its segment.
    pub segment: String,
    /// A name such as `__text`.
    pub name: String,
    /// The address of its first byte.
    pub addr: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its offset in the file; meaningless without content.
    pub offset: u32,
    /// The base-2 logarithm of its alignment.
    pub align: u32,
    /// The offset of its relocations in the file.
    pub relocation_offset: u32,
    /// The number of its relocations.
    pub relocations: u32,
    /// Its flags: 0x28 code, 0x26 constants, 0x21 an input, 0x23 an output, 0x25 scratch; 0x100
    /// with relocations.
    pub flags: u32,
}

impl Section {
    /// Segment and section name as tasks and bindings refer to them: `__TEXT,__const`.
    pub fn label(&self) -> String {
        format!("{},{}", self.segment, self.name)
    }

    /// True if the file contains its bytes; inputs, outputs and scratch have none.
    pub fn has_content(&self) -> bool {
        self.offset != 0 && self.size != 0 && !matches!(self.flags & 0xff, 0x21 | 0x23 | 0x25)
    }

    /// True if it holds task descriptors.
    pub fn is_text(&self) -> bool {
        self.flags & 0xff == 0x28
    }

    /// True if it is scratch memory between tasks.
    pub fn is_scratch(&self) -> bool {
        self.flags & 0xff == 0x25
    }
}

/// A program: a named list of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramView {
    /// The index of its load command.
    pub command: usize,
    /// A name such as `net` or `main`.
    pub name: String,
    /// The thread flavor: 1 for H13, 4 from H14 on.
    pub flavor: u32,
    /// The address of its first task.
    pub text_addr: u64,
    /// The nonzero base addresses by index. With flavor 4 an index counts 32-bit slots.
    pub bars: Vec<(u32, u64)>,
    /// The number of tasks according to the command.
    pub tasks: u32,
    /// The length of the first task in words (flavor 1 only).
    pub first_task_words: Option<u32>,
    /// The length of all tasks in words (flavor 4 only).
    pub text_words: Option<u32>,
    /// The tagged values at the end of its state.
    pub tags: Vec<Tag>,
}

/// A tensor that a program reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorView {
    /// The index of its load command.
    pub command: usize,
    /// The name of the program that it belongs to.
    pub procedure: String,
    /// The name in the symbol table, such as `probs@output`.
    pub symbol: String,
    /// The name without a suffix.
    pub name: String,
    /// Input or output; `None` for an unknown direction.
    pub direction: Option<Direction>,
    /// The code of the element type ([`TensorView::type_name`]).
    pub element_type: u32,
    /// The shape `[N, C, H, W, D]`.
    pub nchwd: [u32; 5],
    /// Bytes from one batch to the next.
    pub batch_stride: u64,
    /// Bytes from one channel plane to the next.
    pub plane_stride: u64,
    /// Bytes from one row to the next.
    pub row_stride: u64,
    /// The size of an element in bytes.
    pub element_size: u64,
    /// The size of the tensor in bytes.
    pub bytes: u64,
    /// The number of channels that are interleaved in a plane.
    pub interleave: u32,
    /// The number of bytes in use, at most `bytes`.
    pub used: u64,
}

/// Names of element types, by their codes in tensors and stabs.
const TYPES: [&str; 24] = [
    "", "void", "int8", "uint8", "int16", "fp16", "fp32", "raw10", "lut", "uint4", "uint6", "uint1", "uint2",
    "packed10", "y10", "uint16", "e4m3", "int32", "uint32", "int64", "uint64", "raw12", "y12", "int4",
];

impl TensorView {
    /// The name of its element type, or the code if it has no name.
    pub fn type_name(&self) -> String {
        let known = TYPES.get(self.element_type as usize).filter(|n| !n.is_empty());
        known.map_or_else(|| format!("type{}", self.element_type), |n| n.to_string())
    }
}

pub(super) fn sections(index: usize, command: &Command) -> Vec<Section> {
    if command.kind() != CommandKind::Segment {
        return Vec::new();
    }
    // Checked on reading; a command under construction may announce more sections than it has.
    let count = (command.get("nsects") as usize).min((command.bytes().len() - SECTIONS) / SECTION);
    let name = |at: usize| String::from_utf8_lossy(command.name16(at)).into_owned();
    let section = |i: usize| Section {
        command: index,
        index: i,
        segment: name(SECTIONS + SECTION * i + 16),
        name: name(SECTIONS + SECTION * i),
        addr: command.section(i, "addr"),
        size: command.section(i, "size"),
        offset: command.section(i, "offset") as u32,
        align: command.section(i, "align") as u32,
        relocation_offset: command.section(i, "reloff") as u32,
        relocations: command.section(i, "nreloc") as u32,
        flags: command.section(i, "flags") as u32,
    };
    (0..count).map(section).collect()
}

impl Hwx {
    /// The segments, in the order of their commands.
    pub fn segments(&self) -> Vec<Segment> {
        let segment = |(index, c): (usize, &Command)| Segment {
            command: index,
            name: c.name("name"),
            vmaddr: c.get("vmaddr"),
            vmsize: c.get("vmsize"),
            fileoff: c.get("fileoff"),
            filesize: c.get("filesize"),
            protection: c.get("initprot") as u32,
            flags: c.get("flags") as u32,
            sections: sections(index, c),
        };
        self.of_kind(CommandKind::Segment).map(segment).collect()
    }

    /// The sections, in the order of the file; relocations and symbols number them from 1.
    pub fn sections(&self) -> Vec<Section> {
        self.of_kind(CommandKind::Segment).flat_map(|(index, c)| sections(index, c)).collect()
    }

    /// The bytes of a section; empty if it has no content.
    pub fn content(&self, section: &Section) -> &[u8] {
        if !section.has_content() {
            return &[];
        }
        let start = u64::from(section.offset);
        start.checked_add(section.size).and_then(|end| self.bytes(start..end)).unwrap_or(&[])
    }

    /// The programs, in the order of their commands.
    pub fn programs(&self) -> Vec<ProgramView> {
        let program = |(index, c): (usize, &Command)| {
            let old = c.kind() == CommandKind::Program1;
            ProgramView {
                command: index,
                name: c.name("name"),
                flavor: if old { 1 } else { 4 },
                text_addr: c.get("text_addr"),
                bars: c.bars(),
                tasks: c.get("tasks") as u32,
                first_task_words: old.then(|| (c.get("first_task_words_less_one") as u32).saturating_add(1)),
                text_words: (!old).then(|| c.get("text_words") as u32),
                tags: c.tags(),
            }
        };
        let kinds = [CommandKind::Program1, CommandKind::Program4];
        self.commands.iter().enumerate().filter(|(_, c)| kinds.contains(&c.kind())).map(program).collect()
    }

    /// The tensors of all programs, in the order of their commands.
    pub fn tensors(&self) -> Vec<TensorView> {
        let tensor = |(index, c): (usize, &Command)| TensorView {
            command: index,
            procedure: c.name("procedure"),
            symbol: c.name("symbol"),
            name: c.name("name"),
            direction: match c.get("direction") {
                1 => Some(Direction::Input),
                2 => Some(Direction::Output),
                _ => None,
            },
            element_type: c.get("type") as u32,
            nchwd: ["n", "c", "h", "w", "d"].map(|n| c.get(n) as u32),
            batch_stride: c.get("batch_stride"),
            plane_stride: c.get("plane_stride"),
            row_stride: c.get("row_stride"),
            element_size: c.get("element_size"),
            bytes: c.get("bytes"),
            interleave: c.get("interleave") as u32,
            used: c.get("used"),
        };
        self.of_kind(CommandKind::Tensor).map(tensor).collect()
    }
}
