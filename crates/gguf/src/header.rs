//! The header of a file: metadata and the list of tensors.

use crate::cursor::{Cursor, shown};
use crate::{Error, MAGIC, MetadataValue, TensorType};
use std::collections::HashMap;
use std::ops::Range;

/// The most axes of a tensor, which is ggml's limit.
const MOST_AXES: u32 = 4;
/// Where the bytes of a tensor may begin, unless `general.alignment` says otherwise.
pub(crate) const ALIGNMENT: u64 = 32;
/// The key of the alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// Metadata and the list of tensors.
///
/// Invariants: keys are distinct, and so are names of tensors; the bytes of every tensor lie inside
/// the file that the header was read from and overlap no other tensor's.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufHeader {
    version: u32,
    alignment: u64,
    metadata: Vec<(String, MetadataValue)>,
    keys: HashMap<String, usize>,
    tensors: Vec<TensorInfo>,
    names: HashMap<String, usize>,
}

/// A tensor of a file: name, type, shape, and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    name: String,
    ty: TensorType,
    shape: Vec<usize>,
    elements: usize,
    range: Range<usize>,
}

impl TensorInfo {
    /// The name, as llama.cpp spells it: `blk.0.attn_q.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements or blocks, as the file numbers it.
    pub fn ty(&self) -> TensorType {
        self.ty
    }

    /// The extents in row-major order, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of values: the product of the shape.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The bytes of the tensor, counted from the start of the file.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl GgufHeader {
    /// Reads the header of a file whose bytes are given completely.
    ///
    /// # Errors
    /// [`Error::Magic`], [`Error::Version`], [`Error::Truncated`], [`Error::Invalid`].
    pub fn read(bytes: &[u8]) -> Result<GgufHeader, Error> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Error::Magic);
        }
        let mut cursor = Cursor::new(bytes, MAGIC.len());
        let version = cursor.u32("the version")?;
        if !(2..=3).contains(&version) {
            // A big-endian file has the same magic, and a small number once its bytes are reversed.
            let big_endian = (1..=0xffff).contains(&version.swap_bytes());
            return Err(Error::Version {
                version: if big_endian { version.swap_bytes() } else { version },
                big_endian,
            });
        }
        // A tensor has a name, a number of axes, a type and an offset; a pair of metadata a key, a
        // type and a value.
        let tensor_count = cursor.count(8 + 4 + 4 + 8, "the number of tensors")?;
        let pair_count = cursor.count(8 + 4 + 1, "the number of keys")?;
        let (metadata, keys) = read_metadata(&mut cursor, pair_count)?;
        let alignment = match keys.get(ALIGNMENT_KEY).map(|&index| &metadata[index].1) {
            None => ALIGNMENT,
            Some(MetadataValue::U32(n)) if n.is_power_of_two() => u64::from(*n),
            Some(other) => {
                let reason = format!("{other} is not a power of two of type u32");
                return Err(cursor.invalid(ALIGNMENT_KEY, cursor.at(), reason));
            }
        };
        let (mut tensors, mut names) = (Vec::with_capacity(tensor_count), HashMap::with_capacity(tensor_count));
        for index in 0..tensor_count {
            let at = cursor.at();
            let info = Listed::read(&mut cursor)?;
            if names.insert(info.name.clone(), index).is_some() {
                return Err(cursor.invalid(&info.what(), at, "the name occurs twice"));
            }
            tensors.push((info, at));
        }
        let start = (cursor.at() as u64).next_multiple_of(alignment);
        let place = |(info, at): (Listed, usize)| info.place(&cursor, at, start, alignment, bytes.len() as u64);
        let tensors = tensors.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        check_overlap(&tensors)?;
        Ok(GgufHeader { version, alignment, metadata, keys, tensors, names })
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The alignment of tensors in bytes, a power of two.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Keys and values, in the order of the file.
    pub fn metadata(&self) -> &[(String, MetadataValue)] {
        &self.metadata
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.keys.get(key).map(|&index| &self.metadata[index].1)
    }

    /// The tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.names.get(name).map(|&index| &self.tensors[index])
    }
}

/// Keys and values in their order, and the place of each key among them.
type Metadata = (Vec<(String, MetadataValue)>, HashMap<String, usize>);

fn read_metadata(cursor: &mut Cursor<'_>, count: usize) -> Result<Metadata, Error> {
    let (mut metadata, mut keys) = (Vec::with_capacity(count), HashMap::with_capacity(count));
    for index in 0..count {
        let at = cursor.at();
        let key = cursor.string(&format!("key {index}"))?.to_string();
        let what = format!("the key `{}`", shown(&key));
        let value = cursor.value(&what)?;
        if keys.insert(key.clone(), index).is_some() {
            return Err(cursor.invalid(&what, at, "it occurs twice"));
        }
        metadata.push((key, value));
    }
    Ok((metadata, keys))
}

/// The number of values of a tensor, if no product of its extents overflows. An extent of zero does
/// not excuse the others: whether they overflow must not depend on their order.
pub(crate) fn value_count(extents: impl Iterator<Item = u64>) -> Option<u64> {
    let (mut count, mut zero) = (1u64, false);
    for extent in extents {
        zero |= extent == 0;
        count = count.checked_mul(extent.max(1))?;
    }
    Some(if zero { 0 } else { count })
}

/// A tensor as the file lists it.
struct Listed {
    name: String,
    ty: TensorType,
    shape: Vec<usize>,
    elements: usize,
    bytes: u64,
    offset: u64,
}

impl Listed {
    fn what(&self) -> String {
        format!("the tensor `{}`", shown(&self.name))
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Listed, Error> {
        let at = cursor.at();
        let name = cursor.string("the name of a tensor")?.to_string();
        let what = format!("the tensor `{}`", shown(&name));
        let axes = cursor.u32(&what)?;
        if axes > MOST_AXES {
            return Err(cursor.invalid(&what, at, format!("{axes} axes; the most are {MOST_AXES}")));
        }
        let extents = (0..axes).map(|_| cursor.u64(&what)).collect::<Result<Vec<u64>, _>>()?;
        let id = cursor.u32(&what)?;
        let ty = TensorType::from_id(id)
            .ok_or_else(|| cursor.invalid(&what, at, format!("its type {id} is unknown to this version")))?;
        let offset = cursor.u64(&what)?;
        let sizes = value_count(extents.iter().copied()).and_then(|n| Some((usize::try_from(n).ok()?, ty.bytes(n)?)));
        let Some((elements, bytes)) = sizes else {
            return Err(cursor.invalid(&what, at, format!("the extents {extents:?} overflow")));
        };
        let inner = extents.first().copied().unwrap_or(1);
        if !inner.is_multiple_of(ty.block_values() as u64) {
            let reason = format!(
                "rows of {inner} values are not whole blocks of {} values, as {} has them",
                ty.block_values(),
                ty.name()
            );
            return Err(cursor.invalid(&what, at, reason));
        }
        // A narrow usize may not hold an extent that lies next to a zero.
        let shape = extents.iter().rev().map(|&n| usize::try_from(n)).collect::<Result<Vec<_>, _>>();
        let shape = shape.map_err(|_| cursor.invalid(&what, at, format!("the extents {extents:?} overflow")))?;
        Ok(Listed { name, ty, shape, elements, bytes, offset })
    }

    fn place(
        self,
        cursor: &Cursor<'_>,
        at: usize,
        start: u64,
        alignment: u64,
        length: u64,
    ) -> Result<TensorInfo, Error> {
        if !self.offset.is_multiple_of(alignment) {
            let reason = format!("the offset {} is not a multiple of {alignment}", self.offset);
            return Err(cursor.invalid(&self.what(), at, reason));
        }
        let begin = start.checked_add(self.offset);
        let range = begin.and_then(|begin| Some((begin, begin.checked_add(self.bytes)?)));
        let Some((begin, end)) = range.filter(|&(_, end)| end <= length) else {
            let reason = format!(
                "its {} bytes at {} + {} do not lie inside the file, which has {length}",
                self.bytes, start, self.offset
            );
            return Err(cursor.invalid(&self.what(), at, reason));
        };
        // Both are at most the length of the bytes in memory.
        let range = begin as usize..end as usize;
        Ok(TensorInfo { name: self.name, ty: self.ty, shape: self.shape, elements: self.elements, range })
    }
}

fn check_overlap(tensors: &[TensorInfo]) -> Result<(), Error> {
    let mut order: Vec<&TensorInfo> = tensors.iter().filter(|t| !t.range.is_empty()).collect();
    order.sort_by_key(|t| t.range.start);
    for pair in order.windows(2) {
        if pair[0].range.end > pair[1].range.start {
            return Err(Error::Invalid {
                what: format!("the tensor `{}`", shown(&pair[1].name)),
                at: pair[1].range.start as u64,
                reason: format!("its bytes overlap those of `{}`", shown(&pair[0].name)),
            });
        }
    }
    Ok(())
}
