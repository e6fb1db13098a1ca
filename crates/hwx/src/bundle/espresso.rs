//! Files of Espresso, the runtime before ML Programs (spec: coreml-containers.md 5).

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use serde_json::Value;

use super::{u32_at, u64_at};
use crate::error::{Error, Result};

/// `model.espresso.weights`: blobs by number. Those of odd numbers hold data, those of even ones
/// pad to 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EspressoWeights {
    /// Number and place of each blob, in the order of the file.
    pub blobs: Vec<(u64, Range<usize>)>,
}

impl EspressoWeights {
    /// Where the blobs begin, if the table goes with the length.
    fn begin(head: &[u8], length: u64) -> Option<(u64, u64)> {
        let count = u64_at(head, 0)?;
        let begin = count.checked_mul(16)?.checked_add(8)?;
        (begin <= length).then_some((count, begin))
    }

    /// True if the table's sizes make the file's length, as far as the head has the table.
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
    /// E0731 where the table or a blob reaches beyond the file, or something lies behind the last
    /// one.
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
            return Err(Error::bundle(at, format!("{:#x} bytes lie behind the last blob", file.len() - at)));
        }
        Ok(EspressoWeights { blobs })
    }
}

/// `model.espresso.net` or `model.espresso.shape`, as far as both are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EspressoNet {
    /// The format's number.
    pub version: Option<u64>,
    /// The file of weights.
    pub storage: Option<String>,
    /// How many layers there are of each type.
    pub layers: BTreeMap<String, usize>,
    /// Batches, channels, height and width of each value.
    pub shapes: BTreeMap<String, [Option<u64>; 4]>,
}

impl EspressoNet {
    /// Reads JSON.
    ///
    /// # Errors
    /// E0731 for what is no JSON, or has neither layers nor shapes.
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

/// A packed file: what its header says. The data are compressed (LZFSE) and are not unpacked here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EspressoPacked {
    /// Bytes of a block.
    pub block: u64,
    /// Bytes unpacked.
    pub unpacked: u64,
    /// Bytes packed.
    pub packed: u64,
}

impl EspressoPacked {
    /// Reads the header.
    ///
    /// # Errors
    /// E0731 where the file ends in it.
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
