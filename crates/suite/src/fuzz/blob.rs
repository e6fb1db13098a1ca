//! Weight blob files.

use ferrane_mil::DataType;
use ferrane_mil::weights::blob::{self, Strictness, Writer};

/// The most records to look up; a listing is as long as the file.
const LOOKED_FOR: usize = 64;

/// Any bytes are a blob file or rejected. The lenient reader reads what the strict one accepts as
/// the same record, without complaints. Payloads lie inside the file, and records that are written
/// again are found again.
///
/// # Panics
/// If a property does not hold.
pub fn blob(data: &[u8]) {
    let records = blob::records(data).unwrap_or_default();
    let listed = records.iter().map(|(offset, _)| *offset).take(LOOKED_FOR);
    // The first bytes of the file choose more offsets, so that the fuzzer can steer the look-ups.
    let chosen = data.chunks_exact(8).take(4).map(|b| b.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b)));
    for offset in listed.chain(chosen).chain([0, 64]) {
        let record = blob::metadata(data, offset);
        let wanted = record.as_ref().map_or(0, |r| r.size);
        for (dtype, _) in DataType::ALL {
            let Some(bits) = dtype.bits() else { continue };
            let elements = usize::try_from(u128::from(wanted) * 8 / bits as u128).unwrap_or(usize::MAX);
            let strict = blob::find(data, offset, dtype, elements, Strictness::Strict);
            let lenient = blob::find(data, offset, dtype, elements, Strictness::Lenient);
            if let Ok((range, odd)) = &strict {
                assert_eq!(lenient.as_ref(), Ok(&(range.clone(), Vec::new())), "strict and lenient differ");
                assert!(odd.is_empty() && record.is_ok());
            }
            for (range, _) in [strict, lenient].into_iter().flatten() {
                assert_eq!(range.len() as u128, (elements as u128 * bits as u128).div_ceil(8), "{dtype} at {offset}");
                assert!(data.get(range).is_some(), "{dtype} at {offset} leaves the file");
            }
        }
    }
    let mut writer = Writer::new();
    let mut written = Vec::new();
    for (_, record) in records.iter().take(LOOKED_FOR) {
        let (Some(dtype), Ok(start)) = (blob::from_code(record.code), usize::try_from(record.offset)) else { continue };
        let payload = &data[start..start + record.size as usize];
        let bits = dtype.bits().unwrap_or(8);
        let elements = payload.len() * 8 / bits;
        if (elements * bits).div_ceil(8) != payload.len() {
            // Not a whole number of elements: a file may state that, but the writer never gets it.
            continue;
        }
        written.push((writer.add(dtype, payload, elements), dtype, elements, payload));
    }
    let file = writer.finish();
    assert_eq!(blob::records(&file).expect("written files follow the format").len(), written.len());
    for (offset, dtype, elements, payload) in written {
        let (range, _) =
            blob::find(&file, offset, dtype, elements, Strictness::Strict).expect("what is written is found");
        assert_eq!(&file[range], payload);
    }
}
