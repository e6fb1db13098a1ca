//! A position in bytes of the file. Every read is checked, and errors name the offset in the file.
//!
//! Numbers are MLIR's variable-length integers: the number of zero bits at the low end of the first
//! byte is the number of bytes that follow it, and a first byte of 0 is followed by 8 bytes
//! (<https://mlir.llvm.org/docs/BytecodeFormat>, "Primitives").

use crate::error::{Error, Result};

/// A part of the file, and how far it has been read.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    /// The offset of the first byte in the file.
    base: usize,
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], base: usize) -> Self {
        Self { bytes, base, position: 0 }
    }

    /// The offset of the next byte in the file.
    pub(crate) fn offset(&self) -> usize {
        self.base + self.position
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Fails unless all bytes were read.
    pub(crate) fn finish(&self, what: &str) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(Error::form(self.offset(), format!("{left} bytes are left after {what}"))),
        }
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.remaining() {
            let left = self.remaining();
            return Err(Error::truncated(self.offset(), format!("{count} bytes are announced, {left} are left")));
        }
        let bytes = &self.bytes[self.position..self.position + count];
        self.position += count;
        Ok(bytes)
    }

    /// The next `count` bytes as a part of its own.
    pub(crate) fn part(&mut self, count: usize) -> Result<Cursor<'a>> {
        let base = self.offset();
        Ok(Cursor::new(self.take(count)?, base))
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let first = *self.take(1)?.first().unwrap_or(&0);
        let more = (first.trailing_zeros() as usize).min(8);
        let mut bytes = [0u8; 8];
        if more == 8 {
            bytes.copy_from_slice(self.take(8)?);
            return Ok(u64::from_le_bytes(bytes));
        }
        bytes[0] = first;
        bytes[1..=more].copy_from_slice(self.take(more)?);
        Ok(u64::from_le_bytes(bytes) >> (more + 1))
    }

    /// A varint whose lowest bit is a flag.
    pub(crate) fn flagged(&mut self) -> Result<(u64, bool)> {
        let value = self.varint()?;
        Ok((value >> 1, value & 1 == 1))
    }

    /// A varint that zigzag encodes a signed number.
    pub(crate) fn signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number of things that take at least one byte each, so it is bounded by what is left.
    pub(crate) fn count(&mut self, what: &str) -> Result<usize> {
        let at = self.offset();
        let count = self.varint()?;
        self.bounded(at, count, what)
    }

    /// `count`, if so many things of at least one byte each are left.
    pub(crate) fn bounded(&self, at: usize, count: u64, what: &str) -> Result<usize> {
        match usize::try_from(count) {
            Ok(count) if count <= self.remaining() => Ok(count),
            _ => {
                let left = self.remaining();
                Err(Error::truncated(at, format!("{count} {what} are announced, {left} bytes are left")))
            }
        }
    }

    /// An index into a table of `len` entries.
    pub(crate) fn index(&mut self, len: usize, what: &str) -> Result<u32> {
        let at = self.offset();
        let index = self.varint()?;
        within(at, index, len, what)
    }

    /// Skips the padding before an offset of the file that is a multiple of `alignment`.
    pub(crate) fn align(&mut self, alignment: u64) -> Result<()> {
        let at = self.offset();
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return Err(Error::form(at, format!("an alignment of {alignment} bytes is not allowed")));
        }
        let padding = at.next_multiple_of(alignment as usize) - at;
        if self.take(padding)?.iter().any(|b| *b != PADDING) {
            return Err(Error::form(at, format!("padding is not {PADDING:#04x}")));
        }
        Ok(())
    }
}

/// The byte that fills gaps (BytecodeFormat, "Alignment").
pub(crate) const PADDING: u8 = 0xcb;
/// The largest alignment that is accepted. Files of coreai-core 1.0.0b3 use 64 at most.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// `index`, if it is one of `len`.
pub(crate) fn within(at: usize, index: u64, len: usize, what: &str) -> Result<u32> {
    if index < len as u64 {
        return Ok(index as u32);
    }
    Err(Error::reference(at, format!("{what} {index} does not exist, there are {len}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length() {
        for (bytes, value) in [
            (&[0x01][..], 0),
            (&[0xff][..], 127),
            (&[0x02, 0x02], 128),
            (&[0x16, 0x68], 6661),
            (&[0, 1, 0, 0, 0, 0, 0, 0, 0], 1),
            (&[0, 255, 255, 255, 255, 255, 255, 255, 255], u64::MAX),
        ] {
            assert_eq!(Cursor::new(bytes, 0).varint().unwrap(), value, "{bytes:x?}");
        }
        assert!(Cursor::new(&[0x02], 0).varint().is_err());
        assert!(Cursor::new(&[0, 1], 0).varint().is_err());
        assert!(Cursor::new(&[], 0).varint().is_err());
    }

    #[test]
    fn zigzag() {
        let signed = |bytes: &[u8]| Cursor::new(bytes, 0).signed().unwrap();
        assert_eq!([signed(&[0x01]), signed(&[0x03]), signed(&[0x05]), signed(&[0x07])], [0, -1, 1, -2]);
        assert_eq!(signed(&[0, 255, 255, 255, 255, 255, 255, 255, 255]), i64::MIN);
    }
}
