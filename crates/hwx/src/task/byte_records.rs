//! Records at byte addresses (H11 to H13).
//!
//! The first word of a record has the number of words minus one in bits 31:26 and the byte address
//! in bits 25:0. Descriptors are chained: word 7 of a header is the offset of the next descriptor
//! from the start of the section, in bytes, and bits 24:16 of word 1 are its length in words, minus
//! one. Decoding requires the chain to go forward, so it ends.

use super::{RegisterRecord, Task, header, word};
use crate::error::{Error, Result};
use crate::registers::Generation;

/// The largest number of words of a record.
const MOST: usize = 64;

pub(super) fn encode(record: &RegisterRecord, words: &mut Vec<u32>) {
    let count = record.words().len().clamp(1, MOST) as u32;
    words.push((count - 1) << 26 | record.address() & 0x3ff_ffff);
    words.extend_from_slice(record.words());
}

pub(super) fn fits(record: &RegisterRecord) -> Result<(), String> {
    let (address, count) = (record.address(), record.words().len());
    if !matches!(record, RegisterRecord::Dense { .. }) {
        return Err("this generation has only dense records".to_string());
    }
    if count == 0 || count > MOST || address > 0x3ff_ffff {
        return Err(format!("a record has from 1 to {MOST} words and an address below 0x4000000"));
    }
    Ok(())
}

/// Offset and length in words of the next descriptor.
fn next(header: &[u32]) -> (usize, usize) {
    // H11's header has seven words; the position of its pointer is not known.
    let pointer = header.get(7).map_or(0, |w| *w as usize);
    (pointer, (header.get(1).map_or(0, |w| *w as usize) >> 16 & 0x1ff) + 1)
}

pub(super) fn decode(generation: &Generation, text: &[u8], first: Option<usize>) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    let (mut at, mut length) = (0, first.unwrap_or(text.len() / 4));
    while !text.is_empty() {
        let task = one(generation, text, at, length)?;
        let end = at + 4 * length;
        let (pointer, words) = next(&task.header);
        tasks.push(task);
        if pointer == 0 {
            break;
        }
        if pointer < end || pointer >= text.len() || !pointer.is_multiple_of(4) {
            let message = format!(
                "the next descriptor, at {pointer:#x}, does not follow this one, which ends at {end:#x}, in its section"
            );
            return Err(Error::stream(at, message));
        }
        (at, length) = (pointer, words);
    }
    Ok(tasks)
}

fn one(generation: &Generation, text: &[u8], offset: usize, length: usize) -> Result<Task> {
    let header = header(generation, text, offset)?;
    let end = length.checked_mul(4).and_then(|bytes| bytes.checked_add(offset)).filter(|end| *end <= text.len());
    let Some(end) = end else {
        return Err(Error::stream(offset, format!("a descriptor of {length:#x} words reaches beyond its section")));
    };
    let mut at = offset + 4 * header.len();
    if at > end {
        return Err(Error::stream(offset, format!("a descriptor of {length:#x} words has no room for its header")));
    }
    let text = &text[..end];
    let mut records = Vec::new();
    while at < end {
        let Some(head) = word(text, at) else { return Err(Error::stream(at, "half a word ends the descriptor")) };
        let count = (head >> 26) as usize + 1;
        let words: Vec<u32> = (1..=count).map_while(|i| word(text, at + 4 * i)).collect();
        if words.len() < count {
            let message = format!("the record {head:#x}, of {count} words, reaches beyond its descriptor");
            return Err(Error::stream(at, message));
        }
        records.push(RegisterRecord::Dense { address: head & 0x3ff_ffff, words });
        at += 4 * (count + 1);
    }
    Ok(Task { offset, header, records })
}
