//! SymbolTable, stabs and relocations.

use std::borrow::Cow;

use serde::Serialize;

use super::{CommandKind, Content, Hwx};

/// An entry of the symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Where its name begins among the names.
    pub string: u32,
    /// Its name, without its end; of a stab the whole description. At most 4 KiB of it.
    pub name: &'a [u8],
    /// 0x0f defined, 0x80 a type, 0x20 a tensor, 0x0e for debugging.
    pub kind: u8,
    /// Its section, from 1; 0 for none.
    pub section: u8,
    /// More about it.
    pub description: u16,
    /// Its address.
    pub value: u64,
}

/// A symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolTable<'a> {
    /// The index of its command.
    pub command: usize,
    /// Its entries.
    pub symbols: Vec<Symbol<'a>>,
}

/// A word of a section that holds the address of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Relocation {
    /// The byte of the section.
    pub address: u32,
    /// Section or symbol, length and flags.
    pub info: u32,
}

impl<'a> Symbol<'a> {
    /// Bytes of an entry.
    pub const SIZE: usize = 16;

    /// Its name, for people.
    pub fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.name)
    }

    /// What kind it is, in a word.
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
    /// Bytes of a relocation.
    pub const SIZE: usize = 8;

    /// The section whose address is meant, from 1.
    pub fn section(&self) -> u32 {
        self.info & 0xff_ffff
    }

    /// Bytes of the address.
    pub fn length(&self) -> u32 {
        1 << (self.info >> 25 & 3)
    }
}

/// The `N` bytes at `at`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
}

impl Hwx {
    /// Its symbol tables; there is one as a rule.
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

    /// The relocations of a section.
    pub fn relocations(&self, section: &super::Section) -> Vec<Relocation> {
        let start = u64::from(section.relocation_offset);
        let range = start..start + u64::from(section.relocations) * Relocation::SIZE as u64;
        let bytes = self.bytes(range).unwrap_or(&[]);
        let relocation =
            |b: &[u8]| Relocation { address: u32::from_le_bytes(array(b, 0)), info: u32::from_le_bytes(array(b, 4)) };
        bytes.chunks_exact(Relocation::SIZE).map(relocation).collect()
    }
}

/// Names are cut here: a hostile table could give every symbol a name that is as long as the file.
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
