//! The weights of a program: an append-only store of blob records over opened blob files.
//!
//! A record knows the file and offset that text names (`@model_path/weights/x.bin`, 64), so
//! printing and packaging agree with what was compiled. Opened files are shared or mapped, never
//! copied; records that are added follow the file's own. Cloning is cheap: clones share the bytes
//! of records. See weight-blob for the file format.

pub mod blob;
mod only;

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, Range};
use std::sync::Arc;

use ferrane_host::map::Mapped;

pub use blob::{BlobError, Strictness, field, pack, unpack};

use crate::program::DataType;

/// A record of [`Weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// The bytes of a file, in memory or mapped. Clones share them.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// Bytes in memory, shared by clones.
    Shared(Arc<[u8]>),
    /// Bytes of a mapped file.
    Mapped(Mapped),
}

impl Bytes {
    /// A range of the bytes, which shares the mapping of a mapped file and is otherwise a copy.
    /// `None` if the range is out of bounds.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        match self {
            Bytes::Shared(b) => b.get(range).map(|part| Bytes::Shared(part.into())),
            Bytes::Mapped(m) => m.slice(range).map(Bytes::Mapped),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Shared(b) => b,
            Bytes::Mapped(m) => m,
        }
    }
}

impl From<Arc<[u8]>> for Bytes {
    fn from(bytes: Arc<[u8]>) -> Bytes {
        Bytes::Shared(bytes)
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::Shared(bytes.into())
    }
}

impl From<Mapped> for Bytes {
    fn from(mapped: Mapped) -> Bytes {
        Bytes::Mapped(mapped)
    }
}

/// The weights of one program.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    files: Arc<BTreeMap<String, Bytes>>,
    records: Arc<Vec<WeightRecord>>,
    /// For files with added records, the offset after the last one.
    ends: Arc<BTreeMap<String, u64>>,
    index: Arc<HashMap<Key, WeightId>>,
}

/// A reference of a text, and whether its bytes are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    file: String,
    offset: u64,
    /// `None` matches a record that was added at this offset.
    what: Option<(DataType, usize)>,
    origin: Origin,
}

/// Where the bytes of a key come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    /// The record was added: it is valid for every reader.
    Added,
    /// An opened file, as read by this kind of reader.
    File(Strictness),
    /// The bytes are missing.
    Absent,
}

#[derive(Clone, Debug)]
struct WeightRecord {
    file: String,
    offset: u64,
    dtype: DataType,
    elements: usize,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    Own(Arc<[u8]>),
    In(Bytes, Range<usize>),
    Absent,
}

impl Weights {
    /// A store without records and files.
    pub fn new() -> Weights {
        Weights::default()
    }

    /// Appends a record to the blob file that text knows under this path; its offset is 64 in a
    /// file of its own. `bytes` are whole elements; for sub-byte types that fill no whole byte see
    /// [`Weights::add_packed`].
    pub fn add(&mut self, file: &str, dtype: DataType, bytes: impl Into<Arc<[u8]>>) -> WeightId {
        let bytes = bytes.into();
        let elements = bytes.len() * 8 / dtype.bits().unwrap_or(8);
        self.add_packed(file, dtype, elements, bytes)
    }

    /// Like [`Weights::add`], with the number of elements.
    pub fn add_packed(
        &mut self,
        file: &str,
        dtype: DataType,
        elements: usize,
        bytes: impl Into<Arc<[u8]>>,
    ) -> WeightId {
        self.append(file, dtype, elements, Data::Own(bytes.into()))
    }

    /// Like [`Weights::add_packed`], with elements that stay where they are, as in a mapped file of
    /// another format.
    pub fn add_shared(&mut self, file: &str, dtype: DataType, elements: usize, bytes: Bytes) -> WeightId {
        let range = 0..bytes.len();
        self.append(file, dtype, elements, Data::In(bytes, range))
    }

    fn append(&mut self, file: &str, dtype: DataType, elements: usize, data: Data) -> WeightId {
        let length = match &data {
            Data::Own(bytes) => bytes.len(),
            Data::In(_, range) => range.len(),
            Data::Absent => 0,
        };
        let first = self.files.get(file).map_or(0, |f| f.len()).max(blob::ALIGNMENT) as u64;
        let offset = blob::align(self.ends.get(file).copied().unwrap_or(first));
        let end = offset + (blob::ALIGNMENT + length) as u64;
        Arc::make_mut(&mut self.ends).insert(file.to_string(), end);
        self.push(WeightRecord { file: file.to_string(), offset, dtype, elements, data }, Origin::Added)
    }

    /// Opens a blob file under the path that text uses. Nothing is read yet. A file already opened
    /// under this path is replaced for later look-ups; records found in it keep their bytes.
    pub fn open_file(&mut self, path: &str, bytes: impl Into<Bytes>) {
        let replaced = Arc::make_mut(&mut self.files).insert(path.to_string(), bytes.into());
        if replaced.is_some() {
            let stale = |key: &Key| key.file == path && matches!(key.origin, Origin::File(_));
            Arc::make_mut(&mut self.index).retain(|key, _| !stale(key));
        }
    }

    /// The record that text names by `path` and `offset`: one that was added or found before, or
    /// one of an opened file. Returns, from the lenient reader, warnings.
    ///
    /// # Errors
    /// `Ok(None)` when there is no such file; a [`BlobError`] when the record cannot be read as
    /// that.
    pub fn find(
        &mut self,
        path: &str,
        offset: u64,
        dtype: DataType,
        elements: usize,
        strictness: Strictness,
    ) -> Result<Option<(WeightId, Vec<BlobError>)>, BlobError> {
        let key = |what, origin| Key { file: path.to_string(), offset, what, origin };
        let what = Some((dtype, elements));
        for origin in [Origin::Added, Origin::File(strictness)] {
            if let Some(id) = self.index.get(&key(what, origin)) {
                return Ok(Some((*id, Vec::new())));
            }
        }
        if let Some(r) = self.index.get(&key(None, Origin::Added)).and_then(|id| self.get(*id)) {
            return Err(if r.dtype != dtype {
                BlobError::Type { expected: dtype, found: r.dtype.to_string() }
            } else {
                let bits = dtype.bits().unwrap_or(8) as u64;
                let expected = (elements as u64).saturating_mul(bits).div_ceil(8);
                BlobError::Size { declared: r.bytes().map_or(0, |b| b.len() as u64), expected }
            });
        }
        let Some(file) = self.files.get(path).cloned() else {
            return if self.ends.contains_key(path) { Err(BlobError::NoRecord { offset, len: 0 }) } else { Ok(None) };
        };
        let (range, odd) = blob::find(&file, offset, dtype, elements, strictness)?;
        let data = Data::In(file, range);
        let record = WeightRecord { file: path.to_string(), offset, dtype, elements, data };
        let id = self.push(record, Origin::File(strictness));
        Ok(Some((id, odd)))
    }

    /// A record that text names and whose bytes are missing: [`Weights::bytes`] is `None`. Programs
    /// with such records can be printed and checked, not compiled.
    pub fn add_absent(&mut self, path: &str, offset: u64, dtype: DataType, elements: usize) -> WeightId {
        let key = Key { file: path.to_string(), offset, what: Some((dtype, elements)), origin: Origin::Absent };
        if let Some(id) = self.index.get(&key) {
            return *id;
        }
        self.push(WeightRecord { file: path.to_string(), offset, dtype, elements, data: Data::Absent }, Origin::Absent)
    }

    fn push(&mut self, record: WeightRecord, origin: Origin) -> WeightId {
        let id = WeightId(self.records.len() as u32);
        let key = |what| Key { file: record.file.clone(), offset: record.offset, what, origin };
        let index = Arc::make_mut(&mut self.index);
        index.insert(key(Some((record.dtype, record.elements))), id);
        if origin == Origin::Added {
            index.insert(key(None), id);
        }
        Arc::make_mut(&mut self.records).push(record);
        id
    }

    fn get(&self, id: WeightId) -> Option<&WeightRecord> {
        self.records.get(id.0 as usize)
    }

    /// The payload of a record. `None` if there is no such record, or only its name is known.
    pub fn bytes(&self, id: WeightId) -> Option<&[u8]> {
        self.get(id)?.bytes()
    }

    /// The payload of a record, to be kept beyond the program: shared, except that a part of a file
    /// that is in memory is copied.
    pub fn shared(&self, id: WeightId) -> Option<Bytes> {
        match &self.get(id)?.data {
            Data::Own(bytes) => Some(Bytes::Shared(bytes.clone())),
            Data::In(file, range) if *range == (0..file.len()) => Some(file.clone()),
            Data::In(file, range) => file.slice(range.clone()),
            Data::Absent => None,
        }
    }

    /// The element type of a record.
    pub fn dtype(&self, id: WeightId) -> Option<DataType> {
        self.get(id).map(|r| r.dtype)
    }

    /// The number of elements of a record.
    pub fn elements(&self, id: WeightId) -> Option<usize> {
        self.get(id).map(|r| r.elements)
    }

    /// `(file, offset of the metadata record)` as text names them.
    pub fn location(&self, id: WeightId) -> Option<(&str, u64)> {
        self.get(id).map(|r| (r.file.as_str(), r.offset))
    }

    /// The bytes of the file that was opened under this path, as they are.
    pub fn opened(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(|f| &**f)
    }

    /// Number of records, added and found; opened files do not count.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The complete blob file for each path, in the order of paths, for an engine or a package. A
    /// file that was opened and not added to is shared unchanged, even if its header is wrong;
    /// others are written.
    pub fn files(&self) -> Vec<(String, Bytes)> {
        let mut paths: Vec<&str> = self.files.keys().map(String::as_str).collect();
        paths.extend(self.ends.keys().map(String::as_str));
        paths.sort_unstable();
        paths.dedup();
        paths.into_iter().map(|path| (path.to_string(), self.file(path))).collect()
    }

    fn file(&self, path: &str) -> Bytes {
        let opened = self.files.get(path);
        if let (Some(file), None) = (opened, self.ends.get(path)) {
            return file.clone();
        }
        // A file opened after records were added under its path is hidden by them.
        let first =
            self.records.iter().find(|r| r.file == path && matches!(r.data, Data::Own(_))).map_or(0, |r| r.offset);
        let mut writer = match opened.filter(|f| f.len() as u64 <= first) {
            Some(f) => blob::Writer::extending(f),
            None => blob::Writer::new(),
        };
        // Added records of one file are in the order of their offsets, because offsets only grow.
        for record in self.records.iter().filter(|r| r.file == path) {
            if let Data::Own(bytes) = &record.data {
                writer.add(record.dtype, bytes, record.elements);
            }
        }
        writer.finish().into()
    }
}

impl WeightRecord {
    fn bytes(&self) -> Option<&[u8]> {
        match &self.data {
            Data::Own(b) => Some(b),
            Data::In(file, range) => file.get(range.clone()),
            Data::Absent => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_what_text_names() {
        let mut w = Weights::new();
        let a = w.add("w/a.bin", DataType::Fp16, vec![1u8, 2]);
        let b = w.add("w/b.bin", DataType::Int8, vec![7u8; 70]);
        let c = w.add("w/b.bin", DataType::Fp32, vec![9u8; 8]);
        assert_eq!(w.location(a), Some(("w/a.bin", 64)));
        assert_eq!(w.location(c), Some(("w/b.bin", 256)));
        let files = w.files();
        assert_eq!(files.iter().map(|(p, _)| p.as_str()).collect::<Vec<_>>(), ["w/a.bin", "w/b.bin"]);
        let mut read = Weights::new();
        for (path, bytes) in files {
            read.open_file(&path, bytes);
        }
        for (id, n) in [(a, 1), (b, 70), (c, 2)] {
            let (path, offset) = w.location(id).expect("record");
            let dtype = w.dtype(id).expect("record");
            let (found, _) = read.find(path, offset, dtype, n, Strictness::Strict).expect("strict").expect("opened");
            assert_eq!(read.bytes(found), w.bytes(id));
        }
        // Adding to an opened file keeps its records and counts them.
        let d = read.add("w/b.bin", DataType::Fp16, vec![5u8; 4]);
        assert_eq!(read.location(d), Some(("w/b.bin", 384)));
        let file = read.files().pop().expect("two files").1;
        let offsets: Vec<u64> = blob::records(&file).expect("well formed").iter().map(|(o, _)| *o).collect();
        assert_eq!(offsets, [64, 256, 384]);
        assert!(matches!(read.find("none", 64, DataType::Fp16, 1, Strictness::Strict), Ok(None)));
        assert!(matches!(
            read.find("w/b.bin", 384, DataType::Fp16, 3, Strictness::Strict),
            Err(BlobError::Size { .. })
        ));
    }

    #[test]
    fn a_replaced_file_is_read_anew_and_leniency_is_not_inherited() {
        let file = |byte: u8| {
            let mut writer = blob::Writer::new();
            writer.add(DataType::Fp16, &[byte; 4], 2);
            writer.finish()
        };
        let find = |w: &mut Weights, strictness| {
            w.find("w", 64, DataType::Fp16, 2, strictness)
                .map(|f| f.map(|(id, _)| (id, w.bytes(id).map(<[u8]>::to_vec))))
        };
        let mut w = Weights::new();
        w.open_file("w", file(1));
        let (old, bytes) = find(&mut w, Strictness::Strict).expect("strict").expect("opened");
        assert_eq!(bytes, Some(vec![1; 4]));
        w.open_file("w", file(2));
        let (_, bytes) = find(&mut w, Strictness::Strict).expect("strict").expect("opened");
        assert_eq!(bytes, Some(vec![2; 4]));
        assert_eq!(w.bytes(old), Some(&[1; 4][..]));
        // Another version than 2 is odd.
        let mut odd = file(3);
        odd[4] = 1;
        w.open_file("w", odd);
        assert!(find(&mut w, Strictness::Lenient).expect("lenient").is_some());
        assert!(find(&mut w, Strictness::Strict).is_err());
        // What was added is right for both.
        let id = w.add("v", DataType::Fp16, vec![0; 4]);
        for strictness in [Strictness::Strict, Strictness::Lenient] {
            let found = w.find("v", 64, DataType::Fp16, 2, strictness).expect("added").expect("added");
            assert_eq!(found.0, id);
        }
    }
}
