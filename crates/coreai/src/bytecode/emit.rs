//! Bytes of a section, with the numbers that [`Cursor`](super::cursor::Cursor) reads.

use super::cursor::PADDING;

/// The largest value of each length of a varint has 7 bits more than the one before.
const LONGEST_SHORT: u32 = 56;

/// Bytes that become a section. Offsets for alignment count from the start of the section, which is
/// itself aligned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Emitter {
    pub(crate) bytes: Vec<u8>,
    /// The largest alignment that was asked for.
    alignment: usize,
}

impl Emitter {
    pub(crate) fn varint(&mut self, value: u64) {
        let bits = u64::BITS - value.leading_zeros();
        if bits > LONGEST_SHORT {
            self.bytes.push(0);
            self.bytes.extend_from_slice(&value.to_le_bytes());
            return;
        }
        let length = bits.div_ceil(7).max(1);
        let word = ((u128::from(value) << 1 | 1) << (length - 1)) as u64;
        self.bytes.extend_from_slice(&word.to_le_bytes()[..length as usize]);
    }

    pub(crate) fn flagged(&mut self, value: u64, flag: bool) {
        self.varint(value << 1 | u64::from(flag));
    }

    pub(crate) fn signed(&mut self, value: i64) {
        self.varint((value << 1 ^ value >> 63) as u64);
    }

    pub(crate) fn align(&mut self, alignment: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(alignment), PADDING);
        self.alignment = self.alignment.max(alignment);
    }

    /// A section with a header (BytecodeFormat, "Sections").
    pub(crate) fn section(&mut self, id: u8, section: Emitter) {
        let aligned = section.alignment > 1;
        self.bytes.push(id | u8::from(aligned) << 7);
        self.varint(section.bytes.len() as u64);
        if aligned {
            self.varint(section.alignment as u64);
            self.align(section.alignment);
        }
        self.bytes.extend_from_slice(&section.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::cursor::Cursor;
    use super::*;

    #[test]
    fn numbers_are_read_again() {
        let mut values: Vec<u64> = (0..64).flat_map(|bit| [1u64 << bit, (1u64 << bit) - 1]).collect();
        values.push(u64::MAX);
        for value in values {
            let mut out = Emitter::default();
            out.varint(value);
            out.signed(value as i64);
            out.flagged(value >> 1, true);
            let mut cursor = Cursor::new(&out.bytes, 0);
            assert_eq!(cursor.varint().unwrap(), value);
            assert_eq!(cursor.signed().unwrap(), value as i64);
            assert_eq!(cursor.flagged().unwrap(), (value >> 1, true));
            assert!(cursor.is_empty());
        }
    }
}
