//! The registers of one descriptor, set by name.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::registers::{self, Field, Generation, Register, indexed};
use crate::task::{RegisterRecord, Task};

/// The records of a descriptor of the compiler for macOS 12: byte address and number of words.
const RECORDS: [(u32, usize); 7] =
    [(0x1f800, 62), (0, 16), (0x13800, 28), (0x4800, 18), (0x8800, 4), (0xc800, 5), (0x17800, 7)];

/// A descriptor under construction.
pub(super) struct Registers {
    generation: &'static Generation,
    header: Vec<u32>,
    words: BTreeMap<u32, u32>,
}

/// The error for a name that the register table lacks: a bug in this module.
fn unknown(name: &str) -> Error {
    Error::request(format!("the table of registers has no {name}"))
}

fn set(register: &Register, field: &str, word: u32, value: u64) -> Result<u32> {
    let found: &Field = register.field(field).ok_or_else(|| unknown(field))?;
    let value = u32::try_from(value).ok().and_then(|v| found.set(word, v));
    value.ok_or_else(|| {
        let bits = found.hi - found.lo + 1;
        let name = register.name;
        Error::request(format!("what is asked does not fit into {name}.{field}, which has {bits} bits, in its place"))
    })
}

impl Registers {
    pub(super) fn h13() -> Result<Registers> {
        let generation = registers::by_name("h13").ok_or_else(|| unknown("generation h13"))?;
        Ok(Registers { generation, header: vec![0; generation.header_words], words: BTreeMap::new() })
    }

    fn find(&self, block: &str, name: &str) -> Result<(&'static Register, u32)> {
        let (register, index) = self.generation.named(block, name).ok_or_else(|| unknown(name))?;
        Ok((register, register.address + 4 * index))
    }

    /// Sets fields of a register; its other fields keep their values.
    pub(super) fn fields(&mut self, block: &str, name: &str, fields: &[(&str, u64)]) -> Result<()> {
        let (register, address) = self.find(block, name)?;
        let mut word = self.words.get(&address).copied().unwrap_or(0);
        for (field, value) in fields {
            word = set(register, field, word, *value)?;
        }
        self.words.insert(address, word);
        Ok(())
    }

    /// Sets a whole register by its name.
    pub(super) fn word(&mut self, block: &str, name: &str, word: u32) -> Result<()> {
        let (_, address) = self.find(block, name)?;
        self.words.insert(address, word);
        Ok(())
    }

    /// Sets a register that has no name in the table.
    pub(super) fn nameless(&mut self, address: u32, word: u32) {
        self.words.insert(address, word);
    }

    /// Sets fields of a header word.
    pub(super) fn head(&mut self, name: &str, fields: &[(&str, u64)]) -> Result<()> {
        let (register, _) = indexed(&self.generation.header, name).ok_or_else(|| unknown(name))?;
        let at = register.address as usize;
        for (field, value) in fields {
            self.header[at] = set(register, field, self.header[at], *value)?;
        }
        Ok(())
    }

    /// Sets a whole header word by its index.
    pub(super) fn head_word(&mut self, index: usize, word: u32) {
        self.header[index] = word;
    }

    /// Finishes the descriptor; it begins at byte `offset` of its section.
    pub(super) fn task(self, offset: usize) -> Task {
        let word = |address: u32| self.words.get(&address).copied().unwrap_or(0);
        let record = |(address, count): (u32, usize)| RegisterRecord::Dense {
            address,
            words: (0..count as u32).map(|i| word(address + 4 * i)).collect(),
        };
        Task { offset, header: self.header, records: RECORDS.into_iter().map(record).collect() }
    }
}
