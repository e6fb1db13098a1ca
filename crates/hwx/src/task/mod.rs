//! Task descriptors: what `__text` holds.
//!
//! A descriptor is a header of some words and records that set registers. How records are written
//! depends on the generation ([`RecordFormat`]): runs of words at byte addresses up to H13, and dense,
//! masked and address packets at word addresses from H14 on. A [`Task`] keeps its records, so
//! encoding gives the same words again, in the same order.
//!
//! Registers that a descriptor does not set have the engine's defaults; they do not keep what the
//! task before it set ([`Task::register`]).

mod byte_records;
mod packets;
mod view;

pub(crate) use packets::ALIGN;
pub use view::{Location, OperandRole, TaskView};

use std::collections::BTreeMap;

use crate::container::{Hwx, Section};
use crate::error::{Error, Result};
use crate::registers::{Generation, RecordFormat};

/// Some registers that a descriptor sets together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterRecord {
    /// Consecutive registers.
    Dense {
        /// The byte address of the first.
        address: u32,
        /// Their values.
        words: Vec<u32>,
    },
    /// A register, and those of the sixteen behind it that the mask has a bit for.
    Masked {
        /// The byte address of the first.
        address: u32,
        /// Bit `i` is the register `i + 1` behind the first.
        mask: u16,
        /// Their values.
        words: Vec<u32>,
    },
    /// Consecutive registers that hold a place in a buffer: what the base address of a BAR is added
    /// to.
    Address {
        /// The byte address of the first.
        address: u32,
        /// The index of the BAR, counted in 32-bit slots.
        slot: u8,
        /// Their values.
        words: Vec<u32>,
    },
}

/// A task descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Where it begins in its section.
    pub offset: usize,
    /// The words of its header; one more than the generation's number where a bit announces it.
    pub header: Vec<u32>,
    /// Its records.
    pub records: Vec<RegisterRecord>,
}

impl RegisterRecord {
    /// The byte address of its first register.
    pub fn address(&self) -> u32 {
        match self {
            RegisterRecord::Dense { address, .. }
            | RegisterRecord::Masked { address, .. }
            | RegisterRecord::Address { address, .. } => *address,
        }
    }

    /// Its values.
    pub fn words(&self) -> &[u32] {
        match self {
            RegisterRecord::Dense { words, .. }
            | RegisterRecord::Masked { words, .. }
            | RegisterRecord::Address { words, .. } => words,
        }
    }

    /// The byte addresses of its values.
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

    /// Its registers with their values.
    pub fn registers(&self) -> impl Iterator<Item = (u32, u32)> {
        self.addresses().into_iter().zip(self.words().iter().copied())
    }
}

impl Task {
    /// All registers that it sets, by address. One that is set twice has the later value.
    pub fn registers(&self) -> BTreeMap<u32, u32> {
        self.records.iter().flat_map(RegisterRecord::registers).collect()
    }

    /// What a register holds: what the descriptor sets, or the engine's default where that is
    /// known.
    pub fn register(&self, generation: &Generation, address: u32) -> Option<u32> {
        let set = self.records.iter().rev().find_map(|r| r.registers().find(|(a, _)| *a == address));
        set.map(|(_, value)| value).or_else(|| generation.register(address).and_then(|(r, _)| r.default))
    }

    /// Its words.
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

    /// Its length in words.
    pub fn len(&self) -> usize {
        self.header.len() + self.records.iter().map(|r| 1 + r.words().len()).sum::<usize>()
    }

    /// True without any word.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A field of its header by the names of the table.
    pub fn head(&self, generation: &Generation, register: &str, field: &str) -> Option<u32> {
        let register = generation.header.iter().find(|r| r.name == register)?;
        Some(register.field(field)?.get(*self.header.get(register.address as usize)?))
    }
}

/// Whether a record can be written, and how it would not.
pub(crate) fn fits(record: &RegisterRecord, stream: RecordFormat) -> std::result::Result<(), String> {
    match stream {
        RecordFormat::ByteAddressed => byte_records::fits(record),
        RecordFormat::WordAddressed => packets::fits(record),
        RecordFormat::Unknown => Err("nobody has said how this generation writes descriptors".to_string()),
    }
}

/// The tasks in `text`. `first` is the length of the first one in words, where a generation needs
/// it said: it stands in the program, not in the text.
pub fn decode(generation: &Generation, text: &[u8], first: Option<usize>) -> Result<Vec<Task>> {
    if text.len() as u64 > u64::from(u32::MAX) {
        return Err(Error::stream(0, "a section of descriptors has less than 4 GiB"));
    }
    match generation.record_format {
        RecordFormat::ByteAddressed => byte_records::decode(generation, text, first),
        RecordFormat::WordAddressed => packets::decode(generation, text),
        RecordFormat::Unknown => {
            let message =
                format!("nobody has said how {} ({}) writes descriptors", generation.name, generation.version);
            Err(Error::stream(0, message))
        }
    }
}

/// The word at byte `at`.
fn word(text: &[u8], at: usize) -> Option<u32> {
    let bytes = text.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The header at byte `at`.
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
    /// The sections that hold tasks, each with the length of its first task where a program says
    /// it.
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

    /// The tasks of a section.
    pub fn tasks(&self, section: &Section, first: Option<usize>) -> Result<Vec<Task>> {
        let Some(generation) = self.generation() else {
            let message = format!("subtype {} is no generation whose descriptors are known", self.subtype);
            return Err(Error::stream(0, message));
        };
        let tasks = decode(generation, self.content(section), first);
        tasks.map_err(|e| Error { offset: e.offset.map(|o| o + u64::from(section.offset)), ..e })
    }
}
