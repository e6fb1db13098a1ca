//! Task descriptors, the contents of `__text`.
//!
//! A descriptor is a header of several words followed by records that set registers. The encoding
//! of records depends on the generation ([`RecordFormat`]): runs of words at byte addresses up to
//! H13; dense, masked and address packets at word addresses from H14 on. A [`Task`] keeps its
//! records, so encoding reproduces the words in the same order.
//!
//! Registers that a descriptor does not set have the engine's defaults; they do not keep the values
//! of the previous task ([`Task::register`]).

mod byte_records;
mod packets;
mod view;

pub(crate) use packets::ALIGN;
pub use view::{Location, OperandRole, TaskView};

use std::collections::BTreeMap;

use crate::container::{Hwx, Section};
use crate::error::{Error, Result};
use crate::registers::{Generation, RecordFormat};

/// A record of a descriptor: it sets one or more registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterRecord {
    /// Sets consecutive registers to values.
    Dense {
        /// The byte address of the first register.
        address: u32,
        /// The values, one per register.
        words: Vec<u32>,
    },
    /// Sets a register and those of the sixteen after it whose bit is set in the mask.
    Masked {
        /// The byte address of the first register.
        address: u32,
        /// Bit `i` selects the register `i + 1` after the first.
        mask: u16,
        /// The values: the first register's, then those of the mask in ascending order.
        words: Vec<u32>,
    },
    /// Sets consecutive registers that hold an offset in a buffer; the engine adds the base address
    /// of a BAR.
    Address {
        /// The byte address of the first register.
        address: u32,
        /// The index of the BAR, counted in 32-bit slots.
        slot: u8,
        /// The values, one per register.
        words: Vec<u32>,
    },
}

/// A task descriptor: one operation of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The offset in its section, in bytes.
    pub offset: usize,
    /// The words of its header: the generation's number, and one more if a bit announces it.
    pub header: Vec<u32>,
    /// The records after the header.
    pub records: Vec<RegisterRecord>,
}

impl RegisterRecord {
    /// The byte address of the first register.
    pub fn address(&self) -> u32 {
        match self {
            RegisterRecord::Dense { address, .. }
            | RegisterRecord::Masked { address, .. }
            | RegisterRecord::Address { address, .. } => *address,
        }
    }

    /// The values, one per register.
    pub fn words(&self) -> &[u32] {
        match self {
            RegisterRecord::Dense { words, .. }
            | RegisterRecord::Masked { words, .. }
            | RegisterRecord::Address { words, .. } => words,
        }
    }

    /// The byte address of each value.
    pub fn addresses(&self) -> Vec<u32> {
        let first = self.address();
        match self {
            RegisterRecord::Dense { words, .. } | RegisterRecord::Address { words, .. } => {
                (0..words.len() as u32).map(|i| first.wrapping_add(4 * i)).collect()
            }
            RegisterRecord::Masked { mask, .. } => {
                let rest = (0..16).filter(|i| mask >> i & 1 != 0).map(|i| first.wrapping_add(4 * (i + 1)));
                std::iter::once(first).chain(rest).collect()
            }
        }
    }

    /// Address and value of each register that it sets.
    pub fn registers(&self) -> impl Iterator<Item = (u32, u32)> {
        self.addresses().into_iter().zip(self.words().iter().copied())
    }
}

impl Task {
    /// All registers that it sets, by byte address. Of several values for a register, the last one
    /// counts.
    pub fn registers(&self) -> BTreeMap<u32, u32> {
        self.records.iter().flat_map(RegisterRecord::registers).collect()
    }

    /// The value of a register: set by the descriptor, or else the engine's default. `None` if
    /// neither is known.
    pub fn register(&self, generation: &Generation, address: u32) -> Option<u32> {
        let set = self.records.iter().rev().find_map(|r| r.registers().find(|(a, _)| *a == address));
        set.map(|(_, value)| value).or_else(|| generation.register(address).and_then(|(r, _)| r.default))
    }

    /// Encodes header and records.
    pub fn encode(&self, stream: RecordFormat) -> Vec<u32> {
        let mut words = self.header.clone();
        for record in &self.records {
            match stream {
                RecordFormat::ByteAddressed => byte_records::encode(record, &mut words),
                _ => packets::encode(record, &mut words),
            }
        }
        words
    }

    /// The length in words.
    pub fn len(&self) -> usize {
        self.header.len() + self.records.iter().map(|r| 1 + r.words().len()).sum::<usize>()
    }

    /// True if it has no words.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a header field, by the names of the register table.
    pub fn head(&self, generation: &Generation, register: &str, field: &str) -> Option<u32> {
        let register = generation.header.iter().find(|r| r.name == register)?;
        Some(register.field(field)?.get(*self.header.get(register.address as usize)?))
    }
}

/// Checks that a record can be encoded; the error says why not.
pub(crate) fn fits(record: &RegisterRecord, stream: RecordFormat) -> std::result::Result<(), String> {
    match stream {
        RecordFormat::ByteAddressed => byte_records::fits(record),
        RecordFormat::WordAddressed => packets::fits(record),
        RecordFormat::Unknown => Err("the descriptor encoding of this generation is not known".to_string()),
    }
}

/// Decodes the tasks in `text`. `first` is the length of the first task in words, for generations
/// that store it in the program instead of the text.
///
/// # Errors
/// E0704 if the chain of descriptors is broken or the encoding is not known.
pub fn decode(generation: &Generation, text: &[u8], first: Option<usize>) -> Result<Vec<Task>> {
    if text.len() as u64 > u64::from(u32::MAX) {
        return Err(Error::stream(0, "a section of descriptors must be smaller than 4 GiB"));
    }
    match generation.record_format {
        RecordFormat::ByteAddressed => byte_records::decode(generation, text, first),
        RecordFormat::WordAddressed => packets::decode(generation, text),
        RecordFormat::Unknown => {
            let message =
                format!("the descriptor encoding of {} ({}) is not known", generation.name, generation.version);
            Err(Error::stream(0, message))
        }
    }
}

/// The little-endian word at byte `at`, if the text has it.
fn word(text: &[u8], at: usize) -> Option<u32> {
    let bytes = text.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Reads the header at byte `at`.
fn header(generation: &Generation, text: &[u8], at: usize) -> Result<Vec<u32>> {
    let mut words = Vec::new();
    let count = generation.header_words;
    for i in 0..=count {
        let more = |(word, bit): (usize, u32)| words.get(word).is_some_and(|w: &u32| w >> bit & 1 != 0);
        if i == count && !generation.extra.is_some_and(more) {
            break;
        }
        let Some(found) = word(text, at + 4 * i) else {
            let message = format!("the header of a descriptor of {count} words reaches beyond its section");
            return Err(Error::stream(at, message));
        };
        words.push(found);
    }
    Ok(words)
}

impl Hwx {
    /// The sections that hold tasks, each with the length of its first task in words, if a program
    /// states it.
    pub fn task_sections(&self) -> Vec<(Section, Option<usize>)> {
        let programs = self.programs();
        let first = |s: &Section| programs.iter().find(|p| p.text_addr == s.addr).and_then(|p| p.first_task_words);
        let texts = self.sections().into_iter().filter(|s| s.is_text() && s.has_content());
        texts
            .map(|s| {
                let words = first(&s).map(|n| n as usize);
                (s, words)
            })
            .collect()
    }

    /// Decodes the tasks of a section.
    ///
    /// # Errors
    /// E0704 as [`decode`]; offsets count from the start of the file.
    pub fn tasks(&self, section: &Section, first: Option<usize>) -> Result<Vec<Task>> {
        let Some(generation) = self.generation() else {
            let message = format!("the descriptor encoding of subtype {} is not known", self.subtype);
            return Err(Error::stream(0, message));
        };
        let tasks = decode(generation, self.content(section), first);
        tasks.map_err(|e| Error { offset: e.offset.map(|o| o + u64::from(section.offset)), ..e })
    }
}
