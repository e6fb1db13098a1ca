//! Symbol tables, debugging entries (stabs) and relocations.

use std::borrow::Cow;

use serde::Serialize;

use super::{CommandKind, Content, Hwx};

/// An entry of the symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The offset of its name among the strings.
    pub string: u32,
    /// The name without its terminator, at most 4 KiB of it; for a stab the whole description.
    pub name: &'a [u8],
    /// Its type: 0x0f defined, 0x80 a type, 0x20 a tensor, 0x0e for debugging.
    pub kind: u8,
    /// The number of its section, from 1; 0 for none.
    pub section: u8,
    /// `n_desc`: for a stab of a tensor, the number of its type.
    pub description: u16,
    /// Its address; 0 for types.
    pub value: u64,
}

/// The contents of one `LC_SYMTAB` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolTable<'a> {
    /// The index of its load command.
    pub command: usize,
    /// The entries, in the order of the file.
    pub symbols: Vec<Symbol<'a>>,
}

/// A word of a section that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Relocation {
    /// The offset of the word in its section.
    pub address: u32,
    /// Packed: section or symbol, length and flags.
    pub info: u32,
}

impl<'a> Symbol<'a> {
    /// The size of an entry in bytes.
    pub const SIZE: usize = 16;

    /// The name as text for messages.
    pub fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.name)
    }

    /// A word for its type.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            0x0f => "defined",
            0x80 => "type",
            0x20 => "tensor",
            0x0e => "debug",
            _ => "other",
        }
    }
}

impl Relocation {
    /// The size of an entry in bytes.
    pub const SIZE: usize = 8;

    /// The section that the address refers to, from 1.
    pub fn section(&self) -> u32 {
        self.info & 0xff_ffff
    }

    /// The width of the address in bytes.
    pub fn length(&self) -> u32 {
        1 << (self.info >> 25 & 3)
    }
}

/// The `N` bytes at `at`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
}

impl Hwx {
    /// The symbol tables; normally there is one.
    pub fn symbols(&self) -> Vec<SymbolTable<'_>> {
        let regions = self.regions();
        let bytes = |content| {
            let region = regions.iter().find(|r| r.content == content);
            region.and_then(|r| self.bytes(r.range.clone())).unwrap_or(&[])
        };
        let table = |index: usize| {
            let (entries, strings) = (bytes(Content::Symbols(index)), bytes(Content::Strings(index)));
            let symbols = entries.chunks_exact(Symbol::SIZE).map(|e| symbol(e, strings)).collect();
            SymbolTable { command: index, symbols }
        };
        self.of_kind(CommandKind::Symtab).map(|(index, _)| table(index)).collect()
    }

    /// The relocations of a section, in the order of the file.
    pub fn relocations(&self, section: &super::Section) -> Vec<Relocation> {
        let start = u64::from(section.relocation_offset);
        let range = start..start + u64::from(section.relocations) * Relocation::SIZE as u64;
        let bytes = self.bytes(range).unwrap_or(&[]);
        let relocation =
            |b: &[u8]| Relocation { address: u32::from_le_bytes(array(b, 0)), info: u32::from_le_bytes(array(b, 4)) };
        bytes.chunks_exact(Relocation::SIZE).map(relocation).collect()
    }
}

/// Names are cut to this many bytes: a hostile table could give every symbol a name as long as the
/// file.
const NAME: usize = 4096;

fn symbol<'a>(entry: &[u8], strings: &'a [u8]) -> Symbol<'a> {
    let string = u32::from_le_bytes(array(entry, 0));
    let name = strings.get(string as usize..).unwrap_or(&[]);
    let name = &name[..name.len().min(NAME)];
    let name = &name[..name.iter().position(|b| *b == 0).unwrap_or(name.len())];
    Symbol {
        string,
        name,
        kind: entry[4],
        section: entry[5],
        description: u16::from_le_bytes(array(entry, 6)),
        value: u64::from_le_bytes(array(entry, 8)),
    }
}
