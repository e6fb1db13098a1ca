//! The container around tasks and constants, as the compiler for macOS 12 writes it.

use super::tasks::TaskProgram;
use super::{CONSTANTS_BAR, PortBuffer, TEXT_BAR};
use crate::container::{
    CPU, Command, CommandKind, HEADER, Hwx, MAGIC, Relocation, SECTION, SECTIONS, STATE, StringPlace, Symbol,
};
use crate::error::{Error, Result};
use crate::registers::RecordFormat;
use crate::surface::PAGE;

/// The first address of a program.
const BASE: u64 = 0x3000_0000;
/// The length of a descriptor in words.
pub(super) const TASK_WORDS: usize = 157;
/// Alignment of the constants in bytes.
const CONSTANTS_ALIGN: u64 = 64;
/// The state of a program's thread command and of a tensor's, in words.
const PROGRAM_WORDS: usize = 0x214;
const TENSOR_WORDS: usize = 0x1e;
/// The code of fp16 among element types.
const FP16: u64 = 5;

/// The compiler's type descriptions; types are numbered from 1.
const TYPES: [&str; 10] = [
    "void:t1=1",
    "int8:t2=r2;0;127",
    "uint8:t3=r1;0;255",
    "int16:t4=r1;-32768;32767",
    "float16:t5=r1;2;0",
    "float:t6=r1;4;0",
    "raw10:t7=r1;-512;511",
    "lut:t8=",
    "uint4:t9=r1;0;15",
    "uint6:t10=r1;0;63",
];

/// A field does not fit into its command: a bug in this module, or numbers beyond the file format.
fn no_room() -> Error {
    Error::request("the program is larger than a file can say")
}

fn need<T>(found: Option<T>) -> Result<T> {
    found.ok_or_else(no_room)
}

struct Sect {
    name: &'static str,
    addr: u64,
    size: u64,
    offset: u64,
    align: u64,
    relocations: Option<(u64, u64)>,
    flags: u64,
}

/// A segment command: its fields by name, and its sections.
fn segment(name: &str, numbers: &[(&str, u64)], sections: &[Sect]) -> Result<Command> {
    let mut command = need(Command::new(CommandKind::Segment, SECTIONS + SECTION * sections.len()))?;
    need(command.put_text(&StringPlace::Fixed16(8), 8, name.as_bytes()))?;
    need(command.set("nsects", sections.len() as u64))?;
    for (field, value) in numbers {
        need(command.set(field, *value))?;
    }
    for (i, s) in sections.iter().enumerate() {
        let at = SECTIONS + SECTION * i;
        need(command.put_text(&StringPlace::Fixed16(at), at, s.name.as_bytes()))?;
        need(command.put_text(&StringPlace::Fixed16(at + 16), at + 16, name.as_bytes()))?;
        let (reloff, nreloc) = s.relocations.unwrap_or((0, 0));
        let numbers = [("addr", s.addr), ("size", s.size), ("offset", s.offset), ("align", s.align)];
        for (field, value) in numbers.into_iter().chain([("reloff", reloff), ("nreloc", nreloc), ("flags", s.flags)]) {
            need(command.set_section(i, field, value))?;
        }
    }
    Ok(command)
}

/// A command followed by zero-terminated strings, in the order of its layout.
fn with_texts(kind: CommandKind, begin: usize, texts: &[&str]) -> Result<Command> {
    let length: usize = texts.iter().map(|t| t.len() + 1).sum();
    let mut command = need(Command::new(kind, (begin + length).next_multiple_of(8)))?;
    if begin > STATE && matches!(kind, CommandKind::Program1 | CommandKind::Tensor) {
        need(command.set("count", ((begin - STATE) / 4) as u64))?;
    }
    let mut at = begin;
    for (place, text) in kind.layout().texts.iter().zip(texts) {
        need(command.put_text(&place.place, at, text.as_bytes()))?;
        at += text.len() + 1;
    }
    Ok(command)
}

fn tensor(program: &str, buffer: &PortBuffer, direction: u64) -> Result<Command> {
    let (name, s) = (buffer.port.name.as_str(), buffer.surface);
    let mut command = with_texts(CommandKind::Tensor, STATE + 4 * TENSOR_WORDS, &[program, name, name])?;
    let [n, c, h, w] = buffer.port.nchw.map(u64::from);
    // Of an output, the compiler counts the bytes up to the last element.
    let last = s.bytes() - s.plane + (h - 1) * s.row + s.element * w;
    let used = if direction == 1 { s.bytes() } else { last };
    for (field, value) in [
        ("direction", direction),
        ("type", FP16),
        ("n", n),
        ("c", c),
        ("h", h),
        ("w", w),
        ("d", 1),
        ("batch_stride", s.batch),
        ("plane_stride", s.plane),
        ("row_stride", s.row),
        ("element_size", s.element),
        ("bytes", s.bytes()),
        ("interleave", 1),
        ("used", used),
    ] {
        need(command.set(field, value))?;
    }
    Ok(command)
}

/// The debugging entry of a tensor, `image:t11=ar1;0;1;12=s192n:…`: extents with their strides,
/// each a type with its own number, then the element type.
fn stab(buffer: &PortBuffer, first: usize) -> String {
    let s = buffer.surface;
    let mut text = format!("{}:t{first}=", buffer.port.name);
    let strides = [s.batch, s.plane, s.row, s.element];
    for (i, ((extent, stride), letter)) in s.nchw.iter().zip(strides).zip(['n', 'c', 'h', 'w']).enumerate() {
        text += &format!("ar1;0;{extent};{}=s{stride}{letter}:", first + 1 + i);
    }
    text + &FP16.to_string()
}

#[derive(Default)]
struct Names {
    entries: Vec<u8>,
    strings: Vec<u8>,
}

impl Names {
    fn add(&mut self, name: &str, kind: u8, section: u8, description: u16, value: u64) {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        self.entries.extend((self.strings.len() as u32).to_le_bytes());
        self.entries.extend([kind, section]);
        self.entries.extend(description.to_le_bytes());
        self.entries.extend(value.to_le_bytes());
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
    }
}

/// The program in memory: text and constants, then the inputs' buffers, then the output's.
struct MemoryLayout<'a> {
    text: Vec<u8>,
    constants: &'a [u8],
    /// Bytes from the beginning of the text to the constants.
    constants_at: u64,
    /// Bytes of text and constants, rounded up to whole pages.
    text_pages: u64,
    /// Each port's buffer with its address, inputs first.
    buffers: Vec<(&'a PortBuffer, u64)>,
    /// The number of inputs among `buffers`.
    inputs: usize,
}

impl<'a> MemoryLayout<'a> {
    fn new(inputs: &'a [PortBuffer], output: &'a PortBuffer, program: &'a TaskProgram) -> Result<MemoryLayout<'a>> {
        let mut text: Vec<u8> = Vec::new();
        for task in &program.tasks {
            text.resize(task.offset, 0);
            text.extend(task.encode(RecordFormat::ByteAddressed).iter().flat_map(|w| w.to_le_bytes()));
        }
        let constants = program.constants.as_slice();
        let constants_at = (text.len() as u64).next_multiple_of(CONSTANTS_ALIGN);
        let text_pages = (constants_at + constants.len() as u64).next_multiple_of(PAGE);
        let mut next = BASE + text_pages;
        let mut buffers = Vec::new();
        for buffer in inputs.iter().chain([output]) {
            buffers.push((buffer, next));
            next += buffer.surface.buffer_bytes();
        }
        // Binding commands have 32 bits for an address.
        if next > u64::from(u32::MAX) {
            return Err(Error::request(format!(
                "the program's tensors and constants end at {next:#x}, beyond 32 bits"
            )));
        }
        Ok(MemoryLayout { text, constants, constants_at, text_pages, buffers, inputs: inputs.len() })
    }
}

/// The symbol table: constants, ports, then the descriptions of types.
fn symbols(layout: &MemoryLayout<'_>, program: &TaskProgram) -> Names {
    // Sections count from 1: text, constants, tensors.
    let mut names = Names::default();
    for (symbol, at) in &program.symbols {
        names.add(symbol, 0x0f, 2, 2, BASE + layout.constants_at + at);
    }
    for ((buffer, address), section) in layout.buffers.iter().zip(3..) {
        names.add(&buffer.port.name, 0x0f, section, 2, *address);
    }
    for description in TYPES {
        names.add(description, 0x80, 0, 0, 0);
    }
    let mut number = TYPES.len() + 1;
    for (buffer, _) in &layout.buffers {
        names.add(&stab(buffer, number), 0x20, 0, number as u16, 0);
        number += 5;
    }
    names
}

/// The relocation entries of the text: every one refers to the section of constants.
fn relocations(program: &TaskProgram) -> Vec<u8> {
    // Section 2, by its number, four bytes long.
    const CONSTANT: u32 = 0x0500_0002;
    let word = |n: u32| n.to_le_bytes();
    program.relocations.iter().flat_map(|at| [word(*at), word(CONSTANT)]).flatten().collect()
}

/// Offsets in the file of what follows the commands.
#[derive(Default)]
struct FileOffsets {
    symbols: u64,
    strings: u64,
    relocations: u64,
    text: u64,
}

impl FileOffsets {
    fn after(commands: &[Command], names: &Names, relocations: &[u8]) -> FileOffsets {
        let symbols = (HEADER + commands.iter().map(|c| c.bytes().len()).sum::<usize>()) as u64;
        let strings = symbols + names.entries.len() as u64;
        let at = (strings + names.strings.len() as u64).next_multiple_of(Relocation::SIZE as u64);
        let text = (at + relocations.len() as u64).next_multiple_of(PAGE);
        FileOffsets { symbols, strings, relocations: at, text }
    }
}

/// The segment of text and constants.
fn text_segment(layout: &MemoryLayout<'_>, program: &TaskProgram, offsets: &FileOffsets) -> Result<Command> {
    let count = program.relocations.len() as u64;
    let relocated = (count > 0).then_some((offsets.relocations, count));
    let section = |name, at: u64, size, align, flags| Sect {
        name,
        addr: BASE + at,
        size,
        offset: offsets.text + at,
        align,
        relocations: None,
        flags,
    };
    let text_flags = if relocated.is_some() { 0x128 } else { 0x28 };
    let sections = [
        Sect { relocations: relocated, ..section("__text", 0, layout.text.len() as u64, 14, text_flags) },
        section("__const", layout.constants_at, layout.constants.len() as u64, 6, 0x26),
    ];
    let numbers = [
        ("vmaddr", BASE),
        ("vmsize", layout.text_pages),
        ("fileoff", offsets.text),
        ("filesize", layout.text_pages),
        ("maxprot", 5),
        ("initprot", 5),
        ("flags", if relocated.is_some() { 0 } else { 4 }),
    ];
    segment("__TEXT", &numbers, &sections)
}

/// The segment of a port's buffer, which has memory and no bytes in the file.
fn buffer_segment(buffer: &PortBuffer, address: u64, is_input: bool) -> Result<Command> {
    let (name, flags, protection) = if is_input { ("__const", 0x21, 1) } else { ("__data", 0x23, 2) };
    let numbers = [
        ("vmaddr", address),
        ("vmsize", buffer.surface.buffer_bytes()),
        ("maxprot", protection),
        ("initprot", protection),
        ("flags", 6),
    ];
    let size = buffer.surface.bytes();
    let used = Sect { name, addr: address, size, offset: 0, align: 14, relocations: None, flags };
    segment("__FVMLIB", &numbers, &[used])
}

/// The command that locates symbols and their strings in the file.
fn symtab(names: &Names, offsets: &FileOffsets) -> Result<Command> {
    let mut symtab = need(Command::new(CommandKind::Symtab, CommandKind::Symtab.layout().least))?;
    let numbers = [
        ("symoff", offsets.symbols),
        ("nsyms", (names.entries.len() / Symbol::SIZE) as u64),
        ("stroff", offsets.strings),
        ("strsize", names.strings.len() as u64),
    ];
    for (field, value) in numbers {
        need(symtab.set(field, value))?;
    }
    Ok(symtab)
}

/// The load commands, in the compiler's order. Their lengths do not depend on `offsets`.
fn commands(
    name: &str,
    layout: &MemoryLayout<'_>,
    program: &TaskProgram,
    names: &Names,
    offsets: &FileOffsets,
) -> Result<Vec<Command>> {
    let mut commands = vec![segment("__PAGEZERO", &[("vmsize", PAGE), ("flags", 4)], &[])?];
    commands.push(text_segment(layout, program, offsets)?);
    for (i, (buffer, address)) in layout.buffers.iter().enumerate() {
        commands.push(buffer_segment(buffer, *address, i < layout.inputs)?);
    }
    for (buffer, address) in &layout.buffers {
        let mut command = with_texts(CommandKind::Fvmlib, CommandKind::Fvmlib.layout().least, &[&buffer.port.name])?;
        need(command.set("vmaddr", *address))?;
        commands.push(command);
    }
    commands.push(thread(name, layout.constants_at, &layout.buffers, program)?);
    for (i, (buffer, _)) in layout.buffers.iter().enumerate() {
        commands.push(tensor(name, buffer, if i < layout.inputs { 1 } else { 2 })?);
    }
    let banner = format!("ANEC v1\nferrane_hwx v{}\n\t-t h13\n", env!("CARGO_PKG_VERSION"));
    commands.push(with_texts(CommandKind::Ident, CommandKind::Ident.layout().least, &[&banner])?);
    commands.push(symtab(names, offsets)?);
    Ok(commands)
}

/// The container: header, commands, symbols, strings, relocations, text and constants.
pub(super) fn assemble(name: &str, inputs: &[PortBuffer], output: &PortBuffer, program: &TaskProgram) -> Result<Hwx> {
    let layout = MemoryLayout::new(inputs, output, program)?;
    let names = symbols(&layout, program);
    let relocations = relocations(program);
    // Offsets follow from the lengths of the commands, so a first round with zeros finds them.
    let draft = commands(name, &layout, program, &names, &FileOffsets::default())?;
    let offsets = FileOffsets::after(&draft, &names, &relocations);
    let commands = commands(name, &layout, program, &names, &offsets)?;

    let begin = offsets.symbols;
    let mut body = vec![0; (offsets.text + layout.text_pages - begin) as usize];
    for (at, bytes) in [
        (offsets.symbols, names.entries.as_slice()),
        (offsets.strings, &names.strings),
        (offsets.relocations, &relocations),
        (offsets.text, &layout.text),
        (offsets.text + layout.constants_at, layout.constants),
    ] {
        let at = (at - begin) as usize;
        body[at..at + bytes.len()].copy_from_slice(bytes);
    }
    Ok(Hwx {
        magic: MAGIC,
        cputype: CPU,
        subtype: 4,
        filetype: 2,
        flags: 0x0020_0000,
        reserved: 0,
        commands_size: (begin as usize - HEADER) as u32,
        commands,
        body,
    })
}

/// The thread command: base addresses by index, and the list of tasks.
fn thread(name: &str, constants_at: u64, addresses: &[(&PortBuffer, u64)], program: &TaskProgram) -> Result<Command> {
    let mut thread = with_texts(CommandKind::Program1, STATE + 4 * PROGRAM_WORDS, &[name])?;
    let fixed = [(TEXT_BAR, BASE), (CONSTANTS_BAR, BASE + constants_at)];
    for (index, address) in fixed.into_iter().chain(addresses.iter().map(|(b, address)| (b.bar, *address))) {
        let at = need(thread.bar_at(index))?;
        need(thread.put(at, 8, address))?;
    }
    let words = program.tasks.first().map_or(0, |t| t.len()) as u64;
    for (field, value) in [
        ("text_addr", BASE),
        ("first_task_words_less_one", words.saturating_sub(1)),
        ("tasks", program.tasks.len() as u64),
    ] {
        need(thread.set(field, value))?;
    }
    // The meaning of these words is not established; all samples of this compiler have these
    // values.
    for (at, value) in [(0x814, 0xffff), (0x840, 0x11), (0x848, 3)] {
        need(thread.put(STATE + at, 4, value))?;
    }
    Ok(thread)
}
