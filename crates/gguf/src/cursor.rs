//! Reading of little-endian values, with the place of what is read for errors.

use crate::Error;
use crate::value::{Array, MetadataValue, ValueType};
use ferrane_diag::printable;

/// Deepest nesting of arrays. Published files do not nest at all.
const DEEPEST: usize = 8;

/// A position in the bytes of a file.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A name from the file, without control characters and of a length that fits a message.
pub(crate) fn shown(name: &str) -> String {
    let mut text = printable(&name.chars().take(80).collect::<String>()).replace('\n', " ");
    if name.chars().nth(80).is_some() {
        text.push('…');
    }
    text
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { bytes, at }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    pub(crate) fn truncated(&self, what: &str) -> Error {
        Error::Truncated { what: what.to_string(), at: self.at as u64 }
    }

    pub(crate) fn invalid(&self, what: &str, at: usize, reason: impl Into<String>) -> Error {
        Error::Invalid { what: what.to_string(), at: at as u64, reason: reason.into() }
    }

    fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(length).ok_or_else(|| self.truncated(what))?;
        let bytes = self.bytes.get(self.at..end).ok_or_else(|| self.truncated(what))?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        // `take` returns exactly N bytes.
        Ok(self.take(N, what)?.first_chunk().copied().unwrap_or([0; N]))
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A number of things of at least `smallest` bytes each, which the rest of the file can hold.
    pub(crate) fn count(&mut self, smallest: usize, what: &str) -> Result<usize, Error> {
        let at = self.at;
        let count = self.u64(what)?;
        let most = (self.rest() / smallest.max(1)) as u64;
        if count > most {
            let reason = format!("the number {count} is above {most}, which is all that the rest of the file can hold");
            return Err(self.invalid(what, at, reason));
        }
        Ok(count as usize)
    }

    pub(crate) fn string(&mut self, what: &str) -> Result<&'a str, Error> {
        let at = self.at;
        let length = self.u64(what)?;
        let length = usize::try_from(length).ok().filter(|&n| n <= self.rest());
        let length = length.ok_or_else(|| self.invalid(what, at, "the string is longer than the rest of the file"))?;
        std::str::from_utf8(self.take(length, what)?).map_err(|e| self.invalid(what, at, format!("not UTF-8: {e}")))
    }

    fn value_type(&mut self, what: &str) -> Result<ValueType, Error> {
        let at = self.at;
        let id = self.u32(what)?;
        ValueType::from_id(id).ok_or_else(|| self.invalid(what, at, format!("unknown type {id}")))
    }

    /// A type, then a value of it.
    pub(crate) fn value(&mut self, what: &str) -> Result<MetadataValue, Error> {
        let ty = self.value_type(what)?;
        Ok(match ty {
            ValueType::U8 => MetadataValue::U8(u8::from_le_bytes(self.array(what)?)),
            ValueType::I8 => MetadataValue::I8(i8::from_le_bytes(self.array(what)?)),
            ValueType::U16 => MetadataValue::U16(u16::from_le_bytes(self.array(what)?)),
            ValueType::I16 => MetadataValue::I16(i16::from_le_bytes(self.array(what)?)),
            ValueType::U32 => MetadataValue::U32(self.u32(what)?),
            ValueType::I32 => MetadataValue::I32(i32::from_le_bytes(self.array(what)?)),
            ValueType::F32 => MetadataValue::F32(f32::from_le_bytes(self.array(what)?)),
            ValueType::Bool => MetadataValue::Bool(self.bool(what)?),
            ValueType::String => MetadataValue::String(self.string(what)?.to_string()),
            ValueType::Array => MetadataValue::Array(self.elements(what, 1)?),
            ValueType::U64 => MetadataValue::U64(self.u64(what)?),
            ValueType::I64 => MetadataValue::I64(i64::from_le_bytes(self.array(what)?)),
            ValueType::F64 => MetadataValue::F64(f64::from_le_bytes(self.array(what)?)),
        })
    }

    fn bool(&mut self, what: &str) -> Result<bool, Error> {
        let at = self.at;
        match self.array(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(self.invalid(what, at, format!("a truth value of {other}"))),
        }
    }

    /// The type of elements, their number, and the elements.
    fn elements(&mut self, what: &str, depth: usize) -> Result<Array, Error> {
        if depth > DEEPEST {
            return Err(self.invalid(what, self.at, format!("arrays nest deeper than {DEEPEST}")));
        }
        let ty = self.value_type(what)?;
        let count = self.count(ty.smallest(), what)?;
        Ok(match ty {
            ValueType::U8 => Array::U8(self.take(count, what)?.to_vec()),
            ValueType::I8 => Array::I8(self.numbers(count, what, i8::from_le_bytes)?),
            ValueType::U16 => Array::U16(self.numbers(count, what, u16::from_le_bytes)?),
            ValueType::I16 => Array::I16(self.numbers(count, what, i16::from_le_bytes)?),
            ValueType::U32 => Array::U32(self.numbers(count, what, u32::from_le_bytes)?),
            ValueType::I32 => Array::I32(self.numbers(count, what, i32::from_le_bytes)?),
            ValueType::F32 => Array::F32(self.numbers(count, what, f32::from_le_bytes)?),
            ValueType::U64 => Array::U64(self.numbers(count, what, u64::from_le_bytes)?),
            ValueType::I64 => Array::I64(self.numbers(count, what, i64::from_le_bytes)?),
            ValueType::F64 => Array::F64(self.numbers(count, what, f64::from_le_bytes)?),
            ValueType::Bool => Array::Bool((0..count).map(|_| self.bool(what)).collect::<Result<_, _>>()?),
            ValueType::String => {
                Array::String((0..count).map(|_| Ok(self.string(what)?.to_string())).collect::<Result<_, Error>>()?)
            }
            ValueType::Array => {
                Array::Array((0..count).map(|_| self.elements(what, depth + 1)).collect::<Result<_, _>>()?)
            }
        })
    }

    fn numbers<const N: usize, T>(
        &mut self,
        count: usize,
        what: &str,
        convert: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Error> {
        // `count` was compared with the rest of the file, so the product does not overflow.
        Ok(self.take(count * N, what)?.as_chunks::<N>().0.iter().map(|bytes| convert(*bytes)).collect())
    }
}
