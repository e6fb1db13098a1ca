//! Packets at word addresses (from H14 on).
//!
//! - Bit 31 clear: dense. Bits 20:15 are the number of words minus one, bits 14:0 the word address.
//! - Bit 31 set: masked. Bits 30:15 select which of the sixteen registers after the first are set.
//! - Bit 29 set and bit 31 clear: as dense, and the words are offsets in the buffer whose BAR slot
//!   is in bits 28:21.
//!
//! Descriptors follow each other at multiples of 16 bytes. Bits 26:16 of the first word are the
//! length in words; if they are 0, 16 bytes are skipped: every section begins with such a frame,
//! {1, 0, 0, 0}.

use super::{RegisterRecord, Task, header, word};
use crate::error::{Error, Result};
use crate::registers::Generation;

/// Alignment of descriptors and the frame in bytes.
pub(crate) const ALIGN: usize = 16;
/// The largest number of words of a dense record.
const MOST: usize = 64;

pub(super) fn encode(record: &RegisterRecord, words: &mut Vec<u32>) {
    let address = record.address() >> 2 & 0x7fff;
    let count = (record.words().len().clamp(1, MOST) as u32 - 1) << 15;
    words.push(match record {
        RegisterRecord::Dense { .. } => count | address,
        RegisterRecord::Masked { mask, .. } => 1 << 31 | u32::from(*mask) << 15 | address,
        RegisterRecord::Address { slot, .. } => 1 << 29 | u32::from(*slot) << 21 | count | address,
    });
    words.extend_from_slice(record.words());
}

pub(super) fn fits(record: &RegisterRecord) -> Result<(), String> {
    let (address, count) = (record.address(), record.words().len());
    if address >= 0x8000 << 2 || !address.is_multiple_of(4) {
        return Err("an address is a multiple of 4 below 0x20000".to_string());
    }
    let most = match record {
        RegisterRecord::Masked { mask, .. } if count != 1 + mask.count_ones() as usize => {
            return Err("a masked record has one word more than bits in its mask".to_string());
        }
        RegisterRecord::Masked { .. } => 17,
        _ => MOST,
    };
    if count == 0 || count > most {
        return Err(format!("a record has from 1 to {most} words"));
    }
    Ok(())
}

/// The length of a descriptor in words, from its first word.
pub(crate) fn length(first: u32) -> usize {
    (first >> 16 & 0x7ff) as usize
}

pub(super) fn decode(generation: &Generation, text: &[u8]) -> Result<Vec<Task>> {
    let (mut tasks, mut at) = (Vec::new(), 0);
    while let Some(first) = word(text, at) {
        let words = length(first);
        if words == 0 {
            at += ALIGN;
            continue;
        }
        tasks.push(one(generation, text, at, words)?);
        at = (at + 4 * words).next_multiple_of(ALIGN);
    }
    Ok(tasks)
}

fn one(generation: &Generation, text: &[u8], offset: usize, length: usize) -> Result<Task> {
    let header = header(generation, text, offset)?;
    let end = offset + 4 * length;
    if end > text.len() {
        return Err(Error::stream(offset, format!("a descriptor of {length:#x} words reaches beyond its section")));
    }
    let mut at = offset + 4 * header.len();
    if at > end {
        return Err(Error::stream(offset, format!("a descriptor of {length:#x} words has no room for its header")));
    }
    let text = &text[..end];
    let mut records = Vec::new();
    while let Some(head) = word(text, at) {
        let address = (head & 0x7fff) << 2;
        let count = match head >> 31 {
            0 => (head >> 15 & 0x3f) as usize + 1,
            _ => (head >> 15 & 0xffff).count_ones() as usize + 1,
        };
        let words: Vec<u32> = (1..=count).map_while(|i| word(text, at + 4 * i)).collect();
        if words.len() < count {
            let message = format!("the record {head:#x}, of {count} words, reaches beyond its descriptor");
            return Err(Error::stream(at, message));
        }
        let record = match (head >> 31, head >> 29 & 3) {
            (1, _) => RegisterRecord::Masked { address, mask: (head >> 15) as u16, words },
            (_, 1) => RegisterRecord::Address { address, slot: (head >> 21) as u8, words },
            (_, 0) if head >> 21 == 0 => RegisterRecord::Dense { address, words },
            _ => return Err(Error::stream(at, format!("{head:#x} is not a known kind of record"))),
        };
        records.push(record);
        at += 4 * (count + 1);
    }
    Ok(Task { offset, header, records })
}
