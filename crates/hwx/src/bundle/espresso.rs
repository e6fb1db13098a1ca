//! Files of Espresso, the Core ML runtime before ML Programs (spec: coreml-containers.md 5).

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use serde_json::Value;

use super::{u32_at, u64_at};
use crate::error::{Error, Result};

/// `model.espresso.weights`: numbered blobs. Blobs with odd numbers hold data, those with even
/// numbers are padding to 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EspressoWeights {
    /// The number and byte range of each blob, in the order of the file.
    pub blobs: Vec<(u64, Range<usize>)>,
}

impl EspressoWeights {
    /// The number of blobs and the offset of the first one, if the table agrees with `length`.
    fn begin(head: &[u8], length: u64) -> Option<(u64, u64)> {
        let count = u64_at(head, 0)?;
        let begin = count.checked_mul(16)?.checked_add(8)?;
        (begin <= length).then_some((count, begin))
    }

    /// True if the sizes in the table add up to the file's length, as far as `head` contains the
    /// table.
    pub fn is(head: &[u8], length: u64) -> bool {
        let Some((count, begin)) = EspressoWeights::begin(head, length) else { return false };
        if count == 0 {
            return length == 8;
        }
        let sizes = (0..count).map_while(|i| usize::try_from(16 + 16 * i).ok().and_then(|at| u64_at(head, at)));
        let (seen, sum) = sizes.fold((0, Some(begin)), |(n, sum), size| (n + 1, sum.and_then(|s| s.checked_add(size))));
        sum.is_some_and(|sum| if seen == count { sum == length } else { seen > 0 && sum <= length })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// E0731 if the table or a blob reaches beyond the file, or bytes follow the last blob.
    pub fn read(file: &[u8]) -> Result<EspressoWeights> {
        let Some((count, begin)) = EspressoWeights::begin(file, file.len() as u64) else {
            return Err(Error::bundle(0, "the table of blobs reaches beyond the file"));
        };
        let (mut at, mut blobs) = (begin as usize, Vec::new());
        for i in 0..count as usize {
            let (Some(id), Some(size)) = (u64_at(file, 8 + 16 * i), u64_at(file, 16 + 16 * i)) else {
                return Err(Error::bundle(8 + 16 * i, "the table of blobs reaches beyond the file"));
            };
            let end = usize::try_from(size).ok().and_then(|size| at.checked_add(size)).filter(|end| *end <= file.len());
            let Some(end) = end else {
                return Err(Error::bundle(at, format!("blob {id}, of {size:#x} bytes, reaches beyond the file")));
            };
            blobs.push((id, at..end));
            at = end;
        }
        if at != file.len() {
            return Err(Error::bundle(at, format!("{:#x} bytes follow the last blob", file.len() - at)));
        }
        Ok(EspressoWeights { blobs })
    }
}

/// The known parts of `model.espresso.net` or `model.espresso.shape`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EspressoNet {
    /// The format version, if the file has one.
    pub version: Option<u64>,
    /// The name of the file of weights, if the file has one.
    pub storage: Option<String>,
    /// The number of layers of each type.
    pub layers: BTreeMap<String, usize>,
    /// The shape `[N, C, H, W]` of each value; `None` for an extent that the file does not give.
    pub shapes: BTreeMap<String, [Option<u64>; 4]>,
}

impl EspressoNet {
    /// Reads JSON.
    ///
    /// # Errors
    /// E0731 if the file is not JSON, or has neither layers nor shapes.
    pub fn read(file: &[u8]) -> Result<EspressoNet> {
        let all: Value = serde_json::from_slice(file).map_err(|e| Error::bundle(0, format!("no JSON: {e}")))?;
        let mut layers = BTreeMap::new();
        for layer in all["layers"].as_array().into_iter().flatten() {
            let kind = layer["type"].as_str().unwrap_or("without a type");
            *layers.entry(kind.to_string()).or_insert(0) += 1;
        }
        let shapes = all["layer_shapes"].as_object().into_iter().flatten();
        let shapes: BTreeMap<_, _> =
            shapes.map(|(name, s)| (name.clone(), ["n", "k", "h", "w"].map(|d| s[d].as_u64()))).collect();
        if layers.is_empty() && shapes.is_empty() {
            return Err(Error::bundle(0, "neither `layers` nor `layer_shapes`"));
        }
        let storage = all["storage"].as_str().map(str::to_string);
        Ok(EspressoNet { version: all["format_version"].as_u64(), storage, layers, shapes })
    }
}

/// The header of a packed file. The data are compressed (LZFSE) and are not unpacked here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EspressoPacked {
    /// The size of a block in bytes.
    pub block: u64,
    /// The size after unpacking, in bytes.
    pub unpacked: u64,
    /// The packed size, in bytes.
    pub packed: u64,
}

impl EspressoPacked {
    /// Reads the header of a packed file.
    ///
    /// # Errors
    /// E0731 if the file ends in the header.
    pub fn read(file: &[u8]) -> Result<EspressoPacked> {
        let number = |at| u64_at(file, at).map(u64::swap_bytes);
        match (u32_at(file, 0), number(4), number(12), number(20)) {
            (Some(_), Some(block), Some(unpacked), Some(packed)) if file.starts_with(b"pbze") => {
                Ok(EspressoPacked { block, unpacked, packed })
            }
            _ => Err(Error::bundle(0, "a packed file begins with `pbze` and three sizes")),
        }
    }
}
