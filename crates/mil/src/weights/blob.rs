//! Weight blob files, version 2: the writer, and a strict and a lenient reader (weight-blob §1, §4,
//! §6).
//!
//! A file is a 64-byte header and 64-byte aligned records; text refers to a record by the offset of
//! its metadata. The strict reader rejects everything that the format does not allow. The lenient
//! one trusts the record at the referenced offset and warns about contradictions: existing files
//! hold sizes and offsets of zero, wrong types and wrong counts.

use std::io::{self, Write};
use std::ops::Range;

use crate::program::DataType;

/// The first word of every record.
pub const SENTINEL: u32 = 0xDEAD_BEEF;
/// Size of the file header, of a record's metadata, and the alignment of both and of payloads.
pub const ALIGNMENT: usize = 64;

const CODES: [(DataType, u32); 17] = [
    (DataType::Fp16, 1),
    (DataType::Fp32, 2),
    (DataType::UInt8, 3),
    (DataType::Int8, 4),
    (DataType::Bf16, 5),
    (DataType::Int16, 6),
    (DataType::UInt16, 7),
    (DataType::Int4, 8),
    (DataType::UInt1, 9),
    (DataType::UInt2, 10),
    (DataType::UInt4, 11),
    (DataType::UInt3, 12),
    (DataType::UInt6, 13),
    (DataType::Int32, 14),
    (DataType::UInt32, 15),
    (DataType::Fp8E4M3Fn, 16),
    (DataType::Fp8E5M2, 17),
];

/// The format's number of an element type; bool is stored as uint8. `None` for what it cannot hold.
pub fn code(dtype: DataType) -> Option<u32> {
    let dtype = if dtype == DataType::Bool { DataType::UInt8 } else { dtype };
    CODES.iter().find(|(d, _)| *d == dtype).map(|(_, c)| *c)
}

/// The element type of that number.
pub fn from_code(code: u32) -> Option<DataType> {
    CODES.iter().find(|(_, c)| *c == code).map(|(d, _)| *d)
}

/// Errors of a blob file: errors of the strict reader, warnings of the lenient one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum BlobError {
    /// No record starts at the offset: not within the file, or without the sentinel.
    #[error("no record at offset {offset} (the file has {len} bytes)")]
    NoRecord { offset: u64, len: usize },
    /// The payload does not lie in the file.
    #[error("the payload of {size} bytes at {offset} does not lie in the file's {len} bytes")]
    OutOfFile { offset: u64, size: u64, len: usize },
    /// Another version than 2; 1 is the older Espresso layout.
    #[error("the file's version is {found}, not 2")]
    Version { found: u32 },
    /// The header counts other records than there are.
    #[error("the header counts {declared} records, the file has {found}")]
    Count { declared: u32, found: u32 },
    /// The record's element type is not the one asked for.
    #[error("the record holds elements of type {found}, not {expected}")]
    Type { expected: DataType, found: String },
    /// The record's size is not that of the elements asked for.
    #[error("the record declares {declared} bytes, {expected} are needed")]
    Size { declared: u64, expected: u64 },
    /// The record's unused bits are not those of the elements asked for.
    #[error("the record declares {declared} unused bits, there are {expected}")]
    Padding { declared: u64, expected: u64 },
    /// Metadata or payload are not 64-byte aligned.
    #[error("offset {offset} is not a multiple of 64")]
    Alignment { offset: u64 },
    /// The offset of the payload is impossible; the payload is assumed to follow the metadata.
    #[error("the payload offset {declared} is impossible; the payload after the metadata is used")]
    PayloadOffset { declared: u64 },
}

/// How strictly blob files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Strictness {
    /// Every mismatch is an error.
    #[default]
    Strict,
    /// The referenced record is trusted.
    Lenient,
}

/// The metadata of a record, as it stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Number of the element type, see [`from_code`].
    pub code: u32,
    /// Bytes of the payload.
    pub size: u64,
    /// Where the payload starts in the file.
    pub offset: u64,
    /// Unused bits of the last byte; sub-byte types only.
    pub padding_bits: u64,
}

/// The metadata at an offset.
///
/// # Errors
/// [`BlobError::NoRecord`].
pub fn metadata(file: &[u8], offset: u64) -> Result<Metadata, BlobError> {
    let none = BlobError::NoRecord { offset, len: file.len() };
    let start = usize::try_from(offset).map_err(|_| none.clone())?;
    let record = start.checked_add(ALIGNMENT).and_then(|end| file.get(start..end)).ok_or(none.clone())?;
    if u32_at(record, 0) != SENTINEL {
        return Err(none);
    }
    Ok(Metadata {
        code: u32_at(record, 4),
        size: u64_at(record, 8),
        offset: u64_at(record, 16),
        padding_bits: u64_at(record, 24),
    })
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

/// Finds the payload of `elements` elements of `dtype` in the record at `offset`. Returns its range
/// in the file and, from the lenient reader, warnings.
///
/// # Errors
/// Strict: any mismatch. Lenient: no record there, or not enough bytes.
pub fn find(
    file: &[u8],
    offset: u64,
    dtype: DataType,
    elements: usize,
    strictness: Strictness,
) -> Result<(Range<usize>, Vec<BlobError>), BlobError> {
    let record = metadata(file, offset)?;
    let len = file.len();
    let bits = (elements as u128) * (dtype.bits().unwrap_or(8) as u128);
    let needed = u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX);
    let padding = (8 - bits % 8) as u64 % 8;
    let mut odd = Vec::new();
    if u32_at(file, 4) != 2 {
        odd.push(BlobError::Version { found: u32_at(file, 4) });
    }
    if !offset.is_multiple_of(ALIGNMENT as u64) {
        odd.push(BlobError::Alignment { offset });
    }
    if code(dtype) != Some(record.code) {
        let found = from_code(record.code).map_or(format!("number {}", record.code), |d| d.to_string());
        odd.push(BlobError::Type { expected: dtype, found });
    }
    if record.size != needed {
        odd.push(BlobError::Size { declared: record.size, expected: needed });
    }
    if dtype.bytes().is_none() && record.padding_bits != padding {
        odd.push(BlobError::Padding { declared: record.padding_bits, expected: padding });
    }
    let place = |start: u64| -> Result<Range<usize>, BlobError> {
        let fail = BlobError::OutOfFile { offset: start, size: needed, len };
        let end = start.checked_add(needed).ok_or(fail.clone())?;
        let (start, end) =
            (usize::try_from(start).map_err(|_| fail.clone())?, usize::try_from(end).map_err(|_| fail.clone())?);
        if end <= len { Ok(start..end) } else { Err(fail) }
    };
    let declared = place(record.offset);
    // A payload follows metadata; no correct writer stores a smaller offset, or one beyond the end
    // of the file.
    let behind = offset + ALIGNMENT as u64;
    let is_behind = record.offset >= behind || record.offset >= 2 * ALIGNMENT as u64;
    if strictness == Strictness::Strict {
        if let Some(first) = odd.into_iter().next() {
            return Err(first);
        }
        if !record.offset.is_multiple_of(ALIGNMENT as u64) {
            return Err(BlobError::Alignment { offset: record.offset });
        }
        return match is_behind {
            true => Ok((declared?, Vec::new())),
            false => Err(BlobError::PayloadOffset { declared: record.offset }),
        };
    }
    let range = match declared {
        Ok(range) if is_behind => range,
        _ => {
            odd.push(BlobError::PayloadOffset { declared: record.offset });
            place(behind)?
        }
    };
    Ok((range, odd))
}

/// Every record of a file that follows the format, in file order with the offset of its metadata.
/// Reserved words are ignored: old files hold arbitrary values there.
///
/// # Errors
/// The first thing that the format does not allow.
pub fn records(file: &[u8]) -> Result<Vec<(u64, Metadata)>, BlobError> {
    let len = file.len();
    if len < ALIGNMENT {
        return Err(BlobError::NoRecord { offset: 0, len });
    }
    if u32_at(file, 4) != 2 {
        return Err(BlobError::Version { found: u32_at(file, 4) });
    }
    let declared = u32_at(file, 0);
    let mut found = Vec::new();
    let mut at = ALIGNMENT as u64;
    while at < len as u64 {
        let record = metadata(file, at)?;
        let end = record.offset.checked_add(record.size).filter(|&end| end <= len as u64);
        let end = end.ok_or(BlobError::OutOfFile { offset: record.offset, size: record.size, len })?;
        if !record.offset.is_multiple_of(ALIGNMENT as u64) || record.offset < at + ALIGNMENT as u64 {
            return Err(BlobError::Alignment { offset: record.offset });
        }
        found.push((at, record));
        at = align(end);
    }
    match found.len() as u32 == declared {
        true => Ok(found),
        false => Err(BlobError::Count { declared, found: found.len() as u32 }),
    }
}

/// The next multiple of 64.
pub(crate) fn align(n: u64) -> u64 {
    n.next_multiple_of(ALIGNMENT as u64)
}

/// Writes a blob file.
#[derive(Clone, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    count: u32,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

impl Writer {
    /// A file without records: the header alone.
    pub fn new() -> Writer {
        Writer { bytes: vec![0; ALIGNMENT], count: 0 }
    }

    /// Continues after the records of an existing file, and ignores its header.
    pub(super) fn extending(file: &[u8]) -> Writer {
        let mut bytes = file.to_vec();
        bytes.resize(bytes.len().max(ALIGNMENT), 0);
        let count = records(file).map_or(u32_at(file, 0), |r| r.len() as u32);
        Writer { bytes, count }
    }

    /// Appends a record of `elements` elements, packed; returns the offset of its metadata, which
    /// text refers to. An element type without a number in the format gets 0.
    pub fn add(&mut self, dtype: DataType, payload: &[u8], elements: usize) -> u64 {
        let offset = align(self.bytes.len() as u64);
        self.bytes.resize(offset as usize, 0);
        self.bytes.extend_from_slice(&record(offset, dtype, payload, elements));
        self.bytes.extend_from_slice(payload);
        self.count += 1;
        offset
    }

    /// The file. It is not padded at its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes[..ALIGNMENT].copy_from_slice(&header(self.count));
        self.bytes
    }
}

/// Writes a whole file of records, `(type, elements, payload)`, without copying payloads. The
/// offset of a record is what [`align`] gives for the end of the one before it, of the header for
/// the first.
pub(crate) fn write(out: &mut impl Write, records: &[(DataType, usize, &[u8])]) -> io::Result<()> {
    out.write_all(&header(records.len() as u32))?;
    let mut end = ALIGNMENT as u64;
    for (dtype, elements, payload) in records {
        let offset = align(end);
        out.write_all(&[0; ALIGNMENT][..(offset - end) as usize])?;
        out.write_all(&record(offset, *dtype, payload, *elements))?;
        out.write_all(payload)?;
        end = offset + (ALIGNMENT + payload.len()) as u64;
    }
    Ok(())
}

fn header(count: u32) -> [u8; ALIGNMENT] {
    let mut header = [0; ALIGNMENT];
    header[0..4].copy_from_slice(&count.to_le_bytes());
    header[4..8].copy_from_slice(&2u32.to_le_bytes());
    header
}

/// The metadata of a record at an offset; its payload follows.
fn record(offset: u64, dtype: DataType, payload: &[u8], elements: usize) -> [u8; ALIGNMENT] {
    let padding = match dtype.bits() {
        Some(bits) if bits % 8 != 0 => (payload.len() * 8).saturating_sub(elements * bits) as u64,
        _ => 0,
    };
    let mut record = [0; ALIGNMENT];
    record[0..4].copy_from_slice(&SENTINEL.to_le_bytes());
    record[4..8].copy_from_slice(&code(dtype).unwrap_or(0).to_le_bytes());
    record[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    record[16..24].copy_from_slice(&(offset + ALIGNMENT as u64).to_le_bytes());
    record[24..32].copy_from_slice(&padding.to_le_bytes());
    record
}

/// Packs integers of a type of at most eight bits: element `i` takes the bits from `i·b`, counted
/// from the least significant bit of byte 0. Values are cut to the type's width.
pub fn pack(dtype: DataType, values: &[i64]) -> Vec<u8> {
    let width = dtype.bits().unwrap_or(8).min(8);
    let mut bytes = vec![0u8; (values.len() * width).div_ceil(8)];
    for (i, &v) in values.iter().enumerate() {
        let at = i * width;
        let field = (v as u16 & ((1 << width) - 1)) << (at % 8);
        bytes[at / 8] |= field as u8;
        if let Some(next) = bytes.get_mut(at / 8 + 1) {
            *next |= (field >> 8) as u8;
        }
    }
    bytes
}

/// The first `count` integers of packed bytes (fewer if the bytes end before); int4 is two's
/// complement.
pub fn unpack(dtype: DataType, bytes: &[u8], count: usize) -> Vec<i64> {
    let width = dtype.bits().unwrap_or(8).min(8);
    let signed = |raw: u8| i64::from(if dtype == DataType::Int4 && raw & 8 != 0 { raw as i8 - 16 } else { raw as i8 });
    let element = |i| field(bytes, width, i).map(|raw| if width == 8 { i64::from(raw) } else { signed(raw) });
    (0..count).map_while(element).collect()
}

/// Field `i` of `width` bits, at most eight, counted from the least significant bit of byte 0.
/// `None` beyond the end.
pub fn field(bytes: &[u8], width: usize, i: usize) -> Option<u8> {
    let at = i.checked_mul(width)?;
    let low = u16::from(*bytes.get(at / 8)?);
    let high = if at % 8 + width > 8 { u16::from(*bytes.get(at / 8 + 1)?) } else { 0 };
    Some(((low | high << 8) >> (at % 8) & ((1 << width) - 1)) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_as_the_format_says() {
        let nibbles = [-8, -7, -1, 0, 1, 6, 7];
        assert_eq!(pack(DataType::Int4, &nibbles), [0x98, 0x0f, 0x61, 0x07]);
        assert_eq!(unpack(DataType::Int4, &[0x98, 0x0f, 0x61, 0x07], 7), nibbles);
        for dtype in [DataType::UInt1, DataType::UInt2, DataType::UInt3, DataType::UInt4, DataType::UInt6] {
            let top = 1i64 << dtype.bits().unwrap_or(0);
            let values: Vec<i64> = (0..37).map(|i| i * 7 % top).collect();
            assert_eq!(unpack(dtype, &pack(dtype, &values), 37), values);
        }
        assert!(unpack(DataType::UInt4, &[1], usize::MAX).len() == 2);
    }

    #[test]
    fn strict_refuses_what_lenient_reports() {
        let mut w = Writer::new();
        let first = w.add(DataType::Fp16, &[1, 2, 3, 4, 5, 6], 3);
        let second = w.add(DataType::Int4, &[0x98, 0x0f, 0x61, 0x07], 7);
        let good = w.finish();
        assert_eq!((first, second, good.len()), (64, 192, 260));
        let listed: Vec<u64> = records(&good).expect("well formed").iter().map(|(o, _)| *o).collect();
        assert_eq!(listed, [64, 192]);
        assert_eq!(find(&good, 64, DataType::Fp16, 3, Strictness::Strict), Ok((128..134, vec![])));
        assert_eq!(find(&good, 192, DataType::Int4, 7, Strictness::Strict), Ok((256..260, vec![])));
        let strict = |file: &[u8], at, dtype, n| find(file, at, dtype, n, Strictness::Strict).expect_err("refused");
        let lenient = |file: &[u8], at, dtype, n| find(file, at, dtype, n, Strictness::Lenient);
        assert!(matches!(strict(&good, 128, DataType::Fp16, 3), BlobError::NoRecord { .. }));
        assert!(matches!(lenient(&good, 128, DataType::Fp16, 3), Err(BlobError::NoRecord { .. })));
        assert!(matches!(strict(&good, u64::MAX, DataType::Fp16, 3), BlobError::NoRecord { .. }));
        assert!(matches!(strict(&good, 64, DataType::Int16, 3), BlobError::Type { .. }));
        assert!(matches!(strict(&good, 64, DataType::Fp16, 4), BlobError::Size { .. }));
        assert!(matches!(strict(&good, 192, DataType::Int4, 8), BlobError::Padding { .. }));
        assert!(matches!(lenient(&good, 64, DataType::Fp16, usize::MAX), Err(BlobError::OutOfFile { .. })));
        for (at, value, n) in [(0usize, 9u8, 0), (4, 1, 1), (72, 0, 1), (80, 0, 1), (87, 255, 1)] {
            let mut bad = good.clone();
            bad[at] = value;
            let (range, odd) = lenient(&bad, 64, DataType::Fp16, 3).expect("trusted");
            assert_eq!((range, odd.len()), (128..134, n), "{at} {odd:?}");
            assert!(records(&bad).is_err(), "{at}");
        }
    }
}
